"""The page of `claims.py`: a row per statement, and what misses."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from evidence.study import Record
from evidence.study import table as table_lines

BEFORE, TODAY = "before", "today"

PROBABILITY = "mean probability"
"""What is said of single labels, on average."""

LARGE = 0.05
"""Difference of claim and truth that is counted."""


class Said(NamedTuple):
    """One statement about one table."""

    step: str
    what: str
    table: str
    code: str
    claimed: float | None
    low: float | None
    high: float | None
    true: float
    n: int
    more: Record

    @property
    def gap(self) -> float:
        """Claimed less true."""
        return np.nan if self.claimed is None else self.claimed - self.true

    @property
    def is_inside(self) -> bool | None:
        """Whether the interval holds the truth; None if none was told."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.true <= self.high


FIELDS = ("claimed", "low", "high", "true", "n")


def statements(records: list[Record]) -> list[Said]:
    """All statements with a truth."""
    return [
        Said(r["step"], what, r["table"], r["code"], *(found[f] for f in FIELDS), found)
        for r in records
        for what, found in r["said"].items()
        if what != "flags"
    ]


def of(said: list[Said], **wanted: Any) -> list[Said]:
    """Statements whose fields have given values."""
    return [one for one in said if all(getattr(one, k) == v for k, v in wanted.items())]


def gaps(said: list[Said]) -> np.ndarray:
    """Claimed less true in points, of those that claim something."""
    apart = np.array([100 * one.gap for one in said])
    return apart[np.isfinite(apart)]


def shown(said: list[Said]) -> list[str]:
    """Mean gap with its standard error, and the mean size with the greatest one."""
    apart = gaps(said)
    if not len(apart):
        return ["–", "–"]
    mean = f"{apart.mean():+.1f}"
    if len(apart) > 1:
        mean += f" ± {apart.std(ddof=1) / np.sqrt(len(apart)):.1f}"
    return [mean, f"{np.abs(apart).mean():.1f} ({np.abs(apart).max():.1f})"]


def inside(said: list[Said]) -> str:
    """How often the interval holds the truth."""
    told = [one.is_inside for one in said if one.is_inside is not None]
    if not told:
        return "–"
    text = f"{sum(told)} of {len(told)}"
    return f"**{text}**" if misses_too_often(sum(told), len(told)) else text


def misses_too_often(hits: int, n: int) -> bool:
    """Whether 95 % intervals would miss so often in one of a hundred such rows only."""
    return bool(binom.sf(n - hits - 1, n, 0.05) < 0.01)


HEADS = ["", "tables", "gap before", "size (most)", "gap today", "size (most)", "in the interval"]


def rows_of(said: list[Said], what: str, steps: list[str], title: str = "") -> Iterator[list[str]]:
    """One row per step that has the statement."""
    for step in steps:
        own = of(said, step=step, what=what)
        before, today = (of(own, code=code) for code in (BEFORE, TODAY))
        if not own:
            continue
        silent = sum(one.claimed is None for one in today)
        n = str(len(today)) + (f", {silent} not told" if silent else "")
        cells = [*shown(before), *shown(today), inside(today)]
        yield [(title or "{}").format(step), n, *cells]


def part(said: list[Said], what: str, steps: list[str], title: str = "") -> list[str]:
    """Return a table of a statement."""
    return table_lines(HEADS, rows_of(said, what, steps, title))


def steps_with(said: list[Said], start: str) -> list[str]:
    """Names of the steps that start so, in their order."""
    return [step for step in dict.fromkeys(one.step for one in said) if step.startswith(start)]


def conclusion(said: list[Said]) -> str:
    """What the page shows, in a few sentences."""
    queues = [one for one in said if one.what == "labels" and is_queue(one.step)]
    before, today = (gaps(of(queues, code=code)) for code in (BEFORE, TODAY))
    told = [one for one in of(said, code=TODAY) if one.is_inside is not None]
    hits, n = sum(bool(one.is_inside) for one in told), len(told)
    silent = [
        one for one in of(said, code=TODAY) if one.claimed is None and one.what != PROBABILITY
    ]
    text = (
        "After a review of doubtful labels, the share of right ones among the others was claimed "
        f"to be {before.mean():.1f} points higher than it is, on the mean of tables and queues; "
        f"today the difference is {today.mean():+.1f}. Of {n:,} claims with an interval, {hits:,} "
        f"({100 * hits / n:.0f} %) hold the truth in it. {len(silent)} times nothing is claimed, "
        "because the annotations do not tell: mostly of language models that nobody else checks."
    )
    return "\n".join(wrap(text, 100))


def is_queue(step: str) -> bool:
    """Whether labels were reviewed by doubt alone."""
    return step.startswith("review") and ("queue" in step or "rounds" in step)


def accepted(said: list[Said]) -> list[str]:
    """Accepted labels: how many, how sure, how many of them right."""
    rows = []
    for step in dict.fromkeys(one.step for one in said if one.what == "accepted labels"):
        cells = []
        for code in (BEFORE, TODAY):
            own = of(said, step=step, what="accepted labels", code=code)
            n = np.array([one.n for one in own])
            if not n.sum():
                cells += ["0", "–"]
                continue
            shares = [
                100 * np.average([getattr(one, k) for one in own], weights=n)
                for k in ("claimed", "true")
            ]
            cells += [f"{n.sum():,}", f"{shares[0]:.1f} / {shares[1]:.1f}"]
        rows.append([step, *cells])
    heads = ["", "accepted before", "claimed / true, %", "accepted today", "claimed / true, %"]
    return table_lines(heads, rows)


def single(said: list[Said], step: str = "infer, DawidSkene") -> list[str]:
    """Single labels of each table: how probable they are said to be, and those accepted."""
    rows = []
    for one in of(said, step=step, what=PROBABILITY, code=TODAY):
        cells = [one.table, f"{one.n:,}", _percent(one.claimed), _percent(one.true)]
        for code in (BEFORE, TODAY):
            found = of(said, step=step, what="accepted labels", code=code, table=one.table)
            for each in found[:1]:
                cells += [f"{each.n:,}", f"{_percent(each.claimed)} / {_percent(each.true)}"]
            cells += [] if found else ["0", "–"]
        rows.append(cells)
    heads = ["table", "labels", "mean told, %", "true, %", "accepted before", "claimed / true, %"]
    return table_lines([*heads, "accepted today", "claimed / true, %"], rows)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def flags(records: list[Record]) -> list[str]:
    """Who is flagged, before and today."""
    rows = []
    names = ("annotators", "flagged", "flagged_truly", "flagged_good", "bad", "bad_flagged")
    for code in (BEFORE, TODAY):
        found = [r["said"]["flags"] for r in records if r["code"] == code and "flags" in r["said"]]
        if found:
            rows.append([code, *(f"{sum(each[name] for each in found):,}" for name in names)])
    heads = ["", "annotators with gold", "flagged", "of them truly below .25", "of them above .4"]
    return table_lines([*heads, "truly below .1", "of them flagged"], rows)


def accuracies(said: list[Said]) -> list[str]:
    """Accuracy of annotators: how many of the intervals hold it."""
    rows = []
    for code in (BEFORE, TODAY):
        own = of(said, what="annotators' accuracy", code=code)
        if own:
            n, hits = sum(one.n for one in own), sum(one.more["inside"] for one in own)
            size = sum(one.n * one.more["size"] for one in own) / n
            rows.append([code, str(len(own)), f"{n:,}", *shown(own)[:1], f"{100 * size:.1f}",
                         f"{hits:,} ({100 * hits / n:.0f} %)"])  # fmt: skip
    heads = ["", "tables", "annotators", "gap of a table's mean", "mean size of an annotator's gap"]
    return table_lines([*heads, "in their 95 % interval"], rows)


def judges(said: list[Said]) -> list[str]:
    """Labels of language models: what is said, and the share that another person gives, too."""
    own = [one for one in said if one.step.startswith("judges") and one.what == "labels"]
    names = list(dict.fromkeys(one.table for one in own))
    agree = {one.table: f"{100 * one.more['people_agree']:.0f} %" for one in own}
    rows = []
    for step in dict.fromkeys(one.step for one in own):
        for code in (BEFORE, TODAY):
            found = {one.table: one for one in of(own, step=step, code=code)}
            cells = [
                f"{'–' if one.claimed is None else f'{100 * one.claimed:.0f}'} / "
                f"{100 * one.true:.0f}"
                for one in map(found.get, names)
                if one is not None
            ]
            if cells:
                accepted = sum(one.more["accepted"] for one in found.values())
                rows.append([*step.split(", ")[1:], code, *cells, f"{accepted:,}"])
    heads = [f"{name} (people agree: {agree[name]})" for name in names]
    return table_lines(["models", "people's labels", "", *heads, "accepted"], rows)


def missed(said: list[Said]) -> list[str]:
    """Every statement of today whose interval does not hold the truth."""
    rows = [
        [one.step, one.what, one.table, f"{100 * one.claimed:.1f}",
         f"{100 * one.low:.1f} to {100 * one.high:.1f}", f"{100 * one.true:.1f}", f"{one.n:,}"]
        for one in of(said, code=TODAY)
        if one.is_inside is False
    ]  # fmt: skip
    heads = ["step", "said of", "table", "claimed, %", "interval", "true", "gold labels"]
    return table_lines(heads, rows)


def _train(said: list[Said]) -> list[str]:
    steps = steps_with(said, "train")
    names = ("labels", "labels, 100 gold labels", "new items", "new items, 100 gold labels")
    rows = [row for name in names for row in rows_of(said, name, steps, f"{{}}: {name}")]
    return table_lines(HEADS, rows)


def _buy(said: list[Said]) -> list[str]:
    rows = [
        row
        for name in ("labels", "labels, 50 audited")
        for row in rows_of(said, name, ["buy"], f"at the stop: {name}")
    ]
    return table_lines(HEADS, rows)


def _gain(said: list[Said]) -> list[str]:
    rows = []
    for name in ("gain of what was bought", "gain of the next batch"):
        cells = [name]
        for code in (BEFORE, TODAY):
            own = of(said, step="buy", what=name, code=code)
            means = [np.mean([100 * getattr(one, k) for one in own]) for k in ("claimed", "true")]
            apart = gaps(own)
            cells += [
                f"{means[0]:.1f} / {means[1]:.1f} (± {apart.std(ddof=1) / np.sqrt(len(apart)):.1f})"
                if len(own) > 1 else "–"
            ]  # fmt: skip
        rows.append([cells[0], str(len(own)), *cells[1:]])
    heads = ["right labels per 100 annotations, claimed / true", "tables", "before", "today"]
    return table_lines(heads, rows)


def page(records: list[Record]) -> dict[str, Any]:
    """Return the values of the page."""
    said = statements(records)
    told = [one for one in of(said, code=TODAY) if one.is_inside is not None]
    alone = of(said, step="judges, undeclared, 0", what="labels", code=TODAY)
    before, now = (gaps(of(said, step="buy", what="labels", code=code)) for code in (BEFORE, TODAY))
    return {
        "conclusion": conclusion(said),
        "n_tables": len({one.table for one in said if one.step.startswith("infer")}),
        "n_gold": 100,
        "warned": sum(bool(one.more.get("warned")) for one in alone),
        "n_judged": len(alone),
        "at_stop_before": before.mean(),
        "at_stop": now.mean(),
        "n_missed": len(told) - sum(bool(one.is_inside) for one in told),
        "told": len(told),
        "infer": part(said, "labels", steps_with(said, "infer")),
        "review": part(said, "labels", steps_with(said, "review")),
        "probability": part(
            said, PROBABILITY, [*steps_with(said, "infer"), *steps_with(said, "review")]
        ),
        "single": single(said),
        "train": _train(said),
        "buy": _buy(said),
        "gain": _gain(said),
        "forecast": part(said, "gain", ["forecast"], "further right labels"),
        "judges": judges(said),
        "flags": flags(records),
        "accuracies": accuracies(said),
        "talk": part(said, "mistakes by flagged annotators", ["annotators"]),
        "accepted": accepted(said),
        "missed": missed(said),
    }
