"""A picture of figures as bars, for the top of a page of results."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

STYLE = (
    "<style>.bars { --ink: #16191d; --paper: #ffffff; --bar: #2a6cb0; --other: #9aa4b0; }"
    "@media (prefers-color-scheme: dark) { .bars { --ink: #e8ebef; --paper: #14171b; "
    "--bar: #74aeea; --other: #5d6873; } }"
    ".bars text { font: 14px system-ui, 'DejaVu Sans', sans-serif; fill: var(--ink); }"
    ".bars text.ours { font-weight: 600; }.bars .back { fill: var(--paper); }"
    ".bars rect.ours { fill: var(--bar); }.bars rect.other { fill: var(--other); }</style>"
)
WIDTH, NAMES, STEP, TOP, FIGURES = 760, 300, 26, 34, 90


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
    height = TOP + STEP * len(rows) + 8
    longest = max(row.value for row in rows)
    parts = [f'<text class="ours" x="8" y="20">{escape(title)}</text>']
    for i, row in enumerate(rows):
        y = TOP + STEP * i
        length = max((WIDTH - NAMES - FIGURES) * row.value / longest, 1.0)
        kind = "ours" if row.ours else "other"
        parts += [
            f'<text class="{kind}" x="{NAMES - 10}" y="{y + 17}" text-anchor="end">'
            f"{escape(row.name)}</text>",
            f'<rect class="{kind}" x="{NAMES}" y="{y + 4}" width="{length:.1f}" height="18"/>',
            f'<text x="{NAMES + length + 8:.1f}" y="{y + 17}">{escape(row.figure)}</text>',
        ]
    label = f"{title}: " + ", ".join(f"{row.name} {row.figure}" for row in rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bars" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(label)}">{STYLE}'
        f'<rect class="back" width="{WIDTH}" height="{height}"/>{"".join(parts)}</svg>\n'
    )
