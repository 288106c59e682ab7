"""Tables of probabilities: normalised rows, floored logarithms, Dirichlet distributions.

The last axis is the one that sums to 1. A table by annotator, such as the confusion matrices, may
be too large for memory: with R annotators, S states and K responses, EM holds about ten tables of
R * S * K numbers (counts, pseudo-counts, parameters, their logarithms). Whatever is done with
annotator after annotator is therefore a function of arrays that `map_rows` and `sum_rows` call:
once for arrays, and once per block for a `LargeTable` (`manyhands.scale.annotator_blocks`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import gammaln, psi, xlogy

from manyhands.typing import FloatArray, IntArray

LOG_FLOOR = float(np.log(1e-100))
"""Replaces log 0 in a confusion matrix: one impossible annotation must not rule out all classes."""

GREATEST_LOG = 700.0
"""Logarithms beyond which, on either side of 0, exponentials are no longer numbers."""

ABSENT = 1e-12
"""Share up to which a class is absent."""

Table = Any
"""Table (R, S, K): an array, a `LargeTable`, or counts of a shard that add up to one."""


def normalise_rows(counts: FloatArray) -> FloatArray:
    """Divide by the sum over the last axis; an empty row becomes uniform."""
    mass = counts.sum(axis=-1, keepdims=True)
    if mass.size and mass.min() > 0:  # Masked loops are several times slower.
        return np.asarray(counts / mass)
    uniform = np.full_like(counts, 1.0 / counts.shape[-1])
    return np.divide(counts, mass, out=uniform, where=mass > 0)


def normalised_sum(counts: FloatArray, pseudo_counts: FloatArray) -> FloatArray:
    """Normalise the rows of the sum, as an M-step with a Dirichlet prior does."""
    return normalise_rows(counts + pseudo_counts)


def floored_log(p: FloatArray) -> FloatArray:
    """Log p, with `LOG_FLOOR` in place of log 0."""
    if p.size and p.min() > 0:  # Masked loops are several times slower.
        return np.asarray(np.log(p))
    return np.log(p, out=np.full_like(p, LOG_FLOOR), where=p > 0)


def extrapolated(start: FloatArray, end: FloatArray, step: float) -> FloatArray:
    """Go ``step`` times as far as from rows to others, given as logarithms; rows sum to 1."""
    logs = end - start
    logs *= step
    logs += start
    if logs.size and max(-logs.min(), logs.max()) > GREATEST_LOG:
        logs -= logs.max(axis=-1, keepdims=True)
    np.exp(logs, out=logs)
    logs /= np.einsum("...k->...", logs)[..., None]  # Several times faster than sum.
    return logs


def log_prior(prior: FloatArray, exponent: FloatArray | None) -> FloatArray:
    """Log of a class prior, for a posterior that is raised to a power (or not: None).

    A power would lift the floor of an absent class, whose log is therefore minus infinity.
    """
    if exponent is None:
        return floored_log(prior)
    return np.log(prior, out=np.full_like(prior, -np.inf), where=prior > ABSENT)


def log_dirichlet(pseudo_counts: FloatArray, p: FloatArray) -> float:
    """Log density of a Dirichlet prior up to a constant: sum of pseudo_counts * log p."""
    return float(xlogy(pseudo_counts, np.maximum(p, np.exp(LOG_FLOOR))).sum())


def has_settled(history: Sequence[float], enough: float) -> bool:
    """Whether the last iteration raised the objective by less than ``enough``."""
    return len(history) > 1 and history[-1] - history[-2] < enough


def expected_log(alpha: FloatArray) -> FloatArray:
    """E log p for p ~ Dirichlet(alpha) over the last axis, with the shape of ``alpha``."""
    expected: FloatArray = psi(alpha)
    expected -= psi(alpha.sum(axis=-1, keepdims=True))
    return expected


def dirichlet_divergence(alpha: FloatArray, prior: FloatArray, log_p: FloatArray) -> float:
    """Sum of KL(Dirichlet(alpha) || Dirichlet(prior)) over all rows.

    Parameters
    ----------
    alpha : array of shape (..., K)
    prior : array that broadcasts to ``alpha``
    log_p : array with the shape of ``alpha``
        The `expected_log` of ``alpha``.
    """
    normalisers = _log_normaliser(prior) - _log_normaliser(alpha)
    return float(normalisers.sum() + np.vdot(alpha - prior, log_p))


def sum_of_product(counts: FloatArray, logs: FloatArray) -> float:
    """Sum of counts (R, S, K) times logarithms."""
    return float(np.einsum("rsk,rsk->", counts, logs))


def _log_normaliser(alpha: FloatArray) -> FloatArray:
    """Log of the integral of prod p_k^(alpha_k - 1), for each row."""
    log_normaliser: FloatArray = gammaln(alpha).sum(axis=-1) - gammaln(alpha.sum(axis=-1))
    return log_normaliser


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


def over_annotators(counts: Table) -> FloatArray:
    """Sum counts (R, S, K) over the annotators, shape (S, K)."""
    return np.asarray(sum_rows(lambda rows: rows.sum(axis=0), counts))


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


def by_response(values: Table) -> Table:
    """Lay out values (R, S, K) in memory as (R, K, S), as counts are and the E-step reads them."""
    if not isinstance(values, np.ndarray):
        return values  # So they lie on disk.
    return np.ascontiguousarray(values.transpose(0, 2, 1)).transpose(0, 2, 1)
