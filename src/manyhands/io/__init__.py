"""Readers of annotations, exports, features and gold labels, and atomic writing of files."""

from manyhands.io.annotations import read_aligned, read_annotations, read_export
from manyhands.io.exports.reading import Export
from manyhands.io.features import FeatureFile, read_features
from manyhands.io.files import write_atomically
from manyhands.io.gold import GoldFile, read_gold

__all__ = [
    "Export",
    "FeatureFile",
    "GoldFile",
    "read_aligned",
    "read_annotations",
    "read_export",
    "read_features",
    "read_gold",
    "write_atomically",
]
