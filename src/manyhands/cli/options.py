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
        min=0,
        max=2**32 - 1,
        help=("Seed of all random choices, such as the first weights of a network."),
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
        help="File for the result: .csv, .tsv, .xlsx, .parquet, .json or .jsonl.",
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
            "Write CSV files that Excel opens correctly with a double-click: with a byte "
            "order mark, and with semicolons and decimal commas if this computer is set up "
            "for them. A file whose name ends in .xlsx needs no such option."
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
        help="Folder for the results: the model, labels.csv, annotators.csv and summary.json.",
    ),
]

Gold = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Gold labels: true labels that measure how many of the labels are right. They change "
        "no label, but the reported probabilities are adjusted to what they measure, and so is "
        "which labels are accepted. Give a table with the columns task,label[,split], or an "
        "export that holds gold labels, even if it is the file of the annotations.",
    ),
]

Known = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Labels that are certain, such as those of gold questions or reviewed items. The "
        "method learns from them. Give a table with the columns task,label, and repeat the "
        "option for each round of review.",
    ),
]

ANNOTATIONS = (
    "Annotations, in one of three forms. A table (CSV, TSV, Excel or Parquet) has one row "
    "per annotation, or one row per item and a column per annotator. An array (.npy) has "
    "one row per item and a column per annotator. An export of a labelling tool is a file, "
    "a ZIP or a folder."
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

FEATURES = (
    "Features of the items: a CSV, TSV or Parquet table with one row per item, a column 'task' "
    "with its id (another name will do if the column holds the ids of all annotated items), and "
    "numbers in all other columns; an .npz file with the arrays X and task; or an .npy array "
    "without ids."
)

Features = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help=FEATURES + " You can give --texts or --images instead.",
    ),
]

TEXT_FILE = ".txt with one text per line, or CSV, TSV or Parquet with the columns task and text"

Texts = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="FILE|COLUMN",
        help=(
            "Texts, from which an encoder computes features. Name the column or field of the "
            f"annotations that holds the text, or give a file ({TEXT_FILE})."
        ),
    ),
]

Images = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="FOLDER|COLUMN",
        help=(
            "Images, from which an encoder computes features. Give a folder of files that "
            "are named by the item's id. Or name the column or field of the annotations "
            "that holds the paths, relative to the folder of the annotations."
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
