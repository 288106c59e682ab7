"""Checkpoints resume a run exactly; model folders hold a fitted classifier, or name the damage."""

import errno
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from manyhands import (
    AggregatedClassifier,
    CoNALClassifier,
    CrowdInGClassifier,
    CrowdLayerClassifier,
    DawidSkene,
    load,
    load_demo,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.fitting import folders
from manyhands.training import Checkpoint

QUICK = {"max_epochs": 3, "batch_size": 16, "random_state": 0, "device": "cpu"}

# -- checkpoints ------------------------------------------------------------------------------


class Killed(Exception):
    pass


def train_until(monkeypatch, epoch, model, X, A):
    """Fit, and die right after the checkpoint of the given epoch is written."""
    written = Checkpoint.on_epoch_end

    def on_epoch_end(self, number, row):
        written(self, number, row)
        if row["epoch"] == epoch:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", on_epoch_end)
        with pytest.raises(Killed):
            model.fit(X, A)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"validation": 0.2},
        {"validation": 0.2, "patience": 1, "lr": 0.05},
        {"validation": 0.2, "patience": 1, "lr": 0.05, "monitor": "likelihood"},
    ],
)
def test_resume_ends_in_the_same_weights(options, tmp_path, monkeypatch):
    X, A, _ = make_crowd_problem()
    parameters = QUICK | {"max_epochs": 6} | options
    file = tmp_path / "run.safetensors"
    whole = CoNALClassifier(**parameters).fit(X, A)
    train_until(monkeypatch, 2, CoNALClassifier(checkpoint=file, **parameters), X, A)
    resumed = CoNALClassifier(checkpoint=file, **parameters).fit(X, A)
    for name, value in whole.module_.state_dict().items():
        assert torch.equal(value, resumed.module_.state_dict()[name]), name
    drop = {"seconds"}
    assert [{k: v for k, v in r.items() if k not in drop} for r in resumed.history_] == [
        {k: v for k, v in r.items() if k not in drop} for r in whole.history_
    ]


def test_a_loaded_model_is_validated_as_the_saved_one(tmp_path):
    X, A, _ = make_crowd_problem()
    options = {"validation": 0.2, "monitor": "likelihood", "patience": 3}
    model = CrowdLayerClassifier(**QUICK, **options).fit(X, A)
    kept = load(model.save(tmp_path / "model")).get_params()
    assert {name: kept[name] for name in options} == options
    start = CrowdLayerClassifier(**QUICK, **options)
    outer = CrowdInGClassifier(**QUICK, pretrainer=start, adversarial_epochs=1).fit(X, A)
    kept = load(outer.save(tmp_path / "outer")).pretrainer.get_params()
    assert {name: kept[name] for name in options} == options


def test_gold_labels_and_checkpoints_are_not_saved(tmp_path):
    X, A, y = make_crowd_problem()
    model = CrowdLayerClassifier(
        **QUICK, validation=(X, y), checkpoint=tmp_path / "run.safetensors", monitor="likelihood"
    )
    kept = load(model.fit(X, A).save(tmp_path / "model"))
    assert (kept.validation, kept.checkpoint, kept.monitor) == (None, None, "likelihood")


def test_a_finished_run_is_not_repeated(tmp_path):
    X, A, _ = make_crowd_problem()
    parameters = QUICK | {"checkpoint": tmp_path / "run.safetensors"}
    first = CrowdLayerClassifier(**parameters).fit(X, A)
    again = CrowdLayerClassifier(**parameters).fit(X, A)
    assert again.history_ == first.history_, "seconds included: no epoch ran again"
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))


@pytest.mark.parametrize("change", ["lr", "data", "class"])
def test_a_checkpoint_of_another_run_is_refused(change, tmp_path):
    X, A, _ = make_crowd_problem()
    file = tmp_path / "run.safetensors"
    CrowdLayerClassifier(checkpoint=file, **QUICK).fit(X, A)
    model = CrowdLayerClassifier(checkpoint=file, **QUICK)
    if change == "lr":
        model.set_params(lr=0.5)
    elif change == "data":
        X = X + 1e-3
    else:
        model = CoNALClassifier(checkpoint=file, **QUICK)
    with pytest.raises(ModelFolderError, match=f"another run.*{change}.*differ"):
        model.fit(X, A)


def test_another_network_is_another_run(tmp_path):
    X, A, _ = make_crowd_problem()

    def network(width):
        def make(shape, n_classes):
            return torch.nn.Sequential(
                torch.nn.Linear(shape[0], width), torch.nn.Linear(width, n_classes)
            )

        return make

    file = tmp_path / "run.safetensors"
    CrowdLayerClassifier(network(3), checkpoint=file, **QUICK).fit(X, A)
    with pytest.raises(ModelFolderError, match="network differ"):
        CrowdLayerClassifier(network(4), checkpoint=file, **QUICK).fit(X, A)


# -- model folders ----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    X, A, _ = make_crowd_problem()
    return CrowdLayerClassifier(**QUICK).fit(X, A).save(tmp_path / "model")


def edit(folder, **changes):
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def weights_of(folder):
    return next(folder.glob("weights-*.safetensors"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.json").unlink(), "not a model folder"),
        (lambda f: (f / "model.json").write_text('{"format"'), "truncated or unreadable"),
        (lambda f: (f / "model.json").write_bytes(b"\xff\xfe\x00"), "truncated or unreadable"),
        (lambda f: (f / "model.json").write_text("[]"), "not written by manyhands"),
        (lambda f: edit(f, version=99), "format version 99"),
        (lambda f: edit(f, **{"class": "os.system"}), "does not know"),
        (lambda f: edit(f, parameters={"nonsense": 1}), "no parameter 'nonsense'"),
        (lambda f: edit(f, classes=[0, 1]), "do not fit"),
        (lambda f: edit(f, weights="../../elsewhere.safetensors"), "missing"),
        (lambda f: weights_of(f).unlink(), "missing"),
        (lambda f: weights_of(f).write_bytes(weights_of(f).read_bytes()[:-7]), "truncated"),
    ],
)
def test_a_damaged_folder_is_refused(folder, damage, message):
    damage(folder)
    with pytest.raises(ModelFolderError, match=message):
        load(folder)


def test_a_missing_key_is_damage(folder):
    path = folder / "model.json"
    description = json.loads(path.read_text())
    for key in ("class", "parameters", "classes", "weights", "input_shape"):
        path.write_text(json.dumps({k: v for k, v in description.items() if k != key}))
        with pytest.raises(ModelFolderError, match="damaged"):
            load(folder)


def test_a_failing_save_leaves_the_previous_model(folder, monkeypatch):
    X, A, _ = make_crowd_problem()
    before = load(folder).predict_proba(X)
    other = CrowdLayerClassifier(**(QUICK | {"random_state": 5})).fit(X, A)
    write, calls = folders.write_atomically, []

    def fail_second(path, content):
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(folders, "write_atomically", fail_second)
    with pytest.raises(OSError, match="No space"):
        other.save(folder)
    np.testing.assert_array_equal(load(folder).predict_proba(X), before)
    monkeypatch.undo()
    other.save(folder)
    np.testing.assert_array_equal(load(folder).predict_proba(X), other.predict_proba(X))
    assert len(list(folder.glob("weights-*"))) == 1, "old weights are cleared away"


def test_saving_an_unfitted_model_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        CrowdLayerClassifier().save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_aggregator_with_parameters_survives_saving(tmp_path):
    demo = load_demo()
    model = AggregatedClassifier(DawidSkene(prior_strength=2.5), max_epochs=1, random_state=0)
    loaded = load(model.fit(demo.X_train, demo.annotations).save(tmp_path))
    assert loaded.aggregator.prior_strength == 2.5
    np.testing.assert_allclose(loaded.confusion_, model.confusion_)


def test_save_refuses_what_load_could_not_make(tmp_path):
    class Mine(CrowdLayerClassifier):
        pass

    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match="Mine is not a class of manyhands"):
        Mine(**QUICK).fit(X, A).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_save_leaves_files_of_others_alone_and_keeps_feature_names(tmp_path):
    X, A, _ = make_crowd_problem()
    frame = pd.DataFrame(X, columns=list("abcd"))
    precious = tmp_path / "weights-precious.safetensors"
    precious.write_bytes(b"mine")
    model = CrowdLayerClassifier(**QUICK).fit(frame, A)
    model.save(tmp_path)
    assert precious.exists()
    loaded = load(tmp_path)
    shuffled = loaded.predict_proba(frame[["d", "c", "b", "a"]])
    np.testing.assert_array_equal(shuffled, model.predict_proba(frame))
    with pytest.raises(AnnotationError, match=r"lacks column 'b'.*has column 'z'.*not fitted on"):
        loaded.predict(frame.rename(columns={"b": "z"}))
