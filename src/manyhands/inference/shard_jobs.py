"""Jobs on shards: what the client of a cluster sends, and what its workers do with it.

A worker gets the number of a shard, the parameters, and the folder of the store, from which it
reads the shard; it returns counts. `manyhands.inference.clusters` has the clusters.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from manyhands._version import __version__
from manyhands.exceptions import AnnotationError
from manyhands.inference.engines import Engine, rows_at
from manyhands.inference.stored_votes import StoredVotes
from manyhands.inference.votes import Votes
from manyhands.io.store import AnnotationStore
from manyhands.typing import AnyArray, IntArray

FAN = 8
"""Counts that are added at once: the sum over n shards is a tree of about log_8 n levels."""


# -- what a worker does ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """All that a worker needs to read shards: plain values."""

    folder: Path
    scratch: Path
    digest: str
    abstentions: bool
    weights: bool
    size: int

    def open(self) -> StoredVotes:
        """Votes of the store, which each process opens once."""
        return _opened(self)


@lru_cache(maxsize=8)
def _opened(reader: Reader) -> StoredVotes:
    try:
        store = AnnotationStore.open(reader.folder, scratch=reader.scratch)
    except FileNotFoundError as error:
        raise AnnotationError(
            f"a worker finds no store at {reader.folder}; every worker must see it under this path"
        ) from error
    if store.digest != reader.digest:
        raise AnnotationError(
            f"a worker finds another store at {reader.folder} than the client; every worker must "
            "see the same one"
        )
    return StoredVotes(store, abstentions=reader.abstentions, weights=reader.weights)


@dataclass(frozen=True)
class Part:
    """A shard's number, and what belongs to its instances alone.

    Attributes
    ----------
    number : int
    gold : tuple of two arrays, or None
        Instances whose class is known, counted from the shard's first, and their classes.
    rows : tuple
        Rows of arrays over all instances; None where the job has a function, or there is nothing.
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

    def sum(self, part: Part) -> Any:
        """Sum of the function over the runs of a shard."""
        return reduce(add, self._each(part))

    def fill(self, part: Part) -> AnyArray:
        """Rows that the function gives for the instances of a shard."""
        return np.concatenate(list(self._each(part)))

    def _each(self, part: Part) -> Iterator[Any]:
        votes, first = self.reader.open(), 0
        for shard in votes.load(part.number, self.reader.size, gold=self._gold(votes, part)):
            place = slice(first, first := first + shard.n_instances)
            own = (
                rows_at(given if given is not None else rows, shard, place)
                for given, rows in zip(self.rows, part.rows, strict=True)
            )
            yield self.function(shard, *own, *self.parameters, **self.options)

    @staticmethod
    def _gold(votes: StoredVotes, part: Part) -> IntArray | None:
        if part.gold is None:
            return None
        first, last = votes.store.firsts[part.number : part.number + 2]
        gold = np.full(last - first, -1, dtype=np.int32)
        gold[part.gold[0]] = part.gold[1]
        return gold


def check_version(version: str) -> None:
    """Refuse to work for a client with another version of manyhands.

    Raises
    ------
    AnnotationError
        Naming both versions.
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


def run(version: str, job: Job, task: str, part: Part) -> Any:
    """Run a job on a shard, on a worker."""
    check_version(version)
    return getattr(job, task)(part)


def added(*counts: Any) -> Any:
    """Sum of counts, in order."""
    return reduce(add, counts)


# -- what the client does -------------------------------------------------------------------------


class Cluster(ABC):
    """What runs jobs on shards."""

    def shards(self, votes: StoredVotes, size: int) -> ClusterEngine:
        """Return the shards of a store, to be counted by the workers."""
        return ClusterEngine(self, votes, size)

    @abstractmethod
    def sums(self, job: Job, batches: Iterable[Sequence[Part]]) -> Iterator[Any]:
        """Yield the sum of the job over the shards of each batch, in order."""

    @abstractmethod
    def rows(self, job: Job, parts: Iterable[Part]) -> Iterator[AnyArray]:
        """Yield the rows that the job gives for each shard, in order."""


class ClusterEngine(Engine):
    """Shards that the workers of a cluster read and count.

    Parameters
    ----------
    cluster : Cluster
    votes : StoredVotes
    size : int
        Annotations that a worker counts at once, about.
    """

    def __init__(self, cluster: Cluster, votes: StoredVotes, size: int) -> None:
        self.cluster, self.votes, self.size = cluster, votes, size
        store: Any = votes.store
        self.reader = Reader(
            Path(store.folder).absolute(),
            Path(store.scratch).absolute(),
            store.digest,
            votes.abstentions,
            votes.weights,
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
    ) -> Job:
        shared = tuple(given if callable(given) else None for given in rows)
        return Job(self.reader, function, parameters, shared, options)

    def sum(
        self,
        count: Callable[..., Any],
        *parameters: Any,
        rows: tuple[Any, ...] = (),
        **options: Any,
    ) -> Any:
        """See `Engine.sum`."""
        parts: Iterable[Part] = self._parts(rows)
        job = self._job(count, parameters, rows, options)
        # Rows of arrays are sent a few shards at a time, since all of them may not fit in memory.
        has_rows = any(given is not None and not callable(given) for given in rows)
        batches = in_batches(parts, FAN) if has_rows else iter([list(parts)])
        return reduce(add, self.cluster.sums(job, batches))

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
