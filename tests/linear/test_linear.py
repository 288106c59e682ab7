"""Logistic regression on soft targets, and the members of a stack, against slow references."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import (
    check_estimator_sparse_array,
    check_estimator_sparse_matrix,
    parametrize_with_checks,
)

from manyhands import AggregatedClassifier, SoftProbClassifier
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.linear import TunedLogisticRegression, regression
from manyhands.linear.calibration import calibrate, combine
from manyhands.linear.gaussians import SoftDiscriminant, TiedMixture, gaussian_scores
from manyhands.linear.kernels import ClippedScaler, KernelMap, NormalScores
from manyhands.linear.regression import UNSEEN_LOGIT, SoftLogistic, fit_regression, regression_proba
from manyhands.linear.ridge import SoftRidge
from tests.building import built


def problem(n=60, n_classes=3, width=4, distance=1.5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, width)) + distance * np.eye(width)[y], y


# -- fit_regression -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("C", [0.01, 1.0, 50.0])
def test_on_hard_labels_it_is_scikit_learn_s(n_classes, C):
    Z, y = problem(n_classes=n_classes)
    found = fit_regression(Z, np.eye(n_classes)[y], C)
    model = LogisticRegression(C=C, max_iter=1000).fit(Z, y)
    np.testing.assert_allclose(regression_proba(found, Z), model.predict_proba(Z), atol=1e-9)
    assert found.C == C
    assert found.weight.shape == (n_classes, 4)
    if n_classes == 3:
        np.testing.assert_allclose(found.weight, model.coef_)
    else:
        np.testing.assert_allclose(found.weight[1] - found.weight[0], model.coef_[0])


def test_soft_targets_are_weighted_rows():
    Z, _ = problem()
    targets = np.random.default_rng(0).dirichlet(np.ones(3), size=len(Z))
    targets[:5] *= 3.0
    found = fit_regression(Z, targets, 0.5)
    y = np.tile(np.arange(3), len(Z))
    model = LogisticRegression(C=0.5, max_iter=1000)
    model.fit(np.repeat(Z, 3, axis=0), y, sample_weight=targets.ravel())
    np.testing.assert_allclose(regression_proba(found, Z), model.predict_proba(Z), atol=1e-9)


def test_a_class_without_targets_is_not_expected():
    Z, y = problem(n_classes=2)
    targets = np.eye(4)[np.where(y == 0, 1, 3)]
    found = fit_regression(Z, targets, 1.0)
    assert (found.weight[[0, 2]] == 0).all()
    assert (found.bias[[0, 2]] == UNSEEN_LOGIT).all()
    proba = regression_proba(found, Z)
    model = LogisticRegression(C=1.0, max_iter=1000).fit(Z, y)
    np.testing.assert_allclose(proba[:, [1, 3]], model.predict_proba(Z), atol=1e-9)
    assert proba[:, [0, 2]].max() < 1e-10
    alone = fit_regression(Z, np.eye(3)[np.ones(len(Z), dtype=int)], 1.0)
    np.testing.assert_allclose(
        regression_proba(alone, Z), np.tile([0, 1, 0], (len(Z), 1)), atol=1e-12
    )


def test_the_strength_is_weak_on_noise_and_not_on_what_is_known():
    rng = np.random.default_rng(0)
    Z, y = problem(n=100, distance=6.0)
    known = fit_regression(Z, np.eye(3)[y]).C
    noise = fit_regression(rng.normal(size=(100, 20)), np.eye(3)[rng.integers(3, size=100)]).C
    assert noise < 0.01
    assert known > 0.5


def noted_fits(monkeypatch):
    """Rows of every regression that is fitted."""
    seen = []

    class Noting(LogisticRegression):
        def fit(self, X, y, sample_weight=None):
            seen.append(X.copy())
            return super().fit(X, y, sample_weight)

    monkeypatch.setattr(regression, "LogisticRegression", Noting)
    return seen


def test_the_strength_is_that_of_the_least_loss_left_out(monkeypatch):
    """By hand: the folds of the function, scikit-learn's regression and log loss."""
    Z, y = problem()
    seen = noted_fits(monkeypatch)
    found = fit_regression(Z, np.eye(3)[y], n_folds=4, rng=np.random.default_rng(3))
    kept = [(Z[:, None] == rows).all(axis=2).any(axis=1) for rows in seen[:4]]
    folds = np.argmin(kept, axis=0)
    assert (np.sum(kept, axis=0) == 3).all()
    assert np.bincount(folds).tolist() == [15] * 4
    assert all(np.bincount(y[folds == k]).tolist() == [5, 5, 5] for k in range(4))

    def loss(C):
        total = 0.0
        for k in range(4):
            model = LogisticRegression(C=C, max_iter=1000).fit(Z[folds != k], y[folds != k])
            proba = model.predict_proba(Z[folds == k])
            total -= np.log(proba[np.arange(15), y[folds == k]]).sum()
        return total

    first = min(np.logspace(-4, 4, 9), key=loss)
    best = min((first / 10**0.5, first, first * 10**0.5), key=loss)
    np.testing.assert_allclose(found.C, best)


def test_too_weak_a_penalty_may_be_tried_without_a_warning():
    """Warnings are errors here; a strength that is asked for does warn."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    Z = (rng.normal(size=(60, 8)) + 1.5 * np.eye(8)[y]) * np.logspace(-1, 1, 8)
    targets = 0.8 * np.eye(3)[y] + 0.2 / 3
    assert fit_regression(Z, targets, max_iter=210).C < 100
    with pytest.warns(ConvergenceWarning):
        fit_regression(Z, targets, 1e4, max_iter=210)


def test_one_instance_leaves_nothing_out():
    X = np.ones((2, 3))
    model = TunedLogisticRegression().fit(X, [0, 1])
    np.testing.assert_allclose(model.predict_proba(X), 0.5)
    assert model.C_ == 1.0


# -- repeated rows --------------------------------------------------------------------------------


def test_equal_rows_in_succession_stay_in_one_fold(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(30, 3)), 3, axis=0)
    y = np.tile(np.arange(3), 30)
    seen = noted_fits(monkeypatch)
    TunedLogisticRegression(random_state=0).fit(X, y, sample_weight=rng.random(90))
    assert seen
    for Z in seen:  # Of an instance there are all rows or none.
        _, times = np.unique(Z, axis=0, return_counts=True)
        assert (times == 3).all()
        assert len(times) in (24, 30)


def test_repeating_rows_changes_nothing_but_their_weight():
    """An instance's rows apart, in several folds, would tell each other: a weak penalty."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 8)), rng.integers(2, size=40)
    once = TunedLogisticRegression(random_state=0).fit(X, y, sample_weight=np.full(40, 5.0))
    repeated = TunedLogisticRegression(random_state=0)
    repeated.fit(np.repeat(X, 5, axis=0), np.repeat(y, 5))
    assert repeated.C_ == once.C_
    np.testing.assert_allclose(repeated.predict_proba(X), once.predict_proba(X), atol=1e-6)
    order = np.tile(np.arange(40), 5)
    apart = TunedLogisticRegression(random_state=0).fit(X[order], y[order])
    assert apart.C_ > 10 * repeated.C_


def test_rows_of_weight_0_are_not_there():
    X, y = problem()
    weight = (np.arange(len(y)) > 8).astype(float)
    model = TunedLogisticRegression(random_state=0).fit(X, y, sample_weight=weight)
    without = TunedLogisticRegression(random_state=0).fit(X[9:], y[9:])
    np.testing.assert_array_equal(model.predict_proba(X), without.predict_proba(X))
    with pytest.raises(ValueError, match=r"0 everywhere|at least one non-zero"):
        TunedLogisticRegression().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(AnnotationError, match="one class only"):
        TunedLogisticRegression().fit(X, np.ones(len(y), dtype=int))


# -- the estimator --------------------------------------------------------------------------------

EXPECTED_FAILURES = dict.fromkeys(
    [
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ],
    "sets cv to folds of its own, which here is a number; and rows repeated elsewhere count as "
    "instances of their own in cross-validation and standardisation, as rows with weights do not",
)


@parametrize_with_checks(
    [TunedLogisticRegression(cv=2, max_iter=15, random_state=0)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_scikit_learn_contract(estimator, check):
    if check.func in (check_estimator_sparse_array, check_estimator_sparse_matrix):
        estimator.set_params(C=1.0)  # They fit ten forms of one X, each of which is to be read.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's checks provoke warnings on purpose
        check(estimator)


def test_standardised_or_as_it_is():
    X, y = problem()
    X = X * [1, 10, 100, 1000] + 50
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    model = TunedLogisticRegression(C=0.1).fit(X, y)
    expected = LogisticRegression(C=0.1, max_iter=1000).fit(scaled, y).predict_proba(scaled)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-6)
    plain = TunedLogisticRegression(C=0.1, standardize=False).fit(scaled, y)
    np.testing.assert_allclose(plain.predict_proba(scaled), expected, atol=1e-6)


@pytest.mark.parametrize("targets", ["soft", "hard"])
def test_it_is_a_second_stage(targets):
    X, A, y = make_crowd_problem()
    model = built(AggregatedClassifier, backbone=TunedLogisticRegression(), targets=targets)
    model.set_params(random_state=0).fit(X, A)
    assert (model.predict(X) == y).mean() > 0.8
    posterior = model.aggregator_.posterior_
    if targets == "hard":
        posterior = np.eye(3)[posterior.argmax(axis=1)]
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    by_hand = fit_regression(scaled, posterior, model.estimator_.C_)
    np.testing.assert_allclose(model.predict_proba(X), regression_proba(by_hand, scaled), atol=1e-5)


def test_it_is_a_second_stage_of_single_annotations():
    X, A, y = make_crowd_problem()
    model = SoftProbClassifier(TunedLogisticRegression(), random_state=0).fit(X, A)
    assert (model.predict(X) == y).mean() > 0.8
    counts = np.stack([np.equal(A, c).sum(axis=1) for c in range(3)], axis=1).astype(float)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    by_hand = fit_regression(scaled, counts, model.estimator_.C_)
    np.testing.assert_allclose(model.predict_proba(X), regression_proba(by_hand, scaled), atol=1e-9)


def test_sparse_features():
    X, y = problem()
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    dense = TunedLogisticRegression(random_state=0).fit(X, y)
    sparse = TunedLogisticRegression(random_state=0).fit(csr_matrix(X), y)
    np.testing.assert_array_equal(dense.coef_, sparse.coef_)
    np.testing.assert_array_equal(dense.predict(X), sparse.predict(csr_matrix(X)))


def test_a_fit_that_fails_leaves_the_classifier_as_it_was(monkeypatch):
    X = np.arange(12.0).reshape(6, 2)
    model = TunedLogisticRegression(C=1.0).fit(X, [0, 1, 0, 1, 0, 1])
    before = dict(vars(model))

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(regression, "fit_regression", fail)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :1], ["a", "b", "c", "a", "b", "c"])
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


# -- members of a stack ------------------------------------------------------------------------


def soft_problem(n=40, d=4, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.ones(n_classes) * 0.3, size=n)
    return rng.normal(size=(n, d)) + T @ rng.normal(size=(n_classes, d)) * 2, T


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_kernel_ridge_leaves_one_out(kernel):
    """Against kernel ridge regression fitted again without each row."""
    X, T = soft_problem()
    mapping = KernelMap(kernel, random_state=0).fit(X)
    if kernel == "rbf":
        K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / mapping.width_)
    else:
        K = np.exp(-np.abs(X[:, None] - X).sum(axis=2) / mapping.width_)
    Z = mapping.transform(X)
    np.testing.assert_allclose(Z @ Z.T, K, atol=1e-7)
    member = SoftRidge([0.1, 1.0]).prepare(Z)
    for strength, (log_proba, _) in zip([0.1, 1.0], member.fit_predict_loo(Z, T), strict=True):
        for i in range(len(X)):
            rest = np.arange(len(X)) != i
            dual = np.linalg.solve(K[np.ix_(rest, rest)] + strength * np.eye(39), T[rest] - 1 / 3)
            value = K[i, rest] @ dual + 1 / 3
            np.testing.assert_allclose(
                np.exp(log_proba[i : i + 1][0]), np.maximum(value, 0.01), atol=1e-6
            )


def test_a_kernel_without_whitening_predicts_the_same():
    X, T = soft_problem()
    mapping = KernelMap(random_state=0).fit(X)
    new = soft_problem(seed=1)[0]
    coef = SoftRidge().fit(mapping.transform(X), T).coef_
    bare = mapping.without_whitening()
    np.testing.assert_allclose(
        bare.transform(new) @ (mapping.whitening_ @ coef), mapping.transform(new) @ coef, atol=1e-6
    )


def test_landmarks_approximate_the_kernel():
    X = soft_problem(n=1600, d=2)[0]
    whole = KernelMap(random_state=0).fit(X[:500])
    exact = whole.transform(X[:500])
    few = KernelMap(n_landmarks=200, random_state=0).fit(X)
    assert few.landmarks_.shape == (200, 2)
    assert few.transform(X).dtype == np.float32
    few.width_ = whole.width_
    again = few.transform(X[:500])
    assert np.abs(again @ again.T - exact @ exact.T).max() < 0.05


def test_a_kernel_is_exact_up_to_1500_rows():
    X = soft_problem(n=1501, d=2)[0]
    for n in (101, 1500):
        mapping = KernelMap(n_landmarks=20, random_state=0).fit(X[:n])
        Z = mapping.transform(X[:50])
        K = np.exp(-((X[:50, None] - X[:50]) ** 2).sum(axis=2) / mapping.width_)
        np.testing.assert_allclose(Z @ Z.T, K, atol=1e-6)
    assert len(mapping.landmarks_) == 1500
    assert len(KernelMap(n_landmarks=20, random_state=0).fit(X).landmarks_) == 20


def test_equal_rows_have_a_width():
    X = np.ones((30, 3))
    assert np.isfinite(KernelMap(random_state=0).fit_transform(X)).all()
    X[0] = 2.0
    assert KernelMap(random_state=0).fit(X).width_ > 0


def test_views_are_clipped():
    X = np.random.default_rng(0).standard_cauchy(size=(500, 2))
    assert np.abs(ClippedScaler().fit_transform(X)).max() == 6.0
    scores = NormalScores(random_state=0).fit_transform(X)
    assert np.abs(scores).max() == 4.0
    assert abs(scores.mean()) < 0.05
    assert scores.std() == pytest.approx(1.0, abs=0.1)
    assert clone(NormalScores(n_quantiles=7)).n_quantiles == 7
    assert np.isfinite(NormalScores().fit_transform(X[:3])).all()


def test_discriminant_by_hand():
    X, T = soft_problem()
    member = SoftDiscriminant().fit(X, T)
    centred = X - X.mean(axis=0)
    mass = T.sum(axis=0) + 0.001
    means = [sum(T[n, c] * centred[n] for n in range(40)) / mass[c] for c in range(3)]
    S = sum(np.outer(x, x) for x in centred)
    S = (S - sum(mass[c] * np.outer(means[c], means[c]) for c in range(3))) / 40
    S = 0.6 * S + 0.4 * np.trace(S) / 4 * np.eye(4)
    inverse = np.linalg.inv(S)
    scores = np.array(
        [
            [
                x @ inverse @ m - 0.5 * m @ inverse @ m + np.log(k / 40)
                for m, k in zip(means, mass, strict=True)
            ]
            for x in centred
        ]
    )
    proba = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(member.predict_log_proba(X)), proba)


def test_mixture_is_em_from_the_targets():
    X, T = soft_problem()
    member = TiedMixture(n_steps=4)
    ((log_proba, fitted),) = member.fit_predict_loo(X, T)
    centred, share = X - X.mean(axis=0), T
    for _ in range(5):
        weight, bias = gaussian_scores(centred, share, 0.1)
        joint = np.exp(centred @ weight + bias)
        share = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(log_proba), share, atol=1e-9)
    np.testing.assert_allclose(fitted.predict_log_proba(X), log_proba)
    np.testing.assert_allclose(member.fit(X, T).predict_log_proba(X), log_proba)


def test_soft_logistic_regression_is_at_its_optimum():
    X, T = soft_problem()
    model = SoftLogistic(C=2.0, max_iter=500).fit(X, T)
    proba = np.exp(model.predict_log_proba(X))
    gradient = X.T @ (proba - T) + model.coef_ / 2.0
    np.testing.assert_allclose(gradient, 0.0, atol=1e-3)
    np.testing.assert_allclose((proba - T).sum(axis=0), 0.0, atol=1e-3)
    sparse = SoftLogistic(C=2.0, max_iter=500).fit(csr_matrix(X), T)
    np.testing.assert_allclose(sparse.coef_, model.coef_, atol=1e-4)
    assert [variant.C for variant in SoftLogistic().variants()] == [1.0, 4.0]


def test_soft_logistic_regression_starts_where_it_ended():
    X, T = soft_problem()
    model = SoftLogistic(C=1.0, max_iter=3)
    first = model.fit(X, T).coef_
    assert not np.allclose(model.fit(X, T).coef_, first)
    cold = SoftLogistic(C=1.0, max_iter=3, warm_start=False)
    np.testing.assert_array_equal(cold.fit(X, T).coef_, cold.fit(X, T).coef_)


# -- calibration ----------------------------------------------------------------------------------


def calibration_problem(n=200, n_members=2, n_classes=2):
    """Members' log probabilities, of which the first's are right but too weak; annotations."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n_members, n, n_classes))
    log_probas = logits - logsumexp(logits, axis=2, keepdims=True)
    true = (2.0 * log_probas[0] + rng.gumbel(size=(n, n_classes))).argmax(axis=1)
    log_likelihood = 1.5 * np.eye(n_classes)[true] + 0.3 * rng.normal(size=(n, n_classes))
    return log_probas, log_likelihood


def test_members_are_combined_by_hand():
    log_probas = np.log([[[0.8, 0.2], [0.4, 0.6]], [[0.5, 0.5], [0.9, 0.1]]])
    joint = np.array(
        [[0.8**2 * 0.5**0.5, 0.2**2 * 0.5**0.5], [0.4**2 * 0.9**0.5, 0.6**2 * 0.1**0.5]]
    )
    expected = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(combine(log_probas, np.array([2.0, 0.5]))), expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_calibration_finds_what_a_grid_finds(weighted):
    log_probas, log_likelihood = calibration_problem()
    row_weight = np.arange(200) % 4 / 2 if weighted else np.ones(200)

    def penalised(weights):
        evidence = logsumexp(combine(log_probas, weights) + log_likelihood, axis=1)
        return (np.log(2 * weights) ** 2).sum() - (row_weight * evidence).sum()

    found = calibrate(log_probas, log_likelihood, row_weight if weighted else None)
    center, step = np.log([0.7, 0.7]), 2.0
    for _ in range(3):  # From 0.1 to 5; then nearer and nearer to the best, 2.5 % apart.
        near = np.linspace(-step, step, 11)
        grid = [np.exp(center + np.array([a, b])) for a in near for b in near]
        best = min(grid, key=penalised)
        assert penalised(found) <= penalised(best) + 1e-6
        center, step = np.log(best), step / 4
    np.testing.assert_allclose(found, best, rtol=0.03)


def test_calibration_takes_several_rows_of_an_instance():
    log_probas, _ = calibration_problem(n=60, n_members=3, n_classes=4)
    rng = np.random.default_rng(1)
    instance = rng.integers(50, size=400)  # Not in order; ten instances have no rows.
    log_likelihood, row_weight = np.log(rng.dirichlet(np.ones(4), size=400)), rng.random(400)
    for weight in (row_weight, None):
        found = calibrate(log_probas, log_likelihood, weight, instance)
        expected = calibrate(log_probas[:, instance], log_likelihood, weight)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_calibration_tells_members_that_know_from_members_that_do_not():
    log_probas, log_likelihood = calibration_problem(n=2000)
    weights = calibrate(log_probas, log_likelihood)
    assert weights[0] > 4 * weights[1]
    turned = calibrate(log_probas[::-1], log_likelihood)
    np.testing.assert_allclose(turned[::-1], weights, rtol=1e-3)
    order = [1, 0]
    permuted = calibrate(log_probas[..., order], log_likelihood[:, order])
    np.testing.assert_allclose(permuted, weights, rtol=1e-3)
