"""What one more annotation is worth: expected information, and expected gain in right labels.

For an instance with the posterior q and an annotator with the confusion matrix pi, the annotation l
has the probability p_l = sum_k q_k pi_kl, and

    EIG = H(p) - sum_k q_k H(pi_k)                 information about the class, in nats [1]_ [2]_
    ERE = sum_l max_k q_k pi_kl - max_k q_k        gain in the probability of a right label

Where annotators share mistakes, the posterior is tempered (`manyhands.inference.dependence`), and
an annotation that joins d others counts with the power 1 / (1 + d rho). Its matrix is raised to
that power here, too (`tempered`), or its gain would be overstated.

.. [1] D. J. C. MacKay. Information-based objective functions for active data selection. Neural
   Computation 4(4), 1992.
.. [2] P. Welinder and P. Perona. Online crowdsourcing: rating annotators and obtaining
   cost-effective labels. CVPR Workshops, 2010.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import xlogy

from manyhands.inference.probability import normalise_rows
from manyhands.typing import AnyArray, FloatArray, IntArray

BLOCK, SMALL_BLOCK = 4_000_000, 250_000
"""Entries of the largest array that is made at a time, and of one that stays in the cache."""

Gain = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""From the posteriors (m, C), matrices (m, C, C) and their rows' entropies (m, C) of m pairs to
their gains (m,)."""


def entropy(p: FloatArray) -> FloatArray:
    """Entropy in nats along the last axis."""
    return np.asarray(-xlogy(p, p).sum(axis=-1))


def information(q: FloatArray, confusion: FloatArray, noise: FloatArray) -> FloatArray:
    """Expected information gain (EIG) of m pairs in nats, shape (m,); never negative."""
    p = np.matmul(q[:, None, :], confusion)[:, 0]
    return np.maximum(entropy(p) - (q * noise).sum(axis=1), 0.0)


def right_labels(q: FloatArray, confusion: FloatArray, noise: FloatArray) -> FloatArray:
    """Expected gain in right labels (ERE) of m pairs, shape (m,); never negative."""
    best = (q[:, :, None] * confusion).max(axis=1).sum(axis=1)
    return np.maximum(best - q.max(axis=1), 0.0)


def tempered(confusion: FloatArray, power: float) -> FloatArray:
    """Confusion matrices raised to a power; rows sum to 1."""
    return confusion if power == 1.0 else normalise_rows(confusion**power)


def of_pairs(
    gain: Gain,
    posterior: FloatArray,
    confusion: FloatArray,
    power: FloatArray,
    instance: IntArray,
    annotator: IntArray,
) -> FloatArray:
    """Gains of pairs (instance, annotator), shape (m,), in blocks.

    Parameters
    ----------
    gain : `information` or `right_labels`
    posterior : array of shape (n, C)
    confusion : array of shape (R, C, C)
    power : array of shape (n,)
        With which a new annotation of the instance counts.
    instance, annotator : integer arrays of shape (m,)
    """
    gains = np.empty(len(instance))
    size = max(BLOCK // confusion.shape[1] ** 2, 1)
    for value, rows in _by_power(power[instance]):
        matrices = tempered(confusion, value)
        noise = entropy(matrices)
        for first in range(0, len(rows), size):
            some = rows[first : first + size]
            who = annotator[some]
            gains[some] = gain(posterior[instance[some]], matrices[who], noise[who])
    return gains


def information_of_all(posterior: FloatArray, confusion: FloatArray, power: FloatArray) -> AnyArray:
    """EIG of every instance with every annotator, shape (n, R), in single precision."""
    out = np.empty((len(posterior), len(confusion)), dtype=np.float32)
    size = max(SMALL_BLOCK // len(confusion), 1)
    for value, rows in _by_power(power):
        matrices = tempered(confusion, value)
        by_label = np.ascontiguousarray(matrices.transpose(2, 1, 0), dtype=np.float32)
        noise = -entropy(matrices).T.astype(np.float32)
        for first in range(0, len(rows), size):
            some = rows[first : first + size]
            q = posterior[some].astype(np.float32)
            total = q @ noise
            for given in by_label:
                p = q @ given
                np.maximum(p, np.float32(1e-12), out=p)
                log_p = np.log(p)
                log_p *= p
                total -= log_p
            out[some] = np.maximum(total, np.float32(0.0))
    return out


def _by_power(power: FloatArray) -> list[tuple[float, IntArray]]:
    """Rows of each distinct power."""
    if not len(power):
        return []
    values, code = np.unique(power, return_inverse=True)
    order = np.argsort(code, kind="stable")
    cuts = np.searchsorted(code[order], np.arange(1, len(values)))
    return list(zip(values.tolist(), np.split(order, cuts), strict=True))
