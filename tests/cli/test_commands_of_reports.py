"""The commands of a report name the person's own files: each runs as it is printed."""

import html
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from manyhands.report.commands import files_in, fill_command, fill_commands
from manyhands.report.headline import headline
from manyhands.report.planning import enough
from tests.cli.conftest import done, done_json, read_rows, run

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


METHODS = {
    "plain": ["aggregate"],
    "majority": ["aggregate", "--method", "majority-vote"],
    "ebcc": ["aggregate", "--method", "ebcc", "--set", "max_iter=50"],
    "independent": ["aggregate", "--set", "dependence=0"],
    "balanced": ["aggregate", "--method", "ebcc", "--rule", "balanced"],
    "history": ["aggregate", "--history", "earlier.csv"],
    "stack": ["fit", "--features", "X.csv"],
    "splits": ["fit", "--features", "X.csv", "--gold", "splits.csv"],
}
"""Commands that write a folder."""


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("way", METHODS)
def test_the_command_of_the_next_batch_plans_what_the_report_lists(way, known, home):
    frame = answers()
    rng = np.random.default_rng(1)
    frame[rng.random(len(frame)) < 0.4].to_csv("my answers.csv", index=False)
    truth = frame[frame["who"] == "ann"].reset_index(drop=True)
    truth["task"], truth["label"] = truth["item"], truth["answer"]
    truth["split"] = np.where(np.arange(N) % 5, "train", "test")
    truth[["task", "label", "split"]].to_csv("splits.csv", index=False)
    truth[["task", "label"]][::10].to_csv("known.csv", index=False)
    pd.DataFrame(
        [("bob", true, "good", 30) for true in ("bad", "good", "so so")],
        columns=["annotator", "true", "given", "count"],
    ).to_csv("earlier.csv", index=False)
    X = 3 * pd.get_dummies(truth["label"]).to_numpy(float) + rng.normal(size=(N, 3))
    columns = {f"x{k}": values for k, values in enumerate(X.T)}
    pd.DataFrame({"task": truth["task"], **columns}).to_csv("X.csv", index=False)
    name, *options = METHODS[way]
    files = ["my answers.csv"] if name == "aggregate" else ["--annotations", "my answers.csv"]
    more = ["--known", "known.csv"] if known else []
    done(name, *files, *COLUMNS, *options, *more, "--out", "my folder")
    done("report", "my folder")
    summary = json.loads(Path("my folder/summary.json").read_text())
    plan = summary["plan"]
    words = next(words for words in printed("my folder/report.html") if words[1] == "next")
    assert ("--model" in words) == (way != "plain")
    told = done_json(*words[1:], "--json")
    rows = plan["next"]["rows"]
    pairs = [(row["task"], row["worker"]) for row in told["pairs"]]
    assert pairs == [(row["id"], row["annotator"]) for row in rows]
    gains = [row["expected_gain"] for row in told["pairs"]]
    assert gains == pytest.approx([row["gain"] for row in rows], abs=1e-9)
    assert told["enough"] == enough(plan)
    assert told["headline"] == fill_commands(headline(summary), files_in(summary))
    assert len(read_rows(Path("batch.csv"))) == len(pairs) + 1
    _check_review(summary["review"])


def _check_review(section):
    """Check that the command beside a report's list of labels writes the same list."""
    words = next(words for words in printed("my folder/report.html") if words[1] == "review")
    told = done_json(*words[1:], "--json")
    listed = section["labels"]["rows"]
    assert len(listed) > 5
    pairs = [(row["task"], row["label"]) for row in told["queue"]]
    assert pairs[: len(listed)] == [(row["id"], row["label"]) for row in listed]
    scores = [row["probability_wrong"] for row in told["queue"]]
    assert scores[: len(listed)] == pytest.approx([row["score"] for row in listed], abs=1e-6)
    assert told["labels_of"] == section["source"]
    assert pd.read_csv("review.csv")["task"].tolist() == [row["task"] for row in told["queue"]]
    known = set(pd.read_csv("known.csv")["task"]) if "--known" in words else set()
    drawn = done_json(*words[1:-2], "--random", "20", "--json")["queue"]
    assert not known & {row["task"] for row in drawn}


def test_a_plan_with_a_folder_says_what_does_not_fit(home):
    answers().to_csv("answers.csv", index=False)
    done("aggregate", "answers.csv", *COLUMNS, "--out", "labels")
    answers()[:30].to_csv("some.csv", index=False)
    reading = ["answers.csv", *COLUMNS, "--model"]
    refused = run("next", *reading, "labels", "--texts", "answer")
    assert "give one of them" in refused.stderr
    refused = run("next", *reading, "nowhere")
    assert "has no summary.json" in refused.stderr
    other = answers().assign(item=lambda frame: "x" + frame["item"])
    other.to_csv("other.csv", index=False)
    refused = run("next", "other.csv", *COLUMNS, "--model", "labels")
    assert "give the annotations from which these labels were made" in refused.stderr
    refused = run("review", *reading, "labels", "--texts", "answer")
    assert "give one of them" in refused.stderr
    refused = run("review", *reading[:-1], "--gold", "labels/labels.csv")
    assert "--gold goes with --model" in refused.stderr
    sure = done_json("next", *reading, "labels", "--known", "labels/labels.csv")
    assert sure == done_json("next", *reading, "labels")


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
