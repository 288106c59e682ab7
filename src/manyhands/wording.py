"""How numbers are written for people: shares in percent, with one decimal at most."""

from __future__ import annotations


def percent(share: float | None) -> str:
    """Write a share in percent; a share that is almost 0 or 1 is not rounded to it.

    Examples
    --------
    >>> percent(0.614), percent(0.61), percent(0.9999), percent(0.0001), percent(1.0)
    ('61.4 %', '61 %', '>99.9 %', '<0.1 %', '100 %')
    """
    if share is None or share != share:
        return "-"
    if 0 < share < 0.0005:
        return "<0.1 %"
    if 0.9995 <= share < 1:
        return ">99.9 %"
    return f"{round(100 * share, 1):g} %"
