"""The command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.options import Json, ModelFolder
from manyhands.cli.output import print_json, say
from manyhands.cli.params import (
    refuse_overwriting,
    some_path,
)


@reported
def report(
    folder: ModelFolder,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path, metavar="FILE", help="HTML file to write; default: DIR/report.html."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write one self-contained HTML page: data, labels, annotators, confusions, training.

    Example: manyhands report model --out report.html
    """
    from manyhands.jobs import OUTPUTS, report_folder

    refuse_overwriting([out], [folder / name for name in OUTPUTS if name != "report.html"])
    path = report_folder(folder, out)
    if json:
        print_json({"report": str(path)})
    else:
        say(f"report: {path}")
