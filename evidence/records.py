"""A record of a run: its fields, its figures, and the key that it is filed under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

LAST = "last epoch"

HELD_OUT = "chosen on held-out annotations"

GOLD = "chosen on gold validation"

ORACLE = "best on test (oracle)"

SELECTIONS = (LAST, HELD_OUT, GOLD, ORACLE)
"""Ways to choose the epoch that is measured; the last of them uses the test set."""

SHORT = {
    "last epoch": LAST,
    "held-out annotations": HELD_OUT,
    "gold validation": GOLD,
    "best on test": ORACLE,
}
"""What ``selection`` says in a row's ``published`` -> the way to choose the epoch."""

SHARES = ("accuracy", "macro_f1")
"""Measures that every run has, shown in per cent."""

_SHARE_ENDINGS = (*SHARES, "f1", "precision", "recall", "auc")

EPOCH = "epoch"
"""Column of a history with the epoch; like ``metrics``, `noted` counts over all stages."""

STAGE = "stage"
"""Column of a history that names the phase of training."""

STATUSES = ("done", "failed", "skipped")


@dataclass(frozen=True)
class Record:
    """One run of a row with one seed.

    It is filed under the content of its row, its seed and its data. Versions and commit say by
    which code it was made; `rerun` tells whether later code gives the same figures.

    Attributes
    ----------
    paper : str
        Key of the paper that the row belongs to; see `paper_of`.
    row : str
        Id that the row had when it was run.
    seed : int
    specification : dict
        Everything in the row that decides the result; see ``Row.specification``.
    data_checksum : str
        See `checksum`; "" where the data could not be loaded.
    versions : dict of str to str
        Versions of manyhands, of Python, of the platform and of the numerical packages.
    commit : str or None
        The last commit that touched the package, where it runs from a checkout; with "+" if files
        of the package had changes that were not committed.
    started : str
        ISO 8601, UTC.
    seconds : float
    peak_memory_mb : float or None
        Largest resident memory of the process during the run, in MiB; on systems other than Linux,
        since the process started.
    status : {"done", "failed", "skipped"}
    reason : str or None
        Why it failed or was skipped.
    trace : str or None
        Traceback of a failure.
    metrics : dict
        Way to choose the epoch (see `SELECTIONS`) -> ``{"epoch", "accuracy", "macro_f1",
        "n_test"}``, or ``{"absent": reason}``. Epochs are counted from 1 over all stages.
    extra : dict of str to float, or to (nested) lists of floats
        Further measures of the row: figures, vectors, matrices.
    history : dict of str to list
        Columns of the training history, None where an epoch lacks the value.
    """

    paper: str
    row: str
    seed: int
    specification: dict[str, Any]
    data_checksum: str
    versions: dict[str, str]
    commit: str | None
    started: str
    seconds: float
    peak_memory_mb: float | None
    status: str
    reason: str | None = None
    trace: str | None = None
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    history: dict[str, list[Any]] = field(default_factory=dict)

    @cached_property
    def content(self) -> str:
        """SHA-256 of the specification: rows of any name that run the same have the same."""
        return digest(self.specification)

    @cached_property
    def key(self) -> str:
        """Return the key under which the record is filed; see `cell_key`."""
        return cell_key(self.specification, self.seed, self.data_checksum)


def is_share(column: str) -> bool:
    """Tell from its name whether a column of a history is a share, shown in per cent.

    Examples
    --------
    >>> [is_share(name) for name in ("test_accuracy", "minority_recall", "imbalance")]
    [True, True, False]
    """
    return any(f"_{column}".endswith(f"_{ending}") for ending in _SHARE_ENDINGS)


def noted(
    record: Record, column: str, by: str | None = None, stage: str | None = None
) -> dict[float, float]:
    """Return one column of a run's history by another, without rows that lack either value.

    Parameters
    ----------
    record : Record
    column, by : str
        Columns of numbers. Without ``by``, rows are counted from 1, and also with `EPOCH`, because
        that column restarts in every stage. Where ``by`` repeats a number, the last row counts.
    stage : str, optional
        Use only rows of this stage, and count these alone.

    Returns
    -------
    dict of float to float
        In the order of the rows; empty if the history lacks one of the columns.
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
    """Return one vector in a run's ``extra`` by another, in the order of their entries.

    Empty unless the run has both vectors, with the same length.
    """
    values, places = (record.extra.get(name) for name in (measure, by))
    if not isinstance(values, list) or not isinstance(places, list) or len(values) != len(places):
        return {}
    pairs = zip(places, values, strict=True)
    return {x: y for x, y in pairs if _is_number(x) and _is_number(y)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def digest(value: Any) -> str:
    """SHA-256 of plain values, in hexadecimal; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def cell_key(specification: Mapping[str, Any], seed: int, data_checksum: str) -> str:
    """Return what a run is filed under: a hash of its row's content, its seed and its data."""
    return digest({"specification": specification, "seed": seed, "data_checksum": data_checksum})


def digest_of_figures(record: Record) -> str:
    """Digest of what was measured, which exposes a figure altered by hand."""
    # JSON turns tuples into lists and integer keys into texts, as in the stored record.
    return digest(json.loads(json.dumps(_figures(record))))


def _figures(record: Record) -> list[Any]:
    return [record.metrics, record.extra, record.history]


def stored_fields(record: Record) -> dict[str, Any]:
    """Return what is stored of a record: its fields, key, and the digest of its figures."""
    fields = {**asdict(record), "key": record.key, "figures": digest_of_figures(record)}
    del fields["paper"]  # The file is the paper's.
    return fields


def sound_record(content: Any, paper: str) -> Record | None:
    """Make a record of a paper from `stored_fields`.

    Returns
    -------
    Record or None
        None if a field is missing or unknown, if the key does not match the specification, seed
        and data, or if the digest does not match the figures.
    """
    try:
        values = dict(content)
        figures, key = values.pop("figures"), values.pop("key")
        record = Record(paper=paper, **values)
        sound = (
            isinstance(record.row, str)
            and record.key == key
            and record.status in STATUSES
            and all(
                isinstance(part, dict) for part in (record.metrics, record.extra, record.history)
            )
            and figures == digest(_figures(record))  # Stored figures are plain already.
        )
    except (ValueError, TypeError, KeyError):
        return None
    return record if sound else None


def first_difference(kept: Record, record: Record, called: str = "recorded") -> str | None:
    """Describe the first figure that is not exactly equal in an earlier record, None if none.

    Columns of the history that the earlier record does not have at all are not compared: the code
    has begun to measure them since.
    """
    if record.status != "done":
        return f"{record.status}: {record.reason}"
    for part in ("metrics", "extra", "history"):
        # Compare as JSON, because records are stored as JSON.
        ours, theirs = (_flat(json.loads(json.dumps(getattr(r, part)))) for r in (record, kept))
        if part == "history":
            ours = {name: v for name, v in ours.items() if name.split("/")[1] in kept.history}
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                return f"{part} {name}: {ours.get(name)} now, {theirs.get(name)} {called}"
    return None


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Flatten nested dicts and lists to paths and their values."""
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        return {name: value}
    return {path: v for key, part in parts for path, v in _flat(part, f"{name}/{key}").items()}
