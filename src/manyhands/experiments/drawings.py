"""Figures as SVG files that stand alone: lines with error bars, and heat maps.

The same drawing serves a Markdown page (as a file) and an HTML page (inline): it carries its own
colours, light and dark, under the class ``figure``. Every text is escaped on its way in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from manyhands.report._charts import nice_ticks
from manyhands.report._words import short

WIDTH, HEIGHT = 380, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 34, 44
CELL, NAMES, WIDEST = 34, 30, 1120
LEGEND_LINE, KEY = 18, 26
COLOURS = 8

STYLE = Markup("""<style>
.figure { --ink: #16191d; --quiet: #58626d; --rule: #dde1e6; --paper: #ffffff; --heat: #2a6cb0;
--c0: #2a6cb0; --c1: #b0560f; --c2: #2f7a4d; --c3: #7a4fa3; --c4: #b3246b; --c5: #0e7f8c;
--c6: #8a6d00; --c7: #5b6470; }
@media (prefers-color-scheme: dark) { .figure { --ink: #e8ebef; --quiet: #a2acb7; --rule: #31373f;
--paper: #14171b; --heat: #4f93d8; --c0: #74aeea; --c1: #e79c58; --c2: #6fc08f; --c3: #b995dd;
--c4: #ea7fb0; --c5: #5cc3cf; --c6: #d3b64a; --c7: #a2acb7; } }
.figure .back { fill: var(--paper); }
.figure text { font: 11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
fill: var(--quiet); }
.figure text.title { font-weight: 600; fill: var(--ink); }
.figure text.cell { font-size: 10px; fill: var(--ink); }
.figure .grid { stroke: var(--rule); }
.figure .heat { fill: var(--heat); stroke: var(--rule); }
.figure .line { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
.figure .line.s1, .figure .line.s5 { stroke-dasharray: 6 4; }
.figure .line.s2, .figure .line.s6 { stroke-dasharray: 2 3; }
.figure .line.s3, .figure .line.s7 { stroke-dasharray: 9 3 2 3; }
.figure .line.again { stroke-width: 3; }
.figure .bar { stroke-width: 1.25; stroke-dasharray: none; }
</style>""") + Markup("<style>\n{}</style>").format(
    Markup("").join(
        f".figure .s{k} {{ stroke: var(--c{k}); }} .figure .f{k} {{ fill: var(--c{k}); }}\n"
        for k in range(COLOURS)
    )
)


@dataclass(frozen=True)
class Point:
    """A mean over seeds at a place; ``sd`` is None for a single run."""

    x: float
    mean: float
    sd: float | None


@dataclass(frozen=True)
class Lines:
    """A panel of lines, name -> points; ``y_label`` says what is measured."""

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[Point]]


@dataclass(frozen=True)
class Matrix:
    """A panel with a heat map of shares, ``values[row][column]``."""

    title: str
    values: Sequence[Sequence[float]]


def draw_lines(panels: Sequence[Lines], told: str) -> str:
    """Draw panels of lines side by side on one scale, with one legend beneath.

    Parameters
    ----------
    panels : sequence of Lines
        With at least one point.
    told : str
        What the figure shows, for who does not see it.

    Returns
    -------
    str
        A whole SVG document.
    """
    points = [p for panel in panels for line in panel.series.values() for p in line]
    xs = nice_ticks(min(p.x for p in points), max(p.x for p in points), 5)
    spread = [p.mean + sign * (p.sd or 0.0) for p in points for sign in (-1, 1)]
    ys = nice_ticks(min(spread), max(spread), 5)
    names = list(dict.fromkeys(name for panel in panels for name in panel.series))
    parts = [
        _moved(k * WIDTH, _panel_of_lines(panel, names, xs, ys)) for k, panel in enumerate(panels)
    ]
    width = WIDTH * len(panels)
    legend, legend_height = _legend(names, width)
    parts.append(_moved(0, legend, HEIGHT))
    return _document(width, HEIGHT + legend_height, parts, told)


def draw_matrices(panels: Sequence[Matrix], told: str) -> str:
    """Draw square matrices side by side, in lines, as heat maps; 0 is blank and 1 is full.

    Parameters
    ----------
    panels : sequence of Matrix
    told : str
        What the figure shows, for who does not see it.

    Returns
    -------
    str
        A whole SVG document.
    """
    parts, left, top, right, bottom = [], 0, 0, 0, 0
    for panel in panels:
        size = len(panel.values)
        width = max(NAMES + size * CELL, 7 * len(panel.title)) + 24
        if left and left + width > WIDEST:
            left, top = 0, bottom
        parts.append(_moved(left, _heat_map(panel), top))
        left += width
        right, bottom = max(right, left), max(bottom, top + TOP + NAMES + size * CELL)
    return _document(right, bottom, parts, told)


def _panel_of_lines(
    panel: Lines, names: Sequence[str], xs: Sequence[float], ys: Sequence[float]
) -> Markup:
    parts = [
        _text(WIDTH / 2, 16, panel.title, "title"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, panel.x_label),
        Markup(
            '<text transform="translate(13 {}) rotate(-90)" text-anchor="middle">{}</text>'
        ).format(_round((TOP + HEIGHT - BOTTOM) / 2), panel.y_label),
    ]
    for tick in ys:
        y = _round(_y(tick, ys))
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(
                LEFT, WIDTH - RIGHT, y=y
            )
        )
        parts.append(_text(LEFT - 6, _y(tick, ys) + 3.5, short(tick), anchor="end"))
    parts += [_text(_x(tick, xs), HEIGHT - BOTTOM + 15, short(tick)) for tick in xs]
    for name, points in panel.series.items():
        parts.append(_line(name, names.index(name), points, xs, ys))
    return Markup("").join(parts)


def _line(
    name: str, k: int, points: Sequence[Point], xs: Sequence[float], ys: Sequence[float]
) -> Markup:
    stroke = _stroke(k)
    at = [(_x(p.x, xs), p) for p in sorted(points, key=lambda p: p.x)]
    path = " ".join(f"{_round(x)},{_round(_y(p.mean, ys))}" for x, p in at)
    parts = [Markup('<polyline class="line {}" points="{}"/>').format(stroke, path)]
    for x, p in at:
        if p.sd is not None:
            parts.append(
                Markup('<line class="bar s{}" x1="{x}" x2="{x}" y1="{}" y2="{}"/>').format(
                    k % COLOURS,
                    _round(_y(p.mean - p.sd, ys)),
                    _round(_y(p.mean + p.sd, ys)),
                    x=_round(x),
                )
            )
        sd = "" if p.sd is None else f" ± {short(p.sd)}"
        parts.append(
            Markup('<circle class="f{}" cx="{}" cy="{}" r="3"><title>{}</title></circle>').format(
                k % COLOURS,
                _round(x),
                _round(_y(p.mean, ys)),
                f"{name}, {short(p.x)}: {short(p.mean)}{sd}",
            )
        )
    return Markup("").join(parts)


def _legend(names: Sequence[str], width: int) -> tuple[Markup, int]:
    """Keys and names from left to right, in as many lines as they need."""
    parts, x, y = [], float(LEFT), 8.0
    for k, name in enumerate(names):
        needed = KEY + 6.5 * len(name) + 18
        if x > LEFT and x + needed > width - RIGHT:
            x, y = float(LEFT), y + LEGEND_LINE
        parts.append(
            Markup('<line class="line {}" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(
                _stroke(k), _round(x), _round(x + KEY - 6), y=_round(y)
            )
        )
        parts.append(_text(x + KEY, y + 4, name, anchor="start"))
        x += needed
    return Markup("").join(parts), int(y) + LEGEND_LINE


def _heat_map(panel: Matrix) -> Markup:
    parts = [_text(NAMES, 16, panel.title, "title", "start")]
    for i, row in enumerate(panel.values):
        y = TOP + NAMES / 2 + i * CELL
        parts.append(_text(NAMES - 6, y + CELL / 2 + 4, i, anchor="end"))
        parts.append(_text(NAMES + (i + 0.5) * CELL, TOP + NAMES / 2 - 5, i))
        for j, value in enumerate(row):
            x = NAMES + j * CELL
            parts.append(
                Markup(
                    '<rect class="heat" x="{}" y="{}" width="{}" height="{}" fill-opacity="{}"/>'
                ).format(x, _round(y), CELL, CELL, f"{0.75 * min(max(value, 0.0), 1.0):.3f}")
            )
            parts.append(_text(x + CELL / 2, y + CELL / 2 + 4, f"{value:.2f}", "cell"))
    return Markup("").join(parts)


def _stroke(k: int) -> str:
    return f"s{k % COLOURS}" + (" again" if k >= COLOURS else "")


def _text(x: float, y: float, text: object, kind: str = "tick", anchor: str = "middle") -> Markup:
    return Markup('<text class="{}" text-anchor="{}" x="{}" y="{}">{}</text>').format(
        kind, anchor, _round(x), _round(y), text
    )


def _moved(x: float, part: Markup, y: float = 0) -> Markup:
    return Markup('<g transform="translate({} {})">{}</g>').format(_round(x), _round(y), part)


def _x(value: float, ticks: Sequence[float]) -> float:
    share = (value - ticks[0]) / (ticks[-1] - ticks[0])
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(value: float, ticks: Sequence[float]) -> float:
    share = (value - ticks[0]) / (ticks[-1] - ticks[0])
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _round(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _document(width: int, height: int, parts: Sequence[Markup], told: str) -> str:
    return str(
        Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" class="figure" viewBox="0 0 {0} {1}" '
            'width="{0}" height="{1}" role="img" aria-label="{2}">\n{3}\n'
            '<rect class="back" width="{0}" height="{1}"/>\n{4}\n</svg>\n'
        ).format(width, height, told, STYLE, Markup("\n").join(parts))
    )
