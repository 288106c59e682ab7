"""Ratings of people from a spreadsheet, as grades: labels, severities, and what is warned of."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest

from manyhands import load
from manyhands.scale.store import AnnotationStore
from tests.cli.conftest import done, run


def said(*arguments):
    """Run the command; return what it printed."""
    return done(*map(str, arguments)).stdout


@pytest.fixture
def sheet(tmp_path):
    """A workbook of 1 to 5 stars by four people, of whom Bea grades too high and Cem too low."""
    rng = np.random.default_rng(0)
    stars = rng.integers(1, 6, 150)
    shifts = {"Ann": 0.0, "Bea": 0.9, "Cem": -0.9, "Dan": 0.0}
    given = {
        name: np.rint(stars + shift + rng.normal(0, 0.4, 150)).clip(1, 5).astype(int)
        for name, shift in shifts.items()
    }
    path = tmp_path / "stars.xlsx"
    pd.DataFrame({"item": [f"item {i}" for i in range(150)], **given}).to_excel(path, index=False)
    return path


READING = ("--annotators", "Ann,Bea,Cem,Dan", "--format", "wide", "--ordered")


def test_severities_are_in_the_json(sheet):
    found = json.loads(said("aggregate", sheet, *READING, "--json"))
    rows = {row["annotator"]: row for row in found["annotators"]}
    assert list(rows) == ["Ann", "Bea", "Cem", "Dan"]
    assert rows["Bea"]["severity_low_95"] > 0.3
    assert rows["Cem"]["severity_high_95"] < -0.3
    for row in rows.values():
        assert row["n_annotations"] == 150
        assert row["severity_low_95"] < row["severity"] < row["severity_high_95"]
    names = json.loads(said("aggregate", sheet, *READING[:-1], "--scale", "nominal", "--json"))
    assert names["annotators"] == []


def test_a_sheet_of_stars_names_the_option_that_reads_them_as_grades(sheet):
    found = done("aggregate", str(sheet), *READING[:-1])
    assert "--scale ordinal reads them as grades in their order" in found.stderr
    assert "note: the table: 5 different numbers, 1 to 5, are read as names" in found.stderr
    assert "too high" not in found.stdout
    found = done("aggregate", str(sheet), *READING)
    assert "as with grades" not in found.stderr
    assert "too high (" in found.stdout
    assert ") compared with the others, in 150 annotations" in found.stdout


def test_the_page_names_the_option_that_reads_stars_as_grades(sheet, tmp_path):
    said("aggregate", sheet, *READING[:-1], "--out", tmp_path / "names")
    said("aggregate", sheet, *READING, "--out", tmp_path / "grades")
    pages = [(tmp_path / name / "report.html").read_text() for name in ("names", "grades")]
    told = ["annotators who differ mostly differ by little" in p for p in pages]
    assert told == [True, False]
    summary = json.loads((tmp_path / "names" / "summary.json").read_text())
    assert "look-like-grades" in {warning["code"] for warning in summary["warnings"]}


def test_who_surely_gives_too_much_is_advised_in_the_table(sheet, tmp_path):
    said("aggregate", sheet, *READING, "--out", tmp_path / "out")
    rows = pd.read_csv(tmp_path / "out" / "annotators.csv").set_index("annotator")
    assert rows.loc["Bea", "flags"]  # And so another advice.
    assert rows.loc["Cem", "advice"].startswith("show them examples of the grades")
    assert rows.loc["Dan", "advice"] == "no reason to act"


def test_severities_are_compared_with_known_labels_where_there_are_some(sheet, tmp_path):
    known = tmp_path / "known.csv"
    stars = np.random.default_rng(0).integers(1, 6, 150)  # As in the sheet.
    rows = {"task": [f"item {i}" for i in range(20)], "label": stars[:20]}
    pd.DataFrame(rows).to_csv(known, index=False)
    out = tmp_path / "out"
    text = said("aggregate", sheet, *READING, "--known", known, "--out", out)
    page = (out / "report.html").read_text()
    for told in (text, page):
        assert "ompared with the labels, 20 of which are known" in told
        assert "compared with the others" not in told


def test_severities_of_halves_are_told_in_stars(sheet, tmp_path):
    """Five grades of half a star each: the severity is half as many stars, not grades."""
    people = READING[1].split(",")
    halves = pd.read_excel(sheet).assign(
        **{
            name: lambda rows, name=name: (rows[name] / 2).map("{:g} stars".format)
            for name in people
        }
    )
    halves.to_csv(tmp_path / "halves.csv", index=False)
    arguments = (tmp_path / "halves.csv", *READING)
    rows = json.loads(said("aggregate", *arguments, "--json"))["annotators"]
    (bea,) = [row for row in rows if row["annotator"] == "Bea"]
    told = f"Bea rates {bea['severity'] / 2:.1f} stars too high"
    assert told.removeprefix("Bea ") in bea["severity_in_words"]
    assert told in said("aggregate", *arguments)
    assert told in " ".join(said("annotators", *arguments).split())


@pytest.mark.filterwarnings("default::manyhands.exceptions.NotIdentifiableWarning")
def test_texts_of_a_sheet_stand_on_the_page_and_nothing_accepted_is_explained(tmp_path):
    rng = np.random.default_rng(0)
    texts = [f"The parcel number {i} came late." for i in range(40)]
    given = {name: rng.integers(1, 4, 40) for name in ("Ann", "Bea")}
    sheet, out = tmp_path / "two.xlsx", tmp_path / "out"
    pd.DataFrame({"review": texts, **given}).to_excel(sheet, index=False)
    reading = ("--annotators", "Ann,Bea", "--format", "wide", "--ordered")
    printed = run("aggregate", str(sheet), *reading, "--out", str(out)).stdout
    assert "recommended: accept 0" in printed
    assert "` says whom to ask about which item, and `manyhands review " in printed
    assert "came late" in (out / "report.html").read_text()
    said("report", out, "--texts", "none")
    assert "came late" not in (out / "report.html").read_text()
    said("report", out)
    assert "came late" in (out / "report.html").read_text()


def test_labels_are_medians_unless_a_rule_is_given(sheet, tmp_path):
    for name, more in (
        ("own", ()),
        ("median", ("--rule", "median")),
        ("top", ("--rule", "argmax")),
    ):
        said("aggregate", sheet, *READING, *more, "--out", tmp_path / f"{name}.csv")
    own, median, top = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("own", "median", "top"))
    pd.testing.assert_frame_equal(own, median)
    p = own.filter(like="p(").to_numpy()
    assert (own["label"] == 1 + (p.cumsum(axis=1) >= 0.5 - 1e-6).argmax(axis=1)).all()
    assert (top["label"] == 1 + p.argmax(axis=1)).all()
    said("aggregate", sheet, *READING, "--out", tmp_path / "folder")
    assert (load(tmp_path / "folder").labels_ == own["label"]).all()
    written = pd.read_csv(tmp_path / "folder" / "labels.csv")
    assert (written["label"] == own["label"]).all()


def test_a_store_gives_the_same_labels_and_severities(sheet, tmp_path):
    said("aggregate", sheet, *READING, "--out", tmp_path / "folder")
    model = load(tmp_path / "folder")
    AnnotationStore.create(tmp_path / "store", model.table_, shard_annotations=100)
    found = json.loads(
        said("aggregate", tmp_path / "store", "--out", tmp_path / "labels.parquet", "--json")
    )
    labels = pd.read_parquet(tmp_path / "labels.parquet")
    assert labels["label"].astype(int).tolist() == model.labels_.tolist()
    severity = [row["severity"] for row in found["annotators"]]
    np.testing.assert_allclose(severity, model.severity_, atol=1e-5)


@pytest.mark.filterwarnings("default::manyhands.exceptions.NotIdentifiableWarning")
def test_nobody_accepts_grades_that_are_noise(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "noise.csv"
    grades = rng.choice(5, (200, 4), p=[0.05, 0.15, 0.5, 0.2, 0.1]) + 1
    pd.DataFrame(
        {"task": np.repeat(np.arange(200), 4), "worker": np.tile([*"abcd"], 200),
         "label": grades.ravel()}
    ).to_csv(path, index=False)  # fmt: skip
    result = run("aggregate", str(path), "--ordered", "--out", str(tmp_path / "o.csv"))
    assert "nothing shows that the annotators agree better than by chance" in result.stderr
    assert "accept 0" in result.output
    assert "is not known" in result.output


def test_methods_are_compared_by_what_is_measured_of_grades(sheet, tmp_path):
    rng = np.random.default_rng(0)
    gold = tmp_path / "gold.csv"
    stars = rng.integers(1, 6, 150)
    pd.DataFrame({"task": [f"item {i}" for i in range(150)], "label": stars}).to_csv(gold)
    found = said("aggregate", sheet, *READING, "--compare", "--gold", gold)
    for heading in (
        "DawidSkene",
        "within 1",
        "MAE",
        "QWK",
        "RPS",
        "labels are medians, best first by MAE",
    ):
        assert heading in found, heading
    assert "the first is named" not in found  # The median is.
    rows = json.loads(said("aggregate", sheet, *READING, "--compare", "--gold", gold, "--json"))
    errors = [row["mae"] for row in rows["methods"] if row["error"] is None]
    assert errors == sorted(errors)
    alone = json.loads(said("aggregate", sheet, *READING, "--gold", gold, "--json"))["gold"]
    (own,) = (row for row in rows["methods"] if row["method"] == "DawidSkene")
    assert alone["mean absolute error in grades"] == own["mae"]
    names = said(
        "aggregate", sheet, *READING[:-1], "--scale", "nominal", "--compare", "--gold", gold
    )
    assert "shared" in names
    assert "QWK" not in names


@pytest.mark.filterwarnings("default:.*the order of two classes")
def test_agreement_says_which_measures_go_by_the_order(sheet, tmp_path):
    grades = said("agreement", sheet, *READING)
    assert "mean Cohen's kappa, quadratic weights" in grades
    assert "Fleiss' kappa, which ignores the order" in grades
    assert "Gwet's AC2, quadratic weights" in grades
    names = said("agreement", sheet, *READING[:-1], "--scale", "nominal")
    two = tmp_path / "two.csv"
    two.write_text("task,worker,label\na,x,0\na,y,1\nb,x,1\nb,y,1\n")
    for found in (names, said("agreement", two, "--scale", "ordinal")):
        assert "quadratic" not in found
        assert "ignores the order" not in found
        assert "Fleiss' kappa" in found


def test_what_is_added_is_read_as_the_fit(tmp_path):
    """Grades whose order only the first command tells, and words that look like grades."""
    rng = np.random.default_rng(0)
    for words, scale, classes in (
        (["zilch", "bit", "lots"], "ordinal", "zilch,bit,lots"),
        (["low", "medium", "high"], "nominal", "low,medium,high"),
    ):
        rows = pd.DataFrame(
            {
                "task": [f"t{i // 3}" for i in range(90)],
                "worker": ["a", "b", "c"] * 30,
                "label": [words[i // 3 % 3 if rng.random() < 0.9 else 1] for i in range(90)],
            }
        )
        first, more, folder = (tmp_path / f"{scale}-{name}" for name in ("1.csv", "2.csv", "fit"))
        rows[:60].to_csv(first, index=False)
        rows[60:].to_csv(more, index=False)
        said("aggregate", first, "--scale", scale, "--classes", classes, "--out", folder)
        found = done("aggregate", str(more), "--continue", str(folder), "--out", str(folder))
        assert "read as" not in found.stderr
        table = load(folder).table_
        assert (table.scale, table.classes.tolist()) == (scale, words)
        assert table.n_annotations == 90
    other = run("aggregate", str(more), "--continue", str(folder), "--scale", "ordinal")
    assert other.exit_code == 3
    assert "are names of classes (--scale nominal)" in other.stderr
    assert "leave --scale ordinal out" in other.stderr


def test_a_batch_of_one_grade_is_no_reason_to_doubt_the_scale_of_a_folder(sheet, tmp_path):
    more, folder = tmp_path / "more.csv", tmp_path / "fit"
    said("aggregate", sheet, *READING, "--out", folder)
    rows = [(f"item {150 + i}", who, 4) for i in range(20) for who in ("Ann", "Dan")]
    pd.DataFrame(rows, columns=["task", "worker", "label"]).to_csv(more, index=False)
    found = done("aggregate", str(more), "--continue", str(folder), "--out", str(folder))
    assert "100 % of the labels" not in found.stderr
    assert load(folder).table_.ordered


def test_the_command_that_reads_a_converted_file_again_can_be_pasted(tmp_path):
    rows = [(f"t{i}", who, ["zilch", "a bit", "lots"][i % 3]) for i in range(9) for who in "abc"]
    given, out = tmp_path / "given.csv", tmp_path / "conv erted.csv"
    pd.DataFrame(rows, columns=["task", "worker", "label"]).to_csv(given, index=False)
    order = ("--ordered", "--classes", "zilch,a bit,lots")
    found = done("convert", str(given), str(out), *order)
    words = shlex.split(found.stderr.partition("read it again by ")[2])
    assert words[:3] == ["manyhands", "aggregate", str(out)]
    labels = json.loads(said(*words[1:], "--json"))["labels"]
    assert labels == json.loads(said("aggregate", given, *order, "--json"))["labels"]


def test_a_classifier_labels_grades_as_an_aggregator_does(sheet, tmp_path):
    """By medians: in labels.csv, of the saved model, and in the scores against gold."""
    rng = np.random.default_rng(1)
    stars = np.random.default_rng(0).integers(1, 6, 150)  # As in the sheet.
    items = [f"item {i}" for i in range(150)]
    features, gold, out = (tmp_path / name for name in ("X.csv", "gold.csv", "fit"))
    noise = {f"x{k}": stars + rng.normal(0, 1.5, 150) for k in range(3)}
    pd.DataFrame({"task": items, **noise}).to_csv(features, index=False)
    pd.DataFrame({"task": items, "label": stars}).to_csv(gold, index=False)
    given = ("fit", "--annotations", sheet, "--features", features, "--gold", gold, "--out", out)
    text = said(*given, *READING)
    assert "within 1" in text
    assert "MAE" in text
    assert "macro-F1" not in text
    labels = pd.read_csv(out / "labels.csv")
    p = labels.filter(like="p(").to_numpy()
    assert (labels["label"] == 1 + (p.cumsum(axis=1) >= 0.5 - 1e-5).argmax(axis=1)).all()
    model = load(out)
    assert model.ordered_
    assert (model.labels_ == labels["label"]).all()
    X = pd.read_csv(features)[list(noise)]
    proba = model.predict_proba(X)
    median = 1 + (proba.cumsum(axis=1) >= 0.5 - 1e-9).argmax(axis=1)
    assert (median != 1 + proba.argmax(axis=1)).any()
    assert (model.predict(X) == median).all()
    found = json.loads(said(*given, *READING, "--json"))
    scores = next(iter(found["table"]["all rounds"]["splits"].values()))
    assert scores["mae"]["mean"] == pytest.approx(np.abs(median - stars).mean())
    assert "macro-F1" in said(*given, *READING[:-1])


def test_where_everybody_has_answered_everything_a_new_annotator_is_advised(sheet, tmp_path):
    """In the report, and by the commands that it names: of grades and of names of classes."""
    batch = tmp_path / "batch.csv"
    for scale in ("ordinal", "nominal"):
        reading = (*READING[:-1], "--scale", scale)
        told = " ".join(said("next", sheet, *reading, "-n", 5, "--out", batch).split())
        assert "so a new annotator is needed" in told
        assert "the next 5 annotations, from a new annotator, would correct" in told
        found = pd.read_csv(batch)
        assert len(found) == found["task"].nunique() == 5
        assert found["worker"].isna().all()
        refused = run("budget", str(sheet), *reading)
        assert refused.exit_code == 3
        assert "a new annotator: `manyhands next" in " ".join(refused.stderr.split())
    shown = json.loads(said("next", sheet, *READING, "-n", 2, "--json"))
    assert shown["newcomer"]
    assert [row["worker"] for row in shown["pairs"]] == [None, None]
    tasks = tmp_path / "tasks.json"
    said("next", sheet, *READING, "-n", 2, "--out", tasks, "--to", "label-studio")
    assert [task["meta"]["assignees"] for task in json.loads(tasks.read_text())] == [[], []]
    gap = pd.read_excel(sheet)
    gap.loc[3, "Dan"] = None
    gap.to_excel(sheet, index=False)
    shown = json.loads(said("next", sheet, *READING, "--json"))
    assert not shown["newcomer"]
    assert [row["worker"] for row in shown["pairs"]] == ["Dan"]
