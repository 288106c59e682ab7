"""Run rows over seeds on all cores: resumable, and finished runs are never lost.

A *cell* is a row with one seed. Processes with one thread each take cells. Each cell ends in a
record (see `evidence.records`), which is written atomically, so the command can be killed
at any time and the next call continues. When all cells have ended, their records are packed. A
cell with a record is not run again. A cell that fails, or whose process dies, is recorded as
failed, and the other cells continue.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from evidence.experiments.rows import Row
from evidence.running.plan import (
    ANEW,
    MISSING,
    Job,
    Outcome,
    ProgressListener,
    Silent,
    check_positive,
    deadline_in,
    list_cells,
)
from evidence.running.pool import run_cells
from evidence.store import pack


def reproduce(
    rows: Iterable[Row],
    results: str | Path,
    *,
    jobs: int | None = None,
    seeds: int | None = None,
    anew: bool = False,
    budget_minutes: float | None = None,
    progress: ProgressListener | None = None,
) -> list[Outcome]:
    """Run the cells of rows that have no finished run yet.

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
    anew : bool
        Run also the cells that have a finished run; the new records replace the earlier ones.
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
    job = Job(str(results), deadline_in(budget_minutes), ANEW if anew else MISSING)
    pack(results)  # What a killed call left: it supersedes earlier runs.
    outcomes = run_cells(cells, job, jobs, progress or Silent())
    pack(results)
    return outcomes
