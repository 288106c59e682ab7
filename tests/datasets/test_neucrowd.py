"""NeuCrowd's data: Hotel, of which totals are known, and Syn1 and Syn2 made anew."""

from __future__ import annotations

import numpy as np
import pytest

from manyhands.agreement import fleiss_kappa
from manyhands.annotations import AnnotationTable
from manyhands.datasets import SimulatedCrowdDataset, load_hotel, make_neucrowd_synthetic
from manyhands.datasets.base import user_cache
from manyhands.datasets.fetch import _slots
from manyhands.datasets.hotel import _in_random_slots
from manyhands.datasets.neucrowd import _error_rates
from manyhands.exceptions import AnnotationError, DataNotFoundError
from manyhands.inference import MajorityVote

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
def test_sizes_are_the_papers(which, annotators):
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
