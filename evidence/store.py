"""Reading and writing records: a spool file per run, then a pair of files per paper.

``<paper>.jsonl`` has one line per run, with everything but the history.
``<paper>.histories.parquet`` has the histories by the digest of their runs' figures, so a line
finds its own history or none, whichever of the two files was written last.

A file of histories has one row per history and one list per column. Column ``figures`` identifies a
history by the digest of its run's figures, and ``columns`` lists its columns in order. Every other
column is named ``<column>:<kind>``, since one column may hold whole numbers in one run and floats
in another; its cells are lists, null where a history lacks the column.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evidence.experiments.papers import paper_of
from evidence.records import Record, sound_record, stored_fields
from manyhands.exceptions import raise_missing_extra
from manyhands.files import waiting_lock, write_atomically

if TYPE_CHECKING:
    from evidence.experiments.rows import Row


SPOOL = ".spool"

_LOG = logging.getLogger("manyhands")


def write_record(results: str | Path, record: Record) -> Path:
    """Write a record into the spool of its paper, atomically; `pack` later adds it to the others.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    ValueError
        If a figure is not finite, since JSON has no such numbers.
    """
    content = stored_fields(record)
    # One field per line, for human readers.
    lines = [
        f"{json.dumps(name)}: {json.dumps(content[name], sort_keys=True, allow_nan=False)}"
        for name in sorted(content)
    ]
    # The stamp makes the order of names the order of writing, even if the clock is set back.
    last = max((int(path.name[:20]) for path in spooled(results, record.paper)), default=0)
    stamp = f"{max(time.time_ns(), last + 1):020}-{os.getpid()}"
    name = f"{stamp}-{record.row.replace('/', '__')}-{record.seed}-{record.key[:12]}.json"
    path = Path(results) / SPOOL / record.paper / name
    return write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def spooled(results: str | Path, paper: str = "*", key: str = "") -> list[Path]:
    """Return the files of the spool in the order in which they were written.

    Parameters
    ----------
    results : str or Path
    paper : str
        Key of a paper; default: all papers.
    key : str
        Key of a run; default: all runs.
    """
    files = (Path(results) / SPOOL).glob(f"{paper}/[0-9]*-{key[:12]}*.json")
    return sorted(files, key=lambda path: path.name)


def read_spooled(path: Path) -> Record | None:
    """Read a spooled record; None if it is truncated, altered, or packed in the meantime."""
    try:
        return sound_record(json.loads(path.read_text(encoding="utf-8")), path.parent.name)
    except (OSError, ValueError):
        return None


def read_records(results: str | Path) -> list[Record]:
    """Return all usable records of a results folder, by paper, row and seed; warn of others."""
    # The spool is read first: a record packed in between is then read from the packed files.
    waiting = _read_spool(results)
    found: list[Record] = []
    for paper in packed_papers(results):
        packed = open_packed(results, paper)
        found += packed.records()
        for problem in packed.problems():
            _LOG.warning("%s", problem)
    return merged([*found, *waiting])


def find(results: str | Path, paper: str, key: str) -> Record | None:
    """Return a paper's record of a run, or None if there is no usable one."""
    return next((record for record in _of_key(results, key) if record.paper == paper), None)


def find_recorded(results: str | Path, paper: str, content: str, seed: int) -> Record | None:
    """Return a paper's record of a row's content with one seed, whatever data it was made on."""
    waiting = [record for record in _read_spool(results) if record.paper == paper]
    packed = open_packed(results, paper).records(lambda line: line.get("seed") == seed)
    found = {(record.content, record.seed): record for record in merged([*packed, *waiting])}
    return found.get((content, seed))


def find_equal(results: str | Path, key: str) -> Record | None:
    """Return a finished run from any paper: tables of two papers may show the same experiment."""
    return next((record for record in _of_key(results, key) if record.status == "done"), None)


def pack(results: str | Path) -> None:
    """Move the records in the spool into the packed files of their papers.

    Several processes may call this at once. No record is lost if one is killed: a file leaves the
    spool only after its record is packed. If a paper's packed files are damaged, they are left
    unchanged with a warning, and its new records stay in the spool.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    MissingExtraError
        Without the extra 'io'.
    """
    for paper in sorted(path.name for path in (Path(results) / SPOOL).glob("*") if path.is_dir()):
        lock = Path(results) / ".locks" / f"{paper}.packing"
        with waiting_lock(lock):
            _pack_paper(results, paper)


def _pack_paper(results: str | Path, paper: str) -> None:
    read = {path: read_spooled(path) for path in spooled(results, paper)}
    new = {path: record for path, record in read.items() if record is not None}
    if not new:
        return
    packed = open_packed(results, paper)
    old = packed.records()
    if packed.broken:
        for problem in packed.problems():
            _LOG.warning("%s", problem)
        _LOG.warning(
            "%s is damaged and was not rewritten; restore it, for example from git, and the next "
            "run packs the %d new records that wait in %s",
            packed.file,
            len(new),
            Path(results) / SPOOL / paper,
        )
        return
    write_packed(results, paper, merged([*old, *new.values()]))
    for path in new:
        path.unlink(missing_ok=True)


def _read_spool(results: str | Path, key: str = "") -> list[Record]:
    found = []
    for path in spooled(results, key=key):
        record = read_spooled(path)
        if record is not None:
            found.append(record)
        elif path.exists():
            _LOG.warning("%s is not a usable record (truncated or altered); left out", path)
    return found


def _of_key(results: str | Path, key: str) -> list[Record]:
    waiting = _read_spool(results, key)
    packed = [
        record
        for paper in packed_papers(results)
        for record in open_packed(results, paper).records(lambda line: line.get("key") == key)
    ]
    return [record for record in merged([*packed, *waiting]) if record.key == key]


# -- which records count ---------------------------------------------------------------------------


def merged(records: Iterable[Record]) -> list[Record]:
    """Keep one record per paper, content and seed, by paper, row and seed.

    ``records`` are in order of time. The last one supersedes the others, except that a run that did
    not finish leaves a finished one on the same data, and a run that was skipped leaves any.
    """
    kept: dict[tuple[str, str, int], Record] = {}
    for record in records:
        place = (record.paper, record.content, record.seed)
        if place not in kept or _supersedes(record, kept[place]):
            kept[place] = record
    return sorted(kept.values(), key=lambda record: (record.paper, record.row, record.seed))


def _supersedes(record: Record, earlier: Record) -> bool:
    if record.status == "done":
        return True
    if record.status == "skipped":
        return earlier.status == "skipped"
    return earlier.status != "done" or record.data_checksum not in ("", earlier.data_checksum)


def latest_records(rows: Iterable[Row], records: Iterable[Record]) -> dict[str, dict[int, Record]]:
    """Return, for every row, the record that counts for each seed.

    They are the runs of the row's paper with its present content, whatever the name that they were
    run under. All are on the data of the last run, unless every seed makes its own data: a mean
    over seeds averages runs of the same thing. Runs that were skipped count only where nothing ran.

    Returns
    -------
    dict of str to dict of int to Record
        Row id -> seed -> record.
    """
    found: dict[tuple[str, str], dict[int, Record]] = {}
    for record in merged(records):
        found.setdefault((record.paper, record.content), {})[record.seed] = record
    return {row.id: _on_one_set(row, found.get((paper_of(row), row.key), {})) for row in rows}


def _on_one_set(row: Row, runs: Mapping[int, Record]) -> dict[int, Record]:
    ran = {seed: run for seed, run in sorted(runs.items()) if run.status != "skipped"}
    if not ran:
        return dict(sorted(runs.items()))
    # A run that failed before its data were loaded does not decide which data count.
    last = max(ran.values(), key=lambda run: (run.data_checksum != "", run.started))
    if row.data_of(0) != row.data_of(1):
        return ran
    return {seed: run for seed, run in ran.items() if run.data_checksum in ("", last.data_checksum)}


# -- packed records --------------------------------------------------------------------------------


_ORDER = (
    "row",
    "seed",
    "status",
    "reason",
    "metrics",
    "extra",
    "started",
    "seconds",
    "peak_memory_mb",
    "commit",
    "versions",
    "specification",
    "data_checksum",
    "key",
    "figures",
    "trace",
)
"""Fields of a line, in the order that people want to read them."""

_ABSENT_IF_NONE = ("reason", "trace")

_NAMED = 5
"""Number of lines that a warning names; it counts the others."""


@dataclass
class Packed:
    """The packed records of one paper; records are built from their lines on demand.

    Attributes
    ----------
    lines : dict of int to dict
        Line number, from 1 -> content of the line, if it can be read.
    broken : dict of int to str
        Line number -> why the line is not a usable record.
    """

    file: Path
    histories: Histories | None
    why: str = ""
    lines: dict[int, dict[str, Any]] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)

    def records(self, wanted: Callable[[dict[str, Any]], bool] | None = None) -> list[Record]:
        """Return the sound records (of the wanted lines, if given); remember broken lines."""
        found = []
        for number, line in self.lines.items():
            if number not in self.broken and (wanted is None or wanted(line)):
                record = self._record_of(number, line)
                found += [] if record is None else [record]
        return found

    def _record_of(self, number: int, line: dict[str, Any]) -> Record | None:
        figures, history = line.get("figures"), {}
        if isinstance(figures, str) and self.histories is not None and figures in self.histories:
            history = self.histories[figures]
        record = sound_record({**line, "history": history}, self.file.stem)
        if record is None:
            # Without the history the digest of the figures never matches: the cause is uncertain.
            self.broken[number] = "altered" if history else f"altered, or {self._no_history()}"
        return record

    def _no_history(self) -> str:
        return self.why or f"its history is not in {histories_file(self.file).name}"

    def left_over(self) -> int:
        """Count histories that no line refers to: packing was interrupted between the files."""
        named = {line.get("figures") for line in self.lines.values()}
        return 0 if self.histories is None else sum(name not in named for name in self.histories)

    def problems(self) -> list[str]:
        """Describe what is wrong with the files, as far as they have been read."""
        found = []
        if self.left_over():
            found.append(
                f"{histories_file(self.file)} has {self.left_over()} histories of no run in "
                f"{self.file.name}: a packing was cut short, and the next one completes it"
            )
        for why in dict.fromkeys(self.broken.values()):
            numbers = [number for number, reason in self.broken.items() if reason == why]
            named = ", ".join(map(str, numbers[:_NAMED]))
            more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
            found.append(f"{self.file}, line {named}{more}: no usable record ({why}); left out")
        return found


def packed_file(results: str | Path, paper: str) -> Path:
    """Return the path of a paper's packed records."""
    return Path(results) / f"{paper}.jsonl"


def histories_file(file: Path) -> Path:
    """Return the path of the histories that belong to a file of records."""
    return file.with_suffix(".histories.parquet")


def packed_papers(results: str | Path) -> list[str]:
    """Return the papers that have packed records."""
    return sorted(path.stem for path in Path(results).glob("*.jsonl"))


def open_packed(results: str | Path, paper: str) -> Packed:
    """Open the packed records of a paper, even while another process writes them."""
    file = packed_file(results, paper)
    while True:
        state = _state(file)
        found = _open(file, state, _state(histories_file(file)))
        # If the file changed while it was read, the two files may not belong together.
        if _state(file) == state:
            return found


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=16)
def _open(file: Path, state: object, state_of_histories: object) -> Packed:
    """Read the two files; their states are part of the cache key, so a changed file is reread."""
    content = file.read_bytes() if state is not None else b""
    packed = Packed(file, *_read_histories(histories_file(file)))
    for number, text in enumerate(content.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except ValueError:
            packed.broken[number] = "truncated or altered"
            continue
        if isinstance(line, dict):
            packed.lines[number] = line
        else:
            packed.broken[number] = "truncated or altered"
    return packed


def _read_histories(file: Path) -> tuple[Histories | None, str]:
    """Return the histories, or None and why there are none."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None, f"{file.name} is missing"
    try:
        return Histories(content), ""
    except ValueError as error:
        return None, f"{file.name} is damaged: {error}"


def write_packed(results: str | Path, paper: str, records: Iterable[Record]) -> None:
    """Rewrite a paper's records: the histories first, then the lines that refer to them.

    If the process is killed between the two, every line of the old file still finds its history.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    MissingExtraError
        Without the extra 'io'.
    """
    lines, histories = [], {}
    for record in sorted(records, key=lambda r: (r.row, r.seed)):
        fields = stored_fields(record)
        if record.history:
            histories[fields["figures"]] = record.history
        kept = {
            name: fields[name]
            for name in _ORDER
            if fields[name] is not None or name not in _ABSENT_IF_NONE
        }
        lines.append(json.dumps(kept, allow_nan=False) + "\n")
    file = packed_file(results, paper)
    write_atomically(histories_file(file), to_parquet(histories))
    write_atomically(file, "".join(lines))


# -- histories -------------------------------------------------------------------------------------


Columns = Mapping[str, list[Any]]
"""Column -> one value per epoch, None where an epoch lacks the value."""

_FIGURES, _COLUMNS = "figures", "columns"
_FLOAT, _INT, _TEXT, _JSON = "float", "int", "text", "json"


def to_parquet(histories: Mapping[str, Columns]) -> bytes:
    """Write histories as a Parquet file; the same histories give the same bytes.

    Parameters
    ----------
    histories : mapping of str to mapping
        Digest of a run's figures -> its history. Every value is read back exactly, to the bit.

    Raises
    ------
    MissingExtraError
        Without the extra 'io'.
    """
    pa, pq = _pyarrow()
    names = sorted(histories)
    cells: dict[str, list[list[Any] | None]] = {}
    layouts = []
    for place, name in enumerate(names):
        layout = []
        for column, values in histories[name].items():
            kind = _kind(values)
            layout.append(f"{column}:{kind}")
            cell = [json.dumps(value) for value in values] if kind == _JSON else values
            cells.setdefault(layout[-1], [None] * len(names))[place] = cell
        layouts.append(layout)
    contents = {_FIGURES: names, _COLUMNS: layouts, **dict(sorted(cells.items()))}
    arrays = {name: pa.array(cells, _type_of(name)) for name, cells in contents.items()}
    file = BytesIO()
    # Measured on these columns: plain values compress better than dictionary encoding.
    options = {"compression": "zstd", "compression_level": 19, "use_dictionary": False}
    pq.write_table(pa.table(arrays), file, write_page_checksum=True, **options)
    return file.getvalue()


class Histories:
    """Histories of a Parquet file, by the digest of their runs' figures.

    Parameters
    ----------
    content : bytes
        As written by `to_parquet`.

    Raises
    ------
    ValueError
        If the bytes are not such a file, or are damaged.
    MissingExtraError
        Without the extra 'io'.
    """

    def __init__(self, content: bytes) -> None:
        pa, pq = _pyarrow()
        try:
            # In this thread alone: an Arrow thread that still holds Python's bytes when the
            # interpreter exits aborts the process (apache/arrow#34314).
            source = pa.BufferReader(content)
            with pq.ParquetFile(source, page_checksum_verification=True) as file:
                table = file.read(use_threads=False)
            for field in table.schema:
                if field.type != _type_of(field.name):
                    raise ValueError(f"column {field.name!r} has the type {field.type}")
            self._columns = {name: table[name].combine_chunks() for name in table.column_names}
            self._places = {name: k for k, name in enumerate(table[_FIGURES].to_pylist())}
            self._layouts = table[_COLUMNS].to_pylist()
        except (pa.ArrowException, OSError, KeyError) as error:
            raise ValueError(str(error)) from error
        if None in self._layouts:
            raise ValueError(f"column {_COLUMNS!r} has gaps")
        if missing := {name for layout in self._layouts for name in layout} - self._columns.keys():
            raise ValueError(f"there is no column {min(missing)!r}")

    def __contains__(self, figures: str) -> bool:
        return figures in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __getitem__(self, figures: str) -> dict[str, list[Any]]:
        place = self._places[figures]
        history = {}
        for column in self._layouts[place]:
            values = _values(self._columns[column], place)
            if _kind_of(column) == _JSON:
                values = [json.loads(value) for value in values]
            history[column.rpartition(":")[0]] = values
        return history


def _values(column: Any, place: int) -> list[Any]:
    """Return one cell of a column of lists."""
    start, end = column.offsets[place].as_py(), column.offsets[place + 1].as_py()
    values = column.values.slice(start, end - start)
    # Faster than to_pylist, which makes a pyarrow scalar for every value.
    return values.to_pylist() if values.null_count else values.to_numpy(False).tolist()


def _type_of(column: str) -> Any:
    """Return the type that a column has in the file; KeyError if its name has no known kind."""
    pa, _ = _pyarrow()
    if column in (_FIGURES, _COLUMNS):
        return pa.string() if column == _FIGURES else pa.list_(pa.string())
    types = {_FLOAT: pa.float64(), _INT: pa.int64(), _TEXT: pa.string(), _JSON: pa.string()}
    return pa.list_(types[_kind_of(column)])


def _kind_of(column: str) -> str:
    return column.rpartition(":")[2]


def _kind(values: list[Any]) -> str:
    """Return the kind of column that stores these values exactly."""
    types = {type(value) for value in values if value is not None}
    if types <= {float}:
        return _FLOAT
    if types == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return _INT
    if types == {str} and all(value.isprintable() for value in values if value is not None):
        return _TEXT
    return _JSON


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError as error:
        raise_missing_extra("the histories of records", "io", error)
    return pa, pq
