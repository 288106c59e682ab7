"""What `fit` warns of, in the words of a report: who can be judged, and what to trust."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.groups import in_families, undeclared_models
from manyhands.codes import WarningCode
from manyhands.exceptions import NotIdentifiableWarning, SharedMistakesWarning
from manyhands.inference.identifiability import unidentified_numbers, warn_of_all
from manyhands.inference.shared_by_gold import beside_others
from manyhands.inference.shared_mistakes import (
    UNKNOWN_WHO,
    gold_can_choose,
    suspected,
    warn_of_shared_mistakes,
)
from manyhands.planning.screening import OF_LABELS
from manyhands.report.inputs import Inputs
from manyhands.report.planning import find_screening
from manyhands.report.section import Findings
from manyhands.wording import for_commands

Warnings = Iterator[tuple[str, str]]
"""Codes for programs (`WarningCode`), and texts for readers."""

SHARED: dict[str, type[Warning]] = {
    WarningCode.SHARED_MISTAKES: SharedMistakesWarning,
    WarningCode.NOT_IDENTIFIABLE: NotIdentifiableWarning,
}
"""Codes of what `fit` says of shared mistakes: while one stands, nobody can be judged for sure."""


def find_doubts(found: Findings) -> list[tuple[str, str]]:
    """Return what the fits of a report's models warn of, or would: codes and texts."""
    inputs = found.inputs
    shared = [_settled(found, code, text) for code, text in _about_shared_mistakes(inputs)]
    doubts = [*_about_identification(inputs), *shared]
    return [*doubts, *_about_chosen_gold(inputs), *_about_classifier(inputs)]


def is_open_who_shares(found: Findings) -> bool:
    """Return whether it is open who shares mistakes, so that nobody can be judged for sure."""
    return any(code in SHARED for code, _ in found.once(find_doubts))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def _about_identification(inputs: Inputs) -> Warnings:
    """Yield what `fit` says where the annotations do not decide the labels."""
    fitted, inferred = inputs.aggregator, inputs.inferred
    if getattr(fitted, "corrected_", False):
        return  # Gold decides.
    table = getattr(fitted, "table_", inputs.whole)
    known = np.broadcast_to(getattr(fitted, "is_known_", False), table.n_instances)
    posterior = None if inferred is None or not inferred.probable else inferred.posterior
    yield from identification(table, posterior, known)
    if inferred is not None and in_families(table.groups, table.n_annotators).any():
        yield (
            WarningCode.OWN_VOTES,
            "Families of annotators are declared. Those who stand outside them, such as people, "
            "help to decide the labels that they are judged by, so their accuracy looks better "
            "than that of a family's members.",
        )


def _about_chosen_gold(inputs: Inputs) -> Warnings:
    """Yield what shows that known or gold labels were chosen, or contradict the model."""
    for note in inputs.level_notes:
        yield WarningCode.GOLD_CHOSEN, _sentence(note)
    for fitted in (inputs.aggregator, inputs.classifier):
        told = getattr(fitted, "gold_note_", None)
        if told is not None:
            yield WarningCode.GOLD_CHOSEN, _sentence(told)
        told = getattr(fitted, "sample_note_", None)
        if told is not None:
            yield WarningCode.SAMPLE_CONTRADICTS, _sentence(told)


def identification(table: Any, posterior: Any = None, known: Any = None) -> Warnings:
    """Warn where the annotations (or known labels) do not decide who is right.

    Numbers are judged at interval level: hardly any two are the same.
    """
    if getattr(table, "scale", None) == "interval" and isinstance(table, AnnotationTable):
        told = unidentified_numbers(table)
        if told is not None:
            yield WarningCode.NOT_IDENTIFIABLE, _sentence(told)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_all(table, posterior, known)
    for warning in caught:
        yield WarningCode.NOT_IDENTIFIABLE, _sentence(for_commands(str(warning.message)))


def _about_shared_mistakes(inputs: Inputs) -> Warnings:
    """Yield what `fit` says of shared mistakes, whatever the method: plans need that fit.

    It counts the gold of the report. Where that silences it, it counts the gold of the fit alone.
    """
    fitted = inputs.aggregator
    table = getattr(fitted, "table_", inputs.table)  # It may have families that were given to fit.
    has_choice = table.groups is not None or gold_can_choose(table)
    if getattr(fitted, "corrected_", False) and has_choice:
        return  # Gold has chosen the families.
    known = np.broadcast_to(getattr(fitted, "is_known_", False), len(inputs.annotated))
    at_hand = known if inputs.gold is None else known | (inputs.gold >= 0)
    for gold in (at_hand, known):
        found = [*shared_mistakes(table, int((gold & inputs.annotated).sum()))]
        if found or gold is known:
            yield from found
            return


def _settled(found: Findings, code: str, text: str) -> tuple[str, str]:
    """Return a doubt as gold leaves it: who of both sides shares mistakes, or neither."""
    inputs, table, gold = found.inputs, found.inputs.table, found.inputs.judging
    is_undeclared = table.groups is None and not undeclared_models(None, table.annotators).any()
    if code != WarningCode.SHARED_MISTAKES or gold is None or not is_undeclared:
        return code, text
    members = table.annotators[suspected(table)].tolist()
    beside = beside_others(table, members, np.where(inputs.chosen_gold, -1, gold))
    if beside is None or UNKNOWN_WHO not in text:
        return code, text
    if beside.share_mistakes:
        return code, text.replace(f"They {UNKNOWN_WHO}", str(beside))
    if _are_doubted(found, members):
        return code, text
    if not beside.are_better:
        return code, text.replace(UNKNOWN_WHO, f"{UNKNOWN_WHO} {beside}".rstrip())
    return WarningCode.AGREE_BY_SKILL, f"{text[: text.index('They ' + UNKNOWN_WHO)]}{beside}"


def told_of_settled(summary: Mapping[str, Any]) -> str:
    """Say what gold shows of annotators whom a fit suspects of shared mistakes; "" if nothing."""
    found = summary.get("warnings") or ()
    return next((each["text"] for each in found if each["code"] == WarningCode.AGREE_BY_SKILL), "")


def _are_doubted(found: Findings, members: list[Any]) -> bool:
    """Return whether the labels speak against annotators: the others may outvote them."""
    screening = found.once(find_screening) or ()
    return any(OF_LABELS & {*row.flags} for row in screening if row.annotator in members)


def shared_mistakes(table: Any, n_gold: int = 0) -> Warnings:
    """Warn of annotators who may share mistakes.

    The search looks at 30 annotators and 2,000 instances at most, also of a large table.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_shared_mistakes(table, n_gold=n_gold)
    for warning in caught:
        for code, category in SHARED.items():
            if issubclass(warning.category, category):
                yield code, _sentence(for_commands(str(warning.message)))


def _about_classifier(inputs: Inputs) -> Warnings:
    """Yield what the classifier itself warned of in its fit."""
    for code, text in getattr(inputs.classifier, "doubts_", {}).items():
        yield code, _sentence(for_commands(text))
