"""The parameters of `CrowdInGClassifier` that its adversarial steps use."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True)
class AdversarialSettings:
    """Parameters of an adversarial step. Most are described in `CrowdInGClassifier`.

    Attributes
    ----------
    uniform_selection : bool
        ``selection="random"``.
    contrast_open : bool
        ``contrast="open"``.
    logged_epoch : bool
        ``logging_policy="epoch"``.
    """

    generator_lr: float
    classifier_lr: float
    discriminator_lr: float
    discriminator_decay: float
    information_weight: float
    entropy_threshold: float
    adversarial_cost: str
    sparsity_weight: float
    sparsity_form: str
    mu: str | float
    truncation: float
    discriminator_steps: int
    generative_steps: int
    two_steps: bool
    uniform_selection: bool
    contrast_open: bool
    logged_epoch: bool
    chunk_size: int
    reset_optimizer: bool

    @classmethod
    def of(cls, model: Any) -> Self:
        """Read the settings off a `CrowdInGClassifier`."""
        choices = {
            "uniform_selection": model.selection == "random",
            "contrast_open": model.contrast == "open",
            "logged_epoch": model.logging_policy == "epoch",
        }
        names = {field.name for field in fields(cls)} - choices.keys()
        return cls(**{name: getattr(model, name) for name in names}, **choices)
