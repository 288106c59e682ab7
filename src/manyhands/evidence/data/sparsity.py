"""Rows with sparser annotations: a data set without a random part of its annotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyhands.datasets import remove_annotations
from manyhands.evidence.data.sets import Data, load_data


def with_annotations_removed(
    of: Mapping[str, Any], fraction: float, random_state: Any = 0, keep_one: bool = False
) -> Data:
    """Load a data set and remove a random part of its annotations.

    A row says ``data: {factory: "manyhands.evidence.data.sparsity:with_annotations_removed", of:
    {name: labelme}, fraction: 0.2, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    fraction, random_state, keep_one
        As in `manyhands.datasets.remove_annotations`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If ``fraction`` is out of its range, or greater than ``keep_one`` allows.
    """
    return remove_annotations(load_data(of), fraction, random_state=random_state, keep_one=keep_one)
