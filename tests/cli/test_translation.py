"""Messages on the command line speak of its options, never of Python's arguments and attributes."""

import re
from pathlib import Path

import numpy as np
import pytest

from manyhands.cli.translation import OF_METHODS, OF_READING, OPTIONS, with_options
from manyhands.io import read_annotations, read_export
from manyhands.report import planning
from tests.cli.conftest import done, done_json, fit_arguments, leaks, run, write_csv
from tests.io.exports.conftest import made, studio, write

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def short(short, monkeypatch):
    monkeypatch.setitem(planning.FORESEEN, "annotators", 0)


def said(*arguments):
    """Everything that a command says, without its JSON or tables of data."""
    result = run(*arguments)
    assert result.exit_code in (0, 3, 5), result.output
    assert "unexpected error" not in result.output
    return f"{result.stderr}\n{result.stdout}"


def families(folder):
    """Four machines that copy one another outvote three people."""
    rng = np.random.default_rng(0)
    truth, copied = rng.integers(0, 2, (2, 300))
    people = [np.where(rng.random(300) < 0.8, truth, 1 - truth) for _ in range(3)]
    machines = [np.where(rng.random(300) < 0.95, copied, 1 - copied) for _ in range(4)]
    A = np.stack([*people, *machines], axis=1)
    rows = [(f"t{i}", f"w{r}", "ab"[A[i, r]]) for i in range(300) for r in range(7)]
    write_csv(folder / "machines.csv", [("task", "worker", "label"), *rows])
    write_csv(
        folder / "some.csv", [("task", "label"), *((f"t{i}", "ab"[truth[i]]) for i in range(60))]
    )


def exported(folder):
    """An export with something left out, and with predictions of models."""
    tasks = [
        studio(made(1, "good"), made(2, "bad"), number=1, text="Works.", item="r1"),
        studio(made(1, "bad"), made(2, was_cancelled=True), number=2, text="No.", item="r2"),
    ]
    tasks[0]["predictions"] = [
        {"model_version": "m1", "result": tasks[0]["annotations"][0]["result"]}
    ]
    write(folder / "project.json", tasks)


COMMANDS = [
    ("aggregate", "machines.csv"),
    ("aggregate", "machines.csv", "--method", "gold-corrected"),
    ("aggregate", "A.csv", "--method", "gold-corrected", "--known", "gold_plain.csv"),
    ("aggregate", "machines.csv", "--groups", "nowhere"),
    ("aggregate", "machines.csv", "--groups", "nowhere.csv"),
    ("aggregate", "machines.csv", "--groups", "some.csv"),
    ("aggregate", "A.csv", "--task", "nowhere"),
    ("aggregate", "A.csv", "--gold", "gold_column.csv"),
    ("aggregate", "A.csv", "--known", "gold_column.csv"),
    ("aggregate", "A_twice.csv"),
    ("aggregate", "A_one_class.csv"),
    ("aggregate", "A.csv", "--classes", "two.txt"),
    ("aggregate", "A.npy", "--groups", "family"),
    ("aggregate", "A.csv", "--set", "tol=-1"),
    ("aggregate", "A.csv", "--set", "dependence=3"),
    ("aggregate", "A.csv", "--compare", "--gold", "gold_plain.csv"),
    ("describe", "project.json"),
    ("describe", "machines.csv"),
    ("describe", "marks.csv"),
    ("describe", "project.json", "--read", "predictions_as_annotators=true"),
    ("agreement", "project.json"),
    ("aggregate", "project.json"),
    ("next", "full.csv"),
    ("next", "full.csv", "--pairs", "A.csv"),
    ("next", "A.csv", "--load", "0.1", "-n", "40"),
    ("next", "machines.csv", "--audit", "gold_column.csv"),
    ("review", "A.csv", "--features", "noise.npy"),
    ("annotators", "machines.csv"),
    ("budget", "A.csv", "--budget", "1"),
    ("budget", "A.csv", "--step", "2", "--runs", "1", "--gold", "gold_plain.csv"),
    fit_arguments("--set", "validation=2"),
    fit_arguments("--set", "lr=-1"),
    fit_arguments(features="X_short.npy"),
    fit_arguments("--duplicates", "last", annotations="A_twice.csv"),
    ("fit", "--features", "noise.npy", "--annotations", "A.csv", "--out", "stack"),
    ("select", "--features", "X.npy", "--annotations", "A.csv", "--methods", "conal", "--out", "s"),
    ("aggregate", "A.csv", "--skip", "0"),
    ("aggregate", "A.csv", "--abstain", "maybe", "--skip", "maybe"),
    ("aggregate", "A.csv", "--set", "tol=many"),
    ("aggregate", "A_one_class.csv", "--ordered"),
    ("aggregate", "numbers.csv"),
    ("aggregate", "numbers.csv", "--threshold", "0.5"),
    ("aggregate", "sets.csv"),
    ("aggregate", "sets.csv", "--multilabel", ";"),
    ("aggregate", "sets.csv", "--multilabel", ";", "--scale", "ordinal"),
    ("aggregate", "sets.csv", "--multilabel", ";", "--groups", "nowhere"),
    ("aggregate", "sets.csv", "--multilabel", "split", "--option", "nothing"),
    ("annotators", "sets.csv", "--multilabel", ";"),
    ("agreement", "numbers.csv"),
    ("next", "numbers.csv"),
    ("review", "numbers.csv"),
    ("rank", "A.csv"),
    ("rank", "matches.csv", "--winner", "nowhere"),
    ("rank", "matches.csv", "--next", "3"),
    ("rank", "matches.csv", "--each", "2"),
    ("judges", "A.csv"),
    ("judges", "A.csv", "--people", "w0,w1"),
    ("judges", "A.csv", "--people", "nobody"),
    ("judges", "A.csv", "--groups", "nowhere"),
    ("describe", "wide.csv"),
    ("describe", "wide.csv", "--format", "wide"),
    fit_arguments("--set", "backbone.nonsense=1"),
    fit_arguments(annotations="A_ids.csv"),
    fit_arguments(features="X_nan.npy"),
    ("ingest", "project.json", "--out", "store"),
    ("convert", "project.json", "out.csv"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda each: " ".join(map(str, each[:7])))
def test_no_message_has_words_of_python(home, arguments):
    families(home)
    exported(home)
    rng = np.random.default_rng(0)
    np.save("noise.npy", rng.normal(size=(48, 3)))
    np.save("A.npy", np.array([[0, 1], [1, 1]]))
    table = read_annotations("A.csv")
    every = [(i, r, 0) for i in table.instances.tolist() for r in table.annotators.tolist()]
    every = [(i, r, k % 2) for k, (i, r, _) in enumerate(every)]
    write_csv(Path("full.csv"), [("task", "worker", "label"), *every])
    marks = [(i, "w", "yn"[i % 2]) for i in range(4)] + [(9, "w", "n/a")]
    write_csv(Path("marks.csv"), [("task", "worker", "label"), *marks])
    scores = [(i, f"w{r}", 3 * i + 7 * r) for i in range(30) for r in range(3)]
    write_csv(Path("numbers.csv"), [("task", "worker", "label"), *scores])
    sets = [
        (i, f"w{r}", ("a;b", "b", "a", "c;a")[(i + r) % 4]) for i in range(30) for r in range(3)
    ]
    write_csv(Path("sets.csv"), [("task", "worker", "label"), *sets])
    matches = [("xy"[k % 2], "yz"[k % 2], ("left", "right", "tie")[k % 3], "w") for k in range(12)]
    write_csv(Path("matches.csv"), [("left", "right", "winner", "worker"), *matches])
    write_csv(Path("wide.csv"), [("id", "a", "b", "c"), *((i, i % 3, i % 2, 1) for i in range(9))])
    text = said(*arguments)
    assert text.strip()
    assert not leaks(text), text


def test_every_option_that_messages_name_exists():
    for command in ("aggregate", "next", "fit"):
        shown = done(command, "--help").stdout
        for name in (name for name in OPTIONS.values() if name in ("--groups", "--known")):
            assert name in shown
    assert set(OF_READING).isdisjoint(OPTIONS)
    assert set(OF_METHODS).isdisjoint(OPTIONS)


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        ("(groups=; groups={} if not)", "(--groups COLUMN or FILE; --groups none if not)"),
        ("pass task=<name of the column>", "pass --task COLUMN"),
        ("task='task' is not a column", "there is no column 'task' (--task)"),
        ("in pairs= or in the table", "in --pairs FILE or in the table"),
        ("pass annotator_from='file'", "pass --annotator-from file"),
        ("predictions_as_annotators=True", "--read predictions_as_annotators=true"),
        ("--set validation=0.1 is", "--set validation=0.1 is"),
        ("give validation=0.1", "give --set validation=0.1"),
        ("read_export(...).left_out lists all", "`manyhands describe ANNOTATIONS` lists all"),
        ("manyhands.io.read_export(...).left_out lists", "`manyhands describe ANNOTATIONS` lists"),
        ("weak (relative_informedness_ is 0.42). Better", "weak. Better"),
        ("store the ids with X (np.savez(file, X=X, task=ids))",
         "store the ids with X (in an .npz file with the arrays X and task)"),
        ("backbone={'name': 'mlp', 'x': 1}: MLP.__init__() got an unexpected keyword argument 'x'",
         "--set backbone={'name': 'mlp', 'x': 1}: MLP has no parameter x"),
        ("fit GoldCorrected with gold labels of 10 or more instances drawn at random (gold=)",
         "use --method gold-corrected with known labels of 10 or more items drawn at random "
         "(--known FILE)"),
        ("fit GoldCorrected with more gold labels: 30 or more instances drawn at random in all (9 "
         "so far).",
         "use --method gold-corrected with more known labels: 30 or more items drawn at random in "
         "all, 9 so far (--known FILE)."),
        ("fit GoldCorrected with the 60 gold labels if they were drawn at random.",
         "use --method gold-corrected with the 60 gold labels as known labels (--known FILE) if "
         "they were drawn at random."),
        ("Take the people out of the table, and give their labels as gold to GoldCorrected, with "
         "no family declared.",
         "Take the people out of the table, and give their labels as a file of known labels: "
         "--known FILE --method gold-corrected --groups none, without --people."),
        ("skip holds 'dog', which is", "--skip holds 'dog', which is"),
        ("The 'tol' parameter of X must be a float. Got -1 instead.",
         "--set tol=-1: it must be a float in X"),
        ("--set aggregator=a: aggregator='a' is unknown", "--set aggregator=a is unknown"),
        ("duplicates='last' or duplicates=\"keep\"", "--duplicates last or --duplicates keep"),
        ("--gold g.csv: label='label' is not a column. Pass label=<name of the column>",
         "--gold g.csv: there is no column 'label'"),
    ],
)  # fmt: skip
def test_arguments_become_options(python, shell):
    if python.startswith("read_export"):
        python = f"manyhands.io.{python}"
    assert with_options(python) == shell
    assert not leaks(shell)


# -- families --------------------------------------------------------------------------------------


def test_families_are_a_column_a_table_or_none(home):
    families(home)
    warned = done("aggregate", "machines.csv")
    assert "agree with one another more than" in warned.stderr
    assert "--groups none" in warned.stderr
    none = done("aggregate", "machines.csv", "--groups", "none")
    assert "agree with one another" not in none.stderr
    pairs = [(f"w{r}", "copies") for r in range(3, 7)]
    write_csv(Path("families.csv"), [("annotator", "group"), *pairs, ("w0", "")])
    rows = [row.split(",") for row in Path("machines.csv").read_text().replace('"', "").split()[1:]]
    named = [(*row, "copies" if row[1] in dict(pairs) else "") for row in rows]
    write_csv(Path("column.csv"), [("task", "worker", "label", "family"), *named])
    by_file = done_json("aggregate", "machines.csv", "--groups", "families.csv")
    by_column = done_json("aggregate", "column.csv", "--groups", "family")
    files = ("machines.csv --groups families.csv", "column.csv --groups family")
    assert files[0] in by_file["headline"]  # Commands name the files; all else is the same.
    by_column["headline"] = by_column["headline"].replace(files[1], files[0])
    assert by_file == by_column
    assert by_file["labels"] != done_json("aggregate", "machines.csv", "--groups", "none")["labels"]
    for command in ("review", "annotators"):
        assert done(command, "machines.csv", "--groups", "families.csv").exit_code == 0
    arguments = fit_arguments("--groups", "g.csv")
    write_csv(Path("g.csv"), [("worker", "family"), ("w0", "x"), ("w1", "x")])
    done(*arguments)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("annotator", "group"), ("nobody", "x")], "nobody"),
        ([("annotator", "group"), ("w0", "x"), ("w0", "y")], "'w0' occurs twice"),
        ([("who", "what"), ("w0", "x")], "has the columns 'annotator' and 'group'"),
    ],
)
def test_a_table_of_families_that_does_not_fit_is_refused(home, rows, says):
    write_csv(Path("g.csv"), rows)
    result = run("aggregate", "A.csv", "--groups", "g.csv")
    assert result.exit_code == 3
    assert says in result.stderr
    assert "--groups" in result.stderr
    assert run("aggregate", "A.csv", "--groups", "g.csv", "--out", "g.csv").exit_code == 3


def test_families_in_python_with_any_file(home):
    exported(home)
    table = read_annotations("project.json", group={"1": "x", "2": "x"})
    assert table.groups.tolist() == ["x", "x"]
    assert read_annotations("A.csv", group={}).groups.tolist() == [""] * 5
    assert read_export("project.json").annotations.groups is None


# -- what is said once, and how --------------------------------------------------------------------


def test_a_warning_of_every_fold_is_given_once(home):
    np.save("noise.npy", np.random.default_rng(0).normal(size=(48, 3)))
    lines = done("review", "A.csv", "--features", "noise.npy").stderr.splitlines()
    told = [re.sub(r"[\d.]+", "", line) for line in lines if line.startswith("warning: ")]
    assert len(told) == len(set(told))


def test_progress_is_no_note(home):
    result = done("budget", "A.csv", "--step", "2", "--runs", "1", "--gold", "gold_plain.csv")
    steps = [line for line in result.stderr.splitlines() if "run 1 of 1" in line]
    assert len(steps) >= 3
    assert not any(line.startswith("note:") for line in steps)
    assert all("% right at" in line or "bought up to" in line for line in steps)


def test_shares_are_in_percent_for_people_and_fractions_in_files(home):
    shown = done("aggregate", "A.csv", "--gold", "gold_plain.csv", "--out", "labels.csv").stdout
    assert re.search(r"^accuracy: [\d.]+ %$", shown, flags=re.MULTILINE)
    assert re.search(r"│ +[\d.>]+ % │", shown)
    assert not re.search(r"\b0?\.\d{3,}", shown)
    assert "%" not in Path("labels.csv").read_text()
    for command in ("review", "annotators"):
        shown = done(command, "A.csv").stdout
        assert "%" in shown
        assert not re.search(r"\b0?\.\d{3,}", shown)
    order = "The list is in the order of what an answer tells about the labels (score)."
    assert order in done("next", "A.csv").stdout
    assert "probability_wrong: how probably" in done("review", "A.csv").stdout


def test_a_name_of_python_is_found_but_not_within_a_path():
    for line in ("see parity_ for it", "posterior_, as it is", "declare them (groups=llm)"):
        assert leaks(line), line
    for folder in ("/tmp/tmpabcde_f_", "/dev/shm/x_/pytest-0", "my_", "a=b"):
        assert not leaks(f"error: cannot read '{folder}/A.csv': it is empty"), folder
