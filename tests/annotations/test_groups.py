"""Families count as one annotator, and what their agreement tells."""

import numpy as np
import pytest

from manyhands import AnnotationTable
from manyhands.annotations.groups import can_be_judged, in_one_family, unit_of, units_per_instance

GAP = -1


def table_of(rows, groups=None):
    table = AnnotationTable.from_matrix(np.array(rows), classes=[0, 1])
    return table if groups is None else table.with_groups(groups)


def test_a_family_is_one_unit_and_so_are_those_who_are_alike():
    table = table_of([[0, 0, 1, 1, 0]] * 3, ["llm", "llm", None, None, "alone"])
    unit = unit_of(table)
    assert unit[0] == unit[1]
    assert len(np.unique(unit)) == 4
    alike = np.array([False, False, True, True, False])
    assert len(np.unique(unit_of(table, alike))) == 3
    assert len(np.unique(unit_of(in_one_family(table, alike)))) == 3
    assert units_per_instance(table).tolist() == [4, 4, 4]
    assert units_per_instance(in_one_family(table, alike)).tolist() == [3, 3, 3]


def test_undeclared_families_keep_the_declared_correlation():
    table = AnnotationTable.from_matrix(np.zeros((3, 4), dtype=int), classes=[0, 1])
    table = table.with_groups(["llm", "llm", None, None], 0.5)
    assert in_one_family(table, np.array([False, False, True, True])).group_rho == 0.5


@pytest.mark.parametrize(
    ("row", "groups", "judged"),
    [
        ([0], None, False),
        ([0, 1], None, False),
        ([0, 1, 0], None, True),
        ([0, 1, 0], ["llm", "llm", None], False),
        ([0, 1, 0, 1], ["llm", "llm", None, None], True),
        ([0, 1, 0, 1], ["llm", "llm", "b", "b"], False),
    ],
)
def test_it_takes_three_units_to_judge_them(row, groups, judged):
    assert can_be_judged(table_of([row] * 40, groups)) is judged


def test_others_who_share_nothing_do_not_judge_the_one_who_annotated_everything():
    star = [[0, 1, GAP, GAP], [0, GAP, 1, GAP], [1, GAP, GAP, 1]] * 40
    assert not can_be_judged(table_of(star))
    assert can_be_judged(table_of([*star, *[[0, 1, 1, GAP]] * 30]))
    assert not can_be_judged(table_of([*star, *[[0, 1, 1, GAP]] * 29]))
    # Known labels are annotations by one more.
    known = np.arange(120) < 30
    assert can_be_judged(table_of(star), known)
    assert not can_be_judged(table_of(star), np.arange(120) < 29)


def test_a_ring_of_pairs_is_enough():
    ring = [[0, 1, GAP], [0, GAP, 1], [GAP, 0, 0]] * 40
    assert can_be_judged(table_of(ring))
