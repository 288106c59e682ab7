"""Measures that follow from what a record holds: no row needs a new run for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from manyhands.typing import FloatArray

RECALL = "recall_of_"
"""What the names of recalls in ``extra`` begin with, before the class; see `recall_by_class`."""


def pattern_margin(true: FloatArray, learnt: FloatArray) -> float:
    """Return by how much the learnt mistakes stand out that are the true ones.

    Of every class, the learnt probability of its most frequent true mistake (the least such
    probability, where several are equally frequent), less the largest of its other mistakes.

    Parameters
    ----------
    true, learnt : array of shape (n_classes, n_classes)
        Row = true class.

    Returns
    -------
    float
        The smallest over classes. Above 0, the most probable mistake is the true one in every
        class.

    Examples
    --------
    >>> import numpy as np
    >>> true = np.array([[0.4, 0.6, 0.0], [0.0, 0.4, 0.6], [0.6, 0.0, 0.4]])
    >>> learnt = np.array([[0.7, 0.25, 0.05], [0.1, 0.6, 0.3], [0.15, 0.1, 0.75]])
    >>> round(pattern_margin(true, learnt), 2)
    0.05
    """
    margins = []
    for given, found, off in zip(true, learnt, _off_diagonal(true), strict=True):
        frequent = off & (given == given[off].max())
        others = found[off & ~frequent]
        margins.append(found[frequent].min() - (others.max() if others.size else 0.0))
    return float(min(margins))


def pattern_correlation(true: FloatArray, learnt: FloatArray) -> float:
    """Return Pearson's correlation of the true and the learnt probabilities of all mistakes.

    Parameters
    ----------
    true, learnt : array of shape (n_classes, n_classes)
        Row = true class.

    Examples
    --------
    >>> import numpy as np
    >>> true = np.array([[0.4, 0.6, 0.0], [0.0, 0.4, 0.6], [0.6, 0.0, 0.4]])
    >>> round(pattern_correlation(true, 0.5 * true), 6)
    1.0
    """
    off = _off_diagonal(true)
    return float(np.corrcoef(true[off], learnt[off])[0, 1])


def lowest_recall(extra: Mapping[str, Any]) -> float | None:
    """Return the least ``recall_of_<class>``: 0 where a class is never found; None without any.

    Examples
    --------
    >>> lowest_recall({"recall_of_cat": 0.31, "recall_of_dog": 0.24, "start_accuracy": 0.1})
    0.24
    """
    recalls = [value for name, value in extra.items() if name.startswith(RECALL)]
    return min(recalls, default=None)


def _off_diagonal(matrix: FloatArray) -> Any:
    return ~np.eye(len(matrix), dtype=bool)


def _of_common(
    measure: Callable[[FloatArray, FloatArray], float],
) -> Callable[[Mapping[str, Any]], float | None]:
    """Apply a measure to the common confusions in ``extra``: None where these are not there."""

    def measured(extra: Mapping[str, Any]) -> float | None:
        matrices = [extra.get(name) for name in ("common_true", "common_learnt")]
        if None in matrices:
            return None
        true, learnt = (np.asarray(each, dtype=np.float64) for each in matrices)
        return measure(true, learnt)

    return measured


DERIVED: dict[str, Callable[[Mapping[str, Any]], float | None]] = {
    "common_pattern_margin": _of_common(pattern_margin),
    "common_pattern_correlation": _of_common(pattern_correlation),
    "lowest_recall": lowest_recall,
}
"""Measure -> what computes it from the ``extra`` of a record."""
