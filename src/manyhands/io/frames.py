"""Reading long tables of any format as data frames."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import narwhals as nw

from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.io.columns import Frame
from manyhands.io.csv_files import csv_header, read_csv
from manyhands.io.opening import SEPARATORS, suffix_of


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
            f"files ending in {suffix_of(path)!r} cannot be read; use .csv, .tsv, .parquet, .npy "
            "or (for features) .npz"
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
