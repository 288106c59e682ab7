"""The command `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyhands.cli.errors import reported
from manyhands.cli.options import FEATURES, Json, ModelFolder, OutFile
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
    json: Json = False,
) -> None:
    """Predict the true class of new instances.

    Example: manyhands predict model X_new.npy --out predictions.csv
    """
    from manyhands.jobs import OUTPUTS, predict_file

    refuse_overwriting([out], [features, *(folder / name for name in OUTPUTS)])
    result = predict_file(folder, features, out)
    if json:
        print_json(result)
        return
    title = f"{result['n_instances']:,} instances"
    print_labels(title, result, out, "predictions.csv")
    if out:
        say(f"written: {out}")
