"""Reading annotations, exports, features and gold labels; writing labels and annotations."""

from manyhands.files import write_atomically
from manyhands.io.aligned import read_aligned, read_images, read_raw_aligned, read_texts
from manyhands.io.annotations import read_annotations, read_export
from manyhands.io.comparisons import read_comparisons
from manyhands.io.consensus_labels import Consensus, consensus
from manyhands.io.exports.records import Export
from manyhands.io.features import FeatureFile, read_features
from manyhands.io.gold import GoldFile, read_gold, read_history
from manyhands.io.label_sets import read_gold_sets, read_label_sets
from manyhands.io.writers import write_annotations, write_labels

__all__ = [
    "Consensus",
    "Export",
    "FeatureFile",
    "GoldFile",
    "consensus",
    "read_aligned",
    "read_annotations",
    "read_comparisons",
    "read_export",
    "read_features",
    "read_gold",
    "read_gold_sets",
    "read_history",
    "read_images",
    "read_label_sets",
    "read_raw_aligned",
    "read_texts",
    "write_annotations",
    "write_atomically",
    "write_labels",
]
