"""Raw texts and images against the shipped features: Sentiment and CIFAR-10N.

Logistic regression on majority votes (ties at random), its C chosen by the votes of a held-out
fifth of the training part; and crowd-calibrated stacking, which sees the annotations. Encoders are
fitted on the training part. The test parts serve only to measure.

Run, with MANYHANDS_DATA set (HOG is left out if scikit-image is missing):
``OMP_NUM_THREADS=1 python benchmarks/encoders.py --records results/benchmarks/encoders.jsonl
--out docs/results/encoders.md``
"""

from __future__ import annotations

import argparse
import datetime
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from pages import Record, run_missing, table_lines
from sklearn.linear_model import LogisticRegression

import manyhands
from manyhands import CrowdStackingClassifier, MajorityVote
from manyhands.datasets import load_cifar10n, load_sentiment
from manyhands.encoders import ImageEncoder, TextEncoder
from manyhands.io import write_atomically
from manyhands.metrics import accuracy

SEEDS = range(3)
STRENGTHS = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
PATIENCE = 2
"""Values of C after the best one, none of which is as good, that end the search."""

HAS_HOG = find_spec("skimage") is not None

BARS = {"Sentiment": 0.71, "CIFAR-10N": 0.625}
"""Majority vote, as measured when the encoders were planned; for images, the shipped features'."""


class Task:
    """A data set with its raw inputs."""

    def __init__(self, name: str, data: Any, train: Any, test: Any, shipped: str) -> None:
        self.name, self.data, self.shipped = name, data, shipped
        self.train, self.test = train, test


def sentiment() -> Task:
    data = load_sentiment()
    folder = Path(os.environ["MANYHANDS_DATA"], "sentiment")
    texts = (folder / "texts.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    rows = [line.split(",") for line in (folder / "labels.csv").read_text().splitlines()[1:]]
    parts = {
        split: [texts[row] for row, (_, _, s) in enumerate(rows) if s == split]
        for split in ("train", "test")
    }
    return Task("Sentiment", data, parts["train"], parts["test"], "TF-IDF, 4,000 words (shipped)")


def cifar() -> Task:
    images, data = load_cifar10n(features="images"), load_cifar10n()
    return Task("CIFAR-10N", data, images.X_train, images.X_test, "patches, 256-d (shipped)")


ENCODERS: dict[str, dict[str, Callable[[int], Any]]] = {
    "Sentiment": {
        'TextEncoder("tfidf")': lambda seed: TextEncoder(),
        'TextEncoder("hashing")': lambda seed: TextEncoder("hashing"),
    },
    "CIFAR-10N": {
        'ImageEncoder("patches")': lambda seed: ImageEncoder(random_state=seed),
        'ImageEncoder("hog")': lambda seed: ImageEncoder("hog"),
    },
}


def features(task: Task, name: str, seed: int) -> tuple[Any, Any]:
    """Features of the training and the test part."""
    if name == task.shipped:
        return task.data.X_train, task.data.X_test
    encoder = ENCODERS[task.name][name](seed)
    return encoder.fit_transform(task.train), encoder.transform(task.test)


def regression(X: Any, y: Any, X_test: Any, y_test: Any, seed: int) -> float:
    """Test accuracy with the C that is best on a held-out fifth."""
    order = np.random.default_rng(seed).permutation(X.shape[0])
    held, rest = order[: len(order) // 5], order[len(order) // 5 :]
    scale = 1.0 if hasattr(X, "tocsr") else float(X.std())

    def fitted(rows: Any, C: float) -> Any:
        return LogisticRegression(C=C, max_iter=300).fit(X[rows] / scale, y[rows])

    found: list[float] = []
    for C in STRENGTHS:
        found.append(fitted(rest, C).score(X[held] / scale, y[held]))
        if len(found) > PATIENCE and max(found[-PATIENCE:]) < max(found):
            break  # Weak penalties take longest to fit.
    best = STRENGTHS[int(np.argmax(found))]
    return accuracy(y_test, fitted(order, best).predict(X_test / scale))


def measure(task: Task, name: str, seed: int) -> Record:
    data = task.data
    started = process_time()
    X, X_test = features(task, name, seed)
    encoded = process_time()
    votes = MajorityVote(ties="random", random_state=seed).fit(data.annotations).labels_
    result: Record = {
        "set": task.name,
        "features": name,
        "seed": seed,
        "columns": int(X.shape[1]),
        "seconds": encoded - started,
        "votes": regression(X, votes, X_test, data.y_test, seed),
    }
    started = process_time()
    model = CrowdStackingClassifier(random_state=seed).fit(X, data.annotations)
    result["stack"] = model.score(X_test, data.y_test)
    return result | {"stack_seconds": process_time() - started}


def cells() -> Iterator[tuple[tuple[str, str, int], Callable[[], Record]]]:
    tasks = (cifar(), sentiment())
    for seed, task in product(SEEDS, tasks):
        for name in (*ENCODERS[task.name], task.shipped):
            if "hog" not in name or HAS_HOG:
                yield (
                    (task.name, name, seed),
                    lambda task=task, name=name, seed=seed: measure(task, name, seed),
                )


def spread(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3f} (1)"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f} ({len(values)})"


def measured(records: list[Record]) -> set[str]:
    return {record["features"] for record in records}


def page(records: list[Record]) -> str:
    lines = [
        "# Raw texts and images, and the shipped features",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/encoders.py --records "
        "results/benchmarks/encoders.jsonl --out docs/results/encoders.md` on "
        f"{datetime.date.today()}, manyhands {manyhands.__version__}. "
        "Test accuracy, mean ± sd (number of seeds); seeds break ties of votes, draw the "
        "fifth that chooses C, the patches and the folds. LR: logistic regression on majority "
        "votes; its C is chosen by held-out votes. Stack: `CrowdStackingClassifier`, with the "
        "annotations. CPU seconds: encoding the training and the test part; fitting "
        "the stack and predicting.",
        "",
    ]
    for name in BARS:
        rows = []
        order = {kind: place for place, kind in enumerate(ENCODERS[name])}  # After the shipped.
        for kind in sorted(
            {r["features"] for r in records if r["set"] == name}, key=lambda k: order.get(k, -1)
        ):
            own = [r for r in records if (r["set"], r["features"]) == (name, kind)]
            shown = [spread([r[key] for r in own]) for key in ("votes", "stack")]
            seconds = [f"{np.mean([r[k] for r in own]):.0f}" for k in ("seconds", "stack_seconds")]
            rows.append([kind, f"{own[0]['columns']:,}", *shown, *seconds])
        heading = ["features", "columns", "LR, majority vote", "stack"]
        lines += [f"## {name}", ""]
        lines += table_lines([*heading, "encoding, s", "stack, s"], rows)
        lines += [f"Wanted of majority vote: {BARS[name]:g}.", ""]
    missing = [n for kinds in ENCODERS.values() for n in kinds if n not in measured(records)]
    if missing:
        lines += [f"Not measured yet: {', '.join(missing)}.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, default=Path("results/benchmarks/encoders.jsonl"))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    records = run_missing(
        arguments.records, cells(), lambda r: (r["set"], r["features"], r["seed"])
    )
    write_atomically(arguments.out, page(records))


if __name__ == "__main__":
    main()
