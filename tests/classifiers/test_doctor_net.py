"""Doctor Net: heads, their weighted mean, the two stages."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.testing import assert_close

import manyhands.nn.annotator_heads as annotator_heads
from manyhands import AnnotationTable, DoctorNetClassifier, DoctorNetProtocol, load, make_crowd
from manyhands.estimator_checks import check_crowd_estimator, make_crowd_problem
from manyhands.nn import DoctorNetModule, Linear, ScaledClassifier, Standardize
from manyhands.objectives import annotator_average_nll
from manyhands.training import Checkpoint, CrowdBatch
from tests.building import built
from tests.rounding import assert_near

N, D, C, R = 6, 4, 3, 5
QUICK = {"max_epochs": 3, "batch_size": 16, "random_state": 0, "device": "cpu"}
LEARNED = QUICK | {"weighting": "learned", "weight_epochs": 4}


def softmax(values):
    top = max(values)
    e = [math.exp(v - top) for v in values]
    return [v / sum(e) for v in e]


def make_module(active=(1, 1, 1, 1, 0), scale=0.7):
    torch.manual_seed(0)
    classifier = ScaledClassifier(Standardize((D,), None), Linear((D,), C))
    module = DoctorNetModule(classifier, C, R, input_shape=(D,), learned=True)
    module.active.copy_(torch.tensor(active, dtype=torch.bool))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return module


@pytest.fixture
def module():
    return make_module()


@pytest.fixture
def x():
    return torch.randn(N, D, generator=torch.Generator().manual_seed(1))


def slow_heads(module, x):
    """Probabilities [instance][annotator][class], in plain Python."""
    weight, bias = module.weight.tolist(), module.bias.tolist()
    return [
        [
            softmax([bias[r][c] + sum(v[e] * weight[r][e][c] for e in range(D)) for c in range(C)])
            for r in range(R)
        ]
        for v in x.tolist()
    ]


def slow_mean(module, heads, counted):
    """Weighted mean of the heads that count for an instance."""
    w = module.weight_logits.tolist()
    total = sum(math.exp(w[r]) for r in counted)
    return [sum(math.exp(w[r]) / total * heads[r][c] for r in counted) for c in range(C)]


def make_batch(x, weights=None):
    rows, annotators = [0, 0, 1, 2, 2, 2, 2, 3], [0, 1, 3, 0, 1, 2, 3, 2]
    labels = [0, 1, 2, 0, 0, 1, 2, 1]
    return CrowdBatch(
        x, torch.arange(N), torch.tensor(rows), torch.tensor(annotators), torch.tensor(labels),
        None if weights is None else torch.tensor(weights),
    )  # fmt: skip


# -- the module -------------------------------------------------------------------------------


def test_the_mean_of_heads_equals_a_slow_loop(module, x):
    heads = slow_heads(module, x)
    expected = torch.tensor([slow_mean(module, heads[i], range(4)) for i in range(N)])
    assert_close(module(x).exp(), expected)
    assert_close(module(x).softmax(dim=1), expected)


def test_equal_weights_by_hand():
    """Two heads that say (.9, .1) and (.5, .5); a third is silent: the mean is (.7, .3)."""
    classifier = ScaledClassifier(Standardize((1,), None), Linear((1,), 2))
    module = DoctorNetModule(classifier, 2, 3, input_shape=(1,))
    with torch.no_grad():
        module.weight.zero_()
        module.bias.copy_(torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.01, 0.99]]).log())
    module.active[2] = False
    assert_close(module(torch.zeros(1, 1)).softmax(dim=1), torch.tensor([[0.7, 0.3]]))
    assert not module.weight_logits.requires_grad


def test_annotations_equal_a_slow_loop_and_the_silent_say_the_mean(module, x):
    rows, annotators = torch.tensor([0, 0, 3, 5, 5]), torch.tensor([1, 3, 0, 4, 2])
    heads = slow_heads(module, x)
    pairs = zip(rows.tolist(), annotators.tolist(), strict=True)
    expected = [slow_mean(module, heads[i], range(4)) if r == 4 else heads[i][r] for i, r in pairs]
    given = module.annotation_log_proba(x, rows, annotators)
    assert_close(given.exp(), torch.tensor(expected))
    grid = module.annotation_log_proba_grid(x, torch.tensor([4, 1]))
    assert_close(grid[5, 0], given[3])
    assert_close(grid[0, 1], given[0])


def test_weights_are_renormalised_over_who_is_left(module):
    with torch.no_grad():
        module.weight_logits.copy_(torch.tensor([1.0, 2.0, 4.0, 1.0, 100.0]).log())
    assert_close(module.log_weights().exp(), torch.tensor([1, 2, 4, 1, 0]) / 8)
    left_out = torch.tensor([[1, 0, 0, 1, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 1]], dtype=torch.bool)
    expected = torch.tensor([[0, 2 / 6, 4 / 6, 0, 0], [1 / 8, 2 / 8, 4 / 8, 1 / 8, 0]])
    given = module.log_weights(left_out).exp()
    assert_close(given[:2], expected)
    assert_close(given[2], torch.tensor([1, 2, 4, 1, 0]) / 8)


def test_extreme_heads_stay_finite(x):
    """Probabilities that round to 0 keep their logarithm, and the gradient stays a number."""
    module = make_module(scale=500.0)
    logits = module(x)
    assert torch.isfinite(logits).all()
    assert logits.min() < -200, "a probability that single precision cannot hold"
    logits.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in (module.weight, module.weight_logits))


def test_blocks_change_nothing(module, x, monkeypatch):
    batch = make_batch(x)

    def run():
        module.zero_grad()
        loss = annotator_average_nll(module, batch, exclude_own=True)["average_nll"]
        loss.backward()
        pairs = module.annotation_log_proba(x, batch.rows, batch.annotators)
        return loss.detach(), module.weight_logits.grad.clone(), module(x).detach(), pairs.detach()

    whole = run()
    monkeypatch.setattr(annotator_heads, "HEAD_ENTRIES", 2 * R * C)
    monkeypatch.setattr(annotator_heads, "GATHERED_ENTRIES", 1)
    for one, many in zip(whole, run(), strict=True):
        assert_close(one, many)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5, 0.0, 1.0, 1.0, 3.0, 1.0]])
@pytest.mark.parametrize("exclude_own", [True, False])
@pytest.mark.parametrize("focus", [0.0, 2.0])
def test_average_nll_equals_a_slow_loop(module, x, weights, exclude_own, focus):
    batch = make_batch(x, weights)
    heads = slow_heads(module, x)
    given = weights or [1.0] * 8
    columns = (batch.rows, batch.annotators, batch.labels)
    votes = list(zip(*(c.tolist() for c in columns), given, strict=True))
    total = mass = 0.0
    for i in range(N):
        own = [(r, c, w) for row, r, c, w in votes if row == i and w > 0]
        left = [r for r in range(4) if not (exclude_own and r in [o[0] for o in own])]
        mean = slow_mean(module, heads[i], left or range(4))
        for _, c, w in own:
            total += w / len(own) * (1 - mean[c]) ** focus * -math.log(mean[c])
            mass += w / len(own)
    loss = annotator_average_nll(module, batch, exclude_own=exclude_own, focus=focus)
    assert loss["average_nll"].item() == pytest.approx(total / mass, rel=1e-5)
    loss["average_nll"].backward()
    assert module.weight.grad is None, "heads are frozen"
    assert module.weight_logits.grad[4] == 0
    assert module.weight_logits.grad.abs().sum() > 0


def test_average_nll_is_eq_7(module, x):
    """Unweighted: mean over instances of the cross entropy against the mean one-hot label."""
    batch = make_batch(x)
    target = torch.zeros(N, C)
    target.index_put_((batch.rows, batch.labels), torch.ones(8), accumulate=True)
    annotated = target.sum(dim=1) > 0
    target = target[annotated] / target[annotated].sum(dim=1, keepdim=True)
    expected = -(target * module(x)[annotated]).sum(dim=1).mean()
    loss = annotator_average_nll(module, batch, exclude_own=False)["average_nll"]
    assert_close(loss, expected)


def test_expected_confusion_equals_a_slow_loop(module, x):
    batch = make_batch(x)
    heads = slow_heads(module, x)
    total = np.zeros((R, C, C))
    for i, r in zip(batch.rows.tolist(), batch.annotators.tolist(), strict=True):
        total[r] += np.outer(slow_mean(module, heads[i], range(4)), heads[i][r])
    total[4] = total.sum(axis=0)
    expected = total / total.sum(axis=2, keepdims=True)
    parts = [(x, batch.rows[:4], batch.annotators[:4]), (x, batch.rows[4:], batch.annotators[4:])]
    np.testing.assert_allclose(module.expected_confusion(parts).detach(), expected, rtol=1e-5)


# -- the classifier ---------------------------------------------------------------------------


def test_the_contract_holds_with_learnt_weights():
    # At this rate no class is lost, so there are no further starts but where a check needs them.
    check_crowd_estimator(
        DoctorNetClassifier(
            weighting="learned", lr=0.05, protocol=DoctorNetProtocol(weight_epochs=2)
        )
    )


def test_a_single_annotator_is_a_plain_classifier():
    """Limiting case: the mean of one head is that head."""
    X, _, y = make_crowd_problem()
    model = built(DoctorNetClassifier, **QUICK).fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(X), model.predict_annotation_proba(X)[:, 0], rtol=1e-5
    )
    assert model.weights_.tolist() == [1.0]


def test_prediction_is_the_weighted_mean_of_the_annotators_heads():
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    for model in (
        built(DoctorNetClassifier, **QUICK),
        built(DoctorNetClassifier, **LEARNED, protocol=DoctorNetProtocol(weight_lr=0.5)),
    ):
        model.fit(X, A)
        heads = model.predict_annotation_proba(X)
        mean = np.einsum("r,nrc->nc", model.weights_, heads)
        np.testing.assert_allclose(model.predict_proba(X), mean, atol=1e-6)
        np.testing.assert_allclose(heads[:, 5], mean @ model.pooled_confusion_, atol=1e-6)
        assert model.weights_[5] == 0
        assert model.weights_.sum() == pytest.approx(1)
    equal = built(DoctorNetClassifier, **QUICK).fit(X, A).weights_[:5]
    assert_near(equal, 0.2, n=5)
    assert np.ptp(model.weights_[:5]) > 0.05


def test_an_annotator_whose_annotations_weigh_nothing_is_silent():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    weighted = AnnotationTable.from_arrays(
        table.instance, table.annotator, table.label, weight=(table.annotator != 2).astype(float),
        classes=table.classes, n_instances=48, n_annotators=5,
    )  # fmt: skip
    assert built(DoctorNetClassifier, **LEARNED).fit(X, weighted).weights_[2] == 0


def test_the_second_stage_moves_the_weights_and_nothing_else():
    X, A, _ = make_crowd_problem()
    backbone = {"name": "mlp", "batch_norm": True}
    heads = built(DoctorNetClassifier, backbone, **QUICK).fit(X, A).module_.state_dict()
    both = built(DoctorNetClassifier, backbone, **LEARNED).fit(X, A)
    for name, value in both.module_.state_dict().items():
        assert torch.equal(value, heads[name]) == (name != "weight_logits"), name
    assert [row["stage"] for row in both.history_] == ["heads"] * 3 + ["weights"] * 4
    assert set(both.history_[-1]) == {"stage", "epoch", "average_nll", "loss", "seconds"}


def test_learnt_weights_minimise_eq_7():
    """The second stage ends where a generic solver on the same heads' probabilities ends."""
    X, A, _ = make_crowd_problem(n=120)
    options = {"batch_size": 120, "weight_epochs": 100, "weight_lr": 0.2, "exclude_own": False}
    model = built(DoctorNetClassifier, **(LEARNED | options)).fit(X, A)
    heads = model.predict_annotation_proba(X).astype(float)
    counts = (A[:, :, None] == np.arange(3)).sum(axis=1)
    target = counts / counts.sum(axis=1, keepdims=True)

    def loss(w):
        omega = np.exp(w - w.max())
        mean = np.einsum("r,nrc->nc", omega / omega.sum(), heads)
        return -(target * np.log(mean)).sum(axis=1).mean()

    best = minimize(loss, np.zeros(5), tol=1e-10).fun
    reached = model.history_[-1]["average_nll"]
    assert reached == pytest.approx(best, abs=1e-4)
    assert reached < loss(np.zeros(5)) - 1e-3


def test_own_annotations_count_too_much_without_exclusion():
    """Heads that have learnt noise by heart are believed unless their owners are left out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 100)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    A = np.column_stack([y, rng.integers(0, 2, 60)])
    A = np.where(rng.random(A.shape) < 0.5, A, -1)
    options = {"max_epochs": 40, "lr": 2e-2, "random_state": 0, "weighting": "learned"}
    options |= {"weight_epochs": 20, "batch_size": 60}
    fits = [
        built(DoctorNetClassifier, **options, protocol=DoctorNetProtocol(exclude_own=e)).fit(X, A)
        for e in (True, False)
    ]
    last = [fit.history_[-1]["average_nll"] for fit in fits]
    assert last[1] < 0.1 < last[0], "their own annotations look explained"


def test_confusions_of_a_simulated_crowd_are_recovered():
    """Within .08 of what exact heads expect, who see true classes through the crowd's mean.

    Where the true class is y, p(x) is row y of the mean confusion M, and annotator r's head row
    y of its confusion T: row c of the expected one is the mean of T's rows, weighted by M[:, c].
    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 2000)
    X = rng.normal(size=(2000, 6)).astype(np.float32) + 4 * np.eye(3, 6, dtype=np.float32)[y]
    table = make_crowd(
        y, X=X, n_annotators=6, annotations_per_instance=3.0, noise_strength=0.2, random_state=0
    )
    model = DoctorNetClassifier(max_epochs=8, lr=3e-2, batch_size=512, random_state=0).fit(X, table)
    true = np.zeros((6, 3, 3))
    np.add.at(true, (table.annotator, y[table.instance], table.label), 1)
    true /= true.sum(axis=2, keepdims=True)
    expected = np.einsum("yc,ryg->rcg", true.mean(axis=0), true)
    expected /= expected.sum(axis=2, keepdims=True)
    assert np.abs(model.confusion_ - expected).max() < 0.08
    assert np.abs(true - expected).max() > 0.15, "the blur is not nothing"
    assert model.score(X, y) > 0.95


def test_a_network_without_embedding_is_the_trunk():
    X, A, _ = make_crowd_problem()
    own = torch.nn.Sequential(torch.nn.Linear(4, 7), torch.nn.Tanh())
    model = built(DoctorNetClassifier, own, **QUICK).fit(X, A)
    assert model.module_.weight.shape == (5, 7, 3)
    assert not hasattr(model, "transform")
    assert built(DoctorNetClassifier, "linear", **QUICK).fit(X, A).module_.weight.shape == (5, 4, 3)


def test_learnt_weights_survive_saving(tmp_path):
    X, A, _ = make_crowd_problem()
    model = built(DoctorNetClassifier, **LEARNED).fit(X, A)
    loaded = load(model.save(tmp_path))
    np.testing.assert_array_equal(model.predict_proba(X), loaded.predict_proba(X))
    np.testing.assert_array_equal(model.weights_, loaded.weights_)


# -- validation and checkpoints ---------------------------------------------------------------


def test_held_out_annotations_choose_the_heads_and_keep_the_weights():
    X, A, _ = make_crowd_problem()
    options = LEARNED | {"max_epochs": 12, "lr": 0.1, "validation": 0.2, "monitor": "likelihood"}
    model = built(DoctorNetClassifier, **options).fit(X, A)
    history = model.history_
    nll = history.column("validation_nll")[:12]
    assert model.best_epoch_ == int(nll.argmin()) + 1 < 12
    # The weights are learnt on the best heads ...
    again = [row["validation_nll"] for row in history[12:]]
    assert_near(again, nll.min(), n=np.sum(A >= 0))
    # ... all their epochs, and not thrown away.
    assert len(history) == 16
    assert np.ptp(model.weights_) > 1e-3
    plain = built(DoctorNetClassifier, **(options | {"weighting": "average"})).fit(X, A)
    assert plain.best_epoch_ == model.best_epoch_
    assert_close(plain.module_.weight, model.module_.weight)


def test_patience_stops_the_heads_but_not_the_weights():
    X, A, _ = make_crowd_problem()
    options = LEARNED | {"max_epochs": 40, "lr": 0.1, "validation": 0.2, "patience": 2}
    options |= {"monitor": "likelihood"}
    stages = [row["stage"] for row in built(DoctorNetClassifier, **options).fit(X, A).history_]
    assert stages.count("heads") < 40
    assert stages.count("weights") == 4


def test_agreement_chooses_among_both_stages():
    X, A, _ = make_crowd_problem()
    options = LEARNED | {"max_epochs": 12, "lr": 0.1, "validation": 0.2}
    model = built(DoctorNetClassifier, **options).fit(X, A)
    assert len(model.history_.column("validation_agreement", "weights")) == 4
    assert (model.best_stage_, model.best_epoch_) == ("weights", 4)  # The last; no epoch is ahead.
    stopped = built(DoctorNetClassifier, **options, patience=1).fit(X, A)
    assert len(stopped.history_.column("loss", "weights")) < 4


def test_gold_labels_choose_among_both_stages():
    X, A, y = make_crowd_problem(n=120)
    A = np.column_stack([A[:, 0], np.random.default_rng(0).integers(0, 3, (120, 4))])
    model = built(
        DoctorNetClassifier,
        **(LEARNED | {"weight_epochs": 20, "weight_lr": 0.2}),
        validation=(X, y),
    ).fit(X, A)
    accuracy = model.history_.column("validation_accuracy")
    assert model.score(X, y) == pytest.approx(accuracy.max())
    assert accuracy[3:].max() > accuracy[:3].max(), "a case in which the weights help"


class Killed(Exception):
    pass


def train_until(monkeypatch, stage, epoch, model, X, A):
    """Fit, and die right after the checkpoint of the given epoch is written."""
    written = Checkpoint.on_epoch_end

    def on_epoch_end(self, number, row):
        written(self, number, row)
        if (row["stage"], row["epoch"]) == (stage, epoch):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", on_epoch_end)
        with pytest.raises(Killed):
            model.fit(X, A)


@pytest.mark.slow
@pytest.mark.parametrize("place", [("heads", 2), ("heads", 3), ("weights", 2), ("weights", 4)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"validation": 0.2, "lr": 0.1, "patience": 1, "monitor": "likelihood"},
        {"validation": 0.5, "lr": 0.5},
    ],
)
def test_resume_ends_in_the_same_weights(place, options, tmp_path, monkeypatch):
    X, A, _ = make_crowd_problem()
    parameters = LEARNED | options
    whole = built(DoctorNetClassifier, **parameters).fit(X, A)
    file = tmp_path / "run.safetensors"
    killed = built(DoctorNetClassifier, checkpoint=file, **parameters)
    train_until(monkeypatch, *place, killed, X, A)
    resumed = built(DoctorNetClassifier, checkpoint=file, **parameters).fit(X, A)
    np.testing.assert_array_equal(whole.predict_proba(X), resumed.predict_proba(X))
    for name, value in whole.module_.state_dict().items():
        assert torch.equal(value, resumed.module_.state_dict()[name]), name
    assert len(resumed.history_) == len(whole.history_)
