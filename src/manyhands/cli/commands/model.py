"""Commands on a fitted model: `predict` and `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from manyhands.cli.errors import reported
from manyhands.cli.options import FEATURES, Json, KeepFormulas, ModelFolder, OutFile
from manyhands.cli.output import print_json, print_labels, say
from manyhands.cli.params import (
    refuse_overwriting,
    some_path,
)


@reported
def predict(
    folder: ModelFolder,
    features: Annotated[Path, typer.Argument(parser=some_path, metavar="X", help=FEATURES)],
    out: OutFile = None,
    keep_formulas: KeepFormulas = False,
    json: Json = False,
) -> None:
    """Predict the true class of new instances.

    Example: manyhands predict model X_new.npy --out predictions.csv
    """
    from manyhands.jobs import OUTPUTS, predict_file

    refuse_overwriting([out], [features, *(folder / name for name in OUTPUTS)])
    result = predict_file(folder, features, out, keep_formulas=keep_formulas)
    if json:
        print_json(result)
        return
    title = f"{result['n_instances']:,} instances"
    print_labels(title, result, out, "predictions.csv")
    if out:
        say(f"written: {out}")


@reported
def report(
    folder: ModelFolder,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path, metavar="FILE", help="HTML file to write; default: DIR/report.html."
        ),
    ] = None,
    tables: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=some_path, metavar="DIR", help="Write every table of the report as CSV, too."
        ),
    ] = None,
    keep_formulas: KeepFormulas = False,
    json: Json = False,
) -> None:
    """Write one self-contained HTML page: data, labels, annotators, confusions, training.

    Example: manyhands report model --out report.html
    Example: manyhands report labels --tables tables
    """
    from manyhands.jobs import OUTPUTS, report_folder

    refuse_overwriting([out], [folder / name for name in OUTPUTS if name != "report.html"])
    path = report_folder(folder, out, tables=tables, keep_formulas=keep_formulas)
    if json:
        print_json({"report": str(path)} | ({} if tables is None else {"tables": str(tables)}))
        return
    say(f"report: {path}")
    if tables is not None:
        say(f"tables: {tables}")
