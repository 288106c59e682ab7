"""`validation` as a fraction: the instances held out, the guard, and the epoch that is kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    CrowdLayerClassifier,
    CrowdLayerProtocol,
    ICEDClassifier,
    ICEDProtocol,
    RaykarClassifier,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.fitting.callbacks import AgreementMonitor
from manyhands.fitting.folds import deal_folds, hold_out_instances
from manyhands.metrics import paired_z, vote_agreement
from manyhands.training import BestState
from manyhands.training.checkpoint import load_tree, save_tree

QUICK = {"max_epochs": 4, "batch_size": 16, "lr": 0.02, "random_state": 0, "device": "cpu"}
X, A, Y = make_crowd_problem(n=90)
TABLE = AnnotationTable.from_matrix(A)


def split_of_seed(table, fraction, seed=0):
    """The split that a fit with this ``random_state`` makes."""
    drawn = int(np.random.RandomState(seed).randint(np.iinfo(np.int32).max))
    return hold_out_instances(table, fraction, np.random.default_rng(drawn))


# -- what is held out -----------------------------------------------------------------------------


def test_folds_are_of_equal_size_and_hold_their_share_of_every_class():
    labels = np.repeat([0, 1, 2], [70, 23, 7])
    posterior = 0.1 + 0.7 * np.eye(3)[labels]
    folds = deal_folds(posterior, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(folds), [20] * 5)
    for c in range(3):
        assert np.ptp(np.bincount(folds[labels == c], minlength=5)) <= 1
    assert (folds != deal_folds(posterior, 5, np.random.default_rng(1))).any()


@st.composite
def crowds(draw):
    """A sparse table in which instances repeat, and some have no annotations."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, r, n_classes = draw(st.integers(12, 60)), draw(st.integers(2, 12)), draw(st.integers(2, 4))
    given = rng.integers(0, n_classes, (n, r))
    given[rng.random((n, r)) > draw(st.floats(0.1, 0.9))] = -1
    given[:4] = np.array([0, 0, 1, 1])[:, None]
    table = AnnotationTable.from_matrix(given, classes=range(n_classes))
    rows = np.concatenate([np.arange(n), rng.integers(4, n, draw(st.integers(0, 5)))])
    return table[rows], rng


@settings(max_examples=60, deadline=None)
@given(crowds(), st.floats(0.1, 0.6))
def test_whole_instances_leave(crowd, fraction):
    table, rng = crowd
    n = len(np.unique(table.instances[np.unique(table.instance)]))
    if not 1 < round(fraction * n) < n - table.n_classes:
        return
    kept, held = hold_out_instances(table, fraction, rng)
    assert kept.n_annotations + held.n_annotations == table.n_annotations
    assert kept.shape == held.shape == table.shape
    mine, theirs = (set(t.instances[np.unique(t.instance)].tolist()) for t in (kept, held))
    assert not mine & theirs  # Nor of another row with the same id.
    assert len(theirs) == round(fraction * n)


def test_class_shares_are_kept():
    y = np.repeat([0, 1, 2], [100, 60, 40])
    table = AnnotationTable.from_matrix(np.repeat(y[:, None], 2, axis=1))
    for seed in range(5):
        _, held = hold_out_instances(table, 0.1, np.random.default_rng(seed))
        counts = np.bincount(y[np.unique(held.instance)], minlength=3)
        assert counts.sum() == 20
        assert np.abs(counts - [10, 6, 4]).max() <= 1


def test_every_annotator_is_kept():
    # 30 annotators gave one annotation each, to 30 of 60 instances; one gave all.
    given = np.full((60, 31), -1)
    given[:, 0] = np.arange(60) % 2
    given[np.arange(30), np.arange(1, 31)] = np.arange(30) % 2
    table = AnnotationTable.from_matrix(given)
    for seed in range(10):
        kept, held = hold_out_instances(table, 0.3, np.random.default_rng(seed))
        assert (kept.annotations_per_annotator() > 0).all()
        assert len(np.unique(held.instance)) == 18


def test_the_only_instance_of_a_class_is_kept():
    y = np.repeat([0, 1, 2], [10, 9, 1])
    table = AnnotationTable.from_matrix(np.repeat(y[:, None], 2, axis=1))
    for seed in range(10):
        kept, _ = hold_out_instances(table, 0.9, np.random.default_rng(seed))
        assert 19 in kept.instance


def test_pseudo_annotations_leave_with_their_instance_and_measure_nothing():
    pseudo = AnnotationTable.from_matrix(np.where(A < 0, Y[:, None], -1), classes=[0, 1, 2])
    table = TABLE.with_added(pseudo.with_source("pseudo"))
    kept, held = hold_out_instances(table, 0.2, np.random.default_rng(0))
    assert held.sources is None or not held.sources.any()
    assert not np.isin(kept.instance, held.instance).any()
    assert kept.annotations_per_instance().max() == A.shape[1]


@pytest.mark.parametrize(
    ("fraction", "better"), [(1e-6, "larger"), (0.015, "larger"), (0.999, "smaller")]
)
def test_a_fraction_that_leaves_nothing_is_refused(fraction, better):
    message = f"validation={fraction} of 90 annotated.*Use a {better} fraction"
    with pytest.raises(AnnotationError, match=message):
        CrowdLayerClassifier(validation=fraction, **QUICK).fit(X, A)


# -- the guard ------------------------------------------------------------------------------------


def guarded(epochs, tmp_path=None):
    """Run the guard over the values of some epochs; the weight of the module is the epoch."""
    module, current = torch.nn.Linear(1, 1, bias=False), []
    best = BestState(module, "a", higher_is_better=True, values=lambda: current[-1])
    for number, values in enumerate(epochs, 1):
        current.append(np.array(values))
        torch.nn.init.constant_(module.weight, number)
        best.on_epoch_end(number, {"stage": "train", "epoch": number, "a": current[-1].mean()})
        if tmp_path is not None:  # Killed after every epoch, and resumed.
            state = load_tree(save_tree(tmp_path / "state", best.state_dict()))
            best = BestState(module, "a", higher_is_better=True, values=lambda: current[-1])
            best.load_state_dict(state)
    best.restore()
    assert module.weight.item() == best.kept["epoch"]
    return best.kept["epoch"]


LAST = [1.0, 0.0, 0.0, 1.0, 1.0]
# Differences from the last: 0 1 1 -1 0, so z = .2 / (sqrt(.7) / sqrt(5)) = .53.
CLOSE = [1.0, 1.0, 1.0, 0.0, 1.0]
# 0 1 1 0 0, so z = .4 / (sqrt(.3) / sqrt(5)) = 1.63.
AHEAD = [1.0, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("resumed", [False, True])
def test_the_guard_by_hand(resumed, tmp_path):
    assert paired_z(np.subtract(CLOSE, LAST)) == pytest.approx(0.535, abs=1e-3)
    assert paired_z(np.subtract(AHEAD, LAST)) == pytest.approx(1.633, abs=1e-3)
    folder = tmp_path if resumed else None
    assert guarded([AHEAD, LAST], folder) == 1
    assert guarded([CLOSE, LAST], folder) == 2
    assert guarded([LAST, AHEAD, LAST, LAST], folder) == 2
    assert guarded([AHEAD, AHEAD, LAST], folder) == 1, "of equals, the first"
    assert guarded([AHEAD, LAST, AHEAD], folder) == 3, "as good as the best"
    assert guarded([LAST, AHEAD], folder) == 2
    assert guarded([LAST], folder) == 1


def test_without_values_the_best_epoch_is_kept():
    module = torch.nn.Linear(1, 1)
    best = BestState(module, "a", higher_is_better=True)
    for number, value in enumerate([0.5, 0.6, 0.1], 1):
        best.on_epoch_end(number, {"stage": "train", "epoch": number, "a": value})
    assert best.kept["epoch"] == 2
    assert set(best.state_dict()) == {"value", "stage", "epoch", "module"}


# -- fits -----------------------------------------------------------------------------------------


def planned(monkeypatch, *epochs):
    """Let the monitor find the given values of instances, one list per epoch."""
    left = []

    def measure(self):
        if not left:
            left.extend(epochs)
        self.values = np.array(left.pop(0))
        return {"validation_agreement": float(self.values.mean())}

    monkeypatch.setattr(AgreementMonitor, "__call__", measure)


def test_the_agreement_is_that_of_predict_on_the_held_out_instances():
    model = CrowdLayerClassifier(**QUICK, validation=0.3).fit(X, TABLE)
    _, held = split_of_seed(TABLE, 0.3)
    assert len(np.unique(held.instance)) == 27
    short = CrowdLayerClassifier(**QUICK | {"max_epochs": model.best_epoch_}, validation=0.3)
    short.fit(X, TABLE)
    np.testing.assert_array_equal(model.predict_proba(X), short.predict_proba(X))
    kept = model.history_[model.best_epoch_ - 1]["validation_agreement"]
    assert kept == pytest.approx(vote_agreement(model.predict(X), held))
    assert "validation_nll" not in model.history_.columns


def test_the_epoch_kept_is_the_last_unless_the_best_is_ahead(monkeypatch):
    options = QUICK | {"max_epochs": 3, "validation": 0.3}
    for epochs, expected in (
        ((LAST, AHEAD, LAST), 2),
        ((LAST, CLOSE, LAST), 3),
        ((AHEAD, LAST, LAST), 1),
    ):
        planned(monkeypatch, *epochs)
        model = CrowdLayerClassifier(**options).fit(X, A)
        assert (model.best_epoch_, model.best_stage_) == (expected, "train")
        planned(monkeypatch, *[LAST] * expected)
        short = CrowdLayerClassifier(**options | {"max_epochs": expected}).fit(X, A)
        np.testing.assert_array_equal(model.predict_proba(X), short.predict_proba(X))


def test_patience_counts_epochs_without_a_new_best_agreement(monkeypatch):
    planned(monkeypatch, LAST, AHEAD, AHEAD, LAST, LAST, LAST)
    options = QUICK | {"max_epochs": 6, "validation": 0.3}
    protocol = CrowdLayerProtocol(patience=2)
    model = CrowdLayerClassifier(**options, protocol=protocol).fit(X, A)
    assert len(model.history_) == 4
    assert model.best_epoch_ == 2


@pytest.mark.parametrize("make", [AggregatedClassifier, CrowdLayerClassifier, RaykarClassifier])
def test_held_out_instances_lend_no_annotation_to_training(make, monkeypatch):
    """Other labels on held-out instances change what is measured, not what is learnt."""
    is_held = np.arange(90) % 3 == 1

    def split(table, fraction, rng):
        leaves = is_held[table.instance]
        return table.take(~leaves), table.take(leaves)

    for name in ("hold_out", "hold_out_instances"):
        monkeypatch.setattr(f"manyhands.fitting.run.{name}", split)
    measure = f"validation_{'nll' if make is RaykarClassifier else 'agreement'}"
    label = np.where(is_held[TABLE.instance], (TABLE.label + 1) % 3, TABLE.label)
    changed = replace(TABLE, label=label.astype(TABLE.label.dtype))
    options = {**QUICK, "max_epochs": 2, "validation": 0.3}
    first, second = (make(**options).fit(X, table) for table in (TABLE, changed))
    for one, two in zip(first.history_, second.history_, strict=True):
        assert one["loss"] == two["loss"]
        assert one[measure] != two[measure]
    rest = make(**{**options, "validation": None}).fit(X, split(TABLE, 0.3, None)[0])
    np.testing.assert_array_equal(first.confusion_, rest.confusion_)


def test_the_likelihood_holds_out_single_annotations():
    model = CrowdLayerClassifier(
        **QUICK,
        validation=0.3,
        protocol=CrowdLayerProtocol(monitor="likelihood"),
    ).fit(X, TABLE)
    nll = model.history_.column("validation_nll")
    assert model.best_epoch_ == nll.argmin() + 1
    assert "validation_agreement" not in model.history_.columns
    with pytest.raises(ValueError, match="'monitor' parameter"):
        CrowdLayerClassifier(
            **QUICK,
            validation=0.3,
            protocol=CrowdLayerProtocol(monitor="loss"),
        ).fit(X, TABLE)


# -- rounds of EM ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        RaykarClassifier(max_epochs=6, tol=0.0),
        ICEDClassifier(
            max_epochs=3, device="cpu", protocol=ICEDProtocol(warm_up_epochs=1, decoder_epochs=1)
        ),
    ],
)
def test_agreement_does_not_choose_rounds_of_em(model):
    model = clone(model).set_params(validation=0.2, random_state=0)
    fitted = clone(model).fit(X, A)
    explained = fitted.history_.column("validation_nll", "train")
    assert fitted.best_epoch_ == 1 + explained.argmin()
    assert not any("validation_agreement" in row for row in fitted.history_)
    same = clone(model).set_params(protocol__monitor="likelihood").fit(X, A)
    np.testing.assert_array_equal(same.predict_proba(X), fitted.predict_proba(X))
