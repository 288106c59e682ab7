"""What is written the same way everywhere: numbers, and the advice to check a random sample.

Shares are in percent, with one decimal at most; intervals are in whole percent.
"""

from __future__ import annotations

import re
from math import ceil, floor

N_RANDOM = 100
"""Items to check that are drawn at random, wherever such a sample is advised."""

SAMPLE_TELLS = (
    f"Known labels of {N_RANDOM} random items would tell (manyhands review --random {N_RANDOM})"
)
"""What to do where nothing shows how many labels are right."""


ALL_TO_REVIEW = (
    f"No label is sure enough to accept as it is. First check {N_RANDOM} labels that are drawn at "
    f"random (manyhands review --random {N_RANDOM}): they show how many are right. Then check the "
    "most doubtful ones"
)
"""What to do first where all labels are to review."""

GROUPS_OPTION = (
    (
        r"groups=, on the command line --groups; groups=\{\} or --groups none",
        "--groups COLUMN or FILE; --groups none",
    ),
    (r"groups=\{\}, on the command line --groups none", "--groups none"),
    (r"groups=dict\.fromkeys\(\[.*?\], 'llm'\), on the command line --groups", "--groups"),
)
"""How messages declare families, for Python and the command line, and how for the latter alone."""


def with_groups_option(text: str) -> str:
    """Write how families are declared as the command line does, which reports speak of, too.

    Examples
    --------
    >>> with_groups_option("nobody shares mistakes: groups={}, on the command line --groups none")
    'nobody shares mistakes: --groups none'
    """
    for pattern, phrase in GROUPS_OPTION:
        text = re.sub(pattern, phrase, text)
    return text


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


def percent_ends(low: float, high: float) -> tuple[int, int]:
    """Return the ends of an interval of shares in whole percent, rounded outwards.

    What is printed is never narrower than the interval. Every interval of shares that a person
    reads is rounded here, and the numbers that follow from one are counted by `count_ends`.

    Examples
    --------
    >>> percent_ends(0.4478, 0.8896), percent_ends(0.29, 0.57)
    ((44, 89), (29, 57))
    """
    return floor(100 * low + 1e-9), ceil(100 * high - 1e-9)


def percent_interval(low: float, high: float) -> str:
    """Write an interval of shares.

    Examples
    --------
    >>> percent_interval(0.4478, 0.8896)
    '44 to 89 %'
    """
    first, last = percent_ends(low, high)
    return f"{first} to {last} %"


def count_ends(n: int, low: float, high: float) -> tuple[int, int]:
    """Return how many of ``n`` are between the ends of an interval, as these are printed.

    Whoever multiplies the printed percent finds these numbers.

    Examples
    --------
    >>> percent_interval(0.4478, 0.8896), count_ends(1000, 0.4478, 0.8896)
    ('44 to 89 %', (440, 890))
    """
    first, last = percent_ends(low, high)
    return round(n * first / 100), round(n * last / 100)
