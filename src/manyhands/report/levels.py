"""The headline of a report: how many labels are right, and how many predictions of new items.

Each figure comes with its interval and its source (`manyhands.metrics.levels`). Every other part
of the report that speaks of right and wrong labels takes its figure from here.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from manyhands.exceptions import AnnotationError
from manyhands.inference import DawidSkene
from manyhands.metrics import Level, accuracy_of_labels
from manyhands.report.inputs import Inputs
from manyhands.report.words import count, percent_range
from manyhands.typing import FloatArray

Summary = Mapping[str, Any]


def levels_section(inputs: Inputs, new_items: Level | None = None) -> dict[str, Any] | None:
    """Levels of the inferred labels, and of predictions of new items; None without annotations."""
    inferred = inputs.inferred
    if inferred is None:
        return None
    table = inputs.table
    values = np.array([*table.classes.tolist(), None], dtype=object)
    gold = None if inputs.gold is None else values[inputs.gold]
    known = getattr(inputs.aggregator, "is_known_", None)
    labels = accuracy_of_labels(
        table,
        values[inferred.codes],
        expected_probabilities(inputs),
        gold=gold,
        known=None if known is None or len(known) != table.n_instances else known,
    )
    return {
        "n": int(inputs.annotated.sum()),
        "labels": None if labels is None else labels.to_dict(),
        "new_items": None if new_items is None else new_items.to_dict(),
        "has_classifier": inputs.classifier is not None,
    }


def expected_probabilities(inputs: Inputs) -> FloatArray | None:
    """Class probabilities whose mean says how many labels are right, if any method's do.

    Those of `DawidSkene` and of the stack do on real tables (docs/results/aggregation.md and
    docs/results/stack_labels.md); other methods are too sure, or their shares mean something else.
    """
    inferred, table = inputs.inferred, inputs.table
    if inferred is None or table.n_classes < 2:
        return None
    model = {"aggregator": inputs.aggregator, "classifier": inputs.classifier}.get(inferred.kind)
    own = getattr(model, "_knows_its_accuracy", False)
    if own and inferred.probable and inferred.name == type(model).__name__:
        return inferred.posterior
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The report has warnings of its own.
        try:
            return DawidSkene().fit(table).posterior_
        except AnnotationError:
            return None


def headline(summary: Summary) -> str:
    """Say how many labels are right, with interval and source, in a sentence or two."""
    found = summary.get("levels")
    if not found:
        return ""
    n, level = found["n"], found["labels"]
    if level is None:
        why = "most items have one annotation, so that no two answers can be compared"
        if summary["data"]["n_classes"] < 2:
            why = "there is one class only"
        return f"How many of the {count(n, 'label')} are right is not known: {why}."
    share = f"{percent_range(level)}"
    if level["source"] == "gold":
        return f"{share} of the labels are right, measured on {count(level['n'], 'gold label')}."
    if level["source"] == "sample":
        return (
            f"{share} of the labels are right, estimated from {count(level['n'], 'label')} that "
            "people checked at random."
        )
    return (
        f"About {share} of the {count(n, 'label')} are right: estimated from how annotators "
        "agree, not measured."
    )


def headline_of_new_items(summary: Summary) -> str:
    """Say how often the classifier is right on new items; empty without a classifier."""
    found = summary.get("levels")
    if not found or not found["has_classifier"]:
        return ""
    level = found["new_items"]
    if level is None:
        return (
            "How often the classifier is right on new items was not estimated. What it says of "
            "the items that it was trained on does not tell."
        )
    if level["source"] == "gold":
        how = f"measured on {count(level['n'], 'gold label')} that it was not trained on"
        return f"On new items, the classifier is right in {percent_range(level)} of cases, {how}."
    return (
        f"On new items, the classifier is right in about {percent_range(level)} of cases: "
        "cross-validated against the annotators’ labels."
    )


def n_wrong(summary: Summary) -> float | None:
    """Number of wrong labels that the headline implies; None if nothing tells."""
    found = summary.get("levels")
    if not found or found["labels"] is None:
        return None
    return float(found["n"] * (1.0 - found["labels"]["value"]))
