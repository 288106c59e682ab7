"""Classifiers whose backbone is a network or any scikit-learn classifier."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.validation import has_fit_parameter

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode
from manyhands.exceptions import AnnotationError
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Earlier, Watch
from manyhands.fitting.prediction import GRID_ENTRIES
from manyhands.fitting.reading import (
    SET_WITH_FEATURES,
    as_fitted,
    check_learnable,
    forget_columns,
    read_target,
    refuse_text,
    set_vocabularies,
    take_over,
    warn_of_telling_columns,
)
from manyhands.fitting.recipe import Fitted, Recipe
from manyhands.fitting.run import annotator_attributes
from manyhands.fitting.scoring import find_annotators
from manyhands.inference.probability import floored_log
from manyhands.training import History
from manyhands.training.seeding import set_random_states
from manyhands.typing import FloatArray, IntArray


@dataclass(kw_only=True, eq=False, repr=False)
class SecondStageClassifier(BaseCrowdClassifier):
    """Base of classifiers that end in plain training on (weighted) labels.

    Either a network is trained, or a scikit-learn classifier given as ``backbone`` is fitted; a
    subclass fits the latter in `_fit_rows`.

    Attributes
    ----------
    estimator_ : scikit-learn classifier
        The second stage, if ``backbone`` is a scikit-learn classifier (there is then no
        ``module_``).
    """

    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "backbone": [
            *BaseCrowdClassifier._parameter_constraints["backbone"],
            HasMethods(["fit", "predict_proba"]),
        ],
    }

    @property
    def _second_stage(self) -> bool:
        """Whether ``backbone`` is a classifier with its own ``fit`` rather than a network."""
        return not isinstance(self._network, torch.nn.Module) and hasattr(self.backbone, "fit")

    @property
    def _trains_once(self) -> bool:
        return super()._trains_once and not self._second_stage

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self._second_stage:
            self._check_second_stage()

    def _check_second_stage(self) -> None:
        """Refuse parameters that apply only to networks."""
        name = type(self._network).__name__
        for parameter in ("validation", "checkpoint", "callbacks"):
            if getattr(self, parameter):
                raise AnnotationError(
                    f"{parameter} applies to networks; the second stage {name} is fitted by its "
                    f"own rules: leave {parameter} out"
                )
        if self._focus:
            raise AnnotationError(
                f"class_balance={self.class_balance!r} changes the loss of a network; the second "
                f"stage {name} has its own: use 'resample' or 'reweight'"
            )

    def _fit(
        self, X: Any, y: Any, watch: Watch, start: BaseCrowdClassifier | Earlier | None
    ) -> AnnotationTable:
        """Fit a network, or the scikit-learn classifier.

        The latter receives the rows of X unchanged (text, tables, gaps) and checks them itself.
        """
        if not self._second_stage:
            return super()._fit(X, y, watch, start)
        earlier = start if isinstance(start, Earlier) else None
        if start is not None and earlier is None:
            raise AnnotationError(
                f"start={type(start).__name__} gives weights to a network; the second stage "
                f"{type(self._network).__name__} has none: leave start out"
            )
        table = read_target(X, y, type(self).__name__)
        check_learnable(X, table)
        warn_of_telling_columns(X, table)
        X = as_fitted(self, X, reset=True)
        set_vocabularies(self, y, table)
        recipe = Recipe.of(self)
        try:
            found, belief = self._fit_rows(X, table, recipe, earlier)
        except ValueError as error:
            if "could not convert string to float" in str(error):
                refuse_text(self._network, X)
            raise
        confusion, shrinks = found.get("confusion_"), self._shrinks_confusions
        found |= annotator_attributes(confusion, table, belief, shrinks=shrinks)
        forget_columns(self)  # From an earlier fit.
        stage = found["estimator_"]
        seen = {name: getattr(stage, name) for name in SET_WITH_FEATURES if hasattr(stage, name)}
        take_over(self, Fitted(None, History(), {**seen, **found}).attributes())
        return table

    @abstractmethod
    def _fit_rows(
        self, X: Any, table: AnnotationTable, recipe: Recipe, earlier: Earlier | None
    ) -> tuple[dict[str, Any], FloatArray | None]:
        """Fit a clone of the scikit-learn classifier.

        Returns
        -------
        found : dict
            Fitted attributes by name, ``estimator_`` among them.
        belief : array of shape (n_instances, n_classes) or None
            The inferred classes, by which annotators are pooled.
        """

    def _check_shape(self, X: Any) -> None:
        if self._second_stage:
            as_fitted(self, X, reset=False)
        else:
            super()._check_shape(X)

    def _clone_backbone(self, rng: np.random.Generator) -> Any:
        return set_random_states(clone(self._network, safe=False), rng)

    def _fit_weighted(
        self, estimator: BaseEstimator, X: Any, weights: FloatArray, reason: str
    ) -> BaseEstimator:
        """Fit on one row per instance and class, with weights (n, n_classes); 0 adds no row.

        Raises
        ------
        AnnotationError
            If the estimator takes no weights; ``reason`` says what needs them and what to do.
        """
        rows, columns = np.nonzero(weights)
        sample_weight = {_weight_parameter(estimator, reason): weights[rows, columns]}
        return estimator.fit(_safe_indexing(X, rows), self.classes_[columns], **sample_weight)

    # -- prediction by a scikit-learn classifier ------------------------------------------------

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of every true class, shape (n_samples, n_classes); rows sum to 1."""
        if not hasattr(self, "estimator_"):
            return super().predict_proba(X)
        given = self.estimator_.predict_proba(as_fitted(self, X, reset=False))
        # The second stage may not have seen every class.
        proba = np.zeros((len(given), len(self.classes_)))
        seen, _ = encode(
            self.estimator_.classes_, self.classes_, argument="classes", vocabulary_name="classes_"
        )
        proba[:, seen] = given
        # The probabilities of single-precision estimators sum to 1 only up to rounding.
        return cast(FloatArray, proba / proba.sum(axis=1, keepdims=True))

    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """Probability of every class as the annotation, (n_samples, n_annotators, n_classes).

        See `BaseCrowdClassifier.predict_annotation_proba`. With a scikit-learn classifier it is
        p(x) times each annotator's confusion matrix, or p(x) itself if there is none.
        """
        if not hasattr(self, "estimator_"):
            return super().predict_annotation_proba(X, annotators)
        proba = self.predict_proba(X).astype(np.float32)
        chosen = find_annotators(self.annotators_, annotators, "annotators")
        if not hasattr(self, "confusion_"):
            return np.repeat(proba[:, None], len(chosen), axis=1)
        confusion = self._confusions_with_pooled[chosen].astype(np.float32)
        return cast(FloatArray, np.einsum("nc,rcg->nrg", proba, confusion))

    @property
    def _confusions_with_pooled(self) -> FloatArray:
        """Confusion matrices, followed by that of a new annotator (at code -1)."""
        return np.concatenate([self.confusion_, self.pooled_confusion_[None]])

    def _observed_log_proba(
        self, X: Any, table: AnnotationTable, annotators: IntArray
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        if not hasattr(self, "estimator_"):
            yield from super()._observed_log_proba(X, table, annotators)
            return
        proba = self.predict_proba(X)
        size = max(1, GRID_ENTRIES // len(self.classes_) ** 2)
        for start in range(0, table.n_annotations, size):
            rows = np.arange(start, min(start + size, table.n_annotations))
            given = proba[table.instance[rows]]
            if hasattr(self, "confusion_"):
                confusion = self._confusions_with_pooled[annotators[rows]]
                given = (given[:, None] @ confusion)[:, 0]
            yield rows, floored_log(given)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_") or hasattr(self, "estimator_")


def _weight_parameter(estimator: BaseEstimator, reason: str) -> str:
    """Name of the parameter of ``fit`` for one weight per row.

    Raises
    ------
    AnnotationError
        If it takes none.
    """
    steps = getattr(estimator, "steps", None)
    last, prefix = (steps[-1][1], f"{steps[-1][0]}__") if steps else (estimator, "")
    if not has_fit_parameter(last, "sample_weight"):
        raise AnnotationError(f"{type(last).__name__} takes no sample_weight, which {reason}")
    return f"{prefix}sample_weight"
