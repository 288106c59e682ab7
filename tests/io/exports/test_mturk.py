"""Result files of Mechanical Turk."""

from manyhands.io import read_annotations, read_export
from tests.io.exports.conftest import cells, write


def mturk(*rows, more=()):
    return [["HITId", "WorkerId", "AssignmentStatus", "SubmitTime", *more], *rows]


def test_mturk_switches_become_one_question_and_an_empty_answer_an_abstention(tmp_path):
    when = "Wed Jan 24 09:48:10 PST 2018"
    rows = mturk(
        ["h1", "w1", "Approved", when, "true", "false"],
        ["h1", "w2", "Rejected", when, "false", "true"],
        ["h1", "w3", "Approved", when, "false", "false"],
        more=["Answer.mood.good", "Answer.mood.bad"],
    )
    export = read_export(write(tmp_path / "b.csv", rows))
    assert export.question == "mood"
    assert cells(export.annotations) == {("h1", "w1"): "good", ("h1", "w2"): "bad"}
    assert export.annotations.abstentions.tolist() == [[0, 2]]
    assert export.ended.tolist() == [1516816090.0] * 2
    assert read_annotations(tmp_path / "b.csv", drop_rejected=False).n_annotations == 2


def test_mturk_hits_of_several_items_are_taken_apart(tmp_path):
    columns = ["Input.text_1", "Input.text_2", "Answer.q_1", "Answer.q_2"]
    rows = mturk(["h1", "w1", "Approved", "", "A", "B", "x", "y"], more=columns)
    export = read_export(write(tmp_path / "b.csv", rows), items=r"_(\d+)$")
    assert cells(export.annotations) == {("h1/1", "w1"): "x", ("h1/2", "w1"): "y"}
    assert export.items.columns == {"text": ["A", "B"]}
    by_text = read_annotations(tmp_path / "b.csv", items=r"_(\d+)$", task="Input.text")
    assert by_text.instances.tolist() == ["A", "B"]


def test_columns_named_by_hand_make_any_table_a_long_one(tmp_path):
    rows = mturk(["h1", "w1", "", "", "x"], ["h2", "w1", "", "", "y"], more=["Answer.q"])
    path = write(tmp_path / "b.csv", rows)
    table = read_annotations(path, task="HITId", worker="WorkerId", label="Answer.q")
    assert cells(table) == cells(read_annotations(path))
