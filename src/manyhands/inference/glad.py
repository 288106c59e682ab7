"""GLAD: abilities of annotators and difficulties of instances.

.. [1] J. Whitehill, P. Ruvolo, T. Wu, J. Bergsma and J. Movellan. Whose vote should count more:
   optimal integration of labels from labelers of unknown expertise. NIPS, 2009.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.utils._param_validation import StrOptions

from manyhands.inference.base import (
    COUNT,
    NON_NEGATIVE,
    AggregatorTraits,
    BaseAggregator,
    known_prior,
)
from manyhands.inference.confusions import normalise_joint
from manyhands.inference.dependence import DEPENDENCE
from manyhands.inference.em import EMModel
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.inference.gold_samples import GOLD_SAMPLE
from manyhands.inference.probability import has_converged, log_prior, normalise_rows
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    by_annotator,
    by_instance,
    probability_correct,
    sum_over_shards,
    uniform_prior,
    weighted_votes,
    zip_shards,
)
from manyhands.typing import FloatArray

PRIOR_MEAN = 1.0
"""Mean of the normal priors (of variance 1) on abilities and log beta; also EM's starting value."""

SHARD = 25_000
"""Annotations per shard; with so few, the M-step's arrays stay in the processor's cache."""

LOG_BETA_MAX = 30.0
"""Upper limit of log beta in exp(log beta), so that long trial steps do not overflow."""

FIRST_M_STEP, M_STEP = 10, 3
"""L-BFGS iterations of the first M-step, which starts from equal parameters, and of the others,
which start from the previous ones. EM then needs about as many rounds as with exact M-steps."""


@dataclass(frozen=True)
class GLADParams:
    """Parameters of the model.

    Attributes
    ----------
    theta : array of shape (R + n,)
        Abilities of the annotators, then the instances' log beta.
    prior : array of shape (C,)
        Shares of the classes.
    """

    theta: FloatArray
    prior: FloatArray


@dataclass(frozen=True)
class GLADCounts:
    """Results of the E-step.

    Attributes
    ----------
    p_correct : array of shape (n_annotations,), or the values from which a cluster computes it
        Probability that each annotation is correct.
    classes : array of shape (C,)
        Shares of the classes.
    log_likelihood : float
        Log likelihood plus the log prior of the parameters.
    """

    p_correct: Any
    classes: FloatArray
    log_likelihood: float


@dataclass(frozen=True)
class GLADModel(EMModel[GLADParams, GLADCounts]):
    """The model on the votes of one fit, whose M-step is a few iterations of L-BFGS.

    Attributes
    ----------
    steps : Steps
    begin : GLADParams
        Starting values of the first M-step.
    learns_prior : bool
        Whether the shares of the classes are estimated.
    """

    steps: Steps
    begin: GLADParams
    learns_prior: bool

    parameters = GLADParams

    def start(self, posterior: Any) -> GLADParams:
        """Implement `EMModel.start`."""
        return self.begun(self.steps.p_correct(posterior))

    def begun(self, p_correct: Any) -> GLADParams:
        """Return the parameters after the first M-step; ``p_correct`` is as in `Expected`."""
        theta = self.steps.m_step(self.begin.theta, p_correct, FIRST_M_STEP)
        return GLADParams(theta, self.begin.prior)

    def expected(self, parameters: GLADParams) -> GLADCounts:
        """Implement `EMModel.expected`."""
        return GLADCounts(*self.steps.e_step(parameters.theta, parameters.prior))

    def maximise(self, counts: GLADCounts, parameters: GLADParams) -> GLADParams:
        """Implement `EMModel.maximise`."""
        theta = self.steps.m_step(parameters.theta, counts.p_correct, M_STEP)
        return GLADParams(theta, counts.classes if self.learns_prior else parameters.prior)

    def objective(self, counts: GLADCounts, parameters: GLADParams) -> float:
        """Return the log likelihood plus the log prior."""
        return counts.log_likelihood

    @staticmethod
    def posterior(
        shard: Votes,
        log_beta: FloatArray,
        ability: FloatArray,
        prior: FloatArray,
        exponent: FloatArray | None = None,
    ) -> FloatArray:
        """Implement `EMModel.posterior`."""
        return e_step(shard, ability, log_beta, prior, exponent)[0]


# -- one shard: ``ability`` (R,), ``log_beta`` (n,), ``p_correct`` (n_annotations,) ----------------


def e_step(
    votes: Votes,
    ability: FloatArray,
    log_beta: FloatArray,
    prior: FloatArray,
    exponent: FloatArray | None = None,
) -> tuple[FloatArray, float]:
    """Return the posterior over the classes (n, C) and the log likelihood of all annotations.

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


def slopes(
    votes: Votes, ability: FloatArray, log_beta: FloatArray, p_correct: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Return the expected log likelihood, up to a constant, and its gradient.

    The gradient consists of the derivatives in ability (R,) and in log beta (n,).
    """
    alpha, beta = _per_annotation(votes, ability, log_beta)
    x = alpha * beta
    value = _total(votes, (p_correct - 0.5) * x) - _total_log_2cosh(votes, x)
    surprise = p_correct - _sigmoid(x)
    return value, by_annotator(votes, surprise * beta), by_instance(votes, surprise * x)


def information(
    votes: Votes, ability: FloatArray, log_beta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the Fisher information of each ability (R,) and log beta (n,), without covariances."""
    alpha, beta = _per_annotation(votes, ability, log_beta)
    x = alpha * beta
    p = _sigmoid(x)
    by_x = p * (1.0 - p)
    return by_annotator(votes, by_x * beta**2), by_instance(votes, by_x * x**2)


def _per_annotation(
    votes: Votes, ability: FloatArray, log_beta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the ability and beta for each annotation."""
    return ability[votes.annotator], np.repeat(beta_of(log_beta), np.diff(votes.start))


def beta_of(log_beta: FloatArray) -> FloatArray:
    """Return exp(log_beta), limited so that it does not overflow."""
    beta: FloatArray = np.exp(np.minimum(log_beta, LOG_BETA_MAX))
    return beta


def _sigmoid(x: FloatArray) -> FloatArray:
    p: FloatArray = 0.5 + 0.5 * np.tanh(0.5 * x)  # Ten times as fast as scipy's expit.
    return p


def _total(votes: Votes, value: FloatArray) -> float:
    """Sum over the annotations, with their weights."""
    return float(value.sum() if votes.weight is None else votes.weight @ value)


def _total_log_2cosh(votes: Votes, x: FloatArray) -> float:
    """Return the sum of log(2 cosh(x / 2)) = -log sigmoid(x) + x / 2 = -log sigmoid(-x) - x / 2."""
    size = np.abs(x)
    tail = 1.0 + np.exp(-size)
    if votes.weight is not None:
        return _total(votes, 0.5 * size + np.log(tail))
    # One log per annotation would take half of the M-step's time; a product of 1000 is < 2^1000.
    products = np.multiply.reduceat(tail, np.arange(0, len(tail), 1000))
    return 0.5 * float(size.sum()) + float(np.log(products).sum())


# -- all shards ------------------------------------------------------------------------------------


class Steps:
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
        """Join the shards' values of annotations into one array."""
        out, first = self.votes.new_column(self.votes.n_annotations), 0
        for part in values:
            out[first : first + len(part)] = part
            first += len(part)
        return out

    def p_correct(self, posterior: Any) -> Any:
        """Return the probability that each annotation is correct under a posterior (n, C)."""
        return self.of_annotations(starmap(probability_correct, zip_shards(self.shards, posterior)))

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
            options={"maxiter": max_iter, "maxcor": max_iter},  # More corrections are never used.
        )
        updated: FloatArray = theta + unit * result.x
        return updated

    def expected(self, theta: FloatArray, p_correct: Any) -> tuple[float, FloatArray]:
        """Return the expected penalised log likelihood (up to a constant) and its gradient."""
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
        """Return the Fisher information of each parameter, including that of the prior."""
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
    """Sums by annotator over some shards, and values of their instances in order."""

    value: float
    by_ability: FloatArray
    by_log_beta: list[FloatArray]

    def __add__(self, other: _Sums) -> _Sums:
        """Return the sums of both; the other's instances come later."""
        by_ability = self.by_ability + other.by_ability
        return _Sums(self.value + other.value, by_ability, self.by_log_beta + other.by_log_beta)

    @property
    def by_theta(self) -> FloatArray:
        """Both in the order of ``theta``."""
        return np.concatenate([self.by_ability, *self.by_log_beta])


class RemoteSteps(Steps):
    """The same steps, with shards that the workers of a cluster read and count.

    A worker keeps nothing between two calls. It therefore computes ``p_correct`` again, from the
    starting posterior, or from the parameters (theta, prior) of the last E-step.
    """

    def p_correct(self, posterior: Any) -> Any:
        """Implement `Steps.p_correct`."""
        return posterior, None

    def e_step(self, theta: FloatArray, prior: FloatArray) -> tuple[Any, FloatArray, float]:
        """Implement `Steps.e_step`."""
        ability, log_beta = np.split(theta, [self.n_annotators])
        sums = sum_over_shards(_evidence, self.shards, ability, prior, rows=(log_beta,))
        log_prior = -0.5 * float(((theta - PRIOR_MEAN) ** 2).sum())
        known = log_beta, (ability, prior)
        return known, normalise_rows(sums[:-1]), log_prior + float(sums[-1])

    def expected(self, theta: FloatArray, p_correct: Any) -> tuple[float, FloatArray]:
        """Implement `Steps.expected`."""
        ability, log_beta = np.split(theta, [self.n_annotators])
        known, before = p_correct
        rows = (log_beta, known)
        sums = sum_over_shards(_slopes, self.shards, ability, before, rows=rows)
        slope = PRIOR_MEAN - theta
        return sums.value - 0.5 * float((slope**2).sum()), slope + sums.by_theta

    def information(self, theta: FloatArray) -> FloatArray:
        """Implement `Steps.information`."""
        ability, log_beta = np.split(theta, [self.n_annotators])
        sums = sum_over_shards(_information, self.shards, ability, rows=(log_beta,))
        return np.asarray(1.0 + sums.by_theta)


def _evidence(
    shard: Votes, log_beta: FloatArray, ability: FloatArray, prior: FloatArray
) -> FloatArray:
    """Return the expected number of instances per class (C,), and the log likelihood."""
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


class GLAD(EMAggregator):
    """Infer true classes, one ability per annotator and one difficulty per instance, by EM.

    An annotation is correct with probability sigmoid(ability * beta), where beta > 0 is small for a
    difficult instance. In a wrong annotation, all other classes are equally probable.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the penalised log likelihood per annotation grows by less.
    class_prior : {"uniform", "estimated"}, default="uniform"
        "uniform" is the published model, over the classes that occur in annotations or gold.
    dependence : float in [0, 1] or "auto", default="auto"
        Correlation of annotators' mistakes, which makes the posterior less certain than under
        independence; 0 is the published model. "auto" estimates it with a default `DawidSkene`,
        from the annotations, or from gold if given (see `manyhands.inference.dependence`).
    gold_sample : {"auto", "random", "chosen"}, default="auto"
        How the instances with gold were chosen; as in `DawidSkene`.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" means "first" here,
        because the posterior is already distributed.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Attributes
    ----------
    dependence_, dependence_se_ : float
        Correlation of annotators' mistakes and its standard error (0 if it was given).
    ability_ : array of shape (n_annotators,)
        At 0, annotations are correct with probability 1/2 on any instance. Above 0, this
        probability rises as instances get easier; below 0 (an adversary) it falls. For an annotator
        without annotations, the prior's mean, 1.
    difficulty_ : array of shape (n_instances,)
        1 / beta, positive; the larger it is, the closer everyone's probability of being correct is
        to 1/2. For an instance without annotations, 1 / e, from the prior's mean.
    log_likelihood_ : array of shape (n_iter_,)
        Log likelihood plus log prior density (up to a constant) after each E-step; it never
        decreases.

    Notes
    -----
    The priors of each ability and each log beta are normal with mean 1 and variance 1. EM starts
    from the vote shares, with all abilities and log betas equal to 1.

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

    traits = AggregatorTraits(takes_stores=True, learns_instances=True)
    model = GLADModel

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "class_prior": [StrOptions({"uniform", "estimated"})],
        "dependence": DEPENDENCE,
        "gold_sample": GOLD_SAMPLE,
    }

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 1e-5,
        *,
        class_prior: str = "uniform",
        dependence: float | str = "auto",
        gold_sample: str = "auto",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.class_prior = class_prior
        self.dependence = dependence
        self.gold_sample = gold_sample
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: AllVotes, start: Any, rng: np.random.RandomState) -> None:
        self._measure_dependence(votes, start)
        steps = (RemoteSteps if getattr(votes, "engine", None) is not None else Steps)(votes)
        estimated = self.class_prior == "estimated"
        prior = known_prior(votes, start) if estimated else uniform_prior(votes)
        theta = np.full(votes.n_annotators + votes.n_instances, PRIOR_MEAN)
        model = GLADModel(steps, GLADParams(theta, prior), learns_prior=estimated)
        found = self._run(model, votes, partial(model.begun, steps.p_correct(start)))
        parameters = found.parameters
        if estimated and not has_converged(found.history, self.tol * steps.total_weight):
            # The counts contain a newer class prior than the last E-step used.
            parameters = replace(parameters, prior=found.counts.classes)
        self._set_fitted(parameters, votes)
        self._set_history(found.history)
        log_beta = parameters.theta[votes.n_annotators :]
        out = votes.new_rows(votes.n_classes)
        self.posterior_ = self._fill(out, steps.shards, rows=(log_beta,))

    def _set_fitted(self, parameters: GLADParams, votes: AllVotes) -> None:
        self.ability_ = parameters.theta[: votes.n_annotators]
        self.difficulty_ = 1.0 / beta_of(parameters.theta[votes.n_annotators :])
        self.class_prior_ = parameters.prior

    @property
    def _sent(self) -> tuple[FloatArray, FloatArray]:
        return self.ability_, self.class_prior_

    def _posterior(self, votes: Votes) -> FloatArray:
        theta = np.concatenate([self.ability_, np.full(votes.n_instances, PRIOR_MEAN)])
        begin = GLADParams(theta, self.class_prior_)
        model = GLADModel(Steps(votes, annotators_known=True), begin, learns_prior=False)
        first = partial(model.begun, model.expected(begin).p_correct)
        log_beta = self._run(model, votes, first).parameters.theta[votes.n_annotators :]
        return self._fill(votes.new_rows(votes.n_classes), model.steps.shards, rows=(log_beta,))
