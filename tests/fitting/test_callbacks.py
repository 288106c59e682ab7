"""Callbacks of a fit: what they hear, how they end it, and the loggers for other tools."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import manyhands
from manyhands import AggNetClassifier, AggregatedClassifier, CrowdLayerClassifier
from manyhands.estimator_checks import make_crowd_problem, quick_clone
from manyhands.exceptions import AnnotationError
from manyhands.registry import all_classifiers
from manyhands.training import (
    Callback,
    Checkpoint,
    CSVLogger,
    MlflowLogger,
    TensorBoardLogger,
    WandbLogger,
)
from tests.building import built
from tests.classifiers.conftest import FEW_PARTS

NETWORKS = [cls for _, cls in all_classifiers() if "callbacks" in cls().get_params(deep=False)]
QUICK = {"max_epochs": 3, "random_state": 0, "device": "cpu"}


class Diary(Callback):
    """Writes down what it hears; ends a stage after ``stop`` epochs of it."""

    def __init__(self, stop=None):
        self.heard, self.rows, self.stop = [], [], stop

    def on_fit_begin(self, estimator, facts):
        self.facts = facts
        assert list(estimator.classes_) == [0, 1, 2]
        self.heard.append("fit begins")

    def on_stage_begin(self, name, max_epochs, first_epoch):
        self.heard.append(name)

    def on_epoch_end(self, epoch, metrics):
        self.heard.append(epoch)
        self.rows.append(dict(metrics))
        return metrics["epoch"] == self.stop

    def on_fit_end(self, estimator, error):
        assert error is not None or hasattr(estimator, "module_")
        self.heard.append(type(error))


def test_every_classifier_with_a_network_takes_callbacks():
    assert len(NETWORKS) > 15
    without = {name for name, cls in all_classifiers() if cls not in NETWORKS}
    assert without == {"CrowdStackingClassifier"}, "it has no epochs"


@pytest.mark.parametrize("cls", NETWORKS)
def test_callbacks_hear_what_the_history_holds_and_change_nothing(cls):
    X, A, _ = make_crowd_problem()
    diary = Diary()
    few = FEW_PARTS.get(cls.__name__, {})
    plain = quick_clone(built(cls, **few)).fit(X, A)
    model = quick_clone(built(cls, callbacks=[diary], **few)).fit(X, A)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert diary.heard[0] == "fit begins"
    assert diary.heard[-1] is type(None)
    before = len(diary.facts["history"])  # CrowdInG's start, which is another fit.
    epochs = [e for e in diary.heard if isinstance(e, int)]
    assert epochs == [*range(before + 1, len(model.history_) + 1)]
    heard = [{k: v for k, v in row.items() if k != "seconds"} for row in diary.rows]
    for own, row in zip(heard, model.history_[before:], strict=True):
        assert own.items() <= row.items()
    assert {row["stage"] for row in diary.rows} <= set(diary.facts["stages"])
    assert diary.facts["n_annotations"] == (A >= 0).sum()
    assert diary.facts["parameters"]["random_state"] == 0


def test_returning_true_ends_the_stage_and_the_next_one_begins():
    X, A, _ = make_crowd_problem()
    diary = Diary(stop=2)
    model = CrowdLayerClassifier(callbacks=[diary], **QUICK | {"max_epochs": 9}).fit(X, A)
    assert len(model.history_) == 2
    diary = Diary(stop=1)
    model = manyhands.DoctorNetClassifier(weighting="learned", callbacks=[diary], **QUICK)
    model.fit(X, A)
    assert diary.heard == ["fit begins", "heads", 1, "weights", 2, type(None)]
    assert model.history_.column("epoch").tolist() == [1, 1]


class Broken(Callback):
    def __init__(self, hook):
        self.hook = hook
        setattr(self, hook, self.fail)

    def fail(self, *_):
        raise OSError("the disk is full")


@pytest.mark.parametrize("hook", ["on_fit_begin", "on_stage_begin", "on_epoch_end", "on_fit_end"])
def test_an_error_ends_the_fit_and_leaves_the_estimator_as_it_was(hook):
    X, A, _ = make_crowd_problem()
    model = CrowdLayerClassifier(**QUICK).fit(X, A)
    before = model.predict_proba(X)
    diary = Diary()
    model.set_params(callbacks=[Broken(hook), diary], random_state=1)
    with pytest.raises(OSError, match="the disk is full") as caught:
        model.fit(X, A)
    assert diary.heard[-1] is OSError, "the others hear of it"
    if hook == "on_epoch_end":
        assert caught.value.__notes__ == ["in Broken, after epoch 1 of stage 'train'"]
    np.testing.assert_array_equal(model.predict_proba(X), before)
    with pytest.raises(OSError, match="full"):
        CrowdLayerClassifier(callbacks=[Broken(hook)], **QUICK).fit(X, A)


def test_a_failed_end_does_not_hide_what_failed_first():
    X, A, _ = make_crowd_problem()
    model = CrowdLayerClassifier(callbacks=[Broken("on_epoch_end"), Broken("on_fit_end")], **QUICK)
    with pytest.raises(OSError, match="full") as caught:
        model.fit(X, A)
    assert caught.value.__notes__[1].startswith("Broken.on_fit_end failed too")


def test_clones_keep_them_and_saved_models_do_not(tmp_path):
    X, A, _ = make_crowd_problem()
    diary = Diary()
    model = CrowdLayerClassifier(callbacks=[diary], **QUICK)
    assert clone(model).callbacks[0] is diary
    loaded = manyhands.load(model.fit(X, A).save(tmp_path / "model"))
    assert loaded.callbacks is None
    assert "Diary" not in (tmp_path / "model" / "model.json").read_text()


def test_pilots_are_not_heard(monkeypatch):
    monkeypatch.setattr("manyhands.fitting.pilots.PILOT_STEPS", 16)
    X, A, _ = make_crowd_problem(n=120)
    diary = Diary()
    model = CrowdLayerClassifier(batch_size=32, random_state=0, callbacks=[diary]).fit(X, A)
    assert diary.heard.count("fit begins") == 1
    assert len(diary.rows) == len(model.history_) == model.n_epochs_


def test_what_is_no_callback_is_refused():
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match=r"callbacks\[0\] is .*manyhands.training.Callback"):
        CrowdLayerClassifier(callbacks=[print]).fit(X, A)
    second = AggregatedClassifier(backbone=LogisticRegression(), callbacks=[Diary()])
    with pytest.raises(AnnotationError, match="callbacks is for training a network"):
        second.fit(X, A)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_resumed_fit_tells_what_was_before_and_stays_stopped(tmp_path, monkeypatch, stopped):
    X, A, _ = make_crowd_problem()
    file, log, write = tmp_path / "state", tmp_path / "log.csv", Checkpoint.on_epoch_end

    def killed(self, epoch, metrics):
        write(self, epoch, metrics)
        if epoch == 2:
            raise KeyboardInterrupt

    def model():
        callbacks = [CSVLogger(log), Diary(stop=2 if stopped else None)]
        return AggNetClassifier(callbacks=callbacks, checkpoint=file, **QUICK)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", killed)
        with pytest.raises(KeyboardInterrupt):
            model().fit(X, A)
    resumed = model().fit(X, A)
    assert len(resumed.history_) == (2 if stopped else 3)
    assert resumed.callbacks[1].heard[-1] is type(None)
    if not stopped:
        rows = read(log)
        assert [row["epoch"] for row in rows] == ["1", "2", "3"]


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


# -- loggers --------------------------------------------------------------------------------------


class Recorder:
    """Stands for a tool's object: notes every call of any method."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *values, **named: self.calls.append((name, *values, *named.items()))


def fitted(*callbacks):
    X, A, _ = make_crowd_problem()
    return CrowdLayerClassifier(callbacks=list(callbacks), **QUICK).fit(X, A)


def test_csv_holds_the_history(tmp_path):
    path = tmp_path / "new folder" / "log.csv"
    X, A, _ = make_crowd_problem()
    model = manyhands.DoctorNetClassifier(callbacks=[CSVLogger(path)], **QUICK).fit(X, A)
    rows = read(path)
    assert len(rows) == len(model.history_)
    for row, kept in zip(rows, model.history_, strict=True):
        assert {k: v for k, v in row.items() if v} == {k: str(v) for k, v in kept.items()}


def test_tensorboard_gets_scalars_under_their_stage():
    writer = Recorder()
    model = fitted(TensorBoardLogger(writer))
    losses = [call[2:] for call in writer.calls if call[:2] == ("add_scalar", "train/loss")]
    assert losses == [(row["loss"], row["epoch"]) for row in model.history_]
    assert ("add_text", "lr", "0.001") in writer.calls
    assert writer.calls[-1] == ("flush",)


def test_mlflow_gets_parameters_and_metrics_of_the_run():
    run, client = SimpleNamespace(info=SimpleNamespace(run_id="r1")), Recorder()
    model = fitted(MlflowLogger(run, client))
    assert ("log_param", "r1", "batch_size", 128) in client.calls
    assert ("set_tag", "r1", "classifier", "CrowdLayerClassifier") in client.calls
    losses = [call for call in client.calls if call[:3] == ("log_metric", "r1", "train/loss")]
    assert [call[3:] for call in losses] == [
        (row["loss"], ("step", row["epoch"])) for row in model.history_
    ]


def test_weights_and_biases_gets_a_configuration_and_rows():
    run = Recorder()
    run.config = type("Config", (dict,), {"update": lambda own, new, **_: dict.update(own, new)})()
    model = fitted(WandbLogger(run))
    assert run.config["classifier"] == "CrowdLayerClassifier"
    rows = [call[1] for call in run.calls if call[0] == "log"]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert [row["train/loss"] for row in rows] == model.history_.column("loss").tolist()
