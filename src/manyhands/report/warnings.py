"""Warnings of a report, in words, the most serious first."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.groups import in_families
from manyhands.annotations.sharded import Sharded
from manyhands.exceptions import NotIdentifiableWarning, SharedMistakesWarning
from manyhands.inference.identifiability import warn_of_all
from manyhands.inference.shared_mistakes import gold_can_choose, warn_of_shared_mistakes
from manyhands.report.inputs import Inputs
from manyhands.report.limits import FEW, IMBALANCED, LIMITS, OVERCONFIDENT
from manyhands.wording import with_groups_option

Warnings = Iterator[tuple[str, str]]

SHARED: dict[str, type[Warning]] = {
    "shared-mistakes": SharedMistakesWarning,
    "not-identifiable": NotIdentifiableWarning,
}
"""Codes of what `fit` says of shared mistakes: while one stands, nobody can be judged for sure."""


def find_warnings(inputs: Inputs, summary: dict[str, Any]) -> list[dict[str, str]]:
    """List the warnings of a summary, each with a code for programs and a text for readers."""
    data = summary["data"]
    if not data["n_annotations"]:
        return [{"code": "empty", "text": "There are no observed annotations to report on."}]
    table = inputs.table
    counts = np.bincount(table.label, minlength=table.n_classes)
    never = table.classes[counts == 0].tolist()
    parts = (_about_agreement(data), _about_classes(never, data), _about_coverage(data))
    found = [*_about_gold(summary), *_about_identification(inputs), *_about_shared_mistakes(inputs)]
    found += [*_about_chosen_gold(inputs), *_about_classifier(inputs)]
    found += [*parts[0], *parts[1], *parts[2], *_about_annotators(summary), *_about_counting(data)]
    return _listed_once(found)


def find_store_warnings(
    store: AnnotationTable | Sharded | None, summary: dict[str, Any]
) -> list[dict[str, str]]:
    """List the warnings that need no annotator's reliability: of a store, or of nobody's votes."""
    data, classes = summary["data"], summary["classes"]
    if not data["n_annotations"]:
        return [{"code": "empty", "text": "There are no observed annotations to report on."}]
    never = [row["name"] for row in classes["rows"] if not row["n_annotations"]]
    shared = () if store is None else (*_identification(store), *_shared_mistakes(store))
    found = [*shared, *_about_agreement(data), *_about_classes(never, data)]
    return _listed_once([*found, *_about_coverage(data), *_about_counting(data)])


def count(n: int, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun: 1 annotator, 1,200 annotators."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def shorten(text: str, limit: int = 40) -> str:
    """Clip a long name."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def listed(names: list[Any], total: int) -> str:
    """Quote the first names of a list and count the others."""
    quoted = ", ".join(f"“{shorten(str(name))}”" for name in names[: LIMITS["named"]])
    more = total - LIMITS["named"]
    return quoted + (f" and {more:,} more" if more > 0 else "")


def _listed_once(found: list[tuple[str, str]]) -> list[dict[str, str]]:
    codes: dict[str, str] = {}
    for code, text in found:
        codes.setdefault(text, code)
    return [{"code": code, "text": text} for text, code in codes.items()]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def _about_gold(summary: dict[str, Any]) -> Warnings:
    rows = [] if summary["gold"] is None else summary["gold"]["rows"][1:]
    for row in rows:
        expected = row["expected"]
        if expected is not None and expected - row["accuracy"] > OVERCONFIDENT:
            yield (
                "overconfident",
                f"{row['name']} expects {100 * expected:.0f}\u202f% of its labels to be right; "
                f"against gold, {100 * row['accuracy']:.0f}\u202f% are. Its probabilities, and "
                "everything derived from them, are too high.",
            )


def _about_identification(inputs: Inputs) -> Warnings:
    """What `fit` says where the annotations do not decide the labels."""
    fitted, inferred = inputs.aggregator, inputs.inferred
    if getattr(fitted, "corrected_", False):
        return  # Gold decides.
    table = getattr(fitted, "table_", inputs.whole)
    known = np.broadcast_to(getattr(fitted, "is_known_", False), table.n_instances)
    posterior = None if inferred is None or not inferred.probable else inferred.posterior
    yield from _identification(table, posterior, known)
    if inferred is not None and in_families(table.groups, table.n_annotators).any():
        yield (
            "own-votes",
            "Families of annotators are declared. Those who stand outside them, such as people, "
            "help to decide the labels that they are judged by, so their accuracy looks better "
            "than that of a family's members.",
        )


def _about_chosen_gold(inputs: Inputs) -> Warnings:
    """What `fit` says of known labels: that they were chosen, or contradict the model."""
    for fitted in (inputs.aggregator, inputs.classifier):
        told = getattr(fitted, "gold_note_", None)
        if told is not None:
            yield "gold-chosen", _sentence(told)
        told = getattr(fitted, "sample_note_", None)
        if told is not None:
            yield "sample-contradicts", _sentence(told)


def _identification(table: Any, posterior: Any = None, known: Any = None) -> Warnings:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_all(table, posterior, known)
    for warning in caught:
        yield "not-identifiable", _sentence(with_groups_option(str(warning.message)))


def _about_shared_mistakes(inputs: Inputs) -> Warnings:
    """What `fit` says of shared mistakes, whichever method made the labels: plans rest on one.

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
        found = [*_shared_mistakes(table, int((gold & inputs.annotated).sum()))]
        if found or gold is known:
            yield from found
            return


def _shared_mistakes(table: Any, n_gold: int = 0) -> Warnings:
    """The search looks at 30 annotators and 2,000 instances at most, also of a large table."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_shared_mistakes(table, n_gold=n_gold)
    for warning in caught:
        for code, category in SHARED.items():
            if issubclass(warning.category, category):
                yield code, _sentence(with_groups_option(str(warning.message)))


def _about_classifier(inputs: Inputs) -> Warnings:
    """What the classifier itself warned of in its fit."""
    for code, text in getattr(inputs.classifier, "doubts_", {}).items():
        yield code, _sentence(with_groups_option(text))


def _about_agreement(data: dict[str, Any]) -> Warnings:
    agreement = data["agreement"]
    if not agreement["n_instances"]:
        yield (
            "no-overlap",
            "No instance has two annotations: agreement cannot be measured, and all reliabilities "
            "depend on the model's assumptions alone.",
        )
    alpha = agreement["alpha"]
    if alpha is not None and alpha < 0:
        yield (
            "alpha-below-0",
            f"Krippendorff's alpha is {alpha:.2f}, below 0: annotators agree less than by chance. "
            "Check for swapped classes or misunderstood instructions.",
        )


def _about_classes(never: list[Any], data: dict[str, Any]) -> Warnings:
    if never:
        start, verb = ("Class", "was") if len(never) == 1 else ("Classes", "were")
        names = listed(never, len(never))
        yield "class-never-given", f"{start} {names} {verb} never given by any annotator."
    ratio = data["imbalance"]["ratio"]
    if ratio is not None and ratio >= IMBALANCED:
        yield (
            "imbalance",
            f"The most frequent class was given {ratio:,.0f} times as often as the least frequent: "
            "accuracy says little about rare classes.",
        )


def _about_coverage(data: dict[str, Any]) -> Warnings:
    if data["n_unannotated"]:
        verb = "has" if data["n_unannotated"] == 1 else "have"
        yield "unannotated", f"{count(data['n_unannotated'], 'instance')} {verb} no annotations."
    if data["n_single"] and data["agreement"]["n_instances"]:
        verb = "has" if data["n_single"] == 1 else "have"
        yield "single", f"{count(data['n_single'], 'instance')} {verb} only one annotation."


def _about_annotators(summary: dict[str, Any]) -> Warnings:
    found = summary["annotators"]
    names = ("significantly below chance", "one label")
    chance, same = (found["flag_counts"].get(name, 0) for name in names)
    few = found["n_few"]
    if chance:
        verb = "is" if chance == 1 else "are"
        yield (
            "below-chance",
            f"{count(chance, 'annotator')} {verb} significantly below chance (the whole interval "
            f"lies below 1 in {summary['data']['n_classes']}): "
            f"{listed(found['flagged']['significantly below chance'], chance)}.",
        )
    if same:
        yield (
            "always-the-same-class",
            f"{count(same, 'annotator')} gave the same class nearly every time, where others would "
            f"not: {listed(found['flagged']['one label'], same)}.",
        )
    if few:
        yield (
            "few-annotations",
            f"{count(few, 'annotator')} gave fewer than {FEW} annotations: too few to judge.",
        )
    if summary["data"]["n_silent"]:
        yield "silent", f"{count(summary['data']['n_silent'], 'annotator')} gave no annotations."


def _about_counting(data: dict[str, Any]) -> Warnings:
    if data["n_added"]:
        verb = "is" if data["n_added"] == 1 else "are"
        yield (
            "added",
            f"{count(data['n_added'], 'annotation')} added by a program (pseudo, generated or "
            f"synthetic) {verb} not counted here.",
        )
    if data["n_repeated"]:
        verb = "repeats" if data["n_repeated"] == 1 else "repeat"
        yield (
            "repeated",
            f"{count(data['n_repeated'], 'annotation')} {verb} a pair of instance and annotator.",
        )
    if data["weighted"]:
        yield "weights", "The table has weights; this report counts each annotation once."
