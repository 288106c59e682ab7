"""C of `TunedLogisticRegression`: by likelihood or by agreement of left-out targets.

Within the *training part* of every set, thirds of the annotated instances are left out in turn. On
the others, C is chosen by five-fold cross-validation on their targets (votes, or the posterior of
Dawid-Skene), by three rules. The regression with that C is then judged on the left-out third: by
agreement with its annotations and by the gold labels of the training part. No test part is read.

Run: ``OMP_NUM_THREADS=1 python benchmarks/regression_strength.py --jobs 2``
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import manyhands
from manyhands import AnnotationTable, DawidSkene
from manyhands.datasets import (
    load_colposcopy,
    load_hotel,
    load_labelme,
    load_music,
    load_product,
    load_reports,
    load_sentiment,
)
from manyhands.fitting.folds import deal_instances
from manyhands.io import write_atomically
from manyhands.linear.regression import fit_regression, regression_proba
from manyhands.metrics import paired_z, vote_agreement
from manyhands.typing import AnyArray, FloatArray, IntArray

OUT = Path("docs/results/regression_strength.md")
COMMAND = "OMP_NUM_THREADS=1 python benchmarks/regression_strength.py --jobs 2"
MOST = 300
"""Annotated training instances drawn from a set, anew for every repetition."""
REPETITIONS, N_OUTER, N_INNER = 4, 3, 5
GRID = 10.0 ** np.arange(-4, 1.5, 0.5)
RULES = ("likelihood", "agreement", "guarded")
TARGETS = ("votes", "Dawid-Skene")
MEASURES = ("accuracy", "agreement")
SETS: dict[str, Callable[[], Any]] = {
    "LabelMe": load_labelme,
    "Music": load_music,
    "Sentiment": load_sentiment,
    "Product": load_product,
    "Colposcopy": load_colposcopy,
    "Reports": load_reports,
    "Hotel": load_hotel,
}


class Found(NamedTuple):
    """Per rule, of one repetition: accuracy, agreement (both %), and the mean log10 of C."""

    accuracy: list[float]
    agreement: list[float]
    log_C: list[float]


def measure(name: str, kind: str, repetition: int) -> Found:
    """Judge the three rules on one sample of a set."""
    data, rng = SETS[name](), np.random.default_rng(repetition)
    rows = np.flatnonzero(data.annotations.annotations_per_instance())
    rows = np.sort(rng.choice(rows, min(MOST, len(rows)), replace=False))
    X, table, gold = data.X_train[rows], data.annotations[rows], np.asarray(data.y_train)[rows]
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    predicted = np.empty((len(RULES), len(rows)), dtype=np.int64)
    chosen: list[list[float]] = []
    place = deal_instances(table, N_OUTER, np.arange(len(rows)), rng)
    for k in range(N_OUTER):
        rest, left = place != k, place == k
        Z, Z_left = _rotated(X[rest], X[left])
        targets = _targets(table[np.flatnonzero(rest)], kind)
        log_proba, agreement = _inner(Z, targets, table[np.flatnonzero(rest)], rng)
        chosen.append(_choose(log_proba, agreement))
        for rule, C in enumerate(chosen[-1]):
            proba = regression_proba(fit_regression(Z, targets, C), Z_left)
            predicted[rule, left] = proba.argmax(axis=1)
    classes = table.classes[predicted]
    return Found(
        [100 * float((own == gold).mean()) for own in classes],
        [100 * vote_agreement(own, table) for own in classes],
        np.log10(chosen).mean(axis=0).tolist(),
    )


def _targets(table: AnnotationTable, kind: str) -> FloatArray:
    return table.vote_counts() if kind == "votes" else DawidSkene().fit_predict_proba(table)


def _rotated(X: FloatArray, X_left: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standardise; rotate to as many columns as rows, which changes no penalised regression."""
    scaler = StandardScaler().fit(X)
    Z, Z_left = scaler.transform(X), scaler.transform(X_left)
    if Z.shape[1] <= len(Z):
        return Z, Z_left
    V = np.linalg.svd(Z, full_matrices=False)[2].T
    return Z @ V, Z_left @ V


def _inner(
    Z: FloatArray, targets: FloatArray, table: AnnotationTable, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Log likelihood and agreement of left-out targets, both (n_strengths, n_instances)."""
    place = deal_instances(table, N_INNER, np.arange(len(Z)), rng)
    log_proba, agreement = np.empty((2, len(GRID), len(Z)))
    for number, k in product(range(len(GRID)), range(N_INNER)):
        rest, left = place != k, place == k
        proba = regression_proba(fit_regression(Z[rest], targets[rest], GRID[number]), Z[left])
        codes: IntArray = proba.argmax(axis=1)
        shares = targets[left] / targets[left].sum(axis=1, keepdims=True)
        floored = proba + 1e-6
        floored /= floored.sum(axis=1, keepdims=True)
        log_proba[number, left] = (targets[left] * np.log(floored)).sum(axis=1)
        agreement[number, left] = shares[np.arange(len(codes)), codes]
    return log_proba, agreement


def _choose(log_proba: FloatArray, agreement: FloatArray) -> list[float]:
    """C by likelihood; by agreement (of ties the strongest penalty); by agreement if z > 1."""
    likeliest, best = log_proba.sum(axis=1).argmax(), agreement.mean(axis=1).argmax()
    ahead = paired_z(agreement[best] - agreement[likeliest]) > 1
    return [float(GRID[i]) for i in (likeliest, best, best if ahead else likeliest)]


def page(found: dict[tuple[str, str, int], Found]) -> str:
    """Return the page in Markdown."""
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [
        "# Strength of the penalty: likelihood or agreement",
        "",
        f"Made by `{COMMAND}` on {today}, manyhands {manyhands.__version__}. From the training "
        f"part of every set, {MOST} annotated instances (all if there are fewer), {REPETITIONS} "
        f"repetitions. C is chosen on two thirds by {N_INNER}-fold cross-validation on the "
        "targets, and judged on the last third. *likelihood*: C under which left-out targets are "
        "most probable, as `TunedLogisticRegression` chooses it. *agreement*: C whose predicted "
        "class has the largest mean share of the left-out targets. *guarded*: that, if it is ahead "
        "of the likelihood's by a paired z of more than 1. Accuracy is against the gold labels of "
        "the training part, agreement against the annotations of the left-out third, in %; of the "
        "last two rules the difference from the first, mean ± standard error over repetitions. No "
        "test part is read.",
        "",
    ]
    for kind in TARGETS:
        lines += [f"## Targets: {kind}", ""]
        rules = " | ".join(f"{RULES[0]}, {what} | {RULES[1]} | {RULES[2]}" for what in MEASURES)
        lines += [f"| set | {rules} |", "|---" * 7 + "|"]
        cells = {name: _cells([found[name, kind, r] for r in range(REPETITIONS)]) for name in SETS}
        lines += [f"| {name} | {' | '.join(_shown(own))} |" for name, own in cells.items()]
        means = np.mean([[np.mean(c) for c in own] for own in cells.values()], axis=0)
        shown = [f"{v:.2f}" if i % 3 == 0 else f"{v:+.2f}" for i, v in enumerate(means)]
        lines += [f"| mean | {' | '.join(shown)} |", ""]
        strengths = {
            name: np.mean([found[name, kind, r].log_C for r in range(REPETITIONS)], axis=0)
            for name in SETS
        }
        lines += ["Mean log10 of C: " + "; ".join(_strength(*each) for each in strengths.items())]
        lines[-1] += " (likelihood, agreement, guarded)."
        lines.append("")
    return "\n".join(lines)


def _cells(found: list[Found]) -> list[AnyArray]:
    """Values by repetition: the first rule's, and the differences of the others from it."""
    cells: list[AnyArray] = []
    for measured in MEASURES:
        values = np.array([getattr(each, measured) for each in found])
        cells += [values[:, 0], values[:, 1] - values[:, 0], values[:, 2] - values[:, 0]]
    return cells


def _shown(cells: list[AnyArray]) -> list[str]:
    error = [float(c.std(ddof=1)) / len(c) ** 0.5 for c in cells]
    return [
        f"{c.mean():.1f}" if i % 3 == 0 else f"{c.mean():+.2f} ± {error[i]:.2f}"
        for i, c in enumerate(cells)
    ]


def _strength(name: str, values: AnyArray) -> str:
    return f"{name} {', '.join(f'{v:.1f}' for v in values)}"


def _measure(task: tuple[str, str, int]) -> Found:
    with catch_warnings():
        simplefilter("ignore", ConvergenceWarning)
        return measure(*task)


def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    tasks = list(product(SETS, TARGETS, range(REPETITIONS)))
    with ProcessPoolExecutor(args.jobs) as pool:
        found = dict(zip(tasks, pool.map(_measure, tasks), strict=True))
    write_atomically(args.out, page(found))
    print(args.out)


if __name__ == "__main__":
    main()
