"""Options that several commands declare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from manyhands.cli.values import some_path

FORM = "Form of the output"
"""Heading of options that say how results are written, which follow all others."""

Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=FORM, help="Print one JSON document instead of text."),
]

Seed = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        max=2**32 - 1,
        help=("Seed for all random choices, such as the initial weights of a network."),
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
        rich_help_panel=FORM,
        help="Write ids such as =SUM(A1) into CSV without the apostrophe that keeps spreadsheets "
        "from running them as formulas.",
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
            "Write CSV files that Excel opens correctly with a double-click. A file whose name "
            "ends in .xlsx does not need this option."
        ),
        rich_help_panel=FORM,
    ),
]
"""Its callback does all; commands only declare it."""

OutFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        parser=some_path,
        metavar="DIR",
        help="Folder for report.html, labels.csv, annotators.csv, summary.json and the model.",
    ),
]

Gold = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Gold labels, from a person, to measure how many labels are right: a table with the "
        "columns task,label[,split], or an export that holds them. No label is taken from "
        "them, but probabilities are calibrated on them. To make them the final labels of their "
        "items, give the file as --known instead.",
    ),
]

Known = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Labels from a person, such as those of a review: a table with the columns "
        "task,label. They become the labels of their items, and the method learns from them. May "
        "be repeated.",
    ),
]

ANNOTATIONS = (
    "Annotations: a table with one row per annotation, or one row per item and a column per "
    "annotator (CSV, TSV, Excel, Parquet, .npy); or an export of a labelling tool."
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
    "Features: a table with one row per item, the item's id in the column 'task', and numbers in "
    "all other columns; or an array (.npz with X and task, or .npy without ids)."
)

OTHER_NAME = (
    " Without a column 'task', the id column is the one that contains the ids of all annotated "
    "items."
)

Features = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help=FEATURES + OTHER_NAME,
    ),
]

TEXT_FILE = ".txt with a text per line, or a table with the columns task and text"

Texts = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="TEXTS",
        help=(
            "Texts instead of features: the column or field of the annotations that holds the "
            f"texts, or a file ({TEXT_FILE})."
        ),
    ),
]

Images = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="IMAGES",
        help=(
            "Images instead of features: a folder of files that are named after the items' ids, "
            "or the column or field of the annotations with the paths of the images."
        ),
    ),
]

Annotations = Annotated[
    list[Path],
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help=ANNOTATIONS + " May be repeated.",
    ),
]
