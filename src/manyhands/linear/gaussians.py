"""Discriminant analysis and a Gaussian mixture on soft labels; all classes share a covariance."""

from __future__ import annotations

from typing import Any, NamedTuple, Self, cast

import numpy as np
from scipy.linalg import solve
from scipy.special import log_softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from manyhands.records import record
from manyhands.typing import FloatArray

CLASS_MASS = 1e-3
"""Pseudo-count added to the mass of every class, so that no class is empty."""


class LinearScores(NamedTuple):
    """Return the log class probabilities up to a constant per instance: x'weight + bias."""

    weight: FloatArray
    bias: FloatArray


@record("SoftDiscriminant", "weight_", "bias_", "centre_")
class SoftDiscriminant(BaseEstimator):
    r"""Linear discriminant analysis on class probabilities.

    With :math:`n_c = \sum_n t_{nc}` and means :math:`M_c`, the pooled covariance S is shrunk to
    :math:`(1 - s) S + s \, \mathrm{tr}(S) / d \, I`, and
    :math:`\log p_c = x^\top S^{-1} M_c - \frac12 M_c^\top S^{-1} M_c + \log (n_c / n)`.

    Parameters
    ----------
    shrinkage : float, default=0.4
        The s above.

    Attributes
    ----------
    centre_ : array of shape (n_features,)
    weight_, bias_ : arrays of shape (n_features, n_classes) and (n_classes,)
    """

    def __init__(self, shrinkage: float = 0.4) -> None:
        self.shrinkage = shrinkage

    def fit(self, X: FloatArray, T: FloatArray) -> Self:
        """Fit to features (n, d) and soft targets (n, n_classes)."""
        self.centre_ = X.mean(axis=0)
        self.weight_, self.bias_ = gaussian_scores(X - self.centre_, T, self.shrinkage)
        return self

    def predict_log_proba(self, X: FloatArray) -> FloatArray:
        """Return the log class probabilities, shape (n, n_classes)."""
        check_is_fitted(self)
        scores = (X - self.centre_) @ self.weight_ + self.bias_
        return cast(FloatArray, log_softmax(scores, axis=1))


@record("TiedMixture", "weight_", "bias_", "centre_")
class TiedMixture(BaseEstimator):
    """A mixture of one Gaussian per class with one covariance, fitted by EM from soft labels.

    EM starts from the targets and then uses the features alone. The targets decide only where the
    means start, but they do, so predictions of the training rows are not out of fold.

    Parameters
    ----------
    n_steps : int, default=30
    shrinkage : float, default=0.1
        See `SoftDiscriminant`.

    Attributes
    ----------
    centre_, weight_, bias_
        See `SoftDiscriminant`.
    """

    def __init__(self, n_steps: int = 30, shrinkage: float = 0.1) -> None:
        self.n_steps = n_steps
        self.shrinkage = shrinkage

    def fit(self, X: FloatArray, T: FloatArray) -> Self:
        """Fit to features (n, d), starting from soft targets (n, n_classes)."""
        self._run(X, T)
        return self

    def fit_predict_loo(self, X: FloatArray, T: FloatArray) -> list[tuple[FloatArray, Any]]:
        """Return the log probabilities (n, n_classes) of the training rows, and the mixture."""
        mixture = type(self)(**self.get_params())
        return [(mixture._run(X, T), mixture)]

    def _run(self, X: FloatArray, T: FloatArray) -> FloatArray:
        self.centre_ = X.mean(axis=0)
        centred, share = X - self.centre_, T
        for _ in range(self.n_steps + 1):
            self.weight_, self.bias_ = gaussian_scores(centred, share, self.shrinkage)
            log_proba = log_softmax(centred @ self.weight_ + self.bias_, axis=1)
            share = np.exp(log_proba)
        return log_proba

    predict_log_proba = SoftDiscriminant.predict_log_proba


def gaussian_scores(X: FloatArray, T: FloatArray, shrinkage: float) -> LinearScores:
    """Return the M-step of Gaussian classes with one shrunken covariance, as linear scores.

    Parameters
    ----------
    X : array of shape (n, d)
        Centred.
    T : array of shape (n, n_classes)
    shrinkage : float
    """
    n, d = X.shape
    mass = T.sum(axis=0) + CLASS_MASS
    means = (X.T @ T / mass).astype(np.float64)
    within = ((X.T @ X) - (means * mass) @ means.T) / n
    level = max(np.trace(within) / d, np.finfo(np.float32).tiny)
    shrunk = (1 - shrinkage) * within + shrinkage * level * np.eye(d)
    weight = np.ascontiguousarray(solve(shrunk, means, assume_a="pos"))
    bias = np.log(mass / n) - 0.5 * (means * weight).sum(axis=0)
    return LinearScores(weight, bias)
