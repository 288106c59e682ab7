"""Tables of probabilities: normalised rows, floored logarithms, Dirichlet distributions.

Probabilities sum to 1 over the last axis. A table by annotator, such as the confusion matrices, may
be too large for memory: with R annotators, S states and K responses, EM holds about ten tables of
R * S * K numbers (counts, pseudo-counts, parameters, their logarithms). Operations on the rows of
annotators are therefore functions of arrays that `map_rows` and `sum_rows` call: once for arrays,
and once per block for a `LargeTable` (`manyhands.scale.annotator_blocks`).
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
"""Value instead of log 0 in a confusion matrix, so that one annotation cannot rule out a class."""

GREATEST_LOG = 700.0
"""Largest absolute logarithm whose exponential does not overflow or underflow."""

ABSENT = 1e-12
"""Share up to which a class counts as absent."""

Table = Any
"""Type of tables (R, S, K): an array, a `LargeTable`, or counts of a shard that can be added."""


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
    """Return log p, with `LOG_FLOOR` in place of log 0."""
    if p.size and p.min() > 0:  # Masked loops are several times slower.
        return np.asarray(np.log(p))
    return np.log(p, out=np.full_like(p, LOG_FLOOR), where=p > 0)


def extrapolated(start: FloatArray, end: FloatArray, step: float) -> FloatArray:
    """Return rows ``step`` times as far from ``start`` as ``end``, in logs; rows sum to 1."""
    logs = end - start
    logs *= step
    logs += start
    if logs.size and max(-logs.min(), logs.max()) > GREATEST_LOG:
        logs -= logs.max(axis=-1, keepdims=True)
    np.exp(logs, out=logs)
    logs /= np.einsum("...k->...", logs)[..., None]  # Several times faster than sum.
    return logs


def log_prior(prior: FloatArray, exponent: FloatArray | None) -> FloatArray:
    """Return the log of a class prior, for a posterior raised to the power ``exponent`` (or None).

    With an exponent the log of an absent class is minus infinity, because the power would raise a
    finite floor.
    """
    if exponent is None:
        return floored_log(prior)
    return np.log(prior, out=np.full_like(prior, -np.inf), where=prior > ABSENT)


def log_dirichlet(pseudo_counts: FloatArray, p: FloatArray) -> float:
    """Return the log Dirichlet density up to a constant: the sum of pseudo_counts * log p."""
    return float(xlogy(pseudo_counts, np.maximum(p, np.exp(LOG_FLOOR))).sum())


def has_converged(history: Sequence[float], enough: float) -> bool:
    """Return whether the last iteration raised the objective by less than ``enough``."""
    return len(history) > 1 and history[-1] - history[-2] < enough


def expected_log(alpha: FloatArray) -> FloatArray:
    """Return E log p for p ~ Dirichlet(alpha) over the last axis, with the shape of ``alpha``."""
    expected: FloatArray = psi(alpha)
    expected -= psi(alpha.sum(axis=-1, keepdims=True))
    return expected


def dirichlet_divergence(alpha: FloatArray, prior: FloatArray, log_p: FloatArray) -> float:
    """Return the sum of KL(Dirichlet(alpha) || Dirichlet(prior)) over all rows.

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
    """Return the sum of counts (R, S, K) times logarithms."""
    return float(np.einsum("rsk,rsk->", counts, logs))


def _log_normaliser(alpha: FloatArray) -> FloatArray:
    """Return the log of the integral of prod p_k^(alpha_k - 1), for each row."""
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
        """Return the rows of a block, (r, S, K), or the entries ``[annotators, :, responses]``."""

    @abstractmethod
    def __setitem__(self, rows: slice, values: FloatArray) -> None:
        """Write the rows of a block."""

    @abstractmethod
    def at(self, pairs: IntArray) -> FloatArray:
        """Return the entries of the pairs ``annotator * K + response``, shape (m, S)."""

    @abstractmethod
    def new(self, shape: tuple[int, ...]) -> LargeTable:
        """Make another table for the same number of annotators."""

    @abstractmethod
    def write_to(self, file: BinaryIO) -> None:
        """Copy the numbers into a file."""

    @property
    @abstractmethod
    def array(self) -> FloatArray:
        """The table as a memory-mapped array of shape (R, S, K)."""


class LargeTables(Protocol):
    """Protocol of makers of tables by annotator that do not fit in memory."""

    def counts(self, votes: Any, posterior: FloatArray) -> Table:
        """Return the expected counts of votes under a posterior (n, S)."""

    def read(self, path: Path, shape: tuple[int, ...]) -> LargeTable:
        """Read a table that `LargeTable.write_to` has written."""


def pairs_of(matrix: Any) -> tuple[Any, IntArray]:
    """Return one-hot annotations (n, u) over the pairs that occur, and these pairs (u,)."""
    pairs, places = np.unique(matrix.indices, return_inverse=True)
    entries: Any = (matrix.data, places, matrix.indptr)
    return csr_matrix(entries, shape=(matrix.shape[0], len(pairs))), pairs.astype(np.int64)


def map_rows(function: Callable[..., FloatArray], *tables: Table) -> Table:
    """Return the table ``function(*tables)`` for a function that treats annotators separately.

    Parameters
    ----------
    function : callable
        Takes arrays (r, S, K) and returns an array of r rows.
    tables
        Arrays or `LargeTable` with R rows; arrays with other shapes are passed whole.

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
    """Return the table whose blocks have the fewest annotators; None if all are arrays."""
    on_disk = [table for table in tables if isinstance(table, LargeTable)]
    return max(on_disk, key=lambda table: int(np.prod(table.shape)), default=None)


def _rows(table: Table, rows: slice, like: LargeTable) -> Any:
    is_whole = isinstance(table, np.ndarray) and (table.ndim < 3 or len(table) != like.shape[0])
    return table if is_whole else table[rows]


def as_array(table: Table) -> FloatArray:
    """Return the table as an array, memory-mapped if it is on disk."""
    array: FloatArray = table.array if isinstance(table, LargeTable) else table
    return array


def by_response(values: Table) -> Table:
    """Return values (R, S, K) in the memory order (R, K, S), in which the E-step reads them."""
    if not isinstance(values, np.ndarray):
        return values  # Tables on disk have this order.
    return np.ascontiguousarray(values.transpose(0, 2, 1)).transpose(0, 2, 1)
