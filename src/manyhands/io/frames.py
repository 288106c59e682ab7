"""Reading long tables of any format as data frames, and writing columns in any format."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import narwhals as nw

from manyhands.annotations.frames import SHEET_ROWS
from manyhands.exceptions import AnnotationError, WriteError, raise_missing_extra
from manyhands.files import explain, write_atomically
from manyhands.io.columns import Frame
from manyhands.io.csv_files import csv_text, released
from manyhands.io.files import SEPARATORS, PathLike, is_typed, suffix_of
from manyhands.io.sheets import UNSTATED, Sheet, Stated, read_sheet
from manyhands.io.workbooks import check_installed, write_workbook

WRITTEN = (".csv", ".tsv", ".xlsx", ".parquet", ".json", ".jsonl")
"""Formats of `write_table`, by suffix."""

NO_SHEETS = frozenset({".json", ".jsonl", ".ndjson", ".npy", ".npz", ".pdf", ".docx"})
"""Suffixes of files that are not tables of cells."""

_LOG = logging.getLogger("manyhands")


def read_frame(path: Path, stated: Stated = UNSTATED) -> Frame:
    """Read a table; the columns of all but Parquet files are text.

    The file may be CSV of any separator and encoding, whatever its suffix, or an Excel workbook.
    Cells are not interpreted: "NA" and "None" are ordinary values, and only an empty cell is a
    missing one. The index of the pandas frame holds the row numbers of the spreadsheet.
    """
    if is_typed(path):
        return read_parquet(path)
    sheet = read_checked(path, stated)
    import pandas as pd

    columns = dict(zip(sheet.header, sheet.columns(), strict=True))
    if sheet.separator:  # In a workbook, text is never a formula, and has no apostrophe.
        columns = {name: _released(cells) for name, cells in columns.items()}
    rows = pd.Index(sheet.numbers, name=SHEET_ROWS)
    del sheet  # Its rows take most of the memory.
    cells = {name: [cell or None for cell in column] for name, column in columns.items()}
    frame = pd.DataFrame(cells, index=rows, dtype=str, columns=list(cells))
    return nw.from_native(frame, eager_only=True)


def _released(cells: tuple[str, ...]) -> tuple[str, ...]:
    if "'" in "".join(cells):
        return tuple(map(released, cells))
    return cells


def read_checked(path: Path, stated: Stated = UNSTATED) -> Sheet:
    """Read a sheet with a header of distinct names and at least one row, and log its notes.

    Raises
    ------
    AnnotationError
        If the file is not such a table, or has an unknown suffix.
    """
    if suffix_of(path) in NO_SHEETS:
        raise AnnotationError(
            f"files ending in {suffix_of(path)!r} cannot be read; use .csv, .tsv, .xlsx, .parquet, "
            "(for texts) .txt, or (for matrices) .npy, .npz"
        )
    sheet = read_sheet(path, stated)
    sheet.check()
    for note in sheet.notes:
        _LOG.info("%s: %s", path.name, note)
    return sheet


def read_parquet(path: Path) -> Frame:
    """Read a parquet file."""
    try:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError as error:
        raise_missing_extra("Reading a parquet file", "io", error)
    frame = nw.from_native(pq.read_table(path), eager_only=True)
    if not len(frame):
        raise AnnotationError(
            f"the file has no rows; its columns are {', '.join(map(repr, frame.columns))}"
        )
    return cast(Frame, frame)


def check_table_path(path: PathLike) -> Path:
    """Check, before any work, that `write_table` can write a file of this name.

    Raises
    ------
    AnnotationError
        If the suffix is none of `WRITTEN`.
    WriteError
        If it is a folder, or its folder cannot be written.
    MissingExtraError
        If the format needs an extra that is not installed.
    """
    path = Path(path)
    if path.is_dir():
        raise WriteError(errno.EISDIR, explain(OSError(errno.EISDIR, ""), path))
    if path.suffix.lower() not in WRITTEN:
        raise AnnotationError(
            f"{str(path)!r} ends in {path.suffix!r}, which is not a format of tables; give a name "
            f"that ends in {', '.join(WRITTEN[:-1])} or {WRITTEN[-1]}"
        )
    if path.suffix.lower() == ".xlsx":
        check_installed()
    if path.suffix.lower() == ".parquet":
        _pyarrow()
    place = next(folder for folder in path.absolute().parents if folder.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        reason = errno.EACCES if place.is_dir() else errno.ENOTDIR
        raise WriteError(reason, explain(OSError(reason, ""), path))
    return path


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise_missing_extra("Writing a parquet file", "io", error)
    return pa


def write_table(
    path: PathLike,
    columns: Mapping[str, Sequence[Any]],
    *,
    keep_formulas: bool = False,
    excel: bool = False,
) -> Path:
    """Write columns atomically; the suffix determines the format (see `WRITTEN`).

    Parameters
    ----------
    path : str or Path
    columns : mapping from str to sequences of equal length
        For Parquet, also arrays of pyarrow, whose types are kept.
    keep_formulas : bool
        As in `csv_text`; has no effect on other formats. A workbook stores text as text, which
        Excel does not run.
    excel : bool
        As in `csv_text`; has no effect on other formats.

    Raises
    ------
    AnnotationError
        If the suffix is unknown, or a workbook cannot hold so many rows or so long a text.
    WriteError
        If the file cannot be written.
    MissingExtraError
        If the format is Parquet or .xlsx, and the extra 'io' is not installed.
    """
    path = check_table_path(path)
    suffix = path.suffix.lower()
    if suffix in SEPARATORS:
        separator = SEPARATORS[suffix]
        text = csv_text(columns, separator=separator, keep_formulas=keep_formulas, excel=excel)
        return write_atomically(path, text)
    if suffix == ".xlsx":
        return write_atomically(path, write_workbook(columns))
    if suffix == ".parquet":
        return write_atomically(path, _parquet(columns))
    rows = [
        json.dumps(dict(zip(columns, row, strict=True)), allow_nan=False)
        for row in zip(*columns.values(), strict=True)
    ]
    text = "\n".join(rows) if suffix == ".jsonl" else "[\n" + ",\n".join(rows) + "\n]"
    return write_atomically(path, text + "\n")


def write_parquet_parts(path: PathLike, parts: Iterable[Mapping[str, Any]]) -> Path:
    """Write columns that come in parts as one Parquet file, atomically.

    Raises
    ------
    WriteError
        If the file cannot be written.
    MissingExtraError
        If the extra 'io' is not installed.
    """
    pa = _pyarrow()

    def write(file: Any) -> None:
        writer = None
        for part in parts:
            table = pa.table({name: pa.array(values) for name, values in part.items()})
            writer = writer or pa.parquet.ParquetWriter(file, table.schema)
            writer.write_table(table.cast(writer.schema))
        if writer is not None:
            writer.close()

    return write_atomically(check_table_path(path), write)


def _parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    pa = _pyarrow()
    content = io.BytesIO()
    arrays = {name: v if isinstance(v, pa.Array) else list(v) for name, v in columns.items()}
    pa.parquet.write_table(pa.table(arrays), content)
    return content.getvalue()
