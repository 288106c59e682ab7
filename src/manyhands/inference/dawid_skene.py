"""Dawid & Skene (1979): expectation maximisation over annotators' confusion matrices.

.. [1] A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using
   the EM algorithm. Journal of the Royal Statistical Society C 28(1), 1979.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any
from warnings import warn

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import NotIdentifiableWarning
from manyhands.inference.base import NON_NEGATIVE, BaseAggregator
from manyhands.inference.kernels import (
    confusion_counts,
    e_step,
    floored_log,
    log_dirichlet,
    normalise_rows,
    vote_matrix,
    vote_shares,
)
from manyhands.typing import FloatArray


class DawidSkene(BaseAggregator):
    """Infer true classes and one confusion matrix an annotator by EM, in log space.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the (penalised) log likelihood per annotation grows by less.
    confusion_prior : {"pooled", "diagonal", None}, default="pooled"
        Centre of a Dirichlet prior on every confusion row: what all annotators together do
        against the majority vote, or a diagonal of ``diagonal``; None is maximum likelihood, as
        published, which is worse than majority vote when annotators give few labels each.
    prior_strength : float, default=5.0
        Pseudo-annotations the prior is worth, in every row.
    diagonal : float in [0, 1], default=0.7
        Probability of a right annotation at the centre of the "diagonal" prior.
    class_prior : {"estimated", "uniform"}, default="estimated"
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" is "first" here,
        as the posterior is distributed already.
    random_state : int, RandomState or None
        For ``ties="random"``.

    Attributes
    ----------
    log_likelihood_ : array of shape (n_iter_,)
        Log likelihood plus log prior after every E-step; it never decreases.

    Notes
    -----
    Start: posterior = vote shares. The M-step adds the prior's pseudo-counts to the expected
    counts (its mode), so EM climbs the penalised likelihood.

    If no instance has two annotations, nothing tells a good annotator from a bad one: the labels
    are the annotations, with a `NotIdentifiableWarning`.

    References
    ----------
    Dawid & Skene (1979), JRSS C 28(1), Eq. 2.3-2.5.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import DawidSkene
    >>> A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 1], [1, 1, -1]])
    >>> DawidSkene().fit_predict(A)
    array([0, 1, 0, 1])
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [NON_NEGATIVE],
        "confusion_prior": [StrOptions({"pooled", "diagonal"}), None],
        "prior_strength": [NON_NEGATIVE],
        "diagonal": [Interval(Real, 0, 1, closed="both")],
        "class_prior": [StrOptions({"estimated", "uniform"})],
    }

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 1e-5,
        *,
        confusion_prior: str | None = "pooled",
        prior_strength: float = 5.0,
        diagonal: float = 0.7,
        class_prior: str = "estimated",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.confusion_prior = confusion_prior
        self.prior_strength = prior_strength
        self.diagonal = diagonal
        self.class_prior = class_prior
        self.ties = ties
        self.random_state = random_state

    def _infer(self, table: AnnotationTable, rng: np.random.RandomState) -> None:
        _warn_without_overlap(table)
        votes = vote_matrix(table)
        posterior = vote_shares(table)
        voted = table.annotations_per_instance() > 0
        pseudo_counts = self._pseudo_counts(confusion_counts(votes, posterior))
        total = max(float(table.weight.sum()), 1.0)
        history: list[float] = []
        for _ in range(self.max_iter):
            prior, confusion = self._m_step(
                confusion_counts(votes, posterior), posterior[voted], pseudo_counts
            )
            posterior, evidence = e_step(votes, floored_log(prior), floored_log(confusion))
            history.append(float(evidence[voted].sum()) + log_dirichlet(pseudo_counts, confusion))
            if len(history) > 1 and history[-1] - history[-2] < self.tol * total:
                break
        self.posterior_, self.class_prior_, self.confusion_ = posterior, prior, confusion
        self.log_likelihood_ = np.array(history)
        self.n_iter_ = len(history)

    def _m_step(
        self, counts: FloatArray, posterior: FloatArray, pseudo_counts: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Class prior (C,) and confusion matrices (R, C, C) that fit the expected counts."""
        n_classes = posterior.shape[1]
        if self.class_prior == "uniform":
            prior = np.full(n_classes, 1.0 / n_classes)
        else:
            prior = posterior.mean(axis=0)
        return prior, normalise_rows(counts + pseudo_counts)

    def _pseudo_counts(self, counts: FloatArray) -> FloatArray:
        """Dirichlet pseudo-counts of every confusion row, shape (C, C)."""
        n_classes = counts.shape[-1]
        identity = np.eye(n_classes)
        if self.confusion_prior is None:
            return np.zeros((n_classes, n_classes))
        if self.confusion_prior == "diagonal":
            off = (1.0 - self.diagonal) / (n_classes - 1)
            return self.prior_strength * (self.diagonal * identity + off * (1 - identity))
        # A class nobody chose still needs a row: one right pseudo-annotation, a tenth elsewhere.
        return self.prior_strength * normalise_rows(counts.sum(axis=0) + 0.1 + identity)


def _warn_without_overlap(table: AnnotationTable) -> None:
    if table.annotations_per_instance().max() < 2:
        warn(
            "no instance has two annotations, so annotators cannot be compared: their confusion "
            "matrices are the prior's guess",
            NotIdentifiableWarning,
            stacklevel=4,
        )
