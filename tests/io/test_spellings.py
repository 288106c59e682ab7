"""Spellings of labels that mean one class: mapping= and lowercase=."""

import json

import pandas as pd
import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_export, read_gold
from manyhands.io.label_values import read_mapping
from manyhands.scale.ingest import ingest

ROWS = [
    *[(1, "a", "Yes"), (1, "b", "yes"), (1, "c", "YES ")],
    *[(2, "a", "no"), (2, "b", "nope"), (2, "c", "No")],
    *[(3, "a", "Unsure"), (3, "b", "no"), (3, "c", "yes")],
]


@pytest.fixture
def votes(tmp_path):
    path = tmp_path / "votes.csv"
    pd.DataFrame(ROWS, columns=["task", "worker", "label"]).to_csv(path, index=False)
    return path


@pytest.fixture
def mapping(tmp_path):
    path = tmp_path / "map.csv"
    path.write_text("from,to\nnope,no\n")
    return path


def labels(table):
    return sorted(table.classes[table.label].tolist())


def test_lower_case_and_a_mapping_merge_spellings(votes, mapping, caplog):
    caplog.set_level("INFO", "manyhands")
    for given in (mapping, str(mapping), {"NOPE ": "No"}):
        table = read_annotations(votes, lowercase=True, mapping=given, abstain="UNSURE")
        assert table.classes.tolist() == ["no", "yes"]
        assert labels(table) == ["no"] * 4 + ["yes"] * 4
        assert len(table.abstentions) == 1
    assert "5 of 9 labels are read as another spelling" in caplog.text
    assert "'nope' as 'no' (1)" in caplog.text


def test_a_mapping_alone_changes_nothing_else(votes):
    with pytest.warns(UserWarning, match=r"differ only in case.*lowercase=True"):
        table = read_annotations(votes, mapping={"nope": "no", "YES ": "Yes"})
    assert table.classes.tolist() == ["No", "Unsure", "Yes", "no", "yes"]


def test_a_swap_is_one_step(tmp_path):
    path = tmp_path / "swap.csv"
    path.write_text("task,worker,label\n1,a,x\n1,b,y\n2,a,x\n2,b,x\n")
    swap = {"x": "y", "y": "x"}
    table = read_annotations(path, mapping=swap)
    assert labels(table) == ["x", "y", "y", "y"]
    store = ingest(path, tmp_path / "store", mapping=swap)
    assert labels(store[:]) == ["x", "y", "y", "y"]


def test_codes_are_mapped_as_their_digits(tmp_path):
    path = tmp_path / "codes.parquet"
    frame = pd.DataFrame({"task": [1, 1, 2, 2], "worker": list("abab"), "label": [1, 2, 9, 2]})
    frame.to_parquet(path)
    assert read_annotations(path, mapping={"9": "1"}).classes.tolist() == [1, 2]
    named = read_annotations(path, mapping={9: "low", 1: "low", 2: "high"})
    assert named.classes.tolist() == ["low", "high"]


def test_classes_gold_and_exports_are_spelt_alike(tmp_path, votes):
    table = read_annotations(
        votes, lowercase=True, mapping={"nope": "No", "unsure": "No"}, classes=["Yes", "No"]
    )
    assert table.classes.tolist() == ["yes", "no"]
    gold = tmp_path / "gold.csv"
    gold.write_text("task,label\n1,YES\n2,Nope\n")
    assert read_gold(gold, lowercase=True, mapping={"nope": "no"}).labels.tolist() == ["yes", "no"]
    answers = [
        {"text": f"t{i}", "answer": "accept", "accept": [label], "_annotator_id": who,
         "_input_hash": i, "_task_hash": i, "options": [{"id": "Yes"}, {"id": "yes"}, {"id": "no"}]}
        for i, who, label in [(1, "a", "Yes"), (1, "b", "yes"), (2, "a", "no"), (2, "b", "no")]
    ]  # fmt: skip
    path = tmp_path / "prodigy.jsonl"
    path.write_text("\n".join(map(json.dumps, answers)))
    export = read_export(path, lowercase=True)
    assert labels(export.annotations) == ["no", "no", "yes", "yes"]


def test_spellings_that_no_label_has_are_named(votes):
    with pytest.warns(
        UserWarning, match="1 spellings that no label has, and that have no effect: 'nein'"
    ):
        read_annotations(votes, mapping={"nein": "no", "nope": "no"}, lowercase=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("spelling,to\na,b\n", "there is no column 'from'"),
        ("from,to\na,\n", "row 2 has an empty cell"),
        ("from,to\na,b\na,c\n", "row 3 gives 'a' a second meaning"),
    ],
)
def test_bad_mappings_are_refused(tmp_path, text, says):
    path = tmp_path / "map.csv"
    path.write_text(text)
    with pytest.raises(AnnotationError, match=says):
        read_mapping(path)


def test_bad_arguments_are_refused(tmp_path, votes):
    with pytest.raises(AnnotationError, match="lowercase='yes' is neither True nor False"):
        read_annotations(votes, lowercase="yes")
    with pytest.raises(AnnotationError, match="gives 'a' two meanings"):
        read_annotations(votes, mapping={"A": "x", "a": "y"}, lowercase=True)
    with pytest.raises(FileNotFoundError):
        read_annotations(votes, mapping=tmp_path / "absent.csv")
