"""The optimiser of networks: Adam."""

from __future__ import annotations

import torch

from manyhands.nn import CrowdModule


def make_adam(
    module: CrowdModule, lr: float, weight_decay: float, noise_lr: float | None = None
) -> torch.optim.Optimizer:
    """Adam for a crowd module.

    Parameters
    ----------
    module : CrowdModule
    lr, weight_decay : float
        Of all parameters, or with ``noise_lr`` of the classifier's alone.
    noise_lr : float or None
        Learning rate of the others, which are then not decayed.
    """
    # The fused update halves the time of a step; torch chooses it by itself on no device.
    fused = next(module.parameters()).device.type in {"cpu", "cuda"}
    if noise_lr is None:
        return torch.optim.Adam(module.parameters(), lr=lr, weight_decay=weight_decay, fused=fused)
    classifier = list(module.classifier.parameters())
    ours = {id(parameter) for parameter in classifier}
    noise = [parameter for parameter in module.parameters() if id(parameter) not in ours]
    # Decay would pull confusion matrices towards 0, which is a uniform annotator.
    groups = [
        {"params": classifier, "weight_decay": weight_decay},
        {"params": noise, "lr": noise_lr},
    ]
    return torch.optim.Adam(groups, lr=lr, fused=fused)
