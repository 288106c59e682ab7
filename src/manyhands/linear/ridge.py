"""Ridge regression on soft labels, with its leave-one-out predictions in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
from scipy.linalg import eigh
from sklearn.base import BaseEstimator
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from manyhands.records import record
from manyhands.typing import FloatArray

STRENGTHS = (0.03, 0.1, 0.3, 1.0)
"""Default penalties of `SoftRidge`."""

LEAST_VALUE, LEAST_SHARE = 0.01, 0.1
"""Predicted values are probabilities, so they are raised to at least min(.01, .1 / n_classes)."""

RELATIVE_RANK = 1e-9
"""Directions whose eigenvalue is a smaller share of the largest are rounding noise."""

LEAST_LEFT_OUT = 1e-6
"""Floor of 1 minus the leverage, which divides leave-one-out predictions."""

ROWS_AT_ONCE = 8192
"""Number of rows that are computed at once, which bounds memory."""


@record("RidgeValues")
class RidgeValues(BaseEstimator):
    """A fitted regression: log class probabilities are linear values, floored.

    Parameters
    ----------
    coef : array of shape (n_features, n_classes)
    """

    def __init__(self, coef: FloatArray) -> None:
        self.coef = coef

    def predict_log_proba(self, X: FloatArray) -> FloatArray:
        """Return the log class probabilities, see `log_of_values`; shape (n, n_classes)."""
        # In double precision: sums of many large terms would depend on the number of rows.
        return log_of_values(X.astype(np.float64, copy=False) @ self.coef)


class LeaveOneOut:
    """Leave-one-out log probabilities, computed only for requested rows.

    Parameters
    ----------
    X : array of shape (n, d), or `Streamed`
    centred : array of shape (n, n_classes)
        Soft targets minus 1 / n_classes.
    coef : array of shape (d, n_classes)
    leverage : array of shape (n,)
    """

    def __init__(self, X: Any, centred: FloatArray, coef: FloatArray, leverage: FloatArray) -> None:
        self.X, self.centred, self.coef, self.leverage = X, centred, coef, leverage

    def __getitem__(self, rows: Any) -> FloatArray:
        """Return the log probabilities of rows (a slice or integers), shape (m, n_classes)."""
        own = self.leverage[rows, None]
        fitted = self.X[rows] @ self.coef.astype(self.X.dtype, copy=False)
        return log_of_values(
            (fitted - own * self.centred[rows]) / np.maximum(1 - own, LEAST_LEFT_OUT)
        )


class Streamed:
    """Features of shape (n, d), computed from X by a fitted transformer when rows are read.

    Parameters
    ----------
    X : array of shape (n, ...)
    view : fitted transformer
    """

    dtype = np.dtype(np.float32)

    def __init__(self, X: Any, view: Any) -> None:
        self.X, self.view = X, view
        self.shape = (len(X), self[:1].shape[1])

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, rows: Any) -> FloatArray:
        return cast(FloatArray, self.view.transform(self.X[rows]).astype(self.dtype, copy=False))


@record("SoftRidge")
class SoftRidge(BaseEstimator):
    r"""Ridge regression on class probabilities, with exact leave-one-out predictions.

    On features :math:`\Phi = U \mathrm{diag}(\sqrt w) V^\top` and targets :math:`Y = T - 1/C`, the
    fitted values are :math:`F = U \mathrm{diag}(w / (w + \lambda)) U^\top Y`, the leverages
    :math:`h_i = \sum_j U_{ij}^2 w_j / (w_j + \lambda)`, and the values without an instance's own
    target :math:`(F_i - h_i Y_i) / (1 - h_i)`. With the features of a
    `manyhands.linear.kernels.KernelMap` this is kernel ridge regression. Features are read batch by
    batch, so they may be `Streamed`.

    Parameters
    ----------
    strengths : sequence of float, default=(.03, .1, .3, 1)
        Values of :math:`\lambda`. `fit_predict_loo` gives an option for each; `fit` uses the first.

    Attributes
    ----------
    coef_ : array of shape (n_features, n_classes)
    """

    def __init__(self, strengths: Sequence[float] = STRENGTHS) -> None:
        self.strengths = strengths

    def prepare(self, X: Any) -> Self:
        """Decompose features of shape (n, d) once, for all later targets."""
        values, vectors = eigh(_gram(X))
        kept = values > RELATIVE_RANK * values[-1]
        self.values_, self.vectors_ = values[kept], vectors[:, kept]
        shrinkage = [self.values_ / (self.values_ + strength) for strength in self.strengths]
        per_direction = np.stack(shrinkage, axis=1) / self.values_[:, None]
        self.leverages_ = np.empty((len(X), len(self.strengths)))
        rotation = self.vectors_.astype(X.dtype, copy=False)
        for rows in gen_batches(len(X), ROWS_AT_ONCE):
            self.leverages_[rows] = np.square(X[rows] @ rotation) @ per_direction
        return self

    def fit(self, X: FloatArray, T: FloatArray) -> Self:
        """Fit to features (n, d) and soft targets (n, n_classes)."""
        self.prepare(X)
        self.coef_ = self._coefs(X, T)[0]
        return self

    def predict_log_proba(self, X: FloatArray) -> FloatArray:
        """Return the log class probabilities, shape (n, n_classes)."""
        check_is_fitted(self, "coef_")
        return RidgeValues(self.coef_).predict_log_proba(X)

    def fit_predict_loo(self, X: Any, T: FloatArray) -> list[tuple[LeaveOneOut, RidgeValues]]:
        """Return the leave-one-out log probabilities and a fitted regression for each strength.

        `prepare` must have been called with the same X.
        """
        centred = T - 1.0 / T.shape[1]
        return [
            (LeaveOneOut(X, centred, coef, leverage), RidgeValues(coef))
            for coef, leverage in zip(self._coefs(X, T), self.leverages_.T, strict=True)
        ]

    def _coefs(self, X: Any, T: FloatArray) -> list[FloatArray]:
        centred = (T - 1.0 / T.shape[1]).astype(X.dtype, copy=False)
        product = np.zeros((X.shape[1], T.shape[1]))
        for rows in gen_batches(len(X), ROWS_AT_ONCE):
            product += X[rows].T @ centred[rows]
        projected = self.vectors_.T @ product
        return [
            np.ascontiguousarray(self.vectors_ @ (projected / (self.values_ + strength)[:, None]))
            for strength in self.strengths
        ]


def log_of_values(values: FloatArray) -> FloatArray:
    """Return log max(value + 1 / n_classes, floor) in double precision; see `LEAST_VALUE`."""
    even = 1.0 / values.shape[1]
    raised = np.maximum(values + even, min(LEAST_VALUE, LEAST_SHARE * even))
    return cast(FloatArray, np.log(raised, dtype=np.float64))


def _gram(X: Any) -> FloatArray:
    """Return X'X in double precision, summed over batches."""
    total = np.zeros((X.shape[1], X.shape[1]))
    for rows in gen_batches(len(X), ROWS_AT_ONCE):
        part = X[rows]
        total += part.T @ part
    return total
