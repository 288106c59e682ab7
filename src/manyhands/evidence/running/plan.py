"""What is to be run: rows by name, their cells, and what becomes of each cell."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from manyhands.evidence.experiments.papers import paper_of, table_of
from manyhands.evidence.experiments.rows import Row
from manyhands.evidence.objects import did_you_mean
from manyhands.evidence.records.records import digest
from manyhands.exceptions import AnnotationError

KEPT = "done before"

NOT_RUN = "not run"

BUSY = "running elsewhere"

SAME, DIFFERENT = "same figures", "other figures"


@dataclass(frozen=True)
class Cell:
    """A row with one seed."""

    row: Row
    seed: int

    def __str__(self) -> str:
        return f"{self.row.id} seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What became of a cell.

    Attributes
    ----------
    row : str
    seed : int
    status : str
        "done", "failed" or "skipped" as in its record; "done before"; "not run" (the budget is
        spent); of a check, "same figures" or "other figures".
    reason : str or None
        Why it is not done.
    seconds : float
    """

    row: str
    seed: int
    status: str
    reason: str | None = None
    seconds: float = 0.0


class ProgressListener(Protocol):
    """Hears what happens to cells."""

    def begin(self, n_cells: int) -> None:
        """So many cells are to come."""

    def start(self, cell: Cell) -> None:
        """A process takes the cell."""

    def pause(self, cell: Cell) -> None:
        """Another call is running the cell; it is looked at again later."""

    def end(self, outcome: Outcome) -> None:
        """A cell is over."""


class Silent:
    """Hears, and does nothing."""

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
    """What every process knows: where records are, until when cells start, and what to do."""

    results: str
    deadline: float
    check: bool


def select_rows(rows: Sequence[Row], what: str) -> list[Row]:
    """Return the rows that a name means: a row, its file, a table, a paper, or "all".

    Raises
    ------
    AnnotationError
        If nothing is named so.
    """
    if what == "all":
        return list(rows)
    file = Path(what).resolve()
    found = [
        row
        for row in rows
        if what in (row.id, table_of(row), paper_of(row)) or Path(row.file).resolve() == file
    ]
    if not found:
        names = dict.fromkeys(
            name for row in rows for name in (paper_of(row), table_of(row), row.id)
        )
        raise AnnotationError(
            f"WHAT={what!r} is no row, table or paper here{did_you_mean(what, names)}; there are "
            f"{', '.join(dict.fromkeys(table_of(row) for row in rows)) or 'none'}, and all"
        )
    return found


def list_cells(rows: Iterable[Row], seeds: int | None = None) -> list[Cell]:
    """Return the cells of rows: all first seeds, then all second ones, and so on.

    A budget then leaves every row with about as many seeds; rows of the same data stand together,
    so that a process need not load them again and again.
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
    """Raise `AnnotationError` for the first argument that is given and not positive."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise AnnotationError(f"{name}={value!r} is not positive; give a number above 0")


def deadline_in(minutes: float | None) -> float:
    """Return the time so many minutes from now; without a number, there is no end."""
    return float("inf") if minutes is None else time.time() + 60 * minutes
