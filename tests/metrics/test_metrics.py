import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import beta, t
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, f1_score
from sklearn.model_selection import GridSearchCV, cross_validate

from manyhands import AnnotationTable, DawidSkene, decide, make_crowd
from manyhands.exceptions import AnnotationError
from manyhands.metrics import (
    VOTE_SCORERS,
    accuracy,
    annotator_reliability,
    balanced_accuracy,
    brier_score,
    calibration,
    corrected_vote_agreement,
    coverage_risk,
    estimate_accuracy,
    expected_calibration_error,
    macro_f1,
    minority_recall,
    paired_z,
    ranked_probability_score,
    reliability_curve,
    vote_agreement,
    vote_agreement_scorer,
    vote_information,
    vote_recall,
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
    # Two of four classes are uncertain, none, and the only one: the model may be wrong there.
    doubted = np.array([0.5, 0.5, 0, 1])
    size = np.maximum(1 / (1 / size + (0.3 * doubted) ** 2 * mean * (1 - mean)), 1)
    lower, upper = (beta.ppf(p, size * mean, size * (1 - mean)) for p in (0.025, 0.975))
    # All may be right: of annotator 0, .9 * .6 = .54; of annotator 1, .1 * .4; of 3, .9.
    upper[[0, 1, 3]] = 1.0
    lower[3] = 0.0  # Wrong with a probability of .1.
    np.testing.assert_allclose(found.lower, lower)
    np.testing.assert_allclose(found.upper, upper)


def test_certain_labels_give_the_jeffreys_interval():
    found = annotator_reliability(TABLE, POSTERIOR.round())
    right = np.array([4, 2, 0, 1])
    a, b = right + 0.5, found.n_annotations - right + 0.5
    # Who was always right, with any annotation, may always be.
    lower, upper = beta.ppf(0.025, a, b), beta.ppf(0.975, a, b)
    upper[[0, 3]] = 1.0
    np.testing.assert_allclose(found.lower, lower)
    np.testing.assert_allclose(found.upper, upper)


@given(arrays(np.float64, (12, 1), elements=st.floats(0, 1)))
@settings(max_examples=30)
def test_uncertain_labels_tell_less_than_certain_ones_and_never_less_than_nothing(p):
    # On which side of the limit these are is rounding.
    assume(abs(np.prod(p) - 0.025) > 1e-9)
    assume(abs(np.prod(1 - p) - 0.025) > 1e-9)
    table = AnnotationTable.from_matrix(np.zeros((12, 1), dtype=int), classes=[0, 1])
    found = annotator_reliability(table, np.hstack([p, 1 - p]))
    s = p.sum()
    mean = (s + 0.5) / 13
    # The central interval of a beta distribution widens as its size falls from 13 to 1.
    for size, inside in ((13.0, True), (1.0, False)):
        lower, upper = beta.ppf([0.025, 0.975], size * mean, size * (1 - mean))
        # The ends are reached where nothing else is known than that.
        upper = 1.0 if np.prod(p) > 0.025 else upper
        lower = 0.0 if np.prod(1 - p) > 0.025 else lower
        wider = (found.lower[0] <= lower + 1e-9) & (found.upper[0] >= upper - 1e-9)
        narrower = (found.lower[0] >= lower - 1e-9) & (found.upper[0] <= upper + 1e-9)
        assert wider if inside else narrower


def test_where_nothing_is_known_of_the_labels_the_interval_is_the_prior():
    table = AnnotationTable.from_matrix(np.zeros((8, 1), dtype=int), classes=[0, 1])
    found = annotator_reliability(table, np.full((8, 2), 0.5))
    # Beta(1/2, 1/2) is the arcsine distribution. All eight may be right by 1 in 256 only.
    np.testing.assert_allclose(found.lower, np.sin(np.pi * 0.025 / 2) ** 2)
    np.testing.assert_allclose(found.upper, np.sin(np.pi * 0.975 / 2) ** 2)


def test_a_wider_level_is_a_wider_interval():
    narrow, wide = (annotator_reliability(TABLE, POSTERIOR, level=q) for q in (0.5, 0.99))
    assert (wide.lower < narrow.lower).all()
    assert ((narrow.upper < wide.upper) | (narrow.upper == 1.0)).all()


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    right = rng.random((20, 3000)) < 0.7
    table = AnnotationTable.from_matrix(np.where(right, 0, 1), classes=[0, 1])
    found = annotator_reliability(table, np.tile([1.0, 0.0], (20, 1)))
    assert np.mean((found.lower <= 0.7) & (found.upper >= 0.7)) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("n_classes", "prior"), [(2, [0.5, 0.5]), (2, [0.9, 0.1]), (4, [0.25] * 4)]
)
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_the_interval_covers_where_labels_are_inferred(n_classes, prior):
    inside = []
    for seed in range(10):
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


def test_ranked_probability_score_by_hand():
    # Cumulative .7 .9 against 1 1, and 0 1 against 0 0.
    proba = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]]
    found = ranked_probability_score(proba, ["low", "high"], classes=["low", "mid", "high"])
    assert found == pytest.approx((0.09 + 0.01 + 1) / 2)
    assert np.isnan(ranked_probability_score(np.zeros((0, 3)), [], classes=[1, 2, 3]))


@given(probabilities_and_gold())
def test_ranked_probability_score_of_two_classes_is_half_the_brier_score(case):
    proba, y = case
    assume(proba.shape[1] == 2)
    mine = ranked_probability_score(proba, y, classes=[0, 1])
    assert mine == pytest.approx(brier_score(proba, y, classes=[0, 1]) / 2)


def test_ranked_probability_score_of_certain_answers_is_the_mean_distance():
    rng = np.random.default_rng(0)
    y, z = rng.integers(0, 5, (2, 40))
    found = ranked_probability_score(np.eye(5)[z], y, classes=range(5))
    assert found == pytest.approx(abs(y - z).mean())
    reversed_too = ranked_probability_score(np.eye(5)[z][:, ::-1], y, classes=range(5)[::-1])
    assert found == pytest.approx(reversed_too)


def test_ranked_probability_score_needs_the_order_of_texts():
    proba = np.full((3, 3), 1 / 3)
    with pytest.raises(AnnotationError, match=r"needs the order of the classes.*classes="):
        ranked_probability_score(proba, ["cat", "dog", "owl"])
    known = ranked_probability_score(np.eye(3), ["low", "medium", "high"])
    numbers = ranked_probability_score(np.eye(3), ["2 - fair", "9 - good", "10 - best"])
    assert known == numbers == 0


def test_reliability_curve_by_hand():
    proba = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.45, 0.55]])
    found = reliability_curve(proba, ["a", "b", "b", "b"], n_bins=4, level=0.9)
    # Bins (1/2, 3/4]: .7 and .55, both right; (3/4, 1]: .9 right, .8 wrong.
    np.testing.assert_array_equal(found.counts, [0, 0, 2, 2])
    np.testing.assert_allclose(found.confidence, [np.nan, np.nan, 0.625, 0.85])
    np.testing.assert_allclose(found.accuracy, [np.nan, np.nan, 1, 0.5])
    np.testing.assert_allclose(found.lower, [0, 0, 0.05**0.5, 0])  # Both of two: .05 ** (1 / 2).
    np.testing.assert_allclose(found.upper, 1)
    with pytest.raises(AnnotationError, match="level=90"):
        reliability_curve(proba, [0, 1, 1, 1], level=90)


@given(probabilities_and_gold(), st.integers(1, 20))
@settings(max_examples=30)
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


def test_calibration_by_hand():
    """Confidence .8, .9, .6, .7, right but for the last; 85 %-sets have 2, 1, 2 and 2 classes."""
    proba = np.array([[0.8, 0.2], [0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
    found = calibration(proba, ["a", "a", "b", "a"], sure=0.85, n_bins=1, level=0.9)
    assert (found.n, found.accuracy.value, found.confidence.value) == (4, 0.75, 0.75)
    assert found.log_loss.value == pytest.approx(-np.log([0.8, 0.9, 0.6, 0.3]).mean())
    brier = 2 * np.array([0.2, 0.1, 0.4, 0.7]) ** 2
    assert found.brier.value == pytest.approx(brier.mean())
    half = t.ppf(0.95, 3) * brier.std(ddof=1) / 2 / brier.mean()  # Of the logarithm.
    assert found.brier[1:] == pytest.approx(brier.mean() * np.exp([-half, half]))
    assert found.accuracy[1:] == pytest.approx((beta.ppf(0.05, 3.5, 1.5), 1.0))
    assert (found.coverage.value, found.set_size) == (1.0, 1.75)
    assert found.ece.value == pytest.approx(0.0)  # A single bin: .75 right and .75 sure.
    assert found.ece.lower == 0.0
    assert "coverage of 85%-sets  1.000" in str(found)


@given(probabilities_and_gold(), st.sampled_from([0.3, 0.8, 1.0]))
@settings(max_examples=30)
def test_sure_sets_against_a_loop(given_, sure):
    proba, y = given_
    covered, sizes = [], []
    for row, gold in zip(proba, y, strict=True):
        order = list(np.argsort(-row, kind="stable"))
        chosen = [order.pop(0)]
        while row[chosen].sum() < sure - 1e-9:
            chosen.append(order.pop(0))
        covered.append(gold in chosen)
        sizes.append(len(chosen))
    found = calibration(proba, y, classes=range(proba.shape[1]), sure=sure)
    assert found.coverage.value == pytest.approx(np.mean(covered))
    assert found.set_size == pytest.approx(np.mean(sizes))
    assert found.ece.value == pytest.approx(
        expected_calibration_error(proba, y, classes=range(proba.shape[1]))
    )


def test_intervals_of_calibrated_probabilities_cover():
    inside = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        proba = rng.dirichlet(np.ones(3), size=300)
        y = (proba.cumsum(axis=1) < rng.random((300, 1))).sum(axis=1)
        found = calibration(proba, y, classes=range(3))
        inside.append(found.accuracy.lower <= found.confidence.value <= found.accuracy.upper)
        assert found.coverage.upper > 0.9
    assert np.mean(inside) > 0.85


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sure": 0}, "sure=0"),
        ({"sure": "most"}, "sure='most'"),
        ({"n_bins": 2.5}, "n_bins=2.5"),
        ({"n_bins": 10**9}, "n_bins=1000000000"),
        ({"level": 95}, "level=95"),
        ({"y": []}, "gold labels"),
    ],
)
def test_what_calibration_refuses(arguments, message):
    y = arguments.pop("y", [0, 1])
    proba = np.full((len(y), 2), 0.5)
    with pytest.raises(AnnotationError, match=message):
        calibration(proba, y, classes=[0, 1], **arguments)


def test_coverage_and_risk_by_hand():
    proba = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.4, 0.6], [0.5, 0.5]]
    found = coverage_risk(proba, ["a", "a", "a", "a", "b"])
    np.testing.assert_allclose(found.threshold, [0.9, 0.8, 0.6, 0.5])
    np.testing.assert_allclose(found.coverage, [0.2, 0.4, 0.8, 1])
    np.testing.assert_allclose(found.risk, [0, 1 / 2, 2 / 4, 3 / 5])


@given(probabilities_and_gold())
@settings(max_examples=30)
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
    "measure",
    [
        brier_score,
        ranked_probability_score,
        reliability_curve,
        coverage_risk,
        expected_calibration_error,
    ],
)
def test_what_is_no_probability_is_named(measure):
    with pytest.raises(AnnotationError, match=r"proba.*row 1"):
        measure([[0.5, 0.5], [3, -1]], [0, 1])
    with pytest.raises(AnnotationError, match="classes="):
        measure([[0.5, 0.3, 0.2]], [0])
    with pytest.raises(AnnotationError, match="y holds -1"):
        measure([[0.5, 0.5], [0.1, 0.9]], [0, -1], classes=[0, 1])


# -- against votes ---------------------------------------------------------------------------------


MEASURES = [vote_agreement, corrected_vote_agreement, vote_information, vote_recall]


def crowd_of_all_kinds():
    """Weights, a family, an abstention, pseudo-annotations and an instance without annotations."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    given = np.where(rng.random((60, 5)) < 0.7, y[:, None], rng.integers(0, 3, (60, 5)))
    i, r = np.nonzero((rng.random((60, 5)) < 0.6) & (np.arange(60) > 0)[:, None])
    table = AnnotationTable.from_arrays(
        i, r, given[i, r], weight=rng.uniform(0.5, 2, len(i)), instances=np.arange(60)
    ).with_groups({0: "family", 1: "family"})
    pseudo = AnnotationTable.from_arrays(
        [0, 0], [8, 9], [0, 1], instances=np.arange(60), classes=range(3)
    )
    return table, pseudo, rng.integers(0, 3, 60)


def loops(table, h):
    """The definitions, one annotation after the other."""
    weight = table.weight.copy()
    for k, (i, r) in enumerate(zip(table.instance, table.annotator, strict=True)):
        members = {m for j, m in zip(table.instance, table.annotator, strict=True) if j == i}
        if r in (0, 1):
            weight[k] /= 1 + (len(members & {0, 1}) - 1) * 0.8
    V = np.zeros((table.n_instances, 3))
    for i, label, w in zip(table.instance, table.label, weight, strict=True):
        V[i, label] += w
    rows = [n for n in range(len(V)) if V[n].sum()]
    agreement = np.mean([V[n, h[n]] / V[n].sum() for n in rows])
    q = DawidSkene().fit_predict_proba(table)
    T = np.array([[(q[:, c] * V[:, k]).sum() + 0.1 + (c == k) for k in range(3)] for c in range(3)])
    W = np.linalg.pinv(T / T.sum(axis=1, keepdims=True), rcond=0.05)
    corrected = sum(V[n, k] * W[k, h[n]] for n in rows for k in range(3)) / V.sum()
    P = np.zeros((3, 3))
    for n in rows:
        P[h[n]] += V[n] / V[n].sum()
    best = [(V[n] == V[n].max()) / (V[n] == V[n].max()).sum() for n in rows]
    recall = [
        sum(b[c] for b, n in zip(best, rows, strict=True) if h[n] == c) / sum(b[c] for b in best)
        for c in range(3)
    ]
    P /= len(rows)
    information = sum(
        P[c, k] * np.log(P[c, k] / P[c].sum() / P[:, k].sum()) for c in range(3) for k in range(3)
    )
    return [agreement, corrected, information, np.mean(recall)]


def test_measures_against_votes_are_their_definitions():
    table, _, h = crowd_of_all_kinds()
    found = [measure(h, table) for measure in MEASURES]
    np.testing.assert_allclose(found, loops(table, h))


def test_gaps_abstentions_pseudo_annotations_and_unannotated_instances_do_not_count():
    table, pseudo, h = crowd_of_all_kinds()
    expected = [measure(h, table) for measure in MEASURES]
    more = table.with_added(pseudo.with_source("pseudo"))
    np.testing.assert_allclose([measure(h, more) for measure in MEASURES], expected)
    h[0] = (h[0] + 1) % 3
    np.testing.assert_allclose([measure(h, table) for measure in MEASURES], expected)
    plain = AnnotationTable.from_matrix([["a", "b"], ["b", "?"]], abstain="?")
    assert vote_agreement(["a", "b"], plain) == pytest.approx(0.75)


def test_probabilities_count_by_their_largest_class():
    table, _, h = crowd_of_all_kinds()
    proba = np.eye(3)[h] * 0.4 + 0.2
    for measure in MEASURES:
        assert measure(proba, table) == measure(h, table)


@pytest.mark.parametrize("measure", [vote_agreement, corrected_vote_agreement])
def test_values_of_instances_have_the_measure_for_their_mean(measure):
    table, _, h = crowd_of_all_kinds()
    each = measure(h, table, average=False)
    assert each.shape == (60,)
    np.testing.assert_array_equal(np.isnan(each), table.annotations_per_instance() == 0)
    assert np.nanmean(each) == pytest.approx(measure(h, table))


def test_the_correction_finds_the_accuracy_where_mistakes_are_independent():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 4000)
    confusion = np.array([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.3, 0.0, 0.7]])
    given = np.array([[rng.choice(3, p=confusion[c]) for _ in range(3)] for c in y])
    table = AnnotationTable.from_matrix(given)
    h = np.where(rng.random(4000) < 0.75, y, (y + 1) % 3)
    gold = np.eye(3)[y]
    assert corrected_vote_agreement(h, table, posterior=gold) == pytest.approx(0.75, abs=0.02)
    assert vote_agreement(h, table) < 0.65


def test_information_is_blind_to_names_and_recall_to_frequency():
    table = AnnotationTable.from_matrix([[0, 0]] * 90 + [[1, 1]] * 10)
    right = np.array([0] * 90 + [1] * 10)
    assert vote_information(1 - right, table) == pytest.approx(vote_information(right, table))
    assert vote_information(np.zeros(100, int), table) == 0.0
    assert vote_agreement(np.zeros(100, int), table) == pytest.approx(0.9)
    assert vote_recall(np.zeros(100, int), table) == 0.5
    tied = AnnotationTable.from_matrix([[0, 1, 0], [0, 1, -1], [1, 1, -1]])
    assert vote_recall([0, 0, 1], tied) == pytest.approx((1 + 1 / 1.5) / 2)
    assert vote_recall([0, 0, 1], tied, shares="votes") == pytest.approx((1 + 6 / 11) / 2)


def test_predictions_with_an_index_are_matched_by_it():
    pd = pytest.importorskip("pandas")
    table = AnnotationTable.from_arrays(["a", "b", "c"], [0, 0, 0], [0, 1, 1])
    assert vote_agreement(pd.Series([1, 0, 1], index=["b", "a", "c"]), table) == 1.0


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        ([0, 1], "predicted has 2 rows, but the table has 4 instances"),
        ([0, 1, 7, 0], "7"),
        ([0.0, np.nan, 1.0, 0.0], "predicted has no class in row 1"),
        (np.full((4, 2), 0.4), "predicted is not a distribution in row 0"),
        (np.full((4, 4), 0.25), "predicted has 4 columns, but the table has 2 classes"),
        (np.zeros((4, 2, 2)), "predicted has shape"),
    ],
)
@pytest.mark.parametrize("measure", MEASURES)
def test_predictions_that_do_not_fit_are_refused(measure, predicted, message):
    with pytest.raises(AnnotationError, match=message):
        measure(predicted, TABLE)


def test_other_bad_input_of_measures_against_votes_is_refused():
    empty = TABLE.take(np.zeros(TABLE.n_annotations, dtype=bool))
    with pytest.raises(AnnotationError, match="table is empty"):
        vote_agreement([0, 0, 1, 1], empty)
    with pytest.raises(AnnotationError, match="table is a list"):
        vote_agreement([0], [[0]])
    with pytest.raises(AnnotationError, match="posterior has shape"):
        corrected_vote_agreement([0, 0, 1, 1], TABLE, posterior=[[0.5, 0.5]])
    with pytest.raises(AnnotationError, match="shares='ties' is unknown"):
        vote_recall([0, 0, 1, 1], TABLE, shares="ties")
    with pytest.raises(AnnotationError, match="1 values that are not NaN"):
        paired_z([np.nan, 0.5])


def test_paired_z_by_hand():
    assert paired_z([-1.0, np.nan, -1.0, 0.0, -1.0]) == -3.0
    assert paired_z([0.0, 0.0]) == 0.0
    assert paired_z([0.5, 0.5]) == np.inf


class Threshold(ClassifierMixin, BaseEstimator):
    """Class 1 above a threshold; learns nothing."""

    def __init__(self, at=0.0):
        self.at = at

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return (np.asarray(X)[:, 0] > self.at).astype(int)


@pytest.mark.parametrize("form", ["table", "matrix"])
def test_scorers_serve_scikit_learns_searches(form):
    X = np.linspace(-1, 1, 40)[:, None]
    matrix = np.repeat((X > 0).astype(int), 3, axis=1)
    matrix[::7, 0] = -1
    y = AnnotationTable.from_matrix(matrix) if form == "table" else matrix
    search = GridSearchCV(Threshold(), {"at": [-0.5, 0.0]}, scoring=vote_agreement_scorer)
    assert search.fit(X, y).best_params_ == {"at": 0.0}
    assert search.best_score_ == 1.0
    scores = cross_validate(Threshold(), X[::-1], y[::-1], cv=4, scoring=VOTE_SCORERS)
    for name in VOTE_SCORERS:
        assert np.isfinite(scores[f"test_{name}"]).all()
    assert repr(vote_agreement_scorer) == "VoteScorer(vote_agreement)"


def test_scorers_match_rows_by_id_and_refuse_gold_labels():
    pd = pytest.importorskip("pandas")
    table = AnnotationTable.from_arrays(["a", "b", "c"], [0, 0, 0], [0, 1, 1])
    X = pd.DataFrame({"x": [1.0, -1.0, 1.0]}, index=["c", "a", "b"])
    assert vote_agreement_scorer(Threshold().fit(None, None), X, table) == 1.0
    with pytest.raises(AnnotationError, match="use scoring='accuracy'"):
        vote_agreement_scorer(Threshold().fit(None, None), X, [0, 1, 1])


@pytest.mark.parametrize("measure", [vote_agreement, vote_information, vote_recall])
def test_a_measure_is_the_mean_of_its_values_by_instance(measure):
    y = np.random.default_rng(0).integers(0, 3, 60)
    table = make_crowd(y, annotations_per_instance=3, random_state=0)
    table = AnnotationTable.from_matrix(
        np.pad(table.to_matrix(), [(0, 1), (0, 0)], constant_values=-1)
    )
    predicted = np.append(np.where(np.arange(60) % 4, y, 0), 0)
    each = measure(predicted, table, average=False)
    assert each.shape == (61,)
    assert np.isnan(each[60])
    assert np.nanmean(each) == pytest.approx(measure(predicted, table))


def test_values_of_information_are_its_derivative_by_an_instance_s_weight():
    """Repeating an instance moves the sum N * MI as its value says, up to terms of order 1/N."""
    y = np.random.default_rng(1).integers(0, 3, 300)
    table = make_crowd(y, annotations_per_instance=2, random_state=1)
    predicted = np.where(np.arange(300) % 5, y, 0)
    each = vote_information(predicted, table, average=False)
    for row in (0, 1, 2, 7, 11):
        more = np.append(np.arange(300), row)
        change = 301 * vote_information(predicted[more], table[more]) - each.sum()
        assert change == pytest.approx(each[row], abs=0.02)


def test_accuracy_is_estimated_between_agreements_and_corrections():
    table = AnnotationTable.from_matrix([[0, 0, 1], [1, 1, -1], [0, 1, -1], [1, 1, 1]] * 25)
    predicted = np.array([0, 1, 1, 0] * 25)
    q = DawidSkene().fit_predict_proba(table)
    votes = np.array([[1, 0], [0, 1], [0.5, 0.5], [0, 1]] * 25)
    rows = np.arange(100)
    agreements = [belief[rows, predicted] for belief in (votes, q)]
    corrected = [
        corrected_vote_agreement(predicted, table, posterior=belief, average=False)
        for belief in (votes, q)
    ]
    means = [each.mean() for each in agreements + corrected]
    found = estimate_accuracy(predicted, table)
    assert found.value == pytest.approx(np.clip(np.mean(means), 0, 1))
    low = min(each.mean() - 0.2 * each.std(ddof=1) for each in agreements)
    high = max(each.mean() + 0.2 * each.std(ddof=1) for each in corrected)
    assert (found.low, found.high) == pytest.approx((low, min(high, 1)))


@pytest.mark.parametrize("share", [0.6, 0.75, 0.9])
def test_the_interval_covers_models_whose_mistakes_are_independent(share):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 600)
    table = make_crowd(y, annotations_per_instance=3, random_state=0)
    predicted = np.where(rng.random(600) < share, y, rng.integers(0, 4, 600))
    found = estimate_accuracy(predicted, table)
    assert found.low < accuracy(y, predicted) < found.high
    assert found.high - found.low < 0.35


def test_the_interval_of_the_accuracy_holds_the_estimate():
    y = np.tile([0, 1, 2], 200)
    rng = np.random.default_rng(0)
    wrong = (y[:, None] + rng.integers(1, 3, (600, 3))) % 3
    given = np.where(rng.random((600, 3)) < 0.1, y[:, None], wrong)
    found = estimate_accuracy(y, AnnotationTable.from_matrix(given))
    assert found.low <= found.value <= found.high


def test_accuracy_of_one_instance_is_unknown():
    found = estimate_accuracy([0], AnnotationTable.from_matrix([[0, 0]], classes=[0, 1]))
    assert (found.low, found.high) == (0, 1)


def test_gold_labels_of_another_type_are_named():
    for y in (np.array(["0", "1"]), np.array(["0", "1"], dtype=object)):
        with pytest.raises(
            AnnotationError, match="y holds '0', but predicted holds 1, and a string and a num"
        ):
            accuracy(y, np.array([1, 1]))


def test_calibration_takes_gold_of_all_rows():
    proba = [[0.9, 0.1], [0.2, 0.8]]
    with pytest.raises(AnnotationError, match="y is a dict"):
        calibration(proba, {0: "a", 1: "b"})
    for gap in (None, np.nan):
        with pytest.raises(AnnotationError, match="y has 1 missing gold labels; leave these rows"):
            calibration(proba, np.array(["a", gap], dtype=object))


# -- matching by id -------------------------------------------------------------------------------


def indexed(seed=0):
    """Gold labels and probabilities of the same 40 instances, the latter in another order."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    ids = [f"img{i}" for i in range(40)]
    y = pd.Series(np.arange(40) % 3, index=ids)
    proba = pd.DataFrame(rng.dirichlet([1, 1, 1], 40) * 0.4 + 0.6 * np.eye(3)[y], index=ids)
    return y, proba, proba.sample(frac=1, random_state=1)


@pytest.mark.parametrize("measure", [accuracy, balanced_accuracy, macro_f1, minority_recall])
def test_labels_are_matched_with_gold_by_index(measure):
    y, proba, shuffled = indexed()
    y.iloc[:5] = 0
    expected = measure(y.to_numpy(), proba.idxmax(axis=1).to_numpy())
    predicted = shuffled.idxmax(axis=1)
    assert measure(y, predicted) == expected
    assert measure(y[predicted.index], predicted.to_numpy()) == expected
    assert measure(y, predicted.to_numpy()) != expected  # paired in order, as arrays are
    assert measure(y.reset_index(drop=True), predicted[y.index]) == expected


@pytest.mark.parametrize(
    "measure",
    [
        brier_score,
        ranked_probability_score,
        expected_calibration_error,
        coverage_risk,
        reliability_curve,
        calibration,
    ],
)
def test_probabilities_are_matched_with_gold_by_id(measure):
    pl = pytest.importorskip("polars")
    y, proba, shuffled = indexed()
    expected = str(measure(proba.to_numpy()[: len(y)], y.to_numpy()))
    own_order = str(measure(shuffled.to_numpy(), y[shuffled.index].to_numpy()))
    assert str(measure(shuffled, y)) == own_order
    assert str(measure(proba, y[shuffled.index])) == expected
    long = shuffled.rename(columns=str).rename_axis("task").reset_index()
    assert str(measure(pl.from_pandas(long), y)) == own_order
    # Columns that are called as the classes are matched with them, unless classes says otherwise.
    assert str(measure(shuffled[[2, 0, 1]], y)) == own_order
    renamed = shuffled.set_axis([2, 0, 1], axis=1)
    assert str(measure(renamed, y, classes=[0, 1, 2])) == own_order


def test_other_ids_are_refused_with_counts_and_examples():
    y, _, shuffled = indexed()
    predicted = shuffled.idxmax(axis=1)
    with pytest.raises(AnnotationError, match=r"40 rows of y and 39 of predicted .*; 1 of y are"):
        accuracy(y, predicted.drop("img7"))
    with pytest.raises(AnnotationError, match=r"1 of y are not in proba \('new'\)"):
        brier_score(shuffled, y.rename({"img7": "new"}))
    with pytest.raises(AnnotationError, match="y holds 'img1' twice"):
        accuracy(y.rename({"img0": "img1"}), predicted.rename({"img0": "img1"}))


def test_a_posterior_frame_is_matched_with_the_table():
    y, proba, shuffled = indexed()
    table = make_crowd(y.to_numpy(), annotations_per_instance=3, random_state=0)
    named = AnnotationTable(
        table.instance,
        table.annotator,
        table.label,
        y.index.to_numpy(),
        table.annotators,
        [0, 1, 2],
    )
    mixed = shuffled[[2, 0, 1]]
    for a, b in zip(
        annotator_reliability(named, mixed),
        annotator_reliability(named, proba.to_numpy()),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    for measure in (estimate_accuracy, corrected_vote_agreement):
        expected = measure(y.to_numpy(), named, posterior=proba.to_numpy())
        assert measure(y.to_numpy(), named, posterior=mixed) == expected
        # An array has the order of the table, also where the predictions have another.
        predicted = y[shuffled.index]
        for posterior in (mixed, proba, proba.to_numpy()):
            found = measure(predicted, named, posterior=posterior)
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("measure", [vote_agreement, vote_recall, vote_information])
def test_predicted_frames_are_matched_with_the_table(measure):
    pl = pytest.importorskip("polars")
    y, proba, shuffled = indexed()
    votes = make_crowd(y.to_numpy(), annotations_per_instance=3, random_state=0)
    table = AnnotationTable(
        *(votes.instance, votes.annotator, votes.label),
        *(y.index.to_numpy(), votes.annotators, [0, 1, 2]),
    )
    expected = measure(proba.to_numpy(), table)
    mixed = shuffled[[2, 0, 1]]
    long = mixed.rename(columns=str).rename_axis("task").reset_index()
    for predicted in (mixed, pl.from_pandas(long)):
        np.testing.assert_allclose(measure(predicted, table), expected, rtol=1e-12)
