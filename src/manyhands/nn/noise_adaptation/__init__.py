"""Noise adaptation layers, which map the classifier's output to distributions of annotations.

A new layer is a `CrowdModule` in a new file here, exported below.
"""

from manyhands.nn.noise_adaptation.aggregator import AggregatorModule
from manyhands.nn.noise_adaptation.common_noise import CommonNoiseModule, FixedCommonNoiseModule
from manyhands.nn.noise_adaptation.confusion import (
    PARAMETRIZATIONS,
    ConfusionModule,
    DirectModule,
    FixedConfusionModule,
)
from manyhands.nn.noise_adaptation.crowd_layer import CONNECTIONS, CrowdLayerModule

__all__ = [
    "CONNECTIONS",
    "PARAMETRIZATIONS",
    "AggregatorModule",
    "CommonNoiseModule",
    "ConfusionModule",
    "CrowdLayerModule",
    "DirectModule",
    "FixedCommonNoiseModule",
    "FixedConfusionModule",
]
