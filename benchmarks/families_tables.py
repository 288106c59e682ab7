"""The crowds of `families.py`: JudgeBench, simulations, machines beside people, people alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from manyhands import AnnotationTable
from manyhands.datasets import (
    load_aggregation,
    load_cifar10n,
    load_judgebench,
    load_sentiment,
)
from manyhands.metrics import expected_calibration_error
from manyhands.typing import AnyArray, FloatArray, IntArray

GOLD = (0, 10, 20, 50, 100)


@dataclass(frozen=True)
class Problem:
    """A crowd of n instances with known classes, and the families that one would declare."""

    table: AnnotationTable
    y: IntArray
    groups: dict[Any, str]

    @property
    def declared(self) -> AnnotationTable:
        """The table with its families."""
        return self.table.with_groups(self.groups)


def judgebench(seed: int) -> Problem:
    """Two runs of a judge, five reward models."""
    data = load_judgebench()
    annotators = data.annotations.annotators.tolist()
    groups = {a: "judge" if a.startswith("o1") else "reward model" for a in annotators}
    return Problem(data.annotations, np.searchsorted(data.classes, data.y_train), groups)


def noisy(rng: np.random.Generator, y: IntArray, accuracy: float) -> IntArray:
    """Annotations of two classes by one annotator."""
    return np.where(rng.random(len(y)) < accuracy, y, 1 - y)


def family(
    rng: np.random.Generator, y: IntArray, size: int, accuracy: float, share: float = 0.8
) -> list[IntArray]:
    """Members who copy one draw of the family in ``share`` of the instances."""
    common = noisy(rng, y, accuracy)
    return [
        np.where(rng.random(len(y)) < share, common, noisy(rng, y, accuracy)) for _ in range(size)
    ]


def simulated(parts: Iterable[tuple[int, float, float]], names: str, seed: int) -> Problem:
    """400 instances; ``parts`` are (members, accuracy, share), ``names`` the declared families."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 400)
    columns = [column for size, p, share in parts for column in family(rng, y, size, p, share)]
    table = AnnotationTable.from_matrix(np.stack(columns, axis=1))
    return Problem(table, y, {r: name for r, name in enumerate(names) if name != "-"})


SINGLES = ((1, 0.75, 0.0),) * 4
SIMULATIONS: dict[str, Callable[[int], Problem]] = {
    "2 x 5 (.80, .65)": partial(simulated, ((5, 0.80, 0.8), (5, 0.65, 0.8)), "aaaaabbbbb"),
    "4 x 3": partial(simulated, tuple((3, p, 0.8) for p in (0.8, 0.75, 0.7, 0.65)), "aaabbbcccddd"),
    "5 poor + 4": partial(simulated, ((5, 0.6, 0.8), *((1, 0.8, 0.0),) * 4), "aaaaa----"),
    "5 good + 4 poor": partial(simulated, ((5, 0.85, 0.8), *((1, 0.65, 0.0),) * 4), "aaaaa----"),
    "5 + 2 x 2": partial(simulated, ((5, 0.7, 0.8), (2, 0.75, 0.8), (2, 0.75, 0.8)), "aaaaabbcc"),
    "7 independent": partial(simulated, ((1, 0.75, 0.0),) * 7, "aaabbcc"),
}


def thinned(table: AnnotationTable, most: int, rng: np.random.Generator) -> AnnotationTable:
    """Keep at most so many annotations of each instance, at random."""
    order = rng.permutation(table.n_annotations)
    order = order[np.argsort(table.instance[order], kind="stable")]
    _, start = table.by_instance()
    place = np.arange(len(order)) - start[table.instance[order]]
    kept = table.take(np.sort(order[place < most]))
    return kept.select(annotators=kept.annotations_per_annotator() > 0)


def people(name: str, seed: int) -> Problem:
    """A human table of at most 1,500 instances with gold, six annotations each.

    Families are random groups of about eight annotators.
    """
    rng = np.random.default_rng(seed)
    data = load_aggregation(name, duplicates="last")
    rows = np.flatnonzero(data.y_train >= 0)
    rows = np.sort(rng.choice(rows, min(len(rows), 1500), replace=False))
    table = thinned(data.annotations[rows], 6, rng)
    n_groups = max(1, round(table.n_annotators / 8))
    code = rng.permutation(np.arange(table.n_annotators) % n_groups)
    groups = {a: str(c) for a, c in zip(table.annotators.tolist(), code, strict=True)}
    return Problem(table, np.searchsorted(data.classes, data.y_train[rows]), groups)


PEOPLE = {name: partial(people, name) for name in ("duck", "temp", "rte", "web", "trec", "dog")}


@cache
def machines(
    name: str, seed: int, n_train: int, n_machines: int
) -> tuple[AnnotationTable, IntArray, AnyArray]:
    """Humans' table of held-out instances, true classes, and the labels by up to five machines."""
    data, n = (load_sentiment(), 1500) if name == "sentiment" else (load_cifar10n(), 1000)
    order = np.random.default_rng(seed).permutation(len(data.y_train))
    train, rows = order[:n_train], np.sort(order[n_train : n_train + n])
    X = data.X_train.toarray() if hasattr(data.X_train, "toarray") else data.X_train
    models = [
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500)),
        GaussianNB(),
        KNeighborsClassifier(5),
        make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5)),
        DecisionTreeClassifier(max_depth=4, random_state=seed),
    ][:n_machines]
    named = [model.fit(X[train], data.y_train[train]).predict(X[rows]) for model in models]
    y = np.searchsorted(data.classes, data.y_train[rows])
    return data.annotations[rows], y, np.stack(named, axis=1)


def beside(name: str, humans: int, seed: int, *, n_train: int, n_machines: int = 3) -> Problem:
    """Machines that learnt from other instances, beside so many humans per instance."""
    table, y, named = machines(name, seed, n_train, n_machines)
    table = thinned(table, humans, np.random.default_rng(seed))
    n = table.n_instances
    added = AnnotationTable.from_arrays(
        np.tile(np.arange(n), n_machines),
        np.repeat([f"machine {k + 1}" for k in range(n_machines)], n),
        named.T.ravel(),
        classes=table.classes,
        instances=table.instances,
    )
    mine = replace(table, annotators=np.array([f"human {a}" for a in table.annotators.tolist()]))
    both = mine.with_added(added)
    return Problem(both, y, dict.fromkeys(added.annotators.tolist(), "machine"))


BESIDE = {
    f"{name}, {humans} humans": partial(beside, name, humans, n_train=n_train)
    for name, n_train, counts in (("sentiment", 400, (1, 2, 3, 5)), ("cifar10n", 2500, (1, 2, 3)))
    for humans in counts
}
BESIDE["sentiment, 3 humans, 5 machines"] = partial(
    beside, "sentiment", 3, n_train=400, n_machines=5
)
BESIDE["sentiment, 3 humans, stronger machines"] = partial(beside, "sentiment", 3, n_train=2500)

TABLES = {"judgebench": judgebench, **SIMULATIONS, **BESIDE, **PEOPLE}
"""From a seed to a crowd."""

HAS_FAMILIES = tuple(name for name in TABLES if name not in (*PEOPLE, "7 independent"))
"""Tables with families that have a reason; those of the others are random."""


def left_out_with(table: str) -> str:
    """What a table is left out with: tables of the same source."""
    return table.split(",")[0] if table in BESIDE else table


def figures(posterior: FloatArray, y: IntArray, rows: IntArray) -> list[float]:
    """Accuracy with ties shared, log loss, calibration error."""
    p, y = posterior[rows], y[rows]
    top = p >= p.max(axis=1, keepdims=True) - 1e-12
    mine = np.arange(len(y)), y
    accuracy = (top / top.sum(axis=1, keepdims=True))[mine].mean()
    loss = -np.log(np.clip(p[mine], 1e-12, 1)).mean()
    error = expected_calibration_error(p, y, classes=np.arange(p.shape[1]), n_bins=15)
    return [round(float(value), 5) for value in (accuracy, loss, error)]
