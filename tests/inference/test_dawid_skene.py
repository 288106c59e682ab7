"""Dawid and Skene's model, and clusters of workers that share one of its confusion matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import (
    EBCC,
    IBCC,
    AnnotationTable,
    DawidSkene,
    MajorityVote,
    OneCoinDawidSkene,
)
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning
from manyhands.inference import base, worker_clustering
from manyhands.inference.confusion_prior import log_dirichlet_multinomial
from manyhands.inference.history import TakesHistory
from manyhands.inference.identifiability import Comparisons
from manyhands.inference.votes import vote_shares
from manyhands.inference.worker_clustering import (
    WorkerClustering,
    cluster_step,
    first_clusters,
)
from manyhands.registry import all_aggregators

pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")


def tables():
    """Random matrices of 3 classes with at least one annotation."""
    shape = st.tuples(st.integers(2, 10), st.integers(1, 5))
    return arrays(np.int64, shape, elements=st.integers(-1, 2)).filter(lambda A: (A >= 0).any())


def crowd(seed, n, skill, n_classes, per_instance):
    """Symmetric mistakes: matrix of annotations and true classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    A = np.full((n, len(skill)), -1)
    for i in range(n):
        for j in rng.choice(len(skill), per_instance, replace=False):
            wrong = rng.integers(0, n_classes)
            A[i, j] = y[i] if rng.random() < skill[j] else wrong
    return A, y


@pytest.mark.parametrize("em", ["soft", "hard"])
@pytest.mark.parametrize("n_subtypes", [1, 2])
@pytest.mark.parametrize("prior", ["hierarchical", "pooled", "diagonal", None])
@given(A=tables(), class_prior=st.sampled_from(["estimated", "uniform"]))
@settings(max_examples=6)
def test_em_never_decreases_its_objective(prior, n_subtypes, em, A, class_prior):
    model = DawidSkene(
        tol=0.0,
        max_iter=15,
        confusion_prior=prior,
        class_prior=class_prior,
        n_subtypes=n_subtypes,
        em=em,
    )
    model.fit(AnnotationTable.from_matrix(A, classes=range(3)))
    steps = np.diff(model.log_likelihood_)
    assert (steps > -1e-9 * max(1.0, np.abs(model.log_likelihood_).max())).all()


def test_two_annotators_by_hand():
    """One EM iteration of maximum likelihood, computed on paper.

    Votes: (0, 0), (0, 1), (1, 1), (1, 1). Start: q = shares of class 0 = 1, .5, 0, 0; prior
    (3/8, 5/8). Annotator 0 gave 0, 0, 1, 1: row 0 = (1.5, 0) / 1.5, row 1 = (.5, 2) / 2.5.
    Annotator 1 gave 0, 1, 1, 1: row 0 = (1, .5) / 1.5, row 1 = (0, 2.5) / 2.5.
    """
    A = np.array([[0, 0], [0, 1], [1, 1], [1, 1]])
    model = DawidSkene(max_iter=1, confusion_prior=None, dependence=0).fit(A)
    np.testing.assert_allclose(model.class_prior_, [3 / 8, 5 / 8])
    np.testing.assert_allclose(model.confusion_[0], [[1, 0], [0.2, 0.8]])
    np.testing.assert_allclose(model.confusion_[1], [[2 / 3, 1 / 3], [0, 1]])
    # Second instance: class 0: 3/8 * 1 * 1/3 = 1/8; class 1: 5/8 * .2 * 1 = 1/8.
    np.testing.assert_allclose(model.posterior_[:, 0], [1, 0.5, 0, 0], atol=1e-12)
    # log likelihoods: 3/8 * 1 * 2/3; 1/4; twice 5/8 * .8 * 1.
    expected = np.log(1 / 4) + np.log(1 / 4) + 2 * np.log(1 / 2)
    np.testing.assert_allclose(model.log_likelihood_, [expected])


def test_diagonal_prior_by_hand():
    """Strength 2 and diagonal .75 add (1.5, .5) to every row before it is normalised."""
    A = np.array([[0, 0], [1, 1]])
    model = DawidSkene(
        max_iter=1, confusion_prior="diagonal", prior_strength=2.0, diagonal=0.75, n_subtypes=1
    ).fit(A)
    np.testing.assert_allclose(model.confusion_[0], [[2.5 / 3, 0.5 / 3], [0.5 / 3, 2.5 / 3]])


def test_hierarchical_prior_by_hand():
    """Unanimous annotators: every skill and ease is clipped to .99, mistakes are the other class.

    Counts are 1 right in either class; strength 10 adds 10 * (.99, .01).
    """
    A = np.array([[0, 0], [1, 1]])
    model = DawidSkene(max_iter=1, prior_strength=10.0, n_subtypes=1).fit(A)
    # Pooled row: (2 + .1 + 1, .1) / 3.2, ease = 3.1 / 3.2; skill and crowd .99 each.
    row = np.array([1 + 10 * 3.1 / 3.2, 10 * 0.1 / 3.2]) / 11
    np.testing.assert_allclose(model.confusion_[0], [row, row[::-1]])


def test_hard_em_counts_the_winner_alone():
    A = np.array([[0, 0], [0, 1], [1, 1], [1, 1]])
    model = DawidSkene(max_iter=2, confusion_prior=None, em="hard").fit(A)
    # After the first E-step the second instance is a tie, which counts in class 0.
    np.testing.assert_allclose(model.class_prior_, [0.5, 0.5])
    np.testing.assert_allclose(model.confusion_[0], np.eye(2))
    np.testing.assert_allclose(model.confusion_[1], [[0.5, 0.5], [0, 1]])
    # Joint of annotations and chosen classes: (1/2 * 1 * 1/2) twice, (1/2) twice.
    np.testing.assert_allclose(model.log_likelihood_[-1], 2 * np.log(1 / 4) + 2 * np.log(1 / 2))


def test_dirichlet_multinomial_by_hand():
    """Two annotations of one row under Dirichlet (1, 1): p(both 0) = 1/2 * 2/3."""
    counts, pseudo = np.array([[[2.0, 0.0]]]), np.array([[[1.0, 1.0]]])
    np.testing.assert_allclose(log_dirichlet_multinomial(counts, pseudo), np.log(1 / 3))


def test_evidence_tells_correlated_mistakes_from_independent_ones():
    rng = np.random.default_rng(0)
    n, r = 600, 12
    y = rng.integers(0, 2, n)
    misleading = rng.random(n) < 0.25
    p_right = np.where(misleading, 0.55, 0.95)[:, None]
    A = np.where(rng.random((n, r)) < p_right, y[:, None], 1 - y[:, None])
    A[rng.random(A.shape) < 0.4] = -1
    assert DawidSkene().fit(A).n_subtypes_ == 2
    A = np.where(rng.random((n, r)) < 0.8, y[:, None], 1 - y[:, None])
    model = DawidSkene().fit(A)
    assert model.n_subtypes_ == 1
    assert set(model.evidence_) == {1}  # No correlation was found, so two were not tried.
    assert set(DawidSkene(dependence=0.1).fit(A).evidence_) == {1, 2}


def test_strength_follows_how_alike_annotators_are():
    alike, _ = crowd(0, 500, np.full(20, 0.75), 2, 8)
    unlike, _ = crowd(0, 500, np.tile([-1.0, 1.0, 1.0, 1.0], 5), 2, 8)
    unlike[:, ::4] = np.where(unlike[:, ::4] < 0, -1, 0)  # Constant annotators.
    prior = {"confusion_prior": "pooled", "n_subtypes": 1}
    strengths = [DawidSkene(**prior).fit(A, groups={}).prior_strength_ for A in (alike, unlike)]
    assert strengths[0] > strengths[1]


def test_subtypes_leave_class_level_results():
    A, y = crowd(0, 300, np.linspace(0.6, 0.95, 8), 3, 4)
    model = DawidSkene(n_subtypes=3).fit(A)
    assert model.posterior_.shape == (300, 3)
    assert model.confusion_.shape == (8, 3, 3)
    np.testing.assert_allclose(model.confusion_.sum(axis=2), 1)
    np.testing.assert_allclose(model.class_prior_.sum(), 1)
    assert (model.labels_ == y).mean() > 0.8


def test_abstentions_tell_of_the_class():
    """Class 1 makes people unsure: who abstains says 1, and modelling it finds that out."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    A = np.where(rng.random((400, 6)) < 0.75, y[:, None], 1 - y[:, None]).astype(object)
    A[(rng.random(A.shape) < 0.6) & (y == 1)[:, None]] = "unsure"
    table = AnnotationTable.from_matrix(A, abstain="unsure")
    modelled, ignored = DawidSkene().fit(table), DawidSkene(abstentions="ignore").fit(table)
    accuracy = [(m.labels_.astype(int) == y).mean() for m in (modelled, ignored)]
    assert accuracy[0] > accuracy[1] + 0.02
    np.testing.assert_allclose(modelled.abstention_.mean(axis=0), [0, 0.6], atol=0.06)
    assert not ignored.abstention_.any()
    np.testing.assert_allclose(modelled.confusion_.sum(axis=2), 1)
    # Skips say nothing, whatever is modelled.
    skipped = AnnotationTable.from_matrix(A, skip="unsure")
    np.testing.assert_array_equal(DawidSkene().fit(skipped).posterior_, ignored.posterior_)


def test_abstentions_that_tell_nothing_do_no_harm():
    """Good annotators abstain most: to abstain is neither right nor wrong."""
    gaps = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 4, 300)
        skill = np.repeat([0.95, 0.6], 10)
        A = np.where(rng.random((300, 20)) < skill, y[:, None], rng.integers(0, 4, (300, 20)))
        A[rng.random(A.shape) < 0.7] = -1
        cells = np.where(A < 0, None, A.astype(object))
        abstains = (rng.random(A.shape) < np.repeat([0.8, 0.1], 10)) & (A >= 0)
        cells[abstains] = "unsure"
        table = AnnotationTable.from_matrix(cells, abstain="unsure", classes=range(4))
        modelled, ignored = DawidSkene().fit(table), DawidSkene(abstentions="ignore").fit(table)
        gaps.append((modelled.labels_ == y).mean() - (ignored.labels_ == y).mean())
    assert np.mean(gaps) > -0.02


def test_passes_follow_their_annotators_into_predictions():
    A = np.array([["a", "a", None], ["b", "unsure", "b"], ["a", "a", "a"]] * 5, dtype=object)
    model = DawidSkene().fit(
        AnnotationTable.from_matrix(A, annotators=["u", "v", "w"], abstain="unsure")
    )
    two = np.array([["unsure", "b"], ["a", None]], dtype=object)
    turned = AnnotationTable.from_matrix(two, annotators=["v", "u"], abstain="unsure")
    full = np.array([["b", "unsure", None], [None, "a", None]], dtype=object)
    straight = AnnotationTable.from_matrix(full, annotators=["u", "v", "w"], abstain="unsure")
    np.testing.assert_allclose(model.predict_proba(turned), model.predict_proba(straight))


@pytest.mark.parametrize("cls", [DawidSkene, IBCC, EBCC])
def test_abstentions_on_one_side_alone(cls):
    with_ = AnnotationTable.from_matrix(
        np.array([[0, 0, 9], [1, 1, 0], [0, 0, 1], [1, 9, 1]] * 5), abstain=9
    )
    without = AnnotationTable.from_matrix(np.array([[0, 1, 1], [1, 1, 0]] * 5))
    modelled = cls(abstentions="model")
    assert modelled.fit(with_).predict_proba(without).shape == (10, 2)
    assert modelled.predict_proba(with_[[1, 2]]).shape == (2, 2)
    # Who never abstained in fit is not judged by abstaining.
    fitted = modelled.fit(without)
    ignored = fitted.predict_proba(with_)
    plain = AnnotationTable.from_matrix(
        np.array([[0, 0, -1], [1, 1, 0], [0, 0, 1], [1, -1, 1]] * 5)
    )
    np.testing.assert_allclose(ignored, fitted.predict_proba(plain))


def test_gold_leaves_the_subtypes_their_start():
    rng = np.random.default_rng(0)
    n, r = 600, 12
    y = rng.integers(0, 2, n)
    p_right = np.where(rng.random(n) < 0.25, 0.55, 0.95)[:, None]
    A = np.where(rng.random((n, r)) < p_right, y[:, None], 1 - y[:, None])
    A[rng.random(A.shape) < 0.4] = -1
    assert DawidSkene().fit(A, gold=y).n_subtypes_ == 2


def test_evidence_counts_weights_as_repetitions():
    A, _ = crowd(0, 60, np.linspace(0.5, 0.9, 6), 2, 3)
    table = AnnotationTable.from_matrix(A)
    twice = table.take(np.repeat(np.arange(table.n_annotations), 2))
    columns = (table.instance, table.annotator, table.label)
    weighted = AnnotationTable.from_arrays(
        *columns, n_instances=60, n_annotators=6, weight=np.full(table.n_annotations, 2.0)
    )
    one, other = DawidSkene().fit(weighted), DawidSkene().fit(twice)
    assert one.evidence_ == pytest.approx(other.evidence_)


def test_uniform_class_prior_is_of_the_classes():
    A, _ = crowd(0, 200, np.linspace(0.6, 0.95, 8), 3, 8)
    options = {"class_prior": "uniform", "n_subtypes": 2, "dependence": 0, "tol": 1e-9}
    model = DawidSkene(confusion_prior=None, accelerate=False, max_iter=2000, **options).fit(A)
    np.testing.assert_allclose(model.class_prior_, 1 / 3)
    # Subtypes with shares of their own mix to what was given.
    given = (A[:, :, None] == np.arange(3)).astype(float)
    counts = np.einsum("ic,irk->rck", model.posterior_, given)
    expected = counts / counts.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(model.confusion_, expected, atol=1e-4)


def test_no_prior_no_evidence():
    A, _ = crowd(0, 50, np.linspace(0.6, 0.95, 8), 3, 4)
    for parameters in ({"confusion_prior": None}, {"prior_strength": 0.0}):
        model = DawidSkene(**parameters).fit(A)
        assert (model.evidence_, model.prior_strength_, model.n_subtypes_) == ({}, 0.0, 1)


def test_recovers_a_known_crowd():
    rng = np.random.default_rng(0)
    n, r, c = 2000, 8, 3
    y = rng.integers(0, c, n)
    confusion = 0.7 * np.eye(c) + 0.3 * rng.dirichlet(np.ones(c), size=(r, c))
    A = np.stack([[rng.choice(c, p=confusion[j, k]) for k in y] for j in range(r)], axis=1)
    A[rng.random(A.shape) < 0.3] = -1
    model = DawidSkene().fit(A)
    assert (model.labels_ == y).mean() > (MajorityVote().fit(A).labels_ == y).mean()
    assert np.abs(model.confusion_ - confusion).max() < 0.08


def test_prior_beats_maximum_likelihood_when_annotators_give_few_labels():
    """2 labels per instance of 8 classes: where plain maximum likelihood loses to votes."""
    gains, over_votes = [], []
    for seed in range(5):
        skill = np.random.default_rng(seed).beta(5, 2, 59)
        A, y = crowd(seed, 1000, skill, 8, 3)
        ml, default, votes = (
            (m.fit(A).labels_ == y).mean()
            for m in (DawidSkene(confusion_prior=None), DawidSkene(), MajorityVote())
        )
        gains.append(default - ml)
        over_votes.append(default - votes)
    assert np.mean(gains) > 0.01
    assert np.mean(over_votes) > 0.01


def test_annotators_who_never_meet_cannot_be_compared():
    with pytest.warns(NotIdentifiableWarning, match="no instance has annotations by two"):
        model = DawidSkene().fit(np.array([[0, -1], [-1, 1], [1, -1]]))
    assert model.labels_.tolist() == [0, 1, 1]


# -- Worker Clustering ----------------------------------------------------------------------------


# Random tables need not have two annotations of any instance.

N_CLASSES = 3


def any_tables(max_instances=10, max_annotators=5):
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


@given(A=any_tables(), n_clusters=st.integers(1, 4), iterations=st.integers(1, 5))
@settings(max_examples=15)
def test_logged_bound_equals_its_definition(A, n_clusters, iterations):
    model = WorkerClustering(max_iter=iterations, tol=0.0, n_clusters=n_clusters).fit(as_table(A))
    np.testing.assert_allclose(model.log_likelihood_[-1], slow_bound(A, model), atol=1e-9)


@given(A=any_tables(), n_clusters=st.integers(1, 4), seed=st.integers(0, 100))
@settings(max_examples=20)
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
    model = WorkerClustering(tol=0.0, max_iter=15, n_clusters=n_clusters).fit(table, gold=gold)
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
        # An isolated annotator is believed, which is not what is compared here.
        patch.setattr(base, "comparisons", lambda _: Comparisons(12, 12, 0))
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


# -- the history of annotators ---------------------------------------------------------------------

PERFECT = 50 * np.eye(2)
TAKES_HISTORY = pytest.mark.parametrize(
    "cls", [cls for _, cls in all_aggregators() if issubclass(cls, TakesHistory)]
)


def in_conflict(repeats=1):
    """Two annotators who differ on two thirds of the instances, so that neither is believed."""
    return AnnotationTable.from_matrix([[0, 1], [1, 0], [0, 1], [1, 0], [0, 0], [1, 1]] * repeats)


def test_history_is_added_in_the_m_step():
    """One iteration by hand: vote shares .5, .5 of both instances, so each count is .5."""
    table = AnnotationTable.from_matrix([[0, 1], [1, 0]])
    model = DawidSkene(max_iter=1, confusion_prior=None, dependence=0, n_subtypes=1)
    model.fit(table, history={0: [[3, 1], [0, 2]]})
    # Annotator 0: rows (.5, .5) + (3, 1) and (.5, .5) + (0, 2).
    np.testing.assert_allclose(model.confusion_[0], [[3.5 / 5, 1.5 / 5], [0.5 / 3, 2.5 / 3]])
    np.testing.assert_allclose(model.confusion_[1], np.full((2, 2), 0.5))
    np.testing.assert_allclose(model.posterior_[0, 0], 0.7 / (0.7 + 1 / 6))
    with_prior = DawidSkene(
        max_iter=1,
        confusion_prior="diagonal",
        diagonal=0.8,
        prior_strength=5,
        dependence=0,
        n_subtypes=1,
    ).fit(table, history={0: [[3, 1], [0, 2]]})
    np.testing.assert_allclose(with_prior.confusion_[0, 0], [7.5 / 10, 2.5 / 10])


def test_history_of_one_coin_and_of_ibcc_by_hand():
    table = AnnotationTable.from_matrix([[0, 1], [1, 0]])
    coin = OneCoinDawidSkene(max_iter=1, prior_strength=0, dependence=0)
    coin.fit(table, history={0: [[3, 1], [0, 2]]})
    np.testing.assert_allclose(coin.skill_, [(1 + 5) / (2 + 6), 0.5])
    bayes = IBCC(max_iter=1, dependence=0).fit(table, history={0: [[3, 1], [0, 2]]})
    np.testing.assert_allclose(bayes.confusion_alpha_[0], [[7.5, 2.5], [1.5, 6.5]])
    np.testing.assert_allclose(bayes.confusion_alpha_[1], [[4.5, 1.5], [1.5, 4.5]])


@TAKES_HISTORY
@pytest.mark.parametrize("trusted", [0, 1])
def test_the_annotator_with_a_good_history_breaks_ties(cls, trusted):
    table = in_conflict()
    model = cls().fit(table, history={trusted: PERFECT})
    given = table.to_matrix()
    np.testing.assert_array_equal(model.labels_, given[:, trusted])
    assert model.confusion_[trusted].diagonal().min() > 0.85


@TAKES_HISTORY
def test_history_settles_whom_to_believe_where_nobody_meets(cls):
    """Alone on every instance: the label of one who always errs counts against its class."""
    table = AnnotationTable.from_matrix([[0, -1], [1, -1], [-1, 0], [-1, 1]])
    wrong = {1: 50 * (1 - np.eye(2))}
    assert cls().fit(table).labels_.tolist() == [0, 1, 0, 1]
    assert cls().fit(table, history=wrong).labels_.tolist() == [0, 1, 1, 0]


@TAKES_HISTORY
@pytest.mark.parametrize("nothing", [{}, [], {0: np.zeros((2, 2))}, [(0, 1, 0, 0)]])
def test_history_of_nothing_changes_nothing(cls, nothing):
    table = in_conflict()
    plain, other = cls().fit(table), cls().fit(table, history=nothing)
    np.testing.assert_array_equal(plain.posterior_, other.posterior_)
    np.testing.assert_array_equal(plain.confusion_, other.confusion_)
    assert (other.fit(table, history={0: PERFECT}).confusion_ != plain.confusion_).any()
    np.testing.assert_array_equal(other.fit(table).confusion_, plain.confusion_)


def test_forms_of_a_history_agree():
    table = AnnotationTable.from_matrix(
        [["cat", "dog"], ["dog", "cat"], ["cat", "cat"]], annotators=["a", "b"]
    )
    rows = [("b", "cat", "cat", 3), ("b", "cat", "cat", 2), ("b", "dog", "cat", 1)]
    frames = pytest.importorskip("pandas").DataFrame(
        rows, columns=["annotator", "true", "given", "count"]
    )
    expected = DawidSkene().fit(table, history={"b": [[5, 0], [1, 0]]}).posterior_
    for history in (rows, frames):
        found = DawidSkene().fit(table, history=history).posterior_
        np.testing.assert_array_equal(found, expected)


def test_history_of_an_earlier_fit():
    """Expected counts of the earlier annotations, plus the history that the earlier fit had."""
    classes = ["x", "y", "z"]
    earlier = [["x", "y"], ["y", "y"]]
    earlier = AnnotationTable.from_matrix(earlier, classes=["y", "x", "unused"])
    first = MajorityVote().fit(earlier, gold={0: "y", 1: "x"})
    later = AnnotationTable.from_matrix([["x", "y"], ["y", "y"], ["z", "z"]], classes=classes)
    # Annotator 0 gave x, y on y, x; annotator 1 gave y on both. Classes are matched by name.
    by_hand = {0: [[0, 1, 0], [1, 0, 0], [0] * 3], 1: [[0, 1, 0], [0, 1, 0], [0] * 3]}
    expected = DawidSkene().fit(later, history=by_hand)
    second = DawidSkene().fit(later, history=first)
    np.testing.assert_array_equal(second.posterior_, expected.posterior_)
    third = DawidSkene().fit(later, history=second)
    given = later.to_matrix()[:, :, None] == np.array(classes)
    counts = np.einsum("ic,irk->rck", second.posterior_, given)
    of_both = {r: by_hand[r] + counts[r] for r in (0, 1)}
    expected = DawidSkene().fit(later, history=of_both)
    np.testing.assert_allclose(third.posterior_, expected.posterior_)


@TAKES_HISTORY
def test_partial_fit_and_predict_keep_the_history(cls):
    table = in_conflict()
    with pytest.warns(UserWarning, match=r"names 1 annotators .* \(2\)"):
        model = cls().fit(table, history={1: PERFECT, 2: 1000 * np.eye(2)})
    assert model.predict(AnnotationTable.from_matrix([[0, 1], [1, 0]])).tolist() == [1, 0]
    more = AnnotationTable.from_matrix([[1, 0, 1], [1, 1, 0]], instances=[6, 7])
    model.partial_fit(more)
    assert model.labels_[-2:].tolist() == [1, 0]  # Annotator 2 came with a history.


def test_history_leaves_the_rate_of_abstaining():
    y = np.arange(40) % 2
    A = np.column_stack([y, y]).astype(object)
    A[::3, 0] = "unsure"
    table = AnnotationTable.from_matrix(A, abstain="unsure")
    plain = DawidSkene(n_subtypes=1).fit(table)
    known = DawidSkene(n_subtypes=1).fit(table, history={0: 1000 * np.eye(2)})
    np.testing.assert_allclose(known.abstention_[0], plain.abstention_[0], atol=0.02)
    assert plain.abstention_[0].max() > 0.2
    assert known.confusion_[0].diagonal().min() > 0.99


@pytest.mark.parametrize("n_subtypes", [1, 2])
@given(A=tables(), counts=arrays(np.int64, (3, 3), elements=st.integers(0, 30)))
@settings(max_examples=8)
def test_em_with_history_never_decreases_its_objective(n_subtypes, A, counts):
    model = DawidSkene(tol=0.0, max_iter=15, n_subtypes=n_subtypes)
    model.fit(AnnotationTable.from_matrix(A, classes=range(3)), history={0: counts})
    steps = np.diff(model.log_likelihood_)
    assert (steps > -1e-9 * max(1.0, np.abs(model.log_likelihood_).max())).all()


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ({0: [[1, 2], [3, -1]]}, r"annotator 0 holds the count -1.0"),
        ({0: [[1, 2], [3, np.nan]]}, r"annotator 0 holds the count nan"),
        ({0: [[1, 2], [3, np.inf]]}, r"annotator 0 holds the count inf"),
        ({0: [["few", 2], [3, 4]]}, r"no number"),
        ({0: np.eye(3)}, r"annotator 0 has shape \(3, 3\); it must be \(2, 2\)"),
        ([(0, 1, 7, 3)], r"history holds 7 .* not among the table's classes"),
        ([(0, 1, 1, -3)], r"annotator 0 holds the count -3"),
        ([(0, 1, 1)], r"history holds \(0, 1, 1\); give rows"),
        ("counts.csv", r"history holds 'counts.csv'; give rows"),
        ({"0": np.eye(2)}, r"strings .* but the table's annotators numbers"),
    ],
)
def test_histories_that_cannot_be_read(history, message):
    table = in_conflict()
    model = DawidSkene().fit(table, history={0: PERFECT})
    before, told = model.posterior_, DawidSkene().fit(table, history=model)
    with pytest.raises(AnnotationError, match=message):
        model.fit(table, history=history)
    assert model.posterior_ is before
    again = DawidSkene().fit(table, history=model)
    np.testing.assert_array_equal(again.confusion_, told.confusion_)


def test_history_lacks_a_column():
    frame = pytest.importorskip("pandas").DataFrame({"annotator": [0], "true": [0], "given": [0]})
    with pytest.raises(AnnotationError, match="history has no column 'count'"):
        DawidSkene().fit(in_conflict(), history=frame)


def test_gold_without_a_known_class_is_no_gold():
    A = np.random.default_rng(0).integers(0, 2, (60, 5))
    plain = DawidSkene(n_subtypes=2).fit(A, groups={})
    empty = DawidSkene(n_subtypes=2).fit(A, groups={}, gold={})
    np.testing.assert_allclose(empty.posterior_, plain.posterior_)
