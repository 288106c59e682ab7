"""Which records count: the last one of every run, and of a row the runs on the last data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from evidence.experiments.papers import paper_of
from evidence.records.records import Record

if TYPE_CHECKING:
    from evidence.experiments.rows import Row


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
