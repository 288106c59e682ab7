"""Krippendorff's alpha for answers that are sets, with distances between sets [1]_.

.. [1] R. Passonneau. Measuring agreement on set-valued items (MASI) for semantic and pragmatic
   annotation. LREC 2006.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from manyhands.agreement.weighted import (
    ClassCounts,
    Weighted,
    check_option,
    class_counts,
    per_entry,
    ratio,
)
from manyhands.annotations.label_set_table import LabelSetTable
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray, IntArray

Distance = Literal["nominal", "jaccard", "masi"]

DISTANCES = ("nominal", "jaccard", "masi")

MOST_SETS = 20_000
"""Largest number of different sets for which all pairs are compared."""

KEPT = 2_000
"""Largest number of different sets for which the distances are kept in memory."""

AT_ONCE = 4_000_000
"""Number of distances that are computed at once."""


def weighted_set_alpha(table: Any, *, distance: Distance = "jaccard") -> Weighted[float]:
    """Return alpha of a `LabelSetTable` as a function of instance weights."""
    check_option("distance", distance, DISTANCES)
    if not isinstance(table, LabelSetTable):
        raise AnnotationError(
            f"distance={distance!r} compares sets of labels, but these are single labels; leave it "
            "out, or give a LabelSetTable (LabelSetTable.from_frame)"
        )
    counts = class_counts(table.answers, least=2)
    given = np.unique(counts.votes.indices)
    votes = counts.votes[:, given]
    sets = Sets(table._sets[given].astype(np.float64), distance)
    sets.check()
    per_instance = _observed(sets, ClassCounts(votes, counts.size)) / (counts.size - 1)

    def at(w: FloatArray) -> FloatArray:
        totals = votes.T @ w
        n = totals.sum(axis=0)
        expected = sets.expected(totals)
        return 1 - ratio((n - 1) * (per_instance @ w), expected)

    return Weighted(len(counts.size), at, float, counts.times)


@dataclass(frozen=True)
class Sets:
    """Distances between distinct sets.

    Attributes
    ----------
    holds : CSR array of shape (K, n_options)
        Options of each set.
    distance : {"nominal", "jaccard", "masi"}
        See `krippendorff_alpha`.
    """

    holds: Any
    distance: str

    def check(self) -> None:
        """Refuse more distinct sets than can be compared.

        Raises
        ------
        AnnotationError
            If there are more than `MOST_SETS`, and the distance is not "nominal".
        """
        n = self.holds.shape[0]
        if n > MOST_SETS and self.distance != "nominal":
            raise AnnotationError(
                f"{n:,} different sets occur, and distance={self.distance!r} compares all pairs of "
                f"up to {MOST_SETS:,}; give a random sample of the instances, table[rows], or "
                "measure the agreement on each option (option_agreement), which has no such limit"
            )

    @cached_property
    def sizes(self) -> FloatArray:
        """Number of options of each set, shape (K,)."""
        return np.diff(self.holds.indptr).astype(np.float64)

    def between(self, one: IntArray, other: IntArray) -> FloatArray:
        """Return the distance of each pair of sets, shape (m,)."""
        if self.distance == "nominal":
            return (one != other).astype(np.float64)
        shared = self.holds[one].multiply(self.holds[other]).sum(axis=1)
        return self._distance(np.asarray(shared).ravel(), self.sizes[one], self.sizes[other])

    def _distance(self, shared: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
        union = a + b - shared
        alike = np.divide(shared, union, out=np.ones_like(union), where=union > 0)
        if self.distance == "masi":
            part = np.where(shared == np.minimum(a, b), 2 / 3, 1 / 3)
            alike *= np.where(shared == np.maximum(a, b), 1.0, part)
        return 1 - alike

    def _rows(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield the distances of some sets to all sets, shape (k, K), one part at a time."""
        n = self.holds.shape[0]
        step = max(AT_ONCE // max(n, 1), 1)
        for first in range(0, n, step):
            part = slice(first, min(first + step, n))
            shared = (self.holds[part] @ self.holds.T).toarray()
            yield part, self._distance(shared, self.sizes[part, None], self.sizes[None, :])

    @cached_property
    def _kept(self) -> list[tuple[slice, FloatArray]]:
        return list(self._rows())

    def expected(self, totals: FloatArray) -> FloatArray:
        """Sum of the distances of all ordered pairs of answers; ``totals`` (K, B) count sets."""
        if self.distance == "nominal":
            return np.asarray(totals.sum(axis=0) ** 2 - (totals**2).sum(axis=0))
        found = np.zeros(totals.shape[1])
        for part, rows in self._kept if self.holds.shape[0] <= KEPT else self._rows():
            found += (totals[part] * (rows @ totals)).sum(axis=0)
        return found


def _observed(sets: Sets, counts: ClassCounts) -> FloatArray:
    """Sum of the distances of the ordered pairs of answers of each instance, shape (n,)."""
    votes, found = counts.votes, np.zeros(len(counts.size))
    different = np.diff(votes.indptr)
    place = np.arange(votes.nnz) - per_entry(votes, votes.indptr[:-1])
    row = per_entry(votes, np.arange(len(different)))
    for step in range(1, int(different.max(initial=1))):
        # Pairs of answers of one instance that stand this far apart in the sorted order.
        first = np.flatnonzero(place + step < different[row])
        second = first + step
        pairs = votes.indices[first] * np.int64(votes.shape[1]) + votes.indices[second]
        distinct, back = np.unique(pairs, return_inverse=True)
        distances = np.concatenate(
            [
                sets.between(*np.divmod(part, votes.shape[1]))
                for part in np.array_split(distinct, len(distinct) // 500_000 + 1)
            ]
        )
        values = 2 * votes.data[first] * votes.data[second] * distances[back]
        found += np.bincount(row[first], values, minlength=len(found))
    return found
