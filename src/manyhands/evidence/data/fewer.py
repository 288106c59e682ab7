"""Rows on a few hundred instances: a part of another row's training part."""

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
        The test part is the validation and the test part together, the same for every draw: what is
        left of the training part is not in it, as constants may have been chosen there. There is no
        validation part. ``truth`` goes, as it speaks of instances that are no longer there.

    Raises
    ------
    AnnotationError
        If there are fewer such instances, or neither a validation nor a test part.
    """
    data = load_data(of)
    annotated = np.flatnonzero(data.annotations.annotations_per_instance())
    if not 1 <= n_train <= len(annotated):
        raise AnnotationError(
            f"n_train={n_train!r} of {len(annotated)} annotated instances; draw at least one and "
            "no more than there are"
        )
    drawn = np.sort(check_random_state(random_state).choice(annotated, n_train, replace=False))
    parts = [
        (X, as_values(y))
        for X, y in ((data.X_valid, data.y_valid), (data.X_test, data.y_test))
        if y is not None
    ]
    if not parts:
        raise AnnotationError("of has neither a validation nor a test part; nothing to test on")
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
