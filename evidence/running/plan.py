"""The plan of a run: rows selected by name, their cells, and the outcome of each cell."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evidence.experiments.papers import paper_of, table_of
from evidence.experiments.rows import Row
from evidence.objects import did_you_mean
from evidence.records import digest
from manyhands.exceptions import AnnotationError

KEPT = "done before"

NOT_RUN = "not run"

BUSY = "running elsewhere"

SAME, DIFFERENT = "same figures", "other figures"

MISSING, ANEW, COMPARE = "missing", "anew", "compare"
"""What a job does: run cells without a finished run; run all, replacing records; or run all and
compare them with their records, which stay as they are."""


@dataclass(frozen=True)
class Cell:
    """A row with one seed."""

    row: Row
    seed: int

    def __str__(self) -> str:
        return f"{self.row.id} seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a cell.

    Attributes
    ----------
    row : str
    seed : int
    status : str
        "done", "failed" or "skipped" as in its record; "done before"; "not run" (for example,
        because the budget is spent); in a rerun, "same figures" or "other figures".
    reason : str or None
        Why it is not done, or which figure differs.
    seconds : float
    """

    row: str
    seed: int
    status: str
    reason: str | None = None
    seconds: float = 0.0


class ProgressListener(Protocol):
    """Interface of objects that are notified of progress."""

    def begin(self, n_cells: int) -> None:
        """Called once, before the first cell, with the number of cells."""

    def start(self, cell: Cell) -> None:
        """Called when a process takes the cell."""

    def pause(self, cell: Cell) -> None:
        """Called when another command is running the cell; it is tried again later."""

    def end(self, outcome: Outcome) -> None:
        """Called when a cell has ended."""


class Silent:
    """A progress listener that does nothing."""

    def begin(self, n_cells: int) -> None:  # noqa: D102
        pass

    def start(self, cell: Cell) -> None:  # noqa: D102
        pass

    def pause(self, cell: Cell) -> None:  # noqa: D102
        pass

    def end(self, outcome: Outcome) -> None:  # noqa: D102
        pass


@dataclass(frozen=True)
class Job:
    """All that a worker process needs to know.

    Attributes
    ----------
    results : str
        Folder of the records.
    deadline : float
        Time of `time.monotonic` after which no cell is started.
    what : str
        `MISSING`, `ANEW` or `COMPARE`.
    """

    results: str
    deadline: float
    what: str


def select_rows(rows: Sequence[Row], what: str) -> list[Row]:
    """Return the rows that a name selects: a row, its file, a table, a paper, a method, or "all".

    A method is the first part of a row's id; hyphens are allowed, as in `manyhands fit`.

    Raises
    ------
    AnnotationError
        If nothing has this name.
    """
    if what == "all":
        return list(rows)
    file, method = Path(what).resolve(), what.lower().replace("-", "_")
    found = [
        row
        for row in rows
        if what in (row.id, table_of(row), paper_of(row))
        or method == _method_of(row)
        or Path(row.file).resolve() == file
    ]
    if not found:
        names = dict.fromkeys(
            name for row in rows for name in (paper_of(row), table_of(row), _method_of(row), row.id)
        )
        tables = ", ".join(dict.fromkeys(table_of(row) for row in rows)) or "none"
        raise AnnotationError(
            f"WHAT={what!r} is not a row, table, paper or method here{did_you_mean(what, names)}; "
            f"write all, or one of {tables}"
        )
    return found


def _method_of(row: Row) -> str:
    return row.id.partition("/")[0]


def list_cells(rows: Iterable[Row], seeds: int | None = None) -> list[Cell]:
    """Return the cells of rows: all first seeds, then all second ones, and so on.

    A limited budget thus gives every row about the same number of seeds. Rows with the same data
    are adjacent, which spares a process from reloading the data.
    """
    distinct = {row.id: row for row in rows}.values()
    ordered = sorted(distinct, key=lambda row: (digest(row.data), row.id))
    chosen = {row.id: _choose_seeds(row, seeds) for row in ordered}
    longest = max((len(found) for found in chosen.values()), default=0)
    return [
        Cell(row, chosen[row.id][k])
        for k in range(longest)
        for row in ordered
        if k < len(chosen[row.id])
    ]


def _choose_seeds(row: Row, seeds: int | None) -> list[int]:
    if seeds is None:
        return list(row.seeds)
    after = max(row.seeds) + 1
    return [*row.seeds, *range(after, after + seeds)][:seeds]


def check_positive(**values: float | None) -> None:
    """Raise `AnnotationError` for the first argument that is neither None nor positive."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise AnnotationError(f"{name}={value!r} is not positive; give a number above 0")


def deadline_in(minutes: float | None) -> float:
    """Return the time of `time.monotonic` in this many minutes, or infinity for None.

    The processes of a machine share that clock, and nobody sets it.
    """
    return float("inf") if minutes is None else time.monotonic() + 60 * minutes
