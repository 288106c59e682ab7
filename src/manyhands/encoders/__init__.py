"""Texts and images as features: scikit-learn transformers, none of which downloads by itself."""

from manyhands.encoders.adapters import (
    SentenceTransformerEncoder,
    TimmEncoder,
    TorchEncoder,
    TransformersEncoder,
)
from manyhands.encoders.frozen import EmbeddingCache, FunctionEncoder
from manyhands.encoders.images import ImageEncoder
from manyhands.encoders.texts import TextEncoder

__all__ = [
    "EmbeddingCache",
    "FunctionEncoder",
    "ImageEncoder",
    "SentenceTransformerEncoder",
    "TextEncoder",
    "TimmEncoder",
    "TorchEncoder",
    "TransformersEncoder",
]
