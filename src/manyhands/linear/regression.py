"""Logistic regression on inferred or soft labels."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, Self, cast
from warnings import catch_warnings, simplefilter

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from manyhands.exceptions import AnnotationError, all_or_nothing
from manyhands.inference.probability import floored_log
from manyhands.records import record
from manyhands.typing import AnyArray, FloatArray, IntArray

STRENGTHS = np.logspace(-4, 4, 9)
"""Values of C tried first, NeuCrowd's range; then half a step to either side of the best."""

HALF_STEP = 10**0.5
"""Factor between the best of `STRENGTHS` and the two values that are tried afterwards."""

SEARCH_MARGIN = 10**1.5
"""The search ends at values of C more than this factor above the best so far."""

UNSEEN_LOGIT = -30.0
"""Logit of a class without any target."""

FALLBACK_C = 1.0
"""C if there is a single instance, which cannot be held out for validation."""

PROBA_FLOOR = 1e-6
"""Added to every class's probability, for classes that a fold's regression has not seen."""


class Regression(NamedTuple):
    """A fitted regression: weights (n_classes, d), biases (n_classes,), C, and iterations."""

    weight: FloatArray
    bias: FloatArray
    C: float
    n_iter: int = 0


def fit_regression(
    Z: FloatArray,
    targets: FloatArray,
    C: float | str = "cv",
    *,
    n_folds: int = 5,
    rng: np.random.Generator | None = None,
    max_iter: int = 1000,
) -> Regression:
    """Fit a multinomial logistic regression on soft targets.

    Parameters
    ----------
    Z : array of shape (n, d)
    targets : array of shape (n, n_classes)
        Class probabilities times the weight of the instance.
    C : float or "cv", default="cv"
        Inverse strength of the L2 penalty. "cv" chooses it by cross-validation, as the value under
        which the targets of held-out instances are most probable: first among `STRENGTHS`, then
        half a step to either side of the best. All targets of an instance are held out together.
    n_folds : int, default=5
    rng : numpy Generator, optional
        Seed of the folds.
    max_iter : int

    Returns
    -------
    Regression
        A class without targets has weights of 0 and the bias `UNSEEN_LOGIT`.
    """
    if C == "cv":
        C = _choose_C(Z, targets, n_folds, rng or np.random.default_rng(0), max_iter)
    return _fit(Z, targets, float(C), max_iter)


def _fit(Z: FloatArray, targets: FloatArray, C: float, max_iter: int) -> Regression:
    rows, classes = np.nonzero(targets)
    seen = np.unique(classes)
    weight = np.zeros((targets.shape[1], Z.shape[1]))
    bias = np.full(targets.shape[1], UNSEEN_LOGIT)
    if len(seen) == 1:
        bias[seen] = 0.0
        return Regression(weight, bias, C)
    model = LogisticRegression(C=C, max_iter=max_iter)
    model.fit(Z[rows], classes, sample_weight=targets[rows, classes])
    coef, intercept = model.coef_, model.intercept_
    if len(seen) == 2:  # For two classes scikit-learn keeps only the logit of the second.
        coef, intercept = np.concatenate([-coef, coef]) / 2, np.append(-intercept, intercept) / 2
    weight[seen], bias[seen] = coef, intercept
    return Regression(weight, bias, C, int(model.n_iter_.max()))


def _choose_C(
    Z: FloatArray, targets: FloatArray, n_folds: int, rng: np.random.Generator, max_iter: int
) -> float:
    if len(Z) < 2:
        return FALLBACK_C
    folds = _folds(targets.argmax(axis=1), min(n_folds, len(Z)), rng)
    tried: dict[float, float] = {}

    def loss(C: float) -> float:
        if C not in tried:
            parts = [(folds != k, folds == k) for k in range(folds.max() + 1)]
            tried[C] = sum(
                _nll(_fit(Z[train], targets[train], C, max_iter), Z[held_out], targets[held_out])
                for train, held_out in parts
            )
        return tried[C]

    with catch_warnings():
        # The solver may not converge under the weakest penalties; only the chosen C may warn.
        simplefilter("ignore", ConvergenceWarning)
        best = STRENGTHS[0]
        for C in STRENGTHS:
            if loss(C) < loss(best):
                best = C
            # Above the best C the loss only rises, and weak penalties take the longest to fit.
            elif best * SEARCH_MARGIN < C:
                break
        candidates = np.clip((best / HALF_STEP, best, best * HALF_STEP), *STRENGTHS[[0, -1]])
        return float(min(candidates, key=loss))


def _folds(labels: IntArray, n_folds: int, rng: np.random.Generator) -> IntArray:
    """Return the fold of every instance: random, with every class spread evenly over the folds."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), dtype=np.int64)
    folds[order] = np.arange(len(labels)) % n_folds
    return folds


def _nll(regression: Regression, Z: FloatArray, targets: FloatArray) -> float:
    proba = regression_proba(regression, Z) + PROBA_FLOOR
    return float(-(targets * floored_log(proba / proba.sum(axis=1, keepdims=True))).sum())


def regression_proba(regression: Regression, Z: FloatArray) -> FloatArray:
    """Return the class probabilities, shape (n, n_classes)."""
    logits = Z @ regression.weight.T + regression.bias
    proba = np.exp(logits - logits.max(axis=1, keepdims=True))
    return cast(FloatArray, proba / proba.sum(axis=1, keepdims=True))


@record(
    "TunedLogisticRegression", "classes_", "C_", "coef_", "intercept_", "n_iter_", "mean_",
    "scale_", "n_features_in_", "feature_names_in_",
)  # fmt: skip
class TunedLogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression for weighted, repeated rows, with C chosen by cross-validation.

    A scikit-learn classifier to use as the ``backbone`` of `AggregatedClassifier` and
    `SoftProbClassifier`. Both repeat an instance once per class, weighted by the class. Here, equal
    consecutive rows are one instance and stay together in cross-validation.
    `sklearn.linear_model.LogisticRegressionCV` separates them and chooses too weak a penalty.

    Parameters
    ----------
    C : float or "cv", default="cv"
        Inverse strength of the L2 penalty. "cv" chooses the value from 1e-4 to 1e4 under which
        the labels of held-out instances are most probable. (Choosing by agreement with them is no
        better: ``docs/results/regression_strength.md``.)
    cv : int, default=5
        Number of folds.
    standardize : bool, default=True
        Give every feature mean 0 and standard deviation 1.
    max_iter : int, default=1000
        Maximum number of iterations of the solver (L-BFGS).
    random_state : int, RandomState or None
        Seed of the folds.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    C_ : float
        The inverse strength used.
    coef_ : array of shape (n_classes, n_features)
    intercept_ : array of shape (n_classes,)
    mean_, scale_ : arrays of shape (n_features,)
        Mean that is subtracted from every feature, and scale by which the difference is divided.
    n_iter_ : int
        Number of iterations of the solver.

    Examples
    --------
    >>> from manyhands import SoftProbClassifier, load_demo
    >>> from manyhands.linear import TunedLogisticRegression
    >>> demo = load_demo()
    >>> model = SoftProbClassifier(TunedLogisticRegression(C=0.1))
    >>> model.fit(demo.X_train, demo.annotations).estimator_.C_
    0.1
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "C": [StrOptions({"cv"}), Interval(Real, 0, None, closed="neither")],
        "cv": [Interval(Integral, 2, None, closed="left")],
        "standardize": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        C: float | str = "cv",
        cv: int = 5,
        standardize: bool = True,
        max_iter: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.cv = cv
        self.standardize = standardize
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit on labels. A fit that fails leaves the classifier as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_rows, n_features)
        y : array of shape (n_rows,)
        sample_weight : array of shape (n_rows,), optional
            A row of weight 0 is ignored.

        Raises
        ------
        AnnotationError
            If there is only one class, or all weights are 0.
        """
        self._validate_params()
        with all_or_nothing(self):
            self._refit(X, y, sample_weight)
        return self

    def _refit(self, X: Any, y: Any, sample_weight: Any) -> None:
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr")
        X = _dense(X)
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise AnnotationError(
                f"y holds one class only, {self.classes_[0].item()!r}; a classifier needs two"
            )
        X, codes, weight = X[weight > 0], codes[weight > 0], weight[weight > 0]
        if not len(X):
            raise AnnotationError(
                "sample_weight is 0 everywhere; give at least one row a positive weight"
            )
        first = np.append(True, (X[1:] != X[:-1]).any(axis=1))
        instance = np.cumsum(first) - 1
        targets = np.zeros((int(first.sum()), len(self.classes_)))
        np.add.at(targets, (instance, codes), weight)
        d = X.shape[1]
        self.mean_, self.scale_ = np.zeros(d), np.ones(d)
        if self.standardize:
            scaler = StandardScaler().fit(X[first])
            self.mean_, self.scale_ = scaler.mean_, scaler.scale_
        Z = self._scaled(X[first])
        rng = np.random.default_rng(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        self.coef_, self.intercept_, self.C_, self.n_iter_ = fit_regression(
            Z, targets, self.C, n_folds=self.cv, rng=rng, max_iter=self.max_iter
        )

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of every class, shape (n_rows, n_classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr")
        Z = self._scaled(_dense(X))
        return regression_proba(Regression(self.coef_, self.intercept_, self.C_), Z)

    def _scaled(self, X: FloatArray) -> FloatArray:
        return (X - self.mean_) / self.scale_

    def predict(self, X: Any) -> AnyArray:
        """Return the most probable class of every row, shape (n_rows,)."""
        proba = self.predict_proba(X)
        labels: AnyArray = self.classes_[proba.argmax(axis=1)]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _dense(X: Any) -> FloatArray:
    return cast(FloatArray, X.toarray() if hasattr(X, "toarray") else X)


@record("SoftLogistic", "coef_", "intercept_")
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
        """Return one unfitted copy for each C."""
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
        """Return the log class probabilities, shape (n, n_classes)."""
        check_is_fitted(self)
        return cast(FloatArray, log_softmax(X @ self.coef_ + self.intercept_, axis=1))


def _unpacked(values: FloatArray, n_features: int) -> tuple[FloatArray, FloatArray]:
    """Return the weights (n_features, n_classes) and intercepts (n_classes,) of a flat vector."""
    both = values.reshape(n_features + 1, -1)
    return both[:-1], both[-1]
