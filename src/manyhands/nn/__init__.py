"""Neural networks: backbones and noise adaptation layers. No losses, no optimisers."""

from manyhands.nn.annotator_embedding import AnnotatorEmbedding
from manyhands.nn.annotator_heads import AnnotatorHeadsModule, DoctorNetModule
from manyhands.nn.backbones import (
    BACKBONES,
    CNN,
    MLP,
    VGG16,
    EmbeddingMLP,
    Field,
    Linear,
    PackedShape,
    ResNet18,
    make_backbone,
    pack,
)
from manyhands.nn.base import CrowdModule, ScaledClassifier, make_scaled
from manyhands.nn.embedding import REGRESSIONS, EmbeddedRegression, SamplingNetwork
from manyhands.nn.ensemble import Ensemble
from manyhands.nn.generative_crowd import (
    GENERATOR_INPUTS,
    GENERATORS,
    LCA_FORMS,
    AnnotationDiscriminator,
    AnnotationGenerator,
    AuxiliaryNetwork,
    CrowdLayerGenerator,
    GenerativeCrowdModule,
    Pairs,
    normalized_adjacency,
)
from manyhands.nn.graph import AnnotationEdges, GraphCompletionModule, GraphConvolution
from manyhands.nn.noise_adaptation import (
    CONNECTIONS,
    PARAMETRIZATIONS,
    AggregatorModule,
    CommonNoiseModule,
    ConfusionModule,
    CrowdLayerModule,
    DirectModule,
    FixedCommonNoiseModule,
    FixedConfusionModule,
)
from manyhands.nn.standardize import Standardize, channels_last
from manyhands.nn.synthesis import SPACES, Decoder, SynthesisModule

__all__ = [
    "BACKBONES",
    "CNN",
    "CONNECTIONS",
    "GENERATORS",
    "GENERATOR_INPUTS",
    "LCA_FORMS",
    "MLP",
    "PARAMETRIZATIONS",
    "REGRESSIONS",
    "SPACES",
    "VGG16",
    "AggregatorModule",
    "AnnotationDiscriminator",
    "AnnotationEdges",
    "AnnotationGenerator",
    "AnnotatorEmbedding",
    "AnnotatorHeadsModule",
    "AuxiliaryNetwork",
    "CommonNoiseModule",
    "ConfusionModule",
    "CrowdLayerGenerator",
    "CrowdLayerModule",
    "CrowdModule",
    "Decoder",
    "DirectModule",
    "DoctorNetModule",
    "EmbeddedRegression",
    "EmbeddingMLP",
    "Ensemble",
    "Field",
    "FixedCommonNoiseModule",
    "FixedConfusionModule",
    "GenerativeCrowdModule",
    "GraphCompletionModule",
    "GraphConvolution",
    "Linear",
    "PackedShape",
    "Pairs",
    "ResNet18",
    "SamplingNetwork",
    "ScaledClassifier",
    "Standardize",
    "SynthesisModule",
    "channels_last",
    "make_backbone",
    "make_scaled",
    "normalized_adjacency",
    "pack",
]
