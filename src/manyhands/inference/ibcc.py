"""Independent Bayesian classifier combination: Dawid & Skene's model, its parameters uncertain.

.. [1] H.-C. Kim and Z. Ghahramani. Bayesian classifier combination. AISTATS 2012.
.. [2] E. Simpson, S. Roberts, I. Psorakis and A. Smith. Dynamic Bayesian combination of multiple
   imperfect classifiers. In Decision Making and Imperfection, Springer, 2013 (arXiv:1206.1831).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyhands.annotations import AnnotationTable
from manyhands.inference.base import COUNT, NON_NEGATIVE, POSITIVE, BaseAggregator
from manyhands.inference.em import e_step, expect_and_count, total_em_counts
from manyhands.inference.probability import (
    dirichlet_divergence,
    expected_log,
    has_settled,
    normalise_rows,
)
from manyhands.inference.votes import Votes, fill_rows, make_votes, sum_over_shards
from manyhands.metrics.intervals import beta_interval
from manyhands.typing import FloatArray, IntArray


class IBCC(BaseAggregator):
    """Infer true classes and a distribution over every annotator's confusion matrix.

    The model of `DawidSkene` with Dirichlet priors on the class proportions and on every row of
    the confusion matrices. Variational Bayes finds the posteriors of all of them instead of one
    best value, so an annotator of few annotations counts for little without any tuning.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the lower bound per annotation grows by less.
    diagonal, off_diagonal : float, default=4.0 and 1.0
        Pseudo-annotations of the prior in every confusion row: right ones, and wrong ones for
        each other class (and for abstaining, where it is modelled). A new annotator's expected
        accuracy is ``diagonal / (diagonal + (n_classes - 1) * off_diagonal)``: with dozens of
        classes take a smaller ``off_diagonal``.
    class_strength : float, default=1.0
        Pseudo-instances of the prior in every class.
    abstentions : {"model", "ignore"}, default="ignore"
        Whether an annotator's abstentions (`AnnotationTable.abstentions`) tell of the class: with
        "model" to abstain is one more response with its own probability in every class.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" is "first" here,
        as the posterior is distributed already.
    random_state : int, RandomState or None
        For ``ties="random"``.

    Attributes
    ----------
    class_alpha_ : array of shape (n_classes,)
        Dirichlet parameters of the posterior of the class proportions; ``class_prior_`` is its
        mean.
    confusion_alpha_ : array of shape (n_annotators, n_classes, n_classes)
        Dirichlet parameters of the posterior of every confusion row, [annotator, true, given];
        ``confusion_`` is its mean. Where abstaining is modelled, the row given an annotation.
    abstention_ : array of shape (n_annotators, n_classes)
        Expected probability to abstain on an instance of every class; 0 unless modelled.
    log_likelihood_ : array of shape (n_iter_,)
        Evidence lower bound after every E-step; it never decreases.

    Notes
    -----
    The posterior is approximated by a product of one factor for the true classes, one Dirichlet
    for the proportions and one for every confusion row [1]_. Every iteration updates the
    Dirichlets (prior plus expected counts), then the classes (an E-step with expected logarithms
    in place of logarithms). After it the lower bound is

        sum_i log sum_c exp(E log kappa_c + sum_j E log pi_j[c, y_ij])
        - KL(q(kappa) || p(kappa)) - sum_{j, c} KL(q(pi_j[c]) || p(pi_j[c])).

    An annotator without annotations keeps the prior.

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
    0.85 in 0.60..0.99
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "diagonal": [POSITIVE],
        "off_diagonal": [POSITIVE],
        "class_strength": [POSITIVE],
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
        abstentions: str = "ignore",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.diagonal = diagonal
        self.off_diagonal = off_diagonal
        self.class_strength = class_strength
        self.abstentions = abstentions
        self.ties = ties
        self.random_state = random_state

    def _votes(self, table: AnnotationTable, gold: IntArray | None = None) -> Votes:
        return make_votes(table, gold=gold, abstentions=self.abstentions == "model")

    def _infer(self, votes: Votes, start: FloatArray, rng: np.random.RandomState) -> None:
        shards = votes.shards()
        counts = total_em_counts(shards, start)
        classes = np.full(votes.n_classes, self.class_strength)
        rows = confusion_prior(votes, self.diagonal, self.off_diagonal)
        history: list[float] = []
        for _ in range(self.max_iter):
            class_alpha, alpha = classes + counts.prior, rows + counts.confusion
            log_prior, log_confusion = expected_log(class_alpha), expected_log(alpha)
            counts = sum_over_shards(expect_and_count, shards, log_prior, log_confusion)
            history.append(
                counts.log_likelihood
                - dirichlet_divergence(class_alpha, classes, log_prior)
                - dirichlet_divergence(alpha, rows, log_confusion)
            )
            if has_settled(history, self.tol * votes.total_weight):
                break
        self.class_alpha_, self._response_alpha = class_alpha, alpha
        self.class_prior_ = normalise_rows(class_alpha)
        self.confusion_alpha_ = alpha[:, :, : votes.n_classes]
        self.confusion_ = normalise_rows(self.confusion_alpha_)
        self.abstention_ = normalise_rows(alpha)[:, :, votes.n_classes :].sum(axis=2)
        self.posterior_ = self._fill(start, shards)
        self.log_likelihood_ = np.array(history)
        self.n_iter_ = len(history)

    def _posterior(self, votes: Votes) -> FloatArray:
        return self._fill(np.empty((votes.n_instances, votes.n_classes)), votes.shards())

    def _fill(self, out: FloatArray, shards: list[Votes]) -> FloatArray:
        """Write the posterior of every instance into ``out``."""
        parameters = expected_log(self.class_alpha_), expected_log(self._response_alpha)

        def rows(shard: Votes) -> FloatArray:
            posterior, _ = e_step(shard, *parameters)
            posterior[~shard.voted] = self.class_prior_
            return posterior

        fill_rows(out, shards, rows)
        return out

    def confusion_interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Bounds of the central credible interval of every entry of ``confusion_``.

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
        An entry of a Dirichlet of parameters a is Beta(a_k, sum(a) - a_k). Variational
        posteriors are, as a rule, narrower than the exact ones.
        """
        alpha = self.confusion_alpha_
        return beta_interval(alpha, alpha.sum(axis=2, keepdims=True) - alpha, level=level)


def confusion_prior(votes: Votes, diagonal: float, off_diagonal: float) -> FloatArray:
    """Dirichlet parameters of the prior of a confusion matrix, shape (C, K)."""
    identity = np.eye(votes.n_classes, votes.n_responses)
    return diagonal * identity + off_diagonal * (1 - identity)
