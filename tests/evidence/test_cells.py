"""One run: what is measured, that watching changes nothing, and what a failure leaves."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone

import evidence
import manyhands
from evidence import load_data, load_row, read_records, run_cell, write_record
from evidence.data import variants
from evidence.data.sets import Data
from evidence.data.variants import with_fewer_instances
from evidence.records import GOLD, HELD_OUT, LAST, ORACLE, SELECTIONS
from evidence.running.cells import _chosen, _kept, commit
from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    CoNALClassifier,
    CoNALProtocol,
    CrowdLayerClassifier,
    CrowdLayerProtocol,
)
from manyhands.exceptions import AnnotationError
from manyhands.fitting import Watch
from manyhands.fitting.callbacks import _macro_f1
from manyhands.metrics import accuracy, macro_f1
from manyhands.training import GradientStep

ROW = """\
label: {label}
citation: "Somebody 2000."
data: {data}
estimator: {{class: {cls}, params: {params}}}
seeds: [0, 1]
holdout: 0.1
"""


# With "auto", a fit that loses classes, as two epochs do, would be made again and again.
TWO_EPOCHS = "{max_epochs: 2, init_scale: 2.0}"


@pytest.fixture
def make_row(tmp_path):
    def make(cls="CrowdLayerClassifier", params=TWO_EPOCHS, data="{name: demo}", more="", name="a"):
        path = tmp_path / "mine" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        text = ROW.format(label="any", cls=f"'{cls}'", params=params, data=data)
        path.write_text(text + more)
        return load_row(path)

    return make


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a user's module into the rows' folder."""

    def write(text):
        folder = tmp_path / "mine"
        folder.mkdir(exist_ok=True)
        (folder / "own_things.py").write_text(text)
        monkeypatch.delitem(sys.modules, "own_things", raising=False)
        sys.path_importer_cache.clear()

    yield write
    sys.modules.pop("own_things", None)


@pytest.fixture(scope="module")
def demo():
    return load_data({"name": "demo"})


# -- watching ---------------------------------------------------------------------------------


class Noisy(torch.nn.Module):
    """Draws random numbers whenever it is asked, as test-time dropout does."""

    def __init__(self, shape, n_classes):
        super().__init__()
        self.head = torch.nn.Linear(math.prod(shape), n_classes)

    def forward(self, x):
        return self.head(x) + 0.1 * torch.randn(len(x), 1)


QUICK = {"max_epochs": 3, "batch_size": 256, "random_state": 0, "device": "cpu"}


@pytest.mark.parametrize(
    "model",
    [
        CoNALClassifier(**QUICK),
        CrowdLayerClassifier(
            **QUICK,
            validation=0.1,
            protocol=CrowdLayerProtocol(init_scale=2.0, patience=1),
        ),
        AggregatedClassifier(**QUICK),
        CrowdLayerClassifier(
            backbone={"name": "mlp", "batch_norm": True},
            **QUICK,
            protocol=CrowdLayerProtocol(init_scale=2.0),
        ),
        CrowdLayerClassifier(
            backbone=Noisy,
            **QUICK,
            protocol=CrowdLayerProtocol(init_scale=2.0),
        ),
    ],
    ids=["CoNAL", "held out", "aggregated", "batch norm", "noisy"],
)
def test_watching_changes_nothing_but_the_history(demo, model):
    alone = clone(model).fit(demo.X_train, demo.annotations)
    seen = clone(model).fit(
        demo.X_train,
        demo.annotations,
        watch=Watch(test=(demo.X_test, demo.y_test), valid=(demo.X_valid, demo.y_valid)),
    )
    for name, weights in alone.module_.state_dict().items():
        assert torch.equal(weights, seen.module_.state_dict()[name]), name
    added = {"test_accuracy", "test_macro_f1", "valid_accuracy", "valid_macro_f1"}
    assert set(seen.history_.columns) - set(alone.history_.columns) == added
    for column in set(alone.history_.columns) - {"seconds", "stage"}:
        assert np.array_equal(alone.history_.column(column), seen.history_.column(column)), column


def test_what_is_watched_is_what_the_model_predicts(demo):
    model = CoNALClassifier(**QUICK).fit(
        demo.X_train, demo.annotations, watch=Watch(test=(demo.X_test, demo.y_test))
    )
    predicted = model.predict(demo.X_test)
    assert model.history_[-1]["test_accuracy"] == accuracy(demo.y_test, predicted)
    assert model.history_[-1]["test_macro_f1"] == pytest.approx(macro_f1(demo.y_test, predicted))


class Killed(Exception):
    """Ends a fit in its second epoch."""


@settings(max_examples=40)
@given(
    st.integers(1, 6).flatmap(
        lambda c: st.lists(st.tuples(st.integers(0, c - 1), st.integers(0, c - 1)), min_size=1)
    )
)
def test_macro_f1_of_codes_is_macro_f1(pairs):
    gold, predicted = np.array(pairs).T
    assert _macro_f1(gold, predicted) == pytest.approx(macro_f1(gold, predicted), abs=1e-12)


def test_a_checkpoint_does_not_know_who_watched(demo, tmp_path, monkeypatch):
    # Three epochs lose classes, for which "auto" would fit again.
    model = CoNALClassifier(
        **QUICK,
        checkpoint=tmp_path / "a.safetensors",
        protocol=CoNALProtocol(init_scale=2.0),
    )
    plain = clone(model).set_params(checkpoint=None).fit(demo.X_train, demo.annotations)
    with monkeypatch.context() as patch:
        patch.setattr(GradientStep, "start_epoch", kill_in_the_second_epoch)
        with pytest.raises(Killed):
            clone(model).fit(demo.X_train, demo.annotations)
    resumed = clone(model).fit(
        demo.X_train, demo.annotations, watch=Watch(test=(demo.X_test, demo.y_test))
    )
    for name, weights in plain.module_.state_dict().items():
        assert torch.equal(weights, resumed.module_.state_dict()[name])
    seen = resumed.history_.column("test_accuracy")
    assert np.isnan(seen).tolist() == [True, False, False]


def kill_in_the_second_epoch(step, epoch):
    if epoch:
        raise Killed
    step.module.train()


class Rounds(CrowdLayerClassifier):
    """Fits another classifier on other features within its own fit."""

    def _prepare(self, fit):
        X = fit.features.data.cpu().numpy()
        self.same_ = clone(INNER).fit(X, fit.table, watch=fit.watch)
        self.other_ = clone(INNER).fit(X[:, :3], fit.table, watch=fit.watch)
        self.alone_ = clone(INNER).fit(X, fit.table)


INNER = CrowdLayerClassifier(
    **{**QUICK, "max_epochs": 1}, protocol=CrowdLayerProtocol(init_scale=2.0)
)


def test_a_watch_is_handed_on_and_used_where_the_instances_have_its_shape(demo):
    part = demo.X_test, demo.y_test
    watch = Watch(test=part, again=part)
    model = Rounds(**QUICK, protocol=CrowdLayerProtocol(init_scale=2.0)).fit(
        demo.X_train, demo.annotations, watch=watch
    )
    for fitted in (model, model.same_):
        seen = fitted.history_.column("test_accuracy")
        assert np.isfinite(seen).all()
        assert np.array_equal(seen, fitted.history_.column("again_accuracy"))
    assert "test_accuracy" not in model.other_.history_.columns
    assert "test_accuracy" not in model.alone_.history_.columns, "gold reached a fit by itself"


def test_gold_of_another_length_is_refused(demo):
    watch = Watch(test=(demo.X_test, demo.y_test[:-1]))
    with pytest.raises(ValueError, match="test has 500 rows"):
        clone(INNER).fit(demo.X_train, demo.annotations, watch=watch)


# -- a cell -----------------------------------------------------------------------------------


def test_the_protocols_of_a_cell(make_row, demo):
    row = make_row(params="{max_epochs: 4, batch_size: 256, init_scale: 2.0}")
    record = run_cell(row, 0)
    assert (record.status, record.row, record.seed) == ("done", "mine/a", 0)
    assert tuple(record.metrics) == SELECTIONS

    model = row.make_estimator(0).fit(demo.X_train, demo.annotations)
    last = accuracy(demo.y_test, model.predict(demo.X_test))
    assert record.metrics[LAST]["accuracy"] == last
    assert (record.metrics[LAST]["epoch"], record.metrics[LAST]["n_test"]) == (4, 500)

    held = row.make_estimator(0).set_params(validation=0.1, protocol__monitor="likelihood")
    held.fit(demo.X_train, demo.annotations)
    assert record.metrics[HELD_OUT]["accuracy"] == accuracy(demo.y_test, held.predict(demo.X_test))
    assert record.metrics[HELD_OUT]["epoch"] == held.best_epoch_

    curves = record.history
    for protocol, column in ((GOLD, "valid_accuracy"), (ORACLE, "test_accuracy")):
        best = int(np.argmax(curves[column]))
        chosen = record.metrics[protocol]
        assert chosen["epoch"] == best + 1
        assert chosen["accuracy"] == curves["test_accuracy"][best]
        assert chosen["macro_f1"] == curves["test_macro_f1"][best]
    assert record.metrics[ORACLE]["accuracy"] == max(curves["test_accuracy"])


def test_the_same_seed_gives_the_same_figures(make_row, demo):
    row = make_row()
    first, second, other = (run_cell(row, seed, demo) for seed in (0, 0, 1))
    timing = {"started": "", "seconds": 0.0, "peak_memory_mb": None}
    assert replace(first, **timing) == replace(second, **timing)
    assert other.key != first.key
    assert other.history != first.history


def test_a_record_of_a_run_is_kept(make_row, tmp_path, demo):
    record = run_cell(make_row(), 0, demo)
    write_record(tmp_path, record)
    assert read_records(tmp_path) == [record]
    assert record.peak_memory_mb is None or record.peak_memory_mb > 10
    assert {"numpy", "torch", "python"} <= set(record.versions)


def test_an_estimator_without_epochs_has_one_figure(make_row, demo):
    params = "{backbone: {class: 'sklearn.naive_bayes:GaussianNB'}}"
    record = run_cell(make_row("AggregatedClassifier", params), 0, demo)
    assert record.status == "done", record.trace
    assert record.metrics[HELD_OUT] == {"absent": "the estimator has no epochs to choose from"}
    assert record.metrics[GOLD] == record.metrics[ORACLE] == record.metrics[HELD_OUT]
    assert record.metrics[LAST]["epoch"] == 1
    assert record.metrics[LAST]["accuracy"] > 0.3
    assert record.history == {}


def test_absent_parts_are_named(make_row, demo):
    no_valid = replace(demo, X_valid=None, y_valid=None)
    row = replace(make_row(), holdout=None)
    metrics = run_cell(row, 0, no_valid).metrics
    assert metrics[GOLD] == {"absent": "the data set has no validation part"}
    assert metrics[HELD_OUT] == {"absent": "the row holds no annotations out"}
    assert metrics[ORACLE]["accuracy"] > 0
    no_test = run_cell(row, 0, replace(demo, X_test=None, y_test=None)).metrics
    assert {no_test[p]["absent"] for p in (LAST, GOLD, ORACLE)} == {"the data set has no test part"}


def test_the_training_part_is_watched_where_the_row_says_so(make_row, demo):
    row, plain = make_row(more="watch: [train]\n"), make_row(name="b")
    record, alone = run_cell(row, 0, demo), run_cell(plain, 0, demo)
    added = {"train_accuracy", "train_macro_f1"}
    assert set(record.history) - set(alone.history) == added
    # Nothing else changes.
    assert {k: v for k, v in record.history.items() if k not in added} == alone.history
    assert record.metrics == alone.metrics
    model = row.make_estimator(0).fit(demo.X_train, demo.annotations)
    right = model.predict(demo.X_train) == demo.y_train
    assert record.history["train_accuracy"][-1] == right.mean()
    some = demo.y_train.astype(float)
    some[::2] = np.nan
    partly = run_cell(row, 0, replace(demo, y_train=some))
    assert partly.history["train_accuracy"][-1] == right[1::2].mean()
    unknown = run_cell(row, 0, replace(demo, y_train=None))
    assert (unknown.status, "y_train is None" in unknown.reason) == ("failed", True)


MEASURES = """\
import numpy as np

def sizes(model, data):
    return {"annotators": len(model.confusion_), "first": model.confusion_[0], "n": np.int64(3)}

def infinite(model, data):
    return {"ratio": np.inf}
"""


def test_further_measures(make_row, own, demo):
    own(MEASURES)
    record = run_cell(make_row(more="extra: ['own_things:sizes']\n"), 0, demo)
    assert (record.extra["annotators"], record.extra["n"]) == (30, 3)
    assert np.shape(record.extra["first"]) == (10, 10)
    failed = run_cell(make_row(more="extra: ['own_things:infinite']\n"), 0, demo)
    assert failed.status == "failed"
    assert "own_things:infinite returns ratio" in failed.reason


OWN = """\
import numpy as np

from manyhands import load_demo
from manyhands.exceptions import DataNotFoundError
from tests.building import built
from evidence import Data

def small():
    demo = load_demo()
    return Data(demo.X_train[:50], demo.annotations[range(50)], None, None, None,
                demo.X_test, demo.y_test, truth={"strength": 0.5})

def absent():
    raise DataNotFoundError("put it there")

def nothing():
    return 3

class Constant:
    def __init__(self, label=0):
        self.label = label

    def fit(self, X, y):
        if self.label > 9:
            raise RuntimeError("no such label")
        return self

    def predict(self, X):
        return np.full(len(X), self.label)
"""


def test_a_users_own_estimator_and_data(make_row, own):
    own(OWN)
    row = make_row("own_things:Constant", "{label: 3}", "{factory: 'own_things:small'}")
    record = run_cell(row, 0)
    assert record.status == "done", record.trace
    data = load_data(row.data, row.folder)
    assert data.truth == {"strength": 0.5}
    assert record.metrics[LAST]["accuracy"] == np.mean(data.y_test == 3)


def test_a_failure_is_recorded_with_its_trace(make_row, own, tmp_path, demo):
    own(OWN)
    record = run_cell(make_row("own_things:Constant", "{label: 10}"), 0, demo)
    assert (record.status, record.reason) == ("failed", "RuntimeError: no such label")
    assert "own_things.py" in record.trace
    assert record.metrics == {}
    write_record(tmp_path, record)
    assert read_records(tmp_path) == [record]
    wrong = run_cell(make_row(data="{factory: 'own_things:nothing'}"), 0)
    assert wrong.status == "failed"
    assert "without 'X_train'" in wrong.reason


def test_data_that_is_not_at_hand_is_skipped(make_row, own):
    own(OWN)
    record = run_cell(make_row(data="{factory: 'own_things:absent'}"), 0)
    assert (record.status, record.reason, record.data_checksum) == ("skipped", "put it there", "")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_its_rows_are_skipped(make_row, demo):
    record = run_cell(make_row(more="device: gpu\n"), 0, demo)
    assert (record.status, record.metrics) == ("skipped", {})
    assert "GPU" in record.reason


def test_a_simulated_crowd_is_another_one_with_every_seed(make_row, own):
    own(
        "from types import SimpleNamespace\nimport numpy as np\n"
        "from manyhands import make_crowd\n"
        "def make(random_state):\n"
        "    X = np.random.default_rng(0).normal(size=(60, 2)).astype('float32')\n"
        "    y = (X[:, 0] > 0).astype(int)\n"
        "    crowd = make_crowd(y, random_state=random_state)\n"
        "    return SimpleNamespace(X_train=X, annotations=crowd, X_test=X, y_test=y)\n"
    )
    row = make_row(data="{factory: 'own_things:make', random_state: seed}")
    first, again, other = (run_cell(row, seed) for seed in (0, 0, 1))
    assert first.status == "done", first.trace
    assert first.data_checksum == again.data_checksum != other.data_checksum


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux can begin to count anew"
)
def test_the_peak_memory_is_the_runs_own(make_row, demo):
    ballast = np.ones((24, 1024, 1024))
    during = run_cell(make_row(), 0, demo).peak_memory_mb
    del ballast
    after = run_cell(make_row(), 0, demo).peak_memory_mb
    assert after < during - 150


def test_a_row_of_a_history_without_stages_is_found_by_its_round():
    rounds = SimpleNamespace(best_round_=1, history_=[{"round": 0}, {"round": 1}])
    assert _kept(rounds, 7) == 2
    assert _kept(SimpleNamespace(history_=rounds.history_), 7) == 7


def test_an_epoch_of_what_a_method_starts_from_is_none_of_its_own(demo):
    history = [
        {"stage": stage, "test_accuracy": value, "test_macro_f1": value}
        for stage, value in (("start", 0.9), ("generator", 0.6), ("adversarial", 0.7))
    ]
    found = _chosen(history, "test", demo)
    assert (found["epoch"], found["accuracy"]) == (3, 0.7)


def test_the_commit_of_a_record_is_that_of_the_whole_package(monkeypatch):
    """Of both packages: the library, and what makes the data and measures them."""
    asked = []

    def run(command, **options):
        asked.append({Path(folder) for folder in command[command.index("--") + 1 :]})
        return SimpleNamespace(stdout="abc\n")

    monkeypatch.setattr("evidence.running.cells.subprocess.run", run)
    assert commit.__wrapped__() == "abc+"
    assert asked == [{Path(package.__file__).parent for package in (manyhands, evidence)}] * 2


@pytest.fixture
def source(monkeypatch):
    """Eight training instances (the last has no annotation), one of validation, two of test."""
    A = np.array([[0, 1], [1, 1], [0, 0], [1, -1], [0, 1], [1, 1], [0, 0], [-1, -1]])
    found = {
        "X_train": np.arange(8.0)[:, None],
        "annotations": AnnotationTable.from_matrix(A, classes=[0, 1]),
        "y_train": np.array([0, 1, 0, 1, 0, 1, 0, 1]),
        "X_valid": np.array([[8.0]]),
        "y_valid": np.array([0]),
        "X_test": np.array([[9.0], [10.0]]),
        "y_test": np.array([1, 0]),
        "truth": SimpleNamespace(),
    }
    monkeypatch.setattr(variants, "load_data", lambda of: Data(**{**found, **of}))
    return found


def test_what_is_left_of_the_training_part_is_not_tested_on(source):
    data = with_fewer_instances({}, 4, random_state=0)
    drawn = data.X_train[:, 0].astype(int)
    assert len(drawn) == len(data.annotations) == len(set(drawn)) == 4
    assert 7 not in drawn, "it has no annotation"
    np.testing.assert_array_equal(
        data.annotations.to_matrix(), source["annotations"].to_matrix()[drawn]
    )
    np.testing.assert_array_equal(data.y_train, source["y_train"][drawn])
    assert data.X_test[:, 0].tolist() == [8.0, 9.0, 10.0]
    assert data.y_test.tolist() == [0, 1, 0]
    assert data.X_valid is data.y_valid is data.truth is None


def test_the_seed_draws(source):
    draws = {tuple(with_fewer_instances({}, 4, seed).X_train[:, 0]) for seed in range(6)}
    assert len(draws) > 1
    again = [with_fewer_instances({}, 4, random_state=3).X_train for _ in range(2)]
    np.testing.assert_array_equal(*again)


def test_sparse_features_stay_sparse(source):
    parts = {name: csr_array(source[name]) for name in ("X_train", "X_valid", "X_test")}
    data = with_fewer_instances(parts, 4, random_state=0)
    plain = with_fewer_instances({}, 4, random_state=0)
    np.testing.assert_array_equal(data.X_test.toarray(), plain.X_test)
    np.testing.assert_array_equal(data.X_train.toarray(), plain.X_train)


def test_a_set_without_gold_to_train_on_or_without_a_validation_part(source):
    data = with_fewer_instances({"y_train": None, "X_valid": None, "y_valid": None}, 7)
    assert data.y_train is None
    assert data.X_test[:, 0].tolist() == [9.0, 10.0]


def test_what_cannot_be_drawn_is_refused(source):
    for n in (0, 8):
        with pytest.raises(AnnotationError, match=f"n_train={n} of 7 annotated"):
            with_fewer_instances({}, n)
    alone = {"X_valid": None, "y_valid": None, "X_test": None, "y_test": None}
    with pytest.raises(AnnotationError, match="neither a validation nor a test part"):
        with_fewer_instances(alone, 7)
