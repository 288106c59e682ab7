r"""Do posteriors that allow for dependence make better training targets? Six sets, paired seeds.

The rows are those of ``experiments/crowd_models.yaml``, with their data and protocols. "before"
is the posterior with ``dependence=0``, under which the rows of record were run; "after" is the
default, which estimates it.
ICED's own inference is published and fixed; here "after" replaces it for comparison. Nothing is
chosen on test data.

    MANYHANDS_DATA=... OMP_NUM_THREADS=1 python benchmarks/soft_targets.py \
        --records results/benchmarks/soft_targets.jsonl --out docs/results/soft_targets.md

A cell is ``method/set/seed/when``; those in the records are not repeated. Cells may be run at the
same time into files of their own (``--only ICED/music/``); all files that follow ``--records`` are
read, and the first is written to.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any
from unittest import mock

import numpy as np
from pages import run_missing, table_lines, write_part

from evidence.experiments.loading import load_rows
from evidence.running.cells import run_cell
from manyhands import DawidSkene
from manyhands.classifiers.iced.inference import LabelInference

ROOT = Path(__file__).parents[1]
HEADING = "DL-DS and ICED"
"""Part of the page; the part on a method that was removed stays as it is."""
SETS = ("labelme", "music", "sentiment", "product", "colposcopy", "reports")
SEEDS = {"DL-DS, hard targets": 3, "DL-DS, soft targets": 3, "ICED": 2}
"""Number of seeds per method; ICED takes up to a minute per run."""

BEFORE = {"class": "DawidSkene", "params": {"dependence": 0, "accelerate": False, "tol": 1e-5}}
AFTER = {"class": "DawidSkene", "params": {}}
WHEN = ("before", "after")
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


def cells() -> Iterator[tuple[str, str, int, str]]:
    """Yield method, set, seed and which posterior."""
    for method in METHODS:
        for name in SETS:
            for seed in range(SEEDS[method]):
                yield from ((method, name, seed, when) for when in WHEN)


def key_of(cell: Sequence[Any]) -> str:
    """Name of a cell."""
    return "/".join(map(str, cell))


def measure(rows: dict[str, Any], cell: tuple[str, str, int, str]) -> dict[str, Any]:
    """Run one cell; its record."""
    method, name, seed, when = cell
    started = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = accuracy(rows[METHODS[method][0].format(name)], method, when, seed)
    return {
        "cell": key_of(cell),
        "accuracy": found,
        "seconds": round(process_time() - started, 2),
        "date": datetime.date.today().isoformat(),
    }


def lines(records: list[dict[str, Any]]) -> list[str]:
    """Return the part of the page."""
    found = {record["cell"]: record["accuracy"] for record in records}
    dates = sorted({record["date"] for record in records})
    minutes = sum(record["seconds"] for record in records) / 60
    rows = []
    for method in METHODS:
        shown = []
        for name in SETS:
            pairs = [
                [found.get(key_of((method, name, seed, when))) for when in WHEN]
                for seed in range(SEEDS[method])
            ]
            if any(None in pair for pair in pairs):
                shown.append("-")
                continue
            before, after = 100 * np.array(pairs, dtype=float).T
            gap = after - before
            spread = f"{gap.mean():+.1f} ± {gap.std(ddof=1):.1f}"
            shown.append(f"{before.mean():.1f} → {after.mean():.1f} ({spread})")
        rows.append([method, str(SEEDS[method]), *shown])
    return [
        f"{' to '.join(sorted({dates[0], dates[-1]}))}, {minutes:.0f} CPU minutes. Test accuracy "
        "before → after the posterior of Dawid-Skene allows for dependence between annotators, and "
        "the mean paired difference ± sd over the seeds, in points. Data and protocols are those "
        "of [crowd_models](crowd_models.md); the accuracy is that after the last epoch. ICED's "
        "published inference is the one before; the other is tried here only.",
        "",
        *table_lines(["method", "seeds", *SETS], rows),
    ]


def main() -> None:
    """Run what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, nargs="+", required=True, help="lines of JSON")
    parser.add_argument("--out", type=Path, help="Markdown file; default: run cells only")
    parser.add_argument("--only", default="", help="cells whose names contain this")
    arguments = parser.parse_args()
    first, *others = arguments.records
    records = [json.loads(line) for path in others for line in path.open()]
    done = {record["cell"] for record in records}
    rows = {row.id: row for row in load_rows(ROOT / "experiments")}
    planned = [
        (key_of(cell), partial(measure, rows, cell))
        for cell in cells()
        if arguments.only in key_of(cell) and key_of(cell) not in done
    ]
    records += run_missing(first, planned, lambda record: record["cell"])
    if arguments.out:
        write_part(arguments.out, "Posteriors as training targets", HEADING, lines(records))


if __name__ == "__main__":
    main()
