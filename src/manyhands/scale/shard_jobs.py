"""Jobs on shards: computations that the client of a cluster sends to its workers.

A worker gets the numbers of some shards, the parameters, and the folder of the store. It reads the
shards from there and returns the sum of their counts. The clusters are in
`manyhands.scale.clusters`.

Counts may be larger than the shards that they summarise: those of confusion matrices have
annotators x classes^2 entries. A worker therefore adds up many shards, one after another, before it
sends anything (`ClusterEngine._groups`).
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import pairwise
from operator import add, iadd
from pathlib import Path
from typing import Any

import numpy as np

from manyhands._version import __version__
from manyhands.exceptions import AnnotationError
from manyhands.inference.votes import Votes, rows_at, total
from manyhands.io.mapped import release
from manyhands.scale.annotator_blocks import n_pieces
from manyhands.scale.engines import Engine
from manyhands.typing import AnyArray, IntArray

FAN = 8
"""Number of counts that are added at once: the sum over n tasks is a tree of log_8 n levels."""

MOST_TASKS, ANNOTATIONS_PER_PARAMETER = 4, 4
"""Largest number of tasks per thread and sum, and least number of annotations per parameter in a
task: sending and adding a number takes as long as counting a few annotations."""


# -- on the workers -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """Plain values from which a worker can read shards."""

    kind: type[Any]
    """Class of the store."""
    folder: Path | str
    scratch: Path
    digest: str
    abstentions: bool
    weights: bool
    in_blocks: bool
    size: int

    def open(self) -> Any:
        """Return the votes of the store; each process opens it only once."""
        return _opened(self)


@lru_cache(maxsize=8)
def _opened(reader: Reader) -> Any:
    try:
        store = reader.kind.open(reader.folder, scratch=reader.scratch)
    except FileNotFoundError as error:
        raise AnnotationError(
            f"a worker finds no store at {reader.folder}; every worker must see it under this path"
        ) from error
    if store.digest != reader.digest:
        raise AnnotationError(
            f"a worker finds another store at {reader.folder} than the client; every worker must "
            "see the same one"
        )
    return replace(
        store.votes(abstentions=reader.abstentions),
        weights=reader.weights,
        in_blocks=reader.in_blocks,
    )


@dataclass(frozen=True)
class Part:
    """The number of a shard, with the known classes and rows of its instances.

    Attributes
    ----------
    number : int
    gold : tuple of two arrays, or None
        Instances whose class is known, counted from the shard's first, and their classes.
    rows : tuple
        The shard's rows of arrays over all instances; None if the job computes them by a function.
    """

    number: int
    gold: tuple[IntArray, IntArray] | None
    rows: tuple[Any, ...]


@dataclass(frozen=True)
class Job:
    """A function of a shard and its arguments, sent to each worker once per call."""

    reader: Reader
    function: Callable[..., Any]
    parameters: tuple[Any, ...] = ()
    rows: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    n_pieces: int = 1
    """Number of blocks of annotators whose counts are added up separately (`annotator_blocks`)."""

    def sum(self, parts: Sequence[Part]) -> Any:
        """Sum the function over the runs of some shards; the result is a list if it has pieces."""
        counts = reduce(iadd, self._each(parts))
        if self.n_pieces == 1:
            return counts
        return counts.pieces(self.n_pieces) if hasattr(counts, "pieces") else [counts]

    def fill(self, parts: Sequence[Part]) -> AnyArray:
        """Return the rows that the function computes for the instances of some shards."""
        return np.concatenate(list(self._each(parts)))

    def _each(self, parts: Sequence[Part]) -> Iterator[Any]:
        parameters = tuple(as_laid_out(given) for given in self.parameters)
        for part in parts:
            yield from self._runs(part, parameters)

    def _runs(self, part: Part, parameters: tuple[Any, ...]) -> Iterator[Any]:
        votes, first = self.reader.open(), 0
        for shard in votes.load(part.number, self.reader.size, gold=self._gold(votes, part)):
            place = slice(first, first := first + shard.n_instances)
            own = (
                rows_at(given if given is not None else rows, shard, place)
                for given, rows in zip(self.rows, part.rows, strict=True)
            )
            yield self.function(shard, *own, *parameters, **self.options)

    @staticmethod
    def _gold(votes: Any, part: Part) -> IntArray | None:
        if part.gold is None:
            return None
        first, last = votes.store.firsts[part.number : part.number + 2]
        gold = np.full(last - first, -1, dtype=np.int32)
        gold[part.gold[0]] = part.gold[1]
        return gold


@dataclass(frozen=True)
class LaidOut:
    """An array with another memory order of its axes, which plain pickling would not keep."""

    values: AnyArray
    axes: tuple[int, ...]

    @staticmethod
    def of(given: Any) -> Any:
        """Wrap an array if it is not in C order; return anything else unchanged."""
        if not isinstance(given, np.ndarray) or given.flags.c_contiguous:
            return given
        order = np.argsort([-stride for stride in given.strides], kind="stable")
        return LaidOut(given.transpose(order), tuple(np.argsort(order).tolist()))


def as_laid_out(given: Any) -> Any:
    """Undo `LaidOut.of`."""
    return given.values.transpose(given.axes) if isinstance(given, LaidOut) else given


def check_version(version: str) -> None:
    """Raise an error if the client has another version of manyhands.

    Raises
    ------
    AnnotationError
        If the versions differ; the message names both.
    """
    if version != __version__:
        raise AnnotationError(
            f"a worker has manyhands {__version__} and the client {version}; install the same "
            "version everywhere, and restart the workers"
        )


def receive(version: str, content: bytes) -> Job:
    """Unpickle a job, on a worker."""
    check_version(version)
    job: Job = pickle.loads(content)
    return job


def run(version: str, job: Job, task: str, parts: Sequence[Part]) -> Any:
    """Run a job on some shards, on a worker."""
    check_version(version)
    return getattr(job, task)(parts)


def added(*counts: Any) -> Any:
    """Return the sum of counts, added in order, without changing them; None if there are none."""
    if len(counts) == 1 or counts[0] is None:
        return counts[0]
    return reduce(iadd, counts[2:], add(*counts[:2]))


def piece(counts: list[Any], number: int) -> Any:
    """Return one piece of a task's counts; None if there are fewer pieces."""
    return counts[number] if number < len(counts) else None


# -- on the client --------------------------------------------------------------------------------


class Cluster(ABC):
    """Base class of clusters, which run jobs on shards.

    Attributes
    ----------
    threads : int
        Number of tasks that the workers run at the same time, as known when a fit begins.
    """

    threads: int

    takes_pieces = False
    """Whether `sums` adds up the pieces separately if ``job.n_pieces > 1``."""

    def shards(self, votes: Any, size: int) -> ClusterEngine:
        """Return the shards of a store, to be counted by the workers."""
        return ClusterEngine(self, votes, size)

    @abstractmethod
    def sums(self, job: Job, batches: Iterable[Sequence[Sequence[Part]]]) -> Iterator[Any]:
        """Yield the sum of the job over each batch, in order; each group of shards is a task.

        Sums of pieces are in the order of the pieces; empty pieces are left out.
        """

    @abstractmethod
    def rows(self, job: Job, parts: Iterable[Part]) -> Iterator[AnyArray]:
        """Yield the rows that the job computes for each shard, in order."""


class ClusterEngine(Engine):
    """Shards that the workers of a cluster read and count.

    Parameters
    ----------
    cluster : Cluster
    votes : StoredVotes
        The votes of the store; see `manyhands.scale.sharded`.
    size : int
        Approximate number of annotations that a worker counts at once.
    """

    def __init__(self, cluster: Cluster, votes: Any, size: int) -> None:
        self.cluster, self.votes, self.size = cluster, votes, size
        store: Any = votes.store
        self.reader = Reader(
            type(store),
            store.url or Path(store.folder).absolute(),
            Path(store.scratch).absolute(),
            store.digest,
            votes.abstentions,
            votes.weights,
            votes.tables is not None,
            size,
        )

    def __iter__(self) -> Iterator[Votes]:
        for number in range(self.votes.store.n_shards):
            yield from self.votes.load(number, self.size)

    def _parts(self, rows: tuple[Any, ...]) -> Iterator[Part]:
        firsts, gold = self.votes.store.firsts, self.votes.gold
        for number in range(self.votes.store.n_shards):
            place = slice(int(firsts[number]), int(firsts[number + 1]))
            own = tuple(
                None if given is None or callable(given) else np.asarray(given[place])
                for given in rows
            )
            yield Part(number, None if gold is None else _known(gold[place]), own)

    def _job(
        self,
        function: Callable[..., Any],
        parameters: tuple[Any, ...],
        rows: tuple[Any, ...],
        options: dict[str, Any],
        n_pieces: int = 1,
    ) -> Job:
        shared = tuple(given if callable(given) else None for given in rows)
        given = tuple(map(LaidOut.of, parameters))
        return Job(self.reader, function, given, shared, options, n_pieces)

    def _groups(self, parts: list[Part], parameters: tuple[Any, ...]) -> list[list[Part]]:
        """Group consecutive shards into tasks: as few tasks as keep all threads busy."""
        sent = sum(np.size(given) for given in parameters if isinstance(given, np.ndarray))
        threads = self.cluster.threads
        tasks = self.votes.store.n_annotations // max(threads * ANNOTATIONS_PER_PARAMETER * sent, 1)
        n = min(threads * int(np.clip(tasks, 1, MOST_TASKS)), len(parts))
        bounds = np.linspace(0, len(parts), n + 1).astype(int)
        return [parts[first:last] for first, last in pairwise(bounds)]

    def sum(
        self,
        count: Callable[..., Any],
        *parameters: Any,
        rows: tuple[Any, ...] = (),
        **options: Any,
    ) -> Any:
        """See `Engine.sum`."""
        has_rows = any(given is not None and not callable(given) for given in rows)
        in_blocks, parts = self.reader.in_blocks, self._parts(rows)
        batches: Iterable[Sequence[Sequence[Part]]]
        if has_rows or in_blocks:
            # Rows of arrays are sent a few shards at a time: all of them may not fit in memory.
            # Nor may the counts of many annotators, until they are added up.
            size = FAN if has_rows else FAN**2
            batches = ([[part] for part in batch] for batch in in_batches(parts, size))
        else:
            batches = [self._groups(list(parts), parameters)]
        n_blocks = 1
        if in_blocks and self.cluster.takes_pieces:
            n_blocks = n_pieces(self.votes.n_annotators, self.votes.n_responses)
        job = self._job(count, parameters, rows, options, n_blocks)
        return total(self.cluster.sums(job, batches))

    def fill(
        self,
        out: AnyArray,
        rows_of: Callable[..., AnyArray],
        *parameters: Any,
        rows: tuple[Any, ...] = (),
    ) -> None:
        """See `Engine.fill`."""
        job = self._job(rows_of, parameters, rows, {})
        first = 0
        for part in self.cluster.rows(job, self._parts(rows)):
            out[first : first + len(part)] = part
            release(out)
            first += len(part)


def _known(gold: IntArray) -> tuple[IntArray, IntArray] | None:
    places = np.flatnonzero(gold >= 0)
    return (places, gold[places]) if len(places) else None


def in_batches(parts: Iterable[Part], size: int) -> Iterator[list[Part]]:
    """Yield lists of ``size`` consecutive parts; the last one may be shorter."""
    batch: list[Part] = []
    for part in parts:
        batch.append(part)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
