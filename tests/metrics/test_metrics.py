import numpy as np
import pytest
from scipy.stats import beta
from sklearn.metrics import f1_score

from manyhands import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.metrics import (
    accuracy,
    annotator_reliability,
    expected_calibration_error,
    macro_f1,
    minority_recall,
)

TABLE = AnnotationTable.from_matrix(
    np.array([[0, 1, -1, 0], [0, 0, -1, -1], [1, 1, -1, -1], [1, 0, -1, -1]])
)
POSTERIOR = np.array([[0.9, 0.1], [1.0, 0.0], [0.0, 1.0], [0.4, 0.6]])


def test_the_interval_by_hand():
    found = annotator_reliability(TABLE, POSTERIOR)
    # Annotator 0: 0.9 + 1 + 1 + 0.6 = 3.5 of 4 right; annotator 1: 0.1 + 1 + 1 + 0.4 = 2.5.
    np.testing.assert_array_equal(found.n_annotations, [4, 4, 0, 1])
    np.testing.assert_allclose(found.accuracy, [0.875, 0.625, np.nan, 0.9])
    successes = np.array([3.5, 2.5, 0.0, 0.9])
    a, b = successes + 0.5, found.n_annotations - successes + 0.5
    np.testing.assert_allclose(found.lower, beta.ppf(0.025, a, b))
    np.testing.assert_allclose(found.upper, beta.ppf(0.975, a, b))


def test_a_silent_annotator_has_the_interval_of_the_prior():
    found = annotator_reliability(TABLE, POSTERIOR)
    # The arcsine law: quantile p is sin(pi p / 2) squared.
    assert found.lower[2] == pytest.approx(np.sin(np.pi * 0.025 / 2) ** 2)
    assert found.upper[2] == pytest.approx(np.sin(np.pi * 0.975 / 2) ** 2)


def test_a_wider_level_is_a_wider_interval():
    narrow, wide = (annotator_reliability(TABLE, POSTERIOR, level=q) for q in (0.5, 0.99))
    assert (wide.lower < narrow.lower).all()
    assert (narrow.upper < wide.upper).all()


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    right = rng.random((20, 3000)) < 0.7
    table = AnnotationTable.from_matrix(np.where(right, 0, 1), classes=[0, 1])
    found = annotator_reliability(table, np.tile([1.0, 0.0], (20, 1)))
    assert np.mean((found.lower <= 0.7) & (found.upper >= 0.7)) == pytest.approx(0.95, abs=0.02)


def test_only_observed_rows_count_each_once():
    extra = AnnotationTable.from_arrays(
        [3], [2], [1], n_instances=4, n_annotators=4, classes=[0, 1]
    )
    added = TABLE.with_added(extra.with_source("pseudo"))
    weighted = AnnotationTable.from_arrays(
        TABLE.instance, TABLE.annotator, TABLE.label, n_instances=4, n_annotators=4,
        weight=np.linspace(0.1, 2, TABLE.n_annotations),
    )  # fmt: skip
    for other in (added, weighted):
        for mine, theirs in zip(
            annotator_reliability(TABLE, POSTERIOR),
            annotator_reliability(other, POSTERIOR),
            strict=True,
        ):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("posterior", "level", "message"),
    [
        (POSTERIOR[:3], 0.95, r"shape \(3, 2\).*\(4, 2\)"),
        (POSTERIOR * np.nan, 0.95, "holds.*nan.*instance 0"),
        (POSTERIOR * 2, 0.95, "holds.*1.8"),
        (POSTERIOR, 95, "level=95"),
    ],
)
def test_what_does_not_fit_is_named(posterior, level, message):
    with pytest.raises(AnnotationError, match=message):
        annotator_reliability(TABLE, posterior, level=level)


def test_an_empty_table_has_an_empty_answer():
    table = AnnotationTable.from_matrix(np.full((3, 2), -1), classes=["a", "b"])
    found = annotator_reliability(table, np.full((3, 2), 0.5))
    assert np.isnan(found.accuracy).all()


def test_accuracy_and_macro_f1():
    y, predicted = np.array(list("aaabbc")), np.array(list("aabbba"))
    assert accuracy(y, predicted) == pytest.approx(4 / 6)
    assert macro_f1(y, predicted) == pytest.approx(
        f1_score(y, predicted, average="macro", zero_division=0)
    )


@pytest.mark.parametrize("measure", [accuracy, macro_f1, minority_recall])
def test_lengths_must_fit(measure):
    with pytest.raises(AnnotationError, match=r"\(2,\).*\(3,\)"):
        measure([0, 1], [0, 1, 1])


def test_minority_recall_takes_the_rarer_half():
    y = np.repeat(["a", "b", "c", "d", "e"], [9, 7, 5, 3, 2])
    predicted = y.copy()
    predicted[y == "c"] = "a"  # in the middle: not a minority of five
    predicted[np.flatnonzero(y == "d")[:1]] = "a"  # 2 of 3 right
    predicted[y == "e"] = "a"  # none right
    assert minority_recall(y, predicted) == pytest.approx((2 / 3 + 0) / 2)
    assert minority_recall(y, predicted, minority=["c", "d"]) == pytest.approx(1 / 3)
    assert np.isnan(minority_recall(["a", "a"], ["a", "b"]))
    with pytest.raises(AnnotationError, match="'z'"):
        minority_recall(y, predicted, minority=["z"])


def test_calibration_error_by_hand():
    proba = np.array([[0.9, 0.1], [0.8, 0.2], [0.35, 0.65], [0.55, 0.45]])
    y = np.array(["a", "b", "b", "b"])
    # Two bins (0, 1/2], (1/2, 1]: all four in the second; mean confidence .725, accuracy .5.
    assert expected_calibration_error(proba, y, n_bins=2) == pytest.approx(0.225)
    # Ten bins: .9 in (.8, .9], .8 in (.7, .8], .65 in (.6, .7], .55 in (.5, .6].
    expected = (abs(1 - 0.9) + abs(0 - 0.8) + abs(1 - 0.65) + abs(0 - 0.55)) / 4
    assert expected_calibration_error(proba, y, n_bins=10) == pytest.approx(expected)


def test_calibration_error_needs_the_classes_where_gold_lacks_one():
    proba = [[0.7, 0.2, 0.1]]
    assert expected_calibration_error(proba, [0], classes=[0, 1, 2]) == pytest.approx(0.3)
    with pytest.raises(AnnotationError, match="classes="):
        expected_calibration_error(proba, [0])
    with pytest.raises(AnnotationError, match="n_bins=0"):
        expected_calibration_error(proba, [0], classes=[0, 1, 2], n_bins=0)
