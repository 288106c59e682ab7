"""Variants of data sets: annotations removed, a rare class thinned, balanced test parts."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from evidence.data import (
    cifar10h,
    make_conal_synthetic,
    make_low_quality_cifar10h,
    remove_annotations,
    thin_to_imbalance,
    with_balanced_test,
)
from evidence.data.sets import Data
from evidence.data.variants import (
    labelled_by_gold,
    with_annotations_removed,
    with_instances_repeated,
    with_rare_class_thinned,
    with_test_balanced,
)
from manyhands.annotations import AnnotationTable
from manyhands.datasets import (
    CrowdDataset,
    load_cifar10h,
    load_colposcopy,
    load_demo,
    load_product,
    load_sentiment,
)
from manyhands.exceptions import AnnotationError

# -- instances repeated ----------------------------------------------------------------------------


DEMO = {"name": "demo"}


def test_every_copy_is_an_instance_with_the_same_annotations():
    one, three = load_demo(), with_instances_repeated(DEMO, 3)
    table = three.annotations
    n = one.annotations.n_instances
    assert table.n_annotations == 3 * one.annotations.n_annotations
    assert len(np.unique(table.instances)) == table.n_instances == 3 * n
    for copy in range(3):
        rows = slice(copy * n, (copy + 1) * n)
        np.testing.assert_array_equal(three.X_train[rows], one.X_train)
        np.testing.assert_array_equal(three.y_train[rows], one.y_train)
        np.testing.assert_array_equal(table[rows].to_matrix(), one.annotations.to_matrix())


def test_repeating_leaves_annotators_classes_and_other_parts():
    one, three = load_demo(), with_instances_repeated(DEMO, 3)
    for name in ("annotators", "classes"):
        np.testing.assert_array_equal(
            getattr(three.annotations, name), getattr(one.annotations, name)
        )
    for name in ("X_valid", "y_valid", "X_test", "y_test"):
        np.testing.assert_array_equal(getattr(three, name), getattr(one, name))
    assert three.truth is None


def test_repeated_instances_are_labelled_by_gold():
    gold = labelled_by_gold({"factory": "with_instances_repeated", "of": DEMO, "copies": 2})
    one = load_demo()
    assert gold.annotations.n_annotations == 2 * len(one.y_train)
    np.testing.assert_array_equal(
        gold.annotations.classes[gold.annotations.label], np.tile(one.y_train, 2)
    )


@pytest.mark.parametrize("copies", [0, -1, 2.0, True, "10"])
def test_copies_must_be_a_number_from_one_up(copies):
    with pytest.raises(
        AnnotationError, match=rf"copies={copies!r}; write a whole number from 1 up"
    ):
        with_instances_repeated(DEMO, copies)


# -- annotations removed ---------------------------------------------------------------------------


SEEDS = st.integers(0, 2**31 - 1)


@st.composite
def datasets(draw):
    n, r = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    cells = draw(st.lists(st.integers(-1, 2), min_size=n * r, max_size=n * r))
    table = AnnotationTable.from_matrix(np.reshape(cells, (n, r)), classes=[0, 1, 2])
    return Data(X_train=np.zeros((n, 1)), annotations=table, y_train=np.zeros(n, dtype=int))


def cells(data):
    table = data.annotations
    columns = (table.instance, table.annotator, table.label)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=200, deadline=None)
@given(datasets(), st.floats(0, 1, exclude_max=True), SEEDS)
def test_exactly_the_fraction_goes_and_nothing_else_changes(data, fraction, seed):
    less = remove_annotations(data, fraction, random_state=seed)
    before, after = data.annotations, less.annotations
    assert before.n_annotations - after.n_annotations == round(fraction * before.n_annotations)
    # What is left is what was there, in its order.
    there = iter(cells(data))
    assert all(cell in there for cell in cells(less))
    for name in ("instances", "annotators", "classes"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert less.X_train is data.X_train
    assert less.y_train is data.y_train
    again = remove_annotations(data, fraction, random_state=seed)
    assert again.annotations.equals(after)


@settings(max_examples=200, deadline=None)
@given(
    datasets(),
    st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2),
    SEEDS,
    st.booleans(),
)
def test_greater_fractions_remove_what_smaller_ones_do(data, fractions, seed, keep_one):
    if keep_one:
        n = max(data.annotations.n_annotations, 1)
        spare = n - np.count_nonzero(data.annotations.annotations_per_instance())
        fractions = [fraction * spare / n for fraction in fractions]
    small, great = (
        set(cells(remove_annotations(data, f, random_state=seed, keep_one=keep_one)))
        for f in sorted(fractions)
    )
    assert great <= small


@settings(max_examples=200, deadline=None)
@given(datasets(), st.floats(0, 1, exclude_max=True), SEEDS)
def test_keep_one_keeps_one_or_says_why_not(data, fraction, seed):
    before = data.annotations.annotations_per_instance()
    wanted = round(fraction * before.sum())
    if wanted > before.sum() - np.count_nonzero(before):
        with pytest.raises(AnnotationError, match=r"keep_one=True keeps one for each of"):
            remove_annotations(data, fraction, random_state=seed, keep_one=True)
        return
    left = remove_annotations(data, fraction, random_state=seed, keep_one=True).annotations
    assert before.sum() - left.n_annotations == wanted
    assert ((left.annotations_per_instance() > 0) == (before > 0)).all()


def test_removal_with_keep_one_by_a_loop():
    data = load_demo()
    table = data.annotations
    removed, left = [], table.annotations_per_instance().copy()
    for row in np.random.RandomState(7).permutation(table.n_annotations):
        if left[table.instance[row]] > 1 and len(removed) < round(0.6 * table.n_annotations):
            left[table.instance[row]] -= 1
            removed.append(row)
    expected = table.take(np.delete(np.arange(table.n_annotations), removed))
    found = remove_annotations(data, 0.6, random_state=7, keep_one=True).annotations
    assert found.equals(expected)


def test_the_fraction_that_the_error_names_is_possible():
    data = load_demo()
    with pytest.raises(AnnotationError, match=r"use a fraction up to 0\.675"):
        remove_annotations(data, 0.7, keep_one=True)
    left = remove_annotations(data, 0.675, keep_one=True).annotations
    assert left.annotations_per_instance().min() == 1


def test_every_annotation_is_as_likely_to_go():
    data = load_demo()
    n = data.annotations.n_annotations
    gone = np.zeros(n)
    whole = {cell: row for row, cell in enumerate(cells(data))}
    for seed in range(60):
        left = [whole[cell] for cell in cells(remove_annotations(data, 0.5, random_state=seed))]
        gone[np.delete(np.arange(n), left)] += 1
    halves = [half.mean() / 60 for half in np.array_split(gone, 10)]
    np.testing.assert_allclose(halves, 0.5, atol=4.5 * 0.5 / np.sqrt(60 * n / 10))


def test_weights_and_sources_stay_with_their_annotations():
    data = load_demo()
    n = data.annotations.n_annotations
    table = replace(data.annotations, weights=np.arange(n), sources=np.arange(n) % 3)
    left = remove_annotations(replace(data, annotations=table), 0.5).annotations
    rows = left.weight.astype(int)
    assert left.equals(table.take(rows))
    assert not remove_annotations(data, 0.5).annotations.equals(data.annotations)


def test_the_truth_of_a_simulation_is_cut_likewise():
    data = make_conal_synthetic()
    less = remove_annotations(data, 0.7, random_state=3)
    place = {cell: row for row, cell in enumerate(cells(data))}
    rows = [place[cell] for cell in cells(less)]
    for name in ("gate", "from_common", "guessed"):
        np.testing.assert_array_equal(getattr(less.truth, name), getattr(data.truth, name)[rows])
    assert less.truth.confusion is data.truth.confusion


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan"), "0.2", None])
def test_fractions_out_of_range_are_named(fraction):
    with pytest.raises(AnnotationError, match=r"fraction=.*\[0, 1\)"):
        remove_annotations(load_demo(), fraction)


def test_a_row_removes_annotations_of_other_data():
    made = with_annotations_removed({"name": "demo"}, 0.4, random_state=2, keep_one=True)
    expected = remove_annotations(load_demo(), 0.4, random_state=2, keep_one=True)
    assert isinstance(made, Data)
    for field in fields(Data):
        if field.name not in ("annotations", "truth"):
            np.testing.assert_array_equal(getattr(made, field.name), getattr(expected, field.name))
    assert made.annotations.equals(expected.annotations)


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
    monkeypatch.setattr(cifar10h, "load_cifar10h", lambda *_: data)
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
def test_bad_arguments_of_a_low_quality_set_are_named(made, argument, value):
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


# -- a rare class thinned, and balanced test parts -------------------------------------------------


THREE_CLASSES = np.array(["x", "z", "y"])


def dataset(train, test=None, valid=None, seed=0):
    """Features are the rows' numbers; annotations stand in random order."""
    rng = np.random.default_rng(seed)

    def labels(sizes):
        return rng.permutation(np.repeat(THREE_CLASSES, sizes))

    y = labels(train)
    n = len(y)
    cells = rng.permutation(2 * n)
    parts = {"train": y, "test": None, "valid": None}
    parts |= {"test": labels(test)} if test else {}
    parts |= {"valid": labels(valid)} if valid else {}
    X = {
        f"X_{part}": None if y is None else 1.0 * np.arange(len(y))[:, None]
        for part, y in parts.items()
    }
    return Data(
        annotations=AnnotationTable(
            cells // 2,
            cells % 2 + 2 * (cells // 2 % 3),
            rng.integers(3, size=2 * n),
            np.arange(100, 100 + n),
            np.arange(6),
            THREE_CLASSES,
        ),
        **X,
        **{f"y_{part}": y for part, y in parts.items()},
    )


def sizes(y):
    return [int((y == name).sum()) for name in THREE_CLASSES]


# -- thinning ---------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(*[st.integers(1, 30)] * 3),
    st.sampled_from(THREE_CLASSES.tolist()),
    st.floats(1, 40),
    st.integers(0, 2**31 - 1),
)
def test_the_rare_class_alone_is_thinned_to_the_ratio(counts, rare, ratio, seed):
    data = dataset(counts)
    place = THREE_CLASSES.tolist().index(rare)
    others = [n for k, n in enumerate(counts) if k != place]
    wanted = max(1, round(max(others) / ratio))
    if counts[place] < wanted:
        with pytest.raises(AnnotationError, match="use a larger ratio"):
            thin_to_imbalance(data, ratio, rare=rare, random_state=seed)
        return
    thin = thin_to_imbalance(data, ratio, rare=rare, random_state=seed)
    expected = list(counts)
    expected[place] = wanted
    assert sizes(thin.y_train) == expected
    # Rows stay together with their labels and annotations, in their order.
    rows = thin.X_train[:, 0].astype(int)
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(thin.y_train, data.y_train[rows])
    np.testing.assert_array_equal(thin.annotations.instances, data.annotations.instances[rows])
    np.testing.assert_array_equal(
        thin.annotations.to_matrix(codes=True), data.annotations.to_matrix(codes=True)[rows]
    )
    for name in ("annotators", "classes"):
        np.testing.assert_array_equal(
            getattr(thin.annotations, name), getattr(data.annotations, name)
        )


def test_greater_ratios_remove_what_smaller_ones_do():
    data = dataset((40, 40, 40))
    kept = [
        set(thin_to_imbalance(data, ratio, rare="z", random_state=3).X_train[:, 0])
        for ratio in (1, 2, 4, 8, 20)
    ]
    assert all(more > less for more, less in pairwise(kept))
    again = thin_to_imbalance(data, 4, rare="z", random_state=3)
    assert set(again.X_train[:, 0]) == kept[2]
    other = thin_to_imbalance(data, 4, rare="z", random_state=4)
    assert set(other.X_train[:, 0]) != kept[2]


def test_by_default_the_smallest_class_of_the_training_part_is_thinned():
    data = dataset((20, 12, 15), test=(4, 20, 8), valid=(10, 10, 10))
    thin = thin_to_imbalance(data, 4)
    assert sizes(thin.y_train) == [20, 5, 15]
    assert thin.X_test is data.X_test
    assert thin.X_valid is data.X_valid


def test_parts_are_thinned_each_by_its_own_greatest_class():
    data = dataset((20, 12, 15), test=(8, 20, 6), valid=None)
    thin = thin_to_imbalance(data, 4, parts=("train", "valid", "test"))
    assert sizes(thin.y_train) == [20, 5, 15]
    assert sizes(thin.y_test) == [8, 2, 6]
    assert thin.y_valid is None
    rows = thin.X_test[:, 0].astype(int)
    np.testing.assert_array_equal(thin.y_test, data.y_test[rows])
    only = thin_to_imbalance(data, 4, parts=["test"])
    assert only.annotations is data.annotations


def test_thinning_again_thins_another_class():
    data = dataset((30, 30, 30))
    thin = thin_to_imbalance(thin_to_imbalance(data, 10, rare="x"), 3, rare="y")
    assert sizes(thin.y_train) == [3, 30, 10]


def test_the_truth_of_a_simulation_is_cut_with_its_annotations():
    whole = make_conal_synthetic()
    # Annotations in another order, so that a table's rows are not those of its instances.
    order = np.random.default_rng(0).permutation(whole.annotations.n_annotations)
    data = replace(whole, annotations=whole.annotations.take(order), truth=whole.truth.take(order))
    thin = thin_to_imbalance(data, 10, rare=2)
    gate = {
        (instance, annotator): value
        for instance, annotator, value in zip(
            data.annotations.instances[data.annotations.instance].tolist(),
            data.annotations.annotator.tolist(),
            data.truth.gate.tolist(),
            strict=True,
        )
    }
    assert len(thin.truth.gate) == thin.annotations.n_annotations < len(gate)
    for instance, annotator, value in zip(
        thin.annotations.instances[thin.annotations.instance].tolist(),
        thin.annotations.annotator.tolist(),
        thin.truth.gate.tolist(),
        strict=True,
    ):
        assert gate[instance, annotator] == value
    assert thin.truth.confusion is data.truth.confusion


def test_sparse_features_and_none_are_taken():
    data = dataset((10, 10, 10))
    sparse = thin_to_imbalance(replace(data, X_train=csr_array(data.X_train)), 5, rare="x")
    dense = thin_to_imbalance(data, 5, rare="x")
    np.testing.assert_array_equal(sparse.X_train.toarray(), dense.X_train)
    assert thin_to_imbalance(replace(data, X_train=None), 5).X_train is None


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"ratio": 0.5}, "ratio=0.5"),
        ({"ratio": np.inf}, "ratio=inf"),
        ({"ratio": "10"}, "ratio='10'"),
        ({"rare": "w"}, "rare='w' is not a class"),
        ({"parts": "train"}, "parts='train' must be a list"),
        ({"parts": ["train", "all"]}, "parts="),
    ],
)
def test_bad_arguments_of_thinning_are_named(changed, match):
    with pytest.raises(AnnotationError, match=match):
        thin_to_imbalance(dataset((5, 5, 5)), **{"ratio": 5, **changed})


def test_what_cannot_be_thinned_says_why():
    data = dataset((5, 5, 5))
    with pytest.raises(AnnotationError, match="y_train is None"):
        thin_to_imbalance(replace(data, y_train=None), 2)
    with pytest.raises(AnnotationError, match="X_train is a list"):
        thin_to_imbalance(replace(data, X_train=[0] * 15), 2)


# -- balanced test parts ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_test_part_has_as_many_of_every_class(seed):
    data = dataset((5, 5, 5), test=(9, 4, 7))
    made = with_balanced_test(data, random_state=seed)
    assert sizes(made.y_test) == [4, 4, 4]
    rows = made.X_test[:, 0].astype(int)
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(made.y_test, data.y_test[rows])
    for field in fields(Data):
        if not field.name.endswith("test"):
            assert getattr(made, field.name) is getattr(data, field.name)
    again = with_balanced_test(data, random_state=seed)
    np.testing.assert_array_equal(again.X_test, made.X_test)


def test_seeds_draw_other_test_instances():
    data = dataset((5, 5, 5), test=(30, 5, 30))
    drawn = {tuple(with_balanced_test(data, random_state=s).X_test[:, 0]) for s in range(5)}
    assert len(drawn) == 5


def test_a_test_part_that_cannot_be_balanced_says_why():
    with pytest.raises(AnnotationError, match="no instance of class 'z'"):
        with_balanced_test(dataset((5, 5, 5), test=(9, 0, 7)))
    with pytest.raises(AnnotationError, match="y_test is None"):
        with_balanced_test(dataset((5, 5, 5)))


# -- rows, and the real sets ------------------------------------------------------------------


def test_rows_can_name_both_and_nest_them():
    thinned = {
        "factory": "evidence.data.variants:with_rare_class_thinned",
        "of": {"name": "demo"},
        "ratio": 10,
        "rare": 3,
        "parts": ["train", "test"],
        "random_state": 1,
    }
    data = with_test_balanced(thinned, random_state=1)
    by_hand = thin_to_imbalance(load_demo(), 10, rare=3, parts=["train", "test"], random_state=1)
    np.testing.assert_array_equal(data.X_train, by_hand.X_train)
    assert data.annotations.equals(by_hand.annotations)
    assert (np.bincount(data.y_test) == (by_hand.y_test == 3).sum()).all()
    alone = with_rare_class_thinned({"name": "demo"}, 10, rare=3, random_state=1)
    np.testing.assert_array_equal(alone.y_test, load_demo().y_test)


@pytest.mark.data
def test_the_real_sets_have_the_sizes_the_page_names(data_home):
    sentiment = thin_to_imbalance(load_sentiment(data_home), 10)
    assert (sentiment.y_train == "negative").sum() == 250
    assert len(sentiment.y_train) == 2752
    assert sentiment.X_train.shape[0] == sentiment.annotations.n_instances == 2752
    for load, n in ((load_product, 303), (load_colposcopy, 22)):
        _, counts = np.unique(with_balanced_test(load(data_home)).y_test, return_counts=True)
        assert counts.tolist() == [n, n]
