"""Cohen's kappa of every pair of annotators who share instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from manyhands.agreement.weighted import (
    Sparse,
    Weighted,
    check_graded,
    check_option,
    per_entry,
    ratio,
    sparse,
)
from manyhands.annotations import AnnotationTable
from manyhands.annotations.columns import require_annotators
from manyhands.annotations.target import require_table
from manyhands.typing import AnyArray, FloatArray, IntArray

KappaWeights = Literal["identity", "quadratic"]

# Largest numbers of pairs of annotations per block, which bound the memory: if they are summed over
# instances, and if they are kept by instance.
_BLOCK_SUMMED, _BLOCK_BY_INSTANCE = 4_000_000, 100_000


@dataclass(frozen=True, eq=False)
class PairwiseKappa:
    """Cohen's kappa of every pair of annotators who share an instance; arrays of shape (n_pairs,).

    Attributes
    ----------
    first, second : integer arrays
        Codes of the annotators (positions in ``table.annotators``), first < second; sorted.
    n_shared : integer array
        Instances that both annotated (pairs of their annotations, if an annotator annotated an
        instance repeatedly).
    kappa : array
        NaN if both always gave one and the same class.
    """

    first: IntArray
    second: IntArray
    n_shared: IntArray
    kappa: FloatArray

    @property
    def mean(self) -> float:
        """Mean of the defined kappas, weighted by ``n_shared``; NaN if there are none."""
        shared = self.n_shared.astype(np.float64)
        return float(_weighted_mean([(shared[:, None], self.kappa[:, None])])[0])


def cohen_kappa(table: AnnotationTable, *, weights: KappaWeights = "identity") -> PairwiseKappa:
    r"""Return Cohen's kappa [1]_ of every pair of annotators, over the instances they share.

    Parameters
    ----------
    table : AnnotationTable
        Observed annotations only.
    weights : {"identity", "quadratic"}, default="identity"
        "identity": all disagreements count equally. "quadratic": a disagreement counts by the
        squared number of steps between the classes in ``table.classes`` (weighted kappa [2]_, for
        ordinal classes).

    Returns
    -------
    PairwiseKappa
        Pairs without a shared instance are left out.

    Raises
    ------
    AnnotationError
        If ``weights`` is unknown, if it needs an order and the classes have none, or if the
        annotators are unknown.

    Notes
    -----
    :math:`\kappa = 1 - D_o / D_e` with the observed disagreement and the disagreement expected from
    the classes that each of the two gave to the shared instances. If an annotator annotated an
    instance repeatedly, each of these annotations is compared with the other annotator's, never
    with one another.

    Time grows with the number of pairs of annotations that share an instance, memory with the
    number of nonempty cells of the contingency tables.

    References
    ----------
    .. [1] J. Cohen. A coefficient of agreement for nominal scales. Educational and Psychological
       Measurement 20(1), 1960.
    .. [2] J. Cohen. Weighted kappa: nominal scale agreement with provision for scaled disagreement
       or partial credit. Psychological Bulletin 70(4), 1968.

    Examples
    --------
    >>> from manyhands import AnnotationTable
    >>> table = AnnotationTable.from_matrix([[0, 0, -1], [0, 1, 1], [1, 1, 1], [1, 1, -1]])
    >>> found = cohen_kappa(table)
    >>> found.first, found.second, found.n_shared, found.kappa
    (array([0, 0, 1]), array([1, 2, 2]), array([4, 2, 2]), array([0.5, 0. , nan]))
    """
    _check_weights(table, weights)
    found = []
    for cells, counts in _summed_cells(shared_annotations(table)):
        shared, kappa = _kappa_of(cells, weights)(counts)
        found.append((cells.first, cells.second, shared[:, 0].astype(np.int64), kappa[:, 0]))
    return PairwiseKappa(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _check_weights(table: AnnotationTable, weights: str) -> None:
    """Refuse unknown weights, and weights that need an order if the order is unknown."""
    check_option("weights", weights, ("identity", "quadratic"))
    if weights != "identity":
        check_graded(table, f"kappa with weights={weights!r}")


def mean_cohen_kappa(table: AnnotationTable, *, weights: KappaWeights = "identity") -> float:
    """Return the mean of the pairwise kappas, weighted by the number of shared instances.

    This is `PairwiseKappa.mean` of `cohen_kappa`. In sparse crowds the mean is too low: the kappas
    of pairs who share few instances are mostly noise, and those of pairs who always agreed on one
    class are undefined and left out. `krippendorff_alpha` does not have this problem.

    Parameters
    ----------
    table : AnnotationTable
        Observed annotations only.
    weights : {"identity", "quadratic"}, default="identity"
        See `cohen_kappa`.

    Returns
    -------
    float
        NaN if no pair has a defined kappa.

    Raises
    ------
    AnnotationError
        As in `cohen_kappa`.
    """
    return cohen_kappa(table, weights=weights).mean


def weighted_cohen(
    table: AnnotationTable, *, weights: KappaWeights = "identity"
) -> Weighted[PairwiseKappa]:
    """Return `cohen_kappa` as a function of instance weights."""
    shared = shared_annotations(table)
    pairs = cohen_kappa(table, weights=weights)
    kappas = _kappas_by_weight(shared, weights)
    return Weighted(
        shared.n,
        lambda w: np.concatenate([kappa for _, kappa in kappas(w)]),
        lambda kappa: PairwiseKappa(pairs.first, pairs.second, pairs.n_shared, kappa),
    )


def weighted_mean_cohen(
    table: AnnotationTable, *, weights: KappaWeights = "identity"
) -> Weighted[float]:
    """Return `mean_cohen_kappa` as a function of instance weights."""
    _check_weights(table, weights)
    shared = shared_annotations(table)
    kappas = _kappas_by_weight(shared, weights)
    return Weighted(shared.n, lambda w: _weighted_mean(kappas(w)), float)


def _weighted_mean(found: Iterable[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Return the mean kappa, (B,), over blocks of (shared instances, kappas), (n_pairs, B)."""
    total, weight = np.zeros(1), np.zeros(1)
    for shared, kappa in found:
        defined = ~np.isnan(kappa)
        total = total + np.where(defined, shared * kappa, 0).sum(axis=0)
        weight = weight + np.where(defined, shared, 0).sum(axis=0)
    return ratio(total, weight)


# -- dense matrices of the pairs among some annotators, for pictures -------------------------------


def instance_agreement(table: AnnotationTable) -> FloatArray:
    """Return the share of agreeing pairs, of the instances with two or more annotations."""
    cells = table.instance.astype(np.int64) * table.n_classes + table.label
    names, counts = np.unique(cells, return_counts=True)
    n = table.annotations_per_instance()
    equal = np.bincount(names // table.n_classes, counts * (counts - 1.0), minlength=len(n))
    several = n > 1
    return np.asarray(equal[several] / (n * (n - 1.0))[several])


def agreement_of_pairs(table: AnnotationTable, chosen: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the share of equal annotations and the number compared, both (R, R)."""
    place = np.full(table.n_annotators, -1)
    place[chosen] = np.arange(len(chosen))
    kept = place[table.annotator] >= 0
    rows, columns, labels = table.instance[kept], place[table.annotator[kept]], table.label[kept]
    shape = (table.n_instances, len(chosen))

    def joint(part: AnyArray) -> AnyArray:
        given = csr_matrix((np.ones(part.sum()), (rows[part], columns[part])), shape=shape)
        return np.asarray((given.T @ given).toarray())

    shared = joint(np.ones(len(rows), dtype=bool))
    equal = sum((joint(labels == code) for code in np.unique(labels)), np.zeros(shared.shape))
    with np.errstate(invalid="ignore"):
        return equal / np.where(shared > 0, shared, np.nan), shared.astype(np.int64)


def kappa_of_pairs(table: AnnotationTable, chosen: IntArray) -> FloatArray:
    """Return Cohen's kappa, (R, R); NaN where it is undefined."""
    found = cohen_kappa(table)
    place = np.full(table.n_annotators, -1)
    place[chosen] = np.arange(len(chosen))
    first, second = place[found.first], place[found.second]
    kept = (first >= 0) & (second >= 0)
    kappa = np.full((len(chosen), len(chosen)), np.nan)
    kappa[first[kept], second[kept]] = kappa[second[kept], first[kept]] = found.kappa[kept]
    return kappa


# -- annotations of shared instances --------------------------------------------------------------


class SharedAnnotations(NamedTuple):
    """Observed annotations of the n instances that at least two annotators annotated.

    ``group`` numbers the distinct (annotator, class) pairs, sorted by annotator, then class.
    """

    n: int
    n_annotators: int
    instance: IntArray
    group: IntArray
    group_annotator: IntArray
    group_label: IntArray

    @property
    def by_instance(self) -> Sparse:
        """Number of annotations per instance and group, shape (n, n_groups)."""
        return sparse(None, self.instance, self.group, (self.n, len(self.group_label)))


def shared_annotations(table: AnnotationTable) -> SharedAnnotations:
    """Collect the observed annotations of instances that at least two annotators annotated."""
    require_table(table)
    require_annotators(table, "comparing annotators")
    observed = table.observed
    n_annotators, n_classes = max(observed.n_annotators, 1), max(observed.n_classes, 1)
    visits = np.unique(observed.instance.astype(np.int64) * n_annotators + observed.annotator)
    visitors = np.bincount(visits // n_annotators, minlength=observed.n_instances)
    kept = observed.take(visitors[observed.instance] > 1)
    rows = (np.cumsum(visitors > 1) - 1)[kept.instance]
    groups, group = np.unique(
        kept.annotator.astype(np.int64) * n_classes + kept.label, return_inverse=True
    )
    n = int((visitors > 1).sum())
    return SharedAnnotations(n, n_annotators, rows, group, groups // n_classes, groups % n_classes)


# -- contingency tables ---------------------------------------------------------------------------


class _Cells(NamedTuple):
    """Cells of the pairwise contingency tables that may be nonempty.

    ``first`` and ``second``, the annotators, have shape (n_pairs,). ``pair``, a position in them,
    and ``row`` and ``column``, the classes that the two gave, have shape (n_cells,), sorted by
    pair.
    """

    first: IntArray
    second: IntArray
    pair: IntArray
    row: IntArray
    column: IntArray


def _cells(shared: SharedAnnotations, rows: IntArray, columns: IntArray) -> tuple[_Cells, IntArray]:
    """Return the cells of pairs of groups, and the order that sorts them by annotators."""
    first, second = shared.group_annotator[rows], shared.group_annotator[columns]
    pairs, pair = np.unique(first * shared.n_annotators + second, return_inverse=True)
    order = np.argsort(pair, kind="stable")
    return _Cells(
        pairs // shared.n_annotators,
        pairs % shared.n_annotators,
        pair[order],
        shared.group_label[rows[order]],
        shared.group_label[columns[order]],
    ), order


def _summed_cells(shared: SharedAnnotations) -> Iterator[tuple[_Cells, FloatArray]]:
    """Yield all pairs' cells with their counts (n_cells, 1), in blocks of first annotators."""
    by_instance = shared.by_instance
    by_group = by_instance.T.tocsr()
    for start, stop in _blocks(shared, by_group, _BLOCK_SUMMED):
        joint = (by_group[start:stop] @ by_instance).tocoo()
        rows, columns = joint.row + start, joint.col
        once = shared.group_annotator[rows] < shared.group_annotator[columns]
        cells, order = _cells(shared, rows[once], columns[once])
        yield cells, joint.data[once][order][:, None]


def _cells_by_instance(shared: SharedAnnotations) -> Iterator[tuple[_Cells, Sparse]]:
    """Yield the cells with what each instance adds to them, shape (n_cells, n), in blocks."""
    by_instance = shared.by_instance
    by_group = by_instance.T.tocsr()
    start_of, size = by_instance.indptr[:-1], np.diff(by_instance.indptr)
    n_groups = len(shared.group_label)
    for start, stop in _blocks(shared, by_group, _BLOCK_BY_INSTANCE):
        block = by_group[start:stop]
        group = per_entry(block, np.arange(start, stop))
        # Pair every annotation of the block with every other annotation of its instance.
        left = np.repeat(np.arange(block.nnz), size[block.indices])
        first = np.cumsum(size[block.indices]) - size[block.indices]
        right = np.arange(len(left)) + (start_of[block.indices] - first)[left]
        rows, columns = group[left], by_instance.indices[right]
        once = shared.group_annotator[rows] < shared.group_annotator[columns]
        left, right = left[once], right[once]
        names, cell = np.unique(rows[once] * n_groups + columns[once], return_inverse=True)
        cells, order = _cells(shared, names // max(n_groups, 1), names % max(n_groups, 1))
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        counts = block.data[left] * by_instance.data[right]
        shape = (len(names), shared.n)
        yield cells, sparse(counts, position[cell], block.indices[left], shape)


def _blocks(shared: SharedAnnotations, by_group: Sparse, limit: int) -> list[tuple[int, int]]:
    """Return ranges of groups with about ``limit`` pairs each that split no annotator."""
    size = by_group.T @ np.ones(by_group.shape[0])
    work = np.concatenate([[0], np.cumsum(by_group @ size)])
    firsts = np.concatenate([[0], np.flatnonzero(np.diff(shared.group_annotator)) + 1])
    starts = firsts[np.diff(work[firsts] // limit, prepend=-1) > 0]
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(work) - 1], strict=True))


def _kappas_by_weight(
    shared: SharedAnnotations, weights: KappaWeights
) -> Callable[[FloatArray], Iterator[tuple[FloatArray, FloatArray]]]:
    """Map weights (n, B) to blocks of (shared instances, kappas), each of shape (n_pairs, B)."""
    blocks = [(counts, _kappa_of(cells, weights)) for cells, counts in _cells_by_instance(shared)]
    return lambda w: (kappa_of(counts @ w) for counts, kappa_of in blocks)


def _kappa_of(
    cells: _Cells, weights: KappaWeights
) -> Callable[[FloatArray], tuple[FloatArray, FloatArray]]:
    """Map counts of the cells (n_cells, B) to shared instances and kappa, both (n_pairs, B)."""
    total = _per_pair(cells, np.ones(len(cells.pair)))
    disagreement = _unequal(cells) if weights == "identity" else _squares(cells)

    def kappa_of(counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        shared = total @ counts
        observed, expected = disagreement(counts, shared)
        return shared, 1 - ratio(shared * observed, expected)

    return kappa_of


def _per_pair(cells: _Cells, values: AnyArray) -> Sparse:
    """Return the matrix that sums ``values`` times counts over the cells of each pair."""
    shape = (len(cells.first), len(cells.pair))
    return sparse(values, cells.pair, np.arange(len(cells.pair)), shape)


# Maps cell counts and numbers of shared instances n to the disagreement summed over instances, and
# to n^2 times the mean disagreement expected from the margins.
_Disagreement = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


def _unequal(cells: _Cells) -> _Disagreement:
    """Return a disagreement of 1 for unequal classes."""
    k, n_pairs = len(cells.pair), len(cells.first)
    n_classes = 1 + max(cells.row.max(initial=0), cells.column.max(initial=0))
    pairs, classes = np.tile(cells.pair, 2), np.concatenate([cells.row, cells.column])
    names, margin = np.unique(pairs * n_classes + classes, return_inverse=True)
    of_first = sparse(None, margin[:k], np.arange(k), (len(names), k))
    of_second = sparse(None, margin[k:], np.arange(k), (len(names), k))
    over_classes = sparse(None, names // n_classes, np.arange(len(names)), (n_pairs, len(names)))
    unequal = _per_pair(cells, cells.row != cells.column)

    def disagreement(counts: FloatArray, shared: FloatArray) -> tuple[FloatArray, FloatArray]:
        equal_by_chance = over_classes @ ((of_first @ counts) * (of_second @ counts))
        return unequal @ counts, shared**2 - equal_by_chance

    return disagreement


def _squares(cells: _Cells) -> _Disagreement:
    """Return the disagreement by the squared number of steps between the classes."""
    row, column = cells.row.astype(np.float64), cells.column.astype(np.float64)
    steps = _per_pair(cells, (row - column) ** 2)
    squares = _per_pair(cells, row**2 + column**2)
    firsts, seconds = _per_pair(cells, row), _per_pair(cells, column)

    def disagreement(counts: FloatArray, shared: FloatArray) -> tuple[FloatArray, FloatArray]:
        products = (firsts @ counts) * (seconds @ counts)
        return steps @ counts, shared * (squares @ counts) - 2 * products

    return disagreement
