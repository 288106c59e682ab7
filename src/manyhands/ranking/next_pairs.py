"""Which pairs to compare next: those whose answers tell most about the strengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.ranking.davidson import probabilities
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class NextPairs:
    """Pairs to compare next, the most informative first.

    Iterating gives (left id, right id).

    Attributes
    ----------
    left, right : arrays of shape (n,)
        Ids of the items.
    gain : array of shape (n,)
        Information that the answer is expected to give about the strengths, in nats, after those
        of the pairs before it.
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


def choose_pairs(
    strengths: FloatArray,
    cov: FloatArray,
    common: tuple[float, float],
    allowed: BoolArray | tuple[IntArray, IntArray],
    n: int,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Choose pairs one by one, each as if the answers to those before were in.

    Parameters
    ----------
    strengths : array of shape (n_items,)
    cov : array of shape (n_items, n_items)
    common : (float, float)
        Bias of position and tendency to ties of a typical annotator.
    allowed : bool array of shape (n_items, n_items), or two integer arrays
        Pairs that may be compared.
    n : int

    Returns
    -------
    left, right : integer arrays of shape (n,)
    gain : array of shape (n,)
    """
    if isinstance(allowed, tuple):
        i, j = allowed
    else:
        i, j = np.nonzero(np.triu(allowed | allowed.T, 1))
    eta = strengths[i] - strengths[j] + common[0]
    left, _, right = probabilities(eta, np.array(common[1]))
    info = (left + right - (left - right) ** 2) / 4
    variance = np.maximum(cov[i, i] + cov[j, j] - 2 * cov[i, j], 0.0)
    chosen, gains = [], []
    for _ in range(n):
        gain = 0.5 * np.log1p(info * variance)
        best = int(np.argmax(gain))
        chosen.append(best)
        gains.append(float(gain[best]))
        column = cov[:, i[best]] - cov[:, j[best]]
        shrink = info[best] / (1 + info[best] * variance[best])
        variance = np.maximum(variance - shrink * (column[i] - column[j]) ** 2, 0.0)
        cov = cov - shrink * np.outer(column, column)
    at = np.array(chosen, dtype=np.int64)
    one, other = i[at], j[at]
    # An item is shown on both sides about equally often.
    shown = np.zeros(len(strengths))
    for k in range(len(at)):
        if shown[one[k]] > shown[other[k]]:
            one[k], other[k] = other[k], one[k]
        shown[one[k]] += 1
        shown[other[k]] -= 1
    return one, other, np.array(gains)
