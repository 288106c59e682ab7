"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_json(result: Any) -> None:
    """Print one JSON document on standard output."""
    Console(soft_wrap=True, highlight=False).out(json.dumps(result, indent=1, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; the first column is text, the others numbers."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(show(cell)) for cell in row))
    Console().print(table)


def say(text: str) -> None:
    """Print a line on standard output."""
    Console().print(escape(text), soft_wrap=True, highlight=False)


def show(value: Any) -> str:
    """Show a number with a sensible precision, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)


def show_spread(spread: dict[str, Any], digits: int = 4) -> str:
    """Show mean ± sd, or the mean alone for a single run."""
    mean = f"{spread['mean']:.{digits}f}"
    return mean if spread["sd"] is None else f"{mean} ± {spread['sd']:.{digits}f}"
