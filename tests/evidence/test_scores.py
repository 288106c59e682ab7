"""Scores of probabilities by true classes, by hand."""

import numpy as np

from evidence.scores import codes_of, likelihood, scores


def test_codes_are_those_of_the_classes_and_unknown_ones_are_missing():
    assert codes_of(["b", "x", "a"], np.array(["b", "a"])).tolist() == [0, -1, 1]
    assert codes_of([], ["a"]).tolist() == []


def test_scores_by_hand():
    proba, codes = np.array([[0.9, 0.1], [0.2, 0.8], [0.0, 1.0]]), np.array([0, 0, 1])
    found = scores(proba, codes)
    assert found["accuracy"] == 2 / 3
    np.testing.assert_allclose(found["log_loss"], -np.log([0.9, 0.2, 1.0]).mean(), rtol=1e-12)
    np.testing.assert_allclose(found["claimed"], 0.9, rtol=1e-12)
    # Each in a bin of its own: gaps of .1, .8 and 0.
    np.testing.assert_allclose(found["ece"], 0.3, rtol=1e-12)
    assert likelihood(np.array([[1.0, 0.0]]), np.array([1])).tolist() == [1e-12]
