"""Networks: backbones and noise adaptation layers. No losses, no optimisers."""

from manyhands.nn.backbones import (
    BACKBONES,
    CNN,
    MLP,
    VGG16,
    Linear,
    ResNet18,
    make_backbone,
)
from manyhands.nn.base import CrowdModule, ScaledClassifier
from manyhands.nn.noise_adaptation import (
    CONNECTIONS,
    CommonNoiseModule,
    CrowdLayerModule,
    FixedConfusionModule,
)
from manyhands.nn.standardize import Standardize

__all__ = [
    "BACKBONES",
    "CNN",
    "CONNECTIONS",
    "MLP",
    "VGG16",
    "CommonNoiseModule",
    "CrowdLayerModule",
    "CrowdModule",
    "FixedConfusionModule",
    "Linear",
    "ResNet18",
    "ScaledClassifier",
    "Standardize",
    "make_backbone",
]
