"""Enhanced Bayesian classifier combination, for annotators who err on the same instances.

.. [1] Y. Li, B. I. P. Rubinstein and T. Cohn. Exploiting worker correlation for label aggregation
   in crowdsourcing. ICML 2019 (PMLR 97).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.inference.base import COUNT, NON_NEGATIVE, POSITIVE, BaseAggregator, Traits
from manyhands.inference.confusions import EMCounts, e_step, expect_and_count, total_em_counts
from manyhands.inference.em import EMResult, Model, best_run, run_em
from manyhands.inference.ibcc import confusion_prior
from manyhands.inference.probability import (
    dirichlet_divergence,
    expected_log,
    normalise_rows,
)
from manyhands.inference.votes import (
    SHARD,
    Votes,
    by_annotator,
    by_instance,
    clamp_to_gold,
    fill_rows,
    make_votes,
    probability_correct,
    sum_over_shards,
    vote_shares,
    weighted_votes,
)
from manyhands.typing import FloatArray, IntArray

LARGEST_CONFUSIONS = 200_000_000
"""Maximal number of entries of all confusion matrices; about six arrays of that size are held."""


class EBCC(BaseAggregator):
    """Infer true classes when annotators make the same mistakes: each class has subtypes.

    This is the model of `IBCC`, but each class is a mixture of subtypes (clear eights, and eights
    that look like a three), and an annotator has one confusion row per subtype. Annotators are
    independent given the subtype, not given the class. Annotators who err alike on the same kind
    of instance therefore count for less than as many independent ones.

    Parameters
    ----------
    max_iter : int, default=500
        Iterations of one restart.
    tol : float, default=1e-7
        Stop when the lower bound per annotation grows by less. The bound has plateaus between
        steps, and a larger ``tol`` may stop on one of them.
    n_subtypes : int, default=10
        Maximal number of subtypes per class; those not needed stay empty. With 1 the model is
        IBCC's.
    n_restarts : int, default=10
        Random starts; the one that reaches the largest lower bound is kept. If that one is upside
        down (it trusts those with whom the others disagree), the best of the others is kept if its
        bound is at most 0.1 nats per annotation lower.
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
        Lower bound that each restart reached. If only one reached the best, more restarts may find
        a better one.

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

    traits = Traits(counts_confusions=True, has_several_maxima=True)

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

    def _votes(self, table: AnnotationTable, gold: IntArray | None = None) -> Votes:
        return make_votes(table, gold=gold, abstentions=self.abstentions == "model")

    def _infer(self, votes: Votes, start: FloatArray, rng: np.random.RandomState) -> None:
        self._check_size(votes)
        shards = self._shards(votes)
        model = EBCCModel(shards, self._prior(votes))
        enough = self.tol * sum(shard.total_weight for shard in shards)
        codes = annotator_codes(votes.answers, start)
        bounds: list[float] = []

        def runs() -> Iterator[EMResult[Dirichlets, None]]:
            for _ in range(self.n_restarts):
                waves = draw_waves(self.n_subtypes, rng)
                split = partial(random_split, codes=codes, waves=waves)
                run = self._run(model, total_em_counts(shards, start, split), enough)
                bounds.append(run.history[-1])
                yield run

        posterior = np.empty_like(start)
        best = best_run(runs(), lambda run: _fill(posterior, shards, run.parameters), votes)
        self._set_attributes(best, votes.n_classes)
        self.restart_bounds_ = np.array(bounds)
        self.posterior_ = _fill(posterior, shards, best.parameters)

    def _check_size(self, votes: Votes) -> None:
        """Refuse tables whose confusion matrices would not fit into memory."""
        n = votes.n_annotators * votes.n_classes * votes.n_responses * self.n_subtypes
        if n > LARGEST_CONFUSIONS:
            raise AnnotationError(
                f"EBCC would need {6 * 8 * n / 1e9:.0f} GB for {votes.n_annotators} annotators x "
                f"{votes.n_classes} classes x {self.n_subtypes} subtypes x {votes.n_responses} "
                "responses; lower n_subtypes, or use IBCC or OneCoinDawidSkene"
            )

    def _run(self, model: EBCCModel, counts: EMCounts, enough: float) -> EMResult[Dirichlets, None]:
        """Update the Dirichlets and the posterior in turn until the lower bound settles."""
        first = partial(model.maximise, counts)
        return run_em(model, first, max_iter=self.max_iter, enough=enough).slim

    def _set_attributes(self, run: EMResult[Dirichlets, None], n_classes: int) -> None:
        self._dirichlets = run.parameters
        self.class_prior_ = normalise_rows(run.parameters.classes)
        self.subtype_weight_ = normalise_rows(run.parameters.subtypes)
        responses = np.einsum("cm,rcmk->rck", self.subtype_weight_, self._subtype_responses())
        self.confusion_ = normalise_rows(responses[:, :, :n_classes])
        self.abstention_ = responses[:, :, n_classes:].sum(axis=2)
        self._set_history(run.history)

    @property
    def subtype_confusion_(self) -> FloatArray:
        """Expected confusion rows, indexed [annotator, true, subtype, given], (R, C, M, C)."""
        return normalise_rows(self._subtype_responses()[..., : len(self.class_prior_)])

    def _subtype_responses(self) -> FloatArray:
        """Expected probability of each response, shape (R, C, M, K)."""
        alpha = self._dirichlets.confusion
        shape = (len(alpha), *self.subtype_weight_.shape, alpha.shape[2])
        return normalise_rows(alpha).reshape(shape)

    def _posterior(self, votes: Votes) -> FloatArray:
        posterior = np.empty((votes.n_instances, votes.n_classes))
        return _fill(posterior, self._shards(votes), self._dirichlets)

    def _shards(self, votes: Votes) -> list[Votes]:
        # A row is n_subtypes times as long as in other methods but must still fit into the cache.
        least = 4 * votes.n_annotators * votes.n_responses  # Keeps adding up the counts cheap.
        return votes.shards(max(SHARD // self.n_subtypes, least))

    def _prior(self, votes: Votes) -> Dirichlets:
        if self.class_strength == "votes":
            answers = votes.answers
            classes = np.maximum(vote_shares(answers)[answers.voted].sum(axis=0), 1.0)
        else:
            classes = np.full(votes.n_classes, float(self.class_strength))
        share = self.subtype_strength / self.n_subtypes
        subtypes = np.full((votes.n_classes, self.n_subtypes), share)
        rows = confusion_prior(votes, self.diagonal, self.off_diagonal)
        return Dirichlets(classes, subtypes, np.repeat(rows, self.n_subtypes, axis=0))


@dataclass(frozen=True, eq=False)
class Dirichlets:
    """Parameters of the Dirichlets over the model's probabilities, or expected log probabilities.

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
        """Posterior from this prior and expected counts."""
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
    def state_prior(self) -> FloatArray:
        """For expected logs: the expected log probability of each class and subtype, (C * M,)."""
        return (self.classes[:, None] + self.subtypes).ravel()

    def divergence(self, prior: Dirichlets, logs: Dirichlets) -> float:
        """KL divergence from ``prior``, summed over all rows; ``logs`` are the `expected_logs`."""
        return (
            dirichlet_divergence(self.classes, prior.classes, logs.classes)
            + dirichlet_divergence(self.subtypes, prior.subtypes, logs.subtypes)
            + dirichlet_divergence(self.confusion, prior.confusion, logs.confusion)
        )


@dataclass(frozen=True, eq=False)
class EBCCModel(Model[Dirichlets, EMCounts]):
    """The model on the votes of one fit: an E-step with expected logarithms.

    Attributes
    ----------
    shards : list of Votes
    prior : Dirichlets
    """

    shards: list[Votes]
    prior: Dirichlets

    def expected(self, parameters: Dirichlets) -> EMCounts:
        """See `Model.expect`."""
        logs = parameters.expected_logs
        return sum_over_shards(expect_and_count, self.shards, logs.state_prior, logs.confusion)

    def objective(self, counts: EMCounts, parameters: Dirichlets) -> float:
        """Lower bound on the evidence."""
        divergence = parameters.divergence(self.prior, parameters.expected_logs)
        return counts.log_likelihood - divergence

    def maximise(self, counts: EMCounts, parameters: Dirichlets | None = None) -> Dirichlets:
        """Prior plus expected counts."""
        return self.prior.updated(counts)


def _fill(out: FloatArray, shards: list[Votes], dirichlets: Dirichlets) -> FloatArray:
    """Write the posterior of each instance into ``out``."""
    logs, class_prior = dirichlets.expected_logs, normalise_rows(dirichlets.classes)

    def rows(shard: Votes) -> FloatArray:
        states, _ = e_step(shard, logs.state_prior, logs.confusion)
        posterior = states.reshape(len(states), *dirichlets.subtypes.shape).sum(axis=2)
        posterior[~shard.voted] = class_prior
        return clamp_to_gold(shard, posterior)  # Sums over subtypes have rounding errors.

    fill_rows(out, shards, rows)
    return out


# -- random starts that do not depend on the order of instances, annotators or classes ------------


def annotator_codes(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Two numbers in [-1, 1] per annotator, computed from its agreement with all, shape (2, R).

    They act as a hash: annotators who differ a little have unrelated numbers.
    """
    agreement = by_annotator(votes, probability_correct(votes, posterior))
    return np.stack([np.sin(agreement), np.cos(agreement)])


def draw_waves(n_subtypes: int, rng: np.random.RandomState) -> tuple[FloatArray, FloatArray]:
    """Draw a random frequency and phase per subtype."""
    return rng.uniform(100.0, 1000.0, n_subtypes), rng.uniform(0.0, 2 * np.pi, n_subtypes)


def random_split(
    votes: Votes, posterior: FloatArray, codes: FloatArray, waves: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Split each instance's mass in each class among the subtypes at random, shape (n, C * M).

    The shares are uniform over the simplex (exponentials divided by their sum). The random numbers
    come from a wave so fast that any other combination of votes is elsewhere on it. Instances with
    the same votes get the same shares, as they would after the first E-step anyway.
    """
    votes = votes.answers
    class_code, annotator_code = codes[:, votes.annotator]
    votes_code = weighted_votes(votes, class_code) + by_instance(votes, annotator_code)[:, None]
    frequency, phase = waves
    uniform = np.arccos(np.cos(votes_code[:, :, None] * frequency + phase)) / np.pi
    shares = normalise_rows(-np.log(np.clip(uniform, 1e-12, 1 - 1e-12)))
    return (posterior[:, :, None] * shares).reshape(len(posterior), -1)
