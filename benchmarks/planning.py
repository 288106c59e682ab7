r"""Which annotations to buy, when to stop, what to review: replay on real tables, and simulations.

    MANYHANDS_DATA=... OMP_NUM_THREADS=1 nice -n 10 python benchmarks/planning.py \
        --records results/benchmarks/planning.jsonl --out docs/results/planning.md

Every cell is written to --records when it ends; started again, the script continues. `--only` runs
some of the parts and writes their sections, `--sets` runs some of their sets, and no cell is
started after `--minutes` (0: only write). `features`, `packages` and `dense` need cleanlab and
scikit-activeml.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from pages import Record, run_missing, write_part
from planning_packages import dense, features, packages, review
from planning_page import (
    Chosen,
    area_table,
    audit_lines,
    chosen,
    each_lines,
    paired,
    review_lines,
    safeguard_lines,
    saved,
    screening_lines,
    speed_lines,
    stops,
    teaching_lines,
)
from planning_parts import Job, confirmation, each, hurts, safeguards, scale, stopping, tables
from planning_people import audit, screening, teaching

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


def cells(
    part: str, n_runs: int, sets: list[str] | None
) -> Iterator[tuple[Any, Callable[[], Record]]]:
    """Yield the cells of a part, with their keys."""
    for name, policy, run, measure in PARTS[part](n_runs):
        if sets is not None and name not in sets:
            continue
        key = {"part": part, "set": name, "policy": policy, "run": run}

        def timed(key: Record = key, measure: Callable[[], Record] = measure) -> Record:
            started = process_time()
            found = measure()
            return key | found | {"seconds": round(process_time() - started, 2)}

        yield tuple(key.values()), timed


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, default=Path("planning.jsonl"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    given = parser.parse_args()
    records: list[Record] = []
    for part in given.only:
        records = run_missing(
            given.records,
            cells(part, given.runs, given.sets),
            lambda record: tuple(record[name] for name in ("part", "set", "policy", "run")),
            given.minutes,
        )
    if given.out:
        write_page(given.out, records, given.only)


# -- the page --------------------------------------------------------------------------------------


def sections(records: list[Record]) -> Iterator[tuple[str, str, Iterator[str]]]:
    """Yield the part that each section of the page needs, its heading and text, and its lines."""
    of = partial(chosen, records)
    yield "tables", PAIRS, area_table(of("tables"), 2.0)
    yield "tables", NEEDED, saved(of("tables"))
    yield "stopping", STOPS, stops(records)
    yield "each", EACH, each_lines(records)
    yield "audit", AUDITS, audit_lines(records)
    yield "confirmation", CONFIRMED, area_table(of("confirmation"), 1.5)
    yield "features", FEATURES, area_table(of("features"), 0.4)
    yield "features", TEST, area_table(of("features"), 0.4, "test")
    yield "packages", PACKAGED, area_table(of("packages"), 0.4)
    yield "dense", DENSE, area_table(of("dense"), 0.4)
    yield "hurts", HURTS, area_table(of("hurts"), 2.0)
    yield "safeguards", GUARDS, safeguard_lines(records)
    yield "scale", SCALE, area_table(of("scale"), 1.5)
    yield "review", REVIEW, review_lines(records)
    yield "screening", SCREENING, screening_lines(records)
    yield "teaching", TEACHING, teaching_lines(records)
    yield "speed", SPEED, speed_lines(records)


def write_page(out: Path, records: list[Record], parts: list[str]) -> None:
    """Write the sections of some parts; the others stay as they are."""
    for part, title, lines in sections(records):
        found = chosen(records, part)
        found = paired(found) if part == "safeguards" else found
        if part not in parts or not found:
            continue
        heading, _, text = title.partition(": ")
        write_part(out, TITLE, heading, [f"{text} {runs_of(found)}.", "", *lines])


def runs_of(found: Chosen) -> str:
    """Say how many runs there are, where there are fewer, and when this was written."""
    most = max(len(runs) for runs in found.values())
    fewer = []
    for k in (0, 1):
        for name in dict.fromkeys(key[k] for key in found):
            n = max(len(runs) for key, runs in found.items() if key[k] == name)
            fewer += [f"{name}: {n}"] if n < most else []
    text = f"{most} run{'s' * (most > 1)}" + (f" ({'; '.join(fewer)})" if fewer else "")
    return f"{text}, {datetime.date.today()}"


TITLE = "What to annotate next, when to stop, what to review: figures"
PAIRS = (
    "Which pair next: Area under label accuracy × 100, mean ± sd over runs, from 2 to 8 "
    "annotations per instance (duck to 12), starting from one each. The warm-up and the minimal "
    "gain were chosen on these tables."
)
NEEDED = (
    "Annotations needed: Annotations per instance from which on the mean curve keeps 99 % of the "
    "accuracy that all annotations give."
)
STOPS = (
    "Stopping: ERE of the pair. Right labels per 100 instances that the batches from 2 to 6 were "
    "expected to add, and added; where the rule stops (gain below .02, after 1.75); by how many "
    "points the model's level is above the accuracy."
)
EACH = (
    "Stopping instance by instance: From two annotations each, every instance that is not sure "
    "gets another, until all are. Accuracy at annotations per instance, and the points gained "
    "over the same number spread evenly."
)
AUDITS = (
    "Audit: Five annotations per instance; 200 audits of 50 random labels in each run. The last "
    "column: share of all wrong labels that are among the surer half, where no plan asks again."
)
CONFIRMED = (
    "Confirmation: Tables on which nothing was chosen, from 1.5 to 5 annotations per instance (or "
    "as far as recorded), starting from one each."
)
FEATURES = (
    "With features, labels: Area under label accuracy × 100, from .4 to 1.8 annotations per "
    "instance. All rows but the first two join a logistic regression, out of fold, which is "
    "trained again at each step; the way of joining was chosen on music and labelme, with gold. "
    "cleanlab 2.9.0 chooses as it comes."
)
TEST = (
    "With features, test: Area under the test accuracy × 100 of a logistic regression that is "
    "trained on these labels."
)
PACKAGED = (
    "Other packages: As above. scikit-activeml 1.0.1 chooses as it comes: its strategies for one "
    "annotator go through its `SingleAnnotatorWrapper`, with random annotators unless said. That "
    "wrapper makes arrays of batch × instances × annotators, too large for sentiment and cifar10n."
)
DENSE = (
    "Where anybody may be asked anything: Simulated: 300 instances of 3 classes with 10 features, "
    "20 annotators of accuracy Beta(6, 2.5), from .4 to 2 annotations per instance. "
    "scikit-activeml's `IntervalEstimationThreshold` takes only instances about which every "
    "annotator may be asked, so it can be run here, but not on recorded tables."
)
HURTS = (
    "Where choosing pairs may hurt: Simulated crowds, area from 2 to 8 annotations per instance."
)
GUARDS = (
    "Safeguards: Two were tried because choosing pairs hurts on web and where annotators tire: a "
    "longer warm-up, and matrices drawn from what is known of them (`explore=True`). A share of "
    "each batch for random pairs and shrinkage towards the crowd were looked at and left. All "
    "were looked at on the first sets, with other starts."
)
SCALE = "Scale: Area from 1.5 to 4 (CIFAR-10H) and 2.5 (CIFAR-10N) annotations per image."
REVIEW = (
    "Review queue: The labels are those of `DawidSkene`; means over music, labelme, sentiment and "
    "cifar10n."
)
SCREENING = (
    "Screening annotators: Annotators with 30 or more annotations of known class, on 14 tables. A "
    "random half of them are newcomers, of whom so many annotations are kept (all: everybody is "
    "judged by everything). The worst tenth by gold, found among as many with the least expected "
    'accuracy; the flag "below the median"; 95 % intervals.'
)
TEACHING = (
    "Teaching: Share of later errors that a sheet of three pairs of classes covers. A random half "
    "of each annotator's annotations is the past, from which the pairs are taken: the annotator's "
    "own confusion matrix times the prior, the crowd's, random pairs, and the three most frequent "
    "later ones. Annotators with three or more later errors. This shows that errors recur, not "
    "that sheets teach."
)
SPEED = (
    "Speed of suggest: 100,000 instances, 1,000 annotators, 10 classes, two annotations each. The "
    "peak is that of the process, which runs all rows one after the other."
)


if __name__ == "__main__":
    main()
