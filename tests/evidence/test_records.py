"""Records: written whole, read only if sound."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from manyhands import DawidSkene, load_demo
from manyhands.evidence import Data, Record, load_data, read_records, write_record
from manyhands.evidence.data.sets import checksum
from manyhands.evidence.records.records import cell_key
from manyhands.evidence.records.store import find, record_path


def make_record(row="conal/demo", seed=0, specification=None, **fields):
    specification = specification or {"data": {"name": "demo"}}
    return Record(
        row=row,
        seed=seed,
        key=cell_key(specification, seed, "data", "code"),
        specification=specification,
        data_checksum="data",
        code="code",
        versions={"python": "3"},
        commit=None,
        started="2026-01-01T00:00:00+00:00",
        seconds=1.5,
        peak_memory_mb=None,
        **{"status": "done", "metrics": {"last epoch": {"accuracy": 0.5}}, **fields},
    )


def test_a_record_comes_back_as_it_was(tmp_path):
    record = make_record(extra={"error": 0.25}, history={"nll": [1.0, None]})
    path = write_record(tmp_path, record)
    assert path == tmp_path / "records" / "conal" / "demo" / f"0-{record.key[:12]}.json"
    assert find(tmp_path, "conal/demo", 0, record.key) == record
    assert read_records(tmp_path) == [record]
    first = path.read_bytes()
    assert write_record(tmp_path, record).read_bytes() == first


def test_records_come_by_row_and_seed(tmp_path):
    for row, seed in (("b/x", 0), ("a/x", 10), ("a/x", 2)):
        write_record(tmp_path, make_record(row, seed))
    assert [(r.row, r.seed) for r in read_records(tmp_path)] == [
        ("a/x", 2),
        ("a/x", 10),
        ("b/x", 0),
    ]
    assert read_records(tmp_path / "nowhere") == []


def truncate(path):
    path.write_bytes(path.read_bytes()[:-40])


def empty(path):
    path.write_bytes(b"")


def change(**values):
    def apply(path):
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return apply


def forget_a_field(path):
    content = json.loads(path.read_text())
    del content["metrics"]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        empty,
        forget_a_field,
        change(seed=1),
        change(row="conal/other"),
        change(key="0" * 64),
        change(specification={"data": {"name": "music"}}),
        change(data_checksum="other"),
        change(code="other"),
        change(status="half"),
        change(metrics=[]),
        change(row=3),
        change(more=1),
        lambda path: path.write_text("[]"),
        lambda path: path.write_bytes(b"\xff\xfe"),
    ],
)
def test_what_is_not_sound_counts_as_absent(tmp_path, damage):
    record = make_record()
    damage(write_record(tmp_path, record))
    assert find(tmp_path, record.row, record.seed, record.key) is None
    assert read_records(tmp_path) == []
    write_record(tmp_path, record)
    assert find(tmp_path, record.row, record.seed, record.key) == record


def test_a_record_under_another_name_counts_as_absent(tmp_path):
    record = make_record()
    path = write_record(tmp_path, record)
    shutil.copy(path, path.with_name("1-" + path.name.split("-")[1]))
    assert read_records(tmp_path) == [record]


def test_what_json_cannot_hold_is_not_written(tmp_path):
    record = make_record(extra={"error": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(tmp_path, record)
    assert not record_path(tmp_path, record.row, 0, record.key).exists()


def test_the_key_is_of_all_four():
    key = cell_key({"a": 1, "b": 2}, 0, "d", "c")
    assert key == cell_key({"b": 2, "a": 1}, 0, "d", "c")
    others = [({"a": 2, "b": 2}, 0, "d", "c"), ({"a": 1, "b": 2}, 1, "d", "c")]
    others += [({"a": 1, "b": 2}, 0, "e", "c"), ({"a": 1, "b": 2}, 0, "d", "e")]
    assert len({key, *(cell_key(*other) for other in others)}) == 5


# -- the data's checksum ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo():
    return load_data({"name": "demo"})


def test_the_checksum_is_of_every_part(demo):
    same = checksum(demo)
    assert same == checksum(load_data({"name": "demo"}))
    X = demo.X_test.copy()
    X[-1, -1] += 1
    changes = {
        "X_test": X,
        "X_valid": None,
        "y_test": demo.y_test[::-1],
        "annotations": demo.annotations.take(np.arange(3000)),
        "truth": {"common": np.eye(2)},
    }
    sums = {checksum(replace(demo, **{name: value})) for name, value in changes.items()}
    assert len(sums | {same}) == len(changes) + 1


def test_the_checksum_knows_shapes_types_and_sparse_parts():
    from scipy.sparse import csr_array

    arrays = [
        np.zeros((2, 3), np.float32),
        np.zeros((3, 2), np.float32),
        np.zeros((2, 3), np.int32),
        csr_array(np.eye(3)),
        csr_array(2 * np.eye(3)),
        np.array(["a", None], dtype=object),
        np.array(["a", "b"], dtype=object),
        np.array([], dtype=np.float32),
        ["ab", "c"],
        ["a", "bc"],
    ]
    assert len({checksum(a) for a in arrays}) == len(arrays)
    assert checksum(np.eye(4)[:, ::2]) == checksum(np.eye(4)[:, ::2].copy())


def test_a_dataset_is_known_by_its_length_and_ends():
    assert checksum(range(5)) == checksum(range(5))
    assert checksum(range(5)) != checksum(range(6))


# -- a user's folder --------------------------------------------------------------------------


def test_data_from_a_folder(tmp_path):
    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.savez(tmp_path / "features.npz", X=X, task=np.array(list("abcdef")))
    (tmp_path / "annotations.csv").write_text(
        "task,worker,label\na,r,no\na,s,yes\nc,r,yes\nf,s,no\ne,r,no\n"
    )
    (tmp_path / "labels.csv").write_text(
        "task,label,split\na,no,train\nc,yes,train\nf,no,train\nb,yes,valid\nd,no,test\ne,yes,test\n"
    )
    data = load_data({"folder": tmp_path.name}, tmp_path.parent)
    assert type(data) is Data
    assert data.X_train.tolist() == X[[0, 2, 5]].tolist()
    assert data.annotations.instances.tolist() == ["a", "c", "f"]
    assert data.annotations.n_annotations == 4  # that of a test row is left out
    assert data.y_train.tolist() == ["no", "yes", "no"]
    assert (data.X_valid.tolist(), data.y_valid.tolist()) == (X[[1]].tolist(), ["yes"])
    assert (data.X_test.tolist(), data.y_test.tolist()) == (X[[3, 4]].tolist(), ["no", "yes"])
    assert data.truth is None
    labels = DawidSkene().fit(data.annotations).labels_
    assert len(labels) == 3

    (tmp_path / "labels.csv").write_text("task,label,split\na,no,train\nd,,test\n")
    with pytest.raises(ValueError, match=r"labels.csv has no label for task 'd' of the test part"):
        load_data({"folder": str(tmp_path)})


def test_a_loaders_set_has_its_parts(demo):
    loaded = load_demo()
    assert demo.X_train.tolist() == loaded.X_train.tolist()
    assert demo.y_valid.tolist() == loaded.y_valid.tolist()
    assert demo.truth is None
