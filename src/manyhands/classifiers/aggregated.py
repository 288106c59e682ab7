"""Aggregate the annotations, then train a classifier on the result (DL-MV, DL-DS, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import resolve
from manyhands.classifiers.base import BaseCrowdClassifier
from manyhands.exceptions import AnnotationError
from manyhands.inference import BaseAggregator, MajorityVote
from manyhands.nn import FixedConfusionModule, ScaledClassifier
from manyhands.objectives import soft_label_objective
from manyhands.training import AnnotationBatches, CrowdBatch, Features, History
from manyhands.typing import AnyArray, FloatArray


class AggregatedClassifier(BaseCrowdClassifier):
    """Infer labels first, train on them second: the classical two stages.

    Parameters
    ----------
    aggregator : BaseAggregator or None, default=None
        Truth inference; None is `MajorityVote` (DL-MV), `DawidSkene()` gives DL-DS.
    backbone : as in `BaseCrowdClassifier`, or a scikit-learn classifier
        A scikit-learn classifier is cloned and fitted on the labels (soft targets become one
        weighted row a class); the training parameters then do not apply.
    targets : {"soft", "hard"}, default="soft"
        Train on the posterior, or on its most probable class as the papers do.
    max_epochs, batch_size, lr, weight_decay, scaling, device, random_state, verbose, \
validation, patience, checkpoint
        See `BaseCrowdClassifier`.

    Attributes
    ----------
    aggregator_ : BaseAggregator
        The fitted aggregator, over all instances (with ``validation`` as a fraction, on the
        annotations not held out).
    estimator_ : scikit-learn classifier
        The second stage, where ``backbone`` is one (there is no ``module_`` then).
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        That of the aggregator.

    Notes
    -----
    ``history_`` logs ``cross_entropy``. Instances without annotations do not enter the training.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from manyhands import AggregatedClassifier, DawidSkene, load_demo
    >>> demo = load_demo()
    >>> model = AggregatedClassifier(DawidSkene(), LogisticRegression(max_iter=50, tol=1.0))
    >>> model.fit(demo.X_train, demo.annotations).classes_.shape
    (10,)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseCrowdClassifier._parameter_constraints,
        "aggregator": [None, HasMethods(["fit_predict_proba"])],
        "backbone": [
            *BaseCrowdClassifier._parameter_constraints["backbone"],
            HasMethods(["fit", "predict_proba"]),
        ],
        "targets": [StrOptions({"soft", "hard"})],
    }

    def __init__(
        self,
        aggregator: BaseAggregator | None = None,
        backbone: Any = None,
        *,
        targets: str = "soft",
        max_epochs: int = 50,
        batch_size: int = 128,
        lr: float = 1e-3,
        weight_decay: float = 5e-4,
        scaling: str | None = "standard",
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        validation: Any = None,
        patience: int | None = None,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.aggregator = aggregator
        self.backbone = backbone
        self.targets = targets
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.scaling = scaling
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.validation = validation
        self.patience = patience
        self.checkpoint = checkpoint

    @property
    def _title(self) -> str:
        """Name on the progress bar: that of the aggregator."""
        return type(self.aggregator or MajorityVote()).__name__

    def fit(self, X: Any, y: Any) -> Self:
        """Aggregate, then train; see `BaseCrowdClassifier.fit`."""
        if not isinstance(self.backbone, BaseEstimator):
            return super().fit(X, y)
        self._validate_params()
        if not is_classifier(self.backbone):
            raise AnnotationError(f"backbone={self.backbone!r} is not a classifier")
        table = self._read_target(y)
        X = self._read_features(X, reset=True)
        self._check_lengths(X, table)
        self._set_vocabularies(table)
        targets = self._aggregate(table)
        annotated = np.flatnonzero(table.annotations_per_instance())
        self.history_ = History()
        self.estimator_ = self._fit_estimator(X[annotated], targets[annotated])
        return self

    def _fit_estimator(self, X: Any, targets: FloatArray) -> Any:
        """Fit the scikit-learn classifier; a soft target becomes one weighted row a class."""
        estimator = clone(self.backbone)
        if self.targets == "hard":
            return estimator.fit(X, self.classes_[targets.argmax(axis=1)])
        rows, columns = np.nonzero(targets > 1e-6)
        return estimator.fit(X[rows], self.classes_[columns], sample_weight=targets[rows, columns])

    def _aggregate(self, table: AnnotationTable) -> FloatArray:
        """Fit the aggregator and return the training targets, shape (n, n_classes)."""
        aggregator = MajorityVote() if self.aggregator is None else clone(self.aggregator)
        self.aggregator_ = aggregator.fit(table)
        self.confusion_ = aggregator.confusion_
        if self.targets == "soft":
            return aggregator.posterior_
        codes = resolve(
            aggregator.labels_, self.classes_, argument="labels_", vocabulary_name="classes_"
        )
        return np.eye(len(self.classes_))[codes]

    # -- the network as the second stage --------------------------------------------------------

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> FixedConfusionModule:
        return FixedConfusionModule(classifier, len(self.classes_), self.n_annotators_)

    def _prepare(
        self, table: AnnotationTable, features: Features, module: FixedConfusionModule
    ) -> None:
        targets = self._aggregate(table)
        self._targets = torch.tensor(targets, dtype=torch.float32, device=features.device)
        module.confusions.copy_(torch.from_numpy(self.confusion_))

    def _objective(self, module: FixedConfusionModule, batch: CrowdBatch) -> dict[str, Tensor]:
        return soft_label_objective(module, batch, self._targets)

    def _set_fitted(self, module: FixedConfusionModule, batches: AnnotationBatches) -> None:
        del self._targets

    # -- a scikit-learn classifier as the second stage -------------------------------------------

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of every true class, shape (n_samples, n_classes); rows sum to 1."""
        if not hasattr(self, "estimator_"):
            return super().predict_proba(X)
        X = self._read_features(X, reset=False)
        # The second stage may not have seen every class.
        proba = np.zeros((X.shape[0], len(self.classes_)))
        seen = resolve(
            self.estimator_.classes_,
            self.classes_,
            argument="estimator_.classes_",
            vocabulary_name="classes_",
        )
        proba[:, seen] = self.estimator_.predict_proba(X)
        # Single-precision estimators sum to 1 only up to their rounding.
        return cast(FloatArray, proba / proba.sum(axis=1, keepdims=True))

    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """p(x) times each annotator's confusion matrix, (n_samples, n_annotators, n_classes)."""
        if not hasattr(self, "estimator_"):
            return super().predict_annotation_proba(X, annotators)
        check_is_fitted(self, "estimator_")
        which = slice(None) if annotators is None else annotators
        chosen = resolve(
            which, self.annotators_, argument="annotators", vocabulary_name="annotators_"
        )
        proba: AnyArray = np.einsum("nc,rcg->nrg", self.predict_proba(X), self.confusion_[chosen])
        return cast(FloatArray, proba.astype(np.float32))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_") or hasattr(self, "estimator_")
