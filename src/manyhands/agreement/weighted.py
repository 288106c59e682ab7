"""Agreement measures as functions of instance weights.

Each measure is a formula over sums of per-instance figures. An integer weight says how often an
instance is repeated (0 leaves it out). Weights of 1 give the value of the measure; multinomial
weights give a bootstrap replicate. Many replicates cost one product of a thin matrix with a matrix
of weights.
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

# A float64 CSR matrix. SciPy's type stubs cannot tell its product with a dense matrix (dense) from
# that with a sparse matrix (sparse).
Sparse: TypeAlias = Any
T = TypeVar("T")


@dataclass(frozen=True)
class Weighted(Generic[T]):
    """A measure as a function of the weights of ``n`` instances.

    Attributes
    ----------
    n : int
        Number of instances that enter the measure; the others are left out.
    at : callable
        Maps weights of shape (n, B) to the B values of the measure, shape (..., B).
    pack : callable
        Converts one value, shape (...), to the measure's return type.
    """

    n: int
    at: Callable[[FloatArray], FloatArray]
    pack: Callable[[FloatArray], T]

    def value(self) -> T:
        """Value of the measure if each instance counts once."""
        return self.pack(self.at(np.ones((self.n, 1)))[..., 0])


class ClassCounts(NamedTuple):
    """Number of annotations per instance and class, as a sparse matrix.

    Attributes
    ----------
    votes : CSR matrix of shape (n, C)
        With sorted column indices and no stored zeros.
    size : array of shape (n,)
        Number of annotations per instance.
    """

    votes: Sparse
    size: FloatArray


def class_counts(table: AnnotationTable, *, least: int) -> ClassCounts:
    """Count the classes on each instance with at least ``least`` observed annotations."""
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
    """CSR matrix of the sums of ``values`` (None: ones) at the given positions."""
    if values is None:
        return _counted(rows, columns, shape)
    data = np.asarray(values, dtype=np.float64)
    return coo_matrix((data, (rows, columns)), shape=shape).tocsr()


def _counted(rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> Sparse:
    """Count each position: sorting numbers is faster than sorting a sparse matrix."""
    n_rows, n_columns = shape
    dtype: Any = np.int32 if n_rows * n_columns <= np.iinfo(np.int32).max else np.int64
    # In place where possible: allocation costs more than the arithmetic.
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
    """CSR matrix with the sparsity pattern of ``matrix`` and the values ``data``."""
    return csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def per_entry(matrix: Sparse, row_values: AnyArray) -> AnyArray:
    """Repeat each row's value for every stored entry of that row."""
    return np.repeat(row_values, np.diff(matrix.indptr))


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Quotient, NaN where the denominator is 0."""
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    undefined = np.full(shape, np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)


def chance_corrected(agreement: FloatArray, by_chance: FloatArray) -> FloatArray:
    """(a - e) / (1 - e): 1 for full agreement, 0 for chance agreement; NaN where e is 1."""
    return ratio(agreement - by_chance, 1 - by_chance)


def check_option(argument: str, value: str, known: tuple[str, ...]) -> None:
    """Raise an error if ``value`` is not one of the known options."""
    if value not in known:
        raise AnnotationError(
            f"{argument}={value!r} is unknown; use one of {', '.join(map(repr, known))}"
        )
