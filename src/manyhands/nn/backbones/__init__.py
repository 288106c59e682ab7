"""Backbones, which map features to class logits, usually through an embedding."""

from manyhands.nn.backbones.dense import MLP, EmbeddingMLP, Linear
from manyhands.nn.backbones.given import (
    BACKBONES,
    Field,
    PackedShape,
    blank,
    embedded,
    first_embedding,
    make_backbone,
    pack,
)
from manyhands.nn.backbones.images import CNN, VGG16, ResNet18

__all__ = [
    "BACKBONES",
    "CNN",
    "MLP",
    "VGG16",
    "EmbeddingMLP",
    "Field",
    "Linear",
    "PackedShape",
    "ResNet18",
    "blank",
    "embedded",
    "first_embedding",
    "make_backbone",
    "pack",
]
