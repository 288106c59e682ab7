"""Rows on a few hundred instances, drawn from a data set's training part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from manyhands.annotations.encoding import as_values
from manyhands.evidence.data.sets import Data, load_data
from manyhands.exceptions import AnnotationError


def with_fewer_instances(of: Mapping[str, Any], n_train: int, random_state: Any = 0) -> Data:
    """Load a data set, train on some of its training instances, and test on its other parts.

    A row says ``data: {factory: "manyhands.evidence.data.fewer:with_fewer_instances", of: {name:
    hotel}, n_train: 200, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    n_train : int
        Instances to train on, drawn from those of the training part that have annotations.
    random_state : int, RandomState or None

    Returns
    -------
    Data
        The test part is the original validation and test part together, the same for every draw. It
        has no instance of the original training part, where constants may have been chosen. There
        is no validation part. ``truth`` is None, as it would describe instances that are gone.

    Raises
    ------
    AnnotationError
        If there are too few such instances, or neither a validation nor a test part.
    """
    data = load_data(of)
    annotated = np.flatnonzero(data.annotations.annotations_per_instance())
    if not 1 <= n_train <= len(annotated):
        raise AnnotationError(
            f"n_train={n_train!r} of {len(annotated)} annotated instances; write a number from 1 "
            f"to {len(annotated)}"
        )
    drawn = np.sort(check_random_state(random_state).choice(annotated, n_train, replace=False))
    parts = [
        (X, as_values(y))
        for X, y in ((data.X_valid, data.y_valid), (data.X_test, data.y_test))
        if y is not None
    ]
    if not parts:
        raise AnnotationError(
            f"of={dict(of)!r} has neither a validation nor a test part; name data with one of them"
        )
    return replace(
        data,
        X_train=data.X_train[drawn],
        annotations=data.annotations[drawn],
        y_train=None if data.y_train is None else as_values(data.y_train)[drawn],
        X_valid=None,
        y_valid=None,
        X_test=_stacked([X for X, _ in parts]),
        y_test=np.concatenate([y for _, y in parts]),
        truth=None,
    )


def _stacked(parts: list[Any]) -> Any:
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts).tocsr()
    return np.concatenate(parts)
