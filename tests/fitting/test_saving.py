"""The codec: every value comes back as it was, what is saved is data, and nothing else is made."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from manyhands import (
    AnnotationTable,
    AveragedCrowdClassifier,
    CoNALClassifier,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    DASCClassifier,
    DawidSkene,
    load,
    save,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.fitting.saving import read, write
from manyhands.records import record
from manyhands.registry import get

QUICK = {"max_epochs": 1, "backbone": "linear", "device": "cpu", "random_state": 0}


@record("tests: a thing")
@dataclass
class Thing:
    content: object


@pytest.fixture(scope="module")
def aggregator():
    return DawidSkene(max_iter=2).fit(np.array([[0, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 1]]))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        "text",
        float("inf"),
        [1, [2.5, None]],
        (1, ("a", [])),
        {"a": (1,), "b": {}},
        {1: "a", (2, 3): None},
        {"$array": "a text like a key of ours"},
        np.float64(0.1),
        np.int32(7),
        np.bool_(True),
        np.float32("nan"),
        np.array(3.0),
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.arange(3, dtype=">f8"),
        np.zeros((0, 2), dtype=np.float32),
        np.array(["a", "longer"]),
        np.array([], dtype="<U3"),
        np.array(["a", 1, None, float("nan")], dtype=object),
        Thing(Thing([np.eye(2), "x"])),
    ],
    ids=repr,
)
def test_a_value_comes_back_as_it_was(value, aggregator, tmp_path):
    aggregator.extra_ = value
    again = read(write(tmp_path, aggregator), get).extra_
    assert type(again) is (np.float64 if isinstance(value, np.ndarray) and not value.ndim else
                           type(value))  # fmt: skip
    if isinstance(value, np.ndarray):
        assert again.dtype == value.dtype.newbyteorder("=") or value.dtype.kind == "U"
        if value.flags.f_contiguous:
            assert again.ndim == 0 or again.flags.f_contiguous
    if isinstance(value, Thing):
        np.testing.assert_array_equal(again.content.content[0], np.eye(2))
        assert again.content.content[1] == "x"
    elif isinstance(value, np.ndarray):
        np.testing.assert_equal(again.tolist(), value.tolist())
    else:
        np.testing.assert_equal(again, value)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([object()]), 1j, np.longdouble(1)])
def test_what_is_neither_numbers_nor_json_is_refused_by_name(value, aggregator, tmp_path):
    aggregator.extra_ = [value]
    with pytest.raises(AnnotationError, match="cannot be saved without pickle"):
        write(tmp_path / "model", aggregator)
    assert not (tmp_path / "model").exists()


def test_a_folder_says_class_version_and_parameters_and_arrays_have_readable_names(tmp_path):
    X, A, _ = make_crowd_problem()
    folder = CrowdLayerClassifier(**QUICK, lr=0.01).fit(X, A).save(tmp_path / "model")
    described = json.loads((folder / "model.json").read_text())
    assert described["class"] == "CrowdLayerClassifier"
    assert described["version"] == 2
    assert described["parameters"]["lr"] == 0.01
    assert described["parameters"]["backbone"] == "linear"
    arrays = load_file(folder / described["weights"])
    assert arrays["confusion_"].shape == (5, 3, 3)
    assert {name.partition(".")[0] for name in arrays} == {
        "module_", "classes_", "annotators_", "confusion_", "pooled_confusion_", "annotators_seen_",
    }  # fmt: skip


def test_models_within_models_are_parts_of_one_file(tmp_path):
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, annotators=list("vwxyz"))
    members = [
        DASCClassifier(CrowdLayerClassifier(**QUICK), n_rounds=1, random_state=0),
        CrowdStackingClassifier(n_rounds=1, n_landmarks=10, random_state=0),
        AveragedCrowdClassifier([CoNALClassifier(**QUICK)]),
    ]
    model = AveragedCrowdClassifier(members, random_state=0).fit(X, table)
    loaded = load(save(model, tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert [type(each).__name__ for each in loaded.estimators_] == [
        "CrowdLayerClassifier",  # That of the kept round stands for the self-training.
        "CrowdStackingClassifier",
        "AveragedCrowdClassifier",
    ]
    assert [type(each) for each in loaded.estimators] == [type(each) for each in members]
    assert not hasattr(loaded.estimators[1], "stack_")
    assert loaded.random_state == 0


def test_parameters_that_are_arrays_are_kept(tmp_path):
    X, A, _ = make_crowd_problem()
    features = torch.arange(10.0).reshape(5, 2)
    model = CoNALClassifier(annotator_features=features, **QUICK).fit(X, A)
    loaded = load(model.save(tmp_path))
    np.testing.assert_array_equal(loaded.annotator_features, features.numpy())


@pytest.mark.parametrize("name", ["safe_instances", "EmbeddingCache", "os.system", "PCA", 3])
def test_only_estimators_of_this_library_are_made(name, tmp_path, aggregator):
    aggregator.extra_ = None
    write(tmp_path, aggregator)
    path = tmp_path / "model.json"
    described = json.loads(path.read_text())
    described["fitted"]["extra_"] = {"$object": name, "parameters": {"folder": "made"}}
    path.write_text(json.dumps(described))
    with pytest.raises(ModelFolderError, match=r"does not know|has no parameter|damaged"):
        read(tmp_path, get)
