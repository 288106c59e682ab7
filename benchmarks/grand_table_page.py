"""The page of `grand_table.py`: tables, average ranks and their diagram. Nothing is measured here.

Two kinds of record are read: those of `grand_table.py`, with calibration errors, and those of
`flagship.py` on sets as they are (further seeds of some methods).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from benchmarks.flagship_page import SELECT, dash, key_of, published
from benchmarks.peers import ACTIVE, ACTIVE_MIX, CROWD_KIT_CONAL
from evidence.study import ROOT, read
from evidence.tables import Record, crossed, groups, table, where

Found = list[Record]
FEWEST_SETS = 5
"""Ranks over fewer sets would say nothing."""

SETS = {
    "colposcopy": "Colposcopy",
    "reports": "Reports",
    "hotel": "Hotel",
    "product": "Product",
    "music": "Music",
    "labelme": "LabelMe",
    "usps-Syn": "USPS-Syn",
    "gsad-Syn": "GSAD-Syn",
    "sentiment": "Sentiment",
    "sentiment, raw text": "Sentiment (raw text)",
    "cifar10n": "CIFAR-10N",
    "cifar10h, 2": "CIFAR-10H (2 per image)",
}
RAW = "sentiment, raw text"
"""Not ranked: the crowd and the test part are Sentiment's."""

STACK = "stack"
GOLD, MAJORITY = "network on gold labels (ceiling)", "DL-MV"
CEILINGS = (GOLD, "stack, gold labels")
TEN = 10
FAR = 0.05
"""Of balanced accuracy."""

PAIRS = (
    "broken off after five minutes: it keeps a difference for every pair of annotators, of whom "
    "Sentiment has 203"
)
TERMS = "108,859 terms, 27 times those of the other Sentiment, so by proportion"
NOT_RUN = {
    "Personal (CPC)": PAIRS,
    "NeuCrowd": f"{TERMS} hours",
    "Raykar": f"{TERMS} hours",
    "CrowdInG": "it generates 2,567 annotations of every image, so by proportion two hours",
    ACTIVE: (
        "on Sentiment not finished within a quarter of an hour; dense features; on CIFAR-10H ten "
        "times the annotators of CIFAR-10N, which takes six minutes"
    ),
    "DASC": "not finished within an hour",
    CROWD_KIT_CONAL: "dense features: Crowd Layer of the same library takes nearly an hour there",
    ACTIVE_MIX: "dense features; not finished within an hour",
}
"""Method -> why it was not run on some sets."""

OF_FLAGSHIP = {
    *("stack", "majority vote + LR", "stack, gold labels"),
    *("Crowd Layer", "AggNet", "Max-MIG", "TraceReg", "CoNAL"),
    *("DASC", "ICED", "NeuCrowd", "CrowdInG", "DL-DS", "DL-WC", "Co-teaching", "Doctor Net"),
}
"""Methods of `flagship.py` that are fitted with their defaults."""


def further(found: Found) -> Found:
    """The records of `flagship.py` that add a seed to those measured here.

    None of a method that has another figure where a run was repeated: its code has changed.
    """
    here, changed = {key_of(each) for each in found}, {each["method"] for each in unlike(found)}
    own = [each for each in recorded_before() if each["method"] not in changed]
    return [each for each in own if key_of(each) not in here]


def unlike(found: Found) -> Found:
    """The runs that were recorded before with another accuracy."""
    before = {key_of(each): each["accuracy"] for each in recorded_before()}
    own = [each for each in found if "failed" not in each]
    return [each for each in own if each["accuracy"] != before.get(key_of(each), each["accuracy"])]


@cache
def of_flagship() -> Found:
    """All records of `flagship.py`."""
    return read(ROOT / "results" / "benchmarks" / "flagship.jsonl")


def recorded_before() -> Found:
    """The records of `flagship.py` on sets as they are, of methods with their defaults."""
    return [
        each
        for each in of_flagship()
        if each["set"] in SETS
        and not each["change"]
        and each["fold"] < 0
        and each["method"] in OF_FLAGSHIP
    ]


class Ranks(NamedTuple):
    """Average ranks of methods over sets; 1 is best."""

    sets: list[str]
    mean: dict[str, float]
    distance: float
    """The critical difference of Nemenyi's test at 5 %."""
    p: float
    """Of Friedman's test that all methods are equal."""


class Table:
    """Means over seeds of all records."""

    def __init__(self, found: Found) -> None:
        self.failed = [each for each in found if "failed" in each]
        own = [each for each in found if "failed" not in each]
        self.records = [*own, *further(own)]
        self._values = groups(self.records, "set", "method")
        self.methods = list(groups(self.records, "method"))
        self.crowd_methods = [method for method in self.methods if method not in CEILINGS]

    def values(self, name: str, method: str, field: str = "accuracy") -> list[float]:
        """Values of a method on a set, one per seed; seconds only where no GPU helped."""
        own = self._values.get((name, method), [])
        if field == "seconds":
            own = [each for each in own if "gpu" not in each]
        return [each[field] for each in own if field in each]

    def mean(self, name: str, method: str, field: str = "accuracy") -> float | None:
        """Their mean, or None."""
        own = self.values(name, method, field)
        return float(np.mean(own)) if own else None

    def complete(self) -> tuple[list[str], list[str]]:
        """The methods and sets that are ranked: as many cells as possible, none missing."""
        names = [name for name in SETS if name != RAW]
        has = {name: {m for m in self.crowd_methods if self.values(name, m)} for name in names}
        names = sorted(names, key=lambda name: -len(has[name]))
        best: tuple[list[str], list[str]] = ([], [])
        for count in range(FEWEST_SETS, len(names) + 1):
            common = set.intersection(*(has[name] for name in names[:count]))
            if len(common) * count > len(best[0]) * len(best[1]):
                best = [m for m in self.crowd_methods if m in common], names[:count]
        return best[0], [name for name in SETS if name in best[1]]

    def ranks(self, field: str = "accuracy") -> Ranks:
        """Average ranks (1: the largest), Friedman's test, Nemenyi's critical difference."""
        methods, names = self.complete()
        accuracy = np.array([[self.mean(name, m, field) for m in methods] for name in names])
        ranked = rankdata(-accuracy.round(6), axis=1)
        k, n = len(methods), len(names)
        quantile = studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2)
        distance = float(quantile * np.sqrt(k * (k + 1) / (6 * n)))
        mean = dict(zip(methods, ranked.mean(axis=0).tolist(), strict=True))
        p = float(friedmanchisquare(*accuracy.T).pvalue)
        return Ranks(names, dict(sorted(mean.items(), key=lambda item: item[1])), distance, p)


def _ranked(ranks: Ranks, methods: Sequence[str]) -> str:
    *others, last = (f"{m} ({ranks.mean[m]:.1f})" for m in methods)
    return f"{', '.join(others)} and {last}"


def _few_seeds(found: Table, methods: Sequence[str]) -> str:
    """Say which of these methods have one seed, and where."""
    told = {
        m: [
            words for name, words in SETS.items() if len(found.values(name, m)) == 1 and name != RAW
        ]
        for m in methods
    }
    return "".join(f"On {', '.join(own)}, {m} has one seed. " for m, own in told.items() if own)


def _behind(found: Table, method: str) -> str:
    """Name the sets on which a method is far behind the best in balanced accuracy."""
    told = []
    for name, words in SETS.items():
        own = found.mean(name, method, "balanced_accuracy")
        known = {m: found.mean(name, m, "balanced_accuracy") for m in found.crowd_methods}
        best = max((m for m in known if known[m] is not None), key=lambda m: known[m] or 0)
        if own is not None and (top := known[best] or 0) - own > FAR:
            told.append(f"{words} ({100 * own:.1f}; {best} has {100 * top:.1f})")
    return f" {method.capitalize()} is more than {100 * FAR:.0f} points behind the best on " + (
        f"{' and '.join(told)}." if told else "no set."
    )


def _price(found: Table, ranks: Ranks) -> dict[str, str]:
    """The best method's calibration and seconds, beside those of others."""
    errors: dict[str, float] = {}
    for m in ranks.mean:
        own = [found.mean(name, m, "calibration_error") for name in ranks.sets]
        if None not in own:
            errors[m] = 100 * float(np.mean(own))
    first, best = next(iter(ranks.mean)), min(errors, key=errors.__getitem__)
    longest = {
        m: max(found.mean(name, m, "seconds") or 0 for name in ranks.sets) for m in (first, SELECT)
    }
    told = (
        f"{first.capitalize()} takes {longest[first]:.0f} s at most on the {len(ranks.sets)} "
        f"ranked sets, {SELECT} {longest[SELECT]:.0f} s"
    )
    n, better = len(errors), sum(error < errors[first] for error in errors.values())
    if better:
        rank = f"{better} of the {n - 1} others have less, {best} least ({errors[best]:.1f})"
    else:
        rank = f"none of the {n - 1} others whose error is known on all ranked sets has less"
    return {
        "calibration": f"The calibration error of {first} is {errors[first]:.1f} points on "
        f"average; {rank}.",
        "longest": told,
    }


def _share(found: Table, method: str) -> float | None:
    """Mean share of the gap between DL-MV and the better ceiling that a method closes."""
    gaps = {name: gap for name in SETS if (gap := _gap(found, name)) is not None}
    own = {name: found.mean(name, method) for name in gaps}
    if method in (*CEILINGS, MAJORITY) or not gaps or None in own.values():
        return None
    shares = [(own[name] - low) / (high - low) for name, (low, high) in gaps.items()]
    return float(np.mean(shares))


def _gap(found: Table, name: str) -> tuple[float, float] | None:
    """The accuracies of DL-MV and of the better ceiling, if the ceiling is clearly ahead."""
    low = found.mean(name, MAJORITY)
    high = max((found.mean(name, c) or 0 for c in CEILINGS), default=0)
    if low is None:
        return None
    n = next(each["n_test"] for each in found.records if each["set"] == name)
    return (low, high) if high - low > 2 * float(np.sqrt(high * (1 - high) / n)) else None


def _on_gpu(found: Table) -> str:
    """Say which cells have no seconds because their networks trained on a GPU."""
    runs = groups((each for each in found.records if "gpu" in each), "set", "gpu")
    told = []
    for (name, gpu), own in runs.items():
        methods = [m for m in groups(own, "method") if not found.values(name, m, "seconds")]
        told += [f"{', '.join(methods)} on {SETS[name]} ({gpu})"] if methods else []
    return f" Trained on a GPU, so without seconds here: {'; '.join(told)}." if told else ""


# -- the diagram ----------------------------------------------------------------------------------

STYLE = (
    "<style>.cd { --ink: #16191d; --paper: #ffffff; --bar: #2a6cb0; --rule: #dde1e6; }"
    "@media (prefers-color-scheme: dark) { .cd { --ink: #e8ebef; --paper: #14171b; --bar: #74aeea; "
    "--rule: #31373f; } }"
    ".cd text { font: 13px system-ui, 'DejaVu Sans', sans-serif; fill: var(--ink); }"
    ".cd text.first { font-weight: 600; }.cd .back { fill: var(--paper); }"
    ".cd line { stroke: var(--rule); }.cd circle { fill: var(--bar); }"
    ".cd rect.near { fill: var(--bar); fill-opacity: .12; }</style>"
)
WIDTH, NAMES, STEP, TOP = 800, 320, 20, 46


def ranks_drawing(found: Found) -> str:
    """Draw the average ranks, the best first, and how far chance reaches from the best."""
    ranks = Table(found).ranks()
    mean, k = list(ranks.mean.items()), len(ranks.mean)
    height = TOP + STEP * k + 10

    def at(rank: float) -> float:
        return NAMES + (rank - 1) / (k - 1) * (WIDTH - NAMES - 50)

    first = mean[0][1]
    reach = min(at(first + ranks.distance), WIDTH - 10) - at(first)
    parts = [
        f'<rect class="near" x="{at(first):.1f}" y="{TOP - 8}" width="{reach:.1f}" '
        f'height="{STEP * k + 8}"/>',
        _text(
            at(first) + 4,
            TOP - 26,
            f"chance alone could explain the distance to {mean[0][0]}",
            "start",
        ),
    ]
    for tick in range(1, k + 1, 3):
        parts.append(_line(at(tick), TOP - 8, at(tick), TOP + STEP * k))
        parts.append(_text(at(tick), TOP - 10, str(tick), "middle"))
    for i, (method, rank) in enumerate(mean):
        y = TOP + STEP * i + 9
        parts += [
            _text(NAMES - 14, y + 4, method, "end", "" if i else "first"),
            f'<circle cx="{at(rank):.1f}" cy="{y}" r="5"/>',
            _text(at(rank) + 9, y + 4, f"{rank:.1f}", "start"),
        ]
    label = "Average ranks: " + ", ".join(f"{method} {rank:.2f}" for method, rank in mean)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cd" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(label)}">{STYLE}'
        f'<rect class="back" width="{WIDTH}" height="{height}"/>{"".join(parts)}</svg>\n'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<text{mark} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _most_seeds(found: Table) -> str:
    """Say how many seeds most cells of each set have."""
    told: dict[int, list[str]] = {}
    for name, words in SETS.items():
        counts = [len(found.values(name, method)) for method in found.crowd_methods]
        given = [count for count in counts if count]
        told.setdefault(max(set(given), key=given.count), []).append(words)
    return "; ".join(
        f"{n} seed{'s' * (n > 1)} on {', '.join(names)}" for n, names in sorted(told.items())[::-1]
    )


def _protocols() -> list[str]:
    """Accuracy of every classifier with one protocol per set, from the records of its page."""
    found = published()
    names = {name: words for name, words in SETS.items() if name in found}
    top = {n: max(own[0] for row, own in found[n].items() if "gold" not in row) for n in names}

    def shown(row: str, name: str) -> str:
        value = found[name].get(row, (np.nan,))[0]
        return f"**{dash(100 * value)}**" if value == top[name] else dash(100 * value)

    return crossed("", dict.fromkeys(row for name in names for row in found[name]), names, shown)


def _brief(found: Table, order: Sequence[str]) -> list[str]:
    """Mean accuracies of a few methods, the best of all methods on each set bold."""
    best = {name: max(found.mean(name, m) or 0 for m in found.crowd_methods) for name in SETS}

    def shown(method: str, name: str) -> str:
        value = found.mean(name, method)
        text = "–" if value is None else f"{100 * value:.1f}"
        return f"**{text}**" if value == best[name] and method not in CEILINGS else text

    return crossed("", order, {name: words for name, words in SETS.items() if name != RAW}, shown)


def _labels() -> dict[str, Any]:
    """Return what `training_labels.py` has found, if it has measured all sets."""
    from benchmarks import training_labels as labels

    records = read(labels.STUDY.records)
    if not labels.complete(records):
        return {}
    return {
        "labels": labels.page(records),
        "labels_against": labels.against(records),
    }


def _accuracy(found: Table, order: Sequence[str]) -> Iterator[list[str]]:
    best = {
        name: max((found.mean(name, m) or 0 for m in found.crowd_methods), default=0)
        for name in SETS
    }
    for method in order:
        row = [method]
        for name in SETS:
            own = found.values(name, method)
            mean = dash(100 * float(np.mean(own))) if own else "–"
            top = own and method not in CEILINGS and f"{100 * best[name]:.1f}" == mean
            row.append(f"**{mean}**" if top else mean)
        share = _share(found, method)
        yield [*row, "–" if share is None else f"{100 * share:.0f} %"]


def _deviations(found: Table, order: Sequence[str]) -> list[str]:
    """Standard deviations of the accuracy over seeds, and the number of seeds."""

    def shown(method: str, name: str) -> str:
        own = found.values(name, method)
        return f"{100 * float(np.std(own, ddof=1)):.1f} ({len(own)})" if len(own) > 1 else "–"

    return crossed("", order, SETS, shown)


def _field(
    found: Table, order: Sequence[str], field: str, scale: float = 1, best: Any = None
) -> list[str]:
    """A table of one figure, the best of each set bold."""
    rows = {m: [found.mean(name, m, field) for name in SETS] for m in order}
    crowd = [rows[m] for m in order if m not in CEILINGS]
    known = [[v for v in column if v is not None] for column in zip(*crowd, strict=True)]
    lines = []
    for method, values in rows.items():
        line = [method]
        for value, others in zip(values, known, strict=True):
            text = "–" if value is None else f"{scale * value:.1f}"
            top = best is not None and others and value == best(others)
            line.append(f"**{text}**" if top and method not in CEILINGS else text)
        if any(value is not None for value in values):
            lines.append(line)
    return table(["", *SETS.values()], lines)


def _peers(found: Table, peers: Sequence[tuple[str, str, str]]) -> Iterator[list[str]]:
    for method, package, words in peers:
        done = sum(bool(found.values(name, method)) for name in SETS)
        runs = where([*found.records, *found.failed], method=method)
        versions, reasons = ({r[key] for r in runs if key in r} for key in ("package", "failed"))
        named = ", ".join(sorted(versions)) or package
        yield [method, named, words, str(done), "; ".join(sorted(reasons)) or "–"]


def _curves(found: Table, ranks: Ranks) -> dict[str, str]:
    """Return the methods that have curves of robustness."""
    best = list(ranks.mean)[:TEN]
    curves = {each["method"] for each in of_flagship() if each["change"]}
    without = [method for method in best if method not in curves]
    others = [method for method in found.crowd_methods if method in curves - set(best)]
    told = f", except {' and '.join(without)}" if without else ""
    return {
        "with_curves": f"the ten methods best in average rank{told}",
        "also_drawn": ", ".join(others),
    }


def _provenance(found: Table, records: Found) -> dict[str, Any]:
    """Write what was run, by which commits, what failed and what was not run."""
    before = {key_of(each) for each in recorded_before()}
    both = [each for each in records if key_of(each) in before and "failed" not in each]
    differing = unlike(records)
    dates = sorted({f"{each['commit']} ({each['date']})" for each in records})
    failed: dict[str, list[str]] = {}
    for each in found.failed:
        failed.setdefault(f"{each['method']}: {each['failed']}", []).append(SETS[each["set"]])
    told = ", ".join(f"{each['method']} on {SETS[each['set']]}" for each in differing) or "none"
    measured = {(each["set"], each["method"]) for each in [*found.records, *found.failed]}
    return {
        "n_records": len(records),
        "commits": ", ".join(dates),
        "n_further": len(found.records) - len(records) + len(found.failed),
        "n_both": len(both),
        "n_equal": len(both) - len(differing),
        "other_figures": told,
        "failed": [f"- failed: {what} ({', '.join(names)})" for what, names in failed.items()],
        "not_run": [
            f"- not run: {method}: "
            + ", ".join(SETS[n] for n in SETS if (n, method) not in measured)
            + (f" ({NOT_RUN[method]})" if method in NOT_RUN else "")
            for method in found.methods
            if any((n, method) not in measured for n in SETS)
        ],
    }


def page(records: Found, peers: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    """Return the page's values; ``peers``: method, package and what had to be done."""
    found = Table(records)
    ranks, balanced = found.ranks(), found.ranks("balanced_accuracy")
    first, *others = ranks.mean
    apart = [m for m in others if ranks.mean[m] - ranks.mean[first] > ranks.distance]
    gaps = [SETS[name] for name in SETS if _gap(found, name)]
    shares = {m: share for m in ranks.mean if (share := _share(found, m)) is not None}
    closest = max(shares, key=lambda method: shares[method])
    ceilings = [method for method in CEILINGS if method in found.methods]
    unranked = [m for m in found.crowd_methods if m not in ranks.mean]
    order = [*ceilings, *ranks.mean, *unranked]
    rows = [[m, f"{rank:.2f}"] for m, rank in ranks.mean.items()]
    heading = ["classifier", "package", "what had to be done", "sets run", "errors"]
    return {
        "seeds": _most_seeds(found),
        "n_ranked": len(ranks.mean),
        "n_sets": len(ranks.sets),
        "first": "the stack" if first == STACK else first,
        "first_rank": ranks.mean[first],
        "next": _ranked(ranks, others[:2]),
        "few_seeds": _few_seeds(found, [first, *others[:2]]),
        "distance": ranks.distance,
        "apart": ", ".join(apart) or "none",
        "balanced_first": _ranked(balanced, list(balanced.mean)[:3]),
        "behind": _behind(found, first),
        "closest": f"{closest} closes most of it, {100 * shares[closest]:.0f} %",
        "n_gaps": len(gaps),
        "gaps": ", ".join(gaps),
        "price": _price(found, ranks),
        "ranked_sets": ", ".join(SETS[name] for name in ranks.sets),
        "p": ranks.p,
        "ranks": table(["method", "average rank"], rows),
        "brief": _brief(found, [*ceilings, *list(ranks.mean)[:TEN]]),
        **_labels(),
        "accuracy": table(["", *SETS.values(), "gap closed"], _accuracy(found, order)),
        "deviations": _deviations(found, order),
        "protocols": _protocols(),
        "balanced": _field(found, order, "balanced_accuracy", 100, max),
        "calibration": _field(found, order, "calibration_error", 100, min),
        "on_gpu": _on_gpu(found),
        "seconds": _field(found, order, "seconds"),
        "peers": table(heading, _peers(found, peers)),
        **_curves(found, ranks),
        **_provenance(found, records),
    }
