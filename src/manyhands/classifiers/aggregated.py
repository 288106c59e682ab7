"""Aggregate the annotations, then train a classifier on the result (DL-MV, DL-DS, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods, StrOptions
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode
from manyhands.exceptions import AnnotationError
from manyhands.fitting.latent import SoftTargets, balancing_weights, class_shares
from manyhands.fitting.second_stage import SecondStageClassifier, seeded
from manyhands.inference import MajorityVote
from manyhands.inference.base import BaseAggregator
from manyhands.nn import FixedConfusionModule, ScaledClassifier
from manyhands.training import AnnotationBatches, CrowdBatch, Features
from manyhands.typing import FloatArray

NO_TARGET = 1e-6
"""Below this, a class of a soft target gets no row in a scikit-learn classifier's data."""


class AggregatedClassifier(SecondStageClassifier):
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
    decision : {"posterior", "balanced"} or array of shape (n_classes, n_classes), \
default="posterior"
        How `predict` (and so `score`) decides for a class; probabilities and training are the
        same. "posterior": the most probable class. "balanced": the largest probability divided
        by ``class_prior_``. A matrix of costs ``[true, decided]``: the least expected cost. See
        `manyhands.decide`.
    max_epochs, batch_size, lr, weight_decay, reset_optimizer, class_balance, \
scaling, device, random_state, verbose, validation, patience, checkpoint
        See `BaseCrowdClassifier`.

    Attributes
    ----------
    aggregator_ : BaseAggregator
        The fitted aggregator, over all instances (with ``validation`` as a fraction, on the
        annotations not held out).
    estimator_ : scikit-learn classifier
        The second stage, where ``backbone`` is one (there is no ``module_`` then).
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        That of the aggregator, with one annotation more in every row, as the crowd would give
        it; without that, which is ``aggregator_.confusion_``, most aggregators say that what an
        annotator never did is impossible.
    class_prior_ : array of shape (n_classes,)
        Share of every class in what the second stage was trained on, the weights of
        ``class_balance`` included. A class counts as one instance at the least where it has any
        mass; where it has none it is never decided for by ``decision="balanced"``.

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

    _fitted_arrays: Sequence[str] = (*SecondStageClassifier._fitted_arrays, "class_prior_")
    _adds_the_crowds_answer = True
    _parameter_constraints: dict[str, list[Any]] = {
        **SecondStageClassifier._parameter_constraints,
        "aggregator": [None, HasMethods(["fit_predict_proba"])],
        "targets": [StrOptions({"soft", "hard"})],
        "decision": [str, "array-like"],
    }

    def __init__(
        self,
        aggregator: BaseAggregator | None = None,
        backbone: Any = None,
        *,
        targets: str = "soft",
        decision: Any = "posterior",
        max_epochs: int = 50,
        batch_size: int = 128,
        lr: float = 1e-3,
        weight_decay: float = 5e-4,
        reset_optimizer: bool = False,
        class_balance: Any = None,
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
        self.decision = decision
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.reset_optimizer = reset_optimizer
        self.class_balance = class_balance
        self.scaling = scaling
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.validation = validation
        self.patience = patience
        self.checkpoint = checkpoint

    @property
    def _title(self) -> str:
        """Name on the progress bar: where the labels come from."""
        if self.n_annotators_ == 1:
            return "given labels, then a network"
        return f"{type(self.aggregator or MajorityVote()).__name__}, then a network"

    def _fit_second_stage(
        self, X: Any, table: AnnotationTable, rng: np.random.Generator
    ) -> tuple[Any, FloatArray]:
        targets = self._aggregate(table, rng)
        annotated = np.flatnonzero(table.annotations_per_instance())
        estimator = self._clone_backbone(rng)
        rows = _safe_indexing(X, annotated)
        fitted = self._fit_estimator(estimator, rows, targets[annotated], rng)
        return fitted, self.aggregator_.posterior_

    def _fit_estimator(
        self, estimator: Any, X: Any, targets: FloatArray, rng: np.random.Generator
    ) -> Any:
        """Fit the second stage; a soft target becomes one weighted row a class."""
        named = (
            targets.argmax(axis=1)
            if self.targets == "hard"
            else np.flatnonzero((targets > NO_TARGET).any(axis=0))
        )
        if len(np.unique(named)) < 2:
            raise AnnotationError(
                f"y: the inferred labels hold one class only, {self.classes_[named[0]].item()!r}; "
                f"the second stage {type(estimator).__name__} needs two"
            )
        weighted = balancing_weights(self._balance, targets, rng)
        final = targets if weighted is None else targets * weighted
        final = np.where(final > NO_TARGET, final, 0.0)
        self.class_prior_ = class_shares(final)
        if self.targets == "hard" and weighted is None:
            return estimator.fit(X, self.classes_[targets.argmax(axis=1)])
        return self._fit_weighted(estimator, X, final, "soft targets need; use targets='hard'")

    def _aggregate(self, table: AnnotationTable, rng: np.random.Generator) -> FloatArray:
        """Fit the aggregator and return the training targets, shape (n, n_classes)."""
        aggregator = MajorityVote() if self.aggregator is None else clone(self.aggregator)
        self.aggregator_ = seeded(aggregator, rng).fit(table)
        self.confusion_ = aggregator.confusion_
        if self.targets == "soft":
            return aggregator.posterior_
        codes, _ = encode(
            aggregator.labels_, self.classes_, argument="labels_", vocabulary_name="classes_"
        )
        return np.eye(len(self.classes_))[codes]

    # -- the network as the second stage --------------------------------------------------------

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> FixedConfusionModule:
        return FixedConfusionModule(classifier, len(self.classes_), self.n_annotators_)

    def _prepare(
        self,
        table: AnnotationTable,
        features: Features,
        module: FixedConfusionModule,
        rng: np.random.Generator,
    ) -> None:
        targets = self._aggregate(table, rng)
        annotated = table.annotations_per_instance() > 0
        self._targets = SoftTargets(self._balance, features.device)
        self._targets.set(targets * annotated[:, None], rng)
        self.class_prior_ = self._targets.shares
        # Held-out annotations are judged by them from the first epoch on.
        self._set_heard(table, self.aggregator_.posterior_)
        module.confusions.copy_(torch.from_numpy(self.confusion_))

    def _belief(self, module: Any, batches: AnnotationBatches) -> FloatArray:
        """Class probabilities given the annotations."""
        return self.aggregator_.posterior_

    def _balanced(self, table: AnnotationTable, rng: np.random.Generator) -> AnnotationTable:
        """Annotations as they are: the inferred labels are balanced."""
        return table

    def _objective(self, module: FixedConfusionModule, batch: CrowdBatch) -> dict[str, Tensor]:
        return self._targets.objective(module, batch)

    def _set_fitted(self, module: FixedConfusionModule, batches: AnnotationBatches) -> None:
        del self._targets
        self.confusion_ = self.aggregator_.confusion_
