"""Output of the commands: tables and lines for people, JSON for programs."""

from __future__ import annotations

import json
import logging
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from manyhands.cli.reading import run_files
from manyhands.cli.translation import with_options
from manyhands.wording import SCORES, compared_with, counted, percent, too_much

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of invisible characters that may control a terminal: escapes, direction marks."""

SHARES = frozenset(
    {"accuracy", "accuracy_on_gold", "agreement", "high_95", "low_95", "probability"}
    | {"probability_wrong", "rate", "reverse_rate", "within_one_grade"}
)
"""Columns that hold shares or probabilities: in percent for people, as they are in files."""

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


def print_json(result: Any) -> None:
    """Print one JSON document on standard output."""
    typer.echo(json.dumps(_filled_in(result), indent=1, allow_nan=False))


def filled(text: str) -> str:
    """Fill in the commands of a text for the files of the command that is running."""
    if "`" not in text:
        return text
    from manyhands.report.commands import fill_commands

    return fill_commands(text, run_files.get())


def _filled_in(result: Any) -> Any:
    """Fill in the commands in the sentences of a document; rows of tables have none."""
    if isinstance(result, str):
        return filled(result)
    if isinstance(result, dict):
        return {name: _filled_in(value) for name, value in result.items()}
    if isinstance(result, list) and all(isinstance(each, str) for each in result):
        return [filled(each) for each in result]
    return result


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
    Console().print(Text(visible(filled(text))), soft_wrap=True)


def note(text: str) -> None:
    """Print a line on standard error."""
    Console(stderr=True).print(Text(visible(filled(text))), soft_wrap=True)


def show(value: Any) -> str:
    """Show a number with suitable precision; None as empty text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value)


def headings_of_splits(splits: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map the scores against gold that are shown of all splits to their headings.

    Of grades, how far they are off stands in place of macro-F1.
    """
    if splits and all("mae" in scores for scores in splits):
        return {name: SCORES[name].short for name in ("accuracy", "within_one", "mae")}
    return {name: SCORES[name].short for name in ("accuracy", "macro_f1")}


def show_score(name: str, value: float) -> str:
    """Return a score as text: shares in percent, distances in grades."""
    return percent(value) if SCORES[name].is_share else f"{value:.2f}"


def show_spread(name: str, spread: dict[str, Any]) -> str:
    """Return a score as text: mean ± standard deviation, or the mean alone for a single run."""
    mean = show_score(name, spread["mean"])
    return mean if spread["sd"] is None else f"{mean} ± {show_score(name, spread['sd'])}"


@contextmanager
def notes_on_stderr() -> Iterator[None]:
    """Show the library's warnings and log messages as plain lines on standard error, each once."""
    logger = logging.getLogger("manyhands")
    handler, level = _Notes(), logger.level
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: handler.tell("warning", str(message))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


class _Notes(logging.Handler):
    """Log records and warnings as lines on standard error, each message once."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message; progress is no note, and a step may look like the one before."""
        if record.name.startswith("manyhands.progress"):
            note(record.getMessage())
        else:
            self.tell("note", record.getMessage())

    def tell(self, kind: str, message: str) -> None:
        """Print a message with the options for the arguments that it names, unless it was told."""
        line = f"{kind}: {with_options(message)}"
        if line not in self.told:
            self.told.add(line)
            note(line)


def say_actions(result: dict[str, Any], command: str) -> None:
    """Print how many labels every action is recommended for, and why; nothing without labels.

    ``command`` is the name of the command that prints it.
    """
    counts = result.get("actions")
    if not counts:
        return
    say(recommended(counts, "label", "annotations", result.get("n_known", 0)))
    if (half := result.get("half_of_wrong")) is not None:
        say(f"Half of the wrong labels are probably among the {half:,} most doubtful.")
    from manyhands.io.consensus_labels import REVIEW_RULE

    say(result["rule"])
    if n := result.get("n_unconfirmed", 0):
        meet = "is certain enough, but does" if n == 1 else "are certain enough, but do"
        say(f"{counted(n, 'label')} {meet} not meet the rest of this rule.")
    say(REVIEW_RULE)
    n_known = result.get("n_known", 0)
    if counts["accept"] <= n_known and counts["review"] + counts["collect more"]:
        if result.get("labels_rest_on") == "features":
            say(
                "This method predicts the label of an item from its features alone, so answers "
                "that agree on the item do not make the label more certain. `manyhands fit "
                "--method crowd-stacking` infers labels from answers and features, and `manyhands "
                "aggregate ANNOTATIONS` from answers alone; both accept labels on which enough "
                "answers agree."
            )
        say(
            f"No {'other ' if n_known else ''}label is sure enough to be accepted yet. `manyhands "
            "next ANNOTATIONS` says whom to ask about which item, and `manyhands review "
            f"ANNOTATIONS` lists the most doubtful labels. Then repeat “{command}” with the "
            "labels that you checked (--known FILE)."
        )
    if usable := result.get("usable"):
        say(usable)


def recommended(counts: Mapping[str, int], answer: str, more: str, n_known: int = 0) -> str:
    """Write for how many labels, or sets, every action is recommended.

    Examples
    --------
    >>> recommended({"accept": 1, "collect more": 5, "review": 3}, "label", "annotations")
    'recommended: accept 1 label, review 3, and collect more annotations for 5'
    """
    known = f" ({n_known:,} of them known)" if n_known else ""
    return (
        f"recommended: accept {counted(counts['accept'], answer)}{known}, review "
        f"{counts['review']:,}, and collect more {more} for {counts['collect more']:,}"
    )


def say_severities(
    rows: Sequence[dict[str, Any]], n_known: int = 0, shown: int = 5, *, classes: Any = ()
) -> None:
    """Say which annotators surely rate too high or too low, those who do so most first.

    ``n_known`` counts the known labels, and ``rows`` have ``annotator``, ``n_annotations``,
    ``severity``, ``severity_low_95`` and ``severity_high_95``, in grades. They are told in what
    the ``classes`` count, such as stars, also where these are halves.
    """
    from manyhands.annotations.class_order import unit_of_grades

    step, unit = unit_of_grades(classes)
    found = []
    for row in rows:
        low, high = row["severity_low_95"], row["severity_high_95"]
        if None not in (low, high):
            told = row.get("severity_in_words")
            if told is None:
                ends = (step * row["severity"], step * low, step * high)
                told = too_much(*ends, unit and f" {unit}")
            found.append((abs(row["severity"]), row["annotator"], told, row["n_annotations"]))
    found = [each for each in found if each[2]]
    found.sort(key=lambda each: -each[0])
    for _, annotator, told, n in found[:shown]:
        say(
            f"Annotator {annotator} {told} {compared_with(n_known)}, in "
            f"{counted(n, 'annotation')}; the labels allow for it."
        )
    if (more := len(found) - shown) > 0:
        say(f"... and {counted(more, 'other annotator')} (annotators.csv has all)")


OF_FILES = {
    "report.html": "the report, for a browser: what to do first",
    "labels.csv": "the label of each item, and how sure it is",
    "annotators.csv": "how good each annotator is, and who needs a closer look",
    "summary.json": "the figures of the report, for programs",
    "model.json": "the model, for the commands predict, report and explore",
}
"""What the files of a folder hold; those that people read come first."""


def say_files(paths: Sequence[str | Path]) -> None:
    """Print the files that were written, one a line, and what each of a folder's holds."""
    known = list(OF_FILES)
    named = {path: OF_FILES.get(Path(path).name) for path in paths}
    for path in sorted(named, key=lambda path: (*known, Path(path).name).index(Path(path).name)):
        what = named[path] if len(named) > 1 else None  # A file alone has the name of its choice.
        say(f"written: {path}" + ("" if what is None else f" ({what})"))


def say_columns(name: str) -> None:
    """Say what the two kinds of probabilities in a table of labels are."""
    say(
        f"in {name}, 'probability' is the probability that the label is right; among "
        "labels that were not given as known, its mean is roughly the share that are right. The "
        "columns p(...) are the method's own probabilities, which are often too high"
    )


def print_labels(title: str, result: dict[str, Any], out: Path | None, example: str) -> None:
    """Print the first labels, and how to get the others."""
    rows = [[r["task"], r["label"], percent(r["probability"])] for r in result["labels"][:10]]
    print_table(title, ["task", "label", "probability"], rows)
    more = result["n_instances"] - len(rows)
    if more > 0:
        say(f"... and {more:,} more" + ("" if out else f" (--out {example} writes all)"))


def print_cutoffs(cutoffs: Sequence[Mapping[str, Any]]) -> None:
    """Print how many predictions have at least a probability, and how many of them are right."""
    from manyhands.report.labels import told_of_row

    if cutoffs:
        rows = [[percent(row["at_least"]), row["n"], told_of_row(row)] for row in cutoffs]
        columns = ["probability at least", "predictions", "expected to be right"]
        print_table("How many of these predictions you can use", columns, rows)


def print_columns(title: str, columns: dict[str, list[Any]], shown: int = 10) -> None:
    """Print the first rows of columns, and how to get the others; shares are in percent."""
    written = {
        name: [show(v) if v is None else percent(v) for v in values] if name in SHARES else values
        for name, values in columns.items()
    }
    rows = [list(row) for row in zip(*written.values(), strict=True)]
    print_table(title, list(columns), rows[:shown])
    if len(rows) > shown:
        say(f"... and {len(rows) - shown:,} more (--out FILE writes all)")


def records_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return rows of columns as dicts, for JSON."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def check_out(path: Path | None) -> None:
    """Check, before any work, that `write_columns` can write a file of this name."""
    from manyhands.io.frames import check_table_path

    if path is not None:
        check_table_path(path)


def write_columns(path: Path | None, columns: dict[str, list[Any]], keep_formulas: bool) -> None:
    """Write columns if there is a path, and say so on standard error."""
    from manyhands.io.frames import write_table

    if path is not None:
        with telling(path):
            write_table(path, columns, keep_formulas=keep_formulas)


def time_of(path: Path | None) -> datetime | None:
    """Return when a file was last written; None if there is no such file."""
    if path is None or not path.is_file():
        return None
    return datetime.fromtimestamp(path.stat().st_mtime).replace(microsecond=0)


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Say that a file is written, and which earlier one it replaces."""
    before = time_of(path)
    yield
    old = "" if before is None else f" (it replaces the file of that name from {before})"
    note(f"written: {path}{old}")
