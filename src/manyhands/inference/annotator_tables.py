"""Tables by annotator, such as confusion matrices: arrays, or block by block if they are large.

With R annotators, S states and K responses, EM holds about ten tables of R * S * K numbers: counts,
pseudo-counts, parameters, their logarithms. Whatever is done with annotator after annotator
(normalising rows, logarithms, priors) is a function of arrays that `map_rows` and `sum_rows` call:
once for arrays, and once per block for a `LargeTable` (`manyhands.scale.annotator_blocks`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from scipy.sparse import csr_matrix

from manyhands.typing import FloatArray, IntArray

Table = Any
"""Table (R, S, K): an array, a `LargeTable`, or counts of a shard that add up to one."""


class LargeTable(ABC):
    """Table of shape (R, S, K) that is read and written one block of annotators at a time."""

    shape: tuple[int, int, int]

    @abstractmethod
    def slices(self) -> Iterator[slice]:
        """Yield the blocks of annotators."""

    @abstractmethod
    def __getitem__(self, key: Any) -> FloatArray:
        """Rows of a block, (r, S, K), or, of ``[annotators, :, responses]``, their (m, S)."""

    @abstractmethod
    def __setitem__(self, rows: slice, values: FloatArray) -> None:
        """Write the rows of a block."""

    @abstractmethod
    def at(self, pairs: IntArray) -> FloatArray:
        """Numbers of the pairs ``annotator * K + response``, shape (m, S)."""

    @abstractmethod
    def new(self, shape: tuple[int, ...]) -> LargeTable:
        """Make another table of as many annotators, with rows of shape (S, K)."""

    @abstractmethod
    def write_to(self, file: BinaryIO) -> None:
        """Copy the numbers into a file."""

    @property
    @abstractmethod
    def array(self) -> FloatArray:
        """The table as a memory-mapped array of shape (R, S, K)."""


class LargeTables(Protocol):
    """Where tables by annotator are made if they do not fit in memory."""

    def counts(self, votes: Any, posterior: FloatArray) -> Table:
        """Expected counts of votes under a posterior (n, S)."""

    def read(self, path: Path, shape: tuple[int, ...]) -> LargeTable:
        """Read a table that `LargeTable.write_to` has written."""


def pairs_of(matrix: Any) -> tuple[Any, IntArray]:
    """One-hot annotations (n, u) of the pairs that occur, and these pairs (u,)."""
    pairs, places = np.unique(matrix.indices, return_inverse=True)
    entries: Any = (matrix.data, places, matrix.indptr)
    return csr_matrix(entries, shape=(matrix.shape[0], len(pairs))), pairs.astype(np.int64)


def map_rows(function: Callable[..., FloatArray], *tables: Table) -> Table:
    """Return the table ``function(*tables)``, where each annotator's rows depend on theirs alone.

    Parameters
    ----------
    function : callable
        From arrays (r, S, K) to an array of r rows.
    tables
        Arrays or `LargeTable` with R rows; arrays with other shapes are given whole.

    Returns
    -------
    array or LargeTable
        `LargeTable` if one of the tables is and the result has three axes.
    """
    given = _largest(tables)
    if given is None:
        return function(*tables)
    out: LargeTable | None = None
    small = []
    for rows in given.slices():
        values = function(*(_rows(table, rows, given) for table in tables))
        if values.ndim < 3:
            small.append(values)
            continue
        out = out or given.new(values.shape[1:])
        out[rows] = values
    return np.concatenate(small) if out is None else out


def sum_rows(function: Callable[..., Any], *tables: Table) -> Any:
    """Sum ``function(*tables)`` over blocks of annotators; tables are those of `map_rows`."""
    given = _largest(tables)
    if given is None:
        return function(*tables)
    total: Any = 0.0
    for rows in given.slices():
        total = total + function(*(_rows(table, rows, given) for table in tables))
    return total


def _largest(tables: tuple[Table, ...]) -> LargeTable | None:
    """The table whose blocks have the fewest annotators; None if all are arrays."""
    on_disk = [table for table in tables if isinstance(table, LargeTable)]
    return max(on_disk, key=lambda table: int(np.prod(table.shape)), default=None)


def _rows(table: Table, rows: slice, like: LargeTable) -> Any:
    is_whole = isinstance(table, np.ndarray) and (table.ndim < 3 or len(table) != like.shape[0])
    return table if is_whole else table[rows]


def as_array(table: Table) -> FloatArray:
    """Table as an array, memory-mapped if it is on disk."""
    array: FloatArray = table.array if isinstance(table, LargeTable) else table
    return array
