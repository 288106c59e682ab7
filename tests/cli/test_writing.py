"""Commands that write labels, annotators, reports and converted annotations."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import manyhands
from manyhands import AnnotationTable, CrowdStackingClassifier, DawidSkene, load
from manyhands.classifiers.stacking import members
from manyhands.io import read_annotations, read_export
from manyhands.io.annotations import read_items
from manyhands.io.exports.formats import WRITERS
from manyhands.io.frames import read_frame
from manyhands.io.writers import TARGETS
from manyhands.jobs.outputs import times_of
from manyhands.registry import all_aggregators
from manyhands.report import planning
from tests.cli.conftest import done, done_json, read_rows, refused, run, write_csv
from tests.io.exports.conftest import SAMPLES, made, studio, write

FOLDER = ["annotators.csv", "labels.csv", "model.json", "report.html", "summary.json"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Make no forecast, which takes most of a job's time, unless a test asks for it."""
    monkeypatch.setitem(planning.FORESEEN, "annotators", 0)
    monkeypatch.setattr(members, "MANY_FEATURES", 0)  # Two members of a stack are enough.


@pytest.fixture
def project(home):
    """An export of Label Studio, with texts, a skip, and ground truth for two of three tasks."""
    gold = {**made(9, "good"), "ground_truth": True}
    tasks = [
        studio(made(1, "good"), made(2, "good"), gold, number=1, text="Works.", item="r1"),
        studio(made(1, "bad"), made(2, "good"), gold, number=2, text="So so.", item="r2"),
        studio(made(1, "bad"), made(2, was_cancelled=True), number=3, text="No.", item="r3"),
    ]
    return write(home / "project.json", tasks)


def test_a_folder_holds_labels_annotators_and_a_report_without_features(home, monkeypatch):
    monkeypatch.setitem(planning.FORESEEN, "annotators", 5)
    result = done_json("aggregate", "A.csv", "--gold", "gold.csv", "--out", "labels")
    assert [Path(name).name for name in result["files"]] == FOLDER
    assert sorted(path.name for path in Path("labels").glob("[!w]*")) == FOLDER
    table = read_annotations("A.csv")
    model = DawidSkene().fit(table)
    header, *rows = read_rows(Path("labels/labels.csv"))
    assert header[:6] == ["task", "label", "probability", "n_annotations", "agreement", "action"]
    assert [row[1] for row in rows] == [str(label) for label in model.labels_]
    assert sum(result["actions"].values()) == len(rows)
    profiles = pd.read_csv("labels/annotators.csv").set_index("annotator")
    for name, accuracy in zip(table.annotators, model.annotator_accuracy_, strict=True):
        assert profiles.loc[name, "accuracy"] == pytest.approx(accuracy, abs=1e-4)
    page = Path("labels/report.html").read_text()
    assert "Labels of A.csv" in page
    assert "What do the gold labels show?" in page
    assert "Several rounds ahead" in page
    assert "Learnt common confusion" not in page
    again = done("aggregate", "A.csv", "--method", "majority-vote", "--out", "labels")
    assert "recommended: accept" in again.stdout
    assert "MajorityVote" in Path("labels/report.html").read_text()


def write_two_days():
    """A.csv in two parts, of which the second repeats ten rows of the first."""
    rows = pd.read_csv("A.csv").sort_values("task", kind="stable")
    half = len(rows) // 2
    rows[:half].to_csv("day1.csv", index=False)
    rows[half - 10 :].to_csv("day2.csv", index=False)
    rows.to_csv("all.csv", index=False)
    return rows


def test_an_aggregation_goes_on_with_the_next_day(home):
    rows = write_two_days()
    write_csv(home / "known.csv", [("task", "label"), (0, 2), (3, 1)])
    done("aggregate", "day1.csv", "--known", "known.csv", "--out", "days")
    result = done_json("aggregate", "--continue", "days", "day2.csv", "--out", "days")
    assert result["added"] == {"new": len(rows) - len(rows) // 2, "changed": 0, "repeated": 10}
    model = manyhands.load("days")
    assert model.table_.n_annotations == len(rows)
    assert model.instances_[model.is_known_].tolist() == [0, 3]
    first = read_annotations("day1.csv")
    known = np.full(first.n_instances, None, dtype=object)
    known[[0, 3]] = 2, 1
    fresh = DawidSkene().fit(first, gold=known)
    fresh.partial_fit(read_annotations("day2.csv"), duplicates="last")
    np.testing.assert_allclose(model.posterior_, fresh.posterior_, atol=1e-6)
    assert len(read_rows(Path("days/labels.csv"))[1:]) == len(model.instances_)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("method", [name for name, _ in all_aggregators()])
def test_the_folder_of_every_method_can_be_gone_on_with(home, method):
    known = ("--known", "gold_plain.csv", "--out", "days")
    labels = done_json("aggregate", "A.csv", "--method", method, *known)["labels"]
    assert load(Path("days")).__class__.__name__ == method
    again = done_json("aggregate", "--continue", "days", "A.csv", "--out", "more")
    assert again["labels"] == labels
    assert Path("days/labels.csv").read_bytes() == Path("more/labels.csv").read_bytes()


@pytest.mark.filterwarnings("default:there are no annotations to add")
def test_the_same_day_again_changes_nothing(home):
    write_two_days()
    done("aggregate", "all.csv", "--out", "days")
    again = done("aggregate", "--continue", "days", "day2.csv", "--out", "more")
    assert "known, with the same labels" in again.stderr
    before, after = manyhands.load("days"), manyhands.load("more")
    np.testing.assert_array_equal(after.posterior_, before.posterior_)


def test_a_changed_answer_replaces_the_former_one(home):
    write_two_days()
    done("aggregate", "all.csv", "--method", "majority-vote", "--out", "days")
    row = pd.read_csv("all.csv")[:1]
    row["label"] = (row["label"] + 1) % 3
    row.to_csv("changed.csv", index=False)
    result = done_json("aggregate", "--continue", "days", "changed.csv", "--out", "days")
    assert result["added"] == {"new": 0, "changed": 1, "repeated": 0}
    table = manyhands.load("days").table_
    at = (table.instances[table.instance] == row.task[0]) & (
        table.annotators[table.annotator] == row.worker[0]
    )
    assert table.classes[table.label[at]].tolist() == row.label.tolist()


def test_old_instances_become_known_later(home):
    write_two_days()
    done("aggregate", "day1.csv", "--out", "days")
    old = manyhands.load("days").instances_[0]
    write_csv(home / "known.csv", [("task", "label"), (old, 2)])
    done("aggregate", "--continue", "days", "day2.csv", "--known", "known.csv", "--out", "days")
    model = manyhands.load("days")
    assert model.is_known_.tolist() == (model.instances_ == old).tolist()
    assert model.labels_[0] == 2


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--method", "glad"], ["keeps the aggregator's method", "leave --method out"]),
        (["--set", "max_iter=3"], ["leave --set out"]),
        (["--compare"], ["leave --compare out"]),
        (["--read", "anonymise=true"], ["another one than in the model", "leave it out"]),
    ],
)
def test_what_would_change_the_aggregator_is_refused(home, more, says):
    write_two_days()
    done("aggregate", "day1.csv", "--out", "days")
    refused(3, "aggregate", "--continue", "days", "day2.csv", *more, says=says)


def test_going_on_needs_an_aggregator_with_the_same_classes(home):
    write_two_days()
    stack = CrowdStackingClassifier(n_rounds=2, n_folds=2)
    stack.fit(np.load("X.npy"), read_annotations("A.csv")).save("model")
    done("aggregate", "day1.csv", "--out", "days")
    refused(3, "aggregate", "--continue", "days", "A_names.csv", says=["classes"])
    refused(5, "aggregate", "--continue", "nowhere", "day2.csv", says=["'nowhere' is not a"])
    says = ["holds a CrowdStackingClassifier, a classifier", "continue it by fit --continue"]
    refused(3, "aggregate", "--continue", "model", "day2.csv", says=says)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_a_report_shows_texts_unless_told_not_to_and_times_if_there_are_any(home):
    tasks = [
        studio(
            *(made(w, "bad" if w == k % 4 else "good", lead_time=1.0 + w) for w in range(1, 4)),
            number=k,
            text=f"Text number {k}.",
            item=f"r{k}",
        )
        for k in range(8)
    ]
    write(home / "timed.json", tasks)
    done("aggregate", "timed.json", "--out", "labels")
    assert "Text number 3." in Path("labels/report.html").read_text()
    summary = json.loads(Path("labels/summary.json").read_text())
    assert summary["time"]["speed"]["median"] == 3.0
    seconds = {row["id"]: row["times"]["median"] for row in summary["annotators"]["rows"]}
    assert sorted(seconds.values()) == [2.0, 3.0, 4.0]
    done("report", "labels", "--texts", "none", "--out", "page.html")
    assert "Text number" not in Path("page.html").read_text()
    done("report", "labels", "--texts", "timed.json", "--out", "page.html")
    assert "Text number 3." in Path("page.html").read_text()
    refused(3, "report", "labels", "--texts", "page.html", "--out", "page.html", says=["page.html"])
    done("fit", "--annotations", "timed.json", "--texts", "text", "--out", "model")
    trained = json.loads(Path("model/summary.json").read_text())["time"]["speed"]
    assert (trained["n"], trained["median"]) == (24, 3.0)


def test_times_go_with_their_annotations_whatever_the_order(home):
    source = AnnotationTable.from_arrays([10, 11, 12, 10], ["a", "b", "a", "b"], [0, 1, 1, 0])
    export = SimpleNamespace(
        table=source, seconds=np.array([1.0, 2.0, np.nan, 4.0]), ended=np.full(4, np.nan)
    )
    other = AnnotationTable.from_arrays(
        ["12", "10", "10", "13"], ["a", "b", "a", "a"], [1, 0, 0, 0]
    )
    found = times_of(export, other)
    assert list(found) == ["seconds"]
    np.testing.assert_array_equal(found["seconds"], [np.nan, 4.0, 1.0, np.nan])
    assert times_of(None, other) == {}


def test_a_report_shows_the_labels_of_another_rule(home):
    done("aggregate", "A.csv", "--rule", "balanced", "--out", "labels")
    summary = json.loads(Path("labels/summary.json").read_text())
    shown = [str(row["label"]) for row in summary["labels"]["all"]["rows"]]
    assert shown == [row[1] for row in read_rows(Path("labels/labels.csv"))[1:]]
    done("aggregate", "A.csv", "--threshold", "0.99", "--out", "open")
    assert any(row[1] == "" for row in read_rows(Path("open/labels.csv")))


def test_every_table_of_a_report_is_a_csv_file(home):
    done("aggregate", "A.csv", "--gold", "gold.csv", "--out", "labels")
    assert "tables: tables" in done("report", "labels", "--tables", "tables").stdout
    summary = json.loads(Path("labels/summary.json").read_text())
    frames = {path.stem: pd.read_csv(path) for path in Path("tables").iterdir()}
    assert {"facts", "classes", "annotators", "annotators_confusions", "gold"} <= frames.keys()
    assert len(frames["annotators"]) == len(summary["annotators"]["rows"])
    facts = frames["facts"].set_index(["section", "name"])["value"]
    assert int(facts["data", "n_annotations"]) == summary["data"]["n_annotations"]
    assert "confusion" in Path("labels/report.html").read_text()
    assert done_json("report", "labels", "--tables", "other")["tables"] == "other"


def test_names_in_a_summary_lead_to_no_other_folder(home):
    done("aggregate", "A.csv", "--out", "deep/labels")
    path = Path("deep/labels/summary.json")
    summary = json.loads(path.read_text())
    summary["data"]["../../evil"] = [{"a": "=1+1"}]
    path.write_text(json.dumps(summary))
    done("report", "deep/labels", "--tables", "deep/tables")
    assert Path("deep/tables/data_______evil.csv").read_text() == "a\n'=1+1\n"
    assert not list(Path().glob("*evil*"))


@pytest.mark.parametrize(
    ("to", "name"),
    [*((tool.name, tool.file) for tool in WRITERS.values()), ("datasets", "datasets/data.jsonl")],
)
def test_labels_go_back_to_a_tool_with_the_items_own_data(project, to, name):
    for _ in range(2):  # The second writes over the first.
        done("aggregate", "project.json", "--out", "labels", "--to", to)
    text = (Path("labels") / name).read_text()
    assert all(words in text for words in ("Works.", "So so.", "No."))
    alone = "set" if to == "datasets" else Path(name).name
    if to != "datasets":
        done("aggregate", "project.json", "--out", alone, "--to", to)
        assert Path(alone).read_text() == text


def test_where_a_tools_file_cannot_go(project):
    refused(3, "aggregate", "project.json", "--to", "prodigy", says=["--to prodigy", "--out"])
    arguments = ("aggregate", "project.json", "--to", "prodigy", "--out", "a.json")
    refused(3, *arguments, says=["--to prodigy writes a .jsonl file"])
    refused(3, "aggregate", "project.json", "--out", "project.json", says=["write over"])


def test_a_folder_with_a_model_is_left_alone(home):
    Path("model").mkdir()
    Path("model/model.json").write_text("{}")
    refused(4, "aggregate", "A.csv", "--out", "model", says=["cannot write 'model'", "model"])
    assert [path.name for path in Path("model").iterdir()] == ["model.json"]


def test_files_of_others_are_not_written_over(project):
    done("aggregate", "project.json", "--out", "labels", "--to", "datasets")
    before = Path("labels/annotators.csv").read_text()
    refused(
        4, "report", "labels", "--tables", "labels", says=["annotators.csv", "not a table of a"]
    )
    assert Path("labels/annotators.csv").read_text() == before
    Path("classes.csv").write_text("mine")
    refused(4, "report", "labels", "--tables", ".", says=["classes.csv", "Choose another folder"])
    for _ in range(2):
        done("report", "labels", "--tables", "tables")
    Path("mine").mkdir()
    Path("mine/README.md").write_text("My notes.")
    arguments = ("convert", "project.json", "mine", "--to", "datasets")
    assert run(*arguments).exit_code == 4
    assert [path.name for path in Path("mine").iterdir()] == ["README.md"]
    project.rename("label-studio.json")
    arguments = ("label-studio.json", "--out", ".", "--to", "label-studio")
    refused(3, "aggregate", *arguments, says=["write over 'label-studio.json'"])


# -- gold and several files -----------------------------------------------------------------------


@pytest.mark.filterwarnings("default:--gold project.json")
def test_an_export_is_its_own_gold(project):
    result = done_json("aggregate", "project.json", "--gold", "project.json")
    assert result["gold"]["instances with gold"] == 2
    own = ("--task", "data.item", "--gold", "project.json")
    assert done_json("aggregate", "project.json", *own)["gold"]["instances with gold"] == 2
    known = done_json("aggregate", "project.json", "--known", "project.json")
    assert known["labels"][1] == {"task": 2, "label": "good", "probability": 1.0}
    tasks = json.loads(project.read_text())
    del tasks[0]["annotations"][2], tasks[1]["annotations"][2]
    write(project, tasks)
    says = ["", "label-studio export holds no known labels", "'mood'"]
    alone = done("aggregate", "project.json", "--gold", "./project.json")
    assert "holds no known labels" in alone.stderr
    assert "or leave --gold out" in alone.stderr
    (project.parent / "other.json").write_text(project.read_text())
    for option, name in (("--gold", "other.json"), ("--known", "project.json")):
        says[0] = f"{option} {name}"
        refused(3, "aggregate", "project.json", option, name, says=says)


def test_several_files_are_one_table(home):
    tasks = [studio(made(None, label), number=i) for i, label in enumerate("xxy")]
    for name in ("ann", "bob"):
        write(home / f"{name}.json", tasks)
    named = ("ann.json", "bob.json", "--read", "annotator_from=file")
    found = done_json("describe", *named)
    assert (found["data"]["n_annotators"], found["data"]["n_annotations"]) == (2, 6)
    shown = done("describe", *named).stdout
    assert "manyhands describe ann.json bob.json --format label-studio" in shown
    done("aggregate", *named, "--out", "labels.csv")
    done("agreement", *named)
    done("convert", *named[:2], "all.csv", *named[2:])
    assert done_json("describe", "all.csv")["data"]["n_annotations"] == 6
    write(home / "A1.csv", "task,worker,label\n0,a,x\n0,b,x\n")
    write(home / "A2.csv", "task,worker,label\n1,a,y\n1,b,x\n")
    assert done_json("describe", "A1.csv", "A2.csv")["data"]["n_instances"] == 2


# -- convert --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.jsonl"])
def test_converted_annotations_are_the_same(project, name):
    says = "written: " + name + " (7 annotations, 1 passes)"
    assert says in done("convert", "project.json", name).stdout
    assert read_annotations(name).equals(read_annotations("project.json"))
    assert read_export(name, "long").items.columns["text"] == ["Works.", "So so.", "No."]


def test_a_table_goes_to_a_tool_and_back(home):
    table = pd.DataFrame(read_rows(Path("A.csv"))[1:], columns=["task", "worker", "label"])
    table["text"] = "text " + table["task"]
    table.to_csv("texts.csv", index=False)
    for to, name, more in (
        ("label-studio", "a.json", ()),
        ("argilla", "b.json", ()),
        ("prodigy", "c.jsonl", ("--task", "meta.task")),
    ):
        done("convert", "texts.csv", name, "--to", to)
        assert "text 0" in Path(name).read_text()
        done("convert", name, "back.csv", *more)
        assert read_annotations("back.csv").equals(read_annotations("A.csv"))


def test_items_are_read_beside_any_table(project):
    rows = {"task": [1, 1, 2], "worker": ["a", "b", "a"], "answer": ["x", "y", "x"]}
    frame = pd.DataFrame(rows | {"text": ["t", "t", "u"], "price": [1.5, 1.5, 2]})
    frame.to_csv("long.csv", index=False)
    for path, options in (
        ("long.csv", {"label": "answer", "classes": ["x", "y"], "group": None}),
        ("project.json", {"task": "data.item", "group": None}),
    ):
        table = read_annotations(path, **options)
        items = read_items(path, table, **options).items
        assert next(iter(items.columns)) == "text"
        assert items.ids.tolist() == table.instances.tolist()
    np.save("A.npy", np.array([[0, 1], [1, 1]]))
    assert read_items("A.npy", read_annotations("A.npy")) is None


@pytest.mark.filterwarnings("default:class 'bad' of the annotations")
def test_labels_of_any_command_go_back_to_the_tool(project):
    """As a classifier's: labels.csv, with an instance that nobody annotated."""
    done("aggregate", "project.json", "--out", "own.json", "--to", "label-studio")
    done("aggregate", "project.json", "--out", "labels.csv")
    arguments = ("project.json", "--to", "label-studio", "--labels")
    assert "(3 labels)" in done("convert", *arguments, "labels.csv", "out.json").stdout
    own, out = (json.loads(Path(name).read_text()) for name in ("own.json", "out.json"))
    for task in own:
        task["predictions"][0]["model_version"] = "manyhands"
    assert out == own
    text = Path("labels.csv").read_text()
    Path("more.csv").write_text(text + "4,New.,bad,0.9,0,,collect more,0.9,0.1,\n")
    done("convert", "project.json", "more.tsv", "--labels", "more.csv")
    assert pd.read_csv("more.tsv", sep="\t")["n_annotations"].tolist() == [3, 3, 1, 0]
    Path("one.csv").write_text("task,label,p(good)\n" + "".join(f"{k},good,1\n" for k in (1, 2, 3)))
    said = done("convert", *arguments, "one.csv", "one.json").stderr
    assert "class 'bad' of the annotations has no probability" in said
    assert "--abstain" in said
    rows = text.splitlines(keepends=True)
    Path("less.csv").write_text("".join(rows[:2]))
    Path("other.csv").write_text(text.replace("p(good)", "p(ugly)"))
    Path("gold.csv").write_text("task,label\n1,good\n")
    for name, words in (
        ("less.csv", "2 of 3 tasks of the annotations have no label"),
        ("other.csv", "class 'ugly' of the labels is not among"),
        ("gold.csv", "not labels that manyhands wrote"),
        ("nowhere.csv", "does not exist"),
    ):
        result = run("convert", *arguments, name, "x.json")
        assert (result.exit_code, words in result.stderr) == (3, True)
        assert not Path("x.json").exists()


def test_what_convert_refuses(project):
    refused(3, "convert", "project.json", says=["only 'project.json' is given"])
    refused(3, "convert", "project.json", "project.json", says=["write over"])
    refused(3, "convert", "project.json", "a.docx", says=["not a format of tables"])
    refused(3, "convert", "project.json", "a.csv", "--to", "argilla", says=["a .json file"])
    result = run("convert", "project.json", "a.csv", "--to", "word")
    assert result.exit_code == 2
    assert all(name in result.output for name in ("'word' is unknown", *TARGETS))
    assert not Path("a.csv").exists()


# -- every sample, from the export to labels in the tool's own format -----------------------------

OWN = {tool.name: tool.file for tool in WRITERS.values()}


def tool_of(read_as):
    return next((tool for tool in OWN if read_as.startswith(tool)), "datasets")


def as_options(options):
    """Options of reading, as the command line takes them."""
    long = {key: f"--{key}" for key in options}
    return [f"{long[key]}={value}" for key, value in options.items()]


def ids_in(name):
    """Ids of the records of a tool's file."""
    text = (Path("labels") / name).read_text()
    if name.endswith(".jsonl"):
        records = [json.loads(line) for line in text.splitlines()]
    else:
        records = json.loads(text)
    keys = {"prodigy.jsonl": "_input_hash", "datasets/data.jsonl": "task", "doccano.jsonl": "task"}
    key = keys.get(name, "id")
    return {str(record[key]) for record in records}


@pytest.mark.data
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "options", "counts"), SAMPLES, ids=[s[0] for s in SAMPLES])
def test_samples_from_the_export_to_labels(data_home, home, name, options, counts):
    path = data_home.parent / "exports" / name
    own = as_options(options)
    described = done_json("describe", path, *own)
    assert described["data"]["n_annotations"] == counts[0]
    if counts[3] == 1:
        result = run("aggregate", path, *own, "--out", "labels")
        assert (result.exit_code, "one class only" in result.stderr) == (3, True)
        return
    read_as = described.get("export", {}).get("format", "long")
    tool = tool_of(read_as)
    done("aggregate", path, *own, "--out", "labels", "--to", tool)
    done("report", "labels", "--tables", "tables")
    tasks = [row[0] for row in read_rows(Path("labels/labels.csv"))[1:]]
    assert ids_in(OWN.get(tool, "datasets/data.jsonl")) == set(tasks)
    assert len(pd.read_csv("labels/annotators.csv")) == counts[2]
    assert Path("labels/report.html").read_text().startswith("<!doctype html>")
    assert len(list(Path("tables").iterdir())) >= 5
    done("convert", path, "all.csv", *own)
    again = done_json("describe", "all.csv")["data"]
    assert again["n_annotations"] == counts[0]
    assert again["n_abstentions"] + again["n_skips"] == counts[4]


TEXTS = {"appen_figure_eight/relex": "sentence", "mturk": "input"}
"""Fields of the texts that are not called text."""


def texts_of(name):
    return next((field for start, field in TEXTS.items() if name.startswith(start)), "text")


NO_TEXTS = ("mace", "zooniverse", "peerannot", "get_another_label", "truth_inference", "crowdkit")
NO_TEXTS += ("cleanlab", "potato", "label_studio_sdk", "labelbox", "sagemaker", "superannotate")
NO_TEXTS += ("popquorn",)  # A table like any other, of 1,499 texts: a fit takes a minute.
WITH_TEXTS = [sample for sample in SAMPLES if not sample[0].startswith(NO_TEXTS)]


@pytest.mark.data
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "options", "counts"), WITH_TEXTS, ids=[s[0] for s in WITH_TEXTS])
def test_samples_from_the_export_to_a_classifier_and_back(data_home, home, name, options, counts):
    path = data_home.parent / "exports" / name
    own = as_options(options)
    read_as = done_json("describe", path, *own).get("export", {}).get("format", "long")
    done("fit", "--annotations", path, "--texts", texts_of(name), "--out", "model", *own)
    done("report", "model")
    tool = tool_of(read_as)
    Path("labels").mkdir()
    out = f"labels/{OWN.get(tool, 'datasets')}"
    done("convert", path, out, "--labels", "model/labels.csv", "--to", tool, *own)
    tasks = [row[0] for row in read_rows(Path("model/labels.csv"))[1:]]
    assert len(tasks) >= counts[1]
    assert ids_in(OWN.get(tool, "datasets/data.jsonl")) == set(tasks)


# -- spreadsheets -----------------------------------------------------------------------------

SHEETS = [
    ["aggregate", "A.csv"],
    ["next", "A.csv", "-n", "5"],
    ["review", "A.csv", "-n", "5"],
    ["annotators", "A.csv"],
    ["budget", "A.csv", "--budget", "3.5", "--runs", "1"],
]
"""Commands that write a table."""


@pytest.mark.parametrize("command", [*SHEETS, ["convert", "A.csv"]], ids=lambda c: c[0])
def test_every_table_is_written_as_a_workbook_and_for_excel(home, command):
    pytest.importorskip("openpyxl", reason="pip install 'manyhands[io]'")
    out = [] if command[0] == "convert" else ["--out"]
    done(*command, *out, "out.xlsx")
    done(*command, *out, "out.csv", "--excel")
    done(*command, *out, "plain.csv")
    book, excel, plain = (read_frame(Path(n)) for n in ("out.xlsx", "out.csv", "plain.csv"))
    assert book.columns == excel.columns == plain.columns
    assert len(book) == len(plain) == len(excel) > 0
    first = plain.columns[0]
    assert book[first].to_list() == excel[first].to_list() == plain[first].to_list()
    assert Path("out.csv").read_bytes() == b"\xef\xbb\xbf" + Path("plain.csv").read_bytes()


@pytest.mark.parametrize("command", SHEETS, ids=lambda c: c[0])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_read(home, command):
    command = [command[0], "not there.csv", *command[2:]]
    refused(3, *command, "--out", "x.xls", says=["'.xls'", ".xlsx"])
    refused(4, *command, "--out", "A.csv/x.csv", says=["a file exists where a folder is needed"])


def test_labels_of_a_folder_are_written_for_excel_and_read_again(home):
    done("aggregate", "A.csv", "--out", "labels", "--excel")
    for name in ("labels.csv", "annotators.csv"):
        assert Path("labels", name).read_bytes().startswith(b"\xef\xbb\xbf")
    done("convert", "A.csv", "found.xlsx", "--labels", "labels/labels.csv")
    done("convert", "A.csv", "again.csv", "--labels", "found.xlsx")
    assert read_rows(Path("again.csv"))[0][:2] == ["task", "label"]


def test_votes_as_people_keep_them_are_read_on_the_command_line(home):
    rows = "\r\n".join(["Item;Person;Urteil", "1;Jörg;0", "", "1;Zoë;1", "2;Jörg;1", "2;Zoë;1"])
    Path("v.csv").write_bytes(rows.encode("cp1252"))
    names = ["--task", "Item", "--worker", "Person", "--label", "Urteil"]
    result = run("describe", "v.csv", *names)
    assert result.exit_code == 0
    assert "read as cp1252, because it is not valid UTF-8 (line 2 has 'Jörg')" in result.stderr
    assert "state another one with --encoding" in result.stderr
    assert "row 3 is blank and was skipped" in result.stderr
    refused(3, "describe", "v.csv", *names, "--sheet", "x", says=["--sheet x names a sheet"])
    Path("v.csv").write_text("task;a,worker;b,label\n1;a,w;b,x\n1;a,v;b,x\n")
    refused(3, "describe", "v.csv", says=["separator of the cells is unclear", "--separator ,"])
