"""What metric learning trains on and by: shuffled batches, losses with their miners, one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.fitting.embedding import EmbeddingData
from manyhands.objectives import LiftedStructureLoss, TripletCenterLoss, nearest_negatives
from manyhands.typing import IntArray

if TYPE_CHECKING:
    from manyhands.classifiers.metric_learning.classifier import MetricLearningClassifier

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
    """Yield shuffled batches of the labelled instances, pass after pass, without end.

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
        raise AnnotationError("the inferred labels hold one class only; nothing can be compared")
    if counts.max() < 2:
        raise AnnotationError(
            "no class has two instances, so that nothing can be compared; label more instances"
        )
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
    """A loss of embeddings and labels, and the miner that chooses what it compares.

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
        margin = MARGINS[model.loss] if model.margin is None else float(model.margin)
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
            raise_missing_extra("MetricLearningClassifier", "metric", error)
        if name == "contrastive":
            self.loss = ContrastiveLoss(neg_margin=margin)
        else:
            self.loss = TripletMarginLoss(margin=margin)
        if name == "triplet_semihard":
            self.miner = TripletMarginMiner(margin=margin, type_of_triplets="semihard")
            self.nearest = True

    def forward(self, embedding: Tensor, labels: Tensor) -> Tensor:
        """Loss of a batch, a scalar."""
        chosen = []
        if self.miner is not None:
            mined = self.miner(embedding, labels)
            chosen = [nearest_negatives(embedding, mined) if self.nearest else mined]
        loss: Tensor = self.loss(embedding, labels, *chosen)
        return loss


class MetricStep:
    """Training of the embedding, and of what the loss itself learns.

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
        self.optimizer = model._make_optimizer(data.module)
        own = list(comparison.parameters())
        self.own_optimizer = torch.optim.SGD(own, lr=model.loss_lr) if own else None

    def start_epoch(self, epoch: int) -> None:
        """Reset the optimiser if ``reset_optimizer`` asks for it."""
        if self.model.reset_optimizer and epoch:
            self.optimizer = self.model._make_optimizer(self.data.module)

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
        """State of the optimisers and of the loss."""
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "n_steps": self.data.n_steps,
            "comparison": self.comparison.state_dict(),
        }
        if self.own_optimizer is not None:
            state["own_optimizer"] = self.own_optimizer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.data.n_steps = int(state["n_steps"])
        self.comparison.load_state_dict(state["comparison"])
        if self.own_optimizer is not None:
            self.own_optimizer.load_state_dict(state["own_optimizer"])
