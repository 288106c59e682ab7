"""CIFAR-10H with its least accurate annotators only, after CrowdInG."""

from __future__ import annotations

import numpy as np
import pytest

from manyhands.annotations import AnnotationTable
from manyhands.datasets import (
    CrowdDataset,
    load_cifar10h,
    low_quality,
    make_low_quality_cifar10h,
)
from manyhands.exceptions import AnnotationError

NAMES = np.array(["c", "a", "b"])
N, N_TEST, R = 120, 30, 6


@pytest.fixture
def made(monkeypatch):
    """A crowd in place of CIFAR-10H: annotator r is wrong on every r-th of the images they saw."""
    gold = np.arange(N) % 3
    instance, annotator, label = [], [], []
    for r in range(R):
        seen = np.arange(r, N, R)
        wrong = np.arange(len(seen)) < [0, 10, 4, 9, 2, 20][r]
        instance.extend(seen)
        annotator.extend([r] * len(seen))
        label.extend(np.where(wrong, (gold[seen] + 1) % 3, gold[seen]))
    data = CrowdDataset(
        X_train=np.arange(N, dtype=np.float32)[:, None],
        annotations=AnnotationTable(
            np.array(instance),
            np.array(annotator),
            np.array(label),
            np.array([f"test_{i}" for i in range(N)]),
            np.arange(100, 100 + R),
            NAMES,
        ),
        y_train=NAMES[gold],
        X_valid=None,
        y_valid=None,
        X_test=np.arange(1000, 1000 + N_TEST, dtype=np.float32)[:, None],
        y_test=NAMES[np.arange(N_TEST) % 3],
        classes=NAMES,
        description="made",
        licence="none needed",
        name="cifar10h",
    )
    monkeypatch.setattr(low_quality, "load_cifar10h", lambda *_: data)
    return data


def test_the_least_accurate_stay_with_all_that_they_labelled(made):
    data = make_low_quality_cifar10h(3)
    assert data.annotations.annotators.tolist() == [101, 103, 105]
    rows = data.X_train[:, 0].astype(int)
    assert rows.tolist() == [i for i in range(N) if i % R in (1, 3, 5)]
    assert data.annotations.instances.tolist() == [f"test_{i}" for i in rows]
    np.testing.assert_array_equal(data.y_train, made.y_train[rows])
    columns = made.annotations.to_matrix()[rows][:, [1, 3, 5]]
    np.testing.assert_array_equal(data.annotations.to_matrix(), columns)
    assert data.X_valid is None


def test_test_images_are_no_training_images(made):
    data = make_low_quality_cifar10h(R)
    np.testing.assert_array_equal(data.X_test, made.X_test)
    np.testing.assert_array_equal(data.y_test, made.y_test)
    assert not set(data.X_train[:, 0]) & set(data.X_test[:, 0])


def test_seeds_choose_test_images_alone(made):
    one, same, other = (make_low_quality_cifar10h(2, n_test=10, random_state=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.X_test, same.X_test)
    assert not np.array_equal(one.X_test, other.X_test)
    assert one.annotations.equals(other.annotations)
    rows = one.X_test[:, 0].astype(int) - 1000
    assert len(set(rows.tolist())) == 10
    np.testing.assert_array_equal(one.y_test, made.y_test[rows])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_annotators", 0),
        ("n_annotators", R + 1),
        ("n_annotators", 2.5),
        ("n_test", 0),
        ("n_test", N_TEST + 1),
        ("n_test", "all"),
    ],
)
def test_bad_arguments_are_named(made, argument, value):
    with pytest.raises(AnnotationError, match=argument):
        make_low_quality_cifar10h(**{"n_annotators": 2, argument: value})


@pytest.mark.data
def test_the_real_set_is_near_the_papers(data_home):
    data = make_low_quality_cifar10h(data_home=data_home)
    table = data.annotations
    # The paper: 8,687 images, 103 annotators, 200 each, 2.37 an image, 78.2 %.
    assert table.shape == (8654, 103)
    assert table.n_annotations == 19819
    assert table.annotations_per_instance().min() == 1
    gold = np.searchsorted(data.classes, data.y_train)
    accuracy = np.bincount(table.annotator, table.label == gold[table.instance])
    accuracy = accuracy / table.annotations_per_annotator()
    assert accuracy.mean() == pytest.approx(0.780, abs=5e-4)
    assert accuracy.std() == pytest.approx(0.200, abs=5e-4)
    assert len(data.y_test) == 3000
    pictures = {row.tobytes() for row in data.X_train}
    assert not any(row.tobytes() in pictures for row in data.X_test)
    # The docstring: of those with all 200 annotations the least accurate are 81.9 % right.
    whole = load_cifar10h(data_home)
    gold = np.searchsorted(whole.classes, whole.y_train)
    right = whole.annotations.label == gold[whole.annotations.instance]
    each = whole.annotations.annotations_per_annotator()
    full = np.sort((np.bincount(whole.annotations.annotator, right) / each)[each == 200])
    assert full[:103].mean() == pytest.approx(0.819, abs=5e-4)
