"""The command `describe`."""

from __future__ import annotations

from manyhands.cli.errors import reported
from manyhands.cli.facts import class_rows, data_rows
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
from manyhands.cli.output import print_json, print_table, say
from manyhands.cli.params import (
    Duplicates,
)


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
