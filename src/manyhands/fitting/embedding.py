"""What methods share that learn an embedding by comparing instances, then a regression on it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.classifiers.aggregated import AggregatedClassifier
from manyhands.exceptions import AnnotationError, DivergenceError
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.latent import balancing_rng
from manyhands.fitting.watching import PREDICT_BATCH
from manyhands.linear.regression import fit_regression
from manyhands.nn import (
    REGRESSIONS,
    EmbeddedRegression,
    FixedConfusionModule,
    ScaledClassifier,
    make_backbone,
)
from manyhands.training import (
    AnnotationBatches,
    BestState,
    Callback,
    Features,
    History,
    Monitor,
    Stage,
    TrainStep,
)
from manyhands.typing import AnyArray, FloatArray, IntArray

EMBEDDING_NETWORK = "embedding"
"""What ``backbone=None`` stands for."""

WHILE_TRAINING = 0.1
"""C of the regression before the last epoch, where it is to be chosen."""


class EmbeddingClassifier(AggregatedClassifier):
    """Base of methods that learn an embedding from inferred labels, then a logistic regression.

    A subclass implements `_step` and `_batches`: how the embedding is trained. Every epoch ends
    with a regression on the embedding as it is, so that there is a classifier to be watched; the
    last one's strength is chosen by cross-validation.

    Attributes
    ----------
    C_ : float
        Inverse strength of the penalty of the regression.
    """

    _fitted_arrays: Sequence[str] = (*AggregatedClassifier._fitted_arrays, "C_")
    _crowd_check_exemptions: ClassVar[dict[str, str]] = {
        "check_history": "its rows also tell of what was trained on, which is no loss; a test of "
        "the method checks its terms",
        "check_user_network": "what a network without embed() gives is the embedding, so that "
        "there is one; a test of the method tries such a network",
        "check_degenerate_crowds": "where all inferred labels are of one class nothing can be "
        "compared, which is an error; a test of the method tries these crowds",
        "check_class_balance": "a regression has no focal loss, which is an error; a test of the "
        "method tries the other options",
    }
    _parameter_constraints: dict[str, list[Any]] = {
        **AggregatedClassifier._parameter_constraints,
        "backbone": BaseCrowdClassifier._parameter_constraints["backbone"],
        "regression": [StrOptions(set(REGRESSIONS))],
        "C": [StrOptions({"cv"}), Interval(Real, 0, None, closed="neither")],
        "cv": [Interval(Integral, 2, None, closed="left")],
    }
    regression: str
    C: float | str
    cv: int
    C_: float

    @property
    def _second_stage(self) -> bool:
        """Never a scikit-learn classifier: the regression is the second stage."""
        return False

    @property
    def _title(self) -> str:
        return BaseCrowdClassifier._title.fget(self)  # type: ignore[attr-defined]

    # -- how the embedding is trained -------------------------------------------------------------

    @abstractmethod
    def _step(self, data: EmbeddingData) -> TrainStep:
        """Return what one batch does to the embedding."""

    @abstractmethod
    def _batches(self, data: EmbeddingData, epoch: int) -> Iterator[Any]:
        """Yield an epoch's batches, as `_step` takes them."""

    # -- the machine ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Train on annotations; see `BaseCrowdClassifier.fit`.

        Raises
        ------
        AnnotationError
            Also if the inferred labels hold one class only, or no class has two instances.
        DivergenceError
            Also if the embedding stops being finite.
        """
        if self._focus:
            raise AnnotationError(
                f"class_balance={self.class_balance!r} changes the loss of a network; what is "
                "balanced here is a logistic regression: use 'resample' or 'reweight'"
            )
        return super().fit(X, y)

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> FixedConfusionModule:
        n_classes = len(self.classes_)
        network = classifier.backbone
        if self.backbone is None:
            network = make_backbone(EMBEDDING_NETWORK, input_shape, n_classes)
        classifier.backbone = EmbeddedRegression(network, input_shape, n_classes, self.regression)
        return FixedConfusionModule(classifier, n_classes, self.n_annotators_)

    def _prepare(
        self,
        table: AnnotationTable,
        features: Features,
        module: FixedConfusionModule,
        rng: np.random.Generator,
    ) -> None:
        super()._prepare(table, features, module, rng)
        self._data = EmbeddingData(self, module, features, table, self._targets)

    def _stages(self, module: FixedConfusionModule, batches: AnnotationBatches) -> list[Stage]:
        return [Stage("train", self._step(self._data), self._epoch, self.max_epochs)]

    def _epoch(self, epoch: int) -> Iterator[Any]:
        """Yield an epoch's batches; once these are learnt from, fit the regression."""
        data = self._data
        data.facts = {}
        for batch in self._batches(data, epoch):
            data.n_steps += 1
            yield batch
        data.facts |= data.noted() | {"step": data.n_steps}
        # Where epochs are compared, all have the same strength: a chosen one would favour the last.
        self._regress(chosen=epoch + 1 == self.max_epochs and self.validation is None)

    def _regress(self, *, chosen: bool) -> None:
        C = self.C if chosen or self.C != "cv" else WHILE_TRAINING
        self.C_ = self._data.regress(C, self.cv)
        self._data.facts["C"] = self.C_

    def _callbacks(
        self, module: Any, features: Features, held: AnnotationTable | None
    ) -> tuple[list[Callback], BestState | None]:
        callbacks, best = super()._callbacks(module, features, held)
        data = self._data
        return [Monitor(lambda: data.facts), *callbacks], best

    def _set_fitted(self, module: FixedConfusionModule, batches: AnnotationBatches) -> None:
        # Of an epoch that was not the last, the strength is still to be chosen.
        if self.validation is not None or not hasattr(self, "C_"):
            self._regress(chosen=True)
        del self._data
        super()._set_fitted(module, batches)


class EmbeddingData:
    """What an embedding is learnt from: annotated instances, their labels, and how sure these are.

    Instances stand in an order of their own content, so that another order of the rows of X (and
    of the annotations with them) gives the same training, but where annotations are drawn before:
    by ``validation`` or resampling.

    Attributes
    ----------
    rows : integer tensor of shape (n,)
        Annotated instances, as rows of X. All else is in their order.
    targets : array of shape (n, n_classes)
        Posterior of the aggregator (one-hot, if hard), times the weights that balance classes.
    posterior : array of shape (n, n_classes)
        Of the aggregator.
    labels : integer array of shape (n,)
        The most probable class; -1 where two are as probable.
    facts : dict of str to float
        What the history says of the epoch.
    n_steps : int
        Updates of the embedding so far.
    """

    def __init__(
        self,
        model: EmbeddingClassifier,
        module: FixedConfusionModule,
        features: Features,
        table: AnnotationTable,
        targets: Any,
    ) -> None:
        self.model = model
        self.module = module
        self.features = features
        self.facts: dict[str, float] = {}
        self.n_steps = 0
        self._noted: dict[str, list[Tensor]] = {}
        weighted = targets.targets if targets.weights is None else targets.targets * targets.weights
        weighted = weighted.double().cpu().numpy()
        posterior = model.aggregator_.posterior_
        annotated = np.flatnonzero(table.annotations_per_instance())
        votes = table.vote_counts().sum(axis=1)
        order = annotated[_content_order(features, annotated, posterior, votes)]
        self.table, self.order = table, order
        self.rows = torch.from_numpy(order).to(features.device)
        self.targets, self.posterior = weighted[order], posterior[order]
        top = np.sort(self.posterior, axis=1)
        tied = top[:, -1] - top[:, -2] < 1e-9
        self.labels = np.where(tied, -1, self.posterior.argmax(axis=1))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def embedder(self) -> ScaledClassifier:
        """Scaling and network: ``embed`` is what is trained."""
        return self.module.classifier

    @property
    def network(self) -> EmbeddedRegression:
        """The network without its scaling."""
        return cast(EmbeddedRegression, self.embedder.backbone)

    def note(self, name: str, value: Tensor) -> None:
        """Note a number of a batch, whose mean over the epoch the history tells."""
        self._noted.setdefault(name, []).append(value)

    def noted(self) -> dict[str, float]:
        """Return the means of what was noted, and forget it."""
        means = {name: float(torch.stack(values).mean()) for name, values in self._noted.items()}
        self._noted = {}
        return means

    def take(self, places: Tensor) -> Tensor:
        """Features of some of the instances, shape (m, *input_shape)."""
        return self.features.take(self.rows[places.to(self.rows.device)])

    @torch.no_grad()
    def embedded(self) -> Tensor:
        """Embedding of every instance as it is now, without dropout, shape (n, d)."""
        self.module.eval()
        parts = self.features.batches(self.rows, PREDICT_BATCH)
        return torch.cat([self.embedder.embed(x) for x in parts])

    @torch.no_grad()
    def regress(self, C: float | str, n_folds: int) -> float:
        """Fit the regression on the embedding as it is; return its C."""
        self.module.eval()
        backbone, scaler = self.network, self.embedder.scaler
        if backbone.with_input:
            scaled = torch.cat([scaler(x) for x in self.features.batches(self.rows, PREDICT_BATCH)])
            backbone.level_input(self.embedded(), scaled.flatten(1))
        parts = self.features.batches(self.rows, PREDICT_BATCH)
        Z = torch.cat([backbone.regressors(scaler(x)) for x in parts]).double().cpu().numpy()
        if not np.isfinite(Z).all():
            raise DivergenceError(
                "the embedding is no longer finite; lower lr, or scale X (scaling='standard')"
            )
        found = fit_regression(Z, self.targets, C, n_folds=n_folds, rng=balancing_rng(0, 2))
        backbone.set_regression(torch.from_numpy(found.weight), torch.from_numpy(found.bias))
        return found.C


def _content_order(
    features: Features, rows: IntArray, posterior: FloatArray, votes: FloatArray
) -> IntArray:
    """Order of some rows that depends on what they hold, not on where they stand."""
    digests: list[bytes] = []
    beside = np.ascontiguousarray(posterior[rows], dtype=np.float32)
    parts = features.batches(torch.from_numpy(rows).to(features.device), PREDICT_BATCH)
    for x in parts:
        for row in x.cpu().numpy():
            own = beside[len(digests)].tobytes()
            digests.append(blake2b(row.tobytes() + own, digest_size=8).digest())
    # Of equal instances and posteriors, the votes tell how sure the label is.
    return np.lexsort((votes[rows], np.frombuffer(b"".join(digests), dtype=np.uint64)))


class CrowdEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of transformers that are the embedding of an `EmbeddingClassifier`.

    Attributes
    ----------
    classifier_ : EmbeddingClassifier
        That which was trained, with a regression of C = 0.1.
    history_ : History
        See the classifier.
    """

    _classifier: ClassVar[type[EmbeddingClassifier]]

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the embedding from annotations; see `BaseCrowdClassifier.fit`."""
        parameters: dict[str, Any] = {**self.get_params(deep=False), "C": WHILE_TRAINING}
        self.classifier_ = self._classifier(**parameters)
        self.classifier_.fit(X, y)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.classifier_, name):
                setattr(self, name, getattr(self.classifier_, name))
        return self

    def fit_transform(self, X: Any, y: Any = None) -> AnyArray:
        """Learn the embedding, and embed the same instances."""
        return self.fit(X, y).transform(X)

    def transform(self, X: Any) -> AnyArray:
        """Embed instances, shape (n_samples, n_embedding), float32."""
        check_is_fitted(self, "classifier_")
        return self.classifier_.transform(X)

    @property
    def history_(self) -> History:
        """A row an epoch."""
        return self.classifier_.history_

    @property
    def _n_features_out(self) -> int:
        network = cast(EmbeddedRegression, self.classifier_.module_.classifier.backbone)
        return network.width

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
