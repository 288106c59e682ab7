"""Data sets with some of their annotations removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils import check_random_state

from manyhands.annotations import AnnotationTable
from manyhands.datasets.simulated_crowd import CrowdTruth
from manyhands.exceptions import AnnotationError
from manyhands.typing import BoolArray, IntArray

AnyData = TypeVar("AnyData")


def remove_annotations(
    data: AnyData, fraction: float, *, random_state: Any = 0, keep_one: bool = False
) -> AnyData:
    """Remove a uniformly random subset of the annotations [1]_.

    Parameters
    ----------
    data : CrowdDataset, or another dataclass with ``annotations``
        Not modified.
    fraction : float in [0, 1)
        Share of annotations to remove, ``round(fraction * n_annotations)`` in number.
    random_state : int, RandomState or None
        A seed fixes the order of removal: a larger fraction also removes everything that a smaller
        one removes, so the points of a curve over fractions are comparable.
    keep_one : bool
        Whether to keep at least one annotation of every annotated instance. By default an instance
        may lose all its annotations; it then remains as an instance without annotations.

    Returns
    -------
    data : like ``data``
        With fewer ``annotations``. The table's vocabularies are unchanged (an annotator may have
        nothing left), as is the order of the remaining annotations. The truth of a simulated set,
        which describes each annotation, is reduced accordingly.

    Raises
    ------
    AnnotationError
        If ``fraction`` is out of range, or larger than ``keep_one`` allows.

    References
    ----------
    .. [1] Y. Shi, S.-Y. Li, S.-J. Huang. Learning from Crowds with Sparse and Imbalanced
       Annotations. Machine Learning 112, 2023, Section 4.3.

    Examples
    --------
    >>> from evidence.data import remove_annotations
    >>> from manyhands.datasets import load_demo
    >>> data = load_demo()
    >>> data.annotations.n_annotations
    3086
    >>> remove_annotations(data, 0.8).annotations
    AnnotationTable(617 annotations: 1000 instances x 30 annotators, 10 classes)
    """
    if not hasattr(data, "annotations"):
        raise AnnotationError(
            f"data is a {type(data).__name__} without annotations; pass a data set"
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
    """Mask of the annotations to keep."""
    if not isinstance(fraction, int | float | np.number) or not 0 <= fraction < 1:
        raise AnnotationError(f"fraction={fraction!r} must lie in [0, 1)")
    n = table.n_annotations
    wanted = round(float(fraction) * n)
    order: IntArray = rng.permutation(n)
    if keep_one:
        order = _without_last(order, table.instance)
        if wanted > len(order):
            raise AnnotationError(
                f"fraction={fraction} removes {wanted} of {n} annotations, but keep_one=True keeps "
                f"one for each of {n - len(order)} instances, so at most {len(order)} can be "
                f"removed; use a fraction up to {_floor(len(order) / n)}, or keep_one=False"
            )
    kept = np.ones(n, dtype=bool)
    kept[order[:wanted]] = False
    return kept


def _without_last(order: IntArray, instance: IntArray) -> IntArray:
    """Drop each instance's last annotation from an order of removal.

    Which annotation an instance keeps does not depend on the fraction, so removals are nested.
    """
    _, last = np.unique(instance[order[::-1]], return_index=True)
    kept: IntArray = np.delete(order, len(order) - 1 - last)
    return kept


def _floor(share: float) -> float:
    """Share rounded down to three digits."""
    return int(share * 1000) / 1000
