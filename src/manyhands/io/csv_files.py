"""Writing CSV that no spreadsheet runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")
"""A spreadsheet takes a cell that begins with one of these as a formula, if it is no number."""


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would run a cell, or would if apostrophes before it were absent."""
    content = text.lstrip("'")
    if not content.startswith(FORMULA_STARTS):
        return False
    try:
        float(content)
    except ValueError:
        return True
    return content != content.strip()


def released(cell: str) -> str:
    """Remove the apostrophe that `csv_text` puts before a formula."""
    return cell[1:] if cell.startswith("'") and is_formula(cell) else cell


def csv_text(
    columns: Mapping[str, Sequence[Any]], *, separator: str = ",", keep_formulas: bool = False
) -> str:
    """Write columns as CSV.

    Parameters
    ----------
    columns : mapping from str to sequences of equal length
        Floats are written with six decimals, None as an empty cell.
    separator : str
    keep_formulas : bool
        Write text such as ``=SUM(A1)`` as it is. By default an apostrophe before it keeps
        spreadsheets from running it; `read_frame` removes the apostrophe.
    """

    def cell(value: Any) -> Any:
        if isinstance(value, float):
            return f"{value:.6f}"
        unsafe = isinstance(value, str) and not keep_formulas and is_formula(value)
        return f"'{value}" if unsafe else value

    rows = [list(columns), *zip(*columns.values(), strict=True)]
    # The csv module does not quote a lone carriage return, at which readers end the row.
    quote_all = any(isinstance(v, str) and "\r" in v for row in rows for v in row)
    text = io.StringIO()
    writer = csv.writer(
        text,
        delimiter=separator,
        lineterminator="\n",
        quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL,
    )
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()
