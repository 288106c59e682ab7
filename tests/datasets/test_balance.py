"""Thinning of a rare class, and balanced test parts; and both as data of a row."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from manyhands.annotations import AnnotationTable
from manyhands.datasets import (
    load_colposcopy,
    load_demo,
    load_product,
    load_sentiment,
    make_conal_synthetic,
    thin_to_imbalance,
    with_balanced_test,
)
from manyhands.evidence.data.sets import Data
from manyhands.evidence.data.variants import with_rare_class_thinned, with_test_balanced
from manyhands.exceptions import AnnotationError

NAMES = np.array(["x", "z", "y"])


def dataset(train, test=None, valid=None, seed=0):
    """Features are the rows' numbers; annotations stand in random order."""
    rng = np.random.default_rng(seed)

    def labels(sizes):
        return rng.permutation(np.repeat(NAMES, sizes))

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
            NAMES,
        ),
        **X,
        **{f"y_{part}": y for part, y in parts.items()},
    )


def sizes(y):
    return [int((y == name).sum()) for name in NAMES]


# -- thinning ---------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(*[st.integers(1, 30)] * 3),
    st.sampled_from(NAMES.tolist()),
    st.floats(1, 40),
    st.integers(0, 2**31 - 1),
)
def test_the_rare_class_alone_is_thinned_to_the_ratio(counts, rare, ratio, seed):
    data = dataset(counts)
    place = NAMES.tolist().index(rare)
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
def test_bad_arguments_are_named(changed, match):
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
        "factory": "manyhands.evidence.data.variants:with_rare_class_thinned",
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
