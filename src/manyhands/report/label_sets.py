"""The report on sets of labels: options, annotators, and the cells that are in doubt."""

from __future__ import annotations

from manyhands.decision import SetDecision
from manyhands.metrics import Level
from manyhands.metrics.set_levels import SetLevels
from manyhands.report.filters import percent_range
from manyhands.wording import N_RANDOM, counted, percent

SAMPLE_TELLS = (
    f"Known sets of {N_RANDOM} random items would tell (manyhands review --random {N_RANDOM})"
)
"""What to do where nothing shows how many labels are right."""


# -- in words --------------------------------------------------------------------------------------


def told_of_sets(levels: SetLevels, n_given: int, n_instances: int) -> str:
    """Say in a sentence or two how many labels of sets are right, and how many are missing."""
    given, found = levels.given, levels.found
    labels = f"{counted(n_given, 'label')} of {counted(n_instances, 'item')}"
    if not n_given:
        return f"No label was given to any of the {counted(n_instances, 'item')}."
    if given is None:
        return (
            f"How many of the {labels} are right is not known: too few items have answers of two "
            f"independent annotators or more. {SAMPLE_TELLS}."
        )
    if given.source == "gold":
        text = (
            f"{_range(given)} of the labels given are right, measured on "
            f"{counted(given.n, 'label')} of items with gold."
        )
        if found is not None and found.source == "gold":
            text += (
                f" Of {counted(found.n, 'label')} that apply by gold, {_range(found)} were given."
            )
        return text
    text = f"About {_range(given)} of the {labels} are right"
    if found is not None:
        text += f", and about {_range(found)} of the labels that apply were given"
    return f"{text}: estimated from how annotators agree, not measured."


def _range(level: Level) -> str:
    return percent_range(level.to_dict())


def told_of_decision(rule: str, threshold: float | None, decided: SetDecision) -> str:
    """Say how sets were decided, and why so."""
    if threshold is not None:
        return f"An option is ticked where its probability is at least {threshold:g}, as you asked."
    if rule == "f1":
        low, high = decided.threshold.min(), decided.threshold.max()
        return (
            "Of each option, so many of its likeliest items are ticked that the expected F1 is "
            f"greatest; that is from probabilities of {percent(min(low, 1.0))} to "
            f"{percent(min(high, 1.0))} on. It ticks more where labels are rare, because crowds "
            "overlook labels that experts see."
        )
    return (
        "An option is ticked where it is more probable than not, which makes the fewest wrong "
        "cells. If overlooked labels are worse than false ones, decide by --rule f1 or a lower "
        "--threshold."
    )
