"""Co-teaching: what a batch leaves out, by hand and by a loop; limiting cases; noisy labels."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.utils._param_validation import InvalidParameterError
from torch.testing import assert_close

from manyhands import (
    AggregatedClassifier,
    CoTeachingClassifier,
    CoTeachingProtocol,
    DawidSkene,
    MajorityVote,
    load,
)
from manyhands.classifiers.co_teaching import (
    exchange_small_losses,
    expected_noise,
    forget_rates,
    n_kept,
    small_losses,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.fitting.latent import SoftTargets
from manyhands.nn import MLP
from manyhands.sampling import ClassBalance
from tests.building import built

QUICK = {"max_epochs": 3, "batch_size": 16, "lr": 1e-2, "random_state": 0, "device": "cpu"}
CPU = torch.device("cpu")


def logits_of(*proba_of_class_0):
    """Logits (n, 2) of given probabilities of class 0."""
    proba = torch.tensor(proba_of_class_0)
    return torch.stack([proba, 1 - proba], dim=1).log()


def make_targets(labels, n_classes=2, balance=None):
    targets = SoftTargets(balance, CPU)
    targets.set(np.eye(n_classes)[labels], np.random.default_rng(0))
    return targets


def make_networks():
    """Two networks without dropout that start apart."""
    torch.manual_seed(1)
    return [MLP((4,), 3, dropout=0.0) for _ in range(2)]


def in_turn(networks):
    """Factory that hands out copies of the networks, one after another."""
    turn = itertools.cycle(networks)
    return lambda input_shape, n_classes: copy.deepcopy(next(turn))


def simulate(seed, n=600, wrong=0.45):
    """Three classes in 10 dimensions, an annotation each, of which many name the next class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, 10)) + 2.0 * np.eye(10)[y]
    given = np.where(rng.random(n) < wrong, (y + 1) % 3, y)
    A = np.full((n, 4), -1)
    A[np.arange(n), rng.integers(4, size=n)] = given
    return X, A, y


# -- the schedule ---------------------------------------------------------------------------------


def test_schedule_by_hand():
    """R(T) = 1 - min(T / T_k tau, tau) after epoch T, so that the first keeps all."""
    np.testing.assert_allclose(forget_rates(0.4, 4, 7), [0.0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    np.testing.assert_array_equal(forget_rates(0.4, 1, 3), [0.0, 0.4, 0.4])
    np.testing.assert_allclose(forget_rates(0.4, 10, 3), [0.0, 0.04, 0.08])


def test_at_least_the_share_is_kept():
    """|D'| >= R(T) |D|: rounded up, but for what is a rounding error."""
    assert [n_kept(n, 0.25) for n in (1, 3, 4, 5)] == [1, 3, 3, 4]
    assert n_kept(10, 0.7) == 3
    assert n_kept(2, 0.999) == 1
    assert n_kept(7, 0.0) == 7


def test_the_models_schedule_is_the_one_it_trains_by(monkeypatch):
    seen = []

    def spy(first, second, targets, instances, rate):
        seen.append(rate)
        return exchange_small_losses(first, second, targets, instances, rate)

    monkeypatch.setattr("manyhands.classifiers.co_teaching.exchange_small_losses", spy)
    X, A, _ = make_crowd_problem()
    model = built(
        CoTeachingClassifier,
        forget_rate=0.5,
        **QUICK | {"max_epochs": 4},
        protocol=CoTeachingProtocol(gradual_epochs=2),
    )
    model.fit(X, A)
    np.testing.assert_allclose(model.forget_rates_, [0.0, 0.25, 0.5, 0.5])
    assert seen == np.repeat(model.forget_rates_, 3).tolist(), "48 instances are three batches"


# -- the selection --------------------------------------------------------------------------------


def test_selection_by_hand():
    """Losses are -log of .9, .2, .6, .7: the second instance is the worst, then the third."""
    logits, targets = logits_of(0.9, 0.8, 0.6, 0.3), torch.eye(2)[[0, 1, 0, 1]]
    assert small_losses(logits, targets, 4).tolist() == [0, 1, 2, 3]
    assert small_losses(logits, targets, 3).tolist() == [0, 2, 3]
    assert small_losses(logits, targets, 2).tolist() == [0, 3]
    assert small_losses(torch.zeros(4, 2), targets, 2).tolist() == [0, 1], "ties: the first"


def test_each_learns_what_the_other_chose():
    """Labels are all 0. The first doubts instance 3, the second instance 0."""
    first, second = logits_of(0.9, 0.8, 0.7, 0.1), logits_of(0.2, 0.9, 0.6, 0.8)
    terms = exchange_small_losses(first, second, make_targets([0] * 4), torch.arange(4), 0.25)
    assert_close(float(terms["cross_entropy_1"]), -math.log(0.8 * 0.7 * 0.1) / 3)
    assert_close(float(terms["cross_entropy_2"]), -math.log(0.2 * 0.9 * 0.6) / 3)


def test_gradients_come_from_the_chosen_instances_alone():
    first = logits_of(0.9, 0.8, 0.7, 0.1).requires_grad_()
    second = logits_of(0.2, 0.9, 0.6, 0.8).requires_grad_()
    terms = exchange_small_losses(first, second, make_targets([0] * 4), torch.arange(4), 0.25)
    sum(terms.values()).backward()
    assert first.grad.any(dim=1).tolist() == [False, True, True, True]
    assert second.grad.any(dim=1).tolist() == [True, True, True, False]


def loss_by_loops(learner, teacher, weights, labels, batch, rate):
    """Loss of the learner over what the teacher chooses, with nothing but Python's floats."""

    def cross_entropy(logits, label):
        return math.log(sum(math.exp(v) for v in logits)) - logits[label]

    losses = {k: cross_entropy(teacher[k], labels[i]) for k, i in enumerate(batch)}
    size = math.ceil((1 - rate) * len(batch))
    chosen = sorted(losses, key=losses.get)[:size]
    return sum(
        weights[labels[batch[k]]] * cross_entropy(learner[k], labels[batch[k]]) for k in chosen
    ) / len(chosen)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
def test_loss_equals_a_slow_loop(balanced, rate):
    """Rare classes weigh more in what is learnt, not in what is chosen."""
    torch.manual_seed(0)
    labels, batch = [0, 0, 0, 0, 0, 0, 1, 1, 2, 0], [7, 2, 8, 0, 5]
    targets = make_targets(labels, 3, ClassBalance("reweight") if balanced else None)
    counts = [labels.count(c) for c in range(3)]
    weights = [len(labels) / 3 / n if balanced else 1.0 for n in counts]
    first, second = torch.randn(2, len(batch), 3).double()
    terms = exchange_small_losses(first, second, targets, torch.tensor(batch), rate)
    for name, pair in [("cross_entropy_1", (first, second)), ("cross_entropy_2", (second, first))]:
        slow = loss_by_loops(*(p.tolist() for p in pair), weights, labels, batch, rate)
        assert_close(float(terms[name]), slow, rtol=1e-6, atol=1e-6)


# -- limiting cases -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"aggregator": DawidSkene(), "targets": "soft"}])
def test_nothing_forgotten_is_two_networks_trained_apart(options):
    """With tau = 0 each is `AggregatedClassifier` with its own start, and prediction their mean."""
    X, A, _ = make_crowd_problem()
    networks = make_networks()
    both = built(CoTeachingClassifier, in_turn(networks), forget_rate=0.0, **options, **QUICK).fit(
        X, A
    )
    apart = [
        built(
            AggregatedClassifier, backbone=network, **{"targets": "hard", **options}, **QUICK
        ).fit(X, A)
        for network in networks
    ]
    for ours, theirs in zip(both.module_.classifier.backbone.networks, apart, strict=True):
        for name, value in theirs.module_.classifier.backbone.state_dict().items():
            assert_close(ours.state_dict()[name], value)
    for number, model in enumerate(apart, start=1):
        np.testing.assert_allclose(
            both.history_.column(f"cross_entropy_{number}"),
            model.history_.column("loss"),
            rtol=1e-5,
        )
    mean = np.mean([model.predict_proba(X) for model in apart], axis=0)
    np.testing.assert_allclose(both.predict_proba(X), mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(both.confusion_, apart[0].confusion_)


def test_forgetting_starts_with_the_second_epoch():
    X, A, _ = make_crowd_problem()
    rates = {"forget_rate": 0.5, "gradual_epochs": 1}
    one = built(CoTeachingClassifier, **rates, **QUICK | {"max_epochs": 1}).fit(X, A)
    all_kept = built(CoTeachingClassifier, forget_rate=0.0, **QUICK | {"max_epochs": 1}).fit(X, A)
    np.testing.assert_array_equal(one.predict_proba(X), all_kept.predict_proba(X))
    two = built(CoTeachingClassifier, **rates, **QUICK | {"max_epochs": 2}).fit(X, A)
    all_kept.set_params(max_epochs=2).fit(X, A)
    assert not np.allclose(two.predict_proba(X), all_kept.predict_proba(X))


def test_a_module_of_ones_own_gives_equal_networks():
    """As documented; a factory does not."""
    X, A, _ = make_crowd_problem()
    model = built(CoTeachingClassifier, make_networks()[0], forget_rate=0.3, **QUICK).fit(X, A)
    first, second = model.module_.classifier.backbone.networks
    assert_close(first.state_dict(), second.state_dict())
    model = built(CoTeachingClassifier, in_turn(make_networks()), forget_rate=0.3, **QUICK).fit(
        X, A
    )
    first, second = (network.state_dict() for network in model.module_.classifier.backbone.networks)
    assert not any(torch.equal(value, second[name]) for name, value in first.items())


def test_a_factory_that_makes_one_network_is_refused():
    X, A, _ = make_crowd_problem()
    network = make_networks()[0]
    with pytest.raises(AnnotationError, match="share trainable parameters"):
        built(CoTeachingClassifier, lambda input_shape, n_classes: network, **QUICK).fit(X, A)


# -- the forget rate ------------------------------------------------------------------------------


def test_expected_noise_by_hand():
    assert expected_noise(np.array([[1.0, 0.0], [0.4, 0.6]])) == pytest.approx(0.2)


@pytest.mark.parametrize("aggregator", [None, DawidSkene()])
def test_the_forget_rate_is_what_the_aggregator_expects_of_its_labels(aggregator):
    """Over annotated instances alone: of the others an aggregator knows the prior."""
    X, A, _ = make_crowd_problem()
    A[:6] = -1
    model = built(
        CoTeachingClassifier,
        aggregator=aggregator,
        **QUICK,
        protocol=CoTeachingProtocol(gradual_epochs=1),
    ).fit(X, A)
    posterior = (aggregator or MajorityVote()).fit(A).posterior_[6:]
    assert model.forget_rates_[-1] == pytest.approx(1 - posterior.max(axis=1).mean())
    assert 0 < model.forget_rates_[-1] < 0.5


def test_a_crowd_without_doubts_is_forgotten_nothing():
    X, A, _ = simulate(0, n=50)
    assert not built(CoTeachingClassifier, **QUICK).fit(X, A).forget_rates_.any()


@pytest.mark.parametrize("rate", [1.0, -0.1])
def test_a_rate_out_of_range_is_refused(rate):
    X, A, _ = make_crowd_problem()
    with pytest.raises(InvalidParameterError, match="forget_rate"):
        built(CoTeachingClassifier, forget_rate=rate, **QUICK).fit(X, A)


def test_a_saved_model_has_its_schedule_and_both_networks(tmp_path):
    X, A, _ = make_crowd_problem()
    model = built(CoTeachingClassifier, aggregator=DawidSkene(), **QUICK).fit(X, A)
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.forget_rates_, model.forget_rates_)
    np.testing.assert_array_equal(loaded.class_prior_, model.class_prior_)
    state = loaded.module_.classifier.backbone.state_dict()
    for name, value in model.module_.classifier.backbone.state_dict().items():
        assert torch.equal(state[name], value)


# -- what it is for -------------------------------------------------------------------------------


def test_noisy_labels_are_forgotten():
    """Of 45 % wrong labels, those chosen in the end are more often right; so are predictions."""
    settings = {"batch_size": 64, "lr": 1e-2, "weight_decay": 0.0, "device": "cpu"}
    gains = []
    for seed in range(2):
        X, A, y = simulate(seed)
        X_test, _, y_test = simulate(100 + seed)
        accuracies = []
        for rate in (0.0, 0.45):
            model = built(
                CoTeachingClassifier,
                "mlp",
                forget_rate=rate,
                max_epochs=15,
                random_state=seed,
                **settings,
            ).fit(X, A)
            accuracies.append(model.score(X_test, y_test))
        given = A.max(axis=1)
        proba = model.predict_proba(X)[np.arange(len(y)), given]
        kept = np.argsort(-proba)[: n_kept(len(y), 0.45)]
        assert (given[kept] == y[kept]).mean() > (given == y).mean() + 0.1
        assert accuracies[1] > 0.6, "of three classes"
        gains.append(accuracies[1] - accuracies[0])
    assert np.mean(gains) > 0.02, gains
