"""The commands of a report name the person's own files: each runs as it is printed."""

import html
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from manyhands.report.commands import fill_command
from tests.cli.conftest import done, run

pytestmark = pytest.mark.filterwarnings("ignore")
N = 60


@pytest.fixture(autouse=True)
def quiet(short, monkeypatch):
    """Show no page, which would wait for a reviewer."""
    monkeypatch.setattr("manyhands.explore.app.serve", lambda *a, **k: None)


def answers(classes=("bad", "good", "so so")):
    """Items, annotators and labels; two of seven people guess, one of them with a strange name."""
    rng = np.random.default_rng(0)
    true = rng.integers(len(classes), size=N)
    rows = []
    for r, name in enumerate(("ann", "bob", "cy", "di", "eve", "Flo O'Neil", "FOLDER")):
        right = 0.85 if r < 5 else 0.1
        given = np.where(rng.random(N) < right, true, rng.integers(len(classes), size=N))
        rows += [(f"t{i:02d}", name, classes[k]) for i, k in enumerate(given)]
    return pd.DataFrame(rows, columns=["item", "who", "answer"])


COLUMNS = ["--task", "item", "--worker", "who", "--label", "answer"]
WAYS = {
    "long": (["--duplicates", "last", "--separator", ";", "--groups", "none"], {}),
    "grades": (["--scale", "ordinal"], {"bad": "1", "so so": "2", "good": "3"}),
    "option": (["--multilabel", "split", "--option", "good"], {"so so": "good,so so"}),
    "joined": (["--multilabel", "join"], {"so so": "good,so so"}),
    "mapped": (["--map", "my map.csv", "--abstain", "?", "--abstain", "no idea"], {}),
}
"""Options that read a table, and how its labels are written."""


def printed(page):
    """The commands of a page, as words."""
    found = re.findall(r'<p class="command"><code>(.+?)</code>', Path(page).read_text())
    return [shlex.split(html.unescape(each)) for each in found]


def run_all(page):
    """Run every command of a page as it is printed, and return them by name."""
    found = printed(page)
    for program, *words in found:
        assert program == "manyhands"
        result = run(*words)
        assert result.exit_code == 0, (words, result.output)
    assert len(found) > 1
    return {words[1]: words for words in found}


@pytest.mark.parametrize("way", WAYS)
def test_commands_of_labels_run_as_printed(way, home):
    options, written = WAYS[way]
    frame = answers().replace(written)
    frame.to_csv("my answers.csv", index=False, sep=";" if way == "long" else ",")
    Path("my map.csv").write_text("from,to\nso so,good\n")
    reading = [*COLUMNS, *options]
    known = []
    if not written:
        known = ["--known", "known one.csv"]
        frame[:3].rename(columns={"item": "task", "answer": "label"}).to_csv(known[1])
    done("aggregate", "my answers.csv", *reading, *known, "--out", "my labels")
    commands = run_all("my labels/report.html")
    assert {"annotators", "explore"} <= {*commands}
    assert commands["annotators"][-1] in ("Flo O'Neil", "FOLDER")
    for words in commands.values():
        place = words.index("my answers.csv") + 1
        assert sorted(words[place : place + len(reading)]) == sorted(reading)
        assert words[place + len(reading) :][: len(known)] == known


def test_commands_name_all_files_of_a_wide_table_and_of_what_was_added(home):
    cells = answers().pivot(index="item", columns="who", values="answer").assign(comment="none")
    names = ",".join(cells.columns[:-1])
    for path, rows in (("-a.csv", cells[:40]), ("b.csv", cells[40:50]), ("c.csv", cells[50:])):
        rows.to_csv(home / path)
    reading = ["--task", "item", "--annotators", names]
    own = ["--method", "ebcc", "--set", "max_iter=50"]
    done("aggregate", "./-a.csv", "b.csv", *reading, *own, "--out", "labels")
    assert "./-a.csv" in run_all("labels/report.html")["annotators"]
    done("aggregate", "--continue", "labels", "c.csv", *reading, "--out", "labels")
    commands = run_all("labels/report.html")
    assert commands["annotators"][2:5] == ["./-a.csv", "b.csv", "c.csv"]
    assert commands["explore"].count("--annotations") == 3


def test_the_command_that_declares_a_family_makes_the_report_again(home):
    rng = np.random.default_rng(0)
    true, copied = rng.integers(0, 2, (2, 400))
    given = [np.where(rng.random(400) < 0.8, true, 1 - true) for _ in range(3)]
    given += [np.where(rng.random(400) < 0.6, copied, true) for _ in range(4)]
    cells = [(i, f"m{r}", given[r][i]) for r in range(7) for i in range(400)]
    pd.DataFrame(cells, columns=["item", "who", "answer"]).to_csv("my answers.csv", index=False)
    own = ["--threshold", "0.6", "--set", "max_iter=200"]
    done("aggregate", "my answers.csv", *COLUMNS, *own, "--out", "labels")
    again = run_all("labels/report.html")["aggregate"]
    made = ["manyhands", "aggregate", "my answers.csv", *COLUMNS, *own]
    assert again == [*made, "--groups", "family=m3,m4,m5,m6", "--out", "labels"]
    assert "aggregate" not in {words[1] for words in printed("labels/report.html")}


def test_a_folder_that_was_moved_is_named_where_it_is(home):
    answers().to_csv("answers.csv", index=False)
    done("aggregate", "answers.csv", *COLUMNS, "--out", "labels")
    (home / "labels").rename(home / "elsewhere")
    done("report", "elsewhere")
    named = {words[1]: words[2] for words in printed("elsewhere/report.html")}
    assert named["explore"] == "elsewhere"


def test_a_name_that_looks_like_a_stand_in_is_left_alone():
    files = {"folder": "labels", "annotations": ["a.csv", "b.csv"]}
    filled = fill_command("manyhands annotators ANNOTATIONS --teach FOLDER", files)
    assert filled == "manyhands annotators a.csv b.csv --teach FOLDER"
    assert fill_command("manyhands report FOLDER", None) == "manyhands report FOLDER"
    assert fill_command("manyhands fit OPTIONS", files) == "manyhands fit OPTIONS"
    files |= {"name": "select", "options": ["--cv", "2"]}
    made = fill_command("manyhands fit --annotations ANNOTATIONS OPTIONS --out FOLDER", files)
    assert made == "manyhands select --annotations a.csv --annotations b.csv --cv 2 --out labels"
