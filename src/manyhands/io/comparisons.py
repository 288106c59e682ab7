"""Reading comparisons of two, row by row, so that files of millions of rows need little memory.

A column becomes integer codes while it is read, and each distinct text is kept once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from manyhands.annotations.encoding import text_array
from manyhands.annotations.ids import in_natural_order
from manyhands.comparisons import ComparisonTable
from manyhands.comparisons.layouts import (
    ARENA_QUESTION,
    ONE_EACH,
    SIDES,
    WINNERS,
    WORKERS,
    find_columns,
    has_one_each,
    one_winner,
)
from manyhands.comparisons.table import refuse_times
from manyhands.exceptions import AnnotationError, raise_missing_extra, warn_caller
from manyhands.io.columns import canonical
from manyhands.io.encodings import find_encoding
from manyhands.io.exports.parsing import (
    Document,
    encoding_of,
    is_json_line,
    loads,
    parse,
    why,
)
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
"""Iterator over row numbers, as a spreadsheet counts them, and the cells of the wanted columns."""


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
        Lines, or Parquet. If several files have no column of annotators, each holds the work of one
        annotator, who is named after the file.
    left, right, winner, worker, question, weight, abstain, time
        As in `ComparisonTable.from_frame`.

    Returns
    -------
    ComparisonTable
        Ids that are whole numbers in all rows become integers.

    Raises
    ------
    AnnotationError
        If no file is given, or a file is empty or damaged, or for the reasons of
        `ComparisonTable.from_frame`. The message names the file, and the row as a spreadsheet
        counts it.
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
        """Return codes, and ids in natural order; whole numbers are integers."""
        bad = next((text for text in self.position if text.endswith("\0")), None)
        if bad is not None:  # Arrays drop it at the end, which would merge two ids.
            raise AnnotationError(f"{bad[:80]!r} ends in a NUL character; remove it")
        codes = np.frombuffer(self.codes, dtype=np.int32) if self.codes else np.zeros(0, np.int32)
        ids = canonical(text_array(list(self.position)))
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
            if asked["winner"] == WINNERS[0] and has_one_each(names):
                names, rows = _with_winner(names, rows)
            judge = None
            if several and asked["worker"] == WORKERS[0] and not {*WORKERS} & {*names}:
                asked["worker"], judge = None, file.name.split(".")[0]
            found = find_columns(names, **asked)  # type: ignore[arg-type]
            if judge is None and "worker" not in found:
                self.has_workers = False
            if self.has_questions not in (None, "question" in found):
                raise AnnotationError(
                    "some files have a column of questions, but others have none; name the column "
                    "in question=, and add it to all files"
                )
            self.has_questions = "question" in found
            twice = next((name for name in found.values() if names.count(name) > 1), None)
            if twice is not None:
                raise AnnotationError(f"column {twice!r} occurs twice in the header; rename one")
            places = {key: names.index(name) for key, name in found.items()}
            self._add(rows, places, found, judge)

    def _add(
        self, rows: Rows, places: dict[str, int], found: dict[str, str], judge: str | None
    ) -> None:
        left, right, winner = (places[key] for key in ("left", "right", "winner"))
        worker, question, weight = (places.get(key) for key in ("worker", "question", "weight"))
        for number, raw in rows:
            cells = {place: _cell(raw[place], number, found[key]) for key, place in places.items()}
            one, other, won = cells[left], cells[right], cells[winner]
            if not one or not other:
                side = "left" if not one else "right"
                raise AnnotationError(
                    f"column {found[side]!r} ({side}) is empty in row {number}; fill it in, or "
                    "drop the row"
                )
            self.items.add(one)
            self.items.add(other)
            self.gaps.append(not won)
            self.winners.add(won)
            who = cells[worker] if worker is not None else judge or "all"
            if not who:
                raise AnnotationError(
                    f"column {found['worker']!r} (worker) is empty in row {number}; fill it in, or "
                    "drop the row"
                )
            self.workers.add(who)
            if question is not None:
                if not cells[question]:
                    raise AnnotationError(
                        f"column {found['question']!r} (question) is empty in row {number}; fill "
                        "it in, or drop the row"
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
            raise AnnotationError("there are no comparisons below the header; export it again")
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


def _cell(value: Any, number: int, column: str) -> str:
    if type(value) is str:
        return value.strip()
    try:
        return _as_text(value)
    except ValueError as error:
        kinds = {dict: "an object", bytes: "bytes", list: "a list of these"}
        what = next((name for kind, name in kinds.items() if type(value) is kind), "infinity")
        raise AnnotationError(
            f"column {column!r} holds {what} in row {number}, but ids and winners must be text or "
            "numbers; name another column, or correct the row"
        ) from error


@contextmanager
def _unnamed() -> Iterator[None]:
    yield


@contextmanager
def _opened_rows(file: Path) -> Iterator[tuple[list[str], Rows]]:
    """Open a file, and yield the names of its columns and its rows."""
    suffix = suffix_of(file)
    if suffix in (".parquet", ".pq"):
        yield _parquet_rows(file)
    elif suffix in (".json", ".jsonl", ".ndjson"):
        with opened(file) as binary, _objects(binary) as objects:
            yield _object_rows(objects)
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
    """Return the rows that are not blank, with their numbers."""
    for number, row in enumerate(cells, start=first):
        if len(row) != n:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) > n:
                raise AnnotationError(
                    f"row {number} has {len(row)} cells, but the header has {n}; put texts that "
                    "hold the separator in quotes, or correct the row"
                )
            row = [*row, *[""] * (n - len(row))]
        stripped = [cell.strip() for cell in row]
        if any(stripped):
            yield number, stripped


def _with_winner(names: list[str], rows: Rows) -> tuple[list[str], Rows]:
    """Return columns and rows with a column of winners in place of one for each outcome."""
    places = [names.index(name) for name in ONE_EACH]

    def more() -> Rows:
        for number, row in rows:
            yield number, [*row, one_winner([row[place] for place in places], f"row {number}")]

    return [*names, WINNERS[0]], more()


@contextmanager
def _objects(binary: Any) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
    """Open a file of JSON, and yield its objects with their numbers: a list, or one per line."""
    start = binary.read(4096)
    encoding = encoding_of(start) or "utf-8-sig"
    is_lines = False
    if start.decode(encoding, errors="ignore").lstrip()[:1] == "{":
        with decoded(binary, encoding) as text:
            is_lines = is_json_line(next((x for x in limited_lines(text) if x.strip()), ""))
    binary.seek(0)
    if is_lines:
        with decoded(binary, encoding) as text:
            yield _lines_of_json(limited_lines(text))
    else:
        document = Document("the JSON", PurePosixPath("a.json"))
        parse(binary, document)
        yield _listed(document)


def _object_rows(objects: Iterator[tuple[int, dict[str, Any]]]) -> tuple[list[str], Rows]:
    """Return the columns and rows of objects of JSON."""
    head = list(islice(objects, SHOWN))
    names = [*dict.fromkeys(str(name) for _, each in head for name in each)]
    known = set(names)

    def rows() -> Rows:
        for number, value in chain(head, objects):
            late = (NAMES & value.keys()) - known
            if late:
                raise AnnotationError(
                    f"row {number} has the key {sorted(late)[0]!r}, which none of the first "
                    f"{SHOWN:,} rows has; write it in all rows, with null where it is unknown"
                )
            yield number, [value.get(name) for name in names]

    return names, rows()


SHOWN = 1_000
"""Number of first rows of JSON from which the columns are found."""

NAMES = {*WINNERS, *WORKERS, *chain(*SIDES), ARENA_QUESTION}
"""Names by which a column is recognised."""


def _listed(document: Document) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a list, which may stand in an object: {"data": [...]}."""
    found: Any = [value for _, value in document.records]
    if document.kind == "object":
        lists = [value for value in document.whole.values() if isinstance(value, list)]
        found = lists[0] if len(lists) == 1 else found
    if document.kind not in ("records", "object") or not all(isinstance(v, dict) for v in found):
        raise AnnotationError(
            'the file holds no list of objects; give [{"left": ..., "right": ..., "winner": '
            "...}, ...], or JSON Lines with one object per line"
        )
    return iter(list(enumerate(found, start=1)))


def _lines_of_json(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = loads(line)
        except (ValueError, RecursionError) as error:
            raise AnnotationError(
                f"line {number} cannot be read as JSON ({why(error)}); export it again"
            ) from error
        if not isinstance(value, dict):
            raise AnnotationError(
                f"line {number} holds a {type(value).__name__}; each line must be an object, such "
                'as {"left": ..., "right": ..., "winner": ...}'
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
                yield number, cells
                number += 1

    return names, rows()


def _as_text(value: Any) -> str:
    """Write a cell as text, with the parts of a list joined.

    Raises
    ------
    ValueError
        If it is not a text, a number or a list of these.
    """
    if isinstance(value, str):
        return value.strip()
    if value is None or value != value:
        return ""
    if isinstance(value, list):
        return "|".join(map(_as_text, value))
    if isinstance(value, dict | bytes) or value in (np.inf, -np.inf):
        raise ValueError
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
