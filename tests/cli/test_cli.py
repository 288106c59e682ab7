"""The command line as a new, a careless and a hostile user meet it."""

import csv
import errno
import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import manyhands
from manyhands import CoNALClassifier, load_demo
from manyhands.agreement import krippendorff_alpha
from manyhands.cli import main
from manyhands.cli.app import app
from manyhands.cli.errors import exit_code, message_of
from manyhands.estimator_checks import make_crowd_problem
from manyhands.fitting import PROTOCOLS
from manyhands.io import read_annotations, read_gold
from manyhands.io.files import file_lock
from manyhands.registry import all_aggregators
from manyhands.training.checkpoint import Checkpoint

COMMANDS = [
    *("demo", "describe", "agreement", "aggregate", "fit", "predict", "report"),
    *("reproduce", "results"),
]
QUICK = ["--set", "max_epochs=2", "--set", "batch_size=16", "--set", "device=cpu"]
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
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


def write_crowd(folder):
    """Features, annotations, gold with splits, class names, and what is wrong with such files."""
    X, A, y = make_crowd_problem()
    cells = [(i, f"w{r}", A[i, r]) for i, r in np.argwhere(A >= 0)]
    header = ("task", "worker", "label")
    np.save(folder / "X.npy", X)
    np.savez(folder / "ids.npz", X=X, task=np.array([f"t{i}" for i in range(len(X))]))
    np.save(folder / "X_short.npy", X[:30])
    np.save(folder / "X_3.npy", X[:, :3])
    for name, value in (("nan", np.nan), ("inf", -np.inf)):
        broken = X.copy()
        broken[7, 2] = value
        np.save(folder / f"X_{name}.npy", broken)
    write_csv(folder / "A.csv", [header, *cells])
    write_csv(folder / "A_ids.csv", [header, *((f"t{i}", r, c) for i, r, c in cells)])
    write_csv(folder / "A_names.csv", [header, *((i, r, "xyz"[c]) for i, r, c in cells)])
    write_csv(folder / "A_twice.csv", [header, *cells, cells[0]])
    write_csv(folder / "A_one_class.csv", [header, *((i, r, 1) for i, r, _ in cells)])
    write_csv(folder / "header.csv", [header])
    (folder / "empty.csv").write_text("")
    splits = np.where(np.arange(len(y)) < 36, "train", "test")
    gold = list(zip(range(len(y)), y, splits, strict=True))
    write_csv(folder / "gold.csv", [("task", "label", "split"), *gold])
    write_csv(folder / "gold_plain.csv", [("task", "label"), *((i, c) for i, c, _ in gold)])
    write_csv(folder / "gold_ids.csv", [("task", "label"), *((f"x{i}", c) for i, c, _ in gold)])
    write_csv(folder / "gold_labels.csv", [("task", "label"), *((i, c + 7) for i, c, _ in gold)])
    write_csv(folder / "gold_column.csv", [("task", "foo"), *((i, c) for i, c, _ in gold)])
    write_csv(
        folder / "gold_Train.csv",
        [("task", "label", "split"), *((i, c, s.title()) for i, c, s in gold)],
    )
    (folder / "classes.txt").write_text("cat\ndog\neel\n\n")
    (folder / "two.txt").write_text("cat\ndog\n")
    (folder / "gap.txt").write_text("cat\n\neel\n")
    (folder / "same.txt").write_text("cat\ndog\ncat\n")
    (folder / "binary.txt").write_bytes(b"\xff\xfec\x00")
    (folder / "file.txt").write_text("a file")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Stand in a folder with the crowd's files."""
    write_crowd(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model folder; copy it before changing it."""
    folder = tmp_path_factory.mktemp("trained")
    write_crowd(folder)
    files = ["--features", str(folder / "X.npy"), "--annotations", str(folder / "A.csv")]
    gold = ["--gold", str(folder / "gold.csv")]
    result = run("fit", *files, *gold, "--out", str(folder / "model"), *QUICK)
    assert result.exit_code == 0, result.output
    return folder / "model"


@pytest.fixture
def model(trained, home):
    shutil.copytree(trained, home / "model")
    return home / "model"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fit_arguments(*more, features="X.npy", annotations="A.csv", out="out"):
    return [
        *("fit", "--features", features, "--annotations", annotations, "--out", out),
        *(*QUICK, *more),
    ]


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def done_json(*arguments):
    return json.loads(done(*arguments, "--json").stdout)


def snapshot(folder):
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def refused(code, *arguments, says=()):
    """Run what must fail: the code, one paragraph on standard error, nothing else anywhere."""
    before = snapshot(Path.cwd())
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    if code != 2:
        # An unfinished progress bar may stand before it.
        lines = [line for line in result.stderr.splitlines() if "━" not in line]
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("error: ")
    for text in says:
        assert text in result.stderr
    assert snapshot(Path.cwd()) == before
    return result


def weights_digest(folder):
    (path,) = folder.glob("weights-*.safetensors")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


# -- the new user -----------------------------------------------------------------------------


def test_help_and_version():
    top = done("--help").stdout
    assert "Exit codes" in top
    for command in COMMANDS:
        assert command in top
        assert "Example: manyhands " + command in done(command, "--help").stdout
    assert done("--version").stdout.strip() == manyhands.__version__


def test_describe_reads_well(home):
    text = done("describe", "A.csv").stdout
    _, A, _ = make_crowd_problem()
    facts = dict(
        [cell.strip() for cell in line.strip("│ ").split("│")]
        for line in text.splitlines()
        if line.count("│") == 3
    )
    assert facts["Instances"] == "48"
    assert facts["Annotations"] == str((A >= 0).sum())
    assert facts["Empty cells (instance, annotator)"] == f"{100 * (A < 0).mean():.1f} %"
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
    assert "column 'rater' is read as the worker" in result.stderr
    assert "rater" not in result.stdout
    assert done("describe", "B.csv", "--worker", "rater").stdout == result.stdout


def test_aggregate_writes_what_the_library_infers(home):
    out = ["--out", "new/labels.csv", "--gold", "gold.csv"]
    result = done_json("aggregate", "A.csv", "--method", "majority-vote", *out)
    _, A, y = make_crowd_problem()
    expected = manyhands.MajorityVote().fit(manyhands.AnnotationTable.from_matrix(A))
    assert [row["label"] for row in result["labels"]] == expected.labels_.tolist()
    assert result["gold"]["accuracy"] == (expected.labels_ == y).mean()
    header, *rows = read_rows(home / "new" / "labels.csv")
    assert header == ["task", "label", "probability", "p(0)", "p(1)", "p(2)"]
    assert [row[0] for row in rows] == [str(i) for i in range(len(y))]
    np.testing.assert_allclose(
        np.array([row[3:] for row in rows], float), expected.posterior_, atol=1e-6
    )


def test_aggregate_prints_the_first_labels_and_where_the_others_are(home):
    result = done("aggregate", "A.csv", "--gold", "gold.csv", "--set", "max_iter=3")
    assert "DawidSkene: 48 instances" in result.stdout
    assert "... and 38 more (--out labels.csv writes all)" in result.stdout
    assert "accuracy: " in result.stdout
    assert result.stderr == ""


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


def test_aggregate_compares_all_methods(home):
    text = done("aggregate", "A.csv", "--compare", "--gold", "gold.csv").stdout
    assert "DawidSkene" in text
    assert "min. recall" in text
    blind = done_json("aggregate", "A.csv", "--compare")
    names = {name for name, _ in all_aggregators()} - {"GoldCorrected"}
    assert {row["method"] for row in blind["methods"]} == names
    assert all(row["accuracy"] is None for row in blind["methods"])
    likelihoods = [row["held_out_log_likelihood"] for row in blind["methods"]]
    assert likelihoods == sorted(likelihoods, reverse=True)
    refused(3, "aggregate", "A.csv", "--compare", "--out", "x.csv", says=["--compare", "--out"])
    refused(3, "aggregate", "A.csv", "--compare", "--method", "kos", says=["--method"])


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
    assert all(row["probability"] < 0.999 for row in undecided)
    assert sum(row[1] == "" for row in read_rows(home / "labels.csv")) == len(undecided)
    assert "left open" in done("aggregate", "A.csv", "--threshold", "0.999").stdout
    vote = ("aggregate", "A_rare.csv", "--method", "majority-vote")
    balanced = done_json(*vote, "--rule", "balanced")
    assert [row["label"] for row in balanced["labels"]] == [0, 0, 1, 0]
    plain = done_json(*vote)
    assert [row["label"] for row in plain["labels"]] == [0, 0, 0, 0]


def test_agreement(home):
    found = done_json("agreement", "A.csv", "--resamples", "50")
    alpha = found["krippendorff_alpha"]
    assert alpha["low"] < alpha["value"] < alpha["high"]
    table = read_annotations("A.csv")
    assert alpha["value"] == krippendorff_alpha(table)
    assert "krippendorff alpha" in done("agreement", "A.csv", "--resamples", "20").stdout
    assert "gwet_ac2" in done_json("agreement", "A.csv", "--scale", "ordinal", "--resamples", "20")
    refused(3, "agreement", "A_names.csv", "--scale", "interval", says=["numbers", "ordinal"])
    write_csv(home / "one.csv", [["task", "worker", "label"], [0, 0, 0], [1, 1, 1]])
    assert done_json("agreement", "one.csv")["fleiss_kappa"]["value"] is None
    assert "undefined" in done("agreement", "one.csv").stdout


def test_repeated_pairs_are_a_choice(home):
    assert done_json("describe", "A_twice.csv", "--duplicates", "last") == done_json(
        "describe", "A.csv"
    )
    kept = done("describe", "A_twice.csv", "--duplicates", "keep").stdout
    assert "Repeated (instance, annotator) pairs" in kept


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
    assert done_json("aggregate", "B.csv", *vote, *meanings) == done_json(
        "aggregate", "A.csv", *vote
    )
    done(*fit_arguments(*meanings, annotations="B.csv"))
    summary = json.loads((home / "out" / "summary.json").read_text())
    assert (summary["data"]["n_abstentions"], summary["data"]["n_skips"]) == (1, 3)


@pytest.mark.parametrize("command", ["describe", "aggregate"])
def test_a_meaning_is_given_once_and_is_no_class(home, command):
    says = "'?' stands in abstain and in skip"
    refused(3, command, "A.csv", "--abstain", "?", "--skip", "?", says=[says])
    classes = ["--classes", "classes.txt"]
    says = "skip holds 'dog', which is also among classes"
    refused(3, command, "A.csv", *classes, "--skip", "dog", says=[says])


def test_fit_predict_report(home):
    result = done(*fit_arguments("--gold", "gold.csv", "--classes", "classes.txt"))
    assert "annotations of 36 instances by 5 annotators" in result.stdout
    assert "left out: " in result.stdout
    order = [result.stdout.index(f"last epoch, {split}") for split in ("train (36)", "test (12)")]
    assert order == sorted(order)
    names = {path.name.split("-")[0] for path in (home / "out").iterdir()}
    assert names == {"labels.csv", "model.json", "summary.json", "weights"}

    done("predict", "out", "X.npy", "--out", "predicted.csv")
    assert read_rows(home / "predicted.csv") == read_rows(home / "out" / "labels.csv")
    assert {row[1] for row in read_rows(home / "predicted.csv")[1:]} <= {"cat", "dog", "eel"}
    predicted = done_json("predict", "out", "ids.npz")["labels"]
    assert [row["task"] for row in predicted] == [f"t{i}" for i in range(48)]

    assert "out/report.html" in done("report", "out").stdout
    assert done_json("report", "out", "--out", "new/page.html") == {"report": "new/page.html"}
    page = (home / "new" / "page.html").read_text(encoding="utf-8")
    assert page == (home / "out" / "report.html").read_text(encoding="utf-8")
    assert "Unexpected annotations" in page


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


@pytest.mark.parametrize(
    "features", ["mixed.csv", "mixed.parquet", "unnamed.csv", "unnamed.parquet"]
)
def test_rows_are_matched_by_id_and_columns_by_name(home, features):
    write_named_features(home)
    trained = ("--set", "max_epochs=5", "--set", "lr=0.05")
    done(*fit_arguments(*trained, features="X.csv", annotations="A_ids.csv"))
    described = json.loads((home / "out" / "model.json").read_text())
    assert described["feature_names_in"] == list("abcd")
    labels = {row["task"]: row["label"] for row in done_json("predict", "out", "X.csv")["labels"]}
    again = {row["task"]: row["label"] for row in done_json("predict", "out", features)["labels"]}
    assert again == labels
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
    assert "'label' (so called)" in done(*arguments).stderr
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
    assert "2 of 50 tasks with gold (100, 101) are not among the 48 instances" in told


def test_gold_never_changes_what_is_learnt(home):
    # gold_plain has no split, so that nothing is left out.
    done(*fit_arguments())
    done(*fit_arguments("--gold", "gold_plain.csv", out="evaluated"))
    assert weights_digest(home / "out") == weights_digest(home / "evaluated")


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
    assert parameters["aggregator"]["__estimator__"] == "DawidSkene"
    assert parameters["aggregator"]["parameters"]["max_iter"] == 7
    assert parameters["backbone"] == {"hidden": [8, 4]}
    assert parameters["lr"] == 0.01


def test_none_is_a_value_of_set_where_it_is_written_so(home):
    own = ["synthesis=None", "warm_up=null", "decision=balanced", "max_epochs=1"]
    settings = [part for setting in own for part in ("--set", setting)]
    done(*fit_arguments("--method", "iced", *settings))
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


def test_demo(home, monkeypatch):
    demo = load_demo()
    X, y, table = demo.X_train[:450], demo.y_train[:450], demo.annotations[:450]
    half = replace(demo, X_train=X, y_train=y, annotations=table)
    monkeypatch.setattr("manyhands.jobs.demo.load_demo", lambda: half)
    monkeypatch.setattr("manyhands.fitting.length.PILOT_STEPS", 120)
    result = done_json("demo")  # as the README has it: the default folder too
    ceiling = result["rows"][-1]["test_accuracy"]
    assert all(0.8 < row["test_accuracy"] <= ceiling for row in result["rows"])
    assert Path(result["report"]).is_file()
    assert (home / "manyhands-demo" / "labels.csv").is_file()


# -- the careless user ------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["describe", "aggregate"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nofile.csv"], ["nofile.csv does not exist"]),
        (["."], ["is a folder"]),
        (["empty.csv"], ["empty.csv", "empty"]),
        (["header.csv"], ["header.csv", "no rows"]),
        (["file.txt"], ["'.txt'", ".csv"]),
        (["X_nan.npy"], ["X_nan.npy"]),
        (["A_twice.csv"], ["repeated", "--duplicates"]),
        (["A.csv", "--task", "foo"], ["task='foo'", "'worker'", "--task"]),
        (["A.csv", "--worker", "foo"], ["worker='foo'", "--worker"]),
        (["A.csv", "--label", "foo"], ["label='foo'", "--label"]),
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
def test_unusable_tables(home, command, arguments, says):
    refused(3, command, *arguments, says=says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["A_one_class.csv"], ["one class only", "--classes"]),
        (["A.csv", "--method", "nonsense"], ["'nonsense'", "dawid-skene"]),
        (["A.csv", "--gold", "nofile.csv"], ["nofile.csv does not exist"]),
        (["A.csv", "--gold", "gold_ids.csv"], ["'x0'"]),
        (["A.csv", "--gold", "gold_labels.csv"], ["gold", "7"]),
        (["A.csv", "--gold", "gold_column.csv"], ["--gold gold_column.csv", "'foo'", "'split'"]),
        (["A.csv", "--set", "max_iter"], ["'max_iter'", "name=value"]),
        (["A.csv", "--set", "=3"], ["'=3'", "name=value"]),
        (["A.csv", "--set", "maxiter=3"], ["'maxiter=3'", "did you mean max_iter?"]),
        (["A.csv", "--set", "max_iter=many"], ["'max_iter'", "'many'"]),
        (["A.csv", "--set", "max_iter=1.5"], ["'max_iter'", "1.5"]),
        (["A.csv", "--set", "max_iter.x=1"], ["'max_iter'"]),
        (["A.csv", "--set", "tol=[1"], ["'tol=[1'", "YAML"]),
        (["A.csv", "--set", "tol=!!python/object/apply:os.getcwd []"], ["not YAML"]),
        (["A.csv", "--out", "A.csv"], ["write over 'A.csv'"]),
        (["A.csv", "--gold", "gold.csv", "--out", "gold.csv"], ["write over 'gold.csv'"]),
    ],
)
def test_unusable_arguments_of_aggregate(home, arguments, says):
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
        ({}, ["--method", "nonsense"], ["'nonsense'", "conal"]),
        ({}, ["--protocol", "nonsense"], ["'nonsense'", "default, conal_labelme"]),
        ({}, ["--holdout", "0"], ["holdout=0.0"]),
        ({}, ["--holdout", "1.5"], ["holdout=1.5"]),
        ({}, ["--holdout", "nan"], ["holdout=nan"]),
        ({}, ["--holdout", "0.0001"], ["holdout=0.0001", "of 48 instances"]),
        ({}, ["--seed", str(2**32 - 1), "--seeds", "2"], [str(2**32)]),
        ({}, ["--gold", "gold_ids.csv"], ["'x0'"]),
        ({}, ["--gold", "gold_labels.csv"], ["gold", "7"]),
        ({}, ["--gold", "gold_Train.csv"], ["'train'", "'Test', 'Train'"]),
        ({}, ["--set", "random_state=3"], ["--seed"]),
        ({}, ["--set", "checkpoint=here"], ["--out"]),
        ({}, ["--set", "validation=[1,2]"], ["validation", "fraction"]),
        ({}, ["--set", "max_epochs=2.5"], ["'max_epochs'", "2.5"]),
        ({}, ["--set", "lr=nan"], ["'lr'", "nan"]),
        ({}, ["--set", "backbone=nonsense"], ["'nonsense'", "mlp"]),
        ({}, ["--set", "backbone.nonsense=3"], ["backbone", "nonsense"]),
        ({}, ["--set", "device=nonsense"], ["'nonsense'"]),
        ({}, ["--method=aggregated", "--set=aggregator=foo"], ["'foo'", "majority-vote"]),
        ({}, ["--method", "aggregated", "--set", "aggregator.tol=1"], ["aggregator=dawid-skene"]),
        (
            {},
            ["--method=aggregated", "--set=aggregator=dawid-skene", "--set=aggregator.x=1"],
            ["'x'", "max_iter"],
        ),
    ],
)
def test_unusable_arguments_of_fit(home, changed, more, says):
    refused(3, *fit_arguments(*more, **changed), says=says)


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ("nofile.npy", ["nofile.npy does not exist"]),
        ("X_nan.npy", ["X_nan.npy", "row 7"]),
        ("X_3.npy", ["3 features", "4 features"]),
        ("file.txt", ["'.txt'"]),
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
def test_wrong_usage(home, arguments):
    assert "Usage" in refused(2, *arguments).stderr


def test_fit_into_the_folder_of_the_data_keeps_the_data(home):
    (home / "gold.csv").rename(home / "labels.csv")
    refused(3, *fit_arguments("--gold", "labels.csv", out="."), says=["write over 'labels.csv'"])
    refused(4, *fit_arguments(out="."), says=["labels.csv", "not from manyhands"])
    refused(4, "demo", "--out", ".", says=["labels.csv", "not from manyhands"])


def test_a_model_is_not_written_over_by_what_reads_it(model):
    for name in ("model.json", "labels.csv", "summary.json"):
        refused(3, "predict", "model", "X.npy", "--out", f"model/{name}", says=[name])
        refused(3, "report", "model", "--out", f"model/{name}", says=[name])


# -- model folders ----------------------------------------------------------------------------


def weights_of(folder):
    return next(folder.glob("weights-*.safetensors"))


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def edit(folder, **changes):
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (shutil.rmtree, "not a model folder"),
        (lambda f: (f / "model.json").unlink(), "no model.json"),
        (lambda f: (f / "model.json").write_text((f / "model.json").read_text()[:99]), "truncated"),
        (lambda f: (f / "model.json").write_text("[" * 100_000), "unreadable"),
        (lambda f: (f / "model.json").write_bytes(b"\xff\x00"), "unreadable"),
        (lambda f: weights_of(f).unlink(), "missing"),
        (lambda f: weights_of(f).write_bytes(weights_of(f).read_bytes()[:99]), "truncated"),
        (lambda f: weights_of(f).write_bytes(b""), "truncated"),
        (lambda f: flip(weights_of(f)), "altered"),
        (lambda f: edit(f, version=99), "version 99"),
        (lambda f: edit(f, **{"class": "Nonsense"}), "'Nonsense'"),
        (lambda f: edit(f, **{"class": ["a"]}), "damaged"),
        (lambda f: edit(f, classes=[2, 1, 0]), "altered"),
        (lambda f: edit(f, classes=[0, 1]), "do not fit"),
        (lambda f: edit(f, classes="ab"), "damaged"),
        (lambda f: edit(f, annotators=None), "damaged"),
        (lambda f: edit(f, parameters=[]), "damaged"),
        (lambda f: edit(f, parameters={}), "altered"),
        (lambda f: edit(f, weights=3), "damaged"),
        (lambda f: edit(f, history=3), "damaged"),
        (lambda f: edit(f, n_features_in="x"), "altered"),
    ],
)
def test_damaged_model_folders(model, damage, says):
    damage(model)
    refused(5, "predict", "model", "X.npy", "--out", "labels.csv", says=[says])


class Payload:
    """Unpickled, it creates a file."""

    def __reduce__(self):
        return open, ("unpickled", "w")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_pickles_are_never_loaded(model):
    content = pickle.dumps(Payload())
    for name in ("model.pkl", "weights.pkl", "model.pt"):
        (model / name).write_bytes(content)
    done("predict", "model", "X.npy")
    digest = hashlib.sha256(content).hexdigest()
    edit(model, weights="weights.pkl", sha256=digest)
    refused(5, "predict", "model", "X.npy", says=["not a safetensors file"])
    edit(model, parameters={"backbone": {"__object__": "model.pkl"}})
    refused(5, "predict", "model", "X.npy", says=["backbone"])
    assert not Path("unpickled").exists()
    pickle.loads(content)
    assert Path("unpickled").exists(), "it would have been noticed"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version": 99}', '{"version": 1}', '{"version": 1, "data": 3}']
)
def test_damaged_summaries(model, content):
    (model / "summary.json").write_text(content)
    refused(5, "report", "model", says=["summary.json"])


def test_report_without_a_summary(home):
    refused(5, "report", ".", says=["summary.json"])
    refused(5, "report", "nofolder", says=["'nofolder'"])


# -- writing ----------------------------------------------------------------------------------


on_linux = pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")


@pytest.mark.parametrize(
    "out", ["file.txt/dir", "file.txt", pytest.param("/proc/manyhands/x", marks=on_linux)]
)
def test_unwritable_folders(model, out):
    says = ["cannot write"]
    refused(4, *fit_arguments(out=out), says=says)
    refused(4, "demo", "--out", out, says=says)
    if out != "file.txt":
        refused(4, "aggregate", "A.csv", "--out", f"{out}/labels.csv", says=says)
        refused(4, "predict", "model", "X.npy", "--out", f"{out}/labels.csv", says=says)
        refused(4, "report", "model", "--out", f"{out}/report.html", says=says)


def test_a_folder_in_the_place_of_a_file(model):
    for arguments in (["aggregate", "A.csv"], ["predict", "model", "X.npy"], ["report", "model"]):
        refused(4, *arguments, "--out", "model", says=["cannot write 'model'", "folder"])


@pytest.fixture
def full_disk(monkeypatch):
    """Return a function: the disk is full from the n-th synced file on."""
    sync = os.fsync

    def fill(n):
        calls = iter(range(1, 10**6))

        def fsync(handle):
            if next(calls) >= n:
                raise OSError(errno.ENOSPC, "No space left on device")
            sync(handle)

        monkeypatch.setattr(os, "fsync", fsync)

    return fill


@pytest.mark.parametrize(
    "n",
    # Two checkpoints, weights, model.json, labels, summary.
    range(1, 7),
)
def test_a_full_disk_leaves_a_whole_model(model, full_disk, monkeypatch, n):
    before = snapshot(model)
    full_disk(n)
    arguments = fit_arguments("--seed", "5", out="model")
    result = run(*arguments)
    assert result.exit_code == 4, result.output
    assert "the disk is full" in result.stderr
    monkeypatch.undo()
    monkeypatch.chdir(model.parent)
    after = snapshot(model)
    assert not [path for path in after if path.suffix == ".part"]
    assert {path: after[path] for path in before} == before
    assert set(after) - set(before) <= {Path("checkpoint.safetensors")}
    done(*arguments)
    new = weights_digest(model)
    done(*fit_arguments("--seed", "5", out="fresh"))
    assert new == weights_digest(Path("fresh")), "space freed, the same command goes on"


@pytest.mark.parametrize("n", [5, 6])
def test_a_full_disk_leaves_no_half_of_a_first_model(home, full_disk, n):
    full_disk(n)
    assert run(*fit_arguments()).exit_code == 4
    assert {path.name for path in Path("out").iterdir()} == {"checkpoint.safetensors"}


def test_one_job_at_a_time_writes_into_a_folder(home):
    Path("out").mkdir()
    with file_lock(Path("out/.manyhands.lock")) as held:
        assert held
        for arguments in (fit_arguments(), ["demo", "--out", "out"]):
            refused(4, *arguments, says=["'out'", "another manyhands command", "another folder"])
    done(*fit_arguments())


def test_what_a_killed_writer_left_blocks_nothing(home):
    whole = done_json(*fit_arguments(out="whole"))
    Path("out/.manyhands-new").mkdir(parents=True)
    left = ["out/.manyhands-new/labels.csv", "out/.manyhands.lock"]
    left += ["out/.checkpoint.safetensors.x.part"]
    for name in left:
        Path(name).write_text("half")
    assert done_json(*fit_arguments())["table"].keys() == whole["table"].keys()
    assert {path.name.split("-")[0] for path in Path("out").iterdir()} == {
        *("labels.csv", "model.json", "summary.json", "weights"),
    }


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".json", ".jsonl"])
def test_the_suffix_decides_what_is_written(model, suffix):
    read = {
        ".csv": pd.read_csv,
        ".tsv": lambda path: pd.read_csv(path, sep="\t"),
        ".parquet": pd.read_parquet,
        ".json": pd.read_json,
        ".jsonl": lambda path: pd.read_json(path, lines=True),
    }[suffix]
    for arguments in (["aggregate", "A.csv"], ["predict", "model", "X.npy"]):
        done(*arguments, "--out", "labels" + suffix)
        done(*arguments, "--out", "expected.csv")
        found, expected = read("labels" + suffix), pd.read_csv("expected.csv")
        pd.testing.assert_frame_equal(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["labels.xlsx", "labels", "labels.csv.gz"])
def test_an_unknown_suffix_is_refused(model, name):
    says = [name, ".csv, .tsv, .parquet, .json or .jsonl"]
    refused(3, "aggregate", "A.csv", "--out", name, says=says)
    refused(3, "predict", "model", "X.npy", "--out", name, says=says)


FORMULAS = ["=cmd|'/c calc'!A1", "+SUM(1)", "-A1", "@now()", "\tx", "'=x", "''+x", "＝1+1"]
NO_FORMULAS = ["-5", "+3.5e1", "'quoted", "a=b", "'-5", "–", "1-2"]


def test_ids_that_a_spreadsheet_would_run_are_neutralised_and_read_back(home):
    ids = [*FORMULAS, *NO_FORMULAS]
    votes = {"task": ids * 2, "worker": ["a"] * len(ids) + ["b"] * len(ids)}
    pd.DataFrame(votes | {"label": ["=1+1", "no", "no"] * 10}).to_parquet("votes.parquet")
    done("aggregate", "votes.parquet", "--out", "safe.csv", "--method", "majority-vote")
    _, *rows = read_rows(Path("safe.csv"))
    assert {row[0] for row in rows} == {*(f"'{name}" for name in FORMULAS), *NO_FORMULAS}
    assert {row[1] for row in rows} == {"'=1+1", "no"}
    gold = read_gold("safe.csv")
    assert sorted(gold.tasks) == sorted(ids)
    assert set(gold.labels) == {"=1+1", "no"}
    again = ["aggregate", "votes.parquet", "--gold", "safe.csv", "--method", "majority-vote"]
    assert done_json(*again)["gold"]["accuracy"] == 1.0

    done(*again, "--keep-formulas", "--out", "plain.csv")
    assert {row[0] for row in read_rows(Path("plain.csv"))[1:]} == set(ids)
    done(*again, "--out", "labels.parquet")
    assert set(pd.read_parquet("labels.parquet")["task"]) == set(ids)


def test_what_messages_recommend_can_be_done_on_the_command_line(home, interrupted):
    interrupted(1)
    assert run(*fit_arguments()).exit_code == 130
    result = run(*fit_arguments("--set", "lr=0.5"))
    assert "on the command line: another --out" in result.stderr
    done(*fit_arguments("--set", "lr=0.5", out="elsewhere"))


@pytest.mark.filterwarnings("always")
def test_warnings_name_the_options_too(home):
    rows = [
        ("task", "worker", "label"),
        *((i, "w", "yn"[i % 2]) for i in range(4)),
        (9, "w", "n/a"),
    ]
    write_csv(home / "marks.csv", rows)
    result = done("describe", "marks.csv")
    assert "'n/a' (1), which counts as a class" in result.stderr
    assert "(on the command line: --abstain ..., --skip ..., --classes ...)" in result.stderr
    assert "n/a" not in done("describe", "marks.csv", "--skip", "n/a").output


@pytest.mark.parametrize("command", ["describe", "aggregate"])
def test_ids_are_neither_guessed_nor_taken_as_labels(home, command):
    """An export of Label Studio: one annotation per row, with its id."""
    rows = [(i, i % 5, i % 3, ["pos", "neg"][i % 2]) for i in range(30)]
    write_csv(home / "ls.csv", [("annotation_id", "id", "annotator", "sentiment"), *rows])
    chosen = ["--task", "id", "--worker", "annotator", "--duplicates", "keep", "--label"]
    refused(3, command, "ls.csv", *chosen[:4], says=["label='label'", "'sentiment'", "--label"])
    says = ["30 classes in 30 annotations", "look like ids"]
    with_labels = run(command, "ls.csv", *chosen, "annotation_id")
    assert with_labels.exit_code == 3
    assert all(words in with_labels.stderr for words in says)
    done(command, "ls.csv", *chosen, "sentiment")


def test_a_full_disk_leaves_the_previous_file(model, full_disk):
    done("aggregate", "A.csv", "--out", "labels.csv")
    done("report", "model")
    full_disk(1)
    refused(4, "aggregate", "A.csv", "--set", "max_iter=1", "--out", "labels.csv", says=["full"])
    refused(4, "predict", "model", "X.npy", "--out", "labels.csv", says=["full"])
    refused(4, "report", "model", says=["full"])
    refused(4, *fit_arguments(out="deep/new"), says=["full"])


# -- interruptions ----------------------------------------------------------------------------


@pytest.fixture
def interrupted(monkeypatch):
    """Return a function: Ctrl-C after the n-th checkpoint."""
    write = Checkpoint.after_epoch

    def interrupt(n):
        calls = iter(range(1, 10**6))

        def after_epoch(self, row):
            write(self, row)
            if next(calls) == n:
                raise KeyboardInterrupt

        monkeypatch.setattr(Checkpoint, "after_epoch", after_epoch)

    return interrupt


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 6, 8])
def test_ctrl_c_and_the_same_command_again(home, interrupted, n):
    more = ["--seeds", "2", "--holdout", "0.2", "--gold", "gold.csv"]
    whole = done_json(*fit_arguments(*more, out="whole"))
    interrupted(n)
    result = run(*fit_arguments(*more, "--json"))
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert "Traceback" not in result.stderr
    resumed = done_json(*fit_arguments(*more))
    assert weights_digest(home / "out") == weights_digest(home / "whole")
    for protocol, run_ in whole["table"].items():
        assert resumed["table"][protocol]["splits"] == run_["splits"]
    assert not list((home / "out").glob("*checkpoint*"))


def test_a_run_goes_on_with_another_verbosity(home, interrupted):
    interrupted(1)
    assert run(*fit_arguments()).exit_code == 130
    done(*fit_arguments("--json"))


def test_finished_fits_are_not_repeated(home, interrupted, monkeypatch):
    interrupted(5)
    assert run(*fit_arguments("--seeds", "3")).exit_code == 130
    epochs = []
    monkeypatch.setattr(Checkpoint, "after_epoch", lambda self, row: epochs.append(row["epoch"]))
    done(*fit_arguments("--seeds", "3"))
    assert epochs == [2], "of six epochs five were done"


def test_ctrl_c_before_anything_leaves_nothing(home, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(manyhands.CoNALClassifier, "fit", stop)
    before = snapshot(home)
    assert run(*fit_arguments(out="deep/new")).exit_code == 130
    assert snapshot(home) == before


@pytest.mark.slow
def test_kill_9_and_the_same_command_again(home):
    """A process killed in the second seed; the run goes on to bit-identical weights."""
    more = ["--seeds", "2", "--holdout", "0.2"]
    program = (
        "import os, signal, torch\n"
        "from manyhands.cli import main\n"
        "from manyhands.training import checkpoint\n"
        "torch.set_num_threads(1)\n"
        "write, calls = checkpoint.save_tree, iter(range(1, 99))\n"
        "def save_tree(*args):\n"
        "    n = next(calls)\n"
        "    if n == 6:\n"
        "        open('out/.checkpoint-2.safetensors.x.part', 'w').write('half')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    write(*args)\n"
        "checkpoint.save_tree = save_tree\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, *fit_arguments(*more)]
    killed = subprocess.run(command, cwd=home, capture_output=True, check=False, timeout=600)
    assert killed.returncode == -9, killed.stderr
    left = {path.name for path in (home / "out").glob("*checkpoint*")}
    assert left == {
        "checkpoint.safetensors",
        "checkpoint-1.safetensors",
        "checkpoint-2.safetensors",
        ".checkpoint-2.safetensors.x.part",
    }
    done(*fit_arguments(*more))
    done(*fit_arguments(*more, out="whole"))
    assert weights_digest(home / "out") == weights_digest(home / "whole")
    assert (home / "out/labels.csv").read_bytes() == (home / "whole/labels.csv").read_bytes()
    assert not list((home / "out").glob("*checkpoint*"))


def test_a_checkpoint_of_another_run_is_kept_and_named(home, interrupted):
    interrupted(1)
    assert run(*fit_arguments()).exit_code == 130
    for more, says in (
        (["--set", "lr=0.5"], "lr"),
        (["--seed", "3"], "random_state"),
        (["--method", "crowdlayer"], "class"),
        (["--duplicates", "last", "--gold", "gold.csv"], "data"),
    ):
        result = run(*fit_arguments(*more))
        assert result.exit_code == 5, result.output
        assert "another run" in result.stderr
        assert says in result.stderr
        assert "Delete it" in result.stderr
    done(*fit_arguments())


@pytest.mark.parametrize("damage", [lambda c: b"", lambda c: c[:50], lambda c: c[: len(c) // 2]])
def test_truncated_checkpoints(home, interrupted, damage):
    interrupted(1)
    assert run(*fit_arguments()).exit_code == 130
    path = home / "out" / "checkpoint.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    refused(5, *fit_arguments("--json"), says=["out/checkpoint.safetensors"])


def test_divergence(home):
    # One step an epoch: the first ends, with its checkpoint, before the loss is infinite.
    result = run(*fit_arguments("--set", "lr=1e30", "--set", "batch_size=99"))
    assert result.exit_code == 7
    assert "in epoch 2" in result.stderr
    assert "lower lr" in result.stderr
    assert not (home / "out").exists()
    done(*fit_arguments())


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
def test_hostile_arguments(home, name):
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


def test_missing_extras(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    refused(6, "report", "model", says=["manyhands[report]"])


def test_without_the_extra_of_the_command_line(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "manyhands.cli.app")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 6
    assert "manyhands[cli]" in capsys.readouterr().err


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


@pytest.mark.filterwarnings("ignore:.* added no pseudo-annotation")
def test_self_training_around_a_named_classifier(tmp_path):
    write_crowd(tmp_path)
    # 50 is conal's default: said all the same.
    around = ["estimator=conal", "estimator.max_epochs=50", "estimator.scaling=rms", "n_rounds=1"]
    around += ["estimator.backbone.hidden=[5]", "estimator.backbone.name=mlp", "guard=false"]
    settings = [part for setting in around for part in ("--set", setting)]
    files = ["--features", str(tmp_path / "X.npy"), "--annotations", str(tmp_path / "A.csv")]
    out = tmp_path / "model"
    command = ["fit", *files, "--protocol", "dasc_labelme", *settings, "--out", str(out)]
    result = CliRunner().invoke(app, [*command, "--method", "dasc", "--json", "--holdout", "0.2"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)["records"][0]["protocols"]
    assert record["last epoch"]["epoch"] == 1
    assert not list(out.glob("checkpoint*"))
    saved = json.loads((out / "model.json").read_text())
    assert saved["class"] == "CoNALClassifier"
    found = {key: saved["parameters"][key] for key in ("max_epochs", "batch_size", "scaling")}
    assert found == {"max_epochs": 50, "batch_size": 512, "scaling": "rms"}
    assert saved["parameters"]["backbone"] == {"name": "mlp", "hidden": [5]}
    summary = json.loads((out / "summary.json").read_text())
    assert summary["training"]["unit"] == "round"
    assert "added" in [chart["name"] for chart in summary["training"]["charts"]]
    for wrong, message in (
        ("estimator=none-such", "estimator='none-such' is unknown"),
        ("selector=best", "selector='best' is unknown"),
        ("estimator.random_state=1", "give the seed with --seed"),
        ("max_epochs=1", "has no parameter 'max_epochs' (of the classifier inside: estimator.max"),
    ):
        more = ["--set", "estimator=conal"] if "random_state" in wrong else []
        options = ["--method", "self-training", *more, "--set", wrong, "--out", str(out)]
        result = CliRunner().invoke(app, ["fit", *files, *options])
        assert result.exit_code != 0
        assert message in str(result.output) + str(result.exception)


@pytest.mark.filterwarnings("ignore:.* added no pseudo-annotation")
@pytest.mark.parametrize(
    ("method", "settings", "saved_as"),
    [
        (
            "self-training",
            ["annotator=graph-completer", "annotator.max_epochs=3", "annotator.hidden=5"],
            "CrowdLayerClassifier",
        ),
        (
            "dasc",
            ["annotator=crowding", "annotator.max_epochs=1", "n_select=all"],
            "CrowdLayerClassifier",
        ),
        (
            "crowding",
            ["pretrainer=trace_reg", "pretrainer.max_epochs=5", "max_epochs=1"],
            "CrowdInGClassifier",
        ),
    ],
)
def test_parts_that_are_models_are_named(method, settings, saved_as, tmp_path):
    write_crowd(tmp_path)
    files = ["--features", str(tmp_path / "X.npy"), "--annotations", str(tmp_path / "A.csv")]
    out = tmp_path / "model"
    around = [] if method == "crowding" else ["estimator.max_epochs=2", "n_rounds=1"]
    options = [part for setting in [*settings, *around] for part in ("--set", setting)]
    command = ["fit", *files, "--method", method, *options, "--out", str(out), "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    saved = json.loads((out / "model.json").read_text())
    assert saved["class"] == saved_as
    if method == "crowding":
        pretrainer = saved["parameters"]["pretrainer"]
        assert pretrainer["__estimator__"] == "TraceRegClassifier"
        assert pretrainer["parameters"]["max_epochs"] == 5
    for wrong, message in (
        ([settings[0].split("=")[0] + "=none-such"], "='none-such' is unknown"),
        ([settings[0], settings[0].split("=")[0] + ".random_state=1"], "give the seed with --seed"),
        ([settings[1]], "needs the method too"),
    ):
        options = [part for setting in wrong for part in ("--set", setting)]
        command = ["fit", *files, "--method", method, *options, "--out", str(out)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code != 0
        assert message in str(result.output) + str(result.exception)


# -- select ----------------------------------------------------------------------------------------

QUICK_METHODS = ("--methods", "conal,crowd-layer", "--cv", "2")


FEW = pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")


def select_arguments(*more, out="chosen"):
    files = ("--features", "X.npy", "--annotations", "A.csv")
    return ["select", *files, "--out", out, *QUICK_METHODS, *more]


@FEW
def test_select_prints_the_table_and_saves_a_model_that_predicts(home):
    shown = done(*select_arguments("--gold", "gold.csv"))
    for text in ("crowd-layer", "conal", "z behind", "chosen:", "against gold"):
        assert text in shown.stdout
    assert not (home / "chosen" / "folds").exists()
    done("predict", "chosen", "X.npy", "--out", "predicted.csv")
    page = Path(done_json("report", "chosen")["report"]).read_text(encoding="utf-8")
    assert "Methods compared" in page
    assert "was chosen among" in page


@FEW
def test_select_says_the_same_to_programs(home):
    result = done_json(*select_arguments("--criterion", "balanced", "--average", 2))
    assert result["selection"]["criterion"] == "balanced"
    assert {row["candidate"] for row in result["selection"]["candidates"]} == {
        "conal",
        "crowd-layer",
    }
    assert result["splits"] == {}
    saved = json.loads((home / "chosen" / "summary.json").read_text())["selection"]
    assert saved == result["selection"]


@FEW
def test_select_goes_on_after_an_interruption(home, monkeypatch):
    trained, fits = CoNALClassifier.fit, []

    def interrupted(self, *args, **options):
        fits.append(1)
        if len(fits) == 2:
            raise KeyboardInterrupt
        return trained(self, *args, **options)

    monkeypatch.setattr(CoNALClassifier, "fit", interrupted)
    assert run(*select_arguments()).exit_code != 0
    assert len(list((home / "chosen" / "folds").glob("*.npz"))) == 1
    done(*select_arguments())
    assert len(fits) == 3  # The finished fold is not trained again.


@FEW
def test_method_auto_selects_over_the_short_list(home, monkeypatch):
    from manyhands.selection import selecting

    monkeypatch.setattr(selecting, "SHORT_LIST", ("CoNALClassifier", "CrowdLayerClassifier"))
    files = ("--features", "X.npy", "--annotations", "A.csv", "--out", "out")
    result = done_json("fit", *files, "--method", "auto")
    assert len(result["selection"]["candidates"]) == 2
    for more in (("--set", "lr=1"), ("--seeds", "2"), ("--protocol", "conal_music")):
        refused = run("fit", *files, "--method", "auto", *more)
        assert refused.exit_code == 3
        assert f"{more[0]} goes with one method" in refused.stderr


def test_select_refuses_an_unknown_method(home):
    refused = run("select", *select_arguments()[1:7], "--methods", "conal,agnet")
    assert refused.exit_code == 3
    assert "did you mean agg-net?" in refused.stderr
