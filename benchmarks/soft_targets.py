r"""Do posteriors that allow for dependence make better training targets? Six sets, paired seeds.

The rows are those of ``experiments/crowd_models.yaml``, with their data and protocols. "before"
is the posterior with ``dependence=0``, under which the rows of record were run; "after" is the
default, which estimates it.
ICED's own inference is published and fixed; here "after" replaces it for comparison. Nothing is
chosen on test data.

    MANYHANDS_DATA=... OMP_NUM_THREADS=1 python benchmarks/soft_targets.py \
        --records soft_targets.json --out docs/results/soft_targets.md

Runs already in the records are kept.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from manyhands import DawidSkene
from manyhands.classifiers.iced.inference import LabelInference
from manyhands.evidence.experiments.loading import load_rows
from manyhands.evidence.running.cells import run_cell
from manyhands.io import write_atomically

ROOT = Path(__file__).parents[1]
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


def page(records: dict[str, float]) -> str:
    """Return the page in Markdown."""
    lines = [
        "# Posteriors as training targets",
        "",
        f"{datetime.date.today()}. Made by `benchmarks/soft_targets.py`: test accuracy before → "
        "after the posterior of Dawid-Skene allows for dependence between annotators, and the mean "
        "paired difference ± sd over the seeds, in points. Data and protocols are those of "
        "[crowd_models](crowd_models.md); the accuracy is that after the last epoch. ICED's "
        "published inference is the one before; the other is tried here only.",
        "",
        "| method | seeds | " + " | ".join(SETS) + " |",
        "|---" * (len(SETS) + 2) + "|",
    ]
    for method in METHODS:
        cells = []
        for name in SETS:
            pairs = [
                [records.get(f"{method}/{name}/{seed}/{when}") for when in ("before", "after")]
                for seed in range(SEEDS[method])
            ]
            if any(None in pair for pair in pairs):
                cells.append("-")
                continue
            before, after = 100 * np.array(pairs, dtype=float).T
            gap = after - before
            spread = f"{gap.mean():+.1f} ± {gap.std(ddof=1):.1f}"
            cells.append(f"{before.mean():.1f} → {after.mean():.1f} ({spread})")
        lines.append(f"| {method} | {SEEDS[method]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    records = json.loads(arguments.records.read_text()) if arguments.records.exists() else {}
    rows = {row.id: row for row in load_rows(ROOT / "experiments")}
    for method, (pattern, _) in METHODS.items():
        for name in SETS:
            for seed in range(SEEDS[method]):
                for when in ("before", "after"):
                    key = f"{method}/{name}/{seed}/{when}"
                    if key in records:
                        continue
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        records[key] = accuracy(rows[pattern.format(name)], method, when, seed)
                    print(key, records[key], flush=True)
                    write_atomically(arguments.records, json.dumps(records, indent=1) + "\n")
                    write_atomically(arguments.out, page(records))
    write_atomically(arguments.out, page(records))


if __name__ == "__main__":
    main()
