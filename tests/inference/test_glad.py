import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import AnnotationTable, MajorityVote
from manyhands.exceptions import NotIdentifiableWarning
from manyhands.inference import glad
from manyhands.inference.glad import GLAD, e_step, information, slopes
from manyhands.inference.votes import make_votes

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
@settings(max_examples=40)
def test_em_never_decreases_its_objective(class_prior, A, known, heavy):
    table = as_table(A)
    if heavy:
        arrays_ = (table.instance, table.annotator, table.label)
        weight = 1.0 + np.arange(len(table.instance)) % 3
        options = {"n_instances": len(A), "n_annotators": A.shape[1], "classes": range(3)}
        table = AnnotationTable.from_arrays(*arrays_, weight=weight, **options)
    gold = None if known < 0 else {table.instances[0]: known}
    model = GLAD(tol=0.0, max_iter=40, class_prior=class_prior).fit(table, gold=gold)
    assert (np.diff(model.log_likelihood_) > -1e-9 * np.abs(model.log_likelihood_).max()).all()


@pytest.mark.parametrize("class_prior", ["uniform", "estimated"])
def test_fit_ends_at_a_maximum_of_the_slow_objective(class_prior):
    A, _, _, _ = crowd(0, 30, 6, 3, 4)
    model = GLAD(tol=0.0, max_iter=2000, class_prior=class_prior).fit(as_table(A))
    theta = np.concatenate([model.ability_, -np.log(model.difficulty_)])

    def objective(theta):
        return slow_objective(A, theta[:6], theta[6:], model.class_prior_)

    np.testing.assert_allclose(model.log_likelihood_[-1], objective(theta), atol=1e-6)
    for step in 1e-4 * np.eye(len(theta)):
        slope = (objective(theta + step) - objective(theta - step)) / 2e-4
        assert abs(slope) < 2e-3


@given(A=tables(), seed=st.integers(0, 99))
@settings(max_examples=40)
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
    y = rng.integers(0, 3, 20)
    many = np.where(rng.random((20, 400)) < 0.5, y[:, None], rng.integers(0, 3, (20, 400)))
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
