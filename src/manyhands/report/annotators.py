"""The annotators section: number of annotations, accuracy, mistakes and flags per annotator."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.metrics import AnnotatorReliability, annotator_reliability
from manyhands.report.confusions import count_mistakes, matrices_section, top_mistake
from manyhands.report.inputs import Inputs
from manyhands.report.limits import FEW, LIMITS
from manyhands.report.unexpected import unexpected_by_annotator
from manyhands.typing import BoolArray, FloatArray, IntArray

LEVEL = 0.95

FLAGS = ("fewer than 5", "significantly below chance", "always the same class")


def annotators_section(inputs: Inputs) -> dict[str, Any] | None:
    """Reliability, flags and confusion matrices; most active annotators first."""
    table, inferred = inputs.table, inputs.inferred
    if inferred is None:
        return None
    found = annotator_reliability(table, inferred.posterior, level=LEVEL)
    order = np.argsort(-found.n_annotations, kind="stable")
    shown, rest = order[: LIMITS["annotators"]], order[LIMITS["annotators"] :]
    flags = flags_of(table, found)
    active = found.n_annotations > 0
    counts = count_mistakes(table, inferred.codes, shown)
    note, matrices = matrices_section(inputs, inferred, shown, counts)
    rows = _rows(inputs, found, flags, shown)
    for k, row in enumerate(rows):
        row["mistake"] = top_mistake(table, counts[k])
        row["matrix"] = matrices[k] if k < len(matrices) else None
    return {
        "total": table.n_annotators,
        "n_active": int(active.sum()),
        "shown": len(shown),
        "level": LEVEL,
        "chance": 1.0 / table.n_classes,
        "source": inferred.name,
        "median_accuracy": float(np.median(found.accuracy[active])),
        "n_at_or_below_chance": int((found.accuracy[active] <= 1.0 / table.n_classes).sum()),
        "flag_counts": {name: int(marks.sum()) for name, marks in flags.items()},
        "flagged": {name: _first_ids(table, order[marks[order]]) for name, marks in flags.items()},
        "histogram": _accuracy_histogram(found.accuracy[active]),
        "rows": rows,
        "rest": _rest(found, flags, rest),
        "matrices": note,
    }


def flags_of(table: AnnotationTable, found: AnnotatorReliability) -> dict[str, BoolArray]:
    """Mask of the annotators with each of the `FLAGS`.

    Significantly below chance means that the whole interval is.
    """
    n = found.n_annotations
    pairs = np.unique(table.annotator.astype(np.int64) * table.n_classes + table.label)
    n_given = np.bincount(pairs // table.n_classes, minlength=table.n_annotators)
    chance = 1.0 / table.n_classes
    marks = ((n > 0) & (n < FEW), found.upper < chance, (n >= FEW) & (n_given == 1))
    return dict(zip(FLAGS, marks, strict=True))


def _first_ids(table: AnnotationTable, annotators: IntArray) -> list[Any]:
    ids: list[Any] = table.annotators[annotators[: LIMITS["named"]]].tolist()
    return ids


def _accuracy_histogram(accuracy: FloatArray) -> list[dict[str, float]]:
    edges = np.linspace(0.0, 1.0, 21)
    counts, _ = np.histogram(accuracy.clip(0.0, 1.0), bins=edges)
    return [
        {"from": float(low), "to": float(high), "count": int(n)}
        for low, high, n in zip(edges[:-1].round(2), edges[1:].round(2), counts, strict=True)
    ]


def _rows(
    inputs: Inputs, found: AnnotatorReliability, flags: dict[str, BoolArray], shown: IntArray
) -> list[dict[str, Any]]:
    table = inputs.table
    proportion, unexpected = _common_proportion(inputs), unexpected_by_annotator(inputs)
    return [
        {
            "id": table.annotators[r].item(),
            "n_annotations": int(found.n_annotations[r]),
            "accuracy": float(found.accuracy[r]),
            "lower": float(found.lower[r]),
            "upper": float(found.upper[r]),
            "flags": [name for name, marks in flags.items() if marks[r]],
            "common_proportion": None if proportion is None else float(proportion[r]),
            "unexpected": None if unexpected is None else unexpected[r],
        }
        for r in shown.tolist()
    ]


def _rest(
    found: AnnotatorReliability, flags: dict[str, BoolArray], rest: IntArray
) -> dict[str, Any] | None:
    """Summarise the annotators that the table leaves out."""
    if not len(rest):
        return None
    n = found.n_annotations[rest]
    active = found.accuracy[rest][n > 0]
    return {
        "n": len(rest),
        "n_annotations": int(n.sum()),
        "most": int(n.max()),
        "median_accuracy": float(np.median(active)) if len(active) else None,
        "flag_counts": {name: int(marks[rest].sum()) for name, marks in flags.items()},
    }


def _common_proportion(inputs: Inputs) -> FloatArray | None:
    """How much each annotator follows the common confusion, if a classifier learnt it."""
    values = getattr(inputs.classifier, "common_proportion_", None)
    if values is None:
        return None
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (inputs.table.n_annotators,):
        raise AnnotationError(
            f"classifier.common_proportion_ has shape {values.shape}; it must have one value per "
            f"annotator of the table, shape ({inputs.table.n_annotators},)"
        )
    return values
