"""Run without any extra: the core aggregates, from a CSV file to a report, too.

What is missing says which extra brings it.
"""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import manyhands
from manyhands import (
    AnnotationTable,
    CrowdStackingClassifier,
    DawidSkene,
    MajorityVote,
    agreement,
    load,
    load_demo,
    make_crowd,
)
from manyhands.linear import TunedLogisticRegression
from manyhands.sampling import ClassBalance, ConfidenceSelector

A = np.array([[0, 0, 1], [1, 1, -1], [0, 0, 0]])
table = AnnotationTable.from_matrix(A)
assert MajorityVote().fit_predict(table).tolist() == [0, 1, 0]
assert DawidSkene().fit_predict(table).tolist() == [0, 1, 0]
assert agreement.percent_agreement(table) < 1
assert make_crowd(np.arange(20) % 2, random_state=0).n_annotations >= 20
for name in ("torch", "typer", "jinja2"):  # scikit-learn imports pandas wherever it is installed.
    assert name not in sys.modules, f"{name} was imported by the core"
assert find_spec("evidence") is None, "the evidence is no part of what is installed"
X = np.arange(40.0)[:, None]
assert TunedLogisticRegression().fit(X, X[:, 0] > 20).score(X, X[:, 0] > 20) > 0.9
assert ClassBalance("resample").name == "resample"
assert ConfidenceSelector() is not None
try:
    manyhands.CoNALClassifier  # noqa: B018
except manyhands.exceptions.MissingExtraError as error:
    assert "pip install 'manyhands[torch]'" in str(error)
else:
    raise AssertionError("torch is installed here: this script belongs in a bare environment")
demo = load_demo()
stack = CrowdStackingClassifier(n_rounds=2, random_state=0).fit(demo.X_train, demo.annotations)
assert stack.score(demo.X_test, demo.y_test) > 0.9
with tempfile.TemporaryDirectory() as folder:
    stack.save(folder)
    loaded = load(folder)
assert (loaded.predict_proba(demo.X_test) == stack.predict_proba(demo.X_test)).all()
assert "torch" not in sys.modules
with tempfile.TemporaryDirectory() as folder:
    answers, labels = Path(folder, "answers.csv"), Path(folder, "labels")
    table.to_frame().to_csv(answers, index=False)
    command = [str(Path(sys.executable).with_name("manyhands")), "aggregate", str(answers), "--out"]
    subprocess.run([*command, str(labels)], check=True, capture_output=True)
    assert (labels / "report.html").stat().st_size > 1000
    refused = subprocess.run(
        [*command, f"{labels}.xlsx"], check=False, capture_output=True, text=True
    )
    assert refused.returncode == 6, "the workbook was written, or refused for another reason"
    assert "pip install 'manyhands[io]'" in refused.stderr
sys.stdout.write("core alone: fine\n")
