"""Which of the annotations that nobody gave a model's predictions should stand in for.

A selector sees the predicted distribution of every annotation, batch by batch, and returns the
cells to be added, labelled with their most probable class (or a draw). The (instances x
annotators x classes) cube is never held: a running best of each class is. Ties go to the first
instance and annotator.

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
"""Batches: instances (b,), and the distribution of every annotation of theirs (b, R, C)."""


@dataclass(frozen=True, eq=False)
class Selection:
    """What a selector chose.

    Attributes
    ----------
    table : AnnotationTable
        The chosen cells alone, over the vocabularies of the table they are for, marked
        ``source="pseudo"``.
    n_candidates : integer array of shape (n_classes,)
        Open cells by the class they would be labelled with: N' of Eq. 4.
    n_selected : integer array of shape (n_classes,)
        Of these, the chosen ones.
    """

    table: AnnotationTable
    n_candidates: IntArray
    n_selected: IntArray


class Selector(BaseEstimator):
    """Base of selectors: a rank of cells, and how many of every class.

    A subclass says in `_rank` what makes a cell come first, and in `_quotas` how many cells of
    every predicted class are taken.
    """

    def select(
        self,
        predictions: Predictions,
        table: AnnotationTable,
        n_select: int,
        rng: np.random.Generator,
        *,
        held: AnnotationTable | None = None,
    ) -> Selection:
        """Choose cells that nobody has annotated, passed or been given a label in.

        Annotators without any annotation get none: there is nobody to imitate.

        Parameters
        ----------
        predictions : iterable of (instances (b,), proba (b, n_annotators, n_classes))
            Every instance once at most; the last axis sums to 1.
        table : AnnotationTable
            What is there, earlier pseudo-annotations included: cells are chosen once.
        n_select : int
            Most cells to choose.
        rng : Generator
        held : AnnotationTable, optional
            Annotations, over the same vocabularies, that the model was not trained on: they are
            no gaps, and do not make an annotator heard.

        Raises
        ------
        AnnotationError
            If ``n_select`` is not positive, or too small to be shared among the classes, or a
            batch has another shape than the table.
        """
        if n_select < 1:
            raise AnnotationError(f"n_select={n_select} must be 1 or more")
        open_cells = _OpenCells(table, held)
        best = [_Best(n_select) for _ in range(table.n_classes)]
        n_candidates = np.zeros(table.n_classes, dtype=np.int64)
        for instances, proba in predictions:
            expected = (len(instances), table.n_annotators, table.n_classes)
            if np.shape(proba) != expected:
                raise AnnotationError(
                    f"predictions have shape {np.shape(proba)}; {expected} is needed for "
                    f"{len(instances)} instances"
                )
            is_open = open_cells.at(instances)
            row, annotator = np.nonzero(is_open)
            distribution = np.asarray(proba)[row, annotator].astype(np.float64)
            if not np.isfinite(distribution).all():
                raise AnnotationError(
                    "predictions hold numbers that are not finite; the model that predicts "
                    "annotations has diverged"
                )
            label, rank = self._judge(distribution, rng)
            n_candidates += np.bincount(label, minlength=table.n_classes)
            cell = instances[row].astype(np.int64) * table.n_annotators + annotator
            for c in np.flatnonzero(np.bincount(label, minlength=table.n_classes)):
                best[c].add(rank[label == c], cell[label == c])
        for b in best:
            b.sort()
        taken = self._take(best, n_candidates, n_select)
        return _selection(table, taken, n_candidates)

    def _judge(
        self, distribution: FloatArray, rng: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        """Label and rank of every cell, shapes (m,), from its distribution (m, n_classes)."""
        return distribution.argmax(axis=1), self._rank(distribution, rng)

    @abstractmethod
    def _rank(self, distribution: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Rank of every cell, shape (m,), from its distribution (m, n_classes); low comes first."""

    @abstractmethod
    def _take(
        self, best: list[_Best], n_candidates: IntArray, n_select: int
    ) -> list[tuple[int, IntArray]]:
        """Return (class, cells) of what is chosen."""


class DistributionAwareSelector(Selector):
    """The most confident cells of every class, more of rare classes than of frequent ones [1]_.

    Of class c, M_c = tau_c M cells are chosen (Eq. 3), those whose annotator-specific
    distribution has the lowest entropy (Eq. 2), with tau_c inversely proportional to the number
    N'_c of open cells predicted as c (Eq. 4). The rarest class then has the largest quota, often
    more cells than there are: it gives what it has.

    Parameters
    ----------
    refill : bool, default=False
        Make up for what rare classes could not give with the most confident cells left, of
        whatever class; otherwise fewer than M cells are chosen, and the balance is kept.
    """

    def __init__(self, refill: bool = False) -> None:
        self.refill = refill

    def _rank(self, distribution: FloatArray, rng: np.random.Generator) -> FloatArray:
        return entropy(distribution)

    def _take(
        self, best: list[_Best], n_candidates: IntArray, n_select: int
    ) -> list[tuple[int, IntArray]]:
        quotas = class_quotas(n_candidates, n_select)
        if n_candidates.any() and not quotas.any():
            raise AnnotationError(
                f"n_select={n_select} cannot be shared among the {np.count_nonzero(n_candidates)} "
                "classes predicted; use as many, or more"
            )
        taken = [(c, best[c].cells[:quota]) for c, quota in enumerate(quotas)]
        if self.refill:
            rest = [
                _Best(n_select, b.rank[q:], b.cells[q:]) for b, q in zip(best, quotas, strict=True)
            ]
            taken += _most_confident(rest, n_select - int(quotas.sum()))
        return taken


class ConfidenceSelector(Selector):
    """The most confident cells of all (lowest entropy), whatever their class: self-training."""

    def _rank(self, distribution: FloatArray, rng: np.random.Generator) -> FloatArray:
        return entropy(distribution)

    def _take(
        self, best: list[_Best], n_candidates: IntArray, n_select: int
    ) -> list[tuple[int, IntArray]]:
        return _most_confident(best, n_select)


class RandomSelector(Selector):
    """Cells drawn uniformly; their labels are still the most probable class."""

    def _rank(self, distribution: FloatArray, rng: np.random.Generator) -> FloatArray:
        return rng.random(len(distribution))

    def _take(
        self, best: list[_Best], n_candidates: IntArray, n_select: int
    ) -> list[tuple[int, IntArray]]:
        return _most_confident(best, n_select)


class SamplingSelector(RandomSelector):
    """Cells drawn uniformly, each labelled with a draw from its distribution.

    The most probable class alone leaves out what an annotator seldom says.
    """

    def _judge(
        self, distribution: FloatArray, rng: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        # Together, so that the draws of a cell do not depend on the size of the batches.
        place, rank = rng.random((len(distribution), 2)).T
        up_to = distribution.cumsum(axis=1)
        label = (up_to <= (place * up_to[:, -1])[:, None]).sum(axis=1)
        return np.minimum(label, distribution.shape[1] - 1), rank


def entropy(distribution: FloatArray) -> FloatArray:
    """Entropy of distributions (m, n_classes) in nats, shape (m,); DASC's Eq. 2.

    Examples
    --------
    >>> entropy(np.array([[1.0, 0.0], [0.5, 0.5]])).round(4).tolist()
    [0.0, 0.6931]
    """
    logs = np.log(np.where(distribution > 0, distribution, 1.0))
    # Rounding must not make a certain cell less than certain: 0, not -0.
    return np.abs((distribution * logs).sum(axis=1))


def class_quotas(n_candidates: IntArray, n_select: int) -> IntArray:
    """Cells to choose of every class: Eq. 3 and 4 of DASC, at most what a class has.

    Parameters
    ----------
    n_candidates : integer array of shape (n_classes,)
        N'_c; a class nobody is predicted to name gets none.
    n_select : int
        M.

    Examples
    --------
    Of 40 and 10 candidates, shares of 1/5 and 4/5: 4 and 16, of which there are 10.

    >>> class_quotas(np.array([40, 10, 0]), 20).tolist()
    [4, 10, 0]
    """
    counts = np.asarray(n_candidates, dtype=np.int64)
    inverse = np.zeros(len(counts))
    inverse[counts > 0] = 1.0 / counts[counts > 0]
    if not inverse.any():
        return np.zeros_like(counts)
    share = inverse / inverse.sum()
    # What is whole up to rounding is whole.
    return np.minimum(np.floor(share * float(n_select) + 1e-9), counts).astype(np.int64)


@dataclass
class _Best:
    """The ``size`` cells of lowest rank seen so far; ties go to the first cell."""

    size: int
    rank: FloatArray = field(default_factory=lambda: np.zeros(0))
    cells: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(self, rank: FloatArray, cells: IntArray) -> None:
        """See more cells."""
        if len(self.rank) == self.size:
            worth = rank <= self.rank.max()
            rank, cells = rank[worth], cells[worth]
        if not len(rank):
            return
        self.rank = np.concatenate([self.rank, rank])
        self.cells = np.concatenate([self.cells, cells])
        # Until there are too many, all are taken, in whatever order.
        if len(self.rank) > self.size:
            self.sort()

    def sort(self) -> None:
        """Put them in order, and drop what is too many."""
        order = np.lexsort((self.cells, self.rank))[: self.size]
        self.rank, self.cells = self.rank[order], self.cells[order]


class _OpenCells:
    """Cells of a table without annotation or pass, of annotators who annotated something."""

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
        self.is_heard = table.annotations_per_annotator() > 0

    def at(self, instances: IntArray) -> BoolArray:
        """Whether each cell of some instances is open, shape (b, n_annotators)."""
        first, end = self.start[instances], self.start[np.asarray(instances) + 1]
        place = np.repeat(np.arange(len(instances)), end - first)
        nth = np.arange(len(place)) - np.repeat(np.cumsum(end - first) - (end - first), end - first)
        is_open = np.tile(self.is_heard, (len(instances), 1))
        is_open[place, self.annotator[first[place] + nth]] = False
        return is_open


def _most_confident(best: list[_Best], n: int) -> list[tuple[int, IntArray]]:
    """Return (class, cells) of the n cells of lowest rank over all classes."""
    label = np.repeat(np.arange(len(best)), [len(b.cells) for b in best])
    rank = np.concatenate([b.rank for b in best])
    cells = np.concatenate([b.cells for b in best])
    first = np.lexsort((cells, rank))[:n]
    return [(c, cells[first][label[first] == c]) for c in range(len(best))]


def _selection(
    table: AnnotationTable, taken: list[tuple[int, IntArray]], n_candidates: IntArray
) -> Selection:
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
    ).with_source("pseudo")
    n_selected = np.bincount(chosen.label, minlength=table.n_classes)
    return Selection(chosen, n_candidates, n_selected)
