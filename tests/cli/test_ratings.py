"""Ratings and scores on the command line: their means, in place of labels."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import manyhands
from manyhands import AnnotationStore, AnnotationTable, RatingMean, load
from manyhands.cli.inputs import read_gold_option
from manyhands.inference.identifiability import unidentified_numbers
from manyhands.io import read_annotations
from manyhands.io.gold_of_people import read_gold_of_people
from manyhands.jobs.gold import match_gold, training_part
from manyhands.report import summarize_ratings
from manyhands.report.ratings import RATING_SECTIONS
from tests.cli.conftest import done, refused, run
from tests.report.conftest import Page

pytestmark = pytest.mark.filterwarnings("default:column .* read as numbers")

NUMBERS = ("--scale", "interval")


@pytest.fixture
def slider(tmp_path, monkeypatch):
    """Ratings of 60 items from 1 to 25 by five of ten people, one of whom rates 4 too high."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.integers(6, 19, 60)
    too_much = np.array([4.0, *[0.0] * 9])
    rows = [
        (f"t{i}", f"w{w}", int(np.clip(np.round(t + too_much[w] + rng.normal(0, 2)), 1, 25)), "hm")
        for i, t in enumerate(truth)
        for w in rng.choice(10, 5, replace=False)
    ]
    for name, part in (("slider.csv", rows), ("first.csv", rows[:200]), ("rest.csv", rows[200:])):
        with open(name, "w", newline="") as file:
            csv.writer(file).writerows([("task", "worker", "label", "text"), *part])
    with open("truth.csv", "w", newline="") as file:
        gold = [("task", "label"), *((f"t{i}", t) for i, t in enumerate(truth))]
        csv.writer(file).writerows(gold)
    return truth


def test_many_numbers_are_averaged_and_said(slider):
    result = run("aggregate", "slider.csv", "--gold", "truth.csv", "--out", "values.csv")
    assert result.exit_code == 0, result.output
    assert "which look like ratings, and are read as numbers" in result.stderr
    assert "the labels are numbers, so they are averaged (--method rating-mean)" in result.stderr
    assert "Annotator w0 rates" in result.stdout
    assert "too high" in result.stdout
    assert "Krippendorff's alpha, interval" in result.stdout
    values = pd.read_csv("values.csv")
    assert values.columns[0] == "task"
    assert {"label", "low_95", "high_95", "mean", "median", "n_annotations"} < {*values.columns}
    assert "text" in values.columns
    error = abs(values["label"] - slider).mean()
    assert error < abs(values["mean"] - slider).mean()
    found = json.loads(done("aggregate", "slider.csv", "--gold", "truth.csv", "--json").stdout)
    assert found["gold"]["mean absolute error"] == pytest.approx(error, abs=1e-4)
    assert found["gold"]["instances with gold"] == 60
    assert found["annotators"][0]["severity"] > 2
    assert found["values"][0]["task"] == "t0"
    assert 0 < found["agreement"] < 1


def test_a_folder_holds_model_values_and_annotators(slider):
    done("aggregate", "first.csv", *NUMBERS, "--out", "own", "--set", "precision=true")
    names = sorted(path.name for path in Path("own").iterdir())
    assert [n for n in names if not n.startswith("weights")] == [
        *("annotators.csv", "labels.csv", "model.json", "report.html", "summary.json")
    ]
    model = load("own")
    assert isinstance(model, RatingMean)
    assert model.precision
    people = pd.read_csv("own/annotators.csv")
    assert people["annotator"].tolist() == [f"w{i}" for i in range(10)]
    assert json.loads(Path("own/summary.json").read_text())["method"] == "RatingMean"
    done("aggregate", "--continue", "own", "rest.csv", *NUMBERS, "--out", "own")
    assert load("own").table_.n_annotations == 300
    assert len(pd.read_csv("own/labels.csv")) == 60


def test_known_values_are_kept(slider):
    with open("some.csv", "w") as file:
        file.write("task,label\nt0,17.5\nt1,3\n")
    done("aggregate", "slider.csv", *NUMBERS, "--known", "some.csv", "--out", "values.csv")
    values = pd.read_csv("values.csv").set_index("task")
    assert values.loc["t0", ["label", "low_95", "high_95"]].tolist() == [17.5] * 3
    assert values["known"].sum() == 2
    with open("words.csv", "w") as file:
        file.write("task,label\nt0,high\n")
    refused(3, "aggregate", "slider.csv", *NUMBERS, "--gold", "words.csv",
            says=["words.csv, row 2", "'high'", "numbers"])  # fmt: skip


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--compare",), "--compare is for labels that are classes"),
        (("--rule", "median"), "--rule is for"),
        (("--threshold", "0.5"), "--threshold is for"),
        (("--checkpoint", "here"), "--checkpoint is for"),
        (("--method", "glad"), "the labels are numbers"),
        (("--out", "x.json", "--to", "label-studio"), "--to is for"),
        (("--set", "tie=first"), "tie"),
    ],
)
def test_what_is_for_classes_is_refused_by_name(slider, more, says):
    refused(3, "aggregate", "slider.csv", *NUMBERS, *more, says=[says])


def test_text_is_refused_and_numbers_of_any_scale_are_averaged(slider):
    with open("words.csv", "w") as file:
        file.write("task,worker,label\nt0,a,low\nt0,b,high\nt1,a,low\nt1,b,low\n")
    says = "labels that are numbers, but one is 'low'"
    refused(3, "aggregate", "words.csv", *NUMBERS, says=[says])
    result = run("aggregate", "words.csv", "--method", "rating-mean")
    assert result.exit_code == 3
    assert says in result.stderr
    done("aggregate", "slider.csv", "--scale", "ordinal", "--method", "rating-mean")


def test_ingest_reads_many_numbers_as_aggregate_does(slider):
    made = run("ingest", "slider.csv", "--out", "store")
    assert made.exit_code == 0, made.output
    assert "which look like ratings, and are read as numbers" in made.stderr
    assert AnnotationStore.open("store").scale == "interval"


def test_a_store_of_numbers_is_refused_with_what_to_do(slider):
    made = done("ingest", "slider.csv", "--out", "store", *NUMBERS)
    assert "manyhands aggregate slider.csv --scale interval" in made.stderr
    assert "--scale ordinal (grades)" in made.stderr
    for more in ((), ("--method", "rating-mean")):
        refused(3, "aggregate", "store", *more, says=["a store; give its files instead"])
    assert "interval" in done("agreement", "store").stdout


def test_a_folder_of_means_has_a_report_of_its_own(slider):
    done("aggregate", "slider.csv", *NUMBERS, "--gold", "truth.csv", "--out", "own")
    summary = json.loads(Path("own/summary.json").read_text())
    assert (summary["kind"], summary["method"]) == ("ratings", "RatingMean")
    written = Path("own/report.html").read_text()
    Path("texts.csv").write_text("task,text\n" + "".join(f"t{i},words {i}\n" for i in range(60)))
    done("report", "own", "--out", "again.html", "--tables", "tables", "--texts", "texts.csv")
    page = Page(Path("again.html").read_text())
    page.check_harmless()
    text = " ".join("".join(page.text).split())
    assert "The value of a typical item is known to within ± 1.9" in text
    assert "w0 rates" in text
    assert "words 1" in text
    assert {each.key for each in RATING_SECTIONS} <= set(page.ids)
    people = pd.read_csv("own/annotators.csv").set_index("annotator")
    for row in summary["rating_annotators"]["rows"]:
        own = people.loc[row["id"]]
        assert row["severity"] == pytest.approx(own.severity, rel=1e-4)
        assert bool(row["told"]) == (own.severity_low_95 * own.severity_high_95 > 0)
    values = pd.read_csv("own/labels.csv").set_index("task")
    widths = [row["high"] - row["low"] for row in summary["rating_items"]["rows"]]
    assert max(np.diff(widths)) < 1e-9
    for row in summary["rating_items"]["rows"]:
        assert row["value"] == pytest.approx(values.loc[row["id"], "label"], rel=1e-4)
    alpha = summary["rating_agreement"]
    assert alpha["low"] < alpha["alpha"] < alpha["high"]
    assert alpha["alpha"] == pytest.approx(summary["agreement"])
    assert len(pd.read_csv("tables/rating_items.csv")) == 50
    assert "Errors against gold values" in written


@pytest.mark.filterwarnings("default::manyhands.exceptions.NotIdentifiableWarning")
def test_ratings_by_one_person_have_a_report_without_claims(slider):
    with open("one.csv", "w") as file:
        file.write("task,worker,label\n" + "".join(f"t{i},w,{i % 7}\n" for i in range(20)))
    result = run("aggregate", "one.csv", *NUMBERS, "--out", "own")
    assert result.exit_code == 0, result.output
    summary = json.loads(Path("own/summary.json").read_text())
    assert summary["rating_agreement"] is None
    assert [row["told"] for row in summary["rating_annotators"]["rows"]] == [""]
    assert "their agreement is not known" in Path("own/report.html").read_text()


def test_the_explorer_and_predictions_of_a_folder_of_means_are_refused_by_name(slider):
    done("aggregate", "slider.csv", *NUMBERS, "--out", "own")
    says = ["own holds means of ratings (RatingMean)", "labels.csv", "--scale ordinal"]
    refused(3, "explore", "own", "--annotations", "slider.csv", *NUMBERS,
            says=[*says, "the explorer needs labels that are classes"])  # fmt: skip
    refused(3, "predict", "own", "truth.csv", says=["does not use features", "--continue"])


def test_what_is_told_of_means_and_severities_holds():
    """Over simulated crowds: intervals of values and of severities, and whom the report names."""
    held, n, named, truly = 0, 0, 0, 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        value, bias = rng.normal(30, 3, 80), rng.normal(0, 1.5, 9)
        bias -= bias.mean()
        ratings = value[:, None] + bias + rng.normal(0, 2, (80, 9))
        ratings[rng.random(ratings.shape) < 0.5] = np.nan
        model = RatingMean().fit(AnnotationTable.from_matrix(ratings.round(2), scale="interval"))
        summary = summarize_ratings(model)
        for row in summary["rating_annotators"]["rows"]:
            held += row["low"] <= bias[row["id"]] <= row["high"]
            n += 1
            if row["told"]:
                named += 1
                truly += ("too high" in row["told"]) == (bias[row["id"]] > 0)
        low, high = model.interval().T
        held += int(((low <= value) & (value <= high)).sum())
        n += 80
    assert 0.92 <= held / n <= 0.98
    assert named > 60
    assert truly >= 0.97 * named


def test_numbers_are_described_as_such(slider):
    shown = done("describe", "slider.csv", *NUMBERS).stdout
    assert "Different numbers" in shown
    assert "Krippendorff's alpha, interval" in shown
    assert "majority vote" not in shown
    assert "order of the classes" not in shown
    assert "as often as the least frequent" not in shown
    found = json.loads(done("describe", "slider.csv", *NUMBERS, "--json").stdout)
    n = len(found["classes"]["rows"])
    assert found["data"]["imbalance"]["ratio"] >= 10
    assert f"... and {n - 10} more (--json has {n})" in shown
    agreeing = done("agreement", "slider.csv", *NUMBERS).stdout
    assert "Agreement, numbers (interval scale)" in agreeing
    assert agreeing.index("Krippendorff's alpha") < agreeing.index("agreeing pairs")
    assert "order of the classes" not in agreeing
    graded = done("describe", "slider.csv", "--ordered").stdout
    assert "majority vote" in graded
    assert "order of the classes: " in graded


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("annotators", "annotators.csv says by how much each annotator rates too high"),
        ("review", "report.html lists the least certain values first"),
        ("next", "report.html names the items to have rated again first"),
        ("budget", "a mean of n ratings is unsure by about that"),
    ],
)
def test_each_command_about_classes_says_what_answers_it_of_numbers(slider, command, says):
    """The command to paste reads the table as the refused one did."""
    reading = ("--format", "long", *NUMBERS)
    found = run(command, "slider.csv", *reading).stderr
    refused(3, command, "slider.csv", *reading, says=[f"the command {command}", says])
    pasted = found.split("Run `manyhands ")[1].split("` instead: ")[0].split()
    assert {*reading} <= {*pasted}
    done(*pasted)
    assert Path("values/annotators.csv").exists()
    assert Path("values/report.html").exists()


def test_values_are_not_ranked_where_all_are_equally_sure(tmp_path, monkeypatch):
    """Everybody rated everything: no item needs a rating more than another."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ratings = np.clip(rng.integers(5, 20, 40)[:, None] + rng.normal(0, 2, (40, 3)), 1, 25)

    def action(values):
        model = RatingMean().fit(AnnotationTable.from_matrix(values, scale="interval"))
        summary = summarize_ratings(model)
        return summary["rating_actions"][-1]["title"], summary["rating_items"]["all_equally_sure"]

    assert action(ratings) == ("All values are equally certain", True)
    ratings[0, 0] = np.nan
    assert action(ratings) == ("Have these items rated again first", False)


def test_an_interval_is_not_promised_to_hold_more_than_the_report_says(slider):
    told = done("aggregate", "slider.csv", *NUMBERS, "--out", "values").stdout
    page = Page(Path("values/report.html").read_text())
    assumed = "if ratings scatter as evenly as the method assumes, and annotators do not share"
    assert assumed in " ".join(told.split())
    assert assumed in " ".join(" ".join(page.text).split())
    assert "(95 % interval), if annotators do not share mistakes. The width is estimated" in told
    assert "Language models" not in told


def test_a_width_that_known_or_gold_values_measure_says_so(slider):
    told = done("aggregate", "slider.csv", *NUMBERS, "--gold", "truth.csv").stdout
    assert "95 % of 60 gold values are as near as this to the values" in told
    rows = Path("truth.csv").read_text().splitlines()
    Path("some.csv").write_text("\n".join(rows[:31]))
    told = done(
        "aggregate", "slider.csv", *NUMBERS, "--known", "some.csv", "--out", "values"
    ).stdout
    for part in ("measured on 30 known values", "It holds if these items were drawn at random"):
        assert part in told
    page = Page(Path("values/report.html").read_text())
    text = " ".join("".join(page.text).split())
    assert "Mistakes about an item that annotators share, measured on 30 known values" in text
    assert "with a probability of 95 %, as measured on 30 known values" in text
    marked = [f"{row},{'chosen' if not i else 'random'}" for i, row in enumerate(rows[:31])]
    Path("some.csv").write_text("\n".join(marked))
    told = done("aggregate", "slider.csv", *NUMBERS, "--known", "some.csv").stdout
    assert "It holds if" not in told
    Path("some.csv").write_text("\n".join(row.replace("random", "queue") for row in marked))
    told = done("aggregate", "slider.csv", *NUMBERS, "--known", "some.csv").stdout
    assert "estimated from how ratings scatter, not measured" in told


def test_numbers_of_language_models_are_said_to_share_mistakes(slider):
    text = Path("slider.csv").read_text()
    for w in range(10):
        text = text.replace(f",w{w},", f",gpt-{w},")
    Path("models.csv").write_text(text)
    told = done("aggregate", "models.csv", *NUMBERS).stdout
    assert "Language models often share them, and “gpt-0”, “gpt-1” and 8 more are named" in told


def test_values_outside_the_ratings_are_explained_and_cards_show_texts(tmp_path, monkeypatch):
    """Of items near an end of the scale that one rater saw, who has room there."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    truth, shift = rng.uniform(1, 20, 60), {"mild": 3.0, "harsh": -3.0}
    rows = [
        (f"t{i}", who, int(np.clip(np.rint(t + by + rng.normal()), 1, 20)), f"item of {i} words")
        for i, t in enumerate(truth)
        for who, by in shift.items()
        if i % 4 or (who == "harsh") == (t > 10)
    ]
    columns = ["task", "worker", "label", "text"]
    pd.DataFrame(rows, columns=columns).to_csv("r.csv", index=False)
    text = done("aggregate", "r.csv", *NUMBERS, "--out", "out").stdout
    values = pd.read_csv("out/labels.csv")["label"]
    n = int(((values < 1) | (values > 20)).sum())
    assert n > 0
    says = f"{n} value{'s are' if n > 1 else ' is'} outside the ratings, which go from 1 to 20"
    assert says in text
    assert says in Path("out/report.html").read_text()
    assert " words</" in Path("out/report.html").read_text()
    done("report", "out", "--texts", "none")
    assert " words</" not in Path("out/report.html").read_text()


def _sheet(name, ratings):
    rows = [(f"t{i}", f"w{w}", v) for i, row in enumerate(ratings) for w, v in enumerate(row)]
    pd.DataFrame(rows, columns=["task", "worker", "label"]).to_csv(name, index=False)


BY_CHANCE = "othing shows that the annotators agree better than by chance"


@pytest.mark.filterwarnings("default::manyhands.exceptions.NotIdentifiableWarning")
def test_whether_numbers_agree_is_judged_by_how_far_they_are_apart(tmp_path, monkeypatch):
    """Five raters from 1 to 25 hardly ever give the same number, and agree; those who guess, not.

    A rater who rates far too high brings alpha below 0, and the ratings tell items all the same.
    """
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    truth, severe = rng.uniform(1, 20, (60, 1)), np.array([5, 0, 0, 0, 0])
    ratings = np.rint(truth + severe + rng.normal(0, 5, (60, 5))).clip(1, 25)
    _sheet("slider.csv", ratings.astype(int))
    _sheet("two.csv", np.rint(truth + np.array([14, 0]) + rng.normal(0, 2, (60, 2))).astype(int))
    _sheet("chance.csv", rng.integers(1, 26, (60, 5)))
    for name in ("slider.csv", "two.csv"):
        said = done("describe", name, *NUMBERS).output + done("aggregate", name, *NUMBERS).output
        assert BY_CHANCE not in " ".join(said.split())
    told = " ".join(done("describe", "chance.csv", *NUMBERS).stdout.split())
    assert BY_CHANCE in told
    assert "--known" in told
    assert "gold-corrected" not in told
    made = done("aggregate", "chance.csv", *NUMBERS, "--out", "values")
    assert BY_CHANCE in " ".join(made.stderr.split())
    text = " ".join(" ".join(Page(Path("values/report.html").read_text()).text).split())
    assert "Do not trust any value yet" in text
    assert BY_CHANCE in text
    # The way out is one that is taken.
    with open("some.csv", "w") as file:
        file.write("task,label\n" + "".join(f"t{i},{t:.0f}\n" for i, t in enumerate(truth[:9, 0])))
    assert BY_CHANCE not in done("aggregate", "chance.csv", *NUMBERS, "--known", "some.csv").output


def test_raters_by_chance_are_told_and_raters_who_agree_faintly_are_not():
    rng = np.random.default_rng(8)
    told = {0.0: 0, 0.6: 0}
    for spread in told:
        for _ in range(40):
            ratings = 13 + 5 * (spread * rng.normal(size=(80, 1)) + rng.normal(size=(80, 5)))
            table = AnnotationTable.from_matrix(ratings.round(1), scale="interval")
            told[spread] += unidentified_numbers(table) is not None
    assert told[0.0] >= 34
    assert told[0.6] == 0


# -- known values of several people ---------------------------------------------------------------

PEOPLE_SAID = {"a": (1, 2, 3), "b": (5, 5, 4), "c": (2, 2, 1), "d": (1, 4, None)}
"""Grades of three people: the modes of "a" and "d" tie, and "d" has two grades in the middle."""
PEOPLE_SAID |= {f"x{y}": (y, y, y) for y in range(1, 6)}


def write(name, rows):
    with open(name, "w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Grades of eleven items by two models, and grades of nine of these by three people."""
    monkeypatch.chdir(tmp_path)
    given = {"m1": (1, 4, 2, 3, 5, 1, 1, 2, 3, 4, 5), "m2": (2, 5, 2, 4, 4, 1, 2, 2, 3, 3, 5)}
    items = [*"abcdef", *(f"x{y}" for y in range(1, 6))]
    with open("models.csv", "w", newline="") as file:
        rows = [(i, who, y) for who, ys in given.items() for i, y in zip(items, ys, strict=True)]
        csv.writer(file).writerows([("item", "rater", "score"), *rows])
    who = ("ann", "ben", "cleo")
    with open("wide.csv", "w", newline="") as file:
        wide = [(i, *ys, "random") for i, ys in PEOPLE_SAID.items()]
        csv.writer(file).writerows([("item", *who, "chosen"), *wide])
    with open("long.csv", "w", newline="") as file:
        long = [
            (i, w, y, "random")
            for i, ys in PEOPLE_SAID.items()
            for w, y in zip(who, ys, strict=True)
            if y is not None
        ]
        csv.writer(file).writerows([("item", "rater", "score", "chosen"), *long])
    return ("models.csv", "--task", "item", "--worker", "rater", "--label", "score")


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
@pytest.mark.parametrize("file", ["wide.csv", "long.csv"])
def test_the_known_number_of_several_people_is_their_mean(checked, file):
    said = done("aggregate", *checked, *NUMBERS, "--known", file, "--out", "values.csv")
    assert "the mean of what its 3 annotators (“ann”, “ben”, “cleo”) gave" in said.stderr
    assert "it is not said how" not in said.stderr
    values = pd.read_csv("values.csv").set_index("task")
    assert values["known"].sum() == 9
    assert values.loc[[*"abcd"], "label"].tolist() == pytest.approx(
        [2, 14 / 3, 5 / 3, 2.5], abs=1e-5
    )
    measured = json.loads(done("aggregate", *checked, *NUMBERS, "--gold", file, "--json").stdout)
    assert measured["gold"]["instances with gold"] == 9


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
@pytest.mark.parametrize("file", ["wide.csv", "long.csv"])
def test_the_known_grade_of_several_people_is_their_median(checked, file):
    said = done("aggregate", *checked, "--ordered", "--known", file, "--out", "labels.csv")
    assert "the median of the grades that its 3 annotators" in said.stderr
    assert "of 1 items, two grades are in the middle" in said.stderr
    labels = pd.read_csv("labels.csv").set_index("task")["label"]
    assert labels[[*"abcd"]].tolist() == [2, 5, 2, 1]


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("default:.*have no known label")
@pytest.mark.parametrize("option", ["--known", "--gold"])
@pytest.mark.parametrize("file", ["wide.csv", "long.csv"])
def test_classes_that_people_leave_undecided_are_named(checked, file, option):
    said = done("aggregate", *checked, "--scale", "nominal", option, file)
    for part in ("2 of 9 items have no known label", "1, 2, 3 for item 'a'", "one more person"):
        assert part in said.stderr


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("default:.*have no known label")
@pytest.mark.parametrize("option", ["--known", "--gold"])
def test_where_people_are_undecided_of_every_item_none_is_said_to_be_known(checked, option):
    write(
        "tied.csv",
        [
            ("item", "ann", "ben"),
            *((i, k % 3 + 1, (k + 1) % 3 + 1) for k, i in enumerate("abcdef")),
        ],
    )
    said = done("aggregate", *checked, "--scale", "nominal", option, "tied.csv")
    assert "6 of 6 items have no known label" in said.stderr
    assert "So no label of the file is used. Have one more person" in said.stderr
    assert "harder than the others" not in said.stderr
    assert "gold" not in said.stdout


def test_why_people_in_columns_of_their_own_cannot_be_read_is_said(checked):
    rows = [(i, i % 3 if i % 2 else 3, i % 3) for i in range(40)]
    write("models.csv", [("item", "rater", "score"), *((i, "m1", i % 3) for i in range(40))])
    write("people.csv", [("item", "ann", "ben"), *rows])
    says = ["--gold", "holds 3 (20 rows), not among the classes: 0, 1, 2"]
    asked = (*checked, "--ordered", "--gold")
    refused(3, "aggregate", *asked, "people.csv", says=says)
    write("nothing.csv", [("item", "note"), *((i, f"n{i}") for i in range(40))])
    refused(3, "aggregate", *asked, "nothing.csv", says=["there is no column"])


SPLIT = {item: "test" if item in "abd" else "train" for item in PEOPLE_SAID}


def with_split(file, split=SPLIT):
    """Add a column of splits to a file of `checked`."""
    header, *rows = list(csv.reader(Path(file).read_text().splitlines()))
    write(file, [(*header, "split"), *((*row, split[row[0]]) for row in rows)])


@pytest.mark.parametrize("file", ["wide.csv", "long.csv"])
def test_the_split_of_what_several_people_labelled_is_kept(checked, file):
    with_split(file)
    options = {"task": "item", "worker": "rater", "label": "score"}
    table = read_annotations("models.csv", scale="ordinal", **options)
    gold = read_gold_of_people(Path(file), options, table)
    assert dict(zip(gold.tasks.tolist(), gold.splits.tolist(), strict=True)) == SPLIT
    train = training_part(table, match_gold(gold, table))
    used = train.instances[np.unique(train.instance)].tolist()
    assert used == [item for item in table.instances.tolist() if SPLIT.get(item) != "test"]


@pytest.mark.parametrize("file", ["wide.csv", "long.csv"])
def test_an_item_in_two_splits_is_named(checked, file):
    with_split(file)
    row = Path(file).read_text().splitlines()[1]
    again = row.replace("ann", "dora").replace(",test", ",train")
    Path(file).write_text(Path(file).read_text() + again + "\n")
    twice = "column 'item' holds 'a' twice"
    says = ["--gold", twice if file == "wide.csv" else "'a' is in two splits, 'test' and 'train'"]
    refused(3, "aggregate", *checked, *NUMBERS, "--gold", file, says=says)


@pytest.mark.parametrize("column", ["split", "chosen"])
def test_a_split_of_rows_without_ids_is_refused_with_what_to_do(checked, column):
    cell = "test" if column == "split" else "random"
    write("rows.csv", [("ann", "ben", column), *((1 + i % 5, 5 - i % 5, cell) for i in range(20))])
    says = [f"a column '{column}', but no column says which item", "Add a column 'task'"]
    refused(3, "aggregate", *checked, *NUMBERS, "--gold", "rows.csv", says=says)


def test_known_labels_of_several_people_need_no_options(checked):
    write("few.csv", [("task", "ann", "ben"), ("a", 1, 1), ("b", 2, 2)])
    assert read_gold_of_people(Path("few.csv"), {}).labels.tolist() == [1, 2]
    write("few.csv", [("task", "label"), ("a", 1), ("b", 2)])
    assert read_gold_option(Path("few.csv"), {}).labels.tolist() == [1, 2]


def test_a_task_with_two_known_labels_and_nobodys_name_is_told_to_have_one(checked):
    rows = [("item", "score"), ("a", 1), ("b", 2), ("a", 3)]
    with open("twice.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    says = ["--known", "holds 'a' twice, in rows 2 and 4", "(--worker)"]
    refused(3, "aggregate", *checked, *NUMBERS, "--known", "twice.csv", says=says)


def test_values_of_people_and_models_are_on_the_scale_of_the_people(tmp_path, monkeypatch):
    """Of models that rate 1.5 too low: without --people, a warning names it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    value = rng.normal(10, 2, 80)
    low = {"anna": 0.0, "ben": 0.0, "gpt-4o": -1.5, "llama-3": -1.5, "qwen": -1.5}
    rows = [
        (f"t{i}", who, round(t + off + rng.normal(0, 0.5), 1))
        for i, t in enumerate(value)
        for who, off in low.items()
        if i < 40 or off
    ]
    with open("all.csv", "w", newline="") as file:
        csv.writer(file).writerows([("task", "worker", "label"), *rows])
    said = done("aggregate", "all.csv", *NUMBERS, "--people", "anna,ben", "--out", "values.csv")
    assert "The values are on the scale of “anna”, “ben” on average" in said.stdout
    found = pd.read_csv("values.csv").set_index("task")["label"]
    assert abs((found.loc[[f"t{i}" for i in range(80)]] - value).mean()) < 0.15


@pytest.mark.filterwarnings("default:.*are named like language models")
def test_a_warning_says_how_values_get_on_the_scale_of_people(slider):
    text = Path("slider.csv").read_text()
    for w in range(2, 10):
        text = text.replace(f",w{w},", f",gpt-{w},")
    Path("mixed.csv").write_text(text)
    with pytest.warns(UserWarning, match="8 of the 10 annotators are named like language models"):
        RatingMean().fit(manyhands.io.read_annotations("mixed.csv", scale="interval"))
    said = done("aggregate", "mixed.csv", *NUMBERS)
    assert "name them for values on their scale: --people w0,w1" in said.stderr
    assert "reference=" not in said.stderr


def test_a_folder_of_numbers_names_no_command_that_needs_itself(slider):
    for name, part in (("one.csv", slice(1, 150)), ("two.csv", slice(150, None))):
        lines = Path("slider.csv").read_text().splitlines()
        Path(name).write_text("\n".join([lines[0], *lines[part]]))
    done("aggregate", "one.csv", "two.csv", *NUMBERS, "--out", "values")
    summary = json.loads(Path("values/summary.json").read_text())
    assert summary["title"] == "Values of 2 files: one.csv, two.csv"
    assert summary["files"]["annotations"] == ["one.csv", "two.csv"]
    for command in ("next", "budget", "annotators", "review"):
        says = ["folder of a model whose values are numbers", "The folder answers instead"]
        refused(3, command, "values", says=says)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_a_model_that_names_no_files_is_not_told_to_be_its_own_annotations(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = AnnotationTable.from_matrix(rng.integers(0, 2, (30, 4)))
    manyhands.save(manyhands.DawidSkene().fit(table), "model")
    for command in ("next", "review"):
        refused(3, command, "model", says=[f"`manyhands {command} ANNOTATIONS`"])


def test_items_with_known_values_are_not_said_to_need_no_rating(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    value = rng.normal(10, 2, 30)
    rows = [
        (f"t{i}", f"w{w}", round(t + rng.normal(), 1)) for i, t in enumerate(value) for w in "abc"
    ]
    with open("all.csv", "w", newline="") as file:
        csv.writer(file).writerows([("task", "worker", "label"), *rows])
    with open("known.csv", "w", newline="") as file:
        known = [(f"t{i}", round(t, 1)) for i, t in enumerate(value[:12])]
        csv.writer(file).writerows([("task", "label"), *known])
    done("aggregate", "all.csv", *NUMBERS, "--known", "known.csv", "--out", "values")
    summary = json.loads(Path("values/summary.json").read_text())
    (step,) = [each for each in summary["rating_actions"] if each["code"] == "buy"]
    assert step["title"] == "All values that were not given as known are equally certain"
    assert step["text"].startswith("All 18 items without a known value have equally many ratings")
