"""Run rows over seeds on all cores: resumable, and finished runs are never lost.

A *cell* is a row with one seed. Processes with one thread each take cells. Each cell ends in a
record (see `manyhands.evidence.records`), which is written atomically, so the command can be killed
at any time and the next call continues. When all cells have ended, their records are packed. A
cell with a record is not run again. A cell that fails, or whose process dies, is recorded as
failed, and the other cells continue.
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
    """Run the cells of rows that have no record yet.

    Parameters
    ----------
    rows : iterable of Row
    results : str or Path
        Folder of the records; several calls may share it and divide the cells among themselves.
    jobs : int, optional
        Number of processes, of one thread each; default: one per core.
    seeds : int, optional
        Number of seeds per row: the first ones of the row, then the integers after its largest
        seed. Default: the row's own seeds.
    budget_minutes : float, optional
        After this many minutes no cell is started; running cells are finished.
    progress : ProgressListener, optional

    Returns
    -------
    list of Outcome
        One per cell: every row's first seed, then every row's second seed, and so on.

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
        As in `reproduce`.
    sample : int
        Number of cells to run again, drawn with a fixed seed. Records of earlier code are not
        drawn, unless they are adopted.

    Returns
    -------
    list of Outcome
        "same figures", or "other figures" with the first that differs. Records stay unchanged.

    Raises
    ------
    AnnotationError
        If ``sample``, ``jobs`` or ``budget_minutes`` are not positive, or nothing is finished yet.
    """
    check_positive(sample=sample, budget_minutes=budget_minutes)
    finished = _finished(rows, results)
    if not finished:
        raise AnnotationError(
            f"results={str(results)!r} has no finished run of these rows with their present "
            "specification and code; reproduce them first"
        )
    drawn = random.Random(0).sample(finished, min(sample, len(finished)))
    job = Job(str(results), deadline_in(budget_minutes), check=True)
    return run_cells(drawn, job, jobs, progress or Silent())


def _finished(rows: Iterable[Row], results: str | Path) -> list[Cell]:
    """Return the cells that are done with the present rows and the present code."""
    from manyhands.evidence.running.code import code_hash

    adoptions = read_adoptions(results)
    now = {(row.id, row.key, code_hash(row)): row for row in rows}
    found: dict[tuple[str, int], Cell] = {}
    for record in read_records(results):
        row = now.get((record.row, digest(record.specification), adoptions.code_of(record)))
        if row is not None and record.status == "done":
            # Records of one cell differ in their data; at most one has the present data.
            found[row.id, record.seed] = Cell(row, record.seed)
    return list(found.values())
