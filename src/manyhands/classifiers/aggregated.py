"""Aggregate the annotations, then train a classifier on the result (DL-MV, DL-DS, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods, StrOptions
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.fitting.aggregation import infer_targets, targets_of_network
from manyhands.fitting.context import Earlier, Fit
from manyhands.fitting.latent import SoftTargets, balancing_weights, class_shares
from manyhands.fitting.recipe import Recipe
from manyhands.fitting.second_stage import SecondStageClassifier
from manyhands.fitting.traits import Traits
from manyhands.inference import MajorityVote
from manyhands.inference.base import BaseAggregator
from manyhands.nn import FixedConfusionModule, ScaledClassifier
from manyhands.training import CrowdBatch
from manyhands.typing import FloatArray

MIN_TARGET = 1e-6
"""A class whose soft target is below this gets no row in a scikit-learn classifier's data."""


AggregatedFit = Fit[FixedConfusionModule, SoftTargets]


@dataclass(kw_only=True, eq=False, repr=False)
class AggregatedClassifier(SecondStageClassifier):
    """Infer labels, then train on them: the classical two-stage approach.

    Parameters
    ----------
    aggregator : BaseAggregator or None, default=None
        Truth inference. None means `MajorityVote` (DL-MV); `DawidSkene()` gives DL-DS.
    backbone : as in `BaseCrowdClassifier`, or a scikit-learn classifier
        A scikit-learn classifier is cloned and fitted on the labels (soft targets become one
        weighted row per class); the training parameters then do not apply.
    targets : {"soft", "hard"}, default="soft"
        Train on the posterior, or on its most probable class, as the papers do.
    max_epochs, batch_size, lr, weight_decay, class_balance, \
scaling, device, random_state, verbose, validation, patience, checkpoint, decision, callbacks, \
protocol
        See `BaseCrowdClassifier`.

    Attributes
    ----------
    aggregator_ : BaseAggregator
        The fitted aggregator, over all instances (if ``validation`` is a fraction, fitted on the
        annotations not held out).
    estimator_ : scikit-learn classifier
        The second stage, if ``backbone`` is a scikit-learn classifier (there is then no
        ``module_``).
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        The aggregator's confusion matrices, with one pseudo-annotation in every row, distributed as
        the crowd's are. Without it (see ``aggregator_.confusion_``), most aggregators make whatever
        an annotator never did impossible.
    class_prior_ : array of shape (n_classes,)
        Share of every class in the training targets of the second stage, including the weights of
        ``class_balance``. A class with any mass counts as at least one instance. A class without
        mass is never chosen by ``decision="balanced"``.

    Notes
    -----
    ``history_`` logs ``cross_entropy``. Instances without annotations are not used in training.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from manyhands import AggregatedClassifier, DawidSkene, load_demo
    >>> demo = load_demo()
    >>> model = AggregatedClassifier(DawidSkene(), LogisticRegression(max_iter=50, tol=1.0))
    >>> model.fit(demo.X_train, demo.annotations).classes_.shape
    (10,)
    """

    _parameter_constraints = {
        **SecondStageClassifier._parameter_constraints,
        "aggregator": [None, HasMethods(["fit_predict_proba"])],
        "targets": [StrOptions({"soft", "hard"})],
    }

    aggregator: BaseAggregator | None = field(default=None, kw_only=False)
    backbone: Any = field(default=None, kw_only=False)
    targets: str = "soft"

    @property
    def _traits(self) -> Traits:
        inherited = super()._traits
        source = type(self.aggregator or MajorityVote()).__name__
        is_given = getattr(self, "n_annotators_", 0) == 1
        return replace(
            inherited,
            title=f"{'given labels' if is_given else source}, then a network",
            saved=(*inherited.saved, "class_prior_"),
            unsaved=("aggregator_",),
            balanced_by="class_prior_",
            shrinks_confusions=True,
            balances_annotations=False,
        )

    def _fit_rows(
        self, X: Any, table: AnnotationTable, recipe: Recipe, earlier: Earlier | None
    ) -> tuple[dict[str, Any], FloatArray]:
        rng = np.random.default_rng(recipe.seed)
        aggregator, targets = infer_targets(self, table, rng, earlier)
        annotated = np.flatnonzero(table.annotations_per_instance())
        estimator = self._clone_backbone(rng)
        rows = _safe_indexing(X, annotated)
        weights = balancing_weights(recipe.balance, targets[annotated], rng)
        found = self._fit_estimator(estimator, rows, targets[annotated], weights)
        found |= {"aggregator_": aggregator, "confusion_": aggregator.confusion_}
        return found, aggregator.posterior_

    def _fit_estimator(
        self, estimator: BaseEstimator, X: Any, targets: FloatArray, weights: FloatArray | None
    ) -> dict[str, Any]:
        """Fit the second stage; a soft target becomes one weighted row per class."""
        inferred = (
            targets.argmax(axis=1)
            if self.targets == "hard"
            else np.flatnonzero((targets > MIN_TARGET).any(axis=0))
        )
        if len(np.unique(inferred)) < 2:
            only = self.classes_[inferred[0]].item()
            raise AnnotationError(
                f"y: the inferred labels hold one class only, {only!r}; "
                f"the second stage {type(estimator).__name__} needs two"
            )
        weighted = targets if weights is None else targets * weights
        weighted = np.where(weighted > MIN_TARGET, weighted, 0.0)
        prior = class_shares(weighted)
        if self.targets == "hard" and weights is None:
            fitted = estimator.fit(X, self.classes_[targets.argmax(axis=1)])
        else:
            need = "soft targets need; use targets='hard'"
            fitted = self._fit_weighted(estimator, X, weighted, need)
        return {"estimator_": fitted, "class_prior_": prior}

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> FixedConfusionModule:
        return FixedConfusionModule(classifier, len(self.classes_), self.n_annotators_)

    def _prepare(self, fit: AggregatedFit) -> SoftTargets:
        return targets_of_network(self, fit)

    def _objective(self, fit: AggregatedFit, batch: CrowdBatch) -> dict[str, Tensor]:
        return fit.state.objective(fit.module, batch)

    def _read_out(self, fit: AggregatedFit) -> dict[str, Any]:
        """Nothing: what the labels were inferred with is known before."""
        return {}
