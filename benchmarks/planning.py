"""Which annotations to buy, when to stop, what to review: replay on real tables, and simulations.

A cell is a run of a policy on a table; ``--seeds 3`` makes three runs. `features`, `packages` and
`dense` need cleanlab and scikit-activeml.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from functools import cache, partial
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.planning_packages import dense, features, packages, review
from benchmarks.planning_page import page
from benchmarks.planning_parts import (
    Job,
    confirmation,
    each,
    hurts,
    safeguards,
    scale,
    stopping,
    tables,
)
from benchmarks.planning_people import audit, screening, teaching
from evidence.study import Record, Study
from manyhands import AnnotationPlanner, AnnotationTable


def speed(n_runs: int) -> Iterator[Job]:
    """100,000 instances, 1,000 annotators, 10 classes, two annotations each."""
    for way in ("choose", "arriving", "any"):
        for criterion in ("information", "accuracy", "entropy", "fewest"):
            for n in (1_000, 25_000):
                yield f"{criterion}, {way}", str(n), 0, partial(suggest, n, criterion, way)
    for what, options in LIMITED.items():
        yield f"information, {what}", "25000", 0, partial(suggest, 25_000, **options)


LIMITED: dict[str, dict[str, Any]] = {
    "choose, load=2": {"load": 2.0},
    "choose, explore": {"explore": True},
    "choose, a mask of 30 % of the pairs": {"masked": True},
    "arriving, all three of these": {
        "way": "arriving", "load": 2.0, "explore": True, "masked": True,
    },
}  # fmt: skip
"""Options that are timed with the information of the pair."""


@cache
def fitted() -> AnnotationPlanner:
    """Fit once; criteria and ways matter to suggestions only."""
    return AnnotationPlanner(random_state=0).fit(large())


@cache
def large() -> AnnotationTable:
    """Make the table."""
    rng = np.random.default_rng(0)
    n, r, c = 100_000, 1_000, 10
    y, accuracy = rng.integers(c, size=n), rng.beta(6, 2.5, r)
    who = np.stack([rng.integers(0, 500, n), rng.integers(500, 1000, n)], axis=1)
    right = rng.random((n, 2)) < accuracy[who]
    label = np.where(right, y[:, None], rng.integers(c, size=(n, 2)))
    i = np.repeat(np.arange(n), 2)
    return AnnotationTable.from_arrays(
        i, who.ravel(), label.ravel(), n_instances=n, n_annotators=r, classes=range(c)
    )


def suggest(
    n: int,
    criterion: str = "information",
    way: str = "choose",
    *,
    masked: bool = False,
    load: float | None = None,
    explore: bool = False,
) -> Record:
    """Time one suggestion, and read the peak memory of the process and the machine's load."""
    planner = fitted().set_params(criterion=criterion, annotators=way, load=load, explore=explore)
    pairs = np.random.default_rng(0).random((100_000, 1_000), np.float32) < 0.3 if masked else None
    cpu, wall = process_time(), perf_counter()
    planner.suggest(n, pairs)
    cpu, wall = process_time() - cpu, perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    load, cores = os.getloadavg()[0], os.cpu_count()
    return {"cpu": cpu, "wall": wall, "gigabytes": peak, "load": load, "cores": cores}


PARTS = {
    part.__name__: part
    for part in (
        tables, stopping, each, audit, hurts, safeguards, features, packages, dense, review,
        confirmation, scale, screening, teaching, speed,
    )
}  # fmt: skip


RUNS = range(10)


@cache
def jobs(part: str) -> dict[tuple[str, str, int], Callable[[], Record]]:
    """What measures each cell of a part."""
    made = PARTS[part](len(RUNS))
    return {(name, policy, run): measured for name, policy, run, measured in made}


def cells(part: str, runs: range) -> Iterator[Record]:
    """Yield the cells of a part."""
    for name, policy, run, _ in PARTS[part](len(runs)):
        yield {"part": part, "set": name, "policy": policy, "run": run}


def measure(part: str, set: str, policy: str, run: int) -> Record:
    """Measure a cell."""
    return jobs(part)[set, policy, run]()


STUDY = Study(
    __file__,
    {part: partial(cells, part) for part in PARTS},
    measure,
    page,
    seeds=RUNS,
    data=lambda cell: [cell["set"], f"aggregation/{cell['set']}"],
)


if __name__ == "__main__":
    STUDY.main()
