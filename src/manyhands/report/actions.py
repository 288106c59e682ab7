"""What to do next: the few steps of all sections that avoid the most mistakes."""

from __future__ import annotations

from manyhands.codes import ActionCode
from manyhands.report.headline import headline_and_reason, headline_of_new_items
from manyhands.report.section import Action, Content, Findings, Section

MOST_ACTIONS = 4
"""Actions on the first screen."""


def actions_section(found: Findings) -> list[Content]:
    """List what to do next: at most four steps, by the mistakes that each avoids.

    Each has a code for programs (`ActionCode`), a title and a text for readers, the section that
    holds the evidence, the first rows of it, and the number of wrong labels that it may put right
    ("avoided"), which is a rough figure and only orders them. While it is open who shares mistakes,
    that comes first.
    """
    if not found.inputs.table.n_annotations:
        return []
    steps = [each for section in found.sections for each in section.actions(found)]
    steps.sort(key=_order)
    return [each.to_dict() for each in steps[:MOST_ACTIONS]]


def _order(step: Action) -> tuple[float, int]:
    """By the mistakes that a step avoids; among equals, by the code."""
    codes = [*ActionCode]
    place = codes.index(ActionCode(step.code)) if step.code in codes else len(codes)
    return -step.avoided, place


ACTIONS = Section(
    "actions",
    "What to do next",
    "actions.html",
    actions_section,
    words={
        "headline_and_reason": headline_and_reason,
        "headline_of_new_items": headline_of_new_items,
    },
)
