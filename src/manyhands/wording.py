"""Texts that are the same everywhere: numbers, names of scores, advice on random samples.

Shares are in percent, with one decimal at most; intervals are in whole percent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple

N_RANDOM = 100
"""Size of the random samples of items that reports and messages advise to check."""

DECLARE_RANDOM = "add a column 'chosen' that holds 'random' in each row of their file"
"""How to say that labels were drawn at random."""

DRAW_SAMPLE = f"manyhands review ANNOTATIONS --random {N_RANDOM} --out sample.csv"
"""Command that draws such a sample; see `manyhands.report.commands` for what it stands for."""

SAMPLE_TELLS = (
    f"Checking {N_RANDOM} random items would show how often labels and annotators are right "
    f"(`{DRAW_SAMPLE}`)"
)
"""Advice if nothing shows how many labels are right."""

RANDOM_ITEMS_TELL = (
    f"Checking {N_RANDOM} random items would show how often labels and annotators are right: "
    "review items in random order, without a filter."
)
"""The same advice on the pages of the explorer, which can draw the sample."""

SEVERITY = (
    "severity: by how many grades an annotator grades too high compared with the others, or too "
    "low "
    "where it is negative; whether all of them grade too high, only gold labels can show"
)
"""Definition of the severity of an annotator of grades."""

A_FLAG = "Look at examples before you draw conclusions"
"""What to do about a reason to look at an annotator."""

GOLD_ONLY_MEASURES = (
    "Gold labels only measure: they decide no label, although probabilities, and so what "
    "--threshold leaves open, depend on them. Items with gold labels may be listed to check or to "
    "ask about. If you give the file as --known instead of --gold, its labels become "
    "those of its items, and nobody is asked about these items again."
)
"""What gold labels are not used for, and what to do if they are to be."""

NOT_ASKED = (
    "the command “next” leaves out annotators who guess, do worse than guessing, or nearly always "
    "give the same label"
)
"""Whom no plan asks, beside the reasons to look at annotators (`manyhands.codes.TELL_NOTHING`)."""

SHARED_LOOK_CERTAIN = (
    "If most annotators make the same mistake, the wrong label looks certain. Check some labels at "
    "random, too."
)
"""What an order by doubt cannot show, and what does."""

ALL_TO_REVIEW = (
    f"No label is certain enough to accept. First check {N_RANDOM} random labels "
    f"(`{DRAW_SAMPLE}`), to see how many are right. Then check the most doubtful labels"
)
"""Advice if no label can be accepted without review."""


class ScoreWords(NamedTuple):
    """Names of a score of labels against gold.

    Attributes
    ----------
    name : str
        Full name, for lines, headings of the report, and keys of JSON.
    short : str
        Short name, for columns of tables in a terminal.
    is_share : bool
        Whether the score is written in percent.
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
"""Names of the scores, by their names in Python."""

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
"""Names of the measures of agreement, by their names in Python."""

OF_COMMANDS = (
    (
        r"groups=, on the command line --groups; groups=\{\} or --groups none",
        "--groups COLUMN or FILE; --groups none",
    ),
    (r"groups=\{\}, on the command line --groups none", "--groups none"),
    (r"reference=\[.*?\], on the command line --people", "--people"),
    (r"groups=dict\.fromkeys\(\[.*?\], 'llm'\), on the command line --groups", "--groups"),
    (r"those of MajorityVote\b", "those of a majority vote (--method majority-vote)"),
    (
        r"fit GoldCorrected with gold labels of (\d+ or more instances drawn at random)"
        r"(?: \(gold=\))?",
        r"use --method gold-corrected with known labels of \1 (--known FILE)",
    ),
    (
        r"fit GoldCorrected with more gold labels: (\d+ or more instances drawn at random in all) "
        r"\((\d+) so far\)",
        r"use --method gold-corrected with more known labels: \1, \2 so far (--known FILE)",
    ),
    (
        r"fit GoldCorrected with the (\d+) gold labels",
        r"use --method gold-corrected with the \1 gold labels as known labels (--known FILE)",
    ),
    (
        r"Take the people out of the table, and give their labels as gold to GoldCorrected, with "
        r"no family declared",
        "Take the people out of the table, and give their labels as a file of known labels: "
        "--known FILE --method gold-corrected --groups none, without --people",
    ),
)
"""Patterns of what messages for Python say of families and of gold, and the text for reports and
the command line."""

INSTANCE = re.compile(r"(?<![\w'\"“‘/\\.=-])instance(?=s?(?![\w'\"”’/\\=-]|\.\w))")
"""An instance, which reports and the command line call an item; not in names, which are quoted, and
files."""


def for_commands(text: str) -> str:
    """Write a message for Python in the words of reports and of the command line.

    Examples
    --------
    >>> for_commands("nobody shares mistakes: groups={}, on the command line --groups none")
    'nobody shares mistakes: --groups none'
    >>> for_commands("fit GoldCorrected with gold labels of 30 or more instances drawn at random")
    'use --method gold-corrected with known labels of 30 or more items drawn at random (--known \
FILE)'
    """
    for pattern, phrase in OF_COMMANDS:
        text = re.sub(pattern, phrase, text)
    return INSTANCE.sub("item", text)


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

    Ends are first rounded to one decimal, as `percent` writes a share, so that 59.995 % is 60 %.
    Every interval of shares that a person reads is rounded here, and `count_ends` turns it into
    numbers of items.

    Examples
    --------
    >>> percent_ends(0.4478, 0.8896), percent_ends(0.59995, 0.5702)
    ((44, 89), (60, 57))
    """
    return floor(round(100 * low, 1)), ceil(round(100 * high, 1))


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
    """Return the ends of an interval of shares as numbers of ``n`` items.

    They are computed from the printed percent, so a reader who multiplies finds the same numbers.

    Examples
    --------
    >>> percent_interval(0.4478, 0.8896), count_ends(1000, 0.4478, 0.8896)
    ('44 to 89 %', (440, 890))
    """
    first, last = percent_ends(low, high)
    return round(n * first / 100), round(n * last / 100)


def spread(low: str, high: str, same: str) -> str:
    """Write the range of two written numbers, or ``same`` if nothing lies between them.

    Examples
    --------
    >>> spread("1", "3", "each"), spread("3.5", "3.5", "the same in all runs")
    ('1 to 3', 'the same in all runs')
    """
    return same if low == high else f"{low} to {high}"


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
    """Quote the first names of a list, and say how many more there are in the total.

    Examples
    --------
    >>> listed(["a", "b", "c"], 12, most=2)
    '“a”, “b” and 10 more'
    """
    quoted = ", ".join(f"“{shorten(str(name))}”" for name in names[:most])
    more = total - most
    return quoted + (f" and {more:,} more" if more > 0 else "")


def told_of_rule(n: int, *, middle: bool) -> str:
    """Say for how many items the label is not the most probable class, and why; "" for none.

    Parameters
    ----------
    n : int
    middle : bool
        Whether the labels are median grades.

    Examples
    --------
    >>> print(told_of_rule(3, middle=True))
    For 3 items, another grade is more probable than the label. The label is the middle grade (the \
median), which is expected to be nearest to the truth.
    """
    if not n:
        return ""
    items = counted(n, "item")
    if middle:
        return (
            f"For {items}, another grade is more probable than the label. The label is the middle "
            "grade (the median), which is expected to be nearest to the truth."
        )
    return (
        f"For {items}, another class is more probable than the label, because the decision rule "
        "weighs mistakes differently."
    )


def nobody(n: int) -> str:
    """Write a number of annotators, which may be 0."""
    return counted(n, "annotator") if n else "nobody"


def count_with_share(n: int, total: int) -> str:
    """Write a count with its share: 42 (4.2 %)."""
    return f"{n:,} ({percent(n / total)})" if n and total else f"{n:,}"


class GainWords(NamedTuple):
    """Texts about a gain in labels.

    Attributes
    ----------
    column : str
        Heading of the gain of one annotation.
    figure : str
        Title of the gain of many.
    price : str
        Annotations per unit of gain.
    told : str
        Definition of the gain of one annotation.
    """

    column: str
    figure: str
    price: str
    told: str


GAINS = {
    "label": GainWords(
        "Corrected labels, expected",
        "Labels that further annotations are expected to correct",
        "annotations per corrected label",
        "number of labels that the annotation is expected to correct",
    ),
    "grade": GainWords(
        "Corrected grades, expected",
        "Grades by which further annotations bring labels nearer the truth",
        "annotations per grade corrected",
        "grades by which the annotation is expected to bring the label nearer the truth",
    ),
}
"""Texts about a gain, by its unit: labels that become right, or grades nearer to the truth."""


def quantity(value: float, least: int = 1) -> str:
    """Write a quantity in two significant digits, with ``least`` decimals or more.

    Examples
    --------
    >>> quantity(0.6234), quantity(12.34), quantity(0.0123)
    ('0.62', '12.3', '0.012')
    """
    return f"{value:.{decimals_of(value, least)}f}"


def decimals_of(value: float, least: int = 1) -> int:
    """Return the number of decimals with which a quantity is written."""
    return max(least, 1 - floor(log10(abs(value)))) if value else least


def compared_with(n_known: int) -> str:
    """Return a text that says with what the severities of annotators are compared.

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


def told_of_crowd(value: float, low: float, high: float, n_items: int, unit: str = "") -> str:
    """Say whether annotations are too high or too low on average, measured on gold labels.

    Examples
    --------
    >>> told_of_crowd(0.31, 0.12, 0.5, 80, " grades").split("annotations ")[1]
    'are on average 0.3 grades too high (0.1 to 0.5).'
    >>> told_of_crowd(0.1, -0.1, 0.3, 80, " grades").split(": ")[1]
    'at most 0.1 grades too low, and at most 0.3 grades too high.'
    """
    on = f"On the {counted(n_items, 'item')} with gold labels, the annotations are on average"
    if told := too_much(value, low, high, unit):
        return f"{on} {told.removeprefix('rates ')}."
    least, most = (f"{ceil(abs(end) * 10 - 1e-9) / 10:.1f}{unit}" for end in (low, high))
    return (
        f"{on} neither clearly too high nor too low: at most {least} too low, and at most {most} "
        "too high."
    )


def outside_ratings(n: int, lowest: float, highest: float) -> str:
    """Return a text that explains values outside the range of the ratings; "" if there are none.

    Examples
    --------
    >>> outside_ratings(0, 1, 5)
    ''
    >>> print(outside_ratings(2, 1, 5))
    2 values are outside the ratings, which go from 1 to 5, because the deviations of \
annotators are subtracted at the ends of the scale, too. If the scale has no more, read them as \
its ends.
    """
    if not n:
        return ""
    are, them, ends = ("is", "it", "end") if n == 1 else ("are", "them", "ends")
    return (
        f"{counted(n, 'value')} {are} outside the ratings, which go from {lowest:g} to "
        f"{highest:g}, because the deviations of annotators are subtracted at the ends "
        f"of the scale, too. If the scale has no more, read {them} as its {ends}."
    )


def too_much(value: float, low: float, high: float, unit: str = "") -> str:
    """Return a text on how much too high or low an annotator rates; "" if the interval holds 0.

    The ends of the interval are rounded outwards.

    Examples
    --------
    >>> too_much(0.61, 0.42, 0.8), too_much(-0.61, -0.8, -0.42, " grades"), too_much(0.1, -0.1, 0.3)
    ('rates 0.61 too high (0.42 to 0.80)', 'rates 0.6 grades too low (0.4 to 0.8)', '')
    """
    if not (low > 0 or high < 0):
        return ""
    digits = decimals_of(value) if not unit or abs(value) < 0.1 else 1
    least, most = sorted((abs(low), abs(high)))
    while least * 10**digits < 1 and digits < 3:  # Rounding must not make an end 0.
        digits += 1
    ends = floor(least * 10**digits + 1e-9), ceil(most * 10**digits - 1e-9)
    first, last = (f"{end / 10**digits:.{digits}f}" for end in ends)
    end = "high" if value > 0 else "low"
    return f"rates {abs(value):.{digits}f}{unit} too {end} ({first} to {last})"
