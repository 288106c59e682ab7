"""Where a CSV or TSV file is read, as strictly as its content allows.

Cells are text first: an id column becomes integers only if every id is a canonical integer ("7",
not "007"), "NA" and "None" are ids like others, and an empty cell is a gap.
"""

from __future__ import annotations

import csv
import gzip
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import narwhals as nw

from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.io.columns import Frame, id_column, some
from manyhands.io.opening import SEPARATORS, suffix_of

_GAPS = ["", "nan", "NaN", "NA", "N/A", "null", "None"]


@contextmanager
def _text(path: Path) -> Iterator[io.TextIOWrapper]:
    """Open a text file, compressed or not; a byte order mark is no part of the header."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opener(path, "rb") as binary:
        if b"\0" in binary.read(4096):
            raise AnnotationError("this is no UTF-8 text; save it as such, or check its name")
        binary.seek(0)
        try:
            with io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as text:
                yield text
        except UnicodeDecodeError as error:
            raise AnnotationError(
                f"byte {error.start} is not UTF-8 text; save the file as UTF-8, or check its name"
            ) from error


def csv_header(path: Path) -> list[str]:
    """Return the column names as they stand in the file, after a look at the first row."""
    separator = SEPARATORS[suffix_of(path)]
    with _text(path) as text:
        rows = (row for row in csv.reader(text, delimiter=separator) if row)
        header, first = next(rows, []), next(rows, None)
    _check_header(header, separator)
    if first is None:
        raise AnnotationError(f"a header ({some(header)}) but no rows; export the file again")
    return header


def _check_header(header: list[str], separator: str) -> None:
    if not any(name.strip() for name in header):
        raise AnnotationError("the file holds no header; the first line must name the columns")
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise AnnotationError(f"column {twice[0]!r} stands twice in the header; rename one")
    other = [mark for mark in ",;\t|" if mark in header[0]]
    if len(header) == 1 and other:
        raise AnnotationError(
            f"the header {header[0]!r} is one column: fields are separated by {other[0]!r}, not by "
            f"{separator!r}. Save with commas as .csv, or with tabs as .tsv"
        )


def read_csv(path: Path, *, features: list[str] | None = None) -> Frame:
    """Read all columns as text, or those of a header of ``features`` as numbers but for ids."""
    try:
        import pandas as pd
    except ImportError as error:
        raise_missing_extra(f"Reading a {suffix_of(path)} file", "io", error)
    options = {"dtype": str, "na_values": [""]} if features is None else _numeric(features)
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
                "rows have more fields than the header; name every column, and drop separators at "
                "the ends of lines"
            ) from error
    frame.columns = [str(name).strip() for name in frame.columns]
    return cast(Frame, nw.from_native(frame, eager_only=True))


def _numeric(header: list[str]) -> dict[str, Any]:
    """Options of pandas that read every column but the ids as numbers."""
    id_name = id_column(name.strip() for name in header)
    ids = {name for name in header if name.strip() == id_name}
    return {
        "dtype": dict.fromkeys(ids, str),
        "na_values": {name: _GAPS for name in header if name not in ids},
    }
