"""Dawid & Skene's model [1]_: a class for each instance, and a confusion matrix for each annotator.

An annotator r who annotates an instance of class c answers k with probability pi_rck, independently
of other annotators; p_c are the shares of the classes. This module has the expected counts, the
E-step (Eq. 2.5), the model, and its M-step (Eq. 2.3 and 2.4), in this order. Other methods with
confusion matrices share the counts and the E-step. Three things extend the paper:

- a prior of the confusion matrices, as pseudo-counts that the M-step adds;
- subtypes of classes: the model has *states*, and the posterior sums over those of a class; and
- over-relaxed steps (`DawidSkeneModel.beyond`).

`manyhands.inference.confusion_em` chooses the prior, the number of subtypes and the correction for
rare classes. `manyhands.DawidSkene` sets its attributes from the chosen fit.

.. [1] A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using the
   EM algorithm. Journal of the Royal Statistical Society C 28(1), 1979.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from manyhands.decision.labels import pick
from manyhands.inference.em import EMModel
from manyhands.inference.probability import (
    LargeTable,
    Table,
    as_array,
    extrapolated,
    floored_log,
    log_prior,
    map_rows,
    normalise_rows,
    normalised_sum,
    over_annotators,
    sum_of_product,
    sum_rows,
)
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    clamp_to_gold,
    is_vote_shares,
    sum_over_shards,
    vote_shares,
)
from manyhands.records import record
from manyhands.typing import FloatArray


@dataclass(frozen=True)
class EMCounts:
    """Expected counts that the M-step needs from a shard.

    Attributes
    ----------
    prior : array of shape (C,)
        Expected number of instances of each class, over those with annotations or gold.
    confusion : array of shape (R, C, K)
        Expected responses, indexed [annotator, true, response]; possibly on disk
        (`manyhands.inference.probability`).
    log_likelihood : float
    """

    prior: FloatArray
    confusion: Table
    log_likelihood: float = 0.0

    def __add__(self, other: EMCounts) -> EMCounts:
        """Return the sum of both counts."""
        return EMCounts(
            self.prior + other.prior,
            self.confusion + other.confusion,
            self.log_likelihood + other.log_likelihood,
        )

    def __reduce__(self) -> Any:
        """Pickle the counts in their memory order, (R, K, C), to avoid a copy."""
        if not isinstance(self.confusion, np.ndarray):
            return EMCounts, (self.prior, self.confusion, self.log_likelihood)
        by_response = np.ascontiguousarray(self.confusion.transpose(0, 2, 1))
        return _unpickled, (self.prior, by_response, self.log_likelihood)

    def __iadd__(self, other: EMCounts) -> EMCounts:
        """Add other counts to these arrays in place."""
        prior, confusion = self.prior, self.confusion
        prior += other.prior
        confusion += other.confusion
        return EMCounts(prior, confusion, self.log_likelihood + other.log_likelihood)

    def total(self) -> EMCounts:
        """Return counts to which others can be added, on disk if they do not fit in memory."""
        total = getattr(self.confusion, "total", None)
        return self if total is None else replace(self, confusion=total())

    def pieces(self, n: int) -> list[EMCounts]:
        """Split the counts into those of ``n`` blocks of annotators."""
        first, *rest = self.confusion.pieces(n)
        nothing = np.zeros_like(self.prior)
        return [replace(self, confusion=first), *(EMCounts(nothing, piece) for piece in rest)]


def _unpickled(prior: FloatArray, by_response: FloatArray, log_likelihood: float) -> EMCounts:
    return EMCounts(prior, by_response.transpose(0, 2, 1), log_likelihood)


def em_counts(votes: Votes, posterior: FloatArray, log_likelihood: float = 0.0) -> EMCounts:
    """Return the counts of a shard under a posterior (Dawid & Skene 1979, Eq. 2.3 and 2.4)."""
    if votes.voted.all():  # A product is faster than a mask or a sum along the long axis.
        prior = np.ones(len(posterior)) @ posterior
    else:
        prior = posterior[votes.voted].sum(axis=0)
    return EMCounts(prior, confusion_counts(votes, posterior), log_likelihood)


def expect_and_count(
    votes: Votes, log_prior: FloatArray, log_confusion: Table, *, hard: bool = False
) -> EMCounts:
    """Count under the posterior of the given parameters: one EM iteration on a shard.

    With ``hard`` each instance counts only in its most probable class, and the log likelihood is
    the joint one of annotations and classes.
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
    posterior: Any,
    states: Callable[[Votes, FloatArray], FloatArray] | None = None,
) -> EMCounts:
    """Return the counts under a given posterior, whose rows ``states`` may transform."""
    return sum_over_shards(_count_states, shards, states, rows=(posterior,))


def _count_states(
    shard: Votes, rows: FloatArray, states: Callable[[Votes, FloatArray], FloatArray] | None
) -> EMCounts:
    return em_counts(shard, rows if states is None else states(shard, rows))


def count_votes(
    shard: Votes, split: Callable[..., FloatArray] = lambda _, shares: shares
) -> EMCounts:
    """Return the counts against the vote shares, over the instances that have votes."""
    no_votes = np.zeros(shard.n_classes)
    return em_counts(shard, split(shard, vote_shares(shard.answers, empty=no_votes)))


def starting_counts(
    votes: AllVotes,
    shards: Iterable[Votes],
    start: Any,
    split: Callable[[Votes, FloatArray], FloatArray],
) -> tuple[EMCounts, Callable[[], EMCounts]]:
    """Return the counts against the vote shares, and a function for the first counts of EM.

    They are the same unless EM starts from another posterior.
    """
    counts = sum_over_shards(count_votes, votes.once(), split)
    is_same = votes.n_responses == votes.n_classes and is_vote_shares(start, votes.once())
    return counts, lambda: counts if is_same else total_em_counts(shards, start, split)


def e_step(
    votes: Votes, log_prior: FloatArray, log_confusion: Table
) -> tuple[FloatArray, FloatArray]:
    """Return the posterior over classes (n, C) and log likelihood of each instance (n,).

    Dawid & Skene (1979), Eq. 2.5, in log space because a product of 200 annotations underflows.

    Parameters
    ----------
    votes : Votes
    log_prior : array of shape (C,), or (n, C) with one row per instance
    log_confusion : array of shape (R, C, K), indexed [annotator, true, response]
    """
    return normalise_joint(votes, log_likelihoods(votes, log_confusion) + log_prior)


def log_likelihoods(votes: Votes, log_confusion: Table) -> FloatArray:
    """Return the sum of log p(response | c) over an instance's annotations, shape (n, C)."""
    if isinstance(log_confusion, LargeTable):
        matrix, pairs = votes.pairs
        return np.asarray(matrix @ log_confusion.at(pairs))
    n_annotators, n_classes, n_responses = log_confusion.shape
    by_response = log_confusion.transpose(0, 2, 1).reshape(n_annotators * n_responses, n_classes)
    joint: FloatArray = votes.matrix @ np.ascontiguousarray(by_response)
    return joint


def normalise_joint(
    votes: Votes, joint: FloatArray, exponent: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Normalise log p(state, annotations) in place; gold restricts the states to one class.

    An exponent (n,) raises the probabilities of an instance to its power (see
    `manyhands.inference.dependence`).

    Returns
    -------
    posterior : array of shape (n, C)
    evidence : array of shape (n,)
        Log p(annotations), or log p(gold, annotations) where gold is known.
    """
    if exponent is not None:
        joint *= exponent[:, None]
    if votes.gold is not None:
        known = np.flatnonzero(votes.gold >= 0)
        n_states = joint.shape[1] // votes.n_classes  # Number of states of a class.
        impossible = np.arange(joint.shape[1]) // n_states != votes.gold[known][:, None]
        joint[known] = np.where(impossible, -np.inf, joint[known])
    top = row_max(joint)
    joint -= top[:, None]
    np.exp(joint, out=joint)
    mass = joint @ np.ones(joint.shape[1])
    joint /= mass[:, None]
    return joint, top + np.log(mass)


def row_max(values: FloatArray) -> FloatArray:
    """Return the largest value of each row, shape (n,)."""
    if values.shape[1] > 32:
        return values.max(axis=1)
    top = values[:, 0].copy()
    for c in range(1, values.shape[1]):  # Reducing along a short last axis is slow in numpy.
        np.maximum(top, values[:, c], out=top)
    return top


def confusion_counts(votes: Votes, posterior: FloatArray) -> Table:
    """Return the expected counts (R, C, K), [annotator, true, response]; Dawid & Skene, Eq. 2.3."""
    if votes.tables is not None:
        return votes.tables.counts(votes, posterior)
    counts = np.asarray(votes.matrix.T @ posterior)
    shape = (votes.n_annotators, votes.n_responses, posterior.shape[1])
    return counts.reshape(shape).transpose(0, 2, 1)


def estimate_confusions(votes: AllVotes, posterior: FloatArray) -> FloatArray:
    """Return the shares of responses under a posterior, (R, C, K).

    Rows without data get the shares of the whole crowd.
    """
    counts = map_rows(_without_rounding, total_em_counts(votes.shards(), posterior).confusion)
    pooled = normalise_rows(over_annotators(counts))

    def shares(counts: FloatArray) -> FloatArray:
        empty = counts.sum(axis=2, keepdims=True) == 0
        return normalise_rows(np.where(empty, pooled, counts))

    return as_array(map_rows(shares, counts))


def _without_rounding(counts: FloatArray) -> FloatArray:
    """Return the counts with rows of mere rounding errors set to 0."""
    return np.where(counts.sum(axis=2, keepdims=True) < 1e-9, 0.0, counts)


@record("Parameters")
@dataclass(frozen=True)
class ConfusionParams:
    """Parameters per state, where a state is a class or a subtype of a class.

    Attributes
    ----------
    prior : array of shape (S,)
    responses : array of shape (R, S, K)
        Indexed [annotator, state, response]; rows sum to 1. Possibly on disk (`Blocks`).
    """

    prior: FloatArray
    responses: Table

    @cached_property
    def sent(self) -> tuple[FloatArray, Table]:
        """Floored logarithms of both."""
        return floored_log(self.prior), map_rows(floored_log, self.responses)

    def states(self, shard: Votes) -> FloatArray:
        """Return the posterior over the states, shape (n, S)."""
        return e_step(shard, *self.sent)[0]

    def posterior(self, shard: Votes, exponent: FloatArray | None = None) -> FloatArray:
        """Return the posterior over the classes, shape (n, C); see `EMModel.posterior`."""
        return DawidSkeneModel.posterior(shard, self.prior, self.sent[1], exponent)

    def log_joint(self, shard: Votes, exponent: FloatArray | None) -> FloatArray:
        """Return log p(class, annotations), (n, C), before it is multiplied by ``exponent``."""
        return _log_joint(shard, self.prior, self.sent[1], exponent)


@dataclass(frozen=True)
class DawidSkeneModel(EMModel[ConfusionParams, EMCounts]):
    """The model on the votes of one fit.

    Attributes
    ----------
    shards : iterable of Votes
    pseudo_counts : array of shape (R or 1, S, K)
        Pseudo-counts of the prior, and of the annotators' histories.
    shares : array of shape (C,) or None
        Given shares of the classes; None if they are estimated.
    held : array of shape (C,) or None
        Pseudo-instances of each class that shrink the estimated shares to the vote shares.
    hard : bool
        Count each instance in its most probable state only.
    over_relaxes : bool
        Whether steps may be longer than the M-step's.
    """

    shards: Iterable[Votes]
    pseudo_counts: Table
    shares: FloatArray | None = None
    held: FloatArray | None = None
    hard: bool = False
    over_relaxes: bool = False

    parameters = ConfusionParams

    def start(self, posterior: Any) -> ConfusionParams:
        """Implement `EMModel.start`; only for a model without subtypes."""
        return self.maximise(total_em_counts(self.shards, posterior))

    @staticmethod
    def expect(
        shard: Votes, log_prior: FloatArray, log_responses: Table, *, hard: bool = False
    ) -> EMCounts:
        """Run the E-step on a shard (`expect_and_count`)."""
        return expect_and_count(shard, log_prior, log_responses, hard=hard)

    def expected(self, parameters: ConfusionParams) -> EMCounts:
        """Implement `EMModel.expected`."""
        return sum_over_shards(self.expect, self.shards, *parameters.sent, hard=self.hard)

    def maximise(
        self, counts: EMCounts, parameters: ConfusionParams | None = None
    ) -> ConfusionParams:
        """Implement `EMModel.maximise`."""
        return m_step(counts, self.pseudo_counts, self.shares, self.held)

    def objective(self, counts: EMCounts, parameters: ConfusionParams) -> float:
        """Return the log likelihood plus the log prior."""
        log_prior = sum_rows(sum_of_product, self.pseudo_counts, parameters.sent[1])
        if self.held is not None:
            by_class = parameters.prior.reshape(len(self.held), -1).sum(axis=1)
            log_prior += self.held @ floored_log(by_class)
        return float(counts.log_likelihood + log_prior)

    @staticmethod
    def posterior(
        shard: Votes,
        prior: FloatArray,
        log_responses: Table,
        exponent: FloatArray | None = None,
    ) -> FloatArray:
        """Implement `EMModel.posterior`; ``prior`` (S,) holds the shares of the states."""
        if exponent is not None:
            joint = _log_joint(shard, prior, log_responses, exponent)
            return normalise_joint(shard, joint, exponent)[0]
        states, _ = e_step(shard, floored_log(prior), log_responses)
        posterior = sum_subtypes(states, shard.n_classes)
        return clamp_to_gold(shard, posterior)  # Sums over subtypes have rounding errors.

    def beyond(
        self, here: ConfusionParams, proposal: ConfusionParams, step: float
    ) -> ConfusionParams:
        """Implement `EMModel.beyond`."""
        further = partial(extrapolated, step=step)
        priors, responses = zip(here.sent, proposal.sent, strict=True)
        prior = further(*priors)
        if self.shares is not None:
            prior = among_subtypes(self.shares, prior)
        return ConfusionParams(normalise_rows(prior), map_rows(further, *responses))


def m_step(
    counts: EMCounts,
    pseudo_counts: Table,
    shares: FloatArray | None = None,
    held: FloatArray | None = None,
) -> ConfusionParams:
    """Return the parameters that maximise the expected log likelihood plus log prior.

    ``shares`` and ``held`` are as in `DawidSkeneModel`.
    """
    instances = counts.prior
    if held is not None:
        instances = instances + among_subtypes(held, instances)
    if shares is not None:
        instances = among_subtypes(shares, instances)
    responses = map_rows(normalised_sum, counts.confusion, pseudo_counts)
    return ConfusionParams(normalise_rows(instances), responses)


def among_subtypes(by_class: FloatArray, prior: FloatArray) -> FloatArray:
    """Divide values of classes (C,) among their states, (S,), in proportion to ``prior`` (S,)."""
    shares = normalise_rows(prior.reshape(len(by_class), -1))
    return np.asarray((by_class[:, None] * shares).ravel())


def _log_joint(
    shard: Votes, prior: FloatArray, log_responses: Table, exponent: FloatArray | None
) -> FloatArray:
    """Return log p(class, annotations), (n, C), before it is multiplied by ``exponent``."""
    joint = log_likelihoods(shard, log_responses) + log_prior(prior, exponent)
    return log_sum_subtypes(joint, shard.n_classes)


def sum_subtypes(posterior: FloatArray, n_classes: int) -> FloatArray:
    """Sum over the subtypes of each class, shape (n, C)."""
    if posterior.shape[1] == n_classes:
        return posterior
    return posterior.reshape(len(posterior), n_classes, -1).sum(axis=2)


def log_sum_subtypes(joint: FloatArray, n_classes: int) -> FloatArray:
    """Return the log of the sum over the subtypes of each class, shape (n, C)."""
    if joint.shape[1] == n_classes:
        return joint
    by_subtype = joint.reshape(len(joint), n_classes, joint.shape[1] // n_classes).transpose(
        2, 0, 1
    )
    return reduce(np.logaddexp, by_subtype)  # Reducing along a short last axis is slow in numpy.
