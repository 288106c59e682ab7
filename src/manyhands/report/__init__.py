"""Reports on a crowd's annotations: `summarize` makes a dict, `write_report` one HTML file of it.

`summarize` needs no optional dependency; rendering needs the extra 'report'.
"""

from manyhands.report.html import render_report, write_report
from manyhands.report.items import Contents, read_contents
from manyhands.report.summary import summarize
from manyhands.report.tables import annotator_columns, summary_tables

__all__ = [
    "Contents",
    "annotator_columns",
    "read_contents",
    "render_report",
    "summarize",
    "summary_tables",
    "write_report",
]
