"""MACE (Hovy et al., 2013): an annotator either knows the class of an instance or spams.

.. [1] D. Hovy, T. Berg-Kirkpatrick, A. Vaswani and E. Hovy. Learning whom to trust with MACE.
   NAACL-HLT 2013.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from scipy.special import expit
from sklearn.utils._param_validation import StrOptions

from manyhands.inference.base import (
    COUNT,
    NON_NEGATIVE,
    POSITIVE,
    AggregatorTraits,
    BaseAggregator,
    known_prior,
)
from manyhands.inference.confusions import normalise_joint
from manyhands.inference.dependence import DEPENDENCE
from manyhands.inference.em import EMModel, EMResult, best_run
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.inference.gold_samples import GOLD_SAMPLE
from manyhands.inference.probability import (
    dirichlet_divergence,
    expected_log,
    log_dirichlet,
    log_prior,
    normalise_rows,
)
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    by_annotator_and_class,
    expected_accuracy,
    probability_correct,
    uniform_prior,
    weighted_votes,
)
from manyhands.typing import FloatArray

Update: TypeAlias = Callable[[FloatArray, float], tuple[FloatArray, float]]


@dataclass(frozen=True)
class MACEParams:
    """Parameters of all annotators, and the class shares.

    Attributes
    ----------
    competence : array of shape (R, 2)
        Probabilities of knowing and of spamming.
    strategy : array of shape (R, C)
        Distribution of the classes of spam.
    log_known : array of shape (R, 1)
        (Expected) log probability of knowing.
    log_spam : array of shape (R, C)
        (Expected) log probability of spamming with each class.
    log_prior : float
        Log prior of the parameters; for "vb", minus the divergence of their posterior from the
        prior.
    classes : array of shape (C,)
        Expected number of instances of each class.
    """

    competence: FloatArray
    strategy: FloatArray
    log_known: FloatArray
    log_spam: FloatArray
    log_prior: float
    classes: FloatArray

    @property
    def prior(self) -> FloatArray:
        """Shares of the classes, shape (C,)."""
        return normalise_rows(self.classes)

    @property
    def log_odds(self) -> FloatArray:
        """Log p(given | it is true) - log p(given | another class is true), shape (R, C)."""
        return np.logaddexp(0.0, self.log_known - self.log_spam)

    @property
    def sent(self) -> tuple[FloatArray, FloatArray]:
        """Arguments of the E-step: `log_odds` and `prior`."""
        return self.log_odds, self.prior

    @property
    def known_if_correct(self) -> FloatArray:
        """Probability that a correct annotation was known rather than spam, shape (R, C)."""
        return expit(self.log_known - self.log_spam)


@dataclass(frozen=True)
class MACECounts:
    """Expected counts that the M-step needs from a shard.

    Attributes
    ----------
    agreed : array of shape (R, C)
        Expected correct annotations, indexed [annotator, given].
    classes : array of shape (C,)
        Expected number of instances of each class, over those with annotations or gold.
    evidence : float
        Log likelihood, minus that of all annotations being spam.
    """

    agreed: FloatArray
    classes: FloatArray
    evidence: float

    def __add__(self, other: MACECounts) -> MACECounts:
        """Return the sums of both."""
        return MACECounts(
            self.agreed + other.agreed,
            self.classes + other.classes,
            self.evidence + other.evidence,
        )


@dataclass(frozen=True)
class MACEModel(EMModel[MACEParams, MACECounts]):
    """The model on the votes of one fit.

    Attributes
    ----------
    settings : MACE
    votes : Votes
    shards : iterable of Votes
        Shards of ``votes``.
    given : array of shape (R, C)
        Number of annotations of each annotator in each class.
    """

    settings: MACE
    votes: AllVotes
    shards: Iterable[Votes]
    given: FloatArray

    parameters = MACEParams

    @classmethod
    def of(cls, settings: MACE, votes: AllVotes, shards: Iterable[Votes]) -> MACEModel:
        """Make the model of some votes."""
        return cls(settings, votes, shards, votes.total(by_annotator_and_class))

    def counted(self, posterior: Any) -> tuple[FloatArray, FloatArray]:
        """Return the expected correct annotations (R, C) and instances of each class (C,)."""
        agreed = self.votes.total(_agreement, rows=(posterior,))
        if self.settings.class_prior == "estimated":
            return agreed, known_prior(self.votes, posterior)
        return agreed, uniform_prior(self.votes)

    def start(self, posterior: Any) -> MACEParams:
        """Implement `EMModel.start`; annotators are assumed to know half of the instances."""
        agreed, classes = self.counted(posterior)
        return self.fitted(_first_fractions(self.votes) * agreed, classes)

    @staticmethod
    def expect(shard: Votes, log_odds: FloatArray, prior: FloatArray) -> MACECounts:
        """Return the expected counts of a shard under its posterior."""
        posterior, evidence = _e_step(shard, log_odds, prior)
        classes = shard.voted.astype(np.float64) @ posterior
        return MACECounts(_agreement(shard, posterior), classes, float(evidence[shard.voted].sum()))

    def maximise(self, counts: MACECounts, parameters: MACEParams) -> MACEParams:
        """Implement `EMModel.maximise`."""
        is_estimated = self.settings.class_prior == "estimated"
        classes = counts.classes if is_estimated else parameters.classes
        return self.fitted(parameters.known_if_correct * counts.agreed, classes)

    def fitted(self, known: FloatArray, classes: FloatArray) -> MACEParams:
        """Return the parameters for expected counts of known annotations; the rest are spam."""
        spammed, settings = self.given - known, self.settings
        known_or_spam = np.stack([known.sum(axis=1), spammed.sum(axis=1)], axis=1)
        if settings.method == "vb":
            update: Update = _variational
            competence_prior, strategy_prior = settings.competence_prior, settings.strategy_prior
        else:
            update = _penalised
            competence_prior = strategy_prior = settings.smoothing / self.given.shape[1]
        log_competence, log_prior_competence = update(known_or_spam, competence_prior)
        log_strategy, log_prior_strategy = update(spammed, strategy_prior)
        return MACEParams(
            competence=normalise_rows(known_or_spam + competence_prior),
            strategy=normalise_rows(spammed + strategy_prior),
            log_known=log_competence[:, :1],
            log_spam=log_competence[:, 1:] + log_strategy,
            log_prior=log_prior_competence + log_prior_strategy,
            classes=classes,
        )

    def objective(self, counts: MACECounts, parameters: MACEParams) -> float:
        """Return the log likelihood plus the log prior; for "vb", a lower bound on the evidence."""
        log_all_spam = float((self.given * parameters.log_spam).sum())
        return counts.evidence + log_all_spam + parameters.log_prior

    @staticmethod
    def posterior(
        shard: Votes, log_odds: FloatArray, prior: FloatArray, exponent: FloatArray | None = None
    ) -> FloatArray:
        """Implement `EMModel.posterior`."""
        return _e_step(shard, log_odds, prior, exponent)[0]


def _e_step(
    votes: Votes, log_odds: FloatArray, prior: FloatArray, exponent: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the posterior (n, C) and the evidence (n,) of a shard."""
    joint = weighted_votes(votes, log_odds.ravel()[_cells(votes)])
    joint += log_prior(prior, exponent)
    return normalise_joint(votes, joint, exponent)


def _agreement(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Return the expected correct annotations of each annotator in each class, shape (R, C)."""
    return by_annotator_and_class(votes, probability_correct(votes, posterior))


def _cells(votes: Votes) -> Any:
    return votes.annotator * np.int64(votes.n_classes) + votes.response


def _first_fractions(votes: AllVotes) -> FloatArray:
    """Return the fraction of known among correct annotations if half of the instances are known.

    Its shape is (R, 1).
    """
    return np.full((votes.n_annotators, 1), votes.n_classes / (votes.n_classes + 1))


def _random_fractions(accuracy: FloatArray, rng: np.random.RandomState) -> FloatArray:
    """Draw fractions (R, 1) in the order of accuracies, so that annotator order has no effect."""
    distinct, position = np.unique(accuracy.round(9), return_inverse=True)
    return rng.uniform(size=len(distinct))[position][:, None]


def _variational(counts: FloatArray, prior: float) -> tuple[FloatArray, float]:
    """Return E log p under each row's Dirichlet posterior, and its negated KL divergence."""
    alpha = counts + prior
    log_p = expected_log(alpha)
    return log_p, -dirichlet_divergence(alpha, np.full_like(alpha, prior), log_p)


def _penalised(counts: FloatArray, prior: float) -> tuple[FloatArray, float]:
    """Return the log of each row's smoothed shares, and the log prior equivalent to smoothing."""
    p = normalise_rows(counts + prior)
    return np.log(p), log_dirichlet(np.full_like(p, prior), p)


class MACE(EMAggregator):
    """Infer true classes, and how often and with which classes each annotator spams.

    An annotator who knows the class of an instance gives it. Otherwise they spam: they draw a class
    from their own distribution, regardless of the instance.

    Parameters
    ----------
    max_iter : int, default=50
        Iterations of each run.
    tol : float, default=1e-5
        Stop a run when its objective per annotation grows by less.
    method : {"vb", "em"}, default="vb"
        Variational Bayes with a Beta prior on the probability of spamming and a Dirichlet prior on
        the classes of spam, or EM with smoothed counts.
    competence_prior : float, default=0.5
        Both parameters of the Beta prior ("vb"). Values below 1 favour annotators who always or
        never spam.
    strategy_prior : float, default=10.0
        All parameters of the Dirichlet prior ("vb"). Large values favour spam that is uniform over
        the classes.
    smoothing : float, default=0.01
        Total number of pseudo-annotations added to the counts, in equal parts per class ("em").
    class_prior : {"estimated", "uniform"}, default="estimated"
        "uniform" is the published model, over the classes that occur in annotations or gold. If
        classes are skewed, it takes many annotators for spammers and is far less accurate than
        majority vote. "estimated" finds fewer instances of a rare class, and follows a majority of
        spammers who always give the same class.
    dependence : float in [0, 1] or "auto", default="auto"
        Correlation of annotators' mistakes, which makes the posterior less certain than under
        independence; 0 is the published model. "auto" estimates it with a default `DawidSkene`,
        from the annotations, or from gold if given (see `manyhands.inference.dependence`).
    gold_sample : {"auto", "random", "chosen"}, default="auto"
        How the instances with gold were chosen; as in `DawidSkene`.
    n_restarts : int, default=10
        Number of runs; the one with the best objective is kept. If that one has swapped classes (it
        trusts annotators with whom the others disagree), the best of the others is kept if its
        objective is at most 0.1 nats per annotation lower. In the first run annotators initially
        know half of the instances; in the others, competences are drawn at random.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" means "first" here,
        because the posterior is already distributed.
    random_state : int, RandomState or None, default=0
        Seed for the runs after the first and for ``ties="random"``.

    Attributes
    ----------
    dependence_, dependence_se_ : float
        Correlation of annotators' mistakes and its standard error (0 if it was given).
    spam_ : array of shape (n_annotators,)
        Probability of spamming; 0.5 for an annotator without annotations.
    competence_ : array of shape (n_annotators,)
        1 - ``spam_``.
    spam_strategy_ : array of shape (n_annotators, n_classes)
        Distribution of the classes an annotator gives when spamming; rows sum to 1.
    log_likelihood_ : array of shape (n_iter_,)
        Objective of the kept run: the evidence lower bound ("vb") or the smoothed log likelihood
        ("em"); it never decreases.

    Notes
    -----
    The estimated class prior is the mean posterior (maximum likelihood), as in `DawidSkene`.
    ``spam_`` and ``spam_strategy_`` are posterior means (smoothed shares with "em").

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

    traits = AggregatorTraits(takes_stores=True)
    model = MACEModel

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "method": [StrOptions({"vb", "em"})],
        "competence_prior": [POSITIVE],
        "strategy_prior": [POSITIVE],
        "smoothing": [POSITIVE],
        "class_prior": [StrOptions({"estimated", "uniform"})],
        "dependence": DEPENDENCE,
        "gold_sample": GOLD_SAMPLE,
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
        class_prior: str = "estimated",
        dependence: float | str = "auto",
        gold_sample: str = "auto",
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
        self.class_prior = class_prior
        self.dependence = dependence
        self.gold_sample = gold_sample
        self.n_restarts = n_restarts
        self.ties = ties
        self.random_state = random_state

    def _runs(
        self, model: MACEModel, votes: AllVotes, start: Any, rng: np.random.RandomState
    ) -> EMResult[MACEParams, MACECounts]:
        counted = cache(lambda: model.counted(start))

        def run(number: int) -> EMResult[MACEParams, MACECounts]:
            if number == 0:
                return self._run(model, votes, partial(model.start, start), "restart-0")
            agreed, classes = counted()
            fractions = _random_fractions(expected_accuracy(votes, start), rng)
            first = partial(model.fitted, fractions * agreed, classes)
            return self._run(model, votes, first, f"restart-{number}")

        return best_run(
            map(run, range(self.n_restarts)),
            lambda run: votes.rows_of(model.posterior, *run.parameters.sent),
            votes,
            margin=1e-9,  # Rounding errors must not decide between runs at the same maximum.
        )

    def _set_fitted(self, parameters: MACEParams, votes: AllVotes) -> None:
        self.competence_, self.spam_ = parameters.competence.T
        self.spam_strategy_ = parameters.strategy
        self._log_odds, self.class_prior_ = parameters.sent

    @property
    def _sent(self) -> tuple[FloatArray, FloatArray]:
        return self._log_odds, self.class_prior_
