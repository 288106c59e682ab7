"""Who of the annotators is a person, and a file of people's own labels."""

import csv
import json

import pytest

from manyhands import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations

ROWS = [
    ("task", "worker", "label", "kind"),
    *((i, who, label, kind) for i in range(4) for who, label, kind in
      (("anna", "yes", "person"), ("ben", "no", "person"), ("gpt", "yes", "llm"),
       ("claude", "no", "llm"))),
]  # fmt: skip


@pytest.fixture
def long(tmp_path):
    path = tmp_path / "all.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(ROWS)
    return path


@pytest.fixture
def models(tmp_path):
    """JSON Lines of two models, and a spreadsheet's worth of people on part of the items."""
    paths = []
    for name, labels in (("gpt", "1223"), ("claude", "1233")):
        path = tmp_path / f"{name}.jsonl"
        rows = [{"item": f"i{i}", "label": int(label), "about": "x"}
                for i, label in enumerate(labels)]  # fmt: skip
        path.write_text("\n".join(map(json.dumps, rows)))
        paths.append(path)
    (tmp_path / "people.csv").write_text("item,anna,ben\ni0,1,1\ni1,2,4\ni3,3,3\n")
    return paths


def families(table):
    return dict(zip(table.annotators.tolist(), table.groups.tolist(), strict=True))


EXPECTED = {"anna": "", "ben": "", "gpt": "models", "claude": "models"}


def test_a_kind_of_person_is_no_family(long):
    table = read_annotations(long, group="kind")
    assert families(table) == {"anna": "", "ben": "", "gpt": "llm", "claude": "llm"}
    told = AnnotationTable.from_frame(table.to_frame(), group="group")
    assert families(told) == families(table)


@pytest.mark.parametrize("people", ["anna,ben", ["anna", "ben"]])
def test_people_by_name_leave_the_others_as_one_family(long, people):
    assert families(read_annotations(long, people=people)) == EXPECTED


def test_a_value_of_the_column_names_people(long):
    text = long.read_text().replace("person", "staff")
    long.write_text(text)
    table = read_annotations(long, group="kind", people="staff")
    assert families(table) == {"anna": "", "ben": "", "gpt": "llm", "claude": "llm"}


def test_person_names_those_whom_the_column_calls_people(long):
    told = read_annotations(long, group="kind", people="person")
    assert families(told) == {"anna": "", "ben": "", "gpt": "llm", "claude": "llm"}


def test_a_file_of_people_joins_the_models(models, tmp_path):
    table = read_annotations(
        models, task="item", annotator_from="file", people=tmp_path / "people.csv"
    )
    assert families(table) == EXPECTED
    assert table.classes.astype(str).tolist() == ["1", "2", "3", "4"]
    labels = table.select(annotators=["ben"]).to_frame("pyarrow").to_pylist()
    assert {row["task"]: str(row["label"]) for row in labels} == {"i0": "1", "i1": "4", "i3": "3"}
    assert table.n_instances == 4


def test_a_long_file_of_people_joins_the_models(models, tmp_path):
    (tmp_path / "people.csv").write_text("item,worker,label\ni0,anna,1\ni1,ben,2\n")
    table = read_annotations(
        models, task="item", annotator_from="file", people=tmp_path / "people.csv"
    )
    assert families(table) == EXPECTED


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("item,worker,label,chosen\ni0,anna,1,queue\n", "a review queue chose"),
        ("item,anna,ben\nj0,1,1\nj1,2,2\n", "share no item"),
        ("item,worker,label\ni0,gpt,1\ni1,ben,2\n", "'gpt'"),
    ],
)
def test_files_of_people_that_do_not_fit_are_refused(models, tmp_path, text, says):
    (tmp_path / "people.csv").write_text(text)
    with pytest.raises(AnnotationError, match=says):
        read_annotations(models, task="item", annotator_from="file", people=tmp_path / "people.csv")


@pytest.mark.parametrize(
    ("people", "says"),
    [
        ("anna,carl", "people='carl' is neither an annotator nor a family"),
        ("folk.csv", "there is no such file"),
        ([], "people= is empty"),
    ],
)
def test_unknown_people_are_named(long, people, says):
    with pytest.raises(AnnotationError, match=says):
        read_annotations(long, people=people)


def test_the_table_of_people_and_models_is_a_table_like_others(models, tmp_path):
    table = read_annotations(
        models, task="item", annotator_from="file", people=str(tmp_path / "people.csv")
    )
    assert isinstance(table, AnnotationTable)
    assert table.n_annotations == 14
