"""Continued training by ``partial_fit``: later annotations, and the data kept for them.

A partial fit trains on everything seen, mostly from the parameters found so far. Training on the
new annotations alone would forget what was learnt before (``docs/results/partial_fit.md``). When
the annotations have doubled since the last training from scratch, there is another, so that what a
small first piece decided is decided again. Torch is imported only for tensors and Datasets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from manyhands.annotations import AnnotationTable, as_table
from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.encoding import as_values, encode, missing_mask, tidy
from manyhands.annotations.ids import GIVEN, as_frame, row_ids
from manyhands.annotations.target import Target, check_annotations, in_order_of_rows
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.fitting.context import Earlier, Watch
from manyhands.fitting.fitted import fitted_attributes, fitted_twin, forget_fit, take_over, twin
from manyhands.fitting.reading import (
    as_target,
    check_rows,
    is_dataset,
    take_rows,
)
from manyhands.inference.inputs import (
    check_scale_of,
    holds_nothing,
    on_scale_of,
    only_new,
    recode_classes,
)
from manyhands.typing import AnyArray, Instances, IntArray

GROWTH = 2
"""Growth of the annotations since the last training from scratch at which there is another one."""


@dataclass(frozen=True, eq=False)
class Seen:
    """All data that a classifier and its partial fits have seen.

    Attributes
    ----------
    X : as in ``fit``
        Features of the instances of the table, in its order.
    table : AnnotationTable
    from_scratch : int
        Number of annotations at the last training from scratch.
    """

    X: Any
    table: AnnotationTable
    from_scratch: int


FOR_THE_FIRST_CALL = dict.fromkeys(("validation", "patience", "protocol__patience", "checkpoint"))
"""Parameters that a later training from scratch leaves out."""


def fit_from_scratch(
    model: BaseEstimator, seen: Seen, options: dict[str, Any], **fixed: Any
) -> None:
    """Fit to everything seen, as if it had come at once; with some parameters ``fixed``.

    A copy with these parameters is fitted, and its fitted attributes are taken over.
    """
    whole = twin(model, **FOR_THE_FIRST_CALL | fixed).fit(seen.X, seen.table, **options)
    forget_fit(model)
    take_over(model, fitted_attributes(whole))


FEW_EPOCHS = 4
"""Most epochs, chosen by pilots, of a training that is repeated instead of continued.

To continue costs at least an epoch, so to repeat costs little more. Pilots choose so few epochs if
further ones would learn the annotators' mistakes, which continuing would do.
"""


def gone_on(
    model: BaseEstimator, seen: Seen, earlier: Earlier, watch: Watch | None = None
) -> BaseEstimator:
    """Return a fitted classifier after continued training, for one that consists of it."""
    again = fitted_twin(model)
    again._go_on(seen, replace(earlier, model=model), watch)
    return again


def refusal_of(does: str, parts: Iterable[Any]) -> str | None:
    """Return why a classifier that consists of others cannot continue, if one of them cannot."""
    for part in parts:
        if not (hasattr(part, "_go_on") and hasattr(part, "partial_fit")):
            return f"{does} {type(part).__name__}, which cannot go on"
    return None


def first_table(model: BaseEstimator, X: Instances, y: Target, classes: Any) -> AnnotationTable:
    """Return the annotations of the first call, over the declared classes.

    Raises
    ------
    AnnotationError
        If ``classes`` are not two or more different classes, or y has others.
    """
    table = _named(X, as_target(X, y, type(model).__name__))
    if classes is None:
        return table
    declared = as_values(classes)
    if declared.ndim != 1 or len(np.unique(declared)) < max(2, len(declared)):
        raise AnnotationError(
            f"classes={classes!r} must be a list of two or more different classes"
        )
    return _over_classes(table, tidy(declared, "classes"), "add them to classes=")


def unmatched(X: Instances, y: Target) -> AnnotationTable:
    """Read a target without a look at its rows of X."""
    return y if isinstance(y, AnnotationTable) else as_table(in_order_of_rows(X, y))


def _named(X: Instances, table: AnnotationTable) -> AnnotationTable:
    """Give the ids of X to instances that a table only numbers."""
    ids = row_ids(X) if table.instance_order.kind == "numbered" else None
    if ids is None or len(ids.values) != table.n_instances:
        return table
    return replace(table, instances=ids.values, instance_order=GIVEN)


def _over_classes(table: AnnotationTable, classes: AnyArray, mend: str) -> AnnotationTable:
    try:
        return recode_classes(table, classes, argument="y")
    except AnnotationError as error:
        raise AnnotationError(f"{error}; {mend}") from error


def with_added(
    model: BaseEstimator, X: Instances, y: Target, classes: Any, duplicates: Duplicates
) -> tuple[Seen | None, float]:
    """Return all data including the new part, and the share of it; None if nothing is new.

    Raises
    ------
    AnnotationError
        If X has other features than before, ``classes`` differ from those of the first
        call, or y has others.
    """
    model._check_shape(X)
    if classes is not None and not np.array_equal(as_values(classes), model.classes_):
        raise AnnotationError(
            f"classes={classes!r} differ from those of the first call, {model.classes_.tolist()}, "
            "which are fixed; leave classes out"
        )
    new = _named(X, as_target(X, y, type(model).__name__))
    check_rows(X, new)
    mend = "classes are fixed by the first call: fit anew on everything, or declare all classes "
    mend += "there, partial_fit(classes=...)"
    kept = getattr(model, "seen_", None)
    if kept is not None:
        check_scale_of(kept.table, new, argument="y")
    new = _over_classes(new, model.classes_, mend)
    if new.n_annotations:  # Otherwise, there are abstentions or skips alone.
        check_annotations(new, argument="y")
    if kept is None:
        return _everything_again(model, X, new)
    new = on_scale_of(kept.table, new, argument="y")
    fresh = only_new(new, kept.table, duplicates)
    merged = kept.table.with_added(fresh, duplicates=duplicates)
    seen = Seen(_extended(kept, X, new, merged), merged, kept.from_scratch)
    share = min(1.0, fresh.n_annotations / merged.n_annotations)
    return None if holds_nothing(fresh, new) else seen, share


def _everything_again(
    model: BaseEstimator, X: Instances, given: AnnotationTable
) -> tuple[Seen, float]:
    """Return the data for a model that has kept none; its known annotators come first."""
    known = AnnotationTable.from_arrays(
        [],
        [],
        [],
        classes=model.classes_,
        annotators=model.annotators_,
        instances=given.instances,
    )
    known = replace(known, scale=given.scale, class_order=given.class_order)
    table = known.with_added(given)
    before = getattr(model, "n_annotations_", 0)
    absent = (table.annotations_per_annotator()[: len(model.annotators_)] == 0).sum()
    if table.n_annotations < before or absent:
        said = f"{table.n_annotations:,} annotations"
        if table.n_annotations >= before:
            said += f", none of them by {absent} of the {len(model.annotators_)} known annotators"
        warn_caller(
            f"partial_fit was given {said}. This model was trained on {before:,} and does not "
            "keep them, so it forgets those that are not given again. Give all annotations, old "
            "and new, or start with partial_fit instead of fit"
        )
        before = 0
    share = (table.n_annotations - before) / table.n_annotations
    return Seen(X, table, before or table.n_annotations), share


# -- features, piece by piece ---------------------------------------------------------------------


def _extended(kept: Seen, X: Instances, new: AnnotationTable, merged: AnnotationTable) -> Any:
    """Return the features of all instances, in the order of the merged table."""
    places, _ = encode(
        new.instances, merged.instances, argument="y", vocabulary_name="the instances"
    )
    old = np.flatnonzero(places < kept.table.n_instances)
    _check_kind(kept.X, X)
    if len(old):
        _check_unchanged(kept.X, X, places[old], old, new)
    added = np.flatnonzero(places >= kept.table.n_instances)
    if not len(added):
        return kept.X
    rows = take_rows(X, added[np.argsort(places[added])])
    joined = _stacked(kept.X, rows)
    if hasattr(joined, "iloc"):
        joined.index = merged.instances  # Otherwise, default indices would occur twice.
    return joined


def _kind(X: Instances) -> str:
    if as_frame(X) is not None:
        return "a data frame"
    if is_dataset(X):
        return "a Dataset"
    if sparse.issparse(X):
        return "a sparse matrix"
    return "a dict of arrays" if isinstance(X, Mapping) else "an array"


def _check_kind(before: Any, X: Instances) -> None:
    if _kind(before) != _kind(X):
        raise AnnotationError(
            f"X is {_kind(X)}, but earlier calls gave {_kind(before)}; give {_kind(before)} again"
        )


def _check_unchanged(
    before: Any, X: Instances, places: IntArray, rows: IntArray, new: AnnotationTable
) -> None:
    """Raise an error if an old instance has other features; items of Datasets are not compared."""
    if is_dataset(X):
        return
    mine, theirs = take_rows(before, places), take_rows(X, rows)
    frame = as_frame(mine)
    if frame is not None:
        mine, theirs = frame, as_frame(theirs).select(frame.columns)  # type: ignore[union-attr]
    differs = _differing_rows(mine, theirs)
    if differs.any():
        changed = new.instances[rows[np.flatnonzero(differs)[0]]].item()
        numbered = new.instance_order.kind == "numbered"
        mend = (
            "the rows of y have no ids, so they were matched with the earlier instances 0, 1, "
            "...: give new instances ids by from_frame(tasks=) or from_matrix(instances=)"
            if numbered
            else "give new instances ids of their own; if the features have changed, fit anew"
        )
        raise AnnotationError(
            f"the features in X differ from those of earlier calls for {int(differs.sum())} known "
            f"instances, the first being {changed!r}; {mend}"
        )


def _differing_rows(mine: Any, theirs: Any) -> AnyArray:
    """Return the mask of rows that differ, shape (n,); gaps equal gaps."""
    if isinstance(mine, Mapping):
        return np.any([_differing_rows(mine[name], theirs[name]) for name in mine], axis=0)
    if sparse.issparse(mine):
        return np.asarray(abs(mine - theirs).max(axis=1).toarray() > 0).ravel()
    a, b = _as_array(mine), _as_array(theirs)
    if a.dtype.kind == b.dtype.kind == "f":
        a, b = a.astype(np.float32), b.astype(np.float32)
    same = np.asarray(a == b, dtype=bool) | (missing_mask(a) & missing_mask(b))
    return np.logical_not(same.reshape(len(a), -1).all(axis=1))


def _as_array(values: Any) -> AnyArray:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)


def _stacked(before: Any, rows: Any) -> Any:
    """Append new rows to the others."""
    frame = as_frame(before)
    if frame is not None:
        return _stacked_frames(frame, as_frame(rows))
    if isinstance(before, Mapping):
        return {name: _stacked(part, rows[name]) for name, part in before.items()}
    if sparse.issparse(before):
        vstack: Any = sparse.vstack
        return vstack([before, rows], format="csr")
    if is_dataset(before):
        datasets = sys.modules["torch"].utils.data
        parts = before.datasets if isinstance(before, datasets.ConcatDataset) else [before]
        return datasets.ConcatDataset([*parts, rows])
    return np.concatenate([_as_array(before), _as_array(rows)])


def _stacked_frames(before: Any, rows: Any) -> Any:
    import narwhals as nw

    rows = rows.select(before.columns)
    schema = before.schema
    if rows.schema != schema:  # Categories, or whole numbers on one day only.
        both = {
            name: kind if rows.schema[name] == kind else nw.String()
            for name, kind in schema.items()
            if not (kind.is_numeric() and rows.schema[name].is_numeric())
        }
        before, rows = (
            frame.with_columns(nw.col(name).cast(kind) for name, kind in both.items())
            for frame in (before, rows)
        )
    return nw.concat([before, rows], how="vertical").to_native()
