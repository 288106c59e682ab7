"""Codes for programs: of warnings, of actions, and of flags of annotators.

The words that a person reads beside a code may change, and the code stays. Each is text, so that it
is compared with text, written as text, and read back from JSON as text.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """A code, which is shown as the text that it is."""

    def __repr__(self) -> str:
        return str.__repr__(self)


class WarningCode(Code):
    """What a report warns of (``summary["warnings"]``)."""

    EMPTY = "empty"
    OVERCONFIDENT = "overconfident"
    NOT_IDENTIFIABLE = "not-identifiable"
    OWN_VOTES = "own-votes"
    SHARED_MISTAKES = "shared-mistakes"
    GOLD_CHOSEN = "gold-chosen"
    SAMPLE_CONTRADICTS = "sample-contradicts"
    CLASS_SHARES_ASSUMED = "class-shares-assumed"
    LOW_PARITY = "low-parity"
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
    """What a report advises to do (``summary["actions"]``), the more urgent first."""

    TALK = "talk"
    SAMPLE = "sample"
    CHECK = "check"
    EXPLAIN = "explain"
    GOLD = "gold"
    BUY = "buy"


class Flag(Code):
    """Why an annotator needs a look (`manyhands.planning.screen_annotators`); a person reads it."""

    BELOW_MEDIAN_ON_GOLD = "below the median on gold"
    BELOW_CHANCE = "significantly below chance"
    GUESSING = "no better than guessing"
    ONE_LABEL = "one label"
    PATTERN = "repeating pattern"
    TOO_FAST = "too fast"
    DRIFT = "drift"
    BELOW_MEDIAN = "below the median"
