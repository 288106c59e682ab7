"""C of `TunedLogisticRegression`: by likelihood or by agreement of left-out targets.

Within the *training part* of every set, thirds of the annotated instances are left out in turn. On
the others, C is chosen by five-fold cross-validation on their targets (votes, or the posterior of
Dawid-Skene), by three rules. The regression with that C is then judged on the left-out third: by
agreement with its annotations and by the gold labels of the training part. No test part is read.
"""

from __future__ import annotations

from itertools import product
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from benchmarks.bars import Row, dots
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import Study, grid
from evidence.tables import Record, table, where
from manyhands import AnnotationTable, DawidSkene, datasets
from manyhands.fitting.folds import deal_instances
from manyhands.linear.regression import fit_regression, regression_proba
from manyhands.metrics import paired_z, vote_agreement
from manyhands.typing import FloatArray, IntArray

MOST = 300
"""Annotated training instances drawn from a set, anew for every repetition."""
REPETITIONS, N_OUTER, N_INNER = 4, 3, 5
GRID = 10.0 ** np.arange(-4, 1.5, 0.5)
RULES = ("likelihood", "agreement", "guarded")
TARGETS = ("votes", "Dawid-Skene")
MEASURES = ("accuracy", "agreement")
SETS = ("LabelMe", "Music", "Sentiment", "Product", "Colposcopy", "Reports", "Hotel")


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


def measure(set: str, targets: str, repetition: int) -> Record:
    """Judge the three rules on one sample of a set: accuracy, agreement (%), log10 of C."""
    data, rng = getattr(datasets, f"load_{set.lower()}")(), np.random.default_rng(repetition)
    rows = np.flatnonzero(data.annotations.annotations_per_instance())
    rows = np.sort(rng.choice(rows, min(MOST, len(rows)), replace=False))
    X, given, gold = data.X_train[rows], data.annotations[rows], np.asarray(data.y_train)[rows]
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    predicted = np.empty((len(RULES), len(rows)), dtype=np.int64)
    chosen: list[list[float]] = []
    place = deal_instances(given, N_OUTER, np.arange(len(rows)), rng)
    for k in range(N_OUTER):
        rest, left = place != k, place == k
        Z, Z_left = _rotated(X[rest], X[left])
        kept = given[np.flatnonzero(rest)]
        with catch_warnings():
            simplefilter("ignore", ConvergenceWarning)
            wanted = _targets(kept, targets)
            chosen.append(_choose(*_inner(Z, wanted, kept, rng)))
            for rule, C in enumerate(chosen[-1]):
                proba = regression_proba(fit_regression(Z, wanted, C), Z_left)
                predicted[rule, left] = proba.argmax(axis=1)
    classes = given.classes[predicted]
    return {
        "accuracy": [100 * float((own == gold).mean()) for own in classes],
        "agreement": [100 * vote_agreement(own, given) for own in classes],
        "log_C": np.log10(chosen).mean(axis=0).tolist(),
    }


def page(records: list[Record]) -> dict[str, Any]:
    """The first rule, and the differences of the others from it."""
    found: dict[str, Any] = {}
    heads = [f"{what}: {rule}" for what in MEASURES for rule in RULES]
    for kind in TARGETS if records else ():
        rows, means, strengths = [], [], []
        for name in SETS:
            own = where(records, set=name, targets=kind)
            row, mean = [], []
            for measured in MEASURES:
                values = np.array([r[measured] for r in own])
                apart = values[:, 1:] - values[:, :1]
                error = apart.std(axis=0, ddof=1) / len(apart) ** 0.5
                mean += [values[:, 0].mean(), *apart.mean(axis=0)]
                row += [
                    f"{mean[-3]:.1f}",
                    *(f"{m:+.2f} ± {e:.2f}" for m, e in zip(mean[-2:], error, strict=True)),
                ]
            rows.append([name, *row])
            means.append(mean)
            strength = np.mean([r["log_C"] for r in own], axis=0)
            strengths.append(f"{name} {', '.join(f'{v:.1f}' for v in strength)}")
        every = np.mean(means, axis=0)
        last = [f"{v:.2f}" if i % 3 == 0 else f"{v:+.2f}" for i, v in enumerate(every)]
        key = kind.split("-")[0].lower()
        found[key] = table(["set", *heads], [*rows, ["mean", *last]])
        found[f"{key}_strengths"] = "; ".join(strengths)
    return found


def drawing(page: str) -> str:
    """Draw the accuracy by agreement, less that by likelihood, on every set."""
    targets = {"votes": "Targets: votes", "Dawid-Skene": "Targets: Dawid-Skene"}
    found = {f"targets: {k}": read_rows(page, heading) for k, heading in targets.items()}
    rows = [
        Row(
            own[0]["set"],
            {k: numbers_in(r["accuracy: agreement"])[0] for k, r in zip(found, own, strict=True)},
        )
        for own in zip(*found.values(), strict=True)
    ]
    return dots("Accuracy by agreement less that by likelihood, points", rows, target=0)


STUDY = Study(
    __file__,
    lambda: grid(set=SETS, targets=TARGETS, repetition=range(REPETITIONS)),
    measure,
    page,
    page_drawings=lambda page: {"regression_strength-difference.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
