"""Data sets with a part of their annotations removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils import check_random_state

from manyhands.annotations import AnnotationTable
from manyhands.datasets._crowd import CrowdTruth
from manyhands.exceptions import AnnotationError
from manyhands.typing import BoolArray, IntArray

__all__ = ["remove_annotations"]

AnyData = TypeVar("AnyData")


def remove_annotations(
    data: AnyData, fraction: float, *, random_state: Any = 0, keep_one: bool = False
) -> AnyData:
    """Remove a uniformly random part of the annotations [1]_.

    Parameters
    ----------
    data : CrowdDataset, or another dataclass with ``annotations``
        Left as it is.
    fraction : float in [0, 1)
        Of the annotations; ``round(fraction * n_annotations)`` of them go.
    random_state : int, RandomState or None
        One order of removal for a seed: what a fraction removes, every greater one removes, too,
        so that the points of a curve over fractions can be compared.
    keep_one : bool
        Leave one annotation at least to every instance that has any. By default an instance may
        lose all of them, and stays as one without.

    Returns
    -------
    data : like ``data``
        All but ``annotations`` is unchanged, and so are the vocabularies of the table (an
        annotator may have nothing left) and the order of what is left. The truth of a simulated
        set, which speaks of every annotation, is cut likewise.

    Raises
    ------
    AnnotationError
        If ``fraction`` is out of its range, or greater than ``keep_one`` allows.

    References
    ----------
    .. [1] Y. Shi, S.-Y. Li, S.-J. Huang. Learning from Crowds with Sparse and Imbalanced
       Annotations. Machine Learning 112, 2023, Section 4.3.

    Examples
    --------
    >>> from manyhands.datasets import load_demo, remove_annotations
    >>> data = load_demo()
    >>> data.annotations.n_annotations
    3086
    >>> remove_annotations(data, 0.8).annotations
    AnnotationTable(617 annotations: 1000 instances x 30 annotators, 10 classes)
    """
    if not hasattr(data, "annotations"):
        raise AnnotationError(
            f"data is a {type(data).__name__} without annotations; give a data set"
        )
    table = cast(Any, data).annotations
    kept = _kept(table, fraction, keep_one, check_random_state(random_state))
    changed: dict[str, Any] = {"annotations": table.take(kept)}
    truth = getattr(data, "truth", None)
    if isinstance(truth, CrowdTruth):
        changed["truth"] = truth.take(kept)
    return cast(AnyData, replace(cast(Any, data), **changed))


def _kept(
    table: AnnotationTable, fraction: Any, keep_one: bool, rng: np.random.RandomState
) -> BoolArray:
    """Mask of the annotations that stay."""
    if not isinstance(fraction, int | float | np.number) or not 0 <= fraction < 1:
        raise AnnotationError(f"fraction={fraction!r} must lie in [0, 1)")
    n = table.n_annotations
    wanted = round(float(fraction) * n)
    order: IntArray = rng.permutation(n)
    if keep_one:
        order = _without_last(order, table.instance)
        if wanted > len(order):
            raise AnnotationError(
                f"fraction={fraction} removes {wanted} of {n} annotations, but keep_one=True "
                f"leaves one to each of {n - len(order)} instances, so that {len(order)} can go; "
                f"use a fraction up to {_floor(len(order) / n)}, or keep_one=False"
            )
    kept = np.ones(n, dtype=bool)
    kept[order[:wanted]] = False
    return kept


def _without_last(order: IntArray, instance: IntArray) -> IntArray:
    """Leave out every instance's last annotation in an order of removal.

    Whom an instance keeps does not depend on how many go, which keeps the removals nested.
    """
    _, last = np.unique(instance[order[::-1]], return_index=True)
    kept: IntArray = np.delete(order, len(order) - 1 - last)
    return kept


def _floor(share: float) -> float:
    """Share that is safe to use, in three digits."""
    return int(share * 1000) / 1000
