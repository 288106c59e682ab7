"""NeuCrowd: the sampling network, the joint training against an oracle, and the whole."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from manyhands import (
    AnnotationTable,
    DawidSkene,
    MajorityVote,
    NeuCrowdClassifier,
    NeuCrowdEmbedding,
    NeuCrowdProtocol,
    SelfTrainingCrowdClassifier,
)
from manyhands.annotations import label_assurance
from manyhands.classifiers import neucrowd
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError, DivergenceError
from manyhands.nn import SamplingNetwork
from manyhands.objectives import TupletLoss, hardness_error
from manyhands.registry import short_name
from manyhands.sampling import TupletSampler
from tests.building import built

SMALL = {
    "max_epochs": 3,
    "batch_size": 16,
    "n_tuplets": 64,
    "C": 0.1,
    "random_state": 0,
    "device": "cpu",
}
PLAIN = {
    "safety_aware": False,
    "robust_anchor": False,
    "sampling_network": False,
    "assurance": False,
}
SHARED = {name: value for name, value in SMALL.items() if name != "C"}
"""Parameters that the transformer has, too."""


@pytest.fixture(autouse=True)
def seeded():
    """Networks made in a test start from the same weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@functools.cache
def fitted(**more):
    """A fit to the problem of the contract, to read only."""
    return built(NeuCrowdClassifier, **(SMALL | more)).fit(*make_crowd_problem()[:2])


class Spied(NeuCrowdClassifier):
    """Keeps its step and data, and notes which tuplets were learnt from, as rows of X.

    Nothing public shows them, so it overrides the hooks that every embedding implements.
    """

    def _step(self, data):
        step = super()._step(data)
        self.spied, self.data, self.learnt, self.candidates = step, data, [], []
        scaled = data.embedder.scaler(data.take(torch.arange(len(data))))
        rows = {x.tobytes(): row for x, row in zip(scaled.numpy(), data.order, strict=True)}
        given, embed, losses = [], data.network.embed, step.losses

        def embedded(x):
            given[:] = [rows.get(instance.tobytes(), -1) for instance in x.numpy()]
            return embed(x)

        def noted(embedding, tuplets, assurance, labels):
            self.learnt.append((self.candidates[-1][0], np.array(given)[tuplets.numpy()]))
            return losses(embedding, tuplets, assurance, labels)

        data.network.embed, step.losses = embedded, noted
        return step

    def _batches(self, data, epoch):
        for batch in super()._batches(data, epoch):
            self.candidates.append((epoch, data.order[batch.tuplets.numpy()]))
            yield batch

    def tuplets_of(self, epoch):
        return np.concatenate([tuplets for of, tuplets in self.learnt if of == epoch])


def noisy_problem(n=120, n_noise=20, seed=0):
    """Two classes in the first two of many features; five annotators right in .8."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 2 + n_noise))
    X[:, :2] += 2.5 * (2 * y[:, None] - 1)
    A = np.where(rng.random((n, 5)) < 0.8, y[:, None], 1 - y[:, None])
    return X.astype(np.float32), A, y


def tied_problem():
    """The problem of the contract, with rows 0 to 5 tied between two classes."""
    X, A, y = make_crowd_problem()
    A[:6] = -1
    A[:6, 0], A[:6, 1] = y[:6], (y[:6] + 1) % 3
    return X, A, y


# -- the sampling network -------------------------------------------------------------------------


@pytest.mark.parametrize("robust", [True, False])
def test_the_sampling_network_learns_to_rank_tuplets_by_their_loss(robust):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    X = torch.from_numpy(rng.normal(size=(60, 3)).astype(np.float32))
    X[:, 0] += torch.from_numpy(3.0 * labels).float()
    assurance = torch.from_numpy(rng.choice([0.2, 0.6, 1.0], 60)).float()
    codes = torch.from_numpy(labels)
    loss = TupletLoss(2, robust_anchor=robust, eta=2.0)
    sampler = TupletSampler(labels, 4)
    network = SamplingNetwork((3,), 4)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)

    def fresh(n):
        tuplets = torch.from_numpy(sampler.draw(n, rng))
        return tuplets, loss(X, tuplets, assurance, codes)

    for _ in range(200):
        tuplets, losses = fresh(256)
        optimizer.zero_grad()
        hardness_error(network(X, tuplets), losses).backward()
        optimizer.step()
    tuplets, losses = fresh(1000)
    with torch.no_grad():
        rho = spearmanr(network(X, tuplets).numpy(), losses.numpy()).statistic
    assert rho > 0.8


def test_in_training_too_hardness_is_foreseen_and_the_hard_are_learnt_from():
    X, A, _ = noisy_problem()
    backbone = {"name": "embedding", "input_dropout": 0.0}
    more = {"max_epochs": 8, "n_tuplets": 640, "batch_size": 64, "sampler_lr": 1e-2, "lr": 3e-5}
    model = built(NeuCrowdClassifier, backbone, **(SMALL | more)).fit(X, A)
    assert model.history_[0]["hardness_correlation"] < 0.3
    assert model.history_[-1]["hardness_correlation"] > 0.5
    easy = built(
        NeuCrowdClassifier, backbone, **SMALL | more, protocol=NeuCrowdProtocol(n_candidates=1)
    ).fit(X, A)
    assert model.history_[-1]["tuplet_nll"] > 1.1 * easy.history_[-1]["tuplet_nll"]


class FirstFeature(torch.nn.Module):
    """Says that a tuplet is as hard as its anchor's first feature is large."""

    def __init__(self, events):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(()))
        self.events = events

    def forward(self, x, tuplets):
        self.events.append(("score", torch.is_grad_enabled(), len(tuplets)))
        return self.factor * x[tuplets[:, 0], 0]


def test_the_hardest_of_the_pool_are_learnt_from_then_both_networks():
    X, A, _ = make_crowd_problem()
    events = []

    class Watched(Spied):
        def _step(self, data):
            step = super()._step(data)
            step.sampler = FirstFeature(events)
            step.sampler_optimizer = torch.optim.SGD(step.sampler.parameters(), lr=1e-9)
            losses = step.losses
            step.losses = lambda *given: (events.append(("loss", len(given[1]))), losses(*given))[1]
            for name, optimizer in (
                ("sampler", step.sampler_optimizer),
                ("embedding", step.optimizer),
            ):
                optimizer.register_step_pre_hook(lambda *_, name=name: events.append(name))
            return step

    model = built(Watched, **(SMALL | {"n_candidates": 4, "scaling": None, "max_epochs": 2})).fit(
        X, A
    )
    first = [("loss", 16), ("score", True, 16), "sampler", "embedding"]
    later = [("score", False, 64), *first]
    assert events == 4 * first + 4 * later
    for (epoch, pool), (_, kept) in zip(model.candidates, model.learnt, strict=True):
        assert len(kept) == 16
        assert len(pool) == (64 if epoch else 16)
        hardest = np.sort(X[pool[:, 0], 0])[-16:]
        np.testing.assert_array_equal(np.sort(X[kept[:, 0], 0]), hardest)
        assert {tuple(row) for row in kept} <= {tuple(row) for row in pool}


def test_what_the_history_says_of_hardness_is_the_mean_correlation_of_the_batches(monkeypatch):
    X, A, _ = make_crowd_problem()
    found, errors = [], []

    def noted(predicted, losses):
        assert not losses.requires_grad, "the embedding would learn to be foreseen"
        foreseen = predicted.detach().numpy()
        found.append(np.corrcoef(foreseen, losses.numpy())[0, 1])
        errors.append(((foreseen - losses.numpy()) ** 2).mean())
        return hardness_error(predicted, losses)

    monkeypatch.setattr(neucrowd, "hardness_error", noted)
    model = built(NeuCrowdClassifier, **SMALL).fit(X, A)
    for epoch, row in enumerate(model.history_):
        own = slice(4 * epoch, 4 * epoch + 4)
        np.testing.assert_allclose(row["hardness_correlation"], np.mean(found[own]), atol=1e-5)
        np.testing.assert_allclose(row["hardness_error"], np.mean(errors[own]), rtol=1e-4)


# -- plain n-pair learning ------------------------------------------------------------------------


def test_without_its_components_it_is_plain_n_pair_learning():
    X, A, _ = make_crowd_problem()
    network = {"name": "embedding", "hidden": (6,), "width": 3, "input_dropout": 0.0}
    network["activation"] = "relu"
    parameters = (
        SMALL
        | PLAIN
        | {"backbone": network, "scaling": None, "max_epochs": 1, "n_tuplets": 16, "batch_size": 8}
    )
    model = built(Spied, **parameters, lr=0.01, weight_decay=0.1, eta=2.0).fit(X, A)
    start = built(NeuCrowdClassifier, **parameters, lr=1e-12, weight_decay=0.0).fit(X, A)
    W1, b1, W2, b2 = (
        value.detach().clone().requires_grad_()
        for name, value in start.module_.named_parameters()
        if "body" in name
    )
    optimizer = torch.optim.Adam([W1, b1, W2, b2], lr=0.01, weight_decay=0.1)
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    table = AnnotationTable.from_matrix(A)
    labels = table.vote_counts()[model.data.order].argmax(axis=1)
    shares = np.sort(table.vote_counts()[model.data.order], axis=1)
    labels[shares[:, -1] == shares[:, -2]] = -1
    drawn = TupletSampler(labels, 5).draw(16, np.random.default_rng([seed, 0, 1]))
    x = torch.from_numpy(X[model.data.order].astype(np.float32))
    for batch in (drawn[:8], drawn[8:]):
        nll = 0.0
        for anchor, *members in batch:
            place = {}
            for i in (anchor, *members):
                place[i] = W2 @ (W1 @ x[i] + b1).relu() + b2
            terms = [
                torch.exp(2.0 * (1 - torch.linalg.vector_norm(place[j] - place[anchor])))
                for j in members
            ]
            nll = nll - torch.log(terms[0] / sum(terms)) / 8
        optimizer.zero_grad()
        nll.backward()
        optimizer.step()
    begun = dict(start.module_.named_parameters())
    learnt = {k: v for k, v in model.module_.named_parameters() if "body" in k}
    for (name, value), own in zip(learnt.items(), (W1, b1, W2, b2), strict=True):
        torch.testing.assert_close(value, own, atol=2e-5, rtol=0, msg=name)
        assert (value - begun[name]).abs().max() > 1e-3, "nothing was learnt"


@pytest.mark.parametrize("name", PLAIN)
def test_every_component_changes_the_training(name):
    X, _, _ = make_crowd_problem()
    whole = fitted()
    without = fitted(**{name: False})
    assert not np.allclose(whole.transform(X), without.transform(X), atol=1e-4)
    if name == "safety_aware":
        assert not any("safe_share" in row for row in without.history_)
    if name == "sampling_network":
        assert not any("hardness_error" in row for row in without.history_)
    if name == "assurance":
        assert vars(without).keys() == vars(whole).keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("softmax", "code"),
        ("eta", 1.0),
        ("similarity_constant", 3.0),
        ("normalize_anchor", False),
        ("tuplet_size", 3),
        ("n_candidates", 5),
        ("n_neighbors", 40),
        ("safety_margin", 3.0),
        ("unsafe_weight", 0.0),
        ("sampler_lr", 0.1),
        ("reset_optimizer", True),
        ("weight_decay", 1.0),
    ],
)
def test_every_parameter_reaches_the_training(name, value):
    X, A, _ = make_crowd_problem()
    # What begins in the second epoch has had its say after two.
    more = {"lr": 1e-2, "safety_margin": 1.0, "n_neighbors": 5, "max_epochs": 2}
    whole = fitted(**more)
    other = built(NeuCrowdClassifier, **(SMALL | more | {name: value})).fit(X, A)
    assert not np.allclose(whole.transform(X), other.transform(X), atol=1e-4)


# -- what tuplets are made of ---------------------------------------------------------------------


@pytest.mark.parametrize("scaling", [None, "standard"])
def test_another_order_of_the_rows_changes_their_order_only(scaling):
    X, A, _ = tied_problem()
    # Of two equal instances of one posterior, the second has fewer votes.
    X = np.vstack([X, X[6:10]])
    A = np.vstack([A, np.full((4, 5), -1)])
    A[6:10] = A[6:10].max(axis=1, keepdims=True)
    A[48:, 2] = A[6:10, 0]
    A[20] = -1
    order = np.random.default_rng(1).permutation(len(X))
    first, second = (
        built(
            NeuCrowdClassifier, **(SMALL | {"C": "cv", "cv": 2, "max_epochs": 2}), scaling=scaling
        ).fit(*given)
        for given in ((X, A), (X[order], A[order]))
    )
    np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(first.transform(X), second.transform(X), atol=1e-4)
    np.testing.assert_allclose(first.confusion_, second.confusion_)
    assert first.C_ == second.C_
    own, other = (built(NeuCrowdEmbedding, **SHARED, scaling=scaling) for _ in range(2))
    embedded = own.fit_transform(X, A)
    np.testing.assert_allclose(embedded[order], other.fit_transform(X[order], A[order]), atol=1e-4)


def test_tuplets_are_of_the_inferred_classes_and_ties_are_in_none():
    X, A, _ = tied_problem()
    model = built(Spied, **SMALL).fit(X, A)
    counts = AnnotationTable.from_matrix(A).vote_counts()
    label = counts.argmax(axis=1)
    tied = (counts == counts.max(axis=1, keepdims=True)).sum(axis=1) > 1
    assert tied[:6].all()
    seen = set()
    for epoch in range(3):
        tuplets = model.tuplets_of(epoch)
        assert tuplets.shape == (64, 5)
        assert not tied[tuplets].any()
        assert (label[tuplets[:, 0]] == label[tuplets[:, 1]]).all()
        assert (label[tuplets[:, 2:]] != label[tuplets[:, :1]]).all()
        seen |= set(tuplets.ravel().tolist())
    assert seen == set(np.flatnonzero(~tied).tolist())
    # The regression learns from ties, too: their targets are shares.
    targets = model.data.targets[np.argsort(model.data.order)]
    np.testing.assert_allclose(targets[0], counts[0] / 2)


def test_by_default_there_are_ten_tuplets_an_instance_that_can_be_drawn():
    X, A, _ = tied_problem()
    A[10:13] = -1
    model = built(Spied, **(SMALL | {"n_tuplets": "auto", "max_epochs": 2})).fit(X, A)
    known = (model.data.labels >= 0).sum()
    assert known < len(model.data) < 48
    assert len(model.tuplets_of(0)) == len(model.tuplets_of(1)) == 10 * known


def test_every_epoch_draws_anew_and_the_same_for_the_same_seed():
    X, A, _ = make_crowd_problem()
    first, second = (built(Spied, **(SMALL | PLAIN)).fit(X, A) for _ in range(2))
    for epoch in range(3):
        np.testing.assert_array_equal(first.tuplets_of(epoch), second.tuplets_of(epoch))
    assert (first.tuplets_of(0) != first.tuplets_of(1)).mean() > 0.5
    assert (first.tuplets_of(1) != first.tuplets_of(2)).mean() > 0.5


def test_dropout_is_for_learning_only():
    X, A, _ = make_crowd_problem()
    modes = []

    class Watched(Spied):
        def _step(self, data):
            step = super()._step(data)
            embed = data.network.embed
            data.network.embed = lambda x: (modes.append(data.network.training), embed(x))[1]
            return step

    model = built(Watched, **SMALL).fit(X, A)
    # Four batches, the probe, the regression; before them, later, the safe instances. After the
    # last epoch, the search for lost classes.
    epochs = [True] * 4 + [False] * 2 + 2 * ([False] + [True] * 4 + [False] * 2)
    assert modes == [*epochs, False]
    model.data.module.train()
    assert torch.equal(model.data.embedded(), model.data.embedded())


def test_assurances_are_the_tables_and_stay_so(monkeypatch):
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    expected = label_assurance(table)
    asked = []

    def spy(embedding, labels, assurance, **_):
        asked.append(assurance)
        return np.full(len(labels), True)

    monkeypatch.setattr(neucrowd, "safe_instances", spy)

    class Watched(Spied):
        def _batches(self, data, epoch):
            np.testing.assert_allclose(
                self.spied.assurance.numpy(), expected[data.order], rtol=1e-6
            )
            yield from super()._batches(data, epoch)

    model = built(Watched, **SMALL).fit(X, table)
    assert len(model.candidates) == 12
    known = model.data.order[model.data.labels >= 0]
    np.testing.assert_array_equal(asked, [expected[known]] * 2)
    np.testing.assert_allclose(model.spied.assurance.numpy(), expected[model.data.order], rtol=1e-6)
    assert table.equals(AnnotationTable.from_matrix(A))
    off = built(Spied, **SMALL, assurance=False).fit(X, table)
    assert (off.spied.assurance == 1).all()


def test_single_votes_and_unequal_counts():
    X, _, y = make_crowd_problem()
    single = np.where(np.arange(48)[:, None] % 5 == np.arange(5), y[:, None], -1)
    model = built(Spied, **SMALL).fit(X, single)
    assert (model.spied.assurance == 1).all(), "where all have one vote, none is less sure"
    assert np.isfinite(model.predict_proba(X)).all()
    single[0] = y[0]
    model = built(Spied, **SMALL).fit(X, single)
    assurance = model.spied.assurance.numpy()[np.argsort(model.data.order)]
    # d / (d + 1) for five votes and for one.
    np.testing.assert_allclose(assurance[0], 5 / 6, rtol=1e-6)
    np.testing.assert_allclose(assurance[1:], 0.5, rtol=1e-6)


def test_an_aggregators_posterior_gives_labels_and_assurances():
    X, A, _ = make_crowd_problem()
    A[7] = -1
    model = built(Spied, **SMALL, aggregator=DawidSkene()).fit(X, A)
    posterior = model.aggregator_.posterior_[model.data.order]
    assert 7 not in model.data.order
    np.testing.assert_allclose(
        model.spied.assurance.numpy(), (3 * posterior.max(axis=1) - 1) / 2, rtol=1e-5
    )
    np.testing.assert_array_equal(model.data.labels, posterior.argmax(axis=1))
    np.testing.assert_allclose(model.data.targets, posterior, atol=1e-6)
    hard = built(Spied, **SMALL, aggregator=DawidSkene(), targets="hard").fit(X, A)
    np.testing.assert_array_equal(hard.data.targets, np.eye(3)[posterior.argmax(axis=1)])
    assert type(model.aggregator_).__name__ == "DawidSkene"


def test_votes_of_weight_decide_by_it():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    doubled = replace(table, weights=np.full(table.n_annotations, 2.0))
    plain, weighted = built(Spied, **SMALL).fit(X, table), built(Spied, **SMALL).fit(X, doubled)
    np.testing.assert_array_equal(plain.data.order, weighted.data.order)
    loud = replace(table, weights=np.where(table.annotator == 0, 10.0, 1.0))
    model = built(Spied, **SMALL).fit(X, loud)
    place = np.argsort(model.data.order)
    assert (model.data.labels[place][A[:, 0] >= 0] == A[A[:, 0] >= 0, 0]).all()
    np.testing.assert_allclose(
        model.spied.assurance.numpy()[place], label_assurance(loud), rtol=1e-5
    )


# -- safe instances -------------------------------------------------------------------------------


def noted_weights(monkeypatch):
    """Weights of the instances in every draw of tuplets that has some."""
    seen, draw = [], TupletSampler.draw

    def noted(sampler, n, rng, weights=None):
        if weights is not None:
            seen.append(weights)
        return draw(sampler, n, rng, weights)

    monkeypatch.setattr(TupletSampler, "draw", noted)
    return seen


def test_safe_instances_are_asked_for_with_the_embedding_of_the_moment(monkeypatch):
    X, A, _ = tied_problem()
    asked, embedded = [], []
    more = {"batch_size": 30, "safety_margin": 0.25, "unsafe_weight": 0.4}
    model = built(Spied, **(SMALL | more))

    def spy(embedding, labels, assurance, **more):
        asked.append((embedding, labels, assurance, more))
        embedded.append(model.data.embedded().numpy())
        return np.arange(len(labels)) % 4 > 0

    monkeypatch.setattr(neucrowd, "safe_instances", spy)
    drawn = noted_weights(monkeypatch)
    model.fit(X, A)
    assert len(asked) == 2, "every epoch but the first asks, once"
    known = model.data.labels >= 0
    assert not known.all()
    for (place, labels, assurance, how), weights, now in zip(asked, drawn, embedded, strict=True):
        assert how == {"n_neighbors": 5, "margin": 0.25}, "the root of 30"
        np.testing.assert_allclose(place, now[known], atol=1e-6)
        np.testing.assert_array_equal(labels, model.data.labels[known])
        np.testing.assert_allclose(assurance, model.spied.assurance.numpy()[known], rtol=1e-6)
        assert (weights[~known] == 0).all()
        expected = np.where(np.arange(len(labels)) % 4 > 0, 1.0, 0.4)
        np.testing.assert_array_equal(weights[known], expected)
    assert not np.allclose(asked[0][0], asked[1][0])
    share = np.mean(np.arange(known.sum()) % 4 > 0)
    assert [row.get("safe_share") for row in model.history_] == [None, share, share]
    chosen = built(NeuCrowdClassifier, **SMALL, protocol=NeuCrowdProtocol(n_neighbors=7)).fit(X, A)
    assert asked[-1][3] == {"n_neighbors": 7, "margin": 0.0}
    assert chosen.history_[0]["epoch"] == 1


def test_without_weight_the_unsafe_are_drawn_only_where_their_class_has_none_safe(monkeypatch):
    X, A, y = make_crowd_problem(n=60)
    A = np.repeat(y[:, None], 5, axis=1)
    place = np.arange(60)

    def spy(embedding, labels, assurance, **more):
        # Of class 2 nobody is safe; of the others, every second.
        return (labels != 2) & (np.cumsum(np.ones(len(labels))) % 2 == 0)

    monkeypatch.setattr(neucrowd, "safe_instances", spy)
    more = {"n_tuplets": 400, "max_epochs": 2, "batch_size": 100}
    model = built(Spied, **(SMALL | more), unsafe_weight=0.0).fit(X, A)
    unsafe = set(model.data.order[::2].tolist())
    first, later = set(model.tuplets_of(0).ravel()), set(model.tuplets_of(1).ravel())
    assert first == set(place.tolist()), "the first epoch draws from all"
    assert {row for row in later if y[row] == 2} == set(place[y == 2].tolist())
    assert not {row for row in later if y[row] != 2} & unsafe


def test_unsafe_instances_are_drawn_by_their_weight(monkeypatch):
    X, _, y = make_crowd_problem(n=60)
    A = np.repeat(y[:, None], 5, axis=1)
    monkeypatch.setattr(
        neucrowd, "safe_instances", lambda e, labels, a, **_: np.arange(len(labels)) < 30
    )
    more = {"n_tuplets": 3000, "max_epochs": 2, "batch_size": 3000, "sampling_network": False}
    model = built(Spied, **(SMALL | more), unsafe_weight=0.25).fit(X, A)
    safe = np.zeros(60, dtype=bool)
    safe[model.data.order[:30]] = True
    anchors = model.tuplets_of(1)[:, 0]
    for c in range(3):
        own = anchors[y[anchors] == c]
        mass = safe[y == c].sum() + 0.25 * (~safe[y == c]).sum()
        np.testing.assert_allclose(safe[own].mean(), safe[y == c].sum() / mass, atol=0.05)


def test_fewer_instances_than_neighbours():
    X, A, _ = make_crowd_problem(n=9)
    model = built(NeuCrowdClassifier, **SMALL, protocol=NeuCrowdProtocol(n_neighbors=100)).fit(X, A)
    assert np.isfinite(model.predict_proba(X)).all()


# -- degenerate input -----------------------------------------------------------------------------


def test_batches_without_some_of_the_classes():
    X, A, _ = make_crowd_problem()
    for size in (1, 2):
        model = built(NeuCrowdClassifier, **(SMALL | {"batch_size": size, "n_tuplets": 7})).fit(
            X, A
        )
        assert np.isfinite(model.predict_proba(X)).all()
        assert math.isfinite(model.history_[-1]["loss"])
        assert model.history_[-1]["step"] == 3 * math.ceil(7 / size)


def test_inferred_labels_of_one_class_are_an_error():
    X, _, _ = make_crowd_problem()
    A = np.zeros((48, 3), dtype=int)
    A[:, 2] = 1
    model = built(NeuCrowdClassifier, **SMALL)
    with pytest.raises(AnnotationError, match="one class only"):
        model.fit(X, A)
    assert not hasattr(model, "module_")
    with pytest.raises(AnnotationError, match="no class has two instances"):
        built(NeuCrowdClassifier, **SMALL).fit(X[:3], np.repeat(np.arange(3)[:, None], 3, axis=1))
    tied = np.tile([0, 1], (48, 1))
    with pytest.raises(AnnotationError, match="one class only"):
        built(NeuCrowdClassifier, **SMALL).fit(X, tied)


@pytest.mark.parametrize(
    ("crowd", "n_classes"),
    [("one annotator", 3), ("all agree", 3), ("an annotation each", 3), ("silent", 3)],
)
def test_degenerate_crowds_that_can_be_learnt_from(crowd, n_classes):
    X, A, y = make_crowd_problem()
    A = {
        "one annotator": y[:, None],
        "all agree": np.repeat(y[:, None], 5, axis=1),
        "an annotation each": np.where(np.arange(48)[:, None] % 5 == np.arange(5), A, -1),
        "silent": np.hstack([A, np.full((48, 1), -1)]),
    }[crowd]
    if crowd == "silent":
        A[:5] = -1
    model = built(NeuCrowdClassifier, **SMALL).fit(X, A)
    assert model.predict_proba(X).shape == (48, n_classes)
    assert np.isfinite(model.predict_proba(X)).all()
    np.testing.assert_allclose(model.confusion_.sum(axis=2), 1.0)


def test_classes_in_an_order_of_their_own_with_one_that_nobody_named():
    X, A, y = make_crowd_problem()
    names = np.array(["zebra", "ape", "moth"])
    rows, columns = np.nonzero(A >= 0)
    table = AnnotationTable.from_arrays(
        rows, columns, names[A[rows, columns]], classes=["moth", "yak", "zebra", "ape"]
    )
    more = {"max_epochs": 6, "n_tuplets": 256, "lr": 3e-3}
    model = built(NeuCrowdClassifier, **(SMALL | more)).fit(X, table)
    assert model.classes_.tolist() == ["moth", "yak", "zebra", "ape"]
    assert (model.predict(X) == names[y]).mean() > 0.9
    proba = model.predict_proba(X)
    assert proba[:, 1].max() < 1e-6
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


def test_a_loss_that_diverges_says_so():
    X, A, _ = make_crowd_problem()
    with pytest.raises(DivergenceError, match="lower lr"):
        built(NeuCrowdClassifier, **(SMALL | {"lr": 1e30})).fit(X, A)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tuplet_size", 2),
        ("n_tuplets", 0),
        ("unsafe_weight", 1.5),
        ("n_neighbors", 0),
        ("safety_margin", -1.0),
        ("n_candidates", 0),
        ("sampler_lr", 0.0),
        ("softmax", "both"),
        ("eta", 0.0),
        ("regression", "raw"),
        ("C", "best"),
        ("C", 0.0),
        ("cv", 1),
        ("backbone", LogisticRegression()),
    ],
)
def test_wrong_parameters_are_named(name, value):
    X, A, _ = make_crowd_problem()
    with pytest.raises(ValueError, match=name):
        built(NeuCrowdClassifier, **(SMALL | {name: value})).fit(X, A)


# -- class balance --------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["resample", "reweight"])
def test_balance_lifts_the_rare_class_in_the_regression(option):
    X, A, y = noisy_problem(n_noise=2)
    kept = (y == 0) | (np.arange(120) < 24)
    X, A = X[kept] / 4, A[kept]
    plain = built(Spied, **SMALL).fit(X, A)
    balanced = built(Spied, **SMALL, class_balance=option).fit(X, A)
    assert balanced.class_prior_[1] > plain.class_prior_[1] + 0.05
    if option == "reweight":
        np.testing.assert_allclose(balanced.class_prior_, 0.5, atol=1e-6)
    gained = balanced.class_prior_[1] - plain.class_prior_[1]
    lifted = balanced.predict_proba(X).mean(axis=0) - plain.predict_proba(X).mean(axis=0)
    assert lifted[1] > gained / 3
    for epoch in range(3):
        np.testing.assert_array_equal(plain.tuplets_of(epoch), balanced.tuplets_of(epoch))


@pytest.mark.parametrize("option", ["focal", {"name": "cb_focal", "gamma": 1}])
def test_focal_losses_are_an_error_that_says_why(option):
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match="balances a logistic regression; use 'resample'"):
        built(NeuCrowdClassifier, **SMALL, class_balance=option).fit(X, A)
    with pytest.raises(AnnotationError, match="class_balance='focus' is unknown"):
        built(NeuCrowdClassifier, **SMALL, class_balance="focus").fit(X, A)


# -- networks and kinds of X ----------------------------------------------------------------------


def test_of_a_users_network_without_embed_the_output_is_the_embedding():
    X, A, _ = make_crowd_problem()
    own = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6))
    before = {name: value.clone() for name, value in own.state_dict().items()}
    model = built(NeuCrowdClassifier, own, **SMALL).fit(X, A)
    assert model.transform(X).shape == (48, 6)
    assert model.predict_proba(X).shape == (48, 3)
    for name, value in own.state_dict().items():
        assert torch.equal(value, before[name]), "the user's module was trained in place"
    assert not torch.equal(model.module_.classifier.backbone.network[0].weight, own[0].weight)


def test_networks_that_normalise_over_batches():
    X, A, _ = make_crowd_problem()
    backbone = {"name": "mlp", "hidden": (8,), "batch_norm": True}
    model = built(NeuCrowdClassifier, backbone, **SMALL).fit(X, A)
    assert model.transform(X).shape == (48, 8)
    np.testing.assert_allclose(model.predict_proba(X[:1]), model.predict_proba(X)[:1], atol=1e-6)


@pytest.mark.parametrize("regression", ["embedding", "both"])
def test_images(regression):
    _, A, y = make_crowd_problem(n=24)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 2, 8, 8)).astype(np.float32) + y[:, None, None, None]
    backbone = {"name": "cnn", "channels": (4,), "hidden": 8}
    more = {"backbone": backbone, "regression": regression, "max_epochs": 2}
    model = built(NeuCrowdClassifier, **(SMALL | more)).fit(X, A)
    assert model.transform(X).shape == (24, 8)
    assert model.predict_proba(X).shape == (24, 3)


@pytest.mark.parametrize("regression", ["embedding", "both"])
def test_datasets_and_sparse_matrices_are_the_arrays_they_hold(regression):
    X, A, _ = make_crowd_problem()
    X = np.where(X > 0.5, X, 0.0).astype(np.float32)
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X))
    parameters = SMALL | {"scaling": None, "regression": regression, "max_epochs": 2}
    plain = built(NeuCrowdClassifier, **parameters).fit(X, A)
    for other in (dataset, csr_matrix(X)):
        model = built(NeuCrowdClassifier, **parameters).fit(other, A)
        np.testing.assert_allclose(model.predict_proba(other), plain.predict_proba(X), atol=1e-5)
        np.testing.assert_allclose(model.transform(other), plain.transform(X), atol=1e-5)


# -- the regression --------------------------------------------------------------------------------


def test_the_regression_is_that_of_the_embedding_and_balances_to_the_targets():
    X, A, _ = make_crowd_problem()
    model = built(Spied, **SMALL).fit(X, A)
    Z = model.transform(X)[model.data.order].astype(float)
    rows, classes = np.nonzero(model.data.targets)
    by_hand = LogisticRegression(C=0.1, max_iter=1000).fit(
        Z[rows], classes, sample_weight=model.data.targets[rows, classes]
    )
    expected = by_hand.predict_proba(model.transform(X).astype(float))
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-3)


# -- what a second look found -----------------------------------------------------------------


def test_a_class_of_fewer_than_two_safe_instances_is_drawn_alike(monkeypatch):
    X, A, _ = make_crowd_problem()
    model = built(Spied, **(SMALL | {"max_epochs": 2}), unsafe_weight=0.0).fit(X, A)
    data = model.data
    known = np.flatnonzero(data.labels >= 0)
    first = {c: np.flatnonzero(data.labels[known] == c)[0] for c in range(3)}
    safe = data.labels[known] == 2
    safe[first[1]] = True
    monkeypatch.setattr(neucrowd, "safe_instances", lambda *a, **k: safe)
    drawn = noted_weights(monkeypatch)
    model.fit(X, A)
    # None of class 0 is safe, one of class 1, all of class 2.
    np.testing.assert_array_equal(drawn, [np.where(data.labels >= 0, 1.0, 0.0)])
    safe[data.labels[known] == 1] = True
    safe[first[1]] = False
    expected = np.where(data.labels >= 0, 1.0, 0.0)
    expected[known[first[1]]] = 0.0
    model.fit(X, A)
    np.testing.assert_array_equal(drawn[1:], [expected])


def test_majority_vote_given_is_the_default():
    X, A, _ = make_crowd_problem()
    given = built(NeuCrowdClassifier, **SMALL, aggregator=MajorityVote()).fit(X, A)
    np.testing.assert_array_equal(fitted().predict_proba(X), given.predict_proba(X))


def test_of_one_candidate_nothing_is_chosen():
    X, A, _ = make_crowd_problem()
    plain = fitted(sampling_network=False)
    one = built(NeuCrowdClassifier, **SMALL, protocol=NeuCrowdProtocol(n_candidates=1)).fit(X, A)
    np.testing.assert_array_equal(plain.predict_proba(X), one.predict_proba(X))


@pytest.mark.parametrize("value", [np.nan, np.inf, "1"])
def test_a_similarity_constant_that_is_none_is_named(value):
    X, A, _ = make_crowd_problem()
    with pytest.raises(ValueError, match="'similarity_constant' parameter of NeuCrowdProtocol"):
        built(
            NeuCrowdClassifier, **SMALL, protocol=NeuCrowdProtocol(similarity_constant=value)
        ).fit(X, A)


def test_the_command_line_knows_its_name():
    assert short_name(NeuCrowdClassifier) == "neu-crowd"
    assert short_name(SelfTrainingCrowdClassifier) == "self-training"
