"""Which options are ticked, by thresholds that rules and costs give."""

import numpy as np
import pytest

from manyhands import decide, decide_sets
from manyhands.exceptions import AnnotationError


def expected_f1(proba, ticks):
    """By its definition, over all possible truths."""
    total = 0.0
    for number in range(2 ** len(proba)):
        truth = np.array([number >> i & 1 for i in range(len(proba))], dtype=bool)
        p = np.prod(np.where(truth, proba, 1 - proba))
        both = ticks.sum() + truth.sum()
        total += p * (2 * (ticks & truth).sum() / both if both else 1.0)
    return total


def test_what_is_more_probable_than_not_is_ticked():
    found = decide_sets([[0.5, 0.51], [0.9, 0.2]])
    assert found.ticks.tolist() == [[False, True], [True, False]]
    assert found.threshold.tolist() == [0.5, 0.5]
    assert found.n_ticked.tolist() == [1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_f1_ticks_as_many_as_the_loop(seed):
    proba = np.random.default_rng(seed).beta(0.6, 1.5, 12)
    order = np.argsort(-proba)
    scores = []
    for m in range(1, 13):
        hits = proba[order[:m]].sum()
        scores.append(2 * hits / (m + proba.sum()))
    best = int(np.argmax(scores)) + 1
    found = decide_sets(proba[:, None], "f1")
    assert found.n_ticked.tolist() == [best]
    np.testing.assert_allclose(found.expected_f1, max(scores))
    np.testing.assert_array_equal(found.ticks[:, 0], np.isin(np.arange(12), order[:best]))
    np.testing.assert_array_equal(decide(proba[:, None], "f1"), found.ticks)


def test_f1_ticks_new_instances_from_half_of_the_expected_f1():
    found = decide_sets([[0.95], [0.9], [0.9], [0.05], [0.05]], "f1")
    assert found.ticks[:, 0].tolist() == [True, True, True, False, False]
    np.testing.assert_allclose(found.threshold, found.expected_f1 / 2)
    assert 0.4 < found.threshold[0] < 0.5  # Not .9, the least that is ticked here.


def test_f1_is_close_to_the_best_of_all_sets():
    rng = np.random.default_rng(3)
    for _ in range(10):
        proba = rng.beta(0.8, 1.5, 8)
        order = np.argsort(-proba)
        values = [expected_f1(proba, np.isin(np.arange(8), order[:m])) for m in range(9)]
        chosen = decide_sets(proba[:, None], "f1").ticks[:, 0]
        assert expected_f1(proba, chosen) > max(values) - 0.03


def test_f1_ticks_nothing_where_nothing_is_expected():
    found = decide_sets(np.full((5, 1), 0.001), "f1")
    assert not found.ticks.any()
    assert found.expected_f1[0] > 0.99
    assert not decide_sets(np.zeros((5, 1)), "f1").ticks.any()
    assert decide_sets(np.ones((5, 1)), "f1").ticks.all()


def test_equal_probabilities_are_ticked_together():
    proba = np.array([[0.4], [0.4], [0.4], [0.1]])
    assert decide_sets(proba, "f1").ticks[:, 0].tolist() == [True, True, True, False]


def test_costs_are_thresholds():
    proba = [[0.2, 0.2], [0.3, 0.3]]
    found = decide_sets(proba, costs=(3, 1))
    assert found.threshold.tolist() == [0.25, 0.25]
    assert found.ticks.tolist() == [[False, False], [True, True]]
    each = decide_sets(proba, costs=([3, 1], [1, 3]))
    assert each.threshold.tolist() == [0.25, 0.75]
    assert decide_sets(proba, threshold=[0.2, 0.3]).ticks.tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rule": "median"}, "rule='median' is unknown"),
        ({"rule": "f1", "threshold": 0.3}, "rule='f1' and threshold= are different ways"),
        ({"threshold": 0.3, "costs": (1, 1)}, "threshold= and costs="),
        ({"threshold": 2}, r"threshold=2 must hold probabilities"),
        ({"threshold": [0.1, 0.2, 0.3]}, "one for each of the 2 options"),
        ({"costs": 3}, "costs=3 must be two"),
        ({"costs": (0, 0)}, "not both 0"),
        ({"costs": (-1, 3)}, "not negative"),
    ],
)
def test_what_decides_nothing_is_refused(options, said):
    with pytest.raises(AnnotationError, match=said):
        decide_sets([[0.1, 0.2]], **options)


def test_only_probabilities_are_decided():
    with pytest.raises(AnnotationError, match=r"posterior holds 1.2 at \[0, 1\]"):
        decide_sets([[0.1, 1.2]])
    with pytest.raises(AnnotationError, match="one row per instance"):
        decide_sets([0.1, 0.2])
    with pytest.raises(AnnotationError, match="leave threshold= out"):
        decide([[0.1, 0.2]], "f1", threshold=0.5)
    with pytest.raises(AnnotationError, match=r"for each option.* leave classes= out"):
        decide([[0.1, 0.2]], "f1", classes=["joy", "fear"])
    with pytest.raises(AnnotationError, match="together; leave ties= out"):
        decide([[0.1, 0.2]], "f1", ties="random")
