"""Clusters: workers of dask.distributed or of Spark count the shards of a store.

``fit(store, engine=client)`` sends each worker the numbers of some shards and the parameters. The
worker reads the shards from the folder of the store, which all workers must see under the same
path, and returns the sum of their counts. Shards are divided among the threads that the cluster has
when the fit begins, and sums are taken in a fixed tree, so that a fit gives the same bits whatever
the speed of its workers, and even if some of them are lost. Another number of threads adds in
another order, which changes the last digits.

If a worker is lost, other workers count its shards again. If the client is lost, a fit with a
``checkpoint`` repeats one iteration at most.
"""

from __future__ import annotations

import pickle
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import numpy as np

from manyhands._version import __version__
from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.scale import shard_jobs
from manyhands.scale.shard_jobs import (
    Cluster,
    Job,
    Part,
    added,
    check_version,
    in_batches,
    piece,
    receive,
    run,
)
from manyhands.typing import AnyArray


def cluster_of(engine: Any) -> Cluster | None:
    """Return the cluster for the argument ``engine`` of a fit; None if it is None.

    Parameters
    ----------
    engine : dask.distributed.Client, SparkSession, Cluster or None

    Raises
    ------
    AnnotationError
        If ``engine`` is something else, or a worker has another version of manyhands.
    """
    if engine is None or isinstance(engine, Cluster):
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

    takes_pieces = True

    def __init__(self, client: Any) -> None:
        if client.asynchronous:
            raise AnnotationError(f"engine={client!r} is asynchronous; give a synchronous Client")
        self.client = client
        self.threads = max(sum(client.nthreads().values()), 1)
        # Workers that cannot answer are being lost and are ignored; `run` checks later ones.
        for found in client.run(check_version, __version__, on_error="return").values():
            if isinstance(found, AnnotationError):
                raise found

    def _submit(self, name: str, function: Any, *arguments: Any, **where: Any) -> Any:
        """Return the future of a task, under a key of its own."""
        from dask import config

        # Parameters are sent within the task on purpose: the scheduler keeps tasks, but not
        # scattered data, so it can start again even if all workers are lost.
        with config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            key = f"manyhands-{name}-{uuid4().hex}"
            return self.client.submit(function, *arguments, key=key, pure=False, **where)

    def _send(self, job: Job) -> Any:
        return self._submit("job", receive, __version__, pickle.dumps(job, protocol=5))

    def _each(self, job: Any, task: str, groups: Iterable[Sequence[Part]]) -> Iterator[Any]:
        # Tasks name their workers, because the scheduler would otherwise give all of them to the
        # worker that has the parameters.
        workers = [name for name, n in self.client.nthreads().items() for _ in range(n)]
        for k, parts in enumerate(groups):
            name, given = f"shard-{parts[0].number}", (run, __version__, job, task, parts)
            turn = [workers[k % len(workers)]] if workers else None
            yield self._submit(name, *given, workers=turn, allow_other_workers=bool(turn))

    def _trees(self, job: Any, n_pieces: int, groups: Sequence[Sequence[Part]]) -> Iterator[Any]:
        """Sum each piece of the counts of some shards."""
        shards = list(self._each(job, "sum", groups))
        for number in range(n_pieces):
            level, fan = shards, shard_jobs.FAN
            if n_pieces > 1:
                level = [self._submit("piece", piece, shard, number) for shard in shards]
            while len(level) > 1:
                several = [level[first : first + fan] for first in range(0, len(level), fan)]
                level = [self._submit("sum", added, *some) for some in several]
            yield level[0]

    def _in_order(self, futures: Iterator[Any]) -> Iterator[Any]:
        """Yield results in order; at any time only a few tasks per thread are submitted."""
        from distributed import KilledWorker

        ahead = 2 + 2 * sum(self.client.nthreads().values())
        waiting: deque[Any] = deque()
        try:
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

    def sums(self, job: Job, batches: Iterable[Sequence[Sequence[Part]]]) -> Iterator[Any]:
        """See `Cluster.sums`."""
        sent = self._send(job)
        trees = (tree for batch in batches for tree in self._trees(sent, job.n_pieces, batch))
        yield from (counts for counts in self._in_order(trees) if counts is not None)

    def rows(self, job: Job, parts: Iterable[Part]) -> Iterator[AnyArray]:
        """See `Cluster.rows`."""
        groups = ([part] for part in parts)
        yield from self._in_order(self._each(self._send(job), "fill", groups))


@contextmanager
def dask_client(address: str | None, *, timeout: float = 30.0) -> Iterator[Any]:
    """Return the client of a scheduler, closed at the end; None without an address.

    Raises
    ------
    AnnotationError
        If no scheduler answers at the address within ``timeout`` seconds.
    MissingExtraError
        If dask.distributed is not installed.
    """
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise_missing_extra("A cluster", "cluster", error)
    try:
        client: Any = Client(address, timeout=timeout)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise AnnotationError(
            f"no scheduler of dask.distributed answers at {address!r} ({error}); start one with "
            "dask scheduler, and give the address that it prints"
        ) from error
    with client:
        yield client


# -- Spark ----------------------------------------------------------------------------------------

SPARK_ROWS = "number long, run long, content binary"
"""Columns of the frames that Spark's workers map; ``content`` is pickled."""


class SparkCluster(Cluster):
    """Workers of Spark, which get and return Arrow batches (also over Spark Connect).

    Parameters
    ----------
    session : SparkSession
    """

    def __init__(self, session: Any) -> None:
        self.session = session
        # Over Spark Connect, the number of cores is unknown.
        context = getattr(session, "_sc", None)
        self.threads = max(int(context.defaultParallelism), 1) if context else shard_jobs.FAN

    def _map(self, job: Job, task: str, groups: Sequence[Sequence[Part]]) -> Any:
        version, content = __version__, pickle.dumps(job, protocol=5)

        def each(batches: Iterable[Any]) -> Iterator[Any]:
            return spark_run(version, content, task, batches)

        size = max(shard_jobs.FAN, int(np.ceil(np.sqrt(len(groups)))))
        given = [
            (parts[0].number, k // size, pickle.dumps(parts)) for k, parts in enumerate(groups)
        ]
        frame = self.session.createDataFrame(given, SPARK_ROWS).repartition(len(given))
        return frame.mapInArrow(each, SPARK_ROWS)

    def _collected(self, frame: Any) -> list[Any]:
        """Return the contents of a frame, in the order of the shards."""
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

    def sums(self, job: Job, batches: Iterable[Sequence[Sequence[Part]]]) -> Iterator[Any]:
        """See `Cluster.sums`."""
        for batch in batches:
            frame = self._map(job, "sum", batch)
            if len(batch) > shard_jobs.FAN:
                frame = frame.groupBy("run").applyInArrow(spark_added, SPARK_ROWS)
            yield added(*self._collected(frame))

    def rows(self, job: Job, parts: Iterable[Part]) -> Iterator[AnyArray]:
        """See `Cluster.rows`."""
        for batch in in_batches(parts, 4 * shard_jobs.FAN):
            yield from self._collected(self._map(job, "fill", [[part] for part in batch]))


def spark_run(version: str, content: bytes, task: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Run a job on the shards of Arrow batches, on a worker."""
    job = None
    for batch in batches:
        for row in batch.to_pylist():
            job = job or receive(version, content)
            yield _arrow_batch(row, run(version, job, task, pickle.loads(row["content"])))


def spark_added(table: Any) -> Any:
    """Add the counts of a group of shards, in their order, on a worker."""
    import pyarrow  # type: ignore[import-untyped]

    rows = sorted(table.to_pylist(), key=lambda row: row["number"])
    counts = added(*(pickle.loads(row["content"]) for row in rows))
    return pyarrow.Table.from_batches([_arrow_batch(rows[0], counts)])


def _arrow_batch(row: dict[str, Any], result: Any) -> Any:
    import pyarrow

    content = pickle.dumps(result, protocol=5)
    return pyarrow.RecordBatch.from_pylist([{**row, "content": content}])
