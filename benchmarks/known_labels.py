"""Known labels of a review queue and random ones: what is claimed of the rest, and what is true.

A person reviews some labels of a table, and the table is fitted again with them. Of the labels that
nobody reviewed, the mean probability (claimed) is compared with the share that is right (true), on
all tables with gold (``MANYHANDS_DATA``). "Before" takes all known labels for a random sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.bars import Row, dots
from benchmarks.real_tables import TABLES, Labelled, real
from evidence.scores import scores
from evidence.study import Study, grid
from evidence.tables import Record, groups, mean, table, where, with_error
from manyhands import DawidSkene, GoldCorrected
from manyhands.typing import FloatArray, IntArray

NAMES = {"claimed": "claimed", "true": "accuracy", "log_loss": "log_loss"}
LARGE_GAP = 0.05
"""Difference of claimed and true accuracy that is counted."""

SEEDS = {"random": 3, "half random": 3, "half random, marked": 3}
"""Draws to average; of a queue there is one."""

METHODS: dict[str, Callable[..., Any]] = {"DawidSkene": DawidSkene, "GoldCorrected": GoldCorrected}
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


def names() -> list[str]:
    """All tables with gold."""
    return [*TABLES, "sentiment 600", "judgebench", "polit6", "polit6e"]


def problem(name: str) -> Labelled:
    """A table with gold; families are declared to be none."""
    found = real(name)
    return found._replace(table=found.table.with_groups({}))


def fitted(model: Any, given: Labelled, rows: IntArray, random_rows: Any = None) -> Any:
    """Fit with the true classes of some instances."""
    gold = np.full(given.table.n_instances, None, dtype=object)
    gold[rows] = given.table.classes[given.gold[rows]]
    mask = None
    if random_rows is not None:
        mask = np.zeros(given.table.n_instances, dtype=bool)
        mask[random_rows] = True
    return model.fit(given.table, gold=gold if len(rows) else None, random_gold=mask)


def most_doubtful(posterior: FloatArray, among: IntArray, n: int) -> IntArray:
    """The queue of a review: rows with the lowest probability of their label."""
    return among[np.argsort(np.round(posterior[among].max(axis=1), 12), kind="stable")[:n]]


def reviewed(
    given: Labelled, make: Callable[[], Any], way: str, n: int, seed: int
) -> tuple[IntArray, IntArray | None]:
    """Rows that a person reviews, and which of them are marked as drawn at random."""
    rng = np.random.default_rng(seed)
    among = given.judged
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


def claimed_and_true(model: Any, given: Labelled, rows: IntArray) -> dict[str, float]:
    """Mean probability, accuracy and log loss of the labels that nobody reviewed."""
    rest = np.setdiff1d(given.judged, rows)
    found = scores(model.posterior_[rest], given.gold[rest])
    return {key: found[name] for key, name in NAMES.items()}


# -- the page --------------------------------------------------------------------------------------


def by_table(records: list[Record], **wanted: Any) -> dict[str, dict[str, float]]:
    """Means over the draws, of each table."""
    known = [r for r in where(records, **wanted) if r["claimed"] is not None]
    means = {}
    for name, rows in groups(known, "set").items():
        found = {key: mean(rows, key) for key in ("rho", "claimed", "true", "log_loss")}
        chosen = float(np.mean([r["kind"] == "chosen" for r in rows]))
        means[name] = found | {"gap": found["claimed"] - found["true"], "chosen": chosen}
    return means


def change(before: Any, now: Any) -> str:
    """Means before and now, and the paired difference with its standard error over tables."""
    ends = " → ".join(f"{100 * each.mean():+.1f}" for each in (before, now))
    return f"{ends} ({with_error(100 * (now - before))})"


def summary(records: list[Record]) -> Iterator[list[str]]:
    """Yield a row per way of choosing the known labels."""
    for method, way, n in WAYS:
        now = by_table(records, method=method, way=way, n=n, code="now")
        before = by_table(records, method=method, way=way, n=n, code="before")
        if way == "none":
            before = now
        names = [name for name in now if name in before]
        if not names:
            continue
        pairs = {
            key: [np.array([found[name][key] for name in names]) for found in (before, now)]
            for key in ("gap", "rho", "log_loss", "chosen")
        }
        shown = {
            "rho": [f"{each.mean():.2f}" for each in pairs["rho"]],
            "gap": [f"{100 * each.mean():+.1f}" for each in pairs["gap"]],
            "size": [f"{100 * np.abs(each).mean():.1f}" for each in pairs["gap"]],
            "large": [str(int((each > LARGE_GAP).sum())) for each in pairs["gap"]],
            "loss": [f"{each.mean():.3f}" for each in pairs["log_loss"]],
        }
        if way == "none":
            yield [f"{method}, nothing known ({len(now)})", *(c[1] for c in shown.values()), ""]
            continue
        row = {name: " → ".join(each) for name, each in shown.items()}
        row["gap"] = change(*pairs["gap"])
        chosen = f"{pairs['chosen'][1].mean():.0%}"
        yield [f"{method}, {way} {n} ({len(names)})", *row.values(), chosen]


def drawing(records: list[Record]) -> str:
    """Draw how far claims are off after a review, with each way of choosing what is reviewed."""
    rows = []
    for method, way, n in WAYS:
        if method == "DawidSkene" and n:
            found = {
                code: by_table(records, method=method, way=way, n=n, code=code)
                for code in ("now", "before")
            }
            names = [name for name in found["now"] if name in found["before"]]
            gaps = {
                code: 100 * float(np.mean([own[name]["gap"] for name in names]))
                for code, own in found.items()
            }
            rows.append(Row(f"{way}, {n} labels", gaps))
    title = "Claimed less true share of right labels, in points (0: the claim is true)"
    return dots(title, rows, target=0)


def page(records: list[Record]) -> dict[str, Any]:
    """All ways of choosing, and a queue of 50 on every table."""
    none = by_table(records, method="DawidSkene", way="none", n=0)
    ways = [("queue", "before"), ("queue", "now"), ("random", "now")]
    found = [by_table(records, method="DawidSkene", n=50, way=w, code=code) for w, code in ways]
    shown = [none, *found]
    rows = [
        [name, *(f"{100 * each[name]['gap']:+.1f}" if name in each else "" for each in shown)]
        for name in found[1]
    ]
    heads = ["known labels (tables)", "rho", "gap", "mean size of the gap", "over 5 points"]
    names = ["table", "nothing known", *(f"{way} 50, {code}" for way, code in ways)]
    return {
        "ways": table([*heads, "log loss", "told to be chosen"], summary(records)),
        "tables": table(names, rows),
    }


def cells() -> Iterator[Record]:
    """Yield what is measured: of each table, the ways that leave half of its gold unreviewed."""
    for name, (method, way, n) in product(names(), WAYS):
        codes = ("now",) if way == "none" else ("before", "now")
        seeds = range(SEEDS.get(way, 1))
        yield from grid(set=[name], method=[method], way=[way], n=[n], seed=seeds, code=codes)


def measure(set: str, method: str, way: str, n: int, seed: int, code: str) -> Record:
    """Review and fit again."""
    given = problem(set)
    if 2 * n > len(given.judged):
        return {"claimed": None}
    make = partial(METHODS[method], gold_sample="random" if code == "before" else "auto")
    rows, drawn = reviewed(given, make, way, n, seed)
    model = fitted(make(), given, rows, None if code == "before" else drawn)
    found = {"rho": model.dependence_, "kind": model.gold_sample_, "p": model.gold_p_value_}
    return found | claimed_and_true(model, given, rows)


STUDY = Study(
    __file__,
    cells,
    measure,
    page,
    drawings=lambda records: {"known_labels-gap.svg": drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
