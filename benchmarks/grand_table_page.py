"""The page of `grand_table.py`: tables, average ranks and their diagram. Nothing is measured here.

Two kinds of record are read: those of `grand_table.py`, with calibration errors, and those of
`flagship.py` on sets as they are (further seeds of some methods).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flagship_page import SELECT, key_of, published
from pages import read, table_lines
from peers import ACTIVE, ACTIVE_MIX, CROWD_KIT_CONAL
from scipy.stats import friedmanchisquare, rankdata, studentized_range

import manyhands

Found = list[dict[str, Any]]
FLAGSHIP = Path(__file__).parents[1] / "results" / "benchmarks" / "flagship.jsonl"
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
FEWEST_SETS = 5
"""Ranks over fewer sets would say nothing."""

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


def recorded_before() -> Found:
    """The records of `flagship.py` on sets as they are, of methods with their defaults."""
    return [
        each
        for each in read(FLAGSHIP)
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
        self.methods = list(dict.fromkeys(each["method"] for each in self.records))
        self._values: dict[tuple[str, str], Found] = {}
        for each in self.records:
            self._values.setdefault((each["set"], each["method"]), []).append(each)

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

    def crowd_methods(self) -> list[str]:
        """The methods that learn from the crowd."""
        return [method for method in self.methods if method not in CEILINGS]

    def complete(self) -> tuple[list[str], list[str]]:
        """The methods and sets that are ranked: as many cells as possible, none missing."""
        names = [name for name in SETS if name != RAW]
        has = {name: {m for m in self.crowd_methods() if self.values(name, m)} for name in names}
        names = sorted(names, key=lambda name: -len(has[name]))
        best: tuple[list[str], list[str]] = ([], [])
        for count in range(FEWEST_SETS, len(names) + 1):
            common = set.intersection(*(has[name] for name in names[:count]))
            if len(common) * count > len(best[0]) * len(best[1]):
                best = [m for m in self.crowd_methods() if m in common], names[:count]
        return best[0], [name for name in SETS if name in best[1]]

    def ranks(self, field: str = "accuracy") -> Ranks | None:
        """Average ranks (1: the largest), Friedman's test, Nemenyi's critical difference."""
        methods, names = self.complete()
        if len(methods) < 3:
            return None
        accuracy = np.array([[self.mean(name, m, field) for m in methods] for name in names])
        ranked = rankdata(-accuracy.round(6), axis=1)
        k, n = len(methods), len(names)
        quantile = studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2)
        distance = float(quantile * np.sqrt(k * (k + 1) / (6 * n)))
        mean = dict(zip(methods, ranked.mean(axis=0).tolist(), strict=True))
        p = float(friedmanchisquare(*accuracy.T).pvalue)
        return Ranks(names, dict(sorted(mean.items(), key=lambda item: item[1])), distance, p)


def page(found: Found, peers: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return the page's lines; ``peers``: method, package and what had to be done."""
    table = Table(found)
    order = _in_order(table)
    return [
        "# The grand table: every classifier on all public sets with features",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/grand_table.py --records "
        "results/benchmarks/grand_table.jsonl --out docs/results/grand_table.md` on "
        f"{datetime.date.today()}, manyhands {manyhands.__version__}; `--seeds 5` adds seeds, and "
        "`--methods` and `--sets` choose cells. Our methods have their "
        "defaults; what [other libraries](#other-libraries) lack, such as a network or a loop, is "
        'ours. "Stack" is `CrowdStackingClassifier()`. Gold labels measure; only the two '
        "ceilings are trained on them. The stack was designed on some of these sets, but not on "
        "Hotel, USPS-Syn and GSAD-Syn. " + _seeds(table),
        "",
        *_conclusions(table),
        "## Average ranks",
        "",
        *_ranks_part(table),
        "## Accuracy",
        "",
        "Per cent of the test part; mean ± sd (seeds) where there is more than one seed. "
        "The best of each set that learns from the crowd is bold. A dash is a cell that was not "
        "run, or that failed ([which](#what-was-run)). The last column is the share of the gap "
        "between DL-MV (the default network on hard majority votes) and the better ceiling that a "
        "method closes, mean of the sets where the ceiling is at least two binomial standard "
        "errors ahead of DL-MV. A negative share is below DL-MV; one set with a small gap can "
        "make it large.",
        "",
        *_accuracy(table, order),
        "## Accuracy with one protocol per set",
        "",
        "Network, optimiser and epochs are the same for all methods of a set: on LabelMe and Music "
        "those of DASC's paper, elsewhere the defaults of an earlier version, with fewer epochs on "
        "Sentiment and Product. Mean of five seeds of "
        "the last epoch, from [every classifier on six sets](crowd_models.md), which has the "
        "seconds and deviations of every row, and names the few with one seed. MW, VW, VB, VW+B "
        "and S are forms of the annotators' parameters ([Crowd Layer](../methods/crowd_layer.md)); "
        "1·I and 2·I are the identity, once or twice, from which they start. Crowd-calibrated "
        "stacking is the stack, MV+LR is majority vote + LR, and Triplets is metric learning. The "
        "best of each set is bold.",
        "",
        *_by_protocol(),
        "## Balanced accuracy",
        "",
        *_field(table, order, "balanced_accuracy", 100, 1, max),
        "## Calibration error",
        "",
        "Expected calibration error on the test part, in points; the lower, the better. Mean of "
        "the seeds that were measured for this page; the flagship's records have no such error.",
        "",
        *_field(table, order, "calibration_error", 100, 1, min),
        "## Seconds",
        "",
        "CPU seconds of a fit on one thread of a busy machine; they vary by a third."
        + _on_gpu(table),
        "",
        *_field(table, order, "seconds", 1, 1, None),
        *_peers(table, peers),
        *_elsewhere(table),
        *_provenance(table, found),
    ]


def _seeds(table: Table) -> str:
    """Say how many seeds most cells of each set have."""
    told: dict[int, list[str]] = {}
    for name, words in SETS.items():
        counts = [len(table.values(name, method)) for method in table.crowd_methods()]
        given = [count for count in counts if count]
        if given:
            told.setdefault(max(set(given), key=given.count), []).append(words)
    parts = [
        f"{n} seed{'s' * (n > 1)} on {', '.join(names)}" for n, names in sorted(told.items())[::-1]
    ]
    return (
        f"Most cells have {'; '.join(parts)} (the number in brackets). On USPS-Syn and GSAD-Syn, a "
        "seed draws the annotations anew, too. Where a cell has one seed, differences of a point "
        "say nothing."
    )


def _by_protocol() -> list[str]:
    """Accuracy of every classifier with one protocol per set, from the records of its page."""
    found = published()
    names = [name for name in SETS if name in found]
    rows = dict.fromkeys(row for name in names for row in found[name])
    lines = []
    for row in rows:
        cells = [row]
        for name in names:
            top = max(own[0] for each, own in found[name].items() if "gold" not in each)
            own = found[name].get(row)
            text = "–" if own is None else f"{100 * own[0]:.1f}"
            cells.append(f"**{text}**" if own is not None and own[0] == top else text)
        lines.append(cells)
    return table_lines(["", *(SETS[name] for name in names)], lines)


def _in_order(table: Table) -> list[str]:
    """Ceilings first, then ranked methods by rank, then the others."""
    ranks = table.ranks()
    ranked = list(ranks.mean) if ranks else []
    ceilings = [method for method in CEILINGS if method in table.methods]
    others = [m for m in table.crowd_methods() if m not in ranked]
    return [*ceilings, *ranked, *others]


def _conclusions(table: Table) -> list[str]:
    ranks, balanced = table.ranks(), table.ranks("balanced_accuracy")
    if ranks is None or balanced is None:
        return []
    first, *others = ranks.mean
    apart = [m for m in others if ranks.mean[m] - ranks.mean[first] > ranks.distance]
    lines = [
        f"- **Accuracy:** of {len(ranks.mean)} methods on {len(ranks.sets)} sets, {first} has the "
        f"best average rank, {ranks.mean[first]:.1f}, before {_ranked(ranks, others[:2])}. "
        f"{_few_seeds(table, [first, *others[:2]])}With so few sets, ranks must be "
        f"{ranks.distance:.1f} apart to be told from chance. Significantly behind the first: "
        f"{', '.join(apart) if apart else 'none'}.",
        f"- **Balanced accuracy:** the best ranks are of "
        f"{_ranked(balanced, list(balanced.mean)[:3])}.{_behind(table, first)}",
    ]
    names = [name for name in SETS if _gap(table, name)]
    share = {m: _share(table, m) for m in ranks.mean}
    best = max((m for m in share if share[m] is not None), key=lambda m: share[m] or 0, default="")
    if best:
        lines.append(
            f"- **The gap between {MAJORITY} and gold labels:** {best} closes most of it, "
            f"{100 * (share[best] or 0):.0f} %, on the {len(names)} sets where there clearly is "
            f"one: {', '.join(SETS[name] for name in names)}."
        )
    lines.append(f"- **Probabilities and time:** {_price(table, ranks)}")
    return ["## What to conclude", "", *lines, ""]


def _ranked(ranks: Ranks, methods: Sequence[str]) -> str:
    *others, last = (f"{m} ({ranks.mean[m]:.1f})" for m in methods)
    return f"{', '.join(others)} and {last}"


def _few_seeds(table: Table, methods: Sequence[str]) -> str:
    """Say which of these methods have one seed, and where."""
    told = {
        m: [
            words for name, words in SETS.items() if len(table.values(name, m)) == 1 and name != RAW
        ]
        for m in methods
    }
    return "".join(f"On {', '.join(own)}, {m} has one seed. " for m, own in told.items() if own)


def _behind(table: Table, method: str) -> str:
    """Name the sets on which a method is far behind the best in balanced accuracy."""
    told = []
    for name, words in SETS.items():
        own = table.mean(name, method, "balanced_accuracy")
        known = {m: table.mean(name, m, "balanced_accuracy") for m in table.crowd_methods()}
        best = max((m for m in known if known[m] is not None), key=lambda m: known[m] or 0)
        if own is not None and (top := known[best] or 0) - own > FAR:
            told.append(f"{words} ({100 * own:.1f}; {best} has {100 * top:.1f})")
    return f" {method.capitalize()} is more than {100 * FAR:.0f} points behind the best on " + (
        f"{' and '.join(told)}." if told else "no set."
    )


def _price(table: Table, ranks: Ranks) -> str:
    """Compare the best method's calibration and seconds with those of others."""
    errors: dict[str, float] = {}
    for m in ranks.mean:
        own = [table.mean(name, m, "calibration_error") for name in ranks.sets]
        if None not in own:
            errors[m] = float(np.mean([each for each in own if each is not None]))
    first = next(iter(ranks.mean))
    better = sum(error < errors[first] for error in errors.values())
    best = min(errors, key=errors.__getitem__)
    longest = {
        m: max(table.mean(name, m, "seconds") or 0 for name in ranks.sets) for m in (first, SELECT)
    }
    return (
        f"The calibration error of {first} is {100 * errors[first]:.1f} points on average; "
        f"{better} of the {len(errors) - 1} others whose error is known on all have less, {best} "
        f"least ({100 * errors[best]:.1f}). {first.capitalize()} takes {longest[first]:.0f} s at "
        f"most on the {len(ranks.sets)} ranked sets, {SELECT} {longest[SELECT]:.0f} s."
    )


def _ranks_part(table: Table) -> list[str]:
    ranks = table.ranks()
    if ranks is None:
        return [f"Not enough cells yet: fewer than three methods share {FEWEST_SETS} sets.", ""]
    names = ", ".join(SETS[name] for name in ranks.sets)
    return [
        "![Average ranks with the critical difference](grand_table-ranks.svg)",
        "",
        f"Rank 1 is the most accurate on a set. Ranked are the methods that were run on all of: "
        f"{names}. Friedman's test that all are equal: p = {ranks.p:.2g}. Methods that a bar joins "
        f"differ by less than Nemenyi's critical difference at 5 %, {ranks.distance:.2f}.",
        "",
        *table_lines(
            ["method", "average rank"], [[m, f"{rank:.2f}"] for m, rank in ranks.mean.items()]
        ),
    ]


def _accuracy(table: Table, order: Sequence[str]) -> list[str]:
    best = {
        name: max((table.mean(name, m) or 0 for m in table.crowd_methods()), default=0)
        for name in SETS
    }
    rows = []
    for method in order:
        row = [method]
        for name in SETS:
            own = table.values(name, method)
            text = f"{100 * np.mean(own):.1f}" if own else "–"
            if own and method not in CEILINGS and round(100 * best[name], 1) == float(text):
                text = f"**{text}**"
            if len(own) > 1:
                text += f" ± {100 * np.std(own, ddof=1):.1f} ({len(own)})"
            row.append(text)
        share = _share(table, method)
        rows.append([*row, "–" if share is None else f"{100 * share:.0f} %"])
    return table_lines(["", *SETS.values(), "gap closed"], rows)


def _share(table: Table, method: str) -> float | None:
    """Mean share of the gap between DL-MV and the better ceiling that a method closes."""
    if method in (*CEILINGS, MAJORITY):
        return None
    shares = []
    for name in SETS:
        own, gap = table.mean(name, method), _gap(table, name)
        if gap is None:
            continue
        if own is None:
            return None
        low, high = gap
        shares.append((own - low) / (high - low))
    return float(np.mean(shares)) if shares else None


def _gap(table: Table, name: str) -> tuple[float, float] | None:
    """The accuracies of DL-MV and of the better ceiling, if the ceiling is clearly ahead."""
    low = table.mean(name, MAJORITY)
    high = max((table.mean(name, c) or 0 for c in CEILINGS), default=0)
    if low is None:
        return None
    n = next(each["n_test"] for each in table.records if each["set"] == name)
    return (low, high) if high - low > 2 * float(np.sqrt(high * (1 - high) / n)) else None


def _field(
    table: Table, order: Sequence[str], field: str, scale: float, digits: int, best: Any
) -> list[str]:
    """A table of one figure, the best of each set bold."""
    rows = {m: [table.mean(name, m, field) for name in SETS] for m in order}
    crowd = [rows[m] for m in order if m not in CEILINGS]
    lines = []
    for method, values in rows.items():
        line = [method]
        for column, value in enumerate(values):
            known = [row[column] for row in crowd if row[column] is not None]
            text = "–" if value is None else f"{scale * value:.{digits}f}"
            top = best is not None and known and value == best(known)
            line.append(f"**{text}**" if top and method not in CEILINGS else text)
        if any(value is not None for value in values):
            lines.append(line)
    return table_lines(["", *SETS.values()], lines)


def _on_gpu(table: Table) -> str:
    """Say which cells have no seconds because their networks trained on a GPU."""
    runs: dict[tuple[str, str], list[str]] = {}
    for each in table.records:
        name, method = each["set"], each["method"]
        if "gpu" in each and not table.values(name, method, "seconds"):
            runs.setdefault((name, each["gpu"]), []).append(method)
    told = [
        f"{', '.join(dict.fromkeys(methods))} on {SETS[name]} ({gpu})"
        for (name, gpu), methods in runs.items()
    ]
    return f" Trained on a GPU, so without seconds here: {'; '.join(told)}." if told else ""


def _peers(table: Table, peers: Sequence[tuple[str, str, str]]) -> list[str]:
    rows = []
    for method, package, words in peers:
        done = sum(bool(table.values(name, method)) for name in SETS)
        runs = [each for each in [*table.records, *table.failed] if each["method"] == method]
        versions = {each["package"] for each in runs if "package" in each}
        reasons = {each["failed"] for each in runs if "failed" in each}
        named = ", ".join(sorted(versions)) or package
        rows.append([method, named, words, str(done), "; ".join(sorted(reasons)) or "–"])
    heading = ["classifier", "package", "what had to be done", "sets run", "errors"]
    return [
        "## Other libraries",
        "",
        "Their classifiers, in the tables above by these names. Of crowd-kit, the aggregators are "
        "on the [page of aggregation](aggregation.md), and the speed of its modules is on [another]"
        "(../benchmarks.md).",
        "",
        *table_lines(heading, rows),
    ]


def _elsewhere(table: Table) -> list[str]:
    ranks = table.ranks()
    best = list(ranks.mean)[:TEN] if ranks else []
    curves = {each["method"] for each in read(FLAGSHIP) if each["change"]}
    without = [method for method in best if method not in curves]
    told = "the ten methods best in average rank" + (
        f", except {' and '.join(without)}" if without else ""
    )
    others = [method for method in table.crowd_methods() if method in curves - set(best)]
    return [
        "## Protocols and worse annotations",
        "",
        "- [Every classifier on six sets](crowd_models.md) has every classifier under one protocol "
        "per set, mostly a paper's, with five seeds.",
        "- The published protocols and figures: [CoNAL](chu2021.md), [CrowdInG](crowding2021.md), "
        "[DASC](dasc2023.md), [ICED](iced2022.md), [NeuCrowd](neucrowd2022.md).",
        "- [Robustness curves](flagship.md#worse-annotations) (annotations removed, imbalance, "
        f"spammers, shared mistakes) on LabelMe and Music have {told}. Also drawn: "
        f"{', '.join(others)}. The seeds are told there.",
        "",
        "![Accuracy as annotations get worse](flagship-robustness.svg)",
        "",
    ]


def _provenance(table: Table, found: Found) -> list[str]:
    before = {key_of(each) for each in recorded_before()}
    both = [each for each in found if key_of(each) in before and "failed" not in each]
    differing = unlike(found)
    dates = sorted({f"{each['commit']} ({each['date']})" for each in found})
    failed: dict[str, list[str]] = {}
    for each in table.failed:
        failed.setdefault(f"{each['method']}: {each['failed']}", []).append(SETS[each["set"]])
    told = ", ".join(f"{each['method']} on {SETS[each['set']]}" for each in differing) or "none"
    measured = {(each["set"], each["method"]) for each in [*table.records, *table.failed]}
    open_cells = [
        f"{method}: {', '.join(SETS[n] for n in SETS if (n, method) not in measured)}"
        + (f" ({NOT_RUN[method]})" if method in NOT_RUN else "")
        for method in table.methods
        if any((n, method) not in measured for n in SETS)
    ]
    return [
        "## What was run",
        "",
        f"Records measured for this page: {len(found)}, by commit {', '.join(dates)}"
        + (
            "; of those with a +, the package had changes that were not committed yet"
            * any("+" in each for each in dates)
        )
        + "; further "
        f"seeds: {len(table.records) - len(found) + len(table.failed)} records of "
        "[the flagship's benchmark](flagship.md), from 2026-11-23 on. To tell whether those are of "
        f"the present code, {len(both)} of its runs were repeated here: accuracy is equal in "
        f"{len(both) - len(differing)}. Other figures: {told} (earlier records of these "
        "methods are left out: their code has changed, or rounds otherwise on this processor).",
        "",
        *[f"- failed: {what} ({', '.join(names)})" for what, names in failed.items()],
        *[""] * bool(failed),
        "Why cells are empty is an estimate, from what other cells took and from runs that were "
        "broken off; no record is kept of those.",
        "",
        *[f"- not run: {what}" for what in open_cells],
        "",
    ]


# -- the diagram ----------------------------------------------------------------------------------

STYLE = (
    "<style>.cd { --ink: #16191d; --paper: #ffffff; --bar: #2a6cb0; }"
    "@media (prefers-color-scheme: dark) { .cd { --ink: #e8ebef; --paper: #14171b; --bar: #74aeea; "
    "} }.cd text { font: 12px system-ui, 'DejaVu Sans', sans-serif; fill: var(--ink); }"
    ".cd .back { fill: var(--paper); }.cd line { stroke: var(--ink); }"
    ".cd line.bar { stroke: var(--bar); stroke-width: 4; }</style>"
)
WIDTH, MARGIN, STEP = 980, 340, 18


def ranks_drawing(found: Found) -> str:
    """Draw the critical-difference diagram; without ranks, an empty one."""
    ranks = Table(found).ranks()
    if ranks is None:
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="1"></svg>\n'
    mean, k = list(ranks.mean.items()), len(ranks.mean)
    joined = _joined([rank for _, rank in mean], ranks.distance)
    low = 60 + 9 * len(joined)
    height = low + STEP * ((k + 1) // 2) + 20

    def at(rank: float) -> float:
        return MARGIN + (rank - 1) / (k - 1) * (WIDTH - 2 * MARGIN)

    parts = [_line(at(1), 40, at(k), 40)]
    for tick in range(1, k + 1):
        parts.append(_line(at(tick), 36, at(tick), 40))
        if k <= 15 or tick % 2:  # More numbers than these would touch.
            parts.append(_text(at(tick), 30, str(tick), "middle"))
    parts += [
        _line(at(1), 10, at(1 + ranks.distance), 10, "bar"),
        _text(at(1 + ranks.distance) + 6, 14, f"critical difference {ranks.distance:.2f}", "start"),
    ]
    for i, (first, last) in enumerate(joined):
        y = 52 + 9 * i
        parts.append(_line(at(mean[first][1]) - 3, y, at(mean[last][1]) + 3, y, "bar"))
    for i, (method, rank) in enumerate(mean):
        left = i < (k + 1) // 2
        y = low + STEP * (i if left else k - 1 - i)
        end = MARGIN - 10 if left else WIDTH - MARGIN + 10
        name = f"{method} ({rank:.1f})"
        parts += [
            _line(at(rank), 40, at(rank), y),
            _line(at(rank), y, end, y),
            _text(end + (-4 if left else 4), y + 4, name, "end" if left else "start"),
        ]
    label = "Average ranks: " + ", ".join(f"{method} {rank:.2f}" for method, rank in mean)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cd" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(label)}">{STYLE}'
        f'<rect class="back" width="{WIDTH}" height="{height}"/>{"".join(parts)}</svg>\n'
    )


def _joined(ranks: Sequence[float], distance: float) -> list[tuple[int, int]]:
    """The longest runs of methods within the critical difference, first and last."""
    runs: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = max(j for j in range(first, len(ranks)) if ranks[j] - ranks[first] <= distance)
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((first, last))
    return runs


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<line{mark} x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
