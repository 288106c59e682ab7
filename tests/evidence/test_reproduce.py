"""Running rows: resumed, shared, killed, failing; and what a rerun finds after a change of code."""

import copy
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from evidence.experiments.loading import load_row
from evidence.experiments.papers import Paper, TablePlan
from evidence.pages.document import to_markdown
from evidence.pages.page import make_page
from evidence.records import first_difference
from evidence.reruns import RERUNS, add_rerun, read_reruns
from evidence.running import cells
from evidence.running.plan import Silent, list_cells, select_rows
from evidence.running.reproduce import reproduce
from evidence.running.rerun import rerun
from evidence.store import latest_records, read_records, write_record
from manyhands.exceptions import AnnotationError
from manyhands.files import file_lock

MINE = '''
import os, signal, time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from manyhands import AnnotationTable

HERE = Path(__file__).parent

def data(n=20):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    table = AnnotationTable.from_matrix(np.stack([y, y], axis=1), classes=[0, 1])
    return SimpleNamespace(X_train=y[:, None] * 1.0, annotations=table, X_test=y[:, None], y_test=y)

class Guess:
    """Guesses at random; leaves a line in a log for every fit."""

    def __init__(self, then="predict", random_state=None):
        self.then, self.random_state = then, random_state

    def fit(self, X, y):
        with (HERE / "log.txt").open("a") as log:
            log.write(f"{self.then} {self.random_state} {os.getpid()}\\n")
        if self.then == "raise":
            raise ZeroDivisionError("on purpose")
        if self.then == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.then == "hang" and not (HERE / "go").exists():
            while True:
                time.sleep(0.05)
        if self.then == "slow":
            time.sleep(0.3)
        return self

    def predict(self, X):
        return np.random.default_rng(self.random_state).integers(0, 2, len(X))

def threads(model, data):
    import torch
    return {"threads": torch.get_num_threads(), "known": float(os.environ["OMP_NUM_THREADS"])}
'''


pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture
def mine(tmp_path):
    """A user's folder of rows, with an estimator and data of their own."""
    folder = tmp_path / "mine"
    folder.mkdir()
    # Python imports a name once, so every test has a module of its own.
    (folder / f"of_{tmp_path.name}.py").write_text(MINE, encoding="utf-8")
    return folder


def write_row(folder, name, then="predict", seeds=(0, 1), **fields):
    (module,) = (path.stem for path in folder.glob("of_*.py"))
    row = {
        "label": name,
        "citation": "of our own",
        "data": {"factory": f"{module}:data"},
        "estimator": {"class": f"{module}:Guess", "params": {"then": then}},
        "seeds": list(seeds),
        **fields,
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(row), encoding="utf-8")
    return load_row(path)


def statuses(outcomes):
    return {(o.row.removeprefix("mine/"), o.seed): o.status for o in outcomes}


def fits(folder):
    return [line.rsplit(" ", 1)[0] for line in (folder / "log.txt").read_text().splitlines()]


def by_content(results):
    return {(r.content, r.seed): (r.metrics, r.extra) for r in read_records(results)}


def figures(results):
    return {(r.row, r.seed): (r.metrics, r.extra) for r in read_records(results)}


@pytest.mark.slow
def test_a_worker_has_one_thread_however_many_its_caller_has(mine, tmp_path, monkeypatch):
    started_anew = multiprocessing.context._default_context.get_context
    monkeypatch.setattr(multiprocessing, "get_context", started_anew)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    row = write_row(mine, "good", seeds=[0], extra=[f"of_{tmp_path.name}:threads"])
    reproduce([row], tmp_path / "results", jobs=1)
    (record,) = read_records(tmp_path / "results")
    assert record.extra == {"threads": 1.0, "known": 1.0}
    assert os.environ["OMP_NUM_THREADS"] == "3"


def test_failures_stay_alone_and_finished_cells_are_not_run_again(mine, tmp_path):
    results = tmp_path / "results"
    rows = [
        write_row(mine, "good"),
        write_row(mine, "bad", then="raise", seeds=[0]),
        write_row(mine, "mortal", then="die", seeds=[0]),
    ]
    environment = dict(os.environ)
    outcomes = reproduce(rows, results, jobs=2)
    assert dict(os.environ) == environment
    assert statuses(outcomes) == {
        ("good", 0): "done",
        ("good", 1): "done",
        ("bad", 0): "failed",
        ("mortal", 0): "failed",
    }
    records = {(r.row, r.seed): r for r in read_records(results)}
    assert "ZeroDivisionError: on purpose" in records["mine/bad", 0].trace
    assert "SIGKILL" in records["mine/mortal", 0].reason
    before = figures(results)
    assert before["mine/good", 0] != before["mine/good", 1]

    # Half a record, such as a full disk or a copy broken off leaves, is no record.
    file = results / "own.jsonl"
    lines = file.read_text().splitlines()
    halved = [line[:200] if '"seed": 1' in line else line for line in lines]
    file.write_text("\n".join(halved) + "\n")
    (mine / "log.txt").unlink()
    again = statuses(reproduce([rows[0], rows[1]], results, jobs=1))
    assert again == {("good", 0): "done before", ("good", 1): "done", ("bad", 0): "failed"}
    assert sorted(fits(mine)) == ["predict 1", "raise 0"]
    assert figures(results) == before


def test_the_same_run_under_another_name_is_not_run_again(mine, tmp_path):
    results = tmp_path / "results"
    first = write_row(mine, "good", seeds=[3])
    assert [o.status for o in reproduce([first], results, jobs=1)] == ["done"]
    second = write_row(mine, "renamed", seeds=[3], label="another")
    elsewhere = write_row(mine, "elsewhere", seeds=[3], table="p/t", column="toy")
    outcomes = reproduce([second, elsewhere], results, jobs=1)
    assert [o.status for o in outcomes] == ["done before"] * 2
    one, two = read_records(results)
    assert ((one.paper, one.row), (two.paper, two.row)) == (
        ("own", "mine/good"),
        ("p", "mine/elsewhere"),
    )
    assert replace(two, paper=one.paper, row=one.row) == one
    found = latest_records([second, elsewhere], [one, two])
    assert found == {second.id: {3: one}, elsewhere.id: {3: two}}


def test_runs_on_other_data_are_superseded(mine, tmp_path):
    results = tmp_path / "results"
    row = write_row(mine, "good", seeds=[3])
    reproduce([row], results, jobs=1)
    (record,) = read_records(results)
    later = replace(record, data_checksum="other", started="2999-01-01T00:00:00+00:00")
    write_record(results, later)
    assert latest_records([row], read_records(results))[row.id][3] == later
    (outcome,) = reproduce([row], results, jobs=1)
    assert outcome.status == "done"
    (again,) = read_records(results)
    assert (again.key, again.metrics) == (record.key, record.metrics)


def test_two_calls_on_one_folder_divide_the_cells(mine, tmp_path):
    results = tmp_path / "results"
    row = write_row(mine, "slow", then="slow", seeds=range(4))
    found = []
    calls = [
        threading.Thread(target=lambda: found.append(reproduce([row], results, jobs=1)))
        for _ in range(2)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert sorted(fits(mine)) == [f"slow {seed}" for seed in range(4)]
    # Both end with everything done, whoever did it.
    assert len(found) == 2
    done = [o.seed for outcomes in found for o in outcomes if o.status == "done"]
    kept = [o.seed for outcomes in found for o in outcomes if o.status == "done before"]
    assert sorted(done) == sorted(kept) == list(range(4))


@pytest.mark.slow
def test_two_kills_and_a_last_call_make_the_page_of_one_undisturbed_call(mine, tmp_path):
    rows = [write_row(mine, "good", seeds=range(3))]
    rows += [write_row(mine, name, then="hang", seeds=[0]) for name in ("hanging", "later")]
    script = tmp_path / "call.py"
    log = mine / "log.txt"

    def page(results):
        columns = ("accuracy",), ("toy",), ("good", "hanging", "later")
        paper = Paper("mine", "A paper", "of our own", tables=(TablePlan("t", "Table", *columns),))
        text = to_markdown(make_page(paper, rows, read_records(results)))
        # Seconds and dates are those of the runs.
        return re.sub(r"\d+\.\d+ s|\d{4}-\d\d-\d\d\S*", "", text)

    for files in ([rows[0].file, rows[1].file], [row.file for row in rows[1:]]):
        script.write_text(
            "from pathlib import Path\n"
            "from evidence.experiments.loading import load_row\n"
            "from evidence.running.reproduce import reproduce\n"
            "if __name__ == '__main__':\n"
            f"    rows = [load_row(Path(file)) for file in {files!r}]\n"
            f"    reproduce(rows, {str(tmp_path / 'killed')!r}, jobs=1)\n",
            encoding="utf-8",
        )
        before = log.read_text().count("hang") if log.exists() else 0
        call = subprocess.Popen([sys.executable, script], stderr=subprocess.DEVNULL)
        wait_for(lambda before=before: log.exists() and log.read_text().count("hang") > before)
        call.kill()
        assert call.wait(timeout=300) != 0
    wait_for(lambda: not any(alive(int(line.split()[-1])) for line in log.read_text().splitlines()))
    (mine / "go").touch()

    again = statuses(reproduce(rows, tmp_path / "killed", jobs=1))
    assert again["good", 0] == "done before"
    # Both are one run under two names, which is not repeated. Which of the names it gets depends on
    # when the lock of the first is free, a moment after the killed process that held it is gone.
    assert {again["hanging", 0], again["later", 0]} == {"done", "done before"}
    reproduce(rows, tmp_path / "undisturbed", jobs=1)
    assert by_content(tmp_path / "killed") == by_content(tmp_path / "undisturbed")
    assert page(tmp_path / "killed") == page(tmp_path / "undisturbed")


def test_a_lock_that_is_freed_late_makes_no_second_run(mine, tmp_path):
    """As when a killed process still holds the lock of one of two names of a run."""
    rows = [write_row(mine, name, seeds=[0]) for name in ("first", "second")]
    results = tmp_path / "results"
    lock = results / ".locks" / rows[0].id / "0.lock"

    def progress_of(release):
        listener = Silent()
        listener.pause = lambda cell: release()
        return listener

    with ExitStack() as stack:
        assert stack.enter_context(file_lock(lock))
        found = statuses(reproduce(rows, results, jobs=1, progress=progress_of(stack.close)))
    assert found == {("first", 0): "done before", ("second", 0): "done"}
    assert fits(mine) == ["predict 0"]
    assert len(read_records(results)) == 1


def test_a_clock_that_is_set_back_loses_no_later_record(mine, tmp_path, monkeypatch):
    results = tmp_path / "results"
    row = write_row(mine, "good", seeds=[3])
    reproduce([row], results, jobs=1)
    (first,) = read_records(results)
    for ago, metrics in ((0, {"last epoch": {"absent": "first"}}), (10**18, first.metrics)):
        monkeypatch.setattr("evidence.store.time.time_ns", lambda ago=ago: 2 * 10**18 - ago)
        write_record(results, replace(first, metrics=metrics))
    assert read_records(results)[0].metrics == first.metrics


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_call_leaves_what_is_finished_and_no_process(mine, tmp_path, kill):
    results = tmp_path / "results"
    row = write_row(mine, "good", seeds=[0])
    hanging = write_row(mine, "hanging", then="hang", seeds=[0])
    script = tmp_path / "call.py"
    script.write_text(
        "from pathlib import Path\n"
        "from evidence.experiments.loading import load_row\n"
        "from evidence.running.reproduce import reproduce\n"
        "if __name__ == '__main__':\n"
        f"    rows = [load_row(Path({row.file!r})), load_row(Path({hanging.file!r}))]\n"
        f"    reproduce(rows, {str(results)!r}, jobs=1)\n",
        encoding="utf-8",
    )
    call = subprocess.Popen([sys.executable, script], stderr=subprocess.DEVNULL)
    log = mine / "log.txt"
    wait_for(lambda: log.exists() and "hang" in log.read_text())
    call.send_signal(kill)
    assert call.wait(timeout=300) != 0
    worker = int(log.read_text().split()[-1])
    wait_for(lambda: not alive(worker))
    assert [r.row for r in read_records(results)] == ["mine/good"]

    (mine / "go").touch()
    again = statuses(reproduce([row, hanging], results, jobs=1))
    assert again == {("good", 0): "done before", ("hanging", 0): "done"}


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    # One that was killed, and that nobody has asked about, is a zombie.
    return state != "Z"


def test_no_cell_starts_after_the_budget(mine, tmp_path):
    row = write_row(mine, "good", seeds=[0])
    (outcome,) = reproduce([row], tmp_path / "results", jobs=1, budget_minutes=1e-6)
    assert (outcome.status, outcome.reason) == ("not run", "the budget is spent")
    assert not (mine / "log.txt").exists()
    with pytest.raises(AnnotationError, match="budget_minutes=0"):
        reproduce([row], tmp_path / "results", budget_minutes=0)


def test_what_is_not_at_hand_is_skipped_with_its_reason(mine, tmp_path):
    gpu = write_row(mine, "gpu", seeds=[0], device="gpu")
    data = {"name": "labelme", "data_home": str(tmp_path)}
    absent = write_row(mine, "absent", seeds=[0], data=data)
    outcomes = {o.row: o for o in reproduce([gpu, absent], tmp_path / "results", jobs=1)}
    assert outcomes["mine/absent"].status == "skipped"
    assert "labelme" in outcomes["mine/absent"].reason.lower()
    import torch

    if not torch.cuda.is_available():
        assert outcomes["mine/gpu"].status == "skipped"
        assert "GPU" in outcomes["mine/gpu"].reason
        assert {record.row for record in read_records(tmp_path / "results")} == {"mine/absent"}


def test_a_lock_is_held_once_and_freed(tmp_path):
    path = tmp_path / "a" / "0.lock"
    with file_lock(path) as first, file_lock(path) as second:
        assert (first, second) == (True, False)
    with file_lock(path) as third:
        assert third
    assert not path.exists()


def test_cells_and_names(mine):
    rows = [
        write_row(mine, "a", seeds=[5, 7], table="p/one", column="x"),
        write_row(mine, "b", seeds=[0], table="p/two", column="x"),
        write_row(mine, "c", seeds=[0]),
    ]
    assert [str(cell) for cell in list_cells(rows)] == [
        "mine/a seed 5",
        "mine/b seed 0",
        "mine/c seed 0",
        "mine/a seed 7",
    ]
    assert [cell.seed for cell in list_cells(rows[:1], 4)] == [5, 7, 8, 9]
    for what, expected in {
        "all": "abc",
        "p": "ab",
        "p/two": "b",
        "mine/c": "c",
        rows[2].file: "c",
        "own": "c",
        "mine": "abc",
        "Mine": "abc",
    }.items():
        assert "".join(row.label for row in select_rows(rows, what)) == expected
    with pytest.raises(AnnotationError, match="did you mean p/two"):
        select_rows(rows, "p/tow")


# -- after a change of code: a rerun says what differs, and a run anew replaces the records -------


MODULE = """
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from manyhands import AnnotationTable

def data(n=20):
    y = np.arange(n) % 2
    table = AnnotationTable.from_matrix(np.stack([y, y], axis=1), classes=[0, 1])
    return SimpleNamespace(X_train=y[:, None] * 1.0, annotations=table, X_test=y[:, None], y_test=y)

class Guess:
    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        with (Path(__file__).parent / "log.txt").open("a") as log:
            log.write(f"{type(self).__module__} {self.random_state}\\n")
        return self

    def predict(self, X):
        generator = np.random.default_rng(self.random_state)
        return generator.integers(0, 2, len(X))
"""

MOVED = MODULE.replace("generator", "rng")
"""The same figures by other code."""

CHANGED = MODULE.replace("default_rng(", "default_rng(7 + ")
"""Other figures."""


class Place:
    """Two rows of a paper, each by a module of its own, and their results."""

    def __init__(self, folder):
        self.folder, self.results = folder / "mine", folder / "results"
        self.folder.mkdir()
        self.modules = {name: f"{name}_of_{folder.name}" for name in ("one", "two")}
        for name in self.modules:
            self.write(name, MODULE)
        self.rows = [self.row(name) for name in self.modules]
        reproduce(self.rows, self.results, jobs=1)
        self.records = read_records(self.results)
        (self.folder / "log.txt").unlink()

    def write(self, name, source):
        (self.folder / f"{self.modules[name]}.py").write_text(source, encoding="utf-8")

    def row(self, name):
        module = self.modules[name]
        row = {
            "label": name,
            "citation": "of our own",
            "table": "p/t",
            "column": "toy",
            "data": {"factory": f"{module}:data"},
            "estimator": {"class": f"{module}:Guess", "params": {}},
            "seeds": [3, 4],
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(row), encoding="utf-8")
        return load_row(path)

    def fits(self):
        log = self.folder / "log.txt"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def rerun(self, **options):
        outcomes = rerun(self.rows, self.results, jobs=1, **options)
        return {outcome.row.removeprefix("mine/"): outcome for outcome in outcomes}

    def page(self):
        tables = (TablePlan("t", "Table", ("accuracy",), ("toy",), ("one", "two")),)
        paper = Paper("p", "A paper", "of our own", tables=tables)
        records, reruns = read_records(self.results), read_reruns(self.results)
        return to_markdown(make_page(paper, self.rows, records, reruns))


@pytest.fixture(scope="module")
def first_runs(warm_server, tmp_path_factory):
    """A place, and a copy of its files as they are before any test."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", lambda method: warm_server)
        place = Place(folder)
    return place, shutil.copytree(folder, tmp_path_factory.mktemp("copies") / "place")


@pytest.fixture
def place(first_runs):
    """The place with the files it had in the beginning."""
    place, files = first_runs
    shutil.rmtree(place.folder.parent)
    shutil.copytree(files, place.folder.parent)
    again = copy.copy(place)
    again.rows = list(place.rows)
    return again


def test_a_rerun_says_what_differs_and_leaves_the_records(place):
    place.write("one", CHANGED)
    place.write("two", MOVED)
    found = place.rerun()
    assert {name: outcome.status for name, outcome in found.items()} == {
        "one": "other figures",
        "two": "same figures",
    }
    assert place.fits() == 2
    assert "accuracy" in found["one"].reason
    assert read_records(place.results) == place.records
    written = read_reruns(place.results)
    assert written["mine/one"].difference == found["one"].reason
    assert (written["mine/two"].difference, written["mine/two"].seed) == (None, 3)
    page = place.page()
    assert " | 2 | 1 |\n" in page
    assert "| mine/one | 3 | " in page

    # Runs by the code of before count as done; anew, they replace the records.
    assert {o.status for o in reproduce(place.rows, place.results, jobs=1)} == {"done before"}
    outcomes = reproduce(place.rows[:1], place.results, jobs=1, anew=True)
    assert [o.status for o in outcomes] == ["done", "done"]
    records = read_records(place.results)
    assert len(records) == len(place.records)
    assert [r.metrics for r in records[:2]] != [r.metrics for r in place.records[:2]]
    assert records[2:] == place.records[2:]
    assert place.rerun()["one"].status == "same figures"
    assert " | 2 | 2 |\n" in place.page()


def test_a_rerun_goes_on_where_it_stopped_at_the_same_commit(place, tmp_path, monkeypatch):
    path = tmp_path / "mine" / "ours.yaml"
    path.parent.mkdir()
    estimator = {"class": "AggregatedClassifier", "params": {"max_epochs": 1}}
    described = {"label": "ours", "citation": "ours", "data": {"name": "demo"}, "seeds": [0]}
    path.write_text(json.dumps({**described, "estimator": estimator}), encoding="utf-8")
    place.rows.append(load_row(path))
    reproduce(place.rows, place.results, jobs=1)
    (place.folder / "log.txt").unlink(missing_ok=True)
    monkeypatch.setattr(cells, "commit", lambda: "c0ffee")
    assert {o.status for o in place.rerun(budget_minutes=1e-6).values()} == {"not run"}
    assert not read_reruns(place.results)
    assert place.rerun()["ours"].status == "same figures"
    again = place.rerun()
    assert again["ours"].status == "done before"
    # The commit does not say what stands in modules of others.
    assert (again["one"].status, again["two"].status) == ("same figures", "same figures")
    assert place.fits() == 4
    place.rows = place.rows[2:]
    add_rerun(
        place.results,
        ["mine/ours"],
        replace(read_reruns(place.results)["mine/ours"], difference="other"),
    )
    (outcome,) = rerun(place.rows, place.results, jobs=1)
    assert (outcome.status, outcome.reason) == ("other figures", "other")
    for later in ("c0ffee+", "c0ffee+", "decaf", None, None):  # Changes of a "+" may be any.
        monkeypatch.setattr(cells, "commit", lambda later=later: later)
        assert place.rerun()["ours"].status == "same figures"


def test_a_run_that_fails_now_or_was_never_made(place):
    place.write("one", MODULE.replace("return self\n", "raise ValueError('gone')\n"))
    place.rows.append(replace(place.rows[0], id="mine/three", holdout=0.1))
    found = place.rerun()
    assert found["one"].status == "other figures"
    assert found["one"].reason.startswith("failed: ValueError: gone")
    assert (found["three"].status, found["three"].reason) == (
        "not run",
        "no finished run is recorded",
    )
    with pytest.raises(AnnotationError, match="no finished run"):
        rerun(place.rows[2:], place.results)


def test_data_that_code_makes_otherwise_are_told(place):
    place.write("one", MODULE.replace("n=20", "n=30"))
    # Of annotators, a guess sees nothing.
    place.write("two", MODULE.replace("classes=[0, 1]", "classes=[0, 1, 2]"))
    found = place.rerun()
    assert found["one"].reason.startswith("on other data: metrics /last epoch/")
    assert found["two"].status == "same figures"
    path = place.folder / "one.yaml"
    gone = {"name": "labelme", "data_home": str(place.folder)}
    path.write_text(json.dumps({**json.loads(path.read_text()), "data": gone}))
    row = load_row(path)
    for seed in (3, 4):
        write_record(
            place.results, replace(place.records[0], seed=seed, specification=row.specification())
        )
    (outcome,) = rerun([row], place.results, jobs=1)
    assert outcome.status == "skipped"
    assert "labelme" in outcome.reason.lower()


def test_rows_of_one_content_are_run_once_and_both_are_told(place):
    place.rows.append(replace(place.rows[0], id="mine/three", label="three"))
    assert set(place.rerun()) == {"one", "two"}
    assert place.fits() == 2
    written = read_reruns(place.results)
    assert written["mine/three"] == written["mine/one"]


def test_a_damaged_file_of_reruns_is_refused(place):
    place.rerun()
    path = place.results / RERUNS
    path.write_text(path.read_text()[:-9])
    with pytest.raises(AnnotationError, match="cannot be read"):
        read_reruns(place.results)


def test_a_column_that_is_measured_since_is_no_other_figure(place):
    earlier = replace(place.records[0], history={"loss": [2.0, 1.0]})
    now = replace(earlier, history={"loss": [2.0, 1.0], "share": [0.5, 1.0]})
    assert first_difference(earlier, now) is None
    assert "share" in first_difference(now, earlier)
    assert "loss/1" in first_difference(earlier, replace(now, history={"loss": [2.0, 3.0]}))
