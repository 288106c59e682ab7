"""The commands `convert` and `ingest`: annotations from any format to a table, tool or store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.inputs import one_or_all
from manyhands.cli.label_sets import convert_sets
from manyhands.cli.option_groups import grouped
from manyhands.cli.options import ANNOTATIONS, Excel, Json, KeepFormulas, TablePaths
from manyhands.cli.output import note, print_json, say
from manyhands.cli.reading import FamilyReading, Reading
from manyhands.cli.values import TABLE, Duplicates, refuse_overwriting, some_path, some_target
from manyhands.exceptions import AnnotationError
from manyhands.wording import counted

Paths = Annotated[
    list[Path],
    typer.Argument(
        parser=some_path,
        metavar="IN... OUT",
        help=ANNOTATIONS + " The last path is the file to write.",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--to",
        parser=some_target,
        metavar="table|TOOL",
        help=(
            "Format to write. 'table': one row per annotation; the suffix of OUT selects .csv, "
            ".tsv, .xlsx, .parquet, .json or .jsonl. Other names are formats of labelling tools, "
            "such as label-studio or prodigy. Any wrong name prints the list of formats."
        ),
    ),
]


Labels = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads this at run time
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="File of labels, written by fit, aggregate or predict. These labels are converted, "
        "instead of the annotations.",
    ),
]


Store = Annotated[
    Path,
    typer.Option("--out", parser=some_path, metavar="DIR", help="New folder for the store."),
]
Weight = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="COLUMN", help="Column with the weight of each annotation, if there is one."
    ),
]
Memory = Annotated[float, typer.Option(min=0.01, help="About how many GiB of memory to use.")]


@reported
@grouped
def ingest(
    *,
    tables: TablePaths,
    out: Store,
    weight: Weight = None,
    reading: Reading,
    memory: Memory = 1.0,
    json: Json = False,
) -> None:
    """Store annotations that do not fit in memory; other commands read the store like a table.

    CSV and Parquet files may be of any size, and so may exports that consist of one JSON or
    JSON Lines file. If the command is interrupted, run it again to resume.

    Example: manyhands ingest part-*.parquet --out store
    Example: manyhands aggregate store --out labels.parquet
    """
    from rich.console import Console
    from rich.progress import Progress

    from manyhands.scale.ingest import ingest

    given = reading.arguments()
    options = {name: value for name, value in given.items() if value is not None}
    policy = "error" if reading.duplicates is Duplicates.auto else reading.duplicates.value
    options |= {"duplicates": policy, "weight": weight, "memory": int(memory * 2**30)}
    if reading.format == "auto":
        del options["format"]
    with Progress(console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("reading", total=1.0)

        def progress(what: str, share: float) -> None:
            bar.update(shown, description=what, completed=share)

        store = ingest(tables, out, progress=progress, **options)
    nouns = {
        "annotations": "annotation",
        "instances": "item",
        "annotators": "annotator",
        "classes": "class",
        "shards": "shard",
    }
    counts = {name: getattr(store, f"n_{name}") for name in nouns}
    if json:
        print_json({"out": str(out)} | counts)
    else:
        held = [
            counted(n, nouns[name], f"{nouns[name]}es" if name == "classes" else None)
            for name, n in counts.items()
        ]
        say(f"written: {out} ({', '.join(held)})")
    if store.scale == "interval":
        note(
            "note: the labels are numbers, which the command aggregate averages in memory "
            "only: give it the files (`manyhands aggregate ANNOTATIONS --scale interval`). The "
            "store is for the commands describe and agreement; to infer labels from it, ingest the "
            "files by --scale ordinal (grades) or --scale nominal (names of classes)"
        )


@reported
@grouped
def convert(
    *,
    paths: Paths,
    to: Target = TABLE,
    labels: Labels = None,
    reading: FamilyReading,
    keep_formulas: KeepFormulas = False,
    excel: Excel = False,
    json: Json = False,
) -> None:
    """Convert annotations, or the labels inferred from them, to a table or a tool's format.

    Example: manyhands convert project-1.json annotations.csv
    Example: manyhands convert alice.json bob.json all.parquet --annotator-from file
    Example: manyhands convert annotations.csv project.json --to label-studio
    Example: manyhands convert project-1.json found.json --labels model/labels.csv --to label-studio
    """
    from manyhands.io import write_annotations
    from manyhands.io.annotations import read_items, read_with_account
    from manyhands.io.consensus_labels import read_consensus
    from manyhands.io.exports.reading import report_losses
    from manyhands.io.sheets import stated_of
    from manyhands.io.writers import check_target, write_consensus

    *inputs, out = paths
    if not inputs:
        raise AnnotationError(f"only {str(out)!r} is given; name what to read, and what to write")
    check_target(out, to)
    refuse_overwriting([out], [*inputs, *reading.files, labels])
    if reading.takes_sets:
        counts = convert_sets(inputs, out, to, labels, reading, keep_formulas)
        _print_converted(out, to, counts, json)
        return
    options = reading.arguments()
    source = one_or_all(inputs)
    table, export = read_with_account(source, **options)
    if export is not None:
        report_losses(export, source)
    else:
        export = read_items(source, table, **options)
    if labels is None:
        write_annotations(out, table, to=to, export=export, keep_formulas=keep_formulas)
        counts = {"annotations": table.n_annotations}
        counts["passes"] = len(table.abstentions) + len(table.skips)
    else:
        found = read_consensus(labels, table, stated=stated_of({**options, "sheet": None}))
        write_consensus(out, found, to=to, export=export, keep_formulas=keep_formulas)
        counts = {"labels": len(found.tasks)}
    _print_converted(out, to, counts, json)


def _print_converted(out: Path, to: str, counts: dict[str, int], json: bool) -> None:
    if json:
        print_json({"out": str(out), "to": to} | counts)
    else:
        say(f"written: {out} ({', '.join(f'{n:,} {name}' for name, n in counts.items())})")
