"""The report: its sections, in page order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from manyhands.report.actions import ACTIONS
from manyhands.report.agreement import AGREEMENT
from manyhands.report.annotators import ANNOTATORS
from manyhands.report.confusions import COMMON, CONFUSIONS, LEARNT
from manyhands.report.counts import CLASSES, DATA
from manyhands.report.gold import GOLD
from manyhands.report.items import ITEMS
from manyhands.report.judges import JUDGES
from manyhands.report.label_sets import SET_SECTIONS
from manyhands.report.labels import LABELS
from manyhands.report.methods import METHODS
from manyhands.report.planning import PLAN
from manyhands.report.ratings import RATING_SECTIONS
from manyhands.report.review import REVIEW
from manyhands.report.section import Section
from manyhands.report.selection import SELECTION
from manyhands.report.timing import TIME
from manyhands.report.training import TRAINING
from manyhands.report.unexpected import UNEXPECTED_ANSWERS

RATINGS: Final = "ratings"
"""Kind of a summary of ratings, ``summary["kind"]``."""

SETS: Final = "label sets"
"""Kind of a summary of sets of labels; that of labels that are classes has none."""

SECTIONS: Final[tuple[Section, ...]] = (
    ACTIONS,
    DATA,
    AGREEMENT,
    GOLD,
    ANNOTATORS,
    JUDGES,
    TIME,
    REVIEW,
    CONFUSIONS,
    COMMON,
    LEARNT,
    CLASSES,
    PLAN,
    SELECTION,
    LABELS,
    UNEXPECTED_ANSWERS,
    TRAINING,
    METHODS,
    ITEMS,
)
"""Sections in page order. A section's id is its key, a table's id is "table-" and its name, an
instance's is "item-" and its number, a step's is "step-" and its code."""


def sections_of(summary: Mapping[str, Any]) -> tuple[Section, ...]:
    """The sections that a summary was made with, unless others are named: by its kind."""
    own = {RATINGS: RATING_SECTIONS, SETS: SET_SECTIONS}
    return own.get(summary.get("kind", ""), SECTIONS)
