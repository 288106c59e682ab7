"""Class balance: weights by hand, losses against loops, and rare classes found again."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from manyhands import (
    AggNetClassifier,
    AggregatedClassifier,
    AnnotationTable,
    CoNALClassifier,
    CrowdLayerClassifier,
    DawidSkene,
    MajorityVote,
    MaxMIGClassifier,
    SoftProbClassifier,
    make_crowd,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.functional import annotation_nll, focal_nll, soft_cross_entropy
from manyhands.sampling import ClassBalance
from manyhands.sampling.class_balance import BALANCES, make_balance
from manyhands.training import hold_out
from tests.building import built

QUICK = {"max_epochs": 3, "batch_size": 16, "random_state": 0, "device": "cpu"}


def table_of(labels, weights=None, n_classes=3):
    """One annotator an annotation, one instance an annotation."""
    rows = np.arange(len(labels))
    table = AnnotationTable.from_arrays(
        rows, rows, np.asarray(labels), classes=np.arange(n_classes), instances=rows
    )
    return table if weights is None else replace(table, weights=np.asarray(weights, dtype=float))


# -- weights by hand ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "weights"),
    [
        ([6, 3, 1], [1, 2, 6]),
        ([4, 0, 2], [1, 0, 2]),  # an absent class weighs nothing
        ([5, 5, 5], [1, 1, 1]),
        ([0, 0, 7], [0, 0, 1]),
        ([2.5, 0.5, 0], [1, 5, 0]),  # weighted annotations
        ([0, 0, 0], [0, 0, 0]),
    ],
)
def test_reweight_is_the_largest_class_over_the_own(counts, weights):
    assert ClassBalance("reweight").class_weights(counts).tolist() == weights


def test_cb_focal_by_hand():
    # beta = .5: effective numbers 1 + 1/2 + 1/4 = 1.75 of three, 1 of one; so 4/7 and 1, and
    # scaled to a sum of 2.
    found = ClassBalance("cb_focal", beta=0.5).class_weights([3, 1])
    np.testing.assert_allclose(found, [8 / 11, 14 / 11])
    # With an absent class: the same, as if it were not there.
    found = ClassBalance("cb_focal", beta=0.5).class_weights([3, 0, 1])
    np.testing.assert_allclose(found, [8 / 11, 0, 14 / 11])
    assert ClassBalance("cb_focal").class_weights([0, 0]).tolist() == [0, 0]


def test_cb_focal_goes_from_no_weights_to_inverse_frequency():
    counts = [900, 90, 10]
    assert ClassBalance("cb_focal", beta=0.0).class_weights(counts).tolist() == [1, 1, 1]
    inverse = 1 / np.array(counts)
    found = ClassBalance("cb_focal", beta=1 - 1e-12).class_weights(counts)
    np.testing.assert_allclose(found, 3 * inverse / inverse.sum(), rtol=1e-6)


@pytest.mark.parametrize("beta", [0.9999, 1 - 1e-9, np.nextafter(1, 0)])
def test_cb_focal_keeps_its_digits_with_huge_counts(beta):
    counts = [10**15, 10**9, 10**4, 1]
    found = ClassBalance("cb_focal", beta=float(beta)).class_weights(counts)
    assert np.isfinite(found).all()
    assert found.sum() == pytest.approx(4)
    assert (np.diff(found) >= 0).all(), "rarer classes weigh no less"
    # The effective number (1 - beta^N) / (1 - beta) in another way.
    effective = np.array([_series(float(beta), n) for n in counts])
    np.testing.assert_allclose(found, 4 / effective / (1 / effective).sum(), rtol=1e-6)


def test_cb_focal_keeps_its_digits_with_small_weights():
    """beta^(1/4) would round to 1, and the class weigh infinitely much."""
    found = ClassBalance("cb_focal", beta=float(np.nextafter(1, 0))).class_weights([0.75, 0.25])
    np.testing.assert_allclose(found, [0.5, 1.5])


def _series(beta, n):
    """1 + beta + ... + beta^(n - 1), by doubling: S(2 m) = S(m) (1 + beta^m)."""
    total, power = 0.0, 1.0
    for bit in bin(n)[2:]:
        total, power = total * (1 + power), power * power
        if bit == "1":
            total, power = 1 + beta * total, power * beta
    return total


def test_focal_has_no_class_weights():
    assert ClassBalance("focal").class_weights([5, 0, 1]).tolist() == [1, 0, 1]


# -- annotations --------------------------------------------------------------------------------


def test_resampling_repeats_up_to_the_largest_class():
    labels = np.repeat([0, 1, 2, 4], [50, 20, 1, 50])
    times = ClassBalance("resample").factors(
        labels, 5, np.ones(len(labels)), np.random.default_rng(0)
    )
    assert np.bincount(labels, times, minlength=5).tolist() == [50, 50, 50, 0, 50]
    assert (times >= 1).all(), "everyone is heard"
    assert (times == times.round()).all()
    assert (times[labels % 4 == 0] == 1).all(), "the largest classes stay as they are"
    # The thirty repetitions fall on some of the twenty, not on one.
    assert len(np.unique(times[labels == 1])) > 2


def test_resampling_is_reproducible():
    labels = np.repeat([0, 1], [500, 40])

    def drawn(seed):
        rng = np.random.default_rng(seed)
        return ClassBalance("resample").factors(labels, 2, np.ones(540), rng)

    np.testing.assert_array_equal(drawn(0), drawn(0))
    assert not np.array_equal(drawn(0), drawn(1))


@pytest.mark.parametrize("name", BALANCES)
def test_balanced_annotations_stay_as_they_are(name):
    table = table_of([0, 1, 2, 2, 1, 0])
    assert ClassBalance(name).balanced(table, np.random.default_rng(0)) is table


def test_weights_of_the_table_count_and_stay():
    # Class 0: 1 + 1 + 2 = 4; class 1: .5; class 2: 1, of three annotations.
    table = table_of([0, 0, 0, 1, 2, 2, 2], weights=[1, 1, 2, 0.5, 0.25, 0.25, 0.5])
    found = ClassBalance("reweight").balanced(table, np.random.default_rng(0))
    np.testing.assert_allclose(found.weight, [1, 1, 2, 8 * 0.5, 4 * 0.25, 4 * 0.25, 4 * 0.5])
    assert np.bincount(found.label, found.weight).tolist() == [4, 4, 4]
    # Resampling counts examples, and what is drawn twice counts twice its weight.
    found = ClassBalance("resample").balanced(table, np.random.default_rng(0))
    assert found.weight[3] == 3 * 0.5
    assert found.label.tolist() == table.label.tolist()


def test_annotations_that_weigh_nothing_make_no_class():
    table = table_of([0, 0, 1, 2], weights=[1, 1, 1, 0])
    for name in ("reweight", "cb_focal"):
        found = ClassBalance(name).balanced(table, np.random.default_rng(0))
        assert found.weight[3] == 0
        assert np.isfinite(found.weight).all()


# -- targets ------------------------------------------------------------------------------------


def test_targets_count_by_their_shares():
    targets = np.array([[1, 0], [0.75, 0.25], [0.75, 0.25], [0.5, 0.5], [1, 0], [0, 0]])
    rng = np.random.default_rng(0)
    weights = ClassBalance("reweight").target_weights(targets, rng)
    np.testing.assert_allclose(weights, [[1, 4]] * 6)  # 4 of class 0, 1 of class 1
    np.testing.assert_allclose((targets * weights).sum(axis=0), [4, 4])
    assert ClassBalance("focal").target_weights(targets, rng) is None
    drawn = ClassBalance("resample").target_weights(np.repeat(np.eye(2), [5, 2], axis=0), rng)
    assert drawn[:, 0].sum() == 10
    assert (drawn[:, 0] == drawn[:, 1]).all()
    empty = np.vstack([np.eye(2), np.zeros((3, 2))])
    assert ClassBalance("resample").target_weights(empty, rng) is None


@pytest.mark.parametrize("name", ["reweight", "cb_focal"])
def test_a_trace_of_mass_does_not_make_a_class(name):
    """A posterior leaves next to nothing on a class that nobody named; that must not count."""
    targets = np.zeros((40, 3))
    targets[:30, 0] = targets[30:, 1] = 1
    targets[:, 2] = 1e-300
    weights = ClassBalance(name).target_weights(targets, np.random.default_rng(0))
    assert np.isfinite(weights).all()
    weighted = (targets * weights).sum(axis=0)
    assert weighted[2] < 1e-6 * weighted[:2].min()


def test_an_absent_class_is_survived(imbalanced):
    X, table, _ = imbalanced
    X, table = X[:150], replace(table[:150], classes=np.array([0, 1, 2]))
    for name in BALANCES:
        model = AggregatedClassifier(DawidSkene(), class_balance=name, **QUICK).fit(X, table)
        assert np.isfinite(model.predict_proba(X)).all()
        assert (model.predict(X) != 2).all()


# -- focal losses -------------------------------------------------------------------------------


def loop_annotation_nll(log_proba, labels, weights, gamma):
    total = 0.0
    for row, label, weight in zip(log_proba.tolist(), labels.tolist(), weights, strict=True):
        p = exp(row[label])
        total += weight * (1 - p) ** gamma * -log(p)
    return total / len(weights)


def loop_soft_cross_entropy(logits, targets, weights, gamma):
    total = 0.0
    for i, row in enumerate(logits.tolist()):
        norm = sum(exp(value) for value in row)
        for c, value in enumerate(row):
            p = exp(value) / norm
            total += targets[i][c] * weights[i][c] * (1 - p) ** gamma * -log(p)
    return total / len(weights)


@pytest.fixture
def logits():
    return torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_annotation_nll_is_the_loop(logits, gamma):
    labels = torch.tensor([0, 1, 2, 3, 0, 1, 1])
    weights = [1.0, 2.0, 0.0, 0.5, 1.0, 3.0, 1.0]
    log_proba = logits.log_softmax(dim=1)
    found = annotation_nll(log_proba, labels, torch.tensor(weights), gamma)
    assert float(found) == pytest.approx(loop_annotation_nll(log_proba, labels, weights, gamma))
    plain = annotation_nll(log_proba, labels, None, gamma)
    assert float(plain) == pytest.approx(loop_annotation_nll(log_proba, labels, [1.0] * 7, gamma))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_soft_cross_entropy_is_the_loop(logits, gamma):
    rng = np.random.default_rng(0)
    targets, weights = rng.dirichlet(np.ones(4), 7), rng.uniform(0, 2, (7, 4))
    found = soft_cross_entropy(logits, torch.tensor(targets), torch.tensor(weights), gamma)
    assert float(found) == pytest.approx(loop_soft_cross_entropy(logits, targets, weights, gamma))
    plain = soft_cross_entropy(logits, torch.tensor(targets), None, gamma)
    ones = np.ones((7, 4))
    assert float(plain) == pytest.approx(loop_soft_cross_entropy(logits, targets, ones, gamma))


def test_gamma_0_is_the_plain_loss(logits):
    labels = torch.tensor([0, 1, 2, 3, 0, 1, 1])
    expected = torch.nn.functional.cross_entropy(logits, labels)
    torch.testing.assert_close(annotation_nll(logits.log_softmax(dim=1), labels), expected)
    targets = torch.eye(4, dtype=torch.float64)[labels]
    torch.testing.assert_close(soft_cross_entropy(logits, targets, focus=0.0), expected)


def test_the_focal_factor_by_hand():
    # p = .9: (1 - .9)^2 * -log .9; p = .5: a quarter of -log .5.
    found = focal_nll(torch.tensor([0.9, 0.5], dtype=torch.float64).log(), 2.0)
    np.testing.assert_allclose(found, [0.01 * -log(0.9), 0.25 * log(2)])


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_the_focal_gradient_is_finite_where_all_is_sure(gamma):
    logits = torch.tensor([[100.0, -100.0]], requires_grad=True)
    for label in (0, 1):
        loss = annotation_nll(logits.log_softmax(dim=1), torch.tensor([label]), focus=gamma)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert torch.isfinite(gradient).all()


# -- in training --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def imbalanced():
    """Two overlapping classes, one in twelve of the rarer; six annotators, three each."""
    rng = np.random.default_rng(0)
    y = (rng.random(900) < 1 / 12).astype(np.int64)
    X = rng.normal(size=(900, 5)).astype(np.float32)
    X[:, 0] += 1.6 * y
    table = make_crowd(
        y, X=X, n_annotators=6, annotations_per_instance=3.0, noise_strength=0.1, random_state=0
    )
    return X, table, y


def recall(model, X, y):
    return (model.predict(X)[y == 1] == 1).mean()


@pytest.mark.parametrize(
    "estimator",
    [
        CrowdLayerClassifier(backbone="linear"),
        CoNALClassifier(backbone="linear"),
        AggregatedClassifier(MajorityVote(), "linear"),
        built(AggregatedClassifier, MajorityVote(), "linear", targets="hard"),
        AggregatedClassifier(MajorityVote(), LogisticRegression()),
    ],
    ids=["crowd_layer", "conal", "soft", "hard", "second_stage"],
)
def test_the_rare_class_is_found_more_often(imbalanced, estimator):
    X, table, y = imbalanced
    estimator.set_params(random_state=0, max_epochs=5, lr=3e-2, device="cpu")
    found = {
        name: recall(clone(estimator).set_params(class_balance=name).fit(X, table), X, y)
        for name in (None, "reweight", "resample")
    }
    assert min(found["reweight"], found["resample"]) > found[None] + 0.1, found


def test_reweighting_is_training_on_weighted_annotations():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    counts = np.bincount(table.label)
    assert len(set(counts)) > 1
    weights = (counts.max() / counts)[table.label]
    given = replace(table, weights=weights)
    options = {**QUICK, "batch_size": 1000}
    ours = CrowdLayerClassifier(class_balance="reweight", **options).fit(X, table)
    theirs = CrowdLayerClassifier(**options).fit(X, given)
    assert list(ours.history_.column("nll")) == list(theirs.history_.column("nll"))
    np.testing.assert_array_equal(ours.predict_proba(X), theirs.predict_proba(X))


@pytest.mark.parametrize("cls", [CrowdLayerClassifier, CoNALClassifier, AggregatedClassifier])
@pytest.mark.parametrize("name", ["reweight", "cb_focal"])
def test_balanced_data_need_nothing(cls, name):
    X, A, y = make_crowd_problem()
    keep = np.concatenate([np.flatnonzero(y == c)[:10] for c in range(3)])
    A = np.full((len(keep), 2), -1)
    A[:, 0] = A[:, 1] = y[keep]
    balance = {"name": name} | ({"gamma": 0} if name == "cb_focal" else {})
    options = {"max_epochs": 2, "batch_size": 16, "random_state": 0, "device": "cpu"}
    plain = cls(**options).fit(X[keep], A)
    balanced = cls(class_balance=balance, **options).fit(X[keep], A)
    np.testing.assert_array_equal(plain.predict_proba(X), balanced.predict_proba(X))


@pytest.mark.parametrize("name", BALANCES)
def test_the_same_seed_gives_the_same_model(imbalanced, name):
    X, table, _ = imbalanced
    X, table = X[:300], table[:300]
    model = CrowdLayerClassifier(class_balance=name, **QUICK | {"batch_size": 64})
    first, second = (clone(model).fit(X, table).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


# -- reading the parameter ----------------------------------------------------------------------


def test_names_and_dicts_are_read():
    assert make_balance(None) is None
    assert make_balance("focal") == ClassBalance("focal", gamma=2.0, beta=0.9999)
    spec = {"name": "cb_focal", "gamma": 1, "beta": 0.9}
    assert make_balance(spec) == ClassBalance("cb_focal", gamma=1, beta=0.9)
    focus = {name: make_balance(name).focus for name in BALANCES}
    assert focus == {"resample": 0.0, "reweight": 0.0, "focal": 2.0, "cb_focal": 2.0}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("smote", "'smote' is unknown; use None, 'resample'"),
        ({"gamma": 2}, "is unknown"),
        ({"name": "focal", "alpha": 1}, "unknown key 'alpha'"),
        ({"name": "focal", "gamma": -1}, "gamma=-1"),
        ({"name": "focal", "gamma": float("nan")}, "gamma=nan"),
        ({"name": "focal", "gamma": True}, "gamma=True"),
        ({"name": "cb_focal", "beta": 1.0}, r"beta=1\.0"),
        ({"name": "cb_focal", "beta": "much"}, "beta='much'"),
    ],
)
def test_what_cannot_be_meant_is_refused(spec, says):
    with pytest.raises(AnnotationError, match=says):
        make_balance(spec)
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match=says):
        CrowdLayerClassifier(class_balance=spec, **QUICK).fit(X, A)


def test_focal_losses_do_not_apply_to_another_second_stage():
    X, A, _ = make_crowd_problem()
    model = AggregatedClassifier(backbone=LogisticRegression(), class_balance="focal")
    with pytest.raises(AnnotationError, match="'focal' changes the loss of a network"):
        model.fit(X, A)


# -- what the options do to a fit ------------------------------------------------------------------


def skewed(n, seed=0):
    """One annotation an instance, one in eleven of class 1, classes that overlap."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 11 == 0).astype(int)
    X = rng.normal(size=(n, 2)) + 1.2 * np.eye(2)[y]
    return X, y[:, None], y


@pytest.mark.parametrize("make", [SoftProbClassifier, AggregatedClassifier])
def test_the_balance_does_not_depend_on_the_size_of_batches(make):
    X, A, y = skewed(440)
    recall = []
    for batch_size, max_epochs in ((1, 1), (8, 3), (440, 40)):
        model = make(
            backbone="linear", class_balance="reweight", batch_size=batch_size, lr=0.05,
            max_epochs=max_epochs, random_state=0, weight_decay=0.0,
        )  # fmt: skip
        recall.append(np.mean(model.fit(X, A).predict(X)[y == 1] == 1))
    assert min(recall) > 0.6, recall


@pytest.mark.parametrize("make", [AggregatedClassifier, AggNetClassifier])
def test_targets_get_the_focal_factor(make):
    """The first loss of a whole batch, which nothing has moved yet, is the loop's."""
    X, A, y = skewed(66)
    options = {"class_balance": {"name": "focal", "gamma": 3.0}, "lr": 1e-12, "max_epochs": 1}
    backbone = {"name": "mlp", "dropout": 0.0}
    model = make(backbone=backbone, batch_size=66, random_state=0, **options).fit(X, A)
    p = model.predict_proba(X)[np.arange(66), y]
    expected = np.mean((1 - p) ** 3 * -np.log(p))
    assert model.history_[0]["cross_entropy"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("make", [AggregatedClassifier, AggNetClassifier, MaxMIGClassifier])
def test_held_out_annotations_have_no_part_in_training(make):
    """Another label on a held-out annotation changes what is measured, not what is learnt."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    options = {"validation": 0.2, "max_epochs": 3, "patience": 100, "random_state": 0}
    options |= {"monitor": "likelihood"}
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    _, held = hold_out(table, 0.2, np.random.default_rng(seed))
    ids = set(zip(held.instance.tolist(), held.annotator.tolist(), strict=True))
    pairs = zip(table.instance.tolist(), table.annotator.tolist(), strict=True)
    own = np.array([pair in ids for pair in pairs])
    label = np.where(own, (table.label + 1) % 3, table.label).astype(table.label.dtype)
    first, second = (built(make, **options).fit(X, t) for t in (table, replace(table, label=label)))
    for one, two in zip(first.history_, second.history_, strict=True):
        assert one["loss"] == two["loss"]
        assert one["validation_nll"] != two["validation_nll"]


def test_ties_are_drawn_for_both_classes():
    targets = np.vstack([np.full((200, 2), 0.5), np.repeat([[0.0, 1.0]], 200, axis=0)])
    weights = ClassBalance("resample").target_weights(targets, np.random.default_rng(0))
    mass = (weights * targets).sum(axis=0)
    # Half of the ties count as class 1, 300 against 100, and all of class 0 are ties.
    assert mass[0] > 130
