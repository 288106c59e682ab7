"""How fast should noise adaptation layers learn, and for how long? Evidence without test sets.

No test set is used. The page shows accuracy on LabelMe's validation images, on Music songs left out
in three folds of the *training* songs, and on the demo's validation digits. It also shows the
distance of ``confusion_`` from the annotators' true behaviour according to the gold labels of the
training instances (mean total variation between rows, weighted by annotations).

Run: ``OMP_NUM_THREADS=1 python benchmarks/defaults.py --out docs/results/defaults.md``. With
``--method CrowdLayerClassifier``, only its rows are run, and the others of the page stay.
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

import manyhands
from manyhands import CoNALClassifier, CrowdLayerClassifier, load_demo
from manyhands.datasets import load_labelme, load_music
from manyhands.io import write_atomically

SETTINGS: tuple[dict[str, Any], ...] = (
    {"noise_lr": None},
    {"noise_lr": 3e-3},
    {},
    {"noise_lr": 3e-2},
    {"max_epochs": 25},
    {"max_epochs": 100},
    {"max_epochs": 200},
)
"""The other parameters are the library's defaults."""

METHODS = {cls.__name__: cls for cls in (CrowdLayerClassifier, CoNALClassifier)}


def confusion_error(model: Any, table: Any, y: Any) -> float:
    """Return the mean total variation of learnt and counted rows, weighted by annotations."""
    codes = {label: code for code, label in enumerate(model.classes_.tolist())}
    true = np.array([codes[label] for label in np.asarray(y).tolist()])
    counts = np.zeros_like(model.confusion_)
    np.add.at(counts, (table.annotator, true[table.instance], table.label), 1)
    rows = counts.sum(axis=2, keepdims=True)
    gap = np.abs(counts / np.maximum(rows, 1) - model.confusion_).sum(axis=2, keepdims=True) / 2
    return float((gap * rows).sum() / rows.sum())


def held_out(data: Any, make: Any, seeds: range) -> tuple[list[float], list[float]]:
    """Return validation accuracy and confusion error for each seed."""
    models = [make(seed).fit(data.X_train, data.annotations) for seed in seeds]
    return (
        [model.score(data.X_valid, data.y_valid) for model in models],
        [confusion_error(model, data.annotations, data.y_train) for model in models],
    )


def cross_validated(data: Any, make: Any, seeds: range) -> list[float]:
    """Return the mean accuracy over three folds of the training instances, for each seed."""
    scores = []
    for seed in seeds:
        folds = KFold(3, shuffle=True, random_state=seed).split(data.X_train)
        fold_scores = [
            make(seed)
            .fit(data.X_train[train], data.annotations[train])
            .score(data.X_train[rest], data.y_train[rest])
            for train, rest in folds
        ]
        scores.append(float(np.mean(fold_scores)))
    return scores


def spread(values: list[float]) -> str:
    """Return mean ± sample sd, in percent."""
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"


def rows_of(method: str, page: Path | None) -> list[str]:
    """Return the rows of a method that a page holds."""
    lines = [] if page is None else page.read_text().splitlines()
    return [line for line in lines if line.startswith(f"| {method} |")]


def main() -> None:
    """Run all settings and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="Markdown file")
    parser.add_argument("--method", choices=METHODS, help="run the rows of this method alone")
    arguments = parser.parse_args()
    seeds = range(1, arguments.seeds + 1)
    labelme, music, demo = load_labelme(), load_music(), load_demo()
    lines = [
        "# What the defaults rest on",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/defaults.py --out docs/results/defaults.md` "
        f"on {datetime.date.today()}, manyhands {manyhands.__version__}; seeds {seeds.start} to "
        f"{seeds.stop - 1}, percent, mean ± sd. No test set is looked at; the script says what the "
        "columns are. Defaults: `noise_lr=1e-2`, `max_epochs=50`; `noise_lr=None` is one rate "
        "(1e-3) and weight decay for everything.",
        "",
        "| method | setting | LabelMe valid | Music train folds | demo valid | "
        "LabelMe confusion error | demo confusion error |",
        "|---|---|---|---|---|---|---|",
    ]
    for name_of_method, cls in METHODS.items():
        if arguments.method not in (None, name_of_method):
            lines += rows_of(name_of_method, arguments.out)
            continue
        for setting in SETTINGS:

            def make(seed: int, cls: Any = cls, setting: Any = setting) -> Any:
                return cls(random_state=seed, **setting)

            valid, error = held_out(labelme, make, seeds)
            demo_valid, demo_error = held_out(demo, make, seeds)
            folds = cross_validated(music, make, seeds)
            cells = map(spread, (valid, folds, demo_valid, error, demo_error))
            name = ", ".join(f"`{k}={v}`" for k, v in setting.items()) or "defaults"
            lines.append(f"| {cls.__name__} | {name} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    if arguments.out is not None:
        write_atomically(arguments.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
