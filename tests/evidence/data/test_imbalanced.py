"""CIFAR-10H and N, USPS, and what is made of them: long tails and imbalanced binary tasks."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.data import (
    IMBALANCED_TASKS,
    SimulatedCrowdDataset,
    cifar10h,
    imbalanced,
    make_imbalanced_binary,
    make_long_tailed_cifar10h,
)
from evidence.data.cifar10h import _long_tail
from evidence.data.imbalanced import TASKS, _against_rest, _confusions, _thinned
from manyhands.annotations import AnnotationTable
from manyhands.datasets import (
    CrowdDataset,
    load_cifar10h,
    load_cifar10n,
    load_reports,
    load_usps,
)
from manyhands.datasets.base import user_cache
from manyhands.exceptions import AnnotationError, DataNotFoundError
from manyhands.inference import MajorityVote

NAMES = np.array(["c", "a", "d", "b"])


def crowd(n=2400, n_annotators=12, seed=0):
    """Every instance's number is its feature; annotator r is right with probability r / 12."""
    rng = np.random.default_rng(seed)
    gold = rng.permutation(np.arange(n) % 4)
    instance = np.repeat(np.arange(n), 3)
    annotator = np.concatenate([rng.permutation(n_annotators)[:3] for _ in range(n)])
    right = rng.random(3 * n) < annotator / n_annotators
    label = np.where(right, gold[instance], rng.integers(4, size=3 * n))
    return CrowdDataset(
        X_train=np.arange(n, dtype=np.float32)[:, None],
        annotations=AnnotationTable(
            instance,
            annotator,
            label,
            np.array([f"test_{i}" for i in range(n)]),
            np.arange(100, 100 + n_annotators),
            NAMES,
        ),
        y_train=NAMES[gold],
        X_valid=None,
        y_valid=None,
        X_test=None,
        y_test=None,
        classes=NAMES,
        description="made",
        licence="none needed",
        name="cifar10h",
    )


@pytest.fixture
def made(monkeypatch):
    """A crowd in place of CIFAR-10H."""
    data = crowd()
    monkeypatch.setattr(cifar10h, "load_cifar10h", lambda *_: data)
    return data


# -- long tail --------------------------------------------------------------------------------


def test_long_tail_by_hand():
    # 100 * 4^(-i/2): 100, 50, 25.
    assert _long_tail(np.array([100, 100, 100]), 4.0).tolist() == [100, 50, 25]
    # The second class has 30, so that the first cannot have more than 60.
    assert _long_tail(np.array([100, 30, 100]), 4.0).tolist() == [60, 30, 15]
    # 103 / 4 is no whole number: 100, for the ratio to be exact.
    assert _long_tail(np.array([103, 103, 103]), 4.0).tolist() == [100, 50, 25]
    assert _long_tail(np.array([7, 9]), 1.0).tolist() == [7, 7]


@pytest.mark.parametrize("imbalance", [1, 2.5, 3, 5, 10])
def test_long_tail_follows_the_formula_and_takes_no_more_than_there_is(imbalance):
    rng = np.random.default_rng(0)
    for _ in range(50):
        available = rng.integers(60, 600, size=10)
        sizes = _long_tail(available, float(imbalance))
        assert (sizes <= available).all()
        for i, size in enumerate(sizes):
            assert abs(size - sizes[0] * imbalance ** (-i / 9)) <= 0.5 + 1e-9
        if imbalance == int(imbalance):
            assert sizes[0] == imbalance * sizes[-1]
        # One more of the last class is more than some class has.
        more = round((sizes[-1] + 1) * imbalance) * imbalance ** (-np.arange(10) / 9)
        assert (np.rint(more) > available).any()


def test_a_tail_too_long_is_refused():
    with pytest.raises(AnnotationError, match=r"imbalance=50.*without training.*have \[30, 30"):
        _long_tail(np.array([30, 30]), 50.0)


@pytest.mark.parametrize("seed", range(3))
def test_test_part_is_balanced_and_disjoint_from_training(made, seed):
    data = make_long_tailed_cifar10h(3, 4, random_state=seed)
    assert all((data.y_test == name).sum() == 100 for name in NAMES)
    train, test = (set(X[:, 0].astype(int).tolist()) for X in (data.X_train, data.X_test))
    assert not train & test
    assert len(train) == len(data.y_train) == data.annotations.n_instances
    for X, y in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        np.testing.assert_array_equal(made.y_train[X[:, 0].astype(int)], y)
    names = [f"test_{i:.0f}" for i in data.X_train[:, 0]]
    assert data.annotations.instances.tolist() == names
    assert data.X_valid is None


def test_the_gold_ratio_is_exact_and_follows_the_order_of_the_classes(made):
    data = make_long_tailed_cifar10h(4, 6)
    counts = [(data.y_train == name).sum() for name in NAMES]
    assert counts[0] == 4 * counts[3]
    assert counts == sorted(counts, reverse=True)
    assert counts == _long_tail(np.array([counts[0]] * 4), 4.0).tolist()


def test_the_least_accurate_annotate_and_nobody_else(made):
    data = make_long_tailed_cifar10h(2, 4)
    assert data.annotations.annotators.tolist() == [100, 101, 102, 103]
    assert (data.annotations.annotations_per_instance() > 0).all()
    place = {name: row for row, name in enumerate(made.annotations.instances)}
    kept = made.annotations.to_matrix()[[place[name] for name in data.annotations.instances], :4]
    np.testing.assert_array_equal(data.annotations.to_matrix(), kept)


def test_seeds_choose_images_not_annotators(made):
    one, same, other = (make_long_tailed_cifar10h(3, 4, random_state=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.X_train, same.X_train)
    assert one.annotations.equals(same.annotations)
    assert not np.array_equal(one.X_test, other.X_test)
    np.testing.assert_array_equal(one.annotations.annotators, other.annotations.annotators)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("imbalance", 0.5),
        ("imbalance", float("inf")),
        ("imbalance", "5"),
        ("n_annotators", 0),
        ("n_annotators", 13),
        ("n_annotators", 2.5),
    ],
)
def test_bad_arguments_of_the_long_tail_are_named(made, argument, value):
    with pytest.raises(AnnotationError, match=argument):
        make_long_tailed_cifar10h(**{argument: value})


def test_features_that_are_unknown_are_named():
    with pytest.raises(AnnotationError, match="features='pixels' is unknown; use 'compact' or"):
        load_cifar10h(features="pixels")


@pytest.mark.parametrize("load", [load_cifar10h, load_cifar10n, load_usps])
def test_a_set_that_is_nowhere_says_so(load, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(DataNotFoundError, match="cannot be fetched"):
        load(tmp_path)
    assert not user_cache().exists()


# -- imbalanced binary tasks ------------------------------------------------------------------


def test_one_against_the_rest_by_a_loop():
    table = crowd(n=50).annotations
    found = _against_rest(table, "a")
    assert found.n_annotations == table.n_annotations
    for row in range(table.n_annotations):
        was = table.classes[table.label[row]]
        assert found.classes[found.label[row]] == (1 if was == "a" else 0)
    np.testing.assert_array_equal(found.instance, table.instance)
    np.testing.assert_array_equal(found.annotator, table.annotator)


def test_thinning_leaves_some_random_annotations_of_every_instance():
    table = crowd(n=300).annotations
    found = _thinned(table, 2, np.random.RandomState(0))
    assert (found.annotations_per_instance() == 2).all()
    cells = {tuple(row) for row in zip(table.instance, table.annotator, table.label, strict=True)}
    assert all(
        tuple(row) in cells
        for row in zip(found.instance, found.annotator, found.label, strict=True)
    )
    # Each of the three is left out as often.
    gone = [
        np.flatnonzero(~np.isin(table.annotator[3 * i : 3 * i + 3], found[[i]].annotator))[0]
        for i in range(300)
    ]
    assert (np.bincount(gone, minlength=3) > 70).all()


@pytest.mark.parametrize("task", ["usps_5", "usps_8"])
def test_simulated_confusions_have_the_rows_accuracy_and_imbalance(task):
    spec = TASKS[task].crowd
    rare = 1 / (1 + TASKS[task].imbalance)
    rng = np.random.RandomState(0)
    confusion = np.mean([_confusions(spec, rare, rng) for _ in range(2000)], axis=(0, 1))
    np.testing.assert_allclose(confusion.sum(axis=1), 1.0)
    truth = np.array([1 - rare, rare])
    assert truth @ confusion.diagonal() == pytest.approx(spec.accuracy, abs=1e-3)
    given = truth @ confusion
    assert given[0] / given[1] == pytest.approx(spec.imbalance, rel=0.01)


def test_an_unknown_task_is_named():
    with pytest.raises(AnnotationError, match="task='usps' is unknown; use one of 'usps_5'"):
        make_imbalanced_binary("usps")


@pytest.fixture
def small(monkeypatch):
    """The reports' place taken by a crowd with a test part; features are its rows' numbers."""
    data = crowd(n=400)
    rng = np.random.default_rng(5)
    gold = rng.integers(4, size=60)
    bigger = CrowdDataset(
        **{
            **vars(data),
            "X_test": np.arange(400, 460, dtype=np.float32)[:, None],
            "y_test": NAMES[gold],
        }
    )
    task = imbalanced._Task(lambda _: bigger, "a", "a row", 120, 5.0, 30, thinned_to=2)
    monkeypatch.setitem(imbalanced.TASKS, "small", task)
    return bigger


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_a_task_are_disjoint_and_as_asked(small, seed):
    data = make_imbalanced_binary("small", random_state=seed)
    gold = np.concatenate([small.y_train, small.y_test]) == "a"
    train, test = data.X_train[:, 0].astype(int), data.X_test[:, 0].astype(int)
    assert not set(train) & set(test)
    np.testing.assert_array_equal(gold[train], data.y_train)
    np.testing.assert_array_equal(gold[test], data.y_test)
    assert np.bincount(data.y_test).tolist() == [30, 30]
    assert np.bincount(data.y_train).tolist() == [100, 20]
    # The test part of the set goes first: it has more of the rest than are asked for.
    assert (test[data.y_test == 0] >= 400).all()
    assert set(test[data.y_test == 1]) >= set(400 + np.flatnonzero(small.y_test == "a"))
    assert (train < 400).all()
    assert (data.annotations.annotations_per_instance() == 2).all()
    whole = _against_rest(small.annotations, "a").to_matrix()[train]
    thin = data.annotations.to_matrix(codes=True)
    for mine, theirs in zip(thin, whole, strict=True):
        chosen = mine >= 0
        assert (mine[chosen] == theirs[chosen]).all()
    again = make_imbalanced_binary("small", random_state=seed)
    assert again.annotations.equals(data.annotations)
    np.testing.assert_array_equal(again.X_test, data.X_test)


def test_half_of_the_rare_class_is_for_training(small):
    n_rare = int((np.concatenate([small.y_train, small.y_test]) == "a").sum())
    data = make_imbalanced_binary("small", n_test_per_class=n_rare // 2)
    assert len(data.y_test) == 2 * (n_rare // 2)
    for size in (0, n_rare // 2 + 1, 2.5):
        with pytest.raises(AnnotationError, match=rf"n_test_per_class={size}.*1 to {n_rare // 2}"):
            make_imbalanced_binary("small", n_test_per_class=size)


# -- the real sets ----------------------------------------------------------------------------


def expected_majority(data):
    gold = np.searchsorted(data.classes, data.y_train)
    posterior = MajorityVote(soft=False, ties="distribute").fit_predict_proba(data.annotations)
    return posterior[np.arange(len(gold)), gold].mean()


def annotators(data):
    gold = np.searchsorted(data.classes, data.y_train)
    table = data.annotations
    right = table.label == gold[table.instance]
    return np.bincount(table.annotator, right) / np.bincount(table.annotator)


@pytest.mark.data
def test_cifar10h(data_home):
    data = load_cifar10h(data_home)
    assert data.annotations.shape == (10000, 2567)
    assert (data.annotations.annotations_per_instance() == 50).all()
    assert data.annotations.annotations_per_annotator().min() == 2
    assert (data.X_train.shape, data.X_test.shape) == ((10000, 256), (3000, 256))
    assert data.X_train.dtype == np.float32
    assert (data.X_valid, len(data.y_test)) == (None, 3000)
    assert annotators(data).mean() == pytest.approx(0.9489, abs=5e-5)
    assert expected_majority(data) == pytest.approx(0.9924, abs=6e-5)


@pytest.mark.data
def test_cifar10n(data_home):
    data = load_cifar10n(data_home)
    assert data.annotations.shape == (10000, 220)
    assert data.annotations.n_annotations == 30000
    assert (data.X_train.shape, data.X_test.shape) == ((10000, 256), (2000, 256))
    assert expected_majority(data) == pytest.approx(0.9105, abs=5e-5)


@pytest.mark.data
def test_images_have_their_colours_first(data_home):
    data = load_cifar10h(data_home, features="images")
    assert data.X_test.shape == (3000, 3, 32, 32)
    assert data.X_train.dtype == np.float32
    assert (data.X_train.min(), data.X_train.max()) == (0.0, 1.0)
    blue_less_red = (data.X_train[:, 2] - data.X_train[:, 0]).mean(axis=(1, 2))
    airplane, deer = (blue_less_red[data.y_train == name].mean() for name in ("airplane", "deer"))
    assert airplane > deer


@pytest.mark.data
def test_usps_has_nobody(data_home):
    data = load_usps(data_home)
    assert data.annotations.shape == (7291, 0)
    assert data.annotations.n_annotations == 0
    assert data.annotations.classes.tolist() == list(range(10))
    assert (data.X_train.shape, data.X_test.shape) == ((7291, 256), (2007, 256))
    assert np.bincount(data.y_train)[[0, 8]].tolist() == [1194, 542]
    assert (data.X_train.min(), data.X_train.max()) == (0.0, 1.0)


@pytest.mark.data
def test_the_long_tail_of_cifar10h(data_home):
    data = make_long_tailed_cifar10h(data_home=data_home)
    counts = np.array([(data.y_train == name).sum() for name in data.classes])
    assert counts[0] == 5 * counts[-1]
    assert 2600 < len(data.y_train) < 2840
    assert data.annotations.n_annotators == 49
    assert data.annotations.n_annotations / 49 == pytest.approx(86, abs=5)
    assert annotators(data).mean() == pytest.approx(0.66, abs=0.02)
    # The docstring: any 49 annotators are 67.1 % right on the whole, or more.
    whole = annotators(load_cifar10h(data_home))
    assert np.sort(whole)[:49].mean() == pytest.approx(0.671, abs=5e-4)


@pytest.mark.data
@pytest.mark.parametrize("task", IMBALANCED_TASKS)
def test_tasks_have_the_sizes_the_page_names(data_home, task):
    data = make_imbalanced_binary(task, data_home=data_home)
    sizes = {"colposcopy": (187, 35, 4.194), "reports_1": (500, 100, 5.024)}
    sizes |= {"reports_2": (500, 100, 3.587), "product": (1258, 100, 7.169)}
    sizes |= {"usps_5": (1258, 100, 5.989), "usps_8": (1258, 100, 10.541)}
    n, n_test, ratio = sizes[task]
    rest, rare = np.bincount(data.y_train)
    assert (rest + rare, round(rest / rare, 3)) == (n, ratio)
    assert np.bincount(data.y_test).tolist() == [n_test, n_test]
    assert data.annotations.shape[0] == n
    assert (data.annotations.annotations_per_annotator() > 0).all()
    assert isinstance(data, SimulatedCrowdDataset) == task.startswith("usps")
    assert ("SIMULATED" in data.description) == task.startswith("usps")
    rows = {row.tobytes() for row in data.X_train}
    # The reports hold instances of equal features.
    shared = sum(row.tobytes() in rows for row in data.X_test)
    assert shared <= (25 if task.startswith("reports") else 0)


@pytest.mark.data
def test_a_task_of_the_reports_holds_their_annotations(data_home):
    whole = load_reports(data_home)
    data = make_imbalanced_binary("reports_2", data_home=data_home)
    place = {name: row for row, name in enumerate(whole.annotations.instances.tolist())}
    theirs = whole.annotations.to_matrix()
    mine = data.annotations.to_matrix(codes=True)
    for row, name in enumerate(data.annotations.instances.tolist()):
        np.testing.assert_array_equal(data.X_train[row], whole.X_train[place[name]])
        for annotator in np.flatnonzero(mine[row] >= 0):
            assert mine[row, annotator] == (theirs[place[name], annotator] == 2)
