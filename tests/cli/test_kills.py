"""Commands that are killed at any moment: their files are those of before, or all the new ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
KILLS = {"fit": 20, "continue": 50, "convert": 50, "ingest": 50, "journal": 50, "records": 50}
"""Number of kills of each command; a fit takes seconds each time."""

KILLED = """
import json, os, random, shutil, signal, sys, time
from pathlib import Path

import numpy as np
import pandas as pd

from manyhands.cli.app import app
from manyhands.explore.app import serve  # Imported before, as what follows forks.
from manyhands.fitting.folders import settle
from manyhands.io.corrections import Correction, open_journal, read_corrections
from manyhands.jobs import aggregate_table, run_job
from manyhands.scale.store import AnnotationStore
from evidence.store import pack, read_records, write_record
from tests.evidence.conftest import make_record, make_row

what, home, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
os.chdir(home)
rng = np.random.default_rng(0)


def write_day(day, n=40):
    tasks = [f"{day}{i}" for i in range(n)]
    rows = [(t, f"w{r}", "xyz"[(i + (rng.random() < 0.2)) % 3]) for i, t in enumerate(tasks)
            for r in range(4)]
    pd.DataFrame(rows, columns=["task", "worker", "label"]).to_csv(f"{day}.csv", index=False)
    X = np.eye(3)[np.arange(n) % 3] + rng.normal(0, 0.3, (n, 3))
    np.savez(f"{day}.npz", X=X, task=np.array(tasks))


def command(*arguments):
    app([str(each) for each in arguments])


def fit(day):
    return lambda place: command("fit", "--features", f"{day}.npz", "--annotations", f"{day}.csv",
                                 "--method", "aggregated", "--set", "backbone=linear",
                                 "--set", "max_epochs=1", "--out", place)


def journal(place):
    with open_journal(place) as opened:
        for k in range(len(opened.records), 300):
            opened.append(Correction(f"t{k}", "x" * 500, "y", 0.5, "ann", "2026", "correct"))
            (home / "acknowledged").write_text(str(k + 1))


def records(place):
    for seed in range(len(read_records(place)), 12):
        write_record(place, make_record(make_row("x", seeds=range(12)), seed, 0.5))
        pack(place)


RUNS = {
    "fit": (fit("old"), fit("new")),
    "continue": (
        lambda place: command("aggregate", "old.csv", "--out", place),
        lambda place: command("aggregate", "new.csv", "--continue", place, "--out", place),
    ),
    "convert": (
        lambda place: command("convert", "old.csv", place / "a.json", "--to", "label-studio"),
        lambda place: command("convert", "new.csv", place / "a.json", "--to", "label-studio"),
    ),
    "ingest": (
        lambda place: None,
        lambda place: command("ingest", "new.csv", "--out", place / "s"),
    ),
    "journal": (lambda place: None, journal),
    "records": (lambda place: None, records),
}


def seen(place):
    "What a user finds: by file, whether it is of the old job, of the new one, or of both."
    settle(place)
    if what == "journal":
        path = next(iter(place.glob("*.jsonl")), None)
        n = 0 if path is None else len(read_corrections(path))
        with open_journal(place) as opened:  # Which cuts off what was never acknowledged.
            n = len(opened.records)
        told = home / "acknowledged"
        known = told.read_text() if told.exists() else ""
        assert n >= int(known or 0), "an acknowledged one is lost"
        return n
    if what == "records":
        found = read_records(place)
        assert [record.seed for record in found] == list(range(len(found)))
        return len(found)
    if what == "ingest":
        manifest = place / "s" / "manifest.json"
        if manifest.exists():
            AnnotationStore.open(place / "s").verify()
        return manifest.exists()
    files = {}
    for path in sorted(place.rglob("*")):
        inner = path.relative_to(place).parts
        if path.is_file() and not inner[0].startswith(".") and not path.name.startswith("."):
            content = path.read_bytes()
            files[path.name] = (b"old" in content, b"new" in content)
            if path.suffix == ".json":
                json.loads(content)
    return files


def forked(run, place, after=None):
    child = os.fork()
    if not child:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            run(place)
        except SystemExit as ended:
            os._exit(ended.code or 0)
        except BaseException:
            os._exit(99)
        os._exit(0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def names(found):  # Weights are named by their content.
    return found if not isinstance(found, dict) else {
        name.split("-")[0]: mark for name, mark in found.items()
        # A fit that was killed leaves the checkpoint from which a fit of the same data goes on.
        if name != "checkpoint.safetensors"}


for day in ("old", "new"):
    write_day(day)
before, after = RUNS[what]
first = home / "first"
first.mkdir()
assert forked(before, first) == 0
old = seen(first)
(home / "acknowledged").unlink(missing_ok=True)
whole = home / "whole"
shutil.copytree(first, whole)
started = time.perf_counter()
assert forked(after, whole) == 0
took = time.perf_counter() - started
new = seen(whole)
assert names(old) != names(new)
moments = random.Random(0)
ended = {"old": 0, "new": 0, "between": 0}
for k in range(kills):
    (home / "acknowledged").unlink(missing_ok=True)
    place = home / f"run{k}"
    shutil.copytree(first, place)
    forked(after, place, moments.uniform(0, 1.1 * took))
    found = seen(place)
    if isinstance(found, int) and not isinstance(found, bool):
        ended["old" if found == old else "new" if found == new else "between"] += 1
    else:
        assert names(found) in (names(old), names(new)), (found, old, new)
        ended["old" if names(found) == names(old) else "new"] += 1
    if k % 10 == 0:  # Again, to its end.
        code = forked(after, place)
        done_before = what == "ingest" and found  # A store is not made twice.
        assert code == 0 or done_before, code
        assert names(seen(place)) == names(new), (seen(place), new)
    shutil.rmtree(place)
print(json.dumps(ended))
"""
"""Runs a command in a forked process, kills it at a random moment, and looks at what is left."""


@pytest.mark.slow
@pytest.mark.parametrize("what", KILLS)
def test_what_is_killed_leaves_the_old_files_or_the_new_ones(what, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", KILLED, what, str(tmp_path), str(KILLS[what])]
    ran = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    ended = json.loads(ran.stdout.splitlines()[-1])
    assert sum(ended.values()) == KILLS[what]
    assert ended["old"] or ended["between"], "killed before it ended"
