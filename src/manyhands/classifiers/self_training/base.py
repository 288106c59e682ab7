"""`BaseSelfTraining`: what the self-training classifiers share, in `fit` and afterwards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations.digests import InstanceDigests
from manyhands.classifiers.crowd_layer import CrowdLayerClassifier
from manyhands.classifiers.self_training.checks import check_parameters
from manyhands.classifiers.self_training.guard import Guard
from manyhands.classifiers.self_training.rounds import (
    Round,
    SelfTraining,
    one_more_round,
    run_rounds,
)
from manyhands.exceptions import all_or_nothing
from manyhands.fitting import continuing
from manyhands.fitting.context import Earlier, Watch
from manyhands.fitting.lost_classes import warn_of_lost_classes
from manyhands.fitting.parameters import refuse_classes
from manyhands.fitting.reading import read_target
from manyhands.fitting.scoring import score
from manyhands.sampling.selectors import Selector
from manyhands.training import History, joined
from manyhands.typing import AnyArray, FloatArray, IntArray


def _kept_estimator_has(method: str) -> Any:
    """Make a method available where the estimator of the kept round has it."""
    return available_if(lambda self: hasattr(getattr(self, "estimator_", None), method))


@dataclass(kw_only=True, eq=False, repr=False)
class BaseSelfTraining(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Base of classifiers that train another classifier in rounds.

    A subclass says what selects the annotations to add, in `_make_selector`. Once fitted, the
    classifier of the kept round predicts. Parameters and attributes are described in
    `SelfTrainingCrowdClassifier`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [None, HasMethods(["fit", "predict_annotation_proba"])],
        "annotator": [None, HasMethods(["fit", "predict_annotation_proba"])],
        "n_rounds": [Interval(Integral, 0, None, closed="left")],
        "n_select": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, None, closed="neither"),
            StrOptions({"all"}),
        ],
        "warm_start": ["boolean"],
        "guard": ["boolean", Interval(Real, 0, 1, closed="neither")],
        "guard_folds": [Interval(Integral, 2, None, closed="left")],
        "validation": [None, Interval(Real, 0, 1, closed="neither"), tuple, list],
        "patience": [None, Interval(Integral, 1, None, closed="left")],
        "checkpoint": [None, str, Path],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }
    _crowd_check_exemptions: ClassVar[Mapping[str, str]] = {
        "check_history": "a row is a round, not an epoch",
        "check_save_and_load": "what is saved, and loaded, is the classifier of the kept round",
        "check_every_parameter_moves": "that is for its estimator to show",
        "check_reweighting_balanced_annotations_changes_nothing": "added annotations change the "
        "balance",
    }

    estimator: Any = field(default=None, kw_only=False)
    annotator: Any = None
    n_rounds: int = 5
    n_select: int | float | str = 1.0
    warm_start: bool = False
    guard: bool | float = True
    guard_folds: int = 2
    validation: Any = None
    patience: int | None = None
    checkpoint: str | Path | None = None
    verbose: int = 0
    random_state: Any = None

    @abstractmethod
    def _make_selector(self) -> Selector:
        """Make the selector of one round."""

    def clone_estimator(self) -> Any:
        """Return an unfitted copy of ``estimator``."""
        return CrowdLayerClassifier() if self.estimator is None else clone(self.estimator)

    def fit(self, X: Any, y: Any, *, watch: Watch | None = None) -> Self:
        """Train, select, and train anew. A fit that fails leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, sparse matrix, tensor or map-style Dataset
        y : AnnotationTable, or array of shape (n_samples, n_annotators) with -1/NaN missing
        watch : Watch, optional
            Gold labels by which ``history_`` measures the rounds. They are handed on to
            estimators whose ``fit`` takes them.

        Raises
        ------
        AnnotationError
            For the reasons of the estimator's ``fit``; if ``patience`` has nothing to watch; if
            ``warm_start`` is asked of an estimator without weights to continue from; if there is
            an ``annotator`` and no round for the estimator.
        """
        with all_or_nothing(self), joined(self):
            refuse_classes(self)
            self._validate_params()
            check_parameters(self)
            table = read_target(X, y, type(self).__name__)
            watch = (watch or Watch()).over(X, table.n_instances)
            training = SelfTraining.of(self, X, table, watch)
            guard = Guard.of(self, training)
            kept = run_rounds(self, training, guard)
            guard.warn(type(self).__name__)
            training.unpredicted.warn(type(self).__name__)
            self._set_fitted(kept, training.history, guard.history)
            self.training_instances_ = InstanceDigests.of(y, table)
            if hasattr(self.estimator_, "predict"):
                warn_of_lost_classes(self.estimator_, X, table)
        return self

    partial_fit = continuing.partial_fit

    @property
    def _continue_refusal(self) -> str | None:
        estimator = vars(self).get("estimator_") or self.clone_estimator()
        return continuing.refusal_of("trains", [estimator])

    def _go_on(self, seen: continuing.Seen, earlier: Earlier, watch: Watch | None = None) -> None:
        """Let the kept round's estimator go on, and then have one more round."""
        refuse_classes(self)
        self._validate_params()
        check_parameters(self)
        training, kept = one_more_round(self, seen, earlier, watch or Watch())
        training.unpredicted.warn(type(self).__name__)
        self._set_fitted(kept, training.history, History())
        self.training_instances_ = InstanceDigests.of(seen.table, seen.table)
        warn_of_lost_classes(self.estimator_, seen.X, seen.table)

    def _check_shape(self, X: Any) -> None:
        self.estimator_._check_shape(X)

    def _set_fitted(self, kept: Round, history: History, guard_history: History) -> None:
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # Of an earlier fit.
        self.estimator_ = kept.estimator
        self.augmented_annotations_ = kept.table
        self.rounds_: IntArray = kept.rounds
        if self.validation is not None:
            self.best_round_ = kept.number
        self.history_ = history
        self.guard_history_ = guard_history
        self.classes_ = np.array(kept.table.classes)
        self.annotators_ = np.array(kept.table.annotators)
        self.n_annotators_ = kept.table.n_annotators
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(kept.estimator, name):
                setattr(self, name, getattr(kept.estimator, name))

    # -- the estimator of the kept round answers ------------------------------------------------

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of every true class, shape (n_samples, n_classes)."""
        check_is_fitted(self, "estimator_")
        return cast(FloatArray, self.estimator_.predict_proba(X))

    def predict(self, X: Any) -> AnyArray:
        """Most probable true class, shape (n_samples,), in the original class values."""
        check_is_fitted(self, "estimator_")
        return cast(AnyArray, self.estimator_.predict(X))

    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """Probability of every class as the annotation, (n_samples, n_annotators, n_classes)."""
        check_is_fitted(self, "estimator_")
        return cast(FloatArray, self.estimator_.predict_annotation_proba(X, annotators))

    @_kept_estimator_has("predict_observed_proba")  # type: ignore[untyped-decorator]
    def predict_observed_proba(self, X: Any, y: Any) -> FloatArray:
        """Probability of every class as each annotation of a table, (n_annotations, n_classes).

        Available if the estimator has the method.
        """
        return cast(FloatArray, self.estimator_.predict_observed_proba(X, y))

    score = score

    @_kept_estimator_has("annotation_log_likelihood")  # type: ignore[untyped-decorator]
    def annotation_log_likelihood(self, X: Any, y: Any) -> float:
        """Mean log likelihood, in nats, of the observed annotations.

        Available if the estimator has the method.
        """
        return float(self.estimator_.annotation_log_likelihood(X, y))

    def save(self, folder: str | Path) -> Path:
        """Write the classifier of the kept round. `manyhands.load` returns that classifier.

        Raises
        ------
        WriteError
            If the folder cannot be written.
        """
        check_is_fitted(self, "estimator_")
        return cast(Path, self.estimator_.save(folder))

    @_kept_estimator_has("transform")  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> FloatArray:
        """Embed instances. Available if the estimator has the method."""
        return cast(FloatArray, self.estimator_.transform(X))

    def __getattr__(self, name: str) -> Any:
        """Look up fitted attributes (``confusion_``, ``module_``, ...) in the kept estimator."""
        if name.endswith("_") and not name.startswith("_") and "estimator_" in vars(self):
            return getattr(self.estimator_, name)
        why = f": it {self._continue_refusal}" if name == "partial_fit" else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{why}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self.clone_estimator()).input_tags.sparse
        return tags
