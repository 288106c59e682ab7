"""The explorer of sets of labels, without a browser: the desk, the page, the command."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from manyhands.exceptions import AnnotationError
from manyhands.explore.desk import Choice, Conflict
from manyhands.explore.inputs import open_desk
from manyhands.io import read_gold, read_gold_sets, read_label_sets
from tests.cli.conftest import done, done_json, run
from tests.explore.test_explore import HOSTILE, OWN, WRITING
from tests.explore.test_explore import ask as ask_app

SETS = ("--multilabel", ";", "--none", "empty")
SAID = {
    "ann": ["joy;awe", "fear", "joy", ""],
    "bob": ["joy", "fear;awe", "joy", ""],
    "cem": ["awe; joy", "fear", "joy;awe", "fear"],
}
OPTIONS = ["awe", "fear", "joy"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Answers, and the folder of their sets."""
    place = tmp_path_factory.mktemp("sets")
    rows = [
        (f"t{i:02d}", who, sets[i % 4], f"text {i} {HOSTILE}")
        for i in range(40)
        for who, sets in SAID.items()
    ]
    frame = pd.DataFrame(rows, columns=["task", "worker", "labels", "text"])
    frame.to_csv(place / "answers.csv", index=False)
    done("aggregate", place / "answers.csv", *SETS, "--out", place / "labels")
    return place


@pytest.fixture
def desk(made):
    (made / "labels" / "corrections.jsonl").unlink(missing_ok=True)
    with opened(made) as found:
        yield found


def opened(made):
    options = {"by": "anna", "sets": True, "multilabel": ";", "none": "empty"}
    return open_desk(made / "labels", made / "answers.csv", **options)


def ask(desk, path, method="GET", **form):
    headers = OWN if method == "GET" else WRITING
    return ask_app(desk, path, method, headers, **form)


def chosen(desk, row):
    return desk.answers.value(desk.item(row).answer)


def test_a_set_is_corrected_kept_and_read_as_known(desk, made):
    assert desk.item(0).version == 0
    record = desk.decide(0, 0, (1, 2))
    assert (record.label, record.was, record.action) == (["fear", "joy"], ["awe", "joy"], "correct")
    assert chosen(desk, 0) == ["fear", "joy"]
    with pytest.raises(Conflict):
        desk.decide(0, 0, ())
    assert desk.decide(1, 0, ()).label == []
    same = desk.decide(2, 0, desk.item(2).answer)
    assert same.action == "confirm"
    desk.decide(3, 0, None)
    assert desk.counts() | {"review": 0} == {"open": 36, "done": 3, "skipped": 1, "review": 0}
    path = made / "labels" / "corrections.jsonl"
    table = read_label_sets(made / "answers.csv", none="empty")
    cells = read_gold_sets(path, table)
    np.testing.assert_array_equal(cells[:2], [[0, 1, 1], [0, 0, 0]])
    assert (cells[3:] == -1).all()
    with pytest.raises(AnnotationError, match=r"of sets of labels.*multilabel=';'"):
        read_gold(path)
    desk.undo(0, 1)
    assert chosen(desk, 0) == ["awe", "joy"]
    assert (read_gold_sets(path, table)[0] == -1).all()


def test_decisions_stand_when_it_is_opened_again(made):
    (made / "labels" / "corrections.jsonl").unlink(missing_ok=True)
    with opened(made) as first:
        first.decide(5, 0, (0,))
    with opened(made) as again:
        assert chosen(again, 5) == ["awe"]
        assert again.answers.known[5]
        found = again.answers.reviewed().take(again.answers.known)
        assert found.labels == [["awe"]]
        assert found.actions.tolist() == ["accept"]
    out = made / "reviewed.json"
    call = ("explore", made / "labels", "--annotations", made / "answers.csv", *SETS)
    told = done_json(*call, "--out", out, "--to", "label-studio", "--reviewed")
    assert (told["sets"], told["reviewed"]) == (1, 1)
    (task,) = json.loads(out.read_text())
    assert task["predictions"][0]["result"][0]["value"]["choices"] == ["awe"]
    known = made / "labels" / "corrections.jsonl"
    found = done_json("aggregate", made / "answers.csv", *SETS, "--known", known)
    assert {row["task"]: row["labels"] for row in found["labels"]}["t05"] == "awe"


@pytest.mark.parametrize("none", ["NONE", "empty"])
def test_a_set_without_labels_is_written_so_that_it_is_read_back(made, tmp_path, none):
    answers, folder = tmp_path / "answers.csv", tmp_path / "labels"
    word = "" if none == "empty" else none
    rows = pd.read_csv(made / "answers.csv", keep_default_na=False)
    rows["labels"] = rows["labels"].replace("", word)
    rows.to_csv(answers, index=False)
    reading = ("--multilabel", ";", "--none", none)
    done("aggregate", answers, *reading, "--out", folder)
    options = {"by": "anna", "sets": True, "multilabel": ";", "none": none}
    with open_desk(folder, answers, **options) as desk:
        assert chosen(desk, 3) == []  # Two of three ticked nothing.
        desk.decide(0, 0, ())
        desk.decide(3, 0, (1,))
        desk.decide(7, 0, desk.item(7).answer)
        tables = {name: ask(desk, f"/export/{name}.csv")[2] for name in ("labels", "corrections")}
    call = ("explore", folder, "--annotations", answers, *reading)
    done(*call, "--out", tmp_path / "reviewed.csv", "--reviewed")
    tables["reviewed"] = (tmp_path / "reviewed.csv").read_text()
    table = read_label_sets(answers, none=none)
    for name, text in tables.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(text)
        cells = pd.read_csv(path, keep_default_na=False, dtype={"task": str})
        own = dict(
            zip(cells["task"], cells["labels" if "labels" in cells else "label"], strict=True)
        )
        assert [own[f"t{i:02d}"] for i in (0, 3, 7)] == [word, "fear", word]
        if "labels" in cells:
            gold = read_gold_sets(path, table, none=none)
            assert gold[[0, 3, 7]].tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0]]


def test_the_page_has_a_box_and_a_key_for_each_option(desk):
    status, _, page = ask(desk, "/item/0")
    assert status == 200
    boxes = re.findall(
        r'<input type="checkbox" name="option" value="(\d)" data-key="(\d)"( checked)?>', page
    )
    assert boxes == [("0", "1", " checked"), ("1", "2", ""), ("2", "3", " checked")]
    assert "ticked by 2 of 3" in page
    assert "text 0" in page
    assert "<script>alert" not in page
    assert "Keys" in page


def test_the_page_saves_skips_and_takes_back(desk):
    first = int(desk.rows(Choice())[0])
    form = {"row": first, "version": 0, "on": "", "back": "", "do": "save"}
    status, headers, _ = ask(desk, "/decide", "POST", **form, option=1)
    assert (status, headers["location"]) == (303, "/")
    assert chosen(desk, first) == ["fear"]
    assert ask(desk, "/decide", "POST", **form, option=1)[0] == 409
    page = ask(desk, "/")[2]
    assert "Saved" in page
    assert ask(desk, "/undo", "POST", row=first, version=1, back="")[0] == 303
    assert not desk.answers.known[first]
    assert ask(desk, "/decide", "POST", **form | {"version": 2})[0] == 303  # Nothing applies.
    assert chosen(desk, first) == []
    assert desk.answers.known[first]
    second = int(desk.rows(Choice())[0])
    ask(desk, "/decide", "POST", row=second, version=0, back="", on="", do="skip")
    assert desk.counts()["skipped"] == 1
    for bad in ({"row": 99}, {"option": 7}, {"row": "x"}):
        assert ask(desk, "/decide", "POST", **form | {"version": 0} | bad)[0] in (400, 404)


def test_a_set_can_be_gold(desk, made):
    row = int(desk.rows(Choice())[0])
    form = {"row": row, "version": 0, "on": "", "back": "", "do": "decide", "gold": 1}
    assert ask(desk, "/decide", "POST", **form, option=2)[0] == 303
    assert desk.item(row).last.action == "gold"
    assert "gold</span>" in ask(desk, f"/item/{row}")[2]
    cells = read_gold_sets(desk.journal.path, read_label_sets(made / "answers.csv", none="empty"))
    assert cells[row].tolist() == [0, 0, 1]


def test_what_is_shown_can_be_chosen(desk):
    held = desk.rows(Choice(label=1))
    assert all(1 in desk.item(int(row)).answer for row in held)
    ticked = desk.rows(Choice(given=1, state="all"))
    assert set(held) <= set(ticked)
    assert Choice(order="random").chosen == "random"
    assert Choice(order="random", label=1).chosen == "queue"
    assert ask(desk, "/?label=9")[0] == 400
    assert ask(desk, "/?state=no")[0] == 400
    assert "Nothing is left here" in ask(desk, "/?state=skipped")[2]


@pytest.mark.parametrize(
    "name", ["labels.csv", "corrections.csv", "label-studio.json", "prodigy.jsonl"]
)
def test_downloads(desk, name):
    desk.decide(0, 0, (1,))
    status, _, body = ask(desk, f"/export/{name}")
    assert status == 200
    assert "fear" in body
    assert ask(desk, "/export/other.csv")[0] == 404


def test_folders_of_another_kind_are_refused(made, tmp_path, desk):
    with (
        pytest.raises(AnnotationError, match=r"holds sets of labels.*multilabel=';'"),
        open_desk(made / "labels", made / "answers.csv", by="anna"),
    ):
        pass
    rows = [(f"t{k}", who, "no" if k % 3 else "yes") for k in range(40) for who in SAID]
    frame = pd.DataFrame(rows, columns=["task", "worker", "label"])
    frame.to_csv(tmp_path / "classes.csv", index=False)
    done("aggregate", tmp_path / "classes.csv", "--out", tmp_path / "classes")
    call = ("explore", tmp_path / "classes", "--annotations", tmp_path / "classes.csv")
    other = run(*call, "--multilabel", ";")
    assert "leave --multilabel out" in " ".join(other.output.split())
    other = run("explore", made / "labels", "--annotations", made / "answers.csv", *SETS,
                "--known", made / "answers.csv")  # fmt: skip
    assert "give known sets to the command aggregate" in " ".join(other.output.split())
