"""Annotations of synthetic instances, taken from the annotations of their neighbours."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.columns import SOURCES
from manyhands.sampling.interpolation import Rng
from manyhands.typing import AnyArray, FloatArray, IntArray


class SyntheticAnnotations(NamedTuple):
    """Annotations of synthetic instances, which are numbered from 0."""

    instance: IntArray
    annotator: IntArray
    label: IntArray
    weight: FloatArray


def annotate(
    neighbours: IntArray,
    table: AnnotationTable,
    rng: Rng,
    *,
    by_majority: bool,
    keep_gaps: bool,
) -> SyntheticAnnotations:
    """Annotate each synthetic instance as the annotators of its neighbours did.

    Parameters
    ----------
    neighbours : integer array of shape (n, k)
        Rows of the real instances nearest to each synthetic one.
    table : AnnotationTable
        Annotations of the real instances.
    rng : RandomState
    by_majority, keep_gaps : bool
        ``annotations="majority"`` and ``gaps="kept"`` of `CrowdSMOTE`.
    """
    k = neighbours.shape[1]
    rows, owner = _annotations_of(neighbours, table)
    pair: IntArray
    label: IntArray
    pair = owner * table.n_annotators + table.annotator[rows]
    label, weight = table.label[rows].astype(np.int64), table.weight[rows].astype(np.float64)
    times = np.ones(len(rows))
    if by_majority:
        pair, label, weight, times = _tallied(pair, label, weight, table.n_classes)
        rank = -weight
    else:
        # The smallest of exponentials with these rates is drawn in proportion to the weights.
        rank = rng.exponential(size=len(rows)) / np.maximum(weight, np.finfo(float).tiny)
    order = np.lexsort((rng.uniform(size=len(rank)), rank, pair))
    first = order[np.flatnonzero(np.diff(pair[order], prepend=-1))]
    # Share of the neighbours that the annotator has annotated.
    _, group = np.unique(pair, return_inverse=True)
    share = np.bincount(group, weights=times) / k
    kept = np.ones(len(first), dtype=bool)
    if keep_gaps:
        kept = _below_zero_or_lowest(
            rng.uniform(size=len(first)) - share, pair[first] // table.n_annotators
        )
    taken = first[kept]
    instance, annotator = np.divmod(pair[taken], table.n_annotators)
    return SyntheticAnnotations(instance, annotator, label[taken], weight[taken] / times[taken])


def _annotations_of(neighbours: IntArray, table: AnnotationTable) -> tuple[IntArray, IntArray]:
    """Rows of the annotations of the neighbours (n, k), and the instance each neighbour is of."""
    order, start = table.by_instance()
    flat = neighbours.ravel()
    counts = start[flat + 1] - start[flat]
    ends = np.cumsum(counts)
    position = np.arange(ends[-1]) + np.repeat(start[flat] - ends + counts, counts)
    owner = np.repeat(np.arange(len(flat)) // neighbours.shape[1], counts)
    return position if order is None else order[position], owner


def _tallied(
    pair: IntArray, label: IntArray, weight: FloatArray, n_classes: int
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Sum the weights of equal labels of a pair; also return how many labels were summed."""
    cell, position, times = np.unique(
        pair * n_classes + label, return_inverse=True, return_counts=True
    )
    summed: Any = np.bincount(position, weights=weight)
    return cell // n_classes, cell % n_classes, summed, times.astype(np.float64)


def _below_zero_or_lowest(chance: FloatArray, owner: IntArray) -> AnyArray:
    """Mark values below 0, and the lowest of each (sorted) owner, so that each has at least one."""
    start = np.flatnonzero(np.diff(owner, prepend=-1))
    lowest = np.repeat(np.minimum.reduceat(chance, start), np.diff(np.append(start, len(owner))))
    return np.asarray((chance < 0) | (chance == lowest))


def with_rows(table: AnnotationTable, n: int, given: SyntheticAnnotations) -> AnnotationTable:
    """Append n instances and their annotations."""
    synthetic = np.full(len(given.label), SOURCES.index("synthetic"), dtype=np.int8)
    sources = np.zeros(table.n_annotations, np.int8) if table.sources is None else table.sources
    return AnnotationTable(
        np.concatenate([table.instance, given.instance + table.n_instances]),
        np.concatenate([table.annotator, given.annotator]),
        np.concatenate([table.label, given.label]),
        _with_new_ids(table.instances, n),
        table.annotators,
        table.classes,
        None if table.weights is None else np.concatenate([table.weights, given.weight]),
        np.concatenate([sources, synthetic]),
        table.passes,
    )


def _with_new_ids(ids: AnyArray, n: int) -> AnyArray:
    """Append unused ids: the next numbers, or "synthetic-1", ..."""
    if ids.dtype.kind in "iu":
        first, most = int(ids.max(initial=0)) + 1, int(np.iinfo(ids.dtype).max)
        if first + n - 1 <= most:
            return np.concatenate([ids, np.arange(first, first + n, dtype=ids.dtype)])
        unused = np.setdiff1d(np.arange(len(ids) + n), ids)[:n]
        return np.concatenate([ids, unused.astype(ids.dtype) if unused[-1] <= most else unused])
    used = set(ids.tolist())
    names = (f"synthetic-{i}" for i in range(1, n + len(used) + 1))
    new = [name for name in names if name not in used][:n]
    if ids.dtype.kind in "UT":
        return np.concatenate([ids, np.array(new)])
    together = np.empty(len(ids) + n, dtype=object)
    together[: len(ids)], together[len(ids) :] = ids, new
    return together
