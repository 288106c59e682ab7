"""The last training of cross-fitted EM: all networks on the posterior, and the regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from manyhands.fitting.latent import SoftTargets
from manyhands.fitting.logistic import fit_logistic
from manyhands.nn import CrowdModule, Ensemble, Linear
from manyhands.sampling.class_balance import ClassBalance
from manyhands.training import CrowdBatch
from manyhands.typing import FloatArray


class EnsembleTargets(SoftTargets):
    """Soft targets that each network of an ensemble is trained on.

    Parameters
    ----------
    balance, device
        See `SoftTargets`.
    on_change : callable (shares) -> None
        Gets the share of each class whenever the targets change.
    """

    def __init__(
        self,
        balance: ClassBalance | None,
        device: torch.device,
        on_change: Callable[[FloatArray], None],
    ) -> None:
        super().__init__(balance, device)
        self.on_change = on_change

    def set(self, targets: FloatArray, rng: np.random.Generator) -> None:
        """Take new targets (n_instances, n_classes), and balance them."""
        super().set(targets, rng)
        self.on_change(self.shares)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.on_change(self.shares)

    def objective(self, module: CrowdModule, batch: CrowdBatch) -> dict[str, Tensor]:
        """``cross_entropy``, the mean over networks and instances."""
        classifier = module.classifier
        logits = cast(Ensemble, classifier.backbone).member_logits(classifier.scaler(batch.x))
        return self.loss(logits.flatten(0, 1), batch.instances.repeat(len(logits)))


def fit_linear(linear: Linear, batches: Callable[[], Any], targets: Tensor) -> None:
    """Fit the ensemble's linear network to its minimum.

    Parameters
    ----------
    linear : Linear
    batches : callable () -> iterator of tensors of shape (n, d)
        One pass over the m instances, scaled and flattened.
    targets : tensor of shape (m, n_classes)
    """
    every = torch.ones(1, len(targets), device=targets.device)
    weight, bias = fit_logistic(batches, targets, every, None)
    with torch.no_grad():
        linear.head.weight.copy_(weight[0])
        linear.head.bias.copy_(bias[0])
