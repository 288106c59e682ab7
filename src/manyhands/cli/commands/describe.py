"""The commands `describe` and `agreement`: what a table holds, and how far annotators agree."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyhands.cli.errors import reported
from manyhands.cli.options import (
    Abstain,
    Classes,
    Format,
    Json,
    Label,
    Question,
    Reading,
    Repeated,
    Skip,
    TablePaths,
    Task,
    Worker,
    one_or_all,
    table_options,
)
from manyhands.cli.output import (
    class_rows,
    data_rows,
    print_json,
    print_table,
    say,
    visible,
    with_options,
)
from manyhands.cli.params import Duplicates, Scale
from manyhands.exceptions import AnnotationError

if TYPE_CHECKING:
    from manyhands.io import Export

LONGEST_LINE = 400
"""Maximal length of a line about an export."""


@reported
def describe(
    tables: TablePaths,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Repeated = Duplicates.auto,
    classes: Classes = None,
    abstain: Abstain = None,
    skip: Skip = None,
    format: Format = "auto",
    question: Question = None,
    reading: Reading = None,
    json: Json = False,
) -> None:
    """Describe a table: counts, sparsity, imbalance, agreement, and warnings.

    Example: manyhands describe annotations.csv --worker annotator
    """
    from manyhands.io.annotations import read_with_account
    from manyhands.report import summarize

    options = table_options(
        task, worker, label, duplicates, classes, abstain, skip, format, question, reading
    )
    read, export = read_with_account(one_or_all(tables), **options)
    summary = summarize(read)
    if json:
        shown = {name: summary[name] for name in ("data", "classes", "warnings")}
        print_json(shown if export is None else shown | {"export": _account(export)})
        return
    print_table(", ".join(map(str, tables)), ["", ""], data_rows(summary["data"]))
    if export is not None:
        _print_account(export, tables)
    found = summary["classes"]
    title = "Classes" if found["shown"] == found["total"] else "Most frequent classes"
    columns = ["class", "annotations", "share", "instances by majority vote"]
    print_table(title, columns, class_rows(found))
    for warning in summary["warnings"]:
        say(f"! {warning['text']}")


def _account(export: Export) -> dict[str, Any]:
    """What was recognised, and what was left out, for people who read JSON."""
    return {
        "format": export.format,
        "question": export.question,
        "alternatives": list(export.alternatives),
        "gold": len(export.gold),
        "items": {"count": len(export.items), "columns": list(export.items.columns)},
        "notes": list(export.notes),
        "left_out": [
            {"reason": lost.reason, "count": lost.count, "where": list(lost.where)}
            for lost in export.left_out
        ],
    }


def _print_account(export: Export, paths: list[Path]) -> None:
    """Print the format and its alternatives, the explicit command, and what was left out."""
    from manyhands.io.exports.formats import named

    form = named(export.format)
    others = ", ".join(export.alternatives) or "none"
    say(visible(f"format: {form.title} ({form.rule}); other formats that match: {others}"))
    named_paths = " ".join(shlex.quote(str(path)) for path in paths)
    command = f"manyhands describe {named_paths} --format {form.name}"
    say(visible(f"the same, explicitly: {command} --question {shlex.quote(export.question)}"))
    columns = ", ".join(export.items.columns) or "nothing"
    say(visible(f"gold labels: {len(export.gold):,}; items have: {columns}", LONGEST_LINE))
    for note in export.notes:
        say(with_options(visible(f"note: {note}")))
    for lost in export.left_out:
        say(visible(f"left out: {lost}", LONGEST_LINE))


@reported
def agreement(
    tables: TablePaths,
    scale: Annotated[
        Scale,
        typer.Option(help="Scale of the classes; they are ordered as in --classes, or sorted."),
    ] = Scale.nominal,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples.")] = 1000,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Repeated = Duplicates.auto,
    classes: Classes = None,
    abstain: Abstain = None,
    skip: Skip = None,
    format: Format = "auto",
    question: Question = None,
    reading: Reading = None,
    json: Json = False,
) -> None:
    """Measure the agreement of annotators, with 95 % intervals over instances.

    Example: manyhands agreement annotations.csv --scale ordinal
    """
    from manyhands.agreement import summary
    from manyhands.io import read_annotations

    options = table_options(
        task, worker, label, duplicates, classes, abstain, skip, format, question, reading
    )
    read = read_annotations(one_or_all(tables), **options)
    if scale is Scale.interval and read.classes.dtype.kind not in "iu":
        raise AnnotationError(
            f"--scale interval needs classes that are numbers, and these are such as "
            f"{read.classes[0].item()!r}; use --scale ordinal"
        )
    found = summary(read, scale=scale.value, n_resamples=resamples)
    rows = {
        name: {
            bound: None if math.isnan(value := getattr(interval, bound)) else value
            for bound in ("value", "low", "high")
        }
        for name, interval in found.items()
    }
    if json:
        print_json(rows)
        return
    print_table(
        f"Agreement, {scale.value} classes",
        ["measure", "value", "from", "to"],
        [[name.replace("_", " "), *row.values()] for name, row in rows.items()],
    )
    if any(row["value"] is None for row in rows.values()):
        say(
            "empty: undefined (no instance has two annotations, or there is nothing to disagree on)"
        )
