"""Accuracy of the classifiers on LabelMe and Music: mean ± sd over seeds, beside the ceiling.

Protocols are published ones, the same for every method of a set. Nothing is chosen on test data:

* LabelMe: DASC's (Adam 1e-3, batches of 512, weight decay 5e-4, 25 epochs, raw features).
* Music: CoNAL's (Adam 1e-2, batches of 1024, 200 epochs, batch normalisation without affine
  parameters); CoNAL with its Music settings (80-dimensional embeddings, annotators' normalised).
* *defaults*: the library's own protocol, the same for all sets. Cross-validation within the
  training songs prefers 200 epochs for CoNAL on Music (``benchmarks/noise_layers.py``), but not on
  LabelMe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone

import manyhands as mh
from benchmarks.bars import Row, dots
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import Study, grid
from evidence.tables import Record, spread, table, where
from manyhands.datasets import load_labelme, load_music
from manyhands.fitting.method_protocol import from_flat

LABELME = {"max_epochs": 25, "batch_size": 512, "weight_decay": 5e-4, "scaling": None}
MUSIC = {
    "max_epochs": 200,
    "batch_size": 1024,
    "lr": 1e-2,
    "weight_decay": 0.0,
    "scaling": None,
    "backbone": {"name": "mlp", "batch_norm": True},
}
HOLDOUT = 0.1


def methods(dataset: str) -> dict[str, Any]:
    """Return the estimators by row name, with the set's protocol."""
    protocol = LABELME if dataset == "labelme" else MUSIC
    one_rate = {**protocol, "noise_lr": None}
    conal = {} if dataset == "labelme" else {"embedding_dim": 80, "normalize": "annotator"}
    return {
        "majority vote, then a network": mh.AggregatedClassifier(mh.MajorityVote(), **protocol),
        "Dawid-Skene, then a network": mh.AggregatedClassifier(mh.DawidSkene(), **protocol),
        "Crowd Layer": mh.CrowdLayerClassifier(**from_flat(mh.CrowdLayerClassifier, one_rate)),
        "CoNAL": mh.CoNALClassifier(**from_flat(mh.CoNALClassifier, one_rate | conal)),
        "trained on gold (ceiling)": mh.AggregatedClassifier(**protocol),
        "Crowd Layer, defaults": mh.CrowdLayerClassifier(),
        "CoNAL, defaults": mh.CoNALClassifier(),
        "trained on gold, defaults": mh.AggregatedClassifier(),
        "CoNAL, defaults, 200 epochs": mh.CoNALClassifier(max_epochs=200),
        "trained on gold, defaults, 200 epochs": mh.AggregatedClassifier(max_epochs=200),
    }


LOADERS = {"labelme": load_labelme, "music": load_music}


def measure(set: str, method: str, seed: int) -> Record:
    """Test accuracy at the last epoch and at the one chosen on held-out annotations."""
    data, estimator = LOADERS[set](), methods(set)[method]
    target = data.y_train if "gold" in method else data.annotations
    last = clone(estimator).set_params(random_state=seed).fit(data.X_train, target)
    found = {"last": last.score(data.X_test, data.y_test), "n_test": len(data.y_test)}
    if target is data.annotations:
        own = {"random_state": seed, "validation": HOLDOUT, "protocol__monitor": "likelihood"}
        chosen = clone(estimator).set_params(**own).fit(data.X_train, target)
        found["chosen"] = chosen.score(data.X_test, data.y_test)
    return found | {"seconds": sum(row["seconds"] for row in last.history_)}


def cells(seeds: range) -> Iterator[Record]:
    """Yield every method on both sets."""
    for name in LOADERS:
        yield from grid(set=[name], method=methods(name), seed=seeds)


def page(records: list[Record]) -> dict[str, Any]:
    """A row per method and set."""
    if not records:
        return {}
    rows = []
    for name in LOADERS:
        for method in methods(name):
            own = where(records, set=name, method=method)
            values = [[r[key] for r in own if key in r] for key in ("last", "chosen")]
            seconds = f"{np.median([r['seconds'] for r in own]):.1f}"
            rows.append([name, method, *(spread(each, scale=100) for each in values), seconds])
    sizes = {name: where(records, set=name)[0]["n_test"] for name in LOADERS}
    errors = [f"{100 * np.sqrt(0.16 / n):.1f} ({name}, {n} test)" for name, n in sizes.items()]
    heads = ["set", "method", "last epoch", "chosen", "training seconds (median)"]
    seeds = sorted({r["seed"] for r in records})
    return {"methods": table(heads, rows), "errors": ", ".join(errors), "seeds": seeds}


def drawing(page: str) -> str:
    """Draw the accuracy after the last epoch, with the paper's parameters."""
    rows = []
    for row in read_rows(page, "LabelMe and Music"):
        if "defaults" not in row["method"]:
            value, sd = numbers_in(row["last epoch"])
            own = {"labelme": "LabelMe", "music": "Music"}[row["set"]]
            name = f"{own}, {row['method'].replace(', then a network', '')}"
            rows.append(Row(name, {"accuracy": value}, (value - sd, value + sd)))
    return dots("Test accuracy in percent, mean ± sd of five seeds", rows, digits=1)


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    seeds=range(1, 6),
    page_drawings=lambda page: {"real_sets-accuracy.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
