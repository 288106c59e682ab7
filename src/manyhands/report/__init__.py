"""Reports on annotations: `summarize` makes a dict, `write_report` one HTML file of it."""

from manyhands.report.annotators import annotator_columns
from manyhands.report.columns import summary_tables
from manyhands.report.html import render_report, write_report
from manyhands.report.inputs import read_inputs
from manyhands.report.items import ItemContents, read_contents
from manyhands.report.judges import summarize_judges
from manyhands.report.section import Action, Findings, Section
from manyhands.report.sections import SECTIONS
from manyhands.report.summary import (
    summarize,
    summarize_annotators,
    summarize_inputs,
    summarize_ratings,
    summarize_sets,
)

__all__ = [
    "SECTIONS",
    "Action",
    "Contents",
    "Findings",
    "ItemContents",
    "Section",
    "annotator_columns",
    "read_contents",
    "read_inputs",
    "render_report",
    "summarize",
    "summarize_annotators",
    "summarize_inputs",
    "summarize_judges",
    "summarize_ratings",
    "summarize_sets",
    "summary_tables",
    "write_report",
]

Contents = ItemContents
"""Earlier name of `ItemContents`."""
