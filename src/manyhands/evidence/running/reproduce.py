"""Run rows over seeds on all cores: resumable, and finished runs are never lost.

A *cell* is a row with one seed. Processes with one thread each take cells; each cell ends in a
record (see `manyhands.evidence.records`), written atomically, so that the machine can be killed
anywhere and the next call goes on; when all cells have ended, their records are packed. A cell
whose record is there is not run again; one that fails, or whose process dies, is recorded as
failed, and the others go on.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from manyhands.evidence.experiments.rows import Row
from manyhands.evidence.records.adoptions import read_adoptions
from manyhands.evidence.records.records import digest
from manyhands.evidence.records.store import pack, read_records
from manyhands.evidence.running.plan import (
    Cell,
    Job,
    Outcome,
    ProgressListener,
    Silent,
    check_positive,
    deadline_in,
    list_cells,
)
from manyhands.evidence.running.pool import run_cells
from manyhands.exceptions import AnnotationError


def reproduce(
    rows: Iterable[Row],
    results: str | Path,
    *,
    jobs: int | None = None,
    seeds: int | None = None,
    budget_minutes: float | None = None,
    progress: ProgressListener | None = None,
) -> list[Outcome]:
    """Run what is not recorded yet of some rows.

    Parameters
    ----------
    rows : iterable of Row
    results : str or Path
        Folder of the records; several calls may share it, and divide the cells among them.
    jobs : int, optional
        Processes, of one thread each; default: the cores.
    seeds : int, optional
        So many seeds of every row in place of its own: its first ones, and the integers after
        its largest.
    budget_minutes : float, optional
        After so many minutes no cell is started; those running end.
    progress : ProgressListener, optional

    Returns
    -------
    list of Outcome
        One a cell, in the order of the cells: every row's first seed, then the second, ...

    Raises
    ------
    AnnotationError
        If ``jobs``, ``seeds`` or ``budget_minutes`` are not positive.
    WriteError
        If the folder cannot be written.
    """
    check_positive(seeds=seeds, budget_minutes=budget_minutes)
    cells = list_cells(rows, seeds)
    job = Job(str(results), deadline_in(budget_minutes), check=False)
    outcomes = run_cells(cells, job, jobs, progress or Silent())
    pack(results)
    return outcomes


def recheck(
    rows: Iterable[Row],
    results: str | Path,
    *,
    sample: int = 3,
    jobs: int | None = None,
    budget_minutes: float | None = None,
    progress: ProgressListener | None = None,
) -> list[Outcome]:
    """Run a sample of the finished cells again and compare every figure exactly.

    Parameters
    ----------
    rows, results, jobs, budget_minutes, progress
        As of `reproduce`.
    sample : int
        Cells to run again, drawn with a fixed seed. Records of earlier code are not drawn.

    Returns
    -------
    list of Outcome
        "same figures", or "other figures" and the first that differs. Records stay as they are.

    Raises
    ------
    AnnotationError
        If ``sample``, ``jobs`` or ``budget_minutes`` are not positive, or nothing is finished yet.
    """
    check_positive(sample=sample, budget_minutes=budget_minutes)
    finished = _finished(rows, results)
    if not finished:
        raise AnnotationError(
            f"results={str(results)!r} holds no finished run of these rows as they and the code "
            "are now; reproduce them first"
        )
    drawn = random.Random(0).sample(finished, min(sample, len(finished)))
    job = Job(str(results), deadline_in(budget_minutes), check=True)
    return run_cells(drawn, job, jobs, progress or Silent())


def _finished(rows: Iterable[Row], results: str | Path) -> list[Cell]:
    """Return the cells that are done with the rows and the code as they are now."""
    from manyhands.evidence.running.code import code_hash

    adoptions = read_adoptions(results)
    now = {(row.id, row.key, code_hash(row)): row for row in rows}
    found: dict[tuple[str, int], Cell] = {}
    for record in read_records(results):
        row = now.get((record.row, digest(record.specification), adoptions.code_of(record)))
        if row is not None and record.status == "done":
            # Several records of a cell differ in the data; at most one is that of the data now.
            found[row.id, record.seed] = Cell(row, record.seed)
    return list(found.values())
