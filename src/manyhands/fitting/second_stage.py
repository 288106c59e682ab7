"""Classifiers whose backbone is a network or any scikit-learn classifier."""

from __future__ import annotations

from abc import abstractmethod
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
from manyhands.annotations.target import Target
from manyhands.exceptions import AnnotationError
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Earlier, Watch
from manyhands.fitting.fitted import SET_WITH_FEATURES, Fitted, take_over
from manyhands.fitting.prediction import confusions_with_pooled
from manyhands.fitting.reading import (
    as_fitted,
    check_leakage,
    check_learnable,
    forget_columns,
    read_target,
    refuse_text,
    set_vocabularies,
)
from manyhands.fitting.recipe import Recipe
from manyhands.fitting.run import annotator_attributes
from manyhands.fitting.scoring import find_annotators
from manyhands.fitting.traits import Traits
from manyhands.records import record_of
from manyhands.training import History
from manyhands.training.seeding import set_random_states
from manyhands.typing import FloatArray, Instances


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
    def _traits(self) -> Traits:
        given = getattr(self, "backbone", None)
        is_rows = hasattr(given, "fit") and not isinstance(given, torch.nn.Module)
        focal = "changes the loss of a network, and the backbone "
        focal += f"{type(given).__name__} has a loss of its own; use 'resample' or 'reweight'"
        unsaved = f"the backbone {type(given).__name__} is a scikit-learn estimator, which "
        unsaved += "save() cannot write without pickle; save it with skops or joblib, or use a "
        unsaved += "network, or manyhands.linear.TunedLogisticRegression(), as backbone"
        is_ours = is_rows and record_of(given) is not None
        return Traits(
            second_stage=is_rows,
            trains_once=not is_rows,
            focal_refusal=focal if is_rows else None,
            saved=(*Traits().saved, *(("estimator_",) if is_ours else ())),
            save_refusal=unsaved if is_rows and not is_ours else None,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self._traits.second_stage:
            self._check_second_stage()

    def _check_second_stage(self) -> None:
        """Raise an error for parameters that apply only to networks."""
        name = type(self._network).__name__
        for parameter in ("validation", "checkpoint", "callbacks"):
            if getattr(self, parameter):
                raise AnnotationError(
                    f"{parameter} is for training a network, but the backbone {name} is a "
                    f"scikit-learn classifier, which has its own fit; leave {parameter} out"
                )

    def _fit(
        self, X: Instances, y: Target, watch: Watch, start: BaseCrowdClassifier | Earlier | None
    ) -> AnnotationTable:
        """Fit the scikit-learn classifier, if that is the ``backbone``; else train the network.

        It receives the rows of X unchanged (text, tables, gaps) and checks them itself.
        """
        if not self._traits.second_stage:
            return super()._fit(X, y, watch, start)
        earlier = start if isinstance(start, Earlier) else None
        if start is not None and earlier is None:
            raise AnnotationError(
                f"start={type(start).__name__} gives the weights of a network, but the backbone "
                f"{type(self._network).__name__} is a scikit-learn classifier, which has none to "
                "start from; leave start out"
            )
        table = read_target(X, y, type(self).__name__)
        check_learnable(X, table)
        check_leakage(X, table)
        X = as_fitted(self, X, reset=True)
        set_vocabularies(self, y, table)
        try:
            found, belief = self._fit_rows(X, table, Recipe.of(self), earlier)
        except ValueError as error:
            if "could not convert string to float" in str(error):
                refuse_text(self._network, X)
            raise
        confusion, shrinks = found.get("confusion_"), self._traits.shrinks_confusions
        found |= annotator_attributes(confusion, table, belief, shrinks=shrinks)
        forget_columns(self)  # From an earlier fit.
        stage = found["estimator_"]
        seen = {name: getattr(stage, name) for name in SET_WITH_FEATURES if hasattr(stage, name)}
        take_over(self, Fitted(None, History(), {**seen, **found}).attributes())
        return table

    @abstractmethod
    def _fit_rows(
        self, X: Instances, table: AnnotationTable, recipe: Recipe, earlier: Earlier | None
    ) -> tuple[dict[str, Any], FloatArray | None]:
        """Fit a clone of the scikit-learn classifier.

        Returns
        -------
        found : dict
            Fitted attributes by name, ``estimator_`` among them.
        belief : array of shape (n_instances, n_classes) or None
            The inferred classes, used to pool the annotators' confusion matrices.
        """

    def _clone_backbone(self, rng: np.random.Generator) -> Any:
        return set_random_states(clone(self._network, safe=False), rng)

    def _fit_weighted(
        self, estimator: BaseEstimator, X: Instances, weights: FloatArray, reason: str
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

    def predict_proba(self, X: Instances) -> FloatArray:
        """Return the probability of every true class, (n_samples, n_classes); rows sum to 1."""
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

    def predict_annotation_proba(self, X: Instances, annotators: Any = None) -> FloatArray:
        """Return the probability that each annotator gives each class to each instance.

        See `BaseCrowdClassifier.predict_annotation_proba`. With a scikit-learn classifier it is
        p(x) times each annotator's confusion matrix, or p(x) itself if there is none.
        """
        if not hasattr(self, "estimator_"):
            return super().predict_annotation_proba(X, annotators)
        proba = self.predict_proba(X).astype(np.float32)
        chosen = find_annotators(self.annotators_, annotators, "annotators")
        if not hasattr(self, "confusion_"):
            return np.repeat(proba[:, None], len(chosen), axis=1)
        confusion = confusions_with_pooled(self)[chosen].astype(np.float32)
        return cast(FloatArray, np.einsum("nc,rcg->nrg", proba, confusion))

    def __sklearn_is_fitted__(self) -> bool:
        return any(hasattr(self, name) for name in ("module_", "estimator_", "options_"))


def _weight_parameter(estimator: BaseEstimator, reason: str) -> str:
    """Return the name of the parameter of ``fit`` for one weight per row.

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
