"""Tables of labels, of annotators and for review: the same from every command that writes them."""

import csv
import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from manyhands import AnnotationStore, DawidSkene, make_crowd, summarize
from manyhands.explore.desk import Choice
from manyhands.explore.inputs import open_desk
from manyhands.explore.outputs import write_reviewed
from manyhands.io import consensus, read_annotations
from manyhands.io.consensus_labels import REVIEW_RULE, RULE
from manyhands.planning import screen_annotators
from manyhands.report import planning
from manyhands.report.confusions import REVERSED
from manyhands.report.review import half_of_wrong
from tests.cli.conftest import QUICK, done, done_json, read_rows, run, write_csv
from tests.explore.test_explore import ask

N = 90
CLASSES = ["bad", "fair", "good"]
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("crowd"),
]


@pytest.fixture(autouse=True)
def short(monkeypatch, short):
    monkeypatch.setitem(planning.FORESEEN, "annotators", 0)


@pytest.fixture
def crowd(tmp_path, monkeypatch):
    """Six honest annotators, one who guesses, and one who always says the same; features, texts."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, N)
    table = make_crowd(truth, n_annotators=6, annotations_per_instance=5, random_state=3)
    rows = list(zip(table.instance.tolist(), table.annotator.tolist(), table.label.tolist()))  # noqa: B905
    rows += [(i, 6, int(rng.integers(3))) for i in range(N)] + [(i, 7, 2) for i in range(N)]
    cells = [(f"t{i}", f"w{r}", CLASSES[c], f"text {i}") for i, r, c in rows]
    write_csv(Path("A.csv"), [("task", "worker", "label", "text"), *cells])
    X = np.eye(3)[truth] + rng.normal(0, 0.3, (N, 3))
    np.savez("X.npz", X=X, task=np.array([f"t{i}" for i in range(N)]))
    write_csv(
        Path("gold.csv"), [("task", "label"), *((f"t{i}", CLASSES[truth[i]]) for i in range(N))]
    )


def read(path):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


LABELS = [
    *("task", "text", "label", "probability", "n_annotations", "agreement", "action"),
    *(f"p({name})" for name in CLASSES),
    "reviewed",
]
ANNOTATORS = [
    *("annotator", "n_annotations", "n_abstentions", "n_skips", "accuracy", "low_95", "high_95"),
    *("n_gold", "accuracy_on_gold", "flags", "evidence", "advice", "mistake", "median_seconds"),
    *("severity", "severity_low_95", "severity_high_95", "within_one_grade"),  # They are grades.
]


def test_labels_have_the_same_columns_from_every_command():
    features = ("--features", "X.npz", "--annotations", "A.csv")
    done("aggregate", "A.csv", "--out", "labels.csv")
    done("aggregate", "A.csv", "--out", "labels")
    done("fit", *features, "--out", "model", *QUICK)
    done("fit", *features, "--known", "gold.csv", "--out", "stack")
    done("select", *features, "--methods", "crowd-stacking,raykar", "--cv", 2, "--out", "chosen")
    done("report", "labels", "--tables", "tables")
    done("explore", "labels", "--annotations", "A.csv", "--out", "explored.csv")
    folders = ("labels", "model", "stack", "chosen", "tables")
    files = ["labels.csv", "explored.csv", *(f"{folder}/labels.csv" for folder in folders)]
    found = {name: read(name) for name in files}
    for name, rows in found.items():
        assert list(rows[0]) == LABELS, name
        assert len(rows) == N
        assert all(row["text"] == f"text {row['task'][1:]}" for row in rows), name
        counted = [(row["task"], row["n_annotations"]) for row in rows]
        assert sorted(counted) == sorted((r["task"], r["n_annotations"]) for r in found[files[0]])
    own = {row["task"]: row for row in found["labels.csv"]}
    for name in ("explored.csv", "labels/labels.csv", "tables/labels.csv"):
        for row in found[name]:
            assert row["action"] == own[row["task"]]["action"]
    assert {row["reviewed"] for row in found["stack/labels.csv"]} == {"yes"}
    assert {row["action"] for row in found["stack/labels.csv"]} == {"accept"}


def test_annotators_have_the_same_columns_flags_and_interval_from_every_command():
    done("aggregate", "A.csv", "--out", "labels")
    done("annotators", "A.csv", "--out", "annotators.csv")
    done("report", "labels", "--tables", "tables")
    done("fit", "--features", "X.npz", "--annotations", "A.csv", "--out", "model")
    names = ("labels/annotators.csv", "annotators.csv", "tables/annotators.csv")
    found = {name: read(name) for name in (*names, "model/annotators.csv")}
    for name, rows in found.items():
        assert list(rows[0]) == ANNOTATORS, name
        flags = {row["annotator"]: row["flags"] for row in rows}
        assert "no better than guessing" in flags["w6"], name
        assert "one label" in flags["w7"], name
        assert rows[0]["annotator"] in ("w6", "w7")  # Those to look at first come first.
        for row in rows:
            assert bool(row["flags"]) == bool(row["evidence"]), name
            assert row["advice"]
    assert found[names[0]] == found[names[1]] == found[names[2]]
    said = done_json("annotators", "A.csv")
    assert said["level"] == 0.95
    for row, line in zip(said["annotators"], found[names[1]], strict=True):
        assert len(row["flags"]) == len(row["evidence"])
        assert "; ".join(row["flags"]) == line["flags"]
        assert "; ".join(row["evidence"]) == line["evidence"]
    with open_desk(Path("labels"), Path("A.csv"), by="anna") as desk:
        figures = desk.answers.figures
        screens = figures.screens
        flags = {desk.table.annotators[r].item(): screens[r].flags for r in screens}
        high = dict(zip(desk.table.annotators.tolist(), figures.high.tolist(), strict=True))
    for row in found[names[1]]:
        assert "; ".join(flags[row["annotator"]]) == row["flags"]
        assert float(row["high_95"]) == pytest.approx(high[row["annotator"]], abs=1e-5)
    page = json.loads(Path("labels/summary.json").read_text())["annotators"]
    assert page["level"] == 0.95
    assert ["; ".join(row["flags"]) for row in page["rows"]] == [
        r["flags"] for r in found[names[0]]
    ]


def test_gold_and_times_make_flags_in_python_as_in_a_report():
    rows = read("A.csv")
    gold = {row["task"]: row["label"] for row in read("gold.csv")}
    from manyhands.io import read_annotations

    table = read_annotations("A.csv")
    seconds = np.where(table.annotators[table.annotator] == "w0", 1.0, 9.0)
    found = {row.annotator: row for row in screen_annotators(table, seconds=seconds, gold=gold)}
    assert "too fast" in found["w0"].flags
    assert (
        found["w0"].evidence[found["w0"].flags.index("too fast")]
        == "takes 1.0 s per annotation (median), the crowd 9.0 s"
    )
    assert found["w6"].flags[0] == "below the median on gold"
    done("aggregate", "A.csv", "--gold", "gold.csv", "--out", "labels")
    written = {row["annotator"]: row for row in read("labels/annotators.csv")}
    right = [r["label"] == gold[r["task"]] for r in rows if r["worker"] == "w6"]
    assert float(written["w6"]["accuracy_on_gold"]) == pytest.approx(np.mean(right), abs=1e-6)
    assert written["w6"]["flags"].startswith("below the median on gold")


def test_to_review_means_the_same_everywhere():
    result = done_json("aggregate", "A.csv", "--out", "labels")
    n = sum(row["action"] == "review" for row in read("labels/labels.csv"))
    assert result["actions"]["review"] == n > 0
    summary = json.loads(Path("labels/summary.json").read_text())
    assert summary["review"]["n_to_review"] == n
    with open_desk(Path("labels"), Path("A.csv"), by="anna") as desk:
        assert desk.counts()["review"] == len(desk.rows(Choice(state="review"))) == n
        write_reviewed(desk, Path("explored.csv"), "table", only=False)
    assert sum(row["action"] == "review" for row in read("explored.csv")) == n
    assert f"{n} of the {N} labels need review" in done("review", "A.csv").stdout
    page = Path("labels/report.html").read_text(encoding="utf-8")
    assert f"{n}\u00a0labels need review" in page


@pytest.mark.parametrize("answers", [4, 8])
def test_the_first_screen_names_a_label_for_review_only_if_the_table_of_labels_does(answers):
    """Its rows, its number and its title are those of labels.csv; so are the labels in doubt."""
    rows = [row for row in read("A.csv") if int(row["worker"][1:]) < answers]
    write_csv(Path("B.csv"), [("task", "worker", "label"), *(list(r.values())[:3] for r in rows)])
    said = done("aggregate", "B.csv", "--out", "labels").stdout
    actions = {row["task"]: row["action"] for row in read("labels/labels.csv")}
    n = sum(each == "review" for each in actions.values())
    assert (n > 0) == (answers == 8)
    assert f"review {n}" in said
    summary = json.loads(Path("labels/summary.json").read_text())
    steps = {each["code"]: each for each in summary["actions"]}
    left = sum(each != "accept" for each in actions.values())
    assert summary["review"]["labels"]["total"] == summary["labels"]["uncertain"]["total"] == left
    listed = {row["id"] for row in summary["review"]["labels"]["rows"]}
    assert "accept" not in {actions[each] for each in listed}
    page = Path("labels/report.html").read_text(encoding="utf-8")
    shown = summary["review"]["labels"]["shown"]
    if shown < left:
        assert f"Of {left} labels not yet accepted, {shown} are shown." in page
    command = "manyhands explore labels --annotations B.csv"
    assert f"<code>{command}</code>" in page
    if n:
        assert steps["check"]["title"] == "Review these labels first"
        assert steps["check"]["text"].startswith(f"{n} labels need review.")
        assert {actions[row["id"]] for row in steps["check"]["rows"]} == {"review"}
        mixed = "The list also holds labels that need more annotations rather than review"
        assert (mixed in page) == (n < left)
    else:
        assert "Review these labels" not in page
        assert "check" not in steps or "review" not in steps["check"]["text"].lower()


def test_where_half_of_the_wrong_labels_are_is_printed_and_on_the_first_screen():
    """The number is that of labels.csv by hand, and the labels before it are the wrong ones."""
    told = r"Half of the wrong (?:labels|ones) are probably among the (\d+) most doubtful\."
    said = re.search(told, " ".join(done("aggregate", "A.csv", "--out", "labels").stdout.split()))
    summary = json.loads(Path("labels/summary.json").read_text())
    step = next(each for each in summary["actions"] if each["code"] == "check")
    assert re.search(told, step["text"])[1] == said[1]
    rows = {row["task"]: row for row in read("labels/labels.csv")}
    done("review", "A.csv", "--model", "labels", "-n", str(N), "--out", "review.csv")
    listed = [rows[row["task"]] for row in read("review.csv")]
    wrong = np.cumsum([1 - float(row["probability"]) for row in listed])
    assert int(said[1]) == 1 + np.flatnonzero(wrong >= wrong[-1] / 2)[0] < N / 2
    truth = {row["task"]: row["label"] for row in read("gold.csv")}
    is_wrong = np.array([row["label"] != truth[row["task"]] for row in listed])
    assert is_wrong[: int(said[1])].sum() >= 0.4 * is_wrong.sum() > 0
    # One label alone is not told of.
    assert half_of_wrong({"review": {"half": 1, "n_expected_wrong": 1.4}}) is None
    assert half_of_wrong({"review": {"half": 3, "n_expected_wrong": 2.1}}) == 3
    assert half_of_wrong({}) is None


def test_the_rule_that_is_printed_is_that_of_every_label():
    """It says what to do with a label that is 94 % certain, and why another one is accepted."""
    said = " ".join(done("aggregate", "A.csv", "--out", "labels").stdout.split())
    certain = int(re.search(r"at least (\d+)\s% certain and at least two annotators", said)[1])
    enough = int(re.search(r"needs review if its item has (\d+) annotations or more", said)[1])
    found = set()
    for row in read("labels/labels.csv"):
        n = int(row["n_annotations"])
        gave = round(float(row["agreement"]) * n)
        is_sure = float(row["probability"]) >= certain / 100 and gave >= 2
        told = "accept" if is_sure else "review" if n >= enough else "collect more"
        assert row["action"] == told
        found.add((told, float(row["probability"]) >= 0.9))
    assert {("accept", True), ("review", True), ("review", False)} <= found
    page = Path("labels/report.html").read_text(encoding="utf-8")
    for place in ("review", "labels"):
        section = re.search(rf'<section[^>]* id="{place}".*?</section>', page, flags=re.DOTALL)
        section = section or re.search(rf'id="{place}".*?</section>', page, flags=re.DOTALL)
        assert REVIEW_RULE in section[0]
    assert REVIEW_RULE in " ".join(done("review", "A.csv").stdout.split())
    with open_desk(Path("labels"), Path("A.csv"), by="anna") as desk:
        assert RULE in ask(desk, "/list")[2]


@pytest.mark.parametrize("gold", [True, False])
def test_confusions_are_counted_from_the_label_to_what_was_given(gold):
    """Every table and page agrees with counts by hand; a swap of the two would show."""
    truth = {row["task"]: row["label"] for row in read("gold.csv")}
    rows, other = read("A.csv"), {"bad": "fair", "fair": "bad", "good": "good"}
    for k, row in enumerate(rows):
        if row["worker"] < "w6" and k % 3 == 0:  # The two grades are mixed up more than by chance.
            row["label"] = other[truth[row["task"]]]
    write_csv(Path("A.csv"), [(*rows[0],), *(tuple(row.values()) for row in rows)])
    done("aggregate", "A.csv", *(["--gold", "gold.csv"] if gold else []), "--out", "labels")
    summary = json.loads(Path("labels/summary.json").read_text())
    labels = {row["task"]: row for row in read("labels/labels.csv")}
    answers = [(row["task"], row["worker"], CLASSES.index(row["label"])) for row in read("A.csv")]
    inferred = {task: CLASSES.index(row["label"]) for task, row in labels.items()}
    expected, counted, of_worker = np.zeros((3, 3)), np.zeros((3, 3)), {}
    who: dict = {}
    for task, worker, given in answers:
        p = [float(labels[task][f"p({name})"]) for name in CLASSES]
        expected[:, given] += np.eye(3)[CLASSES.index(truth[task])] if gold else p
        counted[inferred[task], given] += 1
        true = CLASSES.index(truth[task]) if gold else inferred[task]
        of_worker.setdefault(worker, np.zeros((3, 3)))[true, given] += 1
        p = np.eye(3)[CLASSES.index(truth[task])] if gold else np.array(p)
        who.setdefault(worker, np.zeros((3, 3)))[:, given] += p
    assert np.abs(expected - expected.T).max() > 20  # One annotator always says the same.
    assert np.abs(np.array(summary["confusions"]["matrix"]) - expected).max() <= 1
    for pair in summary["confusions"]["pairs"]:
        cell = CLASSES.index(pair["true"]), CLASSES.index(pair["given"])
        assert cell == (pair["row"], pair["column"])
        assert abs(pair["n"] - expected[cell]) <= 1
        assert pair["share"] == pytest.approx(expected[cell] / expected[cell[0]].sum(), abs=0.03)
    per_worker = np.array([*who.values()])  # Half a mistake or more must be expected of a worker.
    did, met = (per_worker >= 0.5).sum(axis=0), (per_worker.sum(axis=2) >= 0.5).sum(axis=0)
    common = summary["common_confusions"]
    np.testing.assert_allclose(common["matrix"], did / met[:, None], atol=1e-4)
    people = {(p["true"], p["given"]): p["annotators"] for p in summary["confusions"]["pairs"]}
    for pair in common["pairs"]:
        cell = CLASSES.index(pair["true"]), CLASSES.index(pair["given"])
        assert (pair["n"], pair["of"]) == (did[cell], met[cell[0]])
        assert people.get((pair["true"], pair["given"]), pair["n"]) == pair["n"]
    for row in summary["annotators"]["rows"]:
        found, own = row["mistake"], of_worker[row["id"]]
        cell = CLASSES.index(found["true"]), CLASSES.index(found["given"])
        wrong = own - np.diag(np.diag(own))
        assert found["n"] == own[cell] >= own[cell[::-1]]
        assert found["of"] == own[cell[0]].sum()
        assert gold == ("back" not in found)
        if gold:
            assert found["n"] == wrong.max()
        else:
            assert found["back"] == own[cell[::-1]]
            assert found["n"] + found["back"] == (wrong + wrong.T).max()
    step = next(each for each in summary["actions"] if each["code"] == "explain")
    for row in step["rows"]:
        cell = CLASSES.index(row["true"]), CLASSES.index(row["given"])
        assert abs(row["n"] - expected[cell]) <= 1
        assert gold == ("back" not in row)
        assert gold or abs(row["back"] - expected[cell[::-1]]) <= 1
    with open_desk(Path("labels"), Path("A.csv"), by="anna") as desk:
        assert (desk.answers.figures.pairs == counted).all()
        page = ask(desk, "/people")[2]
    for a, b in np.argwhere(counted > 0):
        said = f"{int(counted[a, b])} annotations {CLASSES[b]} of items labelled {CLASSES[a]}"
        assert f'aria-label="{said}"' in page
    given = {(task, worker): CLASSES[code] for task, worker, code in answers}
    sheet = done_json("annotators", "A.csv", "--teach", "w7")["pairs"]
    assert sheet[0]["given"] == "good"
    for pair in sheet:
        assert {given[task, "w7"] for task in pair["mistaken"]} <= {pair["given"]}
        assert {labels[task]["label"] for task in pair["examples"]} <= {pair["true"]}
        assert {labels[task]["label"] for task in pair["contrast"]} <= {pair["given"]}


def test_no_inferred_label_says_which_of_two_classes_is_mistaken_for_the_other():
    """Most annotators call metal rock here, so the labels are wrong, and so is the direction."""
    rng = np.random.default_rng(0)
    kinds = np.repeat(["metal", "rock", "pop"], 30)
    rows = []
    for item, true in enumerate(kinds):
        for r in range(6):
            given = true if rng.random() < 0.9 else rng.choice(["pop", "rock"])
            if true == "metal" and rng.random() < 0.8:
                given = "rock"
            rows.append((f"t{item}", f"w{r}", given))
    write_csv(Path("songs.csv"), [("task", "worker", "label"), *rows])
    write_csv(
        Path("genres.csv"), [("task", "label"), *((f"t{i}", kind) for i, kind in enumerate(kinds))]
    )
    for gold in ([], ["--gold", "genres.csv"]):
        done("aggregate", "songs.csv", "--method", "majority-vote", *gold, "--out", "labels")
        summary = json.loads(Path("labels/summary.json").read_text())
        top = summary["confusions"]["pairs"][0]
        assert (top["true"], top["given"]) == (("metal", "rock") if gold else ("rock", "metal"))
        page = html.unescape(Path("labels/report.html").read_text(encoding="utf-8"))
        answer = (
            "is labelled “rock”" if gold else "Annotators mix up “rock” and “metal” most often."
        )
        assert answer in page
        assert (REVERSED in page) == (not gold)
        assert ("“rock” labelled <b>“metal”</b>" in page) is False
        own = [row["mistake"] for row in summary["annotators"]["rows"]]
        if gold:
            assert {(each["true"], each["given"]) for each in own} == {("metal", "rock")}
            assert "Most frequent mistake" in page
            continue
        assert {frozenset((each["true"], each["given"])) for each in own} == {
            frozenset(("metal", "rock"))
        }
        for row in summary["annotators"]["rows"]:
            each, cells = row["mistake"], Path("labels/annotators.csv").read_text()
            one = f"{each['true']} -> {each['given']} ({each['n']} of {each['of']})"
            assert one in cells
            told = f"{each['true']} labelled {each['given']} {each['n']} time"
            assert told in re.sub("<[^>]*>", "", page).replace("\u00a0", " ")
        section = page[page.index('id="annotators"') :].partition("</section>")[0]
        assert REVERSED in section
    done("aggregate", "songs.csv", "--out", "labels")
    sheet = done("annotators", "songs.csv", "--teach", "w0").stdout
    assert REVERSED in " ".join(sheet.split())
    pairs = done_json("annotators", "songs.csv", "--teach", "w0")["pairs"]
    found = [frozenset((each["true"], each["given"])) for each in pairs]
    assert len(found) == len({*found})
    # Both are rows of the report's matrix: one denominator for a confusion, wherever it stands.
    summary = json.loads(Path("labels/summary.json").read_text())
    shares = {row["id"]: row["matrix"]["shares"] for row in summary["annotators"]["rows"]}["w0"]
    classes = summary["annotators"]["matrices"]["classes"]
    for each in pairs:
        true, given = classes.index(each["true"]), classes.index(each["given"])
        assert each["rate"] == pytest.approx(shares[true][given], abs=1e-4)
        assert each["reverse_rate"] == pytest.approx(shares[given][true], abs=1e-4)
    assert not re.search(r"\b0\.\d{3}\b", sheet)
    with open_desk(Path("labels"), Path("songs.csv"), by="anna") as desk:
        for path in ("/people", "/sheet/0"):
            assert REVERSED in html.unescape(ask(desk, path)[2]), path
    done("annotators", "songs.csv", "--known", "genres.csv", "--teach", "w0")
    known = done("annotators", "songs.csv", "--known", "genres.csv", "--teach", "w0").stdout
    assert REVERSED not in " ".join(known.split())


def test_one_number_of_labels_is_accepted_everywhere():
    few = [(row["task"], row["label"]) for row in read("gold.csv")[:20]]
    write_csv(Path("few.csv"), [("task", "label"), *few])
    result = done("aggregate", "A.csv", "--known", "few.csv", "--out", "labels")
    said = " ".join(result.stdout.split())
    n = sum(row["action"] == "accept" for row in read("labels/labels.csv"))
    assert 20 < n < N
    assert re.search(rf"recommended: accept {n}\b", said)
    own = "Labels that you gave as known are accepted. Others must be at least 95 % certain and "
    assert f"{own}given by at least two annotators. " in said  # Nobody may share mistakes.
    found = json.loads(Path("labels/summary.json").read_text())["labels"]
    assert (found["actions"]["accept"], found["rule"]) == (n, RULE)
    page = Path("labels/report.html").read_text(encoding="utf-8")
    assert re.search(rf"<b>{n}</b> of {N}\s+labels are\s+accepted, \d+ need", page)
    assert RULE in page
    assert "in labels.csv, 'probability' is the probability that the label is right" in said


@pytest.mark.parametrize("own", [{}, {"threshold": 0.99}])
def test_a_summary_counts_the_actions_that_consensus_recommends(own):
    table = read_annotations("A.csv")
    model = DawidSkene().fit(table)
    counts = consensus(table, model).count_actions()
    assert summarize(table, aggregator=model)["labels"]["actions"] == counts
    options = [] if not own else ["--threshold", own["threshold"]]
    result = done_json("aggregate", "A.csv", *options, "--out", "labels")
    found = json.loads(Path("labels/summary.json").read_text())["labels"]
    assert found["actions"] == result["actions"]


def test_what_is_reviewed_has_the_same_columns_with_and_without_a_page():
    done("aggregate", "A.csv", "--out", "labels")
    done("review", "A.csv", "-n", N, "--out", "review.csv")
    assert read_rows(Path("review.csv"))[0] == [
        *("task", "text", "label", "was", "suggestion", "probability_wrong", "grades_off"),
        *("chosen", "reviewed"),
    ]
    labels = {row["task"]: row for row in read("labels/labels.csv")}
    for row in read("review.csv"):
        own = labels[row["task"]]
        assert (row["label"], row["text"]) == (own["label"], own["text"])
        wrong = 1 - float(own["probability"])
        assert float(row["probability_wrong"]) == pytest.approx(wrong, abs=1e-5)


def test_a_store_tells_of_annotators_what_its_table_tells():
    """The same columns, figures and flags, but for those of the order of the answers."""
    done("aggregate", "A.csv", "--gold", "gold.csv", "--out", "table")
    AnnotationStore.create("store", read_annotations("A.csv"), shard_annotations=100)
    done("aggregate", "store", "--gold", "gold.csv", "--out", "stored")
    found, expected = read("stored/annotators.csv"), read("table/annotators.csv")
    assert list(found[0]) == ANNOTATORS
    flagged = [row["annotator"] for row in expected if row["flags"]]
    assert {"w6", "w7"} <= {*flagged}
    by_id = {row["annotator"]: row for row in found}
    for row in expected:
        own = by_id[row["annotator"]]
        ordered = {"repeating pattern", "drift"}
        assert {*own["flags"].split("; ")} == {*row["flags"].split("; ")} - ordered
        same = ("n_annotations", "n_abstentions", "n_skips", "n_gold", "advice", "mistake")
        assert [own[name] for name in same] == [row[name] for name in same]
        for name in ("accuracy", "low_95", "high_95", "accuracy_on_gold"):
            assert float(own[name]) == pytest.approx(float(row[name]), abs=1e-5)
    assert [row["annotator"] for row in found] == [row["annotator"] for row in expected]


def test_annotators_of_a_store_that_are_too_many_have_their_accuracy(monkeypatch):
    monkeypatch.setattr("manyhands.jobs.stores.LARGEST_SCREENED", 0)
    done("ingest", "A.csv", "--out", "store")
    shown = run("aggregate", "store", "--out", "stored")
    assert "too many to screen" in shown.stderr
    assert {row["flags"] for row in read("stored/annotators.csv")} == {""}


def test_gold_measures_annotators_as_it_does_elsewhere():
    done("aggregate", "A.csv", "--gold", "gold.csv", "--out", "labels")
    done("annotators", "A.csv", "--gold", "gold.csv", "--out", "annotators.csv")
    assert read("annotators.csv") == read("labels/annotators.csv")
