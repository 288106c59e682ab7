"""Where records are kept."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, fields, replace
from pathlib import Path

from manyhands.evidence.records.records import STATUSES, Record, cell_key, digest
from manyhands.io.files import write_atomically

_LOG = logging.getLogger("manyhands")


def record_path(results: str | Path, row: str, seed: int, key: str) -> Path:
    """Return the file of a record: ``<results>/records/<row>/<seed>-<first 12 of key>.json``."""
    return Path(results) / "records" / row / f"{seed}-{key[:12]}.json"


def write_record(results: str | Path, record: Record) -> Path:
    """Write a record, atomically, over an earlier one of the same key; never over a finished one.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    """
    path = record_path(results, record.row, record.seed, record.key)
    if record.status != "done":
        kept = read_record(path)
        if kept is not None and kept.status == "done":
            return path
    content = {**asdict(record), "figures": _digest_of_figures(record)}
    # A field a line: to be read by people and compared by git, and no larger than it must be.
    lines = [
        f"{json.dumps(name)}: {json.dumps(content[name], sort_keys=True, allow_nan=False)}"
        for name in sorted(content)
    ]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    return write_atomically(path, text)


def read_record(path: str | Path) -> Record | None:
    """Read a record; None if it is absent, truncated, altered, or not the one its name says."""
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        figures = content.pop("figures")
        record = Record(**content)
        key = cell_key(record.specification, record.seed, record.data_checksum, record.code)
        expected = record_path("", record.row, record.seed, key).parts
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None
    sound = (
        set(content) == {f.name for f in fields(Record)}
        and record.key == key
        and figures == _digest_of_figures(record)
        and record.status in STATUSES
        and all(isinstance(part, dict) for part in (record.metrics, record.extra, record.history))
        and path.parts[-len(expected) :] == expected
    )
    return record if sound else None


def _digest_of_figures(record: Record) -> str:
    """Digest of what was measured: a figure altered by hand is no record."""
    # Through JSON: tuples come back as lists, and whole numbers in keys as texts.
    return digest(json.loads(json.dumps([record.metrics, record.extra, record.history])))


def find(results: str | Path, row: str, seed: int, key: str) -> Record | None:
    """Return the record of a run, or None if there is no usable one."""
    return read_record(record_path(results, row, seed, key))


def find_equal(results: str | Path, row: str, seed: int, key: str) -> Record | None:
    """Return the finished run of another row that is the same but for its name, under this one's.

    Two tables may show one experiment.
    """
    for path in sorted((Path(results) / "records").glob(f"*/*/{seed}-{key[:12]}.json")):
        record = read_record(path)
        if record is not None and record.key == key and record.status == "done":
            return replace(record, row=row)
    return None


def read_records(results: str | Path) -> list[Record]:
    """Return all usable records of a results folder, by row, seed and key."""
    records = []
    for path in sorted((Path(results) / "records").rglob("*.json")):
        if path.name.startswith("."):
            continue
        record = read_record(path)
        if record is None:
            _LOG.warning("%s is no usable record (truncated or altered): left out", path)
        else:
            records.append(record)
    return sorted(records, key=lambda r: (r.row, r.seed, r.key))
