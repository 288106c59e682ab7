"""Every command that a command, a report or a page of the explorer prints runs as it is printed."""

import html
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from manyhands.cli.app import app
from manyhands.report.commands import fill_commands
from tests.cli.conftest import done, run
from tests.explore.test_explore import ask

pytestmark = pytest.mark.filterwarnings("ignore")

COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands]
NAMED = re.compile(rf"\bmanyhands (?:{'|'.join(name.strip('_') for name in COMMANDS)})\b")
"""A command, wherever it stands."""

AFTER = re.compile(r": (manyhands [^\n]*)$", re.MULTILINE)
"""A command at the end of its line."""


def printed(text):
    """The commands of a text; none stands elsewhere than in backticks, or at the end of a line."""
    found = re.findall(r"`(manyhands [^`]*)`", text)
    rest = re.sub(r"`manyhands [^`]*`", "", text)
    found += AFTER.findall(rest)
    rest = AFTER.sub("", rest)
    assert not NAMED.search(rest), NAMED.search(rest)
    return found


def shown(page):
    """The commands of a page, which stand there as code."""
    found = [html.unescape(each) for each in re.findall(r"<code>(manyhands .*?)</code>", page)]
    rest = re.sub(r"<code>.*?</code>|<[^>]*>|<script.*?</script>", " ", page, flags=re.DOTALL)
    assert not NAMED.search(rest), rest[NAMED.search(rest).start() - 50 :][:150]
    return found


def crowd(kind):
    """Items, annotators and labels of a few guessing people; the names have spaces."""
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=30)
    rows = []
    for r, who in enumerate(("ann", "bob", "c y", "Flo O'Neil", "eve")):
        given = np.where(rng.random(30) < (0.85 if r < 3 else 0.1), true, rng.integers(3, size=30))
        has = rng.random(30) < 0.7
        rows += [(f"t{i:02d}", who, "abc"[c]) for i, c in enumerate(given) if has[i]]
    frame = pd.DataFrame(rows, columns=["item", "who", "answer"])
    truth = pd.DataFrame(
        {"task": [f"t{i:02d}" for i in range(30)], "label": [*map("abc".__getitem__, true)]}
    )
    truth[:12].to_csv("my audit.csv", index=False)
    features = pd.get_dummies(truth["label"]).astype(float) + rng.normal(size=(30, 3)) / 3
    features.insert(0, "task", truth["task"])
    features.to_csv("my X.csv", index=False)
    if kind == "long":
        frame.to_csv("my answers.csv", index=False)
        return ["my answers.csv", "--task", "item", "--worker", "who", "--label", "answer"]
    frame = frame.pivot(index="item", columns="who", values="answer").fillna("no idea")
    frame.insert(0, "note", "none")
    frame.to_csv("my answers.csv")
    names = "ann,bob,c y,Flo O'Neil,eve"
    return ["my answers.csv", "--annotators", names, "--abstain", "no idea", "--groups", "none"]


@pytest.mark.parametrize("kind", ["long", "wide"])
def test_what_is_printed_can_be_pasted(kind, home, short, monkeypatch):
    pages = []

    def correct(desk, port, announce):
        desk.decide(0, desk.item(0).version, desk.item(0).answer)
        desk.settle(60)
        pages.extend(ask(desk, place)[2] for place in ("/", "/people", "/next", "/list"))
        for row in range(1, desk.table.n_instances if len(pages) == 4 else 1):
            desk.decide(row, desk.item(row).version, None)
        pages.append(ask(desk, "/")[2])  # Nothing is left.

    monkeypatch.setattr("manyhands.explore.app.serve", correct)
    table = crowd(kind)
    files = ["--annotations", *table]
    commands = []
    alone = table[: table.index("--groups")] if "--groups" in table else table
    for words in (
        ["describe", *alone],
        ["agreement", *alone],
        ["aggregate", *table, "--out", "my labels"],
        ["aggregate", *table, "--method", "majority-vote", "--out", "one.csv"],
        ["aggregate", *table, "--threshold", "1"],
        ["annotators", *table],
        ["annotators", *table, "--teach", "ann"],
        ["annotators", *table, "--teach", "nobody"],
        ["review", *table, "--out", "my queue.csv"],
        ["review", *table, "--random", "5"],
        ["next", *table, "--known", "my audit.csv"],
        ["next", *table, "--audit", "my audit.csv"],
        ["next", *table, "--model", "my labels"],
        ["budget", *table, "--budget", "3", "--runs", "1"],
        ["budget", *table, "--budget", "3", "--runs", "1", "--audit", "my audit.csv"],
        ["fit", *files, "--features", "my X.csv", "--known", "my audit.csv", "--out", "my model"],
        ["report", "my labels", "--out", "my page.html"],
        ["explore", "my labels", *files],
        ["explore", "my model", *files],
        ["predict", "my labels", "--features", "my X.csv"],
        ["convert", table[0], "again.csv", *alone[1:]],
    ):
        result = run(*words)
        commands += [(each, words) for each in printed(result.output)]
        assert result.exit_code in (0, 3, 5), result.output
    run("report", "my model")
    found = [Path(each).read_text() for each in ("my page.html", "my model/report.html")]
    commands += [(each, "a page") for page in [*found, *pages] for each in shown(page)]
    assert len(pages) == 10
    ran = {}
    for command, by in commands:
        program, *words = shlex.split(command)
        assert program == "manyhands"
        if command not in ran:
            ran[command] = run(*words)
        assert ran[command].exit_code == 0, (by, command, ran[command].output)
    names = {shlex.split(command)[1] for command in ran}
    assert names >= {"aggregate", "fit", "review", "next", "annotators", "explore"}, names
    assert len(ran) > 15


def test_corrections_of_a_classifiers_labels_go_to_the_classifier(home, short):
    answers = crowd("long")
    fit = ("fit", "--features", "my X.csv", "--annotations", *answers, "--seed", "3")
    done(*fit, "--out", "my model")
    before = pd.read_csv("my model/labels.csv")
    said = done(
        "review", *answers, "--model", "my model", "-n", "4", "--out", "my sheet.csv"
    ).stdout
    (command,) = [each for each in printed(said) if "--known" in each]
    (draw,) = [each for each in printed(said) if "--random" in each]
    assert shlex.split(draw)[-2:] == ["--model", "my model"]
    sheet = pd.read_csv("my sheet.csv", dtype=str)
    sheet["reviewed"] = "me"
    sheet.to_csv("my sheet.csv", index=False)
    done(*shlex.split(command)[1:])
    after = pd.read_csv("my model/labels.csv")
    done(*fit, "--known", "my sheet.csv", "--out", "again")
    pd.testing.assert_frame_equal(after, pd.read_csv("again/labels.csv"))
    assert (after["probability"] == 1).sum() == len(sheet)
    assert len(after) == len(before)
    said = done("next", *answers, "--model", "my model").stdout
    assert (
        "(It forecasts the labels that Dawid and Skene's method infers from the annotations" in said
    )
    assert "Mistakes that annotators share are not allowed for" in said
    alone = done("next", *answers).stdout
    assert "It forecasts" not in alone
    assert "features" not in alone


def test_people_whose_quality_nothing_shows_are_told_the_command_that_would(home):
    frame = pd.DataFrame(
        [(i, who, "ab"[i % 2]) for i in range(20) for who in ("x", "y")],
        columns=["task", "worker", "label"],
    )
    frame.to_csv("two people.csv", index=False)
    told = [
        printed(run(name, "two people.csv").output) for name in ("annotators", "next", "budget")
    ]
    draws = "manyhands review 'two people.csv' --random 100 --out sample.csv"
    assert all(draws in each for each in told)
    assert done(*shlex.split(draws)[1:])


def test_commands_name_no_option_that_they_lack():
    files = {
        "annotations": ["a.csv"],
        "reading": ["--ordered", "--groups", "g h"],
        "known": ["--known", "k"],
    }
    text = "`manyhands {} ANNOTATIONS`"
    assert fill_commands(text.format("describe"), files) == "`manyhands describe a.csv --ordered`"
    judged = "`manyhands judges a.csv --ordered --groups 'g h'`"
    assert fill_commands(text.format("judges"), files) == judged
    whole = "`manyhands next a.csv --ordered --groups 'g h' --known k`"
    assert fill_commands(text.format("next"), files) == whole


def test_a_command_whose_files_are_unknown_keeps_its_stand_ins():
    text = "Draw some (`manyhands review ANNOTATIONS`), or `x`."
    assert fill_commands(text, None) == text
    assert fill_commands(text, {"annotations": ["a b.csv"], "known": ["--known", "k"]}) == (
        "Draw some (`manyhands review 'a b.csv' --known k`), or `x`."
    )


def test_commands_on_sets_of_labels_can_be_pasted(home, monkeypatch):
    rng = np.random.default_rng(0)
    rows = [
        (f"t{i:02d}", who, ";".join(name for name in "abc" if rng.random() < 0.5) or "nothing")
        for i in range(12)
        for who in ("x", "y y", "z")
    ]
    pd.DataFrame(rows, columns=["item", "who", "ticks"]).to_csv("my ticks.csv", index=False)
    own = ["--task", "item", "--worker", "who", "--label", "ticks"]
    table = ["my ticks.csv", *own, "--multilabel", ";", "--none", "nothing"]

    def correct(desk, port, announce):
        desk.decide(0, desk.item(0).version, desk.item(0).answer)

    monkeypatch.setattr("manyhands.explore.app.serve", correct)
    commands = []
    for words in (
        ["describe", *table],
        ["review", *table, "--out", "my queue.csv"],
        ["aggregate", *table, "--rule", "f1", "--out", "my sets"],
        ["explore", "my sets", "--annotations", *table],
        *([name, *table] for name in ("next", "annotators", "budget")),
    ):
        commands += printed(run(*words).output)
    commands += shown(Path("my sets/report.html").read_text())
    again = "manyhands aggregate 'my ticks.csv'"
    assert any(each.startswith(again) and "--rule f1 --known" not in each for each in commands)
    assert any("corrections.jsonl" in each and "--rule f1" in each for each in commands), commands
    for command in dict.fromkeys(commands):
        assert done(*shlex.split(command)[1:])
    assert len(set(commands)) > 3
