"""IBCC and EBCC: the bound by a slow loop, the priors, crowds that they tell apart."""

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
from manyhands.inference.confusions import e_step
from manyhands.inference.ebcc import EBCC, annotator_codes, draw_waves, random_split
from manyhands.inference.ibcc import IBCC, dirichlet_divergence, expected_log
from manyhands.inference.votes import make_votes, vote_shares

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
@settings(max_examples=13)
def test_logged_bound_equals_its_definition(A, iterations):
    assume(((A >= 0).sum(axis=1) > 1).any())  # Else the annotations are believed.
    priors = {"diagonal": 2.5, "off_diagonal": 0.6, "class_strength": 1.7}
    model = IBCC(max_iter=iterations, tol=0.0, dependence=0, **priors)
    model.fit(as_table(A))
    np.testing.assert_allclose(model.log_likelihood_[-1], slow_bound(A, model.posterior_, model))


@given(A=tables(max_instances=4, max_annotators=3))
@settings(max_examples=13)
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
@settings(max_examples=20)
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
    np.testing.assert_allclose(model.posterior_[-1], model.class_prior_)
    np.testing.assert_allclose(model.class_alpha_.sum(), 3 + 12)
    np.testing.assert_allclose(model.posterior_, model.predict_proba(as_table(A)))


def test_intervals_are_those_of_the_marginals():
    A, _ = random_crowd()
    model = IBCC().fit(as_table(A))
    lower, upper = model.confusion_interval(level=0.8)
    assert lower.shape == upper.shape == model.confusion_.shape
    size = model.confusion_alpha_[1, 2].sum()
    mean = model.confusion_alpha_[1, 2, 0] / size
    own = np.flatnonzero(A[:, 1] >= 0)
    doubt = model.posterior_[own, 2] * (1 - model.posterior_[own, 2])
    same = A[own, 1] == 0
    lost = doubt[same].sum() / mean**2 + doubt[~same].sum() / (1 - mean) ** 2
    size = max(size - mean * (1 - mean) * lost, 4.0 + 2.0)  # That of the prior.
    expected = beta(size * mean, size * (1 - mean)).ppf([0.1, 0.9])
    np.testing.assert_allclose([lower[1, 2, 0], upper[1, 2, 0]], expected)
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


# -- EBCC -----------------------------------------------------------------------------------------


# Random tables need not have two annotations of any instance.


def flock(n):
    """Five annotators who err together on every fourth instance, and four who err alone."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    together = np.where(rng.random(n) < 0.25, 1 - y, y)[:, None]
    sheep = np.where(rng.random((n, 5)) < 0.92, together, 1 - together)
    alone = np.where(rng.random((n, 4)) < 0.85, y[:, None], 1 - y[:, None])
    return np.hstack([sheep, alone]), y


def easy_and_hard(n):
    """Seven annotators who are nearly always right on 60% of the instances, 60% on the others."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    p_right = np.where(rng.random(n) < 0.4, 0.6, 0.97)[:, None]
    return np.where(rng.random((n, 7)) < p_right, y[:, None], 1 - y[:, None]), y


def slow_bound_of_ebcc(A, model):
    """E_q log p(annotations, classes, subtypes, parameters) - E_q log q, term by term."""
    m = model.n_subtypes
    identity = np.eye(N_CLASSES)
    prior_row = model.diagonal * identity + model.off_diagonal * (1 - identity)
    found = model._dirichlets  # Public are the means alone, and a bound needs the counts.

    def log_mean(alpha):
        return digamma(alpha) - digamma(alpha.sum())

    def prior_and_entropy(alpha, prior):
        log_norm = gammaln(prior.sum()) - gammaln(prior).sum()
        return log_norm + ((prior - 1) * log_mean(alpha)).sum() + dirichlet(alpha).entropy()

    prior_classes = np.full(N_CLASSES, model.class_strength)
    bound = prior_and_entropy(found.classes, prior_classes)
    for c in range(N_CLASSES):
        if m > 1:
            share = np.full(m, model.subtype_strength / m)
            bound += prior_and_entropy(found.subtypes[c], share)
        for r in range(A.shape[1]):
            for s in range(m):
                bound += prior_and_entropy(found.confusion[r, c * m + s], prior_row[c])
    for row in A:
        if (row < 0).all():
            continue
        joint = np.zeros((N_CLASSES, m))
        for c in range(N_CLASSES):
            for s in range(m):
                joint[c, s] = log_mean(found.classes)[c] + log_mean(found.subtypes[c])[s]
                for r, given_class in enumerate(row):
                    if given_class >= 0:
                        joint[c, s] += log_mean(found.confusion[r, c * m + s])[given_class]
        q = np.exp(joint - joint.max())
        q /= q.sum()
        bound += (q * joint).sum() - (q[q > 0] * np.log(q[q > 0])).sum()
    return bound


@given(A=tables())
@settings(max_examples=10)
def test_one_subtype_is_ibcc(A):
    table = as_table(A)
    same = {"max_iter": 15, "tol": 0.0, "diagonal": 3.0, "off_diagonal": 0.7}
    ebcc = EBCC(n_subtypes=1, n_restarts=1, class_strength=1.3, **same).fit(table)
    ibcc = IBCC(class_strength=1.3, dependence=0, **same).fit(table)
    np.testing.assert_allclose(ebcc.posterior_, ibcc.posterior_, atol=1e-5)
    np.testing.assert_allclose(ebcc.confusion_, ibcc.confusion_, atol=1e-5)
    both = min(ebcc.n_iter_, ibcc.n_iter_)  # Rounding may stop one of them earlier.
    np.testing.assert_allclose(ebcc.log_likelihood_[:both], ibcc.log_likelihood_[:both], atol=1e-9)


@given(A=tables(max_instances=6, max_annotators=3), iterations=st.integers(1, 3))
@settings(max_examples=8)
def test_logged_bound_of_ebcc_equals_its_definition(A, iterations):
    assume(((A >= 0).sum(axis=1) > 1).any())  # Else the annotations are believed.
    model = EBCC(max_iter=iterations, tol=0.0, n_subtypes=2, n_restarts=1, random_state=0)
    model.set_params(diagonal=2.5, off_diagonal=0.6, class_strength=1.7, subtype_strength=0.8)
    model.fit(as_table(A))
    np.testing.assert_allclose(model.log_likelihood_[-1], slow_bound_of_ebcc(A, model))


@given(
    A=tables(),
    n_subtypes=st.integers(1, 4),
    strength=st.sampled_from([0.1, 10.0]),
    seed=st.integers(0, 100),
)
@settings(max_examples=13)
def test_bound_of_ebcc_never_decreases(A, n_subtypes, strength, seed):
    gold = np.where(np.arange(len(A)) % 3 == 0, seed % N_CLASSES, -1)
    model = EBCC(tol=0.0, max_iter=30, n_restarts=1, n_subtypes=n_subtypes, random_state=seed)
    model.set_params(subtype_strength=strength).fit(as_table(A), gold=gold)
    assert (np.diff(model.log_likelihood_) > -1e-9).all()


@pytest.mark.parametrize("seed", range(3))
def test_order_does_not_matter(seed):
    A, _ = random_crowd(seed)
    rng = np.random.default_rng(seed)
    rows, columns, classes = (rng.permutation(k) for k in (*A.shape, N_CLASSES))
    model = EBCC(n_restarts=3, random_state=7).fit(as_table(A))
    moved = np.where(A < 0, -1, classes[A])[rows][:, columns]
    other = EBCC(n_restarts=3, random_state=7).fit(as_table(moved))
    np.testing.assert_allclose(other.posterior_[:, classes], model.posterior_[rows], atol=1e-6)
    confusion = other.confusion_[:, classes][:, :, classes]
    np.testing.assert_allclose(confusion, model.confusion_[columns], atol=1e-6)


def test_random_split_covers_the_simplex():
    A, _ = random_crowd(n=4000, r=12)
    votes = make_votes(as_table(A))
    shares = vote_shares(votes)
    waves = draw_waves(4, np.random.RandomState(0))
    split = random_split(votes, shares, annotator_codes(votes, shares), waves)
    by_class = split.reshape(-1, N_CLASSES, 4)
    np.testing.assert_allclose(by_class.sum(axis=2), shares)
    voted_for = shares > 0
    parts = by_class[voted_for] / shares[voted_for][:, None]
    # Of Dirichlet(1, 1, 1, 1): means 1/4, variances 3/80, correlations -1/3.
    np.testing.assert_allclose(parts.mean(axis=0), 1 / 4, atol=0.02)
    np.testing.assert_allclose(parts.var(axis=0), 3 / 80, atol=0.005)
    correlations = np.corrcoef(parts.T)[np.triu_indices(4, 1)]
    np.testing.assert_allclose(correlations, -1 / 3, atol=0.06)
    same = (A[:, None] == A[None, :2]).all(axis=2)
    for k in range(2):
        assert np.ptp(split[same[:, k]], axis=0).max() < 1e-9


def test_restarts():
    table = as_table(random_crowd(n=150)[0])
    few, many = (EBCC(n_restarts=k, random_state=1).fit(table) for k in (2, 6))
    np.testing.assert_array_equal(many.restart_bounds_[:2], few.restart_bounds_)
    assert many.log_likelihood_[-1] == many.restart_bounds_.max() >= few.log_likelihood_[-1]
    assert len(set(many.restart_bounds_)) > 1
    again = EBCC(n_restarts=6, random_state=1).fit(table)
    np.testing.assert_array_equal(again.posterior_, many.posterior_)


def test_hard_instances_become_a_subtype():
    A, y = easy_and_hard(1500)
    model = EBCC(n_restarts=2, random_state=0).fit(A)
    shares = np.sort(model.subtype_weight_, axis=1)
    assert (shares[:, :-2].sum(axis=1) < 0.05).all()
    np.testing.assert_allclose(shares[:, -2:], [[0.4, 0.6]] * 2, atol=0.1)
    places = np.argsort(model.subtype_weight_, axis=1)[:, -2:]
    right = model.subtype_confusion_[:, [[0], [1]], places, [[0], [1]]].mean(axis=0)
    np.testing.assert_allclose(right, [[0.6, 0.97]] * 2, atol=0.1)

    def log_loss(fitted):
        return -np.log(fitted.posterior_[np.arange(len(y)), y]).mean()

    # Taking mistakes for independent makes one too sure.
    assert log_loss(model) < 0.75 * log_loss(IBCC(dependence=0).fit(A))


def test_known_classes_show_who_errs_together():
    A, y = flock(600)
    known = np.arange(600) < 300
    gold = np.where(known, y, -1)
    model = EBCC(n_restarts=2, random_state=0).fit(A, gold=gold, groups={})
    assert (model.posterior_[known, y[known]] == 1).all()
    accuracy = (model.labels_ == y)[~known].mean()
    assert accuracy > 0.92 > (IBCC().fit(A, gold=gold, groups={}).labels_ == y)[~known].mean() + 0.1
    np.testing.assert_allclose(model.predict_proba(A)[~known], model.posterior_[~known])


def test_confusion_is_the_mixture_of_the_subtypes():
    A, _ = random_crowd()
    A = np.column_stack([A, np.full(len(A), -1)])
    model = EBCC(n_subtypes=4, n_restarts=1, random_state=0).fit(as_table(A))
    assert model.subtype_confusion_.shape == (7, 3, 4, 3)
    mixture = (model.subtype_weight_[:, :, None] * model.subtype_confusion_).sum(axis=2)
    np.testing.assert_allclose(model.confusion_, mixture)
    np.testing.assert_allclose(model.subtype_weight_.sum(axis=1), 1)
    np.testing.assert_allclose(model.confusion_[6], 1 / 6 + np.eye(3) / 2)


def test_prior_of_the_classes_counts_votes():
    A = np.array([[0, 0], [0, 1], [1, 1], [0, 0], [-1, -1]])
    model = EBCC(n_restarts=1, random_state=0).fit(as_table(A))
    # 2.5 and 1.5 votes, and 1 for the class nobody gave, plus four instances.
    counts = np.array([2.5, 1.5, 1.0]) + model.posterior_[:4].sum(axis=0)
    np.testing.assert_allclose(model.class_prior_, counts / (5 + 4), atol=1e-3)
    assert 1 / 9 <= model.class_prior_[2] < 1.2 / 9
    np.testing.assert_allclose(model.posterior_[-1], model.class_prior_)
    even = EBCC(class_strength=100.0, n_restarts=1, random_state=0).fit(as_table(A))
    np.testing.assert_allclose(even.class_prior_, 1 / 3, atol=0.01)


def test_abstentions_tell_ebcc_of_the_class():
    """The third annotator answers at random, but abstains on class 1 alone."""
    unsure = 9
    truth = np.arange(40) % 2
    third = np.where(truth == 0, np.arange(40) // 2 % 2, unsure)
    A = np.vstack([np.column_stack([truth, truth, third]), [0, 1, unsure]])
    table = AnnotationTable.from_matrix(A, classes=[0, 1], abstain=unsure)
    told = EBCC(n_restarts=2, random_state=0, abstentions="model").fit(table)
    deaf = EBCC(n_restarts=2).fit(table)
    assert told.posterior_[40, 1] > 0.9 > deaf.posterior_[40, 1]
    assert told.abstention_[2, 1] > 0.8
    assert told.abstention_[2, 0] < 0.1
    assert (deaf.abstention_ == 0).all()
    np.testing.assert_allclose(told.confusion_.sum(axis=2), 1)
    np.testing.assert_allclose(told.subtype_confusion_.sum(axis=3), 1)


@pytest.mark.data
@pytest.mark.parametrize(("name", "published"), [("rte", -9075.35), ("dog", -27934.8)])
def test_reaches_the_published_bound(data_home, name, published):
    """The authors' notebook prints the bound without the normalisers of the priors."""
    from manyhands.datasets import load_aggregation

    table = load_aggregation(name, data_home).annotations
    model = EBCC(n_restarts=2, random_state=0).fit(table)
    c, m = table.n_classes, model.n_subtypes

    def log_b(alpha):
        return gammaln(alpha).sum() - gammaln(alpha.sum())

    n_rows = table.n_annotators * c * m
    normalisers = log_b(vote_shares(make_votes(table)).sum(axis=0))
    normalisers += c * log_b(np.full(m, 0.1 / m)) + n_rows * log_b(np.r_[4.0, np.ones(c - 1)])
    np.testing.assert_allclose(model.log_likelihood_[-1] + normalisers, published, atol=0.2)
