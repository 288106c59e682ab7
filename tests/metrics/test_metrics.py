import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import beta
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, f1_score

from manyhands import AnnotationTable, DawidSkene, decide, make_crowd
from manyhands.exceptions import AnnotationError
from manyhands.metrics import (
    accuracy,
    annotator_reliability,
    balanced_accuracy,
    brier_score,
    coverage_risk,
    expected_calibration_error,
    macro_f1,
    minority_recall,
    reliability_curve,
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
    # Variance .9 * .1 + .6 * .4 = .33 of both, 0, and .09; means 4/5, 3/5, 1/2 and 1.4/2.
    mean = np.array([0.8, 0.6, 0.5, 0.7])
    size = np.array([5 - 0.33 / 0.16, 5 - 0.33 / 0.24, 1, 2 - 0.09 / 0.21])
    np.testing.assert_allclose(found.lower, beta.ppf(0.025, size * mean, size * (1 - mean)))
    np.testing.assert_allclose(found.upper, beta.ppf(0.975, size * mean, size * (1 - mean)))


def test_certain_labels_give_the_jeffreys_interval():
    found = annotator_reliability(TABLE, POSTERIOR.round())
    right = np.array([4, 2, 0, 1])
    a, b = right + 0.5, found.n_annotations - right + 0.5
    np.testing.assert_allclose(found.lower, beta.ppf(0.025, a, b))
    np.testing.assert_allclose(found.upper, beta.ppf(0.975, a, b))


@given(arrays(np.float64, (12, 1), elements=st.floats(0, 1)))
def test_uncertain_labels_tell_less_than_certain_ones_and_never_less_than_nothing(p):
    table = AnnotationTable.from_matrix(np.zeros((12, 1), dtype=int), classes=[0, 1])
    found = annotator_reliability(table, np.hstack([p, 1 - p]))
    s = p.sum()
    mean = (s + 0.5) / 13
    # The central interval of a beta distribution widens as its size falls from 13 to 1.
    for size, inside in ((13.0, True), (1.0, False)):
        lower, upper = beta.ppf([0.025, 0.975], size * mean, size * (1 - mean))
        wider = (found.lower[0] <= lower + 1e-9) & (found.upper[0] >= upper - 1e-9)
        narrower = (found.lower[0] >= lower - 1e-9) & (found.upper[0] <= upper + 1e-9)
        assert wider if inside else narrower


def test_where_nothing_is_known_of_the_labels_the_interval_is_the_prior():
    found = annotator_reliability(TABLE, np.full((4, 2), 0.5))
    np.testing.assert_allclose(found.lower, np.sin(np.pi * 0.025 / 2) ** 2)
    np.testing.assert_allclose(found.upper, np.sin(np.pi * 0.975 / 2) ** 2)


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


@pytest.mark.parametrize(
    ("n_classes", "prior"), [(2, [0.5, 0.5]), (2, [0.9, 0.1]), (4, [0.25] * 4)]
)
def test_the_interval_covers_where_labels_are_inferred(n_classes, prior):
    inside = []
    for seed in range(25):
        rng = np.random.RandomState(seed)
        table, truth = make_crowd(
            rng.choice(n_classes, size=300, p=prior), n_annotators=20, noise="uniform",
            noise_strength=(0.1, 0.4), classes=range(n_classes), random_state=rng,
            return_truth=True,
        )  # fmt: skip
        found = annotator_reliability(table, DawidSkene().fit(table).posterior_)
        accuracy = truth.confusion.diagonal(axis1=1, axis2=2) @ prior
        inside += [(found.lower <= accuracy) & (accuracy <= found.upper)]
    # Wider than with gold: the posterior also allows for shared mistakes.
    assert 0.92 < np.mean(inside) < 0.997


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


@pytest.mark.parametrize("measure", [accuracy, balanced_accuracy, macro_f1, minority_recall])
def test_lengths_must_fit(measure):
    with pytest.raises(AnnotationError, match=r"\(2,\).*\(3,\)"):
        measure([0, 1], [0, 1, 1])


def test_balanced_accuracy_is_the_mean_recall_of_the_classes_there_are():
    y, predicted = np.array(list("aaaabbc")), np.array(list("aaabbac"))
    assert balanced_accuracy(y, predicted) == pytest.approx((3 / 4 + 1 / 2 + 1) / 3)
    assert balanced_accuracy(y, predicted) == pytest.approx(balanced_accuracy_score(y, predicted))
    # A class that is only predicted has no recall to count.
    assert balanced_accuracy(list("aab"), list("azb")) == pytest.approx((1 / 2 + 1) / 2)
    assert balanced_accuracy(["a", "a"], ["a", "b"]) == 0.5


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


# -- uncertainty against gold ----------------------------------------------------------------------


@st.composite
def probabilities_and_gold(draw):
    n, c = draw(st.integers(1, 12)), draw(st.integers(2, 4))
    counts = draw(arrays(np.int64, (n, c), elements=st.integers(0, 5)))
    counts[:, 0] += counts.sum(axis=1) == 0
    y = draw(arrays(np.int64, n, elements=st.integers(0, c - 1)))
    return counts / counts.sum(axis=1, keepdims=True), y


def test_brier_score_by_hand():
    proba = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]]
    # .3^2 + .2^2 + .1^2 = .14, and 1 + 1 = 2.
    assert brier_score(proba, ["a", "c"], classes=["a", "b", "c"]) == pytest.approx(1.07)
    assert brier_score([[1, 0], [0, 1]], ["a", "b"]) == 0
    assert np.isnan(brier_score(np.zeros((0, 2)), np.zeros(0, dtype=int), classes=[0, 1]))


def test_brier_score_of_two_classes_is_twice_that_of_one():
    rng = np.random.default_rng(0)
    p, y = rng.random(50), rng.integers(0, 2, 50)
    assert brier_score(np.column_stack([1 - p, p]), y) == pytest.approx(2 * brier_score_loss(y, p))


def test_reliability_curve_by_hand():
    proba = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.45, 0.55]])
    found = reliability_curve(proba, ["a", "b", "b", "b"], n_bins=4, level=0.9)
    # Bins (1/2, 3/4]: .7 and .55, both right; (3/4, 1]: .9 right, .8 wrong.
    np.testing.assert_array_equal(found.counts, [0, 0, 2, 2])
    np.testing.assert_allclose(found.confidence, [np.nan, np.nan, 0.625, 0.85])
    np.testing.assert_allclose(found.accuracy, [np.nan, np.nan, 1, 0.5])
    a, b = np.array([0.5, 0.5, 2.5, 1.5]), np.array([0.5, 0.5, 0.5, 1.5])
    np.testing.assert_allclose(found.lower, beta.ppf(0.05, a, b))
    np.testing.assert_allclose(found.upper, beta.ppf(0.95, a, b))
    with pytest.raises(AnnotationError, match="level=90"):
        reliability_curve(proba, [0, 1, 1, 1], level=90)


@given(probabilities_and_gold(), st.integers(1, 20))
def test_calibration_error_against_a_loop(given_, n_bins):
    proba, y = given_
    expected = 0.0
    for k in range(n_bins):
        inside = [
            i for i, p in enumerate(proba.max(axis=1)) if max(int(np.ceil(p * n_bins)), 1) == k + 1
        ]
        gap = sum((proba[i].argmax() == y[i]) - proba[i].max() for i in inside)
        expected += abs(gap) / len(y)
    classes = range(proba.shape[1])
    found = expected_calibration_error(proba, y, classes=classes, n_bins=n_bins)
    assert found == pytest.approx(expected)
    counts = reliability_curve(proba, y, classes=classes, n_bins=n_bins).counts
    assert counts.sum() == len(y)


def test_coverage_and_risk_by_hand():
    proba = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.4, 0.6], [0.5, 0.5]]
    found = coverage_risk(proba, ["a", "a", "a", "a", "b"])
    np.testing.assert_allclose(found.threshold, [0.9, 0.8, 0.6, 0.5])
    np.testing.assert_allclose(found.coverage, [0.2, 0.4, 0.8, 1])
    np.testing.assert_allclose(found.risk, [0, 1 / 2, 2 / 4, 3 / 5])


@given(probabilities_and_gold())
def test_coverage_and_risk_are_those_of_decide(given_):
    proba, y = given_
    found = coverage_risk(proba, y, classes=range(proba.shape[1]))
    assert (np.diff(found.coverage) > 0).all()
    for threshold, coverage, risk in zip(*found, strict=True):
        codes = decide(proba, threshold=threshold)
        made = codes >= 0
        assert made.mean() == pytest.approx(coverage)
        assert (codes != y)[made].mean() == pytest.approx(risk)
    assert found.risk[-1] == pytest.approx(1 - accuracy(y, decide(proba)))


def test_nothing_to_judge_is_nan_or_empty():
    nothing = np.zeros((0, 2)), np.zeros(0, dtype=int)
    assert np.isnan(expected_calibration_error(*nothing, classes=[0, 1]))
    assert [len(field) for field in coverage_risk(*nothing, classes=[0, 1])] == [0, 0, 0]


@pytest.mark.parametrize(
    "measure", [brier_score, reliability_curve, coverage_risk, expected_calibration_error]
)
def test_what_is_no_probability_is_named(measure):
    with pytest.raises(AnnotationError, match=r"proba.*row 1"):
        measure([[0.5, 0.5], [3, -1]], [0, 1])
    with pytest.raises(AnnotationError, match="classes="):
        measure([[0.5, 0.3, 0.2]], [0])
    with pytest.raises(AnnotationError, match="y holds -1"):
        measure([[0.5, 0.5], [0.1, 0.9]], [0, -1], classes=[0, 1])
