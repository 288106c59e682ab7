"""Which records count: for every row, runs of one code and of the same data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from manyhands.evidence.records.adoptions import Adoptions
from manyhands.evidence.records.records import Record, digest

if TYPE_CHECKING:
    from manyhands.evidence.experiments.rows import Row


def latest_records(
    rows: Iterable[Row], records: Iterable[Record], adoptions: Adoptions | None = None
) -> dict[str, dict[int, Record]]:
    """Return, for every row, the record that counts of every seed.

    They are of the row's present specification, and all of one code (the one that ran last, with
    the runs of earlier code that are adopted as of it) and, but for data made anew with every
    seed, of the same data: a mean is of runs of the same thing.
    A failure does not outweigh a finished run of the same thing; what was only skipped counts
    where nothing ran.
    """
    own = {row.id: row for row in rows}
    adopted = Adoptions() if adoptions is None else adoptions
    of_row: dict[str, list[Record]] = {name: [] for name in own}
    for record in sorted(records, key=lambda r: (r.confirmed or r.started, r.key)):
        row = own.get(record.row)
        if row is not None and row.key == digest(record.specification):
            of_row[row.id].append(record)
    found = {}
    for name, candidates in of_row.items():
        kept = sorted(
            _of_one_kind(own[name], candidates, adopted), key=lambda r: r.status == "done"
        )
        found[name] = dict(sorted({record.seed: record for record in kept}.items()))
    return found


def _of_one_kind(row: Row, records: Sequence[Record], adoptions: Adoptions) -> list[Record]:
    """Keep the runs of one code and of the same data, from runs in the order of their time."""
    ran = [r for r in records if r.status != "skipped"]
    if not ran:
        return list(records)
    # A failure before the data were there says nothing of what finished with them.
    leading = next((r for r in reversed(ran) if r.data_checksum), ran[-1])
    code = adoptions.code_of(leading)
    kept = [r for r in ran if adoptions.code_of(r) == code]
    if row.data_of(0) == row.data_of(1):
        kept = [r for r in kept if r.data_checksum in ("", leading.data_checksum)]
    return kept
