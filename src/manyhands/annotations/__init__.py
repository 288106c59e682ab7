"""The annotation table, and the encoding of ids and labels it rests on."""

from manyhands.annotations.certainty import certainty_groups, label_assurance, label_certainty
from manyhands.annotations.encoding import PASSES, as_table
from manyhands.annotations.table import SOURCES, AnnotationTable

__all__ = [
    "PASSES",
    "SOURCES",
    "AnnotationTable",
    "as_table",
    "certainty_groups",
    "label_assurance",
    "label_certainty",
]
