"""Thousands of classes: time and memory grow with the annotations, or a sentence says why not."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from manyhands import (
    IBCC,
    AnnotationTable,
    DawidSkene,
    MajorityVote,
    OneCoinDawidSkene,
    decide,
    summarize,
)
from manyhands.agreement import krippendorff_alpha
from manyhands.exceptions import AnnotationError
from manyhands.inference import shared_mistakes, votes
from manyhands.io import consensus
from manyhands.jobs import aggregate_table
from manyhands.metrics import annotator_reliability
from manyhands.report.summary import has_many_classes, overview


def crowd(n=60, n_classes=30, seed=0, silent=0, workers=4):
    """Votes with ties, of some instances without annotations."""
    rng = np.random.default_rng(seed)
    true = rng.integers(n_classes, size=n)
    given = np.where(
        rng.random((n, workers)) < 0.6, true[:, None], rng.integers(n_classes, size=(n, workers))
    )
    given[rng.random(given.shape) < 0.2] = -1
    given[:silent] = -1
    return AnnotationTable.from_matrix(given, range(n_classes))


def names(n):
    """Three annotations of each of n instances, with n classes."""
    rows = np.arange(n)
    label = np.stack([rows, rows, (rows + 1) % n], axis=1).ravel()
    return AnnotationTable(
        rows.repeat(3), np.tile(np.arange(3), n), label, rows, np.arange(3), np.arange(n)
    )


@pytest.fixture
def sparse_shares(monkeypatch):
    """Keep all vote shares as sparse arrays."""
    monkeypatch.setattr(votes, "DENSE_CLASSES", 0)
    monkeypatch.setattr(votes, "DENSE_SHARES", 0)


@pytest.mark.parametrize("silent", [0, 3])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"soft": False}, {"soft": False, "ties": "distribute"}],
)
def test_sparse_votes_are_the_dense_ones(request, parameters, silent):
    table = crowd(silent=silent)
    other = crowd(seed=1, silent=2)
    gold = {int(i): int(c) for i, c in zip(table.instances[:9], range(9), strict=True)}
    new = crowd(n=5, seed=2)
    dense = MajorityVote(**parameters).fit(table, gold=gold)
    expected, confusion = dense.predict_proba(other), dense.confusion_
    more = MajorityVote(**parameters).fit(table, gold=gold).partial_fit(new, duplicates="last")
    request.getfixturevalue("sparse_shares")
    sparse = MajorityVote(**parameters).fit(table, gold=gold)
    assert issparse(sparse.posterior_)
    np.testing.assert_allclose(sparse.posterior_.toarray(), dense.posterior_, atol=1e-12)
    np.testing.assert_array_equal(sparse.labels_, dense.labels_)
    np.testing.assert_allclose(sparse.class_prior_, dense.class_prior_, atol=1e-12)
    np.testing.assert_allclose(sparse.annotator_accuracy_, dense.annotator_accuracy_, atol=1e-12)
    np.testing.assert_allclose(sparse.predict_proba(other).toarray(), expected, atol=1e-12)
    np.testing.assert_allclose(sparse.confusion_, confusion, atol=1e-12)
    sparse.partial_fit(new, duplicates="last")
    np.testing.assert_array_equal(sparse.labels_, more.labels_)


def test_random_ties_are_among_the_winners(sparse_shares):
    table = AnnotationTable.from_matrix(np.tile([3, 1], (200, 1)), range(5))
    model = MajorityVote(ties="random", random_state=0).fit(table)
    assert sorted(np.unique(model.labels_)) == [1, 3]
    assert 60 < (model.labels_ == 1).sum() < 140


@pytest.mark.parametrize("options", [{}, {"rule": "balanced"}, {"threshold": 0.6}])
def test_decisions_on_sparse_probabilities_are_those_on_dense_ones(options):
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.full(6, 0.3), 40)
    proba[proba < 0.05] = 0
    proba /= proba.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(decide(csr_array(proba), **options), decide(proba, **options))
    with pytest.raises(AnnotationError, match="cost matrix"):
        decide(csr_array(proba), 1 - np.eye(6))
    with pytest.raises(AnnotationError, match="not a distribution"):
        decide(csr_array(2 * proba))


def test_consensus_and_reliability_of_sparse_probabilities_are_those_of_dense_ones():
    table = crowd()
    dense = MajorityVote().fit(table).posterior_
    one, other = consensus(table, dense), consensus(table, csr_array(dense))
    for name in ("codes", "actions", "agreement", "probability"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
    assert not any(name.startswith("p(") for name in other.columns())
    for a, b in zip(
        annotator_reliability(table, dense),
        annotator_reliability(table, csr_array(dense)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b)


def test_an_overview_is_the_summary_of_data_and_classes():
    table = crowd(n=200, n_classes=12, silent=4)
    whole, brief = summarize(table), overview(table)
    assert brief["data"] == whole["data"]
    assert brief["classes"] == whole["classes"]
    assert not has_many_classes(table)
    assert has_many_classes(names(201))


def test_memory_grows_with_the_annotations(tmp_path):
    peaks = []
    for n in (1500, 6000):
        table = names(n)
        tracemalloc.start()
        assert overview(table)["data"]["n_classes"] == n
        assert krippendorff_alpha(table) == pytest.approx(1 / 3, abs=0.01)
        result = aggregate_table(table, MajorityVote(), out=tmp_path / "labels.csv")
        assert result["n_instances"] == n
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Quadratic would be 16 times as much, and 288 MB for a single array over classes and classes.
    assert peaks[1] < 6 * peaks[0]
    assert peaks[1] < 100e6


def test_methods_that_need_dense_arrays_say_so(monkeypatch, tmp_path):
    monkeypatch.setattr(votes, "MOST_CELLS", 2**20)
    table = names(700)
    for method in (OneCoinDawidSkene(), MajorityVote()):
        method.fit(table)
    for method in (DawidSkene(), IBCC()):
        with pytest.raises(
            AnnotationError,
            match=r"a matrix of 700 x 700 classes for each annotator.*MajorityVote.*OneCoin",
        ):
            method.fit(table)
    with pytest.raises(AnnotationError, match="keeps a matrix"):
        _ = MajorityVote().fit(table).confusion_
    with pytest.raises(AnnotationError, match=r"a report keeps .* the command describe"):
        summarize(table)
    with pytest.raises(AnnotationError, match="a probability of each class for each instance"):
        OneCoinDawidSkene().fit(names(1200))
    with pytest.raises(AnnotationError, match="name a file for the labels"):
        aggregate_table(names(1500), MajorityVote(), out=tmp_path / "folder")
    DawidSkene().fit(crowd(n=30, n_classes=150))  # A few hundred are no question of memory.


def test_instances_without_annotations_are_limited(monkeypatch, sparse_shares):
    monkeypatch.setattr(votes, "MOST_CELLS", 50)
    with pytest.raises(AnnotationError, match="4 instances have no annotations"):
        MajorityVote().fit(crowd(silent=3))


def test_a_sketch_of_the_classes_finds_the_shared_mistakes(monkeypatch):
    rng = np.random.default_rng(0)
    true = rng.integers(40, size=600)
    wrong = rng.integers(40, size=600)
    given = np.where(rng.random((600, 7)) < 0.6, true[:, None], rng.integers(40, size=(600, 7)))
    both = rng.random((600, 1)) < 0.4
    given[:, :3] = np.where(both, wrong[:, None], given[:, :3])
    table = AnnotationTable.from_matrix(given)
    exact = shared_mistakes.shared_mistakes(table, [0, 1, 2])[0]
    monkeypatch.setattr(shared_mistakes, "MOST_COLUMNS", 32)
    sketched = shared_mistakes.shared_mistakes(table, [0, 1, 2])[0]
    assert exact.z > 4
    assert sketched.z > 4
    assert sketched.excess == pytest.approx(exact.excess, rel=0.3)
