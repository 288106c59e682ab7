"""Reading the inputs of ``fit`` and ``predict``: features, annotations, ids of annotators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor

from manyhands.annotations import AnnotationTable, as_table
from manyhands.annotations.encoding import as_values, resolve
from manyhands.decision.rules import check_rule
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.inference.inputs import check_annotations
from manyhands.training import Rows
from manyhands.typing import IntArray

SET_WITH_FEATURES = frozenset({"n_features_in_", "feature_names_in_"})
"""Fitted attributes that scikit-learn sets while it validates X."""


def as_target(y: Any, name: str) -> AnnotationTable:
    """Read the target of the named estimator: a table, a matrix, or one label per row."""
    if y is None:
        raise AnnotationError(
            f"{name} requires y to be passed, but the target y is None; give an AnnotationTable, "
            "an (n_samples, n_annotators) array, or one label per row"
        )
    if not isinstance(y, AnnotationTable) and not hasattr(y, "toarray"):
        values = as_values(y)
        if values.ndim == 1 and values.dtype.kind == "f" and np.isfinite(values).all():
            check_classification_targets(values)
    return as_table(y)


def drop_weightless(table: AnnotationTable) -> AnnotationTable:
    """Leave out annotations of weight 0, which count as missing."""
    return table if table.weights is None else table.take(table.weights > 0)


def read_target(y: Any, name: str) -> AnnotationTable:
    """Read a target as `as_target` does, without annotations of weight 0."""
    return drop_weightless(as_target(y, name))


def read_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Check X and return a float array, a CSR matrix, or the Dataset itself.

    Parameters
    ----------
    estimator : BaseCrowdClassifier
    X : array-like, sparse matrix, tensor, map-style Dataset, or dict of arrays
        A dict of arrays, such as a tokenizer returns, becomes a Dataset of its rows.
    reset : bool
        Whether the estimator is being fitted on X: its shape is then stored rather than checked.

    Raises
    ------
    AnnotationError
        If X is text, or the shape of an instance differs from that in ``fit``.
    """
    if _is_dict(X):
        X = Rows(X)
    _refuse_text(estimator, X)
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    if isinstance(X, torch.utils.data.Dataset):
        if reset and hasattr(estimator, "n_features_in_"):
            del estimator.n_features_in_  # From an earlier fit on an array.
        return X
    if hasattr(X, "ndim") and X.ndim > 2:
        X = check_array(
            X, dtype=[np.float32, np.uint8], allow_nd=True, input_name="X", estimator=estimator
        )
        if reset:
            estimator.n_features_in_ = X.shape[1]
    elif reset or len(estimator.input_shape_) == 1:
        X = validate_data(estimator, X, reset=reset, dtype=np.float32, accept_sparse="csr")
    if not reset and np.shape(X)[1:] != estimator.input_shape_:
        raise AnnotationError(
            f"X has instances of shape {np.shape(X)[1:]}, but {type(estimator).__name__} was "
            f"fitted on {estimator.input_shape_}; give instances of that shape"
        )
    return X


def _is_dict(X: Any) -> bool:
    """Whether X is a dict of arrays; some sparse matrices are mappings, too."""
    return isinstance(X, Mapping) and not hasattr(X, "toarray")


def _refuse_text(estimator: Any, X: Any) -> None:
    """Refuse texts, which scikit-learn would try to read as numbers."""
    head = X[:1].to_numpy() if hasattr(X, "to_numpy") else X
    if not isinstance(head, list | tuple) and not (isinstance(head, np.ndarray) and head.ndim):
        return
    first = np.asarray(head[:1], dtype=object).ravel().tolist()
    texts = [value for value in first if isinstance(value, str) and not _is_number(value)]
    if texts:
        name = type(estimator).__name__
        raise AnnotationError(
            f"X holds text ({texts[0][:40]!r} ...), and {name} takes numbers; put a vectoriser in "
            f"front: make_pipeline(TfidfVectorizer(), {name}()) for texts, or a ColumnTransformer "
            "for the columns of a data frame"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_rows(X: Any, table: AnnotationTable) -> None:
    """Refuse X and annotations with different numbers of instances."""
    if n_rows(X) != table.n_instances:
        raise AnnotationError(
            f"X has {n_rows(X)} rows but y has annotations for {table.n_instances} "
            "instances; give one row of X per instance, in the same order (from_frame(tasks=) "
            "fixes the order and keeps instances without annotations)"
        )


def check_learnable(X: Any, table: AnnotationTable) -> None:
    """Refuse data unfit for any classifier: mismatched rows, no annotations, one class only."""
    check_rows(X, table)
    check_annotations(table, argument="y")
    seen = table.mask_of_classes_seen()
    if seen.sum() < 2:
        raise AnnotationError(
            f"y holds annotations of one class only, "
            f"{table.classes[int(np.argmax(seen))].item()!r}; a classifier needs two"
        )


def set_vocabularies(model: Any, table: AnnotationTable) -> None:
    """Discard an earlier fit, and set the classes and annotators of this one."""
    check_rule(model._rule, table.n_classes)
    for name in [n for n in vars(model) if n.endswith("_") and n not in SET_WITH_FEATURES]:
        delattr(model, name)
    model.classes_ = np.array(table.classes)
    model.annotators_ = np.array(table.annotators)
    model.n_annotators_ = table.n_annotators


def find_annotators(known: Any, annotators: Any, argument: str) -> IntArray:
    """Positions of annotators among the known ones; -1, with a warning, for new annotators."""
    which = slice(None) if annotators is None else annotators
    found = resolve(
        which, known, argument=argument, vocabulary_name="annotators_", allow_unknown=True
    )
    if (found < 0).any():
        new = np.atleast_1d(annotators)[found < 0].tolist()
        shown = ", ".join(map(repr, new[:3])) + (", ..." if len(new) > 3 else "")
        warn_caller(
            f"{argument}: {shown} ({len(new)}) were not seen in fit; they are expected to "
            "annotate as the crowd as a whole does"
        )
    return found


def n_rows(X: Any) -> int:
    """Count the instances of an array, a matrix or a Dataset."""
    if _is_dict(X):
        return len(Rows(X))
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
