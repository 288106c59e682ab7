"""Independent Bayesian classifier combination: Bayesian inference in Dawid & Skene's model.

.. [1] H.-C. Kim and Z. Ghahramani. Bayesian classifier combination. AISTATS 2012.
.. [2] E. Simpson, S. Roberts, I. Psorakis and A. Smith. Dynamic Bayesian combination of multiple
   imperfect classifiers. In Decision Making and Imperfection, Springer, 2013 (arXiv:1206.1831).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyhands.inference.base import COUNT, NON_NEGATIVE, POSITIVE, AggregatorTraits, BaseAggregator
from manyhands.inference.class_shares import AgreementCounts, OneCoin
from manyhands.inference.confusion_em import EVIDENCE_MARGIN
from manyhands.inference.confusion_prior import with_history
from manyhands.inference.confusions import (
    EMCounts,
    count_votes,
    expect_and_count,
    log_likelihoods,
    normalise_joint,
    starting_counts,
    total_em_counts,
)
from manyhands.inference.dependence import DEPENDENCE
from manyhands.inference.em import EMModel, EMResult
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.inference.gold_samples import GOLD_SAMPLE
from manyhands.inference.history import TakesHistory
from manyhands.inference.probability import (
    Table,
    as_array,
    dirichlet_divergence,
    expected_log,
    map_rows,
    normalise_rows,
    sum_rows,
)
from manyhands.inference.votes import AllVotes, Votes, sum_over_shards, votes_of
from manyhands.metrics.intervals import beta_interval
from manyhands.typing import FloatArray


@dataclass(frozen=True)
class IBCCParams:
    """Parameters of the Dirichlet distributions of class proportions and confusion rows.

    Attributes
    ----------
    classes : array of shape (C,)
    rows : array of shape (R, C, K), possibly on disk
    """

    classes: FloatArray
    rows: Table

    @cached_property
    def sent(self) -> tuple[FloatArray, Table]:
        """Expected log probabilities of both."""
        return expected_log(self.classes), map_rows(expected_log, self.rows)


@dataclass(frozen=True)
class IBCCModel(EMModel[IBCCParams, EMCounts]):
    """The model on the votes of one fit: an E-step with expected logarithms.

    Attributes
    ----------
    shards : iterable of Votes
    classes : array of shape (C,)
        Dirichlet parameters of the prior of the class proportions.
    rows : array of shape (C, K) or (R, C, K)
        Dirichlet parameters of the prior of the confusion rows, plus the annotators' histories.
    """

    shards: Iterable[Votes]
    classes: FloatArray
    rows: Table

    parameters = IBCCParams

    @classmethod
    def of(cls, settings: IBCC, votes: AllVotes, shards: Iterable[Votes]) -> IBCCModel:
        """Make the model of some votes."""
        rows: Table = confusion_prior(votes, settings.diagonal, settings.off_diagonal)
        if votes.history is not None:
            rows = with_history(rows[None], votes, sum_over_shards(count_votes, shards))
        return cls(shards, np.full(votes.n_classes, settings.class_strength), rows)

    def start(self, posterior: Any) -> IBCCParams:
        """Implement `EMModel.start`."""
        return self.maximise(total_em_counts(self.shards, posterior))

    @staticmethod
    def expect(shard: Votes, log_classes: FloatArray, log_rows: Table) -> EMCounts:
        """Run the E-step on a shard (`manyhands.inference.confusions.expect_and_count`)."""
        return expect_and_count(shard, log_classes, log_rows)

    def maximise(self, counts: EMCounts, parameters: IBCCParams | None = None) -> IBCCParams:
        """Return the prior plus the expected counts."""
        rows = map_rows(np.add, self.rows, counts.confusion)
        return IBCCParams(self.classes + counts.prior, rows)

    def objective(self, counts: EMCounts, parameters: IBCCParams) -> float:
        """Lower bound on the evidence."""
        log_prior, log_confusion = parameters.sent
        return (
            counts.log_likelihood
            - dirichlet_divergence(parameters.classes, self.classes, log_prior)
            - sum_rows(dirichlet_divergence, parameters.rows, self.rows, log_confusion)
        )

    @staticmethod
    def posterior(
        shard: Votes,
        log_classes: FloatArray,
        log_rows: Table,
        prior: FloatArray,
        exponent: FloatArray | None = None,
    ) -> FloatArray:
        """Implement `EMModel.posterior`; ``prior`` (C,) holds the expected class proportions."""
        joint = log_likelihoods(shard, log_rows) + log_classes
        posterior, _ = normalise_joint(shard, joint, exponent)
        posterior[~shard.voted] = prior
        return posterior


class IBCC(TakesHistory, EMAggregator):
    """Infer true classes and a distribution over each annotator's confusion matrix.

    This is the model of `DawidSkene` with Dirichlet priors on the class proportions and on each row
    of the confusion matrices. Variational Bayes finds posteriors instead of point estimates, so an
    annotator with few annotations has little influence without any tuning.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the lower bound per annotation grows by less.
    diagonal, off_diagonal : float, default=4.0 and 1.0
        Pseudo-annotations of the prior in each confusion row: correct ones, and those of each other
        class (and of abstaining, if modelled). A new annotator's expected accuracy is ``diagonal /
        (diagonal + (n_classes - 1) * off_diagonal)``; with dozens of classes use a smaller
        ``off_diagonal``.
    class_strength : float, default=1.0
        Pseudo-instances of the prior in each class.
    dependence : float in [0, 1] or "auto", default="auto"
        Correlation of annotators' mistakes, which makes the posterior less certain than under
        independence; 0 is the published model. "auto" estimates it with a default `DawidSkene`,
        from the annotations, or from gold if given (see `manyhands.inference.dependence`).
    gold_sample : {"auto", "random", "chosen"}, default="auto"
        How the instances with gold were chosen; as in `DawidSkene`.
    abstentions : {"model", "ignore"}, default="ignore"
        Whether an annotator's abstentions (`AnnotationTable.abstentions`) are informative: with
        "model" an abstention is one more response with its own probability in each class.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" means "first" here,
        because the posterior is already distributed.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Attributes
    ----------
    dependence_, dependence_se_ : float
        Correlation of annotators' mistakes and its standard error (0 if it was given).
    class_alpha_ : array of shape (n_classes,)
        Dirichlet parameters of the posterior of the class proportions; ``class_prior_`` is its
        mean.
    confusion_alpha_ : array of shape (n_annotators, n_classes, n_classes)
        Dirichlet parameters of the posterior of each confusion row, indexed [annotator, true,
        given]; ``confusion_`` is its mean. If abstaining is modelled, these rows are conditional on
        not abstaining.
    abstention_ : array of shape (n_annotators, n_classes)
        Expected probability of abstaining on an instance of each class; 0 unless modelled.
    log_likelihood_ : array of shape (n_iter_,)
        Evidence lower bound after each E-step; it never decreases.

    Notes
    -----
    The posterior is approximated by a product of one factor for the true classes, one Dirichlet
    for the proportions and one per confusion row [1]_. Each iteration updates the Dirichlets (prior
    plus expected counts), then the classes (an E-step with expected logarithms instead of
    logarithms). Afterwards the lower bound is

        sum_i log sum_c exp(E log kappa_c + sum_j E log pi_j[c, y_ij])
        - KL(q(kappa) || p(kappa)) - sum_{j, c} KL(q(pi_j[c]) || p(pi_j[c])).

    An annotator without annotations keeps the prior.

    The iterations start from the vote shares. If these are misleading for a rare class (as in
    `DawidSkene`), a second run starts from the class shares that the agreement of pairs of votes
    implies, and its result is kept if its lower bound is greater by 5 nats or more.

    References
    ----------
    Model: Kim & Ghahramani (AISTATS 2012), independent BCC. Variational Bayes:

    .. [1] Simpson et al. (2013), arXiv:1206.1831.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import IBCC
    >>> A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, -1]])
    >>> model = IBCC().fit(A)
    >>> model.labels_
    array([0, 1, 0, 1])
    >>> lower, upper = model.confusion_interval(level=0.9)
    >>> print(f"{model.confusion_[0, 0, 0]:.2f} in {lower[0, 0, 0]:.2f}..{upper[0, 0, 0]:.2f}")
    0.85 in 0.59..0.99
    """

    traits = AggregatorTraits(counts_confusions=True, takes_stores=True)
    model = IBCCModel

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "diagonal": [POSITIVE],
        "off_diagonal": [POSITIVE],
        "class_strength": [POSITIVE],
        "dependence": DEPENDENCE,
        "gold_sample": GOLD_SAMPLE,
        "abstentions": [StrOptions({"model", "ignore"})],
    }

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 1e-5,
        *,
        diagonal: float = 4.0,
        off_diagonal: float = 1.0,
        class_strength: float = 1.0,
        dependence: float | str = "auto",
        gold_sample: str = "auto",
        abstentions: str = "ignore",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.diagonal = diagonal
        self.off_diagonal = off_diagonal
        self.class_strength = class_strength
        self.dependence = dependence
        self.gold_sample = gold_sample
        self.abstentions = abstentions
        self.ties = ties
        self.random_state = random_state

    def _runs(
        self, model: IBCCModel, votes: AllVotes, start: Any, rng: np.random.RandomState
    ) -> EMResult[IBCCParams, None]:
        found = self._run(model, votes, lambda: model.start(start)).slim
        crowd = self._skewed_crowd(votes, model.shards, start)
        if crowd is not None:
            first = partial(model.start, crowd.posterior)
            other = self._run(model, votes, first, "iterations-shares").slim
            if other.history[-1] > found.history[-1] + EVIDENCE_MARGIN:
                return other
        return found

    def _skewed_crowd(self, votes: AllVotes, shards: Iterable[Votes], start: Any) -> OneCoin | None:
        """Return the model of the crowd for a second start; None if vote shares are not misleading.

        The vote share of a rare class is far above its share, and iterations that start there
        approach it so slowly that `tol` stops them (docs/results/skewed_crowds.md).
        """
        counts, _ = starting_counts(votes, shards, start, _whole)
        crowd = OneCoin(AgreementCounts.of(votes, counts))
        return crowd if crowd.is_skewed else None

    def _set_fitted(self, parameters: IBCCParams, votes: AllVotes) -> None:
        n_classes, alpha = votes.n_classes, parameters.rows
        self.class_alpha_, self._response_alpha = parameters.classes, alpha
        self.class_prior_ = normalise_rows(self.class_alpha_)
        self.confusion_alpha_ = as_array(alpha)[:, :, :n_classes]
        self.confusion_ = as_array(
            map_rows(lambda alpha: normalise_rows(alpha[:, :, :n_classes]), alpha)
        )
        self.abstention_ = map_rows(
            lambda alpha: normalise_rows(alpha)[:, :, n_classes:].sum(axis=2), alpha
        )

    @property
    def _sent(self) -> tuple[FloatArray, Table, FloatArray]:
        return *IBCCParams(self.class_alpha_, self._response_alpha).sent, self.class_prior_

    def confusion_interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return the bounds of the central credible interval of each entry of ``confusion_``.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
            Posterior mass of the interval.

        Returns
        -------
        lower, upper : arrays of shape (n_annotators, n_classes, n_classes)

        Raises
        ------
        AnnotationError
            If ``level`` is outside (0, 1).

        Notes
        -----
        An entry of a Dirichlet with parameters a is Beta(a_k, sum(a) - a_k), of mean m and size
        sum(a). The variational posterior treats the classes of the instances as independent of the
        confusion matrix, and is therefore too narrow. As in `annotator_reliability`, the
        information that is missing because the classes are uncertain is subtracted from the size:
        m (1 - m) (V_k / m^2 + V_o / (1 - m)^2), where V_k and V_o sum q (1 - q) of the class over
        the annotator's annotations with this response and with others. The size is never below that
        of the prior.
        """
        alpha = self.confusion_alpha_
        size = alpha.sum(axis=2, keepdims=True)
        mean = alpha / size
        shards = votes_of(self.table_, gold=self._gold).shards()
        missing = as_array(total_em_counts(shards, self.posterior_, _doubts).confusion)
        others = missing.sum(axis=2, keepdims=True) - missing
        lost = (1 - mean) * missing / mean + mean * others / (1 - mean)
        least = self.diagonal + self.off_diagonal * (alpha.shape[2] - 1)
        size = np.maximum(size - lost, least)
        return beta_interval(size * mean, size * (1 - mean), level=level)


def _whole(shard: Votes, posterior: FloatArray) -> FloatArray:
    """Return the posterior itself, because classes have no subtypes here."""
    return posterior


def _doubts(shard: Votes, posterior: FloatArray) -> FloatArray:
    """Return the variance q (1 - q) of each instance's class indicators, shape (n, C)."""
    return posterior * (1.0 - posterior)


def confusion_prior(votes: AllVotes, diagonal: float, off_diagonal: float) -> FloatArray:
    """Return the Dirichlet parameters of the prior of a confusion matrix, shape (C, K)."""
    identity = np.eye(votes.n_classes, votes.n_responses)
    return diagonal * identity + off_diagonal * (1 - identity)
