"""Crowd-calibrated stacking beside its recipe (docs/methods/stacking.md), written a second time."""

import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import pdist
from scipy.special import softmax

from manyhands import CrowdStackingClassifier
from manyhands.classifiers.stacking.members import automatic_members
from manyhands.exceptions import ModelChoiceWarning
from manyhands.linear.ridge import SoftRidge
from manyhands.training.seeding import draw_seed

unwarned = pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")


TEMPERATURES = (
    0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0,
)  # fmt: skip
STRENGTHS = (0.3, 30.0, 3000.0)


# -- the recipe, with ridge regressions on the features as its only member -------------------------


class Told(NamedTuple):
    """What a round of the recipe found."""

    proba: np.ndarray  # Of the new rows, under this round alone.
    coef: np.ndarray
    strength: float
    temperature: float
    shares: np.ndarray
    parity: float
    vote_share: float


def recipe(X, new, A):
    """Six rounds with ``class_prior="auto"`` and ``vote_share="auto"``."""
    C = A.max() + 1
    instance, annotator = np.nonzero(A >= 0)
    given = A[instance, annotator]
    votes = np.zeros((len(A), C))
    np.add.at(votes, (instance, given), 1)
    x = C**2 * np.var(votes.sum(axis=0) / votes.sum()) / (C - 1) - 1 / len(A)
    kappa = 1 / (1 + (max(x, 0) / 0.011) ** 2)
    vote_shares = votes / votes.sum(axis=1, keepdims=True)
    q, mu, rounds = vote_shares, 0.0, []
    for _ in range(6):
        counts = np.zeros((A.shape[1], C, C))
        for i, r, a in zip(instance, annotator, given, strict=True):
            counts[r, :, a] += q[i]
        confusion = rows_to_1(counts + 5 * rows_to_1(counts.sum(axis=0) + 0.1 + np.eye(C)))
        likelihood = confusion[annotator, :, given]

        def of_annotations(p, likelihood=likelihood):
            return np.log((p[instance] * likelihood).sum(axis=1)).sum()

        targets = (1 - mu) * q + mu * vote_shares
        tried = {}
        for strength in STRENGTHS:
            left_out = ridge_left_out(X, targets, strength)
            for t in TEMPERATURES:
                tried[strength, t] = of_annotations(np.exp(tempered(left_out, t)))
        strength, temperature = max(tried, key=tried.get)
        told = tempered(ridge_left_out(X, targets, strength), temperature)

        def penalised(u, told=told, of_annotations=of_annotations):
            return u**2 - of_annotations(softmax(np.exp(u) * told, axis=1))

        weight = np.exp(minimize_scalar(penalised, bounds=(-5, 5), method="bounded").x)
        p = softmax(weight * told, axis=1)
        L = 2 * np.log(p)
        np.add.at(L, instance, np.log(likelihood))
        wanted = (1 - kappa) * softmax(L, axis=1).mean(axis=0) + kappa / C
        shift = np.zeros(C)
        for _ in range(60):
            shift -= 0.7 * (np.log(softmax(L + shift, axis=1).mean(axis=0)) - np.log(wanted))
        q = softmax(L + shift, axis=1)
        shares = q.mean(axis=0)
        accuracy = np.array([(shares * np.diag(each)).sum() for each in confusion])
        parity = parity_of(A, p.argmax(axis=1), np.maximum(accuracy - 1 / C, 0) / (1 - 1 / C), C)
        coef = ridge(X, targets, strength)
        proba = softmax(weight * tempered(as_proba(new @ coef), temperature), axis=1)
        rounds.append(Told(proba, coef, strength, temperature, shares, parity, mu))
        mu = 0.0 if parity > 1 else 0.5
    return rounds


def rows_to_1(counts):
    return counts / counts.sum(axis=-1, keepdims=True)


def ridge(X, targets, strength):
    gram = X.T @ X + strength * np.eye(X.shape[1])
    return np.linalg.solve(gram, X.T @ (targets - 1 / targets.shape[1]))


def as_proba(values):
    C = values.shape[1]
    return rows_to_1(np.maximum(values + 1 / C, min(0.01, 0.1 / C)))


def ridge_left_out(X, targets, strength):
    """Every row's probabilities under the regression that is fitted to the others."""
    values = []
    for i, x in enumerate(X):
        rest = np.arange(len(X)) != i
        values.append(x @ ridge(X[rest], targets[rest], strength))
    return as_proba(np.array(values))


def tempered(proba, temperature):
    return np.log(rows_to_1((proba + 1e-4) ** temperature) + 1e-4)


def parity_of(A, told, beta, C):
    """Agreement beyond chance of the classifier with annotators, over theirs with one another."""
    pairs = among = with_them = 0.0
    for r in range(A.shape[1]):
        for s in range(A.shape[1]):
            if r != s:
                both = (A[:, r] >= 0) & (A[:, s] >= 0)
                pairs += beta[r] * beta[s] * both.sum()
                among += beta[r] * beta[s] * (A[both, r] == A[both, s]).sum()
                with_them += beta[r] * beta[s] * (A[both, r] == told[both]).sum()
    e = rows_to_1(np.array([((c == A) * beta).sum() for c in range(C)]))
    f = np.bincount(told, minlength=C) / len(told)
    return ((with_them / pairs - e @ f) / (1 - e @ f)) / ((among / pairs - e @ e) / (1 - e @ e))


# -- the rounds -----------------------------------------------------------------------------------


def rare_class(n=100, seed=0, share=0.3):
    """Features, new ones and annotations; annotators know one class better than the other."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    X = rng.normal(size=(n, 4)) + np.outer(2 * y - 1, [1.0, 0.5, 0.0, 0.0])
    right = np.array([[0.9, 0.5], [0.55, 0.95], [0.7, 0.8], [0.65, 0.9], [0.8, 0.6]])
    A = np.where(rng.random((n, 5)) < right[:, y].T, y[:, None], 1 - y[:, None])
    A[rng.random(A.shape) < 0.3] = -1
    A[:, 0] = np.where((A >= 0).any(axis=1), A[:, 0], y)
    new = 1.5 * rng.normal(size=(40, 4))
    return X.astype(np.float32), new.astype(np.float32), A


class Both(NamedTuple):
    """A crowd, what the recipe and the library make of it, and bounds of its parity."""

    X: np.ndarray
    new: np.ndarray
    A: np.ndarray
    rounds: list[Told]
    model: CrowdStackingClassifier
    parities: tuple[float, float]


def ridges(**parameters):
    members = [("ridge", SoftRidge(STRENGTHS))]
    return CrowdStackingClassifier(members, random_state=0, **parameters)


@pytest.fixture(
    scope="module",
    params=[(0, (0.6, 0.9)), (3, (1.0, 1.2)), (2, (2.0, 2.5))],
    ids=["parity below 1", "just above", "far above"],
)
def both(request):
    seed, parities = request.param
    X, new, A = rare_class(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelChoiceWarning)
        model = ridges().fit(X, A)
    return Both(X, new, A, recipe(X.astype(float), new.astype(float), A), model, parities)


def test_the_prediction_is_the_mean_of_rounds_2_to_6_to_a_power(both):
    every = np.stack([told.proba for told in both.rounds])
    mean = replace(both.model.stack_, exponent=1.0).predict_proba(both.new)
    np.testing.assert_allclose(mean, every[1:].mean(axis=0), atol=1e-4)
    for other in (every.mean(axis=0), every[-1]):
        assert np.abs(mean - other).max() > 0.01
    power = both.model.prediction_exponent_
    assert 0 < power <= 1
    proba = both.model.predict_proba(both.new)
    np.testing.assert_allclose(proba, rows_to_1(mean**power), atol=1e-6)
    np.testing.assert_array_equal(proba.argmax(axis=1), mean.argmax(axis=1))


@unwarned
def test_one_round_predicts_alone(both):
    for n_rounds in (1, 2):
        model = ridges(n_rounds=n_rounds).fit(both.X, both.A)
        proba = replace(model.stack_, exponent=1.0).predict_proba(both.new)
        np.testing.assert_allclose(proba, both.rounds[n_rounds - 1].proba, atol=1e-4)


def test_the_ridge_and_temperature_that_make_the_annotations_likeliest_are_kept(both):
    for (part,), told in zip(both.model.stack_.rounds, both.rounds[1:], strict=True):
        np.testing.assert_allclose(part.predictor.coef, told.coef, atol=1e-4)
        assert part.temperature == told.temperature
    assert 3000.0 not in {told.strength for told in both.rounds}


def test_parity_above_1_leaves_vote_shares_out_of_the_next_targets(both):
    mixed = [row["vote_share"] for row in both.model.history_]
    assert mixed == [told.vote_share for told in both.rounds]
    low, high = both.parities
    assert all(low < told.parity < high for told in both.rounds)
    expected = [0.0 if row["relative_informedness"] > 1 else 0.5 for row in both.model.history_]
    assert mixed[1:] == expected[:-1]


def test_parity_weighs_annotators_by_the_shares_of_the_posterior(both):
    """By the diagonal of the confusion matrix alone, a common class would count as a rare one."""
    found = [row["relative_informedness"] for row in both.model.history_]
    np.testing.assert_allclose(found, [told.parity for told in both.rounds], atol=1e-3)


# -- class shares ----------------------------------------------------------------------------------


def test_class_shares_lie_kappa_of_the_way_to_equal_ones(both):
    assert 0.1 < both.model.prior_shrinkage_ < 0.5
    found = [[row["share_0"], row["share_1"]] for row in both.model.history_]
    np.testing.assert_allclose(found, [told.shares for told in both.rounds], atol=1e-4)


@unwarned
def test_balanced_votes_make_equal_classes_of_a_rare_one():
    """30 of 100 are of class 1, and everyone calls 20 of the others so, too: kappa is 1."""
    rng = np.random.default_rng(0)
    y = np.arange(100) < 30
    X = rng.normal(size=(100, 4)) + 2.0 * y[:, None]
    A = np.tile(y[:, None], 4).astype(int)
    for column in A.T:
        column[30 + rng.permutation(70)[:20]] = 1
    auto, uniform, estimated = (
        ridges(class_prior=prior).fit(X, A) for prior in ("auto", "uniform", "estimated")
    )
    assert auto.prior_shrinkage_ == 1.0
    for model in (auto, uniform):  # In the rounds; the labels have the shares that come out.
        found = [[row["share_0"], row["share_1"]] for row in model.history_]
        np.testing.assert_allclose(found, 0.5, atol=0.01)
    np.testing.assert_allclose(uniform.class_prior_, 0.5, atol=0.01)
    assert estimated.class_prior_[1] < auto.class_prior_[1] < 0.45


@unwarned
def test_very_uneven_votes_leave_the_shares_as_they_come_out():
    y = np.arange(100) < 10
    X = np.random.default_rng(0).normal(size=(100, 4)) + 2.0 * y[:, None]
    A = np.tile(y[:, None], 3).astype(int)
    auto, estimated = (ridges(class_prior=prior).fit(X, A) for prior in ("auto", "estimated"))
    assert auto.prior_shrinkage_ < 0.001
    np.testing.assert_allclose(auto.posterior_, estimated.posterior_, atol=1e-3)


def drowned(rng, n=600, share=0.15, wrong=0.368):
    """Four annotators who find nine in ten of class 1, and call many others so, too."""
    y = (rng.random(n) < share).astype(int)
    X = rng.normal(size=(n, 4)) + 1.2 * y[:, None]
    confusion = np.array([[1 - wrong, wrong], [0.1, 0.9]])
    return X, np.stack([[rng.choice(2, p=confusion[c]) for c in y] for _ in range(4)], axis=1)


def test_class_shares_that_the_votes_leave_open_are_a_doubt():
    X, A = drowned(np.random.default_rng(0))
    with pytest.warns(ModelChoiceWarning, match="do not say whether the classes are equally freq"):
        model = CrowdStackingClassifier(n_rounds=2, random_state=0).fit(X, A)
    assert 0.2 < model.prior_shrinkage_ < 0.8
    assert "class_prior=" in model.doubts_["class-shares-assumed"]


@unwarned
@pytest.mark.parametrize("prior", ["uniform", "estimated", (0.85, 0.15)])
def test_a_class_prior_of_ones_own_is_no_doubt(prior):
    X, A = drowned(np.random.default_rng(0))
    model = ridges(class_prior=prior, n_rounds=1).fit(X, A)
    assert "class-shares-assumed" not in model.doubts_


def test_balanced_classes_raise_no_doubt():
    X, A = drowned(np.random.default_rng(0), share=0.5, wrong=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = CrowdStackingClassifier(n_rounds=2, random_state=0).fit(X, A)
    assert "class-shares-assumed" not in model.doubts_


# -- members ---------------------------------------------------------------------------------------


def three_to_one(n=120, seed=0):
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 4 == 0).astype(int)
    X = rng.normal(size=(n, 5)) + np.outer(y, [1.5, 1.0, 0.0, 0.0, 0.0])
    return X.astype(np.float32), y, rng.normal(size=(60, 5)).astype(np.float32) + 0.5


@unwarned
@pytest.mark.parametrize("prior", ["auto", "estimated", (0.75, 0.25)])
def test_perfect_annotators_of_uneven_classes_give_the_members_trained_on_gold(prior):
    """The votes of five are all but certain, so posterior and targets are the gold labels.

    ``"auto"`` takes the classes to be equally frequent to .2 % only, as three to one is uneven.
    """
    X, y, new = three_to_one()
    A = np.repeat(y[:, None], 5, axis=1)
    settings = {"class_prior": prior, "random_state": 0}
    model = CrowdStackingClassifier(n_rounds=2, **settings).fit(X, A)
    gold = np.eye(2)[y]
    np.testing.assert_allclose(model.posterior_, gold, atol=1e-6)

    # The seed of the members and the folds, as the fit draws them.
    rng = np.random.default_rng(draw_seed(0))
    members = automatic_members(X, 1200, int(rng.integers(2**31)))
    folds = rng.permutation(np.arange(len(X)) % 5)
    for place, (member, kept) in enumerate(zip(members, model.stack_.members, strict=True)):
        options = member.fitted_on(X, folds).options(gold)
        trained = [option.predictor.predict_log_proba(member.see(new)) for option in options]
        for parts in model.stack_.rounds:
            told = parts[place].predictor.predict_log_proba(kept.see(new))
            assert min(np.abs(told - each).max() for each in trained) < 1e-5

    # Every round is the first, whose targets are the vote shares.
    first = CrowdStackingClassifier(n_rounds=1, **settings).fit(X, A)
    np.testing.assert_allclose(model.predict_proba(new), first.predict_proba(new), atol=1e-5)
    # One annotator's votes weigh a fifth beside the penalty on the weights of members. So these
    # differ, and the probabilities do, but hardly any label.
    alone = CrowdStackingClassifier(n_rounds=2, **settings).fit(X, y)
    assert np.mean(alone.predict(new) == model.predict(new)) > 0.95


def test_the_kernel_member_of_few_rows_is_exact():
    """300 rows are more than the landmarks asked for: left out by fits without each."""
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(300, 3)), rng.dirichlet(np.ones(2), size=300)
    member = automatic_members(X, 20, 0)[0]
    assert member.name == "rbf standardised"
    options = member.fitted_on(X, np.arange(300) % 5).options(T)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    squares = ((Z[:, None] - Z) ** 2).sum(axis=2)
    K = np.exp(-squares / np.median(pdist(Z, "sqeuclidean")))
    for strength, option in zip((0.03, 0.1, 0.3, 1.0), options, strict=True):
        for i in (0, 17, 299):
            rest = np.arange(300) != i
            inner = K[np.ix_(rest, rest)] + strength * np.eye(299)
            value = K[i, rest] @ np.linalg.solve(inner, T[rest] - 0.5) + 0.5
            found = np.exp(option.log_proba[i : i + 1][0])
            np.testing.assert_allclose(found, np.maximum(value, 0.01), atol=1e-5)
