"""Verdicts on a paper's claims, from records: paired over seeds, with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from evidence.derived import DERIVED
from evidence.experiments.papers import row_ids
from evidence.records import EPOCH, LAST, ORACLE, SHARES, SHORT, is_share, noted

if TYPE_CHECKING:
    from evidence.experiments.rows import Row
    from evidence.records import Record

HOLDS, FAILS = "holds", "does not hold"
UNDECIDED = "undecided"
EXCLUDES = "undecided, but excludes the paper's figure"
NOT_RUN = "not run"
VERDICTS = (HOLDS, FAILS, UNDECIDED, EXCLUDES, NOT_RUN)
Runs = Mapping[str, Sequence["Record"]]
"""Row id -> its finished records."""


@dataclass(frozen=True)
class Verdict:
    """The result of testing a claim, one of the five words above, and why.

    ``hangs``: whether the mean need only move by one standard error for another verdict.
    """

    verdict: str
    why: str
    hangs: bool = False


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % interval (Student's t) and p-value against 0."""

    mean: float
    low: float
    high: float
    p: float
    n: int

    def ends_near(self, *bounds: float) -> bool:
        """Say whether an end of the interval is within one standard error of a bound."""
        if math.isnan(self.low):
            return False
        error = (self.high - self.mean) / float(stats.t.ppf(0.975, self.n - 1))
        return any(abs(end - bound) < error for end in (self.low, self.high) for bound in bounds)


@dataclass(frozen=True)
class Measure:
    """The quantity that a claim measures of a run.

    Attributes
    ----------
    metric : str
        Accuracy or macro-F1, a measure in ``extra``, or, with ``at``, a column of the history.
    selection : str
        How the epoch was chosen; see `evidence.records.SELECTIONS`.
    at : {"first", "last"}, tuple of str and float, or None
        The first or last row of the history that has a value, or the row where another column has
        this number.
    stage : str or None
        With ``at``: use only rows of this stage of the history.
    """

    metric: str
    selection: str = LAST
    at: str | tuple[str, float] | None = None
    stage: str | None = None

    @classmethod
    def of_sides(cls, test: Mapping[str, Any]) -> tuple[Measure, Measure]:
        """Return the measures of a test for ``better`` (or ``row``) and for ``than``."""
        stage = test.get("stage")
        first = cls(test["metric"], test["selection"], _place(test.get("at")), stage)
        metric, selection = test.get("than_metric"), test.get("than_selection")
        than = (metric or first.metric, selection or first.selection)
        return first, cls(*than, _place(test.get("than_at")) or first.at, stage)

    @property
    def is_share(self) -> bool:
        """Whether it is shown in per cent."""
        return is_share(self.metric)

    @property
    def point(self) -> str:
        """When it was measured, in words."""
        if self.at is None:
            return self.selection
        at = f"{self.at} noted" if isinstance(self.at, str) else f"{self.at[0]} {self.at[1]:g}"
        return at if self.stage is None else f"{at} of stage {self.stage}"

    @property
    def words(self) -> str:
        """The measure in words, with the point in training where this matters."""
        when = self.at is not None or self.metric in SHARES
        return f"{_named(self.metric)}, {self.point}" if when else _named(self.metric)

    def by_seed(self, runs: Sequence[Record]) -> dict[int, float]:
        """Return the measure of every run that has it, by seed."""
        if self.at is None:
            return by_seed(runs, self.metric, self.selection)
        found = {record.seed: self._of_history(record) for record in runs}
        return {seed: value for seed, value in sorted(found.items()) if value is not None}

    def show(self, value: float, signed: bool = False) -> str:
        """Write a value of this measure."""
        return show(self.metric, value, signed, history=True)

    def _of_history(self, record: Record) -> float | None:
        if isinstance(self.at, tuple):
            return noted(record, self.metric, self.at[0], self.stage).get(self.at[1])
        values = list(noted(record, self.metric, stage=self.stage).values())
        return values[0 if self.at == "first" else -1] if values else None


def _place(at: Any) -> str | tuple[str, float] | None:
    """Return a place in the history as it can be compared: {round: 3} as a pair."""
    return next(iter(at.items())) if isinstance(at, Mapping) else at


def measured(record: Record, metric: str, selection: str = LAST) -> float | None:
    """Return a measure of a run: accuracy or macro-F1 at the chosen epoch, or one in ``extra``.

    One that ``extra`` does not have, but what `DERIVED` needs for it, is computed. Any other is
    looked for in the history at the chosen epoch: ``valid_accuracy`` is what chose it on gold
    validation.
    """
    chosen = record.metrics.get(selection, {})
    if metric in SHARES:
        return chosen.get(metric)
    value = record.extra.get(metric)
    if value is None and metric in DERIVED:
        value = DERIVED[metric](record.extra)
    if value is None:
        value = noted(record, metric, EPOCH).get(chosen.get("epoch", 0))
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
        One value per seed, at least two, in the same order.

    Examples
    --------
    >>> found = paired_interval([3.0, 5.0, 4.0], [1.0, 2.0, 3.0])
    >>> found.mean, round(found.low, 3), round(found.high, 3), round(found.p, 3)
    (2.0, -0.484, 4.484, 0.074)
    """
    return mean_interval(np.subtract(first, second))


def mean_interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Mean of at least two runs, its 95 % interval, and the p-value of a true mean of 0.

    If all runs are equal, their spread is unknown: interval and p-value are then NaN.
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
        ``test`` of a claim, with its defaults; see `evidence.experiments.papers`.
    rows : mapping of str to Row
        For the paper's own figures.
    runs : mapping of str to sequence of Record
        Finished runs of every row that has some.

    Returns
    -------
    Verdict
        A comparison *holds* if the whole interval is on the claimed side, and *does not hold* if
        the whole interval is on the other side. Otherwise it is *undecided*; the verdict then says
        if the interval excludes the difference that the paper reports. What has no runs, or cannot
        be run, is *not run*.
    """
    kind = test["kind"]
    if kind == "untestable":
        return Verdict(NOT_RUN, str(test["why"]))
    if kind == "paired":
        return _judge_difference(test, rows, runs)
    if kind == "best":
        return _judge_best(test, rows, runs)
    return _judge_bound(test, runs)


def show(metric: str, value: float, signed: bool = False, *, history: bool = False) -> str:
    """Write a measure, or a column of a history: shares in per cent, others in four digits.

    Examples
    --------
    >>> show("accuracy", 0.8712), show("accuracy", 0.012, signed=True), show("error", 0.12345)
    ('87.12', '+1.20', '0.1235')
    """
    sign = "+" if signed else ""
    share = is_share(metric) if history else metric in SHARES
    return f"{100 * value:{sign}.2f}" if share else f"{value:{sign}.4g}"


def _judge_difference(
    test: Mapping[str, Any], rows: Mapping[str, Row], runs: Runs, rivals: Sequence[str] = ()
) -> Verdict:
    """Compare two sides; ``rivals``: the rows of which ``than`` is the best of ours."""
    measures = Measure.of_sides(test)
    measure = measures[0]
    sides = [row_ids(test["better"]), row_ids(test["than"])]
    values = {
        (name, each): each.by_seed(runs.get(name, ()))
        for side, each in zip(sides, measures, strict=True)
        for name in side
    }
    missing = _without_values(values)
    if missing:
        return Verdict(NOT_RUN, missing)
    seeds = sorted(set.intersection(*(set(found) for found in values.values())))
    if len(seeds) < 2:
        why = f"seeds that all these rows ran with: {len(seeds)}; 2 are needed"
        return Verdict(UNDECIDED if seeds else NOT_RUN, why)
    better, than = (
        [float(np.mean([values[name, each][seed] for name in side])) for seed in seeds]
        for side, each in zip(sides, measures, strict=True)
    )
    by = float(test["by"])
    found = paired_interval(better, than)
    # The p-value belongs to the claim: its null hypothesis is a difference of `by`.
    p = mean_interval(np.subtract(better, than) - by).p
    unit = " points" if measure.is_share else ""
    names, points = (
        " versus ".join(dict.fromkeys(each))
        for each in ([_named(m.metric) for m in measures], [m.point for m in measures])
    )
    head = f"{names}, {points}: {measure.show(found.mean, True)}{unit}"
    paper, excluded = _published_words(sides, rows, measures, found, by, rivals)
    if math.isnan(found.low):
        why = f"{head} with each of {found.n} seeds: no spread to judge by{paper}"
        return Verdict(UNDECIDED, why)
    against = f" against {measure.show(by, True)}" if by else ""
    why = (
        f"{head} (95 % interval {measure.show(found.low, True)} to "
        f"{measure.show(found.high, True)}; {_seeds_of(found.n, sides, rows)}, paired t-test"
        f"{against} p = {p:.2g})"
    )
    hangs = found.ends_near(by)
    if found.low > by:
        return Verdict(HOLDS, why + paper, hangs)
    if found.high <= by:
        return Verdict(FAILS, why + paper, hangs)
    undecided = f"; the interval includes {measure.show(by)}"
    return Verdict(EXCLUDES if excluded else UNDECIDED, why + paper + undecided, hangs)


def _judge_best(test: Mapping[str, Any], rows: Mapping[str, Row], runs: Runs) -> Verdict:
    """Compare with the row with the highest mean; choosing it by the same runs favours it."""
    measure, _ = Measure.of_sides(test)
    values = {
        (name, measure): measure.by_seed(runs.get(name, ())) for name in row_ids(test["than"])
    }
    missing = _without_values(values)
    if missing:
        return Verdict(NOT_RUN, missing)
    common = set.intersection(*(set(found) for found in values.values()))
    if not common:
        return Verdict(NOT_RUN, "no seed that all these rows ran with")
    (best, _), _ = max(
        values.items(), key=lambda found: np.mean([found[1][seed] for seed in sorted(common)])
    )
    # Only the seeds that chose the best compare it: with more of them, another might be the best.
    shared = {
        name: [record for record in found if record.seed in common] for name, found in runs.items()
    }
    rivals = [name for name, _ in values]
    found = _judge_difference({**test, "than": best}, rows, shared, rivals)
    why = f"best of {len(values)}: {_label(best, rows)}; {found.why}"
    return Verdict(found.verdict, why, found.hangs)


def _seeds_of(n: int, sides: Sequence[Sequence[str]], rows: Mapping[str, Row]) -> str:
    """Write the number of seeds, and of how many planned where some are missing."""
    planned = min(
        (len(rows[name].seeds) for side in sides for name in side if name in rows), default=n
    )
    return f"{n} seeds" if n >= planned else f"{n} of {planned} seeds"


def _published_words(
    sides: Sequence[Sequence[str]],
    rows: Mapping[str, Row],
    measures: tuple[Measure, Measure],
    found: Interval,
    by: float,
    rivals: Sequence[str],
) -> tuple[str, bool]:
    """Say what the paper reports of the difference, and return whether it is excluded, too.

    Of the best of several rows, the paper's figure is against the best of those that it prints. If
    it is not above ``by``, the paper's own figures speak against the claim, and that is said.
    """
    metric, selection = measures[0].metric, measures[0].selection
    if measures[0] != measures[1] or measures[0].at is not None:
        # A paper prints one figure per row, for one way to choose the epoch.
        return "", False
    printed = {
        name: figure
        for name in (*sides[0], *sides[1], *rivals)
        if name in rows and (figure := rows[name].published_of(metric))
    }
    than, also = list(sides[1]), ""
    if theirs := [name for name in rivals if name in printed]:
        than = [max(theirs, key=lambda name: printed[name]["value"])]
    if not printed.keys() >= {*sides[0], *than}:
        return "", False

    def difference(side: Sequence[str]) -> str:
        return show(metric, _mean(printed, sides[0]) - _mean(printed, side), True, history=True)

    words = f"; the paper reports {difference(than)}"
    if than != list(sides[1]):
        words += f" against its best, {_label(than[0], rows)}"
        if printed.keys() >= {*sides[1]}:
            also = f" ({difference(sides[1])} against {_label(sides[1][0], rows)})"
    theirs_is = _mean(printed, sides[0]) - _mean(printed, than)
    contrary = "" if theirs_is > by + 1e-9 else ", which is not what is claimed"
    # If the paper does not say, assume the last epoch, as in the tables.
    compared = [printed[name].get("selection") or "" for name in (*sides[0], *than)]
    chosen = {SHORT.get(each, LAST) for each in compared}
    if chosen != {selection}:
        # The paper chose its epoch in another way: quote its figures, do not compare them.
        how = " (oracle)" if ORACLE in chosen else " (epoch chosen in another way)"
        return words + how + contrary + also, False
    inside = math.isnan(found.low) or found.low <= theirs_is <= found.high
    excluded = "" if inside else ", which the interval excludes"
    return words + contrary + excluded + also, not inside


def _mean(printed: Mapping[str, Mapping[str, Any]], side: Sequence[str]) -> float:
    return float(np.mean([printed[name]["value"] for name in side]))


def _label(name: str, rows: Mapping[str, Row]) -> str:
    return rows[name].label if name in rows else name


def _judge_bound(test: Mapping[str, Any], runs: Runs) -> Verdict:
    measure, _ = Measure.of_sides(test)
    row, value, kind = str(test["row"]), float(test["value"]), test["kind"]
    values = measure.by_seed(runs.get(row, ()))
    missing = _without_values({(row, measure): values})
    if missing:
        return Verdict(NOT_RUN, missing)
    numbers = list(values.values())
    unit = " %" if measure.is_share else ""
    bound = f"{kind.replace('_', ' ')} {measure.show(value)}{unit}"
    within = float(test["within"]) if kind == "near" else 0.0
    low = -math.inf if kind == "at_most" else value - within
    high = math.inf if kind == "at_least" else value + within
    bound += f" (± {measure.show(within)})" if within else ""
    head = f"{measure.words}: "
    if test["exact"]:
        if min(numbers) < max(numbers):
            why = f"{head}{len(numbers)} seeds differ, though it is said to be exact"
            return Verdict(UNDECIDED, why)
        why = f"{head}{measure.show(numbers[0])}{unit} against {bound}"
        return Verdict(HOLDS if low <= numbers[0] <= high else FAILS, why)
    if len(numbers) < 2:
        return Verdict(UNDECIDED, "1 seed; 2 are needed")
    found = mean_interval(numbers)
    head += measure.show(found.mean) + unit
    if math.isnan(found.low):
        why = f"{head} with each of {found.n} seeds: no spread to judge by"
        return Verdict(UNDECIDED, why)
    why = (
        f"{head} (95 % interval {measure.show(found.low)} to {measure.show(found.high)}; "
        f"{found.n} seeds) against {bound}"
    )
    hangs = found.ends_near(low, high)
    if low <= found.low and found.high <= high:
        return Verdict(HOLDS, why, hangs)
    return Verdict(FAILS if found.high < low or found.low > high else UNDECIDED, why, hangs)


def _without_values(values: Mapping[tuple[str, Measure], Mapping[int, float]]) -> str:
    """Say which rows lack their measure; "" if none does."""
    lacking: dict[str, list[str]] = {}
    for (name, measure), found in values.items():
        if not found:
            lacking.setdefault(measure.words, []).append(name)
    return "; ".join(
        f"no finished run with {what} of {_listed(names)}" for what, names in lacking.items()
    )


def _listed(names: Sequence[str], shown: int = 3) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _named(metric: str) -> str:
    return {"macro_f1": "macro-F1", "auc": "AUC"}.get(metric, metric.replace("_", " "))
