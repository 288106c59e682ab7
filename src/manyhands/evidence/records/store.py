"""Reading and writing records: first one spool file per run, then one pair of files per paper."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from manyhands.evidence.records.packed import open_packed, packed_papers, write_packed
from manyhands.evidence.records.records import Record, digest_of_figures, sound_record
from manyhands.io.files import waiting_lock, write_atomically

SPOOL = ".spool"


def spool(results: str | Path, record: Record, paper: str) -> Path:
    """Write a record into the spool of a paper, atomically.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    ValueError
        If a figure is not finite, since JSON has no such numbers.
    """
    content = {**asdict(record), "figures": digest_of_figures(record)}
    # One field per line, for human readers.
    lines = [
        f"{json.dumps(name)}: {json.dumps(content[name], sort_keys=True, allow_nan=False)}"
        for name in sorted(content)
    ]
    # The stamp makes the order of names the order of writing.
    stamp = f"{time.time_ns():020}-{os.getpid()}"
    name = f"{stamp}-{record.row.replace('/', '__')}-{record.seed}-{record.key[:12]}.json"
    path = Path(results) / SPOOL / paper / name
    return write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def spooled(results: str | Path, paper: str = "*", cell: str = "*") -> Iterator[Path]:
    """Yield the files of the spool in the order in which they were written.

    Parameters
    ----------
    results : str or Path
    paper : str
        Key of a paper; default: all papers.
    cell : str
        Pattern for "<seed>-<first 12 characters of the key>"; default: all cells.
    """
    files = (Path(results) / SPOOL).glob(f"{paper}/[0-9]*-{cell}.json")
    yield from sorted(files, key=lambda path: path.name)


def read_spooled(path: Path) -> Record | None:
    """Read a spooled record; None if it is truncated, altered, or packed in the meantime."""
    try:
        return sound_record(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


OWN = "own"
"""Key used in place of a paper's for rows that are in no paper's table."""

_LOG = logging.getLogger("manyhands")


def write_record(results: str | Path, record: Record, paper: str = OWN) -> Path:
    """Write a record, atomically; `pack` later adds it to the others of its paper.

    If a run has several records under one key, the last finished one counts.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    ValueError
        If a figure is not finite.
    """
    return spool(results, record, paper)


def read_records(results: str | Path) -> list[Record]:
    """Return all usable records of a results folder, by row, seed and key; warn of others."""
    # The spool is read first: a record packed in between is then read from the packed files.
    waiting = _read_spool(results)
    found: list[Record] = []
    for paper in packed_papers(results):
        packed = open_packed(results, paper)
        found += packed.records()
        for problem in packed.problems():
            _LOG.warning("%s", problem)
    return _merge([*found, *waiting])


def find(results: str | Path, row: str, seed: int, key: str) -> Record | None:
    """Return the record of a run, or None if there is no usable one."""
    found = [record for record in _of_key(results, seed, key) if record.row == row]
    return found[0] if found else None


def find_equal(results: str | Path, row: str, seed: int, key: str) -> Record | None:
    """Return the finished run of a row that differs only in name, renamed to this row.

    Two tables may show the same experiment.
    """
    done = [record for record in _of_key(results, seed, key) if record.status == "done"]
    return replace(done[0], row=row) if done else None


def find_runs(results: str | Path, row: str, seed: int) -> list[Record]:
    """Return the records of a row with one seed, by any code and on any data."""
    waiting = _read_spool(results, f"{seed}-*")
    packed = [
        record
        for paper in packed_papers(results)
        for record in open_packed(results, paper).records(
            lambda line: line.get("seed") == seed and row in line.get("rows", ())
        )
    ]
    return [record for record in _merge([*packed, *waiting]) if record.row == row]


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
    write_packed(results, paper, _merge([*old, *new.values()]))
    for path in new:
        path.unlink(missing_ok=True)


def _read_spool(results: str | Path, cell: str = "*") -> list[Record]:
    found = []
    for path in spooled(results, cell=cell):
        record = read_spooled(path)
        if record is not None:
            found.append(record)
        elif path.exists():
            _LOG.warning("%s is not a usable record (truncated or altered); left out", path)
    return found


def _of_key(results: str | Path, seed: int, key: str) -> list[Record]:
    waiting = _read_spool(results, f"{seed}-{key[:12]}")
    packed = [
        record
        for paper in packed_papers(results)
        for record in open_packed(results, paper).records(lambda line: line.get("key") == key)
    ]
    return [record for record in _merge([*packed, *waiting]) if record.key == key]


def _merge(records: Iterable[Record]) -> list[Record]:
    """Keep one record per run and key: the last finished one, or else the last one."""
    kept: dict[tuple[str, int, str], Record] = {}
    for record in records:
        place = (record.row, record.seed, record.key)
        if record.status == "done" or place not in kept or kept[place].status != "done":
            kept[place] = record
    return [kept[place] for place in sorted(kept)]
