"""Messages in Python speak of its arguments; options are named as those of the command line."""

import ast
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import manyhands
from manyhands import (
    AnnotationTable,
    ComparisonTable,
    CrowdStackingClassifier,
    DASCClassifier,
    DawidSkene,
    LabelSetTable,
    all_classifiers,
)
from manyhands.cli.translation import with_options
from manyhands.fitting.method_protocol import protocol_class

A = np.array([[0, 1, 1], [1, 1, 0], [0, 0, 0], [1, 0, 1]] * 6)
ROWS = pd.DataFrame({"task": [1, 1, 2], "worker": ["a", "b", "a"], "label": ["x", "y", "x;y"]})
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")

CALLS = {
    "unknown column": lambda: AnnotationTable.from_frame(ROWS, task="nowhere"),
    "repeated pairs": lambda: AnnotationTable.from_frame(pd.concat([ROWS, ROWS])),
    "unknown class": lambda: AnnotationTable.from_frame(ROWS, classes=["x"]),
    "skipped class": lambda: AnnotationTable.from_frame(ROWS, classes=["x", "y"], skip=["x"]),
    "unordered grades": lambda: AnnotationTable.from_frame(ROWS, scale="ordinal"),
    "no numbers": lambda: AnnotationTable.from_frame(ROWS, scale="interval"),
    "no sets": lambda: LabelSetTable.from_frame(ROWS, separator=";", options=["x"]),
    "no comparisons": lambda: ComparisonTable.from_frame(ROWS),
    "one class": lambda: DawidSkene().fit(np.zeros((6, 3), int)),
    "bad parameter": lambda: DawidSkene(tol=-1).fit(A),
    "unknown gold": lambda: DawidSkene().fit(AnnotationTable.from_matrix(A), gold={99: 0}),
    "unknown family": lambda: AnnotationTable.from_matrix(A).with_groups({"nobody": "x"}),
    "rows missing": lambda: CrowdStackingClassifier().fit(np.zeros((2, 3)), A),
    "swapped": lambda: CrowdStackingClassifier().fit(AnnotationTable.from_matrix(A), A),
    "no file": lambda: manyhands.io.read_annotations("nowhere.csv"),
    "no folder": lambda: manyhands.load("nowhere"),
}
"""Calls that are refused."""


def names_no_option(text):
    """Whether a message names options only as those of a command."""
    return "command line" in text or "`manyhands " in text or not OPTION.search(text)


@pytest.mark.parametrize("name", CALLS)
def test_errors_in_python_name_no_option(name):
    with pytest.raises((ValueError, TypeError, OSError)) as refused:
        CALLS[name]()
    text = str(refused.value)
    assert len(text.split()) > 3
    assert names_no_option(text), text


def test_what_a_fit_says_names_an_option_as_that_of_the_command_line(caplog):
    rng = np.random.default_rng(0)
    truth, copied = rng.integers(0, 2, (2, 300))
    people = [np.where(rng.random(300) < 0.8, truth, 1 - truth) for _ in range(3)]
    machines = [np.where(rng.random(300) < 0.95, copied, 1 - copied) for _ in range(4)]
    with pytest.warns(manyhands.exceptions.SharedMistakesWarning) as told, caplog.at_level("INFO"):
        DawidSkene().fit(np.stack([*people, *machines], axis=1))
    for text in [*(str(each.message) for each in told), *caplog.messages]:
        assert names_no_option(text), text


ROOMS = ("fitting", "classifiers", "nn", "sampling")
"""Rooms whose messages are read off their sources, as few of them come up in a short test."""

SPOKEN = ("AnnotationError", "AttributeError", "TypeError", "ValueError", "ModelFolderError")
SPOKEN += ("DivergenceError", "WriteError", "warn_caller", "_LOG.info")
"""Calls that take a message."""

RIDDLES = re.compile(r"\b(heard|parity|lone|telling|tells? more|believed|dearer|spoil|so called)\b")
"""Words of ours for what the field has a term for."""

OBJECTS = {"backbone", "callbacks", "checkpoint", "estimators", "loss", "members", "pretrainer"}
OBJECTS |= {"margin", "sampler", "protocol", "estimator", "aggregator"}
"""Parameters that --set does not take, and one that is an option of other commands."""


def written(node):
    """Return the text of a message in the sources, with X for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    parts = node.values if isinstance(node, ast.JoinedStr) else ()
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)


def messages_of(room):
    """Return the messages of a room's sources by file and line."""
    found = {}
    for path in sorted((Path(manyhands.__file__).parent / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in SPOKEN:
                text = written(node.args[0])
                found |= {f"{path.name}:{node.lineno}": text} if " " in text else {}
    return found


def settable():
    """Return the parameters of all classifiers, and the fields of their protocols."""
    names = set()
    for cls in [*(cls for _, cls in all_classifiers()), DASCClassifier]:
        protocol = protocol_class(cls)
        names |= set(cls._get_param_names()) | set(protocol.defaults() if protocol else ())
    return names - OBJECTS


@pytest.mark.parametrize("room", ROOMS)
def test_messages_in_the_sources_name_no_option_and_are_in_the_words_of_the_field(room):
    found = messages_of(room)
    assert len(found) > 10
    assert {at: text for at, text in found.items() if not names_no_option(text)} == {}
    assert {at: text for at, text in found.items() if RIDDLES.search(text)} == {}


def test_parameters_in_messages_become_options_on_the_command_line():
    parameters = re.compile(rf"(?<![\w.=-])(?<!--set )({'|'.join(sorted(settable()))})=(?!=)")
    assert {"lr", "n_select", "init_scale"} <= settable()
    left = {
        at: text
        for room in ROOMS
        for at, text in messages_of(room).items()
        if parameters.search(with_options(text))
    }
    assert left == {}
