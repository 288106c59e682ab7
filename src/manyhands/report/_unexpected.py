"""Annotations that their annotators were not expected to give, the least probable first."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.report._foreseen import UNEXPECTED, Foreseen
from manyhands.report._inputs import Inputs
from manyhands.report._limits import LIMITS
from manyhands.typing import FloatArray, IntArray


def unexpected_section(inputs: Inputs) -> dict[str, Any] | None:
    """Compare the annotations with what a classifier expected of every annotator there."""
    foreseen, predicted, table = inputs.foreseen, inputs.predicted, inputs.table
    if foreseen is None or predicted is None:
        return None
    listed = _least_probable(table, foreseen)
    shown = listed[: LIMITS["unexpected"]]
    edges = np.linspace(0.0, 1.0, 21)
    counts, _ = np.histogram(foreseen.given, bins=edges)
    return {
        "source": type(inputs.classifier).__name__,
        "n": table.n_annotations,
        "below": UNEXPECTED,
        "n_unexpected": int(foreseen.unexpected.sum()),
        "n_unexpected_foreseen": float(foreseen.unexpected_chance.sum()),
        "n_second": len(listed),
        "n_second_foreseen": float(foreseen.second_chance.sum()),
        "median": float(np.median(foreseen.given)),
        "histogram": [
            {"from": float(low), "to": float(high), "count": int(n)}
            for low, high, n in zip(edges[:-1].round(2), edges[1:].round(2), counts, strict=True)
        ],
        "least": {
            "total": len(listed),
            "shown": len(shown),
            "rows": [_describe(table, foreseen, predicted, k) for k in shown.tolist()],
        },
    }


def unexpected_by_annotator(inputs: Inputs) -> list[dict[str, Any]] | None:
    """Count the unexpected annotations of every annotator, beside how many were foreseen."""
    foreseen, table = inputs.foreseen, inputs.table
    if foreseen is None:
        return None
    seen, chance = (
        np.bincount(table.annotator, weights=values, minlength=table.n_annotators)
        for values in (foreseen.unexpected, foreseen.unexpected_chance)
    )
    return [
        {"n": int(n), "foreseen": float(expected)} for n, expected in zip(seen, chance, strict=True)
    ]


def _least_probable(table: AnnotationTable, foreseen: Foreseen) -> IntArray:
    """Annotations with a more probable class, least probable first; ties as in the vocabularies."""
    rows = np.flatnonzero(foreseen.second)
    keys = (table.label, table.annotator, table.instance, foreseen.given)
    return rows[np.lexsort([key[rows] for key in keys])]


def _describe(
    table: AnnotationTable, foreseen: Foreseen, predicted: FloatArray, k: int
) -> dict[str, Any]:
    i = table.instance[k]
    label = predicted[i].argmax()
    return {
        "id": table.instances[i].item(),
        "annotator": table.annotators[table.annotator[k]].item(),
        "given": table.classes[table.label[k]].item(),
        "given_probability": float(foreseen.given[k]),
        "expected": table.classes[foreseen.expected[k]].item(),
        "expected_probability": float(foreseen.probability[k]),
        "predicted": table.classes[label].item(),
        "predicted_probability": float(predicted[i, label]),
    }
