"""After a change of code: run a sample of every group of records again, and adopt what is equal.

A group is the counting runs of a paper that one code made. Its sample is drawn by the hash of row
and seed, which no result has a part in.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from manyhands.evidence.experiments.papers import paper_of
from manyhands.evidence.experiments.rows import Row
from manyhands.evidence.records.adoptions import (
    RECORDS,
    REFERENCE,
    Adoption,
    Adoptions,
    adoption_file,
    read_adoptions,
    read_groups,
    write_groups,
)
from manyhands.evidence.records.counting import latest_records
from manyhands.evidence.records.records import Record, digest
from manyhands.evidence.records.store import find_runs, read_records
from manyhands.evidence.running.comparing import first_difference
from manyhands.evidence.running.plan import (
    Cell,
    Job,
    Outcome,
    ProgressListener,
    Silent,
    check_positive,
    deadline_in,
)
from manyhands.evidence.running.pool import run_cells

SHORT_RUN = 60.0
"""Seconds: longer runs are drawn only where a group has not enough others."""

SAMPLES = ".samples"
"""Folder, within that of the records, of the runs that are compared; gone when all are."""


@dataclass(frozen=True)
class Group:
    """Counting runs of a paper that one code made."""

    paper: str
    code: str
    records: Sequence[Record]

    def sample(self, n: int) -> list[Record]:
        """Draw ``n`` runs, of the short ones where there are so many."""
        short = [record for record in self.records if record.seconds <= SHORT_RUN]
        if len(short) < n:
            return sorted(self.records, key=lambda record: record.seconds)[:n]
        return sorted(short, key=_rank)[:n]


def _rank(record: Record) -> str:
    return hashlib.sha256(f"{record.row}:{record.seed}".encode()).hexdigest()


def groups_of(
    rows: Iterable[Row], records: Iterable[Record], adoptions: Adoptions | None = None
) -> list[Group]:
    """Group the counting, finished runs of rows by paper and by the code that made them."""
    own = list(rows)
    papers = {row.id: paper_of(row) for row in own}
    found: dict[tuple[str, str], list[Record]] = {}
    for runs in latest_records(own, records, adoptions).values():
        for record in runs.values():
            if record.status == "done":
                found.setdefault((papers[record.row], record.code), []).append(record)
    return [Group(paper, code, runs) for (paper, code), runs in sorted(found.items())]


def adopt(
    rows: Iterable[Row],
    results: str | Path,
    *,
    per_group: int = 2,
    reference: str | Path | None = None,
    jobs: int | None = None,
    budget_minutes: float | None = None,
    progress: ProgressListener | None = None,
) -> tuple[list[Adoption], list[Outcome]]:
    """Compare runs of earlier code with the present code, group by group.

    Parameters
    ----------
    rows : iterable of Row
        All rows of one or more papers.
    results : str or Path
        Folder of the records.
    per_group : int
        Runs of every group that are run again.
    reference : str or Path, optional
        Folder of records of the same runs by the code that the records name, made on the machine
        at hand (see ``benchmarks/earlier_code.py``): the last digits of a figure depend on the
        processor. The present code is then compared with these in place of the records.
    jobs, budget_minutes, progress
        As of `reproduce`. A call that is killed, or whose budget is spent, is taken up by the next.

    Returns
    -------
    groups : list of Adoption
        Of every group whose sample is complete; each is kept in ``<paper>.adopted.json``. Groups
        of the present code, and those that count as of it, are left out.
    outcomes : list of Outcome
        Of the runs.

    Raises
    ------
    AnnotationError
        If ``per_group``, ``jobs`` or ``budget_minutes`` are not positive.
    WriteError
        If the folder cannot be written.
    """
    from manyhands.evidence.running.code import code_hash

    check_positive(per_group=per_group, budget_minutes=budget_minutes)
    own = {row.id: row for row in rows}
    now = {name: code_hash(row) for name, row in own.items()}
    adoptions = read_adoptions(results)
    groups = [
        group
        for group in groups_of(own.values(), read_records(results), adoptions)
        if any(adoptions.code_of(record) != now[record.row] for record in group.records)
    ]
    drawn = {
        (record.row, record.seed): Cell(own[record.row], record.seed)
        for group in groups
        for record in group.sample(per_group)
    }
    samples = Path(results) / SAMPLES
    job = Job(str(samples), deadline_in(budget_minutes), check=False)
    outcomes = run_cells(list(drawn.values()), job, jobs, progress or Silent())
    judged = []
    for group in groups:
        found = _judge(group, per_group, now, samples, reference)
        if found is not None:
            judged.append(found)
            path = adoption_file(results, group.paper)
            others = [other for other in read_groups(path) if other.code != group.code]
            write_groups(path, [*others, found])
    if len(judged) == len(groups):
        shutil.rmtree(samples, ignore_errors=True)
    return judged, outcomes


def _judge(
    group: Group,
    per_group: int,
    now: Mapping[str, str],
    samples: Path,
    reference: str | Path | None,
) -> Adoption | None:
    """Compare the sample of a group; None if a run of it is missing."""
    differing = {}
    rerun = []
    for record in group.sample(per_group):
        name = f"{record.row} seed {record.seed}"
        runs = _of_specification(find_runs(samples, record.row, record.seed), record)
        found = next((run for run in runs if run.code == now[record.row]), None)
        if found is None or found.status == "skipped":
            return None
        rerun.append(name)
        difference = _difference(record, found, reference)
        if difference is not None:
            differing[name] = difference
    return Adoption(
        code=group.code,
        runs=len(group.records),
        rerun=tuple(rerun),
        differing=differing,
        compared_with=RECORDS if reference is None else REFERENCE,
        date=datetime.now(UTC).date().isoformat(),
        later={record.row: now[record.row] for record in group.records},
    )


def _difference(record: Record, found: Record, reference: str | Path | None) -> str | None:
    """Name what differs between a run by earlier code and one by the present code."""
    expected, called = record, "recorded"
    if reference is not None:
        runs = _of_specification(find_runs(reference, record.row, record.seed), record)
        same = [run for run in runs if _is_of_code(run, record)]
        if not same:
            return "no run of it by the recorded code to compare with"
        expected, called = same[0], "by the recorded code"
    if found.status == "done" and found.data_checksum != expected.data_checksum:
        return "other data"
    return first_difference(expected, found, called)


def _of_specification(runs: Iterable[Record], record: Record) -> list[Record]:
    wanted = digest(record.specification)
    return [run for run in runs if digest(run.specification) == wanted]


def _is_of_code(run: Record, record: Record) -> bool:
    """Tell whether a run is by the code that a record names.

    A commit stands for its code, since the way of digesting code may have changed; with a "+", it
    had changes that nobody has kept.
    """
    commit = record.commit or "+"
    return run.code == record.code or (run.commit == commit and not commit.endswith("+"))
