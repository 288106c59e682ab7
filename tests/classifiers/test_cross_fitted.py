"""Cross-fitted EM: its parts against references, out-of-fold by construction, and the whole."""

import copy
import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    CrossFittedEMClassifier,
    DawidSkene,
    load,
    make_crowd,
)
from manyhands.classifiers.cross_fitted import last_training, out_of_fold, rounds
from manyhands.classifiers.cross_fitted.networks import at_least
from manyhands.classifiers.cross_fitted.rounds import count_confusions
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.fitting.folds import deal_folds
from manyhands.fitting.latent import LatentClasses
from manyhands.fitting.logistic import fit_logistic
from manyhands.fitting.monitors import GoldMonitor
from manyhands.linear.calibration import calibrate, calibrated_nll, combine
from manyhands.nn import CNN, MLP, Ensemble, Linear
from manyhands.training import Checkpoint, GradientStep

SMALL = {"max_epochs": 4, "batch_size": 16, "min_steps": 3, "random_state": 0, "device": "cpu"}
QUICK = SMALL | {"n_rounds": 2, "n_folds": 3, "n_networks": 2}


def rare_crowd(n=330, seed=0, shift=2.0):
    """Ten of a class to one of the other; nine annotators who are wrong in .2 to .5 of a class."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 11 == 0).astype(int)
    X = rng.normal(size=(n, 6)) + shift * y[:, None] * (np.arange(6) < 2)
    wrong = rng.uniform(0.2, 0.5, size=(9, 2))
    A = np.where(rng.random((n, 9)) < wrong.T[y], 1 - y[:, None], y[:, None])
    return X, A, y


def balanced_accuracy(y, labels):
    return np.mean([(labels[y == c] == c).mean() for c in np.unique(y)])


# -- the ensemble ---------------------------------------------------------------------------------


class Says(torch.nn.Module):
    """The same probabilities of whatever instance."""

    def __init__(self, *proba):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(proba).log() + 3.0)

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def test_the_ensemble_is_a_geometric_mean_of_a_mean_and_the_linear_network():
    ensemble = Ensemble([Says(0.9, 0.1), Says(0.5, 0.5)], Says(0.2, 0.8))
    ensemble.weights.copy_(torch.tensor([0.75, 0.25]))
    joint = np.array([0.7**0.75 * 0.2**0.25, 0.3**0.75 * 0.8**0.25])
    proba = ensemble(torch.zeros(3, 1)).softmax(dim=1).detach().numpy()
    np.testing.assert_allclose(proba, np.tile(joint / joint.sum(), (3, 1)), rtol=1e-5)
    alone = Ensemble([Says(0.9, 0.1), Says(0.5, 0.5)])(torch.zeros(1, 1)).exp()
    np.testing.assert_allclose(alone.detach().numpy(), [[0.7, 0.3]], rtol=1e-5)


def test_the_embedding_is_the_first_networks():
    networks = [MLP((4,), 3).eval(), MLP((4,), 3).eval()]
    x = torch.randn(5, 4)
    assert torch.equal(Ensemble(networks).embed(x), networks[0].embed(x))
    assert not hasattr(Ensemble([Says(0.5, 0.5)]), "embed")


# -- folds and confusions -------------------------------------------------------------------------


def test_folds_are_of_equal_size_and_hold_their_share_of_every_class():
    labels = np.repeat([0, 1, 2], [70, 23, 7])
    posterior = 0.1 + 0.7 * np.eye(3)[labels]
    folds = deal_folds(posterior, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(folds), [20] * 5)
    for c in range(3):
        counts = np.bincount(folds[labels == c], minlength=5)
        assert np.ptp(counts) <= 1
    other = deal_folds(posterior, 5, np.random.default_rng(1))
    assert (folds != other).any()


def test_confusion_rows_get_annotations_as_the_crowd_gives_them():
    # Annotators 0 and 1; classes known but for the third instance.
    table = AnnotationTable.from_matrix(np.array([[0, 0], [1, -1], [1, 0]]))
    posterior = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    counts = np.array([[[1.0, 0.5], [0.0, 1.5]], [[1.5, 0.0], [0.5, 0.0]]])
    sums = counts.sum(axis=0) + 0.1 + np.eye(2)
    pooled = sums / sums.sum(axis=1, keepdims=True)
    expected = (counts + 2 * pooled) / (counts.sum(axis=2, keepdims=True) + 2)
    given = count_confusions(LatentClasses(table), posterior, 2.0)
    np.testing.assert_allclose(given, expected)
    plain = count_confusions(LatentClasses(table), posterior, 0.0)
    np.testing.assert_allclose(plain, counts / counts.sum(axis=2, keepdims=True))


def counted_confusion(A, posterior, strength):
    """Confusion matrices of a matrix of annotations, entry by entry."""
    n, n_annotators = A.shape
    n_classes = posterior.shape[1]
    counts = np.zeros((n_annotators, n_classes, n_classes))
    for i in range(n):
        for r in range(n_annotators):
            if A[i, r] >= 0:
                counts[r, :, A[i, r]] += posterior[i]
    confusion = np.empty_like(counts)
    for c in range(n_classes):
        crowd = [counts[:, c, g].sum() + 0.1 + (g == c) for g in range(n_classes)]
        for r in range(n_annotators):
            row = [counts[r, c, g] + strength * crowd[g] / sum(crowd) for g in range(n_classes)]
            confusion[r, c] = np.array(row) / sum(row)
    return confusion


def test_the_more_annotations_a_row_gets_the_more_it_is_the_crowds():
    # Annotator 0 is right in 3 of 4, annotator 1 in 1 of 4: the crowd in 5.1 of 9.2 (4 + 1.1).
    given = np.array([[0, 1], [0, 1], [0, 1], [1, 0]])
    table = AnnotationTable.from_matrix(np.vstack([given, 1 - given]))
    posterior = np.repeat(np.eye(2), 4, axis=0)
    for strength in (0.0, 50.0):
        right = (np.array([3.0, 1.0]) + strength * 5.1 / 9.2) / (4.0 + strength)
        confusion = count_confusions(LatentClasses(table), posterior, strength)
        for c in (0, 1):
            np.testing.assert_allclose(confusion[:, c, c], right)


@pytest.mark.parametrize("strength", [0.0, 50.0])
def test_the_crowds_annotations_are_as_many_as_asked_for(strength):
    X, A, _ = rare_crowd(n=66)
    A[::2, 0] = -1
    model = CrossFittedEMClassifier(crowd_strength=strength, **QUICK).fit(X, A)
    expected = counted_confusion(A, model.posterior_, strength)
    np.testing.assert_allclose(model.confusion_, expected, atol=1e-9)
    other = counted_confusion(A, model.posterior_, 2.0)
    assert np.abs(model.confusion_ - other).max() > 0.01


# -- calibration ----------------------------------------------------------------------------------


def calibration_problem(n=200, n_members=2, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n_members, n, n_classes))
    log_probas = logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)
    true = (2.0 * log_probas[0] + np.arange(n_classes) + rng.gumbel(size=(n, n_classes))).argmax(1)
    log_likelihood = 1.5 * np.eye(n_classes)[true] + 0.3 * rng.normal(size=(n, n_classes))
    return log_probas, log_likelihood


def penalised(log_probas, log_likelihood, weights, shift):
    n = len(log_likelihood)
    away = np.log(weights) + np.log(len(weights))
    total = n * calibrated_nll(log_probas, log_likelihood, weights, shift)
    return total + (away**2).sum() + 0.01 * (shift**2).sum()


def test_the_annotations_likelihood_by_hand():
    log_probas = np.log([[[0.8, 0.2], [0.4, 0.6]], [[0.5, 0.5], [0.9, 0.1]]])
    log_likelihood = np.log([[0.3, 0.6], [0.2, 0.7]])
    weights, shift = np.array([2.0, 0.5]), np.array([0.1, -0.1])
    total = 0.0
    for i in range(2):
        joint = [
            math.exp(shift[c])
            * math.prod(math.exp(log_probas[m, i, c]) ** weights[m] for m in (0, 1))
            for c in (0, 1)
        ]
        prior = [part / sum(joint) for part in joint]
        total -= math.log(sum(prior[c] * math.exp(log_likelihood[i, c]) for c in (0, 1)))
        np.testing.assert_allclose(np.exp(combine(log_probas, weights, shift))[i], prior)
    given = calibrated_nll(log_probas, log_likelihood, weights, shift)
    assert given == pytest.approx(total / 2)


def test_calibration_finds_what_a_grid_finds():
    log_probas, log_likelihood = calibration_problem(n_members=1)
    weights, shift = calibrate(log_probas, log_likelihood, np.ones(1), np.zeros(2))
    grid = [
        (penalised(log_probas, log_likelihood, np.array([b]), np.array([v, -v])), b, v)
        for b in np.geomspace(0.2, 5.0, 61)
        for v in np.linspace(-1.5, 1.5, 61)
    ]
    least, b, v = min(grid)
    assert penalised(log_probas, log_likelihood, weights, shift) <= least + 1e-6
    np.testing.assert_allclose(weights, b, rtol=0.06)
    np.testing.assert_allclose(shift, [v, -v], atol=0.06)


def test_calibration_tells_members_that_know_from_members_that_do_not():
    weights, shift = calibrate(*calibration_problem(n=2000), np.full(2, 0.5), np.zeros(2))
    assert weights[0] > 4 * weights[1]
    assert shift[1] > 0.2  # The second class is the more frequent one.


def test_calibration_permutes_with_classes_and_members():
    log_probas, log_likelihood = calibration_problem(n_members=2, n_classes=3)
    start = np.full(2, 0.5), np.zeros(3)
    weights, shift = calibrate(log_probas, log_likelihood, *start)
    order = [2, 0, 1]
    same, moved = calibrate(log_probas[..., order], log_likelihood[:, order], *start)
    np.testing.assert_allclose(same, weights, rtol=1e-3)
    np.testing.assert_allclose(moved, shift[order], atol=1e-3)
    turned, _ = calibrate(log_probas[::-1], log_likelihood, *start)
    np.testing.assert_allclose(turned[::-1], weights, rtol=1e-3)


def test_the_shift_has_mean_0_wherever_the_search_starts():
    log_probas, log_likelihood = calibration_problem(n_classes=3)
    weights = np.full(2, 0.5)
    _, shift = calibrate(log_probas, log_likelihood, weights, np.zeros(3))
    _, moved = calibrate(log_probas, log_likelihood, weights, np.full(3, 3.0))
    assert np.abs(shift).max() > 0.2
    np.testing.assert_allclose(moved.mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(moved, shift, atol=1e-2)


# -- logistic regression --------------------------------------------------------------------------


def regression_problem(n=80, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)).astype(np.float32)
    targets = rng.dirichlet(np.ones(n_classes), size=n).astype(np.float32)
    targets *= rng.uniform(0.5, 2.0, size=(n, 1)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(targets)


def by_scikit_learn(x, targets):
    """One weighted row a class of every instance; biases up to a constant."""
    rows, labels = np.nonzero(np.ones(targets.shape))
    # Of two classes scikit-learn has one vector of weights: their difference, penalised half.
    C = 2.0 if targets.shape[1] == 2 else 1.0
    model = LogisticRegression(C=C, tol=1e-8, max_iter=1000)
    model.fit(x.numpy()[rows], labels, sample_weight=targets.numpy().ravel())
    return model.predict_proba(x.numpy())


def proba(x, weight, bias):
    return (x @ weight.T + bias).softmax(dim=1).numpy()


def test_regressions_are_scikit_learns_each_on_its_own_instances():
    x, targets = regression_problem()
    seen = torch.ones(3, len(x))
    seen[1, :30] = seen[2, 30:60] = 0
    weight, bias = fit_logistic(lambda: iter(x.split(33)), targets, seen, None)
    for k, mask in enumerate(seen.bool()):
        mine = proba(x, weight[k], bias[k])[mask]
        np.testing.assert_allclose(mine, by_scikit_learn(x[mask], targets[mask]), atol=2e-3)


def test_regressions_go_on_from_where_they_were():
    x, targets = regression_problem()
    passes = []

    def batches():
        passes.append(1)
        return iter([x])

    first = fit_logistic(batches, targets, torch.ones(1, len(x)), None)
    cold = len(passes)
    fit_logistic(batches, targets, torch.ones(1, len(x)), first)
    assert len(passes) - cold < cold / 2


def test_regressions_permute_with_the_classes():
    x, targets = regression_problem()
    order = [2, 0, 1]
    fits = [
        fit_logistic(lambda: iter([x]), t, torch.ones(1, len(x)), None)
        for t in (targets, targets[:, order])
    ]
    (weight, bias), (moved, shift) = fits
    np.testing.assert_allclose(moved[0], weight[0][order], atol=1e-3)
    np.testing.assert_allclose(shift[0], bias[0][order], atol=1e-3)


# -- out of fold ----------------------------------------------------------------------------------


def rounds_of(model, X, A):
    """Return the rounds of a fit as they are before the first."""
    kept = []

    class Stop(Exception):
        pass

    def stages(fit):
        kept.append(fit.state.rounds)
        raise Stop

    model._stages = stages
    with pytest.raises(Stop):
        model.fit(X, A)
    return kept[0]


def test_members_have_not_seen_the_instances_they_judge():
    X, A, _ = make_crowd_problem()
    em = rounds_of(CrossFittedEMClassifier(**QUICK), X, A)
    own = (em.out_of_fold.folds == 0).numpy()
    start, answers = em.posterior, []
    for told in (start, np.where(own[:, None], np.roll(start, 1, axis=1), start)):
        em.out_of_fold.regressions = None
        torch.manual_seed(0)
        answers.append(em.out_of_fold.log_proba(told))
    (network, linear), (other_network, other_linear) = answers
    # Whatever is said of a fold, its own members do not hear; those of the others do.
    np.testing.assert_array_equal(network[own], other_network[own])
    np.testing.assert_allclose(linear[own], other_linear[own], atol=0.02)
    assert np.abs(network[~own] - other_network[~own]).max() > 0.05
    assert np.abs(linear[~own] - other_linear[~own]).max() > 0.5


def test_what_is_learnt_by_heart_moves_no_posterior():
    # Features are the row's number: a network can repeat what it has seen and knows nothing else.
    _, A, _ = rare_crowd(n=66)
    model = CrossFittedEMClassifier(**QUICK | {"max_epochs": 40, "scaling": None})
    em = rounds_of(model, 8 * np.eye(66), A)
    labels = em.posterior.argmax(axis=1)
    log_probas = em.out_of_fold.log_proba(np.eye(2)[labels])
    by_heart = np.exp(log_probas[0])
    spread = np.ptp([by_heart[labels == c, 1].mean() for c in (0, 1)])
    assert spread < 0.05


def trained_networks(em):
    """Return the networks of the folds as they are after one round's training."""
    torch.manual_seed(0)
    return em.out_of_fold.train_networks(em.posterior)


def test_a_folds_network_does_not_normalise_by_its_own_features():
    X, A, _ = rare_crowd(n=66)
    # Batches of 22: there is more than one row of other folds in all of them.
    options = QUICK | {"batch_size": 22, "linear": False}
    model = CrossFittedEMClassifier({"name": "mlp", "batch_norm": True}, **options)
    em = rounds_of(model, X, A)
    before = [network.state_dict() for network in trained_networks(em)]
    em.out_of_fold.features.data[em.out_of_fold.rows[em.out_of_fold.folds == 0]] += 5.0
    after = [network.state_dict() for network in trained_networks(em)]
    assert any("running_mean" in name for name in before[0])
    for name, value in before[0].items():
        torch.testing.assert_close(after[0][name], value, rtol=0, atol=0)
    for fold in (1, 2):
        for name in (name for name in before[fold] if "running_mean" in name):
            assert (after[fold][name] - before[fold][name]).abs().max() > 0.05


def test_a_folds_network_is_trained_as_it_would_be_alone():
    X, A, _ = rare_crowd(n=66)
    torch.manual_seed(0)
    start = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    # All instances in a batch, folds of equal size: two epochs of ten steps.
    options = QUICK | {"batch_size": 66, "min_steps": 10, "lr": 0.01, "weight_decay": 0.1}
    em = rounds_of(CrossFittedEMClassifier(start, linear=False, **options), X, A)
    networks = trained_networks(em)
    x = em.out_of_fold.scaler(torch.from_numpy(X).float())
    q = torch.from_numpy(em.posterior).float()
    for fold, network in enumerate(networks):
        alone = copy.deepcopy(start)
        optimizer = torch.optim.Adam(alone.parameters(), lr=0.01, weight_decay=0.1)
        others = em.out_of_fold.folds != fold
        for _ in range(20):
            optimizer.zero_grad()
            loss = -(q[others] * alone(x[others]).log_softmax(dim=1)).sum(dim=1).mean()
            loss.backward()
            optimizer.step()
        for mine, expected in zip(network.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine, expected, rtol=0, atol=1e-3)


def test_no_member_rules_a_class_out():
    X, A, _ = rare_crowd(n=66)

    def sure(input_shape, n_classes):
        network = Says(0.5, 0.5)
        network.logits.data = torch.tensor([0.0, -1000.0])
        return network

    em = rounds_of(CrossFittedEMClassifier(sure, lr=1e-6, **QUICK), X, A)
    em.out_of_fold.by_regressions = lambda posterior: np.log(np.tile([1e-200, 1.0], (66, 1)))
    network, linear = em.out_of_fold.log_proba(em.posterior)
    assert torch.tensor([0.0, -1000.0]).double().softmax(dim=0)[1] == 0.0
    np.testing.assert_allclose(network, np.tile([0.0, math.log(1e-6)], (66, 1)), atol=1e-12)
    np.testing.assert_allclose(linear, np.tile([math.log(1e-6), 0.0], (66, 1)), atol=1e-12)


# -- a round --------------------------------------------------------------------------------------


def test_the_posterior_of_a_round_is_of_the_calibrated_prior_and_the_annotations():
    X, A, _ = rare_crowd(n=66)
    em = rounds_of(CrossFittedEMClassifier(**QUICK), X, A)
    confusion, log_probas = em.confusion, em.out_of_fold.log_proba(em.posterior)
    em.out_of_fold.log_proba = lambda posterior: log_probas
    terms = em("all instances")
    assert np.abs(em.shift).max() > 0.05
    assert np.abs(em.weights - 0.5).max() > 0.01
    nll = 0.0
    for i in range(66):
        prior = [
            math.exp(em.shift[c])
            * math.prod(math.exp(log_probas[m, i, c]) ** em.weights[m] for m in (0, 1))
            for c in (0, 1)
        ]
        said = [math.prod(confusion[r, c, A[i, r]] for r in range(9)) for c in (0, 1)]
        joint = [prior[c] / sum(prior) * said[c] for c in (0, 1)]
        nll -= math.log(sum(joint)) / 66
        np.testing.assert_allclose(em.posterior[i], np.array(joint) / sum(joint), rtol=1e-6)
    assert float(terms["nll"]) == pytest.approx(nll)
    expected = counted_confusion(A, em.posterior, 2.0)
    np.testing.assert_allclose(em.confusion, expected, rtol=1e-9)


def spied(monkeypatch, name, *modules):
    """Arguments and results of a function that some modules use, from now on."""
    function, calls = getattr(modules[0], name), []

    def spy(*arguments):
        kept = copy.deepcopy(arguments[2:])
        calls.append((kept, function(*arguments)))
        return calls[-1][1]

    for module in modules:
        monkeypatch.setattr(module, name, spy)
    return calls


def test_calibration_starts_where_the_last_round_ended(monkeypatch):
    X, A, _ = rare_crowd(n=66)
    calls = spied(monkeypatch, "calibrate", rounds)
    CrossFittedEMClassifier(**QUICK | {"n_rounds": 3}).fit(X, A)
    assert len(calls) == 3
    ends = [(np.full(2, 0.5), np.zeros(2)), *(found for _, found in calls[:-1])]
    for (start, _), end in zip(calls, ends, strict=True):
        for mine, expected in zip(start, end, strict=True):
            np.testing.assert_array_equal(mine, expected)


def test_regressions_start_where_the_last_round_ended(monkeypatch):
    X, A, _ = rare_crowd(n=66)
    calls = spied(monkeypatch, "fit_logistic", out_of_fold, last_training)
    CrossFittedEMClassifier(**QUICK | {"n_rounds": 3}).fit(X, A)
    starts = [start for (_, start), _ in calls]
    # The last training's is of all instances, and of its own.
    assert starts[0] is starts[3] is None
    for start, (_, found) in zip(starts[1:3], calls, strict=False):
        for mine, expected in zip(start, found, strict=True):
            torch.testing.assert_close(mine, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("min_steps", "steps"), [(1, 5), (7, 7)])
def test_rounds_train_for_half_the_epochs_of_as_many_steps(min_steps, steps, monkeypatch):
    X, A, _ = rare_crowd(n=66)  # Five minibatches.
    step, taken = GradientStep.__call__, Counter()

    def count(self, batch):
        taken[type(self).__name__] += 1
        return step(self, batch)

    monkeypatch.setattr(GradientStep, "__call__", count)
    options = QUICK | {"max_epochs": 5, "min_steps": min_steps}
    CrossFittedEMClassifier(**options).fit(X, A)
    assert taken == {"GradientStep": 2 * 3 * steps, "TargetStep": 5 * steps}


@pytest.mark.parametrize("reset", [False, True])
def test_optimisers_are_made_anew_every_epoch_where_asked_for(reset, monkeypatch):
    X, A, _ = rare_crowd(n=66)
    make, made = CrossFittedEMClassifier._adam, Counter()

    def count(self, module, n_networks):
        made[n_networks] += 1
        return make(self, module, n_networks)

    monkeypatch.setattr(CrossFittedEMClassifier, "_adam", count)
    # Networks: three in every one of two rounds, two in the last training.
    CrossFittedEMClassifier(**QUICK | {"max_epochs": 5}, reset_optimizer=reset).fit(X, A)
    assert made == ({3: 2 * 3, 2: 5} if reset else {3: 2, 2: 1})


# -- the whole ------------------------------------------------------------------------------------


def test_without_rounds_it_is_dawid_skene_and_a_class_weighted_network():
    X, A, _ = rare_crowd()
    shared = {"max_epochs": 3, "batch_size": 32, "random_state": 0, "device": "cpu"}
    model = CrossFittedEMClassifier(
        "mlp", n_rounds=0, n_networks=1, linear=False, min_steps=1, **shared
    ).fit(X, A)
    plain = AggregatedClassifier(DawidSkene(), "mlp", class_balance="reweight", **shared).fit(X, A)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    np.testing.assert_array_equal(model.posterior_, plain.aggregator_.posterior_)
    np.testing.assert_allclose(model.class_prior_, plain.class_prior_)
    assert {row["stage"] for row in model.history_} == {"train"}


def test_every_network_is_trained_as_it_would_be_alone():
    # Equal starts, no dropout: the ensemble's decay and mean must not change what each learns.
    X, A, _ = rare_crowd()
    torch.manual_seed(0)
    start = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    shared = SMALL | {"weight_decay": 0.1, "n_rounds": 0, "linear": False}
    one, three = (CrossFittedEMClassifier(start, n_networks=k, **shared).fit(X, A) for k in (1, 3))
    np.testing.assert_allclose(one.predict_proba(X), three.predict_proba(X), atol=1e-4)
    assert len(three.history_) == len(one.history_)
    np.testing.assert_allclose(
        three.history_.column("cross_entropy"), one.history_.column("cross_entropy"), rtol=1e-3
    )


def test_an_epoch_has_its_least_number_of_steps():
    def taken(n, batches):
        return list(at_least(n, lambda: iter(range(batches))))

    assert taken(1, 3) == taken(3, 3) == [0, 1, 2]
    assert taken(5, 3) == [0, 1, 2, 0, 1]
    assert taken(4, 1) == [0, 0, 0, 0]


def test_history_tells_of_rounds_and_epochs():
    X, A, _ = rare_crowd()
    model = CrossFittedEMClassifier(**QUICK).fit(X, A)
    em = [row for row in model.history_ if row["stage"] == "em"]
    last = [row for row in model.history_ if row["stage"] == "train"]
    assert (len(em), len(last)) == (2, 4)
    for row in em:
        assert row["loss"] == row["nll"] <= row["nll_uncalibrated"] + 1e-9
        assert row["share_0"] + row["share_1"] == pytest.approx(1.0)
    for row in last:
        assert set(row) == {"stage", "epoch", "cross_entropy", "loss", "seconds"}
        assert row["loss"] == row["cross_entropy"]
    weights = [em[-1]["weight_network"], em[-1]["weight_linear"]]
    np.testing.assert_allclose(model.member_weights_, weights)
    share = model.member_weights_ / model.member_weights_.sum()
    np.testing.assert_allclose(model.module_.classifier.backbone.weights, share, rtol=1e-6)
    np.testing.assert_allclose(model.posterior_.mean(axis=0)[1], em[-1]["share_1"])
    assert np.isin(model.labels_, model.classes_).all()


def test_annotations_are_predicted_by_the_counted_confusions():
    X, A, _ = rare_crowd(n=66)
    model = CrossFittedEMClassifier(**QUICK).fit(X, A)
    np.testing.assert_allclose(model.module_.confusions, model.confusion_, rtol=1e-6)
    expected = np.einsum("nc,rcg->nrg", model.predict_proba(X), model.confusion_)
    np.testing.assert_allclose(model.predict_annotation_proba(X), expected, rtol=1e-4)


def test_class_weights_are_those_of_the_last_training_alone():
    X, A, _ = rare_crowd()
    fits = {
        balance: CrossFittedEMClassifier(class_balance=balance, **QUICK).fit(X, A)
        for balance in (None, "reweight")
    }
    plain, weighted = fits[None], fits["reweight"]
    np.testing.assert_array_equal(plain.posterior_, weighted.posterior_)
    np.testing.assert_allclose(plain.class_prior_, plain.posterior_.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(weighted.class_prior_, 0.5, rtol=1e-5)
    more = weighted.predict_proba(X)[:, 1] - plain.predict_proba(X)[:, 1]
    assert more.mean() > 0.1
    # The regression is fitted to the weighted posterior.
    q = weighted.posterior_ / weighted.posterior_.sum(axis=0)
    q *= len(q) / q.sum()
    scaled = weighted.module_.classifier.scaler(torch.from_numpy(X).float())
    linear = weighted.module_.classifier.backbone.linear
    mine = linear(scaled).softmax(dim=1).detach().numpy()
    theirs = by_scikit_learn(scaled, torch.from_numpy(q).float())
    np.testing.assert_allclose(mine, theirs, atol=2e-3)


def test_it_recovers_a_rare_class():
    X, A, y = rare_crowd(shift=1.6)
    Xt, _, yt = rare_crowd(n=2200, seed=1, shift=1.6)
    short = {"n_rounds": 3, "n_folds": 3, "n_networks": 2, "max_epochs": 10, "min_steps": 10}
    model = CrossFittedEMClassifier(lr=5e-3, random_state=0, device="cpu", **short)
    plain = AggregatedClassifier(
        DawidSkene(), class_balance="reweight", max_epochs=30, random_state=0, device="cpu"
    )
    mine, theirs = (balanced_accuracy(yt, m.fit(X, A).predict(Xt)) for m in (model, plain))
    assert mine > theirs + 0.02
    assert (model.labels_ == y).mean() > (plain.aggregator_.labels_ == y).mean() + 0.05


def test_confusions_are_recovered():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=500)
    X = rng.normal(size=(500, 3)) + 3 * np.eye(3)[y]
    confusion = 0.1 + 0.7 * np.eye(3)
    confusion = np.stack([confusion, confusion[[0, 2, 1]], np.full((3, 3), 1 / 3)])
    A = np.stack([[rng.choice(3, p=confusion[r, c]) for r in range(3)] for c in y])
    model = CrossFittedEMClassifier(**QUICK | {"max_epochs": 10}).fit(X, A)
    assert np.abs(model.confusion_ - confusion).max() < 0.12
    assert (model.labels_ == y).mean() > 0.93


# -- resume ---------------------------------------------------------------------------------------


def train_until(monkeypatch, stage, epoch, model, X, A):
    """Fit until the checkpoint after some epoch of a stage, as if killed there."""
    write = Checkpoint.after_epoch

    def stop(self, row):
        write(self, row)
        if (row["stage"], row["epoch"]) == (stage, epoch):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "after_epoch", stop)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, A)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"validation": 0.2, "decision": "balanced"}])
@pytest.mark.parametrize(("stage", "epoch"), [("em", 1), ("em", 2), ("train", 2)])
def test_resume_ends_in_the_same_weights(options, stage, epoch, tmp_path, monkeypatch):
    X, A, _ = rare_crowd(n=66)
    options = QUICK | options
    whole = CrossFittedEMClassifier(**options).fit(X, A)
    file = tmp_path / "checkpoint"
    model = CrossFittedEMClassifier(checkpoint=file, **options)
    train_until(monkeypatch, stage, epoch, model, X, A)
    again = CrossFittedEMClassifier(checkpoint=file, **options).fit(X, A)
    np.testing.assert_array_equal(again.predict_proba(X), whole.predict_proba(X))
    for name in ("posterior_", "confusion_", "class_prior_", "member_weights_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
    facts = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in m.history_]
        for m in (whole, again)
    ]
    assert facts[0] == facts[1]


# -- what it works with ---------------------------------------------------------------------------


def test_patience_ends_the_last_training_alone():
    X, A, y = make_crowd_problem()
    options = QUICK | {"n_rounds": 3, "max_epochs": 30, "lr": 1e-9}
    model = CrossFittedEMClassifier(validation=(X, y), patience=1, **options).fit(X, A)
    stages = [row["stage"] for row in model.history_]
    assert stages.count("em") == 3
    assert stages.count("train") < 30
    assert (model.best_stage_, model.best_epoch_) == ("train", 1)


def test_no_round_is_kept_for_its_validation(monkeypatch):
    X, A, y = rare_crowd(n=66)
    accuracies = iter([1.0, 0.9, 0.1, 0.5, 0.3, 0.2])

    def told(self):
        return {"validation_accuracy": next(accuracies)}

    monkeypatch.setattr(GoldMonitor, "__call__", told)
    model = CrossFittedEMClassifier(validation=(X, y), **QUICK).fit(X, A)
    assert model.history_[0]["validation_accuracy"] == 1.0
    assert (model.best_stage_, model.best_epoch_) == ("train", 2)


def test_instances_without_annotations_are_judged_by_the_classifier():
    X, A, _ = make_crowd_problem()
    A[5:9] = -1
    model = CrossFittedEMClassifier(**QUICK).fit(X, A)
    np.testing.assert_allclose(model.posterior_[5:9], model.predict_proba(X[5:9]), rtol=1e-6)
    other = X.copy()
    other[5:9] = 100.0
    again = CrossFittedEMClassifier(**QUICK).fit(other, A)
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))


@pytest.mark.parametrize("n_rare", [1, 2])
def test_classes_of_an_instance_or_two(n_rare):
    X, A, y = make_crowd_problem(n=45)
    A[(y == 2) & (np.cumsum(y == 2) > n_rare)] = -1
    model = CrossFittedEMClassifier(**QUICK | {"n_folds": 5}).fit(X, A)
    assert np.isfinite(model.predict_proba(X)).all()
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1.0)


def test_a_class_nobody_named():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2, 3])
    model = CrossFittedEMClassifier(decision="balanced", **QUICK).fit(X, table)
    assert np.isfinite(model.predict_proba(X)).all()
    assert 3 not in model.predict(X)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_instances_than_folds(n):
    X = np.eye(3, 4)[:n]
    A = np.array([[0, 1, -1], [1, 1, 0], [0, -1, 0]])[:n]
    model = CrossFittedEMClassifier(**QUICK | {"n_folds": 5}).fit(X, A)
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(model.posterior_).all()


@pytest.mark.parametrize("n", [3, 17])
def test_images_and_batch_normalisation(n):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 1, 8, 8)).astype(np.float32) + y[:, None, None, None]
    A = np.stack([y, y, 1 - y], axis=1)
    options = QUICK | {"batch_size": 4, "max_epochs": 2}
    model = CrossFittedEMClassifier(lambda s, c: CNN(s, c, channels=(4,), hidden=8), **options)
    assert model.fit(X, A).transform(X).shape == (n, 8)
    assert isinstance(model.module_.classifier.backbone.linear, Linear)


def test_wide_sparse_features(monkeypatch):
    X, A, _ = make_crowd_problem()
    rng = np.random.default_rng(0)
    wide = np.hstack([X, np.where(rng.random((48, 500)) < 0.01, 1.0, 0.0)]).astype(np.float32)
    held = CrossFittedEMClassifier(**QUICK).fit(csr_matrix(wide), A)
    monkeypatch.setattr("manyhands.classifiers.cross_fitted.networks.HELD_NUMBERS", 0)
    read_again = CrossFittedEMClassifier(**QUICK).fit(csr_matrix(wide), A)
    np.testing.assert_array_equal(held.predict_proba(wide), read_again.predict_proba(wide))


def test_annotations_of_one_annotator_and_weights():
    X, A, y = make_crowd_problem()
    one = CrossFittedEMClassifier(**QUICK).fit(X, y)
    assert (one.labels_ == y).mean() > 0.9
    table = AnnotationTable.from_matrix(A)
    double = table.take(np.repeat(np.arange(table.n_annotations), 2))
    counts = [count_confusions(LatentClasses(t), np.eye(3)[y], 0.0) for t in (table, double)]
    np.testing.assert_allclose(*counts)


@pytest.mark.parametrize("n_rounds", [0, 3])
def test_labels_are_the_annotations_where_there_is_one_an_instance(n_rounds):
    X, A, _ = rare_crowd(n=66)
    alone = np.where(np.arange(9) == np.arange(66)[:, None] % 9, A, -1)
    model = CrossFittedEMClassifier(**QUICK | {"n_rounds": n_rounds}).fit(X, alone)
    np.testing.assert_array_equal(model.labels_, alone.max(axis=1))


@pytest.mark.parametrize("options", [{"n_rounds": 1, "n_networks": 1}, {"n_rounds": 0}])
def test_one_network_for_all_is_refused(options):
    X, A, _ = make_crowd_problem()
    network = MLP((4,), 3)
    model = CrossFittedEMClassifier(lambda s, c: network, **QUICK | options)
    with pytest.raises(AnnotationError, match="backbone is a factory whose modules share"):
        model.fit(X, A)


def test_a_trunk_may_be_shared_only_where_it_is_frozen():
    X, A, _ = make_crowd_problem()
    trunk = torch.nn.Linear(4, 8)

    def factory(shape, n_classes):
        return torch.nn.Sequential(trunk, torch.nn.ReLU(), torch.nn.Linear(8, n_classes))

    with pytest.raises(AnnotationError, match="share trainable parameters"):
        CrossFittedEMClassifier(factory, **QUICK).fit(X, A)
    trunk.requires_grad_(False)
    CrossFittedEMClassifier(factory, **QUICK).fit(X, A)


def test_a_saved_model_decides_and_embeds_as_before(tmp_path):
    X, A, _ = rare_crowd(n=66)
    model = CrossFittedEMClassifier(class_balance=None, decision="balanced", **QUICK).fit(X, A)
    model.save(tmp_path)
    loaded = load(tmp_path, device="cpu")
    np.testing.assert_array_equal(model.predict(X), loaded.predict(X))
    np.testing.assert_array_equal(model.transform(X), loaded.transform(X))
    for name in ("posterior_", "class_prior_", "member_weights_", "labels_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(loaded, name))


def test_the_default_network_drops_less_out_in_the_last_training():
    X, A, _ = make_crowd_problem()
    model = CrossFittedEMClassifier(**QUICK).fit(X, A)
    rates = [m.p for m in model.module_.modules() if isinstance(m, torch.nn.Dropout)]
    assert rates == [0.2, 0.2]
    named = CrossFittedEMClassifier("mlp", **QUICK).fit(X, A)
    rates = [m.p for m in named.module_.modules() if isinstance(m, torch.nn.Dropout)]
    assert rates == [0.5, 0.5]


def test_continuing_from_another_is_refused():
    X, A, _ = make_crowd_problem()
    with pytest.raises(ValueError, match="begins with the posterior of Dawid and Skene"):
        CrossFittedEMClassifier().fit(X, A, start=CrossFittedEMClassifier())


def test_a_crowd_of_the_library():
    y = np.arange(120) % 4
    table = make_crowd(y, n_annotators=8, annotations_per_instance=3, random_state=0)
    X = np.random.default_rng(0).normal(size=(120, 5)) + 3 * np.eye(4, 5)[y]
    model = CrossFittedEMClassifier(**QUICK | {"max_epochs": 10}).fit(X, table)
    assert (model.labels_ == model.classes_[y]).mean() > 0.9
