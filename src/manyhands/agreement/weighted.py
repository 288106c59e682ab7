"""Agreement measures as functions of instance weights.

Each measure is a formula over sums of per-instance figures. A weight says how often an instance
counts: weights of 1 give the measure, and the jackknife sets some to 0. So many values cost one
product of a thin matrix with a matrix of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix, vstack

from manyhands.annotations import AnnotationTable
from manyhands.annotations.class_order import check_order
from manyhands.annotations.target import Sharded, is_sharded, require_table
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray, IntArray

# A float64 CSR matrix. SciPy's type stubs cannot tell its product with a dense matrix (dense) from
# that with a sparse matrix (sparse).
Sparse: TypeAlias = Any
T = TypeVar("T")

Annotations: TypeAlias = AnnotationTable | Sharded
"""Types of tables that the measures of the whole crowd accept."""


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
    times : array of shape (n,) or None
        Number of equal instances that each weight stands for, in a store; None: one each.
    least : float or array that broadcasts to (...)
        Smallest possible value: 0 for a share, -1 for a coefficient. The largest is 1.
    """

    n: int
    at: Callable[[FloatArray], FloatArray]
    pack: Callable[[FloatArray], T]
    times: FloatArray | None = None
    least: float | FloatArray = -1.0

    def value(self) -> T:
        """Return the value of the measure if each instance counts once."""
        times = np.ones(self.n) if self.times is None else self.times
        return self.pack(self.at(times[:, None])[..., 0])


class ClassCounts(NamedTuple):
    """Number of annotations per instance and class, as a sparse matrix.

    Attributes
    ----------
    votes : CSR matrix of shape (n, C)
        With sorted column indices and no stored zeros.
    size : array of shape (n,)
        Number of annotations per instance.
    times : array of shape (n,) or None
        For a store, number of instances that have these counts.
    """

    votes: Sparse
    size: FloatArray
    times: FloatArray | None = None


def class_counts(table: Annotations, *, least: int) -> ClassCounts:
    """Count the classes on each instance with at least ``least`` observed annotations.

    Instances of a store that have the same counts are one row, so that memory grows with the number
    of different counts only.
    """
    require_table(table)
    if is_sharded(table):
        return _distinct_counts(table, least)
    observed = cast(AnnotationTable, table).observed
    shape = (observed.n_instances, observed.n_classes)
    votes = sparse(None, observed.instance, observed.label, shape)
    size = np.bincount(observed.instance, minlength=observed.n_instances)
    enough = size >= least
    if not enough.all():
        votes, size = votes[enough], size[enough]
    return ClassCounts(votes, size.astype(np.float64))


def _distinct_counts(store: Sharded, least: int) -> ClassCounts:
    """Return the distinct counts of classes in a store, and how many instances have them."""
    # Instances have equal counts if the sums of random numbers, one per label, are equal.
    marks = np.random.default_rng(0).integers(2**63, size=store.n_classes, dtype=np.uint64)
    parts = []
    for number in range(store.n_shards):
        shard = store.shard(number)
        size = np.diff(shard.start)
        annotated = np.flatnonzero(size >= least)
        if not len(annotated):
            continue
        with np.errstate(over="ignore"):
            sums = np.concatenate([[np.uint64(0)], np.cumsum(marks[shard.label], dtype=np.uint64)])
            own = sums[shard.start[1:]][annotated] - sums[shard.start[:-1]][annotated]
        found, first, times = np.unique(own, return_index=True, return_counts=True)
        chosen = annotated[first]
        rows = np.repeat(shard.start[chosen], size[chosen])
        offset = np.repeat(np.cumsum(size[chosen]) - size[chosen], size[chosen])
        labels = shard.label[rows + np.arange(len(rows)) - offset]
        instance = np.repeat(np.arange(len(chosen)), size[chosen])
        votes = sparse(None, instance, labels, (len(chosen), store.n_classes))
        parts.append((found, votes, times))
    if not parts:
        empty = csr_matrix((0, store.n_classes))
        return ClassCounts(empty, np.zeros(0), np.zeros(0))
    marked, rows_of, counted = zip(*parts, strict=True)
    _, first, same = np.unique(np.concatenate(marked), return_index=True, return_inverse=True)
    votes = vstack(rows_of, format="csr")[first]
    alike: FloatArray = np.bincount(same, np.concatenate(counted)).astype(np.float64)
    return ClassCounts(votes, np.asarray(votes @ np.ones(store.n_classes)), alike)


def sparse(
    values: AnyArray | None, rows: IntArray, columns: IntArray, shape: tuple[int, int]
) -> Sparse:
    """Return the CSR matrix of the sums of ``values`` (None: ones) at the given positions."""
    if values is None:
        return _counted(rows, columns, shape)
    data = np.asarray(values, dtype=np.float64)
    return coo_matrix((data, (rows, columns)), shape=shape).tocsr()


SPARSE = 8
"""Cells per position above which positions are sorted rather than counted in an array."""


def _counted(rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> Sparse:
    """Count each position, in an array of all cells unless they are many times more."""
    n_rows, n_columns = shape
    dtype: Any = np.int32 if n_rows * n_columns <= np.iinfo(np.int32).max else np.int64
    # In place where possible: allocation costs more than the arithmetic.
    places = np.multiply(rows, n_columns, dtype=dtype)
    places += columns
    if n_rows * n_columns <= SPARSE * len(places):
        cells = np.bincount(places, minlength=n_rows * n_columns)
        taken = np.flatnonzero(cells).astype(dtype)
        counts = cells[taken]
    else:
        places.sort()
        is_first = np.ones(len(places), dtype=bool)
        np.not_equal(places[1:], places[:-1], out=is_first[1:])
        first = np.flatnonzero(is_first)
        taken, counts = places[first], np.diff(first, append=len(places))
    row, column = np.divmod(taken, dtype(max(n_columns, 1)))
    start = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_rows))])
    return csr_matrix((counts.astype(np.float64), column, start), shape=shape)


def with_data(matrix: Sparse, data: FloatArray) -> Sparse:
    """Return a CSR matrix with the sparsity pattern of ``matrix`` and the values ``data``."""
    return csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def per_entry(matrix: Sparse, row_values: AnyArray) -> AnyArray:
    """Repeat each row's value for every stored entry of that row."""
    return np.repeat(row_values, np.diff(matrix.indptr))


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Return the quotient, NaN where the denominator is 0."""
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    undefined = np.full(shape, np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)


def chance_corrected(agreement: FloatArray, by_chance: FloatArray) -> FloatArray:
    """Return (a - e) / (1 - e): agreement beyond chance; NaN where e is 1."""
    return ratio(agreement - by_chance, 1 - by_chance)


def check_graded(table: Annotations, statistic: str) -> None:
    """Refuse a statistic of grades if their order is unknown.

    Raises
    ------
    AnnotationError
        If more than two classes are merely sorted as text.
    """
    require_table(table)
    check_order(table.classes, table.class_order, statistic)


def check_option(argument: str, value: str, known: tuple[str, ...]) -> None:
    """Raise an error if ``value`` is not one of the known options."""
    if value not in known:
        raise AnnotationError(
            f"{argument}={value!r} is unknown; use one of {', '.join(map(repr, known))}"
        )
