"""One-coin Dawid-Skene: an annotator has one probability of being correct for all classes [1]_.

.. [1] Y. Zhang, X. Chen, D. Zhou and M. I. Jordan. Spectral methods meet EM: a provably optimal
   algorithm for crowdsourcing. JMLR 17, 2016, section 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyhands.inference.base import COUNT, NON_NEGATIVE, AggregatorTraits, BaseAggregator
from manyhands.inference.confusions import normalise_joint
from manyhands.inference.dependence import DEPENDENCE
from manyhands.inference.em import EMModel
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.inference.gold_samples import GOLD_SAMPLE
from manyhands.inference.history import TakesHistory
from manyhands.inference.probability import (
    floored_log,
    log_dirichlet,
    log_prior,
    normalise_rows,
)
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    by_annotator,
    by_instance,
    probability_correct,
    sum_over_shards,
    uniform_prior,
    vote_shares,
    weighted_votes,
)
from manyhands.typing import FloatArray


@dataclass(frozen=True)
class OneCoinParams:
    """Parameters of the model.

    Attributes
    ----------
    rates : array of shape (R, 2)
        Probabilities that an annotation is correct, and that it is not.
    prior : array of shape (C,)
        Shares of the classes.
    """

    rates: FloatArray
    prior: FloatArray

    @property
    def sent(self) -> tuple[FloatArray, FloatArray]:
        """Probability of a correct annotation (R,), and shares of the classes (C,)."""
        return self.rates[:, 0], self.prior


@dataclass(frozen=True)
class Counts:
    """Expected instances of each class (C,) and correct annotations of each annotator (R,)."""

    prior: FloatArray
    hits: FloatArray
    log_likelihood: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        """Return the sum of both counts."""
        return Counts(
            self.prior + other.prior,
            self.hits + other.hits,
            self.log_likelihood + other.log_likelihood,
        )


@dataclass(frozen=True)
class OneCoinModel(EMModel[OneCoinParams, Counts]):
    """The model on the votes of one fit.

    Attributes
    ----------
    shards : iterable of Votes
    given : array of shape (R,)
        Number of annotations of each annotator.
    agreement : float
        Share of the annotations that are correct under the vote shares.
    pseudo : array of shape (R or 1, 2)
        Pseudo-annotations of each annotator, correct and not.
    prior : array of shape (C,) or None
        Shares of the classes; None if they are estimated.
    """

    shards: Iterable[Votes]
    given: FloatArray
    agreement: float
    pseudo: FloatArray
    prior: FloatArray | None

    parameters = OneCoinParams

    @classmethod
    def of(
        cls, settings: OneCoinDawidSkene, votes: AllVotes, shards: Iterable[Votes]
    ) -> OneCoinModel:
        """Make the model of some votes."""
        given = votes.total(by_annotator)
        agreement = float(sum_over_shards(_agreement, shards) / given.sum())
        pseudo = settings.prior_strength * np.array([agreement, 1.0 - agreement])
        if votes.history is not None:
            hits = np.trace(votes.history, axis1=1, axis2=2)
            pseudo = pseudo + np.column_stack([hits, votes.history.sum(axis=(1, 2)) - hits])
        prior = None if settings.class_prior == "estimated" else uniform_prior(votes)
        return cls(shards, given, agreement, pseudo, prior)

    def start(self, posterior: Any) -> OneCoinParams:
        """Implement `EMModel.start`."""
        return self.maximise(sum_over_shards(_count, self.shards, rows=(posterior,)))

    @staticmethod
    def expect(shard: Votes, skill: FloatArray, prior: FloatArray) -> Counts:
        """Return the counts of a shard under its posterior."""
        posterior, evidence = _e_step(shard, skill, prior)
        return _count(shard, posterior, float(evidence[shard.voted].sum()))

    def maximise(self, counts: Counts, parameters: OneCoinParams | None = None) -> OneCoinParams:
        """Return the shares of correct annotations (with pseudo-annotations) and of classes."""
        rates = np.column_stack([counts.hits, self.given - counts.hits]) + self.pseudo
        # Annotators without annotations get the crowd's agreement.
        rates[rates.sum(axis=1) == 0] = self.agreement, 1.0 - self.agreement
        prior = counts.prior if self.prior is None else self.prior
        return OneCoinParams(normalise_rows(np.maximum(rates, 0.0)), normalise_rows(prior))

    def objective(self, counts: Counts, parameters: OneCoinParams) -> float:
        """Return the log likelihood plus the log prior."""
        return counts.log_likelihood + log_dirichlet(self.pseudo, parameters.rates)

    @staticmethod
    def posterior(
        shard: Votes, skill: FloatArray, prior: FloatArray, exponent: FloatArray | None = None
    ) -> FloatArray:
        """Implement `EMModel.posterior`."""
        return _e_step(shard, skill, prior, exponent)[0]


def _e_step(
    shard: Votes, skill: FloatArray, prior: FloatArray, exponent: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the posterior (n, C), and log p(annotations), (n,)."""
    log_correct = floored_log(skill)
    log_wrong = floored_log((1.0 - skill) / (shard.n_classes - 1))
    joint = weighted_votes(shard, (log_correct - log_wrong)[shard.annotator])
    joint += by_instance(shard, log_wrong[shard.annotator])[:, None]
    joint += log_prior(prior, exponent)
    return normalise_joint(shard, joint, exponent)


def _count(shard: Votes, posterior: FloatArray, log_likelihood: float = 0.0) -> Counts:
    hits = by_annotator(shard, probability_correct(shard, posterior))
    return Counts(posterior[shard.voted].sum(axis=0), hits, log_likelihood)


def _agreement(shard: Votes) -> float:
    """Return the expected number of correct annotations under the vote shares."""
    return float(by_annotator(shard, probability_correct(shard, vote_shares(shard))).sum())


class OneCoinDawidSkene(TakesHistory, EMAggregator):
    """Infer true classes and one probability of being correct per annotator, by EM.

    Wrong classes are equally probable. With few annotations per annotator, or with many classes,
    more parameters cannot be estimated. Cost and memory do not grow with the square of the number
    of classes.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the (penalised) log likelihood per annotation grows by less.
    prior_strength : float, default=5.0
        Pseudo-annotations of each annotator (a Beta prior), correct as often as the crowd agrees
        with its vote shares; 0 is maximum likelihood.
    class_prior : {"estimated", "uniform"}, default="estimated"
        Whether the class shares are estimated, or equal for all classes that occur in annotations
        or gold.
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
    skill_ : array of shape (n_annotators,)
        Probability of a correct annotation.
    log_likelihood_ : array of shape (n_iter_,)
        Log likelihood plus log prior after each E-step; it never decreases.

    References
    ----------
    Y. Zhang, X. Chen, D. Zhou, M. I. Jordan. Spectral methods meet EM: a provably optimal algorithm
    for crowdsourcing. JMLR 17, 2016, section 2 (the one-coin model).

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import OneCoinDawidSkene
    >>> A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, -1]])
    >>> OneCoinDawidSkene().fit_predict(A)
    array([0, 1, 0, 1])
    """

    traits = AggregatorTraits(takes_stores=True)
    model = OneCoinModel

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "prior_strength": [NON_NEGATIVE],
        "class_prior": [StrOptions({"estimated", "uniform"})],
        "dependence": DEPENDENCE,
        "gold_sample": GOLD_SAMPLE,
    }

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 1e-5,
        *,
        prior_strength: float = 5.0,
        class_prior: str = "estimated",
        dependence: float | str = "auto",
        gold_sample: str = "auto",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.prior_strength = prior_strength
        self.class_prior = class_prior
        self.dependence = dependence
        self.gold_sample = gold_sample
        self.ties = ties
        self.random_state = random_state

    def _set_fitted(self, parameters: OneCoinParams, votes: AllVotes) -> None:
        self.skill_, self.class_prior_ = parameters.sent

    @property
    def _sent(self) -> tuple[FloatArray, FloatArray]:
        return self.skill_, self.class_prior_
