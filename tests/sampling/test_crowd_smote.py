"""CrowdSMOTE: equations by hand, imbalanced-learn's SMOTE as the oracle, and annotations drawn."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imblearn.over_sampling import SMOTE
from scipy import sparse
from scipy.stats import kstest

from manyhands import AnnotationTable, make_crowd
from manyhands.annotations import label_certainty
from manyhands.exceptions import AnnotationError
from manyhands.sampling import CrowdSMOTE, FewCandidatesWarning


def _problem(n_frequent=40, n_rare=9, n_annotators=5, seed=0, dimensions=3):
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], [n_frequent, n_rare])
    X = rng.normal(size=(len(y), dimensions)) + 4 * y[:, None]
    table = make_crowd(
        y, n_annotators=n_annotators, annotations_per_instance=n_annotators, random_state=seed
    )
    return X, table, y


def test_raises_every_class_to_the_largest_and_adds_rows_only():
    X, table, y = _problem()
    more, crowd = CrowdSMOTE(random_state=0).fit_resample(X, table, labels=y)
    assert len(more) == crowd.n_instances == 80
    np.testing.assert_array_equal(more[:49], X)
    real = crowd.take(np.arange(table.n_annotations))
    for name in ("instance", "annotator", "label"):
        np.testing.assert_array_equal(getattr(real, name), getattr(table, name))
    assert (crowd.source[table.n_annotations :] == "synthetic").all()
    assert (crowd.source[: table.n_annotations] == "observed").all()
    assert crowd.observed.n_annotations == table.n_annotations
    np.testing.assert_array_equal(crowd.instances[:49], table.instances)
    assert len(set(crowd.instances.tolist())) == 80


def test_points_lie_on_their_segments_at_delta():
    X, table, y = _problem()
    sampler = CrowdSMOTE(random_state=0)
    more, _ = sampler.fit_resample(X, table, labels=y)
    assert len(sampler.delta_) == 31
    assert ((sampler.delta_ >= 0) & (sampler.delta_ <= 1)).all()
    for point, (i, r), delta in zip(more[49:], sampler.parents_, sampler.delta_, strict=True):
        assert y[i] == y[r] == 1
        assert i != r
        np.testing.assert_allclose(point, X[i] + delta * (X[r] - X[i]), atol=1e-12)


@pytest.mark.parametrize("delta", ["intended", "printed"])
def test_delta_of_both_readings_by_hand(delta):
    X, table, y = _problem()
    sampler = CrowdSMOTE(delta=delta, epsilon=0.3, jitter=0.0, random_state=0)
    sampler.fit_resample(X, table, labels=y)
    certainty = label_certainty(table, epsilon=0.3)
    of_candidate, of_neighbour = certainty[sampler.parents_].T
    nearer = of_neighbour if delta == "intended" else of_candidate
    np.testing.assert_allclose(sampler.delta_, nearer / (of_candidate + of_neighbour))
    unequal = of_candidate != of_neighbour
    assert unequal.any()
    # Intended: the more certain candidate keeps the point near itself.
    near = sampler.delta_[unequal] < 0.5
    expected = of_candidate > of_neighbour if delta == "intended" else of_candidate < of_neighbour
    np.testing.assert_array_equal(near, expected[unequal])


def test_delta_is_clipped_and_jitter_moves_it():
    X, table, y = _problem(seed=1)
    sampler = CrowdSMOTE(epsilon=1e-9, jitter=0.5, random_state=0)
    sampler.fit_resample(X, table, labels=y)
    assert sampler.delta_.min() >= 0
    assert sampler.delta_.max() <= 1
    assert len(np.unique(sampler.delta_)) > 5


def test_with_equal_certainties_it_is_the_smote_of_imbalanced_learn():
    X, _, y = _problem(n_frequent=400, n_rare=12)
    unanimous = AnnotationTable.from_matrix(np.repeat(y[:, None], 3, axis=1))
    sampler = CrowdSMOTE(jitter=0.5, random_state=0)
    more, crowd = sampler.fit_resample(X, unanimous, labels=y)
    oracle = SMOTE(k_neighbors=5, random_state=0)
    expected, expected_y = oracle.fit_resample(X, y)
    assert len(more) == len(expected)
    np.testing.assert_array_equal(np.sort(sampler.synthetic_labels_), expected_y[len(y) :])
    # The oracle, asked for the very pairs and steps of ours, makes the very points.
    rare = X[y == 1]
    neighbours = oracle.nn_k_.kneighbors(rare, return_distance=False)[:, 1:]
    rows = sampler.parents_[:, 0] - 400
    columns = [
        neighbours[i].tolist().index(r - 400)
        for i, r in zip(rows, sampler.parents_[:, 1], strict=True)
    ]
    made = oracle._generate_samples(
        rare, rare, neighbours, rows, np.array(columns), sampler.delta_[:, None]
    )
    np.testing.assert_allclose(more[len(y) :], made)
    # Delta is uniform, as SMOTE's step is, and every candidate has its turn.
    assert kstest(sampler.delta_, "uniform").pvalue > 0.01
    assert np.ptp(np.bincount(rows)) <= 1
    # So the clouds of both are one distribution.
    for axis in range(X.shape[1]):
        assert kstest(more[len(y) :, axis], expected[len(y) :, axis]).pvalue > 0.01
    # All neighbours agree, and all annotators have annotated them.
    synthetic = crowd.take(crowd.source == "synthetic")
    assert synthetic.n_annotations == 3 * (len(more) - len(y))


def test_annotations_are_what_the_annotator_gave_one_of_the_neighbours():
    X, table, y = _problem(n_frequent=60, n_rare=8, n_annotators=6)
    sampler = CrowdSMOTE(k_neighbors=3, random_state=0)
    more, crowd = sampler.fit_resample(X, table, labels=y)
    matrix, made = table.to_matrix(), crowd.to_matrix()[len(y) :]
    assert (made >= 0).all()
    for point, labels in zip(more[len(y) :], made, strict=True):
        near = np.argsort(((X - point) ** 2).sum(axis=1))[:3]
        for annotator, label in enumerate(labels):
            assert label in matrix[near, annotator]


def test_annotations_are_drawn_as_often_as_the_neighbours_have_them():
    X = np.zeros((4, 1))
    X[3] = 50.0
    # One annotator gave the three nearest 1, 1, 0.
    table = AnnotationTable.from_matrix([[1], [1], [0], [0]])
    sampler = CrowdSMOTE(3, {1: 3002}, random_state=0)
    _, crowd = sampler.fit_resample(X, table, labels=[1, 1, 0, 0])
    drawn = crowd.label[4:]
    assert len(drawn) == 3000
    assert abs(drawn.mean() - 2 / 3) < 0.03
    majority = CrowdSMOTE(3, {1: 3002}, annotations="majority", random_state=0)
    _, crowd = majority.fit_resample(X, table, labels=[1, 1, 0, 0])
    assert (crowd.label[4:] == 1).all()


def test_weights_say_how_often_an_annotation_is_drawn():
    X = np.zeros((3, 1))
    table = AnnotationTable.from_arrays(
        [0, 1, 2], [0, 0, 0], [1, 1, 0], weight=[0.1, 0.1, 0.8], instances=[0, 1, 2]
    )
    sampler = CrowdSMOTE(3, {1: 3002}, random_state=0)
    _, crowd = sampler.fit_resample(X, table, labels=[1, 1, 0])
    drawn = crowd.label[3:]
    assert abs((drawn == 0).mean() - 0.8) < 0.03
    np.testing.assert_allclose(crowd.weight[3:], np.where(drawn == 0, 0.8, 0.1), rtol=1e-6)


def test_gaps_are_kept_or_filled():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [200, 20])
    X = rng.normal(size=(220, 2)) + 6 * y[:, None]
    table = make_crowd(y, n_annotators=40, annotations_per_instance=3, random_state=0)
    per_instance = {}
    for gaps in ("kept", "filled"):
        _, crowd = CrowdSMOTE(gaps=gaps, random_state=0).fit_resample(X, table, labels=y)
        counts = crowd.annotations_per_instance()[220:]
        assert counts.min() >= 1
        per_instance[gaps] = counts.mean()
    assert 2.5 < per_instance["kept"] < 4
    assert per_instance["filled"] > 8


def test_annotators_who_saw_no_neighbour_give_nothing():
    X = np.array([[0.0], [0.1], [9.0], [9.1], [9.2]])
    A = np.array([[1, -1], [1, -1], [-1, 0], [-1, 0], [-1, 0]])
    for gaps in ("kept", "filled"):
        sampler = CrowdSMOTE(2, gaps=gaps, random_state=0)
        _, crowd = sampler.fit_resample(X, AnnotationTable.from_matrix(A))
        assert (crowd.to_matrix()[5:] == [1, -1]).all()


@pytest.mark.parametrize(("m", "k"), [(2, 1), (4, 3), (6, 5), (9, 5)])
def test_few_candidates_have_fewer_neighbours(m, k):
    X, table, y = _problem(n_rare=m)
    sampler = CrowdSMOTE(random_state=0)
    sampler.fit_resample(X, table, labels=y)
    (done,) = sampler.resampling_
    assert (done.label, done.n_candidates, done.n_neighbors) == (1, m, k)
    assert done.n_synthetic == 40 - m


def test_one_candidate_is_repeated_and_none_skipped_with_a_warning():
    X, table, y = _problem()
    labels = np.where(np.arange(len(y)) == 45, 1, 0)
    sampler = CrowdSMOTE(random_state=0)
    with pytest.warns(FewCandidatesWarning, match="class 1 has one instance.*repeated 47 times"):
        more, _ = sampler.fit_resample(X, table, labels=labels)
    assert (more[49:] == X[45]).all()
    with pytest.warns(FewCandidatesWarning, match="class 1 has no instance"):
        more, crowd = sampler.fit_resample(X, table, labels=np.zeros(49, dtype=int))
    assert len(more) == crowd.n_instances == 49
    assert sampler.sampling_strategy_ == {1: 0}


def test_a_class_that_nobody_gave_is_none_of_the_set():
    X, _, y = _problem()
    table = AnnotationTable.from_matrix(np.repeat(y[:, None], 2, axis=1), classes=[0, 1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        more, _ = CrowdSMOTE(random_state=0).fit_resample(X, table)
    assert len(more) == 80


def test_several_classes_are_each_raised_from_their_own():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [30, 12, 5])
    X = rng.normal(size=(47, 2)) + 10 * np.eye(3)[y][:, :2] + 5 * y[:, None]
    table = AnnotationTable.from_matrix(np.repeat(y[:, None], 3, axis=1))
    sampler = CrowdSMOTE(random_state=0)
    _, crowd = sampler.fit_resample(X, table)
    assert sampler.sampling_strategy_ == {2: 25, 1: 18}
    np.testing.assert_array_equal(y[sampler.parents_[:, 0]], sampler.synthetic_labels_)
    np.testing.assert_array_equal(y[sampler.parents_[:, 1]], sampler.synthetic_labels_)
    assert np.bincount(crowd.to_matrix()[:, 0]).tolist() == [30, 30, 30]


def test_sampling_strategies():
    X, table, y = _problem()
    for strategy, n in ((0.5, 11), ({1: 15}, 6), ({}, 0), (1.0, 31)):
        sampler = CrowdSMOTE(sampling_strategy=strategy, random_state=0)
        more, _ = sampler.fit_resample(X, table, labels=y)
        assert len(more) == 49 + n
    more, _ = CrowdSMOTE(sampling_strategy={1: 3}).fit_resample(X, table, labels=y)
    assert len(more) == 49, "a class that has as many already stays"
    with pytest.raises(AnnotationError, match=r"wants 30\.5 instances of class 1"):
        CrowdSMOTE(sampling_strategy={1: 30.5}).fit_resample(X, table, labels=y)
    with pytest.raises(AnnotationError, match="sampling_strategy=True"):
        CrowdSMOTE(sampling_strategy=True).fit_resample(X, table, labels=y)
    with pytest.raises(AnnotationError, match=r"sampling_strategy.*7"):
        CrowdSMOTE(sampling_strategy={7: 30}).fit_resample(X, table, labels=y)


@settings(max_examples=8, deadline=None)
@given(st.permutations([0, 1, 2]), st.integers(0, 5))
def test_a_permutation_of_class_names_permutes_the_result(names, seed):
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], [15, 6, 4])
    X = rng.normal(size=(25, 2)) + 3 * y[:, None]
    A = np.where(rng.random((25, 4)) < 0.7, y[:, None], rng.integers(3, size=(25, 4)))
    renamed = np.array(names)
    sampler = CrowdSMOTE(random_state=seed)
    plain = sampler.fit_resample(X, AnnotationTable.from_matrix(A, classes=[0, 1, 2]), labels=y)
    other = sampler.fit_resample(
        X, AnnotationTable.from_matrix(renamed[A], classes=[0, 1, 2]), labels=renamed[y]
    )
    np.testing.assert_array_equal(plain[0], other[0])
    np.testing.assert_array_equal(renamed[plain[1].label], other[1].label)


def test_sparse_single_precision_and_images_keep_their_type():
    X, table, y = _problem()
    dense, _ = CrowdSMOTE(random_state=0).fit_resample(X, table, labels=y)
    more, _ = CrowdSMOTE(random_state=0).fit_resample(sparse.csr_matrix(X), table, labels=y)
    assert sparse.issparse(more)
    np.testing.assert_allclose(more.toarray(), dense)
    more, _ = CrowdSMOTE(random_state=0).fit_resample(X.astype(np.float32), table, labels=y)
    assert more.dtype == np.float32
    images = X[:, :, None, None] * np.ones((1, 1, 2, 2))
    more, _ = CrowdSMOTE(random_state=0).fit_resample(images, table, labels=y)
    assert more.shape == (80, 3, 2, 2)


def test_labels_by_default_are_majority_votes_and_none_is_no_candidate():
    X, table, y = _problem()
    by_default, _ = CrowdSMOTE(random_state=0).fit_resample(X, table)
    voted, _ = CrowdSMOTE(random_state=0).fit_resample(
        X, table, labels=table.vote_counts().argmax(axis=1)
    )
    np.testing.assert_array_equal(by_default, voted)
    some = [None if i == 48 else int(c) for i, c in enumerate(y)]
    sampler = CrowdSMOTE(random_state=0)
    sampler.fit_resample(X, table, labels=some)
    assert not (sampler.parents_ == 48).any()


def test_instances_without_annotations_are_nobodys_neighbours():
    X, table, y = _problem()
    A = table.to_matrix()
    A[45] = -1
    X[45] = X[46]
    sampler = CrowdSMOTE(random_state=0)
    sampler.fit_resample(X, AnnotationTable.from_matrix(A), labels=y)
    assert not (sampler.parents_ == 45).any()
    assert sampler.resampling_[0].n_candidates == 8


def test_ids_of_new_instances_are_new_whatever_the_old_ones_are():
    X, table, y = _problem(n_frequent=6, n_rare=2)
    for ids in (["synthetic-1", *"bcdefgh"], [7, 3, 1, 2, 9, 8, 5, 4], [1, "b", *range(2, 8)]):
        named = AnnotationTable.from_arrays(
            table.instance, table.annotator, table.label, instances=range(8), classes=[0, 1]
        )
        named = type(table)(
            named.instance,
            named.annotator,
            named.label,
            np.array(ids, dtype=object if isinstance(ids[0], int) and "b" in ids else None),
            named.annotators,
            named.classes,
        )
        _, crowd = CrowdSMOTE(random_state=0).fit_resample(X, named, labels=y)
        assert crowd.instances[:8].tolist() == list(ids)
        assert len(set(crowd.instances.tolist())) == 12


def test_bad_input_is_named():
    X, table, y = _problem()
    with pytest.raises(AnnotationError, match="X has 48 rows"):
        CrowdSMOTE().fit_resample(X[1:], table, labels=y)
    with pytest.raises(AnnotationError, match="labels"):
        CrowdSMOTE().fit_resample(X, table, labels=y[1:])
    with pytest.raises(AnnotationError, match=r"labels.*9"):
        CrowdSMOTE().fit_resample(X, table, labels=np.where(y == 1, 9, 0))
    with pytest.raises(ValueError, match="NaN"):
        CrowdSMOTE().fit_resample(np.where(X > 5, np.nan, X), table, labels=y)
    for name, value in (("delta", "up"), ("jitter", 0.7), ("k_neighbors", 0), ("gaps", "no")):
        with pytest.raises(ValueError, match=name):
            CrowdSMOTE(**{name: value}).fit_resample(X, table, labels=y)


def test_the_same_seed_gives_the_same_and_another_another():
    X, table, y = _problem()
    one, two, other = (
        CrowdSMOTE(random_state=seed).fit_resample(X, table, labels=y)[0] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


# -- what a change of the code must not change -------------------------------------------------


def labels_of_made(crowd, n):
    return crowd.label[crowd.instance >= n]


@pytest.mark.parametrize("names", [[0, 2, 1], [2, 1, 0], [1, 2, 0]])
def test_classes_of_equal_size_have_their_turn_whatever_they_are_called(names):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [15, 5, 5])
    X = rng.normal(size=(25, 2)) + 3 * y[:, None]
    renamed = np.array(names)
    plain = CrowdSMOTE(random_state=0).fit_resample(X, y[:, None], labels=y)
    other = CrowdSMOTE(random_state=0).fit_resample(X, renamed[y][:, None], labels=renamed[y])
    np.testing.assert_array_equal(plain[0], other[0])
    np.testing.assert_array_equal(renamed[plain[1].label], other[1].label)


def test_a_share_is_rounded():
    X, table, y = _problem()
    for share, goal in ((0.29, 12), (0.31, 12), (0.275, 11)):
        sampler = CrowdSMOTE(sampling_strategy=share, random_state=0)
        sampler.fit_resample(X, table, labels=y)
        assert sampler.sampling_strategy_ == {1: goal - 9}


def test_gaps_of_a_majority_are_as_frequent_as_among_the_neighbours():
    X = np.array([[0.0], [0.0], [0.0], [50.0]])
    # The second annotator has annotated two of the three, and both alike.
    A = [[1, 1], [1, 1], [1, -1], [0, 0]]
    sampler = CrowdSMOTE(3, {1: 3002}, annotations="majority", random_state=0)
    _, crowd = sampler.fit_resample(X, AnnotationTable.from_matrix(A), labels=[1, 1, 0, 0])
    given = (crowd.to_matrix()[4:] >= 0).mean(axis=0)
    assert given[0] == 1
    assert abs(given[1] - 2 / 3) < 0.03


def test_the_nearest_has_annotations_but_need_not_have_a_label():
    X = np.array([[0.0], [1.0], [0.5], [9.0], [9.0], [9.0]])
    sampler = CrowdSMOTE(1, {1: 20}, jitter=0.0, random_state=0)
    # Every point is at .5, where the third instance is.
    A = np.array([[1], [1], [-1], [0], [0], [0]])
    _, crowd = sampler.fit_resample(X, A, labels=[1, 1, None, 0, 0, 0])
    np.testing.assert_array_equal(crowd.annotations_per_instance()[6:], 1)
    A[2] = 0
    _, crowd = sampler.fit_resample(X, A, labels=[1, 1, None, 0, 0, 0])
    np.testing.assert_array_equal(labels_of_made(crowd, 6), 0)


@pytest.mark.parametrize(
    ("weight", "label", "made"), [([0.1, 0.1, 0.8], 0, 0.8), ([0.4, 0.6, 0.1], 1, 0.5)]
)
def test_a_majority_is_of_weights_and_weighs_their_mean(weight, label, made):
    table = AnnotationTable.from_arrays(
        [0, 1, 2], [0, 0, 0], [1, 1, 0], weight=weight, instances=[0, 1, 2]
    )
    sampler = CrowdSMOTE(3, {1: 12}, annotations="majority", random_state=0)
    _, crowd = sampler.fit_resample(np.zeros((3, 1)), table, labels=[1, 1, 0])
    np.testing.assert_array_equal(crowd.label[3:], label)
    np.testing.assert_allclose(crowd.weight[3:], made, rtol=1e-6)


def test_which_candidates_are_taken_is_drawn():
    X, table, y = _problem()
    taken = set()
    for seed in range(6):
        sampler = CrowdSMOTE(sampling_strategy={1: 12}, random_state=seed)
        sampler.fit_resample(X, table, labels=y)
        assert len(set(sampler.parents_[:, 0])) == 3
        taken |= set(sampler.parents_[:, 0].tolist())
    assert len(taken) > 5


def test_passes_and_sources_are_as_they_were():
    X = np.arange(6.0)[:, None]
    table = AnnotationTable.from_arrays(
        [*range(6), 0, 1],
        [0] * 6 + [1, 1],
        ["a"] * 4 + ["b", "b", "unsure", "no"],
        source=["observed", "pseudo"] * 4,
        abstain="unsure",
        skip="no",
        instances=range(6),
    )
    assert len(table.abstentions) == len(table.skips) == 1
    _, more = CrowdSMOTE(1, {"b": 3}, random_state=0).fit_resample(X, table)
    np.testing.assert_array_equal(more.abstentions, table.abstentions)
    np.testing.assert_array_equal(more.skips, table.skips)
    np.testing.assert_array_equal(more.source[:6], table.source)
    again, most = CrowdSMOTE(1, {"b": 5}, random_state=0).fit_resample(
        np.append(X, [[4.5]], axis=0), more
    )
    assert len(again) == 9
    assert most.source.tolist() == [*table.source, *["synthetic"] * 3]


@pytest.mark.parametrize(
    ("kind", "last"),
    [
        (np.uint64, 2**64 - 1),
        (np.uint64, 2**63 + 5),
        (np.int8, 127),
        (np.int8, 125),
        (np.int64, 2**63 - 1),
        (np.int64, 2**63 - 3),
        (np.int64, -4),
        (np.uint8, 7),
    ],
)
def test_ids_near_the_end_of_their_type_stay_distinct(kind, last):
    X, table, y = _problem(n_frequent=6, n_rare=2)
    ids = np.array([*([-5, 1, 2] if last < 0 else [0, 1, 2]), 6, 10, 11, 12, last], dtype=kind)
    table = AnnotationTable(
        table.instance, table.annotator, table.label, ids, table.annotators, table.classes
    )
    _, crowd = CrowdSMOTE(random_state=0).fit_resample(X, table, labels=y)
    assert crowd.instances[:8].tolist() == ids.tolist()
    assert crowd.instances.dtype.kind in "iu"
    assert len(set(crowd.instances.tolist())) == 12


def test_a_small_type_without_room_gives_way_to_a_larger_one():
    n = 120
    y = np.repeat([0, 1], [100, 20])
    ids = np.r_[-128:-68, 68:128].astype(np.int8)  # 128 would wrap to the first
    table = AnnotationTable(np.arange(n), np.zeros(n, int), y, ids, np.array([0]), np.array([0, 1]))
    _, crowd = CrowdSMOTE(random_state=0).fit_resample(y[:, None] * 1.0, table, labels=y)
    assert crowd.instances[:n].tolist() == ids.tolist()
    assert len(set(crowd.instances.tolist())) == 200


def test_what_weighs_nothing_is_no_annotation():
    X = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [0.5]])
    #   an instance that weighs nothing at all, and one annotation that weighs nothing
    table = AnnotationTable.from_arrays(
        [0, 1, 2, 3, 4, 5, 0, 1],
        [0] * 6 + [1, 1],
        [1, 1, 1, 0, 0, 0, 2, 2],
        weight=[1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0],
        classes=[0, 1, 2],
        instances=range(6),
    )
    for annotations in ("drawn", "majority"):
        sampler = CrowdSMOTE(
            2, {1: 60}, gaps="filled", annotations=annotations, delta="printed", random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _, crowd = sampler.fit_resample(X, table, labels=[1, 1, 1, 0, 0, 0])
        assert sampler.resampling_[0].n_candidates == 2
        assert not (sampler.parents_ == 2).any()
        assert crowd.n_annotations == 8 + 58
        np.testing.assert_array_equal(labels_of_made(crowd, 6), 1)
        np.testing.assert_array_equal(crowd.weight[:8], table.weight)
        assert (crowd.weight[8:] > 0).all()


def test_ties_count_as_none_whatever_the_order_of_the_classes():
    X = np.arange(8.0)[:, None]
    A = np.array([[0, 0], [0, 0], [0, 0], [0, 0], [1, 1], [1, 1], [0, 1], [1, 0]])
    for values in (A, 1 - A):
        sampler = CrowdSMOTE(random_state=0)
        sampler.fit_resample(X, values)
        (done,) = sampler.resampling_
        assert (done.n_candidates, done.n_synthetic) == (2, 2)
        assert not (sampler.parents_ >= 6).any()


def test_labels_that_name_nothing_make_nothing_with_a_warning():
    X, table, y = _problem()
    for labels in ([None] * len(y), {}, np.full(len(y), np.nan)):
        with pytest.warns(FewCandidatesWarning, match="labels has no class for any annotated"):
            more, crowd = CrowdSMOTE(random_state=0).fit_resample(X, table, labels=labels)
        assert len(more) == crowd.n_instances == len(y)


# -- frames are matched by id ---------------------------------------------------------------------


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_a_shuffled_frame_is_matched_by_its_ids(convert):
    X, table, y = _problem()
    ids = [f"img{i}" for i in range(len(y))]
    named = AnnotationTable.from_frame(
        pd.DataFrame(
            {
                "task": np.array(ids)[table.instance],
                "worker": table.annotators[table.annotator],
                "label": table.classes[table.label],
            }
        )
    )
    frame = pd.DataFrame(X, columns=list("abc"), index=ids).sample(frac=1, random_state=1)
    ordered = named.select(instances=frame.index)
    labels = dict(zip(ids, y.tolist(), strict=True))
    expected = CrowdSMOTE(random_state=0).fit_resample(frame.to_numpy(), ordered, labels=labels)
    if convert is not pd.DataFrame:
        frame = convert(frame.rename_axis("task").reset_index())
    else:
        with pytest.raises(AnnotationError, match=r"48 rows of X .* instances of table"):
            CrowdSMOTE().fit_resample(frame[1:], named)
    more, crowd = CrowdSMOTE(random_state=0).fit_resample(frame, named, labels=labels)
    np.testing.assert_array_equal(more, expected[0])
    assert crowd.instances.tolist() == expected[1].instances.tolist()
    np.testing.assert_array_equal(crowd.vote_counts(), expected[1].vote_counts())
    with pytest.warns(UserWarning, match="rows of X are shuffled .* labels has no ids"):
        CrowdSMOTE(random_state=0).fit_resample(frame, named, labels=y)
