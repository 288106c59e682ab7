"""Rows with other shares of classes: a data set with one class thinned, or a balanced test part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from manyhands.datasets import thin_to_imbalance, with_balanced_test
from manyhands.evidence.data.sets import Data, load_data


def with_rare_class_thinned(
    of: Mapping[str, Any],
    ratio: float,
    rare: Any = None,
    parts: Sequence[str] = ("train",),
    random_state: Any = 0,
) -> Data:
    """Load a data set and thin one of its classes.

    A row says ``data: {factory: "manyhands.evidence.data.imbalance:with_rare_class_thinned", of:
    {name: sentiment}, ratio: 10, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    ratio, rare, parts, random_state
        As in `manyhands.datasets.thin_to_imbalance`.

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

    A row says ``data: {factory: "manyhands.evidence.data.imbalance:with_test_balanced", of: {name:
    product}, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    random_state
        As in `manyhands.datasets.with_balanced_test`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If there is no test part with true classes, or a class is absent from it.
    """
    return with_balanced_test(load_data(of), random_state=random_state)
