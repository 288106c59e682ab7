"""GLAD and MACE: abilities and difficulties, and annotators who guess."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.special import digamma
from scipy.stats import beta
from sklearn.base import clone

from manyhands import AnnotationTable, MajorityVote
from manyhands.datasets import make_crowd
from manyhands.exceptions import NotIdentifiableWarning
from manyhands.inference import glad
from manyhands.inference.base import known_prior
from manyhands.inference.glad import GLAD, e_step, information, slopes
from manyhands.inference.mace import MACE, MACEModel, MACEParams, _variational
from manyhands.inference.votes import make_votes, vote_shares

pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")


def meet(A):
    """Whether two annotators share an instance; else annotations are simply believed."""
    return ((A >= 0).sum(axis=1) > 1).any()


def tables():
    """Random matrices of 3 classes with at least one annotation."""
    shape = st.tuples(st.integers(2, 10), st.integers(1, 5))
    return arrays(np.int64, shape, elements=st.integers(-1, 2)).filter(
        lambda A: ((A >= 0).sum(axis=1) > 1).any()
    )


def as_table(A, classes=3):
    return AnnotationTable.from_matrix(A, classes=range(classes))


def crowd(seed, n, n_annotators, n_classes, per_instance):
    """Annotations that follow the model, with true classes, abilities and difficulties."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    ability, log_beta = rng.normal(1, 1, n_annotators), rng.normal(1, 1, n)
    A = np.full((n, n_annotators), -1)
    for i in range(n):
        for r in rng.choice(n_annotators, per_instance, replace=False):
            is_right = rng.random() < sigmoid(ability[r] * np.exp(log_beta[i]))
            A[i, r] = y[i] if is_right else (y[i] + rng.integers(1, n_classes)) % n_classes
    return A, y, ability, np.exp(-log_beta)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_joint(A, ability, log_beta, prior):
    """p(class, annotations) of every instance by loops (Whitehill et al. 2009, Eq. 1)."""
    n_classes = len(prior)
    joint = np.tile(prior, (len(A), 1)).astype(float)
    for i, row in enumerate(A):
        for r, given_class in enumerate(row):
            for c in range(n_classes):
                p = sigmoid(ability[r] * np.exp(log_beta[i]))
                if given_class >= 0:
                    joint[i, c] *= p if c == given_class else (1 - p) / (n_classes - 1)
    return joint


def slow_objective(A, ability, log_beta, prior):
    """Log likelihood plus log prior density, up to a constant."""
    penalty = ((ability - 1) ** 2).sum() / 2 + ((log_beta - 1) ** 2).sum() / 2
    return np.log(slow_joint(A, ability, log_beta, prior).sum(axis=1)).sum() - penalty


def slow_slopes(A, ability, log_beta, q):
    """Expected log likelihood without the constant of wrong labels, and slopes, by loops."""
    value, by_ability, by_log_beta = 0.0, np.zeros(len(ability)), np.zeros(len(log_beta))
    info_ability, info_log_beta = np.zeros(len(ability)), np.zeros(len(log_beta))
    for i, row in enumerate(A):
        for r, given_class in enumerate(row):
            if given_class >= 0:
                beta = np.exp(log_beta[i])
                p, is_right = sigmoid(ability[r] * beta), q[i, given_class]
                value += is_right * np.log(p) + (1 - is_right) * np.log(1 - p)
                by_ability[r] += (is_right - p) * beta
                by_log_beta[i] += (is_right - p) * ability[r] * beta
                info_ability[r] += p * (1 - p) * beta**2
                info_log_beta[i] += p * (1 - p) * (ability[r] * beta) ** 2
    return value, by_ability, by_log_beta, info_ability, info_log_beta


@given(A=tables(), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_steps_equal_slow_loops(A, seed):
    rng = np.random.default_rng(seed)
    votes = make_votes(as_table(A))
    ability, log_beta = rng.uniform(-2, 2, A.shape[1]), rng.uniform(-1, 1, len(A))
    prior = rng.dirichlet(np.ones(3))
    posterior, log_likelihood = e_step(votes, ability, log_beta, prior)
    joint = slow_joint(A, ability, log_beta, prior)
    np.testing.assert_allclose(posterior, joint / joint.sum(axis=1, keepdims=True), atol=1e-12)
    np.testing.assert_allclose(log_likelihood, np.log(joint.sum(axis=1)).sum(), atol=1e-10)
    is_right = posterior[votes.instance, votes.response]
    expected = slow_slopes(A, ability, log_beta, posterior)
    found = (*slopes(votes, ability, log_beta, is_right), *information(votes, ability, log_beta))
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10)


def test_e_step_by_hand():
    """Beta ln 3, abilities 1 and 2, so right with probability 3/4 and 9/10; votes 0 and 1.

    Class 0: 3/4 * 1/20, class 1: 1/8 * 9/10, class 2: 1/8 * 1/20, that is 6, 18 and 1 in 25 of
    .15625; the class prior is 1/3.
    """
    votes = make_votes(as_table([[0, 1]]))
    log_beta = np.log(np.log([3.0]))
    posterior, log_likelihood = e_step(votes, np.array([1.0, 2.0]), log_beta, np.full(3, 1 / 3))
    np.testing.assert_allclose(posterior, [[6 / 25, 18 / 25, 1 / 25]])
    np.testing.assert_allclose(log_likelihood, np.log(0.15625 / 3))


@pytest.mark.parametrize("class_prior", ["uniform", "estimated"])
@given(A=tables(), known=st.integers(-1, 2), heavy=st.booleans())
@settings(max_examples=12)
def test_em_never_decreases_its_objective(class_prior, A, known, heavy):
    table = as_table(A)
    if heavy:
        arrays_ = (table.instance, table.annotator, table.label)
        weight = 1.0 + np.arange(len(table.instance)) % 3
        options = {"n_instances": len(A), "n_annotators": A.shape[1], "classes": range(3)}
        table = AnnotationTable.from_arrays(*arrays_, weight=weight, **options)
    gold = None if known < 0 else {table.instances[0]: known}
    model = GLAD(tol=0.0, max_iter=15, class_prior=class_prior).fit(table, gold=gold)
    assert (np.diff(model.log_likelihood_) > -1e-9 * np.abs(model.log_likelihood_).max()).all()


@pytest.mark.parametrize("class_prior", ["uniform", "estimated"])
def test_fit_ends_at_a_maximum_of_the_slow_objective(class_prior):
    A, _, _, _ = crowd(0, 20, 6, 3, 4)
    model = GLAD(tol=0.0, max_iter=100, class_prior=class_prior).fit(as_table(A))
    theta = np.concatenate([model.ability_, -np.log(model.difficulty_)])

    def objective(theta):
        return slow_objective(A, theta[:6], theta[6:], model.class_prior_)

    np.testing.assert_allclose(model.log_likelihood_[-1], objective(theta), atol=1e-6)
    for step in 1e-4 * np.eye(len(theta)):
        slope = (objective(theta + step) - objective(theta - step)) / 2e-4
        assert abs(slope) < 2e-3


@given(A=tables(), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_permuting_and_relabelling_permutes_and_relabels(A, seed):
    rng = np.random.default_rng(seed)
    rows, columns, classes = (rng.permutation(k) for k in (*A.shape, 3))
    plain = GLAD(dependence=0.2).fit(as_table(A))
    other = GLAD(dependence=0.2).fit(as_table(np.where(A >= 0, classes[A], -1)[rows][:, columns]))
    np.testing.assert_allclose(other.posterior_[:, classes], plain.posterior_[rows], atol=1e-6)
    np.testing.assert_allclose(other.ability_, plain.ability_[columns], atol=1e-6)
    np.testing.assert_allclose(other.difficulty_, plain.difficulty_[rows], atol=1e-6)


def test_recovers_abilities_difficulties_and_classes():
    A, y, ability, difficulty = crowd(1, 1500, 20, 3, 8)
    model = GLAD().fit(A)
    assert (model.labels_ == y).mean() > (MajorityVote().fit(A).labels_ == y).mean() + 0.01
    assert np.corrcoef(model.ability_, ability)[0, 1] > 0.97
    assert np.corrcoef(np.log(model.difficulty_), np.log(difficulty))[0, 1] > 0.6


def test_disputed_instances_are_difficult():
    A = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]])
    model = GLAD().fit(A)
    assert model.difficulty_.argmax() == 2
    np.testing.assert_allclose(model.difficulty_[0], model.difficulty_[4], rtol=1e-6)


def test_adversary_and_silent_annotator():
    y = np.arange(30) % 3
    A = np.column_stack([y, y, y, (y + 1) % 3, np.full(30, -1)])
    model = GLAD().fit(A)
    np.testing.assert_array_equal(model.labels_, y)
    assert model.ability_[3] < 0 < model.ability_[:3].min()
    assert model.ability_[4] == 1.0
    assert model.annotator_accuracy_[3] < 0.5 < model.annotator_accuracy_[0]


@pytest.mark.parametrize("class_prior", ["uniform", "estimated"])
def test_an_instance_without_annotations_teaches_nothing(class_prior):
    A, _, _, _ = crowd(2, 40, 5, 3, 3)
    without = GLAD(class_prior=class_prior).fit(as_table(A))
    model = GLAD(class_prior=class_prior).fit(as_table(np.vstack([A, np.full(5, -1)])))
    np.testing.assert_allclose(model.posterior_[:-1], without.posterior_, atol=1e-8)
    np.testing.assert_allclose(model.posterior_[-1], model.class_prior_)
    np.testing.assert_allclose(model.difficulty_[-1], np.exp(-1))


def test_gold_is_certain_and_teaches():
    """Two of three annotators make the same mistakes: only gold can tell."""
    y = np.arange(40) % 3
    wrong = (y + 1) % 3
    A = np.column_stack([y, wrong, wrong])
    np.testing.assert_array_equal(GLAD().fit(A).labels_, wrong)
    model = GLAD().fit(A, gold={i: int(y[i]) for i in range(0, 40, 2)})
    np.testing.assert_allclose(model.posterior_[::2], np.eye(3)[y[::2]])
    np.testing.assert_array_equal(model.labels_, y)
    assert model.ability_[0] > 0 > model.ability_[1:].max()


def test_a_weight_is_repetition():
    instance, annotator, label = [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], [0, 1, 1, 1, 0, 0]
    weight = np.array([2, 1, 1, 1, 1, 3])
    weighted = AnnotationTable.from_arrays(instance, annotator, label, weight=weight.astype(float))
    repeated = AnnotationTable.from_arrays(
        *(np.repeat(column, weight) for column in (instance, annotator, label)), duplicates="keep"
    )
    a, b = (GLAD(dependence=0.2).fit(table) for table in (weighted, repeated))
    np.testing.assert_allclose(a.posterior_, b.posterior_, atol=1e-9)
    np.testing.assert_allclose(a.ability_, b.ability_, atol=1e-9)
    np.testing.assert_allclose(a.log_likelihood_, b.log_likelihood_)


@pytest.mark.parametrize("class_prior", ["uniform", "estimated"])
def test_shards_do_not_matter(monkeypatch, class_prior):
    A, _, _, _ = crowd(4, 60, 5, 3, 3)
    whole = GLAD(class_prior=class_prior).fit(A)
    monkeypatch.setattr(glad, "SHARD", 20)
    pieces = GLAD(class_prior=class_prior).fit(A)
    np.testing.assert_allclose(pieces.posterior_, whole.posterior_, atol=1e-8)
    np.testing.assert_allclose(pieces.ability_, whole.ability_, atol=1e-8)
    np.testing.assert_allclose(pieces.difficulty_, whole.difficulty_, atol=1e-8)


def test_new_instances_are_judged_by_the_known_abilities():
    A, y, _, _ = crowd(5, 900, 15, 3, 6)
    model = GLAD(tol=1e-8).fit(A[:600])
    np.testing.assert_allclose(model.predict_proba(A[:600]), model.posterior_, atol=0.02)
    ability = model.ability_.copy()
    found = model.predict_proba(A[600:])
    np.testing.assert_array_equal(model.ability_, ability)
    vote = MajorityVote().fit(A[:600])
    accuracy = (found.argmax(axis=1) == y[600:]).mean()
    assert accuracy > (vote.predict(A[600:]) == y[600:]).mean()
    # One at a time gives the same: new instances do not teach about each other.
    one = model.predict_proba(A[600:601])
    np.testing.assert_allclose(one, found[:1], atol=0.02)
    nothing = model.predict_proba(np.full((2, 15), -1))
    np.testing.assert_allclose(nothing, np.tile(model.class_prior_, (2, 1)))


def test_goes_on_from_a_posterior():
    A, _, _, _ = crowd(6, 300, 10, 4, 5)
    model = GLAD().fit(A)
    again = GLAD().fit(A, start=model.posterior_)
    assert again.n_iter_ < model.n_iter_
    np.testing.assert_allclose(again.posterior_, model.posterior_, atol=0.05)
    assert again.log_likelihood_[-1] > model.log_likelihood_[-1] - 1e-5 * 1500


def test_extremes_are_finite():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 10)
    many = np.where(rng.random((10, 400)) < 0.5, y[:, None], rng.integers(0, 3, (10, 400)))
    cases = [many, np.array([[0, 1]]), np.zeros((5, 3), dtype=int), np.array([[0], [1]])]
    for A in cases:
        model = GLAD(tol=0.0).fit(as_table(A))
        for values in (model.posterior_, model.ability_, model.difficulty_, model.log_likelihood_):
            assert np.isfinite(values).all()
        np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)
    model = GLAD().fit(many)
    np.testing.assert_array_equal(model.labels_, y)


def test_a_thousand_classes():
    A, y, _, _ = crowd(7, 100, 10, 1000, 6)
    model = GLAD().fit(as_table(A, 1000))
    assert model.posterior_.shape == (100, 1000)
    assert (model.labels_ == y).mean() > 0.8


def test_no_overlap_is_warned_of():
    with pytest.warns(NotIdentifiableWarning, match="no instance has annotations by two"):
        model = GLAD().fit(np.array([[0, -1], [-1, 1], [1, -1]]))
    assert model.labels_.tolist() == [0, 1, 1]


# -- MACE -----------------------------------------------------------------------------------------


def mace_tables():
    shape = st.tuples(st.integers(1, 7), st.integers(1, 4))
    return arrays(np.int64, shape, elements=st.integers(-1, 2)).filter(
        lambda A: ((A >= 0).sum(axis=1) > 1).any()
    )


def over_three(A, **options):
    return AnnotationTable.from_matrix(A, classes=range(3), **options)


def slow_expectations(A, known, spam, true_classes=range(3)):
    """Sum over every true class and every choice of who spams, as the model is written.

    ``known`` (R,) and ``spam`` (R, C): weights of knowing, and of spamming a class. The prior is
    uniform over ``true_classes``.
    """
    n_classes = spam.shape[1]
    posterior = np.zeros((len(A), n_classes))
    knew, spammed = np.zeros_like(spam), np.zeros_like(spam)
    evidence = 0.0
    for i, row in enumerate(A):
        who = np.flatnonzero(row >= 0)
        cases = []
        for true, spams in product(true_classes, product([0, 1], repeat=len(who))):
            p = 1 / len(true_classes)
            for r, s in zip(who, spams, strict=True):
                p *= spam[r, row[r]] if s else known[r] * (row[r] == true)
            cases.append((true, spams, p))
        mass = sum(p for *_, p in cases)
        evidence += np.log(mass)
        for true, spams, p in cases:
            posterior[i, true] += p / mass
            for r, s in zip(who, spams, strict=True):
                (spammed if s else knew)[r, row[r]] += p / mass
    return posterior, knew, spammed, evidence


def annotators(known, spam):
    return MACEParams(
        competence=np.zeros((len(known), 2)),
        strategy=spam,
        log_known=np.log(known)[:, None],
        log_spam=np.log(spam),
        log_prior=0.0,
        classes=np.ones(spam.shape[1]),
    )


@given(mace_tables(), st.integers(0, 1000))
@settings(max_examples=15)
def test_e_step_equals_the_sum_over_all_cases(A, seed):
    rng = np.random.default_rng(seed)
    known, spam = rng.uniform(0.1, 1, A.shape[1]), rng.uniform(0.1, 1, (A.shape[1], 3))
    model = annotators(known, spam)
    expected = MACEModel.expect(make_votes(over_three(A)), model.log_odds, np.full(3, 1 / 3))
    _, knew, spammed, evidence = slow_expectations(A, known, spam)
    given_ = knew + spammed
    np.testing.assert_allclose(model.known_if_correct * expected.agreed, knew, atol=1e-12)
    total = expected.evidence + (given_ * np.log(spam)).sum()
    np.testing.assert_allclose(total, evidence, atol=1e-10)


def slow_vb(A, n_iter):
    """Variational Bayes by loops; starts where the first run does."""
    n_annotators, n_classes = A.shape[1], 3
    knew, spammed = np.zeros((n_annotators, 3)), np.zeros((n_annotators, 3))
    for row in A:
        shares = np.bincount(row[row >= 0], minlength=3) / max((row >= 0).sum(), 1)
        for r, c in enumerate(row):
            if c >= 0:
                knew[r, c] += 0.75 * shares[c]
                spammed[r, c] += 1 - 0.75 * shares[c]
    for _ in range(n_iter):
        known, spam = np.zeros(n_annotators), np.zeros((n_annotators, n_classes))
        for r in range(n_annotators):
            k, s = knew[r].sum(), spammed[r].sum()
            known[r] = np.exp(digamma(k + 0.5) - digamma(k + s + 1))
            for c in range(n_classes):
                strategy = digamma(spammed[r, c] + 10) - digamma(s + 30)
                spam[r, c] = np.exp(digamma(s + 0.5) - digamma(k + s + 1) + strategy)
        spam_mean = (spammed.sum(axis=1) + 0.5) / ((knew + spammed).sum(axis=1) + 1)
        posterior, knew, spammed, _ = slow_expectations(A, known, spam, np.unique(A[A >= 0]))
    return posterior, spam_mean


@given(mace_tables())
@settings(max_examples=12)
def test_variational_iterations_equal_slow_loops(A):
    model = MACE(max_iter=3, tol=0.0, n_restarts=1, class_prior="uniform", dependence=0)
    model.fit(over_three(A))
    posterior, spam = slow_vb(A, model.n_iter_)
    np.testing.assert_allclose(model.posterior_, posterior, atol=1e-9)
    np.testing.assert_allclose(model.spam_, spam, atol=1e-9)


def test_two_annotators_by_hand():
    """One EM iteration with one pseudo-annotation a class, computed on paper.

    Shares of class 0: 1, .5. Right in knowledge (2/3 of the agreement): annotator 0 gives class 0
    2/3 and class 1 1/3 times, annotator 1 class 0 once; the rest is spam: (1/3, 2/3) and (1, 0).
    Smoothed: both know half; strategies (4, 5) / 9 and (2, 1) / 3.
    """
    model = MACE(
        method="em", smoothing=2.0, n_restarts=1, max_iter=1, class_prior="uniform", dependence=0
    )
    model.fit(np.array([[0, 0], [1, 0]]))
    np.testing.assert_allclose(model.spam_, [0.5, 0.5])
    np.testing.assert_allclose(model.spam_strategy_, [[4 / 9, 5 / 9], [2 / 3, 1 / 3]])
    # First: (13/18)(5/6) against (2/9)(1/3); second: (5/18)(5/6) against (7/9)(1/3).
    np.testing.assert_allclose(model.posterior_[:, 0], [65 / 73, 25 / 53])
    log_likelihood = np.log(73 / 108 / 2) + np.log(53 / 108 / 2)
    log_prior = 4 * np.log(1 / 2) + np.log(20 / 81) + np.log(2 / 9)
    np.testing.assert_allclose(model.log_likelihood_, [log_likelihood + log_prior])


@pytest.mark.parametrize("prior", ["estimated", "uniform"])
@pytest.mark.parametrize("method", ["vb", "em"])
@given(A=mace_tables(), seed=st.integers(0, 99))
@settings(max_examples=8)
def test_the_objective_never_decreases(method, prior, A, seed):
    model = MACE(max_iter=30, tol=0.0, method=method, n_restarts=2, random_state=seed)
    model.set_params(class_prior=prior).fit(over_three(A))
    assert (np.diff(model.log_likelihood_) > -1e-9).all()


def test_divergence_equals_a_numerical_integral():
    counts = np.array([[2.0, 1.5]])
    _, minus_divergence = _variational(counts, 0.7)
    after, before = beta(2.7, 2.2), beta(0.7, 0.7)
    integral, _ = quad(lambda p: after.pdf(p) * (after.logpdf(p) - before.logpdf(p)), 0, 1)
    np.testing.assert_allclose(-minus_divergence, integral, rtol=1e-6)


def test_the_bound_is_below_the_evidence():
    """Evidence of two instances and two annotators by drawing parameters from the prior."""
    A = np.array([[0, 0], [1, 0]])
    rng = np.random.default_rng(0)
    known = rng.beta(0.5, 0.5, (100_000, 2))
    spam = (1 - known)[:, :, None] * rng.dirichlet([10.0, 10.0], (100_000, 2))
    likelihood = np.ones(len(known))
    for row in A:
        of_class = [
            np.prod([spam[:, r, c] + known[:, r] * (c == true) for r, c in enumerate(row)], axis=0)
            for true in (0, 1)
        ]
        likelihood *= np.mean(of_class, axis=0)
    bound = MACE(class_prior="uniform").fit(A).log_likelihood_[-1]
    evidence = np.log(likelihood.mean())
    assert evidence - 2.0 < bound < evidence


@pytest.mark.parametrize("method", ["vb", "em"])
@given(A=mace_tables(), seed=st.integers(0, 99))
@settings(max_examples=10)
def test_random_runs_do_not_depend_on_any_order(method, A, seed):
    rng = np.random.default_rng(seed)
    rows, columns, classes = (rng.permutation(k) for k in (*A.shape, 3))
    model = MACE(method=method, n_restarts=3, random_state=0, dependence=0.2)
    plain = clone(model).fit(over_three(A))
    B = np.where(A >= 0, classes[A], -1)[rows][:, columns]
    other = model.fit(over_three(B))
    np.testing.assert_allclose(other.posterior_[:, classes], plain.posterior_[rows], atol=1e-6)
    np.testing.assert_allclose(other.spam_, plain.spam_[columns], atol=1e-6)


def mace_crowd(seed=0):
    """Two who know, one who mostly does, two who spam class 0 and one who spams at random."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 400)
    competence = np.array([0.95, 0.9, 0.7, 0.1, 0.1, 0.05])
    strategy = np.array([[1, 1, 1]] * 3 + [[18, 1, 1]] * 2 + [[1, 1, 1]]) / 1.0
    strategy /= strategy.sum(axis=1, keepdims=True)
    spammed = np.column_stack([rng.choice(3, 400, p=p) for p in strategy])
    A = np.where(rng.random((400, 6)) < competence, y[:, None], spammed)
    A[rng.random(A.shape) < 0.3] = -1
    return A, y, competence, strategy


@pytest.mark.parametrize("method", ["vb", "em"])
def test_it_finds_the_spammers_and_what_they_give(method):
    A, y, competence, strategy = mace_crowd()
    model = MACE(method=method, random_state=0).fit(A)
    assert np.abs(model.competence_ - competence).max() < 0.1
    assert np.abs(model.spam_strategy_ - strategy)[3:].max() < 0.1
    np.testing.assert_allclose(model.competence_ + model.spam_, 1)
    voted = (A >= 0).any(axis=1)
    right = (model.labels_ == y)[voted].mean()
    assert right > (MajorityVote().fit(A).labels_ == y)[voted].mean() + 0.05


def test_more_runs_never_end_lower():
    rng = np.random.default_rng(1)
    A = rng.integers(-1, 3, (12, 6))
    ends = [
        MACE(n_restarts=n, random_state=3, tol=0.0).fit(over_three(A)).log_likelihood_[-1]
        for n in (1, 5, 20)
    ]
    assert ends == sorted(ends)
    assert ends[-1] > ends[0]


def test_skewed_classes_need_an_estimated_prior():
    """One in a hundred is rare, and all annotators are right four times of five."""
    rng = np.random.default_rng(0)
    y = (rng.random(500) < 0.01).astype(int)
    A = np.where(rng.random((500, 5)) < 0.8, y[:, None], 1 - y[:, None])
    model = MACE()
    majority, estimated, uniform = (
        (each.fit(A).labels_ == y).mean()
        for each in (MajorityVote(), model, MACE(class_prior="uniform"))
    )
    assert estimated > majority > 0.9 > 0.8 > uniform
    np.testing.assert_allclose(model.class_prior_, [0.99, 0.01], atol=0.02)


def test_the_estimated_prior_is_the_mean_posterior():
    A, *_ = mace_crowd()
    A[:3] = -1
    model = MACE(tol=0.0, max_iter=300, n_restarts=1, dependence=0).fit(A)
    np.testing.assert_allclose(model.class_prior_, model.posterior_[3:].mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(model.posterior_[:3], [model.class_prior_] * 3)


def test_a_seed_repeats_the_result():
    A, *_ = mace_crowd()
    one, two = (MACE(random_state=5).fit(A[:50]) for _ in range(2))
    np.testing.assert_array_equal(one.posterior_, two.posterior_)


def test_silent_annotators_get_the_prior_and_empty_instances_the_uniform():
    model = MACE().fit(np.array([[0, 0, -1], [1, 1, -1], [-1, -1, -1]]))
    assert model.spam_[2] == 0.5
    np.testing.assert_allclose(model.spam_strategy_[2], [0.5, 0.5])
    np.testing.assert_allclose(model.posterior_[2], [0.5, 0.5])
    np.testing.assert_allclose(model.class_prior_, [0.5, 0.5])


def test_gold_teaches_about_annotators():
    """Annotators 0 and 1 always agree, but gold says that 2 is right."""
    A = np.array([[0, 0, 1], [1, 1, 0]] * 10)
    gold = {i: int(A[i, 2]) for i in range(12)}
    model = MACE().fit(A, gold=gold)
    np.testing.assert_array_equal(model.labels_, A[:, 2])
    assert model.competence_[2] > 0.9 > 0.2 > model.competence_[0]


def test_weights_are_repetitions():
    A, *_ = mace_crowd()
    i, r = np.nonzero(A[:40] >= 0)
    weight = np.random.default_rng(0).integers(1, 4, len(i))
    columns = (i, r, A[i, r])
    weighted = AnnotationTable.from_arrays(*columns, weight=weight.astype(float))
    repeated = AnnotationTable.from_arrays(
        *(np.repeat(c, weight) for c in columns), duplicates="keep"
    )
    a, b = (MACE(n_restarts=3, random_state=0, dependence=0.2).fit(t) for t in (weighted, repeated))
    np.testing.assert_allclose(a.posterior_, b.posterior_, atol=1e-9)


def test_new_instances_are_judged_by_the_fitted_annotators():
    A, *_ = mace_crowd()
    model = MACE(random_state=0).fit(A)
    np.testing.assert_allclose(model.predict_proba(A), model.posterior_)


def test_a_fit_cut_short_keeps_what_its_last_step_says_of_the_classes():
    table = make_crowd(np.repeat([0, 1], [60, 20]), random_state=0)
    votes = make_votes(table)
    first = known_prior(votes, vote_shares(votes))
    last = GLAD(max_iter=1, class_prior="estimated").fit(table).class_prior_
    assert np.abs(last - first).max() > 1e-3
