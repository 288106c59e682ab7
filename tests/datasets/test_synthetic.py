"""CoNAL's simulated sets: sizes, strengths, proportions; and the truth is the crowd's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from manyhands.datasets import SimulatedCrowdDataset, make_conal_cifar10, make_conal_synthetic
from manyhands.exceptions import AnnotationError, DataNotFoundError

PATTERNS = ["asymmetric", "symmetric"]


def counted(data, rows):
    """Confusion counts [true, given] of some of the annotations."""
    table = data.annotations
    counts = np.zeros((table.n_classes, table.n_classes))
    np.add.at(counts, (data.y_train[table.instance[rows]], table.label[rows]), 1.0)
    return counts


def within_chance(counts, probability, sigmas=4.5):
    n = counts.sum(axis=-1, keepdims=True)
    spread = np.sqrt(n * probability * (1 - probability))
    return bool((np.abs(counts - n * probability) <= sigmas * spread + 1e-9).all())


def test_sizes_are_the_papers():
    data = make_conal_synthetic()
    assert isinstance(data, SimulatedCrowdDataset)
    assert (len(data.X_train), len(data.X_valid), len(data.X_test)) == (8000, 1000, 1000)
    assert (len(data.y_train), len(data.y_valid), len(data.y_test)) == (8000, 1000, 1000)
    assert data.X_train.dtype == np.float32
    assert data.annotations.shape == (8000, 30)
    assert data.annotations.classes.tolist() == list(range(6))
    per_instance = data.annotations.annotations_per_instance()
    assert per_instance.min() >= 1
    assert per_instance.mean() == pytest.approx(3.0, abs=0.07)
    every = np.concatenate([data.y_train, data.y_valid, data.y_test])
    assert within_chance(np.bincount(every, minlength=6)[None], np.full((1, 6), 1 / 6))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("strength", "proportion"), [(0.4, 0.3), (0.8, 0.7), (0.7, 0.5)])
def test_strength_and_proportion_are_those_asked_for(pattern, strength, proportion):
    data = make_conal_synthetic(pattern, strength, proportion)
    truth = data.truth
    common = truth.common_confusion
    np.testing.assert_allclose(common.sum(axis=1) - common.diagonal(), strength)
    assert ((common > 0).sum(axis=1) == 2).all()
    assert (pattern == "symmetric") <= np.allclose(common, common.T)
    n = len(truth.gate)
    assert truth.gate.mean() == pytest.approx(proportion, abs=1e-6)
    assert truth.from_common.mean() == pytest.approx(proportion, abs=4.5 * 0.5 / np.sqrt(n))
    assert truth.gate.std() > 0.1
    assert within_chance(counted(data, truth.from_common), common)
    own = truth.confusion
    np.testing.assert_allclose(own.sum(axis=2) - np.einsum("rcc->rc", own), 0.7)
    for annotator in range(3):
        rows = ~truth.from_common & (data.annotations.annotator == annotator)
        assert within_chance(counted(data, rows), own[annotator])


def test_proportion_0_has_no_common_noise():
    data = make_conal_synthetic(common_proportion=0.0)
    assert not data.truth.from_common.any()
    assert (data.truth.gate == 0).all()


def test_individual_strength_is_a_parameter():
    own = make_conal_synthetic(individual_strength=0.3).truth.confusion
    np.testing.assert_allclose(np.einsum("rcc->rc", own), 0.7)


def test_same_seed_same_set_other_seed_another():
    first, second, other = (make_conal_synthetic(random_state=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(first.X_train, second.X_train)
    np.testing.assert_array_equal(first.annotations.label, second.annotations.label)
    np.testing.assert_array_equal(first.y_test, second.y_test)
    assert not np.array_equal(first.X_train, other.X_train)


def test_settings_of_one_seed_share_instances_and_assignment():
    mild = make_conal_synthetic("asymmetric", 0.4, 0.0)
    hard = make_conal_synthetic("asymmetric", 0.8, 0.7)
    np.testing.assert_array_equal(mild.X_train, hard.X_train)
    np.testing.assert_array_equal(mild.annotations.annotator, hard.annotations.annotator)
    np.testing.assert_array_equal(mild.truth.confusion, hard.truth.confusion)


def test_separation_leaves_gold_labels_neither_perfect_nor_bad():
    data = make_conal_synthetic()
    ceiling = LinearDiscriminantAnalysis().fit(data.X_train, data.y_train)
    assert 0.9 < ceiling.score(data.X_test, data.y_test) < 0.98
    near, far = (make_conal_synthetic(separation=s) for s in (0.0, 3.0))
    for made, low, high in ((near, 0.1, 0.25), (far, 0.999, 1.0)):
        model = LinearDiscriminantAnalysis().fit(made.X_train, made.y_train)
        assert low <= model.score(made.X_test, made.y_test) <= high


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("common_noise", "uniform"),
        ("common_noise", None),
        ("common_strength", 1.2),
        ("common_proportion", -0.1),
        ("individual_strength", 2.0),
        ("gate_temperature", -1.0),
        ("n_features", 0),
        ("separation", -1.0),
    ],
)
def test_bad_arguments_are_named(argument, value):
    name = "noise_strength" if argument == "individual_strength" else argument
    with pytest.raises(AnnotationError, match=name):
        make_conal_synthetic(**{argument: value})


def test_images_that_are_nowhere_are_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataNotFoundError, match="cifar10n"):
        make_conal_cifar10(data_home=tmp_path)


@pytest.mark.data
def test_cifar10_pairs_similar_classes(data_home):
    data = make_conal_cifar10("symmetric", 0.4)
    assert data.X_train.shape == (8000, 3, 32, 32)
    assert (len(data.X_valid), len(data.X_test)) == (2000, 2000)
    assert data.X_train.max() == 1.0
    classes = data.classes.tolist()
    common = data.truth.common_confusion
    np.testing.assert_array_equal(common, common.T)
    for one, other in (("airplane", "bird"), ("automobile", "truck"), ("cat", "dog")):
        assert common[classes.index(one), classes.index(other)] == pytest.approx(0.4)
    # Skies are bluer than woods: the colours are where a network looks for them.
    blue_less_red = (data.X_train[:, 2] - data.X_train[:, 0]).mean(axis=(1, 2))
    airplane, deer = (blue_less_red[data.y_train == name].mean() for name in ("airplane", "deer"))
    assert airplane > deer
