"""CoNAL's and NeuCrowd's sets: simulated ones, and Hotel, of which totals are known."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from manyhands.agreement import fleiss_kappa
from manyhands.annotations import AnnotationTable
from manyhands.datasets import (
    SimulatedCrowdDataset,
    load_hotel,
    make_conal_cifar10,
    make_conal_synthetic,
    make_neucrowd_synthetic,
)
from manyhands.datasets.base import user_cache
from manyhands.datasets.fetch import _slots
from manyhands.datasets.hotel import _in_random_slots
from manyhands.datasets.neucrowd import _error_rates
from manyhands.exceptions import AnnotationError, DataNotFoundError
from manyhands.inference import MajorityVote

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


RNG = np.random.RandomState

# -- totals -----------------------------------------------------------------------------------


def test_totals_become_slots_by_hand():
    found = _slots(
        {
            "task": np.array(["b", "a", "c"]),
            "n_positive": np.array(["1", "0", "3"]),
            "n_workers": np.array(["2", "1", "3"]),
        }
    )
    assert found["task"].tolist() == ["b", "b", "a", "c", "c", "c"]
    assert found["worker"].tolist() == [f"slot_{k}" for k in (0, 1, 0, 0, 1, 2)]
    assert found["label"].tolist() == [1, 0, 0, 1, 1, 1]


def ordered(n=400, seed=0):
    """The positive votes in the first slots; annotations stand in random order."""
    rng = np.random.default_rng(seed)
    positive = rng.integers(0, 6, size=n)
    cells = rng.permutation(5 * n)
    label = (cells % 5 < positive[cells // 5]).astype(int)
    names = [np.arange(n), np.array([f"slot_{k}" for k in range(5)]), np.array([0, 1])]
    return AnnotationTable(cells // 5, cells % 5, label, *names)


def test_random_slots_keep_every_total_and_tell_no_annotators_apart():
    table = ordered()
    found = _in_random_slots(table, RNG(0))
    np.testing.assert_array_equal(found.vote_counts(), table.vote_counts())
    for name in ("instance", "annotator"):
        np.testing.assert_array_equal(getattr(found, name), getattr(table, name))
    share = table.label.mean()
    assert np.ptp(table.to_matrix().mean(axis=0)) > 0.5
    spread = np.sqrt(share * (1 - share) / table.n_instances)
    assert (abs(found.to_matrix().mean(axis=0) - share) < 4.5 * spread).all()
    assert found.equals(_in_random_slots(table, RNG(0)))
    assert not found.equals(_in_random_slots(table, RNG(1)))


def test_hotel_that_is_nowhere_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(DataNotFoundError, match=r"cannot be fetched.*votes\.csv"):
        load_hotel(tmp_path)
    assert not user_cache().exists()


@pytest.mark.data
def test_hotel(data_home):
    data = load_hotel(data_home)
    parts = (data.y_train, data.y_valid, data.y_test)
    assert [len(y) for y in parts] == [447, 112, 140]
    assert data.X_train.shape == (447, 300)
    assert data.annotations.shape == (447, 7)
    assert (data.annotations.annotations_per_instance() == 7).all()
    assert np.concatenate(parts).mean() == pytest.approx(0.43, abs=5e-3)
    assert fleiss_kappa(data.annotations) == pytest.approx(0.826, abs=5e-4)
    # The gold is the majority vote, and the seed does not touch it.
    np.testing.assert_array_equal(MajorityVote().fit_predict(data.annotations), data.y_train)
    other = load_hotel(data_home, random_state=1).annotations
    assert not other.equals(data.annotations)
    np.testing.assert_array_equal(other.vote_counts(), data.annotations.vote_counts())
    # No slot is better than chance makes it.
    right = (data.annotations.to_matrix() == data.y_train[:, None]).mean(axis=0)
    assert np.ptp(right) < 0.05


# -- Syn1 and Syn2 ----------------------------------------------------------------------------


@pytest.mark.parametrize(("which", "annotators"), [("syn1", 7), ("syn2", 11)])
def test_sizes_of_syn1_and_syn2_are_the_papers(which, annotators):
    data = make_neucrowd_synthetic(which)
    assert isinstance(data, SimulatedCrowdDataset)
    shapes = [X.shape for X in (data.X_train, data.X_valid, data.X_test)]
    assert shapes == [(800, 1200), (200, 1200), (500, 1200)]
    assert [len(y) for y in (data.y_train, data.y_valid, data.y_test)] == [800, 200, 500]
    assert data.X_train.dtype == np.float32
    assert data.annotations.shape == (800, annotators)
    assert (data.annotations.annotations_per_instance() == annotators).all()
    assert data.y_train.mean() == pytest.approx(0.5, abs=4.5 * 0.5 / np.sqrt(800))
    assert 0.35 < fleiss_kappa(data.annotations) < 0.75
    # Every column is informative, with the deviation of those that the authors released.
    spread = np.concatenate([data.X_train, data.X_valid, data.X_test]).std(axis=0)
    assert spread.min() > 15
    assert spread.mean() == pytest.approx(20, abs=0.5)


def test_mistakes_are_the_annotators_own_and_alike_on_both_classes():
    data = make_neucrowd_synthetic("syn1", random_state=3)
    error = 1 - data.truth.confusion[:, 0, 0]
    np.testing.assert_allclose(data.truth.confusion[:, 1, 0], error)
    wrong = (data.annotations.to_matrix() != data.y_train[:, None]).mean(axis=0)
    assert (abs(wrong - error) < 4.5 * np.sqrt(0.25 / 800)).all()


def test_error_rates_are_of_the_truncated_normal_distribution():
    rates = _error_rates(20000, RNG(0))
    assert rates.min() >= 0.01
    assert rates.max() <= 0.5
    assert rates.mean() == pytest.approx(0.133, abs=0.002)


def test_seeds_and_names():
    one, same, other = (make_neucrowd_synthetic(random_state=s) for s in (0, 0, 1))
    assert one.annotations.equals(same.annotations)
    np.testing.assert_array_equal(one.X_test, same.X_test)
    assert not np.array_equal(one.X_test, other.X_test)
    np.testing.assert_array_equal(make_neucrowd_synthetic("syn2").X_test, one.X_test)
    with pytest.raises(AnnotationError, match="which='syn3' is unknown; use 'syn1' or 'syn2'"):
        make_neucrowd_synthetic("syn3")
