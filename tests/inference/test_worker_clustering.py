import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import AnnotationTable, DawidSkene
from manyhands.inference import base, worker_clustering
from manyhands.inference.vote_sums import vote_shares
from manyhands.inference.worker_clustering import (
    WorkerClustering,
    cluster_step,
    first_clusters,
)

# Random tables need not have two annotations of any instance.
pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")

N_CLASSES = 3


def tables(max_instances=10, max_annotators=5):
    """Random matrices of 3 classes with at least one annotation."""
    shape = st.tuples(st.integers(1, max_instances), st.integers(1, max_annotators))
    return arrays(np.int64, shape, elements=st.integers(-1, N_CLASSES - 1)).filter(
        lambda A: (A >= 0).any()
    )


def as_table(A):
    return AnnotationTable.from_matrix(A, classes=range(N_CLASSES))


def two_kinds(seed=0, n=300):
    """Four careful annotators, four who guess and prefer class 0, 40% missing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, N_CLASSES, n)
    careful = np.where(rng.random((n, 4)) < 0.85, y[:, None], rng.integers(0, N_CLASSES, (n, 4)))
    careless = rng.choice(N_CLASSES, p=[0.6, 0.2, 0.2], size=(n, 4))
    A = np.hstack([careful, careless])[:, [0, 4, 1, 5, 2, 6, 3, 7]]
    A[rng.random(A.shape) < 0.4] = -1
    return A, y


def log_of(p):
    """Log p, with log 1e-100 for log 0."""
    return np.log(np.maximum(p, 1e-100))


def slow_bound(A, model):
    """E_q log p(annotations, classes, clusters) - E_q log q, by loops."""
    theta, phi = model.posterior_, model.cluster_posterior_
    bound = 0.0
    for i, row in enumerate(A):
        if (row < 0).all():
            continue
        for c in range(N_CLASSES):
            expected = log_of(model.class_prior_[c]) - log_of(theta[i, c])
            for r, given_class in enumerate(row):
                if given_class >= 0:
                    for c_r in range(model.n_clusters):
                        p = model.cluster_confusion_[c_r, c, given_class]
                        expected += phi[r, c_r] * log_of(p)
            bound += theta[i, c] * expected
    for r in range(A.shape[1]):
        for c_r in range(model.n_clusters):
            weight = log_of(model.cluster_weight_[c_r])
            bound += phi[r, c_r] * (weight - log_of(phi[r, c_r]))
    return bound


def test_first_iteration_of_two_annotators_by_hand():
    """One cluster: of class 0, 2.5 annotations are right and 0.5 wrong, and so of class 1."""
    model = WorkerClustering(max_iter=1, n_clusters=1).fit(np.array([[0, 0], [1, 1], [0, 1]]))
    np.testing.assert_allclose(model.cluster_confusion_, [[[5 / 6, 1 / 6], [1 / 6, 5 / 6]]])
    np.testing.assert_allclose(model.posterior_[:, 0], [25 / 26, 1 / 26, 1 / 2])
    np.testing.assert_allclose(model.log_likelihood_, [2 * np.log(13 / 36) + np.log(5 / 36)])


def test_step_of_the_clusters_by_hand():
    counts = np.array([[[3.0, 1.0], [0.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]]])
    clusters = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.5, 0.5]]])
    members, bound = cluster_step(counts, np.array([0.25, 0.75]), clusters)
    careful, careless = 0.25 * 0.9**3 * 0.1 * 0.8**2, 0.75 * 0.5**6
    np.testing.assert_allclose(members[0], np.array([careful, careless]) / (careful + careless))
    np.testing.assert_allclose(members[1], [0.25, 0.75])
    divergence = (members[0] * np.log(members[0] / [0.25, 0.75])).sum()
    np.testing.assert_allclose(bound, -divergence)


@given(A=tables(), n_clusters=st.integers(1, 4), iterations=st.integers(1, 5))
@settings(max_examples=40)
def test_logged_bound_equals_its_definition(A, n_clusters, iterations):
    model = WorkerClustering(max_iter=iterations, tol=0.0, n_clusters=n_clusters).fit(as_table(A))
    np.testing.assert_allclose(model.log_likelihood_[-1], slow_bound(A, model), atol=1e-9)


@given(A=tables(), n_clusters=st.integers(1, 4), seed=st.integers(0, 100))
@settings(max_examples=60)
def test_bound_never_decreases(A, n_clusters, seed):
    rng = np.random.default_rng(seed)
    table = as_table(A)
    table = AnnotationTable.from_arrays(
        table.instance,
        table.annotator,
        table.label,
        n_instances=len(A),
        n_annotators=A.shape[1],
        classes=range(N_CLASSES),
        weight=rng.uniform(0.1, 3.0, table.n_annotations),
    )
    gold = np.where(rng.random(len(A)) < 0.3, rng.integers(0, N_CLASSES, len(A)), -1)
    model = WorkerClustering(tol=0.0, max_iter=30, n_clusters=n_clusters).fit(table, gold=gold)
    assert (np.diff(model.log_likelihood_) > -1e-9).all()


@pytest.mark.parametrize("seed", range(6))
def test_one_cluster_is_one_annotator(seed):
    """Dawid and Skene's model of a table in which a single annotator gave everything.

    The tables are random, not searched: where two classes are alike, rounding errors decide which
    of them is which.
    """
    rng = np.random.default_rng(seed)
    A = rng.integers(-1, N_CLASSES, (12, 4))
    table = as_table(A)
    merged = AnnotationTable.from_arrays(
        table.instance,
        np.zeros(table.n_annotations, dtype=int),
        table.label,
        n_instances=len(A),
        n_annotators=1,
        classes=range(N_CLASSES),
        duplicates="keep",
    )
    published = {"confusion_prior": None, "dependence": 0, "accelerate": False}
    with pytest.MonkeyPatch.context() as patch:
        # A lone annotator is believed, which is not what is compared here.
        patch.setattr(base, "_annotators_meet", lambda *_: True)
        # Both of its starts are the one that Dawid and Skene's EM has.
        patch.setattr(worker_clustering, "posterior_by_messages", vote_shares)
        model = WorkerClustering(n_clusters=1, max_iter=8, tol=0.0).fit(table)
        pooled = DawidSkene(max_iter=8, tol=0.0, **published).fit(merged)
    both = min(model.n_iter_, pooled.n_iter_)  # Rounding may stop one of them earlier.
    expected = pooled.log_likelihood_[:both]
    np.testing.assert_allclose(model.log_likelihood_[:both], expected, atol=1e-9)
    np.testing.assert_allclose(model.confusion_[0], pooled.confusion_[0], atol=1e-5)


def test_first_clusters_follow_the_nuclear_norm():
    identity, even = np.eye(2), np.full((2, 2), 0.5)
    honest, adversary, fair = 10 * identity, 10 * identity[::-1], 6 * identity + 4 * even
    silent = np.zeros((2, 2))
    counts = np.stack([even, adversary, silent, honest, fair, 7 * even, fair])
    active = counts.sum(axis=(1, 2)) > 0
    members = first_clusters(counts, active, 3)
    assert members[active].argmax(axis=1).tolist() == [2, 0, 0, 1, 2, 1]
    assert (members[active].max(axis=1) == 1).all()
    np.testing.assert_allclose(members[2], 1 / 3)
    by_trace = first_clusters(np.stack([adversary, honest]), np.ones(2, dtype=bool), 2)
    np.testing.assert_array_equal(by_trace, [[0, 1], [1, 0]])
    # Equals but for rounding stay together.
    alike = np.random.default_rng(0).random((2, 2)) * np.array([0.1, 0.3, 0.7, 1.1])[:, None, None]
    assert len(np.unique(first_clusters(alike, np.ones(4, dtype=bool), 4), axis=0)) == 1


def test_tells_the_careful_from_the_careless():
    A, y = two_kinds()
    model = WorkerClustering().fit(as_table(A))
    assert model.clusters_.tolist() == [0, 1] * 4
    assert model.cluster_posterior_.max(axis=1).min() > 0.99
    np.testing.assert_allclose(model.cluster_weight_, 0.5, atol=0.01)
    np.testing.assert_allclose(np.diag(model.cluster_confusion_[0]), 0.9, atol=0.06)
    np.testing.assert_allclose(model.cluster_confusion_[1], [[0.6, 0.2, 0.2]] * 3, atol=0.1)
    assert (model.labels_ == y).mean() > 0.9
    np.testing.assert_allclose(model.predict_proba(as_table(A)), model.posterior_)


def test_order_does_not_matter():
    A, _ = two_kinds(n=60)
    rng = np.random.default_rng(0)
    rows, columns, classes = (rng.permutation(k) for k in (*A.shape, N_CLASSES))
    model = WorkerClustering(n_clusters=3).fit(as_table(A))
    moved = np.where(A < 0, -1, classes[A])[rows][:, columns]
    other = WorkerClustering(n_clusters=3).fit(as_table(moved))
    np.testing.assert_allclose(other.posterior_[:, classes], model.posterior_[rows], atol=1e-9)
    clusters = model.cluster_posterior_[columns]
    np.testing.assert_allclose(other.cluster_posterior_, clusters, atol=1e-9)


def test_silent_annotators_and_instances_teach_nothing():
    A = two_kinds(n=80)[0][:, :7]
    alone = WorkerClustering().fit(as_table(A))
    wider = np.full((len(A) + 3, A.shape[1] + 2), -1)
    wider[: len(A), : A.shape[1]] = A
    model = WorkerClustering().fit(as_table(wider))
    np.testing.assert_allclose(model.posterior_[: len(A)], alone.posterior_)
    np.testing.assert_allclose(model.cluster_weight_, alone.cluster_weight_)
    np.testing.assert_allclose(model.posterior_[len(A) :], [model.class_prior_] * 3)
    np.testing.assert_allclose(model.cluster_posterior_[7:], [model.cluster_weight_] * 2)
    crowd = np.tensordot(model.cluster_weight_, model.cluster_confusion_, 1)
    np.testing.assert_allclose(model.confusion_[7:], [crowd] * 2)


def test_more_clusters_than_annotators():
    A, _ = two_kinds(n=80)
    model = WorkerClustering(n_clusters=20).fit(as_table(A[:, [0, 2, 4]]))
    assert np.isfinite(model.cluster_confusion_).all()
    np.testing.assert_allclose(model.cluster_confusion_.sum(axis=2), 1)
    np.testing.assert_allclose(model.cluster_posterior_.sum(axis=1), 1)
    assert len(set(model.clusters_)) <= 3
