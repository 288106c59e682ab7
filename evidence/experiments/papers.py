"""A paper's tables, figures and claims as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evidence.experiments.checks import WAYS
from evidence.experiments.rows import Row

OWN = "own"
"""Key of the page for rows that are in no paper's table."""

CURVES = ("history", "profile")
"""Kinds of figures that draw the rows of a table."""

SIDES = ("better", "than", "row")
"""Fields of a test that name rows."""

ENDS = ("first", "last")
"""Rows of a history that a test can name without a number."""


@dataclass(frozen=True)
class TablePlan:
    """A table of a paper: what is measured, and the order of its columns and rows (labels).

    A table with several measures is shown once per measure.
    """

    id: str
    title: str
    metric: str | tuple[str, ...]
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The measures, in the order of the page."""
        return (self.metric,) if isinstance(self.metric, str) else self.metric


@dataclass(frozen=True)
class Panel:
    """One matrix of a figure: a measure in a row's ``extra``."""

    row: str
    extra: str
    title: str


@dataclass(frozen=True)
class Level:
    """A horizontal line of a figure: a measure in ``extra`` of a panel's rows."""

    extra: str
    label: str


@dataclass(frozen=True)
class FigurePlan:
    """A figure of a paper; its ``kind`` is lines, matrices, history or profile.

    Figures of one ``sheet`` are drawn in one file. See `evidence.experiments.plans`.
    """

    id: str
    title: str
    kind: str
    metric: str
    selection: str
    x: str
    x_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    panels: tuple[Panel, ...]
    table: str = ""
    levels: tuple[Level, ...] = ()
    log: bool = False
    stage: str | None = None
    x_absent: float | None = None
    sheet: str = ""

    def place(self, row: Row) -> Any:
        """Return a row's value on the x axis, or ``x_absent`` if the row has none."""
        value: Any = {"data": row.data, "estimator": row.estimator}
        for key in self.x.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return self.x_absent if value is None else value


@dataclass(frozen=True)
class Claim:
    """What a paper claims, and how it is tested."""

    id: str
    text: str
    test: dict[str, Any]

    @property
    def rows(self) -> list[str]:
        """Ids of the rows that the test compares."""
        return [name for key in SIDES for name in row_ids(self.test.get(key, []))]


@dataclass(frozen=True)
class Paper:
    """A paper's tables, figures and claims.

    ``unavailable``: what nobody can run, and why. ``sheets``: titles of drawings that several
    figures share.
    """

    key: str
    title: str
    citation: str
    tables: tuple[TablePlan, ...] = ()
    figures: tuple[FigurePlan, ...] = ()
    claims: tuple[Claim, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    sheets: Mapping[str, str] = field(default_factory=dict)


def paper_of(row: Row) -> str:
    """Return the key of the paper that a row belongs to."""
    return table_of(row).split("/")[0]


def table_of(row: Row) -> str:
    """Return ``paper/table`` of a row; rows without a table are grouped by method."""
    return row.table or f"{OWN}/{row.id.split('/')[0]}"


def column_of(row: Row) -> str:
    """Return a row's column; for a row without one, the name of its data."""
    return row.column or str(next(row.data[k] for k in WAYS if k in row.data))


def row_ids(value: Any) -> list[str]:
    """Return the rows that one side of a comparison names."""
    return [value] if isinstance(value, str) else list(value)
