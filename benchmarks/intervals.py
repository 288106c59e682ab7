"""Measure how often intervals hold the truth, simulated and on real tables, before and after.

Every interval that the library gives is simulated with small and large samples: agreement, shares
(audits, gold, calibration), losses, the calibration error, annotators' reliabilities, confusion
matrices, accuracies of labels and classifiers. What the intervals were in November 2026 stands
beside, computed here. All parts take a quarter of an hour; the record of a part holds its table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from scipy.stats import binom, norm

from benchmarks.bars import Row, dots
from benchmarks.real_tables import TABLES, load
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import of_tables
from evidence.tables import table as lines_of
from manyhands import IBCC, AnnotationTable, DawidSkene
from manyhands.agreement import (
    fleiss_kappa,
    gwet_ac1,
    jackknife,
    krippendorff_alpha,
    mean_cohen_kappa,
    percent_agreement,
)
from manyhands.agreement.intervals import _weighted
from manyhands.metrics import annotators, calibration, estimate_accuracy
from manyhands.metrics.annotators import annotator_reliability
from manyhands.metrics.intervals import beta_interval, share_interval
from manyhands.metrics.levels import accuracy_of_labels
from manyhands.metrics.mean_estimate import mean_estimate

LEVEL = 0.95
SIZES = (20, 50, 200, 1000)
MANY = 100_000
"""Instances whose value counts as the true one."""

MEASURES: dict[str, Callable[..., float]] = {
    "percent agreement": percent_agreement,
    "Krippendorff's alpha": krippendorff_alpha,
    "Fleiss' kappa": fleiss_kappa,
    "AC1": gwet_ac1,
    "mean Cohen's kappa": mean_cohen_kappa,
}
CROWDS = {
    "3 annotators, 2 classes": (3, 3, (0.5, 0.5), 0.85),
    "3 annotators, a class of 10 %": (3, 3, (0.9, 0.1), 0.9),
    "5 annotators, 4 classes": (5, 5, (0.25,) * 4, 0.7),
    "2 annotators, 2 classes": (2, 2, (0.7, 0.3), 0.9),
    "3 of 20 annotators, 3 classes": (20, 3, (1 / 3,) * 3, 0.8),
}
"""Annotators, votes per instance, class shares, probability of a right vote."""

Bounds = tuple[float, float]


def drawn(n: int, crowd: tuple[Any, ...], seed: int, skill: Any = None) -> Any:
    """Return a table, and its true classes."""
    n_annotators, votes, shares, right = crowd
    rng = np.random.default_rng([seed, n])
    y = rng.choice(len(shares), n, p=shares)
    order = np.argsort(rng.random((n, n_annotators)), axis=1)[:, :votes]
    p = np.full(n_annotators, right) if skill is None else skill
    wrong = (y[:, None] + rng.integers(1, len(shares), (n, votes))) % len(shares)
    label = np.where(rng.random((n, votes)) < p[order], y[:, None], wrong)
    table = AnnotationTable.from_arrays(
        np.repeat(np.arange(n), votes), order.ravel(), label.ravel(),
        classes=list(range(len(shares))), n_annotators=n_annotators,
    )  # fmt: skip
    return table, y


def share(hits: Any) -> str:
    """Coverage in hundredths."""
    return f"{np.mean(hits):.2f}"


def holds(bounds: Any, truth: Any) -> Any:
    """Whether intervals hold the truth."""
    low, high = bounds
    return (low <= truth) & (truth <= high)


# -- agreement -------------------------------------------------------------------------------------


def percentiles(measure: Callable[..., float], table: AnnotationTable) -> Bounds:
    """Percentile bootstrap over instances, as it was."""
    weighted = _weighted(measure, table)
    drawn = np.random.default_rng(0).multinomial(
        weighted.n, np.full(weighted.n, 1 / weighted.n), 300
    )
    low, high = np.nanquantile(
        weighted.at(drawn.T.astype(float)), [0.5 - LEVEL / 2, 0.5 + LEVEL / 2]
    )
    return float(low), float(high)


def agreement(runs: int) -> list[str]:
    """Return tables of the coverage of coefficients."""
    rows = []
    for name, crowd in CROWDS.items():
        big, _ = drawn(MANY, crowd, 0)
        truth = {measure: function(big) for measure, function in MEASURES.items()}
        for n in SIZES:
            some = range(1, (runs if n < 1000 else runs // 4) + 1)
            tables = [drawn(n, crowd, seed)[0] for seed in some]
            row = [name, f"{n:,}"]
            for measure, function in MEASURES.items():
                found = [jackknife(function, table) for table in tables]
                told = [each for each in found if not np.isnan(each.low)]
                before = [percentiles(function, table) for table in tables[: runs // 2]]
                target = truth[measure]
                if measure.startswith("mean"):  # Low by itself, where pairs share few instances.
                    target = float(np.nanmean([each.value for each in found]))
                after = share([holds(each[1:], target) for each in told])
                row.append(f"{share([holds(each, target) for each in before])} → {after}")
            rows.append(row)
    return lines_of(["crowd", "instances", *MEASURES], rows)


# -- shares and losses -----------------------------------------------------------------------------


def shares() -> list[str]:
    """Return the exact coverage of the modified Jeffreys interval."""
    rows = []
    p = np.linspace(0.5, 0.999, 500)
    for n in (10, 20, 50, 200, 1000):
        k = np.arange(n + 1)
        bounds = share_interval(k, n, level=LEVEL)
        covered = np.array([binom.pmf(k, n, each) @ holds(bounds, each) for each in p])
        rows.append([f"{n:,}", f"{covered.mean():.3f}", f"{covered.min():.3f}",
                     f"{p[covered.argmin()]:.2f}", f"{np.mean(covered < 0.9):.1%}"])  # fmt: skip
    return lines_of(["n", "mean coverage", "least", "at", "shares with less than .90"], rows)


def predictions(n: int, off: float, seed: int) -> tuple[Any, Any, Any, Any]:
    """Return probabilities of two classes, gold, confidence and the true chance to be right."""
    rng = np.random.default_rng([seed, n])
    confidence = (0.5 + 0.5 * rng.beta(3, 1.2, n)).clip(0.5, 0.999)
    chance = (confidence - off).clip(0, 1)
    first = rng.random(n) < 0.5
    right = rng.random(n) < chance
    proba = np.where(first, confidence, 1 - confidence)
    return np.column_stack([proba, 1 - proba]), np.where(right == first, 0, 1), confidence, chance


def normal_mean(values: Any) -> Bounds:
    """Interval of a mean, as it was."""
    half = norm.ppf(0.5 + LEVEL / 2) * values.std(ddof=1) / np.sqrt(len(values))
    return values.mean() - half, values.mean() + half


def resampled_ece(gaps: Any, which: Any) -> Bounds:
    """Interval of the calibration error, as it was."""
    rng, n = np.random.default_rng(0), len(gaps)
    values = [
        np.abs(np.bincount(which, times * gaps)).sum() / n
        for times in (np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(500))
    ]
    low, high = np.quantile(values, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return float(low), float(high)


def losses(runs: int) -> list[str]:
    """Return the coverage of log loss, Brier score and calibration error."""
    rows = []
    for off in (0.0, 0.03, 0.1):
        _, _, c, p = predictions(400_000, off, 0)
        bins = np.ceil(c * 15).astype(int) - 1
        truth = {
            "log_loss": float(-(p * np.log(c) + (1 - p) * np.log(1 - c)).mean()),
            "brier": float(2 * (p * (1 - c) ** 2 + (1 - p) * c**2).mean()),
            "ece": float(np.abs(np.bincount(bins, p - c)).sum() / len(c)),
        }
        for n in (*SIZES, 5000):
            hits: dict[str, list[tuple[bool, bool]]] = {name: [] for name in truth}
            for seed in range(1, (runs if n < 5000 else runs // 3) + 1):
                proba, y, c, _ = predictions(n, off, seed)
                found = calibration(proba, y, classes=[0, 1])
                own = proba[np.arange(n), y]
                right = proba.argmax(axis=1) == y
                which = np.ceil(c * 15).astype(int) - 1
                before = {
                    "log_loss": normal_mean(-np.log(own)),
                    "brier": normal_mean(2 * (1 - own) ** 2),
                    "ece": resampled_ece(right - c, which),
                }
                for name, value in truth.items():
                    after = getattr(found, name)
                    hits[name].append(
                        (bool(holds(before[name], value)), after.lower <= value <= after.upper)
                    )
            cells = [" → ".join(map(share, zip(*pairs, strict=True))) for pairs in hits.values()]
            rows.append([f"{off:g}", f"{n:,}", *cells])
    return lines_of(["too sure by", "n", "log loss", "Brier score", "calibration error"], rows)


# -- models ----------------------------------------------------------------------------------------

MODELLED = {
    "50 × 3 by 10, 2 classes": (50, (10, 3, (0.5, 0.5), None), (0.6, 0.95)),
    "300 × 3 by 20, 2 classes": (300, (20, 3, (0.5, 0.5), None), (0.6, 0.95)),
    "300 × 5 by 20, 4 classes": (300, (20, 5, (0.25,) * 4, None), (0.5, 0.95)),
    "3,000 × 3 by 50, 2 classes": (3000, (50, 3, (0.5, 0.5), None), (0.6, 0.9)),
    "3,000 × 5 by 50, a class of 5 %": (3000, (50, 5, (0.95, 0.05), None), (0.6, 0.9)),
    "3,000 × 5 by 20, 4 classes": (3000, (20, 5, (0.25,) * 4, None), (0.5, 0.95)),
}


def model_error(value: float) -> Any:
    """Let models of annotators be off by so much."""
    return mock.patch.object(annotators, "MODEL_ERROR", value)


def models(runs: int) -> list[str]:
    """Return the coverage of what models of annotators say, if the models are right."""
    rows = []
    for name, (n, crowd, (low, high)) in MODELLED.items():
        hits: dict[str, list[Any]] = {
            key: [] for key in ("before", "after", "labels", "new", "few")
        }
        cells: dict[str, list[Any]] = {"before": [], "after": []}
        for seed in range(1, (runs if n < 3000 else runs // 2) + 1):
            rng = np.random.default_rng([seed, 7])
            skill = rng.uniform(low, high, crowd[0])
            table, y = drawn(n, crowd, seed, skill)
            model = DawidSkene().fit(table)
            for when, error in (("before", 0.0), ("after", annotators.MODEL_ERROR)):
                with model_error(error):
                    found = annotator_reliability(table, model.posterior_)
                known = found.n_annotations >= 5
                hits[when] += holds((found.lower, found.upper), skill)[known].tolist()
            level = accuracy_of_labels(table, model.labels_, model.posterior_)
            right = model.labels_ == y
            hits["labels"].append(level is not None and level.low <= right.mean() <= level.high)
            classes = len(crowd[2])
            wrong = (y + rng.integers(1, classes, n)) % classes
            said = estimate_accuracy(np.where(rng.random(n) < 0.8, y, wrong), table)
            hits["new"].append(said.low <= 0.8 <= said.high)
            sample = rng.choice(n, 30, replace=False)
            expected = model.posterior_.max(axis=1)
            audit = mean_estimate(right[sample].astype(float), expected[sample], expected)
            hits["few"].append(audit.low <= right.mean() <= audit.high)
            if seed <= 25:
                fitted = IBCC().fit(table)
                true = np.where(np.eye(classes, dtype=bool), skill[:, None, None],
                                (1 - skill[:, None, None]) / (classes - 1))  # fmt: skip
                alpha = fitted.confusion_alpha_
                plain = beta_interval(alpha, alpha.sum(axis=2, keepdims=True) - alpha, level=LEVEL)
                for when, bounds in (("before", plain), ("after", fitted.confusion_interval())):
                    cells[when] += (
                        np.diagonal(holds(bounds, true), axis1=1, axis2=2).ravel().tolist()
                    )
        rows.append([
            name, f"{share(hits['before'])} → {share(hits['after'])}",
            f"{share(cells['before'])} → {share(cells['after'])}",
            share(hits["labels"]), share(hits["few"]), share(hits["new"]),
        ])  # fmt: skip
    return lines_of(
        [
            "crowd",
            "annotators",
            "IBCC",
            "labels, expected",
            "labels, sample of 30",
            "new items, from annotations",
        ],
        rows,
    )


# -- real tables -----------------------------------------------------------------------------------

LEAST_GOLD = 20


def real() -> list[str]:
    """Return the coverage on real tables of annotators' and labels' accuracy."""
    rows, totals = [], []
    for name in TABLES:
        task = load(name)
        table = task.table
        model = DawidSkene().fit(table)
        of_row = task.y[table.instance]
        known = of_row >= 0
        who, right = table.annotator[known], (table.label == of_row)[known]
        n = np.bincount(who, minlength=table.n_annotators)
        enough = n >= LEAST_GOLD
        truth = np.bincount(who, right, table.n_annotators)[enough] / n[enough]
        cells, widths = [], []
        for error in (0.0, annotators.MODEL_ERROR):
            with model_error(error):
                found = annotator_reliability(table, model.posterior_)
            low, high = found.lower[enough], found.upper[enough]
            cells.append(float(holds((low, high), truth).mean()) if enough.any() else np.nan)
            widths.append(float((high - low).mean()) if enough.any() else np.nan)
        level = accuracy_of_labels(table, model.labels_, model.posterior_)
        accuracy = float(np.mean(model.labels_[task.known] == task.gold))
        said, held = "none", np.nan
        if level is not None:
            held = float(level.low <= accuracy <= level.high)
            said = f"{level.value:.3f} ({level.low:.3f} to {level.high:.3f})"
        totals.append([*cells, *widths, held])
        rows.append([name, f"{enough.sum()}", " → ".join(f"{x:.2f}" for x in cells),
                     " → ".join(f"{x:.2f}" for x in widths), said, f"{accuracy:.3f}"])  # fmt: skip
    mean = np.nanmean(totals, axis=0)
    rows.append(["**mean**", "", f"{mean[0]:.2f} → {mean[1]:.2f}", f"{mean[2]:.2f} → {mean[3]:.2f}",
                 f"holds in {mean[4]:.0%}", ""])  # fmt: skip
    return lines_of(
        ["table", "annotators", "coverage", "mean width", "labels, expected (interval)", "true"],
        rows,
    )


RUNS = 200
PARTS: dict[str, Callable[[], list[str]]] = {
    "agreement": partial(agreement, RUNS),
    "shares": shares,
    "losses": partial(losses, RUNS),
    "models": partial(models, RUNS // 2),
    "real": real,
}


def drawing(page: str) -> str:
    """Draw the mean coverage of each kind of interval, and the least and the greatest."""
    tables = {
        "Agreement": ["percent agreement", "Krippendorff's alpha", "Fleiss' kappa", "AC1"],
        "Shares": ["mean coverage"],
        "Losses": ["log loss", "Brier score", "calibration error"],
        "Annotators": ["annotators", "IBCC", "labels, expected", "labels, sample of 30"],
        "Real": ["coverage"],
    }
    names = {
        "mean coverage": "share (exact)",
        "annotators": "annotators, simulated",
        "IBCC": "IBCC's confusion matrices",
        "labels, expected": "right labels, expected",
        "labels, sample of 30": "right labels, 30 checked",
        "coverage": "annotators, real tables",
    }
    rows = []
    for heading, columns in tables.items():
        for column in columns:
            cells = [row for row in read_rows(page, heading) if row.get("table") != "mean"]
            values = [100 * numbers_in(row[column])[-1] for row in cells]
            around = (min(values), max(values))
            mean = sum(values) / len(values)
            rows.append(Row(names.get(column, column), {"mean": mean}, around, heading == "Real"))
    return dots("Coverage of 95 % intervals in percent: mean, least, most", rows, target=95)


STUDY = of_tables(
    __file__,
    PARTS,
    data=lambda cell: ["aggregation"] if cell["part"] == "real" else [],
    page_drawings=lambda page: {"intervals-coverage.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
