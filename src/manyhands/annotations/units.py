"""Independent units: families of annotators, and annotators without one, each count once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.annotations.groups import ALONE, in_families
from manyhands.typing import BoolArray, IntArray

LEAST_SHARED = 30
"""Instances with two of the other units from which on these can be told from the busiest one."""

AS_ONE = "annotators who may share mistakes"
"""Family of annotators who are not declared to be one."""


def unit_of(table: Any, alike: BoolArray | None = None) -> IntArray:
    """Number the unit of each annotator, shape (R,).

    Parameters
    ----------
    table : AnnotationTable
    alike : boolean array of shape (R,), optional
        Annotators without a family who count as one unit.
    """
    n = table.n_annotators
    unit = np.arange(n)
    members = in_families(table.groups, n)
    if members.any():
        unit[members] = n + np.unique(table.groups, return_inverse=True)[1][members]
    if alike is not None:
        unit[alike] = -1
    return np.unique(unit, return_inverse=True)[1].astype(np.int64)


def in_one_family(table: Any, alike: BoolArray) -> Any:
    """Return the table with these annotators declared as one more family."""
    groups = np.full(table.n_annotators, ALONE, dtype=object)
    if table.groups is not None:
        groups[:] = table.groups
    groups[alike] = AS_ONE
    return table.with_groups(groups.tolist(), table.group_rho)


def units_per_instance(table: Any) -> IntArray:
    """Number of units that annotated each instance, shape (n,); votes without names count each."""
    table = table.observed
    if not getattr(table, "annotators_known", True):
        return np.asarray(table.annotations_per_instance())
    return np.bincount(_pairs(table)[:, 0], minlength=table.n_instances)


def can_be_judged(table: Any, known: BoolArray | None = None) -> bool:
    """Whether agreement tells how good the annotators are, by what the other units share.

    How often two units agree is one figure, and there are two accuracies to be told from it. So it
    takes a third. A unit that annotated nearly everything, beside others who never annotated the
    same instance, leaves as much open: all of these may be better, and that one worse.

    Parameters
    ----------
    table : AnnotationTable
        Votes of which nobody knows who gave them are taken to be by many.
    known : boolean array of shape (n,), optional
        Instances with known labels, which count as the annotations of one more unit.
    """
    if not getattr(table.observed, "annotators_known", True):
        return True
    return Overlap.of(table, known).judges


@dataclass(frozen=True)
class Overlap:
    """How many units share instances; parts of a table, over other instances, add up.

    Attributes
    ----------
    n_annotated, n_by_two, n_by_more : int
        Instances with any unit, with exactly two, and with more.
    of_unit, of_unit_by_two : integer arrays of shape (n_units + 1,)
        Instances of each unit, and those that one other shares; known labels are the last unit.
    """

    n_annotated: int
    n_by_two: int
    n_by_more: int
    of_unit: IntArray
    of_unit_by_two: IntArray

    @classmethod
    def of(cls, table: Any, known: BoolArray | None = None) -> Overlap:
        """Count the units of a table's instances; ``known`` as in `can_be_judged`."""
        table = table.observed
        n_units = int(unit_of(table).max(initial=-1)) + 1
        pairs = _pairs(table)
        if known is not None and known.any():
            rows = np.intersect1d(np.flatnonzero(known), pairs[:, 0])
            more = np.full(len(rows), n_units)
            pairs = np.concatenate([pairs, np.column_stack([rows, more])])
        n = np.bincount(pairs[:, 0], minlength=table.n_instances)
        by_two = pairs[n[pairs[:, 0]] == 2, 1]
        return cls(
            int((n > 0).sum()),
            int((n == 2).sum()),
            int((n > 2).sum()),
            np.bincount(pairs[:, 1], minlength=n_units + 1),
            np.bincount(by_two, minlength=n_units + 1),
        )

    def __add__(self, other: Overlap) -> Overlap:
        """Return the counts of both."""
        return Overlap(
            self.n_annotated + other.n_annotated,
            self.n_by_two + other.n_by_two,
            self.n_by_more + other.n_by_more,
            self.of_unit + other.of_unit,
            self.of_unit_by_two + other.of_unit_by_two,
        )

    @property
    def judges(self) -> bool:
        """Whether enough instances have two units besides the busiest one; see `can_be_judged`."""
        busiest = self.of_unit.argmax()
        n_shared = self.n_by_more + self.n_by_two - self.of_unit_by_two[busiest]
        return bool(n_shared >= min(LEAST_SHARED, 0.5 * self.n_annotated))


def _pairs(table: Any) -> IntArray:
    """Instances and units, each pair once, shape (m, 2)."""
    pairs = np.column_stack([table.instance, unit_of(table)[table.annotator]])
    found: IntArray = np.unique(pairs, axis=0)
    return found
