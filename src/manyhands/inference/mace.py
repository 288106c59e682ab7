"""MACE (Hovy et al., 2013): on every instance an annotator either knows the class or spams.

.. [1] D. Hovy, T. Berg-Kirkpatrick, A. Vaswani and E. Hovy. Learning whom to trust with MACE.
   NAACL-HLT 2013.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.special import expit
from sklearn.utils._param_validation import StrOptions

from manyhands.inference.base import COUNT, NON_NEGATIVE, POSITIVE, BaseAggregator
from manyhands.inference.em import normalise_joint
from manyhands.inference.probability import (
    dirichlet_divergence,
    expected_log,
    has_settled,
    log_dirichlet,
    normalise_rows,
)
from manyhands.inference.vote_sums import expected_accuracy, probability_correct, weighted_votes
from manyhands.inference.votes import Votes, concatenate_rows, sum_over_shards
from manyhands.typing import FloatArray

Update: TypeAlias = Callable[[FloatArray, float], tuple[FloatArray, float]]


class MACE(BaseAggregator):
    """Infer true classes and how often, and with which classes, every annotator spams.

    An annotator who knows the class of an instance gives it; otherwise they spam: they draw a
    class from a distribution of their own, whatever the instance.

    Parameters
    ----------
    max_iter : int, default=50
        Iterations of every run.
    tol : float, default=1e-5
        End a run when its objective grows by less per annotation.
    method : {"vb", "em"}, default="vb"
        Variational Bayes with a Beta prior on the probability to spam and a Dirichlet prior on
        what spammers give, or EM with smoothed counts.
    competence_prior : float, default=0.5
        Both parameters of the Beta prior ("vb"); below 1 favours annotators who always or never
        spam.
    strategy_prior : float, default=10.0
        All parameters of the Dirichlet prior ("vb"); large favours spammers who give all classes
        alike.
    smoothing : float, default=0.01
        Pseudo-annotations added to the counts in total, equal parts for every class ("em").
    n_restarts : int, default=10
        Runs, of which that with the best objective stays. The first begins with annotators who
        know half of the instances, the others with competences drawn at random.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" is "first" here,
        as the posterior is distributed already.
    random_state : int, RandomState or None, default=0
        For the runs after the first, and for ``ties="random"``.

    Attributes
    ----------
    spam_ : array of shape (n_annotators,)
        Probability to spam; 0.5 for an annotator without annotations.
    competence_ : array of shape (n_annotators,)
        1 - ``spam_``.
    spam_strategy_ : array of shape (n_annotators, n_classes)
        What an annotator gives when spamming; rows sum to 1.
    log_likelihood_ : array of shape (n_iter_,)
        Objective of the best run: the lower bound of the evidence ("vb") or the smoothed log
        likelihood ("em"); it never decreases.

    Notes
    -----
    True classes are uniform: ``class_prior_`` is 1 / n_classes. ``spam_`` and ``spam_strategy_``
    are posterior means (smoothed shares with "em").

    References
    ----------
    Hovy et al. (2013), NAACL-HLT, section 2 (model and learning).

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import MACE
    >>> A = np.array([[0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 1], [0, -1, 1]])
    >>> model = MACE(random_state=0).fit(A)
    >>> model.labels_
    array([0, 1, 0, 1, 0])
    >>> int(model.spam_.argmax())
    2
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "method": [StrOptions({"vb", "em"})],
        "competence_prior": [POSITIVE],
        "strategy_prior": [POSITIVE],
        "smoothing": [POSITIVE],
        "n_restarts": [COUNT],
    }

    def __init__(
        self,
        max_iter: int = 50,
        tol: float = 1e-5,
        *,
        method: str = "vb",
        competence_prior: float = 0.5,
        strategy_prior: float = 10.0,
        smoothing: float = 0.01,
        n_restarts: int = 10,
        ties: str = "first",
        random_state: Any = 0,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.method = method
        self.competence_prior = competence_prior
        self.strategy_prior = strategy_prior
        self.smoothing = smoothing
        self.n_restarts = n_restarts
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: Votes, start: FloatArray, rng: np.random.RandomState) -> None:
        shards, given, agreed = votes.shards(), _counts(votes), _agreement(votes, start)
        best, history = self._climb(shards, given, _first_fractions(votes) * agreed)
        for _ in range(1, self.n_restarts):
            fractions = _random_fractions(expected_accuracy(votes, start), rng)
            run, climbed = self._climb(shards, given, fractions * agreed)
            # Runs that end at the same maximum must not be told apart by rounding errors.
            if climbed[-1] > history[-1] + 1e-9 * votes.total_weight:
                best, history = run, climbed
        self.competence_, self.spam_ = best.competence.T
        self.spam_strategy_ = best.strategy
        self._log_odds = best.log_odds
        self.posterior_ = self._posterior(votes)
        self.class_prior_ = np.full(votes.n_classes, 1 / votes.n_classes)
        self.log_likelihood_ = np.array(history)
        self.n_iter_ = len(history)

    def _posterior(self, votes: Votes) -> FloatArray:
        return concatenate_rows(_e_step(shard, self._log_odds)[0] for shard in votes.shards())

    def _climb(
        self, shards: list[Votes], given: FloatArray, known: FloatArray
    ) -> tuple[Annotators, list[float]]:
        """Iterate from the annotations ``given`` and those expected to be ``known``, (R, C)."""
        history: list[float] = []
        for _ in range(self.max_iter):
            annotators = self._m_step(known, given)
            expected = sum_over_shards(_expect, shards, annotators.log_odds)
            of_spam = float((given * annotators.log_spam).sum())
            history.append(expected.evidence + of_spam + annotators.log_prior)
            if has_settled(history, self.tol * given.sum()):
                break
            known = annotators.knew_if_right * expected.agreed
        return annotators, history

    def _m_step(self, known: FloatArray, given: FloatArray) -> Annotators:
        """Annotators that fit the expected annotations in knowledge and the rest, in spam."""
        spammed = given - known
        knows = np.stack([known.sum(axis=1), spammed.sum(axis=1)], axis=1)
        if self.method == "vb":
            update: Update = _variational
            on_competence, on_strategy = self.competence_prior, self.strategy_prior
        else:
            update = _penalised
            on_competence = on_strategy = self.smoothing / given.shape[1]
        log_competence, prior_of_competence = update(knows, on_competence)
        log_strategy, prior_of_strategy = update(spammed, on_strategy)
        return Annotators(
            competence=normalise_rows(knows + on_competence),
            strategy=normalise_rows(spammed + on_strategy),
            log_known=log_competence[:, :1],
            log_spam=log_competence[:, 1:] + log_strategy,
            log_prior=prior_of_competence + prior_of_strategy,
        )


@dataclass(frozen=True)
class Annotators:
    """Parameters of all annotators.

    Attributes
    ----------
    competence : array of shape (R, 2)
        Probabilities to know and to spam.
    strategy : array of shape (R, C)
    log_known : array of shape (R, 1)
        (Expected) log probability to know.
    log_spam : array of shape (R, C)
        (Expected) log probability to spam and give a class.
    log_prior : float
        Log prior of the parameters; for "vb" minus the divergence of their posterior from it.
    """

    competence: FloatArray
    strategy: FloatArray
    log_known: FloatArray
    log_spam: FloatArray
    log_prior: float

    @property
    def log_odds(self) -> FloatArray:
        """Log p(given | true) - log p(given | another is true), shape (R, C)."""
        return np.logaddexp(0.0, self.log_known - self.log_spam)

    @property
    def knew_if_right(self) -> FloatArray:
        """Probability that a right annotation was given in knowledge, shape (R, C)."""
        return expit(self.log_known - self.log_spam)


@dataclass(frozen=True)
class Expected:
    """What the M-step needs to know of a shard.

    Attributes
    ----------
    agreed : array of shape (R, C)
        Expected right annotations, [annotator, given].
    evidence : float
        Log likelihood over that of all annotations being spam.
    """

    agreed: FloatArray
    evidence: float

    def __add__(self, other: Expected) -> Expected:
        """Both."""
        return Expected(self.agreed + other.agreed, self.evidence + other.evidence)


def _expect(votes: Votes, log_odds: FloatArray) -> Expected:
    posterior, evidence = _e_step(votes, log_odds)
    return Expected(_agreement(votes, posterior), float(evidence.sum()))


def _e_step(votes: Votes, log_odds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior (n, C) and evidence (n,): an annotation speaks for the class given alone."""
    joint = weighted_votes(votes, log_odds.ravel()[_cells(votes)])
    joint -= np.log(votes.n_classes)
    return normalise_joint(votes, joint)


def _agreement(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Expected right annotations of every annotator in every class, shape (R, C)."""
    return _counts(votes, probability_correct(votes, posterior))


def _counts(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value`` (and the weights) by annotator and class given, shape (R, C)."""
    shape = (votes.n_annotators, votes.n_classes)
    if votes.weight is not None:
        value = votes.weight if value is None else votes.weight * value
    sums = np.bincount(_cells(votes), weights=value, minlength=shape[0] * shape[1])
    return sums.reshape(shape).astype(np.float64, copy=False)


def _cells(votes: Votes) -> Any:
    return votes.annotator * np.int64(votes.n_classes) + votes.response


def _first_fractions(votes: Votes) -> FloatArray:
    """Fraction of the right annotations given in knowledge by one who knows half, (R, 1)."""
    return np.full((votes.n_annotators, 1), votes.n_classes / (votes.n_classes + 1))


def _random_fractions(accuracy: FloatArray, rng: np.random.RandomState) -> FloatArray:
    """The same at random, (R, 1): drawn in the order of accuracy, so that order has no effect."""
    distinct, place = np.unique(accuracy.round(9), return_inverse=True)
    return rng.uniform(size=len(distinct))[place][:, None]


def _variational(counts: FloatArray, prior: float) -> tuple[FloatArray, float]:
    """Expected log p under the Dirichlet posterior of every row, and minus its divergence."""
    after = counts + prior
    log_p = expected_log(after)
    return log_p, -dirichlet_divergence(after, np.full_like(after, prior), log_p)


def _penalised(counts: FloatArray, prior: float) -> tuple[FloatArray, float]:
    """Log of the smoothed shares of every row, and the log prior that smoothing stands for."""
    p = normalise_rows(counts + prior)
    return np.log(p), log_dirichlet(np.full_like(p, prior), p)
