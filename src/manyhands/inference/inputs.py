"""Checks and re-coding of the arguments of `fit` and `predict`: tables, gold labels, posteriors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable
from manyhands.annotations.class_order import shown_order
from manyhands.annotations.encoding import (
    as_values,
    encode,
    equal_mask,
    make_vocabulary,
    merge_vocabularies,
    missing_mask,
    of_one_kind,
)
from manyhands.annotations.groups import ALONE
from manyhands.annotations.ids import as_frame, first_and_last, id_column_of, is_default_index
from manyhands.annotations.passes import recode_passes
from manyhands.annotations.scales import MEANT
from manyhands.annotations.target import (
    as_one_kind,
    matched,
    rows_of,
    same_ids,
    warn_of_shuffled_rows,
)
from manyhands.decision.labels import as_posterior
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.inference.probability import normalise_rows
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray


def warn_of_numbered_rows(before: AnnotationTable, new: AnnotationTable) -> None:
    """Warn if neither table names its instances, so that rows are taken as earlier instances."""
    if {before.instance_order.kind, new.instance_order.kind} != {"numbered"}:
        return
    annotated = new.instances[np.unique(new.instance)]
    old = int(np.isin(annotated, before.instances).sum())
    if old:
        n = before.n_instances
        warn_caller(
            f"{old} of the {len(annotated)} rows are taken for instances of before: neither table "
            "names its instances, so rows are instances 0, 1, ... in both. If they are others, "
            f"number them so: AnnotationTable.from_matrix(A, instances=range({n}, "
            f"{n + new.n_instances})), or give all tables ids of their own"
        )


def holds_nothing(table: AnnotationTable, given: AnnotationTable | None = None) -> bool:
    """Return whether a table has neither annotations nor passes to add; a warning says so.

    ``given`` is the table before known annotations were left out.
    """
    if _n_answers(table):
        return False
    found = "no annotations to add"
    if given is not None and _n_answers(given):
        found = f"no annotations to add (all {_n_answers(given):,} are known, with the same labels)"
    warn_caller(f"there are {found}, so partial_fit has changed nothing")
    return True


def only_new(new: AnnotationTable, known: AnnotationTable, duplicates: str) -> AnnotationTable:
    """Leave out known annotations if ``duplicates`` is "last".

    Raises
    ------
    AnnotationError
        If ``duplicates`` is "error" and all annotations are known, with the same labels, or if a
        known annotator has another family.
    """
    _check_families(new, known)
    if duplicates not in ("error", "last"):
        return new
    fresh = without_known(new, known)
    if duplicates == "last":
        return fresh
    if _n_answers(new) and not _n_answers(fresh):
        raise AnnotationError(
            f"all {_n_answers(new):,} annotations are known already, with the same labels: the "
            'same table again? Leave this call out; duplicates="last" adds what is new, if '
            'anything, and duplicates="keep" counts all of them again'
        )
    return new


def _check_families(new: AnnotationTable, known: AnnotationTable) -> None:
    """Raise an error if a known annotator has another family; warn if they had none before."""
    if new.groups is None or known.groups is None:
        return
    codes, _ = merge_vocabularies(known.annotators, new.annotators)
    told = np.flatnonzero((codes < known.n_annotators) & (new.groups != ALONE))
    before, after = known.groups[codes[told]], new.groups[told]
    changed = np.flatnonzero(before != after)
    other = changed[before[changed] != ALONE]
    if len(other):
        raise AnnotationError(
            f"table has annotator {new.annotators[told[other[0]]].item()!r} in the family "
            f"{after[other[0]].item()!r}, the fit in {before[other[0]].item()!r}. The families of "
            "the fit hold for its annotators: give the table the same ones (with_groups), or fit "
            "anew on all annotations with new ones"
        )
    if len(changed):
        more = f" (and {len(changed) - 1} more likewise)" if len(changed) > 1 else ""
        warn_caller(
            f"annotator {new.annotators[told[changed[0]]].item()!r} stood alone in the fit and is "
            f"in the family {after[changed[0]].item()!r} of the added table{more}: the family now "
            "holds for the annotations of before, too"
        )


def without_known(new: AnnotationTable, known: AnnotationTable) -> AnnotationTable:
    """Leave out annotations and passes that another table holds with the same answer.

    A pair that one of the tables holds more than once was repeated on purpose and is kept.
    """
    rows, _ = merge_vocabularies(known.instances, new.instances)
    who, annotators = merge_vocabularies(known.annotators, new.annotators)
    codes = np.arange(known.n_instances), np.arange(known.n_annotators)
    theirs, answers = _answers(known, *codes, len(annotators))
    mine, own = _answers(new, rows, who, len(annotators))
    pairs, first, counts = np.unique(theirs, return_index=True, return_counts=True)
    pairs, first = pairs[counts == 1], first[counts == 1]
    if not len(pairs):
        return new
    place = np.minimum(np.searchsorted(pairs, mine), len(pairs) - 1)
    _, inverse, times = np.unique(mine, return_inverse=True, return_counts=True)
    same = (pairs[place] == mine) & (times[inverse] == 1)
    kept = ~(same & (answers[first[place]] == own).all(axis=1))
    m = new.n_annotations
    passes = None if new.passes is None else new.passes[kept[m:]]
    return replace(new.take(kept[:m]), passes=passes)


def _answers(
    table: AnnotationTable, rows: IntArray, who: IntArray, n_annotators: int
) -> tuple[IntArray, FloatArray]:
    """Code the pair of every annotation and pass, and its answer, weight and source."""
    passes = np.zeros((0, 3), dtype=np.int64) if table.passes is None else table.passes
    instance = np.concatenate([table.instance, passes[:, 0]])
    annotator = np.concatenate([table.annotator, passes[:, 1]])
    says = np.zeros((len(instance), 3))
    says[:, 0] = np.concatenate([table.label, table.n_classes + passes[:, 2]])
    says[: table.n_annotations, 1] = table.weight
    says[: table.n_annotations, 2] = 0 if table.sources is None else table.sources
    return rows[instance].astype(np.int64) * n_annotators + who[annotator], says


def _n_answers(table: AnnotationTable) -> int:
    return table.n_annotations + len(table.abstentions) + len(table.skips)


def gold_codes(gold: Any, table: AnnotationTable, X: Any = None, name: str = "gold") -> IntArray:
    """Read known classes as codes, -1 where unknown, shape (n_instances,).

    A warning is given if the labels have no ids but the rows of X are visibly shuffled.

    Raises
    ------
    AnnotationError
        If an instance or a class is unknown, or an array has the wrong length.
    """
    codes = np.full(table.n_instances, MISSING)
    if as_frame(gold) is not None:
        raise AnnotationError(
            "gold is a data frame; give its column of labels as a pandas Series with the ids of "
            "the instances as its index, such as gold.set_index('task')['label']"
        )
    if isinstance(gold, Mapping) or (hasattr(gold, "iloc") and not _in_order(gold, table)):
        if isinstance(gold, Mapping):
            ids, values = list(gold), as_values(list(gold.values()))
        else:  # A pandas Series is indexed by id.
            gold = gold[gold.notna()]
            ids, values = gold.index.tolist(), as_values(gold.tolist())
        if not ids:
            return codes
        positions, _ = encode(
            *of_one_kind(ids, table.instances, "gold"),
            argument="gold",
            vocabulary_name="the table's instances",
        )
    else:
        values = as_values(gold)
        if values.shape != (table.n_instances,):
            raise AnnotationError(
                f"gold has shape {values.shape}; it must have one entry per instance, shape "
                f"({table.n_instances},), with None where unknown, or be a dict "
                "{instance id: class}"
            )
        warn_of_shuffled_rows(X, values, name=name)
        positions = np.arange(table.n_instances)
    unknown = missing_mask(values)
    if values.dtype.kind in "ifO" and not (table.classes == MISSING).any():
        unknown = unknown | equal_mask(values, MISSING)
    positions = positions[~unknown]
    found, _ = encode(
        *of_one_kind(values[~unknown].tolist(), table.classes, "gold"),
        argument="gold",
        vocabulary_name="the table's classes",
    )
    codes[positions] = found
    if (codes[positions] != found).any():
        place = positions[codes[positions] != found][0]
        labels = [table.classes[code].item() for code in np.unique(found[positions == place])]
        raise AnnotationError(
            f"gold holds the instance {table.instances[place].item()!r} more than once, with "
            f"different labels ({', '.join(map(repr, labels))}); keep the right one"
        )
    return codes


def _in_order(gold: Any, table: AnnotationTable) -> bool:
    """Return whether a Series with a default index has an entry for each instance of the table."""
    numbers = np.arange(table.n_instances)
    return (
        is_default_index(gold.index)
        and len(gold) == table.n_instances
        and not np.isin(*as_one_kind(numbers, table.instances)).any()
    )


def gold_of_both(
    before: IntArray | None, gold: Any, new: AnnotationTable, merged: AnnotationTable
) -> IntArray | None:
    """Return the gold of a merged table as codes: the earlier gold, and that of new instances."""
    known = np.full(merged.n_instances, MISSING)
    if before is not None:
        known[: len(before)] = before
    if gold is not None:
        codes = gold_codes(gold, new)
        places, _ = encode(
            new.instances, merged.instances, argument="table", vocabulary_name="instances"
        )
        known[places[codes >= 0]] = codes[codes >= 0]
    return known if (known >= 0).any() else None


def drawn_at_random(drawn: Any, table: AnnotationTable) -> BoolArray:
    """Return a mask of the instances that were drawn at random, shape (n_instances,).

    Raises
    ------
    AnnotationError
        If an instance is unknown, or a mask has the wrong length.
    """
    values = np.asarray(list(drawn) if not hasattr(drawn, "dtype") else drawn)
    if values.dtype == bool:
        if values.shape != (table.n_instances,):
            raise AnnotationError(
                f"random_gold has shape {values.shape}; give a mask with one entry per instance, "
                f"shape ({table.n_instances},), or the ids of the instances"
            )
        return values
    mask = np.zeros(table.n_instances, dtype=bool)
    if values.size:
        places, _ = encode(
            *of_one_kind(values.tolist(), table.instances, "random_gold"),
            argument="random_gold",
            vocabulary_name="the table's instances",
        )
        mask[places] = True
    return mask


def drawn_of_both(
    before: BoolArray | None, drawn: Any, new: AnnotationTable, merged: AnnotationTable
) -> BoolArray | None:
    """Return the mask of a merged table's instances with random gold; None if it is unknown."""
    if before is None and drawn is None:
        return None
    mask = np.zeros(merged.n_instances, dtype=bool)
    if before is not None:
        mask[: len(before)] = before
    if drawn is not None:
        own = drawn_at_random(drawn, new)
        places, _ = encode(
            new.instances, merged.instances, argument="table", vocabulary_name="instances"
        )
        mask[places[own]] = True
    return mask


def checked_posterior(values: Any, n_instances: int, n_classes: int, argument: str) -> FloatArray:
    """Check class probabilities of each instance, and return them as a new array (n, C)."""
    posterior = as_posterior(values, argument=argument)
    if posterior.shape != (n_instances, n_classes):
        raise AnnotationError(
            f"{argument} has shape {posterior.shape}; it must have one row per instance and one "
            f"column per class, {(n_instances, n_classes)}"
        )
    return normalise_rows(np.maximum(posterior, 0.0))


def with_ids(values: Any) -> Any:
    """Return a result of `manyhands.cross_predict` as a frame; anything else unchanged."""
    return (
        values.to_frame() if hasattr(values, "proba") and hasattr(values, "instances") else values
    )


def probabilities_of(table: AnnotationTable, values: Any, argument: str) -> FloatArray:
    """Return class probabilities of a table's instances as a new array (n, C).

    Rows of a frame are matched with the instances by id, like those of X, and its columns with the
    classes by name; those of a result of `manyhands.cross_predict`, too.

    Raises
    ------
    AnnotationError
        If ids or names do not match, the shape is wrong, or the values are not probabilities.
    """
    values = with_ids(values)
    given = matched(table, values, argument="table", rows_argument=argument)
    frame = as_frame(values)
    if frame is not None:
        values = in_order_of_classes(frame, id_column_of(values), table.classes, argument)
    proba = checked_posterior(values, table.n_instances, table.n_classes, argument)
    rows = rows_of(table.instances, given.instances)
    return proba if rows is None else proba[rows]


def frame_in_order(table: AnnotationTable, values: Any, argument: str) -> Any:
    """Return a frame with rows and columns in the order of a table's instances and classes.

    They are matched as in `probabilities_of`, but values are not checked. Anything without ids is
    returned unchanged.
    """
    values = with_ids(values)
    frame = as_frame(values)
    if frame is None:
        return values
    given = matched(table, values, argument="table", rows_argument=argument)
    inner = in_order_of_classes(frame, id_column_of(values), table.classes, argument)
    rows = rows_of(table.instances, given.instances)
    return inner if rows is None or len(inner) != len(rows) else inner[rows]


def rows_of_fitted(model: Any, table: AnnotationTable, argument: str) -> IntArray | slice:
    """Return the rows of a fitted estimator's ``posterior_`` and ``labels_`` for a table.

    A classifier has them in the order of X. They are matched by ``instances_``. If the ids differ,
    and those of one side are mere numbers 0, 1, ..., the order is taken to be the same.

    Raises
    ------
    AnnotationError
        If the estimator was fitted on other instances.
    """
    own = getattr(model, "instances_", None)
    if own is None or same_ids(own, table.instances):
        return slice(None)
    rows = rows_of(table.instances, own)
    if rows is not None:
        return rows
    numbered = table.instance_order.kind == "numbered" or np.array_equal(own, np.arange(len(own)))
    if not numbered or len(own) != table.n_instances:
        raise AnnotationError(
            f"{argument} {type(model).__name__} was fitted on {len(own):,} instances "
            f"({first_and_last(own)}), the table has {table.n_instances:,} "
            f"({first_and_last(table.instances)}); give the table that it was fitted on"
        )
    return slice(None)


def posterior_of_fitted(model: Any, table: AnnotationTable, argument: str) -> Any:
    """Return the posterior of a fitted estimator for the instances and classes of a table, (n, C).

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the estimator is not fitted.
    AnnotationError
        If it has no posterior of the instances of its fit, or was fitted on other instances.
    """
    if hasattr(model, "steps"):
        model = model.steps[-1][1]
    check_is_fitted(model)
    name = type(model).__name__
    if not hasattr(model, "posterior_"):
        raise AnnotationError(
            f"{argument} is a {name}, which has no posterior_ of the instances that it was fitted "
            "on; give probabilities of the table's instances, such as a frame of "
            "predict_proba(X) with their ids as the index and the classes as columns"
        )
    posterior = model.posterior_[rows_of_fitted(model, table, argument)]
    classes = getattr(model, "classes_", table.classes)
    if np.array_equal(classes, table.classes):
        return posterior
    places, _ = encode(
        classes, table.classes, argument=f"{name}.classes_", vocabulary_name="the table's classes"
    )
    whole = np.zeros((len(posterior), table.n_classes))
    whole[:, places] = posterior.toarray() if hasattr(posterior, "toarray") else posterior
    return whole


def series_in_order(table: AnnotationTable, values: Any, argument: str) -> Any:
    """Return a pandas Series with its own index in the order of a table's instances.

    Anything else is returned unchanged.
    """
    if not hasattr(values, "iloc") or is_default_index(values.index):
        return values
    given = matched(table, values, argument="table", rows_argument=argument)
    rows = rows_of(table.instances, given.instances)
    return values if rows is None or len(values) != len(rows) else values.iloc[rows]


def in_order_of_classes(frame: Any, ids: str | None, classes: AnyArray, argument: str) -> Any:
    """Return the columns of a frame, except the ids, in the order of the classes they name."""
    columns = dict(zip(frame.columns, frame.iter_columns(), strict=True))
    columns.pop(ids, None)
    names = make_vocabulary([str(name) for name in columns], f"the columns of {argument}")
    # pandas' default columns number the classes in their order.
    numbered = is_default_index(getattr(frame.to_native(), "columns", None))
    places = None if numbered else rows_of(classes, names)
    if places is None and any(isinstance(name, str) for name in columns):
        raise AnnotationError(
            f"{argument} has the columns {first_and_last(names)}, the table the classes "
            f"{first_and_last(classes)}; call the columns as the classes are, or pass an array "
            "with columns in the order of the classes"
        )
    values = np.column_stack([column.to_numpy() for column in columns.values()])
    return values if places is None else values[:, places]


def recode_classes(table: AnnotationTable, classes: AnyArray, *, argument: str) -> AnnotationTable:
    """Return the table with labels re-coded as codes of the fitted classes."""
    if np.array_equal(table.classes, classes):
        return table
    seen = table.mask_of_classes_seen()
    new = np.zeros(table.n_classes, dtype=np.int64)
    new[seen], _ = encode(
        table.classes[seen], classes, argument=argument, vocabulary_name="the fitted classes"
    )
    return replace(table, label=new[table.label], classes=classes)


def check_scale_of(fitted: AnnotationTable, table: AnnotationTable, *, argument: str) -> None:
    """Raise an error if annotations to add declare another scale than the fit, or another order.

    Nominal annotations declare no order and may be added to a fit on ordered classes.

    Parameters
    ----------
    fitted : AnnotationTable
        The table of the fit.
    table : AnnotationTable
        The table to add.
    argument : str
        Name of ``table`` in messages.

    Raises
    ------
    AnnotationError
        If the scales or the orders differ.
    """
    mine, theirs = fitted.scale, table.scale
    if theirs not in (mine, "nominal"):
        raise AnnotationError(
            f"{argument}: the labels are {MEANT[theirs]} (scale={theirs!r}), and the fit was made "
            f"on {MEANT[mine]}; add them by scale={mine!r}, or fit anew on everything by "
            f"scale={theirs!r}"
        )
    if theirs != "ordinal":
        return
    places = {name: place for place, name in enumerate(fitted.classes.tolist())}
    shared = [places[name] for name in table.classes.tolist() if name in places]
    if shared != sorted(shared):
        raise AnnotationError(
            f"{argument}: the grades are in the order {shown_order(table.classes)}, and in the fit "
            f"in the order {shown_order(fitted.classes)}; read both by the same classes="
        )


def on_scale_of(
    fitted: AnnotationTable, table: AnnotationTable, *, argument: str
) -> AnnotationTable:
    """Return annotations to add with the classes and the scale of the fit.

    Parameters and errors are those of `check_scale_of` and `recode_classes`.
    """
    check_scale_of(fitted, table, argument=argument)
    found = recode_classes(table, fitted.classes, argument=argument)
    return replace(found, scale=fitted.scale, class_order=fitted.class_order)


def recode_annotators(table: AnnotationTable, annotators: AnyArray) -> AnnotationTable:
    """Re-code the annotators of a table as the fitted ones; inactive ones may be unknown."""
    if np.array_equal(table.annotators, annotators):
        return table
    # An unknown annotator is an error only if annotations or abstentions would be lost.
    active = np.unique(np.concatenate([table.annotator, table.abstentions[:, 1]]))
    new = np.full(table.n_annotators, -1)
    try:
        new[active], _ = encode(
            table.annotators[active],
            annotators,
            argument="table",
            vocabulary_name="the fitted annotators",
        )
    except AnnotationError as error:
        raise AnnotationError(
            f"{error} (predict knows only the annotators of fit; add new ones with partial_fit)"
        ) from error
    passes = None if table.passes is None else recode_passes(table.passes, annotator=new)
    return replace(
        table,
        annotator=new[table.annotator],
        annotators=annotators,
        passes=passes,
        groups=None,  # The families of the fit apply.
    )
