"""Folders of strangers: reading one runs nothing, and touches no other file."""

import json
import os
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import load_file as from_file
from safetensors.numpy import save as to_bytes

from manyhands import AnnotationTable, CrowdLayerClassifier, DawidSkene, load, save
from manyhands.exceptions import ModelFolderError
from manyhands.fitting.folders import READY, REPLACED, Stored, checksum, write_model
from manyhands.fitting.saving import holds_label_sets

TABLE = AnnotationTable.from_matrix(np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]]))


@pytest.fixture
def folder(tmp_path):
    """A model beside a file and a folder of its user."""
    (tmp_path / "own.txt").write_text("mine")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").write_text("mine")
    return save(DawidSkene().fit(TABLE), tmp_path / "model")


def forge(folder, change):
    """Change a description as somebody would who wants it to be read: with its checksum."""
    path = folder / "model.json"
    description = json.loads(path.read_text())
    change(description)
    description["checksum"] = checksum(description)
    path.write_text(json.dumps(description))


@pytest.mark.parametrize("name", ["..", "../own.txt", "../photos", "photos", ".", "", 7, None])
def test_a_list_of_replaced_files_removes_nothing_outside_the_folder(folder, name):
    before = load(folder).posterior_
    (folder / "photos").mkdir()
    (folder / "photos" / "1.jpg").write_text("mine")
    (folder / READY).mkdir()
    (folder / READY / REPLACED).write_text(json.dumps([name]))
    np.testing.assert_array_equal(load(folder).posterior_, before)
    assert not (folder / READY).exists()
    beside = sorted(path.name for path in folder.parent.iterdir())
    assert beside == ["model", "own.txt", "photos"]
    assert (folder.parent / "photos" / "1.jpg").read_text() == "mine"
    assert (folder / "photos" / "1.jpg").read_text() == "mine"


def replaced(**changes):
    return lambda description: description.update(changes)


def parameter(**changes):
    return lambda description: description["parameters"].update(changes)


def nested(depth):
    node = 1
    for _ in range(depth):
        node = [node]
    return node


NAMED = {"model": "somebody/else", "batch_size": 32, "cache": None, "fingerprint": None}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (parameter(checkpoint="own.txt"), "sets checkpoint. manyhands never saves it"),
        (parameter(callbacks=[1]), "sets callbacks. manyhands never saves it"),
        (
            replaced(**{"class": "TransformersEncoder", "parameters": NAMED}),
            "would load a model that the folder names",
        ),
        (replaced(**{"class": "AnnotationTable"}), "does not know"),
        (replaced(**{"class": "load"}), "does not know"),
        (parameter(tol={"$number": 300, "type": "int8"}), "damaged"),
        (parameter(tol={"$number": 10**11, "type": "V"}), "not a type of number"),
        (parameter(tol={"$number": 0, "type": "O"}), "not a type of number"),
        (parameter(tol={"$values": ["x" * 10**6, *[""] * 10**3]}), "as much memory"),
        (parameter(tol={"$eval": "exit()"}), "not a kind of value"),
        (parameter(tol=nested(900)), "damaged"),
        (replaced(weights="../own.txt"), "missing"),
        (replaced(weights=".."), "not a file"),
        (replaced(weights=["x"]), "damaged"),
        (replaced(sha256=None), "checksum differs"),
        (replaced(**{"$pipeline": [], "class": "Pipeline"}), "no steps"),
    ],
)
def test_a_forged_description_is_refused(folder, change, says):
    forge(folder, change)
    with pytest.raises(ModelFolderError, match=says):
        load(folder)
    assert not holds_label_sets(folder)
    assert (folder.parent / "own.txt").read_text() == "mine"


@pytest.mark.parametrize("hidden", [[10**7, 10**7], [10**6, 128], [10**30]])
def test_a_network_that_fills_the_memory_is_refused_before_it_is_made(tmp_path, hidden):
    """A description of a few bytes may ask for terabytes; the system would end the process."""
    X = np.random.default_rng(0).normal(size=(4, 600)).astype(np.float32)
    model = CrowdLayerClassifier(backbone={"name": "mlp", "hidden": [4]}, max_epochs=1)
    folder = save(model.fit(X, TABLE), tmp_path / "model")
    before = load(folder, device="cpu").predict_proba(X)
    np.testing.assert_allclose(before, model.predict_proba(X), rtol=1e-5)
    forge(folder, parameter(backbone={"name": "mlp", "hidden": hidden}))
    resource = pytest.importorskip("resource", reason="this system tells no memory")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFolderError, match=r"do not fit the model|is damaged"):
        load(folder, device="cpu")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2**20  # KiB: 1 GiB.


@pytest.fixture
def network(tmp_path):
    """A saved classifier with a network."""
    X = np.random.default_rng(0).normal(size=(4, 600)).astype(np.float32)
    model = CrowdLayerClassifier(backbone={"name": "mlp", "hidden": [4]}, max_epochs=1)
    return save(model.fit(X, TABLE), tmp_path / "model")


def weights_of(folder):
    (path,) = folder.glob("weights-*")
    return path


def replace_arrays(folder, change):
    """Write other arrays into a folder, with the checksums that they have."""
    arrays = from_file(weights_of(folder))
    change(arrays)
    description = json.loads((folder / "model.json").read_text())
    weights_of(folder).unlink()
    write_model(folder, description, to_bytes(arrays))


def test_weights_larger_than_the_memory_are_refused_before_they_are_read(folder, monkeypatch):
    """What is written there is no file of weights, which only reading it would tell."""
    path = weights_of(folder)
    path.write_bytes(bytes(2**21))
    monkeypatch.setattr("manyhands.memory.free_memory", lambda: 2**22)
    with pytest.raises(ModelFolderError, match=rf"{path.name}' has 2\.0 MiB.*more memory"):
        load(folder)


def test_a_network_that_the_memory_does_not_hold_beside_its_weights_is_refused(
    network, monkeypatch
):
    monkeypatch.setattr("manyhands.fitting.network.free_memory", lambda: 2**10)
    with pytest.raises(ModelFolderError, match=r"memory does not hold the network.*more memory"):
        load(network, device="cpu")
    monkeypatch.setattr("manyhands.fitting.network.free_memory", lambda: 2**20)
    load(network, device="cpu")


def test_the_header_is_compared_with_the_network_before_weights_are_read(network, monkeypatch):
    def widened(arrays):
        name = max(arrays, key=lambda each: arrays[each].size)
        arrays[name] = np.zeros((2**10, 2**10), np.float32)

    replace_arrays(network, widened)

    def small(stored):
        return pytest.fail("it was read") if stored.nbytes > 2**20 else stored.read()

    monkeypatch.setattr(Stored, "array", property(small))
    says = r"do not fit .* network has 3,626 weights, and the file holds 1,049,802\); save"
    with pytest.raises(ModelFolderError, match=says):
        load(network, device="cpu")


def test_arrays_that_nothing_names_are_not_read(folder):
    before = load(folder).posterior_
    replace_arrays(folder, lambda arrays: arrays.update(unnamed=np.zeros(2**26, np.uint8)))
    tracemalloc.start()
    np.testing.assert_array_equal(load(folder).posterior_, before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24  # The array would be 64 MiB.


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_that_is_named_a_thousand_times_is_read_once(folder, order):
    replace_arrays(folder, lambda arrays: arrays.update(large=np.zeros((2**10, 2**9))))
    forge(folder, parameter(tol=[{"$array": "large", "order": order}] * 1000))
    tracemalloc.start()
    load(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**25  # One is 4 MiB, and a thousand are 4 GiB.


def test_what_never_ends_is_no_file(folder):
    (weights,) = folder.glob("weights-*")
    weights.unlink()
    os.mkfifo(weights)
    with pytest.raises(ModelFolderError, match="is not a file"):
        load(folder)
    weights.unlink()
    weights.symlink_to("/dev/zero")
    with pytest.raises(ModelFolderError, match="is not a file"):
        load(folder)


def test_weights_may_be_linked_as_the_hub_keeps_them(folder):
    before = load(folder).posterior_
    (weights,) = folder.glob("weights-*")
    blob = folder.parent / "blob"
    weights.rename(blob)
    weights.symlink_to(blob)
    np.testing.assert_array_equal(load(folder).posterior_, before)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,  # A header of 2**64 bytes.
        (2**40).to_bytes(8, "little") + b"{}",
        b"\x80\x04\x95.",  # A pickle.
        to_bytes({"x": np.zeros(2)})[:-1],
    ],
)
def test_weights_that_lie_about_their_size_are_refused(folder, content):
    description = json.loads((folder / "model.json").read_text())
    for path in folder.glob("weights-*"):
        path.unlink()
    write_model(folder, description, content)
    with pytest.raises(ModelFolderError, match="not a safetensors file"):
        load(folder)


def test_a_clock_that_jumps_changes_no_folder(folder):
    before = load(folder).posterior_
    for when in (0, 4102444800):  # 1970, and 2100.
        for path in [*folder.rglob("*"), folder]:
            os.utime(path, (when, when))
        np.testing.assert_array_equal(load(folder).posterior_, before)
    save(DawidSkene().fit(TABLE), folder)
    np.testing.assert_array_equal(load(folder).posterior_, before)
