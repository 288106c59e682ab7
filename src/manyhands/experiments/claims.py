"""Verdicts on a paper's claims, from records: paired over seeds, with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from manyhands.experiments.papers import row_ids
from manyhands.experiments.records import LAST

if TYPE_CHECKING:
    from manyhands.experiments.records import Record
    from manyhands.experiments.rows import Row

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be tested"
SHARES = ("accuracy", "macro_f1")
"""Measures of a protocol, shown in per cent; others are a row's own, shown as they are."""

Runs = Mapping[str, Sequence["Record"]]
"""Row id -> its finished records."""


@dataclass(frozen=True)
class Verdict:
    """What becomes of a claim: ``verdict`` (holds, does not hold, cannot be tested) and why."""

    verdict: str
    why: str


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % interval (Student's t) and p-value against 0."""

    mean: float
    low: float
    high: float
    p: float
    n: int


def measured(record: Record, metric: str, selection: str = LAST) -> float | None:
    """Return a measure of a run: accuracy or macro-F1 of a protocol, else one of ``extra``."""
    if metric in SHARES:
        return record.metrics.get(selection, {}).get(metric)
    value = record.extra.get(metric)
    return value if isinstance(value, int | float) else None


def by_seed(runs: Sequence[Record], metric: str, selection: str = LAST) -> dict[int, float]:
    """Return a measure of every run that has it, by seed."""
    found = {record.seed: measured(record, metric, selection) for record in runs}
    return {seed: value for seed, value in sorted(found.items()) if value is not None}


def paired_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Mean difference of paired runs, its 95 % interval and two-sided p-value.

    Parameters
    ----------
    first, second : sequence of float
        One value a seed, at least two, in the same order.

    Examples
    --------
    >>> found = paired_interval([3.0, 5.0, 4.0], [1.0, 2.0, 3.0])
    >>> found.mean, round(found.low, 3), round(found.high, 3), round(found.p, 3)
    (2.0, -0.484, 4.484, 0.074)
    """
    return mean_interval(np.subtract(first, second))


def mean_interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Mean of at least two runs, its 95 % interval, and the p-value of a true mean of 0."""
    n, mean = len(values), float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    half = float(stats.t.ppf(0.975, n - 1)) * error
    p = float(2 * stats.t.sf(abs(mean) / error, n - 1)) if error > 0 else math.nan
    return Interval(mean, mean - half, mean + half, p, n)


def judge(test: Mapping[str, Any], rows: Mapping[str, Row], runs: Runs) -> Verdict:
    """Test a claim of a paper's file on the records.

    Parameters
    ----------
    test : mapping
        ``test`` of a claim, with its defaults; see `manyhands.experiments.papers`.
    rows : mapping of str to Row
        For the paper's own figures.
    runs : mapping of str to sequence of Record
        Finished runs of every row that has some.

    Returns
    -------
    Verdict
        A comparison *holds* where the whole interval is on the claimed side, *does not hold* where
        it excludes the claim (or the difference that the paper reports), and else *cannot be
        tested* by so few seeds.
    """
    kind = test["kind"]
    if kind == "untestable":
        return Verdict(OPEN, str(test["why"]))
    if kind == "paired":
        return _judge_difference(test, rows, runs)
    return _judge_bound(test, rows, runs)


def show(metric: str, value: float, signed: bool = False) -> str:
    """Write a measure: shares in per cent, others in four digits.

    Examples
    --------
    >>> show("accuracy", 0.8712), show("accuracy", 0.012, signed=True), show("error", 0.12345)
    ('87.12', '+1.20', '0.1235')
    """
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.2f}" if metric in SHARES else f"{value:{sign}.4g}"


def _judge_difference(test: Mapping[str, Any], rows: Mapping[str, Row], runs: Runs) -> Verdict:
    metric, selection = test["metric"], test["selection"]
    sides = [row_ids(test["better"]), row_ids(test["than"])]
    values = {
        name: by_seed(runs.get(name, ()), metric, selection) for side in sides for name in side
    }
    missing = _without_values(values, metric, selection)
    if missing:
        return Verdict(OPEN, missing)
    seeds = sorted(set.intersection(*(set(found) for found in values.values())))
    if len(seeds) < 2:
        return Verdict(OPEN, f"seeds that all these rows ran with: {len(seeds)}; 2 are needed")
    better, than = (
        [float(np.mean([values[name][seed] for name in side])) for seed in seeds] for side in sides
    )
    found = paired_interval(better, than)
    by, theirs = float(test["by"]), _published_difference(sides, rows, metric)
    verdict, reason = _compare(found, by, theirs, metric)
    unit = " points" if metric in SHARES else ""
    p = "" if math.isnan(found.p) else f", paired t-test p = {found.p:.2g}"
    why = (
        f"{_named(metric)}, {selection}: {show(metric, found.mean, True)}{unit} (95 % interval "
        f"{show(metric, found.low, True)} to {show(metric, found.high, True)}; {found.n} seeds{p})"
    )
    paper = "" if theirs is None else f"; the paper reports {show(metric, theirs, True)}"
    return Verdict(verdict, why + paper + reason)


def _compare(found: Interval, by: float, theirs: float | None, metric: str) -> tuple[str, str]:
    if found.low > by:
        smaller = theirs is not None and found.high < theirs
        return HOLDS, "; ours is smaller" if smaller else ""
    if found.high <= by:
        return FAILS, ""
    if theirs is not None and theirs > by and found.high < theirs:
        return FAILS, f", which the interval excludes; it does not exclude {show(metric, by)}"
    return OPEN, f"; so few seeds do not tell it from {show(metric, by)}"


def _judge_bound(test: Mapping[str, Any], rows: Mapping[str, Row], runs: Runs) -> Verdict:
    metric, selection = test["metric"], test["selection"]
    row, bound = str(test["row"]), float(test["value"])
    values = {row: by_seed(runs.get(row, ()), metric, selection)}
    missing = _without_values(values, metric, selection)
    if missing:
        return Verdict(OPEN, missing)
    numbers = list(values[row].values())
    # A row of one seed says that nothing about it is random.
    fixed = row in rows and len(rows[row].seeds) == 1
    if len(numbers) < 2 and not fixed:
        return Verdict(OPEN, "1 seed; 2 are needed")
    found = _fixed(numbers[0]) if fixed else mean_interval(numbers)
    where = f", {selection}" if metric in SHARES else ""
    why = (
        f"{_named(metric)}{where}: {show(metric, found.mean)}{_spread(found, metric)} against "
        f"{test['kind'].replace('_', ' ')} {show(metric, bound)}"
    )
    inside, outside = found.high <= bound, found.low > bound
    if test["kind"] == "at_least":
        inside, outside = found.low >= bound, found.high < bound
    return Verdict(HOLDS if inside else FAILS if outside else OPEN, why)


def _fixed(value: float) -> Interval:
    return Interval(value, value, value, math.nan, 1)


def _spread(found: Interval, metric: str) -> str:
    if found.n == 1:
        return ""
    low, high = show(metric, found.low), show(metric, found.high)
    return f" (95 % interval {low} to {high}; {found.n} seeds)"


def _without_values(values: Mapping[str, Mapping[int, float]], metric: str, selection: str) -> str:
    """Say which rows lack the measure; "" if none does."""
    empty = [name for name, found in values.items() if not found]
    what = f"{_named(metric)}, {selection}" if metric in SHARES else _named(metric)
    return f"no finished run with {what} of {_listed(empty)}" if empty else ""


def _listed(names: Sequence[str], shown: int = 3) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _published_difference(
    sides: Sequence[Sequence[str]], rows: Mapping[str, Row], metric: str
) -> float | None:
    means = []
    for side in sides:
        published = [rows[name].published for name in side if name in rows]
        figures = [p["value"] for p in published if p and p["metric"] == metric]
        if len(figures) < len(side):
            return None
        means.append(float(np.mean(figures)))
    return means[0] - means[1]


def _named(metric: str) -> str:
    return {"macro_f1": "macro-F1"}.get(metric, metric.replace("_", " "))
