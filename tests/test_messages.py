"""Messages in Python speak of its arguments; options are named as those of the command line."""

import re

import numpy as np
import pandas as pd
import pytest

import manyhands
from manyhands import (
    AnnotationTable,
    ComparisonTable,
    CrowdStackingClassifier,
    DawidSkene,
    LabelSetTable,
)

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
    return "command line" in text or "'manyhands " in text or not OPTION.search(text)


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
