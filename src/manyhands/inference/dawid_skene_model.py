"""Dawid & Skene's model [1]_: a class for each instance, and a confusion matrix for each annotator.

An annotator r who annotates an instance of class c answers k with probability pi_rck, whatever the
other annotators answer; p_c are the shares of the classes. Start, E-step (Eq. 2.5, in
`manyhands.inference.confusions`), M-step (Eq. 2.3 and 2.4) and posterior stand here in this order.
Three things are more than the paper has:

- a prior of the confusion matrices, as pseudo-counts that the M-step adds;
- classes that consist of subtypes: the model knows *states*, and the posterior sums them up; and
- over-relaxed steps (`DawidSkeneModel.beyond`).

Which prior, how many subtypes and which correction of the start a table needs is decided in
`manyhands.inference.confusion_em`, and `manyhands.DawidSkene` reads out what the kept fit says.

.. [1] A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using the
   EM algorithm. Journal of the Royal Statistical Society C 28(1), 1979.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from manyhands.inference.confusions import (
    EMCounts,
    e_step,
    expect_and_count,
    log_likelihoods,
    normalise_joint,
    total_em_counts,
)
from manyhands.inference.em import Model
from manyhands.inference.probability import (
    Table,
    floored_log,
    log_prior,
    map_rows,
    normalise_rows,
    sum_rows,
)
from manyhands.inference.votes import Votes, clamp_to_gold, sum_over_shards
from manyhands.records import record
from manyhands.typing import FloatArray

GREATEST_LOG = 700.0
"""Logarithms beyond which, on either side of 0, exponentials are no longer numbers."""


@record("Parameters")
@dataclass(frozen=True)
class Params:
    """Parameters per state, where a state is a class or a subtype of a class.

    Attributes
    ----------
    prior : array of shape (S,)
    responses : array of shape (R, S, K)
        Indexed [annotator, state, response]; rows sum to 1; or on disk (`Blocks`).
    """

    prior: FloatArray
    responses: Table

    @cached_property
    def sent(self) -> tuple[FloatArray, Table]:
        """Floored logarithms of both."""
        return floored_log(self.prior), map_rows(floored_log, self.responses)

    def states(self, shard: Votes) -> FloatArray:
        """Posterior over the states, shape (n, S)."""
        return e_step(shard, *self.sent)[0]

    def posterior(self, shard: Votes, exponent: FloatArray | None = None) -> FloatArray:
        """Posterior over the classes, shape (n, C); see `Model.posterior`."""
        return DawidSkeneModel.posterior(shard, self.prior, self.sent[1], exponent)

    def log_joint(self, shard: Votes, exponent: FloatArray | None) -> FloatArray:
        """Log p(class, annotations), shape (n, C), before it is multiplied by ``exponent``."""
        return _log_joint(shard, self.prior, self.sent[1], exponent)


@dataclass(frozen=True)
class DawidSkeneModel(Model[Params, EMCounts]):
    """The model on the votes of one fit.

    Attributes
    ----------
    shards : iterable of Votes
    pseudo_counts : array of shape (R or 1, S, K)
        Of the prior, and of the annotators' histories.
    shares : array of shape (C,) or None
        Of the classes; None if they are estimated.
    held : array of shape (C,) or None
        Pseudo-instances of each class, which hold the estimated shares near those of the votes.
    hard : bool
        Count each instance in its most probable state only.
    over_relaxes : bool
        Whether steps go further than the M-step.
    """

    shards: Iterable[Votes]
    pseudo_counts: Table
    shares: FloatArray | None = None
    held: FloatArray | None = None
    hard: bool = False
    over_relaxes: bool = False

    parameters = Params

    def start(self, posterior: Any) -> Params:
        """See `Model.start`; of a model without subtypes."""
        return self.maximise(total_em_counts(self.shards, posterior))

    @staticmethod
    def expect(
        shard: Votes, log_prior: FloatArray, log_responses: Table, *, hard: bool = False
    ) -> EMCounts:
        """E-step on a shard (`manyhands.inference.confusions.expect_and_count`)."""
        return expect_and_count(shard, log_prior, log_responses, hard=hard)

    def expected(self, parameters: Params) -> EMCounts:
        """See `Model.expected`."""
        return sum_over_shards(self.expect, self.shards, *parameters.sent, hard=self.hard)

    def maximise(self, counts: EMCounts, parameters: Params | None = None) -> Params:
        """See `Model.maximise`."""
        return m_step(counts, self.pseudo_counts, self.shares, self.held)

    def objective(self, counts: EMCounts, parameters: Params) -> float:
        """Log likelihood and log prior."""
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
        """See `Model.posterior`; ``prior`` (S,) are the shares of the states."""
        if exponent is not None:
            joint = _log_joint(shard, prior, log_responses, exponent)
            return normalise_joint(shard, joint, exponent)[0]
        states, _ = e_step(shard, floored_log(prior), log_responses)
        posterior = sum_subtypes(states, shard.n_classes)
        return clamp_to_gold(shard, posterior)  # Sums over subtypes have rounding errors.

    def beyond(self, here: Params, proposal: Params, step: float) -> Params:
        """See `Model.beyond`."""

        def further(start: FloatArray, end: FloatArray) -> FloatArray:
            logs = end - start
            logs *= step
            logs += start
            return _normalised_exp(logs)

        priors, responses = zip(here.sent, proposal.sent, strict=True)
        return Params(_constrained(further(*priors), self.shares), map_rows(further, *responses))


def m_step(
    counts: EMCounts,
    pseudo_counts: Table,
    shares: FloatArray | None = None,
    held: FloatArray | None = None,
) -> Params:
    """Parameters that fit the expected counts; ``shares`` and ``held`` as in `DawidSkeneModel`."""
    responses = map_rows(_normalised_sum, counts.confusion, pseudo_counts)
    instances = counts.prior
    if held is not None:
        instances = instances + among_subtypes(held, instances)
    return Params(_constrained(instances, shares), responses)


def among_subtypes(by_class: FloatArray, prior: FloatArray) -> FloatArray:
    """Numbers of the classes (C,) by state, (S,), divided as ``prior`` (S,) divides each class."""
    shares = normalise_rows(prior.reshape(len(by_class), -1))
    return np.asarray((by_class[:, None] * shares).ravel())


def _constrained(prior: FloatArray, shares: FloatArray | None) -> FloatArray:
    """Shares of the states (S,); those of the classes are ``shares``, if these are set."""
    if shares is not None:
        by_class = normalise_rows(prior.reshape(len(shares), -1))
        prior = (shares[:, None] * by_class).ravel()
    return normalise_rows(prior)


def _log_joint(
    shard: Votes, prior: FloatArray, log_responses: Table, exponent: FloatArray | None
) -> FloatArray:
    """Log p(class, annotations), shape (n, C), before it is multiplied by ``exponent``."""
    joint = log_likelihoods(shard, log_responses) + log_prior(prior, exponent)
    return log_sum_subtypes(joint, shard.n_classes)


def _normalised_sum(counts: FloatArray, pseudo_counts: FloatArray) -> FloatArray:
    return normalise_rows(counts + pseudo_counts)


def sum_of_product(counts: FloatArray, logs: FloatArray) -> float:
    """Sum of counts (R, S, K) times logarithms."""
    return float(np.einsum("rsk,rsk->", counts, logs))


def sum_subtypes(posterior: FloatArray, n_classes: int) -> FloatArray:
    """Sum over the subtypes of each class, shape (n, C)."""
    if posterior.shape[1] == n_classes:
        return posterior
    return posterior.reshape(len(posterior), n_classes, -1).sum(axis=2)


def log_sum_subtypes(joint: FloatArray, n_classes: int) -> FloatArray:
    """Log of the sum over the subtypes of each class, shape (n, C)."""
    if joint.shape[1] == n_classes:
        return joint
    by_subtype = joint.reshape(len(joint), n_classes, joint.shape[1] // n_classes).transpose(
        2, 0, 1
    )
    return reduce(np.logaddexp, by_subtype)  # Reducing along a short last axis is slow in numpy.


def _normalised_exp(logs: FloatArray) -> FloatArray:
    """Exponentials, divided by the sum over the last axis, in place of their logarithms."""
    if logs.size and max(-logs.min(), logs.max()) > GREATEST_LOG:
        logs -= logs.max(axis=-1, keepdims=True)
    np.exp(logs, out=logs)
    logs /= np.einsum("...k->...", logs)[..., None]  # Several times faster than sum.
    return logs
