"""Checkpoints resume a run exactly; model folders hold a fitted classifier, or name the damage."""

import errno
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import manyhands
from manyhands import (
    AggregatedClassifier,
    CoNALClassifier,
    CrowdInGClassifier,
    CrowdInGProtocol,
    CrowdLayerClassifier,
    CrowdLayerProtocol,
    CrowdStackingClassifier,
    DawidSkene,
    load,
    load_demo,
    make_crowd,
)
from manyhands.classifiers.stacking.members import SoftNetwork
from manyhands.encoders import FunctionEncoder, ImageEncoder, TextEncoder
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.fitting import folders
from manyhands.training import Checkpoint
from tests.building import built

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
    whole = built(CoNALClassifier, **parameters).fit(X, A)
    train_until(monkeypatch, 2, built(CoNALClassifier, checkpoint=file, **parameters), X, A)
    resumed = built(CoNALClassifier, checkpoint=file, **parameters).fit(X, A)
    for name, value in whole.module_.state_dict().items():
        assert torch.equal(value, resumed.module_.state_dict()[name]), name
    drop = {"seconds"}
    assert [{k: v for k, v in r.items() if k not in drop} for r in resumed.history_] == [
        {k: v for k, v in r.items() if k not in drop} for r in whole.history_
    ]


def test_a_loaded_model_is_validated_as_the_saved_one(tmp_path):
    X, A, _ = make_crowd_problem()
    protocol = CrowdLayerProtocol(monitor="likelihood", patience=3)
    options = {"validation": 0.2, "protocol": protocol}
    model = CrowdLayerClassifier(**QUICK, **options).fit(X, A)
    kept = load(model.save(tmp_path / "model")).get_params()
    assert {name: kept[name] for name in options} == options
    start = CrowdLayerClassifier(**QUICK, **options)
    outer = built(
        CrowdInGClassifier,
        **QUICK,
        pretrainer=start,
        protocol=CrowdInGProtocol(adversarial_epochs=1),
    ).fit(X, A)
    kept = load(outer.save(tmp_path / "outer")).pretrainer.get_params()
    assert {name: kept[name] for name in options} == options


def test_gold_labels_and_checkpoints_are_not_saved(tmp_path):
    X, A, y = make_crowd_problem()
    model = CrowdLayerClassifier(
        **QUICK,
        validation=(X, y),
        checkpoint=tmp_path / "run.safetensors",
        protocol=CrowdLayerProtocol(monitor="likelihood"),
    )
    kept = load(model.fit(X, A).save(tmp_path / "model"))
    assert (kept.validation, kept.checkpoint) == (None, None)
    assert kept.protocol == CrowdLayerProtocol(monitor="likelihood")


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
        (lambda f: edit(f, parameters={"backbone": {"name": "mlp", "hidden": [7]}}), "do not fit"),
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
    for key in ("class", "parameters", "fitted", "weights", "sha256"):
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


# -- texts and images ----------------------------------------------------------------------------


def stripes(n=60, side=12):
    """Images with vertical or horizontal stripes, and which of them they have."""
    X = np.random.default_rng(0).integers(0, 90, size=(n, side, side, 3))
    y = np.arange(n) % 2
    X[y == 0, ::2] += 120
    X[y == 1, :, ::2] += 120
    return X.astype(np.uint8), y


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The images of `stripes`, as files."""
    folder = tmp_path_factory.mktemp("images")
    for number, image in enumerate(stripes()[0]):
        Image.fromarray(image).save(folder / f"image{number}.png")
    return [folder / f"image{number}.png" for number in range(60)]


def reviews(n=60):
    """Texts of two kinds, of few words (each is some columns), and annotations of them."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    words = (["awful", "dull"], ["lovely", "great"])
    texts = [f"{words[c][rng.integers(2)]} film number {rng.integers(12)}" for c in y]
    return texts, y, make_crowd(y, n_annotators=6, annotations_per_instance=5, random_state=0)


FEW = {"n_rounds": 2, "n_folds": 2, "random_state": 0}


@pytest.mark.parametrize(
    "make",
    [
        list,
        lambda texts: np.array(texts, dtype=object),
        pd.Series,
        pl.Series,
        lambda texts: pd.DataFrame({"review": texts}),
        lambda texts: pl.DataFrame({"review": texts, "length": list(map(len, texts))}),
        lambda texts: pd.DataFrame({"a": texts, "b": texts[::-1], "kind": ["x", "y"] * 30}),
    ],
)
def test_the_stack_takes_texts_and_is_saved_with_its_encoder(make, tmp_path):
    texts, y, table = reviews()
    X = make(texts)
    model = CrowdStackingClassifier(**FEW).fit(X, table)
    assert model.score(X, y) > 0.9
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert not list((tmp_path / "model").glob("*.pkl"))


def test_the_stack_takes_images_and_is_saved_with_its_encoder(files, tmp_path, monkeypatch):
    monkeypatch.setitem(ImageEncoder.__init__.__kwdefaults__, "n_centroids", 6)
    X, y = stripes()
    table = make_crowd(y, n_annotators=6, annotations_per_instance=5, random_state=0)
    paths = list(map(str, files))
    frame = pd.DataFrame({"photo": paths, "width": 12.0})
    for given in (X, files, paths, frame):
        model = CrowdStackingClassifier(**FEW).fit(given, table)
        assert model.score(given, y) > 0.9
        loaded = load(model.save(tmp_path / "model"))
        np.testing.assert_array_equal(loaded.predict_proba(given), model.predict_proba(given))
    with pytest.raises(FileNotFoundError, match=r"column 'photo' of X: .*If it holds ids"):
        model.predict(frame.assign(photo=["no.png"] * 60))


def test_a_stack_of_texts_refuses_anything_else():
    texts, _, table = reviews()
    model = CrowdStackingClassifier(**FEW).fit(texts, table)
    with pytest.raises(AnnotationError, match="give texts as a list"):
        model.predict(np.eye(3))
    with pytest.raises(AnnotationError, match="X has 59 rows but y"):
        model.fit(texts[1:], table)
    assert len(model.predict(["great", ""])) == 2
    gaps = pd.DataFrame({"text": texts, "n": 1.0})
    gaps.loc[3, "text"] = None
    assert len(CrowdStackingClassifier(**FEW).fit(gaps, table).predict(gaps[:5])) == 5


def test_a_fit_on_numbers_after_one_on_texts_forgets_them():
    texts, y, table = reviews()
    X = np.random.default_rng(0).normal(size=(60, 3)) + y[:, None]
    model = CrowdStackingClassifier(**FEW).fit(X, table).fit(texts, table)
    assert not hasattr(model, "n_features_in_")
    assert model.fit(X, table).encoder_ is None
    assert model.n_features_in_ == 3


@pytest.mark.parametrize("make", [list, np.array, pd.Series])
def test_other_classifiers_name_the_encoder(make, files):
    texts, _, table = reviews()
    with pytest.raises(AnnotationError, match=r"make_pipeline\(TextEncoder\(\), CoNALClassifier"):
        CoNALClassifier().fit(make(texts), table)
    with pytest.raises(AnnotationError, match=r"make_pipeline\(ImageEncoder\(\), CoNALClassifier"):
        CoNALClassifier().fit(files, table)


def test_a_pipeline_is_saved_without_pickle(tmp_path):
    texts, y, table = reviews()
    quick = CoNALClassifier(max_epochs=15, random_state=0, device="cpu")
    model = make_pipeline(TextEncoder(), quick).fit(texts, table)
    folder = manyhands.save(model, tmp_path / "model")
    loaded = load(folder)
    np.testing.assert_array_equal(loaded.predict_proba(texts), model.predict_proba(texts))
    assert (loaded.predict(texts) == y).mean() > 0.9
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {
        ".json",
        ".safetensors",
    }
    # Saved again, nothing of the first remains.
    before = len(list(folder.rglob("*")))
    assert manyhands.save(loaded, folder) == folder
    assert len(list(folder.rglob("*"))) == before
    stack = CrowdStackingClassifier(**FEW).fit(texts, table)
    assert type(load(manyhands.save(stack, folder))) is CrowdStackingClassifier
    frozen = make_pipeline(FunctionEncoder(lambda rows: [[len(r)] for r in rows]), quick)
    with pytest.raises(AnnotationError, match="step FunctionEncoder cannot be saved"):
        manyhands.save(frozen, folder)


def test_a_damaged_encoder_is_a_damaged_folder(tmp_path):
    texts, _, table = reviews()
    model = make_pipeline(TextEncoder(), CrowdStackingClassifier(**FEW)).fit(texts, table)
    folder = manyhands.save(model, tmp_path / "model")
    (weights,) = folder.glob("weights-*.safetensors")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    with pytest.raises(ModelFolderError, match="truncated or altered"):
        load(folder)
    weights.write_bytes(content)
    changed = json.loads((folder / "model.json").read_text())
    changed["$pipeline"][0][1]["parameters"]["missing"] = "empty"
    (folder / "model.json").write_text(json.dumps(changed))
    with pytest.raises(ModelFolderError, match="altered"):
        load(folder)


@pytest.mark.parametrize("ridge", [False, True])
def test_a_stack_with_networks_is_saved(tmp_path, ridge):
    X, A, _ = make_crowd_problem()
    member = SoftNetwork({"name": "mlp", "hidden": [8]}, ridge=ridge, max_epochs=2)
    options = {"n_rounds": 2, "n_folds": 2, "random_state": 0}
    model = CrowdStackingClassifier([("net", member), ("other", "linear")], **options)
    model.fit(X, A).save(tmp_path)
    loaded = load(tmp_path)
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-9)
    assert loaded.save(tmp_path / "again") == tmp_path / "again"
    np.testing.assert_array_equal(
        load(tmp_path / "again").predict_proba(X), loaded.predict_proba(X)
    )
    weights = next(tmp_path.glob("weights-*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelFolderError, match="truncated or altered"):
        load(tmp_path)
