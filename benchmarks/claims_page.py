"""The page of `claims.py`: a row per statement, and what misses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.bars import Row, dots
from evidence.tables import Record, crossed, groups, listing, standard_error, table, where

BEFORE, TODAY = "before", "today"
CODES = (BEFORE, TODAY)

PROBABILITY = "mean probability"
"""What is said of single labels, on average."""

GOLD_ALONE, GOLD_AND_MODEL = "accepted by gold alone", "accepted by gold and model"
"""What is accepted if probabilities follow a few gold labels, or also the model's expectation."""

Said = list[Record]


def statements(records: list[Record]) -> Said:
    """All statements with a truth: what was claimed, in percent, and whether the interval holds."""
    found = []
    for r in records:
        for what, said in r["said"].items():
            if what != "flags":
                numbers = {k: None if said[k] is None else 100 * said[k] for k in NUMBERS}
                told = said["low"] is not None and said["high"] is not None
                inside = said["low"] <= said["true"] <= said["high"] if told else None
                gap = np.nan if said["claimed"] is None else 100 * (said["claimed"] - said["true"])
                about = {"step": r["step"], "table": r["table"], "code": r["code"], "what": what}
                found.append({**said, **about, **numbers, "gap": gap, "holds": inside})
    return found


NUMBERS = ("claimed", "low", "high", "true")


def gaps(said: Said) -> np.ndarray:
    """Claimed less true in points, of those that claim something."""
    apart = np.array([one["gap"] for one in said])
    return apart[np.isfinite(apart)]


def shown(said: Said) -> list[str]:
    """Mean gap with its standard error, and the mean size with the greatest one."""
    apart = gaps(said)
    if not len(apart):
        return ["–", "–"]
    error = f" ± {standard_error(apart):.1f}" if len(apart) > 1 else ""
    size = np.abs(apart)
    return [f"{apart.mean():+.1f}{error}", f"{size.mean():.1f} ({size.max():.1f})"]


def told(said: Said) -> list[bool]:
    """Return for each stated interval whether it holds the truth."""
    return [one["holds"] for one in said if one["holds"] is not None]


def inside(said: Said) -> str:
    """Write how often intervals hold; bold if such a row would be one of a hundred at 95 %."""
    hits, n = sum(told(said)), len(told(said))
    if not n:
        return "–"
    text = f"{hits} of {n}"
    return f"**{text}**" if binom.sf(n - hits - 1, n, 0.05) < 0.01 else text


def drawing(records: list[Record]) -> str:
    """Draw, for each table, the share of right labels that is claimed, and the true one."""
    own = where(statements(records), step="infer, DawidSkene", what="labels", code=TODAY)
    known = sorted((s for s in own if s["claimed"] is not None), key=lambda s: -s["true"])
    rows = [
        Row(s["table"], {"claimed": s["claimed"], "true": s["true"]}, (s["low"], s["high"]))
        for s in known
    ]
    return dots("Right labels in percent: the claim with its 95 % interval, and the truth", rows)


HEADS = ["", "tables", "gap before", "size (most)", "gap today", "size (most)", "in the interval"]


def rows_of(said: Said, what: str, steps: Iterable[str], title: str = "{}") -> Iterator[list[str]]:
    """One row per step that has the statement."""
    for step in steps:
        if own := where(said, step=step, what=what):
            before, today = (where(own, code=code) for code in CODES)
            silent = sum(one["claimed"] is None for one in today)
            n = str(len(today)) + (f", {silent} not told" if silent else "")
            yield [title.format(step), n, *shown(before), *shown(today), inside(today)]


def part(said: Said, whats: str | Sequence[str], start: str, title: str = "{}") -> list[str]:
    """Return a table of some statements after the steps that start so."""
    names = [whats] if isinstance(whats, str) else whats
    steps = [step for step in dict.fromkeys(one["step"] for one in said) if step.startswith(start)]
    rows = (row for w in names for row in rows_of(said, w, steps, title.replace("WHAT", w)))
    return table(HEADS, rows)


def conclusion(said: Said) -> dict[str, Any]:
    """Figures of what the page shows."""
    queues = [
        one
        for one in where(said, what="labels")
        if one["step"].startswith("review") and ("queue" in one["step"] or "rounds" in one["step"])
    ]
    today = where(said, code=TODAY)
    unsaid = (PROBABILITY, GOLD_ALONE, GOLD_AND_MODEL)
    silent = [one for one in today if one["claimed"] is None and one["what"] not in unsaid]
    hits, n = sum(told(today)), len(told(today))
    return {
        "gap_before": gaps(where(queues, code=BEFORE)).mean(),
        "gap_today": gaps(where(queues, code=TODAY)).mean(),
        "told": n,
        "n_hits": hits,
        "share": 100 * hits / n,
        "n_missed": n - hits,
        "n_silent": len(silent),
    }


def accepted_of(own: Said) -> list[str]:
    """Write how many labels are accepted, how sure, and how many of them are right."""
    n = [one["n"] for one in own]
    if not sum(n):
        return ["0", "–"]
    shares = [np.average([one[k] for one in own], weights=n) for k in ("claimed", "true")]
    return [f"{sum(n):,}", f"{shares[0]:.1f} / {shares[1]:.1f}"]


ACCEPTED = ["accepted before", "claimed / true, %", "accepted today", "claimed / true, %"]


def accepted(said: Said) -> list[str]:
    """Accepted labels by step."""
    steps = groups(where(said, what="accepted labels"), "step")
    rows = [
        [step, *(text for code in CODES for text in accepted_of(where(own, code=code)))]
        for step, own in steps.items()
    ]
    return table(["", *ACCEPTED], rows)


def by_gold(said: Said) -> list[str]:
    """Accepted labels by the number of gold labels, over all tables and draws."""
    rows = []
    for step, own in groups(
        [one for one in said if one["step"].startswith("gold ")], "step"
    ).items():
        for what in (GOLD_ALONE, GOLD_AND_MODEL):
            found = [one for one in where(own, what=what) if one["n"]]
            far, draws = (sum(one[name] for one in found) for name in ("far", "draws"))
            share = f"{far} of {draws} ({far / draws:.0%})" if draws else "–"
            rows.append(
                [step.split()[1], what.removeprefix("accepted by "), *accepted_of(found), share]
            )
    heads = ["gold labels", "probabilities follow", "accepted", "claimed / true, %"]
    return table([*heads, "draws with a claim over 2 points too high"], rows)


def single(said: Said, step: str = "infer, DawidSkene") -> list[str]:
    """Single labels of each table: how probable they are said to be, and those accepted."""
    rows = []
    for one in where(said, step=step, what=PROBABILITY, code=TODAY):
        own = where(said, step=step, what="accepted labels", table=one["table"])
        cells = [text for code in CODES for text in accepted_of(where(own, code=code))]
        rows.append([one["table"], f"{one['n']:,}", *map(_percent, (one["claimed"], one["true"]))])
        rows[-1] += cells
    return table(["table", "labels", "mean told, %", "true, %", *ACCEPTED], rows)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1f}"


def flags(records: list[Record]) -> list[str]:
    """Who is flagged, before and today."""
    names = {
        "annotators": "annotators with gold",
        "flagged": "flagged",
        "flagged_truly": "of them truly below .25",
        "flagged_good": "of them above .4",
        "bad": "truly below .1",
        "bad_flagged": "of them flagged",
    }
    found = groups((r for r in records if "flags" in r["said"]), "code")

    def total(code: str, name: str) -> str:
        return f"{sum(r['said']['flags'][name] for r in found[code]):,}"

    return crossed("", [code for code in CODES if code in found], names, total)


def accuracies(said: Said) -> list[str]:
    """Accuracy of annotators: how many of the intervals hold it."""
    found = groups(where(said, what="annotators' accuracy"), "code")
    rows = []
    for code in (code for code in CODES if code in found):
        own = found[code]
        n, hits = sum(one["n"] for one in own), sum(one["inside"] for one in own)
        size = 100 * sum(one["n"] * one["size"] for one in own) / n
        rows.append([code, str(len(own)), f"{n:,}", shown(own)[0], f"{size:.1f}",
                     f"{hits:,} ({100 * hits / n:.0f} %)"])  # fmt: skip
    heads = ["", "tables", "annotators", "gap of a table's mean", "mean size of an annotator's gap"]
    return table([*heads, "in their 95 % interval"], rows)


def judges(said: Said) -> list[str]:
    """Labels of language models: what is said, and the share that another person gives, too."""
    own = [one for one in where(said, what="labels") if one["step"].startswith("judges")]
    agree = {one["table"]: f"{100 * one['people_agree']:.0f} %" for one in own}
    rows = []
    for step, code in ((s, c) for s in groups(own, "step") for c in CODES):
        found = {one["table"]: one for one in where(own, step=step, code=code)}
        cells = [
            f"{'–' if one['claimed'] is None else format(one['claimed'], '.0f')} / "
            f"{one['true']:.0f}"
            for one in (found[name] for name in agree if name in found)
        ]
        if cells:
            n = sum(one["accepted"] for one in found.values())
            rows.append([*step.split(", ")[1:], code, *cells, f"{n:,}"])
    heads = [f"{name} (people agree: {share})" for name, share in agree.items()]
    return table(["models", "people's labels", "", *heads, "accepted"], rows)


def missed(said: Said) -> list[str]:
    """Every statement of today whose interval does not hold the truth."""
    return listing(where(said, code=TODAY, holds=False), {
        "step": "{step}",
        "said of": "{what}",
        "table": "{table}",
        "claimed, %": "{claimed:.1f}",
        "interval": "{low:.1f} to {high:.1f}",
        "true": "{true:.1f}",
        "gold labels": "{n:,}",
    })  # fmt: skip


def gain(said: Said) -> list[str]:
    """Right labels that annotations are expected to add, and add."""

    def each(own: Said) -> str:
        if len(own) < 2:
            return "–"
        claimed, true = (np.mean([one[k] for one in own]) for k in ("claimed", "true"))
        return f"{claimed:.1f} / {true:.1f} (± {standard_error(gaps(own)):.1f})"

    rows = []
    for name in ("gain of what was bought", "gain of the next batch"):
        own = [where(said, step="buy", what=name, code=code) for code in CODES]
        rows.append([name, str(len(own[-1])), *map(each, own)])
    heads = ["right labels per 100 annotations, claimed / true", "tables", *CODES]
    return table(heads, rows)


def page(records: list[Record]) -> dict[str, Any]:
    """Return the values of the page."""
    said = statements(records)
    alone = where(said, step="judges, undeclared, 0", what="labels", code=TODAY)
    at_stop = [gaps(where(said, step="buy", what="labels", code=code)) for code in CODES]
    new = ("labels", "labels, 100 gold labels", "new items", "new items, 100 gold labels")
    infer, review = (part(said, PROBABILITY, start)[:-1] for start in ("infer", "review"))
    return {
        **conclusion(said),
        "n_tables": len({one["table"] for one in said if one["step"].startswith("infer")}),
        "n_gold": 100,
        "warned": sum(bool(one.get("warned")) for one in alone),
        "n_judged": len(alone),
        "at_stop_before": at_stop[0].mean(),
        "at_stop": at_stop[1].mean(),
        "infer": part(said, "labels", "infer"),
        "review": part(said, "labels", "review"),
        "probability": [*infer, *review[2:], ""],
        "single": single(said),
        "train": part(said, new, "train", "{}: WHAT"),
        "buy": part(said, ("labels", "labels, 50 audited"), "buy", "at the stop: WHAT"),
        "gain": gain(said),
        "forecast": part(said, "gain", "forecast", "further right labels"),
        "judges": judges(said),
        "flags": flags(records),
        "accuracies": accuracies(said),
        "talk": part(said, "mistakes by flagged annotators", "annotators"),
        "accepted": accepted(said),
        "by_gold": by_gold(said),
        "missed": missed(said),
    }
