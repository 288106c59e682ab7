"""Do posteriors that allow for dependence make better training targets? Six sets, paired seeds.

The rows are those of ``experiments/crowd_models.yaml``, with their data and protocols. "before"
is the posterior with ``dependence=0``, under which the rows of record were run; "after" is the
default, which estimates it. ICED's own inference is published and fixed; here "after" replaces it
for comparison. Nothing is chosen on test data.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.bars import Bar, bars
from evidence.experiments.loading import load_rows
from evidence.running.cells import run_cell
from evidence.study import ROOT, Study, grid
from evidence.tables import Record, days, groups, spread, table, where
from manyhands import DawidSkene
from manyhands.classifiers.iced.inference import LabelInference

SETS = ("labelme", "music", "sentiment", "product", "colposcopy", "reports")
SEEDS = {"DL-DS, hard targets": 3, "DL-DS, soft targets": 3, "ICED": 2}
"""Number of seeds per method; ICED takes up to a minute per run."""

BEFORE = {"class": "DawidSkene", "params": {"dependence": 0, "accelerate": False, "tol": 1e-5}}
AFTER = {"class": "DawidSkene", "params": {}}
METHODS = {
    "DL-DS, hard targets": ("aggregated/crowd_models_{}_dawid_skene", {"targets": "hard"}),
    "DL-DS, soft targets": ("aggregated/crowd_models_{}_dawid_skene", {"targets": "soft"}),
    "ICED": ("iced/crowd_models_{}", {}),
}


def accuracy(row: Any, method: str, when: str, seed: int) -> float:
    """Test accuracy of one run after its last epoch."""
    estimator = copy.deepcopy(row.estimator)
    estimator["params"].update(METHODS[method][1])
    if method != "ICED":
        estimator["params"]["aggregator"] = BEFORE if when == "before" else AFTER
    published = LabelInference.aggregator

    def dependent(self: LabelInference, n_classes: int) -> DawidSkene:
        return published(self, n_classes).set_params(dependence="auto")

    chosen = dependent if method == "ICED" and when == "after" else published
    with mock.patch.object(LabelInference, "aggregator", chosen):
        record = run_cell(replace(row, estimator=estimator), seed)
    if record.status != "done":
        raise RuntimeError(f"{row.id} seed {seed}: {record.reason}")
    return float(record.metrics["last epoch"]["accuracy"])


@cache
def rows() -> dict[str, Any]:
    """Rows of all experiments."""
    return {row.id: row for row in load_rows(ROOT / "experiments")}


def measure(method: str, set: str, seed: int, when: str) -> Record:
    """Run a row."""
    row = rows()[METHODS[method][0].format(set)]
    return {"accuracy": accuracy(row, method, when, seed)}


WHEN = ("before", "after")


def cells() -> Iterator[Record]:
    """Yield method, set, seed and which posterior."""
    for method, n in SEEDS.items():
        yield from grid(method=[method], set=SETS, seed=range(n), when=WHEN)


def changes(records: list[Record]) -> dict[tuple[str, str], float]:
    """Mean change in points, by method and data set."""
    found = {}
    for pair, own in groups(records, "method", "set").items():
        by = groups(own, "when")
        before, after = ([r["accuracy"] for r in by.get(when, [])] for when in WHEN)
        if len(after) == len(before) == SEEDS[pair[0]]:
            found[pair] = 100 * float(np.mean(after) - np.mean(before))
    return found


def drawing(records: list[Record]) -> str:
    """Draw the sizes of all changes."""
    found = sorted(changes(records).items(), key=lambda pair: -abs(pair[1]))
    rows = [Bar(", ".join(pair), abs(v), f"{v:+.1f}", v > 0) for pair, v in found]
    return bars("Change of the test accuracy in points (blue: better)", rows)


def page(records: list[Record]) -> dict[str, Any]:
    """Accuracy before and after."""

    def shown(method: str, name: str) -> str:
        own = groups(where(records, method=method, set=name), "when")
        before, after = (
            np.array([100 * r["accuracy"] for r in own.get(when, [])]) for when in WHEN
        )
        if len(after) != SEEDS[method]:
            return "-"
        change = spread(after - before, sign=True)
        return f"{before.mean():.1f} → {after.mean():.1f} ({change})"

    rows = [[method, str(n), *(shown(method, s) for s in SETS)] for method, n in SEEDS.items()]
    found = [*changes(records).values()]
    return {
        "n": len(found),
        "mean": float(np.mean(found)),
        "least": min(found),
        "most": max(found),
        "dates": days(records),
        "minutes": sum(record["seconds"] for record in records) / 60,
        "accuracy": table(["method", "seeds", *SETS], rows),
    }


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    drawings=lambda records: {"soft_targets-change.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
