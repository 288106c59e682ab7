"""A crowd in files, and commands run on it."""

import csv
import functools
import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer.testing
from typer.testing import CliRunner

from manyhands.classifiers import CrowdStackingClassifier
from manyhands.classifiers.stacking import members
from manyhands.cli.app import app
from manyhands.estimator_checks import make_crowd_problem
from manyhands.report import planning

QUICK = [
    "--method",
    "conal",
    "--set",
    "max_epochs=2",
    "--set",
    "batch_size=16",
    "--set",
    "device=cpu",
]


@pytest.fixture
def short(monkeypatch):
    """Make no forecast, which other tests read, and fit stacks of two members in two rounds."""
    monkeypatch.setitem(planning.FORESEEN, "annotators", 0)
    monkeypatch.setattr(members, "MANY_FEATURES", 0)
    for name in ("n_rounds", "n_folds"):
        monkeypatch.setitem(CrowdStackingClassifier.__init__.__kwdefaults__, name, 2)
    monkeypatch.setattr("manyhands.fitting.pilots.PLAIN_STEPS", 20)


@pytest.fixture(scope="session", autouse=True)
def one_command_tree():
    """Build the tree of commands once: typer's runner would build it for every call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(typer.testing._get_command))
        yield


@pytest.fixture(autouse=True)
def short_forecast(monkeypatch):
    """Forecast two rounds of one world for every report: more worlds only narrow the figures."""
    monkeypatch.setattr(planning, "WORLDS", 1)
    monkeypatch.setattr(planning, "ROUNDS", 2)


PROGRESS = re.compile(r"━|: \d+/\d+, .* left")


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


def write_crowd(folder):
    """Features, annotations, gold with splits, class names, and what is wrong with such files."""
    X, A, y = make_crowd_problem()
    cells = [(i, f"w{r}", A[i, r]) for i, r in np.argwhere(A >= 0)]
    header = ("task", "worker", "label")
    np.save(folder / "X.npy", X)
    np.savez(folder / "ids.npz", X=X, task=np.array([f"t{i}" for i in range(len(X))]))
    np.save(folder / "X_short.npy", X[:30])
    np.save(folder / "X_3.npy", X[:, :3])
    for name, value in (("nan", np.nan), ("inf", -np.inf)):
        broken = X.copy()
        broken[7, 2] = value
        np.save(folder / f"X_{name}.npy", broken)
    write_csv(folder / "A.csv", [header, *cells])
    write_csv(folder / "A_ids.csv", [header, *((f"t{i}", r, c) for i, r, c in cells)])
    write_csv(folder / "A_names.csv", [header, *((i, r, "xyz"[c]) for i, r, c in cells)])
    write_csv(folder / "A_twice.csv", [header, *cells, cells[0]])
    write_csv(folder / "A_one_class.csv", [header, *((i, r, 1) for i, r, _ in cells)])
    write_csv(folder / "header.csv", [header])
    (folder / "empty.csv").write_text("")
    splits = np.where(np.arange(len(y)) < 36, "train", "test")
    gold = list(zip(range(len(y)), y, splits, strict=True))
    write_csv(folder / "gold.csv", [("task", "label", "split"), *gold])
    write_csv(folder / "gold_plain.csv", [("task", "label"), *((i, c) for i, c, _ in gold)])
    write_csv(folder / "gold_ids.csv", [("task", "label"), *((f"x{i}", c) for i, c, _ in gold)])
    write_csv(folder / "gold_labels.csv", [("task", "label"), *((i, c + 7) for i, c, _ in gold)])
    write_csv(folder / "gold_column.csv", [("task", "foo"), *((i, c) for i, c, _ in gold)])
    write_csv(
        folder / "gold_Train.csv",
        [("task", "label", "split"), *((i, c, s.title()) for i, c, s in gold)],
    )
    (folder / "classes.txt").write_text("cat\ndog\neel\n\n")
    (folder / "two.txt").write_text("cat\ndog\n")
    (folder / "gap.txt").write_text("cat\n\neel\n")
    (folder / "same.txt").write_text("cat\ndog\ncat\n")
    (folder / "binary.txt").write_bytes(b"\xff\xfec\x00")
    (folder / "file.txt").write_text("a file")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Stand in a folder with the crowd's files."""
    write_crowd(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model folder; copy it before changing it."""
    folder = tmp_path_factory.mktemp("trained")
    write_crowd(folder)
    files = ["--features", str(folder / "X.npy"), "--annotations", str(folder / "A.csv")]
    gold = ["--gold", str(folder / "gold.csv")]
    result = run("fit", *files, *gold, "--out", str(folder / "model"), *QUICK)
    assert result.exit_code == 0, result.output
    return folder / "model"


@pytest.fixture
def model(trained, home):
    shutil.copytree(trained, home / "model")
    return home / "model"


LEAKS = re.compile(
    r"(?<!--set )(?<!--read )(?<!--groups )(?<!to_list\()(?<![\w.'\";])"  # to_list: Argilla's own
    r"(?!name=value)[a-z_]+=(?![=\s]*$)"  # groups=, pairs=
    r"|\b[a-z]+(?:_[a-z]+)*_(?![\w*])"  # parity_, posterior_
    r"|\bread_export\b|\bleft_out\b|\bwith_groups\b|\bAnnotationTable\b|\bfrom_(?:frame|matrix)\b"
    r"|\b(?:LabelSet|Comparison)Table\b|\b(?:ndarray|dtype|DataFrame|NoneType|Traceback)\b"
    r"|[\u0370-\u03ff\u00b1\u2248]"  # Greek letters, plus or minus, about
)
"""Python's names, and symbols without a word, which not every user of a command knows."""

PATH = re.compile(r"\S*/\S*")
"""A path, which may hold any name: temporary folders may end in an underscore."""


def leaks(line):
    """Find a name of Python in a line; None if it holds none."""
    return LEAKS.search(PATH.sub("", line))


def run(*arguments):
    """Run a command; whatever it says on standard error is in the words of the command line."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exit_code != 1:  # an unexpected error shows its traceback
        leaked = [line for line in result.stderr.splitlines() if leaks(line)]
        assert not leaked, leaked
    return result


def fit_arguments(*more, features="X.npy", annotations="A.csv", out="out"):
    """Write the command of a quick fit; options in ``more`` take the place of its own."""
    own = zip(QUICK[::2], QUICK[1::2], strict=True)
    given = {word.partition("=")[0] for word in more} - {"--set"}
    quick = [word for name, value in own if name not in given for word in (name, value)]
    named = ("--features", features, "--annotations", annotations, "--out", out)
    return ["fit", *named, *quick, *more]


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def done_json(*arguments):
    return json.loads(done(*arguments, "--json").stdout)


def snapshot(folder):
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def refused(code, *arguments, says=()):
    """Run what must fail: the code, one paragraph on standard error, nothing else anywhere."""
    before = snapshot(Path.cwd())
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    if code != 2:
        # An unfinished progress bar may stand before it, or the lines of progress of a log.
        lines = [line for line in result.stderr.splitlines() if not PROGRESS.search(line)]
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("error: ")
    for text in says:
        assert text in result.stderr
    assert snapshot(Path.cwd()) == before
    return result


def weights_digest(folder):
    (path,) = folder.glob("weights-*.safetensors")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))
