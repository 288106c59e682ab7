"""Metric learning from inferred labels: the baselines of NeuCrowd that learn an embedding.

.. [1] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import ceil
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.fitting.embedding import (
    CrowdEmbedding,
    EmbeddingClassifier,
    EmbeddingData,
    EmbeddingFit,
    EmbeddingProtocol,
)
from manyhands.fitting.latent import balancing_rng
from manyhands.fitting.method_protocol import ProtocolOf
from manyhands.objectives import LiftedStructureLoss, TripletCenterLoss, nearest_negatives
from manyhands.training import Stage
from manyhands.typing import IntArray

MARGINS = {
    "contrastive": 1.0,
    "triplet": 0.2,
    "triplet_semihard": 0.2,
    "lifted": 1.0,
    "center": 5.0,
}
"""Losses by name, and their margins."""


def shuffled_batches(
    labels: IntArray, batch_size: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Yield shuffled batches of the labelled instances in endless passes.

    A batch of one class has nothing to compare: an instance of another class replaces its last. A
    batch of one instance joins the batch before it.

    Raises
    ------
    AnnotationError
        If there is one class only, or no class has two instances.
    """
    known = np.flatnonzero(labels >= 0)
    counts = np.bincount(labels[known], minlength=1)
    if (counts > 0).sum() < 2:
        raise AnnotationError(
            "all inferred labels are of one class, so there are no instances of different classes "
            "to compare; annotate more instances"
        )
    if counts.max() < 2:
        raise AnnotationError("no class has two instances to compare; annotate more instances")
    ends = np.arange(batch_size, len(known), batch_size)
    if len(known) % batch_size == 1:
        ends = ends[:-1]
    while True:
        for batch in np.split(rng.permutation(known), ends):
            others = known[labels[known] != labels[batch[0]]]
            if (labels[batch] == labels[batch[0]]).all():
                batch[-1] = rng.choice(others)
            yield batch


class Comparison(nn.Module):
    """A loss of embeddings and labels, with the miner that chooses its pairs or triplets.

    Parameters
    ----------
    model : MetricLearningClassifier
    width : int
        Width of the embedding.
    """

    def __init__(self, model: MetricLearningClassifier, width: int) -> None:
        super().__init__()
        self.loss: nn.Module
        self.miner: Callable[..., Any] | None = deepcopy(model.miner)
        self.nearest = False
        if not isinstance(model.loss, str):
            self.loss = deepcopy(model.loss)
            return
        margin = (
            MARGINS[model.loss] if model._protocol.margin is None else float(model._protocol.margin)
        )
        if model.loss == "center":
            self.loss = TripletCenterLoss(len(model.classes_), width, margin)
        elif model.loss == "lifted":
            self.loss = LiftedStructureLoss(margin)
        else:
            self._from_library(model.loss, margin)

    def _from_library(self, name: str, margin: float) -> None:
        try:
            from pytorch_metric_learning.losses import ContrastiveLoss, TripletMarginLoss
            from pytorch_metric_learning.miners import TripletMarginMiner
        except ModuleNotFoundError as error:
            raise_missing_extra("MetricLearningClassifier", "torch", error)
        if name == "contrastive":
            self.loss = ContrastiveLoss(neg_margin=margin)
        else:
            self.loss = TripletMarginLoss(margin=margin)
        if name == "triplet_semihard":
            self.miner = TripletMarginMiner(margin=margin, type_of_triplets="semihard")
            self.nearest = True

    def forward(self, embedding: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch, a scalar."""
        chosen = []
        if self.miner is not None:
            mined = self.miner(embedding, labels)
            chosen = [nearest_negatives(embedding, mined) if self.nearest else mined]
        loss: Tensor = self.loss(embedding, labels, *chosen)
        return loss


class MetricStep:
    """Training step of the embedding, and of the parameters of the loss.

    Parameters
    ----------
    model : MetricLearningClassifier
    data : EmbeddingData
    comparison : Comparison
    """

    def __init__(
        self, model: MetricLearningClassifier, data: EmbeddingData, comparison: Comparison
    ) -> None:
        self.model = model
        self.data = data
        self.term = f"{model.loss if isinstance(model.loss, str) else 'metric'}_loss"
        device = data.features.device
        self.labels = torch.from_numpy(data.labels).to(device)
        self.comparison = comparison.to(device)
        self.optimizer = data.recipe.make_optimizer(data.module)
        own = list(comparison.parameters())
        self.own_optimizer = torch.optim.SGD(own, lr=model._protocol.loss_lr) if own else None

    def start_epoch(self, epoch: int) -> None:
        """Reset the optimiser if ``reset_optimizer`` asks for it."""
        if self.data.recipe.reset_optimizer and epoch:
            self.optimizer = self.data.recipe.make_optimizer(self.data.module)

    def __call__(self, batch: Tensor) -> dict[str, Tensor]:
        """Update the embedding on one batch."""
        self.data.module.train()
        embedding = self.data.embedder.embed(self.data.take(batch))
        loss = self.comparison(embedding, self.labels[batch.to(self.labels.device)])
        optimizers = [self.optimizer]
        if self.own_optimizer is not None:
            optimizers.append(self.own_optimizer)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return {self.term: loss.detach()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimisers and of the loss."""
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "n_steps": self.data.n_steps,
            "comparison": self.comparison.state_dict(),
        }
        if self.own_optimizer is not None:
            state["own_optimizer"] = self.own_optimizer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.data.n_steps = int(state["n_steps"])
        self.comparison.load_state_dict(state["comparison"])
        if self.own_optimizer is not None:
            self.own_optimizer.load_state_dict(state["own_optimizer"])


UPDATES_PER_INSTANCE = 10 / 256
"""Updates per instance and epoch with ``updates_per_epoch="auto"``: the number of NeuCrowd."""

MINED = ("contrastive", "triplet")
"""Losses by name for which a miner can choose pairs or triplets."""


@dataclass(frozen=True, kw_only=True, repr=False)
class MetricLearningProtocol(EmbeddingProtocol):
    """Protocol of `MetricLearningClassifier`: details of losses, and updates per epoch.

    Parameters
    ----------
    reset_optimizer, monitor, patience, regression, C, cv, targets
        See `manyhands.fitting.embedding.EmbeddingProtocol`.
    margin : float or None, default=None
        Margin m of the loss. None means 1, 0.2, 0.2, 1 and 5, in the order of ``loss``.
    updates_per_epoch : int or "auto", default="auto"
        Batches per epoch; with few instances, an epoch passes over the instances several times.
        "auto" means one batch per 25.6 instances, as in `NeuCrowdClassifier`.
    loss_lr : float, default=0.5
        Learning rate of the loss's own parameters (the centres), which plain SGD updates.
    """

    _constraints = {
        **EmbeddingProtocol._constraints,
        "margin": [None, Interval(Real, 0, None, closed="neither")],
        "updates_per_epoch": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "loss_lr": [Interval(Real, 0, None, closed="neither")],
    }

    margin: float | None = None
    updates_per_epoch: int | str = "auto"
    loss_lr: float = 0.5


@dataclass(kw_only=True, eq=False, repr=False)
class MetricLearningClassifier(EmbeddingClassifier):
    r"""Infer labels, learn an embedding from them by a metric loss, then a logistic regression.

    NeuCrowd's baselines [1]_ (Section 4.2): its second group with majority votes, its third with
    ``aggregator=DawidSkene()`` ("Triple+EM"). The losses are those of pytorch-metric-learning (the
    extra ``torch``).

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        The embedding network. None is ``"embedding"``: dropout of the features, 128 tanh units, 32
        linear units. Any network with ``embed`` will do; without ``embed``, its output is the
        embedding.
    loss : {"contrastive", "triplet", "triplet_semihard", "lifted", "center"} or nn.Module, \
default="triplet"
        The metric loss. With d the distance between embeddings scaled to length 1 and m the margin,
        it is a mean over a batch:

        * "contrastive": of d over pairs of the same class, and of max(0, m - d) over pairs of
          different classes;
        * "triplet": of max(0, d(a, p) - d(a, n) + m) over all triplets of an anchor, a positive of
          its class and a negative of another class;
        * "triplet_semihard": the same, over every anchor and positive with the nearest negative
          that is farther from the anchor than the positive, if there is one within the margin;
        * "lifted": lifted structured loss, see `manyhands.objectives.LiftedStructureLoss`;
        * "center": triplet-center loss with learnt centres and distances between unscaled
          embeddings; see `manyhands.objectives.TripletCenterLoss`.

        The first three take the mean over the terms that violate the margin. A module is called
        like those of pytorch-metric-learning: ``loss(embeddings, labels, indices_tuple)``. It is
        copied, and its parameters are learnt.
    miner : nn.Module, callable or None, default=None
        A miner of pytorch-metric-learning, ``miner(embeddings, labels)``. It chooses the pairs or
        triplets for "contrastive", "triplet" or a module of yours.
    aggregator : BaseAggregator or None, default=None
        Truth inference, which labels the instances. None is `MajorityVote`.
    batch_size : int, default=64
        Instances per batch, at least 2: all their pairs or triplets are compared.
    max_epochs, lr, weight_decay, class_balance, scaling, device, random_state, \
verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. ``class_balance`` acts on the regression.
    protocol : MetricLearningProtocol or None, default=None
        Variants and details of published experiments; None means `MetricLearningProtocol()`.

    Attributes
    ----------
    C_ : float
        The regression's C.
    aggregator_ : BaseAggregator
        The fitted aggregator; `MajorityVote` if none was given.
    confusion_, class_prior_
        See `AggregatedClassifier`.

    Notes
    -----
    ``history_`` logs the loss under its name, such as ``triplet_loss`` (``metric_loss`` for a
    module). It also logs ``step`` (updates so far) and ``C``. Instances whose inferred classes tie
    are not compared.

    References
    ----------
    .. [1] Hao, Ding & Liu, NeuCrowd, Knowledge and Information Systems 2022.

    Examples
    --------
    >>> from manyhands import MetricLearningClassifier, load_demo
    >>> demo = load_demo()
    >>> model = MetricLearningClassifier(max_epochs=1, random_state=0).set_params(protocol__C=0.1)
    >>> model.fit(demo.X_train, demo.annotations).transform(demo.X_test).shape[1]
    32
    """

    _parameter_constraints = {
        **EmbeddingClassifier._parameter_constraints,
        "loss": [StrOptions(set(MARGINS)), nn.Module],
        "miner": [None, nn.Module, callable],
        "batch_size": [Interval(Integral, 2, None, closed="left")],
    }

    loss: Any = "triplet"
    miner: Any = None
    batch_size: int = 64
    protocol: MetricLearningProtocol | None = None

    _protocol = ProtocolOf(MetricLearningProtocol)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self._protocol.margin is not None and not isinstance(self.loss, str):
            raise AnnotationError(
                f"margin={self._protocol.margin} is for losses given by name; set it on "
                f"{type(self.loss).__name__} itself"
            )
        if self.miner is not None and self.loss in set(MARGINS) - set(MINED):
            raise AnnotationError(
                f"loss={self.loss!r} chooses its own comparisons, so it takes no miner; use "
                f"{' or '.join(MINED)}, or a loss of pytorch-metric-learning"
            )

    def _stages(self, fit: EmbeddingFit) -> list[Stage]:
        data = fit.state
        return [self._embedding_stage(fit, self._step(data), partial(self._batches, data))]

    def _step(self, data: EmbeddingData) -> MetricStep:
        return MetricStep(self, data, Comparison(self, data.network.width))

    def _batches(self, data: EmbeddingData, epoch: int) -> Iterator[Tensor]:
        """Yield an epoch's batches of positions, in as many passes as needed."""
        every = shuffled_batches(data.labels, self.batch_size, balancing_rng(epoch, 1))
        n_updates = self._protocol.updates_per_epoch
        if n_updates == "auto":
            n_updates = ceil(UPDATES_PER_INSTANCE * (data.labels >= 0).sum())
        for batch in islice(every, int(n_updates)):
            yield torch.from_numpy(batch)


@dataclass(kw_only=True, eq=False, repr=False)
class MetricLearningEmbedding(CrowdEmbedding):
    """The embedding of `MetricLearningClassifier` as a scikit-learn transformer.

    ``fit(X, table)`` learns the embedding from annotations; ``transform(X)`` embeds instances for
    nearest neighbours, clustering or plots, or as a step of a pipeline that ends in a crowd
    classifier. To save the model or resume its training, use `MetricLearningClassifier`, which has
    ``transform`` too.

    Parameters
    ----------
    backbone, loss, miner, aggregator, max_epochs, batch_size, \
lr, weight_decay, scaling, device, random_state, verbose, protocol
        See `MetricLearningClassifier`. Fields of the protocol about the regression have no effect.

    Attributes
    ----------
    classifier_ : MetricLearningClassifier
        The classifier that learnt the embedding.
    history_ : History

    Examples
    --------
    >>> from manyhands import MetricLearningEmbedding, load_demo
    >>> demo = load_demo()
    >>> embedding = MetricLearningEmbedding(max_epochs=1, random_state=0)
    >>> embedding.fit(demo.X_train, demo.annotations).transform(demo.X_test[:3]).shape
    (3, 32)
    """

    _classifier = MetricLearningClassifier

    loss: Any = "triplet"
    miner: Any = None
    batch_size: int = 64
    protocol: MetricLearningProtocol | None = None

    _protocol = ProtocolOf(MetricLearningProtocol)
