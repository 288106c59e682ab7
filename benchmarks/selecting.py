"""`select` over ten methods and a grid search of twelve settings, on LabelMe without gold labels.

Measures wall seconds with two processes. `select` is run undisturbed, then killed after some
seconds, and once more on the folder of the killed call; then with other seeds. Gold labels of the
test part serve only to measure what was chosen.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from sklearn.model_selection import GridSearchCV, KFold

from benchmarks.bars import Bar, bars
from evidence.pages.quoted import read_rows
from evidence.study import Study
from evidence.tables import Record, listing, mean, table, where
from manyhands import CoNALClassifier, select
from manyhands.datasets import load_labelme
from manyhands.metrics import accuracy, vote_agreement_scorer

METHODS = (
    *("agg-net", "trace-reg", "max-mig", "conal", "crowd-layer", "aggregated", "doctor-net"),
    *("mbem", "crowd-stacking", "co-teaching"),
)
GRID = {"max_epochs": [10, 25, 50], "lr": [3e-4, 1e-3], "scaling": ["standard", "rms"]}
JOBS = 2
FOLDS = 3
SEEDS = range(4)
KILLED_AFTER = 20.0
"""Seconds."""


def choose(folder: str | None, seed: int = 0) -> Any:
    """Run `select` over the ten methods; finished folds are kept in a folder."""
    data = load_labelme()
    options = {"cv": FOLDS, "random_state": seed, "folder": folder, "n_jobs": JOBS}
    return select(METHODS, data.X_train, data.annotations, **options)


def timed(folder: str) -> tuple[Any, float]:
    """Run `select`, and time it."""
    started = perf_counter()
    return choose(folder), perf_counter() - started


def killed(folder: str) -> None:
    """Start `select` in a process group of its own, and kill the group."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_in_own_group, args=(folder,))
    process.start()
    sleep(KILLED_AFTER)
    if process.exitcode is not None:
        raise SystemExit(f"select ended within {KILLED_AFTER:g} s: nothing was left to resume")
    os.killpg(process.pid, signal.SIGKILL)
    process.join()


def _in_own_group(folder: str) -> None:
    os.setpgrp()
    choose(folder)


def search() -> tuple[GridSearchCV, float]:
    """Search twelve settings of CoNAL by agreement out of fold."""
    data = load_labelme()
    grid = GridSearchCV(
        CoNALClassifier(random_state=0),
        GRID,
        scoring=vote_agreement_scorer,
        cv=KFold(FOLDS, shuffle=True, random_state=0),
        n_jobs=JOBS,
    )
    started = perf_counter()
    grid.fit(data.X_train, data.annotations)
    return grid, perf_counter() - started


def first() -> Record:
    """Run `select` undisturbed, then killed and resumed."""
    data = load_labelme()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        found, seconds = timed(one)
        killed(two)
        finished = len(list(Path(two).glob("fold*.npz")))
        resumed, rest = timed(two)
        total = len(list(Path(two).glob("fold*.npz")))
    scores = [{r.candidate: r.score for r in each.table_} for each in (found, resumed)]
    rows = [
        [
            r.candidate,
            f"{r.score:.3f} ± {r.error_of_score:.3f}",
            f"{r.z:.1f}",
            *(f"{value:.3f}" for value in (r.agreement, r.corrected, r.information)),
            f"{r.estimate:.3f} [{r.low:.3f}, {r.high:.3f}]",
            "–" if r.epoch is None else str(r.epoch),
            f"{r.seconds:.0f}",
        ]
        for r in found.table_
    ]
    reason = [] if found.reason_ is None else [f"Chosen: {found.best_}. {found.reason_}.", ""]
    return {
        "wall": seconds,
        "finished": finished,
        "trainings": total,
        "resumed": rest,
        "same": scores[0] == scores[1],
        "accuracy": accuracy(data.y_test, found.estimator_.predict(data.X_test)),
        "rows": rows,
        "told": [*reason, *(f"Warning: {text}.\n" for text in found.warnings_)],
    }


def of_seed(seed: int) -> Record:
    """Say what is chosen with a seed."""
    data, found = load_labelme(), choose(None, seed)
    best = found.table_[0]
    right = accuracy(data.y_test, found.estimator_.predict(data.X_test))
    told = {"choice": best.candidate, "score": best.score, "tied": found.tied_[1:]}
    return {**told, "accuracy": right}


def of_grid() -> Record:
    """Search the settings, and measure the best."""
    data = load_labelme()
    grid, seconds = search()
    found = zip(grid.cv_results_["params"], grid.cv_results_["mean_test_score"], strict=True)
    return {
        "wall": seconds,
        "accuracy": accuracy(data.y_test, grid.predict(data.X_test)),
        "settings": sorted(
            ([*(str(setting[name]) for name in GRID), f"{score:.3f}"] for setting, score in found),
            key=lambda row: -float(row[-1]),
        ),
    }


def measure(part: str, seed: int) -> Record:
    """Measure a part."""
    return {"select": first, "seeds": lambda: of_seed(seed), "grid": of_grid}[part]()


def page(records: list[Record]) -> dict[str, Any]:
    """The choice, its seeds, and the grid."""
    if not records:
        return {}
    (one, *_), (grid, *_) = (where(records, part=part) for part in ("select", "grid"))
    seeds = where(records, part="seeds")
    heads = ["candidate", "score ± SE", "z behind", "A", "B", "MI", "accuracy [interval]", "epoch"]
    return {
        "one": one,
        "same": "the same scores" if one["same"] else "OTHER SCORES",
        "choices": table([*heads, "seconds"], one["rows"]),
        "told": one["told"],
        "mean": mean(seeds, "accuracy"),
        "seeds": listing(seeds, {
            "random_state": "{seed}",
            "choice": "{choice}",
            "score": "{score:.3f}",
            "test accuracy": "{accuracy:.3f}",
            "tied": lambda r: ", ".join(r["tied"]) or "none",
        }),
        "grid": grid,
        "settings": table([*GRID, "vote agreement"], grid["settings"]),
    }  # fmt: skip


def drawing(page: str) -> str:
    """Draw the seconds that each candidate takes."""
    found = read_rows(page, "`select` over")
    rows = [Bar(r["candidate"], float(r["seconds"]), f"{r['seconds']} s") for r in found]
    return bars("Seconds of each candidate; two processes share them", rows)


STUDY = Study(
    __file__,
    lambda: (
        {"part": part, "seed": seed}
        for part, seeds in (("select", [0]), ("seeds", SEEDS), ("grid", [0]))
        for seed in seeds
    ),
    measure,
    page,
    data=lambda cell: ["labelme"],
    page_drawings=lambda page: {"selecting-seconds.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
