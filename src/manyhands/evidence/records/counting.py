"""Which records count: for every row, runs by one code on the same data."""

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
    """Return, for every row, the record that counts for each seed.

    All records of a row have its present specification. They are by one code: the one that ran
    last, or earlier code whose runs it adopted. They are on the same data, unless every seed makes
    its own data. A mean over seeds thus averages runs of the same thing. A failure does not replace
    a finished run of the same thing. Skipped runs count only where nothing ran.

    Returns
    -------
    dict of str to dict of int to Record
        Row id -> seed -> record.
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
    """Keep the runs by one code on the same data; ``records`` are in order of time."""
    ran = [r for r in records if r.status != "skipped"]
    if not ran:
        return list(records)
    # A run that failed before its data were loaded does not decide which code and data count.
    leading = next((r for r in reversed(ran) if r.data_checksum), ran[-1])
    code = adoptions.code_of(leading)
    kept = [r for r in ran if adoptions.code_of(r) == code]
    if row.data_of(0) == row.data_of(1):
        kept = [r for r in kept if r.data_checksum in ("", leading.data_checksum)]
    return kept
