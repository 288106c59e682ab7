"""The printed command rebuilds exactly the table it stands under, whatever was given or found."""

import shlex
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from typer.models import OptionInfo

import manyhands.report
from manyhands import AnnotationTable
from manyhands.cli.reading import FamilyReading, Reading, as_arguments
from tests.cli.conftest import done, done_json, refused, run
from tests.io.exports.conftest import SAMPLES, made, studio, write
from tests.io.test_wide import LONG, READ, REFUSED

START = "To read this file the same way in a script: "


@pytest.fixture
def tables(monkeypatch):
    """The tables that `describe` summarizes, in order."""
    seen = []
    summarize = manyhands.report.summarize
    monkeypatch.setattr(
        manyhands.report,
        "summarize",
        lambda table, *a, **k: seen.append(table) or summarize(table, *a, **k),
    )
    return seen


def rebuilt(tables, *arguments):
    """Describe, run the command that is printed, and check that it reads the same; return it."""
    shown = done("describe", *arguments).output.splitlines()
    lines = [line for line in shown if line.startswith(START)]
    if not lines:  # A long table whose columns have their usual names, or were named.
        return list(map(str, arguments))
    (line,) = lines
    program, *command = shlex.split(line.removeprefix(START))
    assert program == "manyhands"
    again = run(*command)
    assert again.exit_code == 0, again.output
    first, second = tables[-2:]
    if isinstance(first, AnnotationTable):
        assert first.equals(second)
        assert (first.class_order, first.scale) == (second.class_order, second.scale)
    assert {line} >= {line for line in again.output.splitlines() if line.startswith(START)}
    return command


def test_what_was_given_and_found_is_in_the_command(home, tables):
    rows = [
        {"prompt": f"p {k}", "judge": f"j{j}", "verdict": (k + j) % 2}
        for k in range(3)
        for j in (1, 2)
    ]
    write(home / "the judges.json", rows)
    named = ("--task", "prompt", "--worker", "judge", "--label", "verdict")
    command = rebuilt(tables, "the judges.json", *named)
    assert command == ["describe", "the judges.json", *named, "--format", "long"]
    write(home / "wide.csv", "n,ann1,ann2,code\n0,0,0,k0\n1,1,1,k1\n2,0,1,k2\n3,1,1,k3\n")
    for given in ((), ("--task", "code"), ("--annotators", "ann*")):
        assert "--annotators" in rebuilt(tables, "wide.csv", "--format", "wide", *given)
    write(home / "-long.csv", "item,user,answer\na,u,x y\na,v,z\n")
    command = rebuilt(tables, "./-long.csv", "--abstain", "z", "--duplicates", "last")
    assert command[1:] == [
        "./-long.csv", "--task", "item", "--worker", "user", "--label", "answer",
        "--duplicates", "last", "--abstain", "z", "--format", "long",
    ]  # fmt: skip
    write(home / "keys.csv", LONG)
    rebuilt(tables, "keys.csv", "--task", "system,doc,seg", "--label", "score")
    write(home / "p.json", [studio(made(1, "good"), made(2, "bad"), item="x")])
    rebuilt(tables, "p.json", "--task", "data.item", "--read", "anonymise=true")
    rebuilt(tables, "A.csv", "--classes", "classes.txt")
    assert "--question" in rebuilt(tables, "p.json")


@pytest.mark.parametrize("layout", READ)
def test_commands_of_wide_layouts(home, tables, layout):
    write(home / "w.csv", READ[layout][0])
    rebuilt(tables, "w.csv", "--format", "wide")


@pytest.mark.parametrize("layout", [name for name in REFUSED if "text" not in name])
def test_the_command_of_an_error_can_be_pasted(home, tables, layout):
    write(home / "my table.csv", REFUSED[layout][0])
    for given in (("--format", "wide"), ()):
        error = refused(3, "describe", "my table.csv", *given).stderr
        assert "annotators=" not in error
        command = shlex.split(error.rpartition("The likeliest command is: ")[2])
        rebuilt(tables, *command[2:])


def test_every_option_of_reading_can_be_written():
    hints = get_type_hints(FamilyReading, include_extras=True)
    for field in fields(FamilyReading):
        (info,) = [part for part in get_args(hints[field.name]) if isinstance(part, OptionInfo)]
        value = not field.default if isinstance(field.default, bool) else "some value"
        option, *values = as_arguments(FamilyReading(**{field.name: value}), {})
        declared = [info.default, *(info.param_decls or ())]
        declared = [name for name in declared if isinstance(name, str) and name[:2] == "--"]
        assert option in (declared or [f"--{field.name.replace('_', '-')}"])
        assert values == ([] if isinstance(value, bool) else ["some value"])
    found = {"annotators": ["a,b", "c"], "format": "wide", "question": None}
    assert as_arguments(Reading(), found) == ["--annotators", "a?b,c", "--format", "wide"]
    assert as_arguments(Reading(abstain=["x", "y"]), {}) == ["--abstain", "x", "--abstain", "y"]


@pytest.mark.data
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "options", "counts"), SAMPLES, ids=[s[0] for s in SAMPLES])
def test_commands_of_samples(data_home, tables, name, options, counts):
    given = [word for key, value in options.items() for word in (f"--{key}", value)]
    rebuilt(tables, data_home.parent / "exports" / name, *given)


@pytest.mark.data
@pytest.mark.filterwarnings("ignore")
def test_commands_of_cases(data_home, tables):
    described = 0
    for path in sorted((data_home.parent / "cases").rglob("*")):
        if path.suffix not in (".csv", ".json"):
            continue
        result = run("describe", path)
        if result.exit_code == 0:
            rebuilt(tables, path)
            described += 1
        elif "The likeliest command is: " in result.stderr:
            command = shlex.split(result.stderr.rpartition("The likeliest command is: ")[2])
            rebuilt(tables, *command[2:])
            described += 1
    assert described > 10
    folder = data_home.parent / "cases" / "wide-metadata-as-annotators"
    for name, n, alpha in (
        ("gold_column", 2, 0.25),
        ("confidence_columns", 2, 0.25),
        ("text_column", 3, 0.481),
        ("majority_agreement_columns", 3, 0.481),
    ):
        shown = done_json("describe", folder / f"{name}.csv", "--format", "wide")
        assert shown["data"]["n_annotators"] == n
        assert shown["data"]["agreement"]["alpha"] == pytest.approx(alpha, abs=5e-4)
        assert Path(shlex.split(shown["export"]["command"])[2]) == folder / f"{name}.csv"
