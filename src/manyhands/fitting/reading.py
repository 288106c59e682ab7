"""Reading the inputs of ``fit`` and ``predict``: features, annotations, ids of annotators.

Torch is imported only for what needs it: tensors, Datasets, and dicts of arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, validate_data

from manyhands.annotations import AnnotationTable, LabelSetTable, as_table
from manyhands.annotations.digests import InstanceDigests
from manyhands.annotations.encoding import as_values, missing_mask
from manyhands.annotations.ids import (
    are_shuffled,
    as_frame,
    base_name,
    first_and_last,
    id_column,
    id_column_of,
    is_id_name,
    row_ids,
)
from manyhands.annotations.target import (
    SETS_TO_LEARN,
    Target,
    check_annotations,
    in_order_of_rows,
    matched,
    refuse_swapped,
    rows_of,
)
from manyhands.decision.labels import check_rule_of
from manyhands.encoders.inputs import raw_kind
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.fitting.fitted import SET_WITH_FEATURES, forget_fit
from manyhands.fitting.parameters import check_decision
from manyhands.io.mapped import MappedRows, as_mapped
from manyhands.typing import AnyArray, FloatArray, Instances, IntArray


def as_target(X: Instances, y: Target, name: str) -> AnnotationTable:
    """Read the target of the named estimator; instances of a table in the order of X, by id.

    Raises
    ------
    AnnotationError
        If y is missing, is a table of sets, or seems to be swapped with X.
    """
    if not isinstance(y, AnnotationTable):  # A table is matched with X, which refuses it, too.
        refuse_swapped(X)
    if y is None:
        raise AnnotationError(
            f"{name} requires y to be passed, but the target y is None; give an AnnotationTable, "
            "an (n_samples, n_annotators) array, or one label per row"
        )
    if isinstance(y, LabelSetTable):
        raise AnnotationError(f"y is a LabelSetTable: {SETS_TO_LEARN.format(name=name)}")
    if not isinstance(y, AnnotationTable) and not hasattr(y, "toarray"):
        values = as_values(y)
        if values.ndim == 1 and values.dtype.kind == "f" and np.isfinite(values).all():
            check_classification_targets(values)
    return table_of(X, y)


def table_of(X: Instances, y: Target) -> AnnotationTable:
    """Read annotations of the rows of X, matched with them by id if both have ids."""
    if isinstance(y, AnnotationTable):
        return matched(as_table(y, what="training a classifier of crowds"), X)
    return as_table(in_order_of_rows(X, y))


def drop_weightless(table: AnnotationTable) -> AnnotationTable:
    """Return the table without annotations of weight 0, which count as missing."""
    return table if table.weights is None else table.take(table.weights > 0)


def read_target(X: Instances, y: Target, name: str) -> AnnotationTable:
    """Read a target as `as_target` does, without annotations of weight 0."""
    return drop_weightless(as_target(X, y, name))


def read_features(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Check X and return a float array, a CSR matrix, or the Dataset itself.

    Parameters
    ----------
    estimator : BaseCrowdClassifier
    X : array-like, sparse matrix, tensor, map-style Dataset, DataLoader, or dict of arrays
        A dict of arrays, such as a tokenizer returns, becomes a Dataset of its rows.
    reset : bool
        Whether the estimator is being fitted on X: its shape is then stored rather than checked.

    Returns
    -------
    array of shape (n, ...), CSR matrix, MappedRows, Dataset or DataLoader
        Arrays are float32, or uint8 where they were and have more than two axes.

    Raises
    ------
    AnnotationError
        If X is text or an IterableDataset, or the shape of an instance differs from that in
        ``fit``.
    """
    X = as_fitted(estimator, X, reset=reset)
    if _is_dict(X):
        from manyhands.training import Rows

        X = Rows(X)
    refuse_text(estimator, X)
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    if is_dataset(X):
        if reset:
            forget_columns(estimator)
        return X
    X = as_mapped(X)
    if isinstance(X, MappedRows):
        return _checked_rows(estimator, X, reset)
    given = X
    try:
        X = _checked_array(estimator, X, reset)
    except (TypeError, ValueError) as error:
        raise refused_features(estimator, given, error) from None
    if not reset:
        _check_input_shape(estimator, np.shape(X))
    return X


def _check_input_shape(estimator: BaseEstimator, shape: tuple[int, ...]) -> None:
    if shape[1:] != estimator.input_shape_:
        raise AnnotationError(
            f"X has instances of shape {shape[1:]}, but {type(estimator).__name__} was "
            f"fitted on {estimator.input_shape_}; give instances of that shape"
        )


def _checked_rows(estimator: BaseEstimator, X: MappedRows, reset: bool) -> MappedRows:
    """Check a memory-mapped array in blocks; it is not read into memory."""
    X.check()
    if not reset:
        _check_input_shape(estimator, X.shape)
        return X
    forget_columns(estimator)
    estimator.n_features_in_ = X.shape[1]
    return X


def _checked_array(estimator: BaseEstimator, X: Any, reset: bool) -> Any:
    if hasattr(X, "ndim") and X.ndim > 2:
        X = check_array(
            X, dtype=[np.float32, np.uint8], allow_nd=True, input_name="X", estimator=estimator
        )
        if reset:
            estimator.n_features_in_ = X.shape[1]
    elif reset or len(estimator.input_shape_) == 1:
        X = validate_data(estimator, X, reset=reset, dtype=np.float32, accept_sparse="csr")
    return X


def forget_columns(estimator: BaseEstimator) -> None:
    """Forget the columns of an earlier fit on an array, if this one's X has none."""
    for name in SET_WITH_FEATURES & vars(estimator).keys():
        delattr(estimator, name)


def is_dataset(X: Any) -> bool:
    """Return whether X is a torch Dataset or DataLoader.

    Raises
    ------
    AnnotationError
        If it is an IterableDataset, whose instances have no positions.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    data = torch.utils.data
    if isinstance(getattr(X, "dataset", X) if _is_loader(X) else X, data.IterableDataset):
        raise AnnotationError(
            f"X is an IterableDataset ({type(X).__name__}), whose instances have no positions for "
            "annotations to refer to; give a map-style Dataset, with __len__ and __getitem__"
        )
    return isinstance(X, data.Dataset | data.DataLoader)


def _is_loader(X: Any) -> bool:
    """Return whether X is a torch DataLoader."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.utils.data.DataLoader)


FEW_COLUMNS = 1000
"""Number of columns up to which sparse features are made dense if all are in memory anyway."""


def as_rows(X: Any) -> Any:
    """Return the features that `read_features` returned, as an array or a wide sparse matrix.

    A Dataset is read into an array. A sparse matrix with few columns becomes dense.
    """
    if hasattr(X, "tocsr"):
        return X.toarray() if X.shape[1] <= FEW_COLUMNS else X.tocsr()
    if isinstance(X, MappedRows):
        return X[np.arange(len(X))]
    if hasattr(X, "shape"):
        return X
    import torch

    from manyhands.training import Features

    features = Features(X, torch.device("cpu"))
    refuse_dicts(features)
    return torch.cat(list(features.batches(torch.arange(len(features)), 256))).numpy()


def refuse_dicts(features: Any) -> None:
    """Raise an error for instances that are dicts if numbers are needed."""
    if features.packed is not None:
        raise AnnotationError(
            f"X has instances that are dicts ({features.packed}), but this method needs arrays; "
            "give arrays, or use a classifier with a network of your own as backbone"
        )


def _is_dict(X: Any) -> bool:
    """Return whether X is a dict of arrays; some sparse matrices are mappings, too."""
    return isinstance(X, Mapping) and not hasattr(X, "toarray")


def refuse_text(estimator: BaseEstimator, X: Any) -> None:
    """Raise an error for texts, which scikit-learn would try to read as numbers."""
    name, frame = type(estimator).__name__, as_frame(X)
    if frame is not None:
        refuse_text_columns(frame, name)
        return
    head = X[:1].to_numpy() if hasattr(X, "to_numpy") else X
    if not isinstance(head, list | tuple) and not (isinstance(head, np.ndarray) and head.ndim):
        return
    first = head[0] if isinstance(head, list | tuple) and head else None
    if hasattr(first, "__fspath__") or hasattr(first, "getbands") or raw_kind(X) == "images":
        if not hasattr(X, "shape") or len(X.shape) < 3:
            raise AnnotationError(
                f"X holds images or their paths, and {name} takes numbers; put an encoder in "
                f"front: make_pipeline(ImageEncoder(), {name}())"
            )
        return
    text = _first_text(np.asarray(head[:1], dtype=object).ravel().tolist())
    if text is not None:
        raise AnnotationError(
            f"X holds text ({text[:40]!r} ...), and {name} takes numbers; put an encoder in "
            f"front: make_pipeline(TextEncoder(), {name}()) for texts, or a ColumnTransformer "
            "for the columns of a data frame"
        )


def refuse_text_columns(frame: Any, estimator: str) -> None:
    """Raise an error for columns of text, which may be ids under an unknown name."""
    for name, column in zip(frame.columns, frame.iter_columns(), strict=True):
        values = column.to_numpy()
        text = _first_text(values.tolist()) if values.dtype.kind in "OUT" else None
        if text is not None:
            raise AnnotationError(
                f"column {name!r} of X holds text ({text[:40]!r} ...), and {estimator} takes "
                "numbers. If it holds the ids of the instances, make it the index of a pandas "
                f"frame (set_index({name!r})), or call it 'task' in a polars or pyarrow frame. If "
                f"not, drop it, or put an encoder in front: make_pipeline(TextEncoder(), "
                f"{estimator}()) for texts alone, or a ColumnTransformer for columns of several "
                "kinds"
            )


def _first_text(values: list[Any]) -> str | None:
    """Return the first text that is no number."""
    return next((v for v in values if isinstance(v, str) and not is_number(v)), None)


def is_number(text: str) -> bool:
    """Return whether a text can be read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_fitted(estimator: BaseEstimator, X: Instances, *, reset: bool) -> Any:
    """Return the columns of a frame in the order of `fit`, by name, without the column of ids.

    Anything but a frame, and a frame whose columns have no names, is returned as it is.

    Raises
    ------
    AnnotationError
        If columns of `fit` are missing, or there are others; if X is a table of annotations.
    """
    if not reset:  # In a fit, X has been matched with annotations, which refuses that.
        refuse_swapped(X, takes="new features")
    frame = as_frame(X)
    if frame is None:
        return X
    names = [] if reset else getattr(estimator, "feature_names_in_", np.array([])).tolist()
    columns = frame.columns
    ids = None
    if not hasattr(X, "iloc"):  # pandas has an index.
        ids = id_column(name for name in columns if name not in names)
    features = [name for name in columns if name != ids]
    _warn_of_shuffled_numbers(columns)
    if names and features != names and all(isinstance(name, str) for name in features):
        _check_names(frame, features, names, type(estimator).__name__)
        features = names
    return X if features == columns else frame.select(features).to_native()


def refuse_names_of_columns(estimator: BaseEstimator, X: Instances, argument: str) -> None:
    """Raise an error for a frame with named columns if `fit` got an array without names."""
    frame = as_frame(X)
    if frame is None or hasattr(estimator, "feature_names_in_"):
        return
    if frame.columns and all(isinstance(name, str) for name in frame.columns):
        raise AnnotationError(
            f"the columns of {argument}'s X have names ({_shown(frame.columns)}), but X of fit has "
            "none to match them with; give both as frames, or both as arrays (X.to_numpy()) with "
            "columns in the same order"
        )


def _warn_of_shuffled_numbers(columns: list[Any]) -> None:
    """Warn that columns which have numbers for names are not matched, if they are out of order."""
    if all(isinstance(name, int) for name in columns) and are_shuffled(np.array(columns)):
        warn_caller(
            "the columns of X have numbers as names, in another order "
            f"({first_and_last(np.array(columns))}), and are used as they stand, because only "
            "text names are matched with those of fit. To match them by name, convert the names "
            "to text: X.columns.astype(str)"
        )


def _check_names(frame: Any, given: list[str], names: list[str], estimator: str) -> None:
    """Raise an error for columns other than those in `fit`."""
    missing = [name for name in names if name not in given]
    extra = [name for name in given if name not in names]
    if not missing and not extra:
        return
    problems = []
    if missing:
        problems.append(f"lacks {_shown(missing)}, which {estimator} was fitted on")
    if extra:
        name = "it" if missing else estimator
        problems.append(f"has {_shown(extra)}, which {name} was not fitted on")
    mend = "add or drop columns, or rename them"
    if ids := next((name for name in extra if _may_be_ids(frame[name])), None):
        mend += f". If {ids!r} holds the ids of the rows, make it the index of a pandas frame, "
        mend += f"X.set_index({ids!r}), or call it 'task' in a polars or pyarrow frame"
    raise AnnotationError(f"X {', and '.join(problems)}; {mend}")


def _may_be_ids(column: Any) -> bool:
    """Return whether a column holds texts or whole numbers, each of them once."""
    values = column.to_numpy()
    return values.dtype.kind in "iuOUT" and len(set(values.tolist())) == len(values)


def _shown(names: list[str]) -> str:
    plural = "column" if len(names) == 1 else f"{len(names)} columns"
    return f"{plural} {', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}"


def check_rows(X: Instances, table: AnnotationTable) -> None:
    """Raise an error for X and annotations with different numbers of instances."""
    if n_rows(X) != table.n_instances:
        raise AnnotationError(
            f"X has {n_rows(X)} rows but y has annotations for {table.n_instances} "
            "instances; give one row of X per instance, in the same order (from_frame(tasks=) "
            "fixes the order and keeps instances without annotations)"
        )


def check_learnable(X: Instances, table: AnnotationTable) -> None:
    """Raise an error for mismatched rows, no annotations, or a single class."""
    check_rows(X, table)
    check_annotations(table, argument="y")
    seen = table.mask_of_classes_seen()
    if seen.sum() < 2:
        raise AnnotationError(
            f"y holds annotations of one class only, "
            f"{table.classes[int(np.argmax(seen))].item()!r}; a classifier needs two"
        )


def set_vocabularies(model: BaseEstimator, y: Target, table: AnnotationTable) -> None:
    """Discard an earlier fit; set the classes, annotators and instances of this one.

    ``table`` is what was read from ``y``.
    """
    check_decision(model, table.n_classes)
    check_rule_of(model.decision, table, "decision")
    forget_fit(model, keep=SET_WITH_FEATURES)
    model.classes_, model.ordered_ = np.array(table.classes), table.ordered
    model.annotators_ = np.array(table.annotators)
    model.n_annotators_, model.n_annotations_ = table.n_annotators, table.n_annotations
    model.instances_ = np.array(table.instances)
    model.training_instances_ = InstanceDigests.of(y, table)


def take_rows(X: Any, rows: IntArray) -> Any:
    """Take rows of an array, a sparse matrix, a tensor, a Dataset, a DataLoader or a dict.

    Raises
    ------
    AnnotationError
        If X cannot be indexed.
    """
    if _is_loader(X):
        from manyhands.training import subset

        return subset(X, rows.tolist())
    if _is_dict(X):
        return {name: take_rows(part, rows) for name, part in X.items()}
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    X = as_mapped(X)
    if isinstance(X, MappedRows):
        return X.take(np.asarray(rows))
    if hasattr(X, "__array__") and not hasattr(X, "__getitem__"):
        X = np.asarray(X)
    if hasattr(X, "shape") or isinstance(X, list | tuple):
        return _safe_indexing(list(X) if isinstance(X, tuple) else X, rows)
    if not hasattr(X, "__getitem__"):
        raise AnnotationError(f"X is a {type(X).__name__}; use an array or a map-style Dataset")
    from torch.utils.data import Subset

    return Subset(X, rows.tolist())


def n_rows(X: Any) -> int:
    """Count the instances of an array, a matrix, a Dataset or a DataLoader."""
    if _is_loader(X):
        X = X.dataset
    if _is_dict(X):
        from manyhands.training import Rows

        return len(Rows(X))
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


# -- problems of X: leakage of the label or the id, and values that are not finite ----------------


LABEL_NAMES = frozenset(
    {"label", "labels", "gold", "goldlabel", "truelabel", "truth", "groundtruth", "class", "target"}
)
"""Names of columns of labels, as `base_name` gives them."""


OTHER_ORDER = "the ids in another order"
"""Why a column may leak the id."""


def check_leakage(X: Instances, table: AnnotationTable) -> None:
    """Warn of leakage: columns of a frame that are named like, or equal to, the label or the id.

    Parameters
    ----------
    X : any
    table : AnnotationTable
        Its instances are the rows of X.

    Raises
    ------
    AnnotationError
        If a column holds the ids in another order than the table's, and X has no other ids: the
        rows then belong to other instances than those they are taken for.
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
            reasons[name] = OTHER_ORDER
        elif is_id_name(str(name)) or base_name(str(name)) in LABEL_NAMES:
            reasons[name] = "by its name"
        elif in_order:
            reasons[name] = "equal to the ids"
        elif equals_class(values, table.classes, votes):
            reasons[name] = "equal to the most annotated class"
    moved = [name for name, reason in reasons.items() if reason == OTHER_ORDER]
    own = row_ids(X)
    if moved and (own is None or own.default):
        raise AnnotationError(
            f"column {moved[0]!r} of X holds the ids of y's instances in another order, and X has "
            "no other ids, so its rows would be taken for other instances. To match them, make the "
            "ids the index of a pandas frame (in other frames, call their column 'task'). If "
            f"{moved[0]!r} is a feature, give the rows ids of their own in the same way"
        )
    if reasons:
        shown = ", ".join(f"{name!r} ({reason})" for name, reason in reasons.items())
        warn_caller(
            f"columns of X may leak the label or the id, and are used as features: {shown}. Drop "
            "them, or make the ids the index of a pandas frame (in other frames, call their "
            "column 'task'). Keep them only if new instances have them, too"
        )


def _equals_ids(values: AnyArray, table: AnnotationTable) -> bool:
    """Return whether a column holds the ids of the instances, or the numbers of the rows."""
    if len(values) < 2 or values.dtype.kind not in "iufOUT":
        return False
    if values.dtype.kind == "O" and not all(isinstance(each, str | int) for each in values):
        return False  # Gaps and decimals are never ids, and cannot always be compared.
    return any(
        values[0] == ids[0] and bool(np.all(values == ids))
        for ids in (table.instances, np.arange(len(values)), np.arange(1, len(values) + 1))
    )


def _permutes_ids(values: AnyArray, table: AnnotationTable) -> bool:
    """Return whether a column of whole numbers or texts holds every id once, in any order."""
    if len(values) < 5 or values.dtype.kind not in "iufOUT":
        return False
    # The first values suffice to exclude nearly every feature.
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
    """Return whether a column holds a most voted class of every instance with votes, or its code.

    Parameters
    ----------
    values : array of shape (n_instances,)
    classes : array of shape (n_classes,)
    votes : array of shape (n_instances, n_classes)

    Returns
    -------
    bool
    """
    rows = np.flatnonzero(votes.any(axis=1))
    # The first rows suffice to exclude nearly every column.
    parts = (rows[:64], rows)
    return all(_matches_votes(values[part], classes, votes[part]) for part in parts) and (
        len(set(values[rows].tolist())) > 1
    )


def _matches_votes(values: AnyArray, classes: AnyArray, votes: FloatArray) -> bool:
    """Return whether every value is a class, or a code, with the most votes in its row."""
    numeric = classes.dtype.kind in "iub"
    if len(values) < 2 or values.dtype.kind not in ("iufb" if numeric else "iufbOUT"):
        return False
    text = values.dtype.kind in "OUT"
    cells = values[:, None] == (classes if numeric or text else np.arange(len(classes)))
    return bool((np.where(cells, votes, -1).max(axis=1) == votes.max(axis=1)).all())


def refused_features(
    estimator: BaseEstimator, X: Any, error: TypeError | ValueError
) -> TypeError | ValueError:
    """Return a better error for X than scikit-learn's, with the place and the mend."""
    if "array element with a sequence" in str(error):
        sizes = sorted({len(row) for row in X if hasattr(row, "__len__")})
        found = f" ({sizes[0]} to {sizes[-1]} entries)" if len(sizes) > 1 else ""
        return AnnotationError(
            f"X has rows of different lengths{found}; give all of them one: pad sequences of token "
            "ids, with an id that your network ignores (nn.Embedding(..., padding_idx=0))"
        )
    if any(word in str(error) for word in ("NaN", "NAType", "of NA ", "infinity")):
        return AnnotationError(where_not_finite(estimator, X))
    return error


def where_not_finite(estimator: BaseEstimator, X: Any) -> str:
    """Return a message that says where X holds NaN or infinity, and what to do.

    Parameters
    ----------
    estimator : classifier
    X : array, sparse matrix or frame of shape (n, ...)

    Returns
    -------
    str
    """
    gaps, place = True, ""
    try:
        names = getattr(X, "columns", None)
        values = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
        if values.dtype == object:  # None, and the NA of pandas, which numpy does not convert.
            values = np.where(missing_mask(values), np.nan, values)
        values = values.astype(np.float64)
        broken = np.argwhere(~np.isfinite(values))
        gaps = bool(np.isnan(values).any())
        if len(broken):
            row, *inside = broken[0].tolist()
            column = repr(inside[0] if names is None else names[inside[0]])
            n_rows = len(np.unique(broken[:, 0]))
            named = repr(X.index[row : row + 1].tolist()[0]) if hasattr(X, "iloc") else row
            place = f" in {n_rows:,} of {len(values):,} rows, first in row {named}"
            place += f", column {column}" if len(inside) == 1 else ""
    except (TypeError, ValueError):  # Objects that are no numbers: the place stays unknown.
        pass
    if not gaps:
        return (
            f"Input X contains infinity or a value too large for float32{place}; replace such "
            "values, or leave their rows out"
        )
    name = type(estimator).__name__
    mend = f"the gaps: make_pipeline(SimpleImputer(), {name}())"
    if hasattr(X, "iloc"):  # An imputer returns an array, so that the ids would be lost.
        mend += '.set_output(transform="pandas")'
        own = X.select_dtypes(object).to_numpy().ravel() if hasattr(X, "select_dtypes") else ()
        if any(type(value).__name__ == "NAType" for value in own):
            mend += " with X.convert_dtypes(), because it cannot read pd.NA in columns of objects"
    elif as_frame(X) is not None:  # An imputer would take the column of ids for a feature.
        mend = "the gaps of the frame before fit"
    return f"Input X contains NaN{place}; leave such rows out, or fill {mend}"
