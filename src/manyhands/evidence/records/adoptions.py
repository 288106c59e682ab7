"""Which runs count for a row: those by one code, and those of earlier code that it adopted.

Records are filed under the code that made them. After a change of code that should leave figures
as they are, a random sample of every group of runs by one code is run again. Where all figures are
exactly equal, the whole group counts as made by the later code: it is adopted. The file
``adopted.json`` lists the groups of every paper that are, and those that are not.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from manyhands.evidence.records.records import Record, digest
from manyhands.io.files import waiting_lock, write_atomically

if TYPE_CHECKING:
    from manyhands.evidence.experiments.rows import Row

RECORDS = "the records"
REFERENCE = "the same runs by earlier code on one machine"

ADOPTED = "adopted.json"
"""File, in the folder of the records, of the groups that were compared."""

_LOG = logging.getLogger("manyhands")


@dataclass(frozen=True)
class Adoption:
    """The result of comparing the sample of a group.

    Attributes
    ----------
    code : str
        Digest of the code that made the group's records.
    runs : int
        Number of runs in the group.
    rerun : tuple of str
        Runs that were repeated, as "<row> seed <seed>".
    differing : dict of str to str
        Repeated run -> its first difference, or why it could not be compared. Empty where all
        figures are equal: the group is then adopted.
    compared_with : str
        `RECORDS` or `REFERENCE`.
    date : str
    later : dict of str to str
        Row -> digest of the code that its runs were compared with.
    """

    code: str
    runs: int
    rerun: tuple[str, ...]
    differing: Mapping[str, str]
    compared_with: str
    date: str
    later: Mapping[str, str]

    @property
    def holds(self) -> bool:
        """Whether the group is adopted; otherwise it is stale."""
        return not self.differing

    @property
    def words(self) -> str:
        """The group's state in words."""
        compared = "" if self.compared_with == RECORDS else f"; compared with {self.compared_with}"
        if self.holds:
            return f"adopted, {len(self.rerun)} of {self.runs} re-run on {self.date}{compared}"
        named = "; ".join(f"{run} ({what})" for run, what in self.differing.items())
        return (
            f"stale, {len(self.differing)} of {len(self.rerun)} re-run on {self.date} not found "
            f"equal: {named}{compared}"
        )


class Adoptions:
    """All groups of a results folder that were compared with later code."""

    def __init__(self, groups: Iterable[Adoption] = ()) -> None:
        self._groups = {(row, group.code): group for group in groups for row in group.later}

    def group_of(self, row: str, code: str) -> Adoption | None:
        """Return the group of a row's runs by this code, or None."""
        return self._groups.get((row, code))

    def code_of(self, record: Record) -> str:
        """Return the code that a record counts as made by: code that adopted it, or its own."""
        group = self.group_of(record.row, record.code)
        return group.later[record.row] if group is not None and group.holds else record.code

    def codes_like(self, row: str, code: str) -> list[str]:
        """Return the earlier codes whose runs of a row count as made by ``code``."""
        return [
            earlier
            for (name, earlier), group in self._groups.items()
            if name == row and group.holds and group.later[row] == code
        ]


def read_adoptions(results: str | Path) -> Adoptions:
    """Read the adoptions of all papers; a file that cannot be read adopts nothing."""
    return Adoptions(group for groups in read_groups(results).values() for group in groups)


def read_groups(results: str | Path) -> dict[str, list[Adoption]]:
    """Read the groups of every paper; none if the file is missing or cannot be read."""
    path = Path(results) / ADOPTED
    try:
        papers = json.loads(path.read_text(encoding="utf-8"))
        return {paper: [_from_json(group) for group in groups] for paper, groups in papers.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _LOG.warning("%s cannot be read (%s): it adopts nothing", path, error)
        return {}


def add_group(results: str | Path, paper: str, group: Adoption) -> None:
    """Write a group of a paper, atomically; it replaces an earlier one of the same code.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    """
    path = Path(results) / ADOPTED
    with waiting_lock(path.parent / ".locks" / path.name):
        papers = read_groups(results)
        others = [other for other in papers.get(paper, []) if other.code != group.code]
        papers[paper] = sorted([*others, group], key=lambda group: group.code)
        content = {name: [_to_json(each) for each in papers[name]] for name in sorted(papers)}
        write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _to_json(group: Adoption) -> dict[str, object]:
    rows_of: dict[str, list[str]] = {}
    for row, code in sorted(group.later.items()):
        rows_of.setdefault(code, []).append(row)
    return {
        "state": "adopted" if group.holds else "stale",
        "code": group.code,
        "runs": group.runs,
        "rerun": list(group.rerun),
        "differing": dict(group.differing),
        "compared with": group.compared_with,
        "date": group.date,
        "rows by later code": rows_of,
    }


def _from_json(group: Mapping[str, object]) -> Adoption:
    values = dict(group)
    differing, rows_of, rerun = (values[n] for n in ("differing", "rows by later code", "rerun"))
    if not isinstance(differing, dict) or not isinstance(rows_of, dict):
        raise TypeError("'differing' and 'rows by later code' must be mappings")
    if not isinstance(rerun, list) or (values["state"] == "adopted") == bool(differing):
        raise ValueError("'state' contradicts 'differing', or 'rerun' is not a list")
    return Adoption(
        code=str(values["code"]),
        runs=int(str(values["runs"])),
        rerun=tuple(rerun),
        differing=differing,
        compared_with=str(values["compared with"]),
        date=str(values["date"]),
        later={row: code for code, rows in rows_of.items() for row in rows},
    )


def latest_records(
    rows: Iterable[Row], records: Iterable[Record], adoptions: Adoptions | None = None
) -> dict[str, dict[int, Record]]:
    """Return, for every row, the record that counts for each seed.

    All records of a row have its present specification, whatever the name that they were run under:
    rows of a paper that differ only in name share them. They are by one code: the one that ran
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
    alike: dict[tuple[str, str], list[str]] = {}
    for row in own.values():
        alike.setdefault((row.paper, row.key), []).append(row.id)
    for record in sorted(records, key=lambda r: (r.confirmed or r.started, r.key)):
        if record.row in own:
            place = own[record.row].paper, digest(record.specification)
            for name in alike.get(place, ()):
                of_row[name].append(record)
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
