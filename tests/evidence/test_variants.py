"""Fewer instances of a set: who is trained on, and that the test part stays what it is."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

from manyhands import AnnotationTable
from manyhands.evidence.data import variants
from manyhands.evidence.data.sets import Data
from manyhands.evidence.data.variants import with_fewer_instances
from manyhands.exceptions import AnnotationError


@pytest.fixture
def source(monkeypatch):
    """Eight training instances (the last has no annotation), one of validation, two of test."""
    A = np.array([[0, 1], [1, 1], [0, 0], [1, -1], [0, 1], [1, 1], [0, 0], [-1, -1]])
    found = {
        "X_train": np.arange(8.0)[:, None],
        "annotations": AnnotationTable.from_matrix(A, classes=[0, 1]),
        "y_train": np.array([0, 1, 0, 1, 0, 1, 0, 1]),
        "X_valid": np.array([[8.0]]),
        "y_valid": np.array([0]),
        "X_test": np.array([[9.0], [10.0]]),
        "y_test": np.array([1, 0]),
        "truth": SimpleNamespace(),
    }
    monkeypatch.setattr(variants, "load_data", lambda of: Data(**{**found, **of}))
    return found


def test_what_is_left_of_the_training_part_is_not_tested_on(source):
    data = with_fewer_instances({}, 4, random_state=0)
    drawn = data.X_train[:, 0].astype(int)
    assert len(drawn) == len(data.annotations) == len(set(drawn)) == 4
    assert 7 not in drawn, "it has no annotation"
    np.testing.assert_array_equal(
        data.annotations.to_matrix(), source["annotations"].to_matrix()[drawn]
    )
    np.testing.assert_array_equal(data.y_train, source["y_train"][drawn])
    assert data.X_test[:, 0].tolist() == [8.0, 9.0, 10.0]
    assert data.y_test.tolist() == [0, 1, 0]
    assert data.X_valid is data.y_valid is data.truth is None


def test_the_seed_draws(source):
    draws = {tuple(with_fewer_instances({}, 4, seed).X_train[:, 0]) for seed in range(6)}
    assert len(draws) > 1
    again = [with_fewer_instances({}, 4, random_state=3).X_train for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_sparse_features_stay_sparse(source):
    parts = {name: csr_array(source[name]) for name in ("X_train", "X_valid", "X_test")}
    data = with_fewer_instances(parts, 4, random_state=0)
    plain = with_fewer_instances({}, 4, random_state=0)
    np.testing.assert_array_equal(data.X_test.toarray(), plain.X_test)
    np.testing.assert_array_equal(data.X_train.toarray(), plain.X_train)


def test_a_set_without_gold_to_train_on_or_without_a_validation_part(source):
    data = with_fewer_instances({"y_train": None, "X_valid": None, "y_valid": None}, 7)
    assert data.y_train is None
    assert data.X_test[:, 0].tolist() == [9.0, 10.0]


def test_what_cannot_be_drawn_is_refused(source):
    for n in (0, 8):
        with pytest.raises(AnnotationError, match=f"n_train={n} of 7 annotated"):
            with_fewer_instances({}, n)
    alone = {"X_valid": None, "y_valid": None, "X_test": None, "y_test": None}
    with pytest.raises(AnnotationError, match="neither a validation nor a test part"):
        with_fewer_instances(alone, 7)
