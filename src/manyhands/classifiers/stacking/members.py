"""Members of a stack: log probabilities of training rows without their own target, and new rows.

A member is an object with

- ``fit(X, T)``: fit to features and soft targets T, shape (n, n_classes), whose rows sum to 1;
- ``predict_log_proba(X)``: log class probabilities, shape (m, n_classes).

It is cloned once per fold (so it needs ``get_params``; derive from `sklearn.base.BaseEstimator`),
and that clone is fitted again every round. Rounds keep shallow copies of it: ``fit`` must set new
attributes, not alter old arrays in place, or the copies of all rounds become the last one. The
folds' log probabilities of new rows are averaged. They may be -inf, but not for all classes of a
row, and neither NaN nor inf. Features are an array or a sparse matrix, even if the stack got a
frame. Three methods are optional:

- ``prepare(X)``: called once per fold before the first round, with the rows that every later
  ``fit`` gets. It keeps what needs no targets;
- ``fit_predict_loo(X, T)``: a list of options, each a tuple of log probabilities of the rows
  without their own target, and a fitted predictor with ``predict_log_proba``. It replaces the
  folds. ``prepare`` then gets all rows. The log probabilities are an array, or an object that
  computes those of the rows (a slice or integers) that it is indexed with;
- ``variants()``: a list of unfitted copies that differ in a parameter.

Of several options or variants, each round keeps the one under which the annotations are most
likely. Classifiers and regressors of scikit-learn, and networks, become members by `as_member`.
Classifiers get class codes 0 ... C-1, not your labels: a dict ``class_weight`` is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

import numpy as np
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from manyhands.classifiers.stacking.networks import SoftNetwork, is_backbone
from manyhands.classifiers.stacking.outputs import CheckedLogProba, check_log_proba, naming
from manyhands.exceptions import AnnotationError
from manyhands.fitting.reading import take_rows
from manyhands.linear.kernels import KernelMap
from manyhands.linear.ridge import RidgeValues, Streamed, log_of_values
from manyhands.typing import FloatArray, IntArray

LEAST_WEIGHT = 0.01
"""A classifier is not fitted to classes of an instance that are less probable."""

LEAST_LOG_PROBA = float(np.log(1e-6))
"""No classifier rules out a class."""

IMPOSSIBLE = -1e9
"""Stands for -inf in averages: folds that rule out different classes would leave none."""


class Option(NamedTuple):
    """One way to fit a member: what it says of each training row, and a predictor of new rows.

    The log probabilities, shape (n, n_classes), are an array, or an object that computes those of
    the rows that it is indexed with.
    """

    log_proba: Any
    predictor: Any


class AverageOfFolds:
    """Predicts new rows by the mean log probability of the models of all folds.

    Parameters
    ----------
    models : sequence of fitted members
    """

    def __init__(self, models: Sequence[Any]) -> None:
        self.models = list(models)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log class probabilities, shape (n, n_classes)."""
        total = sum(np.maximum(model.predict_log_proba(X), IMPOSSIBLE) for model in self.models)
        return cast(FloatArray, log_softmax(total / len(self.models), axis=1))


class Folded:
    """A member without closed-form leave-one-out predictions: fitted to all folds but one.

    Parameters
    ----------
    member : as in this module's description
    X : array of shape (n, ...)
    folds : integer array of shape (n,)
    name : str
        Named in errors.
    """

    def __init__(self, member: Any, X: Any, folds: IntArray, name: str) -> None:
        self.name = name
        self.inside = [np.flatnonzero(folds != k) for k in range(folds.max() + 1)]
        self.outside = [np.flatnonzero(folds == k) for k in range(folds.max() + 1)]
        self.X = X
        self.parts = [take_rows(X, rows) for rows in self.inside]
        self.models = [
            [_prepared(clone(variant), part) for part in self.parts]
            for variant in (member.variants() if hasattr(member, "variants") else [member])
        ]

    def options(self, T: FloatArray) -> list[Option]:
        """Fit every variant to targets T, shape (n, n_classes)."""
        with naming(self.name):
            return [self._option(place, T) for place in range(len(self.models))]

    def _option(self, place: int, T: FloatArray) -> Option:
        log_proba = np.empty(T.shape)
        fitted = []
        folds = zip(self.models[place], self.parts, self.inside, self.outside, strict=True)
        for model, part, inside, outside in folds:
            # A copy, as the next round fits the model again, from these weights or afresh.
            model.fit(part, T[inside])
            fitted.append(copy.copy(model))
            found = model.predict_log_proba(take_rows(self.X, outside))
            log_proba[outside] = check_log_proba(self.name, found, (len(outside), T.shape[1]))
        return Option(log_proba, AverageOfFolds(fitted))


class LeftOneOut:
    """A member with ``fit_predict_loo``.

    Parameters
    ----------
    member : as in this module's description
    X : array of shape (n, ...)
    name : str
        Named in errors.
    """

    def __init__(self, member: Any, X: Any, name: str) -> None:
        self.X, self.name = X, name
        self.model = _prepared(clone(member), X)

    def options(self, T: FloatArray) -> list[Option]:
        """Fit to targets T, shape (n, n_classes)."""
        with naming(self.name):
            return [
                Option(CheckedLogProba(self.name, log_proba, T.shape), predictor)
                for log_proba, predictor in self.model.fit_predict_loo(self.X, T)
            ]


def _as_array(Z: Any) -> Any:
    """What a view shows; a frame, which ``set_output`` may ask for, as an array."""
    return Z.to_numpy() if hasattr(Z, "columns") else Z


def _prepared(member: Any, X: Any) -> Any:
    if hasattr(member, "prepare"):
        member.prepare(X)
    return member


class SoftClassifier(BaseEstimator):
    """A scikit-learn classifier as a member: rows repeat per class, weighted by the targets.

    Parameters
    ----------
    classifier : classifier with ``predict_proba`` whose ``fit`` takes ``sample_weight``
    """

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def fit(self, X: Any, T: FloatArray) -> Self:
        """Fit to features (n, ...) and soft targets (n, n_classes)."""
        rows, codes = np.nonzero(T >= LEAST_WEIGHT)
        self.n_classes_ = T.shape[1]
        weight = T[rows, codes]
        if len(np.unique(codes)) < 2:
            raise AnnotationError(
                f"a fold gives the member {type(self.classifier).__name__} instances of one class "
                "only; annotate more instances, or give fewer n_folds"
            )
        name = "sample_weight"
        if hasattr(self.classifier, "steps"):
            name = f"{self.classifier.steps[-1][0]}__sample_weight"
        self.classifier_ = clone(self.classifier)
        self.classifier_.fit(take_rows(X, rows), codes, **{name: weight})
        return self

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log class probabilities, shape (n, n_classes); a class without targets has log 1e-6."""
        log_proba = np.full((X.shape[0], self.n_classes_), LEAST_LOG_PROBA)
        proba = np.maximum(self.classifier_.predict_proba(X), np.exp(LEAST_LOG_PROBA))
        log_proba[:, self.classifier_.classes_] = np.log(proba)
        return log_proba


class SoftRegressor(BaseEstimator):
    """A scikit-learn regressor of several outputs as a member: its values are probabilities.

    Parameters
    ----------
    regressor : regressor whose ``fit`` takes targets of shape (n, n_classes)
    """

    def __init__(self, regressor: Any) -> None:
        self.regressor = regressor

    def fit(self, X: Any, T: FloatArray) -> Self:
        """Fit to features (n, ...) and soft targets (n, n_classes)."""
        try:
            self.regressor_ = clone(self.regressor).fit(X, T - 1.0 / T.shape[1])
        except ValueError as error:
            # Some regressors around another one do not tell beforehand.
            if "1d array" not in str(error):
                raise
            raise AnnotationError(f"a member is a {_one_output(_last(self.regressor))}") from error
        return self

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log of the values, floored at .01, shape (n, n_classes)."""
        values = np.asarray(self.regressor_.predict(X), dtype=np.float64)
        return log_of_values(values.reshape(len(values), -1))


def as_member(name: str, estimator: Any) -> Any:
    """Make a member of an estimator: one with a member's methods, of scikit-learn, or a network.

    Raises
    ------
    AnnotationError
        If it is a class, or neither a member, nor a regressor of several outputs, nor a classifier
        with ``predict_proba`` and sample weights.
    """
    if isinstance(estimator, type):
        raise AnnotationError(
            f"member {name!r} is the class {estimator.__name__}; give an object, "
            f"{estimator.__name__}()"
        )
    if is_backbone(estimator):
        return SoftNetwork(estimator)
    tagged = hasattr(estimator, "__sklearn_tags__")
    if tagged and is_regressor(estimator):
        if not _takes_several_outputs(estimator):
            raise AnnotationError(f"member {name!r} is a {_one_output(_last(estimator))}")
        return SoftRegressor(estimator)
    if tagged and is_classifier(estimator):
        if hasattr(estimator, "predict_proba") and has_fit_parameter(
            _last(estimator), "sample_weight"
        ):
            return SoftClassifier(estimator)
    elif hasattr(estimator, "fit") and hasattr(estimator, "predict_log_proba"):
        if not hasattr(estimator, "get_params"):
            raise AnnotationError(
                f"member {name!r} is a {type(estimator).__name__} without get_params, so it cannot "
                "be cloned for the folds; derive its class from sklearn.base.BaseEstimator"
            )
        return estimator
    raise AnnotationError(
        f"member {name!r} is a {type(estimator).__name__}, which cannot learn soft targets; give a "
        "regressor, a classifier with predict_proba whose fit takes sample_weight, a network (or "
        "the name of a backbone), or an object with fit(X, T) and predict_log_proba(X)"
    )


def _last(estimator: Any) -> Any:
    """Last step of a pipeline, or the estimator itself."""
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator


def _takes_several_outputs(regressor: Any) -> bool:
    """Whether a regressor, or the one that it fits (as a grid search does), has several outputs."""
    last = _last(regressor)
    inner = getattr(last, "estimator", None)
    return bool(get_tags(last).target_tags.multi_output) or (
        hasattr(inner, "__sklearn_tags__") and _takes_several_outputs(inner)
    )


def _one_output(regressor: Any) -> str:
    kind = type(regressor).__name__
    given = "..." if hasattr(regressor, "estimator") else ""
    return (
        f"{kind}, which has one output and needs one per class; give "
        f"MultiOutputRegressor({kind}({given}))"
    )


def compacted(view: Any, predictors: list[Any]) -> tuple[Any, list[Any]]:
    """Replace linear functions of a kernel's features by equal ones of the kernel itself.

    A ridge on the features K W, K the kernel and W the whitening matrix, with coefficients B equals
    one on K with coefficients W B: that is kept, and W dropped.

    Parameters
    ----------
    view : transformer or None
    predictors : list
        Of all rounds.
    """
    steps = getattr(view, "steps", [])
    mapping = steps[-1][1] if steps else None
    if not isinstance(mapping, KernelMap) or not all(
        isinstance(each, RidgeValues) for each in predictors
    ):
        return view, predictors
    scalers = [step for _, step in steps[:-1]]
    values = [RidgeValues(mapping.whitening_ @ each.coef) for each in predictors]
    return make_pipeline(*scalers, mapping.without_whitening()), values


@dataclass(frozen=True)
class Member:
    """A named member and its view.

    Attributes
    ----------
    name : str
    estimator : as in this module's description
    view : transformer or None
        Fitted once to the features, without labels; None: the features as they are.
    streamed : bool
        Whether to compute what the view shows anew whenever it is read, rather than to keep it.
    """

    name: str
    estimator: Any
    view: Any = None
    streamed: bool = False

    def see(self, X: Any) -> Any:
        """Features as the member sees them."""
        return X if self.view is None else _as_array(self.view.transform(X))

    def fitted_on(self, X: Any, folds: IntArray) -> Folded | LeftOneOut:
        """Fit the view to rows X, and prepare for fits to what it shows."""
        with naming(self.name):
            if self.streamed:
                Z: Any = Streamed(X, self.view.fit(X))
            else:
                Z = X if self.view is None else _as_array(self.view.fit_transform(X))
            if hasattr(self.estimator, "fit_predict_loo"):
                return LeftOneOut(self.estimator, Z, self.name)
            return Folded(self.estimator, Z, folds, self.name)
