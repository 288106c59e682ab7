"""Known labels of a review queue and random ones: what is claimed of the rest, and what is true.

A person reviews some labels of a table, and the table is fitted again with them. Of the labels that
nobody reviewed, the mean probability (claimed) is compared with the share that is right (true), on
all tables with gold (``MANYHANDS_DATA``):

    OMP_NUM_THREADS=1 python benchmarks/known_labels.py

It adds records to results/benchmarks/known_labels.jsonl and writes docs/results/known_labels.md. A
killed run goes on where it stopped. "Before" takes all known labels for a random sample.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from aggregation import LOADERS, load
from collapse import judgebench, ordinal
from pages import Record, run_missing, table_lines, write_part

from manyhands import AnnotationTable, DawidSkene, GoldCorrected
from manyhands.datasets import AGGREGATION_SETS
from manyhands.typing import FloatArray, IntArray

ROOT = Path(__file__).parents[1]
LARGE_GAP = 0.05
"""Difference of claimed and true accuracy that is counted."""

SEEDS = {"random": 3, "half random": 3, "half random, marked": 3}
"""Draws to average; of a queue there is one."""

METHODS: dict[str, Callable[..., Any]] = {
    "DawidSkene": DawidSkene,
    "GoldCorrected": GoldCorrected,
}
WAYS: tuple[tuple[str, str, int], ...] = (
    ("DawidSkene", "none", 0),
    *(("DawidSkene", "queue", n) for n in (10, 25, 50, 100)),
    ("DawidSkene", "4 rounds", 100),
    ("DawidSkene", "half random", 50),
    ("DawidSkene", "half random, marked", 50),
    *(("DawidSkene", "random", n) for n in (25, 50, 100)),
    ("GoldCorrected", "queue", 50),
    ("GoldCorrected", "random", 50),
)
"""Method, how the known labels were chosen, and how many."""


@dataclass(frozen=True)
class Problem:
    """A table, and the codes of the true classes, -1 where unknown."""

    table: AnnotationTable
    y: IntArray

    @property
    def gold_rows(self) -> IntArray:
        """Annotated instances whose class is known."""
        return np.flatnonzero((self.y >= 0) & (self.table.annotations_per_instance() > 0))


def names() -> list[str]:
    """All tables with gold."""
    return [*AGGREGATION_SETS, *LOADERS, "sentiment 600", "judgebench", "polit6", "polit6e"]


@cache
def problem(name: str) -> Problem:
    """A table with gold; families are declared to be none."""
    if name == "judgebench":
        table, y = judgebench()
    elif name in ("polit6", "polit6e"):
        table, y = ordinal(name)
    elif name == "sentiment 600":
        whole = problem("sentiment")
        rows = np.sort(np.random.default_rng(0).choice(len(whole.y), 600, replace=False))
        table, y = whole.table[rows], whole.y[rows]
    else:
        task = load(name)
        table, y = task.table, np.full(task.table.n_instances, -1)
        y[task.known] = codes_of(task.gold, table.classes)
    return Problem(table.with_groups({}), y)


def codes_of(gold: Any, classes: Any) -> IntArray:
    """Codes of class values; -1 for values that are no class."""
    place = {value: code for code, value in enumerate(classes.tolist())}
    return np.array([place.get(value, -1) for value in gold.tolist()])


def fitted(model: Any, given: Problem, rows: IntArray, random_rows: Any = None) -> Any:
    """Fit with the true classes of some instances."""
    gold = np.full(given.table.n_instances, None, dtype=object)
    gold[rows] = given.table.classes[given.y[rows]]
    mask = None
    if random_rows is not None:
        mask = np.zeros(given.table.n_instances, dtype=bool)
        mask[random_rows] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(given.table, gold=gold if len(rows) else None, random_gold=mask)


def most_doubtful(posterior: FloatArray, among: IntArray, n: int) -> IntArray:
    """The queue of a review: rows with the lowest probability of their label."""
    return among[np.argsort(np.round(posterior[among].max(axis=1), 12), kind="stable")[:n]]


def reviewed(
    given: Problem, make: Callable[[], Any], way: str, n: int, seed: int
) -> tuple[IntArray, IntArray | None]:
    """Rows that a person reviews, and which of them are marked as drawn at random."""
    rng = np.random.default_rng(seed)
    among = given.gold_rows
    if way == "none":
        return among[:0], None
    if way == "random":
        return rng.choice(among, n, replace=False), None
    start = fitted(DawidSkene(), given, among[:0])
    if way == "queue":
        return most_doubtful(start.posterior_, among, n), None
    if way == "4 rounds":
        rows = most_doubtful(start.posterior_, among, n // 4)
        for _ in range(3):
            posterior = fitted(make(), given, rows).posterior_
            rest = np.setdiff1d(among, rows)
            rows = np.concatenate([rows, most_doubtful(posterior, rest, n // 4)])
        return rows, None
    queue = most_doubtful(start.posterior_, among, n // 2)
    drawn = rng.choice(np.setdiff1d(among, queue), n - n // 2, replace=False)
    return np.concatenate([queue, drawn]), drawn if way.endswith("marked") else None


def claimed_and_true(model: Any, given: Problem, rows: IntArray) -> dict[str, float]:
    """Mean probability, accuracy and log loss of the labels that nobody reviewed."""
    rest = np.setdiff1d(given.gold_rows, rows)
    posterior, y = model.posterior_[rest], given.y[rest]
    return {
        "claimed": float(posterior.max(axis=1).mean()),
        "true": float((posterior.argmax(axis=1) == y).mean()),
        "log_loss": float(-np.log(np.maximum(posterior[np.arange(len(y)), y], 1e-12)).mean()),
    }


def cells() -> Iterator[tuple[Any, Callable[[], Record]]]:
    """Yield what is measured: of each table, the ways that leave half of its gold unreviewed."""
    for name in names():
        for method, way, n in WAYS:
            for seed in range(SEEDS.get(way, 1)):
                for code in ("now",) if way == "none" else ("before", "now"):
                    key = (name, method, way, n, seed, code)
                    yield key, partial(measure, *key)


def measure(name: str, method: str, way: str, n: int, seed: int, code: str) -> Record:
    """Review and fit again."""
    given = problem(name)
    record: Record = {"set": name, "method": method, "way": way, "n": n, "seed": seed, "code": code}
    if 2 * n > len(given.gold_rows):
        return record | {"claimed": None}
    sample = "random" if code == "before" else "auto"
    make = partial(METHODS[method], gold_sample=sample)
    rows, drawn = reviewed(given, make, way, n, seed)
    model = fitted(make(), given, rows, None if code == "before" else drawn)
    found = {"rho": model.dependence_, "kind": model.gold_sample_, "p": model.gold_p_value_}
    return record | found | claimed_and_true(model, given, rows)


# -- the page --------------------------------------------------------------------------------------


def by_table(records: list[Record], **wanted: Any) -> dict[str, dict[str, float]]:
    """Means over the draws, of each table."""
    found: dict[str, list[Record]] = {}
    for r in records:
        if r["claimed"] is not None and all(r[key] == value for key, value in wanted.items()):
            found.setdefault(r["set"], []).append(r)
    means = {}
    for name, rows in found.items():
        mean = {
            key: float(np.mean([r[key] for r in rows]))
            for key in ("rho", "claimed", "true", "log_loss")
        }
        chosen = float(np.mean([r["kind"] == "chosen" for r in rows]))
        means[name] = mean | {"gap": mean["claimed"] - mean["true"], "chosen": chosen}
    return means


def change(before: list[float], now: list[float], digits: int = 1, factor: float = 100) -> str:
    """Means before and now, and the paired difference with its standard error over tables."""
    differences = factor * (np.array(now) - np.array(before))
    se = differences.std(ddof=1) / np.sqrt(len(differences))
    ends = (f"{factor * np.mean(each):+.{digits}f}" for each in (before, now))
    return f"{' → '.join(ends)} ({differences.mean():+.{digits}f} ± {se:.{digits}f})"


def summary_lines(records: list[Record]) -> list[str]:
    """One row per way of choosing the known labels."""
    rows = []
    for method, way, n in WAYS:
        now = by_table(records, method=method, way=way, n=n, code="now")
        if way == "none":
            gaps = np.array([each["gap"] for each in now.values()])
            means = [np.mean([each[key] for each in now.values()]) for key in ("rho", "log_loss")]
            cells = [f"{100 * gaps.mean():+.1f}", f"{100 * np.abs(gaps).mean():.1f}"]
            cells += [str(int((gaps > LARGE_GAP).sum())), f"{means[1]:.3f}", ""]
            rows.append([f"{method}, nothing known ({len(now)})", f"{means[0]:.2f}", *cells])
            continue
        before = by_table(records, method=method, way=way, n=n, code="before")
        tables = [name for name in now if name in before]
        if not tables:
            continue

        def values(
            found: dict[str, dict[str, float]], key: str, names: Any = tables
        ) -> list[float]:
            return [found[name][key] for name in names]

        gaps = [np.array(values(found, "gap")) for found in (before, now)]
        size = [np.abs(each).mean() for each in gaps]
        rows.append([
            f"{method}, {way} {n} ({len(tables)})",
            " → ".join(f"{np.mean(values(found, 'rho')):.2f}" for found in (before, now)),
            change(values(before, "gap"), values(now, "gap")),
            " → ".join(f"{100 * each:.1f}" for each in size),
            " → ".join(str(int((each > LARGE_GAP).sum())) for each in gaps),
            " → ".join(f"{np.mean(values(found, 'log_loss')):.3f}" for found in (before, now)),
            f"{np.mean(values(now, 'chosen')):.0%}",
        ])  # fmt: skip
    heads = ["known labels (tables)", "rho", "gap", "mean size of the gap", "over 5 points"]
    return table_lines([*heads, "log loss", "told to be chosen"], rows)


def table_by_table(records: list[Record], n: int = 50) -> list[str]:
    """A queue of 50 on every table."""
    rows = []
    wanted = {"method": "DawidSkene", "n": n}
    none = by_table(records, method="DawidSkene", way="none", n=0)
    ways = [("queue", "before"), ("queue", "now"), ("random", "now")]
    found = [by_table(records, way=way, code=code, **wanted) for way, code in ways]
    for name in found[1]:
        cells = [f"{100 * each[name]['gap']:+.1f}" if name in each else "" for each in found]
        rows.append([name, f"{100 * none[name]['gap']:+.1f}", *cells])
    heads = ["table", "nothing known", *(f"{way} {n}, {code}" for way, code in ways)]
    return table_lines(heads, rows)


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--records", type=Path, default=ROOT / "results" / "benchmarks" / "known_labels.jsonl"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "known_labels.md")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    given = parser.parse_args()
    keys = ("set", "method", "way", "n", "seed", "code")
    records = run_missing(
        given.records, cells(), lambda r: tuple(r[key] for key in keys), given.minutes
    )
    title = "Known labels of a queue, and random ones"
    write_part(given.out, title, "All tables", [
        "Gap: claimed minus true accuracy of the labels that nobody reviewed, in points; positive "
        "is too sure. Arrows: before → now, with the mean paired difference ± its standard error "
        "over tables. A queue holds the labels that `DawidSkene()` doubts most; of four rounds, "
        "each has the 25 that the fit with those before doubts most; half random: 25 of the queue "
        "and 25 drawn from the rest, marked as such in the last row of the two. Random: mean of "
        "three draws.",
        "", *summary_lines(records),
    ])  # fmt: skip
    write_part(given.out, title, "Table by table", [
        "Gap of `DawidSkene` in points.", "", *table_by_table(records),
    ])  # fmt: skip
    write_part(given.out, title, "How this was made", [
        f"{date.today().isoformat()}. Tables of which fewer than twice the known labels have gold "
        "are left out of a row.",
        "", "    OMP_NUM_THREADS=1 python benchmarks/known_labels.py",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
