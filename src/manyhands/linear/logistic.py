"""Multinomial logistic regression on soft labels, for many sparse features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from manyhands.typing import FloatArray


class SoftLogistic(BaseEstimator):
    r"""Multinomial logistic regression on class probabilities.

    Minimises :math:`-\sum_n \sum_c t_{nc} \log p_c(x_n) + \|W\|^2 / (2 C)` by L-BFGS. The
    intercepts are not penalised.

    Parameters
    ----------
    C : float or sequence of float, default=(1, 4)
        Inverse strength of the penalty. Several values make as many `variants`; `fit` uses the
        first.
    max_iter : int, default=40
        Iterations of L-BFGS.
    warm_start : bool, default=True
        A second `fit` starts from the weights of the first.

    Attributes
    ----------
    coef_ : array of shape (n_features, n_classes)
    intercept_ : array of shape (n_classes,)
    """

    def __init__(
        self,
        C: float | Sequence[float] = (1.0, 4.0),
        *,
        max_iter: int = 40,
        warm_start: bool = True,
    ) -> None:
        self.C = C
        self.max_iter = max_iter
        self.warm_start = warm_start

    coef_: FloatArray
    intercept_: FloatArray

    def variants(self) -> list[Self]:
        """One unfitted copy for each C."""
        return [clone(self).set_params(C=float(C)) for C in np.atleast_1d(self.C)]

    def fit(self, X: Any, T: FloatArray) -> Self:
        """Fit to features (n, d), dense or sparse, and soft targets (n, n_classes)."""
        penalty = 1.0 / float(np.atleast_1d(self.C)[0])
        n_features, n_classes = X.shape[1], T.shape[1]
        mass = T.sum(axis=1, keepdims=True)

        def loss_and_gradient(values: FloatArray) -> tuple[float, FloatArray]:
            coef, intercept = _unpacked(values, n_features)
            log_proba = log_softmax(X @ coef + intercept, axis=1)
            away = mass * np.exp(log_proba) - T
            loss = 0.5 * penalty * (coef**2).sum() - (T * log_proba).sum()
            gradient = np.vstack([X.T @ away + penalty * coef, away.sum(axis=0)])
            return float(loss), gradient.ravel()

        start = np.zeros((n_features + 1, n_classes))
        known: FloatArray | None = getattr(self, "coef_", None)
        if self.warm_start and known is not None and known.shape == start[1:].shape:
            start = np.vstack([known, self.intercept_])
        options: Any = {"maxiter": self.max_iter}
        found = minimize(
            loss_and_gradient, start.ravel(), jac=True, method="L-BFGS-B", options=options
        )
        self.coef_, self.intercept_ = _unpacked(found.x, n_features)
        return self

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log class probabilities, shape (n, n_classes)."""
        check_is_fitted(self)
        return cast(FloatArray, log_softmax(X @ self.coef_ + self.intercept_, axis=1))


def _unpacked(values: FloatArray, n_features: int) -> tuple[FloatArray, FloatArray]:
    """Weights (n_features, n_classes) and intercepts (n_classes,) of a flat vector."""
    both = values.reshape(n_features + 1, -1)
    return both[:-1], both[-1]
