"""Packed records of a paper: one readable line per run, and one file of all histories.

``<paper>.jsonl`` has one line per run, with everything but the history.
``<paper>.histories.parquet`` has the histories by the digest of their runs' figures, so a line
finds its own history or none, whichever of the two files was written last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from evidence.records.histories import Histories, to_parquet
from evidence.records.records import Record, sound_record, stored_fields
from manyhands.files import write_atomically

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
