"""Pictures of figures, as bars or as dots, for the top of a page of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import NamedTuple

from manyhands.report.charts import nice_ticks

STYLE = (
    "<style>.bars { --ink: #16191d; --paper: #ffffff; --bar: #2a6cb0; --other: #9aa4b0; "
    "--rule: #dde1e6; --second: #b0560f; --third: #68717b; }"
    "@media (prefers-color-scheme: dark) { .bars { --ink: #e8ebef; --paper: #14171b; "
    "--bar: #74aeea; --other: #5d6873; --rule: #31373f; --second: #e79c58; --third: #a2acb7; } }"
    ".bars text { font: 14px system-ui, 'DejaVu Sans', sans-serif; fill: var(--ink); }"
    ".bars text.ours { font-weight: 600; }.bars .back { fill: var(--paper); }"
    ".bars rect.ours { fill: var(--bar); }.bars rect.other { fill: var(--other); }"
    ".bars line { stroke: var(--rule); }.bars line.between { stroke: var(--other); "
    "stroke-width: 3; }.bars line.target { stroke: var(--ink); stroke-dasharray: 4 3; }"
    ".bars .d0 { fill: var(--bar); }.bars .d1 { fill: var(--second); }"
    ".bars .d2 { fill: var(--third); }</style>"
)
WIDTH, STEP, TOP, FIGURES = 560, 26, 34, 90
"""Width of a picture, whose words can still be read on a phone; and sizes within it."""


class Bar(NamedTuple):
    """A bar: its name, its length, the figure beside it, and whether it is ours."""

    name: str
    value: float
    figure: str
    ours: bool = False


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Draw figures as horizontal bars that begin at zero.

    Returns
    -------
    str
        SVG, which follows the reader's choice of light or dark.
    """
    parts, top = _title(title)
    height = top + STEP * len(rows) + 8
    longest = max(row.value for row in rows)
    names = _room_for(rows)
    beside_others = any(row.ours for row in rows)
    for i, row in enumerate(rows):
        y = top + STEP * i
        length = max((WIDTH - names - FIGURES) * row.value / longest, 1.0)
        kind = "ours" if row.ours else "other"
        colour = kind if beside_others else "ours"
        parts += [
            f'<text class="{kind}" x="{names - 10:.1f}" y="{y + 17}" text-anchor="end">'
            f"{escape(row.name)}</text>",
            f'<rect class="{colour}" x="{names:.1f}" y="{y + 4}" width="{length:.1f}" '
            'height="18"/>',
            f'<text x="{names + length + 8:.1f}" y="{y + 17}">{escape(row.figure)}</text>',
        ]
    label = f"{title}: " + ", ".join(f"{row.name} {row.figure}" for row in rows)
    return _whole(parts, height, label)


class Row(NamedTuple):
    """A row of dots: its name, a figure for each mark, and an interval around them, if any."""

    name: str
    figures: Mapping[str, float]
    interval: tuple[float, float] | None = None
    ours: bool = False


def dots(
    title: str, rows: Sequence[Row], *, target: float | None = None, digits: int | None = None
) -> str:
    """Draw figures as dots on one axis: a row for each thing, a mark for each kind of figure.

    Parameters
    ----------
    title : str
    rows : sequence of Row
        At most three kinds of figures; the first is drawn on top of the others. A line joins the
        figures of a row, or shows its interval.
    target : float, optional
        Where all figures should be: a dashed line.
    digits : int, optional
        Write the first figure beside its dot, with so many decimals.

    Returns
    -------
    str
        SVG, which follows the reader's choice of light or dark.
    """
    kinds = list(dict.fromkeys(kind for row in rows for kind in row.figures))
    ends = [value for row in rows for value in (*row.figures.values(), *(row.interval or ()))]
    ends += [] if target is None else [target]
    names = _room_for(rows)
    ticks = nice_ticks(min(ends), max(ends), max(3, int((WIDTH - names - 60) / 45)))
    first, last = ticks[0], ticks[-1]
    parts, top = _title(title)
    legend = _legend(kinds if len(kinds) > 1 else (), top)
    top = (legend[-1][2] + 19 if legend else top) + 18
    height = top + DOTS * len(rows) + 10

    def at(value: float) -> float:
        return names + (value - first) / (last - first) * (WIDTH - names - 60)

    for k, (kind, left, y) in enumerate(legend):
        parts += [
            _mark(k, left, y),
            f'<text x="{left + 12:.1f}" y="{y + 5:g}">{escape(kind)}</text>',
        ]
    for tick in ticks:
        x = f"{at(tick):.1f}"
        parts += [
            f'<line x1="{x}" y1="{top}" x2="{x}" y2="{height - 8}"/>',
            f'<text x="{x}" y="{top - 6}" text-anchor="middle">{tick:g}</text>',
        ]
    if target is not None:
        x = f"{at(target):.1f}"
        parts.append(f'<line class="target" x1="{x}" y1="{top}" x2="{x}" y2="{height - 8}"/>')
    for i, row in enumerate(rows):
        y = top + DOTS * i + DOTS / 2
        low, high = row.interval or (min(row.figures.values()), max(row.figures.values()))
        parts += [
            f'<text class="{"ours" if row.ours else "other"}" x="{names - 12:.1f}" y="{y + 5:g}" '
            f'text-anchor="end">{escape(row.name)}</text>',
            f'<line class="between" x1="{at(low):.1f}" y1="{y:g}" x2="{at(high):.1f}" y2="{y:g}"/>',
        ]
        for kind, value in reversed(list(row.figures.items())):
            parts.append(_mark(kinds.index(kind), at(value), y))
        if digits is not None:
            value = next(iter(row.figures.values()))
            parts.append(f'<text x="{at(high) + 10:.1f}" y="{y + 5:g}">{value:.{digits}f}</text>')
    told = (", ".join(f"{kind} {value:.4g}" for kind, value in r.figures.items()) for r in rows)
    label = f"{title}: " + "; ".join(f"{r.name}, {t}" for r, t in zip(rows, told, strict=True))
    return _whole(parts, height, label)


DOTS = 22
"""Height of a row of dots."""


def _title(title: str) -> tuple[list[str], int]:
    """Return the lines of a title, and where they end."""
    lines = wrap(title, 62)
    return [
        f'<text class="ours" x="8" y="{20 + 20 * k}">{escape(line)}</text>'
        for k, line in enumerate(lines)
    ], TOP + 20 * (len(lines) - 1)


def _room_for(rows: Sequence[Bar] | Sequence[Row]) -> float:
    """Return the width of the column of names; ours are bold."""
    return max(120.0, *(24 + (8.6 if row.ours else 7.7) * len(row.name) for row in rows))


def _legend(kinds: Iterable[str], top: float) -> list[tuple[str, float, float]]:
    """Place the kinds of figures below the title, on as many lines as they need."""
    found = []
    left, y = 16.0, top + 7
    for kind in kinds:
        width = 48 + 7.6 * len(kind)
        if left > 16 and left + width > WIDTH + 20:
            left, y = 16.0, y + 22
        found.append((kind, left, y))
        left += width
    return found


def _mark(kind: int, x: float, y: float) -> str:
    """Draw a circle, a diamond or a square, so that kinds differ without their colours, too."""
    if kind == 0:
        return f'<circle class="d0" cx="{x:.1f}" cy="{y:g}" r="5.5"/>'
    if kind == 1:
        return (
            f'<path class="d1" d="M{x - 6:.1f} {y:g}L{x:.1f} {y - 6:g}L{x + 6:.1f} {y:g}'
            f'L{x:.1f} {y + 6:g}Z"/>'
        )
    return f'<rect class="d2" x="{x - 4:.1f}" y="{y - 4:g}" width="8" height="8"/>'


def _whole(parts: Sequence[str], height: float, label: str) -> str:
    """Return a picture on the page's ground, with its figures as alternative text."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bars" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}" role="img" aria-label="{escape(label)}">{STYLE}'
        f'<rect class="back" width="{WIDTH}" height="{height:g}"/>{"".join(parts)}</svg>\n'
    )
