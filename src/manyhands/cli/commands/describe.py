"""The commands `describe` and `agreement`: what a table holds, and how far annotators agree."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from manyhands.cli.errors import reported
from manyhands.cli.options import (
    Abstain,
    Classes,
    Json,
    Label,
    Repeated,
    Skip,
    TablePath,
    Task,
    Worker,
    table_options,
)
from manyhands.cli.output import class_rows, data_rows, print_json, print_table, say
from manyhands.cli.params import Duplicates, Scale
from manyhands.exceptions import AnnotationError


@reported
def describe(
    table: TablePath,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Repeated = Duplicates.error,
    classes: Classes = None,
    abstain: Abstain = None,
    skip: Skip = None,
    json: Json = False,
) -> None:
    """Describe a table: counts, sparsity, imbalance, agreement, and warnings.

    Example: manyhands describe annotations.csv --worker annotator
    """
    from manyhands.io import read_annotations
    from manyhands.report import summarize

    options = table_options(task, worker, label, duplicates, classes, abstain, skip)
    summary = summarize(read_annotations(table, **options))
    if json:
        print_json({name: summary[name] for name in ("data", "classes", "warnings")})
        return
    print_table(str(table), ["", ""], data_rows(summary["data"]))
    found = summary["classes"]
    title = "Classes" if found["shown"] == found["total"] else "Most frequent classes"
    columns = ["class", "annotations", "share", "instances by majority vote"]
    print_table(title, columns, class_rows(found))
    for warning in summary["warnings"]:
        say(f"! {warning['text']}")


@reported
def agreement(
    table: TablePath,
    scale: Annotated[
        Scale,
        typer.Option(help="Scale of the classes; they are ordered as in --classes, or sorted."),
    ] = Scale.nominal,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples.")] = 1000,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Repeated = Duplicates.error,
    classes: Classes = None,
    abstain: Abstain = None,
    skip: Skip = None,
    json: Json = False,
) -> None:
    """Measure the agreement of annotators, with 95 % intervals over instances.

    Example: manyhands agreement annotations.csv --scale ordinal
    """
    from manyhands.agreement import summary
    from manyhands.io import read_annotations

    options = table_options(task, worker, label, duplicates, classes, abstain, skip)
    read = read_annotations(table, **options)
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
