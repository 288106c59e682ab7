"""Run one seed of every row again, and compare the present code with the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence.experiments.papers import paper_of
from evidence.experiments.rows import Row
from evidence.records import digest
from evidence.reruns import Rerun, add_rerun, read_reruns
from evidence.running.plan import (
    COMPARE,
    DIFFERENT,
    KEPT,
    NOT_RUN,
    SAME,
    Cell,
    Job,
    Outcome,
    ProgressListener,
    Silent,
    check_positive,
    deadline_in,
)
from evidence.running.pool import run_cells
from evidence.store import latest_records, read_records
from manyhands.exceptions import AnnotationError


def rerun(
    rows: Iterable[Row],
    results: str | Path,
    *,
    jobs: int | None = None,
    budget_minutes: float | None = None,
    progress: ProgressListener | None = None,
) -> list[Outcome]:
    """Run one seed of every row again, compare it with its record, and write what differs.

    Every figure and every column of the history must be equal, to the last digit. Records stay as
    they are: ``reproduce(..., anew=True)`` replaces them. What was found is written to
    ``reruns.json`` (see `read_reruns`), from which pages take it. A call that was killed, or whose
    budget was spent, is continued by the next one at the same commit.

    Parameters
    ----------
    rows : iterable of Row
        Rows of a paper that differ only in name are run once.
    results, jobs, budget_minutes, progress
        As in `reproduce`.

    Returns
    -------
    list of Outcome
        One per different row: "same figures", or "other figures" with the first that differs; "done
        before" if the present commit has rerun it with equal figures; "not run" if it has no
        finished run.

    Raises
    ------
    AnnotationError
        If ``jobs`` or ``budget_minutes`` are not positive, or nothing is finished yet.
    WriteError
        If the folder cannot be written.
    """
    from evidence.running.cells import commit

    check_positive(budget_minutes=budget_minutes)
    alike: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (digest(row.data), row.id)):
        alike.setdefault((paper_of(row), row.key), []).append(row)
    first = {own[0].id: own[0] for own in alike.values()}
    seeds = _finished_seeds(first, results)
    if not seeds:
        raise AnnotationError(
            f"results={str(results)!r} has no finished run of these rows as they are now; "
            "reproduce them first"
        )
    now, before = commit(), read_reruns(results)
    compared = {name for name, row in first.items() if _is_compared(row, now, before.get(name))}
    cells = [
        Cell(row, seeds[name]) for name, row in first.items() if name in seeds.keys() - compared
    ]
    job = Job(str(results), deadline_in(budget_minutes), COMPARE)
    names = {own[0].id: [row.id for row in own] for own in alike.values()}
    listener = _Writing(progress or Silent(), results, first, names, now)
    found = {outcome.row: outcome for outcome in run_cells(cells, job, jobs, listener)}
    for name, row in first.items():
        if name not in seeds:
            found[name] = Outcome(name, row.seeds[0], NOT_RUN, "no finished run is recorded")
        elif name in compared:
            known = before[name]
            status = KEPT if known.difference is None else DIFFERENT
            found[name] = Outcome(name, known.seed, status, known.difference)
    return [found[name] for name in first]


def _is_compared(row: Row, commit: str | None, before: Rerun | None) -> bool:
    """Whether exactly the present code has rerun a row as it is.

    A commit does not say so where files had changes, nor of rows that name modules of others.
    """
    if before is None or (before.content, before.commit) != (row.key, commit):
        return False
    others = any(":" in name for name in _texts(row.specification()))
    return not others and not (commit or "+").endswith("+")


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in plain values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _finished_seeds(rows: Mapping[str, Row], results: str | Path) -> dict[str, int]:
    """Return, of rows that have a finished run, the first seed with one."""
    found = {}
    for name, runs in latest_records(rows.values(), read_records(results)).items():
        done = [seed for seed, run in runs.items() if run.status == "done"]
        if done:
            found[name] = next((seed for seed in rows[name].seeds if seed in done), done[0])
    return found


class _Writing:
    """Write what was found about each row as soon as it is known, and pass on the progress."""

    def __init__(
        self,
        listener: ProgressListener,
        results: str | Path,
        rows: Mapping[str, Row],
        names: Mapping[str, Sequence[str]],
        commit: str | None,
    ) -> None:
        self.begin, self.start, self.pause = listener.begin, listener.start, listener.pause
        self._listener, self._results = listener, results
        self._rows, self._names, self._commit = rows, names, commit

    def end(self, outcome: Outcome) -> None:
        if outcome.status in (SAME, DIFFERENT, "failed"):
            found = Rerun(
                content=self._rows[outcome.row].key,
                seed=outcome.seed,
                commit=self._commit,
                date=datetime.now(UTC).date().isoformat(),
                difference=outcome.reason,
            )
            add_rerun(self._results, self._names[outcome.row], found)
        self._listener.end(outcome)
