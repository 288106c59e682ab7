"""Engines: iterators of the shards of a fit that can sum and gather functions of them.

`manyhands.inference.votes.Shards` defines the operations on shards. In memory, shards are a list.
Elsewhere they are an `Engine`:

=============  =============================================  ==================================
engine         where shards are                               who counts
=============  =============================================  ==================================
(list)         in memory                                      this process
`LocalEngine`  memory-mapped files of an `AnnotationStore`    this process, one shard at a time
ClusterEngine  files of an `AnnotationStore` that all see     workers of dask or Spark
=============  =============================================  ==================================

`ClusterEngine` is in `manyhands.scale.shard_jobs`.

**To add an engine**, subclass `Engine` and implement ``sum``, ``fill`` and ``__iter__``, and let
``shards()`` of `StoredVotes` (`manyhands.scale.sharded`) return it. **To add a cluster**,
subclass `Cluster` in `manyhands.scale.shard_jobs`. `StoredVotes.load(number)` gives a worker
its shard from nothing but the folder of the store and a few plain values. A worker also gets
``count`` and ``parameters``, functions and arrays that do not refer to the votes. Results must be
added in an order that does not depend on the speed of the workers, so that a run that is
interrupted and resumed gives the same bits.

Arrays over all instances that a method needs between its iterations, and its posterior, come from
``votes.new_rows(width)``.

``fit(store, checkpoint=folder)`` saves the parameters of every iteration
(`manyhands.inference.checkpoints`). The loops of the methods do this themselves, in the client,
so an engine need not: a client that is killed and started again resumes at the last iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from manyhands.inference.votes import Shards, Votes
from manyhands.io.mapped import release


class Engine(Shards):
    """Base class of iterators over the shards of a store, in the order of the instances."""

    def release(self, *arrays: Any) -> None:
        """See `Shards.release`."""
        for array in arrays:
            release(array)


class LocalEngine(Engine):
    """Shards that this process loads one by one.

    Parameters
    ----------
    load : callable
        Takes the number of a shard and yields its votes, whole or in consecutive parts.
    n_shards : int
    """

    def __init__(self, load: Callable[[int], Iterable[Votes]], n_shards: int) -> None:
        self.load, self.n_shards = load, n_shards

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.n_shards):
            yield from self.load(number)
