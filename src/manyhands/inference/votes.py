"""Annotations sorted by instance, cut into shards: what every method of inference reads.

`Votes` holds integer-coded columns; `Votes.shards` cuts them into runs of whole instances. A
method is a function ``shard, parameters -> counts`` whose counts add up over shards
(`sum_over_shards`), so that one shard after the other can come from memory, from a file or from
another machine. Nothing is of size instances x annotators, and one shard's posterior at a time is
in memory.

Everything is float64: float32 was off by 1e-3 at ten million annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import add
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from manyhands.annotations import AnnotationTable
from manyhands.typing import FloatArray, IntArray

SHARD = 100_000
"""Annotations a shard: enough to hide Python's overhead, few enough for the processor's cache."""


SparseVotes: TypeAlias = "csr_matrix[np.float64]"


@dataclass(frozen=True, eq=False)
class Votes:
    """Annotations in the order of their instances.

    Attributes
    ----------
    annotator, response : integer arrays of shape (n_annotations,)
        Codes, sorted by instance. A response is a class, or ``n_classes`` where the annotator
        abstained.
    start : integer array of shape (n_instances + 1,)
        Where every instance's annotations begin.
    weight : array of shape (n_annotations,) or None
        Positive; None means all 1.
    gold : integer array of shape (n_instances,) or None
        Known class of every instance, -1 where unknown.
    """

    annotator: IntArray
    response: IntArray
    start: IntArray
    n_annotators: int
    n_classes: int
    n_responses: int
    weight: FloatArray | None = None
    gold: IntArray | None = None
    unit: FloatArray | None = None
    """Ones that the matrices of all shards share."""

    @property
    def n_instances(self) -> int:
        """Number of instances, those without annotations included."""
        return len(self.start) - 1

    @property
    def n_annotations(self) -> int:
        """Number of annotations with a positive weight."""
        return len(self.response)

    @cached_property
    def instance(self) -> IntArray:
        """Code of every annotation's instance, counted from this shard's first."""
        return np.repeat(np.arange(self.n_instances, dtype=np.int32), np.diff(self.start))

    @property
    def total_weight(self) -> float:
        """Sum of the weights."""
        return float(self.n_annotations if self.weight is None else self.weight.sum())

    @property
    def answers(self) -> Votes:
        """The annotations alone, without abstentions."""
        if self.n_responses == self.n_classes:
            return self
        kept = self.response < self.n_classes
        counts = np.bincount(self.instance[kept], minlength=self.n_instances)
        return replace(
            self,
            annotator=self.annotator[kept],
            response=self.response[kept],
            start=np.concatenate([[0], np.cumsum(counts)]),
            n_responses=self.n_classes,
            weight=None if self.weight is None else self.weight[kept],
            unit=None,
        )

    @cached_property
    def voted(self) -> Any:
        """Mark the instances something is known of: an annotation or gold, shape (n,)."""
        voted = np.diff(self.start) > 0
        return voted if self.gold is None else voted | (self.gold >= 0)

    @cached_property
    def matrix(self) -> SparseVotes:
        """One-hot annotations, shape (n, R * K); column = ``annotator * K + response``."""
        column = self.annotator * np.int64(self.n_responses) + self.response
        shape = (self.n_instances, self.n_annotators * self.n_responses)
        index = np.int32 if shape[1] <= np.iinfo(np.int32).max else np.int64
        weight = self.weight
        if weight is None:
            weight = np.ones(self.n_annotations) if self.unit is None else self.unit
        entries: Any = (weight, column.astype(index), self.start.astype(index))
        return csr_matrix(entries, shape=shape)

    def shards(self, size: int | None = None) -> list[Votes]:
        """Cut into runs of whole instances of about ``size`` annotations each, to be kept.

        By default large enough that adding up the counts, of size R * K * C, stays cheap.
        """
        return list(self.runs(size or max(SHARD, 4 * self.n_annotators * self.n_responses)))

    def runs(self, size: int) -> Iterator[Votes]:
        """Cut in the same way, one run after the other, for a single pass."""
        if self.n_annotations <= size:
            yield self
            return
        n_parts = -(-self.n_annotations // size)
        cuts = np.searchsorted(self.start, np.arange(1, n_parts) * size)
        bounds = np.unique([0, *cuts, self.n_instances])
        unit = np.ones(np.diff(self.start[bounds]).max())
        for first, last in pairwise(bounds):
            yield self._run(first, last, unit)

    def _run(self, first: int, last: int, unit: FloatArray) -> Votes:
        """Instances ``first`` to ``last`` (exclusive)."""
        rows = slice(self.start[first], self.start[last])
        return replace(
            self,
            annotator=self.annotator[rows],
            response=self.response[rows],
            start=self.start[first : last + 1] - self.start[first],
            weight=None if self.weight is None else self.weight[rows],
            gold=None if self.gold is None else self.gold[first:last],
            unit=unit[: rows.stop - rows.start],
        )


def make_votes(
    table: AnnotationTable, *, gold: IntArray | None = None, abstentions: bool = False
) -> Votes:
    """Sort a table by instance (a counting sort, skipped where it is sorted already).

    Parameters
    ----------
    table : AnnotationTable
    gold : integer array of shape (n_instances,), optional
        Known class codes, -1 where unknown.
    abstentions : bool
        Take abstentions as one more response (code ``n_classes``).
    """
    instance, annotator, response = table.instance, table.annotator, table.label
    weight = None if table.weights is None else table.weights.astype(np.float64)
    n_responses = table.n_classes
    if abstentions and len(table.abstentions):
        unsure = table.abstentions
        n_responses += 1
        instance = np.concatenate([instance, unsure[:, 0]])
        annotator = np.concatenate([annotator, unsure[:, 1]])
        response = np.concatenate([response, np.full(len(unsure), table.n_classes, response.dtype)])
        weight = None if weight is None else np.concatenate([weight, np.ones(len(unsure))])
    if weight is not None and not weight.all():
        kept = weight > 0
        instance, annotator, response = instance[kept], annotator[kept], response[kept]
        weight = weight[kept]
    if (np.diff(instance) < 0).any():
        order = _counting_sort(instance, table.n_instances)
        annotator, response = annotator[order], response[order]
        weight = None if weight is None else weight[order]
    counts = np.bincount(instance, minlength=table.n_instances)
    start = np.concatenate([[0], np.cumsum(counts)])
    if len(instance) < np.iinfo(np.int32).max:
        start = start.astype(np.int32)
    return Votes(
        annotator,
        response,
        start,
        table.n_annotators,
        table.n_classes,
        n_responses,
        weight,
        gold,
    )


def _counting_sort(codes: IntArray, n: int) -> IntArray:
    """Stable order that sorts ``codes``: a CSC matrix of one entry a column, read by rows."""
    m = len(codes)
    index = np.int32 if m < np.iinfo(np.int32).max else np.int64
    entries: Any = (np.ones(m, np.int8), codes, np.arange(m + 1, dtype=index))
    return csc_matrix(entries, shape=(n, m)).tocsr().indices


class Summable(Protocol):
    """Counts of a shard: they add up."""

    def __add__(self, other: Self, /) -> Self:
        """Counts of both."""


Counts = TypeVar("Counts", bound=Summable)


def sum_over_shards(
    count: Callable[..., Counts], shards: Iterable[Votes], *parameters: Any, **options: Any
) -> Counts:
    """Map ``count(shard, *parameters)`` over the shards and add up."""
    return reduce(add, (count(shard, *parameters, **options) for shard in shards))


def concatenate_rows(each: Iterable[FloatArray]) -> FloatArray:
    """Put the rows of every shard together."""
    return np.concatenate(list(each))


def zip_shards(shards: Iterable[Votes], *arrays: FloatArray | None) -> Iterator[tuple[Any, ...]]:
    """Every shard with its rows of arrays over all instances (None stays None)."""
    first = 0
    for shard in shards:
        rows = slice(first, first + shard.n_instances)
        yield shard, *(None if array is None else array[rows] for array in arrays)
        first = rows.stop


def fill_rows(
    out: FloatArray, shards: Iterable[Votes], rows: Callable[[Votes], FloatArray]
) -> None:
    """Write ``rows(shard)`` for one shard after the other into ``out``, shape (n, ...)."""
    for shard, own in zip_shards(shards, out):
        own[...] = rows(shard)
