"""Writing figures on a page: the mean of our runs, and the figure that the paper prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from manyhands.evidence.experiments.papers import column_of
from manyhands.evidence.pages.document import Block, Items
from manyhands.evidence.pages.verdicts import by_seed, show
from manyhands.evidence.records.records import ORACLE, SHARES, SHORT, Record

if TYPE_CHECKING:
    from manyhands.evidence.experiments.papers import FigurePlan, Paper
    from manyhands.evidence.experiments.rows import Row

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
    return (
        f"{mean} ± {show(metric, float(np.std(values, ddof=1)), history=history)} ({len(values)})"
    )


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


def deviations(rows: Sequence[Row]) -> list[Block]:
    """List how the runs of these rows differ from the paper's, one line per deviation."""
    labels: dict[str, list[str]] = {}
    for row in rows:
        for text in row.deviations:
            labels.setdefault(text, []).append(f"{row.label} on {column_of(row)}")
    items = [
        f"{text} ({'all rows' if len(names) == len(rows) else '; '.join(dict.fromkeys(names))})"
        for text, names in labels.items()
    ]
    return [Items("Deviations from the paper:", items)] if items else []


def in_order(planned: Sequence[str], found: Iterable[str]) -> list[str]:
    """Return the planned names, then the other names found in rows."""
    return list(dict.fromkeys([*planned, *found]))


def figure_file(paper: Paper, plan: FigurePlan) -> str:
    """Name the file of a figure's drawing, which is that of its sheet if it is on one."""
    return f"{paper.key}-{plan.sheet or plan.id}.svg"
