import copy
import pickle
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import AnnotationTable
from manyhands.annotations import as_table
from manyhands.annotations.ids import are_shuffled, in_natural_order
from manyhands.exceptions import AnnotationError

LONG = {
    "task": ["b", "a", "b", "c"],
    "worker": ["w2", "w1", "w1", "w2"],
    "label": ["yes", "no", "no", "yes"],
}


def matrices(max_classes=4):
    return arrays(
        np.int64,
        st.tuples(st.integers(1, 8), st.integers(1, 5)),
        elements=st.integers(-1, max_classes - 1),
    )


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_from_frame_reads_every_kind_of_frame(make):
    table = AnnotationTable.from_frame(make(LONG))
    assert table.instances.tolist() == ["a", "b", "c"]
    assert table.annotators.tolist() == ["w1", "w2"]
    assert table.classes.tolist() == ["no", "yes"]
    expected = [["no", None], ["no", "yes"], [None, "yes"]]
    assert table.to_matrix().tolist() == expected


def test_order_of_the_rows_does_not_matter():
    frame = pd.DataFrame(LONG)
    assert (
        AnnotationTable.from_frame(frame).to_matrix().tolist()
        == AnnotationTable.from_frame(frame.iloc[::-1]).to_matrix().tolist()
    )


def test_tasks_fix_the_order_and_keep_unlabelled_instances():
    table = AnnotationTable.from_frame(pd.DataFrame(LONG), tasks=["c", "x", "b", "a"])
    assert len(table) == table.n_instances == 4
    assert table.annotations_per_instance().tolist() == [1, 0, 2, 1]


def test_from_frame_takes_other_column_names_and_weights():
    frame = pd.DataFrame({"q": [1, 2], "who": [7, 7], "says": [0, 1], "w": [0.5, 2.0]})
    table = AnnotationTable.from_frame(frame, task="q", worker="who", label="says", weight="w")
    assert table.weight.tolist() == [0.5, 2.0]
    assert table.vote_counts().tolist() == [[0.5, 0.0], [0.0, 2.0]]


def test_a_row_without_label_keeps_its_instance_and_says_so():
    frame = pd.DataFrame({"task": [1, 2, 3], "worker": [1, 1, 2], "label": [0.0, np.nan, 1.0]})
    with pytest.warns(UserWarning, match="1 of 3 rows have no label"):
        table = AnnotationTable.from_frame(frame)
    assert table.shape == (3, 2)
    assert table.n_annotations == 2
    assert table.classes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"task": "item"}, "task='item' is not a column"),
        ({}, {"classes": ["yes", "maybe"]}, "'no' .*not among classes"),
        ({}, {"tasks": ["a", "b"]}, "'c' .*not among tasks"),
        ({}, {"tasks": [1, 2, 3]}, "strings .*but tasks numbers"),
        ({}, {"classes": ["yes", "no", "yes"]}, "classes holds .*'yes'.* twice"),
        ({"task": ["b", "a", "b", "b"]}, {}, r"repeated.*instance 'b'.*annotator 'w2'"),
        ({"task": ["b", None, "b", "c"]}, {}, r"'task' \(task\) is empty in row 1"),
        ({"label": [0.5, 1.0, 1.0, 2.0]}, {}, "0.5.*integer or a string"),
        ({"label": ["yes", 1, "no", "yes"]}, {}, "mixes strings and other values"),
        ({}, {"duplicates": "first"}, "duplicates='first' is unknown"),
    ],
)
def test_from_frame_errors_name_argument_value_and_mend(change, options, message):
    with pytest.raises(AnnotationError, match=message):
        AnnotationTable.from_frame(pd.DataFrame(LONG | change), **options)


def test_policies_for_repeated_pairs():
    arrays = ([0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1])
    with pytest.raises(AnnotationError, match="repeated"):
        AnnotationTable.from_arrays(*arrays)
    last = AnnotationTable.from_arrays(*arrays, duplicates="last")
    assert last.to_matrix().tolist() == [[1, 0], [-1, 1]]
    kept = AnnotationTable.from_arrays(*arrays, duplicates="keep")
    assert kept.n_annotations == 4
    assert kept.vote_counts().tolist() == [[2, 1], [0, 1]]
    with pytest.raises(AnnotationError, match="cannot hold"):
        kept.to_matrix()


@given(matrices())
@settings(max_examples=30)
def test_matrix_round_trip(A):
    classes = list(range(4))
    table = AnnotationTable.from_matrix(A, classes=classes)
    np.testing.assert_array_equal(table.to_matrix(), A)
    np.testing.assert_array_equal(np.asarray(table), A)
    assert table.n_annotations == (A >= 0).sum()
    assert table.equals(AnnotationTable.from_matrix(np.where(A < 0, np.nan, A), classes=classes))
    assert AnnotationTable.from_frame(
        table.to_frame(), classes=classes, tasks=range(len(A)), workers=range(A.shape[1])
    ).equals(table)


@given(matrices(), st.data())
@settings(max_examples=30)
def test_rows_by_position_are_those_of_the_matrix(A, data):
    table = AnnotationTable.from_matrix(A, classes=range(4))
    rows = data.draw(st.lists(st.integers(0, len(A) - 1), max_size=12))
    picked = table[np.array(rows, dtype=int)]
    expected = A[rows] if rows else A[:0]
    assert picked.shape == expected.shape
    np.testing.assert_array_equal(picked.to_matrix(), expected)
    mask = data.draw(arrays(bool, len(A)))
    np.testing.assert_array_equal(table[mask].to_matrix(), A[mask])
    np.testing.assert_array_equal(table[1:].to_matrix(), A[1:])


def test_rows_of_a_shuffled_table():
    A = np.array([[0, 1, -1], [-1, 1, 0], [1, -1, 1]])
    ordered = AnnotationTable.from_matrix(A)
    shuffled = ordered.take(np.random.default_rng(0).permutation(ordered.n_annotations))
    np.testing.assert_array_equal(shuffled[[2, 0, 2]].to_matrix(), A[[2, 0, 2]])


def test_indexing_out_of_range_and_by_columns_is_refused():
    table = AnnotationTable.from_matrix([[0, 1], [1, 0]])
    with pytest.raises(IndexError):
        table[[0, 2]]
    with pytest.raises(IndexError):
        table[:, 0]
    assert len(list(table)) == 2  # iteration ends


def test_select_by_id_keeps_the_order_given():
    table = AnnotationTable.from_frame(pd.DataFrame(LONG))
    some = table.select(instances=["c", "b"], annotators=["w2"])
    assert some.instances.tolist() == ["c", "b"]
    assert some.to_matrix().tolist() == [["yes"], ["yes"]]
    assert table.select(instances=[2]).instances.tolist() == ["c"]  # positions, as ids are strings
    with pytest.raises(AnnotationError, match="'zoe'"):
        table.select(annotators=["zoe"])


def test_integer_ids_select_by_id():
    frame = pd.DataFrame({"task": [10, 20], "worker": [5, 6], "label": [0, 1]})
    table = AnnotationTable.from_frame(frame)
    assert table.select(instances=[20]).instances.tolist() == [20]
    with pytest.raises(AnnotationError, match=r"0 .*not among instances"):
        table.select(instances=[0])


def test_minus_one_is_missing_unless_named_a_class():
    A = np.array([[-1, 1], [1, -1]])
    assert AnnotationTable.from_matrix(A).n_annotations == 2
    signs = AnnotationTable.from_matrix(A, classes=[-1, 1])
    assert signs.n_annotations == 4
    assert signs.classes.tolist() == [-1, 1]
    np.testing.assert_array_equal(signs.to_matrix(), A)


def test_one_dimension_is_a_crowd_of_one_with_minus_one_a_class():
    table = as_table(np.array([-1, 1, 1]))
    assert table.shape == (3, 1)
    assert table.classes.tolist() == [-1, 1]


def test_a_table_never_changes():
    A = np.array([[0, 1], [1, 0]])
    labels = np.array([0, 1])
    table = AnnotationTable.from_arrays([0, 1], [0, 0], labels)
    labels[0] = 1
    assert table.label.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        table.label[0] = 1
    with pytest.raises(AttributeError):
        table.label = labels
    with pytest.raises(ValueError, match="read-only"):
        AnnotationTable.from_matrix(A).classes[0] = 9


def test_with_added_marks_sources_and_extends_vocabularies():
    table = AnnotationTable.from_matrix([[0, 1], [1, -1]])
    more = AnnotationTable.from_arrays(
        [1, 2], [1, 0], [0, 1], source="pseudo", n_instances=3, n_annotators=2
    )
    grown = table.with_added(more)
    assert grown.shape == (3, 2)
    assert grown.to_frame()["source"].tolist() == ["observed"] * 3 + ["pseudo"] * 2
    assert grown.observed.select(instances=[0, 1]).equals(table)
    with pytest.raises(AnnotationError, match="repeated"):
        grown.with_added(more)
    with pytest.raises(AnnotationError, match="classes"):
        table.with_added(AnnotationTable.from_matrix([[0, 2]]))


def test_at_most_sixteen_bytes_an_annotation():
    rng = np.random.default_rng(0)
    m = 10_000
    instance, annotator = np.divmod(rng.permutation(m * 10)[:m], 50)
    plain = AnnotationTable.from_arrays(instance, annotator, rng.integers(0, 10, m))
    assert plain.nbytes <= 16 * m
    weighted = AnnotationTable.from_arrays(
        instance, annotator, rng.integers(0, 10, m), weight=rng.random(m), source="generated"
    )
    assert weighted.nbytes <= 16 * m


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0], [0, 1]), "equally long"),
        (([0, -2], [0, 0], [0, 1]), "position -2"),
        (([0, 1], [0, 0], [0.0, np.nan]), "label is missing in row 1"),
    ],
)
def test_from_arrays_errors(arguments, message):
    with pytest.raises(AnnotationError, match=message):
        AnnotationTable.from_arrays(*arguments)
    with pytest.raises(AnnotationError, match="weight holds"):
        AnnotationTable.from_arrays([0, 1], [0, 0], [0, 1], weight=[1.0, -1.0])
    with pytest.raises(AnnotationError, match="source holds 'guess'"):
        AnnotationTable.from_arrays([0, 1], [0, 0], [0, 1], source="guess")


def test_no_annotations_can_be_taken():
    table = AnnotationTable.from_arrays(["t2", "t1"], ["a", "a"], ["x", "y"]).take([])
    assert table.n_annotations == 0
    assert table.instances.tolist() == ["t1", "t2"]


def test_from_arrays_takes_string_ids():
    table = AnnotationTable.from_arrays(["t2", "t1"], ["a", "a"], ["x", "y"])
    assert table.instances.tolist() == ["t1", "t2"]
    assert table.to_matrix().tolist() == [["y"], ["x"]]


def test_frames_and_sparse_matrices_as_y_say_what_to_do():
    from scipy.sparse import csr_matrix

    with pytest.raises(AnnotationError, match="from_frame"):
        as_table(pd.DataFrame(LONG))
    with pytest.raises(AnnotationError, match=r"from_arrays\(row, column, data\)"):
        as_table(csr_matrix(np.eye(2)))


def test_pickle_and_deepcopy():
    table = AnnotationTable.from_frame(pd.DataFrame(LONG))
    assert pickle.loads(pickle.dumps(table)).equals(table)
    assert copy.deepcopy(table).equals(table)


def test_to_frame_backends_agree():
    table = AnnotationTable.from_frame(pd.DataFrame(LONG))
    for backend in ("pandas", "polars", "pyarrow"):
        assert AnnotationTable.from_frame(table.to_frame(backend)).equals(table)


def test_minus_one_in_a_long_table_is_a_class_and_a_suspicious_one():
    frame = pd.DataFrame({"task": [1, 2, 3], "worker": [1, 1, 1], "label": [-1, 0, 1]})
    with pytest.warns(UserWarning, match="stands for a missing annotation, drop these rows"):
        table = AnnotationTable.from_frame(frame)
    assert table.classes.tolist() == [-1, 0, 1]
    AnnotationTable.from_frame(frame, classes=[-1, 0, 1])  # named: no warning
    AnnotationTable.from_frame(frame[frame.label != 0])  # signs: no warning


def long_frame(labels):
    n = len(labels)
    return pd.DataFrame({"task": np.arange(n), "worker": np.zeros(n, dtype=int), "label": labels})


@pytest.mark.parametrize(
    ("A", "says"),
    [
        ([[0, 1, -7], [1, 0, -7]], [r"A holds -7 \(2\)", "replace them by -1", "classes="]),
        (np.array([[0, 1, 255]], dtype=np.uint8), ["A holds 255 in 1 annotations", "signed"]),
        (np.arange(12).reshape(3, 4), ["12 classes in 12 annotations", "look like ids"]),
        (pd.DataFrame({"r": ["a", ["b", "c"]], "s": ["a", "b"]}), ["A holds a list", "one class"]),
    ],
)
def test_values_of_a_matrix_that_cannot_be_classes_are_refused(A, says):
    for words in says:
        with pytest.raises(AnnotationError, match=words):
            AnnotationTable.from_matrix(A)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([0, 1, 2, 1, -7, -7], [r"holds -7 \(2\)", "drop these rows", "skip=", "classes="]),
        (["0", "1", "1", "-7"], [r"holds -7 \(1\)"]),
        (np.array([0, 1, 1, 255], dtype=np.uint8), ["255 in 1 annotations", "signed"]),
        ([f"text {i}" for i in range(11)], ["11 classes in 11 annotations", "look like ids"]),
        ([["a", "b"], ["a"], ["b"]], ["several labels in 1 of 3", "multilabel=.split."]),
    ],
)
def test_values_of_a_column_that_cannot_be_classes_are_refused(labels, says):
    for words in says:
        with pytest.raises(AnnotationError, match=words):
            AnnotationTable.from_frame(long_frame(labels))


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["cat", "dog", "n/a", "n/a"], r"'n/a' \(2\), which counts as a class"),
        (["cat", "dog", "None", "cat"], r"'None' \(1\), which counts as a class"),
        (["cat", "cat\u200b", "dog", "dog"], "differ only in case, spaces, hyphens or form"),
        (["hip-hop", "hiphop", "hiphop", "pop"], r"'hiphop' \(2\), 'hip-hop' \(1\)"),
        (["cat", "dog", " "], r"' ' \(1\)"),
        (["0", "1", "0.5", "1"], r"'0.5' \(1\) among whole numbers"),
        (["0", "1", "none", "1"], r"'none' \(1\) among whole numbers"),
        (["cat", "dog", "-7", "cat"], r"'-7' \(1\) among words"),
        (["No", " no", "YES", "Yes", "Yes"], r"' no' \(1\), 'No' \(1\); 'Yes' \(2\), 'YES' \(1\)"),
        (["1.0", "1", "cat"], r"'1' \(1\), '1.0' \(1\)"),
        ([0, 1, 2, 99], r"99 \(1\), far above the other codes"),
        (["0", "1", "2", "999"], r"999 \(1\), far above the other codes"),
        ([0, 1, -1, -2], r"-2 \(1\), -1 \(1\), which counts as a class"),
    ],
)
def test_suspicious_classes_are_named_with_counts_and_mend(labels, says):
    with pytest.warns(UserWarning, match=says) as warned:
        AnnotationTable.from_frame(long_frame(labels))
    assert len(warned) == 1
    assert "if they are different, name" in str(warned[0].message) or "if it is a class" in str(
        warned[0].message
    )
    assert warned[0].filename == __file__
    classes = list(dict.fromkeys(labels))
    AnnotationTable.from_frame(long_frame(labels), classes=classes)  # named: no warning


@pytest.mark.parametrize(
    "labels",
    [
        ["none", "person", "place", "none"],
        ["None", "Mild", "Severe"],
        ["a-1", "a1", "b-2", "b2", "non-a", "a"],
        ["unknown", "spam", "ham"],
        [-2, -1, 0, 1, 2],
        [-1, 1],
        [1, 2, 3, 4, 5],
        [10, 20, 30],
        ["0.5", "1.5", "2.5"],
        list("abcdefghijklmnopqrstuvwxyz") * 2,
        [*range(8), 20],
    ],
)
def test_ordinary_classes_raise_no_alarm(labels):
    assert AnnotationTable.from_frame(long_frame(labels)).n_classes == len(set(labels))


def test_classes_of_other_makers_are_checked_too():
    rows = np.arange(4)
    with pytest.warns(UserWarning, match="label holds classes that differ only in case"):
        AnnotationTable.from_arrays(rows, rows * 0, ["a", "A", "b", "b"])
    with pytest.raises(AnnotationError, match="label holds -9"):
        AnnotationTable.from_arrays(rows, rows * 0, [0, 1, 1, -9])
    assert as_table([-9, 0, 1]).classes.tolist() == [-9, 0, 1]  # scikit-learn's convention


@pytest.mark.parametrize(
    "A",
    [
        pd.DataFrame({"a": [1, None], "b": [0, 1]}, dtype="Int64").to_numpy(),
        pd.DataFrame({"a": [1, None], "b": [0, 1]}, dtype="Int64"),
    ],
)
def test_pandas_integers_with_gaps_are_a_matrix(A):
    table = AnnotationTable.from_matrix(A)
    assert table.to_matrix().tolist() == [[1, 0], [-1, 1]]


@pytest.mark.parametrize("records", [[{"task": 1, "worker": 1, "label": 0}], LONG])
def test_what_is_no_frame_is_named(records):
    with pytest.raises(
        AnnotationError, match=f"df is a {type(records).__name__}, not a data frame"
    ):
        AnnotationTable.from_frame(records)


def test_gaps_in_lists_of_text_stay_gaps():
    A = [["cat", np.nan], ["dog", -1], [None, "cat"]]
    with pytest.warns(UserWarning, match="A holds -1 in 1 cells beside 2 empty ones"):
        table = AnnotationTable.from_matrix(A)
    assert table.classes.tolist() == ["cat", "dog"]
    assert table.n_annotations == 3
    with pytest.raises(AnnotationError, match="label is missing in row 1"):
        AnnotationTable.from_arrays([0, 1], [0, 0], ["a", np.nan])
    with pytest.raises(AnnotationError, match="mixes strings"):
        AnnotationTable.from_matrix([["cat", 3]])


def test_ids_of_different_kinds_are_not_merged():
    table = AnnotationTable.from_matrix([[0, 1], [1, 0]])
    other = AnnotationTable.from_arrays(["x", "0"], [0, 1], [0, 1], n_annotators=2)
    for a, b in ((table, other), (other, table)):
        with pytest.raises(AnnotationError, match="convert one to the other's type"):
            a.with_added(b)


def test_nothing_is_kept_beside_the_columns():
    table = AnnotationTable.from_arrays([1, 0, 1], [0, 0, 1], [0, 1, 1])
    before = set(vars(table))
    table[[0]].vote_counts()
    assert set(vars(table)) == before


def test_views_and_copies_cannot_change_a_table():
    base = np.array([0, 1, 1])
    view = base[:]
    view.flags.writeable = False
    table = AnnotationTable.from_arrays(view, [0, 0, 1], [0, 1, 1])
    base[0] = 1
    assert table.instance.tolist() == [0, 1, 1]
    for copied in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table)):
        assert not copied.label.flags.writeable
        assert not copied.classes.flags.writeable


def test_source_survives_a_frame():
    table = AnnotationTable.from_matrix([[0, 1], [1, -1]]).with_source("pseudo")
    again = AnnotationTable.from_frame(table.to_frame(), source="source")
    assert again.equals(table)


def test_integers_that_look_like_ids_are_not_taken_for_positions():
    with pytest.raises(AnnotationError, match="look like ids"):
        AnnotationTable.from_arrays([100_000_000, 5], [0, 0], [0, 1])


def test_a_table_sorts_ids_naturally():
    ids = ["img10", "img2", "img1", "img01", "img2b", "10", "9"]
    expected = ["9", "10", "img01", "img1", "img2", "img2b", "img10"]
    frame = pd.DataFrame({"task": ids, "worker": ids, "label": [0, 1, 0, 1, 0, 1, 0]})
    for table in (
        AnnotationTable.from_frame(frame),
        AnnotationTable.from_arrays(ids, ids, frame["label"]),
    ):
        assert table.instances.tolist() == table.annotators.tolist() == expected
        assert table.instances[table.instance].tolist() == ids
    numbers = AnnotationTable.from_frame(frame.assign(task=[10, 9, 1, 2, 11, 100, -1]))
    assert numbers.instances.tolist() == [-1, 1, 2, 9, 10, 11, 100]


@given(st.lists(st.text("019ab", max_size=4), unique=True, min_size=1), st.booleans())
def test_natural_order_is_that_of_the_numbers_in_ids(ids, of_one_length):
    if of_one_length:
        ids = sorted({f"{text:0<4}" for text in ids})
    codes, found = in_natural_order(np.arange(len(ids)), np.array(sorted(ids)))

    def key(text):
        parts = re.split("([0-9]+)", text)
        return [(0, int(part)) if part.isdigit() else (1, part) for part in parts if part]

    expected = sorted(sorted(ids), key=key)
    assert [key(text) for text in found.tolist()] == [key(text) for text in expected]
    assert found[codes].tolist() == sorted(ids)


@pytest.mark.parametrize("of", [pl.DataFrame, pa.table])
def test_texts_of_every_kind_of_frame_are_read_alike(of):
    rows = {
        "task": [f"img{i % 7}" for i in range(40)],
        "worker": [f"w{i // 7}" for i in range(40)],
        "label": [None if i % 11 == 5 else "abc"[i % 3] for i in range(40)],
    }
    frame = pd.DataFrame(rows)
    tables = []
    for each in (frame.astype(object), frame, frame.astype("string"), of(rows)):
        with pytest.warns(UserWarning, match="4 of 40 rows have no label"):
            tables.append(AnnotationTable.from_frame(each))
    assert all(table.equals(tables[0]) for table in tables)


def test_very_long_runs_of_digits_are_ids_like_others():
    ones, twos = "img" + "1" * 400, "img" + "2" * 400
    table = AnnotationTable.from_arrays([twos, "img3", ones], [0, 0, 0], [0, 1, 0])
    assert table.instances.tolist() == ["img3", ones, twos]
    assert not are_shuffled(np.array([ones, twos, "img3"]))


def test_large_integers_beside_a_gap_stay_exact():
    frame = pl.DataFrame({"task": [1, 2, 3], "worker": [1, 1, 1],
                          "label": [2**60 + 1, None, 2**60]})  # fmt: skip
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        table = AnnotationTable.from_frame(frame)
    assert table.classes.tolist() == [2**60, 2**60 + 1]


def test_floats_too_large_to_be_integers_are_refused():
    with pytest.raises(AnnotationError, match=r"1e\+20"):
        AnnotationTable.from_matrix([[1.0, 1e20]])


HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a&b", "\u202ereversed"]


class Reader(HTMLParser):
    """Tags, attributes and text; notes tags that are not closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def cells(html):
    return [text.strip() for text in Reader(html).text if text.strip()]


def test_counts_classes_and_first_rows_are_shown():
    table = AnnotationTable.from_arrays(
        ["a", "b", "b", "c"],
        ["ann", "ann", "bob", "cy"],
        ["cat", "cat", "dog", "unsure"],
        abstain="unsure",
        instances=["a", "b", "c", "d"],
    )
    text = cells(table._repr_html_())
    for key, value in {
        "annotations": "3",
        "instances": "4",
        "annotators": "3",
        "classes": "2",
        "abstentions": "1",
        "per instance": "0.8 (0 to 2; 2 without any)",
        "per annotator": "1.0 (0 to 2; 1 without any)",
    }.items():
        assert text[text.index(key) + 1] == value
    first = text.index("First annotations")
    assert text[first + 1 : first + 7] == ["instance", "annotator", "label", "a", "ann", "cat"]
    assert text[text.index("share") + 1 : first] == ["cat", "2", "66.7 %", "dog", "1", "33.3 %"]
    assert "skips" not in text


def test_names_from_outside_are_escaped_and_isolated():
    table = AnnotationTable.from_arrays(HOSTILE, HOSTILE, HOSTILE)
    html = table._repr_html_()
    read = Reader(html)
    assert set(read.tags) <= {
        *("style", "div", "p", "bdi", "span"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td"),
    }
    assert set(read.attributes) <= {"class", "style", "scope"}
    for name in HOSTILE:
        # Instance, annotator and class in the first rows, and once more among the classes.
        assert read.text.count(name) == 4
    assert html.count("<bdi>\u202ereversed</bdi>") == 4


def test_long_names_many_classes_and_many_rows_stay_small():
    n = 1_000
    names = [f"{i}-" + "x" * 10_000 for i in range(12)]
    rng = np.random.RandomState(0)
    table = AnnotationTable.from_arrays(
        np.arange(n), rng.randint(9, size=n), rng.choice(names, n), classes=names
    )
    html = table._repr_html_()
    assert len(html) < 10_000
    text = cells(html)
    assert "and 4 more classes" in text
    assert max(map(len, text)) <= 60


def test_numbers_that_are_names_are_not_grouped():
    table = AnnotationTable.from_matrix([[2019, 2020], [2019, -1]], instances=[12345, 67890])
    text = cells(table._repr_html_())
    assert "12345" in text
    assert "2019" in text
    assert "2,019" not in text


@pytest.mark.parametrize("weight", [None, [0.5, 2.0]])
def test_weights_and_sources_only_where_there_are_some(weight):
    table = AnnotationTable.from_arrays([0, 1], [0, 0], ["a", "b"], weight=weight)
    if weight:
        table = table.with_source("pseudo")
    text = cells(table._repr_html_())
    assert ("weight" in text) == ("source" in text) == ("of these pseudo" in text) == bool(weight)
    assert ("0.500" in text) == bool(weight)


def test_tables_without_annotations_have_a_summary_too():
    table = AnnotationTable.from_arrays([], [], [], classes=["a", "b"], n_instances=3)
    text = cells(table._repr_html_())
    assert "no annotations" in text
    assert text[text.index("per instance") + 1] == "0.0 (0 to 0; 3 without any)"


def test_text_that_is_no_unicode_can_be_shown():
    table = AnnotationTable.from_arrays(["lone \ud800"], ["b"], ["c"])
    assert table._repr_html_().encode("utf-8")


LISTS = {"id": [7, 9, 8], "annotators": [["b", "a"], [], ["a"]], "annotations": [[1, 0], [], [1]]}


class FakeDataset:
    """Columns as a Hugging Face Dataset gives them."""

    column_names = list(LISTS)

    def __getitem__(self, name):
        return LISTS[name]


@pytest.mark.parametrize(
    "make", [dict, pd.DataFrame, pl.DataFrame, pa.table, lambda columns: FakeDataset()]
)
def test_list_columns_of_frames(make):
    frame = make(LISTS)
    table = AnnotationTable.from_lists(frame, task="id")
    assert table.instances.tolist() == [7, 9, 8]
    assert table.annotators.tolist() == ["a", "b"]
    np.testing.assert_array_equal(table.to_matrix(codes=True), [[0, 1], [-1, -1], [1, -1]])
    rows = AnnotationTable.from_lists(frame, abstain=0)
    assert rows.instances.tolist() == [0, 1, 2]
    assert rows.abstentions.tolist() == [[0, 0]]


def test_judges_in_a_fixed_order_need_no_names():
    table = AnnotationTable.from_lists(
        {"labels": [["x", "y"], ["y", "y"]]}, annotators=None, labels="labels"
    )
    assert table.to_matrix().tolist() == [["x", "y"], ["y", "y"]]


def test_list_columns_that_are_none_are_refused():
    wrong = [
        ({"annotators": [["a"]], "annotations": ["x"]}, "'x' in row 0, which is not a list"),
        ({"annotators": [["a"]], "annotations": [["x", "y"]]}, "row 0 has 1 annotators.* 2 labels"),
        ({"annotators": [["a"]]}, "labels='annotations' is not a column"),
        ({"annotators": [["a", "a"]], "annotations": [["x", "y"]]}, "repeated"),
    ]
    for frame, message in wrong:
        with pytest.raises(AnnotationError, match=message):
            AnnotationTable.from_lists(frame)
    with pytest.warns(UserWarning, match="1 of 2 rows have no label"):
        table = AnnotationTable.from_lists(
            {"annotators": [["a", "b"]], "annotations": [["x", None]]}
        )
    assert table.annotators.tolist() == ["a", "b"]


def test_labels_that_are_the_ids_of_a_column_are_refused():
    ids = [f"doc {i // 3}" for i in range(60)]
    frame = pd.DataFrame({"task": ids, "worker": list("abc") * 20, "label": ids})
    says = "column 'label', read as the labels, equals column 'task' in all 60 rows"
    with pytest.raises(AnnotationError, match=says):
        AnnotationTable.from_frame(frame)
    few = pd.DataFrame({"task": [0, 0, 1], "worker": [0, 1, 0], "label": [0, 0, 1]})
    assert AnnotationTable.from_frame(few).n_classes == 2  # Small numbers are equal by chance.


def test_a_lazy_frame_is_to_be_collected():
    with pytest.raises(AnnotationError, match=r"LazyFrame.*give df.collect\(\)"):
        AnnotationTable.from_frame(pl.DataFrame({"task": [0]}).lazy())
