"""Independent units: families of annotators, and annotators without one, each count once."""

from __future__ import annotations

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
    table = table.observed
    if not getattr(table, "annotators_known", True) or not table.n_annotations:
        return True
    pairs = _pairs(table)
    if known is not None and known.any():
        rows = np.intersect1d(np.flatnonzero(known), pairs[:, 0])
        more = np.full(len(rows), pairs[:, 1].max() + 1)
        pairs = np.concatenate([pairs, np.column_stack([rows, more])])
    n_annotated = len(np.unique(pairs[:, 0]))
    busiest = np.bincount(pairs[:, 1]).argmax()
    others = np.bincount(pairs[pairs[:, 1] != busiest, 0], minlength=1)
    return bool((others > 1).sum() >= min(LEAST_SHARED, 0.5 * n_annotated))


def _pairs(table: Any) -> IntArray:
    """Instances and units, each pair once, shape (m, 2)."""
    pairs = np.column_stack([table.instance, unit_of(table)[table.annotator]])
    found: IntArray = np.unique(pairs, axis=0)
    return found
