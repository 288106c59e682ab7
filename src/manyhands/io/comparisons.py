"""Readers of comparisons of two: row by row, so that files of millions of rows need little memory.

A column becomes integer codes while it is read; of the texts, each is kept once.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations.ids import in_natural_order
from manyhands.comparisons import ComparisonTable
from manyhands.comparisons.layouts import WORKERS, find_columns
from manyhands.comparisons.table import refuse_times
from manyhands.exceptions import AnnotationError, raise_missing_extra, warn_caller
from manyhands.io.columns import canonical
from manyhands.io.encodings import find_encoding
from manyhands.io.files import PathLike, existing_file, naming, suffix_of
from manyhands.io.sheets import (
    cells_of,
    decoded,
    limited_lines,
    opened,
    read_sheet,
    sampled,
    separator_of,
)
from manyhands.io.workbooks import is_workbook
from manyhands.typing import AnyArray, IntArray

Rows = Iterator[tuple[int, Sequence[Any]]]
"""Row numbers as the file counts them, and the cells of the wanted columns."""


def read_comparisons(
    path: PathLike | Sequence[PathLike],
    left: str = "left",
    right: str = "right",
    winner: str = "winner",
    worker: str | None = "worker",
    question: str | None = None,
    *,
    weight: str | None = None,
    abstain: Any = None,
    time: str | None = None,
) -> ComparisonTable:
    """Read comparisons of two from a file, or from several that are read as one.

    Parameters
    ----------
    path : str or Path, or a sequence of them
        CSV with any separator (also compressed by gzip), Excel, JSON (a list of objects), JSON
        Lines, or Parquet. If several files have no column of annotators, each is the file of the
        annotator that it is named after.
    left, right, winner, worker, question, weight, abstain, time
        As in `ComparisonTable.from_frame`.

    Returns
    -------
    ComparisonTable
        Ids that are whole numbers in all rows become integers.

    Raises
    ------
    AnnotationError
        If a file is empty or damaged, or for the reasons of `ComparisonTable.from_frame`. The
        message names the file and the row as a spreadsheet counts it.
    FileNotFoundError
        If a file does not exist.
    MissingExtraError
        If it is Parquet or Excel, and the extra 'io' is not installed.

    Warns
    -----
    UserWarning
        If no column of annotators is found, or rows have no winner.
    """
    refuse_times(time)
    paths = [path] if isinstance(path, str | Path) or not isinstance(path, Sequence) else list(path)
    if not paths:
        raise AnnotationError("path is empty; give a file of comparisons")
    files = [existing_file(each) for each in paths]
    asked = {"left": left, "right": right, "winner": winner, "worker": worker}
    asked |= {"question": question, "weight": weight}
    gathered = _Columns()
    for file in files:
        with naming(file):
            gathered.read(file, asked, several=len(files) > 1)
    with naming(files[0]) if len(files) == 1 else _unnamed():
        return gathered.table(abstain)


class _Codes:
    """A column as codes of its distinct values."""

    def __init__(self) -> None:
        self.position: dict[Any, int] = {}
        self.codes = array("i")

    def add(self, value: Any) -> None:
        self.codes.append(self.position.setdefault(value, len(self.position)))

    def get(self) -> tuple[IntArray, AnyArray]:
        """Codes, and ids in natural order; whole numbers are integers."""
        codes = np.frombuffer(self.codes, dtype=np.int32) if self.codes else np.zeros(0, np.int32)
        ids = canonical(np.array(list(self.position) or [], dtype=str))
        if ids.dtype.kind == "i":
            order = np.argsort(ids)
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            return rank[codes], ids[order]
        return in_natural_order(codes, ids)


class _Columns:
    """Columns of all files."""

    def __init__(self) -> None:
        self.items, self.workers, self.winners, self.questions = (_Codes() for _ in range(4))
        self.gaps, self.weights, self.rows = array("b"), array("f"), array("q")
        self.has_workers = True
        self.has_questions: bool | None = None

    def read(self, file: Path, asked: Mapping[str, str | None], *, several: bool) -> None:
        """Add the rows of a file."""
        with _opened_rows(file) as (names, rows):
            asked = dict(asked)
            judge = None
            if several and asked["worker"] == WORKERS[0] and not {*WORKERS} & {*names}:
                asked["worker"], judge = None, file.name.split(".")[0]
            found = find_columns(names, **asked)  # type: ignore[arg-type]
            if judge is None and "worker" not in found:
                self.has_workers = False
            if self.has_questions not in (None, "question" in found):
                raise AnnotationError("some files have questions and others have none; name them")
            self.has_questions = "question" in found
            places = {key: names.index(name) for key, name in found.items()}
            self._add(rows, places, found, judge)

    def _add(
        self, rows: Rows, places: dict[str, int], found: dict[str, str], judge: str | None
    ) -> None:
        left, right, winner = (places[key] for key in ("left", "right", "winner"))
        worker, question, weight = (places.get(key) for key in ("worker", "question", "weight"))
        for number, cells in rows:
            one, other, won = cells[left], cells[right], cells[winner]
            if not one or not other:
                side = "left" if not one else "right"
                raise AnnotationError(
                    f"column {found[side]!r} ({side}) is empty in row {number}; fill or drop it"
                )
            self.items.add(one)
            self.items.add(other)
            self.gaps.append(not won)
            self.winners.add(won)
            who = cells[worker] if worker is not None else judge or "all"
            if not who:
                raise AnnotationError(
                    f"column {found['worker']!r} (worker) is empty in row {number}; fill or drop it"
                )
            self.workers.add(who)
            if question is not None:
                if not cells[question]:
                    raise AnnotationError(
                        f"column {found['question']!r} (question) is empty in row {number}; fill "
                        "or drop it"
                    )
                self.questions.add(cells[question])
            if weight is not None:
                try:
                    self.weights.append(float(cells[weight]))
                except ValueError as error:
                    raise AnnotationError(
                        f"column {found['weight']!r} (weight) holds {cells[weight]!r} in row "
                        f"{number}; a weight is a number that is not negative"
                    ) from error
            self.rows.append(number)

    def table(self, abstain: Any) -> ComparisonTable:
        """Return the table of all rows."""
        if not len(self.gaps):
            raise AnnotationError("there is no comparison below the header; export it again")
        sides, items = self.items.get()
        who, people = self.workers.get()
        asked, questions = self.questions.get() if self.has_questions else (None, None)
        return ComparisonTable.from_codes(
            sides[0::2],
            sides[1::2],
            who,
            np.frombuffer(self.winners.codes, dtype=np.int32),
            winners=list(self.winners.position),
            gaps=np.frombuffer(self.gaps, dtype=np.int8).astype(bool),
            items=items,
            annotators=people,
            question=asked,
            questions=questions,
            weights=np.frombuffer(self.weights, dtype=np.float32) if self.weights else None,
            has_annotators=self.has_workers,
            abstain=abstain,
            rows=lambda at: f"row {self.rows[int(at[0])]}",
        )


@contextmanager
def _unnamed() -> Iterator[None]:
    yield


@contextmanager
def _opened_rows(file: Path) -> Iterator[tuple[list[str], Rows]]:
    """Names of the columns of a file, and its rows."""
    suffix = suffix_of(file)
    if suffix in (".parquet", ".pq"):
        yield _parquet_rows(file)
    elif suffix in (".json", ".jsonl", ".ndjson"):
        with opened(file) as binary:
            yield _object_rows(binary, is_list=suffix == ".json")
    elif is_workbook(file):
        sheet = read_sheet(file)
        yield sheet.header, _numbered(iter(sheet.rows), len(sheet.header))
    else:
        with opened(file) as binary:
            encoding = find_encoding(binary)
            if encoding.note is not None and encoding.doubt:
                warn_caller(encoding.note)
            with decoded(binary, encoding.name) as text:
                separator, skipped = separator_of(list(sampled(limited_lines(text))))
                text.seek(0)
                lines = iter(text) if encoding.checked else limited_lines(text)
                for _ in range(skipped):
                    next(lines)
                cells = cells_of(lines, separator)
                header = [name.strip() for name in next(cells, [])]
                yield header, _numbered(cells, len(header), first=2 + skipped)


def _numbered(cells: Iterator[Sequence[str]], n: int, first: int = 2) -> Rows:
    """Rows with their numbers, blank ones left out."""
    for number, row in enumerate(cells, start=first):
        if len(row) != n:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) > n:
                raise AnnotationError(f"row {number} has {len(row)} cells, the header has {n}")
            row = [*row, *[""] * (n - len(row))]
        stripped = [cell.strip() for cell in row]
        if any(stripped):
            yield number, stripped


def _object_rows(binary: Any, *, is_list: bool) -> tuple[list[str], Rows]:
    """Rows of JSON: of a list of objects, or of one object per line."""
    if is_list:
        found = json.load(binary)
        if isinstance(found, dict):  # {"data": [...]}.
            lists = [value for value in found.values() if isinstance(value, list)]
            found = lists[0] if len(lists) == 1 else found
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise AnnotationError(
                'it holds no list of objects; give [{"left": ..., "right": ..., "winner": '
                "...}, ...], or JSON Lines with one object per line"
            )
        objects: Iterator[tuple[int, Any]] = iter(list(enumerate(found, start=1)))
    else:
        objects = _lines_of_json(binary)
    head = next(objects, None)
    if head is None:
        return [], iter(())
    names = [str(name) for name in head[1]]

    def rows() -> Rows:
        yield head[0], [_as_text(head[1].get(name)) for name in names]
        for number, value in objects:
            yield number, [_as_text(value.get(name)) for name in names]

    return names, rows()


def _lines_of_json(binary: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(binary, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise AnnotationError(f"line {number} is no JSON ({error}); export it again") from error
        if not isinstance(value, dict):
            raise AnnotationError(
                f"line {number} holds a {type(value).__name__}; each line is an object such as "
                '{"left": ..., "right": ..., "winner": ...}'
            )
        yield number, value


def _parquet_rows(file: Path) -> tuple[list[str], Rows]:
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise_missing_extra("Reading a parquet file", "io", error)
    table = parquet.ParquetFile(file)
    names = [str(name) for name in table.schema_arrow.names]

    def rows() -> Rows:
        number = 1
        for batch in table.iter_batches():
            columns = [column.to_pylist() for column in batch.columns]
            for cells in zip(*columns, strict=True):
                yield number, [_as_text(cell) for cell in cells]
                number += 1

    return names, rows()


def _as_text(value: Any) -> str:
    """Write a cell of JSON or Parquet as text; parts of a list are joined."""
    if value is None or value != value:
        return ""
    if isinstance(value, list):
        return "|".join(map(_as_text, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
