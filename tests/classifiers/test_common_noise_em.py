"""CoNAL by EM: both steps in loops, a limit of the gate, recovery of a common confusion."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evidence.data import make_conal_synthetic
from manyhands import (
    AggNetClassifier,
    AnnotationTable,
    CommonNoiseEMClassifier,
    CommonNoiseEMProtocol,
)
from manyhands.classifiers.common_noise_em import (
    _TargetsOfBoth,
    confusion_sums,
    expectation,
    gate_nll,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.fitting.latent import LatentClasses
from manyhands.inference.votes import make_votes
from manyhands.nn import FixedCommonNoiseModule, make_scaled
from manyhands.training import CrowdBatch
from tests.building import built
from tests.classifiers.test_agg_net import some_table
from tests.rounding import assert_near


def parts(seed=1, n=18, n_annotators=6):
    """Votes, and random probabilities, gates and matrices for them."""
    table, rng = some_table(), np.random.default_rng(seed)
    votes = LatentClasses(table).votes
    return (
        votes,
        rng.dirichlet(np.ones(3), n),
        rng.uniform(size=votes.n_annotations),
        rng.dirichlet(np.ones(3), 3),
        rng.dirichlet(np.ones(3), (n_annotators, 3)),
    )


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_the_e_step_equals_the_formulas_in_loops(floor):
    votes, proba, gate, common, individual = parts()
    found = expectation(votes, proba, gate, common, individual, floor=floor)
    joint = proba.copy()
    for a, (i, r, y) in enumerate(
        zip(votes.instance, votes.annotator, votes.response, strict=True)
    ):
        for c in range(3):
            likelihood = gate[a] * common[c, y] + (1 - gate[a]) * individual[r, c, y]
            joint[i, c] *= (likelihood + floor) ** votes.weight[a]
    posterior = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.posterior, posterior, atol=1e-12)
    for a, (i, r, y) in enumerate(
        zip(votes.instance, votes.annotator, votes.response, strict=True)
    ):
        for c in range(3):
            of_common = gate[a] * common[c, y]
            of_own = (1 - gate[a]) * individual[r, c, y]
            for source, sums in (
                (of_common, found.from_common),
                (of_own, found.from_individual),
            ):
                expected = posterior[i, c] * source / (of_common + of_own)
                np.testing.assert_allclose(sums[a, c], expected, atol=1e-12)


def test_the_sums_of_the_m_step_equal_loops():
    votes, *_ = parts()
    values = np.random.default_rng(0).uniform(size=(votes.n_annotations, 3))
    expected = np.zeros((6, 3, 3))
    for a, (r, y) in enumerate(zip(votes.annotator, votes.response, strict=True)):
        for c in range(3):
            expected[r, c, y] += votes.weight[a] * values[a, c]
    np.testing.assert_allclose(confusion_sums(votes, values), expected, atol=1e-12)


def test_the_e_step_by_hand():
    """p = (.5, .5); a gate of .5; the crowd says 1 for a 0 in .6, the annotator in .2."""
    votes = make_votes(AnnotationTable.from_matrix(np.array([[1]]), classes=[0, 1]))
    common = np.array([[0.4, 0.6], [0.0, 1.0]])
    own = np.array([[[0.8, 0.2], [0.2, 0.8]]])
    found = expectation(votes, np.array([[0.5, 0.5]]), np.array([0.5]), common, own)
    # Class 0: .3 + .1 = .4; class 1: .5 + .4 = .9.
    np.testing.assert_allclose(found.posterior, [[4 / 13, 9 / 13]])
    np.testing.assert_allclose(found.from_common, [[4 / 13 * 0.75, 9 / 13 * 5 / 9]])


def small_module(n_annotators=4, n_classes=3, seed=0):
    torch.manual_seed(seed)
    classifier = make_scaled("linear", None, (5,), n_classes)
    module = FixedCommonNoiseModule(classifier, n_classes, n_annotators, input_shape=(5,))
    rng = np.random.default_rng(seed)
    module.common.copy_(torch.from_numpy(rng.dirichlet(np.ones(n_classes), n_classes)))
    own = rng.dirichlet(np.ones(n_classes), (n_annotators, n_classes))
    module.individual.copy_(torch.from_numpy(own))
    return module


def test_the_modules_probabilities_and_the_gates_loss_equal_loops():
    module, x = small_module(), torch.randn(2, 5)
    rows, annotators = torch.tensor([0, 0, 1]), torch.tensor([1, 3, 0])
    labels, weights = torch.tensor([2, 0, 1]), torch.tensor([1.0, 0.5, 2.0])
    targets = torch.tensor([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]])
    gate = module.gate(x, rows, annotators)
    proba = module(x).softmax(dim=1)
    log_proba = module.annotation_log_proba(x, rows, annotators)
    nll = 0.0
    for a, (i, r, y) in enumerate(zip(rows, annotators, labels, strict=True)):
        mixed = gate[a] * module.common + (1 - gate[a]) * module.individual[r]
        np.testing.assert_allclose(
            log_proba[a].exp().detach(), (proba[i] @ mixed).detach(), atol=1e-6
        )
        nll -= weights[a] * (targets[i] * mixed[:, y].log()).sum() / 3
    batch = CrowdBatch(x, torch.arange(2), rows, annotators, labels, weights)
    np.testing.assert_allclose(gate_nll(module, batch, targets).detach(), nll.detach(), rtol=1e-5)
    grid = module.annotation_log_proba_grid(x, torch.arange(4))
    np.testing.assert_allclose(grid[rows, annotators].detach(), log_proba.detach(), atol=1e-6)


class Closed(FixedCommonNoiseModule):
    """The gate is 0: every annotation comes from the annotator's own matrix."""

    def _gate_logit(self, scaled, rows, annotators):
        return torch.full((len(rows),), -1e4)

    def embed_annotators(self, annotators):
        return torch.full((len(annotators), 1), -1e4)

    def embed_instances(self, scaled):
        return torch.ones(len(scaled), 1)


class WithoutCommon(CommonNoiseEMClassifier):
    def _build_module(self, classifier, input_shape):
        return Closed(classifier, len(self.classes_), self.n_annotators_, input_shape=input_shape)


class Counted(AggNetClassifier):
    """Confusion matrices as EM counts them, without the crowd's answer in every row."""

    @property
    def _traits(self):
        return replace(super()._traits, shrinks_confusions=False)


def test_with_a_gate_of_zero_it_is_aggnet():
    X, A, _ = make_crowd_problem(seed=0)
    common = {
        "backbone": "linear", "max_epochs": 6, "random_state": 0, "device": "cpu", "smoothing": 0
    }  # fmt: skip
    found = built(WithoutCommon, **common).fit(X, A)
    expected = built(Counted, **common).fit(X, A)
    np.testing.assert_allclose(found.posterior_, expected.posterior_, atol=1e-5)
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(found.confusion_, expected.confusion_, atol=1e-5)


def test_it_recovers_a_common_confusion():
    """Half of the annotations come from a common source, and are wrong in 70 %.

    Without the sources in the M-step, or without training of the gate, the error is above .1.
    """
    data = make_conal_synthetic(
        common_noise="asymmetric", common_strength=0.7, common_proportion=0.5,
        individual_strength=0.3, random_state=0,
    )  # fmt: skip
    model = CommonNoiseEMClassifier(max_epochs=25, random_state=0, device="cpu")
    model.fit(data.X_train, data.annotations)
    assert (model.predict(data.X_test) == data.y_test).mean() > 0.9
    error = np.abs(model.common_confusion_ - data.truth.common_confusion).mean()
    assert error < 0.06, error


def far_from_centred(seed=0):
    """Features with means and spreads that scaling must remove, and weighted annotations."""
    X = np.random.default_rng(seed).normal(5, 3, size=(20, 4)).astype(np.float32)
    return X, some_table(seed)


def test_fitted_attributes_follow_from_the_fitted_network_in_loops():
    X, A = far_from_centred()
    model = CommonNoiseEMClassifier(
        max_epochs=4, scaling="standard", random_state=0, device="cpu"
    ).fit(X, A)
    proba, common = model.predict_proba(X), model.common_confusion_
    joint = np.log(proba + model._protocol.proba_floor)
    gates = [[] for _ in range(6)]
    with torch.inference_mode():
        for i, r, y, w in zip(A.instance, A.annotator, A.label, A.weight, strict=True):
            pair = torch.tensor([0]), torch.tensor([int(r)])
            gate = model.module_.gate(torch.from_numpy(X[i : i + 1]), *pair).item()
            gates[r].append((gate, w))
            mixed = gate * common[:, y] + (1 - gate) * model.individual_confusion_[r, :, y]
            joint[i] += w * np.log(mixed + model._protocol.confusion_floor)
    posterior = np.exp(joint) / np.exp(joint).sum(axis=1, keepdims=True)
    posterior[18:] = proba[18:]
    np.testing.assert_allclose(model.posterior_, posterior, atol=1e-5)
    for r in range(5):
        mean = np.average([g for g, _ in gates[r]], weights=[w for _, w in gates[r]])
        np.testing.assert_allclose(model.common_proportion_[r], mean, rtol=1e-5)
        mixed = mean * common + (1 - mean) * model.individual_confusion_[r]
        np.testing.assert_allclose(model.confusion_[r], mixed, atol=1e-5)


def test_the_second_epoch_begins_with_both_steps():
    """Without learning, the network and the gate are as they began, so both steps can be redone."""
    X, A = far_from_centred()
    model = CommonNoiseEMClassifier(
        max_epochs=2,
        lr=1e-12,
        random_state=0,
        device="cpu",
        protocol=CommonNoiseEMProtocol(noise_lr=1e-12),
    ).fit(X, A)
    votes = LatentClasses(A).votes
    shares = LatentClasses(A).vote_shares()
    own = confusion_sums(votes, shares[votes.instance])
    first = own.sum(axis=0) + 0.01
    first /= first.sum(axis=1, keepdims=True)
    own = own + 0.03 * first
    own /= own.sum(axis=2, keepdims=True)
    with torch.inference_mode():
        instance = torch.from_numpy(votes.instance.astype(np.int64))
        annotator = torch.from_numpy(votes.annotator.astype(np.int64))
        gate = model.module_.gate(torch.from_numpy(X), instance, annotator).numpy()
    proba = model.predict_proba(X)[:18] + model._protocol.proba_floor
    expected = expectation(votes, proba, gate, first, own, floor=model._protocol.confusion_floor)
    common = confusion_sums(votes, expected.from_common).sum(axis=0) + 0.01
    common /= common.sum(axis=1, keepdims=True)
    individual = confusion_sums(votes, expected.from_individual) + 0.03 * common
    individual /= individual.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(model.common_confusion_, common, atol=1e-5)
    np.testing.assert_allclose(model.individual_confusion_, individual, atol=1e-5)


def test_the_gate_is_trained_on_the_targets_of_its_own_instances():
    module, x = small_module(), torch.randn(2, 5)
    rows, annotators = torch.tensor([0, 1, 1]), torch.tensor([1, 3, 0])
    labels = torch.tensor([2, 0, 1])
    targets = _TargetsOfBoth(None, torch.device("cpu"))
    all_rows = np.random.default_rng(0).dirichlet(np.ones(3), 6)
    targets.set(all_rows, np.random.default_rng(0))
    batch = CrowdBatch(x, torch.tensor([4, 1]), rows, annotators, labels, None)
    terms = targets.objective(module, batch)
    own = torch.from_numpy(all_rows[[4, 1]]).float()
    torch.testing.assert_close(terms["gate_nll"], gate_nll(module, batch, own))
    log_proba = module(x).log_softmax(dim=1)
    torch.testing.assert_close(terms["cross_entropy"], -(own * log_proba).sum(dim=1).mean())


def test_a_partial_fit_goes_on_from_the_matrices():
    """A late piece of 2 % must not bring back the counts against the vote shares."""
    data = make_conal_synthetic(
        common_noise="asymmetric", common_strength=0.7, common_proportion=0.5,
        individual_strength=0.3, random_state=0,
    )  # fmt: skip
    n = len(data.X_train)
    first, late = np.arange(n - n // 50), np.arange(n - n // 50, n)
    model = CommonNoiseEMClassifier(max_epochs=25, random_state=0, device="cpu")
    model.partial_fit(data.X_train[first], data.annotations.select(first))
    before = (model.labels_ == data.y_train[first]).mean()
    model.partial_fit(data.X_train[late], data.annotations.select(late))
    assert (model.labels_ == data.y_train).mean() > before - 0.02


def test_silent_annotators_and_instances():
    A = some_table()
    X = np.random.default_rng(0).normal(size=(20, 4))
    model = CommonNoiseEMClassifier(max_epochs=2, random_state=0, device="cpu").fit(X, A)
    assert np.isnan(model.common_proportion_).tolist() == [False] * 5 + [True]
    assert_near(model.confusion_.sum(axis=2), 1, n=3)
    assert_near(model.posterior_.sum(axis=1), 1, n=3)
    np.testing.assert_allclose(
        model.posterior_[18:], model.predict_proba(X)[18:], atol=1e-6, err_msg="given x alone"
    )
