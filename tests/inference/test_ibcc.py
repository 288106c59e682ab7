from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import digamma, expit, gammaln
from scipy.stats import beta, dirichlet

from manyhands import AnnotationTable
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning
from manyhands.inference.em import e_step
from manyhands.inference.ibcc import IBCC, dirichlet_divergence, expected_log
from manyhands.inference.votes import make_votes

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


def random_crowd(seed=0, n=60, r=6):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, N_CLASSES, n)
    wrong = rng.integers(0, N_CLASSES, (n, r))
    A = np.where(rng.random((n, r)) < rng.uniform(0.4, 0.95, r), y[:, None], wrong)
    A[rng.random(A.shape) < 0.4] = -1
    return A, y


def slow_bound(A, posterior, model):
    """E_q log p(annotations, classes, parameters) - E_q log q, term by term."""
    identity = np.eye(N_CLASSES)
    prior_row = model.diagonal * identity + model.off_diagonal * (1 - identity)
    prior_classes = np.full(N_CLASSES, model.class_strength)

    def prior_and_entropy(alpha, prior):
        log_p = digamma(alpha) - digamma(alpha.sum())
        log_norm = gammaln(prior.sum()) - gammaln(prior).sum()
        return log_norm + ((prior - 1) * log_p).sum() + dirichlet(alpha).entropy()

    log_kappa = digamma(model.class_alpha_) - digamma(model.class_alpha_.sum())
    bound = prior_and_entropy(model.class_alpha_, prior_classes)
    for r in range(A.shape[1]):
        for c in range(N_CLASSES):
            bound += prior_and_entropy(model.confusion_alpha_[r, c], prior_row[c])
    for i, row in enumerate(A):
        if (row < 0).all():
            continue
        for c in range(N_CLASSES):
            q = posterior[i, c]
            expected = log_kappa[c] - np.log(q)
            for r, given_class in enumerate(row):
                if given_class >= 0:
                    alpha = model.confusion_alpha_[r, c]
                    expected += digamma(alpha[given_class]) - digamma(alpha.sum())
            bound += q * expected
    return bound


def exact_log_evidence(A, model):
    """Log p(annotations): all true classes in turn, the parameters integrated out."""
    identity = np.eye(N_CLASSES)
    prior_row = model.diagonal * identity + model.off_diagonal * (1 - identity)

    def log_b(alpha):
        return gammaln(alpha).sum() - gammaln(alpha.sum())

    total = []
    for classes in product(range(N_CLASSES), repeat=len(A)):
        start = np.full(N_CLASSES, model.class_strength)
        log_p = log_b(start + np.bincount(classes, minlength=N_CLASSES)) - log_b(start)
        for r in range(A.shape[1]):
            counts = np.zeros((N_CLASSES, N_CLASSES))
            for c, given_class in zip(classes, A[:, r], strict=True):
                if given_class >= 0:
                    counts[c, given_class] += 1
            log_p += sum(log_b(prior_row[c] + counts[c]) - log_b(prior_row[c]) for c in range(3))
        total.append(log_p)
    return np.logaddexp.reduce(total)


def test_first_iteration_of_two_annotators_by_hand():
    """Rows become (4 + 1, 1); psi(6) - psi(5) = 1/5 and psi(6) - psi(1) = 137/60."""
    model = IBCC(max_iter=1, dependence=0).fit(np.array([[0, 0], [1, 1]]))
    log_odds = 2 * (137 / 60 - 1 / 5)
    np.testing.assert_allclose(model.posterior_[:, 0], [expit(log_odds), expit(-log_odds)])
    np.testing.assert_allclose(model.confusion_alpha_, [[[5, 1], [1, 5]]] * 2)
    np.testing.assert_allclose(model.confusion_, [[[5 / 6, 1 / 6], [1 / 6, 5 / 6]]] * 2)
    np.testing.assert_allclose(model.class_alpha_, [2, 2])
    # E log kappa = psi(2) - psi(4) = -5/6. KL of a row: log B(4, 1) - log B(5, 1) - 1/5, and of
    # the proportions: log B(1, 1) - log B(2, 2) - 2 * 5/6.
    evidence = 2 * (-5 / 6 - 2 / 5 + np.log1p(np.exp(-log_odds)))
    divergence = 4 * (np.log(5 / 4) - 1 / 5) + np.log(6) - 5 / 3
    np.testing.assert_allclose(model.log_likelihood_, [evidence - divergence])


@given(A=tables(), iterations=st.integers(1, 4))
@settings(max_examples=40)
def test_logged_bound_equals_its_definition(A, iterations):
    assume(((A >= 0).sum(axis=1) > 1).any())  # Else the annotations are believed.
    priors = {"diagonal": 2.5, "off_diagonal": 0.6, "class_strength": 1.7}
    model = IBCC(max_iter=iterations, tol=0.0, dependence=0, **priors)
    model.fit(as_table(A))
    np.testing.assert_allclose(model.log_likelihood_[-1], slow_bound(A, model.posterior_, model))


@given(A=tables(max_instances=4, max_annotators=3))
@settings(max_examples=40)
def test_bound_stays_below_the_evidence(A):
    A = A[(A >= 0).any(axis=1)]
    model = IBCC(diagonal=3.0, off_diagonal=0.5).fit(as_table(A))
    evidence = exact_log_evidence(A, model)
    assert evidence - 5.0 < model.log_likelihood_[-1] < evidence


@given(
    A=tables(),
    diagonal=st.sampled_from([0.1, 4.0, 50.0]),
    off_diagonal=st.sampled_from([0.1, 1.0, 5.0]),
    seed=st.integers(0, 100),
)
@settings(max_examples=60)
def test_bound_never_decreases(A, diagonal, off_diagonal, seed):
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
    model = IBCC(tol=0.0, max_iter=30, diagonal=diagonal, off_diagonal=off_diagonal)
    model.fit(table, gold=gold)
    assert (np.diff(model.log_likelihood_) > -1e-9).all()


def test_strong_prior_is_fixed_confusion_matrices():
    A, _ = random_crowd()
    model = IBCC(diagonal=7e8, off_diagonal=1.5e8, class_strength=1e9, dependence=0).fit(
        as_table(A)
    )
    confusion = np.full((A.shape[1], 3, 3), 0.15)
    confusion[:, range(3), range(3)] = 0.7
    expected, _ = e_step(make_votes(as_table(A)), np.log(np.full(3, 1 / 3)), np.log(confusion))
    np.testing.assert_allclose(model.posterior_, expected, atol=1e-6)


def test_recovers_a_known_crowd():
    rng = np.random.default_rng(0)
    n, r, c = 2000, 8, 3
    y = rng.integers(0, c, n)
    confusion = 0.7 * np.eye(c) + 0.3 * rng.dirichlet(np.ones(c), size=(r, c))
    A = np.stack([[rng.choice(c, p=confusion[j, k]) for k in y] for j in range(r)], axis=1)
    A[rng.random(A.shape) < 0.3] = -1
    model = IBCC().fit(A)
    assert (model.labels_ == y).mean() > 0.97
    lower, upper = model.confusion_interval(level=0.99)
    assert ((lower < confusion) & (confusion < upper)).mean() > 0.9
    assert (upper - lower).max() < 0.2


def test_who_says_little_keeps_the_prior():
    A = np.column_stack([[0, 1, 2, 0] * 3, [0, 1, 2, 0] * 3, [-1] * 12])
    A = np.vstack([A, [-1, -1, -1]])
    model = IBCC(diagonal=6.0, off_diagonal=2.0).fit(as_table(A))
    np.testing.assert_allclose(model.confusion_[2], 0.2 + 0.4 * np.eye(3))
    np.testing.assert_array_equal(model.posterior_[-1], model.class_prior_)
    np.testing.assert_allclose(model.class_alpha_.sum(), 3 + 12)
    np.testing.assert_allclose(model.posterior_, model.predict_proba(as_table(A)))


def test_intervals_are_those_of_the_marginals():
    A, _ = random_crowd()
    model = IBCC().fit(as_table(A))
    lower, upper = model.confusion_interval(level=0.8)
    assert lower.shape == upper.shape == model.confusion_.shape
    a = model.confusion_alpha_[1, 2, 0]
    b = model.confusion_alpha_[1, 2].sum() - a
    np.testing.assert_allclose([lower[1, 2, 0], upper[1, 2, 0]], beta(a, b).ppf([0.1, 0.9]))
    assert ((lower < model.confusion_) & (model.confusion_ < upper)).all()
    for level in (0.0, 1.0, 95):
        with pytest.raises(AnnotationError, match=f"level={level!r} must lie between 0 and 1"):
            model.confusion_interval(level=level)


def test_abstentions_tell_of_the_class():
    """The third annotator answers at random, but abstains on class 1 alone."""
    unsure = 9
    truth = np.arange(40) % 2
    third = np.where(truth == 0, np.arange(40) // 2 % 2, unsure)
    A = np.vstack([np.column_stack([truth, truth, third]), [0, 1, unsure]])
    table = AnnotationTable.from_matrix(A, classes=[0, 1], abstain=unsure)
    told, deaf = IBCC(abstentions="model").fit(table), IBCC().fit(table)
    assert told.posterior_[40, 1] > 0.9
    np.testing.assert_allclose(deaf.posterior_[40, 1], 0.5, atol=0.01)
    assert told.abstention_[2, 1] > 0.8
    assert told.abstention_[2, 0] < 0.1
    assert (deaf.abstention_ == 0).all()
    np.testing.assert_allclose(told.confusion_.sum(axis=2), 1)


def test_no_overlap_is_warned_of():
    with pytest.warns(NotIdentifiableWarning, match="no instance has annotations by two"):
        model = IBCC().fit(np.array([[0, -1], [-1, 1], [1, -1]]))
    assert model.labels_.tolist() == [0, 1, 1]


def test_divergence_of_dirichlets():
    """Against E log q - E log p of samples, and nothing from itself."""
    alpha, prior = np.array([[2.0, 3.0, 0.7]]), np.array([1.0, 0.5, 4.0])
    samples = np.random.default_rng(0).dirichlet(alpha[0], size=200_000)
    log_ratio = dirichlet(alpha[0]).logpdf(samples.T) - dirichlet(prior).logpdf(samples.T)
    found = dirichlet_divergence(alpha, prior, expected_log(alpha))
    np.testing.assert_allclose(found, log_ratio.mean(), atol=0.03)
    assert dirichlet_divergence(alpha, alpha, expected_log(alpha)) == 0
    np.testing.assert_allclose(expected_log(alpha)[0], np.log(samples).mean(axis=0), atol=0.02)
