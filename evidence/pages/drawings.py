"""Figures as SVG files that stand alone: lines with error bars or bands, heat maps, and bars.

The same drawing serves a Markdown page (as a file) and an HTML page (inline): it carries its own
colours, light and dark, under the class ``figure``. Every text is escaped on its way in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from markupsafe import Markup

from manyhands.report.charts import log_ticks, nice_ticks
from manyhands.report.filters import short

WIDTH, HEIGHT = 380, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 34, 44
CELL, NAMES, WIDEST = 34, 30, 1120
LEGEND_LINE, KEY = 18, 26
COLOURS = 8
ACROSS = 3
"""Panels of lines side by side."""

WORDS, BARS = 320, 420
"""Width of the words beside bars, and of the longest bar."""

SHEET, HEADING = 1330, 26
"""Width of a sheet of drawings, and height of the title of each."""

MOST_DOTS = 30
"""Points of a line that are marked; more would hide it."""

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


STYLE_OF_BARS = Markup("""<style>
.figure text.said { font-size: 12px; fill: var(--ink); }
.figure text.count { font-weight: 600; fill: #ffffff; }
.figure .p0 { fill: #2f7a4d; } .figure .p1 { fill: #b3362b; } .figure .p2 { fill: #6d7783; }
.figure .p3 { fill: #8a6100; } .figure .p4 { fill: #4a525b; }
</style>""")


@dataclass(frozen=True)
class Drawing:
    """Shapes within a width and a height in pixels; ``description`` is the alternative text."""

    width: int
    height: int
    shapes: Markup
    description: str

    @property
    def svg(self) -> str:
        """The drawing as a whole SVG document."""
        return str(
            Markup(
                '<svg xmlns="http://www.w3.org/2000/svg" class="figure" viewBox="0 0 {0} {1}" '
                'width="{0}" height="{1}" role="img" aria-label="{2}">\n{3}\n'
                '<rect class="back" width="{0}" height="{1}"/>\n{4}\n</svg>\n'
            ).format(self.width, self.height, self.description, STYLE, self.shapes)
        )


@dataclass(frozen=True)
class Point:
    """A mean over seeds at a place; ``sd`` is None for a single run, ``n`` counts them."""

    x: float
    mean: float
    sd: float | None
    n: int | None = None


@dataclass(frozen=True)
class Lines:
    """A panel of lines, name -> points; ``y_label`` says what is measured.

    ``levels`` are horizontal lines, name -> height.
    """

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[Point]]
    levels: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """Ticks of an axis, the first and last at its ends."""

    ticks: Sequence[float]
    log: bool = False

    def share(self, value: float) -> float:
        """Return where a value stands, at most 1; a logarithmic axis cuts what is below it, too.

        Examples
        --------
        >>> Scale([0.0, 50.0]).share(10.0), Scale([1.0, 10.0, 100.0], log=True).share(10.0)
        (0.2, 0.5)
        """
        first, last = self.ticks[0], self.ticks[-1]
        value = min(value, last)
        if self.log:
            value, first, last = (math.log10(max(v, first)) for v in (value, first, last))
        return (value - first) / (last - first)


@dataclass(frozen=True)
class Matrix:
    """A panel with a heat map of shares, ``values[row][column]``."""

    title: str
    values: Sequence[Sequence[float]]


def draw_lines(
    panels: Sequence[Lines],
    description: str,
    *,
    bands: bool = False,
    log: bool = False,
    top: float = math.inf,
) -> Drawing:
    """Draw panels of lines side by side on one scale, with one legend beneath.

    Parameters
    ----------
    panels : sequence of Lines
        With at least one point.
    description : str
        Alternative text, for readers who cannot see the figure.
    bands : bool, default=False
        Draw standard deviations as bands instead of bars, for lines of many points.
    log : bool, default=False
        Use a logarithmic y axis; all points and levels must be above 0. The axis begins below the
        smallest of them, and cuts standard deviations that reach further down.
    top : float
        Largest possible value; standard deviations are cut above it.

    Returns
    -------
    Drawing
    """
    points = [p for panel in panels for line in panel.series.values() for p in line]
    xs = Scale(_x_ticks([p.x for p in points]))
    heights = [y for panel in panels for y in panel.levels.values()]
    ys = Scale(_y_ticks(points, heights, log, top), log)
    names = list(dict.fromkeys(name for panel in panels for name in panel.series))
    levels = list(dict.fromkeys(name for panel in panels for name in panel.levels))
    parts = [
        _moved(
            k % ACROSS * WIDTH,
            _panel_of_lines(panel, names, levels, xs, ys, bands),
            k // ACROSS * HEIGHT,
        )
        for k, panel in enumerate(panels)
    ]
    width = WIDTH * min(len(panels), ACROSS)
    height = HEIGHT * math.ceil(len(panels) / ACROSS)
    legend, legend_height = _legend(names, levels, width)
    parts.append(_moved(0, legend, height))
    return Drawing(width, height + legend_height, Markup("\n").join(parts), description)


def _x_ticks(xs: Sequence[float]) -> list[float]:
    low, high = min(xs), max(xs)
    if not all(float(x).is_integer() for x in xs):
        return nice_ticks(low, high, 5)
    # Between rounds or epochs there is nothing to name.
    high = max(high, low + 1)
    return nice_ticks(low, high, min(5, int(high - low)), (1, 2, 5, 10))


def _y_ticks(
    points: Sequence[Point], levels: Sequence[float], log: bool, top: float
) -> list[float]:
    heights = [*(p.mean for p in points), *levels]
    ends = [p.mean + sign * (p.sd or 0.0) for p in points for sign in (-1, 1)]
    if log:
        return log_ticks(min(heights), max(*ends, *heights))
    return nice_ticks(min(*ends, *heights), min(top, max(*ends, *heights)), 5)


def draw_matrices(panels: Sequence[Matrix], description: str) -> Drawing:
    """Draw square matrices side by side, in lines, as heat maps; 0 is blank and 1 is full.

    Parameters
    ----------
    panels : sequence of Matrix
    description : str
        Alternative text, for readers who cannot see the figure.

    Returns
    -------
    Drawing
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
    return Drawing(right, bottom, Markup("\n").join(parts), description)


def draw_shares(
    rows: Mapping[str, Sequence[int]], parts: Sequence[str], description: str
) -> Drawing:
    """Draw a bar for each row, cut into parts; the numbers stand in them.

    Parameters
    ----------
    rows : mapping of str to sequence of int
        Words -> how many each part counts. A bar is as long as its share of the longest.
    parts : sequence of str
        Names of the parts, at most five.
    description : str
        Alternative text.

    Returns
    -------
    Drawing
    """
    most = max(sum(counts) for counts in rows.values())
    used = [k for k in range(len(parts)) if any(counts[k] for counts in rows.values())]
    shapes, left = [STYLE_OF_BARS], float(WORDS)
    for k in used:
        shapes.append(_bar(left, 8, 12, 12, k))
        shapes.append(_text(left + 17, 18, parts[k], anchor="start"))
        left += 34 + 6.2 * len(parts[k])
    right, y = left, 34.0
    for words, counts in rows.items():
        lines = wrap(words, 46)
        height = max(26, 14 * len(lines) + 8)
        y += (height - 26) / 2
        for i, line in enumerate(lines):
            shapes.append(
                _text(WORDS - 10, y + 12 + 14 * i - 7 * (len(lines) - 1), line, "said", "end")
            )
        left = WORDS
        for k in used:
            if width := BARS * counts[k] / most:
                shapes.append(_bar(left, y, width, 16, k))
                shapes.append(_text(left + width / 2, y + 12, counts[k], "count"))
                left += width
        y += (height + 26) / 2
    return Drawing(
        round(max(right, WORDS + BARS)) + 10, round(y) + 6, Markup("\n").join(shapes), description
    )


def _bar(x: float, y: float, width: float, height: float, k: int) -> Markup:
    return Markup('<rect class="share p{}" x="{}" y="{}" width="{}" height="{}"/>').format(
        k, _round(x), _round(y), _round(width), height
    )


def gather(drawings: Mapping[str, Drawing]) -> Drawing:
    """Put drawings, title -> drawing, on one sheet: side by side, in lines."""
    parts, left, top, right, bottom = [], 0, 0, 0, 0
    for title, drawing in drawings.items():
        width = max(drawing.width, NAMES + 7 * len(title))
        if left and left + width > SHEET:
            left, top = 0, bottom
        parts.append(_moved(left, _text(NAMES, 18, title, "title", "start"), top))
        parts.append(_moved(left, drawing.shapes, top + HEADING))
        left += width
        right, bottom = max(right, left), max(bottom, top + HEADING + drawing.height)
    description = ". ".join(drawing.description for drawing in drawings.values())
    return Drawing(right, bottom, Markup("\n").join(parts), description)


def _panel_of_lines(
    panel: Lines,
    names: Sequence[str],
    levels: Sequence[str],
    xs: Scale,
    ys: Scale,
    bands: bool,
) -> Markup:
    parts = [
        _text(WIDTH / 2, 16, panel.title, "title"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, panel.x_label),
        Markup(
            '<text transform="translate(13 {}) rotate(-90)" text-anchor="middle">{}</text>'
        ).format(_round((TOP + HEIGHT - BOTTOM) / 2), panel.y_label),
    ]
    # The table's order in the legend; what is a dot alone lies above the lines.
    series = sorted(panel.series.items(), key=lambda item: -len(item[1]) if bands else 0)
    for tick in ys.ticks:
        y = _round(_y(tick, ys))
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(
                LEFT, WIDTH - RIGHT, y=y
            )
        )
        shown = f"{tick:g}" if ys.log else short(tick)
        parts.append(_text(LEFT - 6, _y(tick, ys) + 3.5, shown, anchor="end"))
    parts += [_text(_x(tick, xs), HEIGHT - BOTTOM + 15, short(tick)) for tick in xs.ticks]
    for name, level in panel.levels.items():
        description = f"{name}: {short(level)}"
        parts.append(_level(levels.index(name), LEFT, WIDTH - RIGHT, _y(level, ys), description))
    for name, points in series if bands else ():
        # Beneath all lines.
        parts.append(_band(names.index(name), points, xs, ys))
    for name, points in series:
        parts.append(_line(name, names.index(name), points, xs, ys, bars=not bands))
    return Markup("").join(parts)


def _band(k: int, points: Sequence[Point], xs: Scale, ys: Scale) -> Markup:
    """Fill one standard deviation around the mean; it has no width at a single run."""
    at = sorted(points, key=lambda p: p.x)
    edges = [
        f"{_round(_x(p.x, xs))},{_round(_y(p.mean + sign * (p.sd or 0.0), ys))}"
        for sign, side in ((1, at), (-1, at[::-1]))
        for p in side
    ]
    return Markup('<polygon class="f{}" fill-opacity="0.15" points="{}"/>').format(
        k % COLOURS, " ".join(edges)
    )


def _level(k: int, left: float, right: float, y: float, description: str) -> Markup:
    """Draw a horizontal line; its dashes tell it from others, its colour from what was run."""
    return Markup(
        '<line class="level" style="stroke: var(--ink)" stroke-dasharray="{}" x1="{}" x2="{}" '
        'y1="{y}" y2="{y}"><title>{}</title></line>'
    ).format(f"{1 + 3 * k} 3", _round(left), _round(right), description, y=_round(y))


def _line(name: str, k: int, points: Sequence[Point], xs: Scale, ys: Scale, bars: bool) -> Markup:
    stroke = _stroke(k)
    at = [(_x(p.x, xs), p) for p in sorted(points, key=lambda p: p.x)]
    path = " ".join(f"{_round(x)},{_round(_y(p.mean, ys))}" for x, p in at)
    parts = [Markup('<polyline class="line {}" points="{}"/>').format(stroke, path)]
    for x, p in at if len(at) <= MOST_DOTS or bars else ():
        # A lone point has no band.
        if p.sd is not None and (bars or len(at) == 1):
            parts.append(
                Markup('<line class="bar s{}" x1="{x}" x2="{x}" y1="{}" y2="{}"/>').format(
                    k % COLOURS,
                    _round(_y(p.mean - p.sd, ys)),
                    _round(_y(p.mean + p.sd, ys)),
                    x=_round(x),
                )
            )
        sd = "" if p.sd is None else f" ± {short(p.sd)}"
        sd += "" if p.n is None else f" ({p.n})"
        parts.append(
            Markup('<circle class="f{}" cx="{}" cy="{}" r="3"><title>{}</title></circle>').format(
                k % COLOURS,
                _round(x),
                _round(_y(p.mean, ys)),
                f"{name}, {short(p.x)}: {short(p.mean)}{sd}",
            )
        )
    return Markup("").join(parts)


def _legend(names: Sequence[str], levels: Sequence[str], width: int) -> tuple[Markup, int]:
    """Keys and names from left to right, in as many lines as they need."""
    parts, x, y = [], float(LEFT), 8.0
    for k, name in enumerate([*names, *levels]):
        needed = KEY + 6.5 * len(name) + 18
        if x > LEFT and x + needed > width - RIGHT:
            x, y = float(LEFT), y + LEGEND_LINE
        if k < len(names):
            key = Markup('<line class="line {}" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(
                _stroke(k), _round(x), _round(x + KEY - 6), y=_round(y)
            )
        else:
            key = _level(k - len(names), x, x + KEY - 6, y, name)
        parts.append(key)
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


def _x(value: float, scale: Scale) -> float:
    return LEFT + scale.share(value) * (WIDTH - LEFT - RIGHT)


def _y(value: float, scale: Scale) -> float:
    return HEIGHT - BOTTOM - scale.share(value) * (HEIGHT - TOP - BOTTOM)


def _round(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
