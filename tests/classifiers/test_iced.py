"""ICED: limiting cases, its parts by hand and against loops, and what it says of itself."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import manyhands
from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    DawidSkene,
    ICEDClassifier,
    ICEDProtocol,
)
from manyhands.annotations import certainty_groups, label_certainty
from manyhands.classifiers.iced.inference import LabelInference
from manyhands.classifiers.iced.synthesis import Synthesis
from manyhands.classifiers.iced.warm_up import group_by_certainty, warm_up_phases
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.fitting import Watch
from manyhands.fitting.latent import SoftTargets
from manyhands.metrics import minority_recall
from manyhands.nn import MLP
from manyhands.nn.synthesis import Decoder
from manyhands.sampling import CrowdSMOTE, FewCandidatesWarning
from manyhands.training import Checkpoint
from tests.building import built
from tests.classifiers.conftest import ICED_QUICK, imbalanced

QUICK = ICED_QUICK | {"batch_size": 64, "warm_up_batch_size": 64}


class Killed(Exception):
    pass


def killed_after(place, model, X, y, monkeypatch):
    """Fit until an epoch (stage, number) has its checkpoint; return the module as it was then."""
    written, states = Checkpoint.on_epoch_end, []

    def die(self, number, row):
        written(self, number, row)
        if (row["stage"], row["epoch"]) == place:
            states.append({k: v.clone() for k, v in self.module.state_dict().items()})
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", die)
        with pytest.raises(Killed):
            model.fit(X, y)
    return states[0]


class Noting(CrowdSMOTE):
    """Notes what it was asked and what it chose, through every clone."""

    asked: list = []
    chosen: list = []

    def fit_resample(self, X, table, *, labels=None):
        made = super().fit_resample(X, table, labels=labels)
        self.asked.append(labels)
        self.chosen.append(self.parents_)
        return made


@pytest.fixture
def noting():
    Noting.asked.clear()
    Noting.chosen.clear()
    return Noting()


# -- limiting cases ---------------------------------------------------------------------------


class FromVotesOrLabels(DawidSkene):
    """Starts hard EM as the paper does, from the labels of majority vote, ties shared."""

    def fit(self, table, y=None, **options):
        shares = table.vote_counts()
        top = shares == shares.max(axis=1, keepdims=True)
        start = top / top.sum(axis=1, keepdims=True)
        return super().fit(table, start=start if self.em == "hard" else None, **options)


@pytest.mark.parametrize("em", ["hard", "soft"])
@pytest.mark.parametrize("prior", ["uniform", "estimated"])
def test_without_synthesis_and_warm_up_it_is_dawid_skene_and_then_a_classifier(em, prior):
    X, A, _ = make_crowd_problem(n=60)
    shared = {"max_epochs": 2, "batch_size": 32, "lr": 1e-2, "random_state": 3, "device": "cpu"}
    ours = built(
        ICEDClassifier,
        em=em,
        prior=prior,
        **shared,
        protocol=ICEDProtocol(synthesis=None, warm_up=None),
    ).fit(X, A)
    inference = FromVotesOrLabels(
        max_iter=50,
        tol=1e-5,
        dependence=0,
        accelerate=False,
        confusion_prior="diagonal",
        diagonal=1 / 3,
        prior_strength=0.03,
        n_subtypes=1,
        class_prior=prior,
        em=em,
    )
    two_stages = built(AggregatedClassifier, inference, targets="hard", **shared).fit(X, A)
    np.testing.assert_array_equal(ours.labels_, two_stages.aggregator_.labels_)
    np.testing.assert_allclose(ours.posterior_, two_stages.aggregator_.posterior_, atol=2e-3)
    np.testing.assert_array_equal(ours.predict_proba(X), two_stages.predict_proba(X))


def test_soft_targets_without_synthesis_are_the_posterior_of_dawid_skene():
    X, A, _ = make_crowd_problem(n=60)
    shared = {"max_epochs": 3, "batch_size": 16, "lr": 1e-2, "random_state": 3, "device": "cpu"}
    ours = built(
        ICEDClassifier,
        em="soft",
        prior="estimated",
        **shared,
        protocol=ICEDProtocol(targets="soft", synthesis=None, warm_up=None),
    ).fit(X, A)
    inference = LabelInference("soft", "estimated", 0.01, 50).aggregator(3)
    two_stages = built(AggregatedClassifier, inference, targets="soft", **shared).fit(X, A)
    np.testing.assert_allclose(ours.predict_proba(X), two_stages.predict_proba(X), atol=1e-6)


def _hard_em(A, n_classes, prior, smoothing, max_iter=50):
    """Section 2.3 with loops: counts of hard labels, Bayes' theorem, the most probable class."""
    n, r = A.shape
    votes = np.array([[(row == c).sum() for c in range(n_classes)] for row in A], dtype=float)
    T = [np.flatnonzero(v == v.max()) for v in votes]
    for _ in range(max_iter):
        psi = np.full((r, n_classes, n_classes), smoothing)
        phi = np.zeros(n_classes)
        for i in range(n):
            for c in T[i]:
                phi[c] += 1 / len(T[i])
                for u in range(r):
                    psi[u, c, A[i, u]] += 1 / len(T[i])
        psi = psi / psi.sum(axis=2, keepdims=True)
        phi = np.full(n_classes, 1 / n_classes) if prior == "uniform" else phi / n
        new = []
        for i in range(n):
            log_p = [
                np.log(phi[c]) + sum(np.log(psi[u, c, A[i, u]]) for u in range(r))
                for c in range(n_classes)
            ]
            new.append(np.array([np.argmax(log_p)]))
        if all(np.array_equal(a, b) for a, b in zip(T, new, strict=True)):
            break
        T = new
    return np.array([int(t[0]) for t in T])


@pytest.mark.parametrize("prior", ["uniform", "estimated"])
def test_inference_is_the_hard_em_of_section_2_3(prior):
    _, table, _ = imbalanced(n_frequent=80, n_rare=16, error=(0.15, 0.35))
    A = table.to_matrix()
    inference = LabelInference("hard", prior, smoothing=0.01, max_iter=200)
    found = inference.posterior(table, table.vote_counts() / 9).argmax(axis=1)
    np.testing.assert_array_equal(found, _hard_em(A, 2, prior, 0.01, max_iter=200))


def test_a_permutation_of_class_names_permutes_the_result():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [30, 14, 8])
    X = (rng.normal(size=(52, 4)) + 2 * y[:, None]).astype(np.float32)
    A = np.where(rng.random((52, 5)) < 0.7, y[:, None], rng.integers(3, size=(52, 5)))
    renamed = np.array([2, 0, 1])  # class c is called renamed[c]
    torch.manual_seed(0)
    network = MLP((4,), 3, hidden=(16,), dropout=0.2)
    permuted = copy.deepcopy(network)
    with torch.no_grad():
        for name in ("weight", "bias"):
            getattr(permuted.head, name)[renamed] = getattr(network.head, name)
    options = {**QUICK, "max_epochs": 3, "warm_up_epochs": 2}
    plain = built(ICEDClassifier, network, **options).fit(X, A)
    other = built(ICEDClassifier, permuted, **options).fit(X, renamed[A])
    np.testing.assert_allclose(
        plain.predict_proba(X), other.predict_proba(X)[:, renamed], atol=1e-4
    )
    np.testing.assert_allclose(plain.posterior_, other.posterior_[:, renamed], atol=1e-6)
    assert plain.history_[-1]["n_synthetic"] == other.history_[-1]["n_synthetic"] > 0


def test_annotators_can_be_permuted_where_nothing_is_made():
    X, A, _ = make_crowd_problem()
    order = np.array([3, 0, 4, 1, 2])
    options = QUICK | {"synthesis": None}
    plain = built(ICEDClassifier, **options).fit(X, A)
    permuted = built(ICEDClassifier, **options).fit(X, A[:, order])
    np.testing.assert_allclose(plain.confusion_[order], permuted.confusion_, atol=1e-6)
    np.testing.assert_allclose(plain.predict_proba(X), permuted.predict_proba(X), atol=1e-5)


# -- the prior decides ------------------------------------------------------------------------


def test_hard_em_with_an_estimated_prior_loses_the_minority_and_says_so():
    X, table, y = imbalanced(n_frequent=660, n_rare=66)
    options = {**QUICK, "warm_up": None, "synthesis": None}
    with pytest.warns(
        UserWarning, match="em='hard' with prior='estimated' finds .* class 1"
    ) as caught:
        starved = built(ICEDClassifier, prior="estimated", **options).fit(X, table)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = built(ICEDClassifier, prior="uniform", **options).fit(X, table)
        soft = built(ICEDClassifier, em="soft", prior="estimated", **options).fit(X, table)
    assert minority_recall(y, starved.labels_) < 0.55
    assert minority_recall(y, kept.labels_) > 0.65
    accuracy = {name: (m.labels_ == y).mean() for name, m in (("kept", kept), ("soft", soft))}
    assert accuracy["soft"] > accuracy["kept"] + 0.1


def test_no_warning_where_the_annotators_tell_the_classes_apart():
    X, table, y = imbalanced(error=(0.05, 0.2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = built(ICEDClassifier, prior="estimated", **QUICK).fit(X, table)
    assert minority_recall(y, model.labels_) > 0.9


def test_without_em_the_labels_are_majority_votes():
    X, table, _ = imbalanced()
    model = built(ICEDClassifier, em=None, **QUICK).fit(X, table)
    np.testing.assert_allclose(model.posterior_, table.vote_counts() / 9)
    np.testing.assert_array_equal(model.posterior_, model.observed_posterior_)


def test_hard_em_that_starts_from_its_own_labels_keeps_them():
    X, table, _ = imbalanced()
    options = {**QUICK, "max_epochs": 4, "synthesis": "input"}
    stuck = built(ICEDClassifier, **options, protocol=ICEDProtocol(em_start="previous")).fit(
        X, table
    )
    moving = built(ICEDClassifier, **options, protocol=ICEDProtocol(em_start="votes")).fit(X, table)
    np.testing.assert_array_equal(stuck.labels_, stuck.observed_posterior_.argmax(axis=1))
    assert len(set(moving.history_.column("inferred_1", "train"))) > 1


# -- the warm-up ------------------------------------------------------------------------------


def phases_of(table, warm_up="certainty", n_groups=3):
    return warm_up_phases(table, group_by_certainty(table, n_groups), warm_up)


def test_warm_up_goes_from_the_third_highest_certainty_to_the_highest():
    rows = [[1] * (7 - k) + [0] * k for k in range(8)] * 3
    table = AnnotationTable.from_matrix(rows)
    groups = certainty_groups(label_certainty(table))
    phases = phases_of(table)
    assert [np.unique(groups[phase]).tolist() for phase in phases] == [[1], [2], [3]]
    (together,) = phases_of(table, "together")
    np.testing.assert_array_equal(together, np.flatnonzero(groups))
    (every,) = phases_of(table, "all")
    assert len(every) == len(rows)
    two = phases_of(table, n_groups=2)
    assert [np.unique(groups[phase]).tolist() for phase in two] == [[2], [3]]
    assert phases_of(table, None) == []


def test_every_phase_sees_its_own_instances_with_their_majority_votes(monkeypatch):
    X, table, _ = imbalanced(n_frequent=60, n_rare=12, n_annotators=7, error=(0.1, 0.4))
    seen = []
    loss = manyhands.fitting.latent.SoftTargets.loss

    def noted(self, logits, instances):
        seen.append((instances.numpy().copy(), self.targets[instances].numpy().copy()))
        return loss(self, logits, instances)

    monkeypatch.setattr(manyhands.fitting.latent.SoftTargets, "loss", noted)
    model = built(ICEDClassifier, **QUICK | {"synthesis": None, "warm_up_epochs": 2}).fit(X, table)
    phases = phases_of(table)
    assert len(model.history_.column("loss", "warm_up")) == 2 * len(phases)
    counts = table.vote_counts()
    for phase in phases:
        for _ in range(2):
            drawn: list[int] = []
            while len(drawn) < len(phase):
                instances, targets = seen.pop(0)
                np.testing.assert_array_equal(targets.argmax(1), counts[instances].argmax(1))
                drawn += instances.tolist()
            assert sorted(drawn) == phase.tolist()


def test_all_warm_ups_train_for_as_many_epochs():
    X, table, _ = imbalanced(n_frequent=60, n_rare=12, n_annotators=7)
    epochs = {
        name: len(
            built(ICEDClassifier, **QUICK, protocol=ICEDProtocol(warm_up=name))
            .fit(X, table)
            .history_.column("loss", "warm_up")
        )
        for name in ("certainty", "together", "all")
    }
    assert set(epochs.values()) == {3}


def test_a_group_of_one_joins_another_so_that_batches_can_be_normalised(monkeypatch):
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)
    counts = [1, 5, 20]
    groups = np.repeat([3, 2, 1, 0], [*counts, 48 - sum(counts)])
    model = built(ICEDClassifier, {"name": "mlp", "batch_norm": True}, **QUICK)
    assert sorted(map(len, warm_up_phases(table, groups, "certainty"))) == [6, 20]
    own_groups = "manyhands.classifiers.iced.classifier.group_by_certainty"
    monkeypatch.setattr(own_groups, lambda table, n_groups: groups)
    assert np.isfinite(model.fit(X, table).predict_proba(X)).all()


# -- what it says -----------------------------------------------------------------------------


def test_degenerate_crowds_end_in_finite_probabilities_and_a_warning_where_a_class_is_lost():
    X, A, y = make_crowd_problem()
    crowds = {
        "one annotator": y[:, None],
        "all agree": np.repeat(y[:, None], 5, axis=1),
        "an annotation each": np.where(np.arange(len(y))[:, None] % 5 == np.arange(5), A, -1),
    }
    for name, crowd in crowds.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = built(ICEDClassifier, **QUICK).fit(X, crowd)
        assert np.isfinite(model.predict_proba(X)).all(), name
    constant = np.broadcast_to(np.arange(5) % 3, A.shape).copy()
    with pytest.warns(FewCandidatesWarning, match="no instance was inferred to be of class"):
        model = built(ICEDClassifier, **QUICK).fit(X, constant)
    assert np.isfinite(model.predict_proba(X)).all()


def test_one_candidate_is_repeated_with_a_warning():
    X, _, y = imbalanced(n_frequent=40, n_rare=1)
    A = np.repeat(y[:, None], 3, axis=1)
    few = "one instance was inferred to be of class 1"
    with pytest.warns(FewCandidatesWarning, match=few) as caught:
        model = built(ICEDClassifier, **QUICK).fit(X, A)
    assert caught[0].filename == __file__
    assert model.history_[-1]["n_synthetic"] == 39


def test_history_has_stages_terms_and_what_is_watched():
    X, table, y = imbalanced()
    model = built(ICEDClassifier, **QUICK).fit(X, table, watch=Watch(y_train=y, test=(X, y)))
    stages = [row["stage"] for row in model.history_]
    assert stages == ["decoder"] * 2 + ["warm_up"] * 3 + ["train"] * 2
    for row in model.history_:
        term = "reconstruction" if row["stage"] == "decoder" else "cross_entropy"
        assert row[term] == row["loss"]
        assert {"test_accuracy", "seconds"} <= set(row)
    last = model.history_[-1]
    assert last["inference_accuracy"] == (model.labels_ == y).mean()
    assert last["inference_minority_recall"] == minority_recall(y, model.labels_)
    assert "inference_accuracy" not in built(ICEDClassifier, **QUICK).fit(X, table).history_[-1]


def test_a_round_is_kept_with_what_was_inferred_in_it():
    X, table, y = imbalanced()
    options = {**QUICK, "max_epochs": 6, "lr": 1e-2}
    model = built(ICEDClassifier, validation=(X, y), **options).fit(X, table)
    assert model.best_stage_ == "train"
    short = built(ICEDClassifier, **options | {"max_epochs": model.best_epoch_}).fit(X, table)
    np.testing.assert_array_equal(model.predict_proba(X), short.predict_proba(X))
    np.testing.assert_array_equal(model.posterior_, short.posterior_)
    np.testing.assert_array_equal(model.class_prior_, short.class_prior_)
    patient = built(
        ICEDClassifier,
        validation=0.2,
        patience=1,
        **options | {"decoder_epochs": 5, "warm_up_epochs": 2},
    ).fit(X, table)
    assert len(patient.history_.column("loss", "decoder")) == 5
    assert len(patient.history_.column("loss", "warm_up")) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "killed_in"),
    [
        ({}, ("decoder", 1)),
        ({}, ("warm_up", 2)),
        ({}, ("train", 1)),
        ({"regenerate": False}, ("train", 2)),
        ({"synthesis": "embedding", "em": "soft", "em_start": "previous"}, ("train", 2)),
        ({"decision": "balanced", "validation": 0.2}, ("train", 2)),
        ({"synthesis": None, "warm_up": None}, ("train", 1)),
    ],
)
def test_resume_ends_in_the_same_weights(options, killed_in, tmp_path, monkeypatch):
    X, A, _ = make_crowd_problem()
    parameters = ICED_QUICK | {"max_epochs": 3} | options
    file = tmp_path / "run.safetensors"
    whole = built(ICEDClassifier, **parameters).fit(X, A)
    killed_after(killed_in, built(ICEDClassifier, checkpoint=file, **parameters), X, A, monkeypatch)
    resumed = built(ICEDClassifier, checkpoint=file, **parameters).fit(X, A)
    for name, value in whole.module_.state_dict().items():
        assert torch.equal(value, resumed.module_.state_dict()[name]), name
    np.testing.assert_array_equal(whole.posterior_, resumed.posterior_)
    np.testing.assert_array_equal(whole.class_prior_, resumed.class_prior_)
    lasting = [{k: v for k, v in row.items() if k != "seconds"} for row in whole.history_]
    assert lasting == [{k: v for k, v in r.items() if k != "seconds"} for r in resumed.history_]


def test_saved_with_its_sampler_and_loaded(tmp_path):
    X, table, _ = imbalanced()
    model = built(
        ICEDClassifier, sampler=CrowdSMOTE(3, delta="printed"), decision="balanced", **QUICK
    ).fit(X, table)
    assert "posterior" not in model.module_.state_dict()
    loaded = manyhands.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.posterior_, model.posterior_)
    np.testing.assert_array_equal(loaded.observed_posterior_, model.observed_posterior_)
    assert loaded.sampler.delta == "printed"


def test_decisions():
    X, table, _ = imbalanced()
    model = built(ICEDClassifier, **QUICK, protocol=ICEDProtocol(synthesis=None)).fit(X, table)
    share = model.labels_.mean()
    np.testing.assert_allclose(model.class_prior_, [1 - share, share], atol=1e-6)
    proba = model.predict_proba(X)
    balanced = model.set_params(decision="balanced").predict(X)
    np.testing.assert_array_equal(balanced, (proba / model.class_prior_).argmax(axis=1))
    costs = model.set_params(decision=[[0, 1], [3, 0]]).predict(X)
    np.testing.assert_array_equal(costs, (3 * proba[:, 1] > proba[:, 0]).astype(int))
    with pytest.raises(AnnotationError, match="decision='fair'"):
        ICEDClassifier(decision="fair").fit(X, table)


def test_balancing_acts_on_what_is_inferred():
    X, table, _ = imbalanced()
    options = QUICK | {"synthesis": None, "warm_up": None}
    model = built(ICEDClassifier, class_balance="reweight", **options).fit(X, table)
    np.testing.assert_allclose(model.class_prior_, 0.5, atol=1e-6)


def test_it_cannot_go_on_from_anothers_weights():
    X, A, _ = make_crowd_problem()
    model = built(ICEDClassifier, **QUICK).fit(X, A)
    with pytest.raises(AnnotationError, match="begins with majority votes"):
        ICEDClassifier().fit(X, A, start=model)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("em", "medium"),
        ("prior", "flat"),
        ("synthesis", "latent"),
        ("warm_up", "some"),
        ("sampler", 3),
        ("refit_epochs", -1),
        ("em_start", "middle"),
    ],
)
def test_bad_parameters_are_named(name, value):
    X, A, _ = make_crowd_problem()
    with pytest.raises(ValueError, match=name):
        built(ICEDClassifier, **{name: value}).fit(X, A)


# -- parts that a wrong line would pass by ----------------------------------------------------


def test_the_decoder_stage_moves_the_body_of_the_network_and_not_its_head(tmp_path, monkeypatch):
    X, A, _ = make_crowd_problem()
    network = MLP((X.shape[1],), 3, hidden=(5,))
    model = built(
        ICEDClassifier,
        network,
        checkpoint=tmp_path / "run.safetensors",
        **QUICK | {"weight_decay": 0.0},
    )
    after = killed_after(("decoder", 1), model, X, A, monkeypatch)
    for name, before in network.state_dict().items():
        moved = not torch.equal(after[f"classifier.backbone.{name}"], before)
        assert moved == name.startswith("body"), name


def test_the_decoder_has_a_hidden_layer_with_a_relu():
    torch.manual_seed(0)
    decoder = Decoder(4, (2, 3))
    first, last = (part for part in decoder.body if isinstance(part, nn.Linear))
    z = torch.randn(5, 4)
    hidden = (z @ first.weight.T + first.bias).clamp(min=0)
    by_hand = (hidden @ last.weight.T + last.bias).reshape(5, 2, 3)
    torch.testing.assert_close(decoder(z), by_hand)


def test_the_decoder_is_refitted_five_times_as_long_before_the_first_round(monkeypatch):
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)
    steps = []
    refit = Synthesis.refit

    def noted(self, space, n_epochs):
        facts = refit(self, space, n_epochs)
        steps.append({int(state["step"]) for state in self.decoder_optimizer.state.values()})
        return facts

    monkeypatch.setattr(Synthesis, "refit", noted)
    built(ICEDClassifier, **QUICK | {"refit_epochs": 2, "batch_size": 16}).fit(X, table)
    assert steps == [{3 * 10}, {3 * 12}]  # three batches per epoch


@pytest.mark.parametrize("max_iter", [1, 2])
def test_inference_ends_after_em_max_iter(max_iter):
    _, table, _ = imbalanced(n_frequent=80, n_rare=16)
    found = {}
    for n in (max_iter, 50):
        inference = LabelInference("soft", "estimated", smoothing=0.01, max_iter=n)
        found[n] = inference.posterior(table, table.vote_counts() / 9)
        expected = inference.aggregator(2).set_params(max_iter=n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected.fit(table, start=table.vote_counts() / 9)
        np.testing.assert_array_equal(found[n], expected.posterior_)
    assert np.abs(found[max_iter] - found[50]).max() > 0.01


def test_every_round_draws_anew(noting):
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)
    # Points and labels are the same in every round: only what is drawn may differ.
    built(
        ICEDClassifier, em=None, sampler=noting, **QUICK, protocol=ICEDProtocol(synthesis="input")
    ).fit(X, table)
    first, second = noting.chosen
    assert first.shape == second.shape
    assert not np.array_equal(first, second)


def test_what_ties_is_nobodys_candidate(noting):
    X, table, _ = imbalanced(n_frequent=40, n_rare=8, n_annotators=4, error=(0.2, 0.4))
    model = built(
        ICEDClassifier, em=None, sampler=noting, **QUICK, protocol=ICEDProtocol(synthesis="input")
    ).fit(X, table)
    counts = table.vote_counts()
    tied = counts[:, 0] == counts[:, 1]
    assert tied.any()
    assert [label is None for label in noting.asked[0]] == tied.tolist()
    assert noting.asked[0][~tied].tolist() == counts[~tied].argmax(axis=1).tolist()
    assert not tied[noting.chosen[0]].any()
    # It is trained on as half of both.
    rest = (counts.argmax(axis=1)[~tied] == 1).sum() + tied.sum() / 2
    assert model.history_[-1]["inferred_1"] == rest


def test_what_is_said_of_few_is_said_after_a_resume_too(tmp_path, monkeypatch):
    X, _, y = imbalanced(n_frequent=40, n_rare=1)
    A = np.repeat(y[:, None], 3, axis=1)
    options = {**QUICK, "max_epochs": 3, "regenerate": False, "synthesis": "input"}
    file = tmp_path / "run.safetensors"
    with pytest.warns(FewCandidatesWarning) as whole:
        built(ICEDClassifier, **options).fit(X, A)
    killed_after(("train", 2), built(ICEDClassifier, checkpoint=file, **options), X, A, monkeypatch)
    with pytest.warns(FewCandidatesWarning) as resumed:
        built(ICEDClassifier, checkpoint=file, **options).fit(X, A)
    assert [str(w.message) for w in resumed] == [str(w.message) for w in whole]
    assert sum(w.category is FewCandidatesWarning for w in whole) == 1


@pytest.mark.parametrize("stages", [{"warm_up": None}, {"max_epochs": 1, "warm_up_epochs": 2}])
def test_a_new_optimiser_every_epoch_changes_the_training(stages):
    X, A, _ = make_crowd_problem()
    options = QUICK | {"synthesis": None} | stages
    plain, reset = (
        built(ICEDClassifier, **options, protocol=ICEDProtocol(reset_optimizer=reset))
        .fit(X, A)
        .predict_proba(X)
        for reset in (False, True)
    )
    assert not np.array_equal(plain, reset)


def test_batches_of_the_warm_up_and_of_the_rounds_have_their_own_sizes(monkeypatch):
    X, table, _ = imbalanced(n_frequent=40, n_rare=8)
    sizes = []
    loss = SoftTargets.loss

    def noted(self, logits, instances):
        sizes.append(len(logits))
        return loss(self, logits, instances)

    monkeypatch.setattr(SoftTargets, "loss", noted)
    options = QUICK | {"batch_size": 24, "max_epochs": 1, "synthesis": None}
    model = built(
        ICEDClassifier, **options | {"warm_up_batch_size": 8}, protocol=ICEDProtocol(warm_up="all")
    ).fit(X, table)
    n_warm_up = len(model.history_.column("loss", "warm_up"))
    assert sizes == [8] * 6 * n_warm_up + [24] * 2


def test_unequal_numbers_of_annotations_are_warmed_up_by_quartiles():
    _, table, _ = imbalanced(n_frequent=120, n_rare=40)
    A = table.to_matrix()
    A[np.random.default_rng(0).random(A.shape) < 0.4] = -1
    unequal = AnnotationTable.from_matrix(A)
    groups = group_by_certainty(unequal, 3)
    sizes = np.bincount(groups)
    assert len(sizes) == 4
    assert (np.abs(sizes - 40) < 15).all()
    levels = certainty_groups(label_certainty(unequal), by="levels")
    assert np.bincount(levels)[0] > 80, "the levels would leave out most"
    by_levels = certainty_groups(label_certainty(table), by="levels")
    np.testing.assert_array_equal(group_by_certainty(table, 3), by_levels)


@pytest.mark.parametrize("targets", ["hard", "soft"])
def test_instances_without_annotations_are_no_part_of_the_prior(targets):
    X, table, _ = imbalanced(n_frequent=40, n_rare=8, error=(0.05, 0.2))
    A = table.to_matrix()
    more = np.concatenate([A, np.full((30, A.shape[1]), -1)])
    options = {**QUICK, "synthesis": None, "warm_up": None, "targets": targets}
    plain = built(ICEDClassifier, **options).fit(X, A)
    with_others = built(ICEDClassifier, **options).fit(np.concatenate([X, X[:30]]), more)
    np.testing.assert_allclose(with_others.class_prior_, plain.class_prior_, atol=1e-6)
    assert abs(plain.class_prior_[0] - 0.5) > 0.1


def test_the_history_decides_by_the_prior_of_its_epoch():
    X, table, y = imbalanced()
    options = {**QUICK, "max_epochs": 3, "synthesis": None}

    def accuracies(decision):
        model = built(ICEDClassifier, decision=decision, **options)
        return model.fit(X, table, watch=Watch(test=(X, y))).history_.column("test_accuracy")

    balanced = accuracies("balanced")
    # In the warm-up, the shares of the votes; then those of what is inferred.
    shares = table.vote_counts().mean(axis=0) / 9
    by_votes = accuracies((1 - np.eye(2)) / shares[:, None])
    np.testing.assert_array_equal(balanced[:3], by_votes[:3])
    for epoch, accuracy in enumerate(balanced[3:], start=1):
        fewer = options | {"max_epochs": epoch, "decision": "balanced"}
        short = built(ICEDClassifier, **fewer).fit(X, table)
        assert accuracy == (short.predict(X) == y).mean()
        assert not np.allclose(short.class_prior_, shares)
    assert (balanced[3:] != by_votes[3:]).any()


def test_the_history_follows_the_prior_of_every_round():
    X, table, y = imbalanced(error=(0.05, 0.2))
    options = {**QUICK, "max_epochs": 3, "decision": "balanced", "synthetic_labels": "intended"}
    sampler = CrowdSMOTE(sampling_strategy=0.4)
    model = built(ICEDClassifier, sampler=sampler, **options).fit(
        X, table, watch=Watch(test=(X, y))
    )
    for epoch, row in enumerate(model.history_[-3:], start=1):
        short = built(ICEDClassifier, sampler=sampler, **options | {"max_epochs": epoch}).fit(
            X, table
        )
        assert row["test_accuracy"] == (short.predict(X) == y).mean()
        assert short.class_prior_[1] > 0.2


def test_the_class_that_is_starved_most_is_found(monkeypatch):
    table = AnnotationTable.from_matrix(np.arange(24)[:, None] % 3)

    class Soft:
        posterior_ = np.eye(3)[np.repeat([0, 1, 2], [9, 5, 10])]

        def fit(self, table, start):
            assert start is None
            return self

    def aggregator(self, n_classes):
        assert self.em == "soft"
        return Soft()

    monkeypatch.setattr(LabelInference, "aggregator", aggregator)
    inference = LabelInference("hard", "estimated", smoothing=0.01, max_iter=50)
    # Three of five, and four of ten.
    hard = np.eye(3)[np.repeat([0, 1, 2], [17, 3, 4])]
    assert inference.starved_class(table, hard) == (2, 4.0, 10.0)
    # Four of five and eight of ten are enough.
    hard = np.eye(3)[np.repeat([0, 1, 2], [12, 4, 8])]
    assert inference.starved_class(table, hard) is None
