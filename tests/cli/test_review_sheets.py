"""A sheet of labels to review: written, filled in by a person, and read back as known."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from manyhands import make_crowd
from manyhands.exceptions import AnnotationError
from manyhands.explore.desk import Choice
from manyhands.explore.inputs import open_desk
from manyhands.explore.outputs import review_sheet
from manyhands.io import read_gold
from manyhands.io.frames import write_table
from tests.cli.conftest import done, done_json, read_rows, run, write_csv
from tests.io.test_spreadsheets import WRITERS

pytestmark = pytest.mark.filterwarnings("default")  # A warning is a line of the command.

CLASSES = ["bad", "fair", "good"]


@pytest.fixture
def crowd(tmp_path, monkeypatch):
    """Annotations of 60 tasks by five of eight annotators each, in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    truth = np.arange(60) % 3
    table = make_crowd(truth, n_annotators=8, annotations_per_instance=5, random_state=3)
    cells = zip(table.instance, table.annotator, table.label, strict=True)
    rows = [(f"t{i}", f"w{r}", CLASSES[c], f"=text {i}") for i, r, c in cells]
    write_csv(Path("A.csv"), [("task", "worker", "label", "text"), *rows])
    return {f"t{i}": CLASSES[c] for i, c in enumerate(truth)}


def fill_in(path, change):
    """Change the rows of a sheet as a person would in a spreadsheet."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        change(row)
    write_csv(path, [list(rows[0]), *(list(row.values()) for row in rows)])
    return rows


def actions(*known):
    return done_json("aggregate", "A.csv", *known)["actions"]


def test_an_untouched_sheet_makes_no_label_known(crowd):
    done("review", "A.csv", "-n", 60, "--out", "review.csv")
    header, *rows = read_rows(Path("review.csv"))
    assert header == [
        *("task", "text", "label", "was", "suggestion", "probability_wrong", "grades_off"),
        *("chosen", "reviewed"),
    ]
    assert len(rows) == 60
    assert {row[-1] for row in rows} == {""}
    assert all(row[1] == f"'=text {row[0][1:]}" for row in rows)  # No spreadsheet runs it.
    result = done("aggregate", "A.csv", "--known", "review.csv")
    assert "warning: review.csv: none of its 60 labels is taken as known" in result.stderr
    assert actions("--known", "review.csv") == actions()


def test_what_a_person_marked_or_changed_is_known_and_the_rest_is_not(crowd):
    done("review", "A.csv", "-n", 60, "--out", "review.csv")
    seen = iter(range(60))

    def change(row):
        n = next(seen)
        if n < 10:
            row["label"], row["reviewed"] = crowd[row["task"]], "anna"
        elif n == 10:  # Changed, and the mark forgotten.
            row["label"] = next(c for c in CLASSES if c != row["label"])
        elif n == 11:
            row["reviewed"] = "no"

    rows = fill_in(Path("review.csv"), change)
    result = done("aggregate", "A.csv", "--known", "review.csv", "--out", "labels")
    said = "review.csv: 11 labels were reviewed (1 of them because the label was changed)"
    assert said in result.stderr
    assert "49 without an entry in the column 'reviewed' do not" in result.stderr
    found = read_gold("review.csv")
    assert (len(found), found.n_not_reviewed) == (11, 49)
    known = {row["task"]: row["label"] for row in rows[:11]}
    with open("labels/labels.csv", newline="") as file:
        labels = {row["task"]: row for row in csv.DictReader(file)}
    assert {task for task, row in labels.items() if row["reviewed"] == "yes"} == set(known)
    for task, label in known.items():
        row = labels[task]
        assert (row["label"], row["probability"], row["action"]) == (label, "1.000000", "accept")
    again = read_gold("labels/labels.csv")  # The folder's labels say who is known, too.
    assert dict(zip(again.tasks, again.labels, strict=True)) == known
    assert done_json("aggregate", "A.csv", "--gold", "review.csv")["gold"][
        "instances with gold"
    ] == len(known)


def test_labels_of_a_queue_measure_no_level(crowd):
    done("review", "A.csv", "-n", 30, "--random", 20, "--out", "review.csv")
    fill_in(Path("review.csv"), lambda row: row.update(reviewed="x"))
    plain = done_json("aggregate", "A.csv")["level"]
    result = done("aggregate", "A.csv", "--gold", "review.csv", "--out", "folder")
    assert "a review queue chose 30 of the 50 gold labels" in result.stderr
    found = done_json("aggregate", "A.csv", "--gold", "review.csv")
    assert found["gold"]["instances with gold"] == 50
    assert (found["level"]["source"], found["level"]["n"]) == ("gold", 20)
    summary = json.loads(Path("folder/summary.json").read_text())
    assert summary["levels"]["labels"] == found["level"]
    assert summary["gold"]["n_chosen"] == 30
    told = (
        "30 of these gold labels do not count as drawn at random, so the figures describe the items"
    )
    assert told in Path("folder/report.html").read_text(encoding="utf-8")

    fill_in(Path("review.csv"), lambda row: row.update(chosen="queue"))
    assert done_json("aggregate", "A.csv", "--gold", "review.csv")["level"] == plain


def test_labels_that_nobody_reviewed_are_not_known_either(crowd):
    done("aggregate", "A.csv", "--out", "labels.csv")
    assert actions("--known", "labels.csv") == actions()
    with pytest.warns(UserWarning, match=r"labels\.csv: none of its 60 labels"):
        assert len(read_gold("labels.csv")) == 0


@pytest.mark.parametrize("command", ["aggregate", "review", "annotators"])
def test_every_command_reads_a_sheet_alike(crowd, command):
    done("review", "A.csv", "-n", 40, "--out", "review.csv")
    without = done(command, "A.csv", "--json").stdout
    given = done(command, "A.csv", "--json", "--known", "review.csv").stdout
    assert given.replace(" --known review.csv", "") == without  # A command that it tells names it.
    fill_in(Path("review.csv"), lambda row: row.update(reviewed="x"))
    assert done(command, "A.csv", "--json", "--known", "review.csv").stdout != without


def test_the_explorer_writes_the_same_sheet_with_what_was_touched(crowd):
    done("aggregate", "A.csv", "--out", "labels")
    done("review", "A.csv", "-n", 60, "--out", "review.csv")
    with open_desk(Path("labels"), Path("A.csv"), by="anna") as desk:
        for row in desk.rows(Choice())[:3].tolist():
            code = desk.item(row).answer
            desk.decide(row, 0, (code + (row == 0)) % 3, shown=code)
        decided = {r.task: (r.label, r.was) for r in desk.standing.decisions()}
        write_table("explored.csv", review_sheet(desk))
    assert read_rows(Path("explored.csv"))[0] == read_rows(Path("review.csv"))[0]
    with open("explored.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    touched = {row["task"]: (row["label"], row["was"]) for row in rows if row["reviewed"] == "anna"}
    assert touched == decided
    assert {row["reviewed"] for row in rows[3:]} == {""}
    found = read_gold("explored.csv")
    assert dict(zip(found.tasks, found.labels, strict=True)) == {
        task: label for task, (label, _) in decided.items()
    }


def test_a_sheet_of_annotations_is_read_back_where_it_was_filled_in(crowd):
    done("review", "A.csv", "--by", "annotation", "-n", 200, "--out", "review.csv")
    first = read_rows(Path("review.csv"))[1][0]
    assert actions("--known", "review.csv") == actions()  # Tasks stand in it several times.
    seen = iter(range(200))
    fill_in(Path("review.csv"), lambda row: row.update(reviewed="" if next(seen) else "yes"))
    assert read_gold("review.csv").tasks.tolist() == [first]


def test_columns_of_other_files_keep_their_meaning(tmp_path):
    write_csv(tmp_path / "plain.csv", [("task", "label", "was"), ("a", 1, 1), ("b", 0, 1)])
    assert len(read_gold(tmp_path / "plain.csv")) == 2
    write_csv(
        tmp_path / "excel.csv", [("task", "label", "Reviewed"), ("a", 1, "TRUE"), ("b", 0, "FALSE")]
    )
    assert read_gold(tmp_path / "excel.csv").tasks.tolist() == ["a"]
    write_csv(tmp_path / "own.csv", [("task", "reviewed"), ("a", 1), ("b", 0)])
    assert len(read_gold(tmp_path / "own.csv", label="reviewed")) == 2
    with pytest.raises(AnnotationError, match="'task'"):
        read_gold(tmp_path / "own.csv", task="id")


def test_the_command_says_how_to_go_on(crowd):
    said = done("review", "A.csv", "--out", "review.csv").stdout
    assert "write your name into 'reviewed'" in said
    assert "--known review.csv" in said
    assert run("review", "A.csv").stdout.count("--known") == 0


# -- columns and marks that people change ---------------------------------------------------------


@pytest.mark.parametrize("name", ["Reviewed by", None])
@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_a_sheet_without_its_column_of_marks_makes_no_label_known(crowd, name, kind):
    """The other columns prove that a model's labels stand in it."""
    done("review", "A.csv", "-n", 10, "--out", "review.csv")
    rows = read_rows(Path("review.csv"))
    rows = [row[:-1] if name is None else row for row in rows]
    rows[0][-1] = name or rows[0][-1]
    WRITERS[kind](Path(f"r.{kind}"), *rows)
    found = run("aggregate", "A.csv", "--known", f"r.{kind}")
    assert found.exit_code == 3
    assert f"r.{kind}: the column 'reviewed', which says" in found.stderr
    mend = f"name the column {name!r} 'reviewed' again" if name else "add a column 'reviewed' with"
    assert mend in found.stderr


def test_labels_without_their_column_of_marks_are_refused_too(crowd):
    done("aggregate", "A.csv", "--out", "labels.csv")
    header, *rows = read_rows(Path("labels.csv"))
    place = header.index("reviewed")
    write_csv(Path("b.csv"), [r[:place] + r[place + 1 :] for r in [header, *rows]])
    with pytest.raises(AnnotationError, match=r"the column 'reviewed'.* is missing"):
        read_gold("b.csv")


@pytest.mark.parametrize("mark", ["?", "anna?", "…", "vielleicht", "I am not sure about this one"])
def test_a_mark_that_is_unclear_is_named_with_its_row(tmp_path, mark):
    rows = [("task", "label", "reviewed"), ("a", 1, "x"), ("b", 0, mark)]
    write_csv(tmp_path / "r.csv", rows)
    with pytest.raises(AnnotationError, match=r"holds .* in row 3, which does not say whether"):
        read_gold(tmp_path / "r.csv")


def test_marks_of_yes_and_no_in_many_ways(tmp_path):
    yes = ["yes", "Y", "x", "1", "TRUE", "ja", "oui", "sì", "ok", "✓", "2026-11-28", "28.11.26"]
    yes += ["A.B.", "Anna Maria O'Neill", "anna@example.org", "7"]
    no = ["no", "nein", "non", "-", "todo", "Offen", "open", "0", "False", ""]
    rows = [(f"t{i}", i % 2, mark) for i, mark in enumerate([*yes, *no])]
    write_csv(tmp_path / "r.csv", [("task", "label", "reviewed"), *rows])
    assert read_gold(tmp_path / "r.csv").tasks.tolist() == [f"t{i}" for i in range(len(yes))]


# -- random samples --------------------------------------------------------------------------------


def test_a_random_sample_is_one_and_is_read_as_one(crowd):
    """Every label has the same chance, whatever its doubt; the file says how each was chosen."""
    said = done("review", "A.csv", "--random", 25, "--out", "sample.csv").stdout
    assert "drawn at random, in no order" in said
    assert "most doubtful" not in said
    header, *rows = read_rows(Path("sample.csv"))
    place = header.index("chosen")
    assert {row[place] for row in rows} == {"random"}
    assert len({row[0] for row in rows}) == 25
    done("review", "A.csv", "--random", 25, "--seed", 1, "--out", "other.csv")
    assert {row[0] for row in read_rows(Path("other.csv"))[1:]} != {row[0] for row in rows}
    doubts = [float(row[header.index("probability_wrong")]) for row in rows]
    done("review", "A.csv", "-n", 60, "--out", "queue.csv")
    _, *queue = read_rows(Path("queue.csv"))
    whole = [float(row[header.index("probability_wrong")]) for row in queue]
    assert {row[place] for row in queue} == {"queue"}
    assert np.mean(doubts) < np.mean(whole[:25])

    def change(row):
        row["label"], row["reviewed"] = crowd[row["task"]], "anna"

    fill_in(Path("sample.csv"), change)
    found = read_gold("sample.csv")
    assert found.random.tolist() == [True] * 25
    result = done_json("aggregate", "A.csv", "--known", "sample.csv")
    assert (result["level"]["source"], result["level"]["n"]) == ("sample", 25)
    assert "randomly drawn labels that people checked" in result["headline"]


def test_queue_and_sample_in_one_sheet(crowd):
    said = done("review", "A.csv", "-n", 10, "--random", 20, "--out", "both.csv").stdout
    assert "the first 20 are drawn at random, and the most doubtful" in " ".join(said.split())
    header, *rows = read_rows(Path("both.csv"))
    place = header.index("chosen")
    assert [row[place] for row in rows] == ["random"] * 20 + ["queue"] * 10
    done("review", "A.csv", "-n", 10, "--out", "queue.csv")
    assert [row[0] for row in rows[20:]] == [row[0] for row in read_rows(Path("queue.csv"))[1:]]
    rows = fill_in(Path("both.csv"), lambda row: row.update(reviewed="x"))
    found = read_gold("both.csv")
    assert dict(zip(found.tasks, found.random, strict=True)) == {
        row["task"]: row["chosen"] == "random" for row in rows
    }
    seen = iter(range(30))
    fill_in(Path("both.csv"), lambda row: row.update(reviewed="x" if next(seen) < 12 else ""))
    with pytest.warns(UserWarning, match="8 of its 20 labels drawn at random are not reviewed"):
        read_gold("both.csv")


def test_known_labels_are_not_drawn_again(crowd):
    done("review", "A.csv", "-n", 40, "--out", "queue.csv")
    fill_in(Path("queue.csv"), lambda row: row.update(reviewed="x"))
    done("review", "A.csv", "--known", "queue.csv", "--random", 60, "--out", "rest.csv")
    first = {row[0] for row in read_rows(Path("queue.csv"))[1:]}
    rest = {row[0] for row in read_rows(Path("rest.csv"))[1:]}
    assert len(rest) == 20
    assert not first & rest
    assert run("review", "A.csv", "--random", 5, "--by", "annotation").exit_code == 3


def test_a_column_of_ones_own_says_nothing(tmp_path):
    rows = [("task", "label", "chosen"), ("a", "x", "by me"), ("b", "y", "")]
    write_csv(tmp_path / "gold.csv", rows)
    assert read_gold(tmp_path / "gold.csv").random is None
    write_csv(tmp_path / "gold.csv", [*rows[:1], ("a", "x", "random"), ("b", "y", "")])
    assert read_gold(tmp_path / "gold.csv").random.tolist() == [True, False]


def test_the_explorer_says_how_labels_were_chosen(crowd):
    done("aggregate", "A.csv", "--out", "labels")
    with open_desk(Path("labels"), Path("A.csv"), by="anna") as desk:
        drawn, doubtful = Choice(order="random"), Choice()
        assert (drawn.chosen, doubtful.chosen) == ("random", "queue")
        assert Choice(order="random", label=1).chosen == "queue"
        assert Choice(order="random", state="review").chosen == "queue"
        rows = desk.rows(drawn)[:3].tolist()
        for row in rows:
            code = desk.item(row).answer
            desk.decide(row, 0, code, shown=code, chosen=drawn.chosen)
        other = int(next(r for r in desk.rows(doubtful) if r not in rows))
        desk.decide(other, 0, 0, shown=desk.item(other).answer, chosen=doubtful.chosen)
        assert desk.settle(60)
        assert desk.answers.figures.aggregator.gold_sample_ == "random"
        assert sorted(desk.answers.figures.aggregator._sampled_rows()) == sorted(rows)
        write_table("review.csv", review_sheet(desk))
        tasks = desk.table.instances[rows].tolist()
    for file in ("labels/corrections.jsonl", "review.csv"):
        found = read_gold(file)
        assert sorted(found.tasks[found.random]) == sorted(tasks)
        assert len(found) == 4


def test_two_rounds_of_a_review_are_known_together(crowd):
    def all_right(row):
        row["label"], row["reviewed"] = crowd[row["task"]], "anna"

    first = done("review", "A.csv", "-n", 5, "--random", 12, "--out", "one.csv")
    assert "`manyhands aggregate A.csv --known one.csv --out labels`\n" in first.stdout
    one = fill_in(Path("one.csv"), all_right)
    second = done(
        "review", "A.csv", "-n", 5, "--random", 12, "--known", "one.csv", "--out", "two.csv"
    )
    assert "--known one.csv --known two.csv" in " ".join(second.stdout.split())
    two = fill_in(Path("two.csv"), all_right)
    done("aggregate", "A.csv", "--known", "one.csv", "--known", "two.csv", "--out", "labels.csv")
    header, *rows = read_rows(Path("labels.csv"))
    known = {row[0] for row in rows if row[header.index("reviewed")] == "yes"}
    assert known == {row["task"] for row in [*one, *two]}
    assert len(known) == len(one) + len(two)
    label = header.index("label")
    assert all(row[label] == crowd[row[0]] for row in rows if row[0] in known)
    twice = ("--known", "one.csv", "--known", "two.csv")
    level = done_json("aggregate", "A.csv", *twice)["level"]
    assert (level["source"], level["n"]) == ("sample", 24)
    for command in ("review", "next", "annotators"):
        done(command, "A.csv", *twice)


def test_two_files_that_contradict_each_other_are_refused(crowd):
    head = ("task", "label")
    write_csv(Path("one.csv"), [head, ("t1", "bad"), ("t2", "good")])
    write_csv(Path("two.csv"), [head, ("t3", "bad"), ("t2", "fair")])
    for command in ("aggregate", "review", "next", "annotators"):
        refused = run(command, "A.csv", "--known", "one.csv", "--known", "two.csv")
        assert refused.exit_code == 3
        said = " ".join(refused.stderr.split())
        assert "one.csv, row 3: task 't2' has the known label 'good', but two.csv, row 3:" in said


def refused_as_filled(name, rows, use, *command):
    before = Path(name).read_bytes()
    found = run(*command)
    assert found.exit_code == 4
    said = " ".join(found.stderr.split())
    assert f"this command would replace '{name}', in which {rows} filled in by hand" in said
    assert use in said
    assert Path(name).read_bytes() == before


def test_a_sheet_that_a_person_filled_in_is_not_replaced(crowd):
    again = ("review", "A.csv", "-n", 9, "--out", "review.csv")
    done(*again)
    assert "it replaces the file of that name" in done(*again).stderr  # Nobody wrote anything.
    seen = iter(range(9))

    def change(row):
        n = next(seen)
        row["reviewed"] = {0: "anna", 1: "no", 2: "yes"}.get(n, "")
        if n == 5:
            row["label"] = next(c for c in CLASSES if c != row["label"])

    rows = fill_in(Path("review.csv"), change)
    use = "To use what was written, give review.csv as --known"
    four = "4 rows are"
    refused_as_filled("review.csv", four, use, *again)
    for command in ("next", "annotators", "budget", "aggregate"):
        refused_as_filled("review.csv", four, use, command, "A.csv", "--out", "review.csv")
    assert "(rows 2, 3 and 2 more)" in run(*again).stderr.replace("\n", " ")
    done("review", "A.csv", "--known", "review.csv", "--out", "second.csv")
    write_csv(Path("review.csv"), [list(rows[0]), *(list(row.values()) for row in rows[6:])])
    done(*again)  # The rows that are left are as they were written.
    first = rows[6]["task"]
    fill_in(Path("review.csv"), lambda row: row.update(note="?" if row["task"] == first else ""))
    refused_as_filled("review.csv", "1 row is", use, *again)


def test_a_sheet_of_annotations_a_batch_and_gold_labels_are_not_replaced_either(crowd):
    by = ("review", "A.csv", "--by", "annotation", "-n", 3, "--out", "votes.csv")
    done(*by)
    fill_in(Path("votes.csv"), lambda row: row.update(reviewed="anna"))
    answers = "To use what was written, add it to your annotations"
    refused_as_filled("votes.csv", "3 rows are", answers, *by)
    batch = ("next", "A.csv", "-n", 4, "--out", "batch.csv")
    done(*batch)
    assert "it replaces the file of that name" in done(*batch).stderr
    header, *rows = read_rows(Path("batch.csv"))
    write_csv(Path("batch.csv"), [[*header, "label"], *([*row, "good"] for row in rows[:2])])
    refused_as_filled("batch.csv", "2 rows are", answers, *batch)
    write_csv(Path("gold.csv"), [("task", "label"), *list(crowd.items())[:5]])
    use = "give gold.csv as --known"
    refused_as_filled("gold.csv", "5 rows are", use, "review", "A.csv", "--out", "gold.csv")
    record = {"task": "t0", "label": "bad", "was": "good", "certainty": 0.5, "by": "anna"}
    line = json.dumps(record | {"at": "2026-01-01T00:00:00Z", "action": "correct"})
    Path("corrections.jsonl").write_text(line + "\n")
    use = "give corrections.jsonl as --known"
    command = ("review", "A.csv", "--out", "corrections.jsonl")
    refused_as_filled("corrections.jsonl", "1 row is", use, *command)


def test_a_folder_whose_labels_a_person_marked_is_not_replaced(crowd, short):
    write_csv(Path("gold.csv"), [("task", "label"), *list(crowd.items())[:5]])
    command = ("aggregate", "A.csv", "--known", "gold.csv", "--out", "labels")
    done(*command)
    done("aggregate", "A.csv", "--out", "labels")  # The known labels' "yes" is manyhands' own.
    done(*command)
    write_csv(Path("X.csv"), [("task", "x"), *((f"t{i}", i % 3) for i in range(60))])
    fit = ("fit", "--features", "X.csv", "--annotations", "A.csv", "--known", "gold.csv")
    done(*fit, "--out", "model")
    done(*fit, "--out", "model")
    report = ("report", "labels", "--tables", "tables")
    done(*report)
    done(*report)
    folders = (("labels", command), ("model", (*fit, "--out", "model")), ("tables", report))
    for name, again in folders:
        path = Path(name, "labels.csv")
        rows = fill_in(path, lambda row: row.update(reviewed=row["reviewed"] or "yes"))
        told = f"{sum(row['probability'] != '1.000000' for row in rows)} rows are"
        refused_as_filled(str(path), told, f"give {path} as --known", *again)


def test_pairs_to_compare_that_a_person_answered_are_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [(a, b, "left" if a < b else "right", "w") for a in "abcd" for b in "abcd" if a != b]
    write_csv(Path("C.csv"), [("left", "right", "winner", "worker"), *pairs])
    again = ("rank", "C.csv", "--next", 3, "--out", "ranking", "--no-report")
    done(*again)
    done(*again)
    header, *rows = read_rows(Path("ranking/next.csv"))
    write_csv(Path("ranking/next.csv"), [[*header, "winner"], *([*row, "left"] for row in rows)])
    use = "To use what was written, add it to your annotations"
    refused_as_filled("ranking/next.csv", f"{len(rows)} rows are", use, *again)
