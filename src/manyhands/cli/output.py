"""Output of the commands: tables and lines for people, JSON for programs."""

from __future__ import annotations

import json
import logging
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of invisible characters that may control a terminal: escapes, direction marks."""

RECOMMENDED = re.compile(
    r"\b(?:Pass (task|worker|label)|(classes|duplicates|abstain|skip)|another (checkpoint)"
    r"|named in (methods))="
)
"""Arguments of functions that the library's messages recommend."""

OPTIONS = {
    "checkpoint": "another --out",
    "methods": "--method NAME instead of --compare",
}
"""What to give on the command line, where it is not the option of the same name."""

LONGEST = 60
"""Maximal length of a name in a table."""


def visible(value: Any, limit: int | None = None) -> str:
    r"""Write control and format characters as escapes, and cut to ``limit`` characters.

    Examples
    --------
    >>> visible("a\x1b[31m\nb")
    'a\\x1b[31m\\nb'
    >>> visible("abcdef", 4)
    'abc…'
    """
    text = str(value)
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in HIDDEN else c for c in text)


def with_options(text: str) -> str:
    """Add to a message of the library the options for the arguments that it recommends.

    Examples
    --------
    >>> with_options("name all classes in classes=")
    'name all classes in classes= (on the command line: --classes ...)'
    """
    found = ["".join(groups) for groups in RECOMMENDED.findall(text)]
    if text.startswith("--gold") or not found:
        return text
    shown = ", ".join(OPTIONS.get(name, f"--{name} ...") for name in dict.fromkeys(found))
    return f"{text} (on the command line: {shown})"


def print_json(result: Any) -> None:
    """Print one JSON document on standard output."""
    typer.echo(json.dumps(result, indent=1, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table under its title; the first column is text, the others numbers."""
    table = Table(show_header=any(columns))
    for i, name in enumerate(columns):
        table.add_column(escape(name), justify="right" if i else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(show(cell), LONGEST)) for cell in row))
    console = Console()
    console.print(Text(visible(title), style="bold"), soft_wrap=True)
    console.print(table)


def say(text: str) -> None:
    """Print a line on standard output."""
    Console().print(Text(visible(text)), soft_wrap=True)


def note(text: str) -> None:
    """Print a line on standard error."""
    Console(stderr=True).print(Text(visible(text)), soft_wrap=True)


def show(value: Any) -> str:
    """Show a number with suitable precision; None as empty text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)


def show_spread(spread: dict[str, Any], digits: int = 4) -> str:
    """Show mean ± sd, or the mean alone for a single run."""
    mean = f"{spread['mean']:.{digits}f}"
    return mean if spread["sd"] is None else f"{mean} ± {spread['sd']:.{digits}f}"


@contextmanager
def notes_on_stderr() -> Iterator[None]:
    """Show the library's warnings and log messages as plain lines on standard error."""
    logger = logging.getLogger("manyhands")
    handler, level = _Notes(), logger.level
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: note(f"warning: {with_options(str(message))}")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


class _Notes(logging.Handler):
    """Log records as lines on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message."""
        note(f"note: {record.getMessage()}")


def print_labels(title: str, result: dict[str, Any], out: Path | None, example: str) -> None:
    """Print the first labels, and how to get the others."""
    rows = [[r["task"], r["label"], r["probability"]] for r in result["labels"][:10]]
    print_table(title, ["task", "label", "probability"], rows)
    more = result["n_instances"] - len(rows)
    if more > 0:
        say(f"... and {more:,} more" + ("" if out else f" (--out {example} writes all)"))
