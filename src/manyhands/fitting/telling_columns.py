"""What is wrong with X: columns that tell the label or the id, and values that are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.ids import as_frame, base_name, id_column_of, is_id_name
from manyhands.annotations.target import rows_of
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.typing import AnyArray, FloatArray

LABEL_NAMES = frozenset(
    {"label", "labels", "gold", "goldlabel", "truelabel", "truth", "groundtruth", "class", "target"}
)
"""Names of columns of labels, as `base_name` gives them."""


def warn_of_telling_columns(X: Any, table: AnnotationTable) -> None:
    """Warn of columns of a frame that are called like, or equal to, the label or the id.

    Parameters
    ----------
    X : any
    table : AnnotationTable
        Its instances are the rows of X.
    """
    frame = as_frame(X)
    if frame is None or len(frame) != table.n_instances:
        return
    reasons = {}
    ids, votes = id_column_of(X), table.vote_counts()
    for name, column in zip(frame.columns, frame.iter_columns(), strict=True):
        if name == ids:
            continue
        values = column.to_numpy()
        in_order = _equals_ids(values, table)
        if not in_order and _permutes_ids(values, table):
            reasons[name] = "the ids in another order"
        elif is_id_name(str(name)) or base_name(str(name)) in LABEL_NAMES:
            reasons[name] = "so called"
        elif in_order:
            reasons[name] = "equal to the ids"
        elif equals_class(values, table.classes, votes):
            reasons[name] = "equal to the most annotated class"
    if reasons:
        shown = ", ".join(f"{name!r} ({reason})" for name, reason in reasons.items())
        warn_caller(
            f"columns of X look like the label or the id and are used as features: {shown}. Drop "
            "them, or make the ids the index of a pandas frame (in other frames, call their column "
            "'task'), unless new instances have such features, too"
        )


def _equals_ids(values: AnyArray, table: AnnotationTable) -> bool:
    """Whether a column holds the ids of the instances, or the numbers of the rows."""
    if len(values) < 2 or values.dtype.kind not in "iufOUT":
        return False
    if values.dtype.kind == "O" and not all(isinstance(each, str | int) for each in values):
        return False  # Gaps, decimals: nothing that ids are, and not all of it can be compared.
    return any(
        values[0] == ids[0] and bool(np.all(values == ids))
        for ids in (table.instances, np.arange(len(values)), np.arange(1, len(values) + 1))
    )


def _permutes_ids(values: AnyArray, table: AnnotationTable) -> bool:
    """Whether a column of whole numbers or texts holds every id once, in any order."""
    if len(values) < 5 or values.dtype.kind not in "iufOUT":
        return False
    # The first values suffice to pass nearly every feature.
    head = values[:64].tolist()
    if values.dtype.kind == "O":
        if not isinstance(values[0], str):
            return False
        values = values.astype(str)
    elif values.dtype.kind == "f":
        if not all(map(float.is_integer, head)) or (values != np.rint(values)).any():
            return False
        if np.abs(values).max() > 2**53:  # Infinity, or beyond what is exact.
            return False
        values = values.astype(np.int64)
    return len(set(head)) == len(head) and rows_of(values, table.instances) is not None


def equals_class(values: AnyArray, classes: AnyArray, votes: FloatArray) -> bool:
    """Whether a column holds a most voted class of every instance with votes, or its code.

    Parameters
    ----------
    values : array of shape (n_instances,)
    classes : array of shape (n_classes,)
    votes : array of shape (n_instances, n_classes)
    """
    rows = np.flatnonzero(votes.any(axis=1))
    # The first rows suffice to pass nearly every column.
    return all(_tells(values[part], classes, votes[part]) for part in (rows[:64], rows)) and (
        len(set(values[rows].tolist())) > 1
    )


def _tells(values: AnyArray, classes: AnyArray, votes: FloatArray) -> bool:
    """Whether every value is a class, or a code, with the most votes in its row."""
    numeric = classes.dtype.kind in "iub"
    if len(values) < 2 or values.dtype.kind not in ("iufb" if numeric else "iufbOUT"):
        return False
    text = values.dtype.kind in "OUT"
    cells = values[:, None] == (classes if numeric or text else np.arange(len(classes)))
    return bool((np.where(cells, votes, -1).max(axis=1) == votes.max(axis=1)).all())


def refused_features(estimator: Any, X: Any, error: ValueError) -> ValueError:
    """Explain why scikit-learn refused X, where its own words say no place or no mend."""
    if "array element with a sequence" in str(error):
        sizes = sorted({len(row) for row in X if hasattr(row, "__len__")})
        found = f" ({sizes[0]} to {sizes[-1]} entries)" if len(sizes) > 1 else ""
        return AnnotationError(
            f"X has rows of different lengths{found}; give all of them one: pad sequences of token "
            "ids, with an id that your network ignores (nn.Embedding(..., padding_idx=0))"
        )
    if "NaN" in str(error) or "infinity" in str(error):
        return AnnotationError(where_not_finite(estimator, X))
    return error


def where_not_finite(estimator: Any, X: Any) -> str:
    """Say where X, which scikit-learn refused, holds NaN or infinity, and what to do.

    Parameters
    ----------
    estimator : classifier
    X : array, sparse matrix or frame of shape (n, ...)
    """
    gaps, place = True, ""
    try:
        names = getattr(X, "columns", None)
        values = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        broken = np.argwhere(~np.isfinite(values))
        gaps = bool(np.isnan(values).any())
        if len(broken):
            row, *inside = broken[0].tolist()
            column = repr(inside[0] if names is None else names[inside[0]])
            n_rows = len(np.unique(broken[:, 0]))
            place = f" in {n_rows:,} of {len(values):,} rows, first in row {row}"
            place += f", column {column}" if len(inside) == 1 else ""
    except (TypeError, ValueError):  # Objects that are no numbers: the place stays unknown.
        pass
    if not gaps:
        return (
            f"Input X contains infinity or a value too large for float32{place}; replace such "
            "values, or leave their rows out"
        )
    frame = getattr(estimator, "members", None) == "auto"
    return (
        f"Input X contains NaN{place}; leave such rows out, or fill the gaps: "
        f"make_pipeline(SimpleImputer(), {type(estimator).__name__}())"
        f"{' (those of a data frame are filled without, if the fit saw some)' if frame else ''}"
    )
