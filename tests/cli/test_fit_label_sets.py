"""``fit --multilabel ';'`` and ``predict`` of a model of sets."""

import json

import numpy as np
import pandas as pd
import pytest

from manyhands import load
from manyhands.explore.inputs import open_desk
from manyhands.fitting.saving import holds_label_sets
from manyhands.io import read_label_sets
from tests.cli.conftest import done as finished
from tests.cli.conftest import run

OPTIONS = ["awe", "fear", "joy"]
SETS = ("--multilabel", ";", "--none", "empty")
N, NEW = 120, 20


def done(*arguments):
    """Output of a command that ends well."""
    return finished(*arguments).stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Features of all items, answers of two people about most of them, and gold."""
    folder = tmp_path_factory.mktemp("sets")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N + NEW, 4))
    truth = X[:, :3] > 0.3
    tasks = [f"t{i:03d}" for i in range(N + NEW)]
    names = np.array(OPTIONS)

    def cells(ticks):
        return [";".join(names[row]) for row in ticks]

    rows = []
    for i in range(N):
        for who in rng.choice(6, 2, replace=False):
            rate = np.where(truth[i], 0.75, 0.08)
            rows.append((tasks[i], f"p{who}", ";".join(names[rng.random(3) < rate])))
    pd.DataFrame(rows, columns=["task", "worker", "labels"]).to_csv(
        folder / "answers.csv", index=False
    )
    features = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    features.insert(0, "task", tasks)
    features.to_csv(folder / "features.csv", index=False)
    features[N:].to_csv(folder / "new.csv", index=False)
    gold = pd.DataFrame({"task": tasks, "labels": cells(truth)})
    gold.to_csv(folder / "gold.csv", index=False)
    gold[N:].to_csv(folder / "new_gold.csv", index=False)
    words = [" ".join(f"say{name}" for name in names[row]) or "nothing" for row in truth]
    pd.DataFrame({"task": tasks, "text": words}).to_csv(folder / "texts.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def fitted(files):
    out = files / "model"
    features = ("--features", files / "features.csv", "--annotations", files / "answers.csv")
    gold = ("--gold", files / "gold.csv")
    found = json.loads(done("fit", *features, *SETS, *gold, "--out", out, "--json"))
    return out, found


def test_the_folder_of_a_fit(fitted, files):
    out, found = fitted
    assert found["method"] == "AggregatedClassifier"
    assert found["aggregator"] == "MultiLabelDawidSkene"
    assert found["saved"] is True
    assert holds_label_sets(out)
    assert found["gold"]["cells with gold"] == 3 * N
    assert found["new_items"]["source"] == "the gold of items without answers"
    assert found["new_items"]["cells with gold"] == 3 * NEW
    assert found["new_items"]["micro-F1"] > 0.6
    labels = pd.read_csv(out / "labels.csv", keep_default_na=False)
    assert labels["task"].tolist() == [f"t{i:03d}" for i in range(N + NEW)]
    assert [name for name in labels if name.startswith("p(")] == ["p(awe)", "p(fear)", "p(joy)"]
    model = load(out)
    X = pd.read_csv(files / "features.csv", index_col="task")
    shares = labels[["p(awe)", "p(fear)", "p(joy)"]].to_numpy()
    # Items without answers have what the classifier predicts, the others the aggregator's.
    np.testing.assert_allclose(shares[N:], model.predict_proba(X)[N:], atol=1e-5)
    assert np.abs(shares[:N] - model.predict_proba(X)[:N]).max() > 0.1
    assert pd.read_csv(out / "options.csv")["option"].tolist() == OPTIONS
    assert len(pd.read_csv(out / "annotators.csv")) == 6
    assert json.loads((out / "summary.json").read_text())["new_items"] == found["new_items"]


def test_what_is_printed(files, tmp_path):
    features = ("--features", files / "features.csv", "--annotations", files / "answers.csv")
    text = " ".join(done("fit", *features, *SETS, "--out", tmp_path / "m").split())
    assert "in 3 folds" in text
    assert "of the predicted labels are right" in text
    assert "--set decision=f1" in text
    text = done("fit", *features, *SETS, "--folds", "0", "--out", tmp_path / "m")
    assert "not measured" in text


def test_predict(fitted, files, tmp_path):
    out, _ = fitted
    gold = ("--gold", files / "new_gold.csv")
    written = tmp_path / "p.csv"
    found = json.loads(
        done("predict", out, files / "new.csv", *SETS, *gold, "--out", written, "--json")
    )
    assert found["n_instances"] == NEW
    assert found["gold"]["cells with gold"] == 3 * NEW
    table = pd.read_csv(written, keep_default_na=False)
    assert table.columns.tolist() == ["task", "labels", "least_sure", *(f"p({o})" for o in OPTIONS)]
    ticks = table[[f"p({o})" for o in OPTIONS]].to_numpy() > 0.5
    assert table["labels"].tolist() == [";".join(np.array(OPTIONS)[row]) for row in ticks]
    assert "t120" in done("predict", out, files / "new.csv")


def test_predict_reads_and_writes_sets_as_the_fit_did(files, tmp_path):
    answers, gold = tmp_path / "answers.csv", tmp_path / "gold.csv"
    for path, source in ((answers, "answers.csv"), (gold, "new_gold.csv")):
        frame = pd.read_csv(files / source, keep_default_na=False)
        frame["labels"] = frame["labels"].str.replace(";", " | ").replace("", "NONE")
        frame.to_csv(path, index=False)
    out = tmp_path / "model"
    given = ("--features", files / "features.csv", "--annotations", answers, "--out", out)
    done("fit", *given, "--multilabel", "|", "--none", "NONE", "--folds", "0")
    new = (out, files / "new.csv", "--gold", gold, "--json")
    found = json.loads(done("predict", *new))
    assert found["gold"]["cells with gold"] == 3 * NEW
    sets = {row["labels"] for row in found["labels"]}
    assert any("|" in labels for labels in sets)
    assert not any(";" in labels for labels in sets)
    assert "NONE" in sets
    assert "" not in sets
    written = tmp_path / "predicted.csv"
    done("predict", *new[:2], "--out", written)
    assert set(pd.read_csv(written, keep_default_na=False)["labels"]) == sets
    # What predict wrote is read back as it was meant, an empty set as an answer.
    pd.read_csv(written, keep_default_na=False).assign(worker="model").to_csv(written, index=False)
    table = read_label_sets(written, "|", none="NONE")
    assert (table.n_annotations, table.options.tolist()) == (NEW, OPTIONS)
    p = pd.read_csv(written)[[f"p({o})" for o in OPTIONS]].to_numpy()
    assert (table.ticks.toarray()[table.instance.argsort()] == (p > 0.5)).all()
    again = json.loads(done("predict", *new[:2], "--gold", written, "--json"))
    assert again["gold"]["share of right cells"] == 1
    assert again["gold"]["cells with gold"] == 3 * NEW
    other = json.loads(done("predict", out, files / "new.csv", "--multilabel", "+", "--json"))
    assert {row["labels"].replace("+", "|") for row in other["labels"]} == sets
    refused = run("predict", *new, "--multilabel", "join")
    assert "predicts sets of labels; leave it out" in " ".join(refused.output.split())


@pytest.mark.filterwarnings("ignore:2 instances have gold labels but no answers")
def test_known_cells_and_settings(files, tmp_path):
    known = tmp_path / "known.csv"
    known.write_text("task,option,gold\nt000,awe,1\nt130,joy,1\nt131,joy,0\n")
    own = ("--known", known, "--set", "decision=f1", "--set", "backbone=linear")
    features = ("--features", files / "features.csv", "--annotations", files / "answers.csv")
    done(
        *("fit", *features, *SETS, *own, "--set", "max_epochs=3", "--folds", "0"),
        *("--out", tmp_path / "m"),
    )
    labels = pd.read_csv(tmp_path / "m" / "labels.csv", keep_default_na=False, index_col="task")
    assert labels.loc["t000", "p(awe)"] == 1
    assert labels.loc["t130", "p(joy)"] == 1
    assert "joy" in labels.loc["t130", "labels"]
    assert labels.loc["t131", "p(joy)"] == 0
    assert load(tmp_path / "m").decision == "f1"


def test_texts(files, tmp_path):
    answers = pd.read_csv(files / "answers.csv", keep_default_na=False)
    texts = pd.read_csv(files / "texts.csv")
    beside = tmp_path / "beside.csv"
    answers.merge(texts, on="task").to_csv(beside, index=False)
    for source, table in ((files / "texts.csv", files / "answers.csv"), ("text", beside)):
        out = tmp_path / "texts"
        done("fit", "--texts", source, "--annotations", table, *SETS, "--out", out)
        found = json.loads(
            done(*("predict", out, "--texts", files / "texts.csv", *SETS, "--json"),
                 *("--gold", files / "new_gold.csv"))
        )  # fmt: skip
        assert found["gold"]["micro-F1"] > 0.9
        labels = pd.read_csv(out / "labels.csv")
        assert "text" in labels


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--method", "crowd-stacking"), "further off where"),
        (("--method", "conal"), "CoNALClassifier learns one label per item"),
        (("--method", "auto"), "--method auto chooses among methods for single labels"),
        (("--seeds", "2"), "--seeds is for single labels"),
        (("--holdout", "0.1"), "--holdout is for single labels"),
        (("--restart",), "--restart is for single labels"),
        (("--continue", "model"), "--continue is for single labels"),
        (("--devices", "2"), "--devices is for single labels"),
        (("--set", "checkpoint=x"), "checkpoint"),
        (("--set", "aggregator=dawid-skene"), "infers single labels"),
    ],
)
def test_what_is_refused(files, tmp_path, more, said):
    features = ("--features", files / "features.csv", "--annotations", files / "answers.csv")
    result = run("fit", *features, *SETS, *more, "--out", tmp_path / "m")
    assert result.exit_code == 3
    assert said in " ".join(result.stderr.split())
    assert not (tmp_path / "m").exists()


def test_tasks_without_features(files, tmp_path):
    features = ("--features", files / "new.csv", "--annotations", files / "answers.csv")
    result = run("fit", *features, *SETS, "--out", tmp_path / "m")
    assert result.exit_code == 3
    assert "not among the 20 ids of the features" in " ".join(result.stderr.split())


def test_the_sets_of_a_fit_are_reviewed_as_they_are_in_the_folder(fitted, files, tmp_path):
    out, found = fitted
    call = ("explore", out, "--annotations", files / "answers.csv", *SETS)
    done(*call, "--out", tmp_path / "all.csv")
    same, written = (pd.read_csv(path) for path in (tmp_path / "all.csv", out / "labels.csv"))
    pd.testing.assert_frame_equal(same, written, atol=2e-6, check_dtype=False)
    answers = {"sets": True, "multilabel": ";", "none": "empty"}
    with open_desk(out, files / "answers.csv", by="anna", **answers) as desk:
        assert desk.answers.count_actions() == found["actions"]
        row = desk.row_of[f"t{N}"]  # Without answers, of the features alone.
        assert desk.item(row).votes == []
        desk.decide(row, 0, (0, 2))
        assert (desk.item(row).answer, desk.answers.command) == ((0, 2), "fit")
    (out / "corrections.jsonl").unlink()


def test_a_model_of_classes_is_told_from_one_of_sets(fitted, files, tmp_path):
    out, _ = fitted
    more = files / "answers.csv"
    result = run("aggregate", "--continue", out, more, *SETS, "--out", tmp_path / "m")
    assert result.exit_code == 3
    assert "AggregatedClassifier" in result.stderr
    assert not holds_label_sets(tmp_path)
