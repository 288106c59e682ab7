"""Commands on exports: every command that takes annotations takes them."""

import json

import pytest

from manyhands import load
from tests.cli.conftest import done, done_json, fit_arguments, read_rows, refused
from tests.io.test_exports import made, studio, write


@pytest.fixture
def export(home):
    """The crowd of A.csv as an export of Label Studio, with a second question and a skip."""
    tasks = {}
    for task, worker, label in read_rows(home / "A.csv")[1:]:
        answers = tasks.setdefault(int(task), [])
        answers.append(made(worker, label))
        answers.append(made(worker, "long", question="size"))
    tasks[0].append(made("lazy", was_cancelled=True))
    projects = [studio(*answers, number=number) for number, answers in tasks.items()]
    return write(home / "project.json", projects)


def test_describe_names_the_format_and_the_explicit_command(export):
    shown = done("describe", "project.json", "--question", "mood").stdout
    assert "format: Label Studio, JSON" in shown
    command = "manyhands describe project.json --format label-studio --question mood"
    assert f"the same, explicitly: {command}" in shown
    assert "in the table as passes (skip)" in shown
    explicit = done_json(*command.split()[1:])
    assert explicit["export"]["format"] == "label-studio"
    assert (
        explicit["data"]["n_annotations"] == done_json("describe", "A.csv")["data"]["n_annotations"]
    )


def test_questions_are_listed_with_the_option_that_chooses(export):
    says = ["2 questions", "'mood'", "'size'", "--question"]
    refused(3, "describe", "project.json", says=says)
    refused(3, "aggregate", "project.json", says=says)


def test_aggregating_an_export_is_aggregating_its_table(export):
    arguments = ("--method", "majority-vote", "--out")
    done("aggregate", "project.json", "--question", "mood", *arguments, "a.csv")
    done("aggregate", "A.csv", *arguments, "b.csv")
    assert read_rows(export.parent / "a.csv") == read_rows(export.parent / "b.csv")
    done("agreement", "project.json", "--question", "mood", "--resamples", "2")


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_fit_and_select_take_exports(export):
    own = ["--question", "mood", "--format", "label-studio"]
    done(*fit_arguments(*own, annotations="project.json"))
    assert load("out").classes_.tolist() == [0, 1, 2]
    select = ["--methods", "soft-prob", "--cv", "2", "--out", "chosen"]
    done("select", "--features", "X.npy", "--annotations", "project.json", *own, *select)


def test_options_of_reading(export):
    options = ["--question", "mood", "--read"]
    done("aggregate", "project.json", *options, "anonymise=true", "--out", "a.csv")
    refused(3, "describe", "project.json", *options, "colour=red", says=["colour", "anonymise"])
    refused(3, "describe", "project.json", *options, "anonymise", says=["NAME=VALUE"])
    twice = ("multilabel=join", "--read", "multilabel=error")
    refused(3, "describe", "project.json", *options, *twice, says=["twice"])
    split = ("multilabel=split",)
    refused(3, "describe", "project.json", *options, *split, says=["one table per label"])


def test_wide_tables_and_hostile_names(home):
    write(home / "wide.csv", "id,ann,bob\nx,0,1\ny,1,1\n")
    refused(3, "describe", "wide.csv", says=["one column per annotator", "--format"])
    assert done_json("describe", "wide.csv", "--format", "wide")["data"]["n_annotators"] == 2
    label = "<script>\x1b[31m=SUM(A1)"
    write(home / "a.json", json.dumps([studio(made(1, label), made(2, "=x"))]))
    shown = done("describe", "a.json").stdout
    assert "\x1b" not in shown
    done("aggregate", "a.json", "--method", "majority-vote", "--out", "a.csv")
    assert "SUM" in (home / "a.csv").read_text()
