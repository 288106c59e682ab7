"""Labels that a rule chose, such as median grades: another class may be more probable."""

from pathlib import Path

import numpy as np
import pytest

from manyhands import AnnotationTable, review_queue
from manyhands.explore.inputs import open_desk
from manyhands.report.first import told_of_label
from tests.cli.conftest import done, write_csv
from tests.explore.test_explore import ask

GRADES = [1, 2, 3, 4, 5]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_queue_says_where_the_suggestion_is_more_probable_than_the_middle_grade():
    table = AnnotationTable.from_matrix(np.array([[0, 4, 4], [2, 2, 1]]), classes=range(5))
    proba = [[0.43, 0.12, 0.04, 0.03, 0.38], [0.0, 0.2, 0.8, 0.0, 0.0]]
    queue = review_queue(proba, table.with_scale("ordinal"))
    assert (queue.labels.tolist(), queue.suggestions.tolist()) == ([1, 2], [0, 1])
    assert queue.suggestion_probability.tolist() == [0.43, 0.2]
    assert (queue.is_middle.tolist(), queue.n_less_probable) == ([True, True], 1)
    other = review_queue(proba, table.with_scale("ordinal"), labels=np.array([4, 2]))
    assert (other.is_middle.tolist(), other.n_less_probable) == ([False, True], 1)
    names = review_queue(proba, table.with_scale("nominal"))
    assert (names.is_middle, names.n_less_probable) == (None, 0)


def test_a_label_is_said_to_be_the_most_probable_only_if_it_is():
    row = {"label": "b", "score": 0.7, "suggestion": "a", "suggestion_probability": 0.4}
    assert told_of_label(row) == (
        "undecided: “b” is the label (30\u202f%), and “a” is more probable (40\u202f%)"
    )
    assert "is the most probable" in told_of_label(row | {"suggestion_probability": 0.2})


@pytest.fixture
def split():
    """Grades of six annotators, who give any grade in a third of the cases."""
    rng = np.random.default_rng(1)
    rows = [("task", "worker", "label")]
    for i in range(150):
        votes = np.where(rng.random(6) < 0.35, rng.integers(1, 6, 6), rng.integers(1, 6))
        rows += [(f"t{i}", f"w{r}", votes[r]) for r in rng.choice(6, 4, replace=False)]
    write_csv(Path("A.csv"), rows)


def shown(desk, row):
    page = ask(desk, f"/item/{row}?state=all")[2]
    return page[page.index('<h2 id="decide"') : page.index("</form>", page.index("<h2 id"))]


@pytest.mark.parametrize("how", [(), ("--rule", "balanced")])
def test_enter_confirms_no_label_that_is_less_probable_than_another(split, how):
    done("aggregate", "A.csv", "--ordered", *how, "--out", "labels")
    with open_desk(Path("labels"), Path("A.csv"), by="anna") as desk:
        items = [desk.item(row) for row in range(desk.table.n_instances)]
        behind = [each for each in items if max(each.told) > each.told[each.answer]]
        assert len(behind) > 1
        for each in items:
            page = shown(desk, each.row)
            assert ('data-key="Enter" disabled' in page) == (each in behind)
        each = behind[0]
        top = int(np.argmax(each.told))
        page = shown(desk, each.row)
        assert f'More probable: <bdi class="name">{GRADES[top]}</bdi>' in page
        is_middle = np.cumsum(desk.answers.posterior[each.row])[each.answer] >= 0.5
        assert ("Middle grade" in page) == (not how or is_middle)
        listed = ask(desk, "/list?state=all")[2]
        assert f'(more probable: <bdi class="name">{GRADES[top]}</bdi>)' in listed
        assert "most grades away from the truth come first" in listed
        assert "come first" not in ask(desk, "/list?state=all&order=random")[2]
        # Once a person has chosen, the label can be confirmed like any other.
        desk.decide(each.row, each.version, top, shown=each.answer)
        assert 'data-key="Enter" disabled' not in shown(desk, each.row)


def test_report_and_commands_say_that_another_grade_is_more_probable(split):
    told = "another grade is more probable than the label"
    assert told in done("aggregate", "A.csv", "--ordered", "--out", "labels").stdout
    assert told in done("review", "A.csv", "--ordered", "--model", "labels").stdout
    assert told in Path("labels/report.html").read_text(encoding="utf-8")
    assert told not in done("aggregate", "A.csv", "--ordered", "--rule", "argmax").stdout
    done("aggregate", "A.csv", "--ordered", "--rule", "argmax", "--out", "argmax")
    assert told not in Path("argmax/report.html").read_text(encoding="utf-8")
    balanced = done("aggregate", "A.csv", "--ordered", "--rule", "balanced").stdout
    assert "because the decision rule weighs mistakes differently" in balanced
