"""GSAD, and ICED's imbalanced pairs of classes with simulated crowds."""

from __future__ import annotations

import numpy as np
import pytest

from manyhands.annotations import AnnotationTable
from manyhands.datasets import (
    ICED_TASKS,
    CrowdDataset,
    SimulatedCrowdDataset,
    iced,
    load_gsad,
    make_iced_synthetic,
)
from manyhands.datasets.base import user_cache
from manyhands.datasets.iced import _confusions, _padded, _with_rare_thinned
from manyhands.exceptions import AnnotationError, DataNotFoundError

RNG = np.random.RandomState


def digits(n=(300, 200, 250), seed=0):
    """Three classes without annotations, in two parts; the first feature is the row's number."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([3, 5, 7], n))
    X = rng.random((len(y), 4)).astype(np.float32)
    X[:, 0] = np.arange(len(y))
    empty = np.array([], dtype=int)
    return CrowdDataset(
        X_train=X[:600],
        annotations=AnnotationTable(
            empty, empty, empty, np.arange(600), empty, np.array([3, 5, 7])
        ),
        y_train=y[:600],
        X_valid=None,
        y_valid=None,
        X_test=X[600:],
        y_test=y[600:],
        classes=np.array([3, 5, 7]),
        description="made",
        licence="none needed",
        name="made",
    )


@pytest.fixture
def made(monkeypatch):
    data = digits()
    for name, n_features in (("small", None), ("padded", 20)):
        task = iced._Task(lambda _: data, 3, 7, 5, (0.1, 0.3), n_features)
        monkeypatch.setitem(iced.TASKS, name, task)
    return data


def pooled(data):
    return np.concatenate([data.y_train, data.y_test])


@pytest.mark.parametrize("seed", range(3))
def test_parts_are_disjoint_and_of_the_sizes_of_the_rule(made, seed):
    data = make_iced_synthetic("small", random_state=seed)
    # 300 of the frequent class: 60 for testing, 240 for training, and a tenth of these is rare.
    assert np.bincount(data.y_train).tolist() == [240, 24]
    assert np.bincount(data.y_test).tolist() == [60, 60]
    rows = [X[:, 0].astype(int) for X in (data.X_train, data.X_test)]
    assert len(set(np.concatenate(rows).tolist())) == 264 + 120
    for row, y in zip(rows, (data.y_train, data.y_test), strict=True):
        np.testing.assert_array_equal(np.where(y == 1, 7, 3), pooled(made)[row])
    assert (data.X_valid, data.y_valid) == (None, None)
    assert isinstance(data, SimulatedCrowdDataset)
    assert "SIMULATED" in data.description
    again = make_iced_synthetic("small", random_state=seed)
    assert again.annotations.equals(data.annotations)
    np.testing.assert_array_equal(again.X_test, data.X_test)
    other = make_iced_synthetic("small", random_state=seed + 10)
    assert not np.array_equal(other.X_train, data.X_train)


def test_everyone_labels_everything_with_the_confusions_of_the_truth(made):
    data = make_iced_synthetic("small")
    table = data.annotations
    assert table.shape == (264, 5)
    assert (table.annotations_per_instance() == 5).all()
    error = 1 - np.einsum("rcc->rc", data.truth.confusion)
    assert ((error >= 0.1) & (error <= 0.3)).all()
    assert len(np.unique(error)) == 10
    for annotator in range(5):
        mine = table.to_matrix()[:, annotator]
        for true in (0, 1):
            asked = data.y_train == true
            spread = np.sqrt(0.25 / asked.sum())
            wrong = (mine[asked] != true).mean()
            assert abs(wrong - error[annotator, true]) < 4.5 * spread
    # Ranges of no width leave nothing to chance.
    perfect = make_iced_synthetic("small", error=(0, 0))
    np.testing.assert_array_equal(
        perfect.annotations.to_matrix(), np.repeat(perfect.y_train[:, None], 5, axis=1)
    )


def test_a_test_part_as_it_comes_leaves_the_rest_as_it_is(made):
    balanced = make_iced_synthetic("small", imbalance=4, random_state=1)
    comes = make_iced_synthetic("small", imbalance=4, random_state=1, balanced_test=False)
    assert np.bincount(comes.y_test).tolist() == [60, 15]
    assert comes.annotations.equals(balanced.annotations)
    np.testing.assert_array_equal(comes.X_train, balanced.X_train)
    mine, theirs = (set(data.X_test[:, 0].tolist()) for data in (comes, balanced))
    assert mine < theirs


def test_one_of_the_rare_class_is_left_for_testing():
    y = np.repeat([0, 1], [6, 6])
    assert _with_rare_thinned(y, 3.0).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert _with_rare_thinned(y, 100.0).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_confusions_by_hand():
    found = _confusions(np.array([[0.1, 0.3]]))
    np.testing.assert_allclose(found, [[[0.9, 0.1], [0.3, 0.7]]])


def test_padding_is_half_products_half_permuted_copies():
    X = np.random.default_rng(0).random((50, 4)).astype(np.float32)
    padded = _padded(X, 20, RNG(0))
    assert padded.shape == (50, 20)
    assert padded.dtype == np.float32
    np.testing.assert_array_equal(padded[:, :4], X)
    products = [X[:, i] * X[:, j] for i in range(4) for j in range(4)]
    for column in padded[:, 4:10].T:
        assert any(np.allclose(column, product) for product in products)
    real = padded[:, :10].T
    for column in padded[:, 10:].T:
        assert any(np.array_equal(np.sort(column), np.sort(other)) for other in real)
        assert not any(np.array_equal(column, other) for other in real)
    assert _padded(X, None, RNG(0)) is X


def test_a_padded_task_has_its_features(made):
    data = make_iced_synthetic("padded")
    assert (data.X_train.shape, data.X_test.shape) == ((264, 20), (120, 20))
    assert "20 features, half of them distractors" in data.description
    rows = data.X_train[:, 0].astype(int)
    np.testing.assert_array_equal(np.where(data.y_train == 1, 7, 3), pooled(made)[rows])


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"task": "emotion"}, "task='emotion' is unknown; use one of 'usps'"),
        ({"imbalance": 0.5}, "imbalance=0.5 must be finite"),
        ({"imbalance": np.inf}, "imbalance=inf must be finite"),
        ({"imbalance": 1000}, "imbalance=1000 leaves the rare class 0 training instances"),
        ({"imbalance": 1}, "leaves the rare class 240 training instances.*leave 1 to 190"),
        ({"error": (0.5, 0.2)}, "error="),
        ({"error": 0.2}, "error="),
        ({"error": (0.2, 1.2)}, "error="),
    ],
)
def test_bad_arguments_are_named(made, changed, match):
    with pytest.raises(AnnotationError, match=match):
        make_iced_synthetic(**{"task": "small", **changed})


def test_gsad_that_is_nowhere_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(DataNotFoundError, match="cannot be fetched"):
        load_gsad(tmp_path)
    assert not user_cache().exists()


@pytest.mark.data
def test_gsad(data_home):
    data = load_gsad(data_home)
    assert data.annotations.shape == (6697, 0)
    assert data.X_train.shape == (6697, 128)
    assert (data.X_valid, data.X_test) == (None, None)
    counts = [(data.y_train == name).sum() for name in data.classes]
    assert counts == [1316, 1664, 681, 592, 1779, 665]
    batches = {name.split("_")[0] for name in data.annotations.instances.tolist()}
    assert batches == {f"b{number}" for number in (1, 2, 3, 4, 5, 6, 8, 9)}
    # A gas is a gas in every batch: the classes' order is that of the source.
    assert data.classes[[1, 4]].tolist() == ["Ethylene", "Acetone"]


def kept(data, levels):
    most = data.annotations.vote_counts().max(axis=1)
    return (most > data.annotations.n_annotators - levels).mean()


@pytest.mark.data
@pytest.mark.parametrize("task", ICED_TASKS)
def test_tasks_have_the_sizes_and_certainty_the_page_names(data_home, task):
    sizes = {"usps": ((668, 66), 166, 256, 9), "usps_hard": ((682, 68), 170, 256, 9)}
    sizes |= {"gsad": ((1332, 133), 332, 128, 11), "gisette_like": ((682, 68), 170, 5000, 7)}
    train, test, width, annotators = sizes[task]
    made = [make_iced_synthetic(task, data_home=data_home, random_state=s) for s in range(5)]
    data = made[0]
    assert np.bincount(data.y_train).tolist() == list(train)
    assert np.bincount(data.y_test).tolist() == [test, test]
    assert data.X_train.shape == (sum(train), width)
    assert data.annotations.shape == (sum(train), annotators)
    rows = {row.tobytes() for row in data.X_train}
    assert not any(row.tobytes() in rows for row in data.X_test)
    # Table 3's shares; five seeds are within .05 of the mean of twenty.
    levels, share = {"gsad": (3, 0.197), "gisette_like": (3, 0.663)}.get(task, (2, 0.140))
    assert np.mean([kept(data, levels) for data in made]) == pytest.approx(share, abs=0.06)
