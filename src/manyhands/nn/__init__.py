"""Networks: backbones and noise adaptation layers. No losses, no optimisers."""

from manyhands.nn.backbones import BACKBONES, MLP, Linear, make_backbone
from manyhands.nn.base import CrowdModule, ScaledClassifier, Standardize
from manyhands.nn.noise_adaptation import (
    CONNECTIONS,
    CommonNoiseModule,
    CrowdLayerModule,
    FixedConfusionModule,
)

__all__ = [
    "BACKBONES",
    "CONNECTIONS",
    "MLP",
    "CommonNoiseModule",
    "CrowdLayerModule",
    "CrowdModule",
    "FixedConfusionModule",
    "Linear",
    "ScaledClassifier",
    "Standardize",
    "make_backbone",
]
