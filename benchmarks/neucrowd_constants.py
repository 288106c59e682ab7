"""NeuCrowd's open constants: what held-out annotations say of each.

The paper finds layer sizes and the strength of the penalty by a grid. It gives no margin, size of
the candidate pool or similarity constants. Here each constant is varied alone from the defaults.
Thirds of the instances in the *training part* of every set are left out in turn, with all their
annotations. A setting is judged by the probability that the classifier gives to these annotations
(mean negative log likelihood, in thousandths of a nat), and by the share of them it predicts.
Neither gold labels nor test parts are used. For comparison, the page also shows logistic regression
on the features, with every annotation as an example and C chosen in the same way.

Run: ``OMP_NUM_THREADS=1 python benchmarks/neucrowd_constants.py --jobs 1``
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import manyhands
from manyhands import (
    AnnotationTable,
    MetricLearningClassifier,
    NeuCrowdClassifier,
    SoftProbClassifier,
)
from manyhands.datasets import (
    load_colposcopy,
    load_hotel,
    load_labelme,
    load_music,
    load_reports,
)
from manyhands.inference import MajorityVote
from manyhands.io import write_atomically
from manyhands.linear import TunedLogisticRegression

OUT = Path("docs/results/neucrowd_constants.md")
COMMAND = "OMP_NUM_THREADS=1 python benchmarks/neucrowd_constants.py --jobs 1"
N_FOLDS = 3

SETS: dict[str, tuple[Callable[[], Any], int | None]] = {
    "Hotel": (load_hotel, None),
    "Hotel, 150": (load_hotel, 150),
    "Colposcopy": (load_colposcopy, None),
    "Reports": (load_reports, 300),
    "Music": (load_music, 300),
    "LabelMe": (load_labelme, 300),
}
"""Loaders, and the number of annotated training instances drawn from each set (None: all)."""

REGRESSION = "logistic regression on the features"
PAPERS_NETWORK = {
    "name": "embedding",
    "hidden": [128],
    "activation": "sigmoid",
    "input_dropout": 0.0,
    "dropout": 0.2,
    "bounded": True,
}
PROTOTYPE = {**PAPERS_NETWORK, "activation": "tanh", "dropout": 0.5}


def _network(**arguments: Any) -> dict[str, Any]:
    return {"backbone": {"name": "embedding", **arguments}}


SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "the features beside the embedding": {"regression": "both"},
    "the code's network (sigmoid, dropout .2 of the embedding)": {"backbone": PAPERS_NETWORK},
    "tanh, dropout .5 of the embedding, weight decay .03": {
        "backbone": PROTOTYPE,
        "weight_decay": 0.03,
    },
    "no dropout": _network(input_dropout=0.0),
    "dropout .3 of the features": _network(input_dropout=0.3),
    "ReLU": _network(activation="relu"),
    "256 hidden units": _network(hidden=[256]),
    "linear embedding": _network(hidden=[]),
    "10 epochs": {"max_epochs": 10},
    "40 epochs": {"max_epochs": 40},
    "learning rate 1e-3": {"lr": 1e-3},
    "weight decay .1": {"weight_decay": 0.1},
    "η = 1": {"eta": 1.0},
    "η = 10": {"eta": 10.0},
    "the code's softmax": {"softmax": "code"},
    "pool of 8": {"n_candidates": 8},
    "unsafe instances .02 as often (the code)": {"unsafe_weight": 0.02},
    "anchor as printed (a sum)": {"normalize_anchor": False},
}

NAMES = ("contrastive", "triplet", "triplet_semihard", "lifted", "center")
LOSSES: dict[str, dict[str, Any]] = {
    f"{loss}{words}": {"loss": loss, **more}
    for loss in NAMES
    for words, more in (
        ("", {}),
        (", learning rate 1e-3", {"lr": 1e-3}),
        (", 40 epochs", {"max_epochs": 40}),
    )
}
"""The metric-learning baselines: each loss with its defaults, then with one constant varied."""


class Found(NamedTuple):
    """Negative log likelihood of the left-out annotations, and the share that is predicted."""

    nll: float
    named: float


@cache
def load(name: str) -> tuple[Any, AnnotationTable]:
    """Load the annotated instances of a set's training part, or a fixed sample of them."""
    make, n = SETS[name]
    data = make()
    rows = np.flatnonzero(data.annotations.annotations_per_instance())
    if n is not None and n < len(rows):
        rows = np.sort(np.random.default_rng(0).choice(rows, n, replace=False))
    return data.X_train[rows], data.annotations[rows]


def folds(table: AnnotationTable) -> np.ndarray[Any, Any]:
    """Assign instances to folds, stratified by majority class."""
    order = np.random.default_rng(1).permutation(len(table))
    labels = MajorityVote().fit(table).posterior_.argmax(axis=1)
    order = order[np.argsort(labels[order], kind="stable")]
    found = np.empty(len(table), dtype=int)
    found[order] = np.arange(len(table)) % N_FOLDS
    return found


def measure(name: str, setting: str) -> Found:
    """Return the mean over the folds."""
    X, table = load(name)
    place = folds(table)
    found = []
    for k in range(N_FOLDS):
        kept, left = np.flatnonzero(place != k), np.flatnonzero(place == k)
        if setting == REGRESSION:
            model: Any = SoftProbClassifier(TunedLogisticRegression(random_state=0))
        elif setting in LOSSES:
            model = MetricLearningClassifier(**LOSSES[setting], random_state=k)
        else:
            model = NeuCrowdClassifier(**SETTINGS[setting], random_state=k)
        proba = model.fit(X[kept], table[kept]).predict_proba(X[left])
        counts = table[left].vote_counts()
        log_proba = np.log(np.maximum(proba, 1e-6))
        named = counts[np.arange(len(left)), proba.argmax(axis=1)].sum()
        found.append((-(counts * log_proba).sum() / counts.sum(), named / counts.sum()))
    nll, share = np.mean(found, axis=0)
    return Found(float(nll), float(share))


def page(found: dict[tuple[str, str], Found]) -> str:
    """Return the page in Markdown."""
    names = list(SETS)
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [
        "# NeuCrowd: what held-out annotations say of its constants",
        "",
        f"Made by `{COMMAND}` on {today}, manyhands {manyhands.__version__}. {N_FOLDS}-fold "
        "cross-validation over the instances of the training parts (of Reports, Music and "
        "LabelMe 300 of them, of Hotel also 150): a fold is left out with all its annotations. "
        "*nll*: mean negative log likelihood of these by the classifier, in thousandths of a nat; "
        "*named*: share of them that it names, %. Each row but the first moves one constant from "
        "the defaults, and shows the difference from these (of the nll negative is better); of "
        "metric learning from those of the same loss. *Mean*: over the sets. No gold label and "
        "no test part is looked at.",
        "",
    ]
    for measure, scale, words in (("nll", 1000, "nll"), ("named", 100, "named, %")):
        cells = {key: scale * getattr(value, measure) for key, value in found.items()}
        head = [f"| setting | {' | '.join(names)} | mean |", "|---" * (len(names) + 2) + "|"]
        lines += [f"## NeuCrowd: {words}", "", *head, _absolute("defaults", cells)]
        lines += [_moved(s, "defaults", cells) for s in [REGRESSION, *SETTINGS] if s != "defaults"]
        lines += ["", f"## Metric learning: {words}", "", *head]
        for loss in NAMES:
            own = [s for s in LOSSES if LOSSES[s]["loss"] == loss]
            lines += [_absolute(own[0], cells), *(_moved(s, own[0], cells) for s in own[1:])]
        lines.append("")
    return "\n".join(lines)


def _absolute(setting: str, cells: dict[tuple[str, str], float]) -> str:
    """Return a row of absolute figures."""
    own = [cells[name, setting] for name in SETS]
    return f"| {setting} | {' | '.join(f'{v:.1f}' for v in own)} | {np.mean(own):.1f} |"


def _moved(setting: str, base: str, cells: dict[tuple[str, str], float]) -> str:
    """Return a row of differences from ``base``."""
    moved = [cells[name, setting] - cells[name, base] for name in SETS]
    return f"| {setting} | {' | '.join(f'{v:+.1f}' for v in moved)} | {np.mean(moved):+.1f} |"


def _measure(task: tuple[str, str]) -> Found:
    return measure(*task)


def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    tasks = list(product(SETS, [REGRESSION, *SETTINGS, *LOSSES]))
    with ProcessPoolExecutor(args.jobs) as pool:
        found = dict(zip(tasks, pool.map(_measure, tasks), strict=True))
    write_atomically(args.out, page(found))
    print(args.out)


if __name__ == "__main__":
    main()
