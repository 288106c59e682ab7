"""Networks: backbones and noise adaptation layers. No losses, no optimisers."""

from manyhands.nn.annotator_heads import AnnotatorHeadsModule, DoctorNetModule
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
    PARAMETRIZATIONS,
    AggregatorModule,
    CommonNoiseModule,
    ConfusionModule,
    CrowdLayerModule,
    DirectModule,
    FixedConfusionModule,
)
from manyhands.nn.standardize import Standardize

__all__ = [
    "BACKBONES",
    "CNN",
    "CONNECTIONS",
    "MLP",
    "PARAMETRIZATIONS",
    "VGG16",
    "AggregatorModule",
    "AnnotatorHeadsModule",
    "CommonNoiseModule",
    "ConfusionModule",
    "CrowdLayerModule",
    "CrowdModule",
    "DirectModule",
    "DoctorNetModule",
    "FixedConfusionModule",
    "Linear",
    "ResNet18",
    "ScaledClassifier",
    "Standardize",
    "make_backbone",
]
