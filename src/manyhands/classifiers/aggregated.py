"""Aggregate the annotations, then train a classifier on the result (DL-MV, DL-DS, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode
from manyhands.classifiers.base import BaseCrowdClassifier
from manyhands.exceptions import AnnotationError
from manyhands.inference import BaseAggregator, MajorityVote
from manyhands.inference.kernels import floored_log
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

    @property
    def _second_stage(self) -> bool:
        """Whether ``backbone`` is a classifier with a ``fit`` of its own rather than a network."""
        return not isinstance(self.backbone, torch.nn.Module) and hasattr(self.backbone, "fit")

    def fit(self, X: Any, y: Any) -> Self:
        """Aggregate, then train; see `BaseCrowdClassifier.fit`.

        A scikit-learn second stage gets the rows of X as they are (text, tables, gaps), and
        checks them itself.
        """
        if not self._second_stage:
            return super().fit(X, y)
        self._validate_params()
        for name in ("validation", "checkpoint"):
            if getattr(self, name) is not None:
                raise AnnotationError(
                    f"{name} applies to networks; the second stage "
                    f"{type(self.backbone).__name__} is fitted by its own rules"
                )
        table = self._read_target(y)
        self._check_lengths(X, table)
        self._set_vocabularies(table)
        rng = np.random.default_rng(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        targets = self._aggregate(table, rng)
        self._pool_confusions(table)
        annotated = np.flatnonzero(table.annotations_per_instance())
        estimator = _seeded(clone(self.backbone, safe=False), rng)
        self.estimator_ = self._fit_estimator(
            estimator, _safe_indexing(X, annotated), targets[annotated], rng
        )
        self.history_ = History()
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        return self

    def _fit_estimator(
        self, estimator: Any, X: Any, targets: FloatArray, rng: np.random.Generator
    ) -> Any:
        """Fit the second stage; a soft target becomes one weighted row a class."""
        if self._focus:
            raise AnnotationError(
                f"class_balance={self.class_balance!r} changes the loss of a network; the second "
                f"stage {type(estimator).__name__} has its own: use 'resample' or 'reweight'"
            )
        weighted = self._balanced_targets(targets, rng)
        if self.targets == "hard" and weighted is None:
            return estimator.fit(X, self.classes_[targets.argmax(axis=1)])
        final = targets if weighted is None else targets * weighted
        rows, columns = np.nonzero(final > 1e-6)
        weights = {_weight_parameter(estimator): final[rows, columns]}
        return estimator.fit(_safe_indexing(X, rows), self.classes_[columns], **weights)

    def _aggregate(self, table: AnnotationTable, rng: np.random.Generator) -> FloatArray:
        """Fit the aggregator and return the training targets, shape (n, n_classes)."""
        aggregator = MajorityVote() if self.aggregator is None else clone(self.aggregator)
        self.aggregator_ = _seeded(aggregator, rng).fit(table)
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
        self._targets = torch.tensor(targets, dtype=torch.float32, device=features.device)
        annotated = table.annotations_per_instance() > 0
        weights = self._balanced_targets(targets * annotated[:, None], rng)
        self._target_weights = (
            None
            if weights is None
            else torch.tensor(weights, dtype=torch.float32, device=features.device)
        )
        module.confusions.copy_(torch.from_numpy(self.confusion_))

    def _balanced(self, table: AnnotationTable, rng: np.random.Generator) -> AnnotationTable:
        """Annotations as they are: the inferred labels are balanced."""
        return table

    def _balanced_targets(self, targets: FloatArray, rng: np.random.Generator) -> FloatArray | None:
        """Weights (n, n_classes) that balance the targets; None for equal ones."""
        return None if self._balance is None else self._balance.target_weights(targets, rng)

    def _objective(self, module: FixedConfusionModule, batch: CrowdBatch) -> dict[str, Tensor]:
        return soft_label_objective(module, batch, self._targets, self._target_weights, self._focus)

    def _set_fitted(self, module: FixedConfusionModule, batches: AnnotationBatches) -> None:
        del self._targets, self._target_weights

    # -- a scikit-learn classifier as the second stage -------------------------------------------

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of every true class, shape (n_samples, n_classes); rows sum to 1."""
        if not hasattr(self, "estimator_"):
            return super().predict_proba(X)
        given = self.estimator_.predict_proba(X)
        # The second stage may not have seen every class.
        proba = np.zeros((len(given), len(self.classes_)))
        seen, _ = encode(
            self.estimator_.classes_, self.classes_, argument="classes", vocabulary_name="classes_"
        )
        proba[:, seen] = given
        # Single-precision estimators sum to 1 only up to their rounding.
        return cast(FloatArray, proba / proba.sum(axis=1, keepdims=True))

    def predict_annotation_proba(self, X: Any, annotators: Any = None) -> FloatArray:
        """p(x) times each annotator's confusion matrix, (n_samples, n_annotators, n_classes)."""
        if not hasattr(self, "estimator_"):
            return super().predict_annotation_proba(X, annotators)
        proba = self.predict_proba(X).astype(np.float32)
        confusion = self._confusions_and_pooled[self._find_annotators(annotators, "annotators")]
        confusion = confusion.astype(np.float32)
        return cast(FloatArray, np.einsum("nc,rcg->nrg", proba, confusion))

    @property
    def _confusions_and_pooled(self) -> FloatArray:
        """Confusion matrices, and as the last (of code -1) that of a new annotator."""
        return np.concatenate([self.confusion_, self.pooled_confusion_[None]])

    def _log_likelihood(
        self, X: Any, table: AnnotationTable, annotators: AnyArray, labels: AnyArray
    ) -> float:
        if not hasattr(self, "estimator_"):
            return super()._log_likelihood(X, table, annotators, labels)
        columns = self._confusions_and_pooled[annotators, :, labels]
        given = (self.predict_proba(X)[table.instance] * columns).sum(axis=1)
        return float(np.average(floored_log(given), weights=table.weight))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_") or hasattr(self, "estimator_")


def _seeded(estimator: Any, rng: np.random.Generator) -> Any:
    """Give every unset ``random_state`` within an estimator a seed, for equal repetitions."""
    if hasattr(estimator, "get_params"):
        unset = [
            name
            for name, value in sorted(estimator.get_params().items())
            if value is None and (name == "random_state" or name.endswith("__random_state"))
        ]
        estimator.set_params(**{name: int(rng.integers(2**31)) for name in unset})
    return estimator


def _weight_parameter(estimator: Any) -> str:
    """Name under which ``fit`` takes a weight a row.

    Raises
    ------
    AnnotationError
        If it takes none.
    """
    steps = getattr(estimator, "steps", None)
    last, prefix = (steps[-1][1], f"{steps[-1][0]}__") if steps else (estimator, "")
    if not has_fit_parameter(last, "sample_weight"):
        raise AnnotationError(
            f"{type(last).__name__} takes no sample_weight, which soft targets need; use "
            "targets='hard'"
        )
    return f"{prefix}sample_weight"
