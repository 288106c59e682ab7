r"""Which annotations to buy, when to stop, what to review: replay on real tables, and simulations.

    MANYHANDS_DATA=... OMP_NUM_THREADS=1 nice -n 10 python benchmarks/planning.py \
        --records planning.jsonl --out docs/results/planning.md

Every cell is written to --records when it ends; started again, the script continues. `--only` runs
some of the parts. The rows of scikit-activeml and cleanlab among `features` need these packages.
"""

from __future__ import annotations

import argparse
import datetime
import resource
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from pages import Record, run_missing, table_lines
from planning_parts import (
    EIG,
    ENTROPY,
    ERE,
    FEW,
    POLICIES,
    UNIFORM,
    Job,
    curve,
    features,
    hurts,
    review,
    scale,
)

from manyhands import AnnotationPlanner, AnnotationTable, DawidSkene
from manyhands.datasets import load_aggregation
from manyhands.io import write_atomically
from manyhands.planning import replay
from manyhands.planning.beliefs import replace

Plan = AnnotationPlanner
TABLES = ("duck", "d_sentiment", "sp_amt", "cf_amt", "dog", "rte", "temp", "face_sentiment")
OTHERS = ("adult_content", "relevance", "trec", "web", "zencrowd_us", "zencrowd_in", "cf", "sp")
SIZES = (*np.arange(1, 3, 0.25), *np.arange(3, 8.1, 0.5))


@cache
def table_of(name: str) -> tuple[AnnotationTable, np.ndarray]:
    """Annotations without repeated pairs, and gold."""
    data = load_aggregation(name, duplicates="last")
    return data.annotations, data.y_train


@cache
def everything(name: str) -> float:
    """Accuracy with all annotations."""
    table, y = table_of(name)
    return float((DawidSkene().fit(table).labels_ == y)[y >= 0].mean())


def one(name: str, planner: AnnotationPlanner | None, sizes: Any, run: int) -> Record:
    """Replay a policy once."""
    table, y = table_of(name)
    found = replay(table, y, {"it": planner}, batch=sizes, n_runs=1, random_state=run)
    return curve(found, all=everything(name))


def tables(n_runs: int) -> Iterator[Job]:
    """From 1 to 8 annotations per instance (duck 12)."""
    for run in range(n_runs):
        for name in TABLES:
            sizes = (*SIZES, *np.arange(8.5, 12.1, 0.5)) if name == "duck" else SIZES
            for policy, planner in POLICIES.items():
                yield name, policy, run, partial(one, name, planner, sizes, run)


class Untempered(AnnotationPlanner):
    """Takes a new annotation for independent evidence."""

    def fit(self, table: Any, proba: Any = None, gold: Any = None) -> Any:
        """Fit, and forget the dependence."""
        super().fit(table, proba, gold)
        self._beliefs = replace(self._beliefs, rho=0.0)
        return self


STOPPING = {
    "dependence=0": Plan(DawidSkene(dependence=0), criterion="accuracy"),
    "auto, new annotations in full": Untempered(criterion="accuracy"),
}


def stopping(n_runs: int) -> Iterator[Job]:
    """ERE of the pair without dependence, and with annotations that count in full."""
    for run in range(n_runs):
        for name in TABLES:
            for policy, planner in STOPPING.items():
                yield name, policy, run, partial(one, name, planner, SIZES, run)


def confirmation(n_runs: int) -> Iterator[Job]:
    """Tables that no constant was chosen on."""
    for run in range(min(n_runs, 3)):
        for name in OTHERS:
            for policy in ("random", *FEW):
                sizes = np.arange(1, 5.1, 0.5)
                yield name, policy, run, partial(one, name, POLICIES[policy], sizes, run)


# -- speed -----------------------------------------------------------------------------------------


def speed(n_runs: int) -> Iterator[Job]:
    """100,000 instances, 1,000 annotators, 10 classes, two annotations each."""
    for way in ("choose", "arriving", "any"):
        for criterion in ("information", "accuracy", "entropy"):
            for n in (1_000, 25_000):
                yield f"{criterion}, {way}", str(n), 0, partial(suggest, criterion, way, n)


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


def suggest(criterion: str, way: str, n: int) -> Record:
    """Time one suggestion, and read the peak memory of the process."""
    planner = Plan(criterion=criterion, annotators=way, random_state=0).fit(large())
    cpu, wall = process_time(), perf_counter()
    planner.suggest(n)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"cpu": process_time() - cpu, "wall": perf_counter() - wall, "gigabytes": peak}


PARTS = {
    part.__name__: part
    for part in (tables, stopping, hurts, features, review, confirmation, scale, speed)
}


def cells(part: str, n_runs: int) -> Iterator[tuple[Any, Callable[[], Record]]]:
    """Yield the cells of a part, with their keys."""
    for name, policy, run, measure in PARTS[part](n_runs):
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
    given = parser.parse_args()
    records: list[Record] = []
    for part in given.only:
        records = run_missing(
            given.records,
            cells(part, given.runs),
            lambda record: tuple(record[name] for name in ("part", "set", "policy", "run")),
        )
    if given.out:
        write_atomically(given.out, "\n".join(page(records)))


# -- the page --------------------------------------------------------------------------------------

Chosen = dict[tuple[str, str], list[Record]]
"""Records by set and policy."""


def chosen(records: list[Record], part: str) -> Chosen:
    """Group the records of a part."""
    found: Chosen = {}
    for record in records:
        if record["part"] == part:
            found.setdefault((record["set"], record["policy"]), []).append(record)
    return found


def areas(records: list[Record], name: str = "accuracy", low: float = 2.0) -> np.ndarray:
    """Area under each curve from a size on, by the range of sizes, times 100."""
    values = []
    for record in records:
        sizes, curve = np.array(record["sizes"]), np.array(record[name])
        kept = sizes >= low - 1e-9
        values.append(np.trapezoid(curve[kept], sizes[kept]) / np.ptp(sizes[kept]))
    return 100 * np.array(values)


def spread(values: np.ndarray) -> str:
    """Mean and standard deviation over runs."""
    mean = f"{values.mean():.1f}"
    return f"{mean} ± {values.std(ddof=1):.1f}" if len(values) > 1 else mean


def area_table(found: Chosen, low: float, name: str = "accuracy") -> Iterator[str]:
    """Yield a table of areas, policies by sets."""
    sets, policies = (list(dict.fromkeys(key[k] for key in found)) for k in (0, 1))
    rows = []
    for policy in policies:
        cells = [areas(found[s, policy], name, low) if (s, policy) in found else None for s in sets]
        known = [each.mean() for each in cells if each is not None]
        mean = f"{np.mean(known):.1f}" if len(known) == len(sets) else ""
        rows.append([policy, *("" if each is None else spread(each) for each in cells), mean])
    yield from table_lines(["policy", *sets, "mean"], rows)


def reached(records: list[Record], share: float = 0.99) -> str:
    """Size from which on the mean curve keeps a share of what all annotations give."""
    mean = np.mean([record["accuracy"] for record in records], axis=0)
    below = np.flatnonzero(mean < share * records[0]["all"] - 1e-9)
    first = below[-1] + 1 if len(below) else 0
    sizes = records[0]["sizes"]
    return f"{sizes[first]:g}" if first < len(sizes) else f"not by {sizes[-1]:g}"


def saved(found: Chosen) -> Iterator[str]:
    """Yield the table of annotations needed."""
    policies = (UNIFORM, ENTROPY, EIG, ERE)
    rows = []
    for name in dict.fromkeys(key[0] for key in found):
        table = table_of(name)[0]
        per_instance = f"{table.n_annotations / table.n_instances:.1f}"
        all_of_them = f"{100 * everything(name):.1f}"
        cells = [reached(found[name, p]) if (name, p) in found else "" for p in policies]
        rows.append([name, per_instance, all_of_them, *cells])
    yield from table_lines(["set", "recorded", "accuracy with all", *policies], rows)


def stop_rows(name: str, records: list[Record]) -> list[str]:
    """Gain expected and true, where the rule stops, and how honest the level is."""
    sizes = np.array(records[0]["sizes"])
    between = (sizes > 2) & (sizes <= 6)
    step = np.diff(sizes, prepend=sizes[0])
    expected, true, size, there, last, level = [], [], [], [], [], []
    for record in records:
        accuracy, gain = np.array(record["accuracy"]), np.array(record["gain"])
        expected.append((gain * step)[between].sum())
        true.append(accuracy[between][-1] - accuracy[np.flatnonzero(between)[0] - 1])
        later = np.flatnonzero((sizes[:-1] >= 1.75) & (gain[1:] < 0.02))
        stop = later[0] if len(later) else len(sizes) - 1
        size.append(sizes[stop])
        there.append(accuracy[stop])
        last.append(accuracy[-1])
        at = int(np.argmin(abs(sizes - 5)))
        level.append(record["expected"][at] - accuracy[at])
    return [
        name, f"{100 * np.mean(expected):.1f}", f"{100 * np.mean(true):.1f}",
        f"{np.mean(size):.1f}", f"{np.mean(there):.3f} of {np.mean(last):.3f}",
        f"{100 * np.mean(level):+.1f}",
    ]  # fmt: skip


def stops(records: list[Record]) -> Iterator[str]:
    """Yield the table of stopping."""
    found = chosen(records, "stopping")
    tempered = {(s, "auto"): each for (s, p), each in chosen(records, "tables").items() if p == ERE}
    heading = ["set", "expected gain 2 to 6", "true gain", "stops at", "accuracy there, and at 8",
               "level minus accuracy at 5"]  # fmt: skip
    for policy, cells in (("auto", tempered), *((name, found) for name in STOPPING)):
        rows = [stop_rows(s, each) for (s, p), each in cells.items() if p == policy]
        if rows:
            yield f"**{policy}**"
            yield ""
            yield from table_lines(heading, rows)


def review_lines(records: list[Record]) -> Iterator[str]:
    """Yield the tables of review queues: means over sets of the means over runs."""
    found = chosen(records, "review")
    for by in ("label", "annotation"):
        rows = []
        keys = [key for each in found.values() for key in each[0]["rankings"]]
        names = dict.fromkeys(key.split("|")[0] for key in keys)
        for ranking in names:
            cells = [ranking]
            for kept in ("all", "two"):
                values = [
                    np.mean([record["rankings"][f"{ranking}|{by}"] for record in each], axis=0)
                    for (_, k), each in found.items()
                    if k == kept
                ]
                cells.append(" / ".join(f"{v:.2f}" for v in np.mean(values, axis=0)))
            rows.append(cells)
        yield f"Wrong {by}s: AP / precision at 50 / at 100."
        yield ""
        yield from table_lines(["ranking", "all annotations", "two per instance"], rows)


def speed_lines(records: list[Record]) -> Iterator[str]:
    """Yield the table of speed."""
    rows = [
        [key[0], f"{int(key[1]):,}", f"{each[0]['cpu']:.1f}", f"{each[0]['gigabytes']:.2f}"]
        for key, each in chosen(records, "speed").items()
    ]
    yield from table_lines(["criterion, annotators", "pairs", "CPU seconds", "peak GB"], rows)


def page(records: list[Record]) -> Iterator[str]:
    """Yield the lines of the page."""
    runs: dict[str, int] = {}
    for record in records:
        runs[record["part"]] = max(runs.get(record["part"], 0), record["run"] + 1)
    counts = ", ".join(f"{name} {n}" for name, n in runs.items())
    minutes = sum(record["seconds"] for record in records) / 60
    yield "# What to annotate next, when to stop, what to review: figures"
    yield ""
    yield (
        f"Written by `benchmarks/planning.py` ({datetime.date.today()}). Runs of each part, with "
        f"other random starts: {counts}. {minutes:.0f} CPU minutes. [How to use the "
        "planner](../planning.md)."
    )
    for title, lines in (
        (TITLES[0], area_table(chosen(records, "tables"), 2.0)),
        (TITLES[1], saved(chosen(records, "tables"))),
        (TITLES[2], stops(records)),
        (TITLES[3], area_table(chosen(records, "confirmation"), 1.5)),
        (TITLES[4], area_table(chosen(records, "features"), 0.4)),
        (TITLES[5], area_table(chosen(records, "features"), 0.4, "test")),
        (TITLES[6], area_table(chosen(records, "hurts"), 2.0)),
        (TITLES[7], area_table(chosen(records, "scale"), 1.5)),
        (TITLES[8], review_lines(records)),
        (TITLES[9], speed_lines(records)),
    ):
        yield ""
        heading, _, text = title.partition(": ")
        yield f"## {heading}"
        yield ""
        yield text
        yield ""
        yield from lines


TITLES = (
    "Which pair next: Area under label accuracy × 100, mean ± sd over runs, from 2 to 8 "
    "annotations per instance (duck to 12), starting from one each. The warm-up and the minimal "
    "gain were chosen on these tables.",
    "Annotations needed: Annotations per instance from which on the mean curve keeps 99 % of the "
    "accuracy that all annotations give.",
    "Stopping: ERE of the pair. Right labels per 100 instances that the batches from 2 to 6 were "
    "expected to add, and added; where the rule stops (gain below .02, after 1.75); by how many "
    "points the model's level is above the accuracy.",
    "Confirmation: Tables on which nothing was chosen, from 1.5 to 5 annotations per instance (or "
    "as far as recorded), starting from one each.",
    "With features, labels: Area under label accuracy × 100, from .4 to 1.8 annotations per "
    "instance. All rows but the first two join a logistic regression, out of fold, which is "
    "trained again at each step; the way of joining was chosen on music and labelme, with gold. "
    "sentiment has two runs. cleanlab 2.9.0 and scikit-activeml 1.0.1 choose as they come; "
    "scikit-activeml's `IntervalEstimationThreshold` cannot be replayed, because it takes only "
    "instances that every annotator may be asked about.",
    "With features, test: Area under the test accuracy × 100 of a logistic regression that is "
    "trained on these labels.",
    "Where choosing pairs may hurt: Simulated crowds, area from 2 to 8 annotations per instance.",
    "Scale: CIFAR-10H, area from 1.5 to 4 annotations per image.",
    "Review queue: The labels are those of `DawidSkene`; means over music, labelme, sentiment and "
    "cifar10n.",
    "Speed of suggest: 100,000 instances, 1,000 annotators, 10 classes, two annotations each. The "
    "peak is that of the process, which runs all rows one after the other.",
)


if __name__ == "__main__":
    main()
