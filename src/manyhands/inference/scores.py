"""The table that `compare_aggregators` returns: one row per method, best first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

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


@dataclass(frozen=True, repr=False)
class ScoreTable:
    """Scores of several methods on one annotation table.

    Iterating and indexing give the rows. When printed, or shown in a notebook, the table omits
    scores that no method has and lists the methods that failed below it.

    Attributes
    ----------
    rows : tuple of MethodScore
        Best first; methods without scores are last.
    """

    rows: tuple[MethodScore, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[MethodScore]:
        return iter(self.rows)

    def __getitem__(self, position: int) -> MethodScore:
        return self.rows[position]

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Return a data frame with one row per method and one column per field of `MethodScore`.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}

        Raises
        ------
        MissingExtraError
            If the backend is not installed.
        """
        rows = [asdict(row) for row in self.rows]
        names = [field.name for field in fields(MethodScore)]
        columns = {name: [row[name] for row in rows] for name in names}
        try:
            return nw.from_dict(columns, backend=backend).to_native()
        except ImportError as error:
            raise_missing_extra(f"to_frame(backend={backend!r})", "io", error)

    def _shown(self) -> list[str]:
        return [key for key in HEADINGS if any(getattr(row, key) is not None for row in self.rows)]

    def __repr__(self) -> str:
        shown = self._shown()
        lines = [["method", *(HEADINGS[key] for key in shown)]]
        lines += [
            [row.method, *(_figure(getattr(row, key)) for key in shown)]
            for row in self.rows
            if row.error is None
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join([name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])])
            for name, *figures in lines
        ]
        return "\n".join([*text, *self._errors()])

    def _repr_html_(self) -> str:
        shown = self._shown()
        rows = [
            [row.method, *(getattr(row, key) for key in shown)]
            for row in self.rows
            if row.error is None
        ]
        table = html_table("", ["method", *(HEADINGS[key] for key in shown)], rows)
        errors = [[error] for error in self._errors()]
        return block("Methods compared", table, html_table("", [""], errors) if errors else "")

    def _errors(self) -> list[str]:
        return [f"! {row.method}: {row.error}" for row in self.rows if row.error is not None]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
