"""Counts of annotations, with agreement and ties, of the whole table and of each class."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.agreement import (
    ClassAgreement,
    class_agreement,
    krippendorff_alpha,
    percent_agreement,
)
from manyhands.agreement.weighted import Annotations, ClassCounts, class_counts, per_entry
from manyhands.annotations.class_order import shown_order
from manyhands.annotations.sharded import Sharded
from manyhands.planning.beliefs import distinct_pairs
from manyhands.report.inputs import Inputs
from manyhands.report.limits import LIMITS
from manyhands.typing import AnyArray, IntArray


def data_section(inputs: Inputs) -> dict[str, Any]:
    """Collect counts, sparsity, imbalance, agreement and ties of the observed annotations."""
    table = inputs.table
    per_instance = table.annotations_per_instance()
    per_annotator = table.annotations_per_annotator()
    cells, no_counts = len(distinct_pairs(table)), np.zeros(0, dtype=np.int64)
    return {
        "n_instances": table.n_instances,
        "n_annotators": table.n_annotators if table.annotators_known else None,
        "n_annotations": table.n_annotations,
        "n_classes": table.n_classes,
        "n_unannotated": int((per_instance == 0).sum()),
        "n_single": int((per_instance == 1).sum()),
        "n_silent": int((per_annotator == 0).sum()) if table.annotators_known else 0,
        "n_added": inputs.whole.n_annotations - table.n_annotations,
        "n_repeated": table.n_annotations - cells,
        "n_abstentions": len(table.abstentions),
        "n_skips": len(table.skips),
        "weighted": inputs.whole.weights is not None,
        "sparsity": 1 - cells / max(table.n_instances * table.n_annotators, 1),
        "per_instance": spread_of_counts(per_instance),
        "per_annotator": spread_of_counts(per_annotator if table.annotators_known else no_counts),
        "imbalance": _imbalance(inputs),
        "agreement": _agreement(table, int((per_instance > 1).sum())),
        "ties": {"n": int(inputs.tied.sum()), "share": _share(inputs.tied, inputs.annotated)},
    }


def classes_section(inputs: Inputs) -> dict[str, Any] | None:
    """Annotations and inferred labels per class; only the most frequent of many classes."""
    table, inferred = inputs.table, inputs.inferred
    if not table.n_classes:
        return None
    given = np.bincount(table.label, minlength=table.n_classes)
    counts, agreement = _inferred_counts(inputs), class_agreement(table)
    return _classes(table.classes, given, counts, agreement, known=inferred is not None)


def _classes(
    classes: AnyArray,
    given: IntArray,
    counts: IntArray,
    agreement: ClassAgreement,
    *,
    known: bool = True,
) -> dict[str, Any]:
    """Annotations and, if known, inferred labels of each class, both of shape (C,)."""
    shown = np.arange(len(classes))
    if len(classes) > LIMITS["classes"]:
        shown = np.argsort(-given, kind="stable")[: LIMITS["classes"]]
    given_share = given / max(given.sum(), 1)
    inferred_share = counts / max(counts.sum(), 1)
    return {
        "total": len(classes),
        "shown": len(shown),
        # The bars of the class table are drawn relative to this share.
        "largest_share": max(given_share.max(), inferred_share.max(), 1e-9),
        "rows": [
            {
                "name": classes[c].item(),
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


def store_sections(store: Sharded) -> dict[str, Any]:
    """The sections "data" and "classes" of a store, counted shard by shard."""
    per_instance, per_annotator = (
        store.annotations_per_instance(),
        store.annotations_per_annotator(),
    )
    given, cells = np.zeros(store.n_classes, dtype=np.int64), 0
    for number in range(store.n_shards):
        shard = store.shard(number)
        given += np.bincount(shard.label, minlength=store.n_classes)
        instance = np.repeat(np.arange(shard.n_instances), np.diff(shard.start))
        cells += len(np.unique(instance * np.int64(store.n_annotators) + shard.annotator))
    inferred, n_tied = _majorities(class_counts(store, least=1))
    n_pairable, n_annotated = int((per_instance > 1).sum()), int((per_instance > 0).sum())
    data = {
        "n_instances": store.n_instances,
        "n_annotators": store.n_annotators,
        "n_annotations": store.n_annotations,
        "n_classes": store.n_classes,
        "n_unannotated": store.n_instances - n_annotated,
        "n_single": int((per_instance == 1).sum()),
        "n_silent": int((per_annotator == 0).sum()),
        "n_added": 0,
        "n_repeated": store.n_annotations - cells,
        "n_abstentions": store.n_abstentions,
        "n_skips": store.n_skips,
        "weighted": store.weighted,
        "sparsity": 1 - cells / max(store.n_instances * store.n_annotators, 1),
        "per_instance": spread_of_counts(per_instance),
        "per_annotator": spread_of_counts(per_annotator),
        "imbalance": _imbalance_of(given, store.classes) if store.n_annotations else None,
        "agreement": _agreement(store, n_pairable),
        "ties": {"n": n_tied, "share": n_tied / n_annotated if n_annotated else None},
    }
    return {
        "data": data,
        "classes": _classes(store.classes, given, inferred, class_agreement(store)),
    }


def _majorities(counts: ClassCounts) -> tuple[IntArray, int]:
    """Number of instances per class with the most votes (the first if tied), and of ties."""
    votes = counts.votes
    if not votes.shape[0]:
        return np.zeros(votes.shape[1], dtype=np.int64), 0
    assert counts.times is not None
    top = np.maximum.reduceat(votes.data, votes.indptr[:-1])
    row = per_entry(votes, np.arange(votes.shape[0]))
    best = np.flatnonzero(votes.data == top[row])
    _, first, winners = np.unique(row[best], return_index=True, return_counts=True)
    times = counts.times.astype(np.int64)
    inferred = np.zeros(votes.shape[1], dtype=np.int64)
    np.add.at(inferred, votes.indices[best[first]], times)
    return inferred, int(times[winners > 1].sum())


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
    return _imbalance_of(np.bincount(table.label, minlength=table.n_classes), table.classes)


def _imbalance_of(counts: IntArray, classes: AnyArray) -> dict[str, Any]:
    most, least = int(counts.argmax()), int(counts.argmin())
    return {
        "ratio": float(counts[most] / counts[least]) if counts[least] else None,
        "most": {"name": classes[most].item(), "n": int(counts[most])},
        "least": {"name": classes[least].item(), "n": int(counts[least])},
    }


def _agreement(table: Annotations, n_pairable: int) -> dict[str, Any]:
    """Agreement on the scale of the table, and the order of classes that are more than names."""
    named = table.scale == "nominal"
    return {
        "n_instances": n_pairable,
        "percent": percent_agreement(table) if n_pairable else None,
        "alpha": krippendorff_alpha(table) if n_pairable else None,
        "scale": table.scale,
        "order": None if named else shown_order(table.classes),
    }


def _inferred_counts(inputs: Inputs) -> IntArray:
    """Number of annotated instances per inferred class."""
    c = inputs.table.n_classes
    if inputs.inferred is None:
        return np.zeros(c, dtype=np.int64)
    return np.bincount(inputs.inferred.codes[inputs.annotated], minlength=c)
