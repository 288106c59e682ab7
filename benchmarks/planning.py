"""Replay which annotations to buy, when to stop and what to review, on real and simulated tables.

A cell is a run of a policy on a table; ``--seeds 3`` makes three runs. `features`, `packages` and
`dense` need cleanlab and scikit-activeml.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from benchmarks import planning_packages, planning_parts, planning_people
from benchmarks.planning_page import drawing, page
from evidence.study import Part, Record, grid, of_parts, spent
from manyhands import AnnotationPlanner, AnnotationTable

LIMITED: dict[str, dict[str, Any]] = {
    "choose, load=2": {"load": 2.0},
    "choose, explore": {"explore": True},
    "choose, a mask of 30 % of the pairs": {"masked": True},
    "arriving, all three of these": {
        "annotators": "arriving", "load": 2.0, "explore": True, "masked": True,
    },
}  # fmt: skip
"""Options that are timed with the information of the pair."""

TIMED: dict[str, dict[str, Any]] = {
    f"{criterion}, {way}": {"criterion": criterion, "annotators": way}
    for way in ("choose", "arriving", "any")
    for criterion in ("information", "accuracy", "entropy", "fewest")
}


def of_speed(runs: range) -> Iterator[Record]:
    """100,000 instances, 1,000 annotators, 10 classes, two annotations each."""
    yield from grid(set=TIMED, policy=("1000", "25000"), run=[0])
    yield from grid(set=[f"information, {what}" for what in LIMITED], policy=["25000"], run=[0])


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


def suggest(set: str, policy: str, run: int) -> Record:
    """Time one suggestion, and read the peak memory of the process and the machine's load."""
    default = {"criterion": "information", "annotators": "choose", "load": None, "explore": False}
    options = default | (TIMED.get(set) or LIMITED[set.partition(", ")[2]])
    masked = options.pop("masked", False)
    planner = fitted().set_params(**options)
    pairs = np.random.default_rng(0).random((100_000, 1_000), np.float32) < 0.3 if masked else None
    with spent() as cost:
        planner.suggest(int(policy), pairs)
    about = {"load": os.getloadavg()[0], "cores": os.cpu_count()}
    return {"cpu": cost["cpu"], "wall": cost["wall"], "gigabytes": cost["peak"] / 1e3, **about}


PARTS = {
    **planning_parts.PARTS,
    **planning_people.PARTS,
    **planning_packages.PARTS,
    "speed": Part(suggest, cells=of_speed),
}

STUDY = of_parts(
    __file__,
    PARTS,
    page,
    seeds=range(10),
    drawings=lambda records: {"planning-saved.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
