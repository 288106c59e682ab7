"""The sets of CoNAL, NeuCrowd and ICED that are simulated, in part or in whole; GSAD and Hotel."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from evidence.data import (
    ICED_TASKS,
    SimulatedCrowdDataset,
    iced,
    make_conal_cifar10,
    make_conal_synthetic,
    make_iced_synthetic,
    make_neucrowd_synthetic,
)
from evidence.data.iced import _confusions, _padded, _with_rare_thinned
from evidence.data.neucrowd import _error_rates
from manyhands.agreement import fleiss_kappa
from manyhands.annotations import AnnotationTable
from manyhands.datasets import CrowdDataset, load_gsad, load_hotel
from manyhands.datasets.base import user_cache
from manyhands.datasets.fetch import _slots
from manyhands.datasets.hotel import _in_random_slots
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


# -- GSAD, and ICED's imbalanced pairs of classes with simulated crowds ---------------------------


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
def test_bad_arguments_of_pairs_are_named(made, changed, match):
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
