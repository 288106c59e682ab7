"""What can be watched after every epoch: held-out annotations, or gold labels."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhands.nn import CrowdModule
from manyhands.objectives import crowd_nll
from manyhands.training import AnnotationBatches, Features


class AnnotationMonitor:
    """``validation_nll``: mean negative log likelihood of held-out annotations."""

    def __init__(self, module: CrowdModule, batches: AnnotationBatches) -> None:
        self.module = module
        self.batches = batches

    @torch.inference_mode()
    def __call__(self) -> dict[str, float]:
        """Evaluate the module as it is."""
        self.module.eval()
        total, weight = 0.0, 0.0
        for batch in self.batches.in_order():
            size = float(len(batch.labels) if batch.weights is None else batch.weights.sum())
            total += size * float(crowd_nll(self.module, batch)["nll"])
            weight += size
        return {"validation_nll": total / weight}


class GoldMonitor:
    """``validation_accuracy``: share of gold labels predicted."""

    def __init__(
        self, module: CrowdModule, features: Features, gold: Tensor, batch_size: int
    ) -> None:
        self.module = module
        self.features = features
        self.gold = gold
        self.batch_size = batch_size

    @torch.inference_mode()
    def __call__(self) -> dict[str, float]:
        """Evaluate the module as it is."""
        self.module.eval()
        every_row = torch.arange(len(self.features))
        parts = [self.module(x) for x in self.features.batches(every_row, self.batch_size)]
        right = torch.cat(parts).argmax(dim=1).cpu() == self.gold
        return {"validation_accuracy": float(right.double().mean())}
