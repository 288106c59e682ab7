"""Answers that are sets of labels, on the command line."""

import html
import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest

from manyhands import LabelSetTable, load
from manyhands.cli import label_sets as sets_cli
from manyhands.exceptions import AnnotationError
from manyhands.io import read_gold_sets, read_label_sets, write_annotations
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
    assert "alpha, MASI" in shown


@pytest.fixture
def columns(answers):
    """The same answers, with a column of 0 and 1 for each option."""
    rows = pd.read_csv(answers, keep_default_na=False)
    said = rows.pop("labels").str.split(r"; ?", regex=True)
    for name in OPTIONS:
        rows[name] = [int(name in each) for each in said]
    path = answers.with_name("columns.csv")
    rows.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("named", [(), ("--label", "awe,fear,joy")])
@pytest.mark.parametrize("command", ["describe", "aggregate", "agreement", "review"])
def test_columns_of_0_and_1(answers, columns, command, named):
    want = json.loads(done(command, answers, *SETS, "--json"))
    ended = finished(command, columns, "--multilabel", ";", *named, "--json")
    assert json.loads(ended.stdout) == want
    assert ("each of the 3 columns" in ended.stderr) == (not named)


def test_columns_that_are_not_there(columns):
    ended = run("describe", columns, "--multilabel", ";", "--label", "awe,rage")
    assert ended.exit_code
    assert "'rage' is not a column" in ended.stderr
    assert "these columns, as in --label joy,fear" in ended.stderr


def test_ticks_in_rows_whose_names_hold_the_separator(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("task,worker,labels\n1,a,x; y\n1,a,z\n1,b,z\n2,a,z\n2,b,z\n2,b,x; y\n")
    ended = run("describe", path, "--multilabel", ";")
    assert ended.exit_code
    assert "give another --multilabel '|'" in ended.stderr
    found = json.loads(done("describe", path, "--multilabel", "|", "--json"))
    assert {row["option"]: row["n_ticks"] for row in found["options"]} == {"z": 4, "x; y": 2}


def test_agreement(answers):
    found = json.loads(done("agreement", answers, *SETS, "--json"))
    masi = found["krippendorff_alpha_masi"]
    assert masi["low"] < masi["value"] < masi["high"]
    assert [row["option"] for row in found["options"]] == OPTIONS
    assert "Krippendorff's alpha, Jaccard" in done("agreement", answers, *SETS)


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
    columns = ["task", "labels", "expected_errors", "least_sure", "probability", "n_annotations"]
    columns += ["agreement", "action", "p(awe)", "p(fear)", "p(joy)", "reviewed"]
    assert labels.columns.tolist() == columns
    assert set(labels["least_sure"]) <= set(OPTIONS)
    assert labels["action"].value_counts().to_dict() == {
        name: n for name, n in found["actions"].items() if n
    }
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
    assert "has separate habits for each option" in shown
    assert len(pd.read_csv(out)) == 40


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("aggregate", "--compare"), "--compare is for single labels"),
        (("aggregate", "--rule", "median"), "--rule median is for single labels"),
        (("aggregate", "--to", "prodigy"), "--to prodigy writes a file"),
        (("aggregate", "--history", "earlier.csv"), "--history is for single labels"),
        (("aggregate", "--continue", "x", "--method", "ebcc"), "leave --method out"),
        (("aggregate", "--rule", "f1", "--threshold", "0.3"), "each decide by themselves"),
        (("aggregate", "--method", "ebcc"), "ebcc infers one label per item.*--multilabel split"),
        (("aggregate", "--method", "dawid-skeen"), "dawid-skeen is unknown .did you mean multi-"),
        (("describe", "--scale", "ordinal"), "--scale is not for sets of labels"),
        (("agreement", "--classes", "joy,fear"), "'awe'.*not among the options.*--classes"),
        (("review", "--by", "annotation"), "a set is reviewed as a whole"),
        (("review", "--features", "X.npy"), "rests on the answers alone"),
        (("next",), "manyhands aggregate .* --none empty --out labels` instead: 'collect more'"),
        (("annotators",), "instead: annotators.csv says which share of the labels that apply"),
        (("budget",), "instead: the report says how many labels"),
        (("judges",), "describe, agreement, aggregate, fit, review, report.*--multilabel split"),
        (("ingest", "--out", "store"), "here, take one option .--multilabel split"),
    ],
)
def test_what_sets_do_not_have_is_refused(given, said, answers):
    command, *options = given
    result = run(command, answers, *SETS, *options)
    assert result.exit_code in (1, 2, 3)
    text = " ".join(result.output.split())
    assert re.search(said, text), text


def test_a_folder_of_sets_says_how_its_answers_are_read(answers, tmp_path):
    folder = tmp_path / "labels"
    done("aggregate", answers, *SETS, "--out", folder)
    read = re.escape(shlex.join([str(answers), *SETS]))
    for command, said in {
        "review": f"the greatest 'expected_errors' .* MultiLabelDawidSkene, .* review {read}`$",
        "next": "Run next .* --multilabel split --option NAME`, with an option in place of NAME$",
    }.items():
        result = run(command, folder)
        assert result.exit_code == 3
        assert re.search(said, " ".join(result.output.split())), result.output


def commands_in(text):
    """The commands that a text tells a reader to run, as words."""
    before = r"(?:<code>|run: |script: |Run |`|would show it: |inferred: |make one by )"
    after = r"(?:<|`| instead: |, and report|$)"
    found = re.findall(f"{before}(manyhands .+?){after}", text, flags=re.MULTILINE)
    found = [html.unescape(command) for command in found if "FOLDER" not in command]
    return [shlex.split(command)[1:] for command in found]


OTHERWISE = {
    "table": ("--multilabel", "|", "--none", "NO THING", "--none", "empty", "--worker", "who",
              "--classes", "awe,fear,joy; glad,rage", "--abstain", "?"),
    "export": ("--multilabel", "|", "--none", "empty", "--question", "mood", "--task", "data.key"),
}  # fmt: skip
"""Readings of which hardly an option is at its default."""


@pytest.fixture(params=OTHERWISE)
def otherwise(request, tmp_path, monkeypatch):
    """A file with a space in its name, and how it is read."""
    monkeypatch.chdir(tmp_path)
    said = {who: [cell.replace("joy", "joy; glad").replace(";awe", "|awe").replace("awe; ", "awe|")
                  for cell in cells] for who, cells in SAID.items()}  # fmt: skip
    said["dan"] = ["NO THING", "?", "joy; glad", "fear"]
    rows = [(f"t{i:02d}", who, sets[i % 4]) for i in range(40) for who, sets in said.items()]
    if request.param == "table":
        path = tmp_path / "my answers.csv"
        pd.DataFrame(rows, columns=["task", "who", "labels"]).to_csv(path, index=False)
    else:
        given = [
            (item, who, re.sub(r"NO THING|\?", "", cell).split("|")) for item, who, cell in rows
        ]
        path = studio_project(tmp_path / "my answers.json", given)
    return path.name, OTHERWISE[request.param]


@pytest.mark.filterwarnings("ignore")
def test_every_printed_command_reads_the_same_table(otherwise, tmp_path, monkeypatch):
    name, reading = otherwise
    read = []
    original = sets_cli.read_sets
    monkeypatch.setattr(
        sets_cli, "read_sets", lambda *given: read.append(original(*given)) or read[-1]
    )
    first = done("describe", name, *reading)
    wanted, options = cells_of(read[0].table), read[0].table.options.tolist()
    assert len(wanted) in (150, 160)
    X = pd.DataFrame({"task": read[0].table.instances})
    X["x"] = np.arange(len(X)) % 4
    X.to_csv("X.csv", index=False)
    texts = {
        "describe": first,
        "review": done("review", name, *reading, "-n", "3", "--random", "3", "--out", "sheet.csv"),
        "aggregate": done("aggregate", name, *reading, "--out", "labels"),
        "fit": done("fit", "--features", "X.csv", "--annotations", name, *reading, "--out", "model",
                    "--folds", "0"),
        "next": run("next", name, *reading).output,
        "convert": run("convert", name, "c.csv", *reading, "--labels", "labels.csv").output,
        "report": run("report", name, *reading, "--tables", "tables").output,
    }  # fmt: skip
    done("report", name, *reading, "--out", "report.html")
    done("report", "model", "--out", "fitted.html")
    pages = {"labels": "labels/report.html", "page": "report.html", "fitted": "fitted.html"}
    texts |= {key: (tmp_path / path).read_text() for key, path in pages.items()}
    found = {key: commands_in(text) for key, text in texts.items()}
    told = {"review", "next", "convert", "report", *pages}
    told |= {"describe"} if name.endswith("json") else set()
    assert told <= {key for key, words in found.items() if words}, found
    for words in {tuple(each) for several in found.values() for each in several}:
        read.clear()
        done(*words)
        if words[:1] == ("report",) and "--tables" in words:  # What was read before.
            continue
        assert name in words
        assert cells_of(read[0].table) == wanted
        assert read[0].table.options.tolist() == options


def test_a_continued_folder_names_all_its_files(answers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.read_csv(answers)
    frame.iloc[:90].to_csv("first.csv", index=False)
    frame.iloc[80:].to_csv("more.csv", index=False)
    done("aggregate", "first.csv", *SETS, "--out", "labels")
    done("aggregate", "--continue", "labels", "more.csv", *SETS, "--out", "labels")
    (*words,) = commands_in((tmp_path / "labels" / "report.html").read_text())[0]
    assert words[1:3] == ["first.csv", "more.csv"]
    counts = json.loads(done("describe", *words[1:7], *words[7:9], "--json"))["data"]
    assert counts["answers"] == 120


def test_the_terminal_and_the_report_flag_the_same_annotators(tmp_path):
    rng = np.random.default_rng(0)
    truth, names = rng.random((150, 3)) < 0.4, np.array(OPTIONS)
    rows = []
    for i, each in enumerate(truth):
        for who in range(6):
            seen, vain = (0.3 if who == 0 else 0.9), (0.5 if who == 1 else 0.05)
            ticks = rng.random(3) < np.where(each, seen, vain)
            rows.append((f"t{i}", f"p{who}", ";".join(names[ticks])))
    path, out = tmp_path / "crowd.csv", tmp_path / "labels"
    pd.DataFrame(rows, columns=["task", "worker", "labels"]).to_csv(path, index=False)
    shown = done("aggregate", path, *SETS, "--out", out)
    people = json.loads((out / "summary.json").read_text())["set_annotators"]["rows"]
    flagged = [row["id"] for row in people if row["flags"]]
    assert {"p0", "p1"} <= {*flagged}
    assert re.findall(r"^Annotator (\S+) ticks", shown, flags=re.MULTILINE) == flagged[:3]
    assert "of the labels that do not apply (the typical annotator" in shown


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


@pytest.mark.parametrize("kept", [0, 300])
def test_no_report_of_a_damaged_model(answers, tmp_path, kept):
    out, page = tmp_path / "labels", tmp_path / "page.html"
    done("aggregate", answers, *SETS, "--method", "multi-label-majority-vote", "--out", out)
    done("report", out, "--out", page)
    page.unlink()
    model = out / "model.json"
    model.write_bytes(model.read_bytes()[:kept])
    result = run("report", out, "--out", page)
    assert result.exit_code == run("predict", out, answers).exit_code == 5
    told = " ".join(result.stderr.split())
    assert "model.json' is truncated or unreadable" in told
    assert "run the command that made the folder again, with the same --out" in told
    assert not page.exists()


def test_report(answers, tmp_path, monkeypatch):
    out = tmp_path / "labels"
    gold = tmp_path / "gold.csv"
    gold.write_text("task,labels\n" + "".join(f"t{i:02d},{SAID['cem'][i % 4]}\n" for i in range(8)))
    done("aggregate", answers, *SETS, "--gold", gold, "--out", out)
    page = (out / "report.html").read_text()
    assert "Labels of answers.csv" in page
    assert "of the labels given are right, measured on" in page
    again = tmp_path / "again.html"
    done("report", out, "--multilabel", ";", "--out", again, "--tables", tmp_path / "tables")
    assert again.read_text() == page
    assert pd.read_csv(tmp_path / "tables" / "set_options.csv")["option"].isin(OPTIONS).all()
    monkeypatch.chdir(tmp_path)
    found = json.loads(done("report", answers, *SETS, "--json"))
    assert found == {"report": "answers-report.html", "summary": "answers-report.json"}
    summary = json.loads((tmp_path / found["summary"]).read_text())
    assert summary["set_data"]["n_annotations"] == 120
    assert "set_items" in (tmp_path / found["report"]).read_text()
    for given, said in (
        ((out, "--worker", "who"), "leave --worker out"),
        ((answers, *SETS, "--tables", "t"), "--none empty --out labels, and report that"),
        ((answers, *SETS, "--out", "page.pdf"), "ends in .html"),
    ):
        result = run("report", *given)
        assert result.exit_code in (1, 2, 3, 4)
        assert said in " ".join(result.output.split())


def test_review(answers, tmp_path):
    sheet = tmp_path / "review.csv"
    shown = done("review", answers, *SETS, "-n", "6", "--random", "4", "--out", sheet)
    assert "the first 4 are drawn at random" in shown
    assert f"--known {sheet}" in shown
    frame = pd.read_csv(sheet, keep_default_na=False)
    assert frame["chosen"].tolist() == ["random"] * 4 + ["queue"] * 6
    errors = frame["expected_errors"].tolist()
    assert errors[4:] == sorted(errors[4:], reverse=True)
    assert max(errors[:4]) <= min(errors[4:])
    assert set(frame["least_sure"]) <= set(OPTIONS)
    first = frame["task"][0]
    frame.loc[0, "labels"] = "awe;fear"  # A set that is no longer what it was is known.
    frame.loc[1, "reviewed"] = "me"
    frame.to_csv(sheet, index=False)
    found = json.loads(done("aggregate", answers, *SETS, "--known", sheet, "--json"))
    rows = {row["task"]: row for row in found["labels"]}
    assert rows[first]["labels"] == "awe;fear"
    assert {task for task, row in rows.items() if row["reviewed"]} == {first, frame["task"][1]}
    left = json.loads(done("review", answers, *SETS, "--known", sheet, "--json"))["queue"]
    assert first not in {row["task"] for row in left}
    assert len(left) == 38
    measured = json.loads(done("aggregate", answers, *SETS, "--gold", sheet, "--json"))["gold"]
    assert measured["cells with gold"] == 6


def studio_project(path, answers=None):
    """A project of Label Studio with check boxes; answers are (item, person, choices)."""
    said = [(f"t{i}", who, sets[i % 4].replace(" ", "").split(";")) for i in range(40)
            for who, sets in SAID.items()] if answers is None else answers  # fmt: skip
    tasks = {}
    for item, who, choices in said:
        task = tasks.setdefault(
            item,
            {
                "id": int(item[1:]),
                "data": {"text": f"text of {item}", "key": item},
                "annotations": [],
            },
        )
        value = {"choices": [name for name in choices if name]}
        result = {"from_name": "mood", "to_name": "text", "type": "choices", "value": value}
        task["annotations"].append(
            {"completed_by": who, "result": [result] if value["choices"] else []}
        )
    path.write_text(json.dumps(list(tasks.values())))
    return path


def test_what_to_do_about_check_boxes_is_said(tmp_path):
    project = studio_project(tmp_path / "project.json")
    for command in ("describe", "aggregate"):
        result = run(command, project)
        assert result.exit_code == 3
        assert "To keep the sets, use --multilabel ';'" in " ".join(result.output.split())
    with (
        pytest.warns(UserWarning, match="no answer was given"),
        pytest.warns(
            UserWarning, match=r"20 of 120 answers have no tick\. They are left out.*none='empty'"
        ),
    ):
        assert read_label_sets(project).n_annotations == 100
    assert read_label_sets(project, none="empty").n_annotations == 120


CHOSEN = {
    "label-studio": lambda record: record["predictions"][0]["result"][0]["value"]["choices"],
    "prodigy": lambda record: record["accept"],
    "argilla": lambda record: record["suggestions"]["mood"]["value"],
    "doccano": lambda record: record["label"],
    "datasets": lambda record: record["labels"],
}
"""Where the tools find a set."""


@pytest.mark.parametrize("to", CHOSEN)
def test_sets_are_written_for_a_tool(to, tmp_path):
    project, out = studio_project(tmp_path / "project.json"), tmp_path / "labels"
    found = json.loads(done("aggregate", project, *SETS, "--out", out, "--to", to, "--json"))
    wanted = {row["task"]: row["labels"].split(";") for row in found["labels"]}
    wanted = {task: [name for name in names if name] for task, names in wanted.items()}
    path = next(out.glob(f"{to}*"))
    path = path / "data.jsonl" if path.is_dir() else path
    text = path.read_text()
    records = [json.loads(line.rstrip(",")) for line in text.strip("[]\n").splitlines()]
    if to == "prodigy":  # The hash of a number is the number.
        assert {r["_input_hash"]: CHOSEN[to](r) for r in records} == wanted
        assert {o["id"] for o in records[0]["options"]} == set(OPTIONS)
    else:
        ids = [r.get("task", r.get("id")) for r in records]
        assert {int(i): CHOSEN[to](r) for i, r in zip(ids, records, strict=True)} == wanted
    assert "text of t3" in text


@pytest.mark.parametrize(
    ("to", "name", "options"),
    [
        ("table", "again.csv", SETS),
        ("table", "answers.parquet", SETS),
        ("label-studio", "answers.json", SETS),
        ("argilla", "answers.json", SETS),
        ("prodigy", "answers.jsonl", (*SETS, "--task", "meta.task")),
    ],
)
def test_answers_are_converted_and_read_back(to, name, options, answers, tmp_path):
    before = read_label_sets(answers, none="empty")
    done("convert", answers, tmp_path / name, *SETS, "--to", to)
    told = json.loads(done("describe", tmp_path / name, *options, "--json"))
    task = {"task": "meta.task"} if to == "prodigy" else {}
    again = read_label_sets(tmp_path / name, none="empty", **task)
    assert told["data"]["answers"] == 120
    assert cells_of(again) == cells_of(before)


def cells_of(table):
    """The set of every pair."""
    sets = table.labels_of_sets()
    rows = zip(table.instance, table.annotator, table.answers.label, strict=True)
    return {
        (str(table.instances[i]), str(table.annotators[r])): frozenset(sets[c]) for i, r, c in rows
    }


def test_answers_are_added_to_a_folder(answers, tmp_path):
    frame, out = pd.read_csv(answers), tmp_path / "labels"
    first, more = tmp_path / "first.csv", tmp_path / "more.csv"
    frame.iloc[:90].to_csv(first, index=False)
    frame.iloc[80:].to_csv(more, index=False)
    done("aggregate", first, *SETS, "--out", out)
    known = tmp_path / "known.csv"
    known.write_text("task,labels\nt00,joy;awe\nt39,fear\n")
    found = json.loads(
        done("aggregate", "--continue", out, more, *SETS, "--known", known, "--out", out, "--json")
    )
    assert found["added"] == {"new": 30, "answered_before": 10}
    assert found["n_annotations"] == 120
    rows = {row["task"]: row for row in found["labels"]}
    assert rows["t00"]["labels"] == "awe;joy"
    assert rows["t39"]["labels"] == "fear"
    assert (rows["t00"]["reviewed"], rows["t00"]["action"]) == ("yes", "accept")
    assert rows["t01"]["reviewed"] == ""
    once = json.loads(done("aggregate", answers, *SETS, "--known", known, "--json"))
    assert [row["labels"] for row in once["labels"]] == [row["labels"] for row in found["labels"]]
    more.write_text("task,worker,labels\nt50,ann,rage\n")
    result = run("aggregate", "--continue", out, more, *SETS)
    assert "'rage', which is not among the 3 options" in " ".join(result.output.split())
    more.write_text("task,worker,label\nt50,ann,joy\n")
    result = run("aggregate", "--continue", out, more)
    assert result.exit_code == 3
    assert "--multilabel" in result.output


def test_a_reviewed_sheet_is_known_where_somebody_looked(answers, tmp_path):
    table = read_label_sets(answers, none="empty")
    sheet = tmp_path / "labels.csv"
    sheet.write_text("task,labels,reviewed\nt00,fear,me\nt01,joy,\nt02,,me\n")
    cells = read_gold_sets(sheet, table)
    np.testing.assert_array_equal(cells[:3], [[0, 1, 0], [-1, -1, -1], [0, 0, 0]])
    sheet.write_text("task,labels,was,reviewed\nt00,fear,joy,\nt01,joy,joy,\n")
    np.testing.assert_array_equal(read_gold_sets(sheet, table)[:2], [[0, 1, 0], [-1, -1, -1]])
    sheet.write_text("task,labels,reviewed\nt00,fear,\n")
    with pytest.warns(UserWarning, match="none of its 1 sets is taken as known"):
        assert (read_gold_sets(sheet, table) < 0).all()


def test_a_separator_within_an_option_is_refused(tmp_path):
    table = LabelSetTable.from_frame(
        pd.DataFrame({"task": [1, 2], "worker": "a", "labels": [["no; never"], ["no", "other"]]})
    )
    with pytest.raises(AnnotationError, match=r"'no; never' contains ';'.*multilabel='\|'"):
        write_annotations(tmp_path / "answers.csv", table)
    path = write_annotations(tmp_path / "answers.csv", table, separator="|")
    assert cells_of(read_label_sets(path, multilabel="|")) == cells_of(table)


@pytest.mark.filterwarnings("default:1 of 3 rows of gold", "ignore:'NONE' counts as an option")
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


@pytest.mark.filterwarnings("default:1 of 3 rows of gold", "ignore:'NONE' counts as an option")
def test_gold_with_empty_cells_is_counted(answers, tmp_path):
    gold = tmp_path / "gold.csv"
    gold.write_text("task,labels\nt00,joy;awe\nt01,\nt02,joy\n")
    worded = answers.with_name("worded.csv")
    pd.read_csv(answers).fillna("NONE").to_csv(worded, index=False)
    for path, none, mend in (
        (worded, ("--none", "NONE"), "write 'NONE' into it"),
        (worded, (), "--none empty"),
    ):
        ended = finished("aggregate", path, "--multilabel", ";", *none, "--gold", gold)
        said = " ".join(ended.stderr.split())
        assert "1 of 3 rows of gold are empty in the column of labels" in said
        assert mend in said
    assert (
        "rows of gold are empty" not in finished("aggregate", answers, *SETS, "--gold", gold).stderr
    )


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "command",
    [("describe",), ("agreement",), ("review",), ("aggregate", "--gold"), ("report", "--out")],
)
def test_words_for_no_option_are_told_once(command, tmp_path):
    rows = [(f"t{i}", who, ("joy", "None of the above")[i % 2]) for i in range(30) for who in "ab"]
    path, gold = tmp_path / "a.csv", tmp_path / "gold.csv"
    pd.DataFrame(rows, columns=["task", "worker", "labels"]).to_csv(path, index=False)
    gold.write_text("task,labels\nt0,joy\n")
    name, *more = command
    more = {"--gold": ["--gold", gold], "--out": ["--out", tmp_path / "r.html"]}.get("".join(more))
    call = (name, path, "--multilabel", ";", *(more or ()))
    told = " ".join(finished(*call, "--none", "none of the above").stderr.split())
    assert told.count("did you mean --none 'None of the above'?") == 1
    hint = " ".join(finished(*call).stderr.split())
    assert hint.count("'None of the above' counts as an option (30 answers)") == 1
    assert hint.count("pass --none 'None of the above'; if it is an option like") == 1
    right = " ".join(finished(*call, "--none", "None of the above").stderr.split())
    assert "counts as an option" not in right
    assert "did you mean" not in right


@pytest.mark.parametrize("none", [("NONE",), ("empty", "NONE"), ("empty",)])
def test_what_is_written_of_an_empty_set_is_read_back(answers, tmp_path, none):
    path, out = tmp_path / "worded.csv", tmp_path / "labels"
    rows = pd.read_csv(answers, keep_default_na=False)
    rows["labels"] = rows["labels"].replace("", "NONE" if "NONE" in none else "")
    rows.to_csv(path, index=False)
    reading = ("--multilabel", ";", *(word for name in none for word in ("--none", name)))
    shown = json.loads(done("aggregate", path, *reading, "--out", out, "--json"))
    written = pd.read_csv(out / "labels.csv", keep_default_na=False)
    word = "NONE" if "NONE" in none else ""
    assert (written["labels"] == word).sum() == 10
    assert [row["labels"] for row in shown["labels"]] == written["labels"].tolist()
    gold = tmp_path / "gold.csv"
    written[["task", "labels"]].to_csv(gold, index=False)
    table = read_label_sets(path, none=list(none))
    cells = read_gold_sets(gold, table, none=list(none))
    assert (cells == load(out).labels_).all()
    sheet = tmp_path / "review.csv"
    done("review", path, *reading, "--out", sheet)
    assert (pd.read_csv(sheet, keep_default_na=False)["labels"] == word).sum() == 10
