"""Annotations sorted by instance and cut into shards: the input of all inference methods.

`Votes` holds integer-coded columns, and `Votes.shards` cuts them into runs of whole instances. A
method is a function ``shard, parameters -> counts`` whose counts are summed over shards
(`sum_over_shards`). Shards can therefore come one by one from memory, from a file or from another
machine (`Shards`). No array has size instances x annotators. With thousands of classes, an array
over instances and classes does not fit in memory either: vote shares are then sparse
(`sparse_shares`), and methods that need a dense array raise an error (`check_size`).

Everything is float64: float32 was off by 1e-3 at ten million annotations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import iadd
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import joblib
import numpy as np
from scipy.sparse import csc_matrix, csr_array, csr_matrix, issparse

from manyhands.annotations import AnnotationTable
from manyhands.annotations.target import is_sharded
from manyhands.decision.labels import best, entries, is_scale_of_grades
from manyhands.exceptions import AnnotationError
from manyhands.inference.checkpoints import FolderCheckpoint
from manyhands.inference.families import abstention_weights, family_codes, family_weights
from manyhands.inference.probability import LargeTables, normalise_rows, pairs_of
from manyhands.typing import AnyArray, FloatArray, IntArray

SHARD = 100_000
"""Number of annotations per shard: enough to hide Python's overhead, few enough for the processor's
cache."""

NARROW = 32
"""Number of annotations of an instance up to which comparing all pairs is faster than sorting."""

HARMLESS_CLASSES = 200
"""Number of classes up to which the size of arrays is not checked."""

DENSE_CLASSES, DENSE_SHARES = 1000, 2**21
"""Numbers of classes and of cells up to which vote shares are a dense array; if both are exceeded,
they are sparse."""

MOST_CELLS = 2**25
"""Number of cells of a posterior, or of all confusion matrices, beyond which `check_size` raises an
error."""

SparseVotes: TypeAlias = "csr_matrix[np.float64]"


class Summable(Protocol):
    """Counts of a shard, which can be added."""

    def __add__(self, other: Self, /) -> Self:
        """Return the sum of both counts."""


Counts = TypeVar("Counts", bound=Summable)
T = TypeVar("T")
S = TypeVar("S")


class Shards(ABC):
    """Base class of iterators over votes of consecutive instances, in memory or elsewhere.

    An iterative method consists of two kinds of calls:

    - ``sum_over_shards(count, shards, *parameters, rows=(...))`` adds up ``count(shard, *rows,
      *parameters)``, where ``rows`` are each shard's rows of arrays over all instances;
    - ``fill_rows(out, shards, rows_of, *parameters)`` writes ``rows_of(shard, *parameters)``, shape
      (n, ...), into the shard's rows of ``out``.

    An item of ``rows`` is an array over all instances, or a function from a shard to its rows. Such
    a function computes, for example, the vote shares from which EM starts, which are not stored for
    annotations outside memory.

    In memory, shards are a list. `manyhands.scale.engines` reads those of a store, and
    `manyhands.scale.shard_jobs` lets workers of a cluster count them.
    """

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Yield the shards, one by one."""

    def with_rows(self, arrays: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield the slice of each shard's instances, the shard, and its rows of ``arrays``."""
        first = 0
        for shard in self:
            place = slice(first, first + shard.n_instances)
            yield place, shard, *(rows_at(array, shard, place) for array in arrays)
            self.release(*arrays)
            first = place.stop

    def release(self, *arrays: Any) -> None:
        """Free the memory of parts of arrays that a shard has used, if they are mapped files."""
        return

    def sum(
        self,
        count: Callable[..., Any],
        *parameters: Any,
        rows: tuple[Any, ...] = (),
        **options: Any,
    ) -> Any:
        """Sum ``count(shard, *rows of the shard, *parameters, **options)`` over the shards.

        Parameters
        ----------
        count : callable
            Function of a shard. Its results can be added with ``+``, possibly in place.
        rows : tuple
            Arrays over all instances, None, or functions from a shard to its rows.
        """
        parts = (part for _, *part in self.with_rows(rows))
        return total(self.each(lambda part: count(*part, *parameters, **options), parts))

    def fill(
        self,
        out: AnyArray,
        rows_of: Callable[..., AnyArray],
        *parameters: Any,
        rows: tuple[Any, ...] = (),
    ) -> None:
        """Write ``rows_of(shard, *rows of the shard, *parameters)`` into each shard's ``out``."""

        def write(part: tuple[Any, ...]) -> None:
            place, *given = part
            out[place] = rows_of(*given, *parameters)
            self.release(out)

        for _ in self.each(write, self.with_rows(rows)):
            pass

    def each(self, function: Callable[[T], S], parts: Iterable[T]) -> Iterator[S]:
        """Yield ``function(part)`` of each part, in order."""
        return map(function, parts)


@dataclass(frozen=True)
class ShardsInMemory(Shards):
    """Shards in memory, such as a list of them.

    As many threads count them as joblib's context asks for (``joblib.parallel_config(n_jobs=...)``;
    1 without). numpy and scipy release the interpreter's lock in their loops. Results are taken in
    the order of the shards, so the bits of a fit do not depend on the number of threads.
    """

    given: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.given)

    def each(self, function: Callable[[T], S], parts: Iterable[T]) -> Iterator[S]:
        """Yield ``function(part)`` of each part, in order; threads are a few parts ahead."""
        n_threads = joblib.effective_n_jobs(None)
        if n_threads == 1:
            yield from map(function, parts)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            waiting: deque[Future[S]] = deque()
            for part in parts:
                waiting.append(pool.submit(function, part))
                if len(waiting) > n_threads + 1:  # Results that nobody has taken need memory.
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


def as_shards(shards: Iterable[Any]) -> Shards:
    """Return an iterable of shards as `Shards`."""
    return shards if isinstance(shards, Shards) else ShardsInMemory(shards)


def total(counts: Iterator[Any]) -> Any:
    """Return the sum of counts, in order.

    They are added in place. If the first has a method ``total()``, the sum is kept in its result,
    which may be on disk.
    """
    first = next(counts)
    return reduce(iadd, counts, first.total() if hasattr(first, "total") else first)


def rows_at(array: Any, shard: Any, place: slice) -> Any:
    """Return the rows of a shard: a slice of an array, or the result of a function of the shard."""
    if array is None:
        return None
    if callable(array):
        return array(shard)
    rows = array[place]
    return rows if issparse(rows) else np.asarray(rows)


@dataclass(frozen=True)
class RowsOf:
    """Rows of all instances that are computed when needed, by a function of a shard."""

    function: Callable[..., FloatArray]
    parameters: tuple[Any, ...]

    def __call__(self, shard: Votes) -> FloatArray:
        """Return the rows of a shard."""
        return self.function(shard, *self.parameters)


ANNOTATIONS_PER_PAIR, LARGEST_GROWN = 16, 1_500_000
"""Number of annotations of a shard per pair of annotator and response, so that adding its counts is
cheap compared with counting, and the size up to which shards grow for that."""


def grown(size: int, n_pairs: int) -> int:
    """Return the annotations per shard: ``size``, or more if the counts (R, K, C) are large."""
    return max(size, min(ANNOTATIONS_PER_PAIR * n_pairs, LARGEST_GROWN), 4 * n_pairs)


class AllVotes(Protocol):
    """Protocol of all annotations of a fit, in memory (`Votes`) or in a store."""

    @property
    def n_instances(self) -> int:
        """Number of instances."""

    @property
    def n_annotations(self) -> int:
        """Number of annotations with a positive weight."""

    @property
    def total_weight(self) -> float:
        """Sum of the weights."""

    @property
    def n_annotators(self) -> int:
        """Number of annotators."""

    @property
    def n_classes(self) -> int:
        """Number of classes."""

    @property
    def n_responses(self) -> int:
        """Number of classes, and one more if abstentions are modelled."""

    @property
    def ordered(self) -> bool:
        """Whether there are three or more ordered classes; the order of two makes no difference."""

    @property
    def gold(self) -> IntArray | None:
        """Known class of each instance, -1 where unknown; None without gold."""

    @property
    def family(self) -> IntArray | None:
        """Family of each annotator, if any are declared."""

    @property
    def history(self) -> FloatArray | None:
        """Counts of earlier annotations, (R, C, C)."""

    @property
    def checkpoint(self) -> FolderCheckpoint | None:
        """Checkpoint for the parameters, if any."""

    @property
    def is_weighted(self) -> bool:
        """Whether annotations have weights."""

    @property
    def answers(self) -> AllVotes:
        """The annotations without abstentions."""

    @property
    def unweighted(self) -> AllVotes:
        """The annotations, each with weight 1."""

    def select(self, instances: IntArray, /) -> Votes:
        """Return the votes of some instances."""

    def shards(self, size: int | None = None) -> Iterable[Any]:
        """Return the shards of whole instances: a list, or `Shards`."""

    def once(self) -> Iterable[Any]:
        """Return the shards for a single pass."""

    @property
    def parts(self) -> Iterable[Any]:
        """All votes at once if they are in memory; else the shards, in this process."""

    def total(
        self, count: Callable[..., Counts], *parameters: Any, rows: tuple[Any, ...] = ()
    ) -> Counts:
        """Return the sum of ``count(shard, *rows, *parameters)``."""

    def new_rows(self, width: int) -> FloatArray:
        """Make an array with a row for each instance."""

    def new_column(self, length: int) -> FloatArray:
        """Make an array of numbers."""

    def rows_of(
        self,
        function: Callable[..., FloatArray],
        *parameters: Any,
        shards: Iterable[Votes] | None = None,
    ) -> Any:
        """Return ``function(shard, *parameters)`` for all instances: an array, or `RowsOf`."""

    def posterior_rows(self, start: Any) -> FloatArray:
        """Return an array for the posterior, (n, C): ``start`` itself if it may be overwritten."""

    def gather(self, width: int, parts: Iterable[FloatArray]) -> FloatArray:
        """Join consecutive parts to an array with a row for each instance, shape (n, width)."""

    def labels(
        self, posterior: FloatArray, classes: AnyArray, ties: str, rng: np.random.RandomState
    ) -> AnyArray:
        """Return the label of each instance, shape (n,); see `manyhands.decision.labels.best`."""


@dataclass(frozen=True, eq=False)
class Votes:
    """Annotations in the order of their instances.

    Attributes
    ----------
    annotator, response : integer arrays of shape (n_annotations,)
        Codes, sorted by instance. A response is a class, or ``n_classes`` for an abstention.
    start : integer array of shape (n_instances + 1,)
        Index of each instance's first annotation.
    weight : array of shape (n_annotations,) or None
        Positive; None means all 1.
    gold : integer array of shape (n_instances,) or None
        Known class of each instance, -1 where unknown.
    """

    annotator: IntArray
    response: IntArray
    start: IntArray
    n_annotators: int
    n_classes: int
    n_responses: int
    weight: FloatArray | None = None
    gold: IntArray | None = None
    family: IntArray | None = None
    """Family of each annotator, shape (R,), if families are declared."""
    history: FloatArray | None = None
    """Counts of the annotators' earlier annotations [annotator, true, given], (R, C, C)."""
    ones: FloatArray | None = None
    """Array of ones, shared by the matrices of all shards."""
    checkpoint: FolderCheckpoint | None = None
    """Checkpoint for the parameters of every iteration, if any."""
    tables: LargeTables | None = None
    """Maker of tables by annotator on disk, if they do not fit in memory."""
    ordered: bool = False
    """Whether there are three or more ordered classes; the order of two makes no difference."""

    @property
    def n_instances(self) -> int:
        """Number of instances, including those without annotations."""
        return len(self.start) - 1

    @property
    def n_annotations(self) -> int:
        """Number of annotations with a positive weight."""
        return len(self.response)

    @cached_property
    def instance(self) -> IntArray:
        """Code of each annotation's instance, relative to the first of this shard."""
        return np.repeat(np.arange(self.n_instances, dtype=np.int32), np.diff(self.start))

    @property
    def total_weight(self) -> float:
        """Sum of the weights."""
        return float(self.n_annotations if self.weight is None else self.weight.sum())

    @property
    def is_weighted(self) -> bool:
        """Whether annotations have weights."""
        return self.weight is not None

    @property
    def unweighted(self) -> Votes:
        """The annotations, each with weight 1."""
        return replace(self, weight=None, ones=None)

    def total(
        self, count: Callable[..., Counts], *parameters: Any, rows: tuple[Any, ...] = ()
    ) -> Counts:
        """Return the sum of ``count(shard, *rows, *parameters)``."""
        return sum_over_shards(count, self.once(), *parameters, rows=rows)

    def new_rows(self, width: int) -> FloatArray:
        """Make an array with a row for each instance, shape (n, width)."""
        return np.empty((self.n_instances, width))

    def new_column(self, length: int) -> FloatArray:
        """Make an array of ``length`` numbers."""
        return np.empty(length)

    def rows_of(
        self,
        function: Callable[..., FloatArray],
        *parameters: Any,
        shards: Iterable[Votes] | None = None,
    ) -> FloatArray:
        """Return the rows ``function(shard, *parameters)`` of all instances, shape (n, C)."""
        out = self.new_rows(self.n_classes)
        fill_rows(out, self.shards() if shards is None else shards, function, *parameters)
        return out

    def posterior_rows(self, start: Any) -> FloatArray:
        """Return an array for the posterior (n, C): ``start`` is overwritten if it is one."""
        return self.new_rows(self.n_classes) if callable(start) else start

    def gather(self, width: int, parts: Iterable[FloatArray]) -> FloatArray:
        """Join consecutive parts to an array with a row for each instance, shape (n, width)."""
        out, first = self.new_rows(width), 0
        for part in parts:
            out[first : first + len(part)] = part
            first += len(part)
        return out

    def labels(
        self, posterior: FloatArray, classes: AnyArray, ties: str, rng: np.random.RandomState
    ) -> AnyArray:
        """Return the label of each instance, shape (n,); see `manyhands.decision.labels.best`."""
        return classes[best(posterior, ties, rng, ordered=self.ordered)]

    @property
    def answers(self) -> Votes:
        """The annotations without abstentions."""
        if self.n_responses == self.n_classes:
            return self
        return replace(self.keep(self.response < self.n_classes), n_responses=self.n_classes)

    def keep(self, kept: AnyArray) -> Votes:
        """Return the annotations in a mask; all instances and annotators are kept."""
        counts = np.bincount(self.instance[kept], minlength=self.n_instances)
        return replace(
            self,
            annotator=self.annotator[kept],
            response=self.response[kept],
            start=np.concatenate([[0], np.cumsum(counts)]),
            weight=None if self.weight is None else self.weight[kept],
            ones=None,
        )

    @cached_property
    def uneven(self) -> IntArray:
        """Codes of the instances with several annotations by one annotator, or with weights."""
        uneven = self._repeated
        if self.weight is not None:
            uneven = np.concatenate([uneven, self.instance[self.weight != 1.0]])
        return np.unique(uneven)

    @property
    def _repeated(self) -> IntArray:
        """Instance of each annotation that is not the first by its annotator."""
        widest = int(np.diff(self.start).max(initial=0))
        if widest <= NARROW:
            found = [self.instance[:0]]
            for k in range(1, widest):  # Largest distance between annotations of an instance.
                same = self.annotator[k:] == self.annotator[:-k]
                same &= self.instance[k:] == self.instance[:-k]
                found.append(self.instance[k:][same])
            return np.concatenate(found)
        pairs = self.instance * np.int64(self.n_annotators) + self.annotator
        if (np.diff(pairs) < 0).any():
            pairs.sort()
        return np.asarray(pairs[1:][np.diff(pairs) == 0] // self.n_annotators)

    @cached_property
    def voted(self) -> Any:
        """Mask of the instances with an annotation or gold, shape (n,)."""
        voted = np.diff(self.start) > 0
        return voted if self.gold is None else voted | (self.gold >= 0)

    @cached_property
    def matrix(self) -> SparseVotes:
        """Weighted one-hot annotations, (n, R * K), in column ``annotator * K + response``."""
        column = self.annotator * np.int64(self.n_responses) + self.response
        shape = (self.n_instances, self.n_annotators * self.n_responses)
        index = np.int32 if shape[1] <= np.iinfo(np.int32).max else np.int64
        weight = self.weight
        if weight is None:
            weight = np.ones(self.n_annotations) if self.ones is None else self.ones
        entries: Any = (weight, column.astype(index), self.start.astype(index))
        return csr_matrix(entries, shape=shape)

    @cached_property
    def pairs(self) -> tuple[SparseVotes, IntArray]:
        """The non-empty columns of `matrix`, (n, u), and their column numbers (u,)."""
        return pairs_of(self.matrix)

    def select(self, instances: IntArray) -> Votes:
        """Return the votes of some instances, in the given order."""
        given = np.diff(self.start)[instances]
        start = np.concatenate([[0], np.cumsum(given)])
        rows = np.repeat(self.start[instances] - start[:-1], given) + np.arange(start[-1])
        return replace(
            self,
            annotator=self.annotator[rows],
            response=self.response[rows],
            start=start,
            weight=None if self.weight is None else self.weight[rows],
            gold=None if self.gold is None else self.gold[instances],
            ones=None,
        )

    def shards(self, size: int | None = None) -> list[Votes]:
        """Return a list of runs of about ``size`` annotations each (default: `grown`)."""
        return list(self.runs(size or grown(SHARD, self.n_annotators * self.n_responses)))

    def once(self) -> Iterator[Votes]:
        """Return the runs for a single pass."""
        return self.runs(SHARD)

    @property
    def parts(self) -> list[Votes]:
        """The votes as one part."""
        return [self]

    def runs(self, size: int) -> Iterator[Votes]:
        """Yield the runs that `shards` would return, for a single pass."""
        if self.n_annotations <= size:
            yield self
            return
        n_parts = -(-self.n_annotations // size)
        cuts = np.searchsorted(self.start, np.arange(1, n_parts) * size)
        bounds = np.unique([0, *cuts, self.n_instances])
        ones = np.ones(np.diff(self.start[bounds]).max())
        for first, last in pairwise(bounds):
            yield self._run(first, last, ones)

    def _run(self, first: int, last: int, ones: FloatArray) -> Votes:
        """Return the votes of instances ``first`` to ``last`` (exclusive)."""
        rows = slice(self.start[first], self.start[last])
        return replace(
            self,
            annotator=self.annotator[rows],
            response=self.response[rows],
            start=self.start[first : last + 1] - self.start[first],
            weight=None if self.weight is None else self.weight[rows],
            gold=None if self.gold is None else self.gold[first:last],
            ones=ones[: rows.stop - rows.start],
        )


def make_votes(
    table: AnnotationTable, *, gold: IntArray | None = None, abstentions: bool = False
) -> Votes:
    """Sort a table by instance (with a counting sort, unless it is already sorted).

    Weights are those of the table times those of its families (`family_weights`). ``gold`` (n,)
    holds known class codes, -1 where unknown. With ``abstentions`` these are one more response
    (code ``n_classes``).
    """
    instance, annotator, response = table.instance, table.annotator, table.label
    weight = None if table.weights is None else table.weights.astype(np.float64)
    family = None
    if table.groups is not None:
        weight = table.weight * family_weights(table)
        family = family_codes(table.groups) if table.group_rho else None
    n_responses = table.n_classes
    if abstentions and len(table.abstentions):
        pairs = table.abstentions
        n_responses += 1
        instance = np.concatenate([instance, pairs[:, 0]])
        annotator = np.concatenate([annotator, pairs[:, 1]])
        response = np.concatenate([response, np.full(len(pairs), table.n_classes, response.dtype)])
        weight = None if weight is None else np.concatenate([weight, abstention_weights(table)])
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
        family,
        ordered=is_scale_of_grades(table),
    )


def votes_of(table: Any, gold: IntArray | None = None, *, abstentions: bool = False) -> AllVotes:
    """Return the votes of a table in memory, or of a store."""
    if is_sharded(table):
        votes: AllVotes = table.votes(gold, abstentions=abstentions)
        return votes
    return make_votes(table, gold=gold, abstentions=abstentions)


def _counting_sort(codes: IntArray, n: int) -> IntArray:
    """Return the stable order that sorts ``codes``, by reading a sparse matrix row by row."""
    m = len(codes)
    index = np.int32 if m < np.iinfo(np.int32).max else np.int64
    entries: Any = (np.ones(m, np.int8), codes, np.arange(m + 1, dtype=index))
    return csc_matrix(entries, shape=(n, m)).tocsr().indices


def sum_over_shards(
    count: Callable[..., Counts],
    shards: Iterable[Votes],
    *parameters: Any,
    rows: tuple[Any, ...] = (),
    **options: Any,
) -> Counts:
    """Sum ``count(shard, *rows of the shard, *parameters)`` over the shards.

    ``rows`` are arrays over all instances (or functions of a shard). Counts are added in place.
    """
    found: Counts = as_shards(shards).sum(count, *parameters, rows=rows, **options)
    return found


def concatenate_rows(parts: Iterable[FloatArray]) -> FloatArray:
    """Concatenate the rows of all shards."""
    return np.concatenate(list(parts))


def zip_shards(shards: Iterable[Votes], *arrays: FloatArray | None) -> Iterator[tuple[Any, ...]]:
    """Yield each shard with its rows of arrays over all instances (None stays None)."""
    for _, *parts in as_shards(shards).with_rows(arrays):
        yield tuple(parts)


def fill_rows(
    out: FloatArray,
    shards: Iterable[Votes],
    rows_of: Callable[..., FloatArray],
    *parameters: Any,
    rows: tuple[Any, ...] = (),
) -> None:
    """Write ``rows_of(shard, *rows of the shard, *parameters)`` of each shard into ``out``."""
    as_shards(shards).fill(out, rows_of, *parameters, rows=rows)


def weighted_votes(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value``, times the weights, over each instance's annotations by class, shape (n, C).

    Parameters
    ----------
    votes : Votes
        Votes without abstentions.
    value : array of shape (n_annotations,), optional
        Default: 1 for all.
    """
    flat = votes.instance * np.int64(votes.n_classes) + votes.response
    size = votes.n_instances * votes.n_classes
    sums = np.bincount(flat, weights=_times(votes.weight, value), minlength=size)
    return sums.reshape(votes.n_instances, votes.n_classes).astype(np.float64, copy=False)


def by_annotator(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value``, times the weights, over each annotator's annotations, shape (R,)."""
    weights = _times(votes.weight, value)
    sums = np.bincount(votes.annotator, weights=weights, minlength=votes.n_annotators)
    return sums.astype(np.float64, copy=False)


def by_annotator_and_class(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value``, times the weights, by annotator and class given, shape (R, C)."""
    shape = (votes.n_annotators, votes.n_classes)
    cells = votes.annotator * np.int64(shape[1]) + votes.response
    sums = np.bincount(cells, weights=_times(votes.weight, value), minlength=shape[0] * shape[1])
    return sums.reshape(shape).astype(np.float64, copy=False)


def by_instance(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value``, times the weights, over each instance's annotations, shape (n,)."""
    values = _times(votes.weight, value)
    given = np.diff(votes.start)
    if values is None:
        return given.astype(np.float64)
    sums = np.zeros(votes.n_instances)
    annotated = given > 0
    if annotated.any():  # Annotations are sorted by instance, so each sum is over a run.
        sums[annotated] = np.add.reduceat(values, votes.start[:-1][annotated])
    return sums


def weight_of_pairs(votes: Votes, *, same_class: bool = False) -> FloatArray:
    """Return the total weight of each annotation's (instance, annotator) pair, (n_annotations,).

    The weights of an annotator's repeated annotations of an instance are summed. With
    ``same_class``, only those of the same class are summed.
    """
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    pairs = votes.instance * np.int64(votes.n_annotators) + votes.annotator
    if same_class:
        pairs = pairs * votes.n_responses + votes.response
    distinct, pair = np.unique(pairs, return_inverse=True)
    if len(distinct) == len(pairs):
        return weight
    return np.bincount(pair, weight)[pair].astype(np.float64, copy=False)


def _times(weight: FloatArray | None, value: FloatArray | None) -> FloatArray | None:
    if weight is None or value is None:
        return weight if value is None else value
    return weight * value


def probability_correct(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Return the probability that each annotation is correct, shape (n_annotations,)."""
    if issparse(posterior):
        return entries(posterior, votes.instance, votes.response)
    flat = votes.instance * np.int64(votes.n_classes) + votes.response
    return posterior.ravel()[flat]


def vote_shares(votes: Votes, *, empty: FloatArray | None = None) -> FloatArray:
    """Return the share of the votes each class received, shape (n, C); gold counts as certain.

    An instance without votes gets ``empty``, by default the mean of all shares.
    """
    shares = np.empty((votes.n_instances, votes.n_classes))
    fill_rows(shares, votes.runs(SHARD), _shares)
    clamp_to_gold(votes, shares)
    if not votes.voted.all():
        if empty is None:
            empty = normalise_rows(shares[votes.voted].sum(axis=0))
        shares[~votes.voted] = empty
    return shares


def shares_of(shard: Votes, empty: FloatArray) -> FloatArray:
    """Return the vote shares of a shard's answers, shape (n, C); ``empty`` where there are none."""
    return vote_shares(shard.answers, empty=empty)


def starting_shares(votes: AllVotes) -> RowsOf:
    """Return a function from a shard to the vote shares from which EM starts, (n, C).

    Instances without votes get the mean of all shares.
    """
    return RowsOf(shares_of, (normalise_rows(votes.answers.total(summed_shares)),))


def is_vote_shares(start: Any, shards: Iterable[Votes]) -> bool:
    """Return whether EM starts from the vote shares of all instances that have votes or gold.

    An array is compared shard by shard, because a second one would need as much memory.
    """
    if callable(start):
        return isinstance(start, RowsOf) and start.function is shares_of
    return all(
        np.array_equal(rows[shard.voted], vote_shares(shard)[shard.voted])
        for shard, rows in zip_shards(shards, start)
    )


def summed_shares(shard: Votes) -> FloatArray:
    """Return the sum of the vote shares of the instances that have votes, shape (C,)."""
    return np.asarray(vote_shares(shard, empty=np.zeros(shard.n_classes)).sum(axis=0))


def _shares(shard: Votes) -> FloatArray:
    """Return the vote shares; all 0 without votes."""
    shares = weighted_votes(shard)
    mass = (shares @ np.ones(shard.n_classes))[:, None]
    return np.divide(shares, mass, out=shares, where=mass > 0)


def is_vast(n_instances: int, n_classes: int) -> bool:
    """Return whether vote shares are kept as a sparse array."""
    return n_classes > DENSE_CLASSES and n_instances * n_classes > DENSE_SHARES


def as_dense(posterior: Any) -> FloatArray:
    """Return a posterior as a dense array."""
    dense: FloatArray = posterior.toarray() if hasattr(posterior, "toarray") else posterior
    return dense


def check_size(table: Any, method: str, *, confusions: bool, alternative: str) -> None:
    """Raise an error if a method needs a dense array over too many classes.

    Parameters
    ----------
    table : AnnotationTable
    method : str
        Name of the method for the message.
    confusions : bool
        Whether the method has a confusion matrix for each annotator.
    alternative : str
        A sentence that says what to use instead.

    Raises
    ------
    AnnotationError
        If the arrays do not fit in memory.
    """
    n, r, c = table.n_instances, table.n_annotators, table.n_classes
    if c <= HARMLESS_CLASSES:
        return
    sizes = {"a probability of each class for each instance": n * c}
    if confusions:
        sizes[f"a matrix of {c:,} x {c:,} classes for each annotator"] = r * c * c
    what, cells = max(sizes.items(), key=lambda pair: pair[1])
    if cells > MOST_CELLS:
        raise AnnotationError(
            f"{method} keeps {what}, which would take {cells * 8 / 2**30:,.1f} GiB and more for "
            f"{c:,} classes, {n:,} instances and {r:,} annotators. {alternative}"
        )


def sparse_shares(votes: Votes, empty: FloatArray | None = None) -> Any:
    """Return the vote shares as a CSR array (n, C); gold counts as certain.

    An instance without votes gets ``empty``, by default the mean of all shares.

    Raises
    ------
    AnnotationError
        If so many instances have no votes that their shares do not fit in memory.
    """
    n, c = votes.n_instances, votes.n_classes
    instance, label = votes.instance.astype(np.int64), votes.response.astype(np.int64)
    weight = np.ones(len(label)) if votes.weight is None else votes.weight
    if votes.gold is not None:
        kept = votes.gold[instance] < 0
        known = np.flatnonzero(votes.gold >= 0)
        instance = np.concatenate([instance[kept], known])
        label = np.concatenate([label[kept], votes.gold[known]])
        weight = np.concatenate([weight[kept], np.ones(len(known))])
    total = np.bincount(instance, weight, minlength=n)
    shares = csr_array((weight / total[instance], (instance, label)), shape=(n, c))
    shares.sum_duplicates()
    bare = np.flatnonzero(~votes.voted)
    if not len(bare):
        return shares
    if empty is None:
        empty = np.asarray(np.ones(n) @ shares) / max(n - len(bare), 1)
    others = np.flatnonzero(empty)
    if len(bare) * len(others) > MOST_CELLS:
        raise AnnotationError(
            f"{len(bare):,} instances have no annotations, and their shares of {len(others):,} "
            "classes do not fit in memory; leave these instances out"
        )
    row = np.repeat(bare, len(others))
    more = (np.tile(empty[others], len(bare)), (row, np.tile(others, len(bare))))
    filled = shares + csr_array(more, shape=(n, c))
    filled.sort_indices()
    return filled


def uniform_prior(votes: AllVotes) -> FloatArray:
    """Return equal shares of all classes with votes or gold, and 0 for the others, shape (C,)."""
    seen = votes.total(_responses)[: votes.n_classes] > 0
    if votes.gold is not None:
        seen[votes.gold[votes.gold >= 0]] = True
    return normalise_rows(seen.astype(np.float64))


def _responses(votes: Votes) -> FloatArray:
    return np.bincount(votes.response, minlength=votes.n_responses).astype(np.float64)


def clamp_to_gold(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Put all mass on the gold class where it is known, in place."""
    if votes.gold is not None:
        known = np.flatnonzero(votes.gold >= 0)
        posterior[known] = 0.0
        posterior[known, votes.gold[known]] = 1.0
    return posterior


def expected_accuracy(votes: AllVotes, posterior: FloatArray) -> FloatArray:
    """Return the expected share of each annotator's annotations that are correct, shape (R,).

    An annotator without annotations gets the share over all annotations.
    """
    hits, weight = sum_over_shards(_hits, votes.once(), rows=(posterior,))
    overall = float(hits.sum() / max(weight.sum(), np.finfo(float).tiny))
    return np.divide(hits, weight, out=np.full(votes.n_annotators, overall), where=weight > 0)


def _hits(shard: Votes, posterior: FloatArray) -> FloatArray:
    """Return each annotator's expected number of correct annotations, and of all, (2, R)."""
    return np.stack(
        [by_annotator(shard, probability_correct(shard, posterior)), by_annotator(shard)]
    )
