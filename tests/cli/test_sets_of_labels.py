"""Answers that are sets of labels, on the command line."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from manyhands import LabelSetTable, load
from manyhands.exceptions import AnnotationError
from manyhands.io import read_gold_sets, read_label_sets
from tests.cli.conftest import done as finished
from tests.cli.conftest import run

SAID = {
    "ann": ["joy;awe", "fear", "joy", ""],
    "bob": ["joy", "fear;awe", "joy", ""],
    "cem": ["awe; joy", "fear", "joy;awe", "fear"],
}
OPTIONS = ["awe", "fear", "joy"]


def done(*arguments):
    """Output of a command that ends well."""
    return finished(*arguments).stdout


@pytest.fixture
def answers(tmp_path):
    path = tmp_path / "answers.csv"
    rows = [(f"t{i:02d}", who, sets[i % 4]) for i in range(40) for who, sets in SAID.items()]
    pd.DataFrame(rows, columns=["task", "worker", "labels"]).to_csv(path, index=False)
    return path


SETS = ("--multilabel", ";", "--none", "empty")


def test_describe(answers):
    found = json.loads(done("describe", answers, *SETS, "--json"))
    assert found["data"]["answers"] == 120
    assert found["data"]["answers_without_a_tick"] == 20
    assert [row["option"] for row in found["options"]] == OPTIONS
    assert set(found["agreement"]) == {"nominal", "jaccard", "masi"}
    assert "tick one option only" in found["warnings"][0]
    shown = done("describe", answers, *SETS)
    assert "different sets" in shown
    assert "alpha, masi" in shown


def test_agreement(answers):
    found = json.loads(done("agreement", answers, *SETS, "--json"))
    masi = found["krippendorff_alpha_masi"]
    assert masi["low"] < masi["value"] < masi["high"]
    assert [row["option"] for row in found["options"]] == OPTIONS
    assert "krippendorff alpha jaccard" in done("agreement", answers, *SETS)


def test_aggregate_into_a_folder(answers, tmp_path):
    out = tmp_path / "labels"
    gold = tmp_path / "gold.csv"
    gold.write_text("task,labels\nt00,joy;awe\nt01,fear\nt02,\n")
    found = json.loads(done("aggregate", answers, *SETS, "--gold", gold, "--out", out, "--json"))
    assert found["method"] == "MultiLabelDawidSkene"
    assert found["shared"] is True
    assert found["labels"][1]["labels"] == "fear"
    assert found["gold"]["cells with gold"] == 9  # With --none empty, t02 has no label.
    assert 0 < found["gold"]["micro-F1"] <= 1
    labels = pd.read_csv(out / "labels.csv", keep_default_na=False)
    columns = ["task", "labels", "least_sure", "p(awe)", "p(fear)", "p(joy)", "n_annotations"]
    assert labels.columns.tolist() == columns
    people = pd.read_csv(out / "annotators.csv")
    assert (people["sensitivity_low_95"] < people["sensitivity_high_95"]).all()
    assert pd.read_csv(out / "options.csv")["option"].tolist() == OPTIONS
    assert json.loads((out / "summary.json").read_text())["why"] == found["why"]
    assert load(out).posterior_.shape == (40, 3)


def test_what_is_known_and_how_it_is_decided(answers, tmp_path):
    known = tmp_path / "known.csv"
    known.write_text("task,option,gold\nt00,awe,0\nt01,fear,1\nt02,joy,\n")
    found = json.loads(done("aggregate", answers, *SETS, "--known", known, "--json"))
    assert found["labels"][0]["p(awe)"] == 0.0
    assert found["labels"][1]["p(fear)"] == 1.0
    more = json.loads(done("aggregate", answers, *SETS, "--rule", "f1", "--json"))
    assert {row["option"]: row["threshold"] for row in more["options"]}["awe"] != 0.5
    some = json.loads(done("aggregate", answers, *SETS, "--threshold", "0.9", "--json"))
    assert sum(row["n_instances"] for row in some["options"]) < sum(
        row["n_instances"] for row in more["options"]
    )
    vote = json.loads(done("aggregate", answers, *SETS, "--method", "majority-vote", "--json"))
    assert vote["method"] == "MultiLabelMajorityVote"
    out = tmp_path / "labels.csv"
    shown = done("aggregate", answers, *SETS, "--out", out, "--set", "share=false")
    assert "taken option by option" in shown
    assert len(pd.read_csv(out)) == 40


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("aggregate", "--compare"), "--compare is for single labels"),
        (("aggregate", "--rule", "median"), "--rule median is for single labels"),
        (("aggregate", "--to", "prodigy"), "--to is for single labels"),
        (("aggregate", "--rule", "f1", "--threshold", "0.3"), "each decide by themselves"),
        (("aggregate", "--method", "ebcc"), "multi-label-ebcc is unknown"),
        (("describe", "--scale", "ordinal"), "--scale is not for sets of labels"),
        (("agreement", "--classes", "joy,fear"), "'awe'.*not among the options.*--classes"),
        (("review",), "--multilabel ';' reads answers as sets of labels"),
    ],
)
def test_what_sets_do_not_have_is_refused(given, said, answers):
    command, *options = given
    result = run(command, answers, *SETS, *options)
    assert result.exit_code in (1, 2, 3)
    text = " ".join(result.output.split())
    assert re.search(said, text), text


def test_a_word_is_no_separator(answers):
    result = run("describe", answers, "--multilabel", "splitt")
    assert result.exit_code == 2
    assert "'splitt' is unknown" in " ".join(result.output.split()).replace("│ ", "")
    result = run("describe", answers, "--none", "empty")
    assert "--none empty is for sets of labels" in " ".join(result.output.split())


def test_empty_cells_and_columns_of_labels(answers):
    with pytest.warns(UserWarning, match="20 of 120 rows are empty"):
        assert read_label_sets(answers).n_annotations == 100
    frame = pd.read_csv(answers).rename(columns={"labels": "label"})
    frame.to_csv(answers, index=False)
    assert read_label_sets(answers, none="empty").n_annotations == 120
    many = pd.DataFrame({"task": range(1001), "worker": "a", "labels": range(1001)})
    many["labels"] = "t" + many["labels"].astype(str)
    many.to_csv(answers, index=False)
    with pytest.raises(AnnotationError, match=r"1,001 different labels.*multilabel="):
        read_label_sets(answers)


def test_check_boxes_of_label_studio(tmp_path):
    path = tmp_path / "project.json"
    tasks = []
    for i in range(3):
        made = []
        for who, choices in ((1, ["joy", "awe"]), (2, ["joy"])):
            value = {"choices": choices if i else choices[:1]}
            result = {"from_name": "mood", "to_name": "text", "type": "choices", "value": value}
            made.append({"id": 10 * i + who, "completed_by": who, "result": [result]})
        tasks.append({"id": i, "data": {"text": f"text {i}"}, "annotations": made})
    path.write_text(json.dumps(tasks))
    found = read_label_sets(path)
    assert isinstance(found, LabelSetTable)
    assert found.options.tolist() == ["awe", "joy"]
    assert sorted(found.ticks_per_answer().tolist()) == [1, 1, 1, 1, 2, 2]


def test_gold_that_cannot_be_is_refused(answers, tmp_path):
    table = read_label_sets(answers, none="empty")
    gold = tmp_path / "gold.csv"
    for text, said in (
        ("task,labels\nt00,happy\n", "gold names the option 'happy'"),
        ("task,option,gold\nt00,happy,1\n", "gold names the option 'happy'"),
        ("task,option,gold\nt00,joy,maybe\n", "the gold 'maybe' for the option 'joy'"),
        ("task,verdict\nt00,joy\n", "the columns are 'task', 'verdict'"),
        ("task,labels\nelsewhere,joy\n", "none of the 1 tasks with gold"),
    ):
        gold.write_text(text)
        with pytest.raises(AnnotationError, match=said):
            read_gold_sets(gold, table)
    gold.write_text("task,labels\nt00,joy\nelsewhere,joy\nt01,\n")
    with pytest.warns(UserWarning, match="1 rows of gold"):
        cells = read_gold_sets(gold, table)
    np.testing.assert_array_equal(cells[0], [0, 0, 1])
    assert (cells[1:] == -1).all()
