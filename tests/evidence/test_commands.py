"""The commands reproduce, rerun and results, as a researcher with a row of their own meets them."""

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from evidence.commands import _Live, app

MINE = """
import numpy as np
from types import SimpleNamespace
from manyhands import AnnotationTable

def data():
    y = np.arange(20) % 2
    table = AnnotationTable.from_matrix(np.stack([y, y], axis=1), classes=[0, 1])
    return SimpleNamespace(X_train=y[:, None] * 1.0, annotations=table, X_test=y[:, None], y_test=y)

class Copy:
    def __init__(self, fail=False):
        self.fail = fail

    def fit(self, X, y):
        if self.fail:
            raise ValueError("no [bold]luck[/]")
        return self

    def predict(self, X):
        return X[:, 0].astype(int)
"""

ROW = """\
label: copy
citation: of our own
table: mine/first
column: toy
data: {factory: "copying:data"}
estimator:
  class: copying:Copy
  params: {fail: false}
seeds: [0]
published: {metric: accuracy, value: 0.9, selection: last epoch}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments" / "mine").mkdir(parents=True)
    (tmp_path / "experiments" / "mine" / "copying.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "experiments" / "mine" / "copy.yaml").write_text(ROW, encoding="utf-8")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def page_of(folder):
    assert run("results", "mine", "--out", "pages", "--format", "md").exit_code == 0
    pages = [folder / "pages" / "mine.md", *sorted((folder / "pages" / "mine").rglob("*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.slow
def test_from_a_row_to_a_page(folder):
    bad = ROW.replace("label: copy", "label: bad").replace("fail: false", "fail: true")
    (folder / "experiments" / "mine" / "bad.yaml").write_text(bad, encoding="utf-8")
    result = run("reproduce", "mine", "--jobs", 1)
    assert result.exit_code == 1, result.output
    assert "1 failed, 1 done" in result.stdout
    assert "ValueError: no [bold]luck[/]" in result.stdout
    assert "[2/2] mine/copy seed 0: done" in result.stderr

    result = run("reproduce", "mine/copy", "--json", "--jobs", 1)
    (outcome,) = json.loads(result.stdout)
    assert (result.exit_code, outcome["status"]) == (0, "done before")

    result = run("rerun", "mine", "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert "[1/1] mine/copy seed 0: same figures" in result.stderr
    assert "- not run: no finished run is recorded (1 runs)" in result.stdout
    assert "1 not run, 1 same figures" in result.stdout
    module = folder / "experiments" / "mine" / "copying.py"
    module.write_text(MINE.replace("X[:, 0]", "1 - X[:, 0]"), encoding="utf-8")
    result = run("rerun", "mine/copy", "--jobs", 1)
    assert result.exit_code == 1, result.output
    assert (
        "other figures: metrics /last epoch/accuracy: 0.0 now, 1.0 recorded (1 runs)"
        in result.stdout
    )
    assert " | 1 | 0 |\n" in page_of(folder)
    result = run("reproduce", "mine/copy", "--anew", "--jobs", 1)
    assert (result.exit_code, "1 done" in result.stdout) == (0, True), result.output
    assert run("rerun", "mine/copy", "--jobs", 1).exit_code == 0
    module.write_text(MINE, encoding="utf-8")
    assert run("reproduce", "mine/copy", "--anew", "--jobs", 1).exit_code == 0

    result = run("reproduce", "--hanging", 10)
    assert (result.exit_code, "no run" in result.stdout) == (0, True), result.output

    result = run("results", "mine", "--out", "pages")
    assert result.exit_code == 0, result.output
    page = page_of(folder)
    # sqrt(.9 * .1 / 20) = .067: 100 % of 20 is within two standard errors of 90 %.
    assert ("| 90.00, last epoch | 6.71 | within (last epoch) |") in page
    assert "| failed | ValueError: no \\[bold\\]luck\\[/\\] | 0 | mine/bad |" in page
    html = (folder / "pages" / "mine.html").read_bytes()
    run("results", "--out", "again", "--format", "html")
    assert (folder / "again" / "mine.html").read_bytes() == html
    assert not (folder / "again" / "mine.md").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["reproduce", "mien"], "WHAT='mien'"),
        (["rerun", "all"], "no finished run"),
        (["rerun", "mien"], "WHAT='mien'"),
        (["reproduce", "all", "--hanging", 10, "--seeds", 2], "leave --seeds out, or --hanging"),
        (["reproduce", "all", "--budget", 0], "budget_minutes=0"),
        (["reproduce", "mine", "mien"], "WHAT='mien'"),
        (["reproduce", "all", "--experiments", "nowhere"], "not a folder"),
        (["results", "mien"], "PAPER='mien'"),
    ],
)
def test_what_cannot_be_done_is_said(folder, arguments, says):
    result = run(*arguments)
    assert result.exit_code == 3, result.output
    assert result.stderr.startswith("error: ")
    assert says in result.stderr


def test_a_wrong_row_is_told_with_its_line(folder):
    row = folder / "experiments" / "mine" / "copy.yaml"
    row.write_text(ROW.replace("fail:", "fial:"), encoding="utf-8")
    for command in ("reproduce", "rerun", "results"):
        result = run(command)
        assert result.exit_code == 3
        assert "copy.yaml:8: " in result.stderr
        assert "did you mean fail" in result.stderr


def test_no_record_yet_makes_a_page_that_says_so(folder):
    result = run("results", "--format", "md")
    assert result.exit_code == 0, result.output
    page = (folder / "results" / "mine" / "records.md").read_text(encoding="utf-8")
    assert "| not run | no record yet | 0 | mine/copy |" in page


def test_help_shows_an_example():
    for command in ("reproduce", "rerun", "results"):
        assert f"Example: python -m evidence {command}" in run(command, "--help").stdout


def test_the_live_display_follows_the_cells():
    cell = SimpleNamespace(row=SimpleNamespace(id="m/[red]a"), seed=0)
    outcome = SimpleNamespace(row="m/[red]a", seed=0, status="done", reason=None, seconds=1.0)
    with _Live() as display:
        display.begin(1)
        display.start(cell)
        assert len(display.bars.tasks) == 2
        display.pause(cell)
        assert len(display.bars.tasks) == 1
        display.start(cell)
        display.end(outcome)
    (task,) = display.bars.tasks
    assert task.finished
    assert task.description == "runs: 1 done"
