"""The annotation table, and the encoding of its ids and labels."""

from manyhands.annotations.certainty import certainty_groups, label_assurance, label_certainty
from manyhands.annotations.columns import SOURCES
from manyhands.annotations.label_set_table import LabelSetTable
from manyhands.annotations.passes import PASSES
from manyhands.annotations.table import AnnotationTable
from manyhands.annotations.target import as_table

__all__ = [
    "PASSES",
    "SOURCES",
    "AnnotationTable",
    "LabelSetTable",
    "as_table",
    "certainty_groups",
    "label_assurance",
    "label_certainty",
]
