"""The spool: one file per finished run, until it is packed.

A file is never rewritten, so packing may safely remove exactly the files that it has read.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from manyhands.evidence.records.records import Record, digest_of_figures, sound_record
from manyhands.io.files import write_atomically

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
