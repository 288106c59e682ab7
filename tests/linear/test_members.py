"""Linear members of a stack against slow references."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone

from manyhands.linear.gaussians import SoftDiscriminant, TiedMixture, gaussian_scores
from manyhands.linear.kernels import ClippedScaler, KernelMap, NormalScores
from manyhands.linear.logistic import SoftLogistic
from manyhands.linear.ridge import SoftRidge


def problem(n=40, d=4, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.ones(n_classes) * 0.3, size=n)
    return rng.normal(size=(n, d)) + T @ rng.normal(size=(n_classes, d)) * 2, T


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_kernel_ridge_leaves_one_out(kernel):
    """Against kernel ridge regression fitted again without each row."""
    X, T = problem()
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
    X, T = problem()
    mapping = KernelMap(random_state=0).fit(X)
    new = problem(seed=1)[0]
    coef = SoftRidge().fit(mapping.transform(X), T).coef_
    bare = mapping.without_whitening()
    np.testing.assert_allclose(
        bare.transform(new) @ (mapping.whitening_ @ coef), mapping.transform(new) @ coef, atol=1e-6
    )


def test_landmarks_approximate_the_kernel():
    X = problem(n=1600, d=2)[0]
    exact = KernelMap(random_state=0).fit(X[:1500]).transform(X[:1500])
    few = KernelMap(n_landmarks=200, random_state=0).fit(X)
    assert few.landmarks_.shape == (200, 2)
    assert few.transform(X).dtype == np.float32
    few.width_ = KernelMap(random_state=0).fit(X[:1500]).width_
    again = few.transform(X[:1500])
    assert np.abs(again @ again.T - exact @ exact.T).max() < 0.05


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
    X, T = problem()
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
    X, T = problem()
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
    X, T = problem()
    model = SoftLogistic(C=2.0, max_iter=500).fit(X, T)
    proba = np.exp(model.predict_log_proba(X))
    gradient = X.T @ (proba - T) + model.coef_ / 2.0
    np.testing.assert_allclose(gradient, 0.0, atol=1e-3)
    np.testing.assert_allclose((proba - T).sum(axis=0), 0.0, atol=1e-3)
    sparse = SoftLogistic(C=2.0, max_iter=500).fit(csr_matrix(X), T)
    np.testing.assert_allclose(sparse.coef_, model.coef_, atol=1e-4)
    assert [variant.C for variant in SoftLogistic().variants()] == [1.0, 4.0]


def test_soft_logistic_regression_starts_where_it_ended():
    X, T = problem()
    model = SoftLogistic(C=1.0, max_iter=3)
    first = model.fit(X, T).coef_
    assert not np.allclose(model.fit(X, T).coef_, first)
    cold = SoftLogistic(C=1.0, max_iter=3, warm_start=False)
    np.testing.assert_array_equal(cold.fit(X, T).coef_, cold.fit(X, T).coef_)
