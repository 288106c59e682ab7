"""One-coin Dawid-Skene: each annotator is correct with one probability, whatever the class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyhands.inference.base import COUNT, NON_NEGATIVE, BaseAggregator
from manyhands.inference.confusions import normalise_joint
from manyhands.inference.dependence import DEPENDENCE, exponents
from manyhands.inference.gold_samples import GOLD_SAMPLE
from manyhands.inference.history import TakesHistory
from manyhands.inference.probability import (
    floored_log,
    has_settled,
    log_dirichlet,
    log_prior,
    normalise_rows,
)
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    by_annotator,
    by_instance,
    fill_rows,
    probability_correct,
    sum_over_shards,
    uniform_prior,
    vote_shares,
    weighted_votes,
)
from manyhands.typing import FloatArray


@dataclass(frozen=True)
class Counts:
    """Expected instances of each class (C,) and correct annotations of each annotator (R,)."""

    prior: FloatArray
    hits: FloatArray
    log_likelihood: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both."""
        return Counts(
            self.prior + other.prior,
            self.hits + other.hits,
            self.log_likelihood + other.log_likelihood,
        )


class OneCoinDawidSkene(TakesHistory):
    """Infer true classes and one probability of being correct per annotator, by EM.

    Wrong classes are equally probable. With few annotations per annotator, or with many classes,
    little else can be learnt. Cost and memory do not grow with the square of the number of classes.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the (penalised) log likelihood per annotation grows by less.
    prior_strength : float, default=5.0
        Pseudo-annotations of each annotator (a Beta prior), correct as often as the crowd agrees
        with its vote shares; 0 is maximum likelihood.
    class_prior : {"estimated", "uniform"}, default="estimated"
        "uniform" is over the classes that somebody gave or gold names.
    dependence : float in [0, 1] or "auto", default="auto"
        Correlation of annotators' mistakes, by which the posterior is less sure than if they were
        independent; 0 is the published model. "auto" estimates it with the default `DawidSkene`,
        from the annotations, or from gold where given (see `manyhands.inference.dependence`).
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
        Correlation of annotators' mistakes and its standard error (0 if it was set).
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

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "prior_strength": [NON_NEGATIVE],
        "class_prior": [StrOptions({"estimated", "uniform"})],
        "dependence": DEPENDENCE,
        "gold_sample": GOLD_SAMPLE,
    }

    _takes_stores = True

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

    def _infer(self, votes: AllVotes, start: Any, rng: np.random.RandomState) -> None:
        self._measure_dependence(votes, start)
        shards = votes.shards()
        given = votes.total(by_annotator)
        agreement = sum_over_shards(_agreement, shards) / given.sum()
        pseudo = self.prior_strength * np.array([agreement, 1.0 - agreement])
        if votes.history is not None:
            hits = np.trace(votes.history, axis1=1, axis2=2)
            pseudo = pseudo + np.column_stack([hits, votes.history.sum(axis=(1, 2)) - hits])
        uniform = uniform_prior(votes)
        saved = votes.checkpoint.load("iterations")
        if saved is None:
            counts = sum_over_shards(_count, shards, rows=(start,))
        else:
            counts = Counts(saved["prior"], saved["hits"])
        history: list[float] = [] if saved is None else saved["history"].tolist()
        enough = self.tol * votes.total_weight
        while True:
            prior = counts.prior if self.class_prior == "estimated" else uniform
            self.class_prior_ = normalise_rows(prior)
            hits_and_misses = np.column_stack([counts.hits, given - counts.hits]) + pseudo
            # Annotators without annotations get the crowd's agreement.
            hits_and_misses[hits_and_misses.sum(axis=1) == 0] = agreement, 1.0 - agreement
            skill = normalise_rows(np.maximum(hits_and_misses, 0.0))
            self.skill_ = skill[:, 0]
            counts = sum_over_shards(_expect, shards, self.skill_, self.class_prior_)
            history.append(counts.log_likelihood + log_dirichlet(pseudo, skill))
            if len(history) == self.max_iter or has_settled(history, enough):
                break
            votes.checkpoint.save(
                "iterations", prior=counts.prior, hits=counts.hits, history=history
            )
        self.posterior_ = votes.posterior_rows(start)
        self._fill(self.posterior_, shards)
        self.log_likelihood_ = np.array(history)
        self.n_iter_ = len(history)

    def _posterior(self, votes: Votes) -> FloatArray:
        posterior = np.empty((votes.n_instances, votes.n_classes))
        self._fill(posterior, votes.shards())
        return posterior

    def _fill(self, out: FloatArray, shards: Iterable[Votes]) -> None:
        rho = None if self.dependence == 0 else self.dependence_
        fill_rows(out, shards, _e_step, self.skill_, self.class_prior_, rho)


def _log_joint(
    shard: Votes, skill: FloatArray, prior: FloatArray, exponent: FloatArray | None = None
) -> FloatArray:
    """Log p(class, annotations), shape (n, C)."""
    log_correct = floored_log(skill)
    log_wrong = floored_log((1.0 - skill) / (shard.n_classes - 1))
    joint = weighted_votes(shard, (log_correct - log_wrong)[shard.annotator])
    joint += by_instance(shard, log_wrong[shard.annotator])[:, None]
    joint += log_prior(prior, exponent)
    return joint


def _expect(shard: Votes, skill: FloatArray, prior: FloatArray) -> Counts:
    """Counts of a shard for one EM iteration."""
    posterior, evidence = normalise_joint(shard, _log_joint(shard, skill, prior))
    return _count(shard, posterior, float(evidence[shard.voted].sum()))


def _e_step(shard: Votes, skill: FloatArray, prior: FloatArray, rho: float | None) -> FloatArray:
    """Posterior (n, C) if mistakes are correlated by rho; None: under the published model."""
    exponent = None if rho is None else exponents(shard, rho)
    return normalise_joint(shard, _log_joint(shard, skill, prior, exponent), exponent)[0]


def _count(shard: Votes, posterior: FloatArray, log_likelihood: float = 0.0) -> Counts:
    hits = by_annotator(shard, probability_correct(shard, posterior))
    return Counts(posterior[shard.voted].sum(axis=0), hits, log_likelihood)


def _agreement(shard: Votes) -> float:
    """Expected number of correct annotations under the vote shares."""
    return float(by_annotator(shard, probability_correct(shard, vote_shares(shard))).sum())
