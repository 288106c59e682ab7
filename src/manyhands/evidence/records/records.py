"""Records: a small JSON file a run, all that tables and figures are made from."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from manyhands.io.files import write_atomically

LAST = "last epoch"
HELD_OUT = "chosen on held-out annotations"
GOLD = "chosen on gold validation"
ORACLE = "best on test (oracle)"
PROTOCOLS = (LAST, HELD_OUT, GOLD, ORACLE)
"""How the epoch that is measured was chosen; the last one looks at the test set."""

SHORT = {
    "last epoch": LAST,
    "held-out annotations": HELD_OUT,
    "gold validation": GOLD,
    "best on test": ORACLE,
}
"""How a row says by what its paper chose the epoch."""

SHARES = ("accuracy", "macro_f1")
"""Measures of a protocol, shown in per cent; others are a row's own, shown as they are."""

_SHARE_ENDINGS = (*SHARES, "f1", "precision", "recall", "auc")

EPOCH = "epoch"
"""Column of a history that is counted from 1 over all stages, as in ``metrics``."""

STAGE = "stage"
"""Column of a history that names the phase of training."""

STATUSES = ("done", "failed", "skipped")

_LOG = logging.getLogger("manyhands")


@dataclass(frozen=True)
class Record:
    """One run of a row with one seed.

    Attributes
    ----------
    row : str
        Id of the row.
    seed : int
    key : str
        `cell_key` of specification, seed, data checksum and code.
    specification : dict
        What decides the result; see ``Row.specification``.
    data_checksum : str
        See `checksum`; "" where the data could not be loaded.
    code : str
        See `code_hash`.
    versions : dict of str to str
        Of Python, the platform and the packages that compute.
    commit : str or None
        The last commit that touched the package, where it runs from a checkout.
    started : str
        ISO 8601, UTC.
    confirmed : str or None
        When a later call found the run to be that of the data and code as they were then, after
        a run of others had come in between.
    seconds : float
    peak_memory_mb : float or None
        Largest resident memory of the process during the run (on other systems than Linux: so
        far), in MiB.
    status : {"done", "failed", "skipped"}
    reason : str or None
        Why it failed or was skipped.
    trace : str or None
        Traceback of a failure.
    metrics : dict
        Protocol (see `PROTOCOLS`) -> ``{"epoch", "accuracy", "macro_f1", "n_test"}``, or
        ``{"absent": reason}``. Epochs count from 1 over all stages.
    extra : dict of str to float, or to (nested) lists of floats
        Further measures of the row: figures, vectors, matrices.
    history : dict of str to list
        Columns of the training history, None where an epoch lacks the value.
    """

    row: str
    seed: int
    key: str
    specification: dict[str, Any]
    data_checksum: str
    code: str
    versions: dict[str, str]
    commit: str | None
    started: str
    seconds: float
    peak_memory_mb: float | None
    status: str
    confirmed: str | None = None
    reason: str | None = None
    trace: str | None = None
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    history: dict[str, list[Any]] = field(default_factory=dict)


def is_share(column: str) -> bool:
    """Tell by its name whether a column of a history is a share, shown in per cent.

    Examples
    --------
    >>> [is_share(name) for name in ("test_accuracy", "minority_recall", "imbalance")]
    [True, True, False]
    """
    return any(f"_{column}".endswith(f"_{ending}") for ending in _SHARE_ENDINGS)


def noted(
    record: Record, column: str, by: str | None = None, stage: str | None = None
) -> dict[float, float]:
    """Return a column of a run's history by another, without the rows that lack either.

    Parameters
    ----------
    record : Record
    column, by : str
        Columns of numbers; without ``by``, the rows are counted from 1. `EPOCH`, which begins
        anew with every stage, is counted over all of them. Where another repeats a number, its
        last row counts.
    stage : str, optional
        Only the rows of this stage, counted by themselves.

    Returns
    -------
    dict of float to float
        In the order of the rows; empty where the history has no such columns.
    """
    history = record.history
    if stage is not None:
        kept = [i for i, name in enumerate(history.get(STAGE, [])) if name == stage]
        history = {name: [values[i] for i in kept] for name, values in history.items()}
    values = history.get(column, [])
    counted = range(1, len(values) + 1)
    places = counted if by is None else history.get(by, [])
    if by == EPOCH and places:
        places = counted
    rows = zip(places, values, strict=True) if places and values else ()
    return {x: y for x, y in rows if _is_number(x) and _is_number(y)}


def profiled(record: Record, measure: str, by: str) -> dict[float, float]:
    """Return a vector in ``extra`` of a run by another, in the order of their entries.

    Empty where the run has no such vectors, of one length.
    """
    values, places = (record.extra.get(name) for name in (measure, by))
    if not isinstance(values, list) or not isinstance(places, list) or len(values) != len(places):
        return {}
    pairs = zip(places, values, strict=True)
    return {x: y for x, y in pairs if _is_number(x) and _is_number(y)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def digest(value: Any) -> str:
    """SHA-256, in hexadecimal, of plain values, whatever the order of keys."""
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def cell_key(specification: Mapping[str, Any], seed: int, data_checksum: str, code: str) -> str:
    """Identify a run by everything that decides its result."""
    return digest(
        {
            "specification": specification,
            "seed": seed,
            "data_checksum": data_checksum,
            "code": code,
        }
    )


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
