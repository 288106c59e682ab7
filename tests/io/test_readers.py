"""Readers: what files mean, and what they say when they mean nothing."""

from __future__ import annotations

import gzip
import json
import logging
import pickle
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from manyhands import AnnotationTable
from manyhands.exceptions import AnnotationError, MissingExtraError
from manyhands.io import features as feature_files
from manyhands.io import read_aligned, read_annotations
from manyhands.io.features import FeatureFile, read_features
from manyhands.io.gold import read_gold


@pytest.fixture
def write(tmp_path):
    def _write(name, text):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return _write


# -- long tables ------------------------------------------------------------------------------


def test_hand_case(write):
    table = read_annotations(write("a.csv", "task,worker,label\n2,ann,1\n0,bob,0\n2,bob,1\n"))
    assert table.instances.tolist() == [0, 2]
    assert table.annotators.tolist() == ["ann", "bob"]
    assert table.to_matrix().tolist() == [[-1, 0], [1, 1]]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "A.CSV", "a.tsv.gz"])
def test_text_formats_agree(write, name):
    separator = "\t" if "tsv" in name else ","
    text = "task,worker,label\na,7,yes\nb,7,no\n".replace(",", separator).encode()
    path = write(name, gzip.compress(text) if name.endswith("gz") else text)
    table = read_annotations(path)
    assert table.instances.tolist() == ["a", "b"]
    assert table.annotators.tolist() == [7]
    assert table.classes.tolist() == ["no", "yes"]


@pytest.mark.parametrize("name", ["a.parquet", "a.pq"])
def test_parquet_keeps_its_types(tmp_path, name):
    columns = {"task": ["1", "2"], "worker": [5, 6], "label": ["x", "y"]}
    pq.write_table(pa.table(columns), tmp_path / name)
    table = read_annotations(tmp_path / name)
    assert table.instances.tolist() == ["1", "2"]
    assert table.annotators.tolist() == [5, 6]


def test_dictionary_columns_of_parquet_are_read(tmp_path):
    frame = pd.DataFrame({"task": ["a", "b"], "worker": ["u", "u"], "label": ["x", "y"]})
    frame.astype("category").to_parquet(tmp_path / "a.parquet")
    assert read_annotations(tmp_path / "a.parquet").classes.tolist() == ["x", "y"]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["007", "7"], ["007", "7"]),
        (["7", "12"], [7, 12]),
        (["-3", "12"], [-3, 12]),
        (["1.0", "2.0"], ["1.0", "2.0"]),
        (["1e3", "5"], ["1e3", "5"]),
        (["+5", "6"], ["+5", "6"]),
        (["1_000", "6"], ["1_000", "6"]),
        (["NA", "None"], ["NA", "None"]),
        (["nan", "null"], ["nan", "null"]),
        (["True", "False"], ["False", "True"]),
        (["9" * 30, "1"], ["1", "9" * 30]),
        (["ä ö", "\U0001f600"], ["ä ö", "\U0001f600"]),
        (['"a,b"', '"c ""d"""'], ["a,b", 'c "d"']),
    ],
)
@pytest.mark.parametrize("column", ["task", "worker"])
def test_ids_stay_what_they_are(write, ids, expected, column):
    other = "worker" if column == "task" else "task"
    rows = "".join(f"{value},{i},{i}\n" for i, value in enumerate(ids))
    table = read_annotations(write("a.csv", f"{column},{other},label\n{rows}"))
    assert (table.instances if column == "task" else table.annotators).tolist() == expected


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1),
        min_size=1,
        unique=True,
    )
)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_string_id_survives_a_csv_file(tmp_path, ids):
    # Blanks after a separator are no part of a value, and numbers would become integers.
    ids = list(dict.fromkeys("x" + value for value in ids))
    frame = pd.DataFrame({"task": range(len(ids)), "worker": ids, "label": 0})
    frame.to_csv(tmp_path / "a.csv", index=False)
    table = read_annotations(tmp_path / "a.csv")
    assert table.annotators[table.annotator].tolist() == ids


def test_an_empty_label_is_a_missing_annotation_and_keeps_its_ids(write):
    path = write("a.csv", "task,worker,label\na,u,1\nb,v,\nb,u,0\n")
    with pytest.warns(UserWarning, match="1 of 3 rows have no label"):
        table = read_annotations(path)
    assert table.to_matrix().tolist() == [[1, -1], [0, -1]]
    assert table.annotators.tolist() == ["u", "v"]


def test_an_empty_id_is_an_error(write):
    path = write("a.csv", "task,worker,label\na,u,1\n,u,1\n")
    with pytest.raises(AnnotationError, match=r"a\.csv.*'task'.*empty in row 3;"):
        read_annotations(path)


def test_labels_written_as_floats_are_codes(write):
    path = write("a.csv", "task,worker,label\na,u,1.0\nb,u,0.0\n")
    assert read_annotations(path, classes=["n", "y"]).to_matrix().tolist() == [["y"], ["n"]]


@pytest.mark.parametrize(
    "header",
    [
        *("instance,annotator,answer", "ITEM,User_ID,Annotation", "question_id,WorkerID,Response"),
        *("song_id,person,verdict", "tweetId,rater_id,verdict"),
    ],
)
def test_common_names_are_accepted_and_told_in_one_note(write, header, caplog):
    with caplog.at_level(logging.INFO, logger="manyhands"):
        table = read_annotations(write("a.csv", f"{header}\na,u,1\nb,u,0\n"))
    assert table.shape == (2, 1)
    task, worker, label = header.split(",")
    (note,) = [record.getMessage() for record in caplog.records]
    assert note == (
        f"a.csv: read {task!r} as the task, {worker!r} as the worker and {label!r} as the label; "
        "to choose others, use task=, worker= and label="
    )


def test_a_file_that_is_no_table_tells_what_it_guessed(write, caplog):
    rows = [{"song_id": f"s{i}", "person": w, "verdict": "yn"[i]} for i in (0, 1) for w in "ab"]
    path = write("a.json", json.dumps(rows))
    with caplog.at_level(logging.INFO, logger="manyhands"):
        assert read_annotations(path).shape == (2, 2)
    assert "read 'song_id' as the task, 'person' as the worker and 'verdict'" in caplog.text


@pytest.mark.parametrize("names", ["song_id,album_id", "session_id,batch_id", "worker_id,label_id"])
def test_ids_are_guessed_only_where_one_column_may_hold_them(write, names):
    path = write("a.csv", f"{names},rater,verdict\na,b,u,1\nc,d,u,0\n")
    with pytest.raises(AnnotationError, match=r"not a column|could all be meant"):
        read_annotations(path)


def test_guesses_in_a_file_of_gold_labels_are_told(write, caplog):
    path = write("gold.csv", "song_id,truth\na,1\nb,0\n")
    with caplog.at_level(logging.INFO, logger="manyhands"):
        assert read_gold(path).tasks.tolist() == ["a", "b"]
    (note,) = [record.getMessage() for record in caplog.records]
    assert note == (
        "gold.csv: read 'song_id' as the task and 'truth' as the gold label; to choose others, "
        "call them 'task' and 'label' in the file"
    )


def test_gold_is_found_under_a_name_of_labels_where_no_column_is_named_like_gold(write):
    checked = write("checked.csv", "image,category\na,street\nb,forest\n")
    assert read_gold(checked).labels.tolist() == ["street", "forest"]
    both = write("both.csv", "image,category,truth\na,street,coast\nb,forest,street\n")
    assert read_gold(both).labels.tolist() == ["coast", "street"]


def test_the_default_name_wins_over_a_synonym(write):
    table = read_annotations(write("a.csv", "item,task,worker,label\nx,a,u,1\ny,b,u,0\n"))
    assert table.instances.tolist() == ["a", "b"]


def test_two_synonyms_are_ambiguous(write):
    path = write("a.csv", "item,question,worker,label\nx,a,u,1\n")
    with pytest.raises(AnnotationError, match=r"'item', 'question'.*pass task=<name>"):
        read_annotations(path)
    assert read_annotations(path, task="item", classes=[0, 1]).instances.tolist() == ["x"]


@pytest.mark.parametrize("name", ["annotation_id", "label_id", "AnswerId"])
def test_a_column_of_ids_is_never_read_as_the_label(write, name):
    path = write("a.csv", f"task,worker,{name}\n1,7,0\n2,7,1\n")
    with pytest.raises(AnnotationError, match="label='label' is not a column"):
        read_annotations(path)
    gold = write("gold.csv", f"task,{name}\n1,0\n2,1\n")
    with pytest.raises(AnnotationError, match="label='label' is not a column"):
        read_gold(gold)


def test_suspicious_labels_of_a_file_are_warned_about(write):
    path = write("a.csv", "task,worker,label\n1,7,0\n2,7,1\n3,7,n/a\n4,7,0\n")
    with pytest.warns(UserWarning, match=r"column 'label' holds 'n/a' \(1\)"):
        read_annotations(path)
    assert read_annotations(path, skip="n/a").classes.tolist() == [0, 1]


def test_a_wide_file_is_told_apart(write):
    path = write("a.csv", "task,u,v\na,1,0\nb,0,1\n")
    with pytest.raises(AnnotationError, match=r"one column per annotator.*annotators=\['u', 'v'\]"):
        read_annotations(path)


def test_ids_in_an_archive_are_not_lost(tmp_path):
    X, ids = np.ones((3, 2)), np.array(["c", "a", "b"])
    np.savez(tmp_path / "x.npz", X=X, names=ids, y=np.array([0, 1, 1]))
    with pytest.warns(
        UserWarning, match=r"array 'names' holds a different value.*rename it to 'task'"
    ) as w:
        assert read_features(tmp_path / "x.npz").tasks is None
    assert len(w) == 1
    np.savez(tmp_path / "x.npz", X=X, task=ids.astype(object))
    with pytest.raises(AnnotationError, match=r"'task' are stored as Python objects.*dtype=str"):
        read_features(tmp_path / "x.npz")


def test_a_missing_column_is_named_with_those_there(write):
    path = write("a.csv", "task,who,label\na,u,1\n")
    with pytest.raises(AnnotationError, match=r"worker='worker' is not a column.*'who'.*worker="):
        read_annotations(path)
    with pytest.raises(AnnotationError, match="label='vote' is not a column"):
        read_annotations(path, worker="who", label="vote")


def test_weights(write):
    path = write("a.csv", "task,worker,label,w\na,u,1,0.5\nb,u,0,2\n")
    assert read_annotations(path, weight="w").weight.tolist() == [0.5, 2.0]
    bad = write("b.csv", "task,worker,label,w\na,u,1,heavy\n")
    with pytest.raises(AnnotationError, match=r"'w'.*heavy"):
        read_annotations(bad, weight="w")


def test_duplicates_follow_the_policy(write):
    path = write("a.csv", "task,worker,label\na,u,1\na,u,0\n")
    with pytest.raises(AnnotationError, match=r"a\.csv.*repeated"):
        read_annotations(path)
    assert read_annotations(path, duplicates="last").label.tolist() == [0]
    assert read_annotations(path, duplicates="keep").n_annotations == 2


def test_a_byte_order_mark_and_blanks_are_no_part_of_names(write):
    text = "\ufefftask, worker, label\r\na, u, 1\r\nb, u, 0\r\n"
    table = read_annotations(write("a.csv", text.encode()))
    assert table.annotators.tolist() == ["u"]
    assert table.classes.tolist() == [0, 1]


# -- classes ----------------------------------------------------------------------------------


def test_names_for_integer_labels_are_read_as_codes(write):
    path = write("a.csv", "task,worker,label\na,u,2\nb,u,0\n")
    table = read_annotations(path, classes=["cat", "dog", "eel"])
    assert table.classes.tolist() == ["cat", "dog", "eel"]
    assert table.to_matrix().tolist() == [["eel"], ["cat"]]


def test_names_that_stand_in_the_file_are_used_directly(write):
    path = write("a.csv", "task,worker,label\na,u,eel\nb,u,cat\n")
    table = read_annotations(path, classes=["cat", "dog", "eel"])
    assert table.label.tolist() == [2, 0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_names_that_look_like_integers_are_names(tmp_path, suffix):
    frame = pd.DataFrame({"task": ["a", "b"], "worker": ["u", "u"], "label": [1, 2]})
    path = tmp_path / f"a.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    table = read_annotations(path, classes=["1", "2", "other"])
    assert table.to_matrix().tolist() == [["1"], ["2"]]


def test_a_code_beyond_the_names_is_an_error(write):
    path = write("a.csv", "task,worker,label\na,u,1\nb,u,2\n")
    with pytest.raises(AnnotationError, match=r"codes 0\.\.1, but some are 2"):
        read_annotations(path, classes=["cat", "dog"])


def test_a_label_outside_the_classes_is_an_error(write):
    path = write("a.csv", "task,worker,label\na,u,cow\n")
    with pytest.raises(AnnotationError, match=r"a\.csv.*'cow'"):
        read_annotations(path, classes=["cat", "dog"])


# -- dense matrices ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32])
def test_dense(tmp_path, dtype):
    matrix = np.array([[0, -1], [1, 1], [-1, -1]]).astype(dtype)
    if dtype == np.float32:
        matrix[matrix == -1] = np.nan
    np.save(tmp_path / "a.npy", matrix)
    table = read_annotations(tmp_path / "a.npy")
    assert table.shape == (3, 2)
    assert table.to_matrix().tolist() == [[0, -1], [1, 1], [-1, -1]]
    named = read_annotations(tmp_path / "a.npy", classes=["n", "y"], tasks=["a", "b", "c"])
    assert named.to_matrix().tolist() == [["n", None], ["y", "y"], [None, None]]
    assert named.instances.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros(3, dtype=int), "must have shape"),
        (np.zeros((2, 2, 2), dtype=int), "must have shape"),
        (np.array([["a", "b"]]), "must hold integers or floats"),
        (np.array([[0.5, 1.0]]), "0.5"),
    ],
)
def test_a_matrix_of_another_kind_is_refused(tmp_path, matrix, message):
    np.save(tmp_path / "a.npy", matrix)
    with pytest.raises(AnnotationError, match=rf"a\.npy.*{message}"):
        read_annotations(tmp_path / "a.npy")


def test_a_matrix_with_codes_beyond_the_names_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0, 2]]))
    with pytest.raises(AnnotationError, match=r"codes 0\.\.1, but some are 2"):
        read_annotations(tmp_path / "a.npy", classes=["n", "y"])


# -- abstentions and skips --------------------------------------------------------------------

UNSURE = "task,worker,label\na,u,1\na,v,unsure\nb,u,0\nb,v,n/a\nc,u,skip\nc,v,\n"
MEANINGS = {"abstain": "unsure", "skip": ["skip", "n/a"]}


def test_text_beside_numbers_may_mean_a_pass(write):
    with pytest.warns(UserWarning, match="1 of 6 rows have no label"):
        table = read_annotations(write("a.csv", UNSURE), **MEANINGS)
    assert table.classes.tolist() == [0, 1]
    assert table.to_matrix().tolist() == [[1, -1], [0, -1], [-1, -1]]
    assert table.abstentions.tolist() == [[0, 1]]
    assert table.skips.tolist() == [[1, 1], [2, 0]]
    with pytest.warns(UserWarning, match="no label"):
        named = read_annotations(write("a.csv", UNSURE), classes=["n", "y"], **MEANINGS)
    assert named.classes.tolist() == ["n", "y"]
    assert named.passes.tolist() == table.passes.tolist()


@pytest.mark.parametrize("mark", [9, "9"])
@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("a.csv", ["0", "9", "1"]),
        ("a.csv", ["0.0", "9.0", "1.0"]),
        ("a.csv", ["cat", "9", "dog"]),
        ("a.parquet", [0, 9, 1]),
        ("a.parquet", [0.0, 9.0, 1.0]),
        ("a.parquet", ["0", "9", "1"]),
        ("a.npy", [[0], [9], [1]]),
        ("a.npy", [[0.0], [9.0], [1.0]]),
    ],
)
def test_a_number_and_its_digits_mean_the_same_in_a_file(tmp_path, name, labels, mark):
    path = tmp_path / name
    if name == "a.npy":
        np.save(path, np.array(labels))
    else:
        frame = pd.DataFrame({"task": [0, 1, 2], "worker": [0, 0, 0], "label": labels})
        frame.to_parquet(path) if name == "a.parquet" else frame.to_csv(path, index=False)
    table = read_annotations(path, abstain=mark, skip=["not there", "12"])
    assert table.passes.tolist() == [[1, 0, 0]]
    assert len(table.classes) == 2
    assert table.n_annotations == 2
    with pytest.raises(AnnotationError, match=r"a\.\w+: '?9'? stands in abstain and in skip"):
        read_annotations(path, abstain=mark, skip=[9])


@pytest.mark.parametrize("name", ["a.csv", "a.npy"])
def test_a_class_or_its_code_is_no_pass(tmp_path, name):
    if name == "a.npy":
        np.save(tmp_path / name, np.array([[0], [1]]))
    else:
        (tmp_path / name).write_text("task,worker,label\na,u,0\nb,u,1\n")
    for options in ({"skip": "dog"}, {"abstain": 1}):
        with pytest.raises(AnnotationError, match="also among classes"):
            read_annotations(tmp_path / name, classes=["cat", "dog"], **options)


def test_codes_of_passes_lie_beyond_the_names(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0, 7], [-1, 1]]))
    table = read_annotations(tmp_path / "a.npy", classes=["cat", "dog"], abstain="7", skip=-1)
    assert table.passes.tolist() == [[0, 1, 0], [1, 0, 1]]
    assert table.to_matrix().tolist() == [["cat", None], [None, "dog"]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("labels", [["x", "z", "x", "z", "y"], [4, 6, 4, 6, 5]])
def test_a_written_frame_is_read_back(tmp_path, suffix, labels):
    ids = [f"t{i}" for i in range(5)]
    table = AnnotationTable.from_arrays(
        ids, ["u"] * 5, labels, abstain=labels[:1], skip=labels[1:2], weight=[1, 1, 1, 1, 0.5]
    )
    path = tmp_path / f"a.{suffix}"
    frame = table.to_frame()
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    for options in ({}, {"passes": "pass"}):
        assert read_annotations(path, weight="weight", **options).equals(table)
    frame["pass"] = "yes"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    with pytest.warns(UserWarning, match="4 of 5 rows have no label"):
        read_annotations(path)


def test_a_column_of_passes_beside_labels_that_mean_one(write):
    path = write("a.csv", "task,worker,label,pass\na,u,1,\nb,u,?,\nc,u,,skip\nd,u,?,\n")
    table = read_annotations(path, abstain="?", passes="pass")
    assert table.passes.tolist() == [[1, 0, 0], [2, 0, 1], [3, 0, 0]]
    path = write("a.csv", "task,worker,label,pass\na,u,1,\nb,u,?,skip\n")
    with pytest.raises(AnnotationError, match=r"both a label .* in row 3"):
        read_annotations(path, abstain="?", passes="pass")
    with pytest.raises(AnnotationError, match="passes='gone' is not a column"):
        read_annotations(path, abstain="?", passes="gone")


def test_passes_follow_the_rows_of_the_features(tmp_path, write):
    np.savez(tmp_path / "x.npz", X=np.ones((4, 1)), task=np.array(["z", "c", "b", "a"]))
    with pytest.warns(UserWarning, match="no label"):
        _, table = read_aligned(tmp_path / "x.npz", write("a.csv", UNSURE), **MEANINGS)
    assert table.instances.tolist() == ["z", "c", "b", "a"]
    assert table.abstentions.tolist() == [[3, 1]]
    assert table.skips.tolist() == [[2, 1], [1, 0]]


# -- hostile files ----------------------------------------------------------------------------

READERS = [read_annotations, read_features, read_gold]


@pytest.mark.parametrize("read", READERS)
def test_a_missing_file_and_a_folder(tmp_path, read):
    with pytest.raises(FileNotFoundError, match=r"no\.csv does not exist.*check the name"):
        read(tmp_path / "no.csv")
    with pytest.raises(
        AnnotationError, match=r"is (an empty|a) folder(; give a file|; give a file in it)"
    ):
        read(tmp_path)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "parquet", "npy", "npz", "xlsx"])
def test_whatever_a_file_holds_the_error_names_it(write, read, suffix):
    for content in (
        b"",
        b"\n\n\n",
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" * 10,
        b"\xff\xfet\x00a\x00s\x00k\x00",
        b"caf\xe9,\xe9\nx,y\n",
        b"PAR1 and then nothing",
        b"\x1f\x8b\x08\x00broken",
        b"PK\x03\x04broken",
        b"\x93NUMPY\x01\x00broken",
        pickle.dumps([1, 2, 3]),
    ):
        path = write(f"odd.{suffix}", content)
        with pytest.raises(AnnotationError, match=r"odd\."):
            read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task,worker,label\n", "no rows"),
        ("task,worker,label\na,u,1,extra\n", "fields, but the header has|Expected 3 fields"),
        ("task,worker,label\na,u,1\nb,u,1,1,1\n", "fields, but the header has|Expected 3 fields"),
        ("task,task,label\na,u,1\n", "twice in the header"),
        ("task,worker,label\na,u\n", "no annotation|empty|no label"),
    ],
)
def test_malformed_tables(write, text, message):
    with (
        pytest.raises((AnnotationError, UserWarning), match=message),
    ):
        read_annotations(write("a.csv", text))


@pytest.mark.parametrize("keep", [0.3, 0.7, 0.95])
@pytest.mark.parametrize("suffix", ["parquet", "npy", "csv.gz", "npz"])
def test_truncated_files(tmp_path, suffix, keep):
    path = tmp_path / f"a.{suffix}"
    frame = pd.DataFrame({"task": range(500), "worker": 0, "label": np.arange(500) % 3})
    if suffix == "parquet":
        frame.to_parquet(path)
    elif suffix == "csv.gz":
        frame.to_csv(path, index=False)
    elif suffix == "npy":
        np.save(path, np.arange(500).reshape(-1, 2) % 3)
    else:
        np.savez_compressed(path, X=np.random.default_rng(0).random((50, 3)))
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    read = read_features if suffix == "npz" else read_annotations
    with pytest.raises(AnnotationError, match=r"a\..*(incomplete|export)"):
        read(path)


def test_an_object_array_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1, None]], dtype=object), allow_pickle=True)
    for read in (read_annotations, read_features):
        with pytest.raises(AnnotationError, match=r"a\.npy holds Python objects.*never read"):
            read(tmp_path / "a.npy")
    with (tmp_path / "a.npy").open("wb") as file:
        pickle.dump([1, 2], file)
    with pytest.raises(AnnotationError, match=r"a\.npy holds Python objects.*never read"):
        read_features(tmp_path / "a.npy")


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"task": ["a"], "worker": ["u"], "label": [1]}).to_parquet(path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"manyhands\[io\]"):
        read_annotations(path)


# -- features ---------------------------------------------------------------------------------


def test_an_array_alone_has_no_ids(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6).reshape(3, 2))
    features = read_features(tmp_path / "x.npy")
    assert isinstance(features, FeatureFile)
    assert features.X.dtype == np.float32
    assert features.tasks is None
    assert len(features) == 3


def test_images_stay_bytes_and_a_table_of_bytes_does_not(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 4, 4), dtype=np.uint8))
    assert read_features(tmp_path / "x.npy").X.dtype == np.uint8
    np.save(tmp_path / "x.npy", np.zeros((3, 4), dtype=np.uint8))
    assert read_features(tmp_path / "x.npy").X.dtype == np.float32


@pytest.mark.parametrize(
    "arrays",
    [
        {"X": np.ones((2, 3)), "task": np.array(["a", "b"]), "more": np.zeros(1)},
        {"features": np.ones((2, 3)), "task": np.array(["a", "b"])},
        {"features": np.ones((2, 3)), "instance_id": np.array(["a", "b"])},
        {"features": np.ones((2, 3)), "id": np.array(["a", "b"])},
    ],
)
def test_archives(tmp_path, arrays):
    np.savez(tmp_path / "x.npz", **arrays)
    features = read_features(tmp_path / "x.npz")
    assert features.X.shape == (2, 3)
    assert features.tasks.tolist() == ["a", "b"]


def test_an_archive_without_a_clear_array_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.ones((2, 3)), b=np.ones((2, 3)))
    with pytest.raises(AnnotationError, match=r"'a', 'b'; store the features.*'X'"):
        read_features(tmp_path / "x.npz")


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize("ids", [["007", "NA"], ["b", "a"], None])
def test_tables_of_features(tmp_path, suffix, ids):
    frame = pd.DataFrame({"f": [1, 2], "g": [0.5, -1e-3], "h": [True, False]})
    if ids is not None:
        frame.insert(1, "item_id", ids)
    path = tmp_path / f"x.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    features = read_features(path)
    np.testing.assert_array_equal(features.X, np.float32([[1, 0.5, 1], [2, -1e-3, 0]]))
    assert (features.tasks is None) if ids is None else features.tasks.tolist() == ids


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (1e300, "inf")]
)
def test_cells_that_are_not_finite_are_named(tmp_path, suffix, value, shown):
    frame = pd.DataFrame({"task": ["a", "b"], "f": [1.0, 2.0], "g": [0.5, value]})
    path = tmp_path / f"x.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    row = 3 if suffix == "csv" else 1  # As a spreadsheet numbers it, and as an array does.
    with pytest.raises(AnnotationError, match=rf"row {row}, column 'g'.* {shown} in float32"):
        read_features(path)


def test_the_place_of_a_gap_in_an_array_is_named(tmp_path):
    X = np.zeros((4, 2, 3))
    X[2, 1, 0] = np.nan
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(AnnotationError, match="row 2, column 1, 0 "):
        read_features(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task,f,colour,size\na,1,red,L\nb,2,blue,M\n", "2 of 3 columns.*'colour', 'size'"),
        ("task\na\nb\n", "no feature columns"),
        ("task,f\na,1\na,2\n", "'a' twice"),
        ("task,f\n,1\nb,2\n", "id of row 2 is empty"),
        ("item,id,f\n1,1,1\n", "could all be the ids"),
        ("task,f\n", "no rows"),
    ],
)
def test_malformed_features(write, text, message):
    with pytest.raises(AnnotationError, match=message):
        read_features(write("x.csv", text))


def test_a_large_array_is_mapped_and_checked_like_one_in_memory(tmp_path, monkeypatch):
    X = np.arange(24, dtype=np.float64).reshape(6, 4)
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr(feature_files, "MAPPED_BYTES", 1)
    found = read_features(tmp_path / "x.npy").X
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, X)
    X[4, 1] = np.nan
    for wrong, says in (
        (X, r"x\.npy: .*row 4"),
        (X[0], "shape"),
        (X[:0], "empty"),
        (X * 1j, "num"),
    ):
        np.save(tmp_path / "x.npy", wrong)
        with pytest.raises(AnnotationError, match=says):
            read_features(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.array([["a", None]], dtype=object), allow_pickle=True)
    with pytest.raises(AnnotationError, match=r"x\.npy holds Python objects"):
        read_features(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "X", [np.zeros(3), np.zeros((0, 2)), np.zeros((2, 0)), np.ones((2, 2)) * 1j, np.array([["a"]])]
)
def test_arrays_that_are_no_features(tmp_path, X):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(AnnotationError, match=r"x\.npy: "):
        read_features(tmp_path / "x.npy")


def test_ids_of_another_length_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.ones((2, 3)), task=np.arange(3))
    with pytest.raises(AnnotationError, match=r"ids have shape \(3,\) for 2 rows"):
        read_features(tmp_path / "x.npz")


# -- gold -------------------------------------------------------------------------------------


def test_gold_with_gaps_and_splits(write):
    path = write("g.csv", "task,label,split\na,1,train\nb,,train\nc,0,test\n")
    gold = read_gold(path)
    assert gold.tasks.tolist() == ["a", "b", "c"]
    assert gold.labels.tolist() == [1, None, 0]
    assert gold.known.tolist() == [True, False, True]
    assert gold.splits.tolist() == ["train", "train", "test"]
    assert read_gold(path, classes=["n", "y"]).labels.tolist() == ["y", None, "n"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_gold_without_gaps_or_splits(tmp_path, suffix):
    frame = pd.DataFrame({"item": ["a", "b"], "gold": ["x", "NA"]})
    path = tmp_path / f"g.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    gold = read_gold(path)
    assert gold.labels.tolist() == ["x", "NA"]
    assert gold.labels.dtype.kind == "U"
    assert gold.splits is None
    assert len(gold) == 2


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("task,label\na,1\na,0\n", {}, "'a' twice"),
        ("task,label\na,1\n,0\n", {}, "is empty in row 3"),
        ("task,who\na,1\n", {}, "label='label' is not a column"),
        ("task,label\na,1\n", {"split": "part"}, "split='part' is not a column"),
        ("task,label\na,cow\n", {"classes": ["cat", "dog"]}, "'cow'"),
        ("task,label\na,7\n", {"classes": ["cat", "dog"]}, "some are 7"),
    ],
)
def test_malformed_gold(write, text, options, message):
    with pytest.raises(AnnotationError, match=message):
        read_gold(write("g.csv", text), **options)


# -- features and annotations together --------------------------------------------------------

VOTES = "task,worker,label\n{0},u,1\n{1},u,0\n{0},v,1\n"


def test_rows_follow_the_features(tmp_path, write):
    np.savez(tmp_path / "x.npz", X=np.ones((3, 1)), task=np.array(["z", "a", "m"]))
    features, table = read_aligned(tmp_path / "x.npz", write("a.csv", VOTES.format("m", "z")))
    assert table.instances.tolist() == features.tasks.tolist() == ["z", "a", "m"]
    assert table.to_matrix().tolist() == [[0, -1], [-1, -1], [1, 1]]


@pytest.mark.parametrize("ids", [np.array(["10", "9", "2"]), np.array([10, 9, 2])])
@pytest.mark.parametrize("text", [True, False])
def test_integers_and_strings_are_matched_by_their_canonical_form(tmp_path, ids, text):
    np.savez(tmp_path / "x.npz", X=np.ones((3, 1)), task=ids)
    tasks = ["2", "10"] if text else [2, 10]
    pq.write_table(
        pa.table({"task": tasks, "worker": ["u", "u"], "label": [0, 1]}), tmp_path / "a.parquet"
    )
    _, table = read_aligned(tmp_path / "x.npz", tmp_path / "a.parquet")
    assert table.instances.tolist() == ids.tolist()
    assert table.to_matrix().tolist() == [[1], [-1], [0]]


def test_zeros_in_front_make_another_id(tmp_path, write):
    np.savez(tmp_path / "x.npz", X=np.ones((2, 1)), task=np.array(["07", "08"]))
    _, table = read_aligned(tmp_path / "x.npz", write("a.csv", VOTES.format("08", "07")))
    assert table.to_matrix().tolist() == [[0, -1], [1, 1]]
    with pytest.raises(AnnotationError, match=r"2 of 2 annotated tasks.*'7', '8'.*'07', '08'"):
        read_aligned(tmp_path / "x.npz", write("b.csv", VOTES.format("8", "7")))


def test_tasks_without_features_are_counted_and_shown(tmp_path, write):
    np.savez(tmp_path / "x.npz", X=np.ones((1, 1)), task=np.array(["a"]))
    rows = "".join(f"{task},u,1\n" for task in "abcdef")
    path = write("a.csv", "task,worker,label\n" + rows)
    with pytest.raises(
        AnnotationError, match=r"5 of 6 annotated tasks.*'b', 'c', 'd' \.\.\..*Drop.*add"
    ):
        read_aligned(tmp_path / "x.npz", path)


def test_without_ids_tasks_are_row_numbers(tmp_path, write):
    np.save(tmp_path / "x.npy", np.ones((4, 1)))
    features, table = read_aligned(tmp_path / "x.npy", write("a.csv", VOTES.format(3, 0)))
    assert len(table) == len(features) == 4
    assert table.to_matrix().tolist() == [[0, -1], [-1, -1], [-1, -1], [1, 1]]


@pytest.mark.parametrize("tasks", [(1, 4), (-1, 0)])
def test_row_numbers_must_be_in_range(tmp_path, write, tasks):
    np.save(tmp_path / "x.npy", np.ones((4, 1)))
    with pytest.raises(AnnotationError, match=r"not row numbers 0\.\.3 of .*Count rows from 0"):
        read_aligned(tmp_path / "x.npy", write("a.csv", VOTES.format(*tasks)))


def test_strings_without_ids_are_refused(tmp_path, write):
    np.save(tmp_path / "x.npy", np.ones((4, 1)))
    with pytest.raises(AnnotationError, match=r"tasks are strings.*no ids.*np\.savez"):
        read_aligned(tmp_path / "x.npy", write("a.csv", VOTES.format("a", "b")))


def test_a_matrix_must_have_the_rows_of_the_features(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.ones((2, 1)), task=np.array(["b", "a"]))
    np.save(tmp_path / "x.npy", np.ones((2, 1)))
    np.save(tmp_path / "a.npy", np.array([[0, 1], [1, -1]]))
    np.save(tmp_path / "b.npy", np.array([[0, 1]]))
    assert read_aligned(tmp_path / "x.npz", tmp_path / "a.npy")[1].instances.tolist() == ["b", "a"]
    assert read_aligned(tmp_path / "x.npy", tmp_path / "a.npy")[1].instances.tolist() == [0, 1]
    for features in ("x.npz", "x.npy"):
        with pytest.raises(AnnotationError, match="1 rows for 2 tasks"):
            read_aligned(tmp_path / features, tmp_path / "b.npy")


def test_options_reach_the_annotations(tmp_path, write):
    np.save(tmp_path / "x.npy", np.ones((2, 1)))
    path = write("a.csv", "row,who,says\n0,u,1\n1,u,0\n")
    _, table = read_aligned(
        tmp_path / "x.npy", path, task="row", worker="who", label="says", classes=["n", "y"]
    )
    assert table.to_matrix().tolist() == [["y"], ["n"]]


def test_sparse_features_stay_sparse(tmp_path):
    X = sparse.random_array((6, 9), density=0.3, random_state=np.random.default_rng(0))
    for kind in ("csr", "csc", "coo"):
        sparse.save_npz(tmp_path / "X.npz", X.asformat(kind))
        found = read_features(tmp_path / "X.npz")
        assert (len(found), found.tasks, found.X.dtype) == (6, None, np.float32)
        assert found.X.format == "csr"
        np.testing.assert_allclose(found.X.toarray(), X.toarray(), rtol=1e-6)
    broken = X.tocsr()
    broken.data[4] = np.nan
    row, column = np.argwhere(np.isnan(broken.toarray()))[0]
    sparse.save_npz(tmp_path / "X.npz", broken)
    with pytest.raises(AnnotationError, match=rf"row {row}, column {column} .*; impute or drop"):
        read_features(tmp_path / "X.npz")
    sparse.save_npz(tmp_path / "X.npz", sparse.csr_array((0, 9)))
    with pytest.raises(AnnotationError, match=r"features are empty: shape \(0, 9\)"):
        read_features(tmp_path / "X.npz")


def test_a_question_and_a_label_do_not_name_two_columns_of_labels(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("task,worker,score,criterion\na,u,1,style\nb,u,2,facts\n")
    with pytest.raises(AnnotationError, match="both name the column of labels") as told:
        read_annotations(path, label="score", question="criterion")
    assert "leave question='criterion' out" in str(told.value)
    same = read_annotations(path, label="score", question="score")
    assert same.equals(read_annotations(path, label="score"))
