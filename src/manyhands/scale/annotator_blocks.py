"""Confusion matrices of more annotators than fit in memory: tables on disk, block by block.

With a million annotators and ten classes, each of EM's tables
(`manyhands.inference.probability`) takes 0.8 GB. A table beyond `LARGEST` numbers is therefore
a file (`Blocks`), and

- a run of annotations reads the rows (annotator, response) that occur in it, and counts them alone
  (`PairCounts`): no array of a shard grows with the number of annotators;
- counts are summed in a file, on a cluster one block of annotators after the other;
- operations on the rows of annotators (normalisation, logarithms, priors) are done block by block
  (`map_rows`, `sum_rows`).

Memory is then bounded by a run of `RUN` annotations (S numbers for each) and by a few blocks of
`BLOCK` numbers.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from manyhands.exceptions import AnnotationError, WriteError
from manyhands.files import explain, reserve
from manyhands.inference.probability import LargeTable
from manyhands.io.mapped import release
from manyhands.typing import AnyArray, FloatArray, IntArray

LARGEST = 2**25
"""Number of entries beyond which a table is kept on disk: 256 MiB."""

BLOCK = 2**22
"""Approximate number of entries in a block of annotators: 32 MiB."""

RUN = 1_000_000
"""Number of annotations that are counted at once if tables are on disk."""


class Blocks(LargeTable):
    """Array of shape (R, S, K) in a file, indexed [annotator, state, response].

    The numbers of each (annotator, response) are consecutive, as they are read together. The file
    is removed with the object that made it; copies sent to other processes read the same file.

    Parameters
    ----------
    folder : Path
        Folder of the file. Workers of a cluster must see it under the same path.
    shape : (R, S, K)

    Raises
    ------
    WriteError
        If the folder cannot be written, or the disk has no room for the table.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...]) -> None:
        self.folder, self.shape = folder, (shape[0], shape[1], shape[2])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=folder, prefix="annotators-", suffix=".table")
            self._finalizer = weakref.finalize(self, Path(name).unlink, missing_ok=True)
            with os.fdopen(handle, "r+b") as file:
                reserve(file, 8 * int(np.prod(self.shape)))
        except OSError as error:
            raise WriteError(error.errno, explain(error, folder)) from error
        self.path = Path(name)
        self._mapped = self._map("r+")

    def _map(self, mode: Any) -> AnyArray:
        r, s, k = self.shape
        return np.memmap(self.path, np.float64, mode, shape=(r * k, s))

    def __getstate__(self) -> dict[str, Any]:
        self._mapped.flush()  # type: ignore[attr-defined]
        return {"folder": self.folder, "shape": self.shape, "path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        try:
            self._mapped = self._map("r")
        except (OSError, ValueError) as error:
            raise AnnotationError(
                f"a worker cannot read {self.path} ({error}); with so many annotators every worker "
                "must see the scratch folder of the store under this path"
            ) from error

    @property
    def array(self) -> FloatArray:
        """The table as a memory-mapped array of shape (R, S, K)."""
        r, s, k = self.shape
        return self._mapped.reshape(r, k, s).transpose(0, 2, 1)

    def slices(self) -> Iterator[slice]:
        """Yield the blocks of annotators."""
        r, s, k = self.shape
        size = max(1, BLOCK // (s * k))
        for first in range(0, r, size):
            yield slice(first, min(first + size, r))

    def __getitem__(self, key: Any) -> FloatArray:
        """Return the rows of a block, (r, S, K), or the entries ``[annotators, :, responses]``."""
        if isinstance(key, slice):
            values = np.array(self.array[key], order="C")
            release(self._mapped)
            return values
        annotators, _, responses = key
        return self.at(annotators * np.int64(self.shape[2]) + responses)

    def __setitem__(self, rows: slice, values: FloatArray) -> None:
        self.array[rows] = values
        release(self._mapped)

    def at(self, pairs: IntArray) -> FloatArray:
        """Return the entries of the pairs ``annotator * K + response``, shape (m, S)."""
        found = np.asarray(self._mapped[pairs])
        release(self._mapped)
        return found

    def __add__(self, counts: PairCounts | Blocks) -> Blocks:
        """Add counts to this table, in place."""
        if isinstance(counts, PairCounts):
            self._mapped[counts.pairs] += counts.sums
            release(self._mapped)
        else:
            for rows in self.slices():
                self[rows] = self[rows] + counts[rows]
        return self

    def new(self, shape: tuple[int, ...]) -> Blocks:
        """Make another table for the same number of annotators."""
        return Blocks(self.folder, (self.shape[0], *shape))

    def write_to(self, file: BinaryIO) -> None:
        """Copy the numbers into a file."""
        self._mapped.flush()  # type: ignore[attr-defined]
        with self.path.open("rb") as source:
            shutil.copyfileobj(source, file, 2**24)

    @classmethod
    def read_from(cls, path: Path, folder: Path, shape: tuple[int, ...]) -> Blocks:
        """Return the table in ``folder``, with the numbers that `write_to` has written."""
        table = cls(folder, shape)
        if path.stat().st_size != table.path.stat().st_size:
            raise ValueError(f"{path.name} is incomplete")
        with path.open("rb") as source, table.path.open("r+b") as file:
            shutil.copyfileobj(source, file, 2**24)
        return table


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Counts (R, S, K) of the (annotator, response) pairs of some annotations.

    Attributes
    ----------
    pairs : integer array of shape (u,)
        ``annotator * K + response``, ascending and distinct.
    sums : array of shape (u, S)
    shape : (R, S, K)
    folder : Path
        Folder of the file with the total.
    """

    pairs: IntArray
    sums: FloatArray
    shape: tuple[int, int, int]
    folder: Path

    @classmethod
    def of(cls, votes: Any, posterior: FloatArray, folder: Path) -> PairCounts:
        """Return the expected counts of votes under a posterior (n, S)."""
        matrix, pairs = votes.pairs
        shape = (votes.n_annotators, posterior.shape[1], votes.n_responses)
        return cls(pairs, np.asarray(matrix.T @ posterior), shape, folder)

    def __add__(self, other: PairCounts) -> PairCounts:
        """Return the sum of both counts, in memory."""
        pairs = np.union1d(self.pairs, other.pairs)
        sums = np.zeros((len(pairs), self.shape[1]))
        for counts in (self, other):
            sums[np.searchsorted(pairs, counts.pairs)] += counts.sums
        return PairCounts(pairs, sums, self.shape, self.folder)

    def total(self) -> Blocks:
        """Return a table on disk with these counts, to which others can be added."""
        return Blocks(self.folder, self.shape) + self

    def pieces(self, n: int) -> list[PairCounts]:
        """Split the counts into those of ``n`` blocks of annotators."""
        bounds = np.arange(n + 1) * self.shape[0] // n * self.shape[2]
        places = np.searchsorted(self.pairs, bounds)
        return [
            PairCounts(self.pairs[first:last], self.sums[first:last], self.shape, self.folder)
            for first, last in pairwise(places)
        ]


def n_pieces(n_annotators: int, n_responses: int) -> int:
    """Return the number of blocks of annotators whose counts a cluster adds up in turn."""
    return max(1, -(-n_annotators * n_responses**2 // BLOCK))


@dataclass(frozen=True)
class TablesOnDisk:
    """Tables by annotator as files in a folder: the `LargeTables` of inference.

    Attributes
    ----------
    folder : Path
    """

    folder: Path

    def counts(self, votes: Any, posterior: FloatArray) -> PairCounts:
        """Return the expected counts of votes under a posterior (n, S)."""
        return PairCounts.of(votes, posterior, self.folder)

    def read(self, path: Path, shape: tuple[int, ...]) -> Blocks:
        """Read a table that `Blocks.write_to` has written."""
        return Blocks.read_from(path, self.folder, shape)
