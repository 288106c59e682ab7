"""Files with several labels in an answer: every layout and every reader."""

import json

import numpy as np
import openpyxl
import pandas as pd
import pytest

from manyhands.agreement import krippendorff_alpha
from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_export, read_gold
from manyhands.scale.ingest import ingest
from tests.annotations.test_label_sets import ALPHA, ANSWERS, long, rows
from tests.io.exports.conftest import cells, made, studio, write

SETS = {(str(task), worker): " + ".join(sorted(labels)) for task, worker, labels in ANSWERS}


def csv(path, frame, **options):
    frame.to_csv(path, index=False, **options)
    return path


def workbook(path, frame):
    book = openpyxl.Workbook()
    for row in [list(frame.columns), *frame.values.tolist()]:
        book.active.append(row)
    book.save(path)
    return path


def wide(path):
    frame = long("; ".join).pivot(index="task", columns="worker", values="label")
    return csv(path, frame.reset_index())


def tasks(path):
    found = {}
    for task, worker, labels in ANSWERS:
        found.setdefault(task, []).append(made(worker, *labels))
    return write(path, [studio(*answers, number=task) for task, answers in found.items()])


def records(path):
    return write(path, [dict(zip(("task", "worker", "label"), a, strict=True)) for a in ANSWERS])


def parallel(path):
    made = []
    for task in (1, 2):
        own = [a for a in ANSWERS if a[0] == task]
        made.append({"id": task, "annotators": [a[1] for a in own], "labels": [a[2] for a in own]})
    return write(path, made)


LAYOUTS = {
    "csv": lambda at: csv(at / "a.csv", long(";".join)),
    "tsv": lambda at: csv(at / "a.tsv", long(", ".join), sep="\t"),
    "csv of JSON": lambda at: csv(at / "a.csv", long(json.dumps)),
    "csv of Python": lambda at: csv(at / "a.csv", long(list)),
    "rows": lambda at: csv(at / "a.csv", rows()),
    "xlsx": lambda at: workbook(at / "a.xlsx", long("\n".join)),
    "xlsx rows": lambda at: workbook(at / "a.xlsx", rows()),
    "jsonl": lambda at: records(at / "a.jsonl"),
    "lists": lambda at: parallel(at / "a.json"),
    "Label Studio": lambda at: tasks(at / "p.json"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_sets(tmp_path, layout):
    path = LAYOUTS[layout](tmp_path)
    for read in (read_annotations, read_export):
        with pytest.raises(AnnotationError, match=r"multilabel='split', option='\w+'"):
            read(path)
    joined = read_annotations(path, multilabel="join")
    assert cells(joined) == SETS
    assert krippendorff_alpha(joined) == pytest.approx(ALPHA, abs=1e-6)
    assert read_export(path, multilabel="join").annotations.equals(joined)
    tables = read_export(path, multilabel="split").tables
    assert list(tables) == ["billing", "policy", "safety"]
    for option, table in tables.items():
        right = {at: "yes" if option in name.split(" + ") else "no" for at, name in SETS.items()}
        assert cells(table) == right
        assert read_annotations(path, multilabel="split", option=option).equals(table)
        named = read_export(path, multilabel="split", option=option)
        assert named.annotations.equals(table)
        assert list(named.tables) == [option]
    with pytest.raises(AnnotationError, match="asks about one label at a time"):
        read_annotations(path, multilabel="split")
    with pytest.raises(AnnotationError, match="option='tax' is not among the labels"):
        read_annotations(path, multilabel="split", option="tax")


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    for frame in (long(list), long(";".join), rows()):
        frame.to_parquet(tmp_path / "a.parquet")
        with pytest.raises(AnnotationError, match="multilabel='join'"):
            read_annotations(tmp_path / "a.parquet")
        assert cells(read_annotations(tmp_path / "a.parquet", multilabel="join")) == SETS
        assert list(read_export(tmp_path / "a.parquet", multilabel="split").tables) == [
            *("billing", "policy", "safety")
        ]


def test_wide_tables(tmp_path):
    path = wide(tmp_path / "w.csv")
    named = {"format": "wide", "annotators": ["a", "b", "c"]}
    with pytest.raises(AnnotationError, match=r"several labels in 3 of 6.*multilabel='split'"):
        read_annotations(path, **named)
    assert cells(read_annotations(path, **named, multilabel="join")) == SETS
    split = read_annotations(path, **named, multilabel="split", option="billing")
    assert split.classes[split.label].tolist().count("yes") == 1


@pytest.mark.filterwarnings("ignore:.*left out")
def test_annotators_who_tick_are_recognised_by_their_labels(tmp_path):
    rng = np.random.default_rng(0)
    people = ["ann", "bob", "cy"]
    answers = [
        (i, w, [*rng.choice([*"pqrst"], rng.integers(1, 4), replace=False)])
        for i in range(40)
        for w in people
    ]
    for separator in (";", ", ", "|"):
        frame = long(separator.join, answers).pivot(index="task", columns="worker", values="label")
        path = csv(tmp_path / "w.csv", frame.reset_index())
        with pytest.raises(AnnotationError, match="several labels"):
            read_annotations(path, format="wide")
        table = read_annotations(path, format="wide", multilabel="split", option="p")
        assert table.annotators.tolist() == people
        assert table.n_annotations == 120


@pytest.mark.data
@pytest.mark.parametrize("name", ["ml_semi.csv", "ml_rows.csv"])
def test_the_case_of_cells_in_another_order(data_home, name):
    path = data_home.parent / "cases" / "multilabel-cells-order" / name
    with pytest.raises(AnnotationError, match="multilabel='split', option="):
        read_annotations(path)
    joined = read_annotations(path, multilabel="join")
    assert joined.n_classes == 4
    assert krippendorff_alpha(joined) == pytest.approx(0.231, abs=5e-4)
    assert list(read_export(path, multilabel="split").tables) == ["billing", "policy", "safety"]


def test_empty_lists_are_empty_sets(tmp_path):
    answers = [(1, "a", []), (1, "b", ["x", "y"]), (2, "a", ["y", "x"]), (2, "b", ["x"])]
    path = csv(tmp_path / "a.csv", long(json.dumps, answers))
    right = {("1", "a"): "no", ("1", "b"): "yes", ("2", "a"): "yes", ("2", "b"): "yes"}
    assert cells(read_annotations(path, multilabel="split", option="x")) == right
    assert cells(read_export(path, multilabel="split").tables["x"]) == right
    joined = read_export(path, multilabel="join").annotations
    assert cells(joined)["1", "a"] == "(none)"


def test_passes_and_empty_cells_of_exports(tmp_path):
    frame = pd.DataFrame(
        [*long(";".join).values.tolist(), [2, "d", "unsure"], [1, "d", ""]],
        columns=["task", "worker", "label"],
    )
    path = csv(tmp_path / "a.csv", frame)
    export = read_export(path, abstain="unsure", multilabel="split")
    assert len(export.tables["policy"].abstentions) == 1
    assert export.tables["policy"].n_annotations == 6
    assert [lost.reason for lost in export.left_out] == ["no answer was given"]
    with pytest.warns(UserWarning, match="1 of 8 rows have no label"):
        table = read_annotations(path, abstain="unsure", multilabel="split", option="policy")
    assert (table.n_annotations, len(table.abstentions)) == (6, 1)


def test_a_store_of_an_option(tmp_path):
    path = csv(tmp_path / "a.csv", rows())
    store = ingest(path, tmp_path / "s", multilabel="split", option="policy")
    table = read_annotations(path, multilabel="split", option="policy")
    assert cells(store[:]) == cells(table)
    with pytest.raises(AnnotationError, match="several labels in 3 of 6"):
        ingest(csv(tmp_path / "b.csv", long(";".join)), tmp_path / "t")
    texts = ingest(tmp_path / "b.csv", tmp_path / "u", multilabel="none")
    assert texts.n_classes == 5


def test_cells_are_not_cut_in_pieces_of_a_file(tmp_path):
    answers = [(i, w, labels) for i in range(300) for _, w, labels in ANSWERS[:3]]
    path = csv(tmp_path / "a.csv", long(";".join, answers))
    with pytest.raises(AnnotationError, match=r"cells of several labels.*fit in memory"):
        ingest(path, tmp_path / "s", multilabel="join", memory=2**14)


def test_gold_is_read_as_the_annotations_are(tmp_path):
    path = write(tmp_path / "gold.csv", [["task", "label"], [1, "safety;policy"], [2, "policy"]])
    gold = read_gold(path)
    assert gold.of_sets("join", None).labels.tolist() == ["policy + safety", "policy"]
    assert gold.of_sets("split", "safety").labels.tolist() == ["yes", "no"]
    assert gold.of_sets("error", None) is gold
    answered = read_gold(write(tmp_path / "g.csv", [["task", "label"], [1, "yes"], [2, "no"]]))
    assert answered.of_sets("split", "safety") is answered
    truth = made(9, "policy", "safety", ground_truth=True)
    task = studio(made(1, "policy"), made(2, "policy", "safety"), truth)
    export = read_export(write(tmp_path / "p.json", [task]), multilabel="split", option="safety")
    assert export.gold.labels.tolist() == ["yes"]


def test_labels_within_sets_have_meanings(tmp_path):
    answers = [
        (t, w, [label.upper() if w == "a" else label for label in ls]) for t, w, ls in ANSWERS
    ]
    path = csv(tmp_path / "a.csv", long(";".join, answers))
    assert cells(read_annotations(path, multilabel="join", lowercase=True)) == SETS
    assert cells(read_export(path, multilabel="join", lowercase=True).annotations) == SETS
    mapping = {"POLICY": "policy", "SAFETY": "safety"}
    assert cells(read_annotations(path, multilabel="join", mapping=mapping)) == SETS
    assert cells(read_export(path, multilabel="join", mapping=mapping).annotations) == SETS
