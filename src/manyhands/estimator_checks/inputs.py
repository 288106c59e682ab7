"""Checks of the input of ``fit``: one crowd in several forms, unusual crowds, unusable input."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from manyhands.annotations import AnnotationTable
from manyhands.estimator_checks.problem import (
    expect_error,
    expect_same_fit,
    make_crowd_problem,
    quick_clone,
    quick_fit,
)
from manyhands.exceptions import ModelChoiceWarning
from manyhands.fitting import BaseCrowdClassifier


def check_nan_and_minus_one_agree(estimator: BaseCrowdClassifier) -> None:
    """Check that NaN in a float matrix and -1 in an integer one mean the same."""
    X, A, _ = make_crowd_problem()
    with_nan = np.where(A < 0, np.nan, A)
    expect_same_fit(quick_fit(estimator, X, A), quick_clone(estimator).fit(X, with_nan), X)


def check_table_and_matrix_agree(estimator: BaseCrowdClassifier) -> None:
    """Check that a table and the matrix from which it was made give the same fit."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    expect_same_fit(quick_fit(estimator, X, A), quick_clone(estimator).fit(X, table), X)


def check_dataset_and_array_agree(estimator: BaseCrowdClassifier) -> None:
    """Check that a Dataset, a tensor and a sparse matrix give the same fit as an equal array."""
    from scipy.sparse import csr_matrix

    X, A, _ = make_crowd_problem()
    X = X.astype(np.float32)
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X))
    plain = quick_clone(estimator, scaling=None).fit(X, A)
    for other in (dataset, torch.from_numpy(X), csr_matrix(X)):
        fitted = quick_clone(estimator, scaling=None).fit(other, A)
        np.testing.assert_allclose(fitted.predict_proba(other), plain.predict_proba(X), atol=1e-5)


def check_inputs_untouched(estimator: BaseCrowdClassifier) -> None:
    """Check that ``fit`` and ``predict`` change neither X nor the annotations."""
    X, A, _ = make_crowd_problem()
    before = X.copy(), A.copy()
    table = AnnotationTable.from_matrix(A)
    copied = copy.deepcopy(table)
    quick_clone(estimator).fit(X, A).predict(X)
    quick_clone(estimator).fit(X, table)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(A, before[1])
    assert table.equals(copied)


def check_bad_input(estimator: BaseCrowdClassifier) -> None:
    """Check that unusable input raises an error that names the argument, and gives no model."""
    X, A, _ = make_crowd_problem()
    broken = X.copy()
    broken[3, 1] = np.nan
    too_wide = AnnotationTable.from_matrix(A)
    cases: list[tuple[Any, Any, str]] = [
        (X[:-1], A, "X has"),
        (broken, A, "X contains NaN"),
        (X, np.full_like(A, -1), "y is empty"),
        (X, np.where(A >= 0, 1, -1), "one class only"),
        (X, too_wide.take(too_wide.label == 1), "one class only"),
        (X, None, "y"),
        (X, A[..., None], "y must be"),
    ]
    for bad_X, bad_y, message in cases:
        fresh = quick_clone(estimator)
        expect_error(message, fresh.fit, bad_X, bad_y)
        assert not hasattr(fresh, "module_")
    fitted = quick_fit(estimator, X, A)
    if hasattr(fitted, "predict_annotation_proba"):
        # The text of a known number is no bad input: both are one id.
        by_text, by_number = (fitted.predict_annotation_proba(X, ids) for ids in (["0"], [0]))
        assert np.array_equal(by_text, by_number)


def check_annotations_of_weight_zero_are_none(estimator: BaseCrowdClassifier) -> None:
    """Check that an annotation of weight 0 has no effect."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    kept = (table.instance > 5) & (table.annotator != 4)
    weighted = replace(table, weights=kept.astype(np.float64))
    expect_same_fit(
        quick_clone(estimator).fit(X, table.take(kept)), quick_clone(estimator).fit(X, weighted), X
    )


def check_silent_annotators_and_unlabelled_instances(estimator: BaseCrowdClassifier) -> None:
    """Check that instances and annotators without annotations get finite predictions."""
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    A[:5] = -1
    fitted = quick_clone(estimator).fit(X, A)
    proba = fitted.predict_proba(X)
    assert np.isfinite(proba).all()
    if hasattr(fitted, "confusion_"):
        assert fitted.confusion_.shape[0] == 6
        assert np.isfinite(fitted.confusion_).all()
        np.testing.assert_array_equal(fitted.confusion_[5], fitted.pooled_confusion_)
    if hasattr(fitted, "predict_annotation_proba"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            silent, new = fitted.predict_annotation_proba(X, [5, 99]).transpose(1, 0, 2)
        np.testing.assert_array_equal(silent, new)


def check_annotator_permutation(estimator: BaseCrowdClassifier) -> None:
    """Check that permuting annotators permutes ``confusion_`` and does not change predictions."""
    X, A, _ = make_crowd_problem()
    order = np.array([2, 0, 4, 1, 3])
    first, second = quick_clone(estimator), quick_clone(estimator)
    if "annotator_features" in first.get_params():
        # Random initial weights follow the order of the features, not of the annotators.
        first.set_params(annotator_features=np.eye(5))
        second.set_params(annotator_features=np.eye(5)[order])
    first.fit(X, A)
    second.fit(X, A[:, order])
    np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(X), atol=1e-3)
    if hasattr(first, "confusion_"):
        np.testing.assert_allclose(first.confusion_[order], second.confusion_, atol=1e-3)


def check_class_renaming(estimator: BaseCrowdClassifier) -> None:
    """Check that renaming classes renames predictions and changes nothing else."""
    X, A, _ = make_crowd_problem()
    names = np.array(["ape", "bee", "cat", None], dtype=object)
    plain, renamed = quick_fit(estimator, X, A), quick_clone(estimator).fit(X, names[A])
    expect_same_fit(plain, renamed, X)
    np.testing.assert_array_equal(names[plain.predict(X)], renamed.predict(X))


def check_degenerate_crowds(estimator: BaseCrowdClassifier) -> None:
    """Check that one annotator, constant annotators and full agreement give finite results."""
    X, A, y = make_crowd_problem()
    crowds = {
        "one annotator": y[:, None],
        "constant annotators": np.broadcast_to(np.arange(5) % 3, A.shape).copy(),
        "all agree": np.repeat(y[:, None], 5, axis=1),
        "single annotations": np.where(np.arange(len(y))[:, None] % 5 == np.arange(5), A, -1),
    }
    for name, crowd in crowds.items():
        if len(np.unique(crowd[crowd >= 0])) > 1:
            with warnings.catch_warnings():
                # The fit may rightly warn of such a crowd.
                warnings.simplefilter("ignore", ModelChoiceWarning)
                fitted = quick_clone(estimator).fit(X, crowd)
            assert np.isfinite(fitted.predict_proba(X)).all(), name
            if hasattr(fitted, "confusion_"):
                assert np.isfinite(fitted.confusion_).all(), name


def check_user_network(estimator: BaseCrowdClassifier) -> None:
    """Check that a user's own module serves as backbone and is not trained in place."""
    X, A, _ = make_crowd_problem()
    own = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    before = copy.deepcopy(own.state_dict())
    fitted = quick_clone(estimator, backbone=own).fit(X, A)
    assert fitted.predict_proba(X).shape == (len(X), 3)
    assert not hasattr(fitted, "transform"), "a network without embed() cannot transform"
    for name, value in own.state_dict().items():
        assert torch.equal(value, before[name]), f"the user's module was trained in place: {name}"
