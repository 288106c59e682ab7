"""Digests of the instances that a model was fitted on (16 bytes each), to recognise them later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from manyhands.annotations.table import AnnotationTable
from manyhands.typing import AnyArray, IntArray

_ODD = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


@dataclass(frozen=True, eq=False)
class InstanceDigests:
    """Digests of the annotated instances of a table; pseudo-annotations do not count.

    Attributes
    ----------
    ids : uint64 array of shape (n_annotated,)
        Digest of each instance's id. The integer 7 and the text "7" are the same id.
    votes : uint64 array of shape (n_annotated,)
        Digest of each instance's annotators and labels.
    numbered : bool
        Whether the ids are merely the numbers of the rows.
    """

    ids: IntArray
    votes: IntArray
    numbered: bool

    @classmethod
    def of(cls, y: Any, table: AnnotationTable) -> Self:
        """Digest the annotations of weight above 0.

        Parameters
        ----------
        y : AnnotationTable or array
            The target as the user gave it; it shows whether the ids are merely row numbers.
        table : AnnotationTable
            The same, as read.
        """
        order = y.instance_order.kind if isinstance(y, AnnotationTable) else "numbered"
        numbers = table.instances.dtype.kind in "iu" and np.array_equal(
            table.instances, np.arange(table.n_instances)
        )
        observed = table.observed
        if observed.weights is not None:
            observed = observed.take(observed.weights > 0)
        annotators, classes = _digest(table.annotators), _digest(table.classes)
        each = _mix(_mix(annotators[observed.annotator]) ^ classes[observed.label])
        votes = np.zeros(table.n_instances, dtype=np.uint64)
        np.add.at(votes, observed.instance, each)
        annotated = observed.annotations_per_instance() > 0
        ids = _digest(table.instances[annotated])
        return cls(ids, votes[annotated], order == "numbered" or numbers)

    @classmethod
    def union(cls, parts: Sequence[InstanceDigests]) -> Self:
        """Return the digests of the instances of several tables together."""
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.votes for part in parts]),
            any(part.numbered for part in parts),
        )

    def n_shared(self, other: InstanceDigests) -> int:
        """Count the instances that two tables share.

        Instances with the same id are the same. Row numbers, however, are ids within one table
        only: if one of the tables has no other ids, instances count as shared only if all of those
        with the same number have the same annotations, too.
        """
        _, mine, theirs = np.intersect1d(self.ids, other.ids, return_indices=True)
        if (self.numbered or other.numbered) and (self.votes[mine] != other.votes[theirs]).any():
            return 0
        return len(mine)


def _digest(values: AnyArray) -> IntArray:
    """Digest ids or classes, (n,), by the characters of their text."""
    texts = np.ascontiguousarray(values.astype(str))
    width = texts.dtype.itemsize // 4
    characters = texts.view(np.uint32).reshape(len(texts), width).T
    digest = np.zeros(len(texts), dtype=np.uint64)
    for column in characters.astype(np.uint64):
        digest = np.where(column > 0, _mix(digest ^ column), digest)  # Zeros only pad a text.
    return digest


def _mix(values: IntArray) -> IntArray:
    """Scramble 64-bit integers (the finaliser of SplitMix64)."""
    mixed = values + _ODD
    mixed = (mixed ^ (mixed >> _SHIFTS[0])) * _FACTORS[0]
    mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _FACTORS[1]
    scrambled: IntArray = mixed ^ (mixed >> _SHIFTS[2])
    return scrambled
