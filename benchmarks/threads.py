"""Whether threads over the shards of `DawidSkene` in memory shorten a fit, and with which shards.

Every fit runs in a process of its own, whose linear algebra has one thread. Wall seconds of two
threads mean little while other programs have the processors: then two threads get twice the share
of one. The load before each fit is recorded for that reason.
"""

from __future__ import annotations

import hashlib
import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import joblib
import numpy as np

from benchmarks.bars import Row, dots
from evidence.pages.quoted import numbers_in, read_rows
from evidence.study import Study, grid, spent
from evidence.tables import Record, days, groups, listing
from manyhands import AnnotationTable, DawidSkene
from manyhands.inference import votes as votes_module

ANNOTATORS, PER_INSTANCE, CLASSES = 1_000, 5, 10
DEFAULT = 0
"""Stands for the size that shards have by default, which grows with the confusion matrices."""

SHARDS = (DEFAULT, 100_000, 25_000)
TURNS = {1_000_000: 5, 10_000_000: 3}


def crowd(n: int) -> AnnotationTable:
    """Make n annotations, five per instance, by a thousand annotators of different skill."""
    rng = np.random.default_rng(0)
    n_instances = n // PER_INSTANCE
    y = rng.integers(CLASSES, size=n_instances)
    instance = np.repeat(np.arange(n_instances, dtype=np.int32), PER_INSTANCE)
    first = np.repeat(rng.integers(ANNOTATORS, size=n_instances), PER_INSTANCE)
    annotator = (first + np.tile(np.arange(PER_INSTANCE) * 197, n_instances)) % ANNOTATORS
    right = rng.random(n) < rng.uniform(0.4, 0.95, ANNOTATORS)[annotator]
    label = np.where(right, y[instance], rng.integers(CLASSES, size=n))
    sizes = {"n_instances": n_instances, "n_annotators": ANNOTATORS, "classes": range(CLASSES)}
    return AnnotationTable.from_arrays(instance, annotator, label, **sizes)


def measure(n: int, shard: int, threads: int, turn: int) -> Record:
    """Fit the default Dawid-Skene, in this process; ``turn`` numbers the repetitions."""
    table = crowd(n)
    DawidSkene().fit(table.select(instances=np.arange(1_000)))  # Modules are loaded.
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        if shard != DEFAULT:
            stack.enter_context(mock.patch.object(votes_module, "grown", return_value=shard))
        stack.enter_context(joblib.parallel_config("threading", n_jobs=threads))
        with spent() as cost:
            model = DawidSkene().fit(table)
        n_shards = len(votes_module.make_votes(table).shards())
    return {
        **cost,
        "load": load,
        "cores": os.cpu_count(),
        "shards": n_shards,
        "n_iter": model.n_iter_,
        "bits": hashlib.sha256(model.posterior_.tobytes()).hexdigest()[:12],
    }


def cells() -> Iterator[Record]:
    """Yield the fits; turns go round all of them, so that a busy hour hits each."""
    for n, turns in TURNS.items():
        yield from grid(turn=range(turns), n=[n], shard=SHARDS, threads=(1, 2))


def _middle(records: Sequence[Record], name: str) -> float:
    return statistics.median(record[name] for record in records)


def _median(records: Sequence[Record], name: str) -> str:
    values = sorted(record[name] for record in records)
    return f"{_middle(records, name):.2f} ({values[0]:.2f} to {values[-1]:.2f})"


def page(records: Sequence[Record]) -> dict[str, Any]:
    """Make the values of the page."""
    by_case = groups(records, "n", "shard", "threads")
    rows = [{"case": case, "records": found} for case, found in by_case.items()]
    same = {
        (n, shard): len({r["bits"] for r in records if (r["n"], r["shard"]) == (n, shard)}) == 1
        for n, shard, _ in by_case
    }
    lines = listing(
        rows,
        {
            "annotations": lambda row: f"{row['case'][0]:,}",
            "shard": lambda row: f"{row['case'][1]:,}" if row["case"][1] else "default",
            "shards": lambda row: row["records"][0]["shards"],
            "threads": lambda row: row["case"][2],
            "CPU s": lambda row: _median(row["records"], "cpu"),
            "wall s": lambda row: _median(row["records"], "wall"),
            "load": lambda row: f"{_middle(row['records'], 'load'):.1f}",
        },
    )
    told = [
        " → ".join(f"{_middle(by_case[n, DEFAULT, k], 'wall'):.2f}" for k in (1, 2))
        + f" s with {n:,} annotations"
        for n in TURNS
        if {(n, DEFAULT, 1), (n, DEFAULT, 2)} <= by_case.keys()
    ]
    return {
        "times": lines,
        "walls": " and ".join(told),
        "bits": "the same" if all(same.values()) else "not the same",
        "date": days(records),
        "cores": records[0]["cores"],
    }


def drawing(page: str) -> str:
    """Draw the wall seconds with one and with two threads."""
    found = groups(read_rows(page, "Threads over shards"), "annotations", "shard")
    kinds = {"2": "two threads", "1": "one thread"}
    rows = []
    for (n, shard), own in found.items():
        of = {row["threads"]: numbers_in(row["wall s"])[0] for row in own}
        figures = {kind: of[k] for k, kind in kinds.items()}
        rows.append(Row(f"{n}, {shard} shards", figures, ours=shard == "default"))
    return dots("Wall seconds of a fit of DawidSkene, median", rows)


STUDY = Study(
    __file__,
    cells=cells,
    measure=measure,
    page=page,
    alone=600.0,
    data=lambda _: [],
    page_drawings=lambda page: {"threads-seconds.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
