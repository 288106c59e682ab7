"""The E- and M-step of GLAD [1]_, on shards here or on a cluster.

.. [1] J. Whitehill, P. Ruvolo, T. Wu, J. Bergsma and J. Movellan. Whose vote should count more:
   optimal integration of labels from labelers of unknown expertise. NIPS, 2009.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import numpy as np
from scipy.optimize import minimize

from manyhands.inference.dependence import exponents
from manyhands.inference.em import normalise_joint
from manyhands.inference.probability import log_prior, normalise_rows
from manyhands.inference.stored_votes import filled
from manyhands.inference.vote_sums import (
    by_annotator,
    by_instance,
    probability_correct,
    weighted_votes,
)
from manyhands.inference.votes import AllVotes, Votes, fill_rows, sum_over_shards, zip_shards
from manyhands.typing import FloatArray

PRIOR_MEAN = 1.0
"""Mean of the normal priors (of variance 1) on abilities and log beta; also EM's starting value."""

SHARD = 25_000
"""Annotations per shard; with so few, the M-step's arrays stay in the processor's cache."""

LOG_BETA_MAX = 30.0
"""Upper limit of log beta in exp(log beta), which keeps a long trial step from overflowing."""


class Model:
    """E- and M-step over the shards of the annotations.

    The parameters form one vector ``theta``: the abilities (R,), then the instances' log beta (n,).
    With ``annotators_known`` the abilities are fixed.
    """

    def __init__(self, votes: AllVotes, *, annotators_known: bool = False) -> None:
        self.votes = votes
        self.n_annotators = votes.n_annotators
        self.total_weight = votes.total_weight
        self.annotators_known = annotators_known
        self.shards = votes.shards(SHARD)

    def split(self, theta: FloatArray) -> Iterator[tuple[Votes, FloatArray, FloatArray]]:
        """Yield each shard with views of the abilities (R,) and of its log beta (n,)."""
        ability, log_beta = theta[: self.n_annotators], theta[self.n_annotators :]
        for shard, own in zip_shards(self.shards, log_beta):
            yield shard, ability, own

    def of_annotations(self, values: Iterable[FloatArray]) -> FloatArray:
        """Array of a value for each annotation, from those of the shards."""
        out, first = self.votes.new_column(self.votes.n_annotations), 0
        for part in values:
            out[first : first + len(part)] = part
            first += len(part)
        return out

    def p_correct(self, posterior: Any) -> Any:
        """Probability that each annotation is correct under a posterior (n, C)."""
        return self.of_annotations(starmap(probability_correct, zip_shards(self.shards, posterior)))

    def posterior(self, theta: FloatArray, prior: FloatArray, rho: float | None) -> FloatArray:
        """Posterior over the classes, shape (n, C); see `posterior_of`."""
        parts = (posterior_of(*part, prior, rho) for part in self.split(theta))
        return filled(self.votes, len(prior), parts)

    def e_step(self, theta: FloatArray, prior: FloatArray) -> tuple[Any, FloatArray, float]:
        """Return `p_correct`, the shares of the classes (C,), and the penalised log likelihood."""
        classes = np.zeros(len(prior))
        log_likelihood = -0.5 * float(((theta - PRIOR_MEAN) ** 2).sum())

        def probabilities() -> Iterator[FloatArray]:
            nonlocal classes, log_likelihood
            for part in self.split(theta):
                posterior, evidence = e_step(*part, prior)
                classes += part[0].voted @ posterior
                log_likelihood += evidence
                yield probability_correct(part[0], posterior)

        p_correct = self.of_annotations(probabilities())
        return p_correct, normalise_rows(classes), log_likelihood

    def m_step(self, theta: FloatArray, p_correct: Any, max_iter: int) -> FloatArray:
        """Increase the expected penalised log likelihood by L-BFGS.

        Steps are in units of the parameters' standard errors. Without this, an annotator with a
        thousand annotations and an instance with five would need very different steps.
        """
        unit = 1.0 / np.sqrt(self.information(theta))

        def loss(step: Any) -> tuple[float, FloatArray]:
            value, slope = self.expected(theta + unit * step, p_correct)
            return -value, -unit * slope

        result = minimize(
            loss,
            np.zeros(len(theta)),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "maxcor": max_iter},  # More pairs would stay empty.
        )
        updated: FloatArray = theta + unit * result.x
        return updated

    def expected(self, theta: FloatArray, p_correct: Any) -> tuple[float, FloatArray]:
        """Expected penalised log likelihood (up to a constant) and its gradient."""
        slope = PRIOR_MEAN - theta
        value = -0.5 * float((slope**2).sum())
        first = 0
        for part, (_, by_ability, by_log_beta) in zip(
            self.split(theta), self.split(slope), strict=True
        ):
            last = first + part[0].n_annotations
            p, first = np.asarray(p_correct[first:last]), last
            shard_value, shard_by_ability, shard_by_log_beta = slopes(*part, p)
            value += shard_value
            by_ability += shard_by_ability
            by_log_beta += shard_by_log_beta
        if self.annotators_known:
            slope[: self.n_annotators] = 0.0
        return value, slope

    def information(self, theta: FloatArray) -> FloatArray:
        """Fisher information of each parameter, including the prior's."""
        total = np.ones_like(theta)
        for part, (_, by_ability, by_log_beta) in zip(
            self.split(theta), self.split(total), strict=True
        ):
            shard_by_ability, shard_by_log_beta = information(*part)
            by_ability += shard_by_ability
            by_log_beta += shard_by_log_beta
        return total


@dataclass
class _Sums:
    """Sums over annotators of some shards, and what belongs to their instances, in their order."""

    value: float
    by_ability: FloatArray
    by_log_beta: list[FloatArray]

    def __add__(self, other: _Sums) -> _Sums:
        """Return the sums of both, of which the other's instances come later."""
        by_ability = self.by_ability + other.by_ability
        return _Sums(self.value + other.value, by_ability, self.by_log_beta + other.by_log_beta)

    @property
    def by_theta(self) -> FloatArray:
        """Both in the order of ``theta``."""
        return np.concatenate([self.by_ability, *self.by_log_beta])


class RemoteModel(Model):
    """The same steps, whose shards the workers of a cluster read and count.

    A worker keeps nothing between two calls. So it finds ``p_correct`` anew, from what that was
    made of: the starting posterior, or the parameters (theta, prior) of the last E-step.
    """

    def p_correct(self, posterior: Any) -> Any:
        """See `Model.p_correct`."""
        return posterior, None

    def posterior(self, theta: FloatArray, prior: FloatArray, rho: float | None) -> FloatArray:
        """See `Model.posterior`."""
        out = self.votes.new_rows(len(prior))
        ability, log_beta = np.split(theta, [self.n_annotators])
        fill_rows(out, self.shards, _posterior, ability, prior, rho, rows=(log_beta,))
        return out

    def e_step(self, theta: FloatArray, prior: FloatArray) -> tuple[Any, FloatArray, float]:
        """See `Model.e_step`."""
        ability, log_beta = np.split(theta, [self.n_annotators])
        sums = sum_over_shards(_evidence, self.shards, ability, prior, rows=(log_beta,))
        log_prior = -0.5 * float(((theta - PRIOR_MEAN) ** 2).sum())
        known = log_beta, (ability, prior)
        return known, normalise_rows(sums[:-1]), log_prior + float(sums[-1])

    def expected(self, theta: FloatArray, p_correct: Any) -> tuple[float, FloatArray]:
        """See `Model.expected`."""
        ability, log_beta = np.split(theta, [self.n_annotators])
        known, before = p_correct
        rows = (log_beta, known)
        sums = sum_over_shards(_slopes, self.shards, ability, before, rows=rows)
        slope = PRIOR_MEAN - theta
        return sums.value - 0.5 * float((slope**2).sum()), slope + sums.by_theta

    def information(self, theta: FloatArray) -> FloatArray:
        """See `Model.information`."""
        ability, log_beta = np.split(theta, [self.n_annotators])
        sums = sum_over_shards(_information, self.shards, ability, rows=(log_beta,))
        return np.asarray(1.0 + sums.by_theta)


def _posterior(shard: Votes, log_beta: FloatArray, ability: FloatArray, *rest: Any) -> FloatArray:
    return posterior_of(shard, ability, log_beta, *rest)


def _evidence(
    shard: Votes, log_beta: FloatArray, ability: FloatArray, prior: FloatArray
) -> FloatArray:
    """Expected number of instances per class (C,), and the log likelihood."""
    posterior, evidence = e_step(shard, ability, log_beta, prior)
    return np.append(shard.voted @ posterior, evidence)


def _slopes(
    shard: Votes, log_beta: FloatArray, known: FloatArray, ability: FloatArray, before: Any
) -> _Sums:
    posterior = known if before is None else e_step(shard, before[0], known, before[1])[0]
    p_correct = probability_correct(shard, posterior)
    value, by_ability, by_log_beta = slopes(shard, ability, log_beta, p_correct)
    return _Sums(value, by_ability, [by_log_beta])


def _information(shard: Votes, log_beta: FloatArray, ability: FloatArray) -> _Sums:
    by_ability, by_log_beta = information(shard, ability, log_beta)
    return _Sums(0.0, by_ability, [by_log_beta])


# -- one shard: ``ability`` (R,), ``log_beta`` (n,), ``p_correct`` (n_annotations,) ----------------


def e_step(
    votes: Votes,
    ability: FloatArray,
    log_beta: FloatArray,
    prior: FloatArray,
    exponent: FloatArray | None = None,
) -> tuple[FloatArray, float]:
    """Posterior over the classes (n, C) and the log likelihood of all annotations.

    With x = ability * beta, log sigmoid(x) - log sigmoid(-x) = x. A vote for a class thus adds
    x + log(C - 1) more to its log probability than to those of the other classes.
    """
    alpha, beta = _per_annotation(votes, ability, log_beta)
    x = alpha * beta
    log_others = np.log(votes.n_classes - 1.0)
    posterior, evidence = normalise_joint(
        votes, weighted_votes(votes, x + log_others) + log_prior(prior, exponent), exponent
    )
    wrong = _total(votes, -0.5 * x - log_others) - _total_log_2cosh(votes, x)
    return posterior, float(evidence[votes.voted].sum()) + wrong


def posterior_of(
    votes: Votes, ability: FloatArray, log_beta: FloatArray, prior: FloatArray, rho: float | None
) -> FloatArray:
    """Posterior (n, C) that allows for mistakes correlated by ``rho``; None: independent ones."""
    exponent = None if rho is None else exponents(votes, rho)
    return e_step(votes, ability, log_beta, prior, exponent)[0]


def slopes(
    votes: Votes, ability: FloatArray, log_beta: FloatArray, p_correct: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Expected log likelihood (up to a constant), its slopes in ability (R,) and log beta (n,)."""
    alpha, beta = _per_annotation(votes, ability, log_beta)
    x = alpha * beta
    value = _total(votes, (p_correct - 0.5) * x) - _total_log_2cosh(votes, x)
    surprise = p_correct - _sigmoid(x)
    return value, by_annotator(votes, surprise * beta), by_instance(votes, surprise * x)


def information(
    votes: Votes, ability: FloatArray, log_beta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Fisher information of each ability (R,) and log beta (n,), ignoring their covariance."""
    alpha, beta = _per_annotation(votes, ability, log_beta)
    x = alpha * beta
    p = _sigmoid(x)
    by_x = p * (1.0 - p)
    return by_annotator(votes, by_x * beta**2), by_instance(votes, by_x * x**2)


def _per_annotation(
    votes: Votes, ability: FloatArray, log_beta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ability and beta for each annotation."""
    return ability[votes.annotator], np.repeat(beta_of(log_beta), np.diff(votes.start))


def beta_of(log_beta: FloatArray) -> FloatArray:
    """Exponentials that do not overflow."""
    beta: FloatArray = np.exp(np.minimum(log_beta, LOG_BETA_MAX))
    return beta


def _sigmoid(x: FloatArray) -> FloatArray:
    p: FloatArray = 0.5 + 0.5 * np.tanh(0.5 * x)  # Ten times as fast as scipy's expit.
    return p


def _total(votes: Votes, value: FloatArray) -> float:
    """Sum over the annotations, with their weights."""
    return float(value.sum() if votes.weight is None else votes.weight @ value)


def _total_log_2cosh(votes: Votes, x: FloatArray) -> float:
    """Sum of log(2 cosh(x / 2)) = -log sigmoid(x) + x / 2 = -log sigmoid(-x) - x / 2."""
    size = np.abs(x)
    tail = 1.0 + np.exp(-size)
    if votes.weight is not None:
        return _total(votes, 0.5 * size + np.log(tail))
    # One log per annotation would take half of the M-step's time; a product of 1000 is < 2^1000.
    products = np.multiply.reduceat(tail, np.arange(0, len(tail), 1000))
    return 0.5 * float(size.sum()) + float(np.log(products).sum())
