"""The sections on the data (counts, agreement, ties) and on the classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.agreement import class_agreement, krippendorff_alpha, percent_agreement
from manyhands.planning.beliefs import distinct_pairs
from manyhands.report.inputs import Inputs
from manyhands.report.limits import LIMITS
from manyhands.typing import IntArray


def data_section(inputs: Inputs) -> dict[str, Any]:
    """Collect counts, sparsity, imbalance, agreement and ties of the observed annotations."""
    table = inputs.table
    per_instance = table.annotations_per_instance()
    per_annotator = table.annotations_per_annotator()
    cells = len(distinct_pairs(table))
    return {
        "n_instances": table.n_instances,
        "n_annotators": table.n_annotators,
        "n_annotations": table.n_annotations,
        "n_classes": table.n_classes,
        "n_unannotated": int((per_instance == 0).sum()),
        "n_single": int((per_instance == 1).sum()),
        "n_silent": int((per_annotator == 0).sum()),
        "n_added": inputs.whole.n_annotations - table.n_annotations,
        "n_repeated": table.n_annotations - cells,
        "n_abstentions": len(table.abstentions),
        "n_skips": len(table.skips),
        "weighted": inputs.whole.weights is not None,
        "sparsity": 1 - cells / max(table.n_instances * table.n_annotators, 1),
        "per_instance": spread_of_counts(per_instance),
        "per_annotator": spread_of_counts(per_annotator),
        "imbalance": _imbalance(inputs),
        "agreement": _agreement(inputs, per_instance),
        "ties": {"n": int(inputs.tied.sum()), "share": _share(inputs.tied, inputs.annotated)},
    }


def classes_section(inputs: Inputs) -> dict[str, Any] | None:
    """Annotations and inferred labels per class; only the most frequent of many classes."""
    table, inferred = inputs.table, inputs.inferred
    if not table.n_classes:
        return None
    given = np.bincount(table.label, minlength=table.n_classes)
    counts = _inferred_counts(inputs)
    shown = np.arange(table.n_classes)
    if table.n_classes > LIMITS["classes"]:
        shown = np.argsort(-given, kind="stable")[: LIMITS["classes"]]
    given_share = given / max(table.n_annotations, 1)
    inferred_share = counts / max(counts.sum(), 1)
    known = inferred is not None
    agreement = class_agreement(table)
    return {
        "total": table.n_classes,
        "shown": len(shown),
        # The bars of the class table are drawn relative to this share.
        "largest_share": max(given_share.max(), inferred_share.max(), 1e-9),
        "rows": [
            {
                "name": table.classes[c].item(),
                "n_annotations": int(given[c]),
                "annotation_share": given_share[c],
                "n_inferred": int(counts[c]) if known else None,
                "inferred_share": inferred_share[c] if known else None,
                "agreement": agreement.agreement[c],
                "kappa": agreement.kappa[c],
            }
            for c in shown
        ],
    }


def spread_of_counts(counts: IntArray) -> dict[str, Any]:
    """Mean, median and range of the counts above 0, and a histogram of all counts."""
    some = counts[counts > 0]
    return {
        "mean": float(some.mean()) if len(some) else None,
        "median": float(np.median(some)) if len(some) else None,
        "min": int(some.min()) if len(some) else None,
        "max": int(some.max()) if len(some) else None,
        "histogram": count_histogram(counts),
    }


def count_histogram(counts: IntArray) -> list[dict[str, int]]:
    """Histogram of counts: one bin per number up to 12, else bins from 1, 2, 5, 10, 20, ..."""
    if not len(counts):
        return []
    top = int(counts.max())
    starts = np.arange(int(counts.min()), top + 2) if top <= 12 else _round_starts(counts)
    filled, _ = np.histogram(counts, bins=starts)
    return [
        {"from": int(low), "to": int(high) - 1, "count": int(n)}
        for low, high, n in zip(starts[:-1], starts[1:], filled, strict=True)
    ]


def _round_starts(counts: IntArray) -> IntArray:
    """Bin starts from 0, 1, 2, 5, 10, 20, 50, ... that cover the counts."""
    decades = 10 ** np.arange(len(str(int(counts.max()))) + 1)
    starts = np.concatenate([[0], np.outer(decades, [1, 2, 5]).ravel()])
    first = np.searchsorted(starts, counts.min(), side="right") - 1
    last = np.searchsorted(starts, counts.max(), side="right")
    return starts[first : last + 1]


def _share(marked: Any, among: Any) -> float | None:
    return float(marked[among].mean()) if among.any() else None


def _imbalance(inputs: Inputs) -> dict[str, Any] | None:
    """Most and least frequent class and their ratio, which is None if a class is absent."""
    table = inputs.table
    if not table.n_annotations:
        return None
    counts = np.bincount(table.label, minlength=table.n_classes)
    most, least = int(counts.argmax()), int(counts.argmin())
    return {
        "ratio": float(counts[most] / counts[least]) if counts[least] else None,
        "most": {"name": table.classes[most].item(), "n": int(counts[most])},
        "least": {"name": table.classes[least].item(), "n": int(counts[least])},
    }


def _agreement(inputs: Inputs, per_instance: IntArray) -> dict[str, Any]:
    n_pairable = int((per_instance > 1).sum())
    return {
        "n_instances": n_pairable,
        "percent": percent_agreement(inputs.table) if n_pairable else None,
        "alpha": krippendorff_alpha(inputs.table) if n_pairable else None,
    }


def _inferred_counts(inputs: Inputs) -> IntArray:
    """Number of annotated instances per inferred class."""
    c = inputs.table.n_classes
    if inputs.inferred is None:
        return np.zeros(c, dtype=np.int64)
    return np.bincount(inputs.inferred.codes[inputs.annotated], minlength=c)
