"""Reading long tables of any format as data frames, and writing columns in any format."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import narwhals as nw

from manyhands.exceptions import AnnotationError, WriteError, raise_missing_extra
from manyhands.io.columns import Frame
from manyhands.io.csv_files import csv_header, csv_text, read_csv
from manyhands.io.files import SEPARATORS, PathLike, explain, suffix_of, write_atomically

WRITTEN = (".csv", ".tsv", ".parquet", ".json", ".jsonl")
"""Formats of `write_table`, by suffix."""


def read_frame(path: Path) -> Frame:
    """Read a table; the columns of a CSV file are text."""
    suffix = suffix_of(path)
    if suffix in SEPARATORS:
        csv_header(path)
        return read_csv(path)
    return read_parquet(path)


def read_parquet(path: Path) -> Frame:
    """Read a parquet file; raise an error for any other suffix."""
    if suffix_of(path) not in (".parquet", ".pq"):
        raise AnnotationError(
            f"files ending in {suffix_of(path)!r} cannot be read; use .csv, .tsv, .parquet, "
            "(for texts) .txt, or (for matrices) .npy, .npz"
        )
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
    """Check, before any work, that `write_table` knows the format of a file name.

    Raises
    ------
    AnnotationError
        If the suffix is none of `WRITTEN`.
    WriteError
        If it is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise WriteError(errno.EISDIR, explain(OSError(errno.EISDIR, ""), path))
    if path.suffix.lower() not in WRITTEN:
        raise AnnotationError(
            f"{str(path)!r} ends in {path.suffix!r}, which is not a format of tables; give a name "
            f"that ends in {', '.join(WRITTEN[:-1])} or {WRITTEN[-1]}"
        )
    return path


def write_table(
    path: PathLike, columns: Mapping[str, Sequence[Any]], *, keep_formulas: bool = False
) -> Path:
    """Write columns atomically; the suffix determines the format (see `WRITTEN`).

    Parameters
    ----------
    path : str or Path
    columns : mapping from str to sequences of equal length
    keep_formulas : bool
        As in `csv_text`; the other formats are never changed, as no spreadsheet runs them.

    Raises
    ------
    AnnotationError
        If the suffix is unknown.
    WriteError
        If the file cannot be written.
    MissingExtraError
        If the format is Parquet and the extra 'io' is not installed.
    """
    path = check_table_path(path)
    suffix = path.suffix.lower()
    if suffix in SEPARATORS:
        text = csv_text(columns, separator=SEPARATORS[suffix], keep_formulas=keep_formulas)
        return write_atomically(path, text)
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
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise_missing_extra("Writing a parquet file", "io", error)

    def write(file: Any) -> None:
        writer = None
        for part in parts:
            table = pa.table({name: pa.array(values) for name, values in part.items()})
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table.cast(writer.schema))
        if writer is not None:
            writer.close()

    return write_atomically(check_table_path(path), write)


def _parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise_missing_extra("Writing a parquet file", "io", error)
    content = io.BytesIO()
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), content)
    return content.getvalue()
