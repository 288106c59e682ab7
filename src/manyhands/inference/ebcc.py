"""Enhanced Bayesian classifier combination, for annotators who err on the same instances.

.. [1] Y. Li, B. I. P. Rubinstein and T. Cohn. Exploiting worker correlation for label aggregation
   in crowdsourcing. ICML 2019 (PMLR 97).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyhands.exceptions import AnnotationError
from manyhands.inference.base import COUNT, NON_NEGATIVE, POSITIVE, AggregatorTraits, BaseAggregator
from manyhands.inference.confusions import (
    EMCounts,
    expect_and_count,
    log_likelihoods,
    normalise_joint,
    total_em_counts,
)
from manyhands.inference.em import EMModel, EMResult, best_run
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.inference.ibcc import confusion_prior
from manyhands.inference.probability import (
    dirichlet_divergence,
    expected_log,
    normalise_rows,
)
from manyhands.inference.votes import (
    SHARD,
    AllVotes,
    Votes,
    by_annotator,
    by_instance,
    clamp_to_gold,
    probability_correct,
    vote_shares,
    weighted_votes,
)
from manyhands.records import record
from manyhands.typing import FloatArray

LARGEST_CONFUSIONS = 200_000_000
"""Largest number of entries of all confusion matrices; a fit holds about six such arrays."""

Split: TypeAlias = Callable[[Votes, FloatArray], FloatArray]


@record("Dirichlets")
@dataclass(frozen=True, eq=False)
class Dirichlets:
    """Parameters of the Dirichlet distributions of the model, or expected log probabilities.

    Attributes
    ----------
    classes : array of shape (C,)
    subtypes : array of shape (C, M)
    confusion : array of shape (R, C * M, K)
        Indexed [annotator, class and subtype, response]; shape (C * M, K) in the prior.
    """

    classes: FloatArray
    subtypes: FloatArray
    confusion: FloatArray

    def updated(self, counts: EMCounts) -> Dirichlets:
        """Return the posterior from this prior and expected counts."""
        sizes = counts.prior.reshape(self.subtypes.shape)
        return Dirichlets(
            self.classes + sizes.sum(axis=1),
            self.subtypes + sizes,
            self.confusion + counts.confusion,
        )

    @cached_property
    def expected_logs(self) -> Dirichlets:
        """Expected log probabilities, in the same shapes."""
        return Dirichlets(*map(expected_log, (self.classes, self.subtypes, self.confusion)))

    @property
    def sent(self) -> tuple[FloatArray, FloatArray]:
        """Expected log probabilities of the states, (C * M,), and of the confusion rows."""
        return self.expected_logs.state_prior, self.expected_logs.confusion

    @property
    def state_prior(self) -> FloatArray:
        """Expected log probability of each class and subtype, (C * M,); only for expected logs."""
        return (self.classes[:, None] + self.subtypes).ravel()

    def divergence(self, prior: Dirichlets, logs: Dirichlets) -> float:
        """Return the KL divergence from ``prior``, summed over rows; ``logs``: `expected_logs`."""
        return (
            dirichlet_divergence(self.classes, prior.classes, logs.classes)
            + dirichlet_divergence(self.subtypes, prior.subtypes, logs.subtypes)
            + dirichlet_divergence(self.confusion, prior.confusion, logs.confusion)
        )


@dataclass(frozen=True, eq=False)
class EBCCModel(EMModel[Dirichlets, EMCounts]):
    """The model on the votes of one fit: an E-step with expected logarithms.

    Attributes
    ----------
    shards : iterable of Votes
    prior : Dirichlets
    """

    shards: Iterable[Votes]
    prior: Dirichlets

    parameters = Dirichlets

    @classmethod
    def of(cls, settings: EBCC, votes: Votes, shards: Iterable[Votes]) -> EBCCModel:
        """Make the model of some votes.

        Raises
        ------
        AnnotationError
            If the confusion matrices would not fit in memory.
        """
        n_subtypes, strength = settings.n_subtypes, settings.class_strength
        _check_size(votes, n_subtypes)
        if strength == "votes":
            answers = votes.answers
            classes = np.maximum(vote_shares(answers)[answers.voted].sum(axis=0), 1.0)
        else:
            classes = np.full(votes.n_classes, float(strength))
        subtypes = np.full((votes.n_classes, n_subtypes), settings.subtype_strength / n_subtypes)
        rows = confusion_prior(votes, settings.diagonal, settings.off_diagonal)
        return cls(shards, Dirichlets(classes, subtypes, np.repeat(rows, n_subtypes, axis=0)))

    def start(self, posterior: Any, split: Split | None = None) -> Dirichlets:
        """Implement `EMModel.start`; ``split`` divides each class among its subtypes."""
        return self.maximise(total_em_counts(self.shards, posterior, split))

    @staticmethod
    def expect(shard: Votes, log_states: FloatArray, log_confusion: FloatArray) -> EMCounts:
        """Run the E-step on a shard (`manyhands.inference.confusions.expect_and_count`)."""
        return expect_and_count(shard, log_states, log_confusion)

    def maximise(self, counts: EMCounts, parameters: Dirichlets | None = None) -> Dirichlets:
        """Return the prior plus the expected counts."""
        return self.prior.updated(counts)

    def objective(self, counts: EMCounts, parameters: Dirichlets) -> float:
        """Lower bound on the evidence."""
        divergence = parameters.divergence(self.prior, parameters.expected_logs)
        return counts.log_likelihood - divergence

    @staticmethod
    def posterior(
        shard: Votes,
        log_states: FloatArray,
        log_confusion: FloatArray,
        prior: FloatArray,
        exponent: FloatArray | None = None,
    ) -> FloatArray:
        """Implement `EMModel.posterior`; ``prior`` (C,) holds the expected class proportions."""
        joint = log_likelihoods(shard, log_confusion) + log_states
        states, _ = normalise_joint(shard, joint, exponent)
        posterior = states.reshape(len(states), shard.n_classes, -1).sum(axis=2)
        posterior[~shard.voted] = prior
        return clamp_to_gold(shard, posterior)  # Sums over subtypes have rounding errors.


def _check_size(votes: Votes, n_subtypes: int) -> None:
    """Raise an error if the confusion matrices would not fit in memory."""
    n = votes.n_annotators * votes.n_classes * votes.n_responses * n_subtypes
    if n > LARGEST_CONFUSIONS:
        raise AnnotationError(
            f"EBCC would need {6 * 8 * n / 1e9:.0f} GB for {votes.n_annotators} annotators x "
            f"{votes.n_classes} classes x {n_subtypes} subtypes x {votes.n_responses} "
            "responses; lower n_subtypes, or use IBCC or OneCoinDawidSkene"
        )


# -- random starts that do not depend on the order of instances, annotators or classes ------------


def annotator_codes(votes: AllVotes, posterior: Any) -> FloatArray:
    """Return two numbers in [-1, 1] per annotator that act as a hash of their agreement, (2, R).

    Annotators who differ only a little get unrelated numbers.
    """
    agreement = votes.total(_agreement, rows=(posterior,))
    return np.stack([np.sin(agreement), np.cos(agreement)])


def _agreement(shard: Votes, posterior: FloatArray) -> FloatArray:
    return by_annotator(shard, probability_correct(shard, posterior))


def draw_waves(n_subtypes: int, rng: np.random.RandomState) -> tuple[FloatArray, FloatArray]:
    """Draw a random frequency and phase per subtype."""
    return rng.uniform(100.0, 1000.0, n_subtypes), rng.uniform(0.0, 2 * np.pi, n_subtypes)


def random_split(
    votes: Votes, posterior: FloatArray, codes: FloatArray, waves: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Split each instance's mass in each class among the subtypes at random, shape (n, C * M).

    The shares are uniform over the simplex (exponentials divided by their sum). The random numbers
    are values of a wave of such high frequency that different votes give unrelated values.
    Instances with the same votes get the same shares, as they would after the first E-step anyway.
    """
    votes = votes.answers
    class_code, annotator_code = codes[:, votes.annotator]
    votes_code = weighted_votes(votes, class_code) + by_instance(votes, annotator_code)[:, None]
    frequency, phase = waves
    uniform = np.arccos(np.cos(votes_code[:, :, None] * frequency + phase)) / np.pi
    shares = normalise_rows(-np.log(np.clip(uniform, 1e-12, 1 - 1e-12)))
    return (posterior[:, :, None] * shares).reshape(len(posterior), -1)


class EBCC(EMAggregator):
    """Infer true classes with subtypes of each class, for annotators who make the same mistakes.

    This is the model of `IBCC`, but each class is a mixture of subtypes (clear eights, and eights
    that look like a three), and an annotator has one confusion row per subtype. Annotators are
    independent given the subtype, not given the class. Annotators who make the same mistakes on the
    same kind of instance therefore count less than the same number of independent annotators.

    Parameters
    ----------
    max_iter : int, default=500
        Iterations of one restart.
    tol : float, default=1e-7
        Stop when the lower bound per annotation grows by less. The bound climbs in steps with
        plateaus in between, and a larger ``tol`` may stop on a plateau.
    n_subtypes : int, default=10
        Maximal number of subtypes per class; those not needed stay empty. With 1 the model is
        IBCC's.
    n_restarts : int, default=10
        Number of random starts; the one with the largest lower bound is kept. If that one has
        swapped classes (it trusts annotators with whom the others disagree), the best of the others
        is kept if its bound is at most 0.1 nats per annotation lower.
    subtype_strength : float, default=0.1
        Pseudo-instances of the prior, divided among the subtypes of a class. A value far below
        ``n_subtypes`` favours few subtypes.
    diagonal, off_diagonal : float, default=4.0 and 1.0
        Pseudo-annotations of the prior in each confusion row: correct ones, and those of each other
        response, as in `IBCC`.
    class_strength : "votes" or float, default="votes"
        Pseudo-instances of the prior in each class: the class's votes (in shares of an instance; at
        least 1), or a number.
    abstentions : {"model", "ignore"}, default="ignore"
        Whether an annotator's abstentions (`AnnotationTable.abstentions`) are informative: with
        "model" an abstention is one more response with its own probability in each subtype.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" means "first" here,
        because the posterior is already distributed.
    random_state : int, RandomState or None, default=0
        Seed for the restarts and ``ties="random"``.

    Attributes
    ----------
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Mixture of the subtypes' confusion rows, indexed [annotator, true, given].
    subtype_weight_ : array of shape (n_classes, n_subtypes)
        Expected share of each subtype in its class.
    subtype_confusion_ : array of shape (n_annotators, n_classes, n_subtypes, n_classes)
        Expected confusion rows, indexed [annotator, true, subtype, given]; computed on access.
    abstention_ : array of shape (n_annotators, n_classes)
        Expected probability of abstaining on an instance of each class; 0 unless modelled.
    log_likelihood_ : array of shape (n_iter_,)
        Evidence lower bound of the kept restart after each E-step; it never decreases.
    restart_bounds_ : array of shape (n_restarts,)
        Lower bound that each restart reached. If only one reached the best value, more restarts may
        find a better one.

    Notes
    -----
    Each restart splits each class's share of an instance's votes at random (uniformly over the
    simplex) among the subtypes. The random numbers depend on the seed and on who voted how, where
    annotators are identified by their agreement with all others. The result therefore does not
    depend on the order of instances, annotators or classes.

    Memory: ``n_annotators * n_classes**2 * n_subtypes`` numbers, and about four times as many
    during fitting.

    References
    ----------
    Li, Rubinstein & Cohn (ICML 2019): model, mean-field updates, default priors.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import EBCC
    >>> A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, -1]])
    >>> EBCC(random_state=0).fit_predict(A)
    array([0, 1, 0, 1])
    """

    traits = AggregatorTraits(counts_confusions=True, has_several_maxima=True)
    model = EBCCModel

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "n_subtypes": [COUNT],
        "n_restarts": [COUNT],
        "subtype_strength": [POSITIVE],
        "diagonal": [POSITIVE],
        "off_diagonal": [POSITIVE],
        "class_strength": [POSITIVE, StrOptions({"votes"})],
        "abstentions": [StrOptions({"model", "ignore"})],
    }

    def __init__(
        self,
        max_iter: int = 500,
        tol: float = 1e-7,
        *,
        n_subtypes: int = 10,
        n_restarts: int = 10,
        subtype_strength: float = 0.1,
        diagonal: float = 4.0,
        off_diagonal: float = 1.0,
        class_strength: float | str = "votes",
        abstentions: str = "ignore",
        ties: str = "first",
        random_state: Any = 0,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.n_subtypes = n_subtypes
        self.n_restarts = n_restarts
        self.subtype_strength = subtype_strength
        self.diagonal = diagonal
        self.off_diagonal = off_diagonal
        self.class_strength = class_strength
        self.abstentions = abstentions
        self.ties = ties
        self.random_state = random_state

    def _shards(self, votes: AllVotes) -> Iterable[Votes]:
        # A row is n_subtypes times as long as in other methods but must still fit in the cache, and
        # adding up the counts must stay cheap.
        least = 4 * votes.n_annotators * votes.n_responses
        return votes.shards(max(SHARD // self.n_subtypes, least))

    def _runs(
        self, model: EBCCModel, votes: AllVotes, start: Any, rng: np.random.RandomState
    ) -> EMResult[Dirichlets, None]:
        codes = annotator_codes(votes.answers, start)
        bounds: list[float] = []

        def runs() -> Iterator[EMResult[Dirichlets, None]]:
            for _ in range(self.n_restarts):
                split = partial(random_split, codes=codes, waves=draw_waves(self.n_subtypes, rng))
                run = self._run(model, votes, partial(model.start, start, split)).slim
                bounds.append(run.history[-1])
                yield run

        def posterior(run: EMResult[Dirichlets, None]) -> FloatArray:
            rows: FloatArray = votes.rows_of(
                model.posterior,
                *run.parameters.sent,
                normalise_rows(run.parameters.classes),
                shards=model.shards,
            )
            return rows

        best = best_run(runs(), posterior, votes)
        self.restart_bounds_ = np.array(bounds)
        return best

    def _set_fitted(self, parameters: Dirichlets, votes: AllVotes) -> None:
        self._dirichlets = parameters
        self.class_prior_ = normalise_rows(parameters.classes)
        self.subtype_weight_ = normalise_rows(parameters.subtypes)
        responses = np.einsum("cm,rcmk->rck", self.subtype_weight_, self._subtype_responses())
        self.confusion_ = normalise_rows(responses[:, :, : votes.n_classes])
        self.abstention_ = responses[:, :, votes.n_classes :].sum(axis=2)

    @property
    def _sent(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return *self._dirichlets.sent, self.class_prior_

    @property
    def subtype_confusion_(self) -> FloatArray:
        """Expected confusion rows, indexed [annotator, true, subtype, given], (R, C, M, C)."""
        return normalise_rows(self._subtype_responses()[..., : len(self.class_prior_)])

    def _subtype_responses(self) -> FloatArray:
        """Return the expected probability of each response, shape (R, C, M, K)."""
        alpha = self._dirichlets.confusion
        shape = (len(alpha), *self.subtype_weight_.shape, alpha.shape[2])
        return normalise_rows(alpha).reshape(shape)
