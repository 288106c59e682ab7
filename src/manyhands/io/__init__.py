"""Readers of what people have, and writers that never leave half a file."""

from manyhands.io.files import write_atomically
from manyhands.io.readers import (
    FeatureFile,
    GoldFile,
    read_aligned,
    read_annotations,
    read_features,
    read_gold,
)

__all__ = [
    "FeatureFile",
    "GoldFile",
    "read_aligned",
    "read_annotations",
    "read_features",
    "read_gold",
    "write_atomically",
]
