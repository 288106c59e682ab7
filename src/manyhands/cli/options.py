"""Options shared by several commands, and how they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from manyhands.cli.params import (
    Duplicates,
    read_classes,
    some_path,
)
from manyhands.exceptions import AnnotationError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]

Task = Annotated[str, typer.Option(help="Column with the instance's id.")]

Worker = Annotated[str, typer.Option(help="Column with the annotator's id.")]

Label = Annotated[str, typer.Option(help="Column with the annotation.")]

Repeated = Annotated[
    Duplicates, typer.Option(help="What to do with repeated (task, worker) pairs.")
]

Abstain = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(metavar="VALUE", help="Label that means 'looked and could not tell'; repeatable."),
]

Skip = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(metavar="VALUE", help="Label that means 'passed on'; repeatable."),
]

Groups = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="COLUMN",
        help="Column with the annotator's family, if any: annotators who share mistakes.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the networks.")]

Classes = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads this at run time
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Text file with one class name per line, in code order.",
    ),
]

Settings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", metavar="NAME=VALUE", help="Parameter of the method; repeatable."),
]

OutFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--out",
        parser=some_path,
        metavar="FILE",
        help="File to write: .csv, .tsv, .parquet, .json or .jsonl.",
    ),
]

KeepFormulas = Annotated[
    bool,
    typer.Option(
        "--keep-formulas",
        help="Write ids such as =SUM(A1) into CSV as they are; by default an apostrophe before "
        "them keeps spreadsheets from running them.",
    ),
]

OutFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        parser=some_path,
        metavar="DIR",
        help="Folder for model, labels.csv, summary.json.",
    ),
]

Gold = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Table task,label[,split] with gold labels, for evaluation only.",
    ),
]

TablePath = Annotated[
    Path,
    typer.Argument(
        parser=some_path,
        metavar="TABLE",
        help="CSV, TSV, Parquet (one row per annotation) or .npy (instances x annotators).",
    ),
]

ModelFolder = Annotated[
    Path, typer.Argument(parser=some_path, metavar="DIR", help="Folder that fit wrote.")
]

FEATURES = ".npy, .npz (arrays X, task), CSV, TSV or Parquet."

Features = Annotated[Path, typer.Option(parser=some_path, metavar="FILE", help=FEATURES)]
Annotations = Annotated[
    Path,
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="CSV, TSV, Parquet (one row per annotation) or .npy (instances x annotators).",
    ),
]


def table_options(
    task: str,
    worker: str,
    label: str,
    duplicates: Duplicates,
    classes: Path | None,
    abstain: list[str] | None,
    skip: list[str] | None,
    groups: str | None = None,
) -> dict[str, Any]:
    """Return the options of a table as arguments of `manyhands.io.read_annotations`."""
    return {
        "task": task,
        "worker": worker,
        "label": label,
        "duplicates": duplicates.value,
        "classes": read_classes(classes),
        "abstain": abstain,
        "skip": skip,
        "group": groups,
    }


def read_gold_option(path: Path | None, classes: list[str] | None, option: str = "--gold") -> Any:
    """Read a file of known labels; its column names are fixed."""
    from manyhands.io import read_gold

    if path is None:
        return None
    try:
        return read_gold(path, classes=classes)
    except AnnotationError as error:
        raise AnnotationError(
            f"{option} {error} (its columns are 'task', 'label' and, if rows have splits, 'split')"
        ) from error
