"""Small charts as inline SVG, coloured by the page's CSS, without a plotting library.

Colours are CSS classes and ``currentColor``, so one drawing serves light, dark and print. All text
is escaped. A bar's ``<title>`` holds its number, and the chart's ``aria-label`` all of its numbers.
Sizes are in CSS pixels: charts are laid out side by side, not stretched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup

from manyhands.report.filters import DASH, clipped, percent, short

WIDTH, HEIGHT = 330, 176
WIDEST_BAR = 44
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 12, 38

MOST_DECADES = 8
"""Most ticks of a logarithmic axis, one per power of ten."""

Bins = Sequence[dict[str, Any]]


def count_bars(bins: Bins, title: str, x: str, y: str) -> Markup:
    """Draw a histogram of whole numbers: one bar per bin, labelled below, or else at its edges."""
    names = [_range_name(b) for b in bins]
    ticks = [((k + 0.5) / len(bins), names[k]) for k in range(len(bins))]
    if len(_apart(ticks)) < len(ticks) and any(b["from"] < b["to"] for b in bins):
        ticks = [(k / len(bins), _compact(b["from"])) for k, b in enumerate(bins)]
        ticks.append((1.0, _compact(bins[-1]["to"])))
    return _bars([b["count"] for b in bins], names, ticks, (title, x, y))


def share_bars(bins: Bins, title: str, x: str, y: str, mark: float | None = None) -> Markup:
    """Draw a histogram of shares over [0, 1], with a dashed line at ``mark``."""
    names = [f"{percent(b['from'])} to {percent(b['to'])}" for b in bins]
    ticks = [(k / 4, percent(k / 4)) for k in range(5)]
    return _bars([b["count"] for b in bins], names, ticks, (title, x, y), mark)


def curves(
    chart: dict[str, Any],
    stages: Sequence[dict[str, Any]],
    n_epochs: int,
    unit: str = "epoch",
    first: int = 1,
    colours: int = 4,
) -> Markup:
    """Draw the series of one measure over the epochs, with a line where each stage begins."""
    series = chart["series"]
    values = [v for s in series for _, v in s["points"] if v is not None]
    scale = nice_ticks(min(values), max(values))
    low, high = scale[0], scale[-1]
    parts = [_grid([((t - low) / (high - low), short(t)) for t in scale])]
    parts += [_stage_line(s["first"], n_epochs) for s in stages[1:]]
    for k, entry in enumerate(series):
        points = [
            (_epoch_x(epoch, n_epochs), None if v is None else _y((v - low) / (high - low)))
            for epoch, v in entry["points"]
        ]
        parts.append(_line(points, k % colours))
    parts.append(_x_axis(_epoch_ticks(n_epochs, first), unit))
    ranges = "; ".join(
        f"{clipped(s['name'])} from {short(s['first'])} to {short(s['last'])}" for s in series
    )
    return _svg(parts, f"{clipped(chart['name'])} over {n_epochs} {unit}s: {ranges}")


def gain_curve(points: Sequence[dict[str, float]]) -> Markup:
    """Draw what annotations are expected to correct, against the number bought."""
    last = points[-1]
    x_ticks = nice_ticks(0, max(last["annotations"], 1), 4, (1, 2, 5, 10))
    y_ticks = nice_ticks(0, max(last["gain"], 1e-3), 3)
    parts = [_grid([(t / y_ticks[-1], short(t)) for t in y_ticks])]
    drawn: list[tuple[float, float | None]] = [
        (_x(p["annotations"] / x_ticks[-1]), _y(p["gain"] / y_ticks[-1])) for p in points
    ]
    parts.append(_line(drawn, 0))
    parts.append(_x_axis([(t / x_ticks[-1], short(t)) for t in x_ticks], "further annotations"))
    label = f"{short(last['gain'])} after {last['annotations']:,} further annotations"
    return _svg(parts, label)


def nice_ticks(
    low: float, high: float, n: int = 4, multiples: Sequence[float] = (1, 2, 2.5, 5, 10)
) -> list[float]:
    """Round numbers that enclose [low, high], in about ``n`` steps at most.

    Examples
    --------
    >>> nice_ticks(0, 87)
    [0.0, 25.0, 50.0, 75.0, 100.0]
    """
    # For (nearly) flat data, the span must still be large enough to be divided in floats.
    span = max(high - low, 1e-6 * max(abs(low), abs(high)), 1e-12)
    raw = span / n
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(m for m in multiples if m * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return [
        round(k * step, 15 - math.ceil(math.log10(max(abs(low), abs(high), step))))
        for k in range(first, last + 1)
    ]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten that enclose [low, high], above 0; with 2 and 5 times them on a short axis.

    Examples
    --------
    >>> log_ticks(1.7, 30), log_ticks(2, 700)
    ([1.0, 2.0, 5.0, 10.0, 20.0, 50.0], [1.0, 10.0, 100.0, 1000.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    step = math.ceil((last - first) / MOST_DECADES)
    powers = range(first, last + step, step)
    if high / low > 100:
        return [float(f"1e{power}") for power in powers]
    ticks = [float(f"{m}e{power}") for power in powers for m in (1, 2, 5)]
    start = max(k for k, tick in enumerate(ticks) if tick <= low)
    stop = next(k for k, tick in enumerate(ticks) if tick >= high and k > start)
    return ticks[start : stop + 1]


def _range_name(b: dict[str, Any]) -> str:
    low, high = b["from"], b["to"]
    return _compact(low) if low == high else f"{_compact(low)}{DASH}{_compact(high)}"


def _compact(n: int) -> str:
    """Abbreviate thousands and millions: 2k, 5M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if n >= size and n % (size // 10) == 0:
            return f"{n / size:g}{letter}"
    return f"{n:,}" if n < 1_000 else f"{n / 1_000:.0f}k" if n < 1_000_000 else f"{n / 1e6:.0f}M"


def _bars(
    counts: Sequence[int],
    names: Sequence[str],
    ticks: Iterable[tuple[float, str]],
    words: tuple[str, str, str],
    mark: float | None = None,
) -> Markup:
    title, x, y = words
    scale = nice_ticks(0, max([*counts, 2]), 3, (1, 2, 5, 10))
    width = 1 / max(len(counts), 1)
    parts = [_grid([(t / scale[-1], f"{int(t):,}") for t in scale])]
    for k, (n, text) in enumerate(zip(counts, names, strict=True)):
        if n:
            parts.append(_bar(k * width, width, n / scale[-1], f"{text}: {n:,}"))
    if mark is not None:
        parts.append(
            Markup('<line class="mark" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
                _round(_x(mark)), TOP, HEIGHT - BOTTOM
            )
        )
    parts.append(_x_axis(ticks, x))
    numbers = "; ".join(f"{text}: {n:,}" for n, text in zip(counts, names, strict=True) if n)
    return _svg(parts, f"{title} ({y} by {x}). {numbers}")


def _bar(left: float, width: float, height: float, text: str) -> Markup:
    x0, x1 = _x(left), _x(left + width)
    # Limits the width of bars where there are few.
    gap = max(min(2.0, (x1 - x0) / 6), x1 - x0 - WIDEST_BAR)
    # The bar of a nonempty bin is at least one pixel high.
    top = min(_y(height), HEIGHT - BOTTOM - 1)
    return Markup(
        '<rect class="bar" x="{}" y="{}" width="{}" height="{}" rx="1"><title>{}</title></rect>'
    ).format(
        _round(x0 + gap / 2),
        _round(top),
        _round(x1 - x0 - gap),
        _round(HEIGHT - BOTTOM - top),
        text,
    )


def _grid(ticks: Iterable[tuple[float, str]]) -> Markup:
    """Draw horizontal lines with their values on the left."""
    line = Markup('<line class="grid" x1="{}" x2="{}" y1="{y}" y2="{y}"/>')
    text = Markup('<text class="tick" text-anchor="end" x="{}" y="{}">{}</text>')
    return Markup("").join(
        line.format(LEFT, WIDTH - RIGHT, y=_round(_y(at)))
        + text.format(LEFT - 6, _round(_y(at) + 3.5), label)
        for at, label in ticks
    )


def _x_axis(ticks: Iterable[tuple[float, str]], label: str) -> Markup:
    """Draw tick labels below the axis, skipping those that would overlap, and the axis label."""
    text = Markup('<text class="tick" text-anchor="middle" x="{}" y="{}">{}</text>')
    parts = [
        text.format(_round(_x(at)), HEIGHT - BOTTOM + 14, name) for at, name in _apart(list(ticks))
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        Markup('<text class="axis" text-anchor="middle" x="{}" y="{}">{}</text>').format(
            middle, HEIGHT - 6, label
        )
    )
    return Markup("").join(parts)


def _apart(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Leave out labels that would overlap the one before."""
    kept, free = [], 0.0
    for at, name in ticks:
        half = 3.0 * len(name)
        if _x(at) - half >= free:
            kept.append((at, name))
            free = _x(at) + half + 4
    return kept


def _line(points: Sequence[tuple[float, float | None]], colour: int) -> Markup:
    """Draw a polyline that breaks at gaps; a single point becomes a dot."""
    parts = []
    for known, run in groupby(points, key=lambda p: p[1] is not None):
        if not known:
            continue
        xy = [f"{_round(x)},{_round(y or 0.0)}" for x, y in run]
        if len(xy) == 1:
            x, y = xy[0].split(",")
            parts.append(
                Markup('<circle class="dot s{}" cx="{}" cy="{}" r="2.5"/>').format(colour, x, y)
            )
        else:
            parts.append(
                Markup('<polyline class="line s{}" points="{}"/>').format(colour, " ".join(xy))
            )
    return Markup("").join(parts)


def _stage_line(first: int, n_epochs: int) -> Markup:
    x = _epoch_x(first - 0.5, n_epochs)
    return Markup('<line class="stage" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
        _round(x), TOP, HEIGHT - BOTTOM
    )


def _epoch_ticks(n_epochs: int, first: int = 1) -> list[tuple[float, str]]:
    wanted = {1, *(int(t) for t in nice_ticks(0, n_epochs) if 1 <= t <= n_epochs and t % 1 == 0)}
    span = max(n_epochs - 1, 1)
    ticks = sorted(wanted)
    return [((e - 1) / span if n_epochs > 1 else 0.5, f"{e - 1 + first:,}") for e in ticks]


def _epoch_x(epoch: float, n_epochs: int) -> float:
    return _x((epoch - 1) / (n_epochs - 1)) if n_epochs > 1 else _x(0.5)


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _round(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _svg(parts: Iterable[Markup], label: str) -> Markup:
    return Markup(
        '<svg viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" aria-label="{2}">{3}</svg>'
    ).format(WIDTH, HEIGHT, label, Markup("").join(parts))
