"""Running rows: resumed, shared, killed, failing; and what counts after a change of code."""

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
from dataclasses import replace
from pathlib import Path

import pytest

from manyhands.evidence.experiments.loading import load_row
from manyhands.evidence.experiments.papers import Paper, TablePlan
from manyhands.evidence.pages.document import to_markdown
from manyhands.evidence.pages.page import make_page
from manyhands.evidence.records.adoptions import (
    ADOPTED,
    REFERENCE,
    Adoption,
    add_group,
    latest_records,
    read_adoptions,
    read_groups,
)
from manyhands.evidence.records.records import cell_key, first_difference
from manyhands.evidence.records.store import pack, read_records, write_record
from manyhands.evidence.running import adoption, code
from manyhands.evidence.running.adoption import adopt, groups_of
from manyhands.evidence.running.plan import list_cells, select_rows
from manyhands.evidence.running.reproduce import recheck, reproduce
from manyhands.exceptions import AnnotationError, WriteError
from manyhands.io.files import file_lock

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


def test_a_check_finds_a_figure_that_differs(mine, tmp_path):
    results = tmp_path / "results"
    row = write_row(mine, "good", seeds=[3, 4])
    with pytest.raises(AnnotationError, match="no finished run"):
        recheck([row], results)
    reproduce([row], results, jobs=1)
    record = read_records(results)[1]
    last = record.metrics["last epoch"]
    wrong = {**record.metrics, "last epoch": {**last, "accuracy": last["accuracy"] + 1e-15}}
    write_record(results, replace(record, metrics=wrong))
    # A second record of the cell, of other data: the cell is drawn once all the same.
    other = replace(
        record,
        data_checksum="other",
        key=cell_key(record.specification, record.seed, "other", record.code),
    )
    write_record(results, other)
    kept = read_records(results)
    outcomes = {o.seed: o for o in recheck([row], results, sample=2, jobs=1)}
    assert outcomes[3].status == "same figures"
    assert outcomes[4].status == "other figures"
    assert "last epoch/accuracy" in outcomes[4].reason
    # A check changes no record.
    assert read_records(results) == kept


def test_the_same_run_under_another_name_is_not_run_again(mine, tmp_path):
    results = tmp_path / "results"
    first = write_row(mine, "good", seeds=[3])
    assert [o.status for o in reproduce([first], results, jobs=1)] == ["done"]
    second = write_row(mine, "renamed", seeds=[3], label="another")
    assert [o.status for o in reproduce([second], results, jobs=1)] == ["done before"]
    one, two = read_records(results)
    assert (one.row, two.row) == ("mine/good", "mine/renamed")
    assert replace(two, row=one.row) == one


def test_a_finished_run_counts_again_when_its_data_are_back(mine, tmp_path):
    results = tmp_path / "results"
    row = write_row(mine, "good", seeds=[3])
    reproduce([row], results, jobs=1)
    (record,) = read_records(results)
    key = cell_key(record.specification, 3, "other", record.code)
    later = replace(record, data_checksum="other", key=key, started="2999-01-01T00:00:00+00:00")
    write_record(results, later)
    assert latest_records([row], read_records(results))[row.id][3] == later
    (outcome,) = reproduce([row], results, jobs=1)
    assert outcome.status == "done before"
    (again,) = [r for r in read_records(results) if r.key == record.key]
    assert again.confirmed is not None
    assert replace(again, confirmed=None) == record


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
            "from manyhands.evidence.experiments.loading import load_row\n"
            "from manyhands.evidence.running.reproduce import reproduce\n"
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
    # Both are one run under two names, which is not repeated.
    assert {again["hanging", 0], again["later", 0]} == {"done", "done before"}
    reproduce(rows, tmp_path / "undisturbed", jobs=1)
    assert figures(tmp_path / "killed") == figures(tmp_path / "undisturbed")
    assert page(tmp_path / "killed") == page(tmp_path / "undisturbed")


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_call_leaves_what_is_finished_and_no_process(mine, tmp_path, kill):
    results = tmp_path / "results"
    row = write_row(mine, "good", seeds=[0])
    hanging = write_row(mine, "hanging", then="hang", seeds=[0])
    script = tmp_path / "call.py"
    script.write_text(
        "from pathlib import Path\n"
        "from manyhands.evidence.experiments.loading import load_row\n"
        "from manyhands.evidence.running.reproduce import reproduce\n"
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


# -- after a change of code: what counts, what is stale, what a page says -------------------------


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
        self.backdate()
        self.records = read_records(self.results)
        self.forget_fits()

    def backdate(self):
        """Move the runs into the past: times count in seconds, and the latest run counts."""
        (packed,) = self.results.glob("*.jsonl")
        lines = [json.loads(line) for line in packed.read_text(encoding="utf-8").splitlines()]
        earlier = [json.dumps({**line, "started": "2026-01-01T00:00:00+00:00"}) for line in lines]
        packed.write_text("\n".join(earlier) + "\n", encoding="utf-8")

    def write(self, name, source):
        (self.folder / f"{self.modules[name]}.py").write_text(source, encoding="utf-8")
        code._code_hash.cache_clear()  # As in a new process: one reads the code once.

    def row(self, name, seeds=(0, 1, 2)):
        module = self.modules[name]
        row = {
            "label": name,
            "citation": "of our own",
            "table": "p/t",
            "column": "toy",
            "data": {"factory": f"{module}:data"},
            "estimator": {"class": f"{module}:Guess", "params": {}},
            "seeds": list(seeds),
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(row), encoding="utf-8")
        return load_row(path)

    def forget_fits(self):
        (self.folder / "log.txt").unlink(missing_ok=True)

    def fits(self):
        log = self.folder / "log.txt"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def adopt(self, **options):
        groups, _ = adopt(self.rows, self.results, jobs=1, **options)
        return {name: g for g in groups for name in self.modules if f"mine/{name}" in g.later}

    def statuses(self):
        return {(o.row[5:], o.seed): o.status for o in reproduce(self.rows, self.results, jobs=1)}

    def page(self):
        tables = (TablePlan("t", "Table", ("accuracy",), ("toy",), ("one", "two")),)
        records, adoptions = read_records(self.results), read_adoptions(self.results)
        paper = Paper("p", "A paper", "of our own", tables=tables)
        return to_markdown(make_page(paper, self.rows, records, adoptions))


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
    code._code_hash.cache_clear()
    again = copy.copy(place)
    again.rows = list(place.rows)
    return again


def test_runs_of_the_present_code_need_no_adoption(place):
    before = place.page()
    assert place.adopt() == {}
    assert place.fits() == 0
    assert "later code" not in before
    assert place.page() == before


def test_two_processes_do_not_adopt_at_once(place):
    place.write("one", MOVED)
    with file_lock(place.results / ".locks" / "adopt") as held:
        assert held
        with pytest.raises(WriteError, match="another process adopts"):
            place.adopt()
    assert set(place.adopt()) == {"one"}


def test_equal_figures_are_adopted(place):
    place.write("one", MOVED)
    assert set(place.adopt()) == {"one"}
    assert place.fits() == 2
    assert not (place.results / adoption.SAMPLES).exists()
    line = "| 1 | 3 | adopted, 2 of 3 re-run on "
    assert line in place.page()

    # Nothing is run again, and the records stay as they are.
    place.forget_fits()
    assert set(place.statuses().values()) == {"done before"}
    assert place.adopt() == {}
    assert place.fits() == 0
    assert read_records(place.results) == place.records
    assert {o.status for o in recheck(place.rows, place.results, sample=6, jobs=1)} == {
        "same figures"
    }

    # Further seeds, by the later code, and the earlier runs make one mean.
    place.rows[0] = place.row("one", seeds=range(5))
    assert place.statuses()["one", 4] == "done"
    records, adoptions = read_records(place.results), read_adoptions(place.results)
    latest = latest_records(place.rows, records, adoptions)
    assert list(latest["mine/one"]) == [0, 1, 2, 3, 4]
    assert list(latest_records(place.rows, records)["mine/one"]) == [3, 4]


def test_a_later_change_ends_an_adoption(place):
    place.write("one", MOVED)
    place.adopt()
    place.write("one", MODULE.replace("generator", "again"))
    place.forget_fits()
    assert place.adopt()["one"].holds
    assert place.fits() == 2
    place.write("one", MODULE.replace("generator", "last"))
    assert place.statuses()["one", 0] == "done"
    assert place.statuses()["two", 0] == "done before"


def test_other_figures_are_stale_and_named(place):
    place.write("one", CHANGED)
    (group,) = place.adopt().values()
    assert not group.holds
    assert set(group.differing) == set(group.rerun)
    assert "accuracy" in next(iter(group.differing.values()))
    page = place.page()
    assert "stale, 2 of 2 re-run on " in page
    assert f" not found equal: {group.rerun[0]} (metrics" in page.replace("\\", "")
    # The figures on the page are still those of the records, until they are run anew.
    assert place.statuses()["one", 0] == "done"
    assert "stale" not in place.page()


def test_a_column_that_is_measured_since_is_no_other_figure(place):
    earlier = replace(place.records[0], history={"loss": [2.0, 1.0]})
    now = replace(earlier, history={"loss": [2.0, 1.0], "share": [0.5, 1.0]})
    assert first_difference(earlier, now) is None
    assert "share" in first_difference(now, earlier)
    assert "loss/1" in first_difference(earlier, replace(now, history={"loss": [2.0, 3.0]}))


def test_a_run_that_fails_now_is_stale(place):
    place.write("one", MODULE.replace("return self\n", "raise ValueError('gone')\n"))
    (group,) = place.adopt().values()
    assert group.differing[group.rerun[0]].startswith("failed: ValueError: gone")


def test_runs_of_another_machine_are_compared_by_a_reference(place, tmp_path):
    reference, other, empty = (tmp_path / name for name in ("reference", "other", "empty"))
    empty.mkdir()
    for record in place.records:
        write_record(reference, record)
        key = cell_key(record.specification, record.seed, record.data_checksum, "other")
        write_record(other, replace(record, code="other", key=key, commit="c0ffee"))
        last = record.metrics["last epoch"]
        elsewhere = {**record.metrics, "last epoch": {**last, "accuracy": last["accuracy"] + 1e-15}}
        write_record(place.results, replace(record, metrics=elsewhere, commit="c0ffee"), "p")
    pack(place.results)
    place.write("one", MOVED)
    assert not place.adopt()["one"].holds
    (why, _) = place.adopt(reference=empty)["one"].differing.values()
    assert why == "no run of it by the recorded code to compare with"
    # By the commit, since the way of digesting code may have changed.
    assert place.adopt(reference=other)["one"].holds
    place.write("one", MODULE.replace("generator", "again"))
    group = place.adopt(reference=reference)["one"]
    assert group.holds
    assert group.compared_with == REFERENCE
    words = "; compared with the same runs by earlier code on one machine |"
    assert words in place.page()
    place.write("one", CHANGED)
    assert not place.adopt(reference=reference)["one"].holds


def test_a_reference_by_code_that_has_adopted_the_records_counts(place, tmp_path):
    place.write("one", MOVED)
    later = place.adopt()["one"].later
    reference = tmp_path / "reference"
    for record in place.records:
        code = later.get(record.row, "none")
        key = cell_key(record.specification, record.seed, record.data_checksum, code)
        write_record(reference, replace(record, code=code, key=key, commit="c0ffee"))
    place.write("one", MODULE.replace("generator", "again"))
    assert place.adopt(reference=reference)["one"].holds


@pytest.mark.slow
def test_a_killed_adoption_is_taken_up(place, monkeypatch):
    place.write("one", MOVED)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(adoption, "_judge", killed)
        with pytest.raises(KeyboardInterrupt):
            place.adopt()
    assert place.fits() == 2
    assert place.adopt()["one"].holds
    assert place.fits() == 2


def test_a_group_is_judged_when_its_sample_is_complete(place):
    place.write("one", MOVED)
    assert place.adopt(budget_minutes=1e-6) == {}
    assert "re-run on" not in place.page()
    assert len(place.adopt(per_group=1)["one"].rerun) == 1


def test_the_sample_is_of_short_runs_and_no_results_have_a_part_in_it(place):
    (first, second) = groups_of(place.rows, place.records)
    assert {first.paper, second.paper} == {"p"}
    drawn = [record.seed for record in first.sample(2)]
    other = [replace(record, metrics={}) for record in reversed(first.records)]
    assert [record.seed for record in replace(first, records=other).sample(2)] == drawn
    long = [
        replace(record, seconds=100.0 - record.seed) if record.seed in drawn[:1] else record
        for record in first.records
    ]
    assert drawn[0] not in [record.seed for record in replace(first, records=long).sample(2)]
    slow = [replace(record, seconds=100.0 - record.seed) for record in first.records]
    assert [r.seed for r in replace(first, records=slow).sample(2)] == [2, 1]


def test_groups_of_one_code_are_kept_for_every_paper(tmp_path):
    def group(runs):
        return Adoption("c0de", runs, ("row seed 0",), {}, REFERENCE, "2026-11-23", {"row": "new"})

    add_group(tmp_path, "second", group(1))
    add_group(tmp_path, "first", group(2))
    add_group(tmp_path, "second", group(3))
    assert read_groups(tmp_path) == {"first": [group(2)], "second": [group(3)]}


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-9], lambda text: text.replace('"adopted"', '"stale"')]
)
def test_a_damaged_file_adopts_nothing(place, damage, caplog):
    place.write("one", MOVED)
    place.adopt()
    (groups,) = read_groups(place.results).values()
    assert [group.holds for group in groups] == [True]
    path = place.results / ADOPTED
    path.write_text(damage(path.read_text()))
    assert read_groups(place.results) == {}
    assert "it adopts nothing" in caplog.text
    assert place.statuses()["one", 0] == "done"
