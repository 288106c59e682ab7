"""One report on a crowd's annotations: `summarize` to a dict, then one self-contained HTML file.

`summarize` needs no optional dependency; rendering needs the extra 'report'.
"""

from manyhands.report._html import render_report, write_report
from manyhands.report._summarize import summarize

__all__ = ["render_report", "summarize", "write_report"]
