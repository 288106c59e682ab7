"""Reports on a crowd's annotations: `summarize` makes a dict, `write_report` one HTML file of it.

`summarize` needs no optional dependency; rendering needs the extra 'report'.
"""

from manyhands.report.html import render_report, write_report
from manyhands.report.summary import summarize

__all__ = ["render_report", "summarize", "write_report"]
