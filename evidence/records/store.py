"""Reading and writing records: first one spool file per run, then one pair of files per paper."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

from evidence.records.latest import merged
from evidence.records.packed import open_packed, packed_papers, write_packed
from evidence.records.records import Record, sound_record, stored_fields
from manyhands.files import waiting_lock, write_atomically

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
    # The stamp makes the order of names the order of writing.
    stamp = f"{time.time_ns():020}-{os.getpid()}"
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
