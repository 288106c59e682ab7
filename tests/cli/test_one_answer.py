"""How good the labels are, and whether more are needed: one answer, whoever is asked.

The report, the terminal, ``summary.json``, ``next``, ``budget`` and the explorer are given the same
annotations, and the same labels that people checked.
"""

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from manyhands import make_crowd
from manyhands.explore.inputs import open_desk
from manyhands.explore.plans import Plans
from manyhands.io import read_annotations
from manyhands.metrics import Level
from manyhands.planning import screen_annotators
from manyhands.planning.screening import OF_LABELS, UNJUDGED
from manyhands.report import planning
from manyhands.report.commands import fill_commands
from manyhands.report.planning import GOLD_TEACHES
from manyhands.report.questions import find_answers
from manyhands.scale.store import AnnotationStore
from manyhands.wording import ALL_TO_REVIEW, GOLD_ONLY_MEASURES
from tests.cli.conftest import done, done_json, read_rows, run, write_csv
from tests.explore.test_explore import ask

N = 120
CLASSES = ["bad", "fair", "good"]
SOURCES = {"model": [], "gold": ["--gold", "gold.csv"], "sample": ["--known", "sample.csv"]}
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def crowd(tmp_path, monkeypatch, short):
    """A crowd that is wrong now and then, its truth, and a random sample that somebody checked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(planning.FORESEEN, "annotators", 0)
    truth = np.random.default_rng(0).integers(0, 3, N)
    table = make_crowd(
        truth, n_annotators=7, annotations_per_instance=4, noise_strength=0.45, random_state=3
    )
    given = zip(
        table.instance.tolist(), table.annotator.tolist(), table.label.tolist(), strict=True
    )
    cells = [(f"t{i}", f"w{r}", CLASSES[c]) for i, r, c in given]
    write_csv(Path("A.csv"), [("task", "worker", "label"), *cells])
    rows = [(f"t{i}", CLASSES[c]) for i, c in enumerate(truth)]
    write_csv(Path("gold.csv"), [("task", "label"), *rows])
    checked = [(*rows[i], "random", "anna") for i in range(0, N, 4)]
    write_csv(Path("sample.csv"), [("task", "label", "chosen", "reviewed"), *checked])


def told_by_page(path):
    """Paragraphs above the steps of a report, with commands between backticks."""
    page = Path(path).read_text(encoding="utf-8")
    head = page.split('class="told"')[1].split("</div>")[0]
    head = re.sub("</?code>", "`", head)
    return [html.unescape(re.sub(r"<[^>]*>", "", p)) for p in re.findall(r"<p.*?</p>", head)]


def as_one(fact, reasons):
    """The sentence of which a page makes two, the fact and its reasons."""
    return f"{fact.removesuffix('.')}: {reasons[0].lower()}{reasons[1:]}"


@pytest.mark.parametrize("source", SOURCES)
def test_all_tell_the_same_of_the_labels(source):
    options = SOURCES[source]
    found = done_json("aggregate", "A.csv", *options, "--out", "labels")
    told, level = found["headline"], Level(**found["level"])
    assert level.source == source
    assert level.low < level.value < level.high
    assert told in done("aggregate", "A.csv", *options).stdout
    summary = json.loads(Path("labels/summary.json").read_text(encoding="utf-8"))
    assert Level(**summary["levels"]["labels"]) == pytest.approx(level)
    on_page = told_by_page("labels/report.html")
    assert " ".join(" ".join(on_page).split()).startswith(" ".join(told.split()))

    planned = done_json("next", "A.csv", *options)
    assert planned["level"] == pytest.approx(found["level"])
    shown = done("next", "A.csv", *options).stdout
    assert told in shown
    assert planned["headline"] == told
    answer = planned["enough"]
    assert answer in on_page
    assert answer in shown

    if source != "sample":  # What budget replays or forecasts has no known labels.
        bought = done_json("budget", "A.csv", *options, "--budget", 5, "--step", 1, "--runs", 1)
        assert bought["level"] == pytest.approx(found["level"])
        assert (bought["headline"], bought["enough"]) == (told, answer)

    if source != "sample":  # The explorer's own sample is tested below.
        with open_desk(Path("labels"), Path("A.csv"), by="anna") as desk:
            assert desk.answers.figures.told.headline == told
            assert Plans(desk).next(ahead=False).enough == answer


def test_the_explorer_tells_of_a_random_sample_what_the_next_aggregate_tells():
    done("aggregate", "A.csv", "--out", "labels")
    truth = dict(read_rows(Path("gold.csv"))[1:])
    with open_desk(Path("labels"), Path("A.csv"), by="anna") as desk:
        before = desk.answers.figures.told
        for i in range(0, N, 4):
            item = desk.item(i)
            code = CLASSES.index(truth[item.task])
            desk.decide(i, item.version, code, shown=item.answer, chosen="random")
        assert desk.settle(60)
        told, answer = desk.answers.figures.told, Plans(desk).next(ahead=False).enough
    assert (before.level.source, told.level.source) == ("model", "sample")
    known = ["--known", "labels/corrections.jsonl"]
    found = done_json("aggregate", "A.csv", *known, "--out", "again")
    assert found["headline"] == told.headline
    # The two fits begin elsewhere, and end within the tolerance of EM.
    assert found["level"]["value"] == pytest.approx(told.level.value, abs=1e-4)
    assert done_json("next", "A.csv", *known)["enough"] == answer


def test_the_explorer_tells_of_a_classifier_what_its_report_does():
    truth = [CLASSES.index(label) for _, label in read_rows(Path("gold.csv"))[1:]]
    X = np.eye(3)[truth] + np.random.default_rng(1).normal(0, 0.6, (N, 3))
    np.savez("X.npz", X=X, task=np.array([f"t{i}" for i in range(N)]))
    files = ["--features", "X.npz", "--annotations", "A.csv", "--out", "model", "--folds", 2]
    found = done_json("fit", *files)
    with open_desk(Path("model"), Path("A.csv"), by="anna") as desk:
        assert [desk.answers.figures.told.headline, desk.answers.model.new_items] == found[
            "headline"
        ]
        item = desk.item(0)
        desk.decide(0, item.version, item.answer, shown=item.answer, chosen="queue")
        assert desk.settle(60)
        level = desk.answers.figures.told.level
    assert level.source == "model"
    assert level.value == pytest.approx(found["levels"]["labels"]["value"], abs=0.02)


def test_known_labels_measure_nothing_after_a_fit_either():
    truth = [CLASSES.index(label) for _, label in read_rows(Path("gold.csv"))[1:]]
    X = np.eye(3)[truth] + np.random.default_rng(1).normal(0, 0.6, (N, 3))
    np.savez("X.npz", X=X, task=np.array([f"t{i}" for i in range(N)]))
    files = ["--features", "X.npz", "--annotations", "A.csv", "--out", "model", "--folds", 0]
    same = done_json("fit", *files, "--known", "sample.csv", "--gold", "gold.csv")
    assert same["levels"]["labels"]["n"] == N - len(range(0, N, 4))
    drawn = done_json("fit", *files, "--known", "sample.csv")["levels"]["labels"]
    assert (drawn["source"], drawn["n"]) == ("sample", len(range(0, N, 4)))
    assert drawn["value"] == pytest.approx(same["levels"]["labels"]["value"], abs=0.1)


def test_an_audit_of_next_is_a_sample():
    write_csv(Path("audit.csv"), [row[:2] for row in read_rows(Path("sample.csv"))])
    audited = done_json("next", "A.csv", "--audit", "audit.csv")
    assert audited["level"]["source"] == "sample"
    stopping = audited["stopping"]
    assert audited["level"]["value"] == pytest.approx(stopping["accuracy"])
    assert audited["level"]["low"] == pytest.approx(stopping["low"])


def test_gold_of_the_most_doubtful_labels_measures_nothing():
    """Unless a file says that it was drawn at random, whatever the rank test finds then."""
    truth = dict(read_rows(Path("gold.csv"))[1:])
    done("aggregate", "A.csv", "--out", "labels")
    done("review", "A.csv", "-n", 20, "--out", "queue.csv")
    doubtful = [row[0] for row in read_rows(Path("queue.csv"))[1:]]
    own = done_json("aggregate", "A.csv")["level"]
    for said, source in (("", "model"), ("random", None)):
        rows = [(task, truth[task], said) for task in doubtful]
        write_csv(Path("doubtful.csv"), [("task", "label", "chosen"), *rows])
        for command, option, name in (
            ("next", "--audit", "checked"),
            ("budget", "--audit", "checked"),
            ("aggregate", "--gold", "gold"),
        ):
            more = ["--runs", 1, "--budget", 6] if command == "budget" else []
            found = run(command, "A.csv", option, "doubtful.csv", *more, "--json")
            level, told = json.loads(found.stdout)["level"], " ".join(found.stderr.split())
            assert level["source"] == (source or {"checked": "sample", "gold": "gold"}[name])
            left_out = f"20 {name} labels are of items that are more in doubt than the others"
            assert told.count(left_out) == (not said), told
            if not said:
                assert level["value"] == pytest.approx(own["value"], abs=0.02)


def test_checks_whose_choice_is_not_said_are_asked_about():
    """The advice is followed as printed: then the same labels correct and measure."""
    rows = [row[:2] for row in read_rows(Path("sample.csv"))]
    write_csv(Path("checked.csv"), rows)
    both = run("aggregate", "A.csv", "--known", "checked.csv", "--gold", "checked.csv", "--json")
    assert f"all {len(rows) - 1} gold labels are also given as known" in " ".join(
        both.stderr.split()
    )
    alone = run("aggregate", "A.csv", "--known", "checked.csv", "--json")
    said = " ".join(alone.stderr.split())
    assert "checked.csv: it is not said how the 30 known items were chosen" in said
    assert "add a column 'chosen' that holds 'random' in each row" in said
    assert json.loads(alone.stdout)["level"]["source"] == "model"
    write_csv(Path("checked.csv"), [(*rows[0], "chosen"), *((*row, "random") for row in rows[1:])])
    drawn = run("aggregate", "A.csv", "--known", "checked.csv", "--json")
    assert "it is not said" not in drawn.stderr
    level = json.loads(drawn.stdout)["level"]
    assert (level["source"], level["n"]) == ("sample", 30)


def test_where_every_label_is_known_nobody_is_asked():
    done("aggregate", "A.csv", "--known", "gold.csv", "--out", "labels")
    summary = json.loads(Path("labels/summary.json").read_text(encoding="utf-8"))
    assert summary["plan"] is None
    told, *of_annotators = told_by_page("labels/report.html")
    assert told == f"Every label was given: {N}\u00a0known labels, and nothing was inferred."
    assert not any(re.search("--known|bought|annotations", said) for said in of_annotators)


def test_what_is_said_after_a_review_is_said_of_the_others():
    rows = [row[:2] for row in read_rows(Path("gold.csv"))[:21]]
    write_csv(Path("known.csv"), rows)
    found = done_json("aggregate", "A.csv", "--known", "known.csv")
    assert found["level"]["n"] == N - 20
    assert f"of the {N - 20}\u00a0other labels are right" in found["headline"]
    assert done_json("next", "A.csv", "--known", "known.csv")["headline"] == found["headline"]


def test_two_annotators_are_no_basis_for_a_figure():
    rng, truth = np.random.default_rng(1), read_rows(Path("gold.csv"))[1:]
    rows = [
        (item, worker, label if rng.random() < 0.8 else CLASSES[rng.integers(3)])
        for item, label in truth
        for worker in ("ann", "ben")
    ]
    left = ("new", "ann", CLASSES[0])  # So that somebody can be asked something.
    write_csv(Path("two.csv"), [("task", "worker", "label"), *rows, left])
    done("aggregate", "two.csv", "--out", "labels")
    *parts, answer = told_by_page("labels/report.html")
    told = as_one(*parts)
    assert "there are two annotators" in told
    assert "`manyhands review two.csv --random 100 --out sample.csv`" in told
    assert answer.startswith("It is not known whether more annotations are worth their price")
    planned = done_json("next", "two.csv")
    assert (planned["level"], planned["headline"], planned["enough"]) == (None, told, answer)
    page = Path("labels/report.html").read_text(encoding="utf-8")
    assert "Check 100 random labels" in page
    assert "We suggest stopping" not in page
    refused = run("budget", "two.csv", "--runs", 1)
    assert refused.exit_code == 3
    assert "there are two annotators" in refused.stderr


def test_one_annotation_each_is_no_basis_for_a_forecast():
    rows = read_rows(Path("A.csv"))
    one = {row[0]: row for row in rows[1:]}
    write_csv(Path("one.csv"), [rows[0], *one.values()])
    done("aggregate", "one.csv", "--out", "labels")
    *parts, answer = told_by_page("labels/report.html")
    told = as_one(*parts)
    assert "are right: most items have only one annotation" in told
    assert answer.startswith("You need more annotations")
    planned = done_json("next", "one.csv")
    assert (planned["level"], planned["headline"], planned["enough"]) == (None, told, answer)
    page = Path("labels/report.html").read_text(encoding="utf-8")
    assert "unlikely to correct" not in page
    refused = run("budget", "one.csv", "--runs", 1)
    assert refused.exit_code == 3
    assert "a forecast from this pilot would be made up" in refused.stderr
    shown = done("review", "one.csv", "-n", 5).stdout
    assert "0 of the" not in shown


UNTOLD = ("accuracy", "low_95", "high_95", "mistake")
"""Columns of annotators that say how good they are by the inferred labels."""


def told_of_annotators(path):
    """Values of the columns that judge annotators, from a file of annotators."""
    header, *found = read_rows(Path(path))
    return {row[header.index(name)] for row in found for name in UNTOLD}


@pytest.mark.parametrize("names", [("ann", "ben"), ("gpt-4o", "claude-3", "gemini_pro", "ben")])
def test_nobody_tells_an_accuracy_of_annotators_whom_nothing_judges(names):
    rng, truth = np.random.default_rng(1), read_rows(Path("gold.csv"))[1:]
    rows = [
        (item, worker, label if rng.random() < 0.8 else CLASSES[rng.integers(3)])
        for item, label in truth
        for worker in names
    ]
    write_csv(Path("few.csv"), [("task", "worker", "label"), *rows])
    said = " ".join(done("annotators", "few.csv", "--out", "annotators.csv").stdout.split())
    assert "It is not known how often each annotator is right" in said
    assert "with a 95 % interval" not in said
    rows_of_json = done_json("annotators", "few.csv")["annotators"]
    assert {row[name] for row in rows_of_json for name in UNTOLD} == {None}
    result = done_json("aggregate", "few.csv", "--out", "labels")
    assert result["level"] is None
    assert (
        told_of_annotators("annotators.csv") == told_of_annotators("labels/annotators.csv") == {""}
    )
    summary = json.loads(Path("labels/summary.json").read_text())["annotators"]
    assert not summary["judged"]
    assert summary["median_accuracy"] is summary["histogram"] is summary["matrices"] is None
    for row in summary["rows"]:
        assert row["accuracy"] is row["lower"] is row["upper"] is row["spammer_score"] is None
        assert not OF_LABELS & {*row["flags"]}
        assert row["screen"]["advice"] == UNJUDGED
    page = html.unescape(Path("labels/report.html").read_text(encoding="utf-8"))
    assert "It is not known how often each annotator is right" in page
    assert "It is not known how good the annotators are" in page
    assert not re.search(r"expected right|is expected to be right|Expected right", page)
    with open_desk(Path("labels"), Path("few.csv"), by="anna") as desk:
        people = ask(desk, "/people")[2]
        assert "It is not known how often each annotator is right" in people
        assert "Expected right" not in people + ask(desk, "/item/0?state=all")[2]
    table = read_annotations("few.csv")
    frame = screen_annotators(table).to_frame()
    assert frame[["accuracy", "low", "high"]].isna().all().all()
    AnnotationStore.create("store", table, shard_annotations=100)
    done("aggregate", "store", "--out", "stored")
    assert told_of_annotators("stored/annotators.csv") == {""}


def test_known_labels_and_a_third_annotator_judge_annotators():
    rng, truth = np.random.default_rng(1), read_rows(Path("gold.csv"))[1:]
    rows = [
        (item, worker, label if rng.random() < 0.8 else CLASSES[rng.integers(3)])
        for item, label in truth
        for worker in ("ann", "ben")
    ]
    write_csv(Path("two.csv"), [("task", "worker", "label"), *rows])
    write_csv(
        Path("three.csv"), [("task", "worker", "label"), *rows, *((i, "cay", c) for i, c in truth)]
    )
    for command in (("three.csv",), ("two.csv", "--known", "sample.csv")):
        assert "with a 95 % interval" in done("annotators", *command).stdout
        done("aggregate", *command, "--out", "judged")
        assert json.loads(Path("judged/summary.json").read_text())["annotators"]["judged"]
        header, *found = read_rows(Path("judged/annotators.csv"))
        assert all(float(row[header.index("accuracy")]) > 0.5 for row in found)
    done("ingest", "two.csv", "--out", "store")
    done("aggregate", "store", "--known", "sample.csv", "--out", "stored")
    header, *found = read_rows(Path("stored/annotators.csv"))
    assert all(float(row[header.index("accuracy")]) > 0.5 for row in found)


def write_crowd(path, skills, seed=0):
    """A table of annotators who are right with these probabilities, and its truth."""
    rng, truth = np.random.default_rng(seed), read_rows(Path("gold.csv"))[1:]
    rows = [
        (item, f"p{r}", label if rng.random() < skill else CLASSES[rng.integers(3)])
        for item, label in truth
        for r, skill in enumerate(skills)
    ]
    some = [row for k, row in enumerate(rows) if k % 9]  # Something is left to ask.
    write_csv(Path(path), [("task", "worker", "label"), *some])


def test_where_all_labels_are_to_review_a_sample_comes_first():
    write_crowd("crowd.csv", [0.45] * 8)
    found = done_json("aggregate", "crowd.csv", "--out", "labels")
    assert found["actions"] == {"accept": 0, "collect more": 0, "review": N}
    reviewed = " ".join(done("review", "crowd.csv").stdout.split())
    first = fill_commands(ALL_TO_REVIEW, {"annotations": ["crowd.csv"]})
    assert first in reviewed
    assert "labels need review" not in reviewed
    page = html.unescape(Path("labels/report.html").read_text(encoding="utf-8"))
    assert first in re.sub("</?code>", "`", page)
    assert f"{N}\u00a0labels need review" not in page


def test_annotations_are_called_enough_only_where_the_labels_are_good():
    for skills, is_good in (([0.97] * 6, True), ([0.45] * 4, False)):
        write_crowd("crowd.csv", skills)
        found = done_json("next", "crowd.csv", "--min-gain", 0.9)
        level = found["level"]["value"]
        assert (level >= planning.GOOD) is is_good
        assert ("You have enough" in found["enough"]) is is_good
        assert ("would hardly help" in found["enough"]) is not is_good
    plan = {"n": 5, "n_warm_up": 0, "per_right_label": 90.0, "newcomer": False, "source": "x"}
    plan |= {"stop": True, "min_gain": 0.02, "judged": True}
    for right, is_good in ((None, False), (0.5, False), (0.95, True)):
        assert ("enough" in planning.enough(plan | {"right": right})) is is_good


def test_what_nobody_can_judge_has_no_expected_gain_anywhere():
    write_crowd("two.csv", [0.8, 0.7])
    shown = done("next", "two.csv", "--out", "next.csv").stdout
    assert "expected_gain" not in shown
    header, *found = read_rows(Path("next.csv"))
    assert {row[header.index("expected_gain")] for row in found} == {""}
    told = done_json("next", "two.csv")
    assert {row["expected_gain"] for row in told["pairs"]} == {None}
    assert told["stopping"]["marginal_gain"] is told["stopping"]["stop"] is None
    assert "is not known" in told["stopping"]["reason"]
    done("aggregate", "two.csv", "--out", "labels")
    plan = json.loads(Path("labels/summary.json").read_text())["plan"]
    assert plan["gain"] is plan["per_right_label"] is plan["curve"] is None
    assert {row["gain"] for row in [*plan["next"]["rows"], *plan["annotators"]]} == {None}
    assert "Corrected labels, expected" not in Path("labels/report.html").read_text(
        encoding="utf-8"
    )
    with open_desk(Path("labels"), Path("two.csv"), by="anna") as desk:
        page = html.unescape(re.sub("</?code>", "`", ask(desk, "/next")[2]))
        assert told["enough"] in page
        assert "Corrected labels, expected" not in page
        assert "We suggest stopping" not in page


@pytest.mark.parametrize("sheet", ["--random", "-n"])
def test_how_known_labels_were_chosen_is_said_once_at_most_and_is_true(sheet, monkeypatch):
    monkeypatch.setitem(planning.FORESEEN, "annotators", 500)
    truth = dict(read_rows(Path("gold.csv"))[1:])
    done("review", "A.csv", "--scale", "nominal", "--random", 15, "-n", 15, "--out", "sheet.csv")
    header, *rows = read_rows(Path("sheet.csv"))
    if sheet == "-n":
        rows = [row for row in rows if row[header.index("chosen")] == "queue"]
    for row in rows:
        row[header.index("label")] = truth[row[0]]
        row[header.index("reviewed")] = "anna"
    write_csv(Path("sheet.csv"), [header, *rows])
    reading = ("A.csv", "--scale", "nominal", "--known", "sheet.csv")
    said = done("aggregate", *reading, "--out", "labels").stderr
    assert said.count("known labels are") == (1 if sheet == "-n" else 0)
    summary = json.loads(Path("labels/summary.json").read_text())
    assert summary["plan"]["rounds"] is not None  # Its fits say nothing of known labels.


def test_a_forecast_from_a_measured_level_asks_for_no_audit():
    shown = {
        source: " ".join(done("budget", "A.csv", "--runs", 1, *options).stdout.split())
        for source, options in SOURCES.items()
        if source != "gold"
    }
    assert "begins at the level that the random sample shows" in shown["sample"]
    assert "--audit" not in shown["sample"]
    assert "that the annotations let the model expect" in shown["model"]
    assert "--audit" in shown["model"]


def test_a_file_of_labels_says_what_makes_a_report():
    said = " ".join(done("aggregate", "A.csv", "--out", "labels.csv").stdout.split())
    assert "name a folder, without a dot: `manyhands aggregate A.csv --out labels`" in said
    assert "without a dot" not in done("aggregate", "A.csv", "--out", "labels").stdout
    refused = run("aggregate", "A.csv", "--out", "faces.before")
    assert refused.exit_code == 3
    assert "a name without a dot, such as 'faces-before', for a folder" in refused.stderr


def test_what_is_not_known_is_no_answer():
    """Questions that nothing answers are answered by no, here and on the explorer's page."""
    write_crowd("two.csv", [0.8, 0.7])
    done("aggregate", "two.csv", "--out", "labels")
    summary = json.loads(Path("labels/summary.json").read_text())
    answers = {each["question"]: each for each in find_answers(summary)}
    assert answers["Do you need more annotations?"]["anchor"] is None
    assert "is not known" in answers["How good is each annotator?"]["answer"]
    page = html.unescape(Path("labels/report.html").read_text(encoding="utf-8"))
    assert "Nothing shows how sure a single label is." in page
    assert "of the wrong labels are expected" not in page
    with open_desk(Path("labels"), Path("two.csv"), by="anna") as desk:
        assert "no forecast, because nothing shows" in ask(desk, "/next?ahead=1")[2]
        assert "Nothing shows how good the annotators are" in ask(desk, "/sheet/0")[2]
    assert "Nothing shows how good" in done("annotators", "two.csv", "--teach", "p0").stdout


def test_nothing_is_called_unknown_that_gold_measures():
    write_crowd("two.csv", [0.8, 0.4])
    gold = ["--gold", "gold.csv"]
    said = done("annotators", "two.csv", *gold).stdout
    assert "accuracy_on_gold: measured" in said
    assert "is not known" not in said
    enough = done_json("next", "two.csv", *gold)["enough"]
    assert "give them as --known" in enough
    assert "--random" not in enough
    done("aggregate", "two.csv", *gold, "--out", "labels")
    summary = json.loads(Path("labels/summary.json").read_text())
    assert "sample" not in {step["code"] for step in summary["actions"]}
    assert planning.enough(summary["plan"]) == enough
    assert UNJUDGED not in {row["screen"]["advice"] for row in summary["annotators"]["rows"]}
    page = html.unescape(Path("labels/report.html").read_text(encoding="utf-8"))
    assert "It is not known how many" not in page
    assert "was measured on the items with gold labels" in page
    with open_desk(Path("labels"), Path("two.csv"), by="anna") as desk:
        assert enough in html.unescape(ask(desk, "/next")[2])


def test_files_of_known_labels_have_the_columns_of_the_annotations():
    """An expert's file often names its columns as the annotations do; so do --task and --label."""
    for name in ("A", "gold", "sample"):
        rows = read_rows(Path(f"{name}.csv"))
        own = {"task": "site", "label": "grade given"}
        write_csv(Path(f"{name}_own.csv"), [[own.get(each, each) for each in rows[0]], *rows[1:]])
    named = ("--task", "site", "--label", "grade given")
    for command, option, file in (
        ("aggregate", "--gold", "gold"),
        ("aggregate", "--known", "sample"),
        ("annotators", "--gold", "gold"),
        ("next", "--audit", "sample"),
    ):
        plain = done_json(command, "A.csv", option, f"{file}.csv")
        own = done_json(command, "A_own.csv", *named, option, f"{file}_own.csv")
        again = done_json(command, "A_own.csv", *named, option, f"{file}.csv")
        for found in (plain, own, again):
            found.pop("how_many", None)  # A command, which names the annotations.
        assert own == again == plain
    # A column that is named like gold labels holds them, and not a column of the annotations.
    rows = [(task, "bad", label) for task, label in read_rows(Path("gold.csv"))[1:]]
    write_csv(Path("both.csv"), [("site", "grade given", "gold"), *rows])
    both = done_json("aggregate", "A_own.csv", *named, "--gold", "both.csv")
    assert both["gold"] == done_json("aggregate", "A.csv", "--gold", "gold.csv")["gold"]


def test_a_sheet_for_an_annotator_says_why_it_has_no_example():
    """With two annotators, no item has two others who agree; with seven, some have."""
    why = "Where examples or contrast is empty, no item of the class is clear enough to show"
    rows = read_rows(Path("A.csv"))
    write_csv(Path("two.csv"), [rows[0], *(row for row in rows if row[1] in ("w0", "w1"))])
    assert why in " ".join(done("annotators", "two.csv", "--teach", "w0").stdout.split())
    for name in ("w0", "w1", "w2"):
        pairs = done_json("annotators", "A.csv", "--teach", name)["pairs"]
        said = " ".join(done("annotators", "A.csv", "--teach", name).stdout.split())
        assert (why in said) == (not all(each["examples"] and each["contrast"] for each in pairs))


def test_gold_labels_only_measure_and_the_command_says_when_they_are_known_instead():
    """Followed, the advice holds: as --known, no list has the items, and nobody is asked again."""
    truth = dict(read_rows(Path("gold.csv"))[1:])
    done("review", "A.csv", "-n", 30, "--out", "queue.csv")
    checked = {row[0] for row in read_rows(Path("queue.csv"))[1::2]}
    rows = [(task, truth[task]) for task in sorted(checked)]
    write_csv(Path("checked.csv"), [("task", "label"), *rows])
    found = run("aggregate", "A.csv", "--gold", "checked.csv", "--out", "by_gold")
    said = " ".join(found.stdout.split())
    assert said.count(GOLD_ONLY_MEASURES) == 1
    asked = f"checked.csv: it is not said how the {len(rows)} gold items were chosen."
    assert asked in " ".join(found.stderr.split())
    page = " ".join(html.unescape(Path("by_gold/report.html").read_text("utf-8")).split())
    assert page.count(GOLD_ONLY_MEASURES) == 1
    summary = json.loads(Path("by_gold/summary.json").read_text(encoding="utf-8"))
    (step,) = [each for each in summary["actions"] if each["code"] == "check"]
    assert step["rows"]
    assert not checked & {row["id"] for row in step["rows"]}
    (step,) = [each for each in summary["actions"] if each["code"] == "buy"]
    planned = {str(row["id"]) for row in summary["plan"]["next"]["rows"]}
    why = "items with gold labels can be in this list, because gold labels decide no label"
    assert (why in str(step["advice"])) == bool(checked & planned)
    assert GOLD_TEACHES in step["advice"]
    assert checked & planned
    known = done("aggregate", "A.csv", "--known", "checked.csv", "--out", "by_known").stdout
    assert GOLD_ONLY_MEASURES not in " ".join(known.split())
    labels = {row[0]: row[1] for row in read_rows(Path("by_known/labels.csv"))[1:]}
    assert all(labels[task] == truth[task] for task in checked)
    batch = done_json("next", "A.csv", "--known", "checked.csv", "-n", N)["pairs"]
    assert not checked & {str(row["task"]) for row in batch}
    write_csv(Path("drawn.csv"), [("task", "label", "chosen"), *((*row, "random") for row in rows)])
    assert "it is not said" not in run("aggregate", "A.csv", "--gold", "drawn.csv").stderr
    whole = run("aggregate", "A.csv", "--gold", "gold.csv")
    assert "it is not said" not in whole.stderr
    assert GOLD_ONLY_MEASURES not in " ".join(whole.stdout.split())


def test_annotators_of_a_folder_are_judged_as_its_report_judges_them():
    """The command repeats the table of the folder, byte by byte, also with gold labels."""
    write_csv(Path("some.csv"), read_rows(Path("gold.csv"))[:40])
    for gold in ([], ["--gold", "some.csv"]):
        done("aggregate", "A.csv", "--method", "glad", *gold, "--out", "labels")
        own = Path("labels/annotators.csv").read_bytes()
        said = done("annotators", "A.csv", "--model", "labels", *gold, "--out", "own.csv").stdout
        assert Path("own.csv").read_bytes() == own
        alone = done("annotators", "A.csv", *gold, "--out", "alone.csv").stdout
        assert Path("alone.csv").read_bytes() != own
        told = "--model DIR takes those of a folder, as its report does"
        assert [told in " ".join(each.split()) for each in (said, alone)] == [False, True]
    refused = run("annotators", "A.csv", "--model", "labels", "--teach", "w0")
    assert (refused.exit_code, "leave --model out" in refused.stderr) == (3, True)
