"""Targets that `fit` accepts: a table, a matrix, or one label per instance."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.annotations.table import AnnotationTable
from manyhands.exceptions import AnnotationError


def as_table(y: Any, *, argument: str = "y") -> AnnotationTable:
    """Read the target of ``fit``: a table, a matrix (n, R), or labels (n,) of a single annotator.

    In one dimension each value, including -1, is a class (scikit-learn's convention).
    """
    if isinstance(y, AnnotationTable):
        return y
    if hasattr(y, "toarray"):
        raise AnnotationError(
            f"{argument} is a scipy.sparse matrix, where a stored 0 and a gap look alike; "
            "use AnnotationTable.from_arrays(row, column, data)"
        )
    if hasattr(y, "columns") and hasattr(y, "shape"):
        raise AnnotationError(
            f"{argument} is a data frame; use AnnotationTable.from_frame(frame) for a long one, "
            "AnnotationTable.from_matrix(frame.to_numpy()) for a wide one"
        )
    values = as_values(y)
    if values.ndim == 2:
        return AnnotationTable.from_matrix(values)
    if values.ndim != 1:
        raise AnnotationError(
            f"{argument} must be an AnnotationTable, an (n_samples, n_annotators) array or one "
            f"label per instance, got shape {values.shape}"
        )
    if missing_mask(values).any():
        raise AnnotationError(f"Input {argument} contains NaN or None; leave such rows out")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise AnnotationError(f"Input {argument} contains infinity; leave such rows out")
    codes, classes = encode(values, None, argument=argument, vocabulary_name="classes")
    n = len(values)
    ids = np.arange(n)
    return AnnotationTable(ids, np.zeros(n, dtype=np.int64), codes, ids, np.arange(1), classes)
