"""After a change of code: run a sample of every group of records again, and adopt equal groups.

A group consists of those runs of a paper that count and were made by one code. Its sample is drawn
by a hash of row and seed, so it does not depend on results.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    add_group,
    latest_records,
    read_adoptions,
)
from manyhands.evidence.records.records import Record, digest, first_difference
from manyhands.evidence.records.store import find_runs, read_records
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
from manyhands.exceptions import WriteError
from manyhands.io.files import file_lock

SHORT_RUN = 60.0
"""Seconds; longer runs are drawn only where a group has too few shorter ones."""

SAMPLES = ".samples"
"""Folder, within that of the records, of the repeated runs; removed when all are compared."""


@dataclass(frozen=True)
class Group:
    """The runs of a paper that count and were made by one code."""

    paper: str
    code: str
    records: Sequence[Record]

    def sample(self, n: int) -> list[Record]:
        """Draw ``n`` of the short runs; if there are too few, take the ``n`` shortest runs."""
        short = [record for record in self.records if record.seconds <= SHORT_RUN]
        if len(short) < n:
            return sorted(self.records, key=lambda record: record.seconds)[:n]
        return sorted(short, key=_rank)[:n]


def _rank(record: Record) -> str:
    return hashlib.sha256(f"{record.row}:{record.seed}".encode()).hexdigest()


def groups_of(
    rows: Iterable[Row], records: Iterable[Record], adoptions: Adoptions | None = None
) -> list[Group]:
    """Group the finished runs of rows that count, by paper and by the code that made them."""
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
        Number of runs per group to repeat.
    reference : str or Path, optional
        Folder of records of the same runs, made on this machine by the code that the records name,
        or by code that has adopted them (see ``benchmarks/earlier_code.py``). The present code is
        then compared with these instead of the records, because the last digits of a figure depend
        on the processor.
    jobs, budget_minutes, progress
        As in `reproduce`. The next call continues one that was killed or whose budget was spent.

    Returns
    -------
    groups : list of Adoption
        One per group whose sample is complete, also written to ``adopted.json``. Groups
        that are made by the present code, or count as made by it, are left out.
    outcomes : list of Outcome
        One per repeated run.

    Raises
    ------
    AnnotationError
        If ``per_group``, ``jobs`` or ``budget_minutes`` are not positive.
    WriteError
        If the folder cannot be written, or another process adopts records in it.
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
    judged = []
    with _alone(Path(results)):
        outcomes = run_cells(list(drawn.values()), job, jobs, progress or Silent())
        for group in groups:
            found = _judge(group, per_group, now, samples, reference, adoptions)
            if found is not None:
                judged.append(found)
                add_group(results, group.paper, found)
        if len(judged) == len(groups):
            shutil.rmtree(samples, ignore_errors=True)
    return judged, outcomes


@contextmanager
def _alone(results: Path) -> Iterator[None]:
    """Refuse to adopt while another process does, as both would write and remove one folder."""
    with file_lock(results / ".locks" / "adopt") as held:
        if not held:
            raise WriteError(
                f"another process adopts records of {str(results)!r}; wait until it is done, or "
                "name all papers in one command"
            )
        yield


def _judge(
    group: Group,
    per_group: int,
    now: Mapping[str, str],
    samples: Path,
    reference: str | Path | None,
    adoptions: Adoptions,
) -> Adoption | None:
    """Compare the sample of a group; None if one of its runs is missing."""
    differing = {}
    rerun = []
    for record in group.sample(per_group):
        name = f"{record.row} seed {record.seed}"
        runs = _of_specification(find_runs(samples, record.row, record.seed), record)
        found = next((run for run in runs if run.code == now[record.row]), None)
        if found is None or found.status == "skipped":
            return None
        rerun.append(name)
        difference = _difference(record, found, reference, adoptions.code_of(record))
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


def _difference(
    record: Record, found: Record, reference: str | Path | None, counted: str
) -> str | None:
    """Name what differs between a run by earlier code and one by the present code.

    ``counted`` is the code that the record counts as made by.
    """
    expected, called = record, "recorded"
    if reference is not None:
        runs = _of_specification(find_runs(reference, record.row, record.seed), record)
        same = [run for run in runs if run.code == counted or _is_of_code(run, record)]
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
    """Tell whether a run was made by the code that a record names.

    An equal commit suffices, since the digest of the same code may be computed differently now. A
    commit that ends in "+" had uncommitted changes, so it identifies no code.
    """
    commit = record.commit or "+"
    return run.code == record.code or (run.commit == commit and not commit.endswith("+"))
