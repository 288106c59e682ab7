"""Sets of labels: which texts are sets, how cells are cut, and frames that hold them."""

import itertools
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from manyhands import AnnotationTable
from manyhands.agreement import krippendorff_alpha
from manyhands.annotations.label_sets import best_evidence, cut, listed_labels, name_of
from manyhands.exceptions import AnnotationError

ANSWERS = [
    (1, "a", ["safety", "policy"]),
    (1, "b", ["safety", "billing"]),
    (1, "c", ["policy", "safety"]),
    (2, "a", ["policy"]),
    (2, "b", ["policy"]),
    (2, "c", ["safety"]),
]
"""The case of a crowd that ticks: right are four sets, and alpha .231."""

ALPHA = 0.230769


def long(write, answers=ANSWERS):
    """Frame of answers, each set written by a function."""
    return pd.DataFrame(
        [(task, worker, write(labels)) for task, worker, labels in answers],
        columns=["task", "worker", "label"],
    )


def rows():
    """Frame with one row per ticked label."""
    found = [(task, worker, label) for task, worker, labels in ANSWERS for label in labels]
    return pd.DataFrame(found, columns=["task", "worker", "label"])


WRITTEN = {
    "semicolons": long(";".join),
    "semicolons at the end": long(lambda labels: "; ".join(labels) + ";"),
    "bars": long(" | ".join),
    "commas": long(", ".join),
    "slashes": long("/".join),
    "plus": long("+".join),
    "lines": long("\n".join),
    "JSON": long(lambda labels: str(labels).replace("'", '"')),
    "Python": long(str),
    "numpy": long(lambda labels: str(np.array(labels))),
    "choices": long(lambda labels: str({"choices": labels}).replace("'", '"')),
    "Postgres": long(lambda labels: "{" + ",".join(labels) + ",}"),
    "lists": long(list),
    "arrays": long(np.array),
    "sets": long(set),
    "polars": pl.DataFrame(long(list)),
    "pyarrow": pa.Table.from_pandas(long(list)),
    "rows": rows(),
    "polars rows": pl.DataFrame(rows()),
    "pyarrow rows": pa.Table.from_pandas(rows()),
}


@pytest.mark.parametrize("frame", WRITTEN.values(), ids=WRITTEN)
def test_sets_are_recognised_however_they_are_written(frame):
    with pytest.raises(AnnotationError) as refused:
        AnnotationTable.from_frame(frame)
    assert "multilabel='split', option='" in str(refused.value)
    assert "multilabel='join'" in str(refused.value)
    assert '"keep"' not in str(refused.value)
    joined = AnnotationTable.from_frame(frame, multilabel="join")
    assert joined.classes.tolist() == ["billing + safety", "policy", "policy + safety", "safety"]
    assert krippendorff_alpha(joined) == pytest.approx(ALPHA, abs=1e-6)
    for option in ("policy", "safety", "billing"):
        split = AnnotationTable.from_frame(frame, multilabel="split", option=option)
        assert split.classes.tolist() == ["no", "yes"]
        found = dict(
            zip(zip(split.instance, split.annotator, strict=True), split.label, strict=True)
        )
        right = {(t - 1, "abc".index(w)): int(option in labels) for t, w, labels in ANSWERS}
        assert found == right


def test_the_order_within_sets_and_repeats_never_matter():
    rng = np.random.default_rng(0)
    sets = [list(s) for k in (1, 2, 3) for s in itertools.combinations("xyzw", k)]
    answers = [(i, w, sets[rng.integers(len(sets))]) for i in range(40) for w in "abc"]
    shuffled = [(i, w, [*rng.permutation(labels), labels[0]]) for i, w, labels in answers]
    tables = [
        AnnotationTable.from_frame(long(";".join, made), multilabel="join")
        for made in (answers, shuffled)
    ]
    assert tables[0].equals(tables[1])


ONE_CLASS = {
    "places": ["New York; NY", "Boston; MA", "Chicago; IL", "New York; NY"],
    "states that recur": ["Salem, MA", "Boston, MA", "Lowell, MA", "Austin, TX"],
    "enumerations": ["cats", "dogs", "cats, dogs and birds", "cats", "cats, dogs and birds"],
    "free text": ["well, I like it", "no, it is bad", "good; really", "bad, and rude", "nice"],
    "paths": ["animal/cat", "animal/dog", "vehicle/car", "vehicle/bus", "animal/cat"],
    "decimal commas": ["3,5", "4,5", "4,0", "3,0", "3,5"],
    "fractions": ["3/5", "4/5", "5/5", "3/4", "4/4"],
    "dates": ["2024/01/02", "2024/02/01", "2023/01/02"],
    "grades": ["A+", "A", "B+", "B", "C++"],
    "not available": ["n/a", "yes", "no"],
    "tags": ["[POS]", "[NEG]", "{NEU}"],
}


@pytest.mark.filterwarnings("ignore:column 'label' holds 'n/a'")
@pytest.mark.parametrize("labels", ONE_CLASS.values(), ids=ONE_CLASS)
def test_a_label_that_merely_contains_a_separator_is_one_class(labels):
    found = best_evidence(Counter(labels))
    assert found is None or found.verdict == "classes"
    frame = pd.DataFrame({"task": range(len(labels)), "worker": "w", "label": labels})
    table = AnnotationTable.from_frame(frame)
    assert set(table.classes) == set(labels)


UNCLEAR = {
    "a third class": ["yes", "no", "yes/no", "yes"],
    "two attributes": ["red/large", "red/small", "blue/large", "blue/small"],
    "languages": ["C", "Java", "C / Java", "Java"],
}


@pytest.mark.parametrize("labels", UNCLEAR.values(), ids=UNCLEAR)
def test_what_cannot_be_told_is_asked(labels):
    frame = pd.DataFrame({"task": range(len(labels)), "worker": "w", "label": labels})
    with pytest.raises(AnnotationError, match=r"is unclear.*multilabel='none'"):
        AnnotationTable.from_frame(frame)
    texts = AnnotationTable.from_frame(frame, multilabel="none")
    assert set(texts.classes) == set(labels)
    assert set(AnnotationTable.from_frame(frame, classes=sorted(set(labels))).classes) == set(
        labels
    )
    assert AnnotationTable.from_frame(frame, multilabel="join").n_classes == len(set(labels))


def test_rare_sets_are_warned_about():
    labels = ["policy;safety", "billing;legal", "policy", "legal", "spam"]
    frame = pd.DataFrame({"task": range(5), "worker": "w", "label": labels})
    with pytest.warns(UserWarning, match=r"2 of 5 annotations contain ';'.*multilabel='none'"):
        assert AnnotationTable.from_frame(frame).n_classes == 5
    split = AnnotationTable.from_frame(frame, multilabel="split", option="billing")
    assert split.label.tolist() == [0, 1, 0, 0, 0]


def test_named_classes_tell_sets_from_classes():
    frame = long(" / ".join)
    with pytest.raises(AnnotationError, match="several labels in 3 of 6"):
        AnnotationTable.from_frame(frame, classes=["policy", "safety", "billing", "legal"])
    legal = {"classes": ["policy", "safety", "billing", "legal"], "multilabel": "split"}
    assert not AnnotationTable.from_frame(frame, **legal, option="legal").label.any()
    with pytest.raises(AnnotationError, match="option='tax' is not among the labels"):
        AnnotationTable.from_frame(frame, **legal, option="tax")


def test_empty_sets_are_answers_and_empty_cells_are_not():
    answers = [(1, "a", []), (1, "b", ["x", "y"]), (2, "a", ["y", "x"]), (2, "b", ["x"])]
    frame = long(list, answers)
    split = AnnotationTable.from_frame(frame, multilabel="split", option="x")
    assert split.label.tolist() == [0, 1, 1, 1]
    joined = AnnotationTable.from_frame(frame, multilabel="join")
    assert joined.classes.tolist() == ["(none)", "x", "x + y"]
    texts = pd.DataFrame({"task": [1, 1, 2, 2], "worker": [*"abab"]})
    texts["label"] = [None, "x;y", "y;x", "x"]
    with pytest.warns(UserWarning, match="1 of 4 rows have no label"):
        split = AnnotationTable.from_frame(texts, multilabel="split", option="y")
    assert split.label.tolist() == [1, 1, 0]
    assert split.n_annotators == 2


def test_lists_of_one_label_are_that_label():
    frame = long(lambda labels: [labels[0]])
    assert AnnotationTable.from_frame(frame).classes.tolist() == ["policy", "safety"]
    texts = long(lambda labels: f'["{labels[0]}"]')
    assert AnnotationTable.from_frame(texts).equals(AnnotationTable.from_frame(frame))


def test_passes_stay_passes():
    frame = pd.concat([long(";".join), pd.DataFrame([(2, "d", "unsure")], columns=frame_columns())])
    for options in ({"multilabel": "split", "option": "policy"}, {"multilabel": "join"}):
        table = AnnotationTable.from_frame(frame, abstain="unsure", **options)
        assert table.n_annotations == 6
        assert table.abstentions.tolist() == [[1, 3]]


def frame_columns():
    return ["task", "worker", "label"]


def test_repeated_answers_are_no_ticks():
    frame = rows()
    again = pd.concat([frame, frame.iloc[:1]])
    for options in ({}, {"multilabel": "join"}):
        with pytest.raises(AnnotationError, match=r"pairs are repeated.*duplicates="):
            AnnotationTable.from_frame(again, **options)
    sets = long(";".join)
    with pytest.raises(AnnotationError, match=r"1 .*pairs are repeated"):
        AnnotationTable.from_frame(pd.concat([sets, sets.iloc[:1]]), multilabel="join")
    last = pd.concat([sets, sets.iloc[:1].assign(label="billing")])
    table = AnnotationTable.from_frame(last, multilabel="join", duplicates="last")
    assert table.classes[table.label].tolist()[-1] == "billing"


def test_one_repeated_pair_may_be_a_second_answer():
    answers = [(t, w, ["x", "y"][:1]) for t in range(20) for w in "ab"]
    frame = pd.concat([long(";".join, answers), long(";".join, [(0, "a", ["y"])])])
    with pytest.raises(AnnotationError, match=r"It holds different labels.*duplicates='last'"):
        AnnotationTable.from_frame(frame)


def test_ticks_of_an_answer_must_agree_in_weight():
    frame = rows().assign(weight=1.0)
    table = AnnotationTable.from_frame(frame, weight="weight", multilabel="join")
    assert table.n_annotations == 6
    frame.loc[0, "weight"] = 2.0
    with pytest.raises(AnnotationError, match=r"differ in column 'weight' \(1.0, 2.0\)"):
        AnnotationTable.from_frame(frame, weight="weight", multilabel="join")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"multilabel": "all"}, "multilabel='all' is unknown"),
        ({"multilabel": "join", "option": "x"}, "needs multilabel='split'"),
        ({"option": "x"}, "needs multilabel='split'"),
        ({"multilabel": "split"}, "none is named.*option='policy'"),
        ({"multilabel": "split", "option": "tax"}, "'policy', 'safety', 'billing'"),
    ],
)
def test_choices_are_checked(options, says):
    with pytest.raises(AnnotationError, match=says):
        AnnotationTable.from_frame(long(";".join), **options)


def test_matrices_and_arrays_refuse_sets_too():
    cells = np.array([["x;y", "y;x"], ["x", "y"], ["y", "x;y"]], dtype=object)
    with pytest.raises(AnnotationError, match="several labels in 3 of 6"):
        AnnotationTable.from_matrix(cells)
    with pytest.raises(AnnotationError, match="several labels"):
        AnnotationTable.from_arrays([0, 0, 1], [0, 1, 0], ["x;y", "y;x", "x"])


def test_one_cell():
    assert listed_labels(" [ 'a, b', \"c'd\" ] ") == ["a, b", "c'd"]
    assert listed_labels('["a", null, " "]') == ["a"]
    assert listed_labels("[0 1]") == ["0", "1"]
    for text in ("", "a", "[", "[B-PER]", "{a}", '{"a": 1}', "[" * 5000 + "]" * 5000, '[["a"]]'):
        assert listed_labels(text) is None
    assert cut("a|b| |a", "|") == ["a", "b", "a"]
    assert name_of([]) == "(none)"


def test_joined_sets_are_read_as_they_were_written():
    table = AnnotationTable.from_frame(long(";".join), multilabel="join")
    assert AnnotationTable.from_frame(table.to_frame()).equals(table)


def test_many_sets_are_sets_and_no_free_text():
    rng = np.random.default_rng(3)
    options = [f"topic {i}" for i in range(8)]
    answers = [
        (i, w, [*rng.choice(options, rng.integers(1, 5), replace=False)])
        for i in range(30)
        for w in "abc"
    ]
    frame = long("; ".join, answers)
    with pytest.raises(AnnotationError, match=r"several labels.*multilabel='split'"):
        AnnotationTable.from_frame(frame)
    joined = AnnotationTable.from_frame(frame, multilabel="join")
    assert joined.n_classes == len({frozenset(labels) for _, _, labels in answers})
