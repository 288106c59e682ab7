"""Template filters that format numbers for readers and make untrusted names harmless.

Names of instances, annotators and classes are untrusted data. Autoescaping disables any markup in
them. `visible` prevents control and format characters (bidirectional overrides, zero-width spaces,
line breaks) from reordering or hiding text. `name` clips and isolates names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

from manyhands.codes import graver, reason
from manyhands.wording import percent_ends, spread

DASH, MINUS = "\u2013", "\u2212"

CLIP = 32
"""Maximal length of a displayed name; the title attribute shows more."""

LONGEST = 300
"""Maximal length of a name in a title attribute; longer names would fill the page."""

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of characters that are invisible and affect how others are displayed."""


def visible(value: Any) -> str:
    r"""Write control, format and surrogate characters as escapes, such as ``\u202e``.

    Examples
    --------
    >>> visible("a\nb\u200b")
    'a\\nb\\u200b'
    """
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in HIDDEN else c for c in str(value))


def prose(value: Any) -> Markup:
    r"""Write a text with no line break between a number and its %.

    Text that is `Markup` already keeps its tags.

    Examples
    --------
    >>> print(prose("right with 52 %: give it as --known"))
    right with 52\u202f%: give it as --known
    """
    written = value if isinstance(value, Markup) else escape(visible(value))
    return Markup(re.sub(r"(?<=\d) %", "\u202f%", str(written)))


def sentence(text: str) -> Markup:
    """Write a text as `prose` with a capital, a full stop, and no line break within an option.

    Examples
    --------
    >>> print(sentence("take it back as --known"))
    Take it back as <span class="whole">--known</span>.
    >>> print(sentence("run `manyhands review ANNOTATIONS --random 9`"))  # To be filled in later.
    Run `manyhands review ANNOTATIONS --random 9`.
    """
    return unbroken(prose(f"{text[:1].upper()}{text[1:]}."))


def unbroken(written: Markup) -> Markup:
    """Keep the options of a text, outside commands in backticks, from breaking at their hyphens.

    Examples
    --------
    >>> print(unbroken(prose("repeat the command with --known")))
    repeat the command with <span class="whole">--known</span>
    """
    parts = re.split("(`.*?`)", str(written))
    parts[::2] = [
        re.sub(r"(?<![\w-])--\w[\w-]*", r'<span class="whole">\g<0></span>', part)
        for part in parts[::2]
    ]
    return Markup("".join(parts))


def clipped(value: Any, limit: int = CLIP) -> str:
    """Return the visible form of a name, cut to ``limit`` characters; quoted if it is blank."""
    text = visible(str(value)[: LONGEST + 1])
    if not text.strip():
        return f"“{text[: limit - 2]}”"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def name(value: Any, limit: int = CLIP) -> Markup:
    """Isolate a name from the surrounding text; if clipped, the title attribute shows more."""
    short = clipped(value, limit)
    full = clipped(value, LONGEST)
    title = Markup(' title="{}"').format(full) if short != full else ""
    return Markup('<bdi class="name"{}>{}</bdi>').format(title, short)


def number(value: float | None, digits: int = 2) -> str:
    """Write a number with grouped thousands, whole numbers without decimals; a dash for None."""
    if value is None:
        return DASH
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.{digits}f}"


def fixed(value: float | None, digits: int = 3) -> str:
    """Write a number with a fixed number of decimals and a true minus sign; a dash for None."""
    return DASH if value is None else f"{value:.{digits}f}".replace("-", MINUS)


def short(value: float | None) -> str:
    """Write a number of any size in about four digits: 0.0123, 12.35, 4.6e+07; a dash for None."""
    return DASH if value is None else f"{value:.4g}".replace("-", MINUS)


def percent(share: float | None) -> str:
    r"""Write a share in percent; only exactly 0 and 1 are written as 0 % and 100 %.

    Examples
    --------
    >>> percent(0.614), percent(0.9999), percent(0.001)
    ('61\u202f%', '>99\u202f%', '<1\u202f%')
    """
    if share is None:
        return DASH
    if 0 < share < 0.005:
        return "<1\u202f%"
    if 0.995 <= share < 1:
        return ">99\u202f%"
    return f"{100 * share:.0f}\u202f%"


def fine_percent(share: float | None) -> str:
    r"""Write a share in percent with two digits, down to 0.01 %.

    Examples
    --------
    >>> fine_percent(0.0312), fine_percent(0.000456), fine_percent(1e-9)
    ('3.1\u202f%', '0.046\u202f%', '<0.01\u202f%')
    """
    if share is None or share >= 0.095 or share == 0:
        return percent(share)
    return "<0.01\u202f%" if share < 1e-4 else f"{100 * share:#.2g}\u202f%"


def interval(lower: float, upper: float) -> str:
    """Write an interval of shares in percent, for a cell of a table."""
    low, high = percent_ends(lower, upper)
    return f"{low} to {high}\u202f%"


def percent_range(level: Mapping[str, Any]) -> str:
    r"""Write a share and its interval in percent; ends are rounded outwards.

    Examples
    --------
    >>> percent_range({"value": 0.934, "low": 0.887, "high": 0.962})
    '93\u202f% (88 to 97\u202f%)'
    """
    low, high = percent_ends(level["low"], level["high"])
    return f"{percent(level['value'])} ({low} to {high}\u202f%)"


def cell(share: float | None) -> str:
    """Write a share in percent without the percent sign, for cells of a matrix."""
    return percent(share).replace("\u202f%", "")


def step(value: float | None) -> int:
    """Round a share to whole percent from 0 to 100, for a CSS class such as "v37"."""
    return round(100 * min(max(float(value or 0.0), 0.0), 1.0))


def count(n: int, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun: 1 annotator, 1,200 annotators."""
    return f"{n:,}\u00a0{noun if n == 1 else plural or noun + 's'}"


def duration(seconds: float | None) -> str:
    """Write a time span: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None:
        return DASH
    if seconds < 60:
        return f"{seconds:.1f}\u00a0s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}\u00a0min {rest}\u00a0s"
    return f"{minutes // 60:,}\u00a0h {minutes % 60}\u00a0min"


def rest_lines(rows: list[Mapping[str, Any]]) -> str:
    """One line per annotator, shares in percent, with tabs between the fields."""
    lines = [
        "annotator\tannotations\texpected right, %\tfrom\tto\tright by gold, %\treason to look"
    ]
    for row in rows:
        known = row["n_annotations"] > 0
        ends: tuple[Any, Any] = ("", "")
        if row["lower"] is not None and row["upper"] is not None and known:
            ends = percent_ends(row["lower"], row["upper"])
        expected, gold = (
            "" if row[name] is None or not known else f"{100 * row[name]:.0f}"
            for name in ("accuracy", "gold")
        )
        flags = "; ".join(map(reason, graver(row["flags"])))
        fields = (
            clipped(row["id"]),
            f"{row['n_annotations']}",
            expected,
            *map(str, ends),
            gold,
            flags,
        )
        lines.append("\t".join(fields).rstrip())
    return "\n".join(lines)


FILTERS = {
    "visible": visible,
    "prose": prose,
    "unbroken": unbroken,
    "graver": graver,
    "reason": reason,
    "sentence": sentence,
    "clipped": clipped,
    "name": name,
    "number": number,
    "fixed": fixed,
    "short": short,
    "percent": percent,
    "fine_percent": fine_percent,
    "interval": interval,
    "cell": cell,
    "step": step,
    "count": count,
    "duration": duration,
    "spread": spread,
}
