"""Run without any extra: the core aggregates, and what is missing says which extra brings it."""

import sys

import numpy as np

import manyhands
from manyhands import AnnotationTable, DawidSkene, MajorityVote, agreement, make_crowd

A = np.array([[0, 0, 1], [1, 1, -1], [0, 0, 0]])
table = AnnotationTable.from_matrix(A)
assert MajorityVote().fit_predict(table).tolist() == [0, 1, 0]
assert DawidSkene().fit_predict(table).tolist() == [0, 1, 0]
assert agreement.percent_agreement(table) < 1
assert make_crowd(np.arange(20) % 2, random_state=0).n_annotations >= 20
for name in ("torch", "pandas", "typer", "jinja2"):
    assert name not in sys.modules, f"{name} was imported by the core"
try:
    manyhands.CoNALClassifier  # noqa: B018
except manyhands.exceptions.MissingExtraError as error:
    assert "pip install 'manyhands[torch]'" in str(error)
else:
    raise AssertionError("torch is installed here: this script belongs into a bare environment")
try:
    table.to_frame()
except manyhands.exceptions.MissingExtraError as error:
    assert "manyhands[io]" in str(error)
sys.stdout.write("core alone: fine\n")
