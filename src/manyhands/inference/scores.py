"""The table that `compare_aggregators` returns: one row per method, best first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

import narwhals as nw

from manyhands.annotations.frames import Backend
from manyhands.annotations.html import block, html_table
from manyhands.exceptions import raise_missing_extra

HEADINGS = {
    "accuracy": "accuracy",
    "accuracy_ties_shared": "ties shared",
    "macro_f1": "macro F1",
    "minority_recall": "min. recall",
    "ece": "ECE",
    "held_out_log_likelihood": "held-out LL",
    "seconds": "CPU s",
}
"""Scores of a `MethodScore` in the order of a table's columns, and the columns' headings."""


@dataclass(frozen=True)
class MethodScore:
    """Scores of one method.

    Attributes
    ----------
    method : str
    held_out_log_likelihood : float or None
        Mean log probability (nats) of the held-out annotations; None if none could be held out.
    accuracy, macro_f1, minority_recall, ece : float or None
        Scores against gold; None without gold.
    seconds : float
        CPU seconds of one fit on the whole table.
    error : str or None
        Why there are no scores.
    accuracy_ties_shared : float or None
        Expected accuracy if each tie between most probable classes is broken evenly at random;
        None without gold.
    """

    method: str
    held_out_log_likelihood: float | None = None
    accuracy: float | None = None
    macro_f1: float | None = None
    minority_recall: float | None = None
    ece: float | None = None
    seconds: float = 0.0
    error: str | None = None
    accuracy_ties_shared: float | None = None


Row = TypeVar("Row", bound=Any)


@dataclass(frozen=True, repr=False)
class BaseScoreTable(Generic[Row]):
    """Rows of scores, best first. A subclass names its columns.

    Iterating and indexing give the rows. When printed, or shown in a notebook, the table omits
    scores that no row has and lists what failed below it.

    Attributes
    ----------
    rows : tuple
        Dataclasses, whose first field is a name; ``error`` says why there are no scores.
    """

    rows: tuple[Row, ...]

    _row: ClassVar[type]
    _headings: ClassVar[Mapping[str, str]]
    _title: ClassVar[str]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, position: int) -> Row:
        return self.rows[position]

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Return a data frame with one row per method and one column per field of a row.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}

        Raises
        ------
        MissingExtraError
            If the backend is not installed.
        """
        rows = [asdict(row) for row in self.rows]
        names = [field.name for field in fields(self._row)]
        columns = {name: [row[name] for row in rows] for name in names}
        try:
            return nw.from_dict(columns, backend=backend).to_native()
        except ImportError as error:
            raise_missing_extra(f"to_frame(backend={backend!r})", "io", error)

    def _name(self, row: Row) -> str:
        return str(getattr(row, fields(self._row)[0].name))

    def _figures(self) -> tuple[list[str], list[list[Any]]]:
        """Header and rows, without the columns in which all rows are empty."""
        shown = [
            key for key in self._headings if any(getattr(row, key) is not None for row in self.rows)
        ]
        header = [fields(self._row)[0].name, *(self._headings[key] for key in shown)]
        scored = [row for row in self.rows if row.error is None]
        return header, [[self._name(row), *(getattr(row, key) for key in shown)] for row in scored]

    def __repr__(self) -> str:
        header, rows = self._figures()
        lines = [header, *([name, *map(_figure, values)] for name, *values in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join([name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])])
            for name, *figures in lines
        ]
        return "\n".join([*text, *self._errors()])

    def _repr_html_(self) -> str:
        table = html_table("", *self._figures())
        errors = [[error] for error in self._errors()]
        return block(self._title, table, html_table("", [""], errors) if errors else "")

    def _errors(self) -> list[str]:
        return [f"! {self._name(row)}: {row.error}" for row in self.rows if row.error is not None]


class ScoreTable(BaseScoreTable[MethodScore]):
    """Scores of several methods on one annotation table; methods without scores are last."""

    _row = MethodScore
    _headings = HEADINGS
    _title = "Methods compared"


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else str(value)
