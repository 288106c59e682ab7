"""Reports, and what commands say, of classes that are grades in their order."""

import re

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, mean_absolute_error

from manyhands import AnnotationTable, DawidSkene, render_report, summarize
from manyhands.agreement import krippendorff_alpha, summary
from manyhands.io import read_gold
from manyhands.metrics import ranked_probability_score
from manyhands.metrics.grades import deviation_of
from manyhands.report.annotators import answer_right
from manyhands.report.headline import headline
from tests.cli.conftest import done, done_json, write_csv
from tests.report.conftest import Page

K = 5
BIAS = np.array([0.0, 0.0, 0.0, 0.9, -0.8, 0.0, 0.0, 0.3])


def ratings(n=300, seed=0, density=0.6, bias=BIAS, spread=0.7, scale="ordinal"):
    """Grades by annotators of whom one grades too high and one too low, and their truth."""
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    noise = rng.normal(size=(n, len(bias))) * spread
    given = np.rint(y[:, None] + bias + noise).clip(0, K - 1) + 1
    given[:, 1:][rng.random((n, len(bias) - 1)) > density] = np.nan
    names = [f"w{r}" for r in range(len(bias))]
    options = {"classes": range(1, K + 1), "annotators": names, "scale": scale}
    return AnnotationTable.from_matrix(given, **options), y + 1


@pytest.fixture(scope="module")
def graded():
    table, y = ratings()
    model = DawidSkene().fit(table)
    return table, y, model, summarize(table, aggregator=model, gold=y)


def page_text(found):
    page = Page(render_report(found))
    page.check_harmless()
    return " ".join("".join(page.text).split())


# -- agreement ------------------------------------------------------------------------------------


def test_the_alpha_that_knows_the_order_comes_first(graded):
    table, _, _, found = graded
    agreement = found["data"]["agreement"]
    assert agreement["scale"] == "ordinal"
    assert agreement["alpha"] == pytest.approx(krippendorff_alpha(table, level="ordinal"))
    assert agreement["alpha_nominal"] == pytest.approx(krippendorff_alpha(table, level="nominal"))
    matrix = table.to_matrix()
    near = [
        np.mean([abs(a - b) <= 1 for i, a in enumerate(row) for b in row[:i]])
        for row in (row[row >= 0] for row in matrix)
        if len(row) > 1
    ]
    assert agreement["within_one"] == pytest.approx(np.mean(near))
    text = page_text(found)
    first, second, third = (
        text.index(words)
        for words in (
            "alpha, ordinal",
            "alpha, nominal",
            "Pairs of annotations at most one grade apart",
        )
    )
    assert first < second < third < text.index("Agreeing pairs of annotations")
    measures = [*summary(table)]
    assert measures[:3] == ["krippendorff_alpha", "krippendorff_alpha_nominal", "within_one_grade"]


def test_names_and_two_classes_have_no_grades():
    two = AnnotationTable.from_matrix(np.eye(6, 4)).with_scale("ordinal")
    for table in (ratings(scale="nominal")[0], two):
        found = summarize(table)
        assert found["data"]["agreement"]["alpha_nominal"] is None
        assert "within one grade" not in page_text(found)
        assert "within_one_grade" not in summary(table)


# -- gold -----------------------------------------------------------------------------------------


def test_labels_are_compared_with_gold_as_grades(graded):
    table, y, model, found = graded
    row = found["gold"]["rows"][1]
    labels = np.array([r["label"] for r in found["items"]["rows"]])
    labels = model.labels_
    assert row["name"] == "DawidSkene"
    assert row["accuracy"] == pytest.approx(np.mean(labels == y))
    assert row["within_one"] == pytest.approx(np.mean(abs(labels - y) <= 1))
    assert row["mae"] == pytest.approx(mean_absolute_error(y, labels))
    assert row["qwk"] == pytest.approx(cohen_kappa_score(y, labels, weights="quadratic"))
    rps = ranked_probability_score(model.posterior_, y, classes=table.classes)
    assert row["rps"] == pytest.approx(rps)
    text = page_text(found)
    names = ("Within one grade", "Mean absolute error in grades", "Quadratic weighted kappa")
    for words in (*names, f"{rps:.2f}"):
        assert words in text
    assert "mae" not in summarize(table.with_scale("nominal"), gold=y)["gold"]["rows"][0]


def test_severities_are_told_in_words_and_only_where_they_are_sure(graded):
    _, _, model, found = graded
    text = page_text(found)
    for row in found["annotators"]["rows"]:
        told = row["severity"]["told"]
        sure = row["severity"]["low"] > 0 or row["severity"]["high"] < 0
        assert bool(told) == sure
        assert not told or f"{row['id']} {told}" in text
    names = {row["id"]: row["severity"]["told"] for row in found["annotators"]["rows"]}
    assert "grades too high" in names["w3"]
    assert "grades too low" in names["w4"]
    assert names["w0"] == ""
    assert model.severity_[3] > 0.3 > 0 > model.severity_[4]
    rows = {row["id"]: row["severity"] for row in found["annotators"]["rows"]}
    most = sorted((n for n in rows if names[n]), key=lambda n: -abs(rows[n]["value"]))
    places = [text.index(f"{n} {names[n]}") for n in most]
    assert places == sorted(places)
    first_screen = text[: text.index("The steps are ordered by how many mistakes")]
    assert f"{most[0]} {names[most[0]]}" in first_screen
    assert "Compared with the others" in first_screen
    assert "On the 300 items with gold labels, the annotations are on average" in first_screen


# -- commands -------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, y = ratings()
    cells = zip(table.instance, table.annotator, table.label, strict=True)
    rows = [(f"t{i}", table.annotators[r], table.classes[c]) for i, r, c in cells]
    write_csv(tmp_path / "A.csv", [("task", "worker", "label"), *rows])
    gold = [(f"t{i}", each) for i, each in enumerate(y.tolist())]
    write_csv(tmp_path / "gold.csv", [("task", "label"), *gold])
    return tmp_path


def test_describe_and_agreement_put_the_order_first(home):
    told = done("describe", "A.csv", "--scale", "ordinal").stdout
    assert told.index("alpha, ordinal") < told.index("alpha, nominal") < told.index("Agreeing")
    told = done("agreement", "A.csv", "--ordered").stdout
    lines = [line for line in told.splitlines() if "alpha" in line or "within" in line]
    assert "nominal" in lines[1]
    assert re.search(r"within one grade.*\d %", lines[2])
    assert [*done_json("agreement", "A.csv", "--ordered", "--json")][:2] == [
        *("krippendorff_alpha", "krippendorff_alpha_nominal")
    ]


def test_aggregate_measures_grades(home):
    told = done("aggregate", "A.csv", "--ordered", "--gold", "gold.csv").stdout
    assert re.search(r"^within one grade: \d+(\.\d)? %$", told, re.MULTILINE)
    assert re.search(r"^mean absolute error in grades: 0\.\d\d$", told, re.MULTILINE)
    assert re.search(r"^quadratic weighted kappa: 0\.\d\d$", told, re.MULTILINE)
    assert re.search(r"^ranked probability score: 0\.\d\d$", told, re.MULTILINE)
    plain = done("aggregate", "A.csv", "--scale", "nominal", "--gold", "gold.csv").stdout
    assert "within one grade" not in plain


def test_next_and_review_speak_of_grades(home):
    told = done("next", "A.csv", "--ordered").stdout
    assert "grades by which the annotation is expected to bring the label nearer" in told
    assert "one grade" in told
    found = done_json("next", "A.csv", "--ordered", "--json")
    assert found["stopping"]["unit"] == "grade"
    told = done("review", "A.csv", "--ordered").stdout
    assert "grades_off: how far from the truth, expected" in told
    queue = done_json("review", "A.csv", "--ordered", "--json")["queue"]
    off = [row["grades_off"] for row in queue]
    assert off == sorted(off, reverse=True)
    done("review", "A.csv", "--ordered", "--out", "sheet.csv")
    path = home / "sheet.csv"
    lines = path.read_text().splitlines()
    assert "grades_off" in lines[0]
    path.write_text("\n".join([lines[0], *(f"{line}anna" for line in lines[1:])]))
    known = read_gold(path)
    assert known.known.sum() == len(queue)


def test_only_who_is_clearly_apart_is_shown_examples():
    """Of three raters one gives more than the others, who so give less than all."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 400)
    given = y[:, None] + np.array([0.6, 0, 0]) + rng.normal(0, 0.5, (400, 3))
    table = AnnotationTable.from_matrix(np.rint(given).clip(0, 4).astype(int), ordered=True)
    rows = summarize(table, aggregator=DawidSkene().fit(table))["annotators"]["rows"]
    assert all(row["severity"]["told"] for row in rows)
    advised = [
        row["id"] for row in rows if row["screen"]["advice"].startswith("show them examples of")
    ]
    assert advised == [0]


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_where_nothing_decides_who_is_right_no_price_of_annotations_is_told():
    rng = np.random.default_rng(2)
    table = AnnotationTable.from_matrix(rng.integers(0, 5, (150, 4)), ordered=True)
    found = summarize(table, aggregator=DawidSkene().fit(table))
    assert "the annotations do not show who is right" in headline(found)
    assert found["plan"]["gain"] is None
    text = page_text(found)
    assert "It is not known whether more annotations are worth their price" in text
    assert "More annotations help" not in text


# -- what checked labels show of annotators -------------------------------------------------------


def sample_of(y, size, seed=0):
    """The true grades of some items, drawn at random, by id."""
    drawn = np.random.default_rng(seed).choice(len(y), size, replace=False)
    return {int(i): int(y[i]) for i in drawn}


def test_gold_shows_whether_all_annotators_grade_too_high():
    """Severities compare them with each other; the report stops asking for what it was given."""
    table, y = ratings(400, bias=BIAS + 0.6)
    model, ask = DawidSkene().fit(table), "grade some items yourself"
    without = summarize(table, aggregator=model)
    assert ask in page_text(without)
    assert "with your grades as --known" in page_text(without)
    assert "Whether all annotators grade too high cannot be seen without gold" in page_text(without)
    given = sample_of(y, 80)
    own = np.isin(table.instance, [*given])
    off = (table.label + 1 - y[table.instance])[own]
    for found in (
        summarize(table, aggregator=model, gold=given),
        summarize(table, aggregator=DawidSkene().fit(table, gold=given, random_gold=[*given])),
    ):
        measured = found["annotators"]["measured"]["too_high"]
        assert measured["value"] == pytest.approx(off.mean())
        assert 0 < measured["low"] < (table.label + 1 - y[table.instance]).mean() < measured["high"]
        told = f"the annotations are on average {off.mean():.1f} grades too high ("
        assert f"On the 80 items with gold labels, {told}" in page_text(found)
        assert ask not in page_text(found)
        assert "cannot be seen without gold" not in page_text(found)
    worst = {row["id"]: row for row in found["annotators"]["rows"]}["w3"]["gold"]
    rows = own & (table.annotator == 3)
    assert worst["too_high"]["value"] == pytest.approx(
        (table.label + 1 - y[table.instance])[rows].mean()
    )
    said = f"On {worst['n']} items with gold labels, this annotator {worst['too_high']['told']}."
    assert said in page_text(found)


def test_intervals_of_how_far_annotations_are_off_hold_the_truth():
    """Annotations of an item are off together, so they count for less than as many single ones."""
    rng, held, naive = np.random.default_rng(0), [], []
    for _ in range(400):
        item = np.repeat(np.arange(30), rng.integers(1, 9, 30))
        off = (rng.normal(0.3, 1.0, 30)[item] + rng.normal(0, 0.5, len(item))) * 1000
        found = deviation_of(off.round().astype(int), np.zeros(len(item), dtype=int), item)
        held.append(found.low < 300 < found.high)
        naive.append(abs(off.mean() - 300) < 1.96 * off.std(ddof=1) / np.sqrt(len(off)))
    assert 0.91 < np.mean(held) < 0.98
    assert np.mean(naive) < 0.75


def test_known_labels_drawn_at_random_measure_annotators_as_gold_does():
    """Counted by hand, flagged alike, and said; a review's queue measures nobody."""
    table, y = ratings(400, bias=np.array([0, 0, 0, 0, 0, 0, 0, 2.0]))
    given, own = sample_of(y, 80), np.array([*sample_of(y, 80)])
    by_gold = summarize(table, aggregator=DawidSkene().fit(table), gold=given)
    known = DawidSkene().fit(table, gold=given, random_gold=[*given])
    by_known = summarize(table, aggregator=known)
    columns = ("n_annotations", "gold", "flags")
    rows = [{row["id"]: [row[c] for c in columns] for row in s["annotators"]["rows"]}
            for s in (by_gold, by_known)]  # fmt: skip
    assert rows[0] == rows[1]
    assert any("below the median on gold" in flags for *_, flags in rows[1].values())
    matrix = table.to_matrix()[own]
    for r, name in enumerate(table.annotators.tolist()):
        seen = matrix[:, r] >= 0
        right = (matrix[seen, r] == y[own[seen]]).sum()
        assert (rows[1][name][1]["n"], rows[1][name][1]["right"]) == (seen.sum(), right)
    text = page_text(by_known)
    assert "The 80 known labels that were drawn at random count as gold here." in text
    assert "Right by gold" in text
    assert "measured on" in answer_right(by_known)[1]
    assert answer_right(by_known)[1].split(",")[0] == answer_right(by_gold)[1].split(",")[0]
    queue = summarize(table, aggregator=DawidSkene().fit(table, gold=given))
    assert queue["annotators"]["n_with_gold"] == 0
    assert "Right by gold" not in page_text(queue)
    assert "The 80 known labels do not measure the annotators" in page_text(queue)
