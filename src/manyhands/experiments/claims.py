"""Verdicts on a paper's claims, from records: paired over seeds, with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from manyhands.experiments.papers import row_ids
from manyhands.experiments.records import LAST, ORACLE, SHARES, SHORT

if TYPE_CHECKING:
    from manyhands.experiments.records import Record
    from manyhands.experiments.rows import Row

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be tested"
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
    """Mean of at least two runs, its 95 % interval, and the p-value of a true mean of 0.

    Runs that are all equal say nothing of their spread: interval and p-value are then NaN.
    """
    n, mean = len(values), float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    if np.allclose(values, values[0], rtol=0, atol=1e-12):
        return Interval(mean, math.nan, math.nan, math.nan, n)
    half = float(stats.t.ppf(0.975, n - 1)) * error
    p = float(2 * stats.t.sf(abs(mean) / error, n - 1))
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
        the whole is on the other, and else *cannot be tested* by so few seeds.
    """
    kind = test["kind"]
    if kind == "untestable":
        return Verdict(OPEN, str(test["why"]))
    if kind == "paired":
        return _judge_difference(test, rows, runs)
    return _judge_bound(test, runs)


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
    by = float(test["by"])
    found = paired_interval(better, than)
    # The p-value is that of the claim: of a difference other than `by`.
    p = mean_interval(np.subtract(better, than) - by).p
    unit = " points" if metric in SHARES else ""
    head = f"{_named(metric)}, {selection}: {show(metric, found.mean, True)}{unit}"
    paper = _published_words(sides, rows, metric, selection, found)
    if math.isnan(found.low):
        return Verdict(OPEN, f"{head} with each of {found.n} seeds: no spread to judge by{paper}")
    against = f" against {show(metric, by, True)}" if by else ""
    why = (
        f"{head} (95 % interval {show(metric, found.low, True)} to "
        f"{show(metric, found.high, True)}; {_seeds_of(found.n, sides, rows)}, paired t-test"
        f"{against} p = {p:.2g})"
    )
    if found.low > by:
        return Verdict(HOLDS, why + paper)
    if found.high <= by:
        return Verdict(FAILS, why + paper)
    undecided = f"; this does not tell it from {show(metric, by)}"
    return Verdict(OPEN, why + paper + undecided)


def _seeds_of(n: int, sides: Sequence[Sequence[str]], rows: Mapping[str, Row]) -> str:
    """Write the number of seeds, and of how many planned where some are missing."""
    planned = min(
        (len(rows[name].seeds) for side in sides for name in side if name in rows), default=n
    )
    return f"{n} seeds" if n >= planned else f"{n} of {planned} seeds"


def _published_words(
    sides: Sequence[Sequence[str]],
    rows: Mapping[str, Row],
    metric: str,
    selection: str,
    found: Interval,
) -> str:
    """Say what the paper reports of the difference, and whether the interval excludes it."""
    means, chosen = [], set()
    for side in sides:
        published = [rows[name].published for name in side if name in rows]
        figures = [p for p in published if p and p["metric"] == metric]
        if len(figures) < len(side):
            return ""
        means.append(float(np.mean([p["value"] for p in figures])))
        # Where a paper does not say, the last epoch, as in the tables.
        chosen |= {SHORT.get(p.get("selection") or "", LAST) for p in figures}
    theirs = means[0] - means[1]
    words = f"; the paper reports {show(metric, theirs, True)}"
    if chosen != {selection}:
        # Its figures are of another kind: quoted, not compared.
        return words + (" (oracle)" if ORACLE in chosen else " (epoch chosen in another way)")
    inside = math.isnan(found.low) or found.low <= theirs <= found.high
    return words + ("" if inside else ", which the interval excludes")


def _judge_bound(test: Mapping[str, Any], runs: Runs) -> Verdict:
    metric, selection = test["metric"], test["selection"]
    row, value, kind = str(test["row"]), float(test["value"]), test["kind"]
    values = {row: by_seed(runs.get(row, ()), metric, selection)}
    missing = _without_values(values, metric, selection)
    if missing:
        return Verdict(OPEN, missing)
    numbers = list(values[row].values())
    bound = f"{kind.replace('_', ' ')} {show(metric, value)}"
    within = float(test["within"]) if kind == "near" else 0.0
    low = -math.inf if kind == "at_most" else value - within
    high = math.inf if kind == "at_least" else value + within
    bound += f" (± {show(metric, within)})" if within else ""
    head = f"{_named(metric)}{f', {selection}' if metric in SHARES else ''}: "
    if test["exact"]:
        if min(numbers) < max(numbers):
            return Verdict(
                OPEN, f"{head}{len(numbers)} seeds differ, though it is said to be exact"
            )
        why = f"{head}{show(metric, numbers[0])} against {bound}"
        return Verdict(HOLDS if low <= numbers[0] <= high else FAILS, why)
    if len(numbers) < 2:
        return Verdict(OPEN, "1 seed; 2 are needed")
    found = mean_interval(numbers)
    head += show(metric, found.mean)
    if math.isnan(found.low):
        return Verdict(OPEN, f"{head} with each of {found.n} seeds: no spread to judge by")
    why = (
        f"{head} (95 % interval {show(metric, found.low)} to {show(metric, found.high)}; "
        f"{found.n} seeds) against {bound}"
    )
    if low <= found.low and found.high <= high:
        return Verdict(HOLDS, why)
    return Verdict(FAILS if found.high < low or found.low > high else OPEN, why)


def _without_values(values: Mapping[str, Mapping[int, float]], metric: str, selection: str) -> str:
    """Say which rows lack the measure; "" if none does."""
    empty = [name for name, found in values.items() if not found]
    what = f"{_named(metric)}, {selection}" if metric in SHARES else _named(metric)
    return f"no finished run with {what} of {_listed(empty)}" if empty else ""


def _listed(names: Sequence[str], shown: int = 3) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _named(metric: str) -> str:
    return {"macro_f1": "macro-F1"}.get(metric, metric.replace("_", " "))
