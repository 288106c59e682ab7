"""Records: written whole, read only if sound."""

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence import Data, Record, load_data, read_records, store, write_record
from evidence.data.sets import checksum
from evidence.records import cell_key, digest_of_figures
from evidence.store import Histories, find, find_equal, pack, to_parquet
from manyhands import AnnotationTable, DawidSkene, load_demo
from manyhands.files import write_atomically


def make_record(row="conal/demo", seed=0, specification=None, **fields):
    return Record(
        paper="own",
        row=row,
        seed=seed,
        specification=specification or {"data": {"name": row}},
        data_checksum="data",
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
    assert path.parent == tmp_path / ".spool" / "own"
    for is_packed in (False, True):
        assert path.exists() is not is_packed
        assert find(tmp_path, "own", record.key) == record
        assert find(tmp_path, "other", record.key) is None
        assert find(tmp_path, "own", replace(record, seed=1).key) is None
        assert find_equal(tmp_path, record.key) == record
        assert read_records(tmp_path) == [record]
        pack(tmp_path)
    (line,) = (tmp_path / "own.jsonl").read_text().splitlines()
    assert json.loads(line)["row"] == "conal/demo"
    assert "history" not in json.loads(line)


def test_records_come_by_row_and_seed(tmp_path):
    for row, seed in (("b/x", 0), ("a/x", 10), ("a/x", 2)):
        write_record(tmp_path, make_record(row, seed))
    for _ in range(2):
        assert [(r.row, r.seed) for r in read_records(tmp_path)] == [
            ("a/x", 2),
            ("a/x", 10),
            ("b/x", 0),
        ]
        pack(tmp_path)
    assert read_records(tmp_path / "nowhere") == []


def change(**values):
    def apply(path):
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}) + "\n")

    return apply


def forget_a_field(path):
    content = json.loads(path.read_text())
    del content["metrics"]
    path.write_text(json.dumps(content))


DAMAGES = [
    lambda path: path.write_bytes(path.read_bytes()[:-40]),
    forget_a_field,
    change(seed=1),
    change(key="0" * 64),
    change(specification={"data": {"name": "music"}}),
    change(data_checksum="other"),
    change(status="half"),
    change(metrics=[]),
    change(metrics={"last epoch": {"accuracy": 0.6}}),
    change(more=1),
    lambda path: path.write_text("[]"),
    lambda path: path.write_bytes(b"\xff\xfe"),
]


@pytest.mark.parametrize("damage", [*DAMAGES, change(row=3), lambda path: path.write_bytes(b"")])
def test_what_is_not_sound_in_the_spool_counts_as_absent(tmp_path, damage, caplog):
    record = make_record()
    path = write_record(tmp_path, record)
    damage(path)
    assert find(tmp_path, "own", record.key) is None
    assert read_records(tmp_path) == []
    assert path.name in caplog.text
    write_record(tmp_path, record)
    assert find(tmp_path, "own", record.key) == record
    pack(tmp_path)
    assert read_records(tmp_path) == [record]
    assert path.exists()


@pytest.mark.parametrize("damage", [*DAMAGES, change(row=3)])
def test_a_damaged_line_is_named_and_the_others_are_read(tmp_path, damage, caplog):
    first, second = make_record("a/x", history={"loss": [1.0]}), make_record("b/x")
    for record in (first, second):
        write_record(tmp_path, record)
    pack(tmp_path)
    file, line = tmp_path / "own.jsonl", tmp_path / "line"
    lines = file.read_bytes().splitlines(keepends=True)
    line.write_bytes(lines[1])
    damage(line)
    file.write_bytes(lines[0] + line.read_bytes())
    assert read_records(tmp_path) == [first]
    assert f"{file}, line 2: no usable record" in caplog.text
    assert find(tmp_path, "own", second.key) is None

    # A damaged file is not written over: nothing that could be mended is lost.
    damaged = file.read_bytes()
    write_record(tmp_path, second)
    pack(tmp_path)
    assert file.read_bytes() == damaged
    assert "own.jsonl is damaged and was not rewritten; restore it" in caplog.text
    assert read_records(tmp_path) == [first, second]
    file.write_bytes(b"".join(lines))
    pack(tmp_path)
    assert not list((tmp_path / ".spool" / "own").iterdir())
    assert read_records(tmp_path) == [first, second]


def write_two(folder):
    """Pack a record with a history and one without; return them."""
    records = [make_record("a/x", history={"loss": [1.0, 0.5]}), make_record("b/x")]
    for record in records:
        write_record(folder, record)
    pack(folder)
    return records


def flip(path):
    """Change one bit in the middle of the values."""
    content = bytearray(path.read_bytes())
    content[content.index(b"\x28\xb5\x2f\xfd") + 12] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.unlink(), "own.histories.parquet is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "damaged"),
        (lambda path: path.write_bytes(b""), "damaged"),
        (flip, "damaged"),
        (lambda path: path.write_bytes(to_parquet({})), "is not in own.histories.parquet"),
    ],
)
def test_damaged_histories_are_named_and_the_others_are_read(tmp_path, damage, why, caplog):
    _, plain = write_two(tmp_path)
    damage(tmp_path / "own.histories.parquet")
    assert read_records(tmp_path) == [plain]
    assert "own.jsonl, line 1: no usable record" in caplog.text
    assert why in caplog.text


def test_another_history_is_not_taken_for_the_runs_own(tmp_path, caplog):
    record, plain = write_two(tmp_path)
    other = to_parquet({digest_of_figures(record): {"loss": [1.0, 0.25]}})
    (tmp_path / "own.histories.parquet").write_bytes(other)
    assert read_records(tmp_path) == [plain]
    assert "line 1: no usable record (altered)" in caplog.text


@pytest.mark.parametrize("killed_before", ["own.histories.parquet", "own.jsonl", "unlink"])
def test_a_packing_that_is_killed_loses_nothing(tmp_path, monkeypatch, killed_before, caplog):
    records = write_two(tmp_path)
    records.append(make_record("c/x", history={"loss": [2.0]}))
    write_record(tmp_path, records[-1])

    def killed(path, content):
        if path.name == killed_before:
            raise KeyboardInterrupt
        return write_atomically(path, content)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_atomically", killed)
        if killed_before == "unlink":
            patch.setattr(Path, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pack(tmp_path)
    assert read_records(tmp_path) == records
    cut_short = "own.histories.parquet has 1 histories of no run in own.jsonl"
    assert (cut_short in caplog.text) is (killed_before == "own.jsonl")
    pack(tmp_path)
    caplog.clear()
    assert read_records(tmp_path) == records
    assert not caplog.text
    assert not list((tmp_path / ".spool" / "own").iterdir())


# It prints how many threads it left running: Arrow's may abort an interpreter that exits.
PACK_ONE_BY_ONE = """
import os, pickle, sys
import numpy
from evidence.store import pack, write_record

tasks = "/proc/self/task"
before = len(os.listdir(tasks)) if os.path.isdir(tasks) else 0
for record in pickle.loads(sys.stdin.buffer.read()):
    write_record(sys.argv[1], record)
    pack(sys.argv[1])
print(len(os.listdir(tasks)) - before if before else 0)
"""


@pytest.mark.slow
def test_processes_that_pack_at_once_lose_nothing(tmp_path):
    expected = [
        [make_record(f"row/{k}", seed, history={"loss": [float(seed)]}) for seed in range(6)]
        for k in range(3)
    ]
    command = [sys.executable, "-c", PACK_ONE_BY_ONE, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    calls = [subprocess.Popen(command, **pipes) for _ in expected]
    for call, records in zip(calls, expected, strict=True):
        call.stdin.write(pickle.dumps(records))
        call.stdin.close()
    assert [call.wait(timeout=300) for call in calls] == [0, 0, 0]
    for call in calls:
        with call.stdout as printed:
            assert int(printed.read()) == 0
    assert read_records(tmp_path) == [record for records in expected for record in records]
    assert not list((tmp_path / ".spool" / "own").iterdir())


def test_a_finished_run_counts_before_a_failed_one_and_the_last_before_others(tmp_path):
    first = make_record(history={"loss": [1.0]})
    failed = replace(first, status="failed", metrics={}, history={}, reason="no luck")
    skipped = replace(failed, status="skipped", data_checksum="")
    last = replace(first, started="2027-01-01T00:00:00+00:00", commit="later")
    other = replace(last, data_checksum="other")
    steps = [(skipped, skipped), (failed, failed), (skipped, failed), (first, first)]
    steps += [(failed, first), (last, last), (failed, last), (other, other), (skipped, other)]
    # The earlier data are back: what was measured on others is superseded in turn.
    steps += [(failed, failed), (first, first)]
    for record, counts in steps:
        write_record(tmp_path, record)
        assert read_records(tmp_path) == [counts]
        pack(tmp_path)
        assert read_records(tmp_path) == [counts]
        assert find(tmp_path, "own", counts.key) == counts
        for superseded in {first.key, failed.key, skipped.key, other.key} - {counts.key}:
            assert find(tmp_path, "own", superseded) is None


STRINGS = pa.list_(pa.string())


@pytest.mark.parametrize(
    "columns",
    [
        {"x": pa.array([1])},
        {"figures": pa.array(["a"])},
        {"figures": pa.array(["a"]), "columns": pa.array([2])},
        {"figures": pa.array(["a"]), "columns": pa.array([None], STRINGS)},
        {"figures": pa.array(["a"]), "columns": pa.array([["loss:float"]], STRINGS)},
        {
            "figures": pa.array(["a"]),
            "columns": pa.array([["loss:float"]], STRINGS),
            "loss:float": pa.array([1.0]),
        },
        {
            "figures": pa.array(["a"]),
            "columns": pa.array([["loss:odd"]], STRINGS),
            "loss:odd": pa.array([[1.0]]),
        },
    ],
    ids=[
        "another table",
        "no layouts",
        "layouts of numbers",
        "gap",
        "no column",
        "no lists",
        "kind",
    ],
)
def test_a_table_that_holds_no_histories_is_damaged(columns):
    file = BytesIO()
    pq.write_table(pa.table(columns), file)
    with pytest.raises(ValueError, match=r"column|x|odd"):
        Histories(file.getvalue())


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3),
)
COLUMNS = st.one_of(
    st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))),
    st.lists(st.one_of(st.none(), st.integers())),
    st.lists(st.one_of(st.none(), st.text())),
    st.lists(VALUES),
)


@given(st.lists(st.dictionaries(st.text(max_size=3), COLUMNS, max_size=4), max_size=5))
@settings(max_examples=60)
def test_histories_come_back_to_the_bit(histories):
    named = {f"{number:064x}": history for number, history in enumerate(histories)}
    content = to_parquet(named)
    found = Histories(content)
    assert set(found) == set(named)
    for name, history in named.items():
        # As texts: 1, 1.0 and True, and 0.0 and -0.0, are equal; the order of columns counts too.
        assert json.dumps(found[name]) == json.dumps(history)
    assert to_parquet({name: named[name] for name in reversed(named)}) == content


def test_what_json_cannot_hold_is_not_written(tmp_path):
    record = make_record(extra={"error": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(tmp_path, record)
    assert read_records(tmp_path) == []


def test_the_key_is_of_all_three_and_of_nothing_else():
    key = cell_key({"a": 1, "b": 2}, 0, "d")
    assert key == cell_key({"b": 2, "a": 1}, 0, "d")
    others = [({"a": 2, "b": 2}, 0, "d"), ({"a": 1, "b": 2}, 1, "d"), ({"a": 1, "b": 2}, 0, "e")]
    assert len({key, *(cell_key(*other) for other in others)}) == 4
    record = make_record()
    assert replace(record, row="b/x", commit="later", versions={}).key == record.key


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


def test_a_field_that_tables_have_gained_since_leaves_the_checksum_of_old_data():
    table = AnnotationTable.from_arrays([0, 1, 1], [0, 0, 1], [0, 1, 1], classes=[0, 1])
    assert checksum(table)[:16] == "5973967c2b5bd98a"
    later = {"scale": "ordinal", "annotators_known": False, "groups": np.array(["a", "a"])}
    sums = {checksum(replace(table, **{name: value})) for name, value in later.items()}
    assert len(sums | {checksum(table)}) == 4
    assert checksum(replace(table, class_order="sorted")) == checksum(table)


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
