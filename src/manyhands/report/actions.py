"""What to do next: the few steps of all sections that avoid the most mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from manyhands.codes import ActionCode
from manyhands.report.annotators import told_of_all, told_severities
from manyhands.report.commands import told_of_stand_ins
from manyhands.report.filters import prose
from manyhands.report.first import (
    MEASURED_NOTE,
    UNKNOWN,
    First,
    commands_of,
    figure_of,
    first_section,
)
from manyhands.report.headline import headline_and_reason, headline_of_new_items
from manyhands.report.labels import told_of_usable
from manyhands.report.planning import enough
from manyhands.report.section import Action, Content, Findings

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


USABLE_TABLE = (
    ' <a class="opens" href="#table-labels-cutoffs">See other probabilities<span class="hidden">: '
    "how many labels you can use</span></a>"
)
"""Link to the table of which one row is told."""


def first_screen(s: Mapping[str, Any]) -> First:
    """Return the first screen of a report on labels that are classes."""
    if not s["data"]["n_annotations"]:
        return First("")
    fact, why = headline_and_reason(s)
    if fact.endswith(": "):  # The reasons are a paragraph of their own.
        fact, why = f"{fact[:-2]}.", f"{why[:1].upper()}{why[1:]}"
    levels = s.get("levels") or {}
    severe = told_severities(s)
    told = {step["text"] for step in s["actions"]}
    lines = [(levels.get("decided") or {}).get("headline", "")]
    if usable := told_of_usable(s):
        lines.append(prose(usable) + Markup(USABLE_TABLE))
    lines += [headline_of_new_items(s)]
    lines += [text for text in (enough(s.get("plan")),) if text not in told]
    if severe:
        measured = told_of_all(s)
        asked = (
            f" {measured}" * bool(measured)
            if measured or levels.get("n_known")
            else " Before you talk to these annotators, grade some items yourself, and repeat the "
            "command with your grades as --known. Only your grades can show whether the majority "
            "is too strict or too lenient."
        )
        lines.append(severe + Markup(" The labels are already corrected for this.") + asked)
    commands = [command for step in s["actions"] for command in commands_of(step, s)]
    return First(
        fact or "What the annotations show",
        why,
        figure_of(levels.get("labels")) or (UNKNOWN if why else None),
        lines,
        s["actions"],
        [each["text"] for each in s.get("warnings") or ()],
        " ".join(note for note in (MEASURED_NOTE, told_of_stand_ins(commands)) if note),
    )


ACTIONS = first_section("actions", first_screen, actions_section)
