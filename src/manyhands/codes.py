"""Stable codes of warnings, actions and flags of annotators, for programs.

The words that a person reads beside a code may change; the code does not. A code is a string, so it
is compared, written and read from JSON like any other text.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum


class Code(StrEnum):
    """A code, shown as its text."""

    def __repr__(self) -> str:
        return str.__repr__(self)


class WarningCode(Code):
    """Codes of the warnings of a report (``summary["warnings"]``)."""

    EMPTY = "empty"
    OVERCONFIDENT = "overconfident"
    NOT_IDENTIFIABLE = "not-identifiable"
    OWN_VOTES = "own-votes"
    SHARED_MISTAKES = "shared-mistakes"
    AGREE_BY_SKILL = "agree-by-skill"
    GOLD_CHOSEN = "gold-chosen"
    SAMPLE_CONTRADICTS = "sample-contradicts"
    CLASS_SHARES_ASSUMED = "class-shares-assumed"
    LOW_INFORMEDNESS = "low-informedness"
    SINGLE_ANNOTATIONS = "single-annotations"
    NO_OVERLAP = "no-overlap"
    ALPHA_BELOW_0 = "alpha-below-0"
    LOOK_LIKE_GRADES = "look-like-grades"
    CLASS_NEVER_GIVEN = "class-never-given"
    IMBALANCE = "imbalance"
    UNANNOTATED = "unannotated"
    SINGLE = "single"
    BELOW_CHANCE = "below-chance"
    ALWAYS_THE_SAME_CLASS = "always-the-same-class"
    FEW_ANNOTATIONS = "few-annotations"
    SILENT = "silent"
    ADDED = "added"
    REPEATED = "repeated"
    WEIGHTS = "weights"


class ActionCode(Code):
    """Codes of the actions that a report advises (``summary["actions"]``), most urgent first."""

    TALK = "talk"
    SAMPLE = "sample"
    CHECK = "check"
    EXPLAIN = "explain"
    GOLD = "gold"
    BUY = "buy"


class Flag(Code):
    """Reasons to look at an annotator (`manyhands.planning.screen_annotators`)."""

    BELOW_MEDIAN_ON_GOLD = "below the median on gold"
    BELOW_CHANCE = "significantly below chance"
    GUESSING = "no better than guessing"
    ONE_LABEL = "one label"
    PATTERN = "repeating pattern"
    TOO_FAST = "too fast"
    DRIFT = "drift"
    BELOW_MEDIAN = "below the median"


TELL_NOTHING = frozenset({Flag.BELOW_CHANCE, Flag.GUESSING, Flag.ONE_LABEL})
"""Flags of annotators who do no better than guessing, so that no plan asks them for more."""

REASONS = {
    Flag.BELOW_MEDIAN_ON_GOLD: "is right on gold labels less often than most annotators",
    Flag.BELOW_CHANCE: "is right less often than guessing would be",
    Flag.GUESSING: "does no better than guessing",
    Flag.ONE_LABEL: "nearly always gives the same label",
    Flag.PATTERN: "repeats a pattern of labels",
    Flag.TOO_FAST: "answers much faster than the others",
    Flag.DRIFT: "became more or less accurate over time",
    Flag.BELOW_MEDIAN: "is right less often than most annotators",
    "overlooks labels": "overlooks more labels than most annotators",
    "ticks wrongly": "ticks more labels wrongly than most annotators",
    "near random": "chooses nearly at random",
    "prefers left": "prefers the left item",
    "prefers right": "prefers the right item",
    "many ties": "calls ties far more easily than the others",
    "few ties": "calls ties far less easily than the others",
}
"""What a person reads in place of a reason to look at an annotator, which is a code in files."""


def reason(flag: str) -> str:
    """Return what a person reads in place of an annotator's flag.

    Examples
    --------
    >>> reason("one label")
    'nearly always gives the same label'
    """
    return REASONS.get(flag, flag)


def graver(flags: Sequence[str]) -> list[str]:
    """Return an annotator's flags without milder ones that a graver one implies.

    Examples
    --------
    >>> graver(["no better than guessing", "below the median"])
    ['no better than guessing']
    """
    implied = {Flag.BELOW_MEDIAN} if len(flags) > 1 else set()
    if Flag.BELOW_CHANCE in flags:
        implied.add(Flag.GUESSING)
    return [flag for flag in flags if flag not in implied]


def advice_on(flag: str, advice: str) -> str:
    """Write the advice about annotators with a flag.

    Examples
    --------
    >>> advice_on("too fast", "read some of their annotations")
    'If an annotator answers much faster than the others, read some of their annotations'
    """
    return f"If an annotator {reason(flag)}, {advice}"
