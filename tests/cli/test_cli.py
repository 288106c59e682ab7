"""The command line as a new, a careless and a hostile user meet it."""

import errno
import html
import io
import json
import re
import sys
from dataclasses import replace
from inspect import signature
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import manyhands
from manyhands import load_demo
from manyhands.agreement import krippendorff_alpha
from manyhands.cli import main
from manyhands.cli.app import app
from manyhands.cli.commands.aggregate import CLEAR, _told_apart
from manyhands.cli.errors import exit_code, message_of
from manyhands.estimator_checks import make_crowd_problem
from manyhands.fitting import PROTOCOLS, pilots
from manyhands.io import read_annotations
from manyhands.registry import all_aggregators
from manyhands.report import planning
from manyhands.wording import percent, percent_interval
from tests.cli.conftest import (
    done,
    done_json,
    fit_arguments,
    read_rows,
    refused,
    run,
    weights_digest,
    write_crowd,
    write_csv,
)

COMMANDS = ["demo", "describe", "agreement", "aggregate", "fit", "predict", "report"]
HOSTILE = [
    "[bold]x[/]",
    "<script>alert(1)</script>",
    "two\nlines",
    "carriage\rreturn",
    "=cmd()",
    "\x1b[31mred",
    "\u202ereversed",
    'quote"comma,',
    "L" * 10_000,
]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Make no forecast, which other tests read, and train parts of methods for few epochs."""
    monkeypatch.setitem(planning.FORESEEN, "annotators", 0)
    monkeypatch.setattr(pilots, "PLAIN_STEPS", 20)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """Stand in a folder with the crowd's files, for commands that are refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("crowd"))
        write_crowd(Path())
        yield


# -- the new user -----------------------------------------------------------------------------


def test_help_and_version():
    top = done("--help").stdout
    assert "Exit codes" in top
    for command in COMMANDS:
        assert command in top
        assert "Example: manyhands " + command in done(command, "--help").stdout
    assert done("--version").stdout.strip() == manyhands.__version__


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("fit", ["--annotations", "--out", "--features", "--texts", "--images", "--method"]),
        ("aggregate", ["TABLE", "--method", "--out", "--gold", "--known"]),
        ("next", ["TABLE", "--n ", "--out", "--known", "--model"]),
    ],
)
def test_the_first_screen_of_help_is_enough_to_begin(command, first, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = done(command, "--help").stdout
    begin = "\n".join(shown.split("\n")[:40])
    assert begin.count("Example: ") == 2
    assert [name for name in first if name not in begin] == []
    # What is for one kind of table or method follows; nothing is left out.
    (own,) = [each for each in app.registered_commands if each.name == command]
    for name in signature(own.callback).parameters:
        option = {"nothing": "none", "settings": "set", "tables": "TABLE", "continue_": "continue"}
        assert option.get(name, name.replace("_", "-")) in shown, name
    assert shown.index("--task") < shown.index("--encoding") < shown.index("--excel")


@pytest.mark.parametrize(
    ("command", "measuring"), [("aggregate", "gold"), ("fit", "gold"), ("next", "audit")]
)
def test_help_tells_labels_that_only_measure_from_labels_that_are_used(command, measuring):
    shown = " ".join(re.sub(r"[│\s]+", " ", done(command, "--help").stdout).split())
    only = re.search(rf"--{measuring} FILE (.*?) --known instead", shown)[1]
    used = re.search(r"--known FILE (Labels from a person.*?) --", shown)[1]
    assert "to measure how many labels are right" in only
    assert only.endswith("To make them the final labels of their items, give the file as")
    assert "They become the labels of their items" in used


def test_help_names_no_type_of_python():
    for command in COMMANDS:
        shown = done(command, "--help").stdout
        assert not re.search(r"\b(list\[|Path\b|str\b|float\b|PATH\b)", shown), command


def test_describe_reads_well(home):
    text = done("describe", "A.csv").stdout
    _, A, _ = make_crowd_problem()
    facts = dict(
        [cell.strip() for cell in line.strip("│ ").split("│")]
        for line in text.splitlines()
        if line.count("│") == 3
    )
    assert facts["Items"] == "48"
    assert facts["Annotations"] == str((A >= 0).sum())
    assert facts["Empty cells (item, annotator)"] == f"{100 * (A < 0).mean():.1f} %"
    assert "n_" not in text
    assert "{" not in text


def test_describe_json_is_the_summary(home):
    found = done_json("describe", "A.csv", "--classes", "classes.txt")
    assert set(found) == {"data", "classes", "warnings"}
    assert [row["name"] for row in found["classes"]["rows"]] == ["cat", "dog", "eel"]


def test_other_column_names_are_taken_and_said(home):
    text = (home / "A.csv").read_text().replace("worker", "rater", 1)
    (home / "B.csv").write_text(text)
    result = done("describe", "B.csv")
    assert (
        "note: B.csv: read 'rater' as the worker; to choose others, use --worker\n" in result.stderr
    )
    assert "rater" not in result.stdout
    named = done("describe", "B.csv", "--worker", "rater").stdout
    assert named.replace("B.csv --worker rater --out", "B.csv --out") == result.stdout
    assert "B.csv --worker rater --out labels" in named  # The next command keeps the option.


def test_aggregate_writes_what_the_library_infers(home):
    out = ["--out", "new/labels.csv", "--gold", "gold.csv"]
    result = done_json("aggregate", "A.csv", "--method", "majority-vote", *out)
    _, A, y = make_crowd_problem()
    expected = manyhands.MajorityVote().fit(manyhands.AnnotationTable.from_matrix(A))
    assert [row["label"] for row in result["labels"]] == expected.labels_.tolist()
    assert result["gold"]["accuracy"] == (expected.labels_ == y).mean()
    header, *rows = read_rows(home / "new" / "labels.csv")
    more = ["n_annotations", "agreement", "action"]
    assert header == ["task", "label", "probability", *more, "p(0)", "p(1)", "p(2)", "reviewed"]
    assert [row[0] for row in rows] == [str(i) for i in range(len(y))]
    np.testing.assert_allclose(
        np.array([row[6:9] for row in rows], float), expected.posterior_, atol=1e-6
    )


def test_aggregate_prints_the_first_labels_and_where_the_others_are(home):
    result = done("aggregate", "A.csv", "--gold", "gold.csv", "--set", "max_iter=3")
    assert "DawidSkene: 48 items" in result.stdout
    assert "... and 38 more (--out labels.csv writes all)" in result.stdout
    assert "accuracy: " in result.stdout
    assert result.stderr == ""


@pytest.mark.filterwarnings("ignore:All annotators belong to one family")
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_a_column_of_families_reaches_aggregate_and_fit(home):
    """Four copies of one annotator outvote three others, unless they are a family."""
    rows = [(i, f"copy {k}", i % 2, "copies") for i in range(40) for k in range(4)]
    rows += [(i, f"person {k}", 0, "") for i in range(40) for k in range(3)]
    write_csv(home / "F.csv", [("task", "worker", "label", "family"), *rows])
    arguments = ("aggregate", "F.csv", "--method", "majority-vote")
    alone = [row["label"] for row in done_json(*arguments)["labels"]]
    family = [row["label"] for row in done_json(*arguments, "--groups", "family")["labels"]]
    assert {*alone} == {0, 1}
    assert {*family} == {0}
    named = [line.split(",") for line in (home / "A.csv").read_text().replace('"', "").split()]
    families = ["family", *(f"of {worker[0]}" for _, worker, _ in named[1:])]
    write_csv(home / "G.csv", [[*row, name] for row, name in zip(named, families, strict=True)])
    done(*fit_arguments("--groups", "family", annotations="G.csv"))
    np.save(home / "A.npy", np.array([[0, 1], [1, 1]]))
    says = ["names a column, which a matrix does not have"]
    refused(3, "aggregate", "A.npy", "--groups", "family", says=says)


@pytest.mark.parametrize(
    ("names", "p_values", "says"),
    [
        ("KOS DawidSkene IBCC", (0.2, 0.05),
         "no method is clearly worse than KOS: the differences may be chance (exact sign tests, "
         "corrected for 3 pairs). So these labels are no reason to leave DawidSkene, the default."),
        ("KOS DawidSkene IBCC", (0.2, 0.01),
         "KOS is better than IBCC (exact sign tests, corrected for 3 pairs). The others cannot be "
         "told apart from it. So these labels are no reason to leave DawidSkene, the default."),
        ("KOS DawidSkene IBCC", (0.02, 0.01),
         "KOS is better than every other method (exact sign tests, corrected for 3 pairs). "
         "DawidSkene, the default, is among the worse ones; --method chooses another."),
        ("DawidSkene KOS IBCC MACE", (0.01, 0.2, 0.01),
         "DawidSkene is better than KOS and MACE (exact sign tests, corrected for 6 pairs). The "
         "others cannot be told apart from it."),
        ("DawidSkene KOS", (1.0,),
         "no method is clearly worse than DawidSkene: the differences may be chance (exact sign "
         "tests, corrected for 1 pair)."),
    ],
)  # fmt: skip
def test_a_comparison_says_which_differences_may_be_chance(names, p_values, says):
    rows = zip(names.split(), (None, *p_values), strict=True)
    scores = [{"method": name, "p_value": p_value} for name, p_value in rows]
    assert _told_apart(scores, 60) == f"By 60 gold labels, {says}"


def test_aggregate_compares_all_methods(home):
    text = done("aggregate", "A.csv", "--compare", "--gold", "gold.csv").stdout
    assert "DawidSkene" in text
    assert "min. recall" in text
    n = len(read_rows(home / "gold.csv")) - 1
    assert f"accuracy: on {n} gold labels, with its 95 % interval" in text
    found = done_json("aggregate", "A.csv", "--compare", "--gold", "gold.csv")
    assert found["n_gold"] == n
    best, *others = found["methods"]
    interval = percent_interval(best["low"], best["high"])
    assert f"{percent(best['accuracy'])} ({interval})" in text
    assert max(len(line) for line in text.splitlines() if "│" in line) <= 80
    assert not [row for row in others if row["error"] is None and row["p_value"] < CLEAR]
    assert f"no method is clearly worse than {best['method']}: the differences may be" in text
    blind = done_json("aggregate", "A.csv", "--compare")
    names = {name for name, _ in all_aggregators()} - {"GoldCorrected"}
    assert {row["method"] for row in blind["methods"]} == names
    assert all(row["accuracy"] is None for row in blind["methods"])
    likelihoods = [row["held_out_log_likelihood"] for row in blind["methods"]]
    assert likelihoods == sorted(likelihoods, reverse=True)
    refused(3, "aggregate", "A.csv", "--compare", "--out", "x.csv", says=["--compare", "--out"])
    refused(3, "aggregate", "A.csv", "--compare", "--method", "kos", says=["--method"])


def test_aggregate_uses_the_history_of_annotators(home):
    votes = [(i, worker, (i + k) % 2) for i in range(6) for k, worker in enumerate("uv")]
    write_csv(home / "tied.csv", [("task", "worker", "label"), *votes])
    counts = [("annotator", "true", "given", "count"), ("v", 0, 0, 50), ("v", "1.0", 1, 50)]
    write_csv(home / "history.csv", counts)
    labels = done_json("aggregate", "tied.csv", "--history", "history.csv")["labels"]
    assert [row["label"] for row in labels] == [1, 0, 1, 0, 1, 0]
    history = ("aggregate", "tied.csv", "--history", "history.csv")
    refused(3, *history, "--method", "mace", says=["MACE takes no history", "dawid-skene"])
    refused(3, *history, "--compare", says=["--history"])
    refused(3, "aggregate", "tied.csv", "--history", "A.csv", says=["no column 'true'"])
    write_csv(home / "history.csv", [*counts, ("v", 2, 0, 1)])
    refused(3, *history, says=["history holds 2", "classes"])
    write_csv(home / "history.csv", [*counts, ("v", 0, 1, "")])
    refused(3, *history, says=["column 'count' is empty in row 4"])


def test_aggregate_uses_what_is_known_and_leaves_open_what_is_not(home):
    votes = [(0, "u", 0), (0, "v", 0), (1, "u", 0), (1, "v", 0), (3, "u", 0), (3, "v", 0)]
    votes += [(2, "u", 0), (2, "v", 0), (2, "w", 1)]
    write_csv(home / "A_rare.csv", [("task", "worker", "label"), *sorted(votes)])
    plain = done_json("aggregate", "A.csv")
    first = plain["labels"][0]
    other = next(row["label"] for row in plain["labels"] if row["label"] != first["label"])
    write_csv(home / "known.csv", [["task", "label"], [first["task"], other]])
    known = done_json("aggregate", "A.csv", "--known", "known.csv", "--gold", "gold.csv")
    assert known["labels"][0] == {"task": first["task"], "label": other, "probability": 1.0}
    with_gold = done_json("aggregate", "A.csv", "--gold", "gold.csv")["gold"]
    assert known["gold"]["instances with gold"] == with_gold["instances with gold"] - 1
    open_ = done_json("aggregate", "A.csv", "--threshold", "0.999", "--out", "labels.csv")
    undecided = [row for row in open_["labels"] if row["label"] is None]
    assert len(undecided) == open_["n_undecided"] > 0
    own = {row["task"]: row["probability"] for row in plain["labels"]}
    assert all(row["probability"] == own[row["task"]] < 0.999 for row in undecided)
    assert sum(row[1] == "" for row in read_rows(home / "labels.csv")) == len(undecided)
    assert "Every label was left open." in done("aggregate", "A.csv", "--threshold", "0.999").stdout
    half = float(np.median([*own.values()]))
    some = done_json("aggregate", "A.csv", "--threshold", half)
    told = done("aggregate", "A.csv", "--threshold", half, "--out", "some").stdout
    both = [some["headline"], some["decided"]["headline"]]
    assert both[0] == plain["headline"]
    assert both[1].endswith(f"The other {sum(p < half for p in own.values())} were left open.")
    assert "\n".join(both) in told
    page = html.unescape((home / "some" / "report.html").read_text(encoding="utf-8"))
    assert 0 < page.index(both[0]) < page.index(both[1])
    plain_text = done("aggregate", "A.csv").stdout
    assert "left open" not in plain_text
    vote = ("aggregate", "A_rare.csv", "--method", "majority-vote")
    balanced = done_json(*vote, "--rule", "balanced")
    assert [row["label"] for row in balanced["labels"]] == [0, 0, 1, 0]
    plain = done_json(*vote)
    assert [row["label"] for row in plain["labels"]] == [0, 0, 0, 0]


def test_agreement(home):
    found = done_json("agreement", "A.csv")
    alpha = found["krippendorff_alpha"]
    assert alpha["low"] < alpha["value"] < alpha["high"]
    table = read_annotations("A.csv")
    assert alpha["value"] == krippendorff_alpha(table)
    assert "Krippendorff's alpha" in done("agreement", "A.csv").stdout
    assert "no effect" in done("agreement", "A.csv", "--resamples", "20").stderr
    assert "gwet_ac2" in done_json("agreement", "A.csv", "--scale", "ordinal")
    refused(3, "agreement", "A_names.csv", "--scale", "interval", says=["numbers", "ordinal"])
    write_csv(home / "one.csv", [["task", "worker", "label"], [0, 0, 0], [1, 1, 1]])
    assert done_json("agreement", "one.csv")["fleiss_kappa"]["value"] is None
    same = [["task", "worker", "label"], *([t, w, t % 2] for t in range(4) for w in range(2))]
    write_csv(home / "same.csv", same)
    assert done_json("agreement", "same.csv")["fleiss_kappa"] == {
        "value": 1.0, "low": None, "high": None,
    }  # fmt: skip
    assert "no interval" in done("agreement", "same.csv").stdout
    assert "undefined" in done("agreement", "one.csv").stdout


def test_repeated_pairs_are_a_choice(home):
    assert done_json("describe", "A_twice.csv", "--duplicates", "last") == done_json(
        "describe", "A.csv"
    )
    kept = done("describe", "A_twice.csv", "--duplicates", "keep").stdout
    assert "Repeated (item, annotator) pairs" in kept


def test_unsure_and_skipped_are_neither_classes_nor_missing(home):
    header, *rows = read_rows(home / "A.csv")
    passes = [(i, "w9", label) for i, label in enumerate(["unsure", "skip", "skip", "n/a"])]
    write_csv(home / "B.csv", [header, *rows, *passes])
    meanings = ["--abstain", "unsure", "--skip", "skip", "--skip", "n/a"]

    data = done_json("describe", "B.csv", *meanings)["data"]
    plain = done_json("describe", "A.csv", *meanings)["data"]  # where none of them occurs
    assert (data["n_abstentions"], data["n_skips"]) == (1, 3)
    assert (plain["n_abstentions"], plain["n_skips"]) == (0, 0)
    assert data["n_classes"] == plain["n_classes"] == 3
    assert data["n_annotations"] == plain["n_annotations"]
    lines = [
        line.strip("│ ").split("│")
        for line in done("describe", "B.csv", *meanings).stdout.splitlines()
    ]
    facts = {name.strip(): value.strip() for name, value in (x for x in lines if len(x) == 2)}
    assert (facts["Abstentions"], facts["Skips"]) == ("1", "3")
    assert "Skips" not in done("describe", "A.csv", *meanings).stdout

    vote = ["--method", "majority-vote"]
    marked, bare = (
        done_json("aggregate", *given) for given in (["B.csv", *vote, *meanings], ["A.csv", *vote])
    )
    # The level of the labels comes from a model to which an abstention tells of the class, and how
    # sure each is said to be comes from the level.
    assert marked.pop("level") != bare.pop("level")
    for row in marked["labels"] + bare["labels"]:
        assert 0 < row.pop("probability") < 1
    assert marked == bare
    done(*fit_arguments(*meanings, annotations="B.csv"))
    summary = json.loads((home / "out" / "summary.json").read_text())
    assert (summary["data"]["n_abstentions"], summary["data"]["n_skips"]) == (1, 3)


@pytest.mark.parametrize("command", ["describe", "aggregate"])
def test_a_meaning_is_given_once_and_is_no_class(unchanged, command):
    says = "'?' stands in --abstain and in --skip"
    refused(3, command, "A.csv", "--abstain", "?", "--skip", "?", says=[says])
    classes = ["--classes", "classes.txt"]
    says = "skip holds 'dog', which is also among"
    refused(3, command, "A.csv", *classes, "--skip", "dog", says=[says])


def test_fit_predict_report(home):
    result = done(*fit_arguments("--gold", "gold.csv", "--classes", "classes.txt"))
    assert "annotations of 36 items by 5 annotators" in result.stdout
    assert "left out: " in result.stdout
    order = [result.stdout.index(f"last epoch, {split}") for split in ("train (36)", "test (12)")]
    assert order == sorted(order)
    names = {path.name.split("-")[0] for path in (home / "out").iterdir()}
    tables = {"annotators.csv", "labels.csv"}
    assert names == {*tables, "model.json", "summary.json", "report.html", "weights"}

    done("predict", "out", "X.npy", "--out", "predicted.csv")
    predicted, labels = (read_rows(home / n) for n in ("predicted.csv", "out/labels.csv"))
    # The rest is about annotations, and how sure the labels of these are said to be by gold.
    shared = [name for name in predicted[0] if name != "probability"]
    one, other = (
        [[row[rows[0].index(name)] for name in shared] for row in rows]
        for rows in (predicted, labels)
    )
    assert one == other
    assert set(labels[0]) - {*predicted[0]} == {"n_annotations", "agreement", "action"}
    assert "recommended: accept" in result.stdout
    assert {row[1] for row in read_rows(home / "predicted.csv")[1:]} <= {"cat", "dog", "eel"}
    predicted = done_json("predict", "out", "ids.npz")["labels"]
    assert [row["task"] for row in predicted] == [f"t{i}" for i in range(48)]

    assert "out/report.html" in done("report", "out").stdout
    assert done_json("report", "out", "--out", "new/page.html") == {"report": "new/page.html"}
    page = (home / "new" / "page.html").read_text(encoding="utf-8")
    assert page == (home / "out" / "report.html").read_text(encoding="utf-8")
    assert "Which annotations surprised the classifier?" in page


def assert_nothing_is_told_without_an_estimate(path):
    """An earlier version kept no map of probabilities, and other jobs keep no summary."""
    summary = path.read_text(encoding="utf-8")
    earlier = json.loads(summary)
    del earlier["levels"]["certainty"]
    path.write_text(json.dumps(earlier), encoding="utf-8")
    told = done("predict", "out", "ids.npz", "--out", "p.csv").stdout
    assert "cross-validation" in told
    assert "probability: empty, because an earlier version of manyhands made this folder" in told
    path.unlink()
    told = done("predict", "out", "ids.npz", "--out", "p.csv").stdout
    assert "was not estimated" in told
    assert "probability: empty, because it is not known" in told
    assert "How many of these predictions" not in told
    frame = pd.read_csv("p.csv")
    assert frame["probability"].isna().all()
    assert frame.filter(like="p(").sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-5)
    found = done_json("predict", "out", "ids.npz")
    assert found["cutoffs"] == []
    assert {row["probability"] for row in found["labels"]} == {None}
    path.write_text(summary, encoding="utf-8")


def test_a_folder_s_files_are_listed_with_what_they_hold(home):
    fitted = done("fit", *DATA, "--method", "aggregated", "--folds", 0, "--out", "my model").stdout
    made = done("aggregate", "A.csv", "--out", "labels").stdout
    for folder, printed in (("my model", fitted), ("labels", made)):
        lines = [line for line in printed.splitlines() if line.startswith("written: ")]
        names = {line.removeprefix("written: ").split(" (")[0] for line in lines}
        kept = [path for path in Path(folder).iterdir() if path.suffix != ".safetensors"]
        assert names == {str(path) for path in kept if not path.name.startswith(".")}
        assert all(line.endswith(")") for line in lines)
    assert "labels/report.html" in lines[0]  # What a person opens comes first.
    assert "next: open my model/report.html in a browser" in fitted
    assert "written: labels.csv\n" in done("aggregate", "A.csv", "--out", "labels.csv").stdout


@pytest.mark.filterwarnings("always:left out 48 of 48 gold")
def test_predictions_are_measured_on_new_items_alone(home):
    """Gold labels of the rows that the model was trained on say nothing of new ones."""
    files = ["--features", "ids.npz", "--annotations", "A_ids.csv", "--out", "out"]
    fitted = done_json("fit", *files, "--folds", 2)
    assert fitted["levels"]["new_items"]["source"] == "cross-validation"
    assert any("cross-validation" in line for line in fitted["headline"])
    rows = done_json("predict", "out", "ids.npz")["labels"]
    assert done_json("predict", "out", "--features", "ids.npz")["labels"] == rows
    told = done("predict", "out", "ids.npz").stdout
    mean = percent(sum(row["probability"] for row in rows) / len(rows))
    assert f"over these items it is {mean}" in told
    assert fitted["headline"][1] in told
    assert_nothing_is_told_without_an_estimate(home / "out" / "summary.json")
    twice = ["predict", "out", "ids.npz", "--features", "ids.npz"]
    refused(3, *twice, says=["the file of features is given twice"])
    refused(3, "predict", "out", says=["give --features FILE, with one row per item"])
    old = [(row["task"], row["label"]) for row in rows]
    write_csv(home / "old.csv", [("task", "label"), *old])
    found = done("predict", "out", "ids.npz", "--gold", "old.csv")
    assert fitted["headline"][1] not in found.stdout
    assert "48 of 48 gold labels, because the model was trained on their items" in found.stderr
    assert "0 gold labels of new items are too few" in found.stdout
    X = np.load(home / "X.npy")
    np.savez("new.npz", X=X, task=np.array([f"u{i}" for i in range(len(X))]))
    new = [(f"u{i}", label) for i, (_, label) in enumerate(old)]
    write_csv(home / "new.csv", [("task", "label"), *new])
    level = done_json("predict", "out", "new.npz", "--gold", "new.csv")["level"]
    assert (level["source"], level["n"]) == ("gold", 48)
    assert level["value"] == pytest.approx(48.5 / 49)  # All of 48 are right; the next may be wrong.
    refused(3, "predict", "out", "new.npz", "--gold", "old.csv", says=["use the same ids in both"])


@pytest.mark.filterwarnings("always:left out 48 of 48 gold")
def test_items_of_earlier_training_are_told_by_their_ids_whatever_else_the_table_holds(home):
    """An id that a spreadsheet would take for a formula, and a text beyond a field of csv's."""
    rows = read_rows(home / "A_ids.csv")
    rename = {"t0": "=a1"}
    named = [[rename.get(row[0], row[0]), *row[1:]] for row in rows]
    texts = [[*named[0], "text"], *([*row, "long " * 40_000] for row in named[1:])]
    write_csv(home / "B.csv", texts)
    held = np.load("ids.npz", allow_pickle=True)
    ids = [rename.get(task, task) for task in held["task"].tolist()]
    np.savez("renamed.npz", X=held["X"], task=np.array(ids))
    files = ["--features", "renamed.npz", "--annotations", "B.csv", "--folds", 0]
    done("fit", *files, "--out", "out")
    labels = done_json("predict", "out", "renamed.npz")["labels"]
    write_csv(home / "old.csv", [("task", "label"), *((r["task"], r["label"]) for r in labels)])
    found = done("predict", "out", "renamed.npz", "--gold", "old.csv")
    assert "48 of 48 gold labels, because the model was trained on their items" in found.stderr


def write_named_features(home):
    """Features with names and ids: as fitted, in another order, and what is wrong with such."""
    X = pd.DataFrame(np.load(home / "X.npy"), columns=list("abcd"))
    X.index = pd.Index([f"t{i}" for i in X.index], name="image_id")
    X.to_csv("X.csv")
    mixed = X.sample(frac=1, random_state=0)[list("dbac")]
    mixed.to_csv("mixed.csv")
    mixed.to_parquet("mixed.parquet")
    mixed.rename_axis(None).to_csv("unnamed.csv")
    mixed.rename_axis(None).to_parquet("unnamed.parquet")
    X.drop(columns="c").to_csv("lacks.csv")
    X.assign(label=1).to_csv("label.csv")
    return X


@pytest.mark.filterwarnings("default:.*the rows of X are shuffled")
def test_a_matrix_beside_shuffled_ids_is_warned_of(home):
    np.save("A.npy", make_crowd_problem()[1])
    write_named_features(home)
    says = "mixed.csv: the rows of X are shuffled (ids 't"
    result = done(*fit_arguments(features="mixed.csv", annotations="A.npy"))
    assert says in result.stderr
    assert "A.npy has no ids, so row i of the matrix" in result.stderr
    result = done(*fit_arguments(features="X.csv", annotations="A.npy", out="sorted"))
    assert "shuffled" not in result.stderr


def test_rows_are_matched_by_id_and_columns_by_name(home):
    write_named_features(home)
    trained = ("--set", "max_epochs=5", "--set", "lr=0.05")
    done(*fit_arguments(*trained, features="X.csv", annotations="A_ids.csv"))
    described = json.loads((home / "out" / "model.json").read_text())
    assert described["fitted"]["feature_names_in_"]["$values"] == list("abcd")
    labels = {row["task"]: row["label"] for row in done_json("predict", "out", "X.csv")["labels"]}
    for features in ("mixed.csv", "mixed.parquet", "unnamed.csv", "unnamed.parquet"):
        found = done_json("predict", "out", features)["labels"]
        assert {row["task"]: row["label"] for row in found} == labels
        # Rows in another order are matched in fit as well.
        done(*fit_arguments(*trained, features=features, annotations="A_ids.csv", out="other"))
        rows = read_rows(home / "other" / "labels.csv")[1:]
        assert sum(labels[task] == int(label) for task, label, *_ in rows) > 40


def test_columns_missing_or_extra_at_prediction_are_refused_by_name(home):
    write_named_features(home)
    done(*fit_arguments(features="X.csv", annotations="A_ids.csv"))
    refused(3, "predict", "out", "lacks.csv", says=["lacks column 'c'", "fitted on"])
    refused(3, "predict", "out", "label.csv", says=["has column 'label'", "not fitted on"])


@pytest.mark.filterwarnings("always")
def test_columns_that_tell_the_label_are_named(home):
    X = write_named_features(home)
    arguments = fit_arguments(features="label.csv", annotations="A_ids.csv")
    assert "'label' (by its name)" in done(*arguments).stderr
    gold = [int(row[1]) for row in read_rows(home / "gold_plain.csv")[1:]]
    write_csv(home / "gold_ids.csv", [("task", "label"), *zip(X.index, gold, strict=True)])
    X.assign(k=gold).to_csv("gold_column.csv")
    arguments = fit_arguments("--gold", "gold_ids.csv", features="gold_column.csv",
                              annotations="A_ids.csv")  # fmt: skip
    assert "columns 'k' of the features equal the gold labels" in done(*arguments).stderr


@pytest.mark.filterwarnings("always")
def test_gold_of_unknown_tasks_is_named(home):
    rows = read_rows(home / "gold_plain.csv")
    write_csv(home / "gold_more.csv", [*rows, ("100", "1"), ("101", "1")])
    told = done(*fit_arguments("--gold", "gold_more.csv")).stderr
    assert "2 of 50 tasks with gold are not among the 48 items (0, 1, ..., 47)" in told
    assert "(gold_more.csv, row 50: task 100; " in told


def test_gold_never_changes_what_is_learnt(home):
    # gold_plain has no split, so that nothing is left out.
    done(*fit_arguments())
    done(*fit_arguments("--gold", "gold_plain.csv", out="evaluated"))
    assert weights_digest(home / "out") == weights_digest(home / "evaluated")


def test_only_gold_of_annotated_items_could_be_known_labels(home):
    header, *rows = read_rows(home / "gold.csv")
    write_csv(home / "test.csv", [header, *(row for row in rows if row[2] == "test")])
    told = {name: done(*fit_arguments("--gold", name)).stdout for name in ("gold.csv", "test.csv")}
    assert "give the file as --known" in told["gold.csv"]
    assert "give the file as --known" not in told["test.csv"]


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_a_fit_leaves_out_the_test_items_that_several_people_labelled(home, layout):
    rows = read_rows(home / "gold.csv")[1:]
    header = ("task", "ann", "ben", "split")
    people = [header, *((i, c, c, split) for i, c, split in rows)]
    if layout == "long":
        header = ("task", "worker", "label", "split")
        people = [header, *((i, w, c, s) for i, c, s in rows for w in ("ann", "ben"))]
    write_csv(home / "people.csv", people)
    told = done(*fit_arguments("--gold", "people.csv")).stdout
    assert "annotations of 36 items by 5 annotators" in told
    assert "test (12)" in told
    done(*fit_arguments("--gold", "gold.csv", out="single"))
    assert weights_digest(home / "out") == weights_digest(home / "single")


def test_a_method_with_a_start_leaves_no_checkpoints(home):
    short = ("--method", "crowding", "--set", "max_epochs=1")
    done(*fit_arguments(*short, out="twice"))
    assert not list((home / "twice").glob("*checkpoint*"))
    done(*fit_arguments(*short, "--seed", "1", out="twice"))
    assert not list((home / "twice").glob("*checkpoint*"))


@pytest.mark.filterwarnings("always")
def test_rows_of_features_without_annotations_are_named(home):
    content = dict(np.load("ids.npz"))
    more = {"X": content["X"][:2], "task": ["t0x", "t1x"]}
    np.savez("more.npz", **{name: [*content[name], *more[name]] for name in content})
    result = done(*fit_arguments(features="more.npz", annotations="A_ids.csv"))
    assert f"2 of {len(content['X']) + 2} rows of the features ('t0x', 't1x')" in result.stderr


def test_ids_of_the_features_are_matched(home):
    done(*fit_arguments())
    done(*fit_arguments(features="ids.npz", annotations="A_ids.csv", out="by_ids"))
    assert weights_digest(home / "out") == weights_digest(home / "by_ids")


def test_seeds_and_holdout(home):
    several = fit_arguments("--seeds", "2", "--holdout", "0.2", "--gold", "gold.csv", out="several")
    result = done_json(*several)
    assert result["seeds"] == [0, 1]
    assert set(result["table"]) == {"last epoch", "chosen on held-out instances"}
    for protocol, run_ in result["table"].items():
        runs = [record["protocols"][protocol]["splits"]["test"] for record in result["records"]]
        accuracies = [metrics["accuracy"] for metrics in runs]
        assert run_["splits"]["test"]["accuracy"]["mean"] == np.mean(accuracies)
        assert run_["splits"]["test"]["accuracy"]["sd"] == np.std(accuracies, ddof=1)
    done(*fit_arguments("--gold", "gold.csv"))
    assert weights_digest(home / "several") == weights_digest(home / "out"), "the first is kept"
    assert not list((home / "several").glob("*checkpoint*"))


def test_set_reaches_the_method(home):
    own = ["--method", "aggregated", "--set", "aggregator=dawid-skene"]
    more = ["--set", "aggregator.max_iter=7", "--set", "backbone.hidden=[8,4]", "--set", "lr=1e-2"]
    done(*fit_arguments(*own, *more))
    parameters = json.loads((home / "out" / "model.json").read_text())["parameters"]
    assert parameters["aggregator"]["$object"] == "DawidSkene"
    assert parameters["aggregator"]["parameters"]["max_iter"] == 7
    assert parameters["backbone"] == {"hidden": [8, 4]}
    assert parameters["lr"] == 0.01


def test_none_is_a_value_of_set_where_it_is_written_so(home):
    own = ["synthesis=None", "warm_up=null", "decision=balanced", "max_epochs=1"]
    done(*fit_arguments("--method", "iced", *set_options(own)))
    parameters = json.loads((home / "out" / "model.json").read_text())["parameters"]
    assert [parameters[name] for name in ("synthesis", "warm_up")] == [None, None]
    assert parameters["decision"] == "balanced"
    # Of some parameters it is a name.
    done(*fit_arguments("--method", "conal", "--set", "normalize=none", out="named"))
    parameters = json.loads((home / "named" / "model.json").read_text())["parameters"]
    assert parameters["normalize"] == "none"


@pytest.mark.parametrize("turned", [False, True])
def test_a_name_and_its_entries_combine(home, turned):
    pair = ["backbone=mlp", "backbone.hidden=[5]"][:: -1 if turned else 1]
    done(*fit_arguments("--set", pair[0], "--set", pair[1]))
    parameters = json.loads((home / "out" / "model.json").read_text())["parameters"]
    assert parameters["backbone"] == {"name": "mlp", "hidden": [5]}


def test_a_protocol_reaches_the_method_and_own_values_go_before_it(home):
    more = ["--protocol", "conal_music", "--set", "backbone.hidden=[5]", "--set", "lr=0.5"]
    done(*fit_arguments("--method", "crowdlayer", *more))
    parameters = json.loads((home / "out" / "model.json").read_text())["parameters"]
    assert parameters["backbone"] == {"name": "mlp", "batch_norm": True, "hidden": [5]}
    assert (parameters["max_epochs"], parameters["batch_size"], parameters["lr"]) == (2, 16, 0.5)
    assert (parameters["noise_lr"], parameters["reset_optimizer"]) == (None, True)
    done(*fit_arguments("--protocol", "conal_music", "--set", "backbone=linear", out="linear"))
    parameters = json.loads((home / "linear" / "model.json").read_text())["parameters"]
    assert parameters["backbone"] == "linear"
    assert parameters["embedding_dim"] == 80


def test_help_names_every_protocol():
    text = " ".join(done("fit", "--help").stdout.split())
    assert all(name in text for name in PROTOCOLS)


@pytest.mark.slow
def test_demo(home, monkeypatch):
    demo = load_demo()
    X, y, table = demo.X_train[:450], demo.y_train[:450], demo.annotations[:450]
    half = replace(demo, X_train=X, y_train=y, annotations=table)
    monkeypatch.setattr("manyhands.jobs.demo.load_demo", lambda: half)
    monkeypatch.setattr("manyhands.fitting.pilots.PILOT_STEPS", 120)
    result = done_json("demo")  # as the README has it: the default folder too
    *networks, stacking, gold = [row["test_accuracy"] for row in result["rows"]]
    assert all(0.8 < found <= gold for found in networks)
    assert stacking > max(networks)
    inferred = [row["train_label_accuracy"] for row in result["rows"]]
    assert 0.7 < inferred[0] < inferred[1] < inferred[4]
    assert inferred[2] is inferred[3] is inferred[5] is None
    assert Path(result["report"]).is_file()
    assert (home / "manyhands-demo" / "labels.csv").is_file()


# -- the careless user ------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["describe", "aggregate"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nofile.csv"], ["nofile.csv does not exist"]),
        (["."], ["annotator) pairs are repeated"]),
        (["empty.csv"], ["empty.csv", "empty"]),
        (["header.csv"], ["header.csv", "no rows"]),
        (["file.txt"], ["file.txt", "no format is recognised", "--format"]),
        (["X_nan.npy"], ["X_nan.npy"]),
        (["A_twice.csv"], ["repeated", "--duplicates"]),
        (["A.csv", "--task", "foo"], ["there is no column 'foo' (--task)", "'worker'", "--task"]),
        (["A.csv", "--worker", "foo"], ["there is no column 'foo' (--worker)", "--worker"]),
        (["A.csv", "--label", "foo"], ["there is no column 'foo' (--label)", "--label"]),
        (["A.csv", "--classes", "two.txt"], ["0..1", "2"]),
        (["A_names.csv", "--classes", "two.txt"], ["'x'", "'cat', 'dog'"]),
        (["A.csv", "--classes", "nofile.txt"], ["--classes 'nofile.txt'", "No such file"]),
        (["A.csv", "--classes", "."], ["--classes '.'"]),
        (["A.csv", "--classes", "empty.csv"], ["--classes 'empty.csv'", "no class"]),
        (["A.csv", "--classes", "gap.txt"], ["--classes 'gap.txt'", "line 2"]),
        (["A.csv", "--classes", "same.txt"], ["--classes 'same.txt'", "'cat'", "line 3"]),
        (["A.csv", "--classes", "binary.txt"], ["--classes 'binary.txt'", "UTF-8"]),
    ],
)
def test_unusable_tables(unchanged, command, arguments, says):
    refused(3, command, *arguments, says=says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["A_one_class.csv"], ["one class only", "--classes"]),
        (["A.csv", "--method", "nonsense"], ["--method nonsense is unknown", "dawid-skene"]),
        (["A.csv", "--gold", "nofile.csv"], ["nofile.csv does not exist"]),
        (["A.csv", "--gold", "gold_ids.csv"], ["'x0'"]),
        (["A.csv", "--gold", "gold_labels.csv"], ["gold", "7"]),
        (["A.csv", "--gold", "gold_column.csv"], ["--gold gold_column.csv", "'foo'", "'split'"]),
        (["A.csv", "--set", "max_iter"], ["'max_iter'", "name=value"]),
        (["A.csv", "--set", "=3"], ["'=3'", "name=value"]),
        (["A.csv", "--set", "maxiter=3"], ["'maxiter=3'", "did you mean max_iter?"]),
        (["A.csv", "--set", "max_iter=many"], ["--set max_iter='many'"]),
        (["A.csv", "--set", "max_iter=1.5"], ["--set max_iter=1.5"]),
        (["A.csv", "--set", "max_iter.x=1"], ["--set max_iter={'x': 1}"]),
        (["A.csv", "--set", "tol=[1"], ["'tol=[1'", "YAML"]),
        (["A.csv", "--set", "tol=!!python/object/apply:os.getcwd []"], ["not YAML"]),
        (["A.csv", "--out", "A.csv"], ["write over 'A.csv'"]),
        (["A.csv", "--gold", "gold.csv", "--out", "gold.csv"], ["write over 'gold.csv'"]),
    ],
)
def test_unusable_arguments_of_aggregate(unchanged, arguments, says):
    out = [] if "--out" in arguments else ["--out", "labels.csv"]
    refused(3, "aggregate", *arguments, *out, says=says)


@pytest.mark.parametrize(
    ("changed", "more", "says"),
    [
        ({"features": "nofile.npy"}, [], ["nofile.npy does not exist"]),
        ({"features": "."}, [], ["is a folder"]),
        ({"features": "A.csv"}, [], ["A.csv", "'worker'"]),
        ({"features": "X_short.npy"}, [], ["X_short.npy", "0..29"]),
        ({"features": "X_nan.npy"}, [], ["X_nan.npy", "row 7", "nan"]),
        ({"features": "X_inf.npy"}, [], ["X_inf.npy", "row 7", "inf"]),
        ({"features": "ids.npz"}, [], ["not among", "'t0'"]),
        ({"annotations": "A_ids.csv"}, [], ["A_ids.csv", "'t0'", "no ids"]),
        ({"annotations": "A_twice.csv"}, [], ["A_twice.csv", "--duplicates"]),
        ({"annotations": "header.csv"}, [], ["header.csv", "no rows"]),
        ({"annotations": "A_one_class.csv"}, [], ["one class only"]),
        ({}, ["--method", "nonsense"], ["--method nonsense is unknown", "conal"]),
        (
            {},
            ["--protocol", "nonsense"],
            ["--protocol nonsense is", "default, conal_labelme"],
        ),
        ({}, ["--holdout", "0"], ["--holdout 0.0"]),
        ({}, ["--holdout", "1.5"], ["--holdout 1.5"]),
        ({}, ["--holdout", "nan"], ["--holdout nan"]),
        ({}, ["--holdout", "0.0001"], ["--holdout 0.0001", "of 48 items"]),
        ({}, ["--seed", str(2**32 - 1), "--seeds", "2"], [str(2**32)]),
        ({}, ["--gold", "gold_ids.csv"], ["'x0'"]),
        ({}, ["--gold", "gold_labels.csv"], ["gold", "7"]),
        ({}, ["--gold", "gold_Train.csv"], ["'train'", "'Test', 'Train'"]),
        ({}, ["--set", "random_state=3"], ["--seed"]),
        ({}, ["--set", "checkpoint=here"], ["--out"]),
        ({}, ["--set", "validation=[1,2]"], ["validation", "fraction"]),
        ({}, ["--set", "max_epochs=2.5"], ["--set max_epochs=2.5"]),
        ({}, ["--set", "lr=nan"], ["--set lr=nan"]),
        ({}, ["--set", "backbone=nonsense"], ["--set backbone=nonsense", "mlp"]),
        ({}, ["--set", "backbone.nonsense=3"], ["backbone", "nonsense"]),
        ({}, ["--set", "device=nonsense"], ["--set device=nonsense is unknown"]),
        ({}, ["--method=aggregated", "--set=aggregator=foo"], ["=foo is", "majority-vote"]),
        ({}, ["--method", "aggregated", "--set", "aggregator.tol=1"], ["aggregator=dawid-skene"]),
        (
            {},
            ["--method=aggregated", "--set=aggregator=dawid-skene", "--set=aggregator.x=1"],
            ["'x'", "max_iter"],
        ),
    ],
)
def test_unusable_arguments_of_fit(unchanged, changed, more, says):
    refused(3, *fit_arguments(*more, **changed), says=says)


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ("nofile.npy", ["nofile.npy does not exist"]),
        ("X_nan.npy", ["X_nan.npy", "row 7"]),
        ("X_3.npy", ["3 features", "4 features"]),
        ("file.txt", ["no rows"]),
    ],
)
def test_unusable_features_to_predict(model, features, says):
    refused(3, "predict", "model", features, "--out", "labels.csv", says=says)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["describe"],
        ["describe", ""],
        ["describe", "A.csv", "--nonsense"],
        ["describe", "A.csv", "--duplicates", "nonsense"],
        ["aggregate", "A.csv", "--out", ""],
        fit_arguments("--seeds", "0"),
        fit_arguments("--seed", "-1"),
        fit_arguments("--holdout", "many"),
        fit_arguments(out=""),
    ],
)
def test_wrong_usage(unchanged, arguments):
    assert "Usage" in refused(2, *arguments).stderr


def test_fit_into_the_folder_of_the_data_keeps_the_data(home):
    (home / "gold.csv").rename(home / "labels.csv")
    refused(3, *fit_arguments("--gold", "labels.csv", out="."), says=["write over 'labels.csv'"])
    by_hand = "would replace 'labels.csv', in which 48 rows are filled in by hand"
    refused(4, *fit_arguments(out="."), says=[by_hand])
    refused(4, "demo", "--out", ".", says=["labels.csv", "manyhands did not write it"])
    (home / "labels.csv").rename(home / "annotators.csv")
    by_hand = by_hand.replace("labels.csv", "annotators.csv")
    refused(4, "aggregate", "A.csv", "--out", ".", says=[by_hand])


def test_a_model_is_not_written_over_by_what_reads_it(model):
    for name in ("model.json", "labels.csv", "annotators.csv", "summary.json"):
        refused(3, "predict", "model", "X.npy", "--out", f"model/{name}", says=[name])
        refused(3, "report", "model", "--out", f"model/{name}", says=[name])


# -- the hostile user -------------------------------------------------------------------------


@pytest.fixture
def hostile(home):
    """Tasks, annotators and classes that bear HOSTILE names."""
    rng = np.random.default_rng(0)
    tasks = [f"{name}{i}" for i in range(2) for name in HOSTILE]
    rows = [
        (task, worker, HOSTILE[(i + (rng.random() < 0.2)) % 4])
        for i, task in enumerate(tasks)
        for worker in rng.choice(HOSTILE, 4, replace=False)
    ]
    write_csv(home / "hostile.csv", [("task", "worker", "label"), *rows])
    np.savez(home / "hostile.npz", X=rng.normal(size=(len(tasks), 4)), task=np.array(tasks))
    return tasks


def harmless(text):
    return "\x1b" not in text and "\r" not in text and "\u202e" not in text and len(text) < 20_000


def test_hostile_names(hostile, home):
    assert harmless(done("describe", "hostile.csv").output)
    aggregated = done("aggregate", "hostile.csv", "--out", "labels.csv")
    assert harmless(aggregated.output)
    assert "[bold]x[/]0" in aggregated.stdout, "markup is text"
    header, *rows = read_rows(home / "labels.csv")
    assert sorted(row[0].removeprefix("'") for row in rows) == sorted(hostile)
    assert {row[1].removeprefix("'") for row in rows} <= set(HOSTILE)
    assert {len(row) for row in rows} == {len(header)}
    tasks = {row["task"] for row in done_json("aggregate", "hostile.csv")["labels"]}
    assert tasks == set(hostile)

    fitted = fit_arguments(features="hostile.npz", annotations="hostile.csv", out="[bold]out[/red]")
    assert "[bold]out[/red]" in done(*fitted).stdout
    assert harmless(done("predict", "[bold]out[/red]", "hostile.npz").output)
    done("report", "[bold]out[/red]", "--out", "report.html")
    page = (home / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "\x1b" not in page


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_arguments(unchanged, name):
    for arguments in (
        ["describe", "A.csv", "--task", name],
        ["aggregate", "A.csv", "--method", name],
        ["aggregate", "A.csv", "--set", name],
        ["aggregate", name + ".csv"],
    ):
        result = refused(3, *arguments)
        assert harmless(result.stderr)
        assert len(result.stderr) < 2000


def test_hostile_names_in_errors(hostile, home):
    text = refused(3, "aggregate", "hostile.csv", "--classes", "classes.txt").stderr
    assert harmless(text)
    assert "[bold]x[/]" in text


# -- the machinery ----------------------------------------------------------------------------


def test_exit_codes_of_errors():
    full = OSError(errno.ENOSPC, "No space left on device")
    assert [exit_code(e) for e in (full, OSError(2, "x", "y"), RuntimeError())] == [4, 3, 1]
    assert message_of(OSError(errno.EACCES, "Permission denied", "A.csv")) == (
        "A.csv: Permission denied"
    )


def test_our_own_mistakes_show_a_traceback(home, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("manyhands.report.summarize", fail)
    result = run("describe", "A.csv")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "please report it" in result.stderr


def test_missing_extras(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    refused(6, "aggregate", "A.csv", "--out", "labels.xlsx", says=["manyhands[io]"])


def test_a_narrow_terminal_shows_what_it_can(home, monkeypatch):
    write_csv(
        home / "A.csv", [("task", "worker", "label"), ("\u00e4", "u", "\u00f6"), ("b", "u", 1)]
    )
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    arguments = ["manyhands", "aggregate", "A.csv", "--method", "majority-vote"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stopped:
        main()
    out.flush()
    assert stopped.value.code == 0
    assert b"\\xf6" in out.buffer.getvalue()


DATA = ("--features", "X.npy", "--annotations", "A.csv")


def set_options(settings):
    return [part for setting in settings for part in ("--set", setting)]


@pytest.mark.filterwarnings("ignore:.* added no pseudo-annotation")
def test_self_training_around_a_named_classifier(home):
    # Conal's own scaling is "auto": said all the same.
    around = ["estimator=conal", "estimator.max_epochs=2", "estimator.scaling=auto", "n_rounds=1"]
    around += ["estimator.backbone.hidden=[5]", "estimator.backbone.name=mlp", "guard=false"]
    command = ["fit", *DATA, "--protocol", "dasc_labelme", *set_options(around), "--out", "model"]
    record = done_json(*command, "--method", "dasc", "--holdout", "0.2")["records"][0]["protocols"]
    assert record["last epoch"]["epoch"] == 1
    assert not list(Path("model").glob("checkpoint*"))
    saved = json.loads(Path("model/model.json").read_text())
    assert saved["class"] == "CoNALClassifier"
    found = {key: saved["parameters"][key] for key in ("max_epochs", "batch_size", "scaling")}
    assert found == {"max_epochs": 2, "batch_size": 512, "scaling": "auto"}
    assert saved["parameters"]["backbone"] == {"name": "mlp", "hidden": [5]}
    summary = json.loads(Path("model/summary.json").read_text())
    assert summary["training"]["unit"] == "round"
    assert "added" in [chart["name"] for chart in summary["training"]["charts"]]
    for wrong, message in (
        ("estimator=none-such", "estimator=none-such is unknown"),
        ("selector=best", "selector=best is unknown"),
        ("estimator.random_state=1", "give the seed with --seed"),
        ("max_epochs=1", "has no parameter 'max_epochs' (of the classifier inside: estimator.max"),
    ):
        more = ["estimator=conal"] if "random_state" in wrong else []
        options = ["--method", "self-training", *set_options([*more, wrong]), "--out", "model"]
        refused(3, "fit", *DATA, *options, says=[message])


@pytest.mark.filterwarnings("ignore:.* added no pseudo-annotation")
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("self-training", "annotator=graph-completer annotator.max_epochs=3 annotator.hidden=5"),
        ("dasc", "annotator=crowding annotator.max_epochs=1 n_select=all"),
        ("crowding", "pretrainer=trace_reg pretrainer.max_epochs=5 max_epochs=1"),
    ],
)
def test_parts_that_are_models_are_named(method, settings, home):
    settings = settings.split()
    around = [] if method == "crowding" else ["estimator.max_epochs=2", "n_rounds=1"]
    command = ["fit", *DATA, "--method", method, "--out", "model"]
    done_json(*command, *set_options([*settings, *around]))
    saved = json.loads(Path("model/model.json").read_text())
    expected = "CrowdInGClassifier" if method == "crowding" else "CrowdLayerClassifier"
    assert saved["class"] == expected
    if method == "crowding":
        pretrainer = saved["parameters"]["pretrainer"]
        assert pretrainer["$object"] == "TraceRegClassifier"
        assert pretrainer["parameters"]["max_epochs"] == 5
    for wrong, message in (
        ([settings[0].split("=")[0] + "=none-such"], "=none-such is unknown"),
        ([settings[0], settings[0].split("=")[0] + ".random_state=1"], "give the seed with --seed"),
        ([settings[1]], "needs the method too"),
    ):
        refused(3, *command, *set_options(wrong), says=[message])


@pytest.mark.parametrize("method", ["dawid-skene", "majority-vote", "mace"])
@pytest.mark.filterwarnings("always::manyhands.exceptions.NotIdentifiableWarning")
def test_constant_annotators_are_told_of_and_nothing_is_accepted(home, method):
    """Two who always say pos, and a good one: all 200 labels were once accepted."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(200) < 0.275, "pos", "neg")
    good = np.where(rng.random(200) < 0.9, y, np.where(y == "pos", "neg", "pos"))
    rows = [(i, "a", good[i]) for i in range(200)]
    rows += [(i, worker, "pos") for i in range(200) for worker in ("z1", "z2")]
    write_csv(home / "V.csv", [("task", "worker", "label"), *rows])
    found = done_json("aggregate", "V.csv", "--method", method, "--out", "labels")
    assert found["actions"]["accept"] == 0
    assert found["level"] is None
    assert "the annotations do not show who is right" in found["headline"]
    summary = json.loads((home / "labels" / "summary.json").read_text())
    said = [each["text"] for each in summary["warnings"] if each["code"] == "not-identifiable"]
    text = "nnotators z1, z2 gave the same answer every time"
    assert any(text in each for each in said)
    assert text in done("aggregate", "V.csv", "--method", method).stderr


@pytest.mark.filterwarnings("default")
def test_language_models_are_declared_as_the_warning_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = ["ann", "ben", "gpt-4o", "gemini_pro", "llama-31"]
    rows = [(i, name, "ab"[rng.integers(2)]) for i in range(60) for name in names]
    write_csv(tmp_path / "A.csv", [("task", "worker", "label"), *rows])
    for command in ("describe", "aggregate", "annotators"):
        result = done(command, "A.csv")
        said = " ".join((result.stdout + result.stderr).split())
        assert "--groups llm=gemini_pro,gpt-4o,llama-31" in said, command
        assert "groups=" not in said
    declared = done("aggregate", "A.csv", "--groups", "llm=gemini_pro,gpt-4o,llama-31")
    assert "named like" not in declared.stderr
    refused(3, "aggregate", "A.csv", "--groups", "llm=gpt-4o,,x", says="is not a family")
    refused(3, "aggregate", "A.csv", "--groups", "a=gpt-4o;b=gpt-4o", says="occurs twice")


@pytest.mark.parametrize(
    "options",
    [
        ("--gold", "gold.csv"),
        ("--method", "MajorityVote"),
        ("--out", "labels.csv"),
    ],
)
def test_an_option_of_one_value_is_refused_when_it_is_given_twice(home, options):
    """The last would count alone, and the others would be lost."""
    name, value = options
    result = refused(2, "aggregate", "A.csv", *options, f"{name}={value}", says=[f"'{name}'"])
    said = " ".join(result.stderr.split())
    assert "given 2 times" in said
    assert ("Put the rows" in said) is (name == "--gold")


def test_every_option_of_one_file_is_refused_twice_and_of_several_taken(home):
    from typer.main import get_command

    group = get_command(app)
    n = 0
    for name, command in group.commands.items():
        for param in command.params:
            if param.param_type_name != "option" or param.is_flag:
                continue
            option = max(param.opts, key=len)
            result = run(name, option, "1", option, "2")
            refuses = f"'{option}'" in result.stderr and "given 2 times" in result.stderr
            assert refuses is not bool(param.multiple), (name, option)
            n += 1
    assert n > 80
