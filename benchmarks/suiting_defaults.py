"""Choose the default scaling and training length by agreement out of fold, and test the choice.

The first part looks at training parts alone. Six methods with their other defaults are trained for
many epochs under each scaling. After every epoch, the left-out fold is predicted, and the criterion
of `select` (the mean of A and B, `vote_agreement` and `corrected_vote_agreement`) is taken. The
rules for ``scaling="auto"`` and ``max_epochs="auto"`` follow from these curves.

The second part fits the methods with the former defaults and with the present ones, and measures
accuracy on the test parts. It chose nothing.

Run, with MANYHANDS_DATA set:
``OMP_NUM_THREADS=1 python benchmarks/suiting_defaults.py --records suiting_defaults.jsonl --out
docs/results/suiting_defaults.md``. What is in the records is not repeated.
"""

from __future__ import annotations

import argparse
import json
import warnings
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from manyhands import (
    AggNetClassifier,
    AggregatedClassifier,
    CoNALClassifier,
    CrowdLayerClassifier,
    DawidSkene,
    MaxMIGClassifier,
    TraceRegClassifier,
    cross_predict,
)
from manyhands.evidence import load_data
from manyhands.metrics import accuracy
from manyhands.selection.criteria import make_criterion

METHODS = {
    "CoNAL": CoNALClassifier(),
    "Crowd Layer": CrowdLayerClassifier(),
    "AggNet": AggNetClassifier(),
    "Max-MIG": MaxMIGClassifier(),
    "TraceReg": TraceRegClassifier(),
    "DL-DS": AggregatedClassifier(DawidSkene()),
}
SETS = {
    "labelme": (4, 120),
    "music": (3, 200),
    "reports": (3, 120),
    "colposcopy": (5, 150),
    "product": (2, 60),
    "hotel": (4, 150),
    "sentiment": (2, 30),
    "cifar10n": (2, 40),
}
"""Set -> folds, and epochs of the curves."""

SCALINGS = ("standard", "rms")


@cache
def data_of(name: str) -> Any:
    """Load a set once."""
    return load_data({"name": name})


@cache
def criterion_of(name: str) -> Any:
    """Per-instance criterion of a set."""
    table = data_of(name).annotations
    return make_criterion("agreement", table, DawidSkene().fit_predict_proba(table))


def curve(name: str, method: str, scaling: str) -> dict[str, Any]:
    """Criterion and gold accuracy after every epoch, out of fold."""
    data, (folds, epochs), started = data_of(name), SETS[name], perf_counter()
    table, values = data.annotations, criterion_of(name)
    model = METHODS[method].__class__(**METHODS[method].get_params(deep=False))
    model.set_params(scaling=scaling, max_epochs=epochs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cross_predict(model, data.X_train, table, cv=folds, return_epochs=True)
    steps = int(np.ceil(table.n_instances * (1 - 1 / folds) / model.batch_size))
    return {
        "set": name,
        "method": method,
        "scaling": scaling,
        "steps_per_epoch": steps,
        "criterion": [float(np.nanmean(values(codes))) for codes in found.epochs],
        "gold": [accuracy(data.y_train, table.classes[codes]) for codes in found.epochs],
        "seconds": perf_counter() - started,
    }


def main() -> None:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--records", type=Path, required=True, help="one line of JSON per curve")
    parser.add_argument("--out", type=Path, help="Markdown file")
    arguments = parser.parse_args()
    records = arguments.records
    cells = [json.loads(line) for line in records.open()] if records.exists() else []
    done = {(cell["set"], cell["method"], cell["scaling"]) for cell in cells}
    for name in SETS:
        for method in METHODS:
            for scaling in SCALINGS:
                if (name, method, scaling) in done:
                    continue
                cells.append(curve(name, method, scaling))
                with records.open("a") as file:
                    file.write(json.dumps(cells[-1]) + "\n")
                print(name, method, scaling, f"{cells[-1]['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
