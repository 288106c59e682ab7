"""Engines: where the shards of a fit are, and how functions of them are summed and gathered.

An iterative method is written once, as two kinds of calls on the shards of its annotations
(`manyhands.inference.votes.Votes`):

- ``sum_over_shards(count, shards, *parameters, rows=(...))`` adds up ``count(shard, *rows,
  *parameters)``, where ``rows`` are each shard's rows of arrays over all instances;
- ``fill_rows(out, shards, rows_of, *parameters)`` writes ``rows_of(shard, *parameters)``, shape
  (n, ...), into the shard's rows of ``out``.

In memory, shards are a list. Elsewhere they are an `Engine`, to which both functions hand over:

=============  =============================================  ==================================
engine         where shards are                               who counts
=============  =============================================  ==================================
(list)         in memory                                      this process
`LocalEngine`  memory-mapped files of an `AnnotationStore`    this process, one shard at a time
ClusterEngine  files of an `AnnotationStore` that all see     workers of dask or Spark
=============  =============================================  ==================================

`ClusterEngine` is in `manyhands.inference.shard_jobs`.

**To add an engine**, subclass `Engine` and implement ``sum``, ``fill`` and ``__iter__``, and let
``shards()`` of `StoredVotes` (`manyhands.inference.stored_votes`) return it. **To add a cluster**,
subclass `Cluster` in `manyhands.inference.shard_jobs`. `StoredVotes.load(number)` gives a worker
its shard from nothing but the folder of the store and a few plain values. What a worker gets
besides are ``count`` and ``parameters``, which are functions and arrays that do not refer to the
votes. Results must be added in an order that does not depend on which worker is fast, so that a run
that is interrupted and resumed gives the same bits.

An item of ``rows`` is an array over all instances or a function from a shard to its rows, such as
the vote shares that EM starts from: these are never stored. Arrays over all instances that a
method needs between its iterations, and its posterior, come from ``votes.new_rows(width)``.

``fit(store, checkpoint=folder)`` saves the parameters of every iteration
(`manyhands.inference.checkpoints`). The loops of the methods do this themselves, in the client,
so an engine need not: a client that is killed and started again resumes at the last iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import iadd
from typing import Any, Protocol

import numpy as np
from scipy.sparse import issparse

from manyhands.io.mapped import release
from manyhands.typing import AnyArray

CHEAP, LARGE = 16, 1_500_000
"""Annotations of a shard for each pair of annotator and response, so that its counts are cheap to
add up beside it, and the size up to which shards grow for that."""


def grown(size: int, n_pairs: int) -> int:
    """Annotations per shard: ``size``, or more if the counts (R, K, C) of ``n_pairs`` are large."""
    return max(size, min(CHEAP * n_pairs, LARGE), 4 * n_pairs)


class OfInstances(Protocol):
    """Votes of some instances (`manyhands.inference.votes.Votes`)."""

    @property
    def n_instances(self) -> int:
        """Number of instances."""


class Engine(ABC):
    """Shards of whole instances, wherever they are, in the order of the instances."""

    @abstractmethod
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
            Its results can be added with ``+``, and are nobody else's (they may be added in place).
        rows : tuple
            Arrays over all instances, None, or functions from a shard to its rows.
        """

    @abstractmethod
    def fill(
        self,
        out: AnyArray,
        rows_of: Callable[..., AnyArray],
        *parameters: Any,
        rows: tuple[Any, ...] = (),
    ) -> None:
        """Write ``rows_of(shard, *rows of the shard, *parameters)`` into each shard's ``out``."""

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Bring the shards here, one by one."""


class LocalEngine(Engine):
    """Shards that this process loads one by one.

    Parameters
    ----------
    load : callable
        From the number of a shard to its votes, or to parts of them in order.
    firsts : integer array of shape (n_shards + 1,)
        Code of each shard's first instance, and the number of instances.
    """

    def __init__(self, load: Callable[[int], Iterable[OfInstances]], firsts: AnyArray) -> None:
        self.load, self.firsts = load, firsts

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self.firsts) - 1):
            yield from self.load(number)

    def _with_rows(self, arrays: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        first = 0
        for shard in self:
            place = slice(first, first + shard.n_instances)
            yield place, shard, *(rows_at(array, shard, place) for array in arrays)
            for array in arrays:
                release(array)
            first = place.stop

    def sum(
        self,
        count: Callable[..., Any],
        *parameters: Any,
        rows: tuple[Any, ...] = (),
        **options: Any,
    ) -> Any:
        """See `Engine.sum`."""
        return total(count(*part, *parameters, **options) for _, *part in self._with_rows(rows))

    def fill(
        self,
        out: AnyArray,
        rows_of: Callable[..., AnyArray],
        *parameters: Any,
        rows: tuple[Any, ...] = (),
    ) -> None:
        """See `Engine.fill`."""
        for place, *part in self._with_rows(rows):
            out[place] = rows_of(*part, *parameters)
            release(out)


def total(counts: Iterator[Any]) -> Any:
    """Sum of counts, in order.

    They are added in place, in those that ``total()`` of the first returns, if it has that: a sum
    that does not fit in memory.
    """
    first = next(counts)
    return reduce(iadd, counts, first.total() if hasattr(first, "total") else first)


def rows_at(array: Any, shard: OfInstances, place: slice) -> Any:
    """Rows of a shard: those of an array over all instances, or what a function of it returns."""
    if array is None:
        return None
    if callable(array):
        return array(shard)
    rows = array[place]
    return rows if issparse(rows) else np.asarray(rows)
