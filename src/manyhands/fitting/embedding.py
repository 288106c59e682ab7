"""Methods that learn an embedding by comparing instances, then a logistic regression on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from manyhands.annotations.target import Target
from manyhands.exceptions import DivergenceError, all_or_nothing
from manyhands.fitting.aggregation import targets_of_network
from manyhands.fitting.class_collapse import without_collapse_warnings
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit, Watch
from manyhands.fitting.fitted import SET_WITH_FEATURES, fitted_attributes, take_over
from manyhands.fitting.latent import SoftTargets, balancing_rng
from manyhands.fitting.method_protocol import MethodProtocol, ProtocolOf, TakesProtocol
from manyhands.fitting.parameters import FIXED_EPOCHS
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.fitting.traits import ANNOTATOR_ARRAYS, Traits
from manyhands.inference.base import BaseAggregator
from manyhands.linear.regression import fit_regression
from manyhands.nn import (
    REGRESSIONS,
    EmbeddedRegression,
    FixedConfusionModule,
    ScaledClassifier,
    make_backbone,
)
from manyhands.training import Features, History, Stage, TrainStep
from manyhands.typing import AnyArray, FloatArray, Instances, IntArray

EMBEDDING_NETWORK = "embedding"
"""The network for ``backbone=None``."""

TRAINING_C = 0.1
"""C of the regression in all epochs but the last, in which C is chosen by cross-validation."""


@dataclass(frozen=True, kw_only=True, repr=False)
class EmbeddingProtocol(MethodProtocol):
    """Protocol of methods that learn an embedding, then a logistic regression on it.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.MethodProtocol`.
    regression : {"embedding", "both"}, default="embedding"
        Input of the logistic regression: the embedding, as in the paper, or the embedding and the
        features, which are scaled to the length of the embedding.
    C : float or "cv", default="cv"
        Inverse strength of the regression's penalty. "cv": chosen by cross-validation on the
        inferred labels, from 1e-4 to 1e4. The embedding has seen the labels that are left out, so
        the chosen penalty tends to be too weak.
    cv : int, default=5
        Folds of the cross-validation.
    targets : {"soft", "hard"}, default="soft"
        Labels of the regression: the aggregator's posterior (with majority vote, the shares of the
        votes), or its most probable class as in the paper.
    """

    _constraints = {
        **MethodProtocol._constraints,
        "regression": [StrOptions(set(REGRESSIONS))],
        "C": [StrOptions({"cv"}), Interval(Real, 0, None, closed="neither")],
        "cv": [Interval(Integral, 2, None, closed="left")],
        "targets": [StrOptions({"soft", "hard"})],
    }

    regression: str = "embedding"
    C: float | str = "cv"
    cv: int = 5
    targets: str = "soft"


@dataclass(kw_only=True, eq=False, repr=False)
class EmbeddingClassifier(BaseCrowdClassifier):
    """Base of methods that learn an embedding from inferred labels, then a logistic regression.

    A subclass trains the embedding in its `_stages`, by `_embedding_stage`: every epoch ends with a
    regression on the current embedding, so that there is a classifier to monitor. C of the last
    regression is chosen by cross-validation.

    Attributes
    ----------
    C_ : float
        Inverse strength of the regression's penalty.
    """

    _crowd_check_exemptions: ClassVar[dict[str, str]] = {
        "check_history": "its rows also describe the training data, which is not a loss; a test of "
        "the method checks its terms",
        "check_user_network": "the output of a network without embed() is the embedding, so there "
        "always is one; a test of the method tries such a network",
        "check_degenerate_crowds": "if all inferred labels are of one class, nothing can be "
        "compared, which is an error; a test of the method tries these crowds",
    }
    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        **FIXED_EPOCHS,
        "aggregator": [None, HasMethods(["fit_predict_proba"])],
    }

    backbone: Any = field(default=None, kw_only=False)
    aggregator: BaseAggregator | None = None
    max_epochs: int = 20
    lr: float = 3e-4
    weight_decay: float = 1e-2
    protocol: EmbeddingProtocol | None = None

    _protocol: ClassVar[ProtocolOf[EmbeddingProtocol]] = ProtocolOf(EmbeddingProtocol)

    @property
    def _traits(self) -> Traits:
        return Traits(
            focal_refusal=(
                "changes the loss of a network, and this method balances a logistic regression; "
                "use 'resample' or 'reweight'"
            ),
            saved=(*ANNOTATOR_ARRAYS, "class_prior_", "C_"),
            unsaved=("aggregator_",),
            balanced_by="class_prior_",
            shrinks_confusions=True,
            balances_annotations=False,
            auto_epochs_refusal="a pilot would have to fit the regression after every epoch",
        )

    # -- fitting ----------------------------------------------------------------------------------

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> FixedConfusionModule:
        n_classes = len(self.classes_)
        network = classifier.backbone
        if self.backbone is None:
            network = make_backbone(EMBEDDING_NETWORK, input_shape, n_classes)
        classifier.backbone = EmbeddedRegression(
            network, input_shape, n_classes, self._protocol.regression
        )
        return FixedConfusionModule(classifier, n_classes, self.n_annotators_)

    def _prepare(self, fit: EmbeddingFit) -> EmbeddingData:
        return EmbeddingData(self, fit, targets_of_network(self, fit))

    def _embedding_stage(
        self, fit: EmbeddingFit, step: TrainStep, batches: Callable[[int], Iterator[Any]]
    ) -> Stage:
        """Make the stage that trains the embedding by steps on the batches of every epoch."""
        return Stage("train", step, partial(self._epoch, fit, batches), fit.n_epochs)

    def _epoch(
        self, fit: EmbeddingFit, batches: Callable[[int], Iterator[Any]], epoch: int
    ) -> Iterator[Any]:
        """Yield an epoch's batches; after training on them, fit the regression."""
        data = fit.state
        data.facts.clear()
        for batch in batches(epoch):
            data.n_steps += 1
            yield batch
        data.facts |= data.pop_means() | {"step": data.n_steps}
        # Epochs are compared at the same C: a tuned C would favour the last.
        tune = epoch + 1 == fit.n_epochs and fit.recipe.validation is None
        fit.found["C_"] = self._regress(data, tune=tune)

    def _regress(self, data: EmbeddingData, *, tune: bool) -> float:
        protocol = self._protocol
        C = protocol.C if tune or protocol.C != "cv" else TRAINING_C
        found = data.regress(C, protocol.cv)
        data.facts["C"] = found
        return found

    def _read_out(self, fit: EmbeddingFit) -> dict[str, Any]:
        # If the kept epoch may not be the last, C has not been tuned yet.
        if fit.recipe.validation is not None or "C_" not in fit.found:
            return {"C_": self._regress(fit.state, tune=True)}
        return {}


class EmbeddingData:
    """Training data of an embedding: annotated instances, their labels, and the labels' certainty.

    Instances are ordered by their content, so that permuting the rows of X (and the annotations
    with them) does not change the training. The exceptions are annotations drawn beforehand, by
    ``validation`` or resampling.

    Attributes
    ----------
    rows : integer tensor of shape (n,)
        Annotated instances, as rows of X. All other arrays are in this order.
    targets : array of shape (n, n_classes)
        Posterior of the aggregator (one-hot if targets are hard), times the balancing weights.
    posterior : array of shape (n, n_classes)
        Posterior of the aggregator.
    labels : integer array of shape (n,)
        The most probable class; -1 where two classes tie.
    facts : dict of str to float
        Entries of the history's row for the epoch.
    n_steps : int
        Updates of the embedding so far.
    """

    def __init__(
        self, model: EmbeddingClassifier, fit: Fit[FixedConfusionModule, Any], targets: SoftTargets
    ) -> None:
        self.module, self.features, self.table = fit.module, fit.features, fit.table
        self.facts, self.recipe = fit.facts, fit.recipe
        self.n_steps = 0
        self._recorded: dict[str, list[Tensor]] = {}
        weighted = targets.weighted.double().cpu().numpy()
        posterior = fit.found["aggregator_"].posterior_
        features, table = self.features, self.table
        annotated = np.flatnonzero(table.annotations_per_instance())
        votes = table.vote_counts().sum(axis=1)
        order = annotated[_content_order(features, annotated, posterior, votes)]
        self.order = order
        self.rows = torch.from_numpy(order).to(features.device)
        self.targets, self.posterior = weighted[order], posterior[order]
        top = np.sort(self.posterior, axis=1)
        tied = top[:, -1] - top[:, -2] < 1e-9
        self.labels = np.where(tied, -1, self.posterior.argmax(axis=1))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def embedder(self) -> ScaledClassifier:
        """Scaling and network; training changes its ``embed``."""
        return self.module.classifier

    @property
    def network(self) -> EmbeddedRegression:
        """The network without its scaling."""
        return cast(EmbeddedRegression, self.embedder.backbone)

    def record(self, name: str, value: Tensor) -> None:
        """Record a value of a batch; its mean over the epoch goes into the history."""
        self._recorded.setdefault(name, []).append(value)

    def pop_means(self) -> dict[str, float]:
        """Return the means of the recorded values, and discard the values."""
        means = {name: float(torch.stack(values).mean()) for name, values in self._recorded.items()}
        self._recorded = {}
        return means

    def take(self, places: Tensor) -> Tensor:
        """Return the features of some of the instances, shape (m, *input_shape)."""
        return self.features.take(self.rows[places.to(self.rows.device)])

    @torch.no_grad()
    def embedded(self) -> Tensor:
        """Return the current embedding of every instance, without dropout, shape (n, d)."""
        self.module.eval()
        parts = self.features.batches(self.rows, PREDICT_BATCH)
        return torch.cat([self.embedder.embed(x) for x in parts])

    @torch.no_grad()
    def regress(self, C: float | str, n_folds: int) -> float:
        """Fit the regression on the current embedding; return its C.

        Raises
        ------
        DivergenceError
            If the embedding is not finite.
        """
        self.module.eval()
        backbone, scaler = self.network, self.embedder.scaler
        if backbone.with_input:
            scaled = torch.cat([scaler(x) for x in self.features.batches(self.rows, PREDICT_BATCH)])
            backbone.match_input_scale(self.embedded(), scaled.flatten(1))
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
    """Return an order of rows that depends on their content, not on their position."""
    digests: list[bytes] = []
    proba = np.ascontiguousarray(posterior[rows], dtype=np.float32)
    parts = features.batches(torch.from_numpy(rows).to(features.device), PREDICT_BATCH)
    for x in parts:
        for row in x.cpu().numpy():
            own_proba = proba[len(digests)].tobytes()
            digests.append(blake2b(row.tobytes() + own_proba, digest_size=8).digest())
    # Among equal instances with equal posteriors, the number of votes decides.
    return np.lexsort((votes[rows], np.frombuffer(b"".join(digests), dtype=np.uint64)))


EmbeddingFit = Fit[FixedConfusionModule, EmbeddingData]


# -- the embedding as a transformer ---------------------------------------------------------------


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdEmbedding(
    ClassNamePrefixFeaturesOutMixin, TakesProtocol, TransformerMixin, BaseEstimator
):
    """Base class of transformers that wrap the embedding of an `EmbeddingClassifier`.

    Attributes
    ----------
    classifier_ : EmbeddingClassifier
        The trained classifier; its regression uses C = 0.1.
    history_ : History
        See `manyhands.fitting.BaseCrowdClassifier`.
    """

    _classifier: ClassVar[type[EmbeddingClassifier]]

    backbone: Any = field(default=None, kw_only=False)
    aggregator: BaseAggregator | None = None
    max_epochs: int = 20
    lr: float = 3e-4
    weight_decay: float = 1e-2
    scaling: str | None = "auto"
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0
    protocol: EmbeddingProtocol | None = None

    _protocol: ClassVar[ProtocolOf[EmbeddingProtocol]] = ProtocolOf(EmbeddingProtocol)

    def fit(self, X: Instances, y: Target, *, watch: Watch | None = None) -> Self:
        """Learn the embedding from annotations; see `BaseCrowdClassifier.fit`."""
        # The regression is not used.
        protocol = self._protocol.with_values({"C": TRAINING_C})
        parameters: dict[str, Any] = {**self.get_params(deep=False), "protocol": protocol}
        with all_or_nothing(self):
            with without_collapse_warnings():  # The embedding is used, not its predictions.
                self.classifier_ = self._classifier(**parameters).fit(X, y, watch=watch)
            found = fitted_attributes(self.classifier_)
            take_over(self, {name: found[name] for name in SET_WITH_FEATURES & found.keys()})
        return self

    def fit_transform(self, X: Instances, y: Any = None) -> AnyArray:
        """Learn the embedding, then embed the same instances."""
        return self.fit(X, y).transform(X)

    def transform(self, X: Instances) -> AnyArray:
        """Embed instances, shape (n_samples, n_embedding), float32."""
        check_is_fitted(self, "classifier_")
        return self.classifier_.transform(X)

    @property
    def history_(self) -> History:
        """One row per epoch."""
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
