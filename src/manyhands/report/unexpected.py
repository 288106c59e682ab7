"""The section on annotations that a classifier did not expect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.report.expected_answers import UNEXPECTED, Expectations
from manyhands.report.inputs import Inputs
from manyhands.report.limits import LIMITS
from manyhands.report.section import Answer, Content, Findings, Section
from manyhands.typing import FloatArray, IntArray
from manyhands.wording import counted, percent


def unexpected_section(found: Findings) -> Content | None:
    """Compare the annotations with what a classifier expected of their annotators."""
    inputs = found.inputs
    expectations, predicted, table = inputs.expectations, inputs.predicted, inputs.table
    if expectations is None or predicted is None:
        return None
    listed = _least_probable(table, expectations)
    shown = listed[: LIMITS["unexpected"]]
    edges = np.linspace(0.0, 1.0, 21)
    counts, _ = np.histogram(expectations.given_probability, bins=edges)
    return {
        "source": type(inputs.classifier).__name__,
        "n": table.n_annotations,
        "below": UNEXPECTED,
        "n_unexpected": int(expectations.unexpected.sum()),
        "n_unexpected_foreseen": float(expectations.unexpected_chance.sum()),
        "n_second": len(listed),
        "n_second_foreseen": float(expectations.second_chance.sum()),
        "median": float(np.median(expectations.given_probability)),
        "histogram": [
            {"from": float(low), "to": float(high), "count": int(n)}
            for low, high, n in zip(edges[:-1].round(2), edges[1:].round(2), counts, strict=True)
        ],
        "least": {
            "total": len(listed),
            "shown": len(shown),
            "rows": [_describe(table, expectations, predicted, k) for k in shown.tolist()],
        },
    }


def unexpected_by_annotator(inputs: Inputs) -> list[dict[str, Any]] | None:
    """Actual and expected number of unexpected annotations per annotator."""
    expectations, table = inputs.expectations, inputs.table
    if expectations is None:
        return None
    seen, chance = (
        np.bincount(table.annotator, weights=values, minlength=table.n_annotators)
        for values in (expectations.unexpected, expectations.unexpected_chance)
    )
    return [
        {"n": int(n), "foreseen": float(expected)} for n, expected in zip(seen, chance, strict=True)
    ]


def _least_probable(table: AnnotationTable, expectations: Expectations) -> IntArray:
    """Annotations with a more probable class, least probable first; ties in vocabulary order."""
    rows = np.flatnonzero(expectations.second)
    keys = (table.label, table.annotator, table.instance, expectations.given_probability)
    return rows[np.lexsort([key[rows] for key in keys])]


def _describe(
    table: AnnotationTable, expectations: Expectations, predicted: FloatArray, k: int
) -> dict[str, Any]:
    i = table.instance[k]
    label = predicted[i].argmax()
    return {
        "id": table.instances[i].item(),
        "annotator": table.annotators[table.annotator[k]].item(),
        "given": table.classes[table.label[k]].item(),
        "given_probability": float(expectations.given_probability[k]),
        "expected": table.classes[expectations.expected[k]].item(),
        "expected_probability": float(expectations.expected_probability[k]),
        "predicted": table.classes[label].item(),
        "predicted_probability": float(predicted[i, label]),
    }


def _instances(own: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    yield 8, [row["id"] for row in own["least"]["rows"]]


def answer_unexpected(s: Mapping[str, Any]) -> Answer:
    """Answer how many annotations the classifier did not expect."""
    found = s.get("unexpected")
    if not found:
        return "unexpected", ""
    foreseen = round(found["n_unexpected_foreseen"])
    return "unexpected", (
        f"{found['n_unexpected']:,} of {counted(found['n'], 'annotation')} were less than "
        f"{percent(found['below'])} probable, "
        f"{'fewer' if found['n_unexpected'] < foreseen else 'not fewer'} than the {foreseen:,} to "
        "be expected."
    )


UNEXPECTED_ANSWERS = Section(
    "unexpected",
    "Which annotations surprised the classifier?",
    "unexpected.html",
    unexpected_section,
    instances=_instances,
    answer=answer_unexpected,
    on_demand=True,
)
