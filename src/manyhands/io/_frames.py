"""Long tables in files: opening them, finding their columns, giving text its types."""

from __future__ import annotations

import csv
import gzip
import io
import logging
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import narwhals as nw
import numpy as np

from manyhands.annotations.encoding import distinct_text, missing_mask
from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.typing import AnyArray, BoolArray

PathLike: TypeAlias = str | os.PathLike[str]
Frame: TypeAlias = nw.DataFrame[Any]

_LOG = logging.getLogger("manyhands")

SEPARATORS = {".csv": ",", ".tsv": "\t"}
_GAPS = ["", "nan", "NaN", "NA", "N/A", "null", "None"]
# Names that other tools give to the columns; an "id" at the end (user_id, WorkerID) is ignored.
_SYNONYMS = {
    "task": {"task", "instance", "item", "question", "example", "sample", "document", "image"},
    "worker": {"worker", "annotator", "user", "rater", "labeler", "labeller", "coder"},
    "label": {"label", "answer", "annotation", "response", "class", "category", "rating"},
    "gold": {"label", "gold", "goldlabel", "truelabel", "truth", "groundtruth", "class", "y"},
}


def id_column(names: Iterable[str]) -> str | None:
    """Find the one name that stands for ids."""
    names = list(names)
    if "task" in names:
        return "task"
    found = [n for n in names if n != "X" and _base(n) in _SYNONYMS["task"] | {""}]
    if len(found) > 1:
        raise AnnotationError(f"{some(found)} could all be the ids; name the right one 'task'")
    return found[0] if found else None


def find_column(frame: Frame, argument: str, name: str) -> str:
    """Return the name of a column, or of the only one that bears a common other name."""
    default = "label" if argument == "gold" else argument
    if name in frame.columns or name != default:
        return name
    found = [c for c in frame.columns if _base(c) in _SYNONYMS[argument]]
    if len(found) > 1:
        raise AnnotationError(
            f"no column {name!r}, and {some(found)} could all be it; pass {default}=<name>"
        )
    if not found:
        return name
    _LOG.info("column %r is read as the %s", found[0], default)
    return found[0]


def _base(name: str) -> str:
    """Reduce a column name to what counts: 'Worker_ID' to 'worker', 'id' to ''."""
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("id")


def require_column(frame: Frame, argument: str, name: str) -> None:
    """Refuse a name that is no column."""
    if name not in frame.columns:
        raise AnnotationError(
            f"{argument}={name!r} is not a column; the columns are "
            f"{', '.join(map(repr, frame.columns))}. Pass {argument}=<name of the column>"
        )


def with_types(frame: Frame, names: dict[str, str], path: Path) -> Frame:
    """Give the text columns of a CSV file their types; other formats have them."""
    if suffix_of(path) not in SEPARATORS:
        return frame
    for argument, name in names.items():
        if name not in frame.columns:
            continue
        raw = frame[name].to_numpy()
        gaps = missing_mask(raw)
        text, rows = distinct_text(raw[~gaps])
        typed: AnyArray
        if argument == "weight":
            typed = _numbers(text, name)
        else:
            typed = canonical(text, floats=argument == "label")
        if typed.dtype.kind not in "UT":
            frame = with_column(frame, name, with_gaps(typed[rows], gaps))
    return frame


def canonical(text: AnyArray, *, floats: bool = False) -> AnyArray:
    """Turn text into integers if every value is a canonical integer, or leave it.

    With ``floats`` "3.0" counts as 3: a column of codes with gaps is often written so.
    """
    text = np.asarray(text, dtype=str)
    try:
        integers = text.astype(np.int64)
    except (ValueError, OverflowError):
        if floats:
            whole = canonical(np.array([v.removesuffix(".0") for v in text.tolist()], dtype=str))
            return whole if whole.dtype.kind == "i" else text
        return text
    return integers if len(text) and (integers.astype(str) == text).all() else text


def _numbers(text: AnyArray, column: str) -> AnyArray:
    try:
        return text.astype(np.float64)
    except ValueError as error:
        raise AnnotationError(f"column {column!r} (weight) holds no number: {error}") from error


def with_gaps(values: AnyArray, gaps: BoolArray) -> AnyArray:
    """Put values back between gaps, which become None."""
    if not gaps.any():
        return values
    full = np.full(len(gaps), None, dtype=object)
    full[~gaps] = values
    return full


def with_column(frame: Frame, name: str, values: AnyArray) -> Frame:
    """Replace one column."""
    series = nw.new_series(name, values.tolist(), backend=frame.implementation)
    return frame.with_columns(series)


def some(values: Any) -> str:
    """Show the first three values."""
    shown = [v.item() if isinstance(v, np.generic) else v for v in values[:3]]
    return ", ".join(map(repr, shown)) + (" ..." if len(values) > 3 else "")


def suffix_of(path: Path) -> str:
    """Return the suffix that tells the format, '.csv' for 'a.CSV.gz'."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def existing_file(path: PathLike) -> Path:
    """Refuse what is no file, or has no content."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist (looked in {Path.cwd()}); check the name, or give an absolute "
            "path"
        )
    if path.is_dir():
        raise AnnotationError(f"{path} is a folder; name a file in it")
    if not path.stat().st_size:
        raise AnnotationError(f"{path} is empty (0 bytes); export it again")
    return path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in every error, and turn what parsers raise on a foreign file into one."""
    damaged = (ValueError, EOFError, OSError, MemoryError, KeyError, zlib.error)
    try:
        yield
    except AnnotationError as error:
        raise AnnotationError(f"{path}: {error}") from error
    except (*damaged, zipfile.BadZipFile, csv.Error) as error:
        reason = str(error).strip().rstrip(".") or type(error).__name__
        raise AnnotationError(
            f"{path} cannot be read as {suffix_of(path) or 'a table'}: {reason}. The file is "
            "incomplete, or its content is not what its name says; export it again"
        ) from error


def read_frame(path: Path) -> Frame:
    """Read a table; the columns of a CSV file are text."""
    suffix = suffix_of(path)
    if suffix in SEPARATORS:
        csv_header(path)
        return read_csv(path)
    return read_parquet(path)


def read_parquet(path: Path) -> Frame:
    """Read a parquet file; refuse every other suffix."""
    if suffix_of(path) not in (".parquet", ".pq"):
        raise AnnotationError(
            f"files ending in {suffix_of(path)!r} are not read; use .csv, .tsv, .parquet, .npy or "
            "(features) .npz"
        )
    try:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError as error:
        raise_missing_extra("Reading a parquet file", "io", error)
    frame = nw.from_native(pq.read_table(path), eager_only=True)
    if not len(frame):
        raise AnnotationError(f"no rows; the columns are {', '.join(map(repr, frame.columns))}")
    return cast(Frame, frame)


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
