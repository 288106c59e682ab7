"""How many labels are recommended for what: one answer of aggregate, report and explorer."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from manyhands import make_crowd
from manyhands.explore.desk import Choice
from manyhands.explore.inputs import open_desk
from manyhands.io.consensus_labels import ACTIONS
from manyhands.report import planning
from tests.cli.conftest import done, done_json, write_csv
from tests.explore.test_explore import ask

N = 90
OPTIONS = np.array(["awe", "fear", "joy"])
KINDS = {
    "classes": {},
    "grades": {"--ordered": None},
    "sets": {"--multilabel": ";", "--none": "empty"},
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(planning.FORESEEN, "annotators", 0)
    return tmp_path


def write_answers(kind):
    """Answers of seven annotators, and gold of a third of the items; every action occurs."""
    rng = np.random.default_rng(0)
    rows = [("task", "worker", "label")]
    if kind == "sets":
        truth = rng.random((N, 3)) < 0.4
        for i, holds in enumerate(truth):
            for r in rng.choice(7, 6 if i % 3 else 2, replace=False):
                ticks = holds ^ (rng.random(3) < 0.05)
                rows.append((f"t{i}", f"w{r}", ";".join(OPTIONS[ticks])))
        gold = [";".join(OPTIONS[holds]) for holds in truth]
    else:
        levels = np.arange(1, 6) if kind == "grades" else OPTIONS
        codes = rng.integers(0, len(levels), N)
        crowd = make_crowd(
            codes, n_annotators=7, annotations_per_instance=5, noise_strength=0.3, random_state=3
        )
        kept = (crowd.instance % 3 > 0) | (crowd.annotator % 2 > 0)
        cells = zip(*(column[kept].tolist() for column in (crowd.instance, crowd.annotator,
                                                           crowd.label)), strict=True)  # fmt: skip
        rows += [(f"t{i}", f"w{r}", levels[c]) for i, r, c in cells]
        gold = levels[codes].tolist()
    write_csv(Path("A.csv"), rows)
    name = "labels" if kind == "sets" else "label"
    third = [i for i in range(N) if i // 3 % 3 == 1]  # With as many annotations as the others.
    write_csv(Path("gold.csv"), [("task", name), *((f"t{i}", gold[i]) for i in third)])


@pytest.mark.parametrize("gold", [(), ("--gold", "gold.csv")], ids=["", "gold"])
@pytest.mark.parametrize("kind", KINDS)
def test_actions_are_counted_as_by_aggregate_and_report(kind, gold):
    write_answers(kind)
    reading = [word for option in KINDS[kind].items() for word in option if word is not None]
    told = done_json("aggregate", "A.csv", *reading, *gold, "--out", "labels")["actions"]
    assert sum(told.values()) == N
    assert sum(n > 0 for n in told.values()) >= 2
    done("report", "labels")
    with open("labels/summary.json") as file:
        summary = json.load(file)
    own = summary["set_data"] if kind == "sets" else summary["labels"]
    assert own["actions"] == told
    given = {"sets": True, "multilabel": ";", "none": "empty"} if kind == "sets" else {}
    folder, answers = (Path("labels"), Path("A.csv"))
    with open_desk(folder, answers, by="anna", **given) as desk:
        assert desk.answers.count_actions() == told
        for action in ACTIONS:
            assert len(desk.rows(Choice(state="all", action=action))) == told[action]
        page = ask(desk, "/?state=all")[2]
        offered = page.partition('name="action"')[2].partition("</select>")[0]
        shown = re.findall(r'<option value="([a-z ]+)"[^>]*>\1 \((\d+)\)', offered)
        assert {name: int(n) for name, n in shown} == told
        listed = ask(desk, "/list?state=all&action=accept")[2]
        assert f"<h1>{told['accept']}\N{NO-BREAK SPACE}item" in listed
        # What somebody decides is accepted, at once and by the next aggregate.
        row = int(desk.rows(Choice(action="collect more" if told["collect more"] else "review"))[0])
        desk.decide(row, 0, desk.item(row).answer)
        assert desk.answers.actions[row] == "accept"
        assert desk.settle(60)
        after = desk.answers.count_actions()
    if kind != "sets" and not gold:  # The explorer infers the other labels again.
        known = ("--known", "labels/corrections.jsonl")
        assert done_json("aggregate", "A.csv", *reading, *known)["actions"] == after


def test_items_without_annotations_are_counted_and_come_last():
    write_answers("classes")
    with open("A.csv", "a") as file:
        file.write("alone,w1,unsure\n")
    reading = ("--abstain", "unsure")
    told = done_json("aggregate", "A.csv", *reading, "--out", "labels")["actions"]
    with open_desk(Path("labels"), Path("A.csv"), by="a", abstain=["unsure"],
                   skip=None) as desk:  # fmt: skip
        assert desk.answers.count_actions() == told
        assert desk.table.instances[desk.rows(Choice())[-1]] == "alone"
        assert ask(desk, "/?action=delete")[0] == 400
        assert ask(desk, "/list?page=2")[0] == 200
        assert ask(desk, "/list?page=3")[0] == 404


@pytest.mark.parametrize("kind", ["classes", "grades"])
@pytest.mark.parametrize("how", ["--threshold 0.6", "--rule balanced", "--threshold 0.99"])
def test_labels_are_those_of_the_folder_whatever_decided_them(kind, how):
    write_answers(kind)
    reading = [word for option in KINDS[kind].items() for word in option if word is not None]
    made = done_json("aggregate", "A.csv", *reading, *how.split(), "--out", "labels")
    written = pd.read_csv("labels/labels.csv", dtype=str, keep_default_na=False)
    with open_desk(Path("labels"), Path("A.csv"), by="anna") as desk:
        answers = desk.answers
        assert answers.count_actions() == made["actions"]
        assert how.split()[0] != "--threshold" or f"{100 * float(how[12:]):g} %" in answers.rule
        found = answers.reviewed()
        shown = ["" if label is None else str(label) for label in found.labels]
        assert shown == written.label.tolist()
        assert found.actions.tolist() == written.action.tolist()
        # Corrections change labels, but not by what they are decided.
        row = int(desk.rows(Choice())[0])
        desk.decide(row, 0, desk.item(row).answer)
        assert desk.settle(60)
        after = answers.count_actions()
    known = ("--known", "labels/corrections.jsonl")
    again = done_json("aggregate", "A.csv", *reading, *known, *how.split())
    assert again["actions"] == after


def test_labels_that_are_left_open_are_reviewed_first():
    write_answers("classes")
    told = done("aggregate", "A.csv", "--threshold", "0.8", "--out", "labels").stdout
    written = pd.read_csv("labels/labels.csv", dtype=str, keep_default_na=False)
    n_empty = (written.label == "").sum()
    assert f"{n_empty} labels in labels.csv are left empty. For a label of every item" in told
    assert "without --threshold, and keep as sure the labels whose 'probability' is at" in told
    every = done("aggregate", "A.csv", "--out", "every").stdout
    assert "left empty" not in every
    every = pd.read_csv("every/labels.csv", dtype=str, keep_default_na=False)
    kept = every.probability.astype(float) >= 0.8
    assert written.label.tolist() == every.label.where(kept, "").tolist()
    queue = done_json("review", "A.csv", "--model", "labels", "-n", str(N))
    n_open = int((written.label == "").sum())
    first = [row["task"] for row in queue["queue"][:n_open]]
    assert n_open > 0
    assert set(first) == set(written.task[written.label == ""])
    assert queue["n_to_review"] == int((written.action == "review").sum())
