"""Parts of plots with matplotlib: axes, heat maps, names, values in cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.exceptions import raise_missing_extra
from manyhands.typing import FloatArray, IntArray

MOST_WITH_VALUES = 12
"""Number of rows of a heat map up to which values are written into the cells."""

MOST_NAMES = 60
"""Number of rows of a heat map up to which every row is named."""

LONGEST_NAME = 18
"""Number of characters of a name on an axis; longer names are cut."""

UNKNOWN = "#e2e2e2"
"""Colour of a cell without a value."""

FONT_SIZE, SMALL_FONT_SIZE = 9, 7
"""Font sizes (points) of the names on the axes, with few rows and with many."""


def make_axes(ax: Any, n_rows: int | None) -> Any:
    """Return the given axes, or those of a new figure with room for ``n_rows`` rows."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise_missing_extra("a Display", "plot", error)
    size = (5.6, 3.8) if n_rows is None else (_side(n_rows) + 1.6, _side(n_rows) + 0.8)
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _side(n_rows: int) -> float:
    """Return the length of a side of a heat map, in inches."""
    per_row = 0.52 if n_rows <= MOST_WITH_VALUES else 0.19
    return float(np.clip(per_row * n_rows, 2.6, 11.0))


def scale_of(low: float, power: float = 1.0) -> Any:
    """Return a scale of colours from ``low`` to 1; a power below 1 spreads the small values."""
    from matplotlib.colors import PowerNorm

    return PowerNorm(power, low, 1.0)


def heat_map(
    ax: Any, matrix: FloatArray, rows: list[str], columns: list[str], cmap: str, scale: Any
) -> Any:
    """Draw a matrix; cells with NaN are grey, and those with infinity are left out."""
    from matplotlib.colors import ListedColormap

    unknown = np.ma.masked_where(~np.isnan(matrix), np.ones(matrix.shape))
    ax.imshow(unknown, cmap=ListedColormap([UNKNOWN]))
    image = ax.imshow(np.ma.masked_invalid(matrix), cmap=cmap, norm=scale)
    size = FONT_SIZE if max(len(rows), len(columns)) <= MOST_WITH_VALUES else SMALL_FONT_SIZE
    for axis, names in ((ax.xaxis, columns), (ax.yaxis, rows)):
        step = -(-len(names) // MOST_NAMES)
        axis.set_ticks(
            np.arange(0, len(names), step), [_cut(name) for name in names[::step]], fontsize=size
        )
    if max(map(len, columns), default=0) > 3 or len(columns) > MOST_WITH_VALUES:
        ax.tick_params(axis="x", labelrotation=90)
    # Minor ticks between the cells, for white grid lines.
    ax.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1.5 if size == FONT_SIZE else 0.5)
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
    return image


def write_values(ax: Any, image: Any, matrix: FloatArray, counts: IntArray | None = None) -> None:
    """Write the finite values into the cells, with the counts below."""
    for (row, column), value in np.ndenumerate(matrix):
        if not np.isfinite(value):
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
        text = _share(value) if counts is None else f"{_share(value)}\n{counts[row, column]:,}"
        colour = "white" if dark else "#333333"
        ax.text(column, row, text, ha="center", va="center", color=colour, fontsize=FONT_SIZE - 0.5)


def _share(value: float) -> str:
    """Write a share or kappa with two digits: .07, 1, −.12."""
    text = f"{abs(value):.2f}"
    text = "1" if text == "1.00" else "0" if text == "0.00" else text.removeprefix("0")
    return f"−{text}" if value < 0 and text != "0" else text


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def finish(ax: Any, image: Any, title: str | None, of_colours: str) -> None:
    """Add the scale of the colours, and a title."""
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.04, pad=0.02, aspect=30)
    bar.outline.set_visible(False)
    bar.set_label(of_colours, fontsize="small")
    bar.ax.tick_params(labelsize="small")
    if title:
        ax.set_title(title, loc="left", fontsize="medium")
