"""Simulated crowds with a rare class: Dawid-Skene with and without its correction, and ``tol``.

Annotators are right with probabilities drawn from .6 to .9, whatever the class ("symmetric"), or
find the rare class harder than the others ("rare harder": .55 against .85 on average). Wrong
answers are spread evenly. Every crowd is fitted twice, with the correction of
`manyhands.inference.class_shares` and without it; one-coin Dawid-Skene and IBCC stand beside them.

The parts crowds, equal, costs and tol take a quarter of an hour, and a minute each.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from time import process_time
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.bars import Row, dots
from benchmarks.real_tables import TABLES, load
from evidence.scores import scores
from evidence.study import Part, grid, of_parts
from evidence.tables import Record, days, groups, listing, table, where, with_error
from manyhands import IBCC, AnnotationTable, DawidSkene, MajorityVote, OneCoinDawidSkene
from manyhands.inference import class_shares
from manyhands.metrics import calibration

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
SIZES = {500: 20, 5_000: 50, 30_000: 200}
"""Instances, and annotators."""
VOTES = (3, 5, 10)
SEEDS = range(41, 44)
KINDS = {"symmetric": None, "rare harder": (0.55, 0.85)}
TOLERANCES = (1e-4, 3e-5, 1e-5, 1e-6, 1e-9)


class Crowd:
    """A simulated crowd and its truth; the last class is the rare one."""

    def __init__(
        self, classes: int, crowd: str, share: float, n: int, votes: int, seed: int
    ) -> None:
        rng = np.random.default_rng([seed, classes, n, votes, round(1000 * share)])
        n_annotators = SIZES.get(n, 1_000)
        shares = np.append(np.full(classes - 1, (1 - share) / (classes - 1)), share)
        self.truth = rng.choice(classes, n, p=shares)
        instance = np.repeat(np.arange(n), votes)
        annotator = np.concatenate(
            [rng.choice(n_annotators, votes, replace=False) for _ in range(n)]
        )
        skill = rng.uniform(0.6, 0.9, n_annotators)
        right = np.repeat(skill[:, None], classes, axis=1)
        means = KINDS[crowd]
        if means is not None:
            right = right - 0.75 + np.append(np.full(classes - 1, means[1]), means[0])
        of_class = self.truth[instance]
        wrong = (of_class + rng.integers(1, classes, len(instance))) % classes
        is_right = rng.random(len(instance)) < right[annotator, of_class].clip(0.02, 0.98)
        label = np.where(is_right, of_class, wrong)
        self.table = AnnotationTable.from_arrays(
            instance, annotator, label, classes=list(range(classes))
        )

    def score(self, model: Any) -> Record:
        """Accuracy of the labels, log loss, error of the shares, claimed minus true accuracy."""
        p = model.posterior_
        own = scores(p, self.truth)
        true = np.bincount(self.truth, minlength=p.shape[1]) / len(p)
        scaled = p / np.maximum(p.mean(axis=0), 1e-12)
        found = scaled.argmax(axis=1)
        recalls = [np.mean(found[self.truth == c] == c) for c in np.unique(self.truth)]
        return {
            "accuracy": own["accuracy"],
            "balanced": float(np.mean(recalls)),
            "log_loss": own["log_loss"],
            "shares": float(np.abs(p.mean(axis=0) - true).sum() / 2),
            "claimed": own["claimed"] - own["accuracy"],
            "iterations": model.n_iter_,
        }


def uncorrected() -> Any:
    """Fit as if no class share misled."""
    return mock.patch.object(class_shares, "SKEWED", 0.0)


def fit_crowd(**key: Any) -> Record:
    """Fit one crowd by every method."""
    crowd = Crowd(**key)
    vote = MajorityVote().fit(crowd.table)
    found: Record = {"vote": float(np.mean(vote.labels_ == crowd.truth))}
    with uncorrected():
        found["before"] = crowd.score(DawidSkene().fit(crowd.table))
    after = DawidSkene().fit(crowd.table)
    found["after"] = crowd.score(after)
    found["chosen"] = after.rare_class_correction_ > 0
    for model in (OneCoinDawidSkene(), IBCC()):
        found[type(model).__name__] = crowd.score(model.fit(crowd.table))
    return found


def of_crowd_page(records: list[Record]) -> dict[str, Any]:
    """Return the tables of the simulated crowds."""

    def both(found: list[Record], name: str) -> Any:
        return (np.array([r[when][name] for r in found]) for when in ("before", "after"))

    def pair(found: list[Record], name: str) -> str:
        before, after = both(found, name)
        return f"{before.mean():.3f} → {after.mean():.3f} ({with_error(after - before, 3)})"

    rows, others = [], []
    for classes, kind, share in product((2, 4), KINDS, SHARES):
        found = where(records, classes=classes, crowd=kind, share=share)
        if not found:
            continue
        two = {
            name: " → ".join(f"{np.abs(values).mean():.3f}" for values in both(found, name))
            for name in ("shares", "claimed", "balanced")
        }
        chosen = np.mean([r["chosen"] for r in found])
        name = f"{classes}, {kind}, {share:g}"
        vote = f"{np.mean([r['vote'] for r in found]):.3f}"
        pairs = [pair(found, "accuracy"), pair(found, "log_loss")]
        rows.append([name, vote, *pairs, *two.values(), f"{chosen:.0%}"])
        means = [
            [np.mean([r[method][what] for r in found]) for what in ("accuracy", "log_loss")]
            for method in ("after", "OneCoinDawidSkene", "IBCC")
        ]
        others.append([name, *(f"{accuracy:.3f}, {loss:.3f}" for accuracy, loss in means)])
    skewed = [r for r in records if r["share"] < 0.5]
    before, after = both(records, "accuracy")
    losses = np.subtract(*list(both(records, "log_loss"))[::-1])
    first = "classes, crowd, rare share"
    heads = [first, "majority vote", "accuracy", "log loss", "error of the shares"]
    heads += ["claimed minus true", "balanced accuracy of posterior / share", "corrected"]
    return {
        "n": len(records),
        "dates": days(records),
        "crowds": table(heads, rows),
        "below": [
            float(np.mean([r["vote"] - r[when]["accuracy"] > 0.005 for r in skewed]))
            for when in ("before", "after")
        ],
        "lost": int((before - after > 0.005).sum()),
        "rise": losses.max(),
        "others": table([first, "DawidSkene", "OneCoinDawidSkene", "IBCC"], others),
    }


def drawing(records: list[Record]) -> str:
    """Draw the accuracy with and without the correction, by the share of the rare class."""
    kinds = {"after": "with the correction", "before": "without it"}
    rows = []
    for (classes, kind, share), own in groups(
        where(records, part="crowds"), "classes", "crowd", "share"
    ).items():
        if share < 0.5:
            means = {
                words: 100 * float(np.mean([r[when]["accuracy"] for r in own]))
                for when, words in kinds.items()
            }
            rows.append(Row(f"{classes} classes, {kind}, rare {100 * share:g} %", means))
    return dots("Right labels in percent", rows)


# -- equal annotators ------------------------------------------------------------------------------

EQUAL = {"33,333 x 3": (33_333, 3), "5,000 x 5": (5_000, 5)}
"""Instances, and votes of each."""

METHODS: dict[str, tuple[Callable[[], Any], bool]] = {
    "DawidSkene, without the correction": (DawidSkene, False),
    "DawidSkene": (DawidSkene, True),
    "IBCC, from the vote shares alone": (lambda: IBCC(dependence=0), False),
    "IBCC": (lambda: IBCC(dependence=0), True),
    "OneCoinDawidSkene": (OneCoinDawidSkene, True),
}
"""Methods, and whether they are corrected."""


def equal_crowd(n: int, votes: int, seed: int) -> tuple[AnnotationTable, np.ndarray]:
    """50 annotators who are all right in 70 % of cases, and the truth: a rare class of 5 %."""
    rng = np.random.default_rng([seed, n])
    truth = (rng.random(n) < 0.05).astype(int)
    instance = np.repeat(np.arange(n), votes)
    annotator = np.argsort(rng.random((n, 50)), axis=1)[:, :votes].ravel()
    label = np.where(rng.random(n * votes) < 0.7, truth[instance], 1 - truth[instance])
    return AnnotationTable.from_arrays(instance, annotator, label, classes=[0, 1]), truth


def fit_equal(crowd: str, method: str, seed: int) -> Record:
    """Measure a method on annotators who are all equal and often wrong."""
    given, truth = equal_crowd(*EQUAL[crowd], seed)
    make, corrected = METHODS[method]
    with nullcontext() if corrected else uncorrected():
        model = make().fit(given)
    right, loss, _, claimed = scores(model.posterior_, truth).values()
    return {"figures": [right, loss, float(model.posterior_[:, 1].mean()), claimed - right]}


def equal_page(records: list[Record]) -> dict[str, Any]:
    """Means of the methods."""
    rows = []
    for crowd, method in product(EQUAL, METHODS):
        means = np.mean([r["figures"] for r in where(records, crowd=crowd, method=method)], axis=0)
        rows.append([crowd, method, *(f"{value:.3f}" for value in means)])
    heads = ["crowd", "method", "accuracy", "log loss", "share found", "claimed minus true"]
    return {"equal": table(heads, rows)}


# -- costs -----------------------------------------------------------------------------------------

TIMED = {
    "balanced": ("symmetric", 0.5, 5),
    "rare class of 5 %": ("symmetric", 0.05, 5),
    "rare class of 5 %, harder": ("rare harder", 0.05, 5),
    "rare class of 5 %, 3 votes": ("symmetric", 0.05, 3),
}
REPEATS = 5


def fit_timed(crowd: str) -> Record:
    """CPU seconds of a million annotations, with and without the correction: the least."""
    kind, share, votes = TIMED[crowd]
    given = Crowd(2, kind, share, 1_000_000 // votes, votes, 0).table
    least = {"before": np.inf, "after": np.inf}
    for _ in range(REPEATS):
        for when, around in (("before", uncorrected), ("after", nullcontext)):
            model, began = DawidSkene(), process_time()
            with around():
                model.fit(given)
            least[when] = min(least[when], process_time() - began)
    return least | {"chosen": bool(model.rare_class_correction_)}


def cost_page(records: list[Record]) -> dict[str, Any]:
    """Seconds and their ratio."""
    return {"costs": listing(records, {
        "crowd": "{crowd}",
        "CPU s": "{before:.2f} → {after:.2f}",
        "ratio": lambda r: f"{r['after'] / r['before']:.2f}",
        "corrected": lambda r: "yes" if r["chosen"] else "no",
    })}  # fmt: skip


# -- tol -------------------------------------------------------------------------------------------


def fit_tol(set: str) -> Record:
    """Fit a real table with every tolerance; the last stands for convergence."""
    task, fits, found = load(set), {}, {}
    for tol in TOLERANCES:
        began = process_time()
        fits[tol] = DawidSkene(tol=tol, max_iter=1000).fit(task.table)
        found[f"{tol:g}"] = {"seconds": process_time() - began, "iterations": fits[tol].n_iter_}
    last = fits[TOLERANCES[-1]].posterior_
    for tol, model in fits.items():
        known = model.posterior_[task.known]
        moved = np.abs(model.posterior_ - last).sum(axis=1) / 2
        found[f"{tol:g}"] |= {
            "accuracy": float(np.mean(model.labels_[task.known] == task.gold)),
            "log_loss": calibration(known, task.gold, classes=task.table.classes).log_loss.value,
            "moved": [float(moved.mean()), float(moved.max())],
        }
    return {"tolerances": found}


def tol_page(records: list[Record]) -> dict[str, Any]:
    """Write what convergence costs and gives on the real tables."""

    def of(tol: float, name: str) -> Any:
        return np.array([r["tolerances"][f"{tol:g}"][name] for r in records])

    rows = []
    for tol in TOLERANCES:
        row = [f"{tol:g}", f"{of(tol, 'iterations').mean():.0f}", f"{of(tol, 'seconds').sum():.1f}"]
        row += [f"{of(tol, name).mean():.4f}" for name in ("accuracy", "log_loss")]
        if tol == TOLERANCES[-1]:
            rows.append([*row, "", "", "", ""])
            continue
        for name in ("accuracy", "log_loss"):
            row.append(with_error(of(TOLERANCES[-1], name) - of(tol, name), 4))
        mean, greatest = of(tol, "moved").T
        rows.append([*row, f"{mean.mean():.4f}", f"{greatest.max():.2f}"])
    heads = ["tol", "iterations", "CPU s", "accuracy", "log loss", "accuracy that convergence adds"]
    heads += ["log loss that it adds", "posterior, mean distance", "greatest distance"]
    return {"tol": table(heads, rows), "tables": len(records)}


STUDY = of_parts(
    __file__,
    {
        "crowds": Part(
            fit_crowd,
            of_crowd_page,
            lambda: grid(
                classes=(2, 4), crowd=KINDS, share=SHARES, n=SIZES, votes=VOTES, seed=SEEDS
            ),
        ),
        "equal": Part(fit_equal, equal_page, lambda: grid(crowd=EQUAL, method=METHODS, seed=SEEDS)),
        "costs": Part(fit_timed, cost_page, lambda: grid(crowd=TIMED)),
        "tol": Part(fit_tol, tol_page, lambda: grid(set=TABLES)),
    },
    drawings=lambda records: {"skewed_crowds-accuracy.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
