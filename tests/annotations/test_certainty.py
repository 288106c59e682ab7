"""Label certainty (ICED, Eq. 2.4) and its groups; label assurance (NeuCrowd, Def. 2)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands import AnnotationTable
from manyhands.annotations import certainty_groups, label_assurance, label_certainty
from manyhands.exceptions import AnnotationError


def _loop_certainty(matrix, n_classes, epsilon):
    """Eq. 2.4 word for word: the inverse of the mean squared distance from the mean."""
    found = []
    for row in matrix:
        vectors = [np.eye(n_classes)[label] for label in row if label >= 0]
        mean = sum(vectors) / len(vectors)
        variance = sum(((v - mean) ** 2).sum() for v in vectors) / len(vectors)
        found.append(1 / (variance + epsilon))
    return found


def test_unanimous_split_and_tied_by_hand():
    table = AnnotationTable.from_matrix([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 0]])
    # Shares (0, 1), (1/4, 3/4), (1/2, 1/2): variances 0, 3/8, 1/2.
    expected = [1 / 0.1, 1 / (3 / 8 + 0.1), 1 / (1 / 2 + 0.1)]
    np.testing.assert_allclose(label_certainty(table, epsilon=0.1), expected)


def test_three_classes_by_hand():
    table = AnnotationTable.from_matrix([[0, 1, 2], [0, 0, 2]])
    expected = [1 / (2 / 3 + 0.5), 1 / (4 / 9 + 0.5)]
    np.testing.assert_allclose(label_certainty(table, epsilon=0.5), expected)


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=2, max_size=8).filter(
        lambda rows: len({label for row in rows for label in row}) > 1
    )
)
def test_equals_the_loop(rows):
    table = AnnotationTable.from_matrix(np.array(rows), classes=[0, 1, 2])
    np.testing.assert_allclose(label_certainty(table), _loop_certainty(rows, 3, 0.1))


def test_unequal_counts_are_smoothed_so_that_one_vote_is_less_certain_than_five():
    rows = [[1, 1, 1, 1, 1], [1, -1, -1, -1, -1], [0, -1, -1, -1, -1]]
    table = AnnotationTable.from_matrix(rows)
    five, one, other = label_certainty(table)
    assert five > one == other
    # Shares (.5, 5.5) / 6 and (.5, 1.5) / 2.
    np.testing.assert_allclose(five, 1 / (1 - (0.5 / 6) ** 2 - (5.5 / 6) ** 2 + 0.1))
    np.testing.assert_allclose(one, 1 / (1 - 0.25**2 - 0.75**2 + 0.1))
    np.testing.assert_allclose(label_certainty(table, smoothing=0), [10, 10, 10])


def test_weights_count_and_instances_without_annotations_have_none():
    table = AnnotationTable.from_arrays(
        [0, 0], [0, 1], ["a", "b"], weight=[3.0, 1.0], instances=[0, 1]
    )
    certainty = label_certainty(table)
    np.testing.assert_allclose(certainty[0], 1 / (3 / 8 + 0.1))
    assert np.isnan(certainty[1])
    assert certainty_groups(certainty).tolist() == [3, 0]


def test_seven_annotators_have_the_papers_four_levels():
    rows = [[1] * (7 - k) + [0] * k for k in range(8)]
    groups = certainty_groups(label_certainty(AnnotationTable.from_matrix(rows)))
    assert groups.tolist() == [3, 2, 1, 0, 0, 1, 2, 3]


def test_fewer_levels_fill_from_the_top_and_the_lowest_is_left_out():
    five = [[1] * (5 - k) + [0] * k for k in range(3)]
    groups = certainty_groups(label_certainty(AnnotationTable.from_matrix(five)))
    assert groups.tolist() == [3, 2, 0]
    assert certainty_groups(np.array([10.0, 10.0])).tolist() == [3, 3]
    assert certainty_groups(np.array([10.0, 5.0, 1.0]), n_groups=2).tolist() == [2, 1, 0]


def test_quantiles_are_of_about_equal_size_and_keep_levels_together():
    certainty = np.arange(1.0, 101.0)
    groups = certainty_groups(certainty, by="quantiles")
    assert np.bincount(groups).tolist() == [25, 25, 25, 25]
    assert (np.diff(groups) >= 0).all()
    tied = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], [1, 1, 1, 1, 60])
    assert len(np.unique(certainty_groups(tied, by="quantiles")[4:])) == 1


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([1, 1, 1, 1, 60], [0, 0, 0, 0, 3]), ([60, 1, 1, 1, 1], [0, 3, 3, 3, 3])],
)
def test_a_level_of_most_instances_leaves_no_group_empty_at_the_top(counts, expected):
    levels = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    groups = certainty_groups(np.repeat(levels, counts), by="quantiles")
    np.testing.assert_array_equal(groups, np.repeat(expected, counts))


def test_a_level_is_in_the_quantile_of_its_middle():
    # Of 8 instances the middles are .5, 2, 4, 6 and 7.5, the starts 0, 1, 3, 5 and 7.
    certainty = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], [1, 2, 2, 2, 1])
    groups = certainty_groups(certainty, by="quantiles")
    assert groups.tolist() == [0, 1, 1, 2, 2, 3, 3, 3]


def test_equal_shares_of_other_classes_are_one_level():
    # The sums of their squares differ in the last place.
    rows = [[0, 1, 2, 2, 2], [0, 1, 1, 1, 2], [0, 0, 0, 1, 2], [0, 0, 0, 0, 0]]
    certainty = label_certainty(AnnotationTable.from_matrix(rows))
    assert len(np.unique(certainty)) == 3
    for by in ("levels", "quantiles"):
        assert certainty_groups(certainty, by=by).tolist() == [0, 0, 0, 3]


@pytest.mark.parametrize("smoothing", ["much", -1.0, True])
def test_wrong_smoothing_is_named(smoothing):
    table = AnnotationTable.from_matrix([[0, 1]])
    with pytest.raises(AnnotationError, match="smoothing"):
        label_certainty(table, smoothing=smoothing)


def test_wrong_parameters_are_named():
    table = AnnotationTable.from_matrix([[0, 1]])
    with pytest.raises(AnnotationError, match="epsilon=0"):
        label_certainty(table, epsilon=0)
    with pytest.raises(AnnotationError, match="n_groups=0"):
        certainty_groups(np.ones(2), 0)
    with pytest.raises(AnnotationError, match="by='size'"):
        certainty_groups(np.ones(2), by="size")


# -- label assurance ------------------------------------------------------------------------------


def test_assurance_of_the_papers_examples_and_of_a_tie():
    rows = [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    table = AnnotationTable.from_matrix(rows)
    np.testing.assert_allclose(label_assurance(table), [1.0, 0.2, 1.0, 0.6])
    tied = label_assurance(AnnotationTable.from_matrix([[1, 1, 0, 0], [0, 1, 1, 1]]))
    assert tied.tolist() == [0.0, 0.5]


@given(st.lists(st.lists(st.integers(0, 1), min_size=7, max_size=7), min_size=1, max_size=8))
def test_assurance_of_two_classes_is_the_printed_formula(rows):
    table = AnnotationTable.from_matrix(np.array(rows), classes=[0, 1])
    printed = [abs(1 - 2 / len(row) * sum(row)) for row in rows]
    np.testing.assert_allclose(label_assurance(table), printed, atol=1e-12)


def test_assurance_of_several_classes_by_hand():
    rows = [[0, 1, 2], [0, 0, 2], [2, 2, 2]]
    table = AnnotationTable.from_matrix(rows)
    # Of three classes (3 p - 1) / 2, with p = 1/3, 2/3, 1.
    np.testing.assert_allclose(label_assurance(table), [0.0, 0.5, 1.0], atol=1e-12)
    assert label_assurance(table)[0] == 0, "a tie of all classes is exactly 0"
    # A class that nobody gave is a class: of four (4 p - 1) / 3.
    wider = AnnotationTable.from_matrix(rows, classes=[0, 1, 2, 3])
    np.testing.assert_allclose(label_assurance(wider), [1 / 9, 5 / 9, 1.0])


def test_assurance_goes_by_weights():
    table = AnnotationTable.from_arrays([0, 0], [0, 1], ["a", "b"], weight=[3.0, 1.0])
    np.testing.assert_allclose(label_assurance(table), [0.5])


def test_assurance_of_unequal_counts_is_smoothed_and_of_none_unknown():
    rows = [[1, 1, 1, 1, 1], [1, -1, -1, -1, -1], [-1, -1, -1, -1, -1], [0, 1, -1, -1, -1]]
    table = AnnotationTable.from_matrix(rows)
    # One vote more, half of it for either class: shares 5.5 / 6 and 1.5 / 2.
    expected = [2 * 5.5 / 6 - 1, 0.5, np.nan, 0.0]
    np.testing.assert_allclose(label_assurance(table), expected)
    np.testing.assert_allclose(label_assurance(table, smoothing=0), [1.0, 1.0, np.nan, 0.0])
    np.testing.assert_allclose(label_assurance(table, smoothing=2), [5 / 9, 1 / 5, np.nan, 0.0])
    # Of equal counts there is nothing to be smoothed, whoever has no annotation at all.
    equal = AnnotationTable.from_matrix([[1, 1, -1], [-1, -1, -1], [0, -1, 0], [-1, 1, 0]])
    np.testing.assert_array_equal(label_assurance(equal), [1.0, np.nan, 1.0, 0.0])


def test_annotations_of_weight_zero_make_no_counts_unequal():
    rows, annotators = [0, 0, 1, 1, 1], [0, 1, 0, 1, 2]
    labels, weights = ["a", "a", "a", "b", "b"], [1.0, 1.0, 1.0, 1.0, 0.0]
    table = AnnotationTable.from_arrays(rows, annotators, labels, weight=weights)
    np.testing.assert_allclose(label_assurance(table), [1.0, 0.0])


def test_assurance_of_the_only_class_is_whole():
    table = AnnotationTable.from_matrix([[0, 0], [-1, -1]], classes=[0])
    np.testing.assert_array_equal(label_assurance(table), [1.0, np.nan])


@given(
    st.lists(st.lists(st.integers(-1, 2), min_size=4, max_size=4), min_size=2, max_size=8).filter(
        lambda rows: any(label >= 0 for row in rows for label in row)
    ),
    st.randoms(use_true_random=False),
)
def test_assurance_knows_no_order_of_instances_annotators_or_classes(rows, random):
    A = np.array(rows)
    own = label_assurance(AnnotationTable.from_matrix(A, classes=[0, 1, 2]))
    instances, annotators, names = (random.sample(range(n), n) for n in (len(A), 4, 3))
    permuted = A[instances][:, annotators]
    permuted = np.where(permuted >= 0, np.array(names)[permuted], -1)
    found = label_assurance(AnnotationTable.from_matrix(permuted, classes=[0, 1, 2]))
    np.testing.assert_allclose(found, own[instances], atol=1e-12)
    known = own[~np.isnan(own)]
    assert ((known >= 0) & (known <= 1)).all()
    np.testing.assert_array_equal(np.isnan(own), (A < 0).all(axis=1))


@pytest.mark.parametrize("smoothing", ["much", -0.1, True, np.nan, np.inf])
def test_wrong_smoothing_of_assurance_is_named(smoothing):
    table = AnnotationTable.from_matrix([[0, 1]])
    with pytest.raises(AnnotationError, match="smoothing"):
        label_assurance(table, smoothing=smoothing)
