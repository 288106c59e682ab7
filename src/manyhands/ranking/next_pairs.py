"""Choice of the pairs to compare next, by how much an answer tells about a doubtful order.

Choosing by information about the strengths alone would ask about the two ends of a ranking again
and again: strengths are known least there, although their order is not in doubt. The information is
therefore weighted by the doubt about the order of the two items. The covariance of strengths is
conditional on the annotators, because more answers from a few annotators do not reduce the
uncertainty about the scale that these annotators share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from manyhands.comparisons import ComparisonTable
from manyhands.ranking.davidson import probabilities
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

BATCH_PAIRS = 5
"""Fewest distinct pairs of a batch unless ``each`` is given, so that a whole batch does not depend
on one pair, which may have an effect of its own or be misjudged by the model."""


@dataclass(frozen=True)
class NextPairs:
    """Pairs to compare next, the most informative first.

    Iterating gives (left id, right id).

    Attributes
    ----------
    left, right : arrays of shape (n,)
        Ids of the items.
    gain : array of shape (n,)
        Expected information of the answer about the strengths, in nats, given the answers to the
        pairs before it, times 4 p (1 - p), where p is the probability that the left item is truly
        the stronger one.
    p_left, p_tie, p_right : arrays of shape (n,)
        Probabilities of the answers of a typical annotator.
    """

    left: AnyArray
    right: AnyArray
    gain: FloatArray
    p_left: FloatArray
    p_tie: FloatArray
    p_right: FloatArray

    def __len__(self) -> int:
        return len(self.left)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(zip(self.left.tolist(), self.right.tolist(), strict=True)))


def covariance_given_annotators(
    table: ComparisonTable, strengths: FloatArray, profile: FloatArray, variance: float
) -> FloatArray:
    """Return the covariance of strengths conditional on the annotators' parameters.

    Parameters
    ----------
    table : ComparisonTable
    strengths : array of shape (n_items,)
    profile : array of shape (n_annotators, 3)
        Reliability, position bias and tendency to ties of each annotator.
    variance : float
        Variance of the prior of strengths.

    Returns
    -------
    array of shape (n_items, n_items)
    """
    a, b, t = profile[table.annotator].T
    gap = strengths[table.left] - strengths[table.right]
    weight = np.asarray(table.weight * a**2 * information(a * gap + b, t), dtype=np.float64)
    n = table.n_items
    links = np.bincount(table.left.astype(np.int64) * n + table.right, weight, n * n).reshape(n, n)
    links += links.T
    inner = np.diag(links.sum(axis=1) + 1 / variance) - links
    return np.asarray(np.linalg.inv(inner) if np.isfinite(variance) else np.linalg.pinv(inner))


def information(eta: FloatArray, ties: Any) -> FloatArray:
    """Return the information of an answer about eta, the log odds of left against right."""
    left, _, right = probabilities(eta, np.asarray(ties))
    found: FloatArray = (left + right - (left - right) ** 2) / 4
    return found


def choose_pairs(
    strengths: FloatArray,
    cov: FloatArray,
    common: tuple[float, float],
    allowed: BoolArray | tuple[IntArray, IntArray],
    n: int,
    each: int | None = None,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Choose pairs greedily, each as if the answers to the pairs before it were known.

    Parameters
    ----------
    strengths : array of shape (n_items,)
    cov : array of shape (n_items, n_items)
    common : (float, float)
        Position bias and tendency to ties of a typical annotator.
    allowed : bool array of shape (n_items, n_items), or two integer arrays
        Pairs that may be compared.
    n : int
        Number of pairs to choose. Fewer are chosen if ``each`` allows no more.
    each : int, optional
        How often a pair may be chosen. Default: a fifth of n, or as often as n asks for where
        there are fewer pairs.

    Returns
    -------
    left, right : integer arrays of shape (n,)
        Positions of the items.
    gain : array of shape (n,)
        As in `NextPairs`.
    """
    if isinstance(allowed, tuple):
        i, j = allowed
    else:
        i, j = np.nonzero(np.triu(allowed | allowed.T, 1))
    info = information(strengths[i] - strengths[j] + common[0], common[1])
    variance = np.maximum(cov[i, i] + cov[j, j] - 2 * cov[i, j], 0.0)
    p = ndtr((strengths[i] - strengths[j]) / np.sqrt(np.maximum(variance, 1e-300)))
    doubt = 4 * p * (1 - p)  # The expectation of p stays the same, whatever is answered.
    times = np.zeros(len(i), dtype=np.int64)
    if each is None:
        each = max(-(-n // BATCH_PAIRS), -(-n // len(i)))
    chosen, gains = [], []
    for _ in range(min(n, each * len(i))):
        gain = np.where(times < each, doubt * 0.5 * np.log1p(info * variance), -np.inf)
        best = int(np.argmax(gain))
        times[best] += 1
        chosen.append(best)
        gains.append(float(gain[best]))
        column = cov[:, i[best]] - cov[:, j[best]]
        shrink = info[best] / (1 + info[best] * variance[best])
        variance = np.maximum(variance - shrink * (column[i] - column[j]) ** 2, 0.0)
        cov = cov - shrink * np.outer(column, column)
    at = np.array(chosen, dtype=np.int64)
    one, other = i[at], j[at]
    # Show each item on both sides about equally often, so that position bias can be estimated.
    shown = np.zeros(len(strengths))
    for k in range(len(at)):
        if shown[one[k]] > shown[other[k]]:
            one[k], other[k] = other[k], one[k]
        shown[one[k]] += 1
        shown[other[k]] -= 1
    return one, other, np.array(gains)
