"""Running rows: resumed, shared, killed, failing; real processes, tiny estimators of a user's."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from manyhands.evidence.experiments.loading import load_row
from manyhands.evidence.records.adoptions import latest_records
from manyhands.evidence.records.records import cell_key
from manyhands.evidence.records.store import read_records, write_record
from manyhands.evidence.running.plan import list_cells, select_rows
from manyhands.evidence.running.reproduce import recheck, reproduce
from manyhands.exceptions import AnnotationError
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


def test_failures_stay_alone_and_finished_cells_are_not_run_again(mine, tmp_path):
    results = tmp_path / "results"
    rows = [
        write_row(mine, "good", extra=[f"of_{tmp_path.name}:threads"]),
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
    assert records["mine/good", 0].extra == {"threads": 1.0, "known": 1.0}
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
