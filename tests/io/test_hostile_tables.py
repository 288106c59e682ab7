"""Tables of comparisons, of sets and of ids that are damaged or made to harm: a clear error."""

import gzip
import io
import json
import os
import zipfile

import numpy as np
import pytest

from manyhands.annotations import encoding
from manyhands.encoders import ImageEncoder
from manyhands.exceptions import AnnotationError
from manyhands.io import (
    columns,
    encodings,
    features,
    read_annotations,
    read_comparisons,
    read_features,
    read_images,
    read_label_sets,
    read_raw_aligned,
)
from manyhands.io.exports import parsing
from tests.io.exports.conftest import made, studio, write

ROW = {"left": "a", "right": "b", "winner": "b", "worker": "w"}
DEEP = "[" * 50_000 + "]" * 50_000


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.filterwarnings("ignore:no column of annotators")
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", '[{"left":' + DEEP + "}]", "nested too deeply"),
        ("a.jsonl", '{"left":' + DEEP + "}\n", r"line 1 .*nested too deeply"),
        ("a.json", '[{"left":' + "9" * 5000 + "}]", "digits"),
        ("a.jsonl", '{"left":' + "9" * 5000 + "}\n", "line 1 .*digits"),
        ("a.jsonl", lines(ROW).replace('"b",', "1e400,", 1), "row 1.*infinity|infinity in row 1"),
        ("a.jsonl", lines(ROW, ROW | {"left": {"id": 1}}), "'left' holds an object in row 2"),
        ("a.jsonl", lines(ROW) + '{"left":"a","left":"c"}\n', "line 2.*'left' occurs twice"),
        ("a.jsonl", lines(ROW | {"left": "\ud800"}), "half of a surrogate pair"),
        ("a.jsonl", lines(ROW | {"left": "b\0"}), "NUL"),
        ("a.jsonl", lines(ROW) + "[1]\n", "line 2 holds a list"),
        ("a.json", "[1, 2]", "no list of objects"),
        ("a.json", '[{"left": "a", "ri', "line 1, column"),
        ("a.csv", "left,right,winner,winner\na,b,a,b\n", "'winner' occurs twice"),
        ("a.csv", "left,left,right,winner\na,c,b,a\n", "'left' occurs twice"),
        ("a.csv", "left,right,winner,worker\na,b\0,a,w\n", "NUL"),
    ],
)
def test_damaged_comparisons_are_refused(tmp_path, name, content, says):
    path = write(tmp_path / name, content)
    with pytest.raises(AnnotationError, match=says) as error:
        read_comparisons(path)
    assert str(path) in str(error.value)


def test_who_judged_is_found_in_any_of_the_first_rows(tmp_path):
    nobody = {key: value for key, value in ROW.items() if key != "worker"}
    path = write(tmp_path / "a.jsonl", lines(nobody, ROW))
    with pytest.raises(AnnotationError, match=r"'worker' \(worker\) is empty in row 1"):
        read_comparisons(path)


@pytest.mark.filterwarnings("ignore:no column of annotators")
def test_a_column_that_comes_late_is_not_lost(tmp_path):
    nobody = {key: value for key, value in ROW.items() if key != "worker"}
    path = write(tmp_path / "a.jsonl", lines(*[nobody] * 1000, ROW))
    with pytest.raises(
        AnnotationError, match="row 1001 has the key 'worker', which none of the first"
    ):
        read_comparisons(path)


@pytest.mark.parametrize("content", [lines(ROW), json.dumps([ROW, ROW])])
@pytest.mark.parametrize("marked", ["utf-8-sig", "utf-16"])
def test_marks_of_the_encoding_are_no_part_of_json(tmp_path, content, marked):
    path = tmp_path / "a.json"
    path.write_bytes(content.encode(marked))
    assert read_comparisons(path).annotators.tolist() == ["w"]


def test_compressed_comparisons_expand_no_further_than_others(tmp_path, monkeypatch):
    monkeypatch.setattr(encodings, "LONGEST_LINE", 2000)
    monkeypatch.setattr(parsing, "LARGEST_DOCUMENT", 5000)
    long, listed = tmp_path / "a.jsonl.gz", tmp_path / "b.json.gz"
    long.write_bytes(gzip.compress(lines(ROW).encode() + b'{"left":"' + b"x" * 10**7))
    listed.write_bytes(gzip.compress(b"[" + b" " * 10**7))
    with pytest.raises(AnnotationError, match="line 2 is longer than"):
        read_comparisons(long)
    with pytest.raises(AnnotationError, match="more than"):
        read_comparisons(listed)


def test_a_long_label_does_not_multiply_the_memory(tmp_path):
    """numpy reads text as integers in buffers of 8,192 cells, each as long as the longest."""
    text = np.array(["x" * 10**8])
    assert columns.canonical(text) is text


def test_ids_that_are_texts_are_refused_before_they_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "LARGEST_TEXTS", 4 * 10_000)
    path = write(tmp_path / "a.csv", "task,worker,label\n" + "x" * 4000 + ",a,p\nb,a,q\nc,a,q\n")
    with pytest.raises(AnnotationError, match=r"one of 3 different .* is 4,000 characters long"):
        read_annotations(path)
    pairs = "left,right,winner,worker\n" + "x" * 4000 + ",b,b,w\nb,c,c,w\n"
    with pytest.raises(AnnotationError, match=r"one of 3 different .* is 4,000 characters long"):
        read_comparisons(write(tmp_path / "b.csv", pairs))


def test_halves_of_characters_are_no_labels(tmp_path):
    """No file takes them, so that the labels could not be written."""
    path = write(tmp_path / "a.json", [studio(made(1, "good\ud83d"), made(2, "bad"))])
    with pytest.raises(AnnotationError, match="half of a surrogate pair"):
        read_annotations(path)
    whole = write(tmp_path / "b.json", [studio(made(1, "\U0001f600"), made(2, "bad"))])
    assert "\U0001f600" in read_annotations(whole).classes.tolist()


@pytest.mark.parametrize("huge", ["1e400", "9" * 5000, "1e" + "9" * 5000])
def test_numbers_beyond_all_floats_are_names(tmp_path, huge):
    path = write(tmp_path / "a.csv", f"task,worker,label\na,p,{huge}\nb,p,3\nc,q,3\n")
    assert huge in read_annotations(path).classes.tolist()


def test_counts_of_too_many_digits_are_no_counts(tmp_path):
    rows = "".join(f"t{i},{'9' * 5000},{i % 3}\n" for i in range(9))
    with pytest.raises(AnnotationError):
        read_annotations(write(tmp_path / "a.csv", "task,a1,a2\n" + rows))


@pytest.mark.parametrize("options", [{}, {"format": "wide"}, {"format": "long"}])
def test_more_columns_than_a_spreadsheet_has_are_refused(tmp_path, options):
    names = [f"a{i}" for i in range(columns.MOST_COLUMNS)]
    table = ",".join(["task", *names]) + "\n" + ",".join(["t", *["1"] * len(names)]) + "\n"
    with pytest.raises(AnnotationError, match="16,385 columns"):
        read_annotations(write(tmp_path / "a.csv", table), **options)


def test_too_many_columns_of_options_are_refused_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("manyhands.annotations.label_set_frames._is_ticked", None)
    names = [f"o{i}" for i in range(1001)]
    table = ",".join(["task", "worker", *names]) + "\na,p" + ",1" * 1001 + "\n"
    with pytest.raises(AnnotationError, match="1,001 different labels"):
        read_label_sets(write(tmp_path / "a.csv", table), label=names)


def test_arrays_that_expand_too_far_are_refused_before_they_are_read(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=np.zeros((10**6, 8), dtype=np.float32))
    assert read_features(path).X.shape == (10**6, 8)  # Many zeros in a small file are no harm.
    monkeypatch.setattr(features, "LARGEST_CONTENT", 2**20)
    with pytest.raises(AnnotationError, match=r"a\.npz: the array 'X' expands .* np.savez"):
        read_features(path)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_arrays_that_lie_about_their_size_are_refused(tmp_path, name):
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**40, 8)}
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, header)
    content.write(bytes(64))
    path = tmp_path / name
    path.write_bytes(content.getvalue())
    if name == "a.npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X.npy", content.getvalue())
    with pytest.raises(AnnotationError, match="cannot be read as"):
        read_features(path)


@pytest.mark.parametrize(
    "change",
    [
        {"indices": [0, 9]},
        {"indices": [0, -1]},
        {"indptr": [0, 1, 9]},
        {"indptr": [0, 2, 1]},
        {"indptr": [0, 1]},
        {"format": b"coo"},
        {"data": [1.0]},
    ],
)
def test_sparse_matrices_that_lead_out_of_themselves_are_refused(tmp_path, change):
    """scipy reads them as they are, and its products would read foreign memory."""
    good = {"indices": [0, 1], "indptr": [0, 1, 2], "data": [1.0, 2.0], "shape": [2, 2]}
    good["format"] = b"csr"
    path = tmp_path / "a.npz"
    np.savez(path, **{name: np.array(value) for name, value in good.items()})
    assert read_features(path).X.toarray().tolist() == [[1, 0], [0, 2]]
    np.savez(path, **{name: np.array(value) for name, value in (good | change).items()})
    with pytest.raises(AnnotationError, match=r"a\.npz"):
        read_features(path)


def test_folders_of_images_hold_what_they_like(tmp_path):
    """Links that lead round in circles, pipes and what is no image."""
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "up").symlink_to(tmp_path)
    (tmp_path / "gone.png").symlink_to(tmp_path / "nothing.png")
    (tmp_path / "self.png").symlink_to(tmp_path / "self.png")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "text.png").write_text("<script>")
    found = read_images(tmp_path)
    assert found.tasks.tolist() == ["a", "text"]
    with pytest.raises(AnnotationError, match=r"text\.png: row 1 of X .*cannot be read as an im"):
        ImageEncoder(size=(8, 8), random_state=0).fit(found.X)


@pytest.mark.parametrize("name", ["pipe.png", "/dev/zero", "folder", "gone.png"])
def test_a_column_of_images_names_what_is_none(tmp_path, name):
    """A fit reads the files that a column names, wherever they are, but waits for none."""
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder").mkdir()
    rows = "".join(f"t{i},w{r},x,{name}\n" for i in range(2) for r in range(2))
    (tmp_path / "a.csv").write_text(f"task,worker,label,image\n{rows}")
    images, table = read_raw_aligned("images", "image", tmp_path / "a.csv")
    assert len(images) == len(table) == 2
    error = FileNotFoundError if name == "gone.png" else AnnotationError
    with pytest.raises(error, match=r"row 0 of X.* (cannot be read as an image|does not exist)"):
        ImageEncoder(size=(8, 8), random_state=0).fit(images.X)


def test_images_that_are_bombs_are_refused(tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.new("L", (16, 16)).save(tmp_path / "a.png")
    with pytest.raises(AnnotationError, match=r"a\.png: .*exceeds limit"):
        ImageEncoder(size=(8, 8)).fit([tmp_path / "a.png"] * 2)
