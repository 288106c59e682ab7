"""Variants of a row's data set: fewer instances, thinned or balanced classes, fewer annotations.

Each loads another row's ``data`` and changes it: with gold labels as annotations (the ceiling), a
few hundred instances, a rare class thinned, a balanced test part, or annotations removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from evidence.data.balance import thin_to_imbalance, with_balanced_test
from evidence.data.sets import Data, load_data
from evidence.data.sparsity import remove_annotations
from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values
from manyhands.exceptions import AnnotationError


def labelled_by_gold(of: Mapping[str, Any]) -> Data:
    """Load a data set and replace its annotators by one who gives the gold labels.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.
    """
    data = load_data(of)
    if data.y_train is None:
        raise AnnotationError(
            f"of={dict(of)!r} has no true classes to train on; name data with y_train"
        )
    n = len(data.y_train)
    table = AnnotationTable.from_arrays(
        np.arange(n),
        np.zeros(n, dtype=np.int64),
        data.y_train,
        classes=data.annotations.classes,
        instances=np.arange(n),
    )
    return replace(data, annotations=table, truth=None)


def with_fewer_instances(of: Mapping[str, Any], n_train: int, random_state: Any = 0) -> Data:
    """Load a data set, train on some of its training instances, and test on its other parts.

    A row says ``data: {factory: "evidence.data.variants:with_fewer_instances", of: {name:
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


def with_rare_class_thinned(
    of: Mapping[str, Any],
    ratio: float,
    rare: Any = None,
    parts: Sequence[str] = ("train",),
    random_state: Any = 0,
) -> Data:
    """Load a data set and thin one of its classes.

    A row says ``data: {factory: "evidence.data.variants:with_rare_class_thinned", of:
    {name: sentiment}, ratio: 10, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    ratio, rare, parts, random_state
        As in `evidence.data.thin_to_imbalance`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If a parameter is out of its range, or the class is already rarer.
    """
    return thin_to_imbalance(
        load_data(of), ratio, rare=rare, parts=parts, random_state=random_state
    )


def with_test_balanced(of: Mapping[str, Any], random_state: Any = 0) -> Data:
    """Load a data set and balance its test part.

    A row says ``data: {factory: "evidence.data.variants:with_test_balanced", of: {name:
    product}, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    random_state
        As in `evidence.data.with_balanced_test`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If there is no test part with true classes, or a class is absent from it.
    """
    return with_balanced_test(load_data(of), random_state=random_state)


def with_annotations_removed(
    of: Mapping[str, Any], fraction: float, random_state: Any = 0, keep_one: bool = False
) -> Data:
    """Load a data set and remove a random part of its annotations.

    A row says ``data: {factory: "evidence.data.variants:with_annotations_removed", of:
    {name: labelme}, fraction: 0.2, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    fraction, random_state, keep_one
        As in `evidence.data.remove_annotations`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If ``fraction`` is out of its range, or greater than ``keep_one`` allows.
    """
    return remove_annotations(load_data(of), fraction, random_state=random_state, keep_one=keep_one)
