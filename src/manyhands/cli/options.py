"""Options that several commands declare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from manyhands.cli.values import some_path

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]

Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the networks.")]

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
        help="File to write: .csv, .tsv, .xlsx, .parquet, .json or .jsonl.",
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
        help="Write CSV that Excel opens on a double-click: with a byte order mark, and with "
        "semicolons and decimal commas where this computer's settings have them. A name that ends "
        "in .xlsx opens everywhere.",
    ),
]
"""Its callback does all; commands only declare it."""

OutFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        parser=some_path,
        metavar="DIR",
        help="Folder for model, labels.csv, annotators.csv, summary.json.",
    ),
]

Gold = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Table task,label[,split] with gold labels, for evaluation only; or an export that "
        "holds some, such as the one that is read.",
    ),
]

Known = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help="Table task,label of known labels (gold questions, reviewed labels), which the method "
        "uses. Repeat it to give those of several rounds.",
    ),
]

ANNOTATIONS = (
    "CSV, TSV, Excel, Parquet (one row per annotation, or one per task and one column per "
    "annotator), .npy (instances x annotators), or an export of a labelling tool: file, ZIP or "
    "folder."
)

TablePaths = Annotated[
    list[Path],
    typer.Argument(
        parser=some_path,
        metavar="TABLE...",
        help=ANNOTATIONS + " Several are read as one.",
    ),
]

ModelFolder = Annotated[
    Path,
    typer.Argument(parser=some_path, metavar="DIR", help="Folder that fit or aggregate wrote."),
]

FEATURES = ".npy, .npz (arrays X, task), CSV, TSV or Parquet, of numbers."

Features = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(parser=some_path, metavar="FILE", help=FEATURES + " Or --texts, or --images."),
]

TEXT_FILE = ".txt (a text per line), or CSV, TSV, Parquet with columns task and text"

Texts = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="FILE|COLUMN",
        help=f"Raw texts, which are encoded: {TEXT_FILE}; or a column of the annotations, or a "
        "field of the export's items.",
    ),
]

Images = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="FOLDER|COLUMN",
        help="Images, which are encoded: a folder of files named by task; or a column or field "
        "with paths beside the annotations.",
    ),
]

Annotations = Annotated[
    list[Path],
    typer.Option(
        parser=some_path,
        metavar="FILE",
        help=ANNOTATIONS + " Repeat it to read several as one.",
    ),
]
