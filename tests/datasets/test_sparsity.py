"""Removal of annotations: exact numbers, nested removals, what stays; and as data of a row."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands.annotations import AnnotationTable
from manyhands.datasets import load_demo, make_conal_synthetic, remove_annotations
from manyhands.evidence.data.sets import Data
from manyhands.evidence.data.variants import with_annotations_removed
from manyhands.exceptions import AnnotationError

SEEDS = st.integers(0, 2**31 - 1)


@st.composite
def datasets(draw):
    n, r = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    cells = draw(st.lists(st.integers(-1, 2), min_size=n * r, max_size=n * r))
    table = AnnotationTable.from_matrix(np.reshape(cells, (n, r)), classes=[0, 1, 2])
    return Data(X_train=np.zeros((n, 1)), annotations=table, y_train=np.zeros(n, dtype=int))


def cells(data):
    table = data.annotations
    columns = (table.instance, table.annotator, table.label)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=200, deadline=None)
@given(datasets(), st.floats(0, 1, exclude_max=True), SEEDS)
def test_exactly_the_fraction_goes_and_nothing_else_changes(data, fraction, seed):
    less = remove_annotations(data, fraction, random_state=seed)
    before, after = data.annotations, less.annotations
    assert before.n_annotations - after.n_annotations == round(fraction * before.n_annotations)
    # What is left is what was there, in its order.
    there = iter(cells(data))
    assert all(cell in there for cell in cells(less))
    for name in ("instances", "annotators", "classes"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert less.X_train is data.X_train
    assert less.y_train is data.y_train
    again = remove_annotations(data, fraction, random_state=seed)
    assert again.annotations.equals(after)


@settings(max_examples=200, deadline=None)
@given(
    datasets(),
    st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2),
    SEEDS,
    st.booleans(),
)
def test_greater_fractions_remove_what_smaller_ones_do(data, fractions, seed, keep_one):
    if keep_one:
        n = max(data.annotations.n_annotations, 1)
        spare = n - np.count_nonzero(data.annotations.annotations_per_instance())
        fractions = [fraction * spare / n for fraction in fractions]
    small, great = (
        set(cells(remove_annotations(data, f, random_state=seed, keep_one=keep_one)))
        for f in sorted(fractions)
    )
    assert great <= small


@settings(max_examples=200, deadline=None)
@given(datasets(), st.floats(0, 1, exclude_max=True), SEEDS)
def test_keep_one_keeps_one_or_says_why_not(data, fraction, seed):
    before = data.annotations.annotations_per_instance()
    wanted = round(fraction * before.sum())
    if wanted > before.sum() - np.count_nonzero(before):
        with pytest.raises(AnnotationError, match=r"keep_one=True keeps one for each of"):
            remove_annotations(data, fraction, random_state=seed, keep_one=True)
        return
    left = remove_annotations(data, fraction, random_state=seed, keep_one=True).annotations
    assert before.sum() - left.n_annotations == wanted
    assert ((left.annotations_per_instance() > 0) == (before > 0)).all()


def test_removal_with_keep_one_by_a_loop():
    data = load_demo()
    table = data.annotations
    removed, left = [], table.annotations_per_instance().copy()
    for row in np.random.RandomState(7).permutation(table.n_annotations):
        if left[table.instance[row]] > 1 and len(removed) < round(0.6 * table.n_annotations):
            left[table.instance[row]] -= 1
            removed.append(row)
    expected = table.take(np.delete(np.arange(table.n_annotations), removed))
    found = remove_annotations(data, 0.6, random_state=7, keep_one=True).annotations
    assert found.equals(expected)


def test_the_fraction_that_the_error_names_is_possible():
    data = load_demo()
    with pytest.raises(AnnotationError, match=r"use a fraction up to 0\.675"):
        remove_annotations(data, 0.7, keep_one=True)
    left = remove_annotations(data, 0.675, keep_one=True).annotations
    assert left.annotations_per_instance().min() == 1


def test_every_annotation_is_as_likely_to_go():
    data = load_demo()
    n = data.annotations.n_annotations
    gone = np.zeros(n)
    whole = {cell: row for row, cell in enumerate(cells(data))}
    for seed in range(60):
        left = [whole[cell] for cell in cells(remove_annotations(data, 0.5, random_state=seed))]
        gone[np.delete(np.arange(n), left)] += 1
    halves = [half.mean() / 60 for half in np.array_split(gone, 10)]
    np.testing.assert_allclose(halves, 0.5, atol=4.5 * 0.5 / np.sqrt(60 * n / 10))


def test_weights_and_sources_stay_with_their_annotations():
    data = load_demo()
    n = data.annotations.n_annotations
    table = replace(data.annotations, weights=np.arange(n), sources=np.arange(n) % 3)
    left = remove_annotations(replace(data, annotations=table), 0.5).annotations
    rows = left.weight.astype(int)
    assert left.equals(table.take(rows))
    assert not remove_annotations(data, 0.5).annotations.equals(data.annotations)


def test_the_truth_of_a_simulation_is_cut_likewise():
    data = make_conal_synthetic()
    less = remove_annotations(data, 0.7, random_state=3)
    place = {cell: row for row, cell in enumerate(cells(data))}
    rows = [place[cell] for cell in cells(less)]
    for name in ("gate", "from_common", "guessed"):
        np.testing.assert_array_equal(getattr(less.truth, name), getattr(data.truth, name)[rows])
    assert less.truth.confusion is data.truth.confusion


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan"), "0.2", None])
def test_fractions_out_of_range_are_named(fraction):
    with pytest.raises(AnnotationError, match=r"fraction=.*\[0, 1\)"):
        remove_annotations(load_demo(), fraction)


def test_a_row_removes_annotations_of_other_data():
    made = with_annotations_removed({"name": "demo"}, 0.4, random_state=2, keep_one=True)
    expected = remove_annotations(load_demo(), 0.4, random_state=2, keep_one=True)
    assert isinstance(made, Data)
    for field in fields(Data):
        if field.name not in ("annotations", "truth"):
            np.testing.assert_array_equal(getattr(made, field.name), getattr(expected, field.name))
    assert made.annotations.equals(expected.annotations)
