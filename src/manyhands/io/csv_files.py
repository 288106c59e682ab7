"""Writing CSV from which no spreadsheet runs formulas, and that Excel opens on a double-click."""

from __future__ import annotations

import csv
import io
import locale
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")
"""First characters by which spreadsheets take a cell for a formula, unless it is a number."""


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet would run a cell, with or without apostrophes before it."""
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


DECIMALS: Final = 6
"""Number of decimals with which numbers are written."""

MARK: Final = "\ufeff"
"""Byte order mark; without it, Excel reads UTF-8 in the system's code page."""

_FOR_EXCEL: ContextVar[bool] = ContextVar("for_excel", default=False)


@contextmanager
def for_excel() -> Iterator[None]:
    """Write every CSV file for Excel within this context, as the option --excel does."""
    token = _FOR_EXCEL.set(True)
    try:
        yield
    finally:
        _FOR_EXCEL.reset(token)


def decimal_mark() -> str:
    """Return the decimal mark that Excel expects in CSV here: a point, or a comma."""
    before = locale.setlocale(locale.LC_NUMERIC)
    try:
        locale.setlocale(locale.LC_NUMERIC, "")
        return "," if locale.localeconv()["decimal_point"] == "," else "."
    except locale.Error:  # The environment names a locale that is not installed.
        return "."
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)


def csv_text(
    columns: Mapping[str, Sequence[Any]],
    *,
    separator: str = ",",
    keep_formulas: bool = False,
    excel: bool = False,
) -> str:
    """Write columns as CSV.

    Parameters
    ----------
    columns : mapping from str to sequences of equal length
        Floats are written with six decimals, None as an empty cell.
    separator : str
    keep_formulas : bool
        Write text such as ``=SUM(A1)`` as it is. By default an apostrophe before it prevents
        spreadsheets from running it; `read_frame` removes the apostrophe.
    excel : bool
        Write CSV that Excel opens on a double-click on a computer with this one's settings: with a
        byte order mark, and, if the settings have decimal commas, with decimal commas and with
        semicolons between the cells. Also applies within `for_excel`.
    """
    excel = excel or _FOR_EXCEL.get()
    decimal = decimal_mark() if excel else "."
    if decimal == "," == separator:
        separator = ";"

    def cell(value: Any) -> Any:
        if isinstance(value, float):
            return f"{value:.{DECIMALS}f}".replace(".", decimal)
        unsafe = isinstance(value, str) and not keep_formulas and is_formula(value)
        return f"'{value}" if unsafe else value

    rows = [list(columns), *zip(*columns.values(), strict=True)]
    # The csv module does not quote a lone carriage return, but readers end the row there.
    quote_all = any(isinstance(v, str) and "\r" in v for row in rows for v in row)
    text = io.StringIO()
    text.write(MARK if excel else "")
    writer = csv.writer(
        text,
        delimiter=separator,
        lineterminator="\n",
        quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL,
    )
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()
