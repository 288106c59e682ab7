"""The spool: one file per run that has ended, until it is packed.

A file is never written twice, so that what a packing has read, and only that, may be removed.
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
        If a figure is not finite: JSON has no such numbers.
    """
    content = {**asdict(record), "figures": digest_of_figures(record)}
    # One field per line: to be read by people.
    lines = [
        f"{json.dumps(name)}: {json.dumps(content[name], sort_keys=True, allow_nan=False)}"
        for name in sorted(content)
    ]
    # By name in the order of writing.
    stamp = f"{time.time_ns():020}-{os.getpid()}"
    name = f"{stamp}-{record.row.replace('/', '__')}-{record.seed}-{record.key[:12]}.json"
    path = Path(results) / SPOOL / paper / name
    return write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def spooled(results: str | Path, paper: str = "*", cell: str = "*") -> Iterator[Path]:
    """Yield the files of the spool in the order of their writing.

    Parameters
    ----------
    results : str or Path
    paper : str
        Of this paper alone.
    cell : str
        Of cells whose seed and first 12 characters of the key match this pattern alone.
    """
    files = (Path(results) / SPOOL).glob(f"{paper}/[0-9]*-{cell}.json")
    yield from sorted(files, key=lambda path: path.name)


def read_spooled(path: Path) -> Record | None:
    """Read a record of the spool; None if it is truncated, altered, or packed by now."""
    try:
        return sound_record(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
