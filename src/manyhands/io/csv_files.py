"""Strict reading of CSV and TSV files, and writing that no spreadsheet runs.

Cells are read as text: an id column becomes integers only if every id is a canonical integer ("7",
not "007"), "NA" and "None" are ordinary ids, and an empty cell is a missing value.
"""

from __future__ import annotations

import csv
import gzip
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import narwhals as nw

from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.io.columns import Frame, preview
from manyhands.io.exports import parsing
from manyhands.io.files import SEPARATORS, suffix_of

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")
"""A spreadsheet takes a cell that begins with one of these as a formula, if it is no number."""

_MISSING_NUMBERS = ["", "nan", "NaN", "NA", "N/A", "null", "None"]


@contextmanager
def _text(path: Path) -> Iterator[io.TextIOWrapper]:
    """Open a text file, compressed or not, without its byte order mark."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opener(path, "rb") as binary:
        if b"\0" in binary.read(4096):
            raise AnnotationError("this is not UTF-8 text; save it as UTF-8, or check its name")
        binary.seek(0)
        _check_lines(binary)
        binary.seek(0)
        try:
            with io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as text:
                yield text
        except UnicodeDecodeError as error:
            raise AnnotationError(
                f"byte {error.start} is not UTF-8 text; save the file as UTF-8, or check its name"
            ) from error


def _check_lines(binary: Any) -> None:
    """Refuse a line that would fill the memory, before a parser holds it."""
    limit = parsing.LONGEST_LINE
    for block in iter(lambda: binary.read(limit), b""):
        if len(block) == limit and b"\n" not in block and b"\r" not in block:
            raise AnnotationError(
                f"a line is longer than {limit // parsing.MIB} MiB; the file is damaged, or not "
                "what it is called. Export it again"
            )


def csv_header(path: Path) -> list[str]:
    """Return the column names as written in the file; the file must have a header and a row."""
    separator = SEPARATORS[suffix_of(path)]
    with _text(path) as text:
        rows = (row for row in csv.reader(text, delimiter=separator) if row)
        header, first = next(rows, []), next(rows, None)
    _check_header(header, separator)
    if first is None:
        raise AnnotationError(
            f"the file has a header ({preview(header)}) but no rows; export it again"
        )
    return header


def _check_header(header: list[str], separator: str) -> None:
    if not any(name.strip() for name in header):
        raise AnnotationError("the file has no header; the first line must name the columns")
    repeated = [name for name in header if header.count(name) > 1]
    if repeated:
        raise AnnotationError(f"column {repeated[0]!r} occurs twice in the header; rename one")
    other = [mark for mark in ",;\t|" if mark in header[0]]
    if len(header) == 1 and other:
        raise AnnotationError(
            f"the header {header[0]!r} is one column: fields are separated by {other[0]!r}, not by "
            f"{separator!r}. Save the file with commas as .csv, or with tabs as .tsv"
        )


def read_csv(path: Path, *, features: list[str] | None = None, ids: str | None = None) -> Frame:
    """Read all columns as text; with a header of ``features``, read all but the ids as numbers."""
    try:
        import pandas as pd
    except ImportError as error:
        raise_missing_extra(f"Reading a {suffix_of(path)} file", "io", error)
    options = {"dtype": str, "na_values": [""]} if features is None else _numeric(features, ids)
    with _text(path) as text, warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = pd.read_csv(
                text,
                sep=SEPARATORS[suffix_of(path)],
                index_col=False,
                keep_default_na=False,
                low_memory=False,
                skipinitialspace=suffix_of(path) == ".csv",
                **options,
            )
        except pd.errors.ParserWarning as error:
            raise AnnotationError(
                "rows have more fields than the header; name every column, and remove separators "
                "at the ends of lines"
            ) from error
    frame.columns = [str(name).strip() for name in frame.columns]
    for position, kind in enumerate(frame.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            frame.isetitem(position, _released(frame.iloc[:, position]))
    return cast(Frame, nw.from_native(frame, eager_only=True))


def _numeric(header: list[str], id_name: str | None) -> dict[str, Any]:
    """Options with which pandas reads all columns except the ids as numbers."""
    ids = {name for name in header if name.strip() == id_name}
    return {
        # pandas would rename a column without a name, as its own index is when written.
        "names": header,
        "header": 0,
        "dtype": dict.fromkeys(ids, str),
        "na_values": {name: _MISSING_NUMBERS for name in header if name not in ids},
    }


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


def _released(cells: Any) -> Any:
    marked = cells.str.startswith("'", na=False)
    return cells.where(~marked, cells[marked].map(released)) if marked.any() else cells


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
        spreadsheets from running it; `read_csv` removes the apostrophe.
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
