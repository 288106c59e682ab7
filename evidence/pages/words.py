"""Writing figures on a page: the mean of our runs, and the figure that the paper prints."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evidence.experiments.papers import column_of
from evidence.pages.document import Block, Items, Paragraph
from evidence.pages.verdicts import by_seed, show
from evidence.records import LAST, ORACLE, SHARES, SHORT, Record

if TYPE_CHECKING:
    from evidence.experiments.papers import FigurePlan, Paper
    from evidence.experiments.rows import Row

DASH = "–"

NOT_RUN = "not run"


def mean_sd(values: Sequence[float], metric: str, *, history: bool = False) -> str:
    """Write ``mean ± sd (n)`` of a measure, or of a column of a history.

    Examples
    --------
    >>> mean_sd([0.86, 0.88], "accuracy")
    '87.00 ± 1.41 (2)'
    """
    if not values:
        return DASH
    mean = show(metric, float(np.mean(values)), history=history)
    if len(values) == 1:
        return f"{mean} (1)"
    # Equal values have a deviation of some roundings of their mean.
    sd = 0.0 if np.allclose(values, values[0], rtol=1e-12, atol=0) else np.std(values, ddof=1)
    return f"{mean} ± {show(metric, float(sd), history=history)} ({len(values)})"


def binomial_error(share: float, n: int) -> float:
    """Standard error of a share of ``n`` independent test instances."""
    return math.sqrt(share * (1 - share) / n)


def measure_cell(runs: Sequence[Record], metric: str, selection: str) -> str:
    """Write a figure, and mark it if an oracle chose its epoch."""
    text = mean_sd(list(by_seed(runs, metric, selection).values()), metric)
    oracle = selection == ORACLE and metric in SHARES and text != DASH
    return f"{text} oracle" if oracle else text


def printed(row: Row, metric: str, *, history: bool = False) -> str:
    """Write the paper's figure of a measure with how its epoch was chosen."""
    published = row.published_of(metric)
    if published is None:
        return DASH
    sd, n = published.get("sd"), published.get("n")
    text = show(metric, published["value"], history=history)
    text += "" if sd is None else f" ± {show(metric, sd, history=history)}"
    text += "" if n is None else f" ({n})"
    chosen = printed_selection(row, metric)
    return f"{text} oracle" if chosen == ORACLE else text + (f", {chosen}" if chosen else "")


def printed_selection(row: Row, metric: str) -> str | None:
    """Return how the epoch of the paper's figure was chosen; None if the paper does not say."""
    return SHORT.get((row.published_of(metric) or {}).get("selection") or "")


def as_chosen(row: Row, runs: Sequence[Record], metric: str) -> tuple[str, list[float]]:
    """Return how the paper chose its epoch, and our figures by this choice."""
    selection = printed_selection(row, metric) or LAST
    return selection, list(by_seed(runs, metric, selection).values())


def unequal_seeds(rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]) -> list[Block]:
    """Warn where rows of a column have means over different numbers of seeds."""
    for column in dict.fromkeys(map(column_of, rows)):
        mine = (runs.get(row.id, []) for row in rows if column_of(row) == column)
        if len({len({run.seed for run in own}) for own in mine if own}) > 1:
            return [
                Paragraph(
                    "Some rows have more seeds than others: compare them by differences paired by "
                    "seed, as the claims do, and not by their means."
                )
            ]
    return []


def deviations(rows: Sequence[Row]) -> list[Block]:
    """List how the runs of these rows differ from the paper's, one line per deviation."""
    concerned: dict[str, list[Row]] = {}
    for row in rows:
        for text in row.deviations:
            concerned.setdefault(text, []).append(row)
    items = [f"{text} ({_which(own, rows)})" for text, own in concerned.items()]
    return [Items("Deviations from the paper:", items)] if items else []


def _which(concerned: Sequence[Row], rows: Sequence[Row]) -> str:
    """Name some rows of a table in few words: whole columns, rows on all columns, the others."""
    if len(concerned) == len(rows):
        return "all rows"
    left = Counter((row.label, column_of(row)) for row in rows)
    left -= Counter((row.label, column_of(row)) for row in concerned)
    named = list(dict.fromkeys((row.label, column_of(row)) for row in concerned))
    labels_of = _grouped((column_of(row), row.label) for row in rows)
    columns_of = _grouped((row.label, column_of(row)) for row in rows)

    def whole(pairs: Iterable[tuple[str, str]]) -> bool:
        return all(pair in named and not left[pair] for pair in pairs)

    if len(labels_of) == 1:  # The only column needs no name.
        (column,) = labels_of
        return _but([label for label, _ in named], [], labels_of[column])
    columns = [c for c, labels in labels_of.items() if whole((label, c) for label in labels)]
    alone = [
        label
        for label, own in columns_of.items()
        if not set(own) <= set(columns) and len(own) > 1 and whole((label, c) for c in own)
    ]
    rest = _grouped((c, label) for label, c in named if c not in columns and label not in alone)
    same = _grouped((_but(rest[c], alone, labels_of[c]), c) for c in rest)
    groups = [f"column{'s' * (len(columns) > 1)} {quoted(columns)}"] * bool(columns)
    groups += [f"row{'s' * (len(alone) > 1)} {quoted(alone)}"] * bool(alone)
    groups += [f"on {quoted(own)}: {labels}" for labels, own in same.items()]
    return "; ".join(groups)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return what stands behind each first name, in order and once."""
    found: dict[str, dict[str, None]] = {}
    for first, second in pairs:
        found.setdefault(first, {})[second] = None
    return {first: list(own) for first, own in found.items()}


def _but(labels: Sequence[str], alone: Sequence[str], of_column: Sequence[str]) -> str:
    """Name labels, or those that are missing in their column if these are fewer."""
    missing = [label for label in of_column if label not in {*labels, *alone}]
    return f"all but {quoted(missing)}" if 0 < len(missing) < len(labels) else quoted(labels)


def quoted(names: Iterable[str]) -> str:
    """List names once each; those with a comma stand in quotation marks."""
    return ", ".join(f"“{name}”" if "," in name else name for name in dict.fromkeys(names))


def in_order(planned: Sequence[str], found: Iterable[str]) -> list[str]:
    """Return the planned names, then the other names found in rows."""
    return list(dict.fromkeys([*planned, *found]))


def figure_file(paper: Paper, plan: FigurePlan) -> str:
    """Name the file of a figure's drawing, which is that of its sheet if it is on one."""
    return f"{paper.key}-{plan.sheet or plan.id}.svg"
