import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import AnnotationTable, DawidSkene, MajorityVote, all_aggregators
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning
from manyhands.inference import find_aggregator
from manyhands.inference.kernels import (
    confusion_counts,
    e_step,
    expected_accuracy,
    floored_log,
    normalise_rows,
    vote_matrix,
    vote_shares,
)

# Random tables need not have two annotations of any instance.
pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")

AGGREGATORS = [cls for _, cls in all_aggregators()]


def tables(min_instances=2):
    """Random matrices of 3 classes with at least one annotation."""
    shape = st.tuples(st.integers(min_instances, 10), st.integers(1, 5))
    return arrays(np.int64, shape, elements=st.integers(-1, 2)).filter(lambda A: (A >= 0).any())


def slow_e_step(A, prior, confusion):
    """Dawid & Skene (1979), Eq. 2.5, by loops and plain products."""
    posterior = np.zeros((len(A), len(prior)))
    for i, row in enumerate(A):
        for c in range(len(prior)):
            p = prior[c]
            for r, given_class in enumerate(row):
                if given_class >= 0:
                    p *= confusion[r, c, given_class]
            posterior[i, c] = p
    likelihood = posterior.sum(axis=1)
    return posterior / likelihood[:, None], np.log(likelihood)


def slow_counts(A, posterior, n_classes):
    """Dawid & Skene (1979), Eq. 2.3 before normalisation, by loops."""
    counts = np.zeros((A.shape[1], n_classes, n_classes))
    for i, row in enumerate(A):
        for r, given_class in enumerate(row):
            if given_class >= 0:
                counts[r, :, given_class] += posterior[i]
    return counts


@given(tables(), st.integers(0, 1000))
def test_steps_equal_slow_loops(A, seed):
    rng = np.random.default_rng(seed)
    votes = vote_matrix(AnnotationTable.from_matrix(A, classes=range(3)))
    prior = rng.dirichlet(np.ones(3))
    confusion = rng.dirichlet(np.ones(3), size=(A.shape[1], 3))
    posterior, evidence = e_step(votes, np.log(prior), np.log(confusion))
    expected, log_likelihood = slow_e_step(A, prior, confusion)
    np.testing.assert_allclose(posterior, expected, atol=1e-12)
    np.testing.assert_allclose(evidence, log_likelihood, atol=1e-10)
    counts = confusion_counts(votes, posterior)
    np.testing.assert_allclose(counts, slow_counts(A, posterior, 3), atol=1e-12)


@pytest.mark.parametrize("prior", ["pooled", "diagonal", None])
@pytest.mark.parametrize("class_prior", ["estimated", "uniform"])
@given(A=tables())
@settings(max_examples=40)
def test_em_never_decreases_its_objective(prior, class_prior, A):
    model = DawidSkene(tol=0.0, max_iter=30, confusion_prior=prior, class_prior=class_prior)
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
    model = DawidSkene(max_iter=1, confusion_prior=None).fit(A)
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
        max_iter=1, confusion_prior="diagonal", prior_strength=2.0, diagonal=0.75
    ).fit(A)
    np.testing.assert_allclose(model.confusion_[0], [[2.5 / 3, 0.5 / 3], [0.5 / 3, 2.5 / 3]])


@pytest.mark.parametrize("cls", AGGREGATORS)
def test_hundreds_of_annotations_an_instance_do_not_underflow(cls):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 20)
    A = np.where(rng.random((20, 400)) < 0.5, y[:, None], rng.integers(0, 3, (20, 400)))
    model = cls().fit(A)
    assert np.isfinite(model.posterior_).all()
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)
    np.testing.assert_array_equal(model.labels_, y)


@pytest.mark.parametrize("cls", AGGREGATORS)
@given(A=tables(), seed=st.integers(0, 99))
@settings(max_examples=25)
def test_permuting_and_relabelling_permutes_and_relabels(cls, A, seed):
    rng = np.random.default_rng(seed)
    rows, columns, classes = (rng.permutation(k) for k in (*A.shape, 3))
    plain = cls().fit(AnnotationTable.from_matrix(A, classes=range(3)))
    B = np.where(A >= 0, classes[A], -1)[rows][:, columns]
    other = cls().fit(AnnotationTable.from_matrix(B, classes=range(3)))
    np.testing.assert_allclose(other.posterior_[:, classes], plain.posterior_[rows], atol=1e-6)
    moved = other.confusion_[:, classes][:, :, classes]
    np.testing.assert_allclose(moved, plain.confusion_[columns], atol=1e-6)


@pytest.mark.parametrize("cls", AGGREGATORS)
def test_fitted_attributes(cls):
    A = np.array([["x", "y", "x"], ["y", "y", None], [None, None, None]], dtype=object)
    model = cls()
    labels = model.fit_predict(A)
    assert labels.dtype.kind == "U"
    assert labels[:2].tolist() == ["x", "y"]
    assert model.posterior_.shape == (3, 2)
    assert model.class_prior_.shape == (2,)
    assert model.confusion_.shape == (3, 2, 2)
    np.testing.assert_allclose(model.confusion_.sum(axis=2), 1)
    np.testing.assert_allclose(model.class_prior_.sum(), 1)
    assert model.annotator_accuracy_.shape == (3,)
    np.testing.assert_array_equal(cls().fit_predict_proba(A), model.posterior_)
    # The instance without annotations gets what is known without any: the class prior.
    np.testing.assert_allclose(model.posterior_[2], model.class_prior_, atol=1e-3)


@pytest.mark.parametrize("cls", AGGREGATORS)
def test_silent_annotator_and_adversary(cls):
    y = np.arange(30) % 3
    A = np.column_stack([y, y, y, (y + 1) % 3, np.full(30, -1)])
    model = cls().fit(A)
    np.testing.assert_array_equal(model.labels_, y)
    assert model.annotator_accuracy_[3] < 0.5 < model.annotator_accuracy_[0]
    assert np.isfinite(model.confusion_).all()


@pytest.mark.parametrize("cls", AGGREGATORS)
@pytest.mark.parametrize(
    ("A", "message"),
    [(np.full((3, 2), -1), "table is empty"), (np.ones((3, 2), dtype=int), "one class only, 1")],
)
def test_nothing_to_infer_is_an_error(cls, A, message):
    with pytest.raises(AnnotationError, match=message):
        cls().fit(A)


@pytest.mark.parametrize("cls", AGGREGATORS)
def test_all_weights_zero_is_an_error(cls):
    table = AnnotationTable.from_arrays([0, 1], [0, 0], [0, 1], weight=[0.0, 0.0])
    with pytest.raises(AnnotationError, match="all weights of table are 0"):
        cls().fit(table)


@pytest.mark.parametrize("cls", AGGREGATORS)
def test_a_class_nobody_gave_is_no_trouble(cls):
    table = AnnotationTable.from_matrix([[0, 0], [1, 1]], classes=[0, 1, 2])
    model = cls().fit(table)
    assert model.labels_.tolist() == [0, 1]
    assert np.isfinite(model.posterior_).all()


def test_majority_vote_ties():
    A = np.array([[0, 1], [1, 1]])
    assert MajorityVote().fit(A).labels_.tolist() == [0, 1]
    shared = MajorityVote(soft=False, ties="distribute").fit(A)
    assert shared.posterior_.tolist() == [[0.5, 0.5], [0, 1]]
    picked = {MajorityVote(ties="random", random_state=s).fit(A).labels_[0] for s in range(20)}
    assert picked == {0, 1}
    first = MajorityVote(soft=False).fit(A)
    assert first.posterior_.tolist() == [[1, 0], [0, 1]]


def test_majority_vote_counts_weights():
    table = AnnotationTable.from_arrays([0, 0, 1], [0, 1, 0], [0, 1, 1], weight=[1.0, 3.0, 1.0])
    assert MajorityVote().fit(table).posterior_.tolist() == [[0.25, 0.75], [0, 1]]


def test_zero_weight_is_absence():
    arrays_ = ([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [0, 1, 1, 1, 0])
    weighted = AnnotationTable.from_arrays(*arrays_, weight=[1, 0, 1, 1, 1])
    without = weighted.take([0, 2, 3, 4])
    for cls in AGGREGATORS:
        a, b = cls().fit(weighted), cls().fit(without)
        np.testing.assert_allclose(a.posterior_, b.posterior_)
    ml = DawidSkene(confusion_prior=None).fit(weighted)
    assert np.isfinite(ml.posterior_).all()


def test_dawid_skene_recovers_a_known_crowd():
    rng = np.random.default_rng(0)
    n, r, c = 2000, 8, 3
    y = rng.integers(0, c, n)
    confusion = 0.7 * np.eye(c) + 0.3 * rng.dirichlet(np.ones(c), size=(r, c))
    A = np.stack([[rng.choice(c, p=confusion[j, k]) for k in y] for j in range(r)], axis=1)
    A[rng.random(A.shape) < 0.3] = -1
    model = DawidSkene().fit(A)
    assert (model.labels_ == y).mean() > (MajorityVote().fit(A).labels_ == y).mean()
    assert np.abs(model.confusion_ - confusion).max() < 0.08


def test_dirichlet_prior_beats_maximum_likelihood_when_annotators_give_few_labels():
    """2.5 labels an instance, few a annotator: where plain maximum likelihood loses to votes."""
    gains = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 8, 1000)
        skill = rng.beta(5, 2, 59)
        A = np.full((1000, 59), -1)
        for i in range(1000):
            for j in rng.choice(59, 2 + (i % 2), replace=False):
                A[i, j] = y[i] if rng.random() < skill[j] else rng.integers(0, 8)
        ml = (DawidSkene(confusion_prior=None).fit(A).labels_ == y).mean()
        gains.append((DawidSkene().fit(A).labels_ == y).mean() - ml)
    assert np.mean(gains) > 0.01


def test_kernels_on_edges():
    np.testing.assert_array_equal(
        normalise_rows(np.array([[0.0, 0], [1, 3]])), [[0.5, 0.5], [0.25, 0.75]]
    )
    assert np.isfinite(floored_log(np.array([0.0, 1.0]))).all()
    table = AnnotationTable.from_matrix([[0, 1], [-1, -1]])
    np.testing.assert_array_equal(vote_shares(table), [[0.5, 0.5], [0.5, 0.5]])
    posterior = np.array([[0.9, 0.1], [0.5, 0.5]])
    np.testing.assert_allclose(expected_accuracy(table, posterior), [0.9, 0.1])


def test_methods_are_found_by_name():
    assert find_aggregator("dawid-skene") is DawidSkene
    assert find_aggregator("Majority_Vote") is MajorityVote
    with pytest.raises(AnnotationError, match="majority-vote"):
        find_aggregator("oracle")


def test_annotators_who_never_meet_cannot_be_compared():
    with pytest.warns(NotIdentifiableWarning, match="no instance has two annotations"):
        model = DawidSkene().fit(np.array([[0, -1], [-1, 1], [1, -1]]))
    assert model.labels_.tolist() == [0, 1, 1]
