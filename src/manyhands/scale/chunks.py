"""Reading of long tables of any size in chunks, from the position of the last chunk."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from manyhands.annotations import PASSES, SOURCES
from manyhands.annotations.wide import part_of_id, task_columns
from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.io.columns import find_columns
from manyhands.io.csv_files import released
from manyhands.io.encodings import LONGEST_LINE, find_encoding, marked_encoding
from manyhands.io.files import is_typed
from manyhands.io.sheets import (
    TITLES,
    UNSTATED,
    Stated,
    cells_of,
    decoded,
    limited_lines,
    opened,
    read_text,
    sampled,
    separator_of,
)
from manyhands.io.workbooks import is_workbook
from manyhands.typing import AnyArray, FloatArray, IntArray

_LOG = logging.getLogger("manyhands")

PASS: Final = "\0pass:"
"""Prefix of a label that stands for a pass, as the column "pass" names it."""

BYTES_A_ROW = 16
"""Assumed bytes of text in a row; if rows are longer, a chunk holds fewer rows."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive rows of a long table, as codes into their distinct values.

    Attributes
    ----------
    task, worker, label : integer arrays of shape (m,)
        Codes; -1 for a missing label.
    tasks : array of distinct ids, int64 or text
    workers, labels : lists of distinct values, as text
    weight : array of shape (m,) or None
    kinds : dict
        Of "task", "worker" and "label": "number" (typed so, or text that is canonical integers),
        "csv" (other text of a CSV file) or "text" (typed as text).
    position : int
        Start of the next chunk: a byte (CSV) or a row (Parquet).
    share : float
        Fraction of the file that has been read.
    """

    task: IntArray
    worker: IntArray
    label: IntArray
    tasks: AnyArray
    workers: list[str]
    labels: list[str]
    weight: FloatArray | None
    kinds: dict[str, str]
    position: int
    share: float


def can_be_chunked(path: Path) -> bool:
    """Return whether a table can be cut at any byte: it is neither a workbook nor in UTF-16."""
    if is_typed(path):
        return True
    if is_workbook(path):
        return False
    with opened(path) as file:
        return (marked_encoding(file.read(4096)) or "utf-8-sig") == "utf-8-sig"


def chunks_of(
    path: Path,
    columns: dict[str, Any],
    rows: int,
    position: int | None = None,
    stated: Stated = UNSTATED,
) -> Iterator[Chunk]:
    """Yield the chunks of a table of about ``rows`` rows each, from a position.

    Parameters
    ----------
    path : Path
        CSV of any separator (.gz, too), in UTF-8 or a code page; .parquet or .pq.
    columns : dict
        Names of the columns "task", "worker", "label" and "weight" (or None).
    rows : int
    position : int, optional
    stated : Stated
    """
    try:
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise_missing_extra("Ingesting files", "io", error)
    is_text = not is_typed(path)
    if is_text:
        found = _csv_tables(path, columns, rows, position, stated)
    else:
        found = _parquet_tables(path, columns, rows, position)
    for table, names, end, share in found:
        if len(table):
            yield _chunk(table, names, end, share, is_text=is_text)


# -- files ----------------------------------------------------------------------------------------


def _names(
    header: list[str], columns: dict[str, Any], path: Path
) -> tuple[dict[str, str], list[str]]:
    """Return the names of the columns by their role, and the columns that make up the task."""
    keys = task_columns(columns["task"] or "task", header)
    if len(keys) > 1:
        columns = columns | {"task": ",".join(keys)}
        header = [*header, ",".join(keys)] if set(keys) <= set(header) else header
    asked = {each: columns[each] for each in ("task", "worker", "label")}
    names: dict[str, str] = find_columns(header, asked, path)
    if columns["weight"] is not None:
        names["weight"] = columns["weight"]
    for argument, name in names.items():
        if name not in header:
            raise AnnotationError(
                f"{argument}={name!r} is not a column; the columns are "
                f"{', '.join(map(repr, header))}. Pass {argument}=<name of the column>"
            )
    return names | {name: name for name in ("pass", "source") if name in header}, keys


def _used(names: dict[str, str], keys: list[str]) -> list[str]:
    """Return the columns that are read from the file."""
    alone = names.values() if len(keys) == 1 else [*keys, *(names[n] for n in names if n != "task")]
    return list(dict.fromkeys(alone))


def _with_task(table: Any, name: str, keys: list[str]) -> Any:
    """Add a column of ids that joins several columns; see `manyhands.annotations.wide`."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    if len(keys) == 1:
        return table
    parts = []
    for key in keys:
        encoded = table[key].unify_dictionaries().combine_chunks().dictionary_encode()
        values = [part_of_id(value) or None for value in encoded.dictionary.to_pylist()]
        parts.append(pa.array(values, pa.string()).take(encoded.indices))
    return table.append_column(name, pc.binary_join_element_wise(*parts, "|"))


def _csv_tables(
    path: Path, columns: dict[str, Any], rows: int, position: int | None, stated: Stated
) -> Iterator[tuple[Any, dict[str, str], int, float]]:
    import pyarrow as pa
    from pyarrow import csv

    with opened(path) as file:
        head = _head(file, path, stated)
    names, keys = _names(head.header, columns, path)
    used = _used(names, keys)
    reading = csv.ReadOptions(column_names=head.header, use_threads=False)
    parsing = csv.ParseOptions(delimiter=head.separator, newlines_in_values=True)
    converting = csv.ConvertOptions(
        include_columns=used,
        column_types=dict.fromkeys(used, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    size = path.stat().st_size
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    with opened(path) as file:
        at = head.end if position is None else position
        file.seek(at)
        rest = b""
        while True:
            block = rest + file.read(rows * BYTES_A_ROW)
            ended = len(block) == len(rest)
            cut = len(block) if ended else _end_of_rows(block)
            if not cut and not ended and len(block) > 4 * LONGEST_LINE + rows * BYTES_A_ROW:
                raise AnnotationError("a row has no end; the file is damaged, or a quote is open")
            complete, rest = block[:cut], block[cut:]
            at += len(complete)
            if complete.strip():
                if head.encoding != "utf-8-sig":
                    complete = complete.decode(head.encoding).encode()
                table = csv.read_csv(io.BytesIO(complete), reading, parsing, converting)
                table = _with_task(table, names["task"], keys)
                done = file.fileobj.tell() if packed else at  # type: ignore[attr-defined]
                yield _without_blank(table, names, path), names, at, min(1.0, done / size)
            if ended:
                return


@dataclass(frozen=True)
class _Head:
    """Header of a table of text, and the byte at which its rows begin."""

    header: list[str]
    separator: str
    encoding: str
    end: int


def _head(file: IO[bytes], path: Path, stated: Stated) -> _Head:
    """Read the header of a table, below titles if there are some.

    Raises
    ------
    AnnotationError
        If the file has no header or no rows.
    """
    encoding = find_encoding(file, stated.encoding)
    if encoding.note is not None:
        _LOG.info("%s: %s", path.name, encoding.note)
    file.seek(0)
    sheet = read_text(file, replace(stated, encoding=encoding.name), most=TITLES)
    sheet.check()
    taken: list[str] = []
    with decoded(file, encoding.name) as text:
        lines = limited_lines(text)

        def noted() -> Iterator[str]:
            for line in lines:
                taken.append(line)
                yield line

        _, declared = separator_of(list(sampled(limited_lines(text))), stated.separator)
        text.seek(0)
        taken.extend(next(lines) for _ in range(declared))
        found = cells_of(noted(), sheet.separator)
        names = [next(found) for _ in range(sheet.top)][-1]
    file.seek(0)
    mark = 3 if file.read(3) == b"\xef\xbb\xbf" else 0
    end = mark + len("".join(taken).encode("utf-8" if mark else encoding.name.removesuffix("-sig")))
    unnamed = [f"\0{i}" for i in range(len(names))]
    header = [*sheet.header, *unnamed[len(sheet.header) :]]
    return _Head(header, sheet.separator, encoding.name, end)


def _without_blank(table: Any, names: dict[str, str], path: Path) -> Any:
    """Leave out rows without a task, an annotator and a label."""
    import pyarrow.compute as pc

    filled = [pc.is_valid(table[names[name]]) for name in ("task", "worker", "label")]
    kept = pc.or_(pc.or_(filled[0], filled[1]), filled[2])
    blank = len(table) - pc.sum(kept).as_py() if len(table) else 0
    if not blank:
        return table
    _LOG.info("%s: %d rows name no task, annotator or label and were skipped", path.name, blank)
    return table.filter(kept)


def _end_of_rows(block: bytes) -> int:
    """Return the position after the last line break outside quotes; 0 if there is none."""
    end = len(block)
    while True:
        end = block.rfind(b"\n", 0, end)
        if end < 0 or b'"' not in block or block.count(b'"', 0, end) % 2 == 0:
            return end + 1


def _parquet_tables(
    path: Path, columns: dict[str, Any], rows: int, position: int | None
) -> Iterator[tuple[Any, dict[str, str], int, float]]:
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    with pq.ParquetFile(path) as file:
        names, keys = _names(file.schema_arrow.names, columns, path)
        used = _used(names, keys)
        total, at = file.metadata.num_rows, 0
        for batch in file.iter_batches(rows, columns=used, use_threads=False):
            at += len(batch)
            if at > (position or 0):
                table = _with_task(pa.Table.from_batches([batch]), names["task"], keys)
                yield table, names, at, at / max(total, 1)


# -- columns --------------------------------------------------------------------------------------


def _chunk(table: Any, names: dict[str, str], end: int, share: float, *, is_text: bool) -> Chunk:
    import pyarrow as pa
    import pyarrow.compute as pc

    if "source" in names:
        _check_sources(table["source"])
    labels = table[names["label"]]
    if "pass" in names:
        labels = _with_passes(labels, table["pass"])
    task, tasks, task_kind = _encoded(table[names["task"]], is_text=is_text)
    worker, workers, worker_kind = _encoded(table[names["worker"]], is_text=is_text)
    label, classes, label_kind = _encoded(labels, is_text=is_text, numbers=not is_text)
    if label_kind == "text" and pa.types.is_integer(table[names["label"]].type):
        label_kind = "csv"  # Numeric labels became text when passes were added.
    for argument, codes in (("task", task), ("worker", worker)):
        gaps = np.flatnonzero(codes < 0)
        if len(gaps):
            raise AnnotationError(
                f"column {names[argument]!r} ({argument}) is empty in {len(gaps)} rows; fill or "
                "drop these rows"
            )
    weight = None
    if "weight" in names:
        try:
            weight = pc.cast(table[names["weight"]], "float64").to_numpy()
        except ValueError as error:
            raise AnnotationError(
                f"column {names['weight']!r} (weight) must hold numbers: {error}; correct or drop "
                "these rows"
            ) from error
    kinds = {"task": task_kind, "worker": worker_kind, "label": label_kind}
    people, given = (np.asarray(values).astype(str).tolist() for values in (workers, classes))
    return Chunk(task, worker, label, tasks, people, given, weight, kinds, end, share)


def _encoded(column: Any, *, is_text: bool, numbers: bool = True) -> tuple[IntArray, AnyArray, str]:
    """Return the codes of a column (-1 where empty), its distinct values, and their kind."""
    import pyarrow as pa

    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    values = encoded.dictionary
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_integer(values.type):
        return codes, values.to_numpy(zero_copy_only=False).astype(np.int64), "number"
    if pa.types.is_floating(values.type) or pa.types.is_boolean(values.type):
        raise AnnotationError(
            f"a column holds {values.type} values such as {values[0].as_py()!r}; a class or an id "
            "is an integer or a text. Convert the column"
        )
    if not is_text:
        return codes, np.array(values.to_pylist(), dtype=str), "text"
    if numbers and len(values):
        found = _canonical(values)
        if found is not None:
            return codes, found, "number"
    texts = [released(text.lstrip(" ")) for text in values.to_pylist()]
    distinct, same = np.unique(np.array(texts, dtype=str), return_inverse=True)
    return np.where(codes < 0, -1, np.append(same, -1)[codes]), distinct, "csv"


def _canonical(values: Any) -> IntArray | None:
    """Return distinct texts as integers if all are canonical ("7", not "007"), else None."""
    import pyarrow as pa

    try:
        integers = values.cast(pa.int64())
    except ValueError:
        return None
    if not integers.cast(values.type).equals(values):
        return None
    return np.asarray(integers.to_numpy(zero_copy_only=False))


def _with_passes(labels: Any, passes: Any) -> Any:
    """Put the passes among the labels, each as `PASS` and its kind."""
    import pyarrow as pa
    import pyarrow.compute as pc

    named = pc.cast(passes, pa.string())
    unknown = [v for v in pc.unique(named).to_pylist() if v is not None and v not in PASSES]
    if unknown:
        return labels  # The column "pass" holds something else; small tables ignore it, too.
    both = pc.sum(pc.and_(pc.is_valid(labels), pc.is_valid(named))).as_py()
    if both:
        raise AnnotationError(
            f"{both} rows have both a label and a pass; empty one of the two columns"
        )
    if not pa.types.is_string(labels.type) and not pc.any(pc.is_valid(named)).as_py():
        return labels
    marked = pc.binary_join_element_wise(PASS, named, "")
    return pc.coalesce(pc.cast(labels, pa.string()), marked)


def _check_sources(column: Any) -> None:
    import pyarrow.compute as pc

    values = set(pc.unique(column).to_pylist())
    added = [source for source in SOURCES[1:] if source in values]
    if added and values <= {None, *SOURCES}:
        raise AnnotationError(
            f"column 'source' marks rows as {added[0]!r}, and a store carries observed annotations "
            "only; drop these rows, or the column"
        )
