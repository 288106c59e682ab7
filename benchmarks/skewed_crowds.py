"""Simulated crowds with a rare class: Dawid-Skene with and without its correction, and ``tol``.

Annotators are right with probabilities drawn from .6 to .9, whatever the class ("symmetric"), or
find the rare class harder than the others ("rare harder": .55 against .85 on average). Wrong
answers are spread evenly. Every crowd is fitted twice, with the correction of
`manyhands.inference.class_shares` and without it; one-coin Dawid-Skene and IBCC stand beside them.

    OMP_NUM_THREADS=1 python benchmarks/skewed_crowds.py crowds
    OMP_NUM_THREADS=1 python benchmarks/skewed_crowds.py equal
    OMP_NUM_THREADS=1 python benchmarks/skewed_crowds.py costs
    MANYHANDS_DATA=... OMP_NUM_THREADS=1 python benchmarks/skewed_crowds.py tol

Each writes its parts of docs/results/skewed_crowds.md (``--out``), in a quarter of an hour, and a
minute each. Crowds that the records hold are not fitted again.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from pages import Record, run_missing, table_lines, write_part

from manyhands import IBCC, AnnotationTable, DawidSkene, MajorityVote, OneCoinDawidSkene
from manyhands.inference import class_shares
from manyhands.metrics import calibration

TITLE = "Crowds with a rare class"
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
SIZES = {500: 20, 5_000: 50, 30_000: 200}
"""Instances, and annotators."""
VOTES = (3, 5, 10)
SEEDS = range(41, 44)
KINDS = {"symmetric": None, "rare harder": (0.55, 0.85)}
KEY = ("classes", "crowd", "share", "n", "votes", "seed")
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
        own = p[np.arange(len(p)), self.truth]
        accuracy = float(np.mean(model.labels_ == self.truth))
        true = np.bincount(self.truth, minlength=p.shape[1]) / len(p)
        scaled = p / np.maximum(p.mean(axis=0), 1e-12)
        found = scaled.argmax(axis=1)
        recalls = [np.mean(found[self.truth == c] == c) for c in np.unique(self.truth)]
        return {
            "accuracy": accuracy,
            "balanced": float(np.mean(recalls)),
            "log_loss": float(-np.log(own.clip(1e-12)).mean()),
            "shares": float(np.abs(p.mean(axis=0) - true).sum() / 2),
            "claimed": float(p.max(axis=1).mean() - accuracy),
            "iterations": model.n_iter_,
        }


@contextmanager
def uncorrected() -> Iterator[None]:
    """Fit as if no class share misled."""
    kept = class_shares.SKEWED
    class_shares.SKEWED = 0.0
    try:
        yield
    finally:
        class_shares.SKEWED = kept


def measured(*key: Any) -> Record:
    """Fit one crowd by every method."""
    crowd = Crowd(*key)
    record: Record = dict(zip(KEY, key, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vote = MajorityVote().fit(crowd.table)
        record["vote"] = float(np.mean(vote.labels_ == crowd.truth))
        with uncorrected():
            record["before"] = crowd.score(DawidSkene().fit(crowd.table))
        after = DawidSkene().fit(crowd.table)
        record["after"] = crowd.score(after)
        record["chosen"] = after.rare_class_correction_ > 0
        for model in (OneCoinDawidSkene(), IBCC()):
            record[type(model).__name__] = crowd.score(model.fit(crowd.table))
    return record | {"date": date.today().isoformat()}


def crowds(records: Path) -> list[Record]:
    """Fit all crowds that the records do not hold."""
    keys = product((2, 4), KINDS, SHARES, SIZES, VOTES, SEEDS)
    return run_missing(
        records,
        ((key, partial(measured, *key)) for key in keys),
        lambda record: tuple(record[name] for name in KEY),
    )


def pair(found: list[Record], name: str, digits: int = 3) -> str:
    """Mean before and after, and the mean difference with its standard error."""
    before, after = (np.array([r[when][name] for r in found]) for when in ("before", "after"))
    change = after - before
    error = change.std(ddof=1) / np.sqrt(len(change))
    return (
        f"{before.mean():.{digits}f} → {after.mean():.{digits}f} "
        f"({change.mean():+.{digits}f} ± {error:.{digits}f})"
    )


def two(found: list[Record], name: str, absolute: bool = False) -> str:
    """Mean before and after."""
    values = (np.mean([abs(r[when][name]) if absolute else r[when][name] for r in found])
              for when in ("before", "after"))  # fmt: skip
    return " → ".join(f"{value:.3f}" for value in values)


def mean(found: list[Record], name: str, of: str) -> str:
    """Mean of another method."""
    return f"{np.mean([r[name][of] for r in found]):.3f}"


def crowd_lines(records: list[Record]) -> list[str]:
    """Return the tables of the simulated crowds."""
    heading = [
        *("classes, crowd, rare share", "majority vote", "accuracy", "log loss"),
        *("error of the shares", "claimed minus true"),
        *("balanced accuracy of posterior / share", "corrected"),
    ]
    rows, others = [], []
    for classes, kind, share in product((2, 4), KINDS, SHARES):
        found = [
            r for r in records if (r["classes"], r["crowd"], r["share"]) == (classes, kind, share)
        ]
        name = f"{classes}, {kind}, {share:g}"
        chosen = np.mean([r["chosen"] for r in found])
        rows.append(
            [name, f"{np.mean([r['vote'] for r in found]):.3f}", pair(found, "accuracy"),
             pair(found, "log_loss"), two(found, "shares"), two(found, "claimed", absolute=True),
             two(found, "balanced"), f"{chosen:.0%}"]
        )  # fmt: skip
        cells = [
            f"{mean(found, method, 'accuracy')}, {mean(found, method, 'log_loss')}"
            for method in ("after", "OneCoinDawidSkene", "IBCC")
        ]
        others.append([name, *cells])
    skewed = [r for r in records if r["share"] < 0.5]
    below = [np.mean([r["vote"] - r[when]["accuracy"] > 0.005 for r in skewed])
             for when in ("before", "after")]  # fmt: skip
    losses = [r for r in records if r["before"]["accuracy"] - r["after"]["accuracy"] > 0.005]
    worst = max(r["after"]["log_loss"] - r["before"]["log_loss"] for r in records)
    dates = sorted(r["date"] for r in records)
    return [
        f"{len(records):,} crowds of {', '.join(f'{n:,}' for n in SIZES)} instances by "
        f"{', '.join(map(str, SIZES.values()))} annotators, with {', '.join(map(str, VOTES))} "
        f"votes each; seeds {SEEDS[0]} to {SEEDS[-1]}; {dates[0]} to {dates[-1]}. Without the "
        "correction → with it; in brackets the mean difference ± standard error over crowds. "
        "Error of the shares: total variation between the mean posterior and the true shares. "
        "Claimed minus true: absolute difference of the mean probability of the labels and their "
        "accuracy. Corrected: share of the crowds for which the fit chooses it.",
        "",
        *table_lines(heading, rows),
        f"More than half a point below majority vote are {below[0]:.0%} of the crowds with a rare "
        f"class without the correction, and {below[1]:.0%} with it. The correction costs more than "
        f"half a point of accuracy in {len(losses)} of {len(records):,} crowds; log loss rises by "
        f"at most {worst:.3f}.",
        "",
        "Accuracy and log loss of other methods:",
        "",
        *table_lines(
            [heading[0], "DawidSkene", "OneCoinDawidSkene", "IBCC"],
            others,
        ),
    ]


# -- equal annotators ------------------------------------------------------------------------------

EQUAL = ((33_333, 3), (5_000, 5))
"""Instances, and votes of each."""


def equal_crowd(n: int, votes: int, seed: int) -> tuple[AnnotationTable, np.ndarray]:
    """50 annotators who are all right in 70 % of cases, and the truth: a rare class of 5 %."""
    rng = np.random.default_rng([seed, n])
    truth = (rng.random(n) < 0.05).astype(int)
    instance = np.repeat(np.arange(n), votes)
    annotator = np.argsort(rng.random((n, 50)), axis=1)[:, :votes].ravel()
    label = np.where(rng.random(n * votes) < 0.7, truth[instance], 1 - truth[instance])
    return AnnotationTable.from_arrays(instance, annotator, label, classes=[0, 1]), truth


def equal_lines() -> list[str]:
    """Return what the methods make of annotators who are all equal and often wrong."""
    methods: dict[str, Callable[[AnnotationTable], Any]] = {
        "DawidSkene, without the correction": _uncorrected(DawidSkene()),
        "DawidSkene": DawidSkene().fit,
        "IBCC, from the vote shares alone": _uncorrected(IBCC(dependence=0)),
        "IBCC": IBCC(dependence=0).fit,
        "OneCoinDawidSkene": OneCoinDawidSkene().fit,
    }
    rows = []
    for (n, votes), (name, fit) in product(EQUAL, methods.items()):
        found = []
        for seed in SEEDS:
            table, truth = equal_crowd(n, votes, seed)
            model = fit(table)
            p, right = model.posterior_, float(np.mean(model.labels_ == truth))
            loss = -np.log(p[np.arange(n), truth].clip(1e-12)).mean()
            found.append([right, loss, p[:, 1].mean(), p.max(axis=1).mean() - right])
        cells = [f"{value:.3f}" for value in np.mean(found, axis=0)]
        rows.append([f"{n:,} x {votes}", name, *cells])
    return [
        "50 annotators who are all right in 70 % of cases, whatever the class; true share of the "
        f"rare class 0.05; means of {len(SEEDS)} seeds, {date.today()}. IBCC without dependence, "
        "which it takes from `DawidSkene`.",
        "",
        *table_lines(
            ["crowd", "method", "accuracy", "log loss", "share found", "claimed minus true"], rows
        ),
    ]


def _uncorrected(model: Any) -> Callable[[AnnotationTable], Any]:
    def fit(table: AnnotationTable) -> Any:
        with uncorrected():
            return model.fit(table)

    return fit


# -- costs -----------------------------------------------------------------------------------------

TIMED = {
    "balanced": ("symmetric", 0.5, 5),
    "rare class of 5 %": ("symmetric", 0.05, 5),
    "rare class of 5 %, harder": ("rare harder", 0.05, 5),
    "rare class of 5 %, 3 votes": ("symmetric", 0.05, 3),
}


def cost_lines(repeats: int = 5) -> list[str]:
    """Return CPU seconds of a million annotations, with and without the correction."""
    rows = []
    for name, (kind, share, votes) in TIMED.items():
        table = Crowd(2, kind, share, 1_000_000 // votes, votes, 0).table
        seconds: dict[str, list[float]] = {"before": [], "after": []}
        for _ in range(repeats):
            for when in seconds:
                model, began = DawidSkene(), process_time()
                if when == "before":
                    with uncorrected():
                        model.fit(table)
                else:
                    model.fit(table)
                seconds[when].append(process_time() - began)
        least = {when: min(found) for when, found in seconds.items()}
        chosen = "yes" if model.rare_class_correction_ else "no"
        rows.append(
            [name, f"{least['before']:.2f} → {least['after']:.2f}",
             f"{least['after'] / least['before']:.2f}", chosen]
        )  # fmt: skip
    return [
        "CPU seconds of `DawidSkene().fit` on a million annotations of two classes by 1,000 "
        f"annotators, without the correction → with it; the least of {repeats} fits, "
        f"{date.today()}.",
        "",
        *table_lines(["crowd", "CPU s", "ratio", "corrected"], rows),
    ]


# -- tol -------------------------------------------------------------------------------------------


def tol_lines() -> list[str]:
    """Return what convergence costs and gives on the real tables."""
    from aggregation import AGGREGATION_SETS, LOADERS, load

    tasks = {name: load(name) for name in (*AGGREGATION_SETS, *LOADERS)}
    posteriors: dict[float, dict[str, Any]] = {}
    facts: dict[float, Any] = {}
    for tol in TOLERANCES:
        posteriors[tol], found = {}, []
        began = process_time()
        models = {
            name: DawidSkene(tol=tol, max_iter=1000).fit(task.table) for name, task in tasks.items()
        }
        seconds = process_time() - began
        for name, task in tasks.items():
            model = models[name]
            posteriors[tol][name] = model.posterior_
            loss = calibration(
                model.posterior_[task.known], task.gold, classes=task.table.classes
            ).log_loss.value
            accuracy = np.mean(model.labels_[task.known] == task.gold)
            found.append((accuracy, loss, model.n_iter_))
        facts[tol] = np.array(found), seconds
    last, rows = TOLERANCES[-1], []
    for tol in TOLERANCES:
        found, seconds = facts[tol]
        gains = facts[last][0] - found
        moved = [np.abs(posteriors[tol][n] - posteriors[last][n]).sum(axis=1) / 2 for n in tasks]
        row = [f"{tol:g}", f"{found[:, 2].mean():.0f}", f"{seconds:.1f}",
               f"{found[:, 0].mean():.4f}", f"{found[:, 1].mean():.4f}"]  # fmt: skip
        if tol == last:
            row += ["", "", "", ""]
        else:
            error = gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
            row += [f"{gains[:, 0].mean():+.4f} ± {error[0]:.4f}",
                    f"{gains[:, 1].mean():+.4f} ± {error[1]:.4f}",
                    f"{np.mean([m.mean() for m in moved]):.4f}",
                    f"{max(m.max() for m in moved):.2f}"]  # fmt: skip
        rows.append(row)
    return [
        f"`DawidSkene(tol=..., max_iter=1000)` on the {len(tasks)} tables of "
        f"[aggregation.md](aggregation.md), {date.today()}. The last columns compare with "
        f"{last:g}: what that would add, ± standard error over tables, and how far posteriors are "
        "from it (total variation). The default is 3e-05.",
        "",
        *table_lines(
            ["tol", "iterations", "CPU s", "accuracy", "log loss", "accuracy that convergence adds",
             "log loss that it adds", "posterior, mean distance", "greatest distance"],
            rows,
        ),
    ]  # fmt: skip


PARTS: dict[str, tuple[str, Callable[..., list[str]]]] = {
    "equal": ("Equal annotators, often wrong", equal_lines),
    "costs": ("What it costs", cost_lines),
    "tol": ("How far EM goes", tol_lines),
}


def main() -> None:
    """Run one part, and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["crowds", *PARTS])
    parser.add_argument(
        "--records", type=Path, default=Path("results/benchmarks/skewed_crowds.jsonl")
    )
    parser.add_argument("--out", type=Path, default=Path("docs/results/skewed_crowds.md"))
    given = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if given.part == "crowds":
            heading, lines = "Simulated crowds", crowd_lines(crowds(given.records))
        else:
            heading, lines_of = PARTS[given.part]
            lines = lines_of()
    made = f"Made by `OMP_NUM_THREADS=1 python benchmarks/skewed_crowds.py {given.part}`."
    write_part(given.out, TITLE, heading, [*lines, made])


if __name__ == "__main__":
    main()
