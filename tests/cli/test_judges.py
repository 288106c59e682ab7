"""The command `judges`, as a user runs it."""

import csv
import json

import numpy as np
import pytest

import manyhands
from manyhands.cli.translation import with_options
from manyhands.exceptions import NotIdentifiableWarning
from manyhands.inference.identifiability import IsolatedFamilies, warn_of_isolated_families
from manyhands.report.judges import open_lines, question_lines
from tests.cli.conftest import done, done_json, refused

N, CLASSES = 240, np.array(["cat", "dog", "owl"])


def skilled(truth, skill, rng):
    guess = rng.integers(0, 3, len(truth))
    return CLASSES[np.where(rng.random(len(truth)) < skill, truth, guess)]


@pytest.fixture
def crowd(home):
    """Three people on half of the items, and models on all: a long table, and files of each."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, N)
    labels = {who: skilled(truth, 0.8, rng) for who in ("anna", "ben", "cleo")}
    labels |= {"gpt-4o": skilled(truth, 0.9, rng), "llama-3": skilled(truth, 0.2, rng)}
    asked = ["tone" if i % 4 > 1 else "length" for i in range(N)]
    document = [f"d{i // 4}" for i in range(N)]
    rows = []
    for who, given in labels.items():
        kind = "person" if who in ("anna", "ben", "cleo") else "llm"
        for i in range(0, N, 2 if kind == "person" else 1):
            at = (i * 7) % N if kind == "person" else i
            rows.append((f"i{at}", who, given[at], kind, asked[at], document[at]))
    with (home / "all.csv").open("w", newline="") as file:
        header = ("task", "worker", "label", "kind", "asked", "document")
        csv.writer(file).writerows([header, *rows])
    for who in ("gpt-4o", "llama-3"):
        own = [
            {"item": task, "label": label, "asked": q, "document": d}
            for task, name, label, _, q, d in rows
            if name == who
        ]
        (home / f"{who}.jsonl").write_text("\n".join(map(json.dumps, own)))
    tasks = dict.fromkeys(task for task, who, *_ in rows if who == "anna")
    sheet = [["item", "anna", "ben", "cleo"]]
    given = {(task, who): label for task, who, label, *_ in rows}
    sheet += [[task, *(given[task, who] for who in sheet[0][1:])] for task in tasks]
    with (home / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows(sheet)
    return home


WITH_COLUMNS = ("--question", "asked", "--cluster", "document")


def test_a_judge_per_line_with_its_verdict(crowd):
    said = done("judges", "all.csv", "--groups", "kind", *WITH_COLUMNS).stdout
    assert "3 people (anna, ben, cleo)" in said
    first, second, _ = lines_after(said, "How well each judge")
    assert first.split()[0] == "gpt-4o"
    assert first.endswith("can stand in  *")
    assert second.endswith("cannot stand in")
    assert "--question" not in said


def test_files_of_models_and_a_spreadsheet_of_people_say_the_same(crowd):
    whole = done_json("judges", "all.csv", "--groups", "kind", *WITH_COLUMNS)
    parts = done_json(
        "judges", "gpt-4o.jsonl", "llama-3.jsonl", "--people", "people.csv", "--task", "item",
        *WITH_COLUMNS,
    )  # fmt: skip
    assert whole["people"] == parts["people"] == ["anna", "ben", "cleo"]
    for one, other in zip(whole["judges"], parts["judges"], strict=True):
        assert one["name"] == other["name"]
        assert one["r"] == pytest.approx(other["r"])
        assert one["low"] == pytest.approx(other["low"], abs=0.02)
    assert whole["shares"]["n_labelled"] == 120


def test_people_by_name_or_models_by_their_names(crowd):
    named = done_json("judges", "all.csv", "--people", "anna,ben,cleo", *WITH_COLUMNS)
    guessed = done_json("judges", "all.csv", *WITH_COLUMNS)
    assert named["judges"] == guessed["judges"]
    assert guessed["taken_as_models"] == ["gpt-4o", "llama-3"]
    assert "because of their names" in done("judges", "all.csv").stdout


def test_without_a_question_the_columns_that_may_hold_it_are_named(crowd):
    note = "name the column of the questions (--question)"
    args = ("judges", "all.csv", "--groups", "kind")
    assert f"{note}, such as “asked”, “document”. Otherwise" in done(*args).stdout
    assert f"{note}, such as “asked”. Otherwise" in done(*args, "--cluster", "document").stdout
    models = ("judges", "gpt-4o.jsonl", "llama-3.jsonl", "--people", "people.csv", "--task", "item")
    assert f"{note}, such as “asked”, “document”. Otherwise" in done(*models).stdout


def test_no_question_is_asked_for_if_no_column_can_hold_it(crowd):
    rows = (crowd / "all.csv").read_text().splitlines()
    one = [row.replace("tone", "length") for row in rows]  # One question, one document per item.
    (crowd / "all.csv").write_text("\n".join(row.rpartition(",")[0] for row in one))
    with_column(crowd / "all.csv", "note", lambda i: one[i + 1].split(",")[0])
    said = done("judges", "all.csv", "--groups", "kind").stdout
    assert "--question" not in said


def test_shares_of_all_items_hold_what_people_said(crowd):
    found = done_json("judges", "all.csv", "--groups", "kind", "--random")["shares"]
    assert found["random"]
    assert sum(row["estimate"] for row in found["classes"]) == pytest.approx(1, abs=0.05)
    for row in found["classes"]:
        assert row["low"] < row["estimate"] < row["high"]
        assert row["high"] - row["low"] < row["people_high"] - row["people_low"] + 0.005
    assert "add --random" in done("judges", "all.csv", "--groups", "kind").stdout


def by_document(home):
    """Let people label every second document, whole."""
    rows = (home / "all.csv").read_text().splitlines()
    models = [row for row in rows if ",llm," in row]
    text = {row.split(",")[0]: row.split(",")[-2:] for row in models}
    truth = {row.split(",")[0]: row.split(",")[2] for row in models if ",gpt-4o," in row}
    people = [
        f"{task},{who},{label if (i + k) % 5 else 'owl'},person,{','.join(text[task])}"
        for k, who in enumerate(("anna", "ben"))
        for i, (task, label) in enumerate(truth.items())
        if int(text[task][1][1:]) % 2
    ]
    (home / "all.csv").write_text("\n".join([rows[0], *people, *models]))


def test_intervals_for_all_items_allow_for_documents_that_were_drawn(crowd):
    by_document(crowd)
    args = ("judges", "all.csv", "--groups", "kind", "--random")
    alone, together = (
        done_json(*args, *more)["shares"] for more in ((), ("--cluster", "document"))
    )
    assert alone["clusters"] is None
    assert together["clusters"] == {"labelled": 30, "all": 60, "whole": True}
    one, other = alone["classes"][0], together["classes"][0]
    assert one["people_alone"] == pytest.approx(other["people_alone"])
    assert (one["low"], one["high"]) != pytest.approx((other["low"], other["high"]))
    assert "(drawn at random by document: 30 of 60)" in done(*args, "--cluster", "document").stdout
    assert "name their column (--cluster)" in done(*args).stdout


def test_documents_of_which_a_part_is_labelled_are_told(crowd):
    said = done("judges", "all.csv", "--groups", "kind", "--random", "--cluster", "document").stdout
    assert "(drawn at random, in 60 of 60 values of document)" in said
    assert "rather too wide" in said


def test_of_items_of_few_clusters_nothing_is_estimated_for_all(crowd):
    said = done("judges", "all.csv", "--groups", "kind", "--cluster", "asked").stdout
    assert "fewer than 5 different values of --cluster" in said
    assert "How people would label" not in said


def test_the_table_of_judges_is_written(crowd):
    done("judges", "all.csv", "--groups", "kind", "--out", "judges.csv")
    with (crowd / "judges.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["gpt-4o", "llama-3"]
    assert rows[0]["verdict"] == "can stand in"


def test_uses_of_classes_are_told_by_a_column_of_items(crowd):
    found = done_json("judges", "all.csv", "--groups", "kind", "--by", "asked")
    assert {use["by"] for use in found["judges"][0]["classes"]} == {None, "tone", "length"}


def test_the_output_says_how_labels_are_compared(crowd):
    names = ("judges", "all.csv", "--groups", "kind")
    assert "compared as names" in done(*names).stdout
    assert done_json(*names)["compared_as"] == {"kind": "names", "order": None, "unit": None}
    grades = (*names, "--ordered", "--classes", "owl,cat,dog")
    assert "compared as grades, in the order owl, cat, dog" in done(*grades).stdout
    order = {"kind": "grades", "order": ["owl", "cat", "dog"], "unit": "grades"}
    assert done_json(*grades)["compared_as"] == order


def graded(home, step=1, shift=-1):
    """Two people and two models who grade 1 to 5: one like people, one lower by ``shift``."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, 6, 80)
    rows = ["task,worker,label,kind,asked,document"]
    for who, change in (("ann", 0), ("bea", 0), ("gpt-4o", 0), ("llama-3", shift)):
        kind = "llm" if "-" in who else "person"
        given = np.clip(truth + change + rng.integers(-1, 2, 80) * (rng.random(80) < 0.4), 1, 5)
        rows += [f"i{i},{who},{step * given[i]},{kind},a,d{i // 4}" for i in range(80)]
    (home / "grades.csv").write_text("\n".join(rows))


def lines_after(said, start):
    """The indented lines below a line that begins so."""
    lines = said.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(start))
    last = next(i for i in range(first + 1, len(lines)) if not lines[i].startswith("  "))
    return lines[first + 1 : last]


def test_how_much_higher_or_lower_a_judge_grades_is_told(home):
    graded(home)
    args = ("judges", "grades.csv", "--groups", "kind", "--ordered", "--cluster", "document")
    same, lower = lines_after(done(*args).stdout, "How much higher or lower")
    assert same.startswith("  gpt-4o ")
    assert "lower to 0." in same
    assert lower.startswith("  llama-3  0.9")
    assert "grades lower (0." in lower
    judge = done_json(*args)["judges"][1]
    assert judge["bias_low"] < -0.9 < judge["bias_high"] < 0
    assert "How much higher" not in done(*args[:4], "--scale", "nominal").stdout


def by_question(home):
    """Two criteria; one judge is good at one of them only, and people grade half of the items."""
    rng = np.random.default_rng(1)
    truth = rng.integers(1, 6, 480)
    rows = ["task,worker,label,kind,criterion,document"]
    for who, skills in (
        ("ann", (0.8, 0.8)), ("bea", (0.8, 0.8)), ("gpt-4o", (0.98, 0.98)), ("llama-3", (1, 0.0)),
    ):  # fmt: skip
        for i in range(480 if "-" in who else 240):
            known = rng.random() < skills[i % 2]
            grade = truth[i] if known else rng.integers(1, 6)
            rows.append(
                f"i{i},{who},{grade},{'llm' if '-' in who else 'person'},"
                f"{('tone', 'fact')[i % 2]},d{i // 4}"
            )
    (home / "grades.csv").write_text("\n".join(rows))


def test_a_verdict_and_a_mean_for_each_question(home):
    by_question(home)
    args = (
        "judges", "grades.csv", "--groups", "kind", "--ordered", "--random",
        "--question", "criterion", "--cluster", "document",
    )  # fmt: skip
    said = done(*args).stdout
    heads, first, second = lines_after(said, "The same within each question")
    assert heads.split() == ["gpt-4o", "llama-3"]
    assert [first.split()[k] for k in (0, 1, 3)] == ["tone", "yes", "yes"]
    assert second.split()[0] == "fact"
    assert second.split()[-2] == "no"
    found = done_json(*args)
    fact = next(q for q in found["judges"][1]["questions"] if q["question"] == "fact")
    assert fact["verdict"] == "cannot stand in"
    assert fact["low"] < fact["r"] < fact["high"] < 0.8
    assert {mean["question"] for mean in found["shares"]["means"]} == {"fact", "tone"}
    for mean in found["shares"]["means"]:
        assert f"mean of {mean['question']}: {mean['estimate']:.2f} ({mean['low']:.2f} to" in said
    assert "within each question" not in done(*args[:6]).stdout


def test_how_many_items_decide_is_told_with_those_that_there_are():
    judge = {"name": "gpt", "verdict": "open", "n_items": 640, "more_items": 4.46, "r": 0.7,
             "low": 0.6, "high": 0.9}  # fmt: skip
    found = {"judges": [judge], "margin": 0.2}
    (beyond,) = open_lines(found | {"n_items_of_all": 1600})
    assert "(2,855 in all)" in beyond
    assert beyond.endswith("There are only 1,600, so these items cannot decide it.")
    (within,) = open_lines(found | {"n_items_of_all": 6400})
    assert within.endswith("of a person's agreement, if people label them.")


def test_how_many_more_items_or_documents_halve_the_interval_of_the_mean(home):
    by_question(home)
    args = ("judges", "grades.csv", "--groups", "kind", "--ordered", "--random")
    half = done_json(*args)["shares"]["for_half"]
    assert half["of"] == 480
    assert half["drawn"] == 240 + half["more"]
    assert f"label about {half['drawn']} of the 480 items: {half['more']}" in done(*args).stdout
    args = (*args, "--cluster", "document")
    half = done_json(*args)["shares"]["for_half"]
    assert half["of"] == 120
    assert f"about {half['drawn']} of the 120 values of document" in done(*args).stdout


def test_the_table_of_questions_is_short_and_says_what_it_leaves_out():
    judges = [
        {"name": f"a-long-name-of-a-model-{k}", "verdict": "open", "questions": [
            {"question": f"q{i}", "verdict": "open", "r": -0.001, "low": -0.1, "high": 0.9}
            for i in range(40)
        ]}
        for k in range(6)
    ]  # fmt: skip
    lines = list(question_lines({"judges": judges}))
    assert max(map(len, lines)) <= 110
    assert len(lines) == 33
    assert lines[-1] == "  and 10 questions and 2 judges more, which --json lists"
    assert "open 0.00" in lines[2]


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        ("can stand in", "gpt can stand in over all questions, but not in “q1”, “q2”."),
        ("cannot stand in", "gpt cannot stand in over all questions, but it can in “q0”."),
    ],
)
def test_verdicts_that_are_the_opposite_in_a_question_are_told(verdict, says):
    within = ("can stand in", "cannot stand in", "cannot stand in", "open")
    questions = [
        {"question": f"q{i}", "verdict": each, "r": 0.8, "low": 0.1, "high": 0.9}
        for i, each in enumerate(within)
    ]
    judge = {"name": "gpt", "verdict": verdict, "questions": questions}
    assert list(question_lines({"judges": [judge]}))[-1] == says


def test_scores_that_are_no_steps_of_one_are_points(home):
    graded(home, step=20)
    args = ("judges", "grades.csv", "--groups", "kind", "--ordered")
    assert "points lower (1" in done(*args).stdout


def test_numbers_are_compared_as_such_and_not_listed_one_by_one(home):
    by_question(home)
    args = ("judges", "grades.csv", "--groups", "kind", "--random", "--question", "criterion")
    numbers, grades = (done_json(*args, "--scale", scale) for scale in ("interval", "ordinal"))
    assert numbers["compared_as"]["kind"] == "numbers"
    for one, other in zip(numbers["judges"], grades["judges"], strict=True):
        assert (one["r"], one["bias"]) == (other["r"], other["bias"])
        assert other["classes"]
        assert one["classes"] == []
    assert numbers["shares"]["classes"] == []
    assert numbers["shares"]["mean"] == grades["shares"]["mean"]
    said = done(*args, "--scale", "interval").stdout
    assert "Labels are compared as numbers, from 1 to 5: the smaller the square" in said
    assert "points higher" in said or "points lower" in said
    assert "rarer labels" not in said


def test_one_model_in_a_file_of_its_own(crowd):
    args = ("--people", "people.csv", "--task", "item", *WITH_COLUMNS)
    one = done_json("judges", "gpt-4o.jsonl", *args)["judges"]
    both = done_json("judges", "gpt-4o.jsonl", "llama-3.jsonl", *args)["judges"]
    assert [judge["name"] for judge in one] == ["gpt-4o"]
    assert one[0]["r"] == pytest.approx(both[0]["r"])


def with_column(path, name, value_of):
    header, *rows = path.read_text().splitlines()
    lines = [f"{row},{value_of(i)}" for i, row in enumerate(rows)]
    path.write_text("\n".join([f"{header},{name}", *lines]))


@pytest.mark.parametrize("first", [0, 300])
def test_labels_of_a_queue_are_refused_wherever_they_are(crowd, first):
    with_column(crowd / "all.csv", "chosen", lambda i: "queue" if i >= first else "random")
    refused(3, "judges", "all.csv", "--people", "anna,ben,cleo", says=["all.csv", "review queue"])
    with_column(crowd / "people.csv", "chosen", lambda i: "queue" if i == 110 else "")
    models = ("gpt-4o.jsonl", "llama-3.jsonl", "--task", "item")
    refused(3, "judges", *models, "--people", "people.csv", says=["people.csv", "review queue"])


@pytest.mark.parametrize("values", [("random", "random"), ("cat", "queue")])
def test_random_labels_and_a_column_of_ones_own_are_not_refused(crowd, values):
    with_column(crowd / "all.csv", "chosen", lambda i: values[i % 2])
    done("judges", "all.csv", "--people", "anna,ben,cleo")


def test_a_value_of_by_with_few_items_is_told(crowd):
    with_column(crowd / "all.csv", "maker", lambda i: "none")
    said = done("judges", "all.csv", "--groups", "kind", "--by", "document").stdout
    assert "60 of 60 values of --by have fewer than 10 items" in said
    assert "values of" not in done("judges", "all.csv", "--groups", "kind", "--by", "maker").stdout


@pytest.mark.parametrize("n_shared", [0, 3])
def test_a_judge_that_shares_few_items_is_last_and_open(crowd, n_shared, recwarn):
    rows = (crowd / "all.csv").read_text().splitlines()
    people = {row.split(",")[0]: row for row in rows if ",anna," in row}
    shared = [row.replace("anna,", "new,").replace("person", "llm") for row in people.values()]
    alone = [row.replace("gpt-4o", "new") for row in rows if ",gpt-4o," in row]
    alone = [row for row in alone if row.split(",")[0] not in people]
    (crowd / "all.csv").write_text("\n".join([*rows, *shared[:n_shared], *alone]))
    done("judges", "all.csv", "--groups", "kind", "--out", "out.csv")
    judges = done_json("judges", "all.csv", "--groups", "kind")["judges"]
    assert [judge["name"] for judge in judges] == ["gpt-4o", "llama-3", "new"]
    assert judges[-1]["n_items"] == n_shared
    assert judges[-1]["verdict"] == "open"
    assert not judges[-1]["may_be_best"]
    said = done("judges", "all.csv", "--groups", "kind").stdout
    assert f"it labelled {n_shared or 'no'} items that people" in said
    assert "so near" not in said
    assert not [each for each in recwarn if each.category is RuntimeWarning]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--groups", "none"], "nobody says who of the annotators is a model"),
        (["--people", "anna"], "the only person"),
        (["--people", "carl"], "neither an annotator nor a family"),
        (["--question", "topic"], "--question topic: there is no such column"),
        (["--question", "task"], "--question task: it holds the ids or the labels"),
        (["--cluster", "page"], "--cluster page: there is no such column"),
        (["--margin", "2"], "--margin 2"),
    ],
)
def test_bad_input_gets_its_sentence(crowd, more, says):
    refused(3, "judges", "all.csv", *more, says=[says])


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.SharedMistakesWarning")
def test_what_is_added_to_a_folder_keeps_who_is_a_person(crowd):
    rows = (crowd / "all.csv").read_text().splitlines(keepends=True)
    for name, kept in (
        ("first.csv", lambda task: task < 180),
        ("more.csv", lambda task: task >= 180),
    ):
        own = [row for row in rows[1:] if kept(int(row.split(",")[0][1:]))]
        (crowd / name).write_text("".join([rows[0], *own]))
    people = ("--people", "anna,ben,cleo")
    done("aggregate", "first.csv", *people, "--out", "first")
    done("aggregate", "more.csv", *people, "--continue", "first", "--out", "both")
    done("aggregate", "all.csv", *people, "--out", "whole")
    both, whole = (manyhands.load(crowd / name) for name in ("both", "whole"))
    assert sorted(both.instances_) == sorted(whole.instances_)
    found = dict(zip(both.instances_, both.labels_, strict=True))
    same = [found[i] == y for i, y in zip(whole.instances_, whole.labels_, strict=True)]
    assert np.mean(same) > 0.97


@pytest.mark.filterwarnings("ignore:people.csv.*have no known label")
def test_people_of_a_spreadsheet_are_known_labels_of_the_models(crowd):
    options = ("--task", "item", "--annotator-from", "file", "--groups", "none")
    said = done("aggregate", "gpt-4o.jsonl", "llama-3.jsonl", *options, "--known", "people.csv",
                "--method", "GoldCorrected", "--out", "labels.csv")  # fmt: skip
    assert "most of its 3 annotators (“anna”, “ben”, “cleo”) gave" in said.stderr
    with (crowd / "labels.csv").open() as file:
        rows = {row["task"]: row["label"] for row in csv.DictReader(file)}
    with (crowd / "people.csv").open() as file:
        sheet = list(csv.DictReader(file))
    assert len(rows) == N
    agreed = [row for row in sheet if row["anna"] == row["ben"] == row["cleo"]]
    assert len(agreed) > 20
    assert all(rows[row["item"]] == row["anna"] for row in agreed)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.SharedMistakesWarning")
@pytest.mark.filterwarnings("ignore:people.csv.*have no known label")
def test_the_queue_of_a_model_is_in_its_labels(crowd):
    models = ("gpt-4o.jsonl", "llama-3.jsonl", "--annotator-from", "file", "--task", "item")
    done(
        "aggregate", *models, "--method", "GoldCorrected", "--set", "gold_sample=random",
        "--known", "people.csv", "--groups", "none", "--out", "labels",
    )  # fmt: skip
    refused(3, "review", "labels", says=["labels/labels.csv", "'probability'", "explore labels"])
    with (crowd / "labels" / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    unsure = [float(row["probability"]) for row in rows if not row["reviewed"]]
    assert len(unsure) > 100
    assert len(set(unsure)) > 3


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.SharedMistakesWarning")
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
@pytest.mark.parametrize("n", [31, 111])
@pytest.mark.filterwarnings("ignore:people.csv.*have no known label")
def test_a_family_that_is_alone_is_not_said_to_be_one_annotation(crowd, n):
    rows = (crowd / "people.csv").read_text().splitlines()
    (crowd / "people.csv").write_text("\n".join(rows[:n]))
    said = done(
        "aggregate", "gpt-4o.jsonl", "llama-3.jsonl", "--annotator-from", "file",
        "--task", "item", "--people", "people.csv", "--out", "labels.csv",
    ).output  # fmt: skip
    assert "no two answers can be compared" not in said
    if n == 111:  # With fewer, nothing decides who is right.
        assert "one annotator only (the declared family “models” counts as one), so nothing" in said
        assert "leave out the option that declares them (--groups or --people)" in said


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.SharedMistakesWarning")
def test_models_that_count_as_one_are_named_with_the_reason_and_the_mend(tmp_path, monkeypatch):
    """Of three models that labelled everything, and three people a third of it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [
        (f"i{i}", who, "ab"[int(rng.random() < 0.3) ^ (i % 2)])
        for i in range(150)
        for who in ("gpt-4o", "llama-3", "qwen", "anna", "ben", "cleo")
        if i < 50 or who in ("gpt-4o", "llama-3", "qwen")
    ]
    with open("all.csv", "w", newline="") as file:
        csv.writer(file).writerows([("task", "worker", "label"), *rows])
    said = done("aggregate", "all.csv").stdout
    assert (
        "one annotator only (gpt-4o, llama-3 and qwen count as one, because they are named like "
        "language models, which often make the same mistakes), so nothing shows who is right. If "
        "they have no reason to share mistakes, add --groups none."
    ) in said
    assert "count as one" not in done("aggregate", "all.csv", "--groups", "none").stdout


def test_advice_on_an_isolated_family_names_the_options_of_the_command():
    found = IsolatedFamilies(np.arange(100) < 90, 100, ("llm",), enough=False)
    with pytest.warns(NotIdentifiableWarning) as told:
        warn_of_isolated_families(found)
    said = with_options(str(told[0].message))
    assert "--known FILE --method gold-corrected --groups none, without --people" in said
