"""Anno-Reg: confusion matrices, their trace, and the limiting case without the penalty."""

import copy
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from manyhands import TraceRegClassifier, TraceRegProtocol, load, make_crowd
from manyhands.estimator_checks import make_crowd_problem
from manyhands.nn import PARAMETRIZATIONS, ConfusionModule, Linear, ScaledClassifier, Standardize
from manyhands.objectives import trace_objective
from manyhands.training import Checkpoint, CrowdBatch

QUICK = {"max_epochs": 3, "batch_size": 16, "random_state": 0, "device": "cpu"}
D, C, R = 4, 3, 5


def softmax(values):
    e = [math.exp(v - max(values)) for v in values]
    return [v / sum(e) for v in e]


def make_module(**parameters):
    torch.manual_seed(0)
    classifier = ScaledClassifier(Standardize((D,), None), Linear((D,), C))
    return ConfusionModule(classifier, C, R, **parameters)


def shaken(**parameters):
    module = make_module(**parameters)
    with torch.no_grad():
        module.kernels.add_(torch.randn_like(module.kernels))
    return module


def matrix_by_hand(kernel, parametrization):
    """W of a kernel (lists), [true][given]."""
    if parametrization == "column_softmax":
        columns = [softmax([kernel[c][g] for c in range(C)]) for g in range(C)]
        return [[columns[g][c] for g in range(C)] for c in range(C)]
    if parametrization == "softmax":
        return [softmax(row) for row in kernel]
    positive = [[math.log1p(math.exp(v)) for v in row] for row in kernel]
    return [[v / sum(row) for v in row] for row in positive]


@pytest.mark.parametrize("parametrization", PARAMETRIZATIONS)
def test_module_equals_a_slow_loop(parametrization):
    module = shaken(parametrization=parametrization)
    x = torch.randn(6, D)
    rows, annotators = torch.tensor([0, 0, 3, 5]), torch.tensor([1, 4, 0, 2])
    with torch.no_grad():
        fast = module.annotation_log_proba(x, rows, annotators).exp()
        grid = module.annotation_log_proba_grid(x, torch.tensor([4, 1])).exp()
        proba = module(x).softmax(dim=1).tolist()
        confusion, traces = module.confusion(), module.traces(torch.arange(R))
    for k, (i, r) in enumerate(zip(rows.tolist(), annotators.tolist(), strict=True)):
        W = matrix_by_hand(module.kernels[r].tolist(), parametrization)
        given = [sum(proba[i][c] * W[c][g] for c in range(C)) for g in range(C)]
        outer = softmax if parametrization == "column_softmax" else list
        assert_close(fast[k], torch.tensor(outer(given)))
        assert_close(confusion[r], torch.tensor([outer(row) for row in W]))
        assert_close(traces[r], torch.tensor(sum(W[c][c] for c in range(C))))
    assert_close(grid[0], fast[[1, 0]])


def test_softplus_starts_as_published():
    """softplus(6 I - 5), rows divided by their sums."""
    on, off = math.log1p(math.exp(1)), math.log1p(math.exp(-5))
    confusion = make_module().confusion()
    assert_close(confusion[2, 1, 1], torch.tensor(on / (on + 2 * off)))
    assert_close(confusion[2, 1, 0], torch.tensor(off / (on + 2 * off)))


def test_rows_that_underflow_stay_finite():
    module = make_module()
    with torch.no_grad():
        module.kernels[0, 0] = -1000.0
    log_proba = module.annotation_log_proba(torch.zeros(1, D), torch.tensor([0]), torch.tensor([0]))
    log_proba.sum().backward()
    assert torch.isfinite(log_proba).all()
    assert torch.isfinite(module.kernels.grad).all()


def test_loss_equals_a_slow_loop():
    module = shaken(parametrization="softmax")
    pairs = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 3, 1]), torch.tensor([2, 0, 1, 1])
    weights = torch.tensor([1.0, 3.0, 2.0, 4.0])
    batch = CrowdBatch(torch.randn(2, D), torch.arange(2), *pairs, weights)
    rarity = torch.tensor([2.0, 0.5, 9.0, 1.5, 9.0])
    terms = trace_objective(module, batch, rarity, trace_weight=0.5)
    proba = module(batch.x).softmax(dim=1).tolist()
    nll = trace = 0.0
    for k, (i, r, y) in enumerate(zip(*(part.tolist() for part in pairs), strict=True)):
        W = matrix_by_hand(module.kernels[r].tolist(), "softmax")
        nll -= float(weights[k]) * math.log(sum(proba[i][c] * W[c][y] for c in range(C))) / 4
        trace += 0.5 * float(rarity[r]) * sum(W[c][c] for c in range(C)) / 4
    assert_close(terms["nll"], torch.tensor(nll))
    assert_close(terms["trace"], torch.tensor(trace))


def test_the_whole_data_give_the_mean_trace_of_annotators():
    """One batch, before its step: the mean is over annotators, however much they annotated."""
    X, A, _ = make_crowd_problem()
    A[10:, 0] = -1
    A = np.hstack([A, np.full((len(A), 1), -1)])
    options = QUICK | {"max_epochs": 1, "batch_size": 100}
    model = TraceRegClassifier(
        trace_weight=0.5, **options, protocol=TraceRegProtocol(init_scale=2.0)
    ).fit(X, A)
    start = make_module(init_scale=2.0).confusion()[0].trace().detach()
    assert model.history_.column("trace")[0] == pytest.approx(0.5 * float(start), rel=1e-5)
    module = model.module_
    with torch.no_grad():
        module.kernels.copy_(torch.randn_like(module.kernels))
        traces = module.traces(torch.arange(6))
    counts = (A >= 0).sum(axis=0)
    rarity = torch.tensor(counts.sum() / (np.maximum(counts, 1) * 5), dtype=torch.float32)
    i, r = np.nonzero(A >= 0)
    batch = CrowdBatch(
        torch.tensor(X, dtype=torch.float32), torch.arange(len(X)), torch.tensor(i),
        torch.tensor(r), torch.tensor(A[i, r]), None,
    )  # fmt: skip
    terms = trace_objective(module, batch, rarity, trace_weight=2.0)
    assert_close(terms["trace"], 2.0 * traces[:5].mean())


def test_without_the_penalty_it_is_a_softmax_crowd_layer():
    """Limiting case, against a training loop written out here; whole batches, so no shuffling."""
    X, A, _ = make_crowd_problem()
    torch.manual_seed(1)
    network = torch.nn.Linear(4, C)
    published = TraceRegProtocol(parametrization="softmax", init_scale=2.0, noise_lr=None)
    model = TraceRegClassifier(
        copy.deepcopy(network), trace_weight=0.0, lr=0.05, weight_decay=1e-3, max_epochs=4,
        batch_size=100, scaling=None, random_state=0, device="cpu", protocol=published,
    ).fit(X, A)  # fmt: skip
    kernels = torch.nn.Parameter(2.0 * torch.eye(C).repeat(R, 1, 1))
    optimizer = torch.optim.Adam([*network.parameters(), kernels], lr=0.05, weight_decay=1e-3)
    x = torch.tensor(X, dtype=torch.float32)
    for _ in range(4):
        p = network(x).softmax(dim=1)
        losses = [
            -(p[i] @ kernels[r].softmax(dim=1))[A[i, r]].log()
            for i, r in zip(*np.nonzero(A >= 0), strict=True)
        ]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    expected = network(x).softmax(dim=1).detach().numpy()
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=2e-5)
    layer = kernels.softmax(dim=2).detach().numpy()
    np.testing.assert_allclose(model.confusion_, layer, atol=2e-5)
    assert not model.history_.column("trace").any()
    np.testing.assert_array_equal(model.history_.column("loss"), model.history_.column("nll"))


@pytest.mark.parametrize("parametrization", ["softplus", "softmax"])
def test_known_confusions_are_recovered(parametrization):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 2000)
    X = rng.normal(size=(2000, 8)).astype(np.float32) + 1.5 * np.eye(4, 8, dtype=np.float32)[y]
    table = make_crowd(
        y, X=X, n_annotators=6, annotations_per_instance=4.0, noise_strength=(0.1, 0.6),
        random_state=0,
    )  # fmt: skip
    few_large_steps = {"max_epochs": 10, "lr": 4e-3}
    model = TraceRegClassifier(
        random_state=0,
        **few_large_steps,
        protocol=TraceRegProtocol(parametrization=parametrization, noise_lr=0.06),
    )
    model.fit(X, table)
    counts = np.zeros((6, 4, 4))
    np.add.at(counts, (table.annotator, y[table.instance], table.label), 1)
    counts /= counts.sum(axis=2, keepdims=True)
    assert np.abs(model.confusion_ - counts).mean() < 0.02
    assert np.abs(model.confusion_ - counts).max() < 0.1


def test_the_penalty_lowers_the_trace_and_is_logged_with_its_weight():
    X, A, _ = make_crowd_problem()
    weak, strong = (
        TraceRegClassifier(trace_weight=weight, **(QUICK | {"max_epochs": 20})).fit(X, A)
        for weight in (0.0, 1.0)
    )
    traces = [np.trace(model.confusion_, axis1=1, axis2=2).mean() for model in (weak, strong)]
    assert traces[1] < traces[0] - 0.05
    logged = strong.history_.column("trace")
    assert 0 < logged[-1] < logged[0] < 3
    heavy = TraceRegClassifier(trace_weight=100.0, **QUICK).fit(X, A)
    assert heavy.history_.column("trace")[0] > 150


def test_a_silent_annotator_is_left_out_of_the_penalty():
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    model = TraceRegClassifier(trace_weight=10.0, **QUICK).fit(X, A)
    start = make_module().confusion()[0].detach().numpy()
    np.testing.assert_allclose(model.module_.confusion()[5].detach(), start, atol=1e-6)
    np.testing.assert_array_equal(model.confusion_[5], model.pooled_confusion_)
    assert (np.trace(model.confusion_[:5], axis1=1, axis2=2) < np.trace(start)).all()


def test_column_softmax_survives_saving(tmp_path):
    X, A, _ = make_crowd_problem()
    model = TraceRegClassifier(
        **QUICK, protocol=TraceRegProtocol(parametrization="column_softmax")
    ).fit(X, A)
    np.testing.assert_allclose(model.confusion_.sum(axis=2), 1.0, rtol=1e-6)
    # Between softmax of (1, 0, 0) and of (0, 1, 1): the second softmax keeps it flat.
    assert model.confusion_.max() < math.e / (math.e + 2)
    loaded = load(model.save(tmp_path))
    np.testing.assert_array_equal(
        model.predict_annotation_proba(X), loaded.predict_annotation_proba(X)
    )


def test_focal_loss_and_weights_reach_the_likelihood():
    X, A, y = make_crowd_problem()
    A[(y == 2) & (np.arange(len(y)) > 12)] = -1
    plain = TraceRegClassifier(**QUICK).fit(X, A).predict_proba(X)
    for option in ("resample", "reweight", "focal", "cb_focal"):
        other = TraceRegClassifier(class_balance=option, **QUICK).fit(X, A).predict_proba(X)
        assert np.isfinite(other).all()
        assert np.abs(other - plain).max() > 1e-4, option


class Killed(Exception):
    pass


@pytest.mark.slow
def test_resume_ends_in_the_same_weights(tmp_path, monkeypatch):
    X, A, _ = make_crowd_problem()
    parameters = QUICK | {"max_epochs": 6, "validation": 0.2}
    file = tmp_path / "run.safetensors"
    whole = TraceRegClassifier(**parameters).fit(X, A)
    written = Checkpoint.on_epoch_end

    def die_after_two(self, number, row):
        written(self, number, row)
        if row["epoch"] == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", die_after_two)
        with pytest.raises(Killed):
            TraceRegClassifier(checkpoint=file, **parameters).fit(X, A)
    resumed = TraceRegClassifier(checkpoint=file, **parameters).fit(X, A)
    for name, value in whole.module_.state_dict().items():
        assert torch.equal(value, resumed.module_.state_dict()[name]), name
    np.testing.assert_array_equal(whole.confusion_, resumed.confusion_)


def test_batches_of_one_and_contradicting_annotators():
    X, A, y = make_crowd_problem(n=12)
    A = np.column_stack([y, (y + 1) % 3])
    model = TraceRegClassifier(**(QUICK | {"batch_size": 1})).fit(X, A)
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(model.confusion_).all()
