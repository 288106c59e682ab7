"""Raw texts and images against the shipped features: Sentiment and CIFAR-10N.

Logistic regression on majority votes (ties at random), its C chosen by the votes of a held-out
fifth of the training part; and crowd-calibrated stacking, which sees the annotations. Encoders are
fitted on the training part. The test parts serve only to measure. HOG is left out if scikit-image
is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.bars import Row, dots
from evidence.study import Study
from evidence.tables import Record, listing, mean, spread, where
from manyhands import CrowdStackingClassifier, MajorityVote
from manyhands.datasets import load_cifar10n, load_sentiment
from manyhands.encoders import ImageEncoder, TextEncoder
from manyhands.metrics import accuracy

SEEDS = range(3)
STRENGTHS = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
PATIENCE = 2
"""Values of C after the best one, none of which is as good, that end the search."""

HAS_HOG = find_spec("skimage") is not None

SHIPPED = {"Sentiment": "TF-IDF, 4,000 words (shipped)", "CIFAR-10N": "patches, 256-d (shipped)"}


@cache
def sentiment() -> SimpleNamespace:
    """Sentiment with its texts."""
    folder = Path(os.environ["MANYHANDS_DATA"], "sentiment")
    texts = (folder / "texts.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    rows = [line.split(",") for line in (folder / "labels.csv").read_text().splitlines()[1:]]
    parts = {
        split: [texts[row] for row, (_, _, s) in enumerate(rows) if s == split]
        for split in ("train", "test")
    }
    return SimpleNamespace(name="Sentiment", data=load_sentiment(), **parts)


@cache
def cifar() -> SimpleNamespace:
    """CIFAR-10N with its images."""
    images = load_cifar10n(features="images")
    parts = {"train": images.X_train, "test": images.X_test}
    return SimpleNamespace(name="CIFAR-10N", data=load_cifar10n(), **parts)


TASKS = {"CIFAR-10N": cifar, "Sentiment": sentiment}
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


def encoded(task: Any, name: str, seed: int) -> tuple[Any, Any]:
    """Features of the training and the test part."""
    if name == SHIPPED[task.name]:
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


def measure(set: str, features: str, seed: int) -> Record:
    """Encode, and fit both classifiers."""
    task = TASKS[set]()
    data, started = task.data, process_time()
    X, X_test = encoded(task, features, seed)
    seconds = process_time() - started
    votes = MajorityVote(ties="random", random_state=seed).fit(data.annotations).labels_
    found = {"votes": regression(X, votes, X_test, data.y_test, seed)}
    started = process_time()
    model = CrowdStackingClassifier(random_state=seed).fit(X, data.annotations)
    found["stack"] = model.score(X_test, data.y_test)
    costs = {"seconds": seconds, "stack_seconds": process_time() - started}
    return {"columns": int(X.shape[1]), **found, **costs}


def cells() -> Iterator[Record]:
    """Yield what is measured."""
    for seed, name in product(SEEDS, TASKS):
        for kind in (*ENCODERS[name], SHIPPED[name]):
            if "hog" not in kind or HAS_HOG:
                yield {"set": name, "features": kind, "seed": seed}


def drawing(records: list[Record]) -> str:
    """Draw the accuracy of both classifiers on all features."""
    kinds = {"stack": "stack", "votes": "logistic regression on majority votes"}
    rows = []
    for name, encoders in ENCODERS.items():
        for features in (SHIPPED[name], *encoders):
            if own := where(records, set=name, features=features):
                means = {words: 100 * mean(own, key) for key, words in kinds.items()}
                rows.append(Row(f"{name}, {features}", means))
    return dots("Accuracy on the test part, in percent", rows)


def page(records: list[Record]) -> dict[str, Any]:
    """Both classifiers on all features of a set, the shipped ones first."""

    def shown(key: str) -> Any:
        return lambda own: spread([r[key] for r in own], 3, n=True)

    columns = {
        "features": lambda own: own[0]["features"],
        "columns": lambda own: f"{own[0]['columns']:,}",
        "LR, majority vote": shown("votes"),
        "stack": shown("stack"),
        "encoding, s": lambda own: f"{mean(own, 'seconds'):.0f}",
        "stack, s": lambda own: f"{mean(own, 'stack_seconds'):.0f}",
    }
    found = {}
    for name, encoders in ENCODERS.items():
        kinds = (where(records, set=name, features=k) for k in (SHIPPED[name], *encoders))
        found[name.split("-")[0].lower()] = listing(filter(None, kinds), columns)
    return found


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    drawings=lambda records: {"encoders-accuracy.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
