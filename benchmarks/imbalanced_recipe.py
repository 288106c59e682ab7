"""Imbalanced crowds: crowd-calibrated stacking with balanced decisions beside other methods.

Development tasks are made from data that comes with scikit-learn (digits, breast cancer, wine, and
`make_classification`) and from generated documents. Classes are thinned to be 3 to 15 times rarer
than the largest. The crowds are simulated, so the truth is known and no real set's gold labels are
used up. Every row is measured by its balanced accuracy on a test part, and by its gap to the best
of the other methods on that task. The committed page is of an earlier recipe, cross-fitted EM,
which was developed on these tasks: write elsewhere.

Run: ``OMP_NUM_THREADS=1 python benchmarks/imbalanced_recipe.py --jobs 2 --out tasks.md``
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import manyhands
from manyhands import (
    AggNetClassifier,
    AggregatedClassifier,
    AnnotationTable,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    DawidSkene,
    MBEMClassifier,
    decide,
)
from manyhands.datasets import make_crowd
from manyhands.io import write_atomically
from manyhands.typing import AnyArray, FloatArray

TEST_PER_CLASS = 400
"""Test instances per class, if that many are left."""

Rng = np.random.RandomState
Pool = tuple[FloatArray, AnyArray]
"""Features and true classes."""

RECIPE = "crowd-calibrated stacking, balanced decisions"
ROWS: dict[str, Callable[[int], Any]] = {
    "MV + LR": lambda seed: AggregatedClassifier(backbone=_linear(), targets="hard"),
    "MV + LR, balanced": lambda seed: AggregatedClassifier(
        backbone=_linear(class_weight="balanced"), targets="hard"
    ),
    "D&S + LR": lambda seed: AggregatedClassifier(DawidSkene(), _linear()),
    "D&S + LR, balanced": lambda seed: AggregatedClassifier(
        DawidSkene(), _linear(), class_balance="reweight"
    ),
    "MV + DNN": lambda seed: AggregatedClassifier(targets="hard", random_state=seed),
    "MV + DNN, balanced": lambda seed: AggregatedClassifier(
        targets="hard", class_balance="reweight", random_state=seed
    ),
    "D&S + DNN": lambda seed: AggregatedClassifier(DawidSkene(), random_state=seed),
    "D&S + DNN, balanced": lambda seed: AggregatedClassifier(
        DawidSkene(), class_balance="reweight", random_state=seed
    ),
    "D&S (uniform prior) + DNN": lambda seed: AggregatedClassifier(
        DawidSkene(class_prior="uniform"), random_state=seed
    ),
    "Crowd Layer": lambda seed: CrowdLayerClassifier(random_state=seed),
    "Crowd Layer, balanced": lambda seed: CrowdLayerClassifier(
        class_balance="reweight", random_state=seed
    ),
    "MBEM": lambda seed: MBEMClassifier(random_state=seed),
    "MBEM, balanced": lambda seed: MBEMClassifier(class_balance="reweight", random_state=seed),
    "AggNet": lambda seed: AggNetClassifier(random_state=seed),
    "AggNet, balanced": lambda seed: AggNetClassifier(class_balance="reweight", random_state=seed),
    RECIPE: lambda seed: CrowdStackingClassifier(decision="balanced", random_state=seed),
}
"""Constructors of the compared estimators from a seed; parameters not given are defaults."""

DIVIDED = ("D&S + DNN", "AggNet")
"""Rows that are shown a second time, with decisions by ``decide(rule="balanced")``."""

DIVIDED_BY_PRIOR = "{}, divided by the prior"


def _linear(**parameters: Any) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300, **parameters))


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


# -- measurement ----------------------------------------------------------------------------------


def measure(name: str, row: str, seed: int) -> dict[str, float]:
    """Fit one row on one draw of a task; return its balanced accuracy, in points."""
    X, table, X_test, y_test = make(name, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Some logistic regressions do not converge.
        model = ROWS[row](seed)
        model.fit(X, table)
    decided = {row: model.predict(X_test)}
    if row in DIVIDED:
        proba = model.predict_proba(X_test)
        inferred = model.posterior_ if row == "AggNet" else model.aggregator_.posterior_
        prior = np.maximum(inferred.mean(axis=0), 1e-9)
        decided[DIVIDED_BY_PRIOR.format(row)] = decide(proba, "balanced", class_prior=prior)
    return {
        key: 100 * float(balanced_accuracy_score(y_test, labels)) for key, labels in decided.items()
    }


def page(found: dict[str, FloatArray]) -> str:
    """Return the page; ``found`` holds one (n_tasks, n_seeds) array per row."""
    means = {row: values.mean(axis=1) for row, values in found.items()}
    best = np.max([mean for row, mean in means.items() if row != RECIPE], axis=0)
    gaps = {row: mean - best for row, mean in means.items()}
    order = sorted(gaps, key=lambda row: (-gaps[row].min(), -gaps[row].mean()))
    names = list(TASKS)
    n_seeds = found[RECIPE].shape[1]
    lines = [
        "# Imbalanced crowds",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/imbalanced_recipe.py` on "
        f"{datetime.date.today()}, manyhands {manyhands.__version__}; seeds 0 to {n_seeds - 1} of "
        "the tasks, their **simulated** crowds, and the training. Crowd-calibrated stacking is "
        '`CrowdStackingClassifier(decision="balanced")`. '
        "*Gap*: balanced accuracy on the test part, in points, less that of the other "
        "method which is best on that task (another one for every task, picked with the truth at "
        "hand). Rows by their worst gap.",
        "",
        "| | worst gap | mean gap | tasks it is the best row of, or within 1 point |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {_bold(row)} | {gaps[row].min():+.1f} | {gaps[row].mean():+.1f} "
        f"| {int((gaps[row] >= -1).sum())} of {len(names)} |"
        for row in order
    ]
    lines += [
        "",
        "## Crowd-calibrated stacking, task by task",
        "",
        "*Difference* is paired over the draws: mean ± sd.",
        "",
        "| task | imbalance | annotators | balanced accuracy | best other row | difference |",
        "|---|---|---|---|---|---|",
    ]
    others = [row for row in order if row != RECIPE]
    for place, name in enumerate(names):
        sizes = TASKS[name].sizes
        rival = max(others, key=lambda row: means[row][place])
        difference = found[RECIPE][place] - found[rival][place]
        deviation = difference.std(ddof=1) if n_seeds > 1 else float("nan")
        lines.append(
            f"| {name} | {max(sizes) / min(sizes):.1f} | {TASKS[name].n_annotators} "
            f"| {means[RECIPE][place]:.1f} | {rival} {means[rival][place]:.1f} "
            f"| {difference.mean():+.1f} ± {deviation:.1f} |"
        )
    lines += [
        "",
        "## All rows",
        "",
        "Balanced accuracy, mean over the draws.",
        "",
        "| | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    lines += [
        f"| {_bold(row)} | " + " | ".join(f"{value:.1f}" for value in means[row]) + " |"
        for row in order
    ]
    return "\n".join(lines) + "\n"


def _bold(row: str) -> str:
    return f"**{row}**" if row == RECIPE else row


def main() -> None:
    """Run all rows and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    shape = len(TASKS), arguments.seeds
    found: dict[str, FloatArray] = {}
    with ProcessPoolExecutor(arguments.jobs) as pool:
        waiting: dict[tuple[int, str, int], Future[dict[str, float]]] = {
            (place, row, seed): pool.submit(measure, name, row, seed)
            for place, name in enumerate(TASKS)
            for row in ROWS
            for seed in range(arguments.seeds)
        }
        for (place, _, seed), future in waiting.items():
            for key, value in future.result().items():
                found.setdefault(key, np.full(shape, np.nan))[place, seed] = value
                print(list(TASKS)[place], key, seed, f"{value:.1f}", flush=True)
    write_atomically(arguments.out, page(found))


if __name__ == "__main__":
    main()
