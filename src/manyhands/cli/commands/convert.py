"""The command `convert`: annotations from any format to a table or to a tool's own format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.options import (
    ANNOTATIONS,
    Abstain,
    Classes,
    Format,
    Groups,
    Json,
    KeepFormulas,
    Label,
    Question,
    Reading,
    Repeated,
    Skip,
    Task,
    Worker,
    one_or_all,
    table_options,
)
from manyhands.cli.output import print_json, say
from manyhands.cli.params import Duplicates, Tool, refuse_overwriting, some_path
from manyhands.exceptions import AnnotationError

Paths = Annotated[
    list[Path],
    typer.Argument(
        parser=some_path, metavar="IN... OUT", help=ANNOTATIONS + " The last is written."
    ),
]
Target = Annotated[
    Tool,
    typer.Option(
        "--to",
        help="table: .csv, .tsv, .parquet, .json or .jsonl, one row per annotation, by the suffix "
        "of OUT; or a tool's own format.",
    ),
]


Labels = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads this at run time
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Write the labels of this file (of fit, aggregate or predict), not the annotations.",
    ),
]


@reported
def convert(
    paths: Paths,
    to: Target = Tool.table,
    labels: Labels = None,
    task: Task = "task",
    worker: Worker = "worker",
    label: Label = "label",
    duplicates: Repeated = Duplicates.auto,
    classes: Classes = None,
    abstain: Abstain = None,
    skip: Skip = None,
    groups: Groups = None,
    format: Format = "auto",
    question: Question = None,
    reading: Reading = None,
    keep_formulas: KeepFormulas = False,
    json: Json = False,
) -> None:
    """Convert annotations, or the labels found for them, to a table or for a labelling tool.

    Example: manyhands convert project-1.json annotations.csv
    Example: manyhands convert alice.json bob.json all.parquet --read annotator_from=file
    Example: manyhands convert annotations.csv project.json --to label-studio
    Example: manyhands convert project-1.json found.json --labels model/labels.csv --to label-studio
    """
    from manyhands.io import write_annotations
    from manyhands.io.annotations import read_items, read_with_account
    from manyhands.io.consensus_labels import read_consensus
    from manyhands.io.exports.reading import report_losses
    from manyhands.io.writers import check_target, write_consensus

    *inputs, out = paths
    if not inputs:
        raise AnnotationError(f"only {str(out)!r} is given; name what to read, and what to write")
    check_target(out, to.value)
    refuse_overwriting([out], [*inputs, classes, labels])
    options = table_options(
        task, worker, label, duplicates, classes, abstain, skip, format, question, reading, groups
    )
    source = one_or_all(inputs)
    table, export = read_with_account(source, **options)
    if export is not None:
        report_losses(export, source)
    else:
        export = read_items(source, table, **options)
    if labels is None:
        write_annotations(out, table, to=to.value, export=export, keep_formulas=keep_formulas)
        counts = {"annotations": table.n_annotations}
        counts["passes"] = len(table.abstentions) + len(table.skips)
    else:
        found = read_consensus(labels, table)
        write_consensus(out, found, to=to.value, export=export, keep_formulas=keep_formulas)
        counts = {"labels": len(found.tasks)}
    if json:
        print_json({"out": str(out), "to": to.value} | counts)
    else:
        say(f"written: {out} ({', '.join(f'{n:,} {name}' for name, n in counts.items())})")
