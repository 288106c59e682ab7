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
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple, Self, cast

import numpy as np
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.fitting.class_collapse import without_collapse_warnings
from manyhands.fitting.reading import take_rows
from manyhands.inference.probability import floored_log
from manyhands.linear.gaussians import SoftDiscriminant, TiedMixture
from manyhands.linear.kernels import ClippedScaler, KernelMap, NormalScores
from manyhands.linear.regression import SoftLogistic
from manyhands.linear.ridge import RidgeValues, SoftRidge, Streamed, log_of_values
from manyhands.records import record
from manyhands.training.seeding import draw_seed
from manyhands.typing import AnyArray, FloatArray, IntArray

LEAST_WEIGHT = 0.01
"""Least probability of a class of an instance to be a training row of a classifier."""

LEAST_LOG_PROBA = float(np.log(1e-6))
"""Floor of a classifier's log probabilities, so that no class is impossible."""

IMPOSSIBLE = -1e9
"""Replacement of -inf in averages; otherwise folds could exclude all classes together."""


record("Normalizer", "n_features_in_")(Normalizer)
record(
    "PCA", "components_", "mean_", "explained_variance_", "n_components_", "n_features_in_"
)(PCA)  # fmt: skip


class Option(NamedTuple):
    """One fitted variant of a member: predictions of training rows, and a predictor of new rows.

    The log probabilities, shape (n, n_classes), are an array, or an object that computes those of
    the rows that it is indexed with.
    """

    log_proba: Any
    predictor: Any


@record("AverageOfFolds")
@dataclass(frozen=True, eq=False)
class AverageOfFolds:
    """Predict new rows by the mean log probability of the models of all folds.

    Attributes
    ----------
    models : sequence of fitted members
    """

    models: Sequence[Any]

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the log class probabilities, shape (n, n_classes)."""
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
            # A copy, because the next round fits the model again.
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
    """Return the output of a view as an array, also if ``set_output`` makes it a frame."""
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
        """Fit to features (n, ...) and soft targets (n, n_classes).

        Raises
        ------
        AnnotationError
            If one class only has a target.
        """
        rows, codes = np.nonzero(T >= LEAST_WEIGHT)
        self.n_classes_ = T.shape[1]
        weight = T[rows, codes]
        if len(np.unique(codes)) < 2:
            raise AnnotationError(
                "a fold has instances of one class only for the member "
                f"{type(self.classifier).__name__}; annotate more instances, or use a smaller "
                "n_folds"
            )
        name = "sample_weight"
        if hasattr(self.classifier, "steps"):
            name = f"{self.classifier.steps[-1][0]}__sample_weight"
        self.classifier_ = clone(self.classifier)
        self.classifier_.fit(take_rows(X, rows), codes, **{name: weight})
        return self

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the log class probabilities, (n, n_classes); without targets, log 1e-6."""
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
        """Fit to features (n, ...) and soft targets (n, n_classes).

        Raises
        ------
        AnnotationError
            If the regressor has one output only.
        """
        try:
            self.regressor_ = clone(self.regressor).fit(X, T - 1.0 / T.shape[1])
        except ValueError as error:
            # For some regressors that wrap another one, this cannot be known before the fit.
            if "1d array" not in str(error):
                raise
            raise AnnotationError(f"a member is a {_one_output(_last(self.regressor))}") from error
        return self

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the log of the values, floored at .01, shape (n, n_classes)."""
        values = np.asarray(self.regressor_.predict(X), dtype=np.float64)
        return log_of_values(values.reshape(len(values), -1))


def as_member(name: str, estimator: Any) -> Any:
    """Convert an estimator to a member: an object with its methods, of scikit-learn, or a network.

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
    """Return the last step of a pipeline, or the estimator itself."""
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator


def _takes_several_outputs(regressor: Any) -> bool:
    """Return whether a regressor, or the one that it wraps, takes several outputs."""
    last = _last(regressor)
    inner = getattr(last, "estimator", None)
    return bool(get_tags(last).target_tags.multi_output) or (
        hasattr(inner, "__sklearn_tags__") and _takes_several_outputs(inner)
    )


def _one_output(regressor: Any) -> str:
    kind = type(regressor).__name__
    given = "..." if hasattr(regressor, "estimator") else ""
    return (
        f"{kind}, which has a single output instead of one per class; give "
        f"MultiOutputRegressor({kind}({given}))"
    )


def compacted(view: Any, predictors: list[Any]) -> tuple[Any, list[Any]]:
    """Replace linear functions of a kernel's features by equal ones of the kernel itself.

    A ridge regression on the features K W, with the kernel K, the whitening matrix W and the
    coefficients B, equals one on K with the coefficients W B. That one is kept, and W is dropped.

    Parameters
    ----------
    view : transformer or None
    predictors : list
        Of all rounds.

    Returns
    -------
    view, predictors : as given, if the view ends in no kernel or a predictor is not linear
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


@record("Member")
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
        Whether to compute the output of the view at every use instead of keeping it in memory.
    """

    name: str
    estimator: Any
    view: Any = None
    streamed: bool = False

    def see(self, X: Any) -> Any:
        """Return the features after the member's view."""
        return X if self.view is None else _as_array(self.view.transform(X))

    def fitted_on(self, X: Any, folds: IntArray) -> Folded | LeftOneOut:
        """Fit the view to rows X, and prepare for fits to its output."""
        with naming(self.name):
            if self.streamed:
                Z: Any = Streamed(X, self.view.fit(X))
            else:
                Z = X if self.view is None else _as_array(self.view.fit_transform(X))
            if hasattr(self.estimator, "fit_predict_loo"):
                return LeftOneOut(self.estimator, Z, self.name)
            return Folded(self.estimator, Z, folds, self.name)


# -- networks: trained by cross-entropy on soft targets (torch is imported by `fit`) --------------


FEWEST_EPOCHS, FEWEST_STEPS = 10, 200
"""Least numbers of epochs and of gradient steps of the first training."""

LATER = 4
"""Factor by which a training from the last round's weights has fewer epochs."""

PENALTY = 1.0
"""Lambda of the ridge on the embedding; fixed and large, because the embedding was trained on these
rows' targets."""

LEAST_TARGET = 1e-4
"""Least probability of a class of an instance to be in the targets."""


@record("SoftNetwork", "network_", "view_", "ridge_")
class SoftNetwork(BaseEstimator):
    """A network as a member of a stack.

    The first `fit` trains it from random weights. Later ones continue from its weights for a
    quarter of the epochs, because the targets change little from round to round and training is
    expensive.

    Parameters
    ----------
    backbone : nn.Module, str, dict or callable
        See `AggregatedClassifier`.
    ridge : bool, default=False
        Also fit kernel ridge regression to the embedding, and average its log probabilities with
        the network's.
    max_epochs : int or None, default=None
        Epochs of the first `fit`. None: 10, or more if needed for 200 gradient steps.
    random_state : int, RandomState or None

    Attributes
    ----------
    network_ : AggregatedClassifier
    view_ : Pipeline
        With ``ridge``: maps the embedding to the kernel's features.
    ridge_ : RidgeValues
        With ``ridge``.
    """

    def __init__(
        self,
        backbone: Any = "mlp",
        *,
        ridge: bool = False,
        max_epochs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.backbone = backbone
        self.ridge = ridge
        self.max_epochs = max_epochs
        self.random_state = random_state

    def fit(self, X: Any, T: FloatArray) -> Self:
        """Train on instances (n, ...) and soft targets (n, n_classes)."""
        try:
            from manyhands.classifiers.aggregated import AggregatedClassifier
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise_missing_extra("a network as a member of a stack", "torch", error)
        before = getattr(self, "network_", None)
        network = AggregatedClassifier(
            backbone=self.backbone, random_state=draw_seed(self.random_state)
        )
        steps = ceil(len(T) / network.batch_size)
        network.max_epochs = self.max_epochs or max(FEWEST_EPOCHS, ceil(FEWEST_STEPS / steps))
        if before is not None:
            network.max_epochs = ceil(network.max_epochs / LATER)
        with without_collapse_warnings():
            self.network_ = network.fit(X, targets_as_table(T), start=before)
        if self.ridge:
            self._fit_ridge(X, T)
        return self

    def _fit_ridge(self, X: Any, T: FloatArray) -> None:
        seed = draw_seed(self.random_state)
        self.view_ = make_pipeline(ClippedScaler(), KernelMap(random_state=seed))
        shown = self.view_.fit_transform(self.network_.transform(X))
        self.ridge_ = RidgeValues(SoftRidge([PENALTY]).fit(shown, T).coef_)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the log class probabilities, shape (n, n_classes)."""
        log_proba = floored_log(self.network_.predict_proba(X))
        if self.ridge:
            shown = self.view_.transform(self.network_.transform(X))
            log_proba = (log_proba + self.ridge_.predict_log_proba(shown)) / 2
        return log_softmax(log_proba, axis=1)


def targets_as_table(T: FloatArray) -> AnnotationTable:
    """Return annotations with the soft targets (n, n_classes) as vote shares.

    There is one annotator per class, who always gives that class, with the target as weight.
    """
    instance, code = np.nonzero(T >= LEAST_TARGET)
    return AnnotationTable.from_arrays(
        instance,
        code,
        code,
        n_instances=len(T),
        n_annotators=T.shape[1],
        classes=range(T.shape[1]),
        weight=T[instance, code],
    )


def is_backbone(estimator: Any) -> bool:
    """Return whether an object is a backbone: a name, a dict, or an nn.Module."""
    torch = sys.modules.get("torch")
    return isinstance(estimator, str | Mapping) or (
        torch is not None and isinstance(estimator, torch.nn.Module)
    )


# -- the members of ``members="auto"``, by the kind of features -----------------------------------


MANY_FEATURES = 2000
"""Number of dense features above which the quantile and Gaussian members are too expensive."""

MANY_ROWS = 50_000
"""Number of rows above which the Laplacian kernel, without matrix products, is too expensive."""

STREAMED_ROWS, STREAMED_LANDMARKS = 200_000, 400
"""Number of rows above which no member keeps the output of its view, and its most landmarks."""

MIXTURE_FEATURES = 20
"""Largest number of principal components for the mixture."""

LANDMARK_CELLS, FEW_LANDMARKS = 90_000_000, 100
"""A kernel has at most 90e6 / n landmarks (fewer than 1,200 above 75,000 rows), and at least
100."""


def automatic_members(X: Any, n_landmarks: int, random_state: int) -> list[Member]:
    """Return the members for dense or sparse features X of shape (n, d), or images."""
    if hasattr(X, "tocsr"):
        return [Member("logistic", SoftLogistic())]
    if X.ndim > 2:
        return [Member("network", SoftNetwork("cnn", ridge=True, random_state=random_state))]
    n, d = X.shape
    if n > STREAMED_ROWS:
        return _streamed_members(min(n_landmarks, STREAMED_LANDMARKS), random_state)
    landmarks = min(n_landmarks, max(LANDMARK_CELLS // n, FEW_LANDMARKS))

    def kernel(kind: Any, *scaler: Any) -> Any:
        mapping = KernelMap(kind, n_landmarks=landmarks, random_state=random_state)
        return make_pipeline(*scaler, mapping)

    members = [
        Member("rbf standardised", SoftRidge(), kernel("rbf", ClippedScaler())),
        Member("rbf directions", SoftRidge(), kernel("rbf", Normalizer())),
    ]
    if d > MANY_FEATURES:
        return members
    # The seed only draws the 10,000 rows from which quantiles are computed; because it is fixed,
    # both kernels get the same scores.
    members.append(
        Member("rbf normal scores", SoftRidge(), kernel("rbf", NormalScores(random_state=0)))
    )
    if n <= MANY_ROWS:
        scores = NormalScores(random_state=0)
        members.append(Member("laplacian normal scores", SoftRidge(), kernel("laplacian", scores)))
    few = make_pipeline(Normalizer(), PCA(min(MIXTURE_FEATURES, d, n), random_state=random_state))
    return [
        *members,
        Member("discriminant", SoftDiscriminant(), Normalizer()),
        Member("mixture", TiedMixture(), few),
    ]


def _streamed_members(n_landmarks: int, random_state: int) -> list[Member]:
    """Return the members that read the features batch by batch, without keeping them."""

    def ridge(name: str, *steps: Any) -> Member:
        return Member(name, SoftRidge(), make_pipeline(*steps), streamed=True)

    def kernel() -> KernelMap:
        return KernelMap(n_landmarks=n_landmarks, random_state=random_state)

    return [
        ridge("rbf standardised", ClippedScaler(), kernel()),
        ridge("rbf directions", Normalizer(), kernel()),
        ridge("linear", ClippedScaler()),
    ]


# -- checks of the members' predictions ------------------------------------------------------------


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Add the name of the member to exceptions of the block."""
    try:
        yield
    except Exception as error:
        error.add_note(f"Raised by member {name!r} of the stack.")
        raise


def check_log_proba(name: str, log_proba: Any, shape: tuple[int, int]) -> FloatArray:
    """Raise an error for log probabilities that a stack cannot use.

    Single classes may have -inf, but not all of a row.

    Parameters
    ----------
    name : str
        The member's.
    log_proba : array-like
    shape : (number of rows, number of classes)

    Returns
    -------
    array of shape (n_rows, n_classes)

    Raises
    ------
    AnnotationError
        If the shape or the type differs, values are NaN or infinite, a row rules out all classes,
        or they are probabilities.
    """
    given = np.asarray(log_proba)
    if given.shape != shape:
        raise AnnotationError(
            f"member {name!r} gave log probabilities of shape {given.shape} for {shape[0]} rows "
            f"and {shape[1]} classes; return an array of shape {shape}"
        )
    if given.dtype.kind not in "biuf":
        raise AnnotationError(
            f"member {name!r} gave log probabilities of type {given.dtype}; return numbers"
        )
    # NaN and infinity pass into the maximum, and so does -inf that leaves no class.
    if not (usable := np.isfinite(given.max(axis=1))).all():
        row = int(np.argmin(usable))
        raise AnnotationError(
            f"member {name!r} gave unusable log probabilities in {(~usable).sum()} of {shape[0]} "
            f"rows, such as {given[row].tolist()}; return finite ones (-inf only where another "
            "class is possible)"
        )
    if len(given) and given.min() >= 0 and np.allclose(given.sum(axis=1), 1.0):
        raise AnnotationError(
            f"member {name!r} gave probabilities, such as {given[0].tolist()}; "
            "predict_log_proba must return their logarithms"
        )
    return cast(FloatArray, given)


class CheckedLogProba:
    """Log probabilities of training rows, checked when they are read.

    Parameters
    ----------
    name : str
        The member's.
    log_proba : array of shape (n, n_classes), or what computes the rows that it is indexed with
    shape : (n, n_classes)
    """

    def __init__(self, name: str, log_proba: Any, shape: tuple[int, int]) -> None:
        if isinstance(log_proba, np.ndarray | list):
            log_proba = check_log_proba(name, log_proba, shape)
        self.name, self.log_proba, self.shape = name, log_proba, shape

    def __getitem__(self, rows: Any) -> FloatArray:
        """Return the log probabilities of rows (a slice or integers)."""
        found = self.log_proba[rows]
        if isinstance(self.log_proba, np.ndarray):
            return cast(FloatArray, found)
        asked: AnyArray = np.arange(self.shape[0])[rows]
        return check_log_proba(self.name, found, (len(asked), self.shape[1]))


# -- the parameter ``members``, checked before anything is fitted ---------------------------------


def check_members(members: Any) -> None:
    """Raise an error for members that are no tuples, share a name, or cannot learn soft targets."""
    names = []
    for entry in members:
        if not isinstance(entry, tuple | list) or len(entry) not in (2, 3):
            raise AnnotationError(
                f"members holds {entry!r}; give tuples (name, estimator) or (name, estimator, view)"
            )
        name, estimator, view = (*entry, None)[:3]
        refuse_unsaved(name, estimator)
        refuse_unsaved(name, view)
        as_member(name, estimator)
        _refuse_class_weights(name, estimator)
        if view is not None:
            _check_view(name, view)
        for part in (estimator, view):
            _refuse_columns_by_name(name, part)
        names.append(name)
    if not names or len(set(names)) < len(names):
        raise AnnotationError(
            f"members has the names {names}; give at least one member, each with its own name"
        )


def _check_view(name: str, view: Any) -> None:
    if isinstance(view, type) or not hasattr(view, "transform"):
        raise AnnotationError(
            f"the view of member {name!r} is {view!r}, which is not a transformer; give an object "
            "with fit and transform, such as StandardScaler(), or None"
        )
    if not hasattr(view, "get_params"):
        raise AnnotationError(
            f"the view of member {name!r} is a {type(view).__name__} without get_params, so it "
            "cannot be cloned; derive its class from sklearn.base.BaseEstimator"
        )


def _parameters(estimator: Any) -> dict[str, Any]:
    """Return all parameters within an estimator, such as those of a pipeline's steps."""
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        return {}
    return dict(estimator.get_params())


def _refuse_class_weights(name: str, estimator: Any) -> None:
    """Raise an error for weights by class, which would not match the codes that members get."""
    for parameter, value in _parameters(estimator).items():
        if parameter.rpartition("__")[2] == "class_weight" and isinstance(value, dict | list):
            raise AnnotationError(
                f"member {name!r} has {parameter}={value!r}, but members get the codes 0 to C - 1 "
                "of the classes, not your labels; leave it out or give 'balanced', and give the "
                "stack decision='balanced' or a matrix of costs"
            )


def _refuse_columns_by_name(name: str, estimator: Any) -> None:
    """Raise an error for a ColumnTransformer with column names, because members get arrays."""
    for part in (estimator, *_parameters(estimator).values()):
        for columns in _choices_of_columns(part):
            texts = [columns] if isinstance(columns, str) else columns
            if callable(columns) or any(isinstance(each, str) for each in texts):
                raise AnnotationError(
                    f"member {name!r} picks the columns {columns!r} of a frame, but members get "
                    "an array; give their places (0, 1, ...), or put the ColumnTransformer in "
                    "front of the stack: make_pipeline(ColumnTransformer(...), "
                    "CrowdStackingClassifier(members))"
                )


def _choices_of_columns(part: Any) -> Iterator[Any]:
    """Yield the column selections of a ColumnTransformer: positions, names, masks or functions."""
    for *_, columns in part.transformers if isinstance(part, ColumnTransformer) else ():
        if isinstance(columns, slice):
            yield [columns.start, columns.stop]
        else:
            yield columns if callable(columns) or hasattr(columns, "__iter__") else [columns]


@record("Unsaved")
class Unsaved(BaseEstimator):
    """Placeholder of a member that could not be saved: its stack predicts, but cannot be fitted.

    Parameters
    ----------
    kind : str
        Name of the member's class.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind


def refuse_unsaved(name: str, estimator: Any) -> None:
    """Raise an error before the fit of a member that could not be saved."""
    if isinstance(estimator, Unsaved):
        raise AnnotationError(
            f"member {name!r} was a {estimator.kind}, which save() could not describe, so that "
            "this loaded model can only predict; give its members anew before fitting: "
            "model.set_params(members=[...])"
        )
