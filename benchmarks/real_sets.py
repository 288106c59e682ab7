"""Accuracy of the classifiers on LabelMe and Music: mean ± sd over seeds, beside the ceiling.

Protocols are published ones, the same for every method of a set. Nothing is chosen on test data:

* LabelMe: DASC's (Adam 1e-3, batches of 512, weight decay 5e-4, 25 epochs, raw features).
* Music: CoNAL's (Adam 1e-2, batches of 1024, 200 epochs, batch normalisation without affine
  parameters); CoNAL with its Music settings (80-dimensional embeddings, annotators' normalised).
* *defaults*: the library's own protocol, the same for all sets. Cross-validation within the
  training songs prefers 200 epochs for CoNAL on Music (``benchmarks/noise_layers.py``), but not on
  LabelMe.

Run: ``OMP_NUM_THREADS=1 python benchmarks/real_sets.py --out docs/results/real_sets.md``
(needs the data sets: ``MANYHANDS_DATA``, or the network).
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

import manyhands
from manyhands import (
    AggregatedClassifier,
    CoNALClassifier,
    CrowdLayerClassifier,
    DawidSkene,
    MajorityVote,
)
from manyhands.datasets import load_labelme, load_music
from manyhands.io import write_atomically

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
        "majority vote, then a network": AggregatedClassifier(MajorityVote(), **protocol),
        "Dawid-Skene, then a network": AggregatedClassifier(DawidSkene(), **protocol),
        "Crowd Layer": CrowdLayerClassifier(**one_rate),
        "CoNAL": CoNALClassifier(**one_rate, **conal),
        "trained on gold (ceiling)": AggregatedClassifier(**protocol),
        "Crowd Layer, defaults": CrowdLayerClassifier(),
        "CoNAL, defaults": CoNALClassifier(),
        "trained on gold, defaults": AggregatedClassifier(),
        "CoNAL, defaults, 200 epochs": CoNALClassifier(max_epochs=200),
        "trained on gold, defaults, 200 epochs": AggregatedClassifier(max_epochs=200),
    }


def run(dataset: Any, name: str, estimator: Any, seeds: range) -> dict[str, Any]:
    """Return test accuracy at the last epoch and at the one chosen on held-out annotations."""
    target = dataset.y_train if "gold" in name else dataset.annotations
    record: dict[str, Any] = {"set": dataset.name, "method": name, "last": [], "chosen": []}
    seconds = []
    for seed in seeds:
        last = clone(estimator).set_params(random_state=seed).fit(dataset.X_train, target)
        record["last"].append(last.score(dataset.X_test, dataset.y_test))
        seconds.append(sum(row["seconds"] for row in last.history_))
        if target is dataset.annotations:
            chosen = clone(estimator).set_params(
                random_state=seed, validation=HOLDOUT, monitor="likelihood"
            )
            chosen.fit(dataset.X_train, target)
            record["chosen"].append(chosen.score(dataset.X_test, dataset.y_test))
    return {**record, "seconds": float(np.median(seconds))}


def spread(values: list[float]) -> str:
    """Return mean ± sample sd, in percent."""
    if not values:
        return "–"
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"


def markdown(records: list[dict[str, Any]], seeds: range, sizes: dict[str, int]) -> str:
    """Return a table of the records and an explanation of its columns."""
    lines = [
        "# LabelMe and Music",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/real_sets.py --out docs/results/real_sets.md`"
        f" on {datetime.date.today()}, manyhands {manyhands.__version__}; seeds {seeds.start} to "
        f"{seeds.stop - 1}. Test accuracy in percent, mean ± sd over seeds; the protocols stand in "
        f"the script. *Chosen*: the epoch is chosen on {HOLDOUT:.0%} of the annotations, held out "
        "(no gold), so these runs train on the rest. One binomial standard error at 80 % is "
        + ", ".join(
            f"{100 * np.sqrt(0.16 / n):.1f} ({name}, {n} test)" for name, n in sizes.items()
        )
        + ".",
        "",
        "| set | method | last epoch | chosen | training seconds (median) |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['set']} | {r['method']} | {spread(r['last'])} | {spread(r['chosen'])} | "
        f"{r['seconds']:.1f} |"
        for r in records
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all methods and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="Markdown file")
    arguments = parser.parse_args()
    seeds = range(1, arguments.seeds + 1)
    records, sizes = [], {}
    for dataset in (load_labelme(), load_music()):
        sizes[dataset.name] = len(dataset.y_test)
        for name, estimator in methods(dataset.name).items():
            records.append(run(dataset, name, estimator, seeds))
            print(records[-1]["set"], name, spread(records[-1]["last"]), flush=True)
    table = markdown(records, seeds, sizes)
    if arguments.out is None:
        print(table)
        return
    write_atomically(arguments.out, table)


if __name__ == "__main__":
    main()
