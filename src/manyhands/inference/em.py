"""EM over confusion matrices: the E step, and the sums of counts that its M step needs [1]_.

.. [1] A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using
   the EM algorithm. Applied Statistics 28(1), 1979.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from manyhands.decision.labels import pick
from manyhands.inference.probability import normalise_rows
from manyhands.inference.votes import Votes, zip_shards
from manyhands.typing import FloatArray


@dataclass(frozen=True)
class EMCounts:
    """What EM over confusion matrices needs to know of a shard.

    Attributes
    ----------
    prior : array of shape (C,)
        Expected instances of every class, among those something is known of.
    confusion : array of shape (R, C, K)
        Expected responses, [annotator, true, response].
    log_likelihood : float
    """

    prior: FloatArray
    confusion: FloatArray
    log_likelihood: float = 0.0

    def __add__(self, other: EMCounts) -> EMCounts:
        """Counts of both."""
        return EMCounts(
            self.prior + other.prior,
            self.confusion + other.confusion,
            self.log_likelihood + other.log_likelihood,
        )


def em_counts(votes: Votes, posterior: FloatArray, log_likelihood: float = 0.0) -> EMCounts:
    """Counts of a shard under a posterior (Dawid & Skene 1979, Eq. 2.3 and 2.4)."""
    if votes.voted.all():  # A product is faster than a sum along the long axis, or a mask.
        prior = np.ones(len(posterior)) @ posterior
    else:
        prior = posterior[votes.voted].sum(axis=0)
    return EMCounts(prior, confusion_counts(votes, posterior), log_likelihood)


def expect_and_count(
    votes: Votes, log_prior: FloatArray, log_confusion: FloatArray, *, hard: bool = False
) -> EMCounts:
    """Count under the parameters' own posterior: one EM iteration's share of a shard.

    With ``hard`` every instance counts in its most probable class alone, and the log likelihood is
    that of annotations and classes.
    """
    posterior, evidence = e_step(votes, log_prior, log_confusion)
    if hard:
        chosen = pick(posterior, "first", np.random.RandomState(0))[:, None]
        evidence = evidence + np.log(np.take_along_axis(posterior, chosen, axis=1)[:, 0])
        posterior[:] = 0.0
        np.put_along_axis(posterior, chosen, 1.0, axis=1)
    return em_counts(votes, posterior, float(evidence[votes.voted].sum()))


def total_em_counts(
    shards: Iterable[Votes],
    posterior: FloatArray,
    states: Callable[[Votes, FloatArray], FloatArray] = lambda _, rows: rows,
) -> EMCounts:
    """Counts under a given posterior of all instances (of whose rows ``states`` makes others)."""
    return reduce(
        add,
        (em_counts(shard, states(shard, rows)) for shard, rows in zip_shards(shards, posterior)),
    )


def e_step(
    votes: Votes, log_prior: FloatArray, log_confusion: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Posterior over classes (n, C) and the log likelihood of every instance (n,).

    Dawid & Skene (1979), Eq. 2.5, in log space: a product of 200 annotations underflows.

    Parameters
    ----------
    votes : Votes
    log_prior : array of shape (C,) or, one row an instance, (n, C)
    log_confusion : array of shape (R, C, K), [annotator, true, response]
    """
    return normalise_joint(votes, log_likelihoods(votes, log_confusion) + log_prior)


def log_likelihoods(votes: Votes, log_confusion: FloatArray) -> FloatArray:
    """Sum of log p(response | c) over an instance's annotations, shape (n, C)."""
    n_annotators, n_classes, n_responses = log_confusion.shape
    by_response = log_confusion.transpose(0, 2, 1).reshape(n_annotators * n_responses, n_classes)
    joint: FloatArray = votes.matrix @ np.ascontiguousarray(by_response)
    return joint


def normalise_joint(votes: Votes, joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Normalise log p(state, annotations), overwriting it; gold leaves the states of one class.

    Returns
    -------
    posterior : array of shape (n, C)
    evidence : array of shape (n,)
        Log p(annotations), or log p(gold, annotations) where gold is known.
    """
    if votes.gold is not None:
        known = np.flatnonzero(votes.gold >= 0)
        per_class = joint.shape[1] // votes.n_classes  # A class may have several states.
        other = np.arange(joint.shape[1]) // per_class != votes.gold[known][:, None]
        joint[known] = np.where(other, -np.inf, joint[known])
    top = _row_max(joint)
    joint -= top[:, None]
    np.exp(joint, out=joint)
    mass = joint @ np.ones(joint.shape[1])
    joint /= mass[:, None]
    return joint, top + np.log(mass)


def _row_max(values: FloatArray) -> FloatArray:
    """Largest value of every row, shape (n,)."""
    if values.shape[1] > 16:
        return values.max(axis=1)
    top = values[:, 0].copy()
    for c in range(1, values.shape[1]):  # Reducing along a short last axis is slow in numpy.
        np.maximum(top, values[:, c], out=top)
    return top


def confusion_counts(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Expected counts, shape (R, C, K), [annotator, true, response] (Dawid & Skene, Eq. 2.3)."""
    counts = np.asarray(votes.matrix.T @ posterior)
    shape = (votes.n_annotators, votes.n_responses, posterior.shape[1])
    return counts.reshape(shape).transpose(0, 2, 1)


def estimate_confusions(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Share of each response against a posterior, (R, C, K); a row without evidence is pooled."""
    counts = total_em_counts(votes.shards(), posterior).confusion
    counts[counts.sum(axis=2) < 1e-9] = 0.0  # What rounding leaves is no evidence.
    pooled = normalise_rows(counts.sum(axis=0))
    empty = counts.sum(axis=2, keepdims=True) == 0
    return normalise_rows(np.where(empty, pooled, counts))
