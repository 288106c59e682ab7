"""Options that several commands declare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from manyhands.cli.values import some_path

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

Seed = Annotated[
    int,
    typer.Option(
        min=0, max=2**32 - 1, help="Seed of everything random, such as how a network starts."
    ),
]

Settings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Set a parameter of the method. May be repeated."
    ),
]

OutFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--out",
        parser=some_path,
        metavar="FILE",
        help="File to write the result to: .csv, .tsv, .xlsx, .parquet, .json or .jsonl.",
    ),
]

KeepFormulas = Annotated[
    bool,
    typer.Option(
        "--keep-formulas",
        help="Write ids such as =SUM(A1) into CSV unchanged. By default they get an "
        "apostrophe in front, so that no spreadsheet runs them as formulas.",
    ),
]


def _write_for_excel(context: typer.Context, wanted: bool) -> bool:
    """Write all CSV of the command for Excel."""
    from manyhands.io.csv_files import for_excel

    if wanted and not context.resilient_parsing:
        context.with_resource(for_excel())
    return wanted


Excel = Annotated[
    bool,
    typer.Option(
        "--excel",
        callback=_write_for_excel,
        help=(
            "Write CSV files that Excel opens with a double-click. They begin with a byte order "
            "mark, and have semicolons and decimal commas if this computer is set up for them. A "
            "file whose name ends in .xlsx opens everywhere."
        ),
    ),
]
"""Its callback does all; commands only declare it."""

OutFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        parser=some_path,
        metavar="DIR",
        help="Folder to write: the model, labels.csv, annotators.csv and summary.json.",
    ),
]

Gold = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Gold labels, which only measure: nothing is learned from them. A table with "
        "the columns task,label[,split], or an export that holds gold labels (it may be "
        "the same file as the annotations).",
    ),
]

Known = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Labels that are certain (gold questions, reviewed labels), from which the "
        "method learns: a table with the columns task,label. May be repeated, once for "
        "each round of review.",
    ),
]

ANNOTATIONS = (
    "Annotations: a CSV, TSV, Excel or Parquet table (one row per annotation, or one row per task "
    "with a column per annotator), an .npy array (instances x annotators), or an export of a "
    "labelling tool, as a file, ZIP or folder."
)

TablePaths = Annotated[
    list[Path],
    typer.Argument(
        parser=some_path,
        metavar="TABLE...",
        help=ANNOTATIONS + " Several files are read as one.",
    ),
]

ModelFolder = Annotated[
    Path,
    typer.Argument(
        parser=some_path,
        metavar="DIR",
        help="Folder that 'manyhands fit' or 'manyhands aggregate' wrote.",
    ),
]

FEATURES = "Features, which are numbers: .npy, .npz (arrays X and task), CSV, TSV or Parquet."

Features = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help=FEATURES + " Or give --texts or --images in their place.",
    ),
]

TEXT_FILE = ".txt with one text per line, or CSV, TSV or Parquet with the columns task and text"

Texts = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="FILE|COLUMN",
        help=(
            "Texts, which an encoder turns into features. Give the name of a column of the "
            f"annotations, or of a field of the export's items; or a file ({TEXT_FILE})."
        ),
    ),
]

Images = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="FOLDER|COLUMN",
        help=(
            "Images, which an encoder turns into features. Give a folder of files that are named "
            "by task, or the column or field with their paths, which start at the annotations' "
            "folder."
        ),
    ),
]

Annotations = Annotated[
    list[Path],
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help=ANNOTATIONS + " May be repeated; several files are read as one.",
    ),
]
