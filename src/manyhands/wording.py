"""What is written the same way everywhere: numbers, and the advice to check a random sample.

Shares are in percent, with one decimal at most; intervals are in whole percent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple

N_RANDOM = 100
"""Items to check that are drawn at random, wherever such a sample is advised."""

SAMPLE_TELLS = (
    f"Known labels of {N_RANDOM} random items would tell (manyhands review --random {N_RANDOM})"
)
"""What to do where nothing shows how many labels are right."""

RANDOM_ITEMS_TELL = (
    f"Known labels of {N_RANDOM} random items would tell: review items in random order, without a "
    "filter."
)
"""The same on the pages of the explorer, which draw them."""

SEVERITY = (
    "severity: grades that an annotator gives too much compared with the others, too little where "
    "it is negative; what all of them give too much cannot be seen without gold labels"
)
"""What the severity of an annotator of grades is."""

A_FLAG = "a flag is a reason to look, not to dismiss"
"""What a flag of an annotator is, wherever there are flags."""

ALL_TO_REVIEW = (
    f"No label is sure enough to accept as it is. First check {N_RANDOM} labels that are drawn at "
    f"random (manyhands review --random {N_RANDOM}): they show how many are right. Then check the "
    "most doubtful ones"
)
"""What to do first where all labels are to review."""


class ScoreWords(NamedTuple):
    """How a score of labels against gold is called.

    Attributes
    ----------
    name : str
        In full: on a line of its own, as a heading of the report, as a key of JSON.
    short : str
        As a heading where several methods stand side by side in a terminal.
    is_share : bool
        Whether it is written in percent.
    """

    name: str
    short: str
    is_share: bool = True


SCORES = {
    "accuracy": ScoreWords("accuracy", "accuracy"),
    "accuracy_ties_shared": ScoreWords("accuracy if ties are shared", "ties shared"),
    "macro_f1": ScoreWords("macro-F1", "macro-F1"),
    "minority_recall": ScoreWords("minority recall", "min. recall"),
    "ece": ScoreWords("calibration error", "ECE"),
    "within_one": ScoreWords("within one grade", "within 1"),
    "mae": ScoreWords("mean absolute error in grades", "MAE", is_share=False),
    "qwk": ScoreWords("quadratic weighted kappa", "QWK", is_share=False),
    "rps": ScoreWords("ranked probability score", "RPS", is_share=False),
    "held_out_log_likelihood": ScoreWords("held-out log likelihood", "held-out LL", is_share=False),
    "seconds": ScoreWords("CPU seconds", "CPU s", is_share=False),
}
"""Words of the scores, by their names in Python."""

MEASURES = {
    "percent_agreement": "agreeing pairs of annotations",
    "within_one_grade": "pairs of annotations within one grade",
    "mean_cohen_kappa": "mean Cohen's kappa",
    "fleiss_kappa": "Fleiss' kappa",
    "gwet_ac1": "Gwet's AC1",
    "gwet_ac2": "Gwet's AC2",
    "krippendorff_alpha": "Krippendorff's alpha",
    "krippendorff_alpha_nominal": "Krippendorff's alpha, nominal",
    "krippendorff_alpha_jaccard": "Krippendorff's alpha, Jaccard",
    "krippendorff_alpha_masi": "Krippendorff's alpha, MASI",
}
"""Words of the measures of agreement, by their names in Python."""

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


def counted(n: float, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun.

    Examples
    --------
    >>> counted(1, "pair"), counted(1200, "pair"), counted(2, "class", "classes")
    ('1 pair', '1,200 pairs', '2 classes')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def shorten(text: str, limit: int = 40) -> str:
    """Cut a long name.

    Examples
    --------
    >>> shorten("abcdefgh", 5)
    'abcd…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def listed(names: Sequence[Any], total: int, most: int = 5) -> str:
    """Quote the first names of a list, and count the others of a total.

    Examples
    --------
    >>> listed(["a", "b", "c"], 12, most=2)
    '“a”, “b” and 10 more'
    """
    quoted = ", ".join(f"“{shorten(str(name))}”" for name in names[:most])
    more = total - most
    return quoted + (f" and {more:,} more" if more > 0 else "")


def nobody(n: int) -> str:
    """Write a number of annotators, of whom there may be none."""
    return counted(n, "annotator") if n else "nobody"


def count_with_share(n: int, total: int) -> str:
    """Write a count with its share: 42 (4.2 %)."""
    return f"{n:,} ({percent(n / total)})" if n and total else f"{n:,}"


class GainWords(NamedTuple):
    """How a gain in labels is called.

    Attributes
    ----------
    column : str
        Heading of the gain of one annotation.
    figure : str
        Title of the gain of many.
    price : str
        Annotations per unit of gain.
    told : str
        What the gain of one annotation is.
    """

    column: str
    figure: str
    price: str
    told: str


GAINS = {
    "label": GainWords(
        "Right labels expected",
        "Right labels that further annotations add",
        "annotations per right label",
        "right labels that the annotation is expected to add",
    ),
    "grade": GainWords(
        "Grades nearer, expected",
        "Grades by which further annotations bring labels nearer the truth",
        "annotations per grade corrected",
        "grades by which the annotation is expected to bring the label nearer the truth",
    ),
}
"""Words of a gain, by its unit: labels that become right, or grades by which they come nearer."""


def quantity(value: float, least: int = 1) -> str:
    """Write a quantity in two significant digits, with ``least`` decimals or more.

    Examples
    --------
    >>> quantity(0.6234), quantity(12.34), quantity(0.0123)
    ('0.62', '12.3', '0.012')
    """
    return f"{value:.{decimals_of(value, least)}f}"


def decimals_of(value: float, least: int = 1) -> int:
    """Return how many decimals a quantity is written with."""
    return max(least, 1 - floor(log10(abs(value)))) if value else least


def compared_with(n_known: int) -> str:
    """Say with what the severities of annotators are compared.

    Examples
    --------
    >>> compared_with(0)
    'compared with the others'
    >>> compared_with(20)
    'compared with the labels, 20 of which are known'
    """
    if not n_known:
        return "compared with the others"
    return f"compared with the labels, {n_known:,} of which {'is' if n_known == 1 else 'are'} known"


def outside_ratings(n: int, lowest: float, highest: float) -> str:
    """Say why values are outside the ratings that they are means of; "" if none is.

    Examples
    --------
    >>> outside_ratings(0, 1, 5)
    ''
    >>> print(outside_ratings(2, 1, 5))
    2 values are outside the ratings, which go from 1 to 5, because what annotators give too much \
or too little is subtracted at the ends of the scale, too. If the scale has no more, read them as \
its ends.
    """
    if not n:
        return ""
    are, them, ends = ("is", "it", "end") if n == 1 else ("are", "them", "ends")
    return (
        f"{counted(n, 'value')} {are} outside the ratings, which go from {lowest:g} to "
        f"{highest:g}, because what annotators give too much or too little is subtracted at the "
        f"ends of the scale, too. If the scale has no more, read {them} as its {ends}."
    )


def too_much(value: float, low: float, high: float, unit: str = "") -> str:
    """Say what an annotator gives too much, with its interval; "" where that holds 0.

    The ends are rounded outwards.

    Examples
    --------
    >>> too_much(0.61, 0.42, 0.8), too_much(-0.61, -0.8, -0.42, " grades"), too_much(0.1, -0.1, 0.3)
    ('gives 0.61 too much (0.42 to 0.80)', 'gives 0.6 grades too little (0.4 to 0.8)', '')
    """
    if not (low > 0 or high < 0):
        return ""
    digits = decimals_of(value) if not unit or abs(value) < 0.1 else 1
    least, most = sorted((abs(low), abs(high)))
    while least * 10**digits < 1 and digits < 3:  # An interval without 0 is not written with it.
        digits += 1
    ends = floor(least * 10**digits + 1e-9), ceil(most * 10**digits - 1e-9)
    first, last = (f"{end / 10**digits:.{digits}f}" for end in ends)
    much = "much" if value > 0 else "little"
    return f"gives {abs(value):.{digits}f}{unit} too {much} ({first} to {last})"
