"""Max-MIG: the information loss, the aggregator, and what it says of annotators."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from manyhands import AnnotationTable, MajorityVote, MaxMIGClassifier, load, make_crowd
from manyhands.classifiers import MaxMIGProtocol
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.functional import information_gain
from manyhands.nn import AggregatorModule, Linear, ScaledClassifier, Standardize
from manyhands.objectives import information_objective
from manyhands.training import Checkpoint, CrowdBatch
from tests.rounding import assert_near

QUICK = {"max_epochs": 3, "batch_size": 16, "random_state": 0, "device": "cpu"}
D, C, R = 4, 3, 5


def make_module():
    torch.manual_seed(0)
    module = AggregatorModule(ScaledClassifier(Standardize((D,), None), Linear((D,), C)), C, R)
    with torch.no_grad():
        module.tables.copy_(torch.randn(R, C, C))
        module.prior.copy_(torch.tensor([0.5, 0.3, 0.2]))
    return module


def softmax(values):
    e = [math.exp(v - max(values)) for v in values]
    return [v / sum(e) for v in e]


# Instance 0 has two annotations, 1 none, 2 three (two of them by annotator 4).
ROWS = torch.tensor([0, 2, 0, 2, 2])
ANNOTATORS = torch.tensor([1, 4, 0, 4, 2])
LABELS = torch.tensor([2, 0, 1, 1, 1])


def aggregate_by_hand(module, weights=None):
    tables, prior = module.tables.tolist(), module.prior.tolist()
    result = []
    for i in range(3):
        logits = [math.log(p) for p in prior]
        for k in range(len(ROWS)):
            if ROWS[k] == i:
                w = 1.0 if weights is None else float(weights[k])
                for c in range(C):
                    logits[c] += w * tables[int(ANNOTATORS[k])][int(LABELS[k])][c]
        result.append(softmax(logits))
    return result


def gain_by_hand(left, right, prior, weights):
    n = len(left)
    P = [
        [sum(left[i][c] * right[j][c] / prior[c] for c in range(C)) for j in range(n)]
        for i in range(n)
    ]
    own = sum(weights[i] * (1 + math.log(P[i][i])) for i in range(n)) / sum(weights)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    mass = sum(weights[i] * weights[j] for i, j in pairs)
    return own, sum(weights[i] * weights[j] * P[i][j] for i, j in pairs) / mass


def test_gain_by_hand():
    """Two sure and matching instances of two equally frequent classes: P is 2 I."""
    log_sure = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).clamp_min(1e-30).log()
    agreement, chance = information_gain(log_sure, log_sure, torch.tensor([0.5, 0.5]).log())
    assert_close(agreement, torch.tensor(1 + math.log(2)))
    assert_close(chance, torch.tensor(0.0))
    agreement, chance = information_gain(log_sure, log_sure[[0, 0]], torch.tensor([0.5, 0.5]).log())
    assert_close(
        chance, torch.tensor(1.0)
    )  # P_01 = 0, P_10 = 0 / .5, by either row: (0 + 2) / 2 ...
    assert agreement < -30, "the second pair contradicts itself, and stays finite"


@pytest.mark.parametrize("weighted", [False, True])
def test_gain_equals_a_slow_loop(weighted):
    torch.manual_seed(0)
    left, right = torch.randn(6, C).log_softmax(1), torch.randn(6, C).log_softmax(1)
    prior = torch.tensor([0.5, 0.3, 0.2])
    weights = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0, 3.0]) if weighted else None
    fast = information_gain(left, right, prior.log(), weights)
    loop = gain_by_hand(
        left.exp().tolist(), right.exp().tolist(), prior.tolist(),
        [1.0] * 6 if weights is None else weights.tolist(),
    )  # fmt: skip
    assert_close(torch.stack(fast), torch.tensor(loop))


def test_one_instance_has_no_pairs():
    log_left = torch.randn(1, C).log_softmax(1).requires_grad_()
    agreement, chance = information_gain(log_left, torch.zeros(1, C).log_softmax(1), torch.zeros(C))
    (chance - agreement).backward()
    assert chance == 0
    assert torch.isfinite(log_left.grad).all()
    # One of many that weighs anything is one as well.
    several = torch.randn(9, C).log_softmax(1)
    weights = torch.zeros(9)
    weights[4] = 1.7
    assert information_gain(several, several, torch.zeros(C), weights)[1] == 0


@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 0.5, 2.0, 0.0, 3.0])])
def test_aggregator_equals_a_slow_loop(weights):
    module = make_module()
    fast = module.aggregate(3, ROWS, ANNOTATORS, LABELS, weights).exp()
    slow = aggregate_by_hand(module, weights)
    assert_close(fast, torch.tensor(slow))
    assert_close(fast[1], module.prior)
    counted = module.count_confusions(3, ROWS, ANNOTATORS, LABELS, weights)
    counts = torch.zeros(R, C, C)
    for k in range(len(ROWS)):
        for c in range(C):
            w = 1.0 if weights is None else weights[k]
            counts[ANNOTATORS[k], c, LABELS[k]] += w * slow[int(ROWS[k])][c]
    pooled = counts.sum(0) + 1 / C
    counts += pooled / pooled.sum(1, keepdim=True)
    assert_close(counted, counts / counts.sum(2, keepdim=True))


def test_a_constant_for_a_given_class_changes_nothing():
    """So tables are no confusion matrices, and `count_confusions` reads them rightly."""
    module = make_module()
    before = module.count_confusions(3, ROWS, ANNOTATORS, LABELS)
    with torch.no_grad():
        module.tables.add_(torch.randn(R, C, 1))
    assert_close(module.count_confusions(3, ROWS, ANNOTATORS, LABELS), before)


def test_loss_equals_a_slow_loop():
    module = make_module()
    batch = CrowdBatch(
        torch.randn(3, D), torch.tensor([7, 0, 5]), ROWS, ANNOTATORS, LABELS, None
    )  # fmt: skip
    instance_weights = torch.arange(8.0)
    left = module(batch.x).softmax(dim=1).tolist()
    for weights, own in [(None, [1.0] * 3), (instance_weights, [7.0, 0.0, 5.0])]:
        terms = information_objective(module, batch, weights)
        expected = gain_by_hand(left, aggregate_by_hand(module), module.prior.tolist(), own)
        assert_close(terms["agreement"], torch.tensor(-expected[0]))
        assert_close(terms["chance"], torch.tensor(expected[1]))


def test_aggregator_starts_at_confusions_against_the_majority_vote():
    """log(confusion + .01), [annotator, given, true]; a row without evidence is log(.01)."""
    X, _, _ = make_crowd_problem(n=6)
    A = np.array([[0, 0, -1], [1, 1, -1], [1, 0, -1], [2, 2, -1], [2, 2, -1], [0, 0, 0]])
    still = MaxMIGClassifier(**QUICK | {"lr": 1e-12}, protocol=MaxMIGProtocol(noise_lr=None)).fit(
        X, A
    )
    start = still.module_.tables.detach()
    # Annotator 1 gave 0 to a sure 0 twice, and to an instance of half 0, half 1.
    assert_close(float(start[1, 0, 0]), math.log(1.0 + 0.01))
    assert_close(float(start[1, 0, 1]), math.log(0.5 / 1.5 + 0.01), rtol=1e-4, atol=1e-4)
    assert_close(start[2, :, 1:], torch.full((3, 2), math.log(0.01)))
    assert_close(float(start[2, 0, 0]), math.log(1.01))


def test_priors(tmp_path):
    X, A, _ = make_crowd_problem()
    uniform = MaxMIGClassifier(prior="uniform", **QUICK).fit(X, A)
    assert_close(uniform.module_.prior, torch.full((3,), 1 / 3))
    estimated = MaxMIGClassifier(**QUICK).fit(X, A)
    shares = (MajorityVote().fit(A).posterior_.sum(axis=0) + 1) / (len(A) + 3)
    np.testing.assert_allclose(estimated.module_.prior, shares, rtol=1e-6)
    given = MaxMIGClassifier(prior=np.array([0.6, 0.3, 0.1]), **QUICK).fit(X, A)
    assert_close(given.module_.prior, torch.tensor([0.6, 0.3, 0.1]))
    assert np.abs(given.predict_proba(X) - uniform.predict_proba(X)).max() > 1e-3
    loaded = load(given.save(tmp_path))
    assert_close(loaded.module_.prior, given.module_.prior)
    np.testing.assert_allclose(loaded.prior, [0.6, 0.3, 0.1], rtol=1e-6)
    for prior, message in [([0.5, 0.5], r"shape \(2,\)"), ([0.5, 0.5, 0.0], "positive")]:
        with pytest.raises(AnnotationError, match=f"prior.*{message}"):
            MaxMIGClassifier(prior=prior, **QUICK).fit(X, A)


def test_known_confusions_are_recovered():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 1500)
    X = rng.normal(size=(1500, 8)).astype(np.float32) + 1.5 * np.eye(4, 8, dtype=np.float32)[y]
    table = make_crowd(
        y, X=X, n_annotators=6, annotations_per_instance=4.0, noise_strength=(0.1, 0.6),
        random_state=0,
    )  # fmt: skip
    model = MaxMIGClassifier(random_state=0, max_epochs=20, lr=2e-3).fit(X, table)
    counts = np.zeros((6, 4, 4))
    np.add.at(counts, (table.annotator, y[table.instance], table.label), 1)
    counts /= counts.sum(axis=2, keepdims=True)
    assert np.abs(model.confusion_ - counts).mean() < 0.01
    assert np.abs(model.confusion_ - counts).max() < 0.05
    inferred = model.module_.aggregate(
        len(X), *(torch.tensor(c) for c in (table.instance, table.annotator, table.label))
    )
    votes = MajorityVote().fit_predict(table)
    assert (inferred.argmax(1).numpy() == y).mean() > (votes == y).mean() + 0.1


def test_confusions_are_counted_before_an_epoch_is_judged():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    options = QUICK | {"validation": 0.2, "protocol": MaxMIGProtocol(monitor="likelihood")}
    model = MaxMIGClassifier(**options).fit(X, table)
    held = MaxMIGClassifier(**options | {"max_epochs": 1}).fit(X, table)
    first = held.history_.column("validation_nll")[0]
    assert model.history_.column("validation_nll")[0] == first
    assert first < 1.5, "an identity that was never replaced would give mistakes no probability"


def test_copies_count_as_one():
    """Two careful annotators against three copies of a careless one, who outvote them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    X = rng.normal(size=(900, 6)) + 2.5 * np.eye(6)[y]
    careless = np.where(rng.random(900) < 0.55, y, (y + 1) % 3)
    good = [np.where(rng.random(900) < 0.85, y, rng.integers(0, 3, 900)) for _ in range(2)]
    A = np.column_stack([*good, careless, careless, careless])
    model = MaxMIGClassifier(random_state=0, max_epochs=15, lr=3e-3).fit(X, A)
    assert model.score(X, y) > np.mean(MajorityVote().fit_predict(A) == y) + 0.2


@pytest.mark.parametrize("option", ["resample", "reweight", {"name": "cb_focal", "gamma": 0}])
def test_balancing_weighs_instances(option):
    X, A, y = make_crowd_problem()
    A[(y == 2) & (np.arange(len(y)) > 12)] = -1
    options = QUICK | {"max_epochs": 10}
    plain = MaxMIGClassifier(**options).fit(X, A).predict_proba(X)
    # With beta = .9999, so few annotations weigh as in "reweight", up to a factor.
    balanced = MaxMIGClassifier(class_balance=option, **options).fit(X, A).predict_proba(X)
    assert np.isfinite(balanced).all()
    assert balanced[:, 2].mean() > plain[:, 2].mean() + 0.001, "the rare class gains"


def test_instance_weights_are_means_of_annotation_weights():
    A = np.array([[0, 0], [0, 1], [-1, -1]])
    model = MaxMIGClassifier(class_balance="reweight", **QUICK).fit(np.eye(3), A)
    weights = [1.0, 2.0, 0.0]  # Of weights 1, 1; 1, 3; none.
    shares = weights @ np.array([[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]) + 1
    np.testing.assert_allclose(model.module_.prior, shares / shares.sum(), rtol=1e-6)


@pytest.mark.parametrize("option", ["focal", "cb_focal"])
def test_focal_losses_are_refused(option):
    X, A, _ = make_crowd_problem()
    model = MaxMIGClassifier(class_balance=option, **QUICK)
    with pytest.raises(AnnotationError, match=f"class_balance='{option}' needs the probability"):
        model.fit(X, A)
    assert not hasattr(model, "module_")
    with pytest.raises(AnnotationError, match="is unknown"):
        MaxMIGClassifier(class_balance="reweigh", **QUICK).fit(X, A)


def test_a_weight_of_two_is_two_annotations_and_zero_is_none():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    # No dropout and no statistics: instances that weigh nothing would take part in both.
    options = QUICK | {"batch_size": 100, "backbone": "linear", "scaling": None, "lr": 0.05}

    def fit(rows, weight=None):
        part = AnnotationTable.from_arrays(
            table.instance[rows], table.annotator[rows], table.label[rows], weight=weight,
            classes=table.classes, n_instances=len(X), n_annotators=5, duplicates="keep",
        )  # fmt: skip
        return MaxMIGClassifier(**options | {"max_epochs": 10}).fit(X, part).predict_proba(X)

    rows = np.arange(table.n_annotations)
    silenced = np.isin(table.instance, [3, 4])  # Whole instances, and some annotations of others.
    silenced |= (rows % 5 == 0) & (np.diff(table.instance, prepend=-1) == 0)
    np.testing.assert_allclose(
        fit(rows, np.where(silenced, 0.0, 1.0)), fit(rows[~silenced]), atol=1e-5
    )
    doubled = np.sort(np.concatenate([rows, rows[::3]]))
    weight = np.where(rows % 3 == 0, 2.0, 1.0)
    np.testing.assert_allclose(fit(rows, weight), fit(doubled), atol=1e-5)
    assert np.abs(fit(rows, weight) - fit(rows)).max() > 1e-3


def test_a_silent_annotator_does_as_the_crowd_does():
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    model = MaxMIGClassifier(**QUICK).fit(X, A)
    np.testing.assert_allclose(model.confusion_[5], model.pooled_confusion_, atol=0.1)
    assert (model.confusion_ > 0).all()


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"validation": 0.2, "class_balance": "resample"}])
def test_resume_ends_in_the_same_weights(options, tmp_path, monkeypatch):
    X, A, _ = make_crowd_problem()
    A[::3, 1] = 0
    parameters = QUICK | {"max_epochs": 6} | options
    file = tmp_path / "run.safetensors"
    whole = MaxMIGClassifier(**parameters).fit(X, A)
    written = Checkpoint.on_epoch_end

    def die_after_two(self, number, row):
        written(self, number, row)
        if row["epoch"] == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", die_after_two)
        with pytest.raises(Killed):
            MaxMIGClassifier(checkpoint=file, **parameters).fit(X, A)
    resumed = MaxMIGClassifier(checkpoint=file, **parameters).fit(X, A)
    for name, value in whole.module_.state_dict().items():
        assert torch.equal(value, resumed.module_.state_dict()[name]), name


def test_batches_of_one_train_on():
    X, A, _ = make_crowd_problem(n=12)
    model = MaxMIGClassifier(**(QUICK | {"batch_size": 1})).fit(X, A)
    assert np.isfinite(model.predict_proba(X)).all()
    history = model.history_
    both = history.column("agreement") + history.column("chance")
    assert_near(both, history.column("loss"), n=2)
