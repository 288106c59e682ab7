"""GLAD: abilities of annotators and difficulties of instances.

.. [1] J. Whitehill, P. Ruvolo, T. Wu, J. Bergsma and J. Movellan. Whose vote should count more:
   optimal integration of labels from labelers of unknown expertise. NIPS, 2009.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.utils._param_validation import StrOptions

from manyhands.inference.base import COUNT, NON_NEGATIVE, BaseAggregator, known_prior
from manyhands.inference.em import normalise_joint
from manyhands.inference.probability import floored_log, has_settled, normalise_rows
from manyhands.inference.vote_sums import (
    by_annotator,
    by_instance,
    probability_correct,
    weighted_votes,
)
from manyhands.inference.votes import Votes, concatenate_rows, zip_shards
from manyhands.typing import FloatArray

PRIOR_MEAN = 1.0
"""Mean of the normal priors (of variance 1) on abilities and on log beta; also where EM starts."""

FIRST_M_STEP, M_STEP = 10, 3
"""L-BFGS iterations of the first M-step, which starts from equal parameters, and of the others,
which start from the last: EM needs about as many rounds as with exact M-steps."""

SHARD = 25_000
"""Annotations a shard: the M-step's arrays stay in the processor's cache."""

LOG_BETA_MAX = 30.0
"""Where exp(log beta) stops growing, so that a long trial step cannot overflow."""


class GLAD(BaseAggregator):
    """Infer true classes, one ability an annotator and one difficulty an instance by EM.

    An annotation is right with probability sigmoid(ability * beta), where beta > 0 is small for a
    difficult instance; a wrong one is any other class, all equally probable.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the penalised log likelihood per annotation grows by less.
    class_prior : {"uniform", "estimated"}, default="uniform"
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" is "first" here,
        as the posterior is distributed already.
    random_state : int, RandomState or None
        For ``ties="random"``.

    Attributes
    ----------
    ability_ : array of shape (n_annotators,)
        At 0 the chance of being right is 1/2 whatever the instance; above, it grows as instances
        get easier; below (an adversary) it falls. 1, the prior's mean, without annotations.
    difficulty_ : array of shape (n_instances,)
        1 / beta, positive; the larger, the closer is everyone's chance of being right to 1/2.
        1 / e, from the prior's mean, without annotations.
    log_likelihood_ : array of shape (n_iter_,)
        Log likelihood plus log prior density (up to a constant) after every E-step; it never
        decreases.

    Notes
    -----
    Priors: normal with mean 1 and variance 1 on every ability and every log beta. Start: posterior
    = vote shares, abilities and log beta 1.

    References
    ----------
    Whitehill et al. (2009), NIPS: Eq. 1 (model), Section 3 (EM, priors).

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import GLAD
    >>> A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, -1]])
    >>> model = GLAD().fit(A)
    >>> model.labels_
    array([0, 1, 0, 1])
    >>> model.ability_.argmin()
    np.int64(2)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "class_prior": [StrOptions({"uniform", "estimated"})],
    }

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 1e-5,
        *,
        class_prior: str = "uniform",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.class_prior = class_prior
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: Votes, start: FloatArray, rng: np.random.RandomState) -> None:
        model = _Model(votes)
        theta = np.full(votes.n_annotators + votes.n_instances, PRIOR_MEAN)
        prior = np.full(votes.n_classes, 1.0 / votes.n_classes)
        if self.class_prior == "estimated":
            prior = known_prior(votes, start)
        theta, prior, history = self._em(model, theta, prior, model.is_right(start))
        self.posterior_, self.class_prior_ = model.posterior(theta, prior), prior
        self.ability_ = theta[: votes.n_annotators]
        self.difficulty_ = 1.0 / _beta(theta[votes.n_annotators :])
        self.log_likelihood_ = np.array(history)
        self.n_iter_ = len(history)

    def _posterior(self, votes: Votes) -> FloatArray:
        model = _Model(votes, annotators_known=True)
        theta = np.concatenate([self.ability_, np.full(votes.n_instances, PRIOR_MEAN)])
        is_right, _, _ = model.e_step(theta, self.class_prior_)
        theta, prior, _ = self._em(model, theta, self.class_prior_, is_right)
        return model.posterior(theta, prior)

    def _em(
        self, model: _Model, theta: FloatArray, prior: FloatArray, is_right: list[FloatArray]
    ) -> tuple[FloatArray, FloatArray, list[float]]:
        """M- and E-steps in turn; returns parameters, class prior and the objective's history."""
        learn_prior = self.class_prior == "estimated" and not model.annotators_known
        history: list[float] = []
        for _ in range(self.max_iter):
            theta = model.m_step(theta, is_right, M_STEP if history else FIRST_M_STEP)
            is_right, shares, log_likelihood = model.e_step(theta, prior)
            history.append(log_likelihood)
            if has_settled(history, self.tol * model.total_weight):
                break
            if learn_prior:
                prior = shares
        return theta, prior, history


class _Model:
    """E- and M-step over the shards of the annotations.

    Parameters are one vector ``theta``: the abilities (R,), then log beta of the instances (n,).
    With ``annotators_known`` the abilities stay as they are.
    """

    def __init__(self, votes: Votes, *, annotators_known: bool = False) -> None:
        self.n_annotators = votes.n_annotators
        self.total_weight = votes.total_weight
        self.annotators_known = annotators_known
        self.shards = votes.shards(SHARD)

    def split(self, theta: FloatArray) -> Iterator[tuple[Votes, FloatArray, FloatArray]]:
        """Every shard with the abilities (R,) and its log beta (n,), which are views."""
        ability, log_beta = theta[: self.n_annotators], theta[self.n_annotators :]
        for shard, own in zip_shards(self.shards, log_beta):
            yield shard, ability, own

    def is_right(self, posterior: FloatArray) -> list[FloatArray]:
        """Probability that an annotation is right under a posterior (n, C), by shards."""
        return list(starmap(probability_correct, zip_shards(self.shards, posterior)))

    def posterior(self, theta: FloatArray, prior: FloatArray) -> FloatArray:
        """Posterior over the classes, shape (n, C)."""
        return concatenate_rows(e_step(*part, prior)[0] for part in self.split(theta))

    def e_step(
        self, theta: FloatArray, prior: FloatArray
    ) -> tuple[list[FloatArray], FloatArray, float]:
        """Return `is_right`, the shares of the classes (C,), the penalised log likelihood."""
        is_right, classes = [], np.zeros(len(prior))
        log_likelihood = -0.5 * float(((theta - PRIOR_MEAN) ** 2).sum())
        for part in self.split(theta):
            posterior, evidence = e_step(*part, prior)
            is_right.append(probability_correct(part[0], posterior))
            classes += part[0].voted @ posterior
            log_likelihood += evidence
        return is_right, normalise_rows(classes), log_likelihood

    def m_step(self, theta: FloatArray, is_right: list[FloatArray], max_iter: int) -> FloatArray:
        """Climb the expected penalised log likelihood by L-BFGS.

        Steps are in units of the parameters' standard errors: an annotator with a thousand
        annotations and an instance with five would else need very different ones.
        """
        unit = 1.0 / np.sqrt(self.information(theta))

        def loss(step: Any) -> tuple[float, FloatArray]:
            value, slope = self.expected(theta + unit * step, is_right)
            return -value, -unit * slope

        found = minimize(
            loss, np.zeros(len(theta)), jac=True, method="L-BFGS-B", options={"maxiter": max_iter}
        )
        climbed: FloatArray = theta + unit * found.x
        return climbed

    def expected(self, theta: FloatArray, is_right: list[FloatArray]) -> tuple[float, FloatArray]:
        """Expected penalised log likelihood (up to a constant) and its slope."""
        slope = PRIOR_MEAN - theta
        value = -0.5 * float((slope**2).sum())
        for part, p, (_, by_ability, by_log_beta) in zip(
            self.split(theta), is_right, self.split(slope), strict=True
        ):
            here, of_ability, of_log_beta = slopes(*part, p)
            value += here
            by_ability += of_ability
            by_log_beta += of_log_beta
        if self.annotators_known:
            slope[: self.n_annotators] = 0.0
        return value, slope

    def information(self, theta: FloatArray) -> FloatArray:
        """Fisher information of every parameter, the prior's included."""
        total = np.ones_like(theta)
        for part, (_, by_ability, by_log_beta) in zip(
            self.split(theta), self.split(total), strict=True
        ):
            of_ability, of_log_beta = information(*part)
            by_ability += of_ability
            by_log_beta += of_log_beta
        return total


# -- one shard: ``ability`` (R,), ``log_beta`` (n,), ``is_right`` (n_annotations,) ----------------


def e_step(
    votes: Votes, ability: FloatArray, log_beta: FloatArray, prior: FloatArray
) -> tuple[FloatArray, float]:
    """Posterior over the classes (n, C) and the log likelihood of all annotations.

    With x = ability * beta, log sigmoid(x) - log sigmoid(-x) = x: a vote for a class is worth
    x + log(C - 1) more there than in every other class.
    """
    alpha, beta = _of_annotations(votes, ability, log_beta)
    x = alpha * beta
    log_others = np.log(votes.n_classes - 1.0)
    posterior, evidence = normalise_joint(
        votes, weighted_votes(votes, x + log_others) + floored_log(prior)
    )
    wrong = _total(votes, -0.5 * x - log_others) - _total_log_2cosh(votes, x)
    return posterior, float(evidence[votes.voted].sum()) + wrong


def slopes(
    votes: Votes, ability: FloatArray, log_beta: FloatArray, is_right: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Expected log likelihood (up to a constant), its slopes by ability (R,) and log beta (n,)."""
    alpha, beta = _of_annotations(votes, ability, log_beta)
    x = alpha * beta
    value = _total(votes, (is_right - 0.5) * x) - _total_log_2cosh(votes, x)
    surprise = is_right - _sigmoid(x)
    return value, by_annotator(votes, surprise * beta), by_instance(votes, surprise * x)


def information(
    votes: Votes, ability: FloatArray, log_beta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Fisher information of every ability (R,) and log beta (n,), their covariance left out."""
    alpha, beta = _of_annotations(votes, ability, log_beta)
    x = alpha * beta
    p = _sigmoid(x)
    by_x = p * (1.0 - p)
    return by_annotator(votes, by_x * beta**2), by_instance(votes, by_x * x**2)


def _of_annotations(
    votes: Votes, ability: FloatArray, log_beta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ability and beta of every annotation."""
    return ability[votes.annotator], np.repeat(_beta(log_beta), np.diff(votes.start))


def _beta(log_beta: FloatArray) -> FloatArray:
    beta: FloatArray = np.exp(np.minimum(log_beta, LOG_BETA_MAX))
    return beta


def _sigmoid(x: FloatArray) -> FloatArray:
    p: FloatArray = 0.5 + 0.5 * np.tanh(0.5 * x)  # A tenth of the time of scipy's expit.
    return p


def _total(votes: Votes, value: FloatArray) -> float:
    """Sum over the annotations, by their weights."""
    return float(value.sum() if votes.weight is None else votes.weight @ value)


def _total_log_2cosh(votes: Votes, x: FloatArray) -> float:
    """Sum of log(2 cosh(x / 2)) = -log sigmoid(x) + x / 2 = -log sigmoid(-x) - x / 2."""
    size = np.abs(x)
    tail = 1.0 + np.exp(-size)
    if votes.weight is not None:
        return _total(votes, 0.5 * size + np.log(tail))
    # A log an annotation would be half of the M-step's time; a product of 1000 is below 2^1000.
    products = np.multiply.reduceat(tail, np.arange(0, len(tail), 1000))
    return 0.5 * float(size.sum()) + float(np.log(products).sum())
