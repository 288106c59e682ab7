"""Imbalanced tasks with simulated crowds, on which cross-fitted EM was developed.

They are made from data that comes with scikit-learn (digits, breast cancer, wine, and
`make_classification`) and from generated documents. Classes are thinned to be 3 to 15 times rarer
than the largest. The crowds are simulated, so the truth is known and no real set's gold labels are
used up. `flagship.py` measures the stack on them. docs/results/imbalanced_recipe.md is of
cross-fitted EM, which the library no longer has: commit 53d0c948 is the last that can make it.
``python -m benchmarks.imbalanced_recipe`` draws the picture of that page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification

from benchmarks.bars import Row, dots
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import ROOT
from manyhands import AnnotationTable
from manyhands.datasets import make_crowd
from manyhands.io import write_atomically
from manyhands.typing import AnyArray, FloatArray

TEST_PER_CLASS = 400
"""Test instances per class, if that many are left."""

Rng = np.random.RandomState
Pool = tuple[FloatArray, AnyArray]
"""Features and true classes."""


# -- tasks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """An imbalanced task and the crowd that annotates it.

    Attributes
    ----------
    pool : callable (Rng) -> Pool
        Makes the instances to draw from.
    sizes : tuple of int
        Training instances per class.
    n_annotators : int
    error : (low, high)
        Range of the error rates, drawn uniformly for every annotator and class.
    votes : float or None
        Mean number of annotations per instance, with workloads that fall as 1/rank. None: every
        annotator annotates everything.
    overlooked : tuple of int
        Classes that annotators miss with probability .3 to .6. With more than two classes, they
        mostly give class 0 instead.
    """

    pool: Callable[[Rng], Pool]
    sizes: tuple[int, ...]
    n_annotators: int
    error: tuple[float, float]
    votes: float | None = None
    overlooked: tuple[int, ...] = ()


def digit_pair(first: int, second: int) -> Pool:
    """Return two digits; the second one is class 1."""
    X, y = load_digits(return_X_y=True)
    kept = (y == first) | (y == second)
    return X[kept], (y[kept] == second).astype(np.int64)


def odd_digits() -> Pool:
    """Return all digits; the odd ones are class 1."""
    X, y = load_digits(return_X_y=True)
    return X, y % 2


def cancer() -> Pool:
    """Return the breast cancer data; malignant is class 1."""
    X, y = load_breast_cancer(return_X_y=True)
    return X, 1 - y


def clusters(
    n: int,
    n_features: int,
    n_informative: int,
    n_classes: int,
    separation: float,
    rng: Rng,
    *,
    flipped: float = 0.0,
    per_class: int = 2,
) -> Pool:
    """Draw ``per_class`` Gaussian clusters per class; a share ``flipped`` has a random class."""
    X, y = make_classification(
        n,
        n_features,
        n_informative=n_informative,
        n_redundant=3,
        n_classes=n_classes,
        n_clusters_per_class=per_class,
        class_sep=separation,
        flip_y=flipped,
        random_state=rng.randint(9**8),
    )
    return X, y


def documents(n: int, n_terms: int, rng: Rng) -> Pool:
    """Draw TF-IDF of short documents; one term in seven differs in frequency by class."""
    odds = 1.5 * rng.standard_normal((2, n_terms)) * (rng.random_sample((2, n_terms)) < 0.15)
    terms = np.exp(odds) / np.arange(1, n_terms + 1) ** 0.9
    terms /= terms.sum(axis=1, keepdims=True)
    y = np.repeat([0, 1], n // 2)
    X = np.stack([rng.multinomial(4 + rng.poisson(21), terms[c]) for c in y])
    X = np.log1p(X) * np.log(n / (1 + (X > 0).sum(axis=0)))
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9), y


TASKS = {
    "digits 3, 8": Task(lambda rng: digit_pair(3, 8), (140, 28), 7, (0.05, 0.3)),
    "odd digits": Task(lambda rng: odd_digits(), (600, 60), 9, (0.2, 0.5)),
    "odd digits, sparse": Task(lambda rng: odd_digits(), (660, 110), 100, (0.05, 0.4), 3),
    "cancer": Task(lambda rng: cancer(), (250, 50), 5, (0.1, 0.4)),
    "cancer, overlooked": Task(lambda rng: cancer(), (240, 30), 7, (0.02, 0.15), overlooked=(1,)),
    "easy clusters": Task(lambda rng: clusters(2600, 20, 8, 2, 1.2, rng), (700, 70), 9, (0.2, 0.5)),
    "hard clusters": Task(
        lambda rng: clusters(4000, 30, 10, 2, 0.7, rng), (1200, 200), 11, (0.2, 0.5)
    ),
    "clusters, overlooked, sparse": Task(
        lambda rng: clusters(5000, 25, 8, 2, 0.8, rng), (1800, 200), 150, (0.02, 0.15), 3, (1,)
    ),
    "noisy clusters, sparse": Task(
        lambda rng: clusters(5000, 25, 6, 2, 1.0, rng, flipped=0.1),
        (1800, 260),
        120,
        (0.05, 0.4),
        3,
    ),
    "few rows, 2 votes": Task(
        lambda rng: clusters(1200, 60, 10, 2, 1.0, rng, per_class=1), (150, 50), 6, (0.05, 0.3), 2
    ),
    "wine": Task(lambda rng: load_wine(return_X_y=True), (36, 44, 11), 5, (0.1, 0.4)),
    "10 digits": Task(
        lambda rng: load_digits(return_X_y=True),
        (120, 100, 80, 60, 50, 40, 30, 24, 16, 12),
        7,
        (0.2, 0.5),
    ),
    "10 digits, sparse": Task(
        lambda rng: load_digits(return_X_y=True),
        (120, 110, 100, 80, 70, 60, 50, 40, 30, 24),
        80,
        (0.1, 0.4),
        4,
    ),
    "4 classes": Task(
        lambda rng: clusters(6000, 25, 10, 4, 1.0, rng), (800, 300, 160, 100), 8, (0.2, 0.5)
    ),
    "4 classes, overlooked, sparse": Task(
        lambda rng: clusters(6000, 25, 10, 4, 1.2, rng),
        (800, 400, 200, 100),
        60,
        (0.05, 0.25),
        5,
        (2, 3),
    ),
    "documents, 3:1": Task(
        lambda rng: documents(3200, 3000, rng), (1100, 360), 120, (0.05, 0.35), 4
    ),
    "documents, 10:1": Task(
        lambda rng: documents(3600, 3000, rng), (1400, 140), 140, (0.1, 0.4), 5
    ),
}


def confusions(task: Task, rng: Rng) -> FloatArray:
    """Draw confusion matrices, [annotator, true, given]."""
    n_annotators, n_classes = task.n_annotators, len(task.sizes)
    confusion = np.zeros((n_annotators, n_classes, n_classes))
    for c in range(n_classes):
        low, high = (0.3, 0.6) if c in task.overlooked else task.error
        error = rng.uniform(low, high, size=n_annotators)
        others = np.delete(np.arange(n_classes), c)
        shares = rng.dirichlet(np.ones(n_classes - 1), n_annotators)
        if c in task.overlooked:
            shares *= 0.3
            shares[:, 0] += 0.7
        confusion[:, c, others] = error[:, None] * shares
        confusion[:, c, c] = 1 - error
    return confusion


def make(name: str, seed: int) -> tuple[FloatArray, AnnotationTable, FloatArray, AnyArray]:
    """Draw a task: training features, annotations, test features, test classes."""
    task, rng = TASKS[name], np.random.RandomState(1000 + seed)
    X, y = task.pool(rng)
    X = X.astype(np.float32)
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in range(len(task.sizes))]
    train = np.concatenate([r[:size] for r, size in zip(rows, task.sizes, strict=True)])
    test = np.concatenate(
        [r[size:][:TEST_PER_CLASS] for r, size in zip(rows, task.sizes, strict=True)]
    )
    train = rng.permutation(train)
    table = make_crowd(
        y[train],
        n_annotators=task.n_annotators,
        annotations_per_instance=float(task.votes or task.n_annotators),
        noise=confusions(task, rng),
        activity="skewed" if task.votes else "even",
        classes=np.arange(len(task.sizes)),
        random_state=rng,
    )
    return X[train], table, X[test], y[test]


# -- the page -------------------------------------------------------------------------------------


def drawing(page: str) -> str:
    """Draw the mean and the worst gap of every method."""
    rows = []
    for row in read_rows(page, "One recipe"):
        gaps = {f"{kind} gap": numbers_in(row[f"{kind} gap"])[0] for kind in ("mean", "worst")}
        rows.append(Row(row[""], gaps, ours=row[""] == "recipe"))
    title = "Gap to the best other method, points of balanced accuracy"
    return dots(title, rows, target=0)


if __name__ == "__main__":
    text = (ROOT / "docs/results/imbalanced_recipe.md").read_text(encoding="utf-8")
    write_atomically(ROOT / "docs/results/imbalanced_recipe-gap.svg", drawing(text))
