"""A measure as a function of how often every instance counts.

Every measure here is a formula over sums of per-instance figures. Given an integer weight for every
instance it can therefore tell its value on the crowd in which instances are repeated (or left out)
that often: with weights 1 its value, with multinomial weights a bootstrap replicate of it. Many
replicates cost one product of a thin matrix with a matrix of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray, IntArray

# A CSR matrix of float64. Its type stubs cannot tell a product with a dense matrix (dense) from one
# with a sparse matrix (sparse).
Sparse: TypeAlias = Any
T = TypeVar("T")


@dataclass(frozen=True)
class Weighted(Generic[T]):
    """A measure over ``n`` instances, ready to be weighted.

    Attributes
    ----------
    n : int
        Instances that enter the measure; those that cannot are left out.
    at : callable
        Takes weights of shape (n, B), returns the B values of the measure, shape (..., B).
    pack : callable
        Turns one value, shape (...), into what the measure returns.
    """

    n: int
    at: Callable[[FloatArray], FloatArray]
    pack: Callable[[FloatArray], T]

    def value(self) -> T:
        """Value with every instance counting once."""
        return self.pack(self.at(np.ones((self.n, 1)))[..., 0])


class ClassCounts(NamedTuple):
    """Annotations of every class on every instance, as a sparse matrix.

    Attributes
    ----------
    votes : CSR matrix of shape (n, C)
        Sorted column indices, no stored zeros.
    size : array of shape (n,)
        Annotations of every instance.
    """

    votes: Sparse
    size: FloatArray


def class_counts(table: AnnotationTable, *, least: int) -> ClassCounts:
    """Count the classes on every instance with ``least`` observed annotations or more."""
    observed = table.observed
    shape = (observed.n_instances, observed.n_classes)
    votes = sparse(None, observed.instance, observed.label, shape)
    size = np.bincount(observed.instance, minlength=observed.n_instances)
    enough = size >= least
    if not enough.all():
        votes, size = votes[enough], size[enough]
    return ClassCounts(votes, size.astype(np.float64))


def sparse(
    values: AnyArray | None, rows: IntArray, columns: IntArray, shape: tuple[int, int]
) -> Sparse:
    """CSR matrix of the sums of ``values`` (None: of ones) at the given places."""
    if values is None:
        return _counted(rows, columns, shape)
    data = np.asarray(values, dtype=np.float64)
    return coo_matrix((data, (rows, columns)), shape=shape).tocsr()


def _counted(rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> Sparse:
    """How often every place occurs: sorting numbers is faster than sorting a sparse matrix."""
    n_rows, n_columns = shape
    dtype: Any = np.int32 if n_rows * n_columns <= np.iinfo(np.int32).max else np.int64
    # In place where it can be: fresh memory costs more than the arithmetic.
    places = np.multiply(rows, n_columns, dtype=dtype)
    places += columns
    places.sort()
    is_first = np.ones(len(places), dtype=bool)
    np.not_equal(places[1:], places[:-1], out=is_first[1:])
    first = np.flatnonzero(is_first)
    counts = np.diff(first, append=len(places)).astype(np.float64)
    row, column = np.divmod(places[first], dtype(max(n_columns, 1)))
    start = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_rows))])
    return csr_matrix((counts, column, start), shape=shape)


def with_data(matrix: Sparse, data: FloatArray) -> Sparse:
    """CSR matrix with the places of another and other values."""
    return csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def per_entry(matrix: Sparse, row_values: AnyArray) -> AnyArray:
    """Repeat a value a row for every stored entry of the row."""
    return np.repeat(row_values, np.diff(matrix.indptr))


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Quotient, NaN where the denominator is 0."""
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    undefined = np.full(shape, np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)


def chance_corrected(agreement: FloatArray, by_chance: FloatArray) -> FloatArray:
    """(a - e) / (1 - e): 1 for full agreement, 0 for what chance gives; NaN where e is 1."""
    return ratio(agreement - by_chance, 1 - by_chance)


def check_option(argument: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse an unknown name of an option."""
    if value not in known:
        raise AnnotationError(
            f"{argument}={value!r} is unknown; use one of {', '.join(map(repr, known))}"
        )
