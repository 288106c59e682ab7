"""Selectors of missing annotations that a model's predictions are to fill.

A selector gets the predicted distribution of each annotation in batches and returns the cells to
add, labelled with their most probable class (or a draw). It never holds the (instances x annotators
x classes) cube, only the best cells so far of each class. Ties go to the first instance and
annotator.

.. [1] Y. Shi, S.-Y. Li, S.-J. Huang. Learning from Crowds with Sparse and Imbalanced Annotations
   (DASC). Machine Learning 112, 2023.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from sklearn.base import BaseEstimator

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.typing import BoolArray, FloatArray, IntArray

Predictions = Iterable[tuple[IntArray, FloatArray]]
"""Batches of instances (b,) and the distributions of all their annotations (b, R, C)."""


@dataclass(frozen=True, eq=False)
class SelectedCells:
    """Cells that a selector chose.

    Attributes
    ----------
    table : AnnotationTable
        Only the chosen cells, with the vocabularies of the original table, marked
        ``source="pseudo"``.
    n_candidates : integer array of shape (n_classes,)
        Number of open cells by the class they would be labelled with: N' of Eq. 4.
    n_selected : integer array of shape (n_classes,)
        Number of chosen cells by class.
    """

    table: AnnotationTable
    n_candidates: IntArray
    n_selected: IntArray


class Selector(BaseEstimator):
    """Base class of selectors.

    A subclass ranks the cells in `_rank` and chooses among the best of each class in `_take`.
    """

    def select(
        self,
        predictions: Predictions,
        table: AnnotationTable,
        n_select: int,
        rng: np.random.Generator,
        *,
        held: AnnotationTable | None = None,
    ) -> SelectedCells:
        """Choose cells without annotation, pass or pseudo-annotation.

        Annotators without annotations get none, because there is nothing to imitate.

        Parameters
        ----------
        predictions : iterable of (instances (b,), proba (b, n_annotators, n_classes))
            Each instance at most once; the last axis sums to 1.
        table : AnnotationTable
            Existing annotations, including earlier pseudo-annotations, so each cell is chosen at
            most once.
        n_select : int
            Maximal number of cells to choose.
        rng : Generator
        held : AnnotationTable, optional
            Held-out annotations over the same vocabularies, on which the model was not trained.
            Their cells are not open, and they do not make an annotator active.

        Returns
        -------
        Selection

        Raises
        ------
        AnnotationError
            If ``n_select`` is not positive or is too small to be shared among the classes, or if a
            batch does not have the table's shape.
        """
        if n_select < 1:
            raise AnnotationError(f"n_select={n_select} must be 1 or more")
        open_cells = _OpenCells(table, held)
        best = [_Best(n_select) for _ in range(table.n_classes)]
        sizes = self._sizes_if_unpredicted(table, n_select)
        # Several classes may claim the same cells; each list is long enough to skip those of
        # others.
        unpredicted = [_Best(int(sizes.sum())) for _ in sizes]
        n_candidates = np.zeros(table.n_classes, dtype=np.int64)
        for instances, proba in predictions:
            expected = (len(instances), table.n_annotators, table.n_classes)
            if np.shape(proba) != expected:
                raise AnnotationError(
                    f"predictions have shape {np.shape(proba)}; give shape {expected} for "
                    f"{len(instances)} instances"
                )
            is_open = open_cells.at(instances)
            row, annotator = np.nonzero(is_open)
            distribution = np.asarray(proba)[row, annotator].astype(np.float64)
            if not np.isfinite(distribution).all():
                raise AnnotationError(
                    "predictions hold numbers that are not finite; the model that predicts "
                    "annotations has diverged (try a lower learning rate)"
                )
            label, rank = self._judge(distribution, rng)
            n_candidates += np.bincount(label, minlength=table.n_classes)
            cell = instances[row].astype(np.int64) * table.n_annotators + annotator
            for c in np.flatnonzero(np.bincount(label, minlength=table.n_classes)):
                best[c].add(rank[label == c], cell[label == c])
            for c in np.flatnonzero(n_candidates == 0):
                unpredicted[c].add(-distribution[:, c], cell)
        taken = _most_probable(unpredicted, n_candidates, sizes)
        for b in best:
            b.sort()
            for _, cells in taken:
                b.leave_out(cells)
        n_left = n_select - sum(len(cells) for _, cells in taken)
        taken += self._take(best, n_candidates, n_left)
        return _selection(table, taken, n_candidates)

    def _sizes_if_unpredicted(self, table: AnnotationTable, n_select: int) -> IntArray:
        """Return how many cells to choose for each class if no open cell is predicted as it."""
        return np.zeros(table.n_classes, dtype=np.int64)

    def _judge(
        self, distribution: FloatArray, rng: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        """Return the label and rank of each cell, shapes (m,), from their distributions."""
        return distribution.argmax(axis=1), self._rank(distribution, rng)

    @abstractmethod
    def _rank(self, distribution: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the rank of each cell, shape (m,), from its distribution; low ranks come first."""

    @abstractmethod
    def _take(
        self, best: list[_Best], n_candidates: IntArray, n_select: int
    ) -> list[tuple[int, IntArray]]:
        """Return the chosen cells as pairs (class, cells)."""


class DistributionAwareSelector(Selector):
    """Choose the most confident cells of each class, more of rare than of frequent classes [1]_.

    For class c, M_c = tau_c M cells are chosen (Eq. 3): those whose annotator-specific distribution
    has the lowest entropy (Eq. 2). tau_c is inversely proportional to the number N'_c of open cells
    predicted as c (Eq. 4). The rarest class then has the largest quota. If that exceeds its cells,
    all of them are chosen. A class with N'_c = 0 has no quota.

    Parameters
    ----------
    refill : bool, default=False
        If True, fill the unused quotas of rare classes with the most confident remaining cells of
        any class. If False, fewer than M cells are chosen and the balance is kept.
    cover_classes : bool, default=False
        If True, a class with N'_c = 0 gets a share of the M cells equal to its share of the
        observed annotations, rounded down. These are the cells at which the class has its highest
        probabilities, although another class is more probable there. The other classes share the
        rest. (An addition to the paper.)
    """

    def __init__(self, refill: bool = False, cover_classes: bool = False) -> None:
        self.refill = refill
        self.cover_classes = cover_classes

    def _sizes_if_unpredicted(self, table: AnnotationTable, n_select: int) -> IntArray:
        crowd = table.observed
        if not self.cover_classes or not crowd.n_annotations:
            return super()._sizes_if_unpredicted(table, n_select)
        counts = np.bincount(crowd.label, minlength=table.n_classes)
        return counts * n_select // crowd.n_annotations

    def _rank(self, distribution: FloatArray, rng: np.random.Generator) -> FloatArray:
        return entropy(distribution)

    def _take(
        self, best: list[_Best], n_candidates: IntArray, n_select: int
    ) -> list[tuple[int, IntArray]]:
        quotas = class_quotas(n_candidates, n_select)
        if n_candidates.any() and not quotas.any():
            raise AnnotationError(
                f"n_select={n_select} is less than the number of predicted classes, "
                f"{np.count_nonzero(n_candidates)}, each of which gets one; use at least as many"
            )
        taken = [(c, best[c].cells[:quota]) for c, quota in enumerate(quotas)]
        if self.refill:
            rest = [
                _Best(n_select, b.rank[q:], b.cells[q:]) for b, q in zip(best, quotas, strict=True)
            ]
            taken += _most_confident(rest, n_select - int(quotas.sum()))
        return taken


class ConfidenceSelector(Selector):
    """Choose the most confident cells (lowest entropy) regardless of class: self-training."""

    def _rank(self, distribution: FloatArray, rng: np.random.Generator) -> FloatArray:
        return entropy(distribution)

    def _take(
        self, best: list[_Best], n_candidates: IntArray, n_select: int
    ) -> list[tuple[int, IntArray]]:
        return _most_confident(best, n_select)


class RandomSelector(Selector):
    """Draw cells uniformly; each is still labelled with its most probable class."""

    def _rank(self, distribution: FloatArray, rng: np.random.Generator) -> FloatArray:
        return rng.random(len(distribution))

    def _take(
        self, best: list[_Best], n_candidates: IntArray, n_select: int
    ) -> list[tuple[int, IntArray]]:
        return _most_confident(best, n_select)


class SamplingSelector(RandomSelector):
    """Draw cells uniformly, and label each with a draw from its distribution.

    With the most probable class, an annotator would never be given a class that they seldom give.
    """

    def _judge(
        self, distribution: FloatArray, rng: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        # Draw both numbers of a cell together, so that they do not depend on the batch size.
        quantile, rank = rng.random((len(distribution), 2)).T
        cumulative = distribution.cumsum(axis=1)
        label = (cumulative <= (quantile * cumulative[:, -1])[:, None]).sum(axis=1)
        return np.minimum(label, distribution.shape[1] - 1), rank


def entropy(distribution: FloatArray) -> FloatArray:
    """Return the entropy of distributions (m, n_classes) in nats, shape (m,); DASC's Eq. 2.

    Examples
    --------
    >>> entropy(np.array([[1.0, 0.0], [0.5, 0.5]])).round(4).tolist()
    [0.0, 0.6931]
    """
    logs = np.log(np.where(distribution > 0, distribution, 1.0))
    # The absolute value turns -0 into 0.
    return np.abs((distribution * logs).sum(axis=1))


def class_quotas(n_candidates: IntArray, n_select: int) -> IntArray:
    """Return the number of cells to choose for each class (Eq. 3 and 4 of DASC).

    Parameters
    ----------
    n_candidates : integer array of shape (n_classes,)
        N'_c. A class gets at most as many cells as it has candidates.
    n_select : int
        M.

    Returns
    -------
    integer array of shape (n_classes,)

    Examples
    --------
    With 40 and 10 candidates the shares are 1/5 and 4/5, or 4 and 16 cells, but there are only 10.

    >>> class_quotas(np.array([40, 10, 0]), 20).tolist()
    [4, 10, 0]
    """
    counts = np.asarray(n_candidates, dtype=np.int64)
    inverse = np.zeros(len(counts))
    inverse[counts > 0] = 1.0 / counts[counts > 0]
    if not inverse.any():
        return np.zeros_like(counts)
    share = inverse / inverse.sum()
    # Round numbers up that rounding errors put just below a whole number.
    return np.minimum(np.floor(share * float(n_select) + 1e-9), counts).astype(np.int64)


@dataclass
class _Best:
    """The ``size`` cells of lowest rank seen so far; ties go to the first cell."""

    size: int
    rank: FloatArray = field(default_factory=lambda: np.zeros(0))
    cells: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(self, rank: FloatArray, cells: IntArray) -> None:
        """Add cells, keeping the best."""
        if not self.size:
            return
        if len(self.rank) == self.size:
            good_enough = rank <= self.rank.max()
            rank, cells = rank[good_enough], cells[good_enough]
        if not len(rank):
            return
        self.rank = np.concatenate([self.rank, rank])
        self.cells = np.concatenate([self.cells, cells])
        # Sorting can wait until there are too many.
        if len(self.rank) > self.size:
            self.sort()

    def sort(self) -> None:
        """Sort by rank, and drop all but the best ``size`` cells."""
        order = np.lexsort((self.cells, self.rank))[: self.size]
        self.rank, self.cells = self.rank[order], self.cells[order]

    def leave_out(self, cells: IntArray) -> None:
        """Remove some cells."""
        kept = ~np.isin(self.cells, cells)
        self.rank, self.cells = self.rank[kept], self.cells[kept]


class _OpenCells:
    """Cells without annotation or pass, by annotators who annotated something."""

    def __init__(self, table: AnnotationTable, held: AnnotationTable | None) -> None:
        closed = [np.column_stack([table.instance, table.annotator])]
        if table.passes is not None:
            closed.append(table.passes[:, :2])
        if held is not None:
            closed.append(np.column_stack([held.instance, held.annotator]))
        instance, annotator = np.concatenate(closed).T
        order = np.argsort(instance, kind="stable")
        self.annotator = annotator[order]
        self.start = np.searchsorted(instance[order], np.arange(table.n_instances + 1))
        self.is_active = table.annotations_per_annotator() > 0

    def at(self, instances: IntArray) -> BoolArray:
        """Return whether each cell of some instances is open, shape (b, n_annotators)."""
        first, end = self.start[instances], self.start[np.asarray(instances) + 1]
        row = np.repeat(np.arange(len(instances)), end - first)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(end - first) - (end - first), end - first)
        is_open = np.tile(self.is_active, (len(instances), 1))
        is_open[row, self.annotator[first[row] + nth]] = False
        return is_open


def _most_probable(
    unpredicted: list[_Best], n_candidates: IntArray, sizes: IntArray
) -> list[tuple[int, IntArray]]:
    """Return (class, cells) of the classes without candidates; each cell is of one class only."""
    taken: list[tuple[int, IntArray]] = []
    for c in np.flatnonzero((n_candidates == 0) & (sizes > 0)):
        unpredicted[c].sort()
        for _, cells in taken:
            unpredicted[c].leave_out(cells)
        taken.append((int(c), unpredicted[c].cells[: sizes[c]]))
    return taken


def _most_confident(best: list[_Best], n: int) -> list[tuple[int, IntArray]]:
    """Return (class, cells) of the n cells of lowest rank over all classes."""
    label = np.repeat(np.arange(len(best)), [len(b.cells) for b in best])
    rank = np.concatenate([b.rank for b in best])
    cells = np.concatenate([b.cells for b in best])
    first = np.lexsort((cells, rank))[:n]
    return [(c, cells[first][label[first] == c]) for c in range(len(best))]


def _selection(
    table: AnnotationTable, taken: list[tuple[int, IntArray]], n_candidates: IntArray
) -> SelectedCells:
    label = np.repeat([c for c, _ in taken], [len(cells) for _, cells in taken])
    cells = np.concatenate([cells for _, cells in taken])
    order = np.argsort(cells)
    chosen = AnnotationTable(
        cells[order] // table.n_annotators,
        cells[order] % table.n_annotators,
        label[order].astype(np.int64),
        table.instances,
        table.annotators,
        table.classes,
        scale=table.scale,
    ).with_source("pseudo")
    n_selected = np.bincount(chosen.label, minlength=table.n_classes)
    return SelectedCells(chosen, n_candidates, n_selected)
