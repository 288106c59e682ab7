"""Stable codes of warnings, actions and flags of annotators, for programs.

The words that a person reads beside a code may change; the code does not. A code is a string, so it
is compared, written and read from JSON like any other text.
"""

from __future__ import annotations

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
    """Reasons to look at an annotator (`manyhands.planning.screen_annotators`), in words."""

    BELOW_MEDIAN_ON_GOLD = "below the median on gold"
    BELOW_CHANCE = "significantly below chance"
    GUESSING = "no better than guessing"
    ONE_LABEL = "one label"
    PATTERN = "repeating pattern"
    TOO_FAST = "too fast"
    DRIFT = "drift"
    BELOW_MEDIAN = "below the median"
