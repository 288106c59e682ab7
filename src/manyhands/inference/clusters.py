"""Clusters: the shards of a store are counted by workers of dask.distributed or of Spark.

``fit(store, engine=client)`` sends each worker the number of a shard and the parameters. The worker
reads the shard from the folder of the store, which all workers must see under the same path, and
returns counts. Sums are taken on the workers in a fixed tree over the numbers of the shards, so
that a fit gives the same bits however fast its workers are, and whichever of them are lost.

A lost worker costs the shards it was counting: both engines count them again elsewhere. A lost
client costs one iteration if the fit has a ``checkpoint``.
"""

from __future__ import annotations

import pickle
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import add
from pathlib import Path
from typing import Any
from uuid import uuid4

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


def cluster_of(engine: Any) -> Cluster:
    """Cluster behind ``engine=`` of a fit.

    Parameters
    ----------
    engine : dask.distributed.Client, SparkSession or Cluster

    Raises
    ------
    AnnotationError
        If it is something else, or a worker has another version of manyhands.
    """
    if isinstance(engine, Cluster):
        return engine
    kinds = {(kind.__module__.split(".")[0], kind.__name__) for kind in type(engine).__mro__}
    if ("distributed", "Client") in kinds:
        return DaskCluster(engine)
    if ("pyspark", "SparkSession") in kinds:
        return SparkCluster(engine)
    raise AnnotationError(
        f"engine={engine!r} cannot count shards; give a dask.distributed.Client or a SparkSession, "
        "or leave it out to count them here"
    )


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
        batches = _batches(parts, FAN) if has_rows else iter([list(parts)])
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


def _batches(parts: Iterable[Part], size: int) -> Iterator[list[Part]]:
    batch: list[Part] = []
    for part in parts:
        batch.append(part)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


# -- dask.distributed -----------------------------------------------------------------------------


class DaskCluster(Cluster):
    """Workers of dask.distributed.

    Parameters
    ----------
    client : dask.distributed.Client

    Raises
    ------
    AnnotationError
        If the client is asynchronous, or a worker has another version of manyhands.
    """

    def __init__(self, client: Any) -> None:
        if client.asynchronous:
            raise AnnotationError(f"engine={client!r} is asynchronous; give a synchronous Client")
        self.client = client
        client.run(check_version, __version__)

    def _send(self, job: Job) -> Any:
        """Future of the job, which the scheduler can rebuild if all workers are lost."""
        return self.client.submit(
            receive, __version__, pickle.dumps(job, protocol=5), key=_key("job"), pure=False
        )

    def _each(self, job: Any, task: str, parts: Iterable[Part]) -> Iterator[Any]:
        for part in parts:
            key = _key(f"shard-{part.number}")
            yield self.client.submit(run, __version__, job, task, part, key=key, pure=False)

    def _tree(self, job: Any, parts: Sequence[Part]) -> Any:
        level = list(self._each(job, "sum", parts))
        while len(level) > 1:
            groups = [level[first : first + FAN] for first in range(0, len(level), FAN)]
            level = [
                self.client.submit(added, *group, key=_key("sum"), pure=False) for group in groups
            ]
        return level[0]

    def _in_order(self, futures: Iterator[Any]) -> Iterator[Any]:
        """Yield results in order; only a few tasks per thread of the workers are waiting."""
        from dask import config
        from distributed import KilledWorker

        ahead = 2 + 2 * sum(self.client.nthreads().values())
        waiting: deque[Any] = deque()
        try:
            with config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
                for future in futures:
                    waiting.append(future)
                    if len(waiting) > ahead:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
        except KilledWorker as error:
            raise RuntimeError(
                f"every worker that counted a shard was lost: {error}; give the workers more "
                "memory, or ingest with smaller shards. With checkpoint= the same fit resumes at "
                "its last iteration"
            ) from error

    def sums(self, job: Job, batches: Iterable[Sequence[Part]]) -> Iterator[Any]:
        """See `Cluster.sums`."""
        sent = self._send(job)
        yield from self._in_order(self._tree(sent, batch) for batch in batches)

    def rows(self, job: Job, parts: Iterable[Part]) -> Iterator[AnyArray]:
        """See `Cluster.rows`."""
        yield from self._in_order(self._each(self._send(job), "fill", parts))


def _key(name: str) -> str:
    return f"manyhands-{name}-{uuid4().hex}"


# -- Spark ----------------------------------------------------------------------------------------

SPARK_ROWS = "number long, run long, content binary"
"""Columns of the frames that Spark's workers map: contents are pickled."""


class SparkCluster(Cluster):
    """Workers of Spark, which get and return Arrow batches (also over Spark Connect).

    Parameters
    ----------
    session : SparkSession
    """

    def __init__(self, session: Any) -> None:
        self.session = session

    def _map(self, job: Job, task: str, parts: Sequence[Part]) -> Any:
        version, content = __version__, pickle.dumps(job, protocol=5)

        def each(batches: Iterable[Any]) -> Iterator[Any]:
            return spark_run(version, content, task, batches)

        size = max(FAN, int(np.ceil(np.sqrt(len(parts)))))
        given = [(part.number, k // size, pickle.dumps(part)) for k, part in enumerate(parts)]
        frame = self.session.createDataFrame(given, SPARK_ROWS).repartition(len(given))
        return frame.mapInArrow(each, SPARK_ROWS)

    def _collected(self, frame: Any) -> list[Any]:
        """Contents of a frame, in the order of the shards."""
        from pyspark.errors import PySparkException

        try:
            found = frame.collect()
        except PySparkException as error:
            message = re.search(r"AnnotationError: (.*)", str(error))
            if message is None:
                raise
            raise AnnotationError(message[1]) from error
        return [
            pickle.loads(row["content"]) for row in sorted(found, key=lambda row: row["number"])
        ]

    def sums(self, job: Job, batches: Iterable[Sequence[Part]]) -> Iterator[Any]:
        """See `Cluster.sums`."""
        for batch in batches:
            frame = self._map(job, "sum", batch)
            if len(batch) > FAN:
                frame = frame.groupBy("run").applyInArrow(spark_added, SPARK_ROWS)
            yield added(*self._collected(frame))

    def rows(self, job: Job, parts: Iterable[Part]) -> Iterator[AnyArray]:
        """See `Cluster.rows`."""
        for batch in _batches(parts, 4 * FAN):
            yield from self._collected(self._map(job, "fill", batch))


def spark_run(version: str, content: bytes, task: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Run a job on the shards of Arrow batches, on a worker."""
    job = None
    for batch in batches:
        for row in batch.to_pylist():
            job = job or receive(version, content)
            yield _arrow_batch(row, run(version, job, task, pickle.loads(row["content"])))


def spark_added(table: Any) -> Any:
    """Add the counts of a group of shards, in their order, on a worker."""
    import pyarrow

    rows = sorted(table.to_pylist(), key=lambda row: row["number"])
    counts = added(*(pickle.loads(row["content"]) for row in rows))
    return pyarrow.Table.from_batches([_arrow_batch(rows[0], counts)])


def _arrow_batch(row: dict[str, Any], result: Any) -> Any:
    import pyarrow

    content = pickle.dumps(result, protocol=5)
    return pyarrow.RecordBatch.from_pylist([{**row, "content": content}])
