"""`select` over ten methods and a grid search of twelve settings, on LabelMe without gold labels.

Measures wall seconds with two processes. `select` is run undisturbed, then killed after some
seconds, and once more on the folder of the killed call; then with other seeds. Gold labels of the
test part serve only to measure what was chosen.

Run, with MANYHANDS_DATA set:
``OMP_NUM_THREADS=1 python benchmarks/selecting.py --out docs/results/selecting.md``
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import signal
import tempfile
import warnings
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
from pages import table_lines
from sklearn.model_selection import GridSearchCV, KFold

import manyhands
from manyhands import CoNALClassifier, select
from manyhands.datasets import load_labelme
from manyhands.io import write_atomically
from manyhands.metrics import accuracy, vote_agreement_scorer

METHODS = (
    "agg-net",
    "trace-reg",
    "max-mig",
    "conal",
    "crowd-layer",
    "aggregated",
    "doctor-net",
    "mbem",
    "crowd-stacking",
    "co-teaching",
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return select(
            METHODS,
            data.X_train,
            data.annotations,
            cv=FOLDS,
            random_state=seed,
            folder=folder,
            n_jobs=JOBS,
        )


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


def other_seeds(first: Any) -> list[list[str]]:
    """Say what is chosen with every seed, the first of which has been run."""
    data, rows = load_labelme(), []
    for seed in SEEDS:
        found = choose(None, seed) if seed else first
        best = found.table_[0]
        right = accuracy(data.y_test, found.estimator_.predict(data.X_test))
        tied = ", ".join(found.tied_[1:]) or "none"
        rows.append([str(seed), best.candidate, f"{best.score:.3f}", f"{right:.3f}", tied])
    return rows


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


def page() -> list[str]:
    """Measure everything, and return the page's lines."""
    data = load_labelme()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        found, seconds = timed(first)
        killed(second)
        finished = len(list(Path(second).glob("fold*.npz")))
        resumed, rest = timed(second)
        total = len(list(Path(second).glob("fold*.npz")))
    same = {r.candidate: r.score for r in found.table_} == {
        r.candidate: r.score for r in resumed.table_
    }
    grid, searched = search()
    ranks = sorted(
        zip(grid.cv_results_["params"], grid.cv_results_["mean_test_score"], strict=True),
        key=lambda each: -each[1],
    )
    rows = [
        [
            r.candidate,
            f"{r.score:.3f} ± {r.error_of_score:.3f}",
            f"{r.z:.1f}",
            f"{r.agreement:.3f}",
            f"{r.corrected:.3f}",
            f"{r.information:.3f}",
            f"{r.estimate:.3f} [{r.low:.3f}, {r.high:.3f}]",
            "–" if r.epoch is None else str(r.epoch),
            f"{r.seconds:.0f}",
        ]
        for r in found.table_
    ]
    heads = ["candidate", "score ± SE", "z behind", "A", "B", "MI", "accuracy [interval]", "epoch"]
    settings = [
        [*(str(setting[name]) for name in GRID), f"{score:.3f}"] for setting, score in ranks
    ]
    of_seeds = other_seeds(found)
    mean = np.mean([float(row[3]) for row in of_seeds])
    return [
        "# `select` and a grid search, timed",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/selecting.py --out "
        f"docs/results/selecting.md` on {datetime.date.today()}, manyhands "
        f"{manyhands.__version__}; LabelMe (1,000 instances, 2,547 annotations), {JOBS} processes, "
        "wall seconds of a machine with two cores that others used too.",
        "",
        "## `select` over ten methods",
        "",
        f"{FOLDS} folds, default parameters (`select` finds the number of epochs, except of MBEM, "
        f"which looks for it in every fold, and of the stack, which has none): {seconds:.0f} s. "
        f"Another call was killed after {KILLED_AFTER:g} s, with {finished} of its {total} "
        f"trainings finished. Called again with the same folder, it took {rest:.0f} s "
        f"and found {'the same scores' if same else 'OTHER SCORES'}. Accuracy of the choice on the "
        f"test part: {accuracy(data.y_test, found.estimator_.predict(data.X_test)):.3f}.",
        "",
        *table_lines([*heads, "seconds"], rows),
        *([] if found.reason_ is None else [f"Chosen: {found.best_}. {found.reason_}.", ""]),
        *(f"Warning: {text}.\n" for text in found.warnings_),
        f"With other seeds (other folds, other starts), the choice among tied candidates (z ≤ 1) "
        f"varies. Mean accuracy on the test part: {mean:.3f}.",
        "",
        *table_lines(["random_state", "choice", "score", "test accuracy", "tied"], of_seeds),
        "## `GridSearchCV` over twelve settings of CoNAL",
        "",
        f"{FOLDS} folds, `scoring=vote_agreement_scorer`: {searched:.0f} s. Accuracy of the best "
        "setting, refitted, on the test part: "
        f"{accuracy(data.y_test, grid.predict(data.X_test)):.3f}.",
        "",
        *table_lines([*GRID, "vote agreement"], settings)[:-1],
    ]


def main() -> None:
    """Measure, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, help="Markdown file")
    arguments = parser.parse_args()
    text = "\n".join(page()) + "\n"
    if arguments.out is None:
        print(text)
    else:
        write_atomically(arguments.out, text)


if __name__ == "__main__":
    main()
