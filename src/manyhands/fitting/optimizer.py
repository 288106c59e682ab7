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
        For all parameters, or only for the classifier's if ``noise_lr`` is given.
    noise_lr : float or None
        Learning rate of the other parameters, without weight decay.
    """
    # The fused update halves the time of a step, but torch never chooses it by default.
    fused = next(module.parameters()).device.type in {"cpu", "cuda"}
    if noise_lr is None:
        return torch.optim.Adam(module.parameters(), lr=lr, weight_decay=weight_decay, fused=fused)
    classifier = list(module.classifier.parameters())
    classifier_ids = {id(parameter) for parameter in classifier}
    noise = [parameter for parameter in module.parameters() if id(parameter) not in classifier_ids]
    # Decay would pull confusion matrices towards 0, which means a uniform annotator.
    groups = [
        {"params": classifier, "weight_decay": weight_decay},
        {"params": noise, "lr": noise_lr},
    ]
    return torch.optim.Adam(groups, lr=lr, fused=fused)
