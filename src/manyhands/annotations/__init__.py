"""The annotation table, and the encoding of ids and labels it rests on."""

from manyhands.annotations.encoding import as_table
from manyhands.annotations.table import SOURCES, AnnotationTable

__all__ = ["SOURCES", "AnnotationTable", "as_table"]
