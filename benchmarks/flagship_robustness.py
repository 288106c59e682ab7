"""Worse annotations on the page of `flagship.py`: tables and curves from its records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pages import table_lines

from evidence.pages.drawings import Drawing, Lines, Point, draw_lines, gather

Found = list[dict[str, Any]]
STACK, WEIGHTED = "stack", 'stack, decision="balanced"'
SETS = {"labelme": "LabelMe", "music": "Music"}
AXES = {
    " % removed": ("annotations removed", "% of annotations", 0),
    " % spammers": ("spammers", "% of annotators", 0),
    " % shared mistakes": ("shared mistakes", "% of annotations of two classes", 0),
    "imbalance ": ("imbalance", "largest class : rare class", 1),
}
"""Part of a change's name -> its title, the label of its axis, and where nothing is changed."""


def stressed(found: Found) -> list[str]:
    """Methods that were fitted to worse annotations, the stack first."""
    methods = dict.fromkeys(each["method"] for each in found if each["change"])
    return sorted(methods, key=lambda method: method != STACK)


def seeds_told(found: Found) -> str:
    """Seeds of the stack under changes, and the methods that have fewer, or lack some cases."""
    n = {
        method: min(
            len(values(found, name, change, method))
            for name in SETS
            for change in filter(None, changes(found, name))
        )
        for method in stressed(found)
    }
    fewer = [f"of {method} {own}" for method, own in n.items() if own < n[STACK]]
    return f"Seeds: {n[STACK]}" + f"; {', '.join(fewer)}" * bool(fewer) + "."


def changes(found: Found, name: str) -> list[str]:
    """Changes to a set's annotations or classes, in the order of the first records."""
    each = dict.fromkeys(each["change"] for each in found if each["set"] == name)
    return [change for change in each if not change.endswith("labelled")]


def field_of(change: str) -> str:
    """Balanced accuracy where classes are thinned, accuracy elsewhere."""
    return "balanced_accuracy" if change.startswith("imbalance") else "accuracy"


def by_seed(
    found: Found, name: str, change: str, method: str, field: str | None = None
) -> dict[int, float]:
    """Percentage of a method under a change, for each seed."""
    own, weighted = method.replace(WEIGHTED, STACK), method == WEIGHTED
    field = field or field_of(change)
    return {
        each["seed"]: 100 * (each["weighted"] if weighted else each)[field]
        for each in found
        if (each["set"], each["change"], each["method"]) == (name, change, own) and each["fold"] < 0
    }


def values(
    found: Found, name: str, change: str, method: str, field: str | None = None
) -> list[float]:
    """Percentages of a method under a change, one for each seed."""
    return list(by_seed(found, name, change, method, field).values())


def shown(each: Sequence[float], best: bool) -> str:
    """Mean ± sd; the best is bold."""
    if not each:
        return "–"
    text = f"{np.mean(each):.1f}" + (f" ± {np.std(each, ddof=1):.1f}" if len(each) > 1 else "")
    return f"**{text}**" if best else text


def robustness_part(found: Found) -> list[str]:
    """Accuracy, or balanced accuracy where classes are thinned, as annotations get worse."""
    methods = stressed(found)
    if not methods:
        return []
    lines = ["![Accuracy as annotations get worse](flagship-robustness.svg)", ""]
    for name in SETS:
        rows = []
        for change in changes(found, name):
            thinned = change.startswith("imbalance")
            each = {method: values(found, name, change, method) for method in methods}
            each[WEIGHTED] = values(found, name, change, WEIGHTED) if thinned else []
            means = {
                method: round(float(np.mean(own)), 1)
                for method, own in each.items()
                if len(own) == len(each[STACK])  # Other seeds draw other changes.
            }
            top = max(means.values())
            rows.append(
                [
                    (change or "as it is") + (" (balanced)" if thinned else ""),
                    *(shown(own, means.get(method) == top) for method, own in each.items()),
                ]
            )
        lines += table_lines([SETS[name], *methods, WEIGHTED], rows)
    return lines


def robust(found: Found) -> list[str]:
    """Cases in which the stack is best, and its largest loss, for the conclusions.

    Each other method is compared on its own seeds, as the seed draws the change.
    """
    losses = []
    for name in SETS:
        for change in filter(None, changes(found, name)):
            each = {m: by_seed(found, name, change, m) for m in stressed(found)}
            own = each.pop(STACK)
            leads = (
                (float(np.mean([value - own[seed] for seed, value in other.items()])), who)
                for who, other in each.items()
                if other
            )
            lead, who = max(leads)
            theirs, ours = (
                np.mean([*each[who].values()]),
                np.mean([own[seed] for seed in each[who]]),
            )
            told = f"{ours:.1f} against {theirs:.1f} of {who}, seeds: {len(each[who])}"
            losses.append((lead, name, change, told))
    if not losses:
        return []
    worst, name, change, told = max(losses)
    return [
        f"- **Worse annotations:** the stack is best in {sum(loss <= 0 for loss, *_ in losses)} of "
        f"{len(losses)} cases on LabelMe and Music, among {len(stressed(found))} methods. At worst "
        f"it is {worst:.1f} points behind ({SETS[name]}, {change}: {told})."
    ]


def curves(found: Found) -> Drawing:
    """Draw a pair of panels for each kind of change, LabelMe and Music."""
    sheet = {}
    for part, (title, x_label, start) in AXES.items():
        measure = "balanced accuracy, %" if part == "imbalance " else "accuracy, %"
        panels = []
        for name, set_title in SETS.items():
            series = {m: list(_points(found, name, part, start, m)) for m in stressed(found)}
            panels.append(Lines(set_title, x_label, measure, series))
        description = f"{measure} of every method on LabelMe and Music against {title}"
        sheet[title.capitalize()] = draw_lines(panels, description, top=100)
    return gather(sheet)


def _points(found: Found, name: str, part: str, start: int, method: str) -> Iterable[Point]:
    """Means of a method over the strengths of one kind of change."""
    field = field_of(part)
    for change in changes(found, name):
        if change and part not in change:
            continue
        x = int(change.replace(part, "").split(":")[0]) if change else start
        if each := values(found, name, change, method, field):
            sd = float(np.std(each, ddof=1)) if len(each) > 1 else None
            yield Point(x, float(np.mean(each)), sd, len(each))
