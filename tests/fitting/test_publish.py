"""Folders of jobs: the files of one job or of the next, wherever a process is killed."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from manyhands.comparisons import ComparisonTable
from manyhands.exceptions import WriteError
from manyhands.fitting.folders import READY, STAGING, publish, settle
from manyhands.io.corrections import FILE, open_journal
from manyhands.jobs.outputs import job_folder
from manyhands.jobs.ranking import rank

OLD = {"model.json": '{"weights": "weights-1.safetensors"}', "weights-1.safetensors": "1"}
OLD |= {"labels.csv": "old", "next.csv": "old", "summary.json": "old"}
NEW = {"model.json": '{"weights": "weights-2.safetensors"}', "weights-2.safetensors": "2"}
NEW |= {"labels.csv": "new", "summary.json": "new", "report.html": "new"}
OTHERS = {"notes.txt": "mine"}

KILLED = """
import os, sys
from pathlib import Path
from manyhands.jobs.outputs import job_folder
from manyhands.fitting.folders import STAGING, publish
from tests.fitting.test_publish import NEW, fill


def counted(change, left):
    def change_or_die(*args, **options):
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)
        return change(*args, **options)
    return change_or_die


def work(folder, n):
    left = [n]
    for name in ("replace", "unlink", "rmdir", "mkdir"):
        setattr(os, name, counted(getattr(os, name), left))
    with job_folder(folder):
        fill(folder / STAGING, NEW)
        publish(folder, replaced=["next.csv"])
    os._exit(0)


for folder in sorted(Path(sys.argv[1]).iterdir(), key=lambda path: int(path.name)):
    child = os.fork()
    if not child:
        work(folder, int(folder.name))
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        print(folder.name)
        break
"""
"""Kills the job in the folder n before its n-th change of the file system, and names the first
that was not killed."""


def fill(folder, files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def found(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def visible(folder):
    return {name: text for name, text in found(folder).items() if not name.startswith(".")}


@pytest.mark.parametrize("before", [OLD | OTHERS, {}])
def test_a_killed_job_leaves_the_old_files_or_the_new_ones(tmp_path, before):
    after = NEW | (OTHERS if before else {})
    for n in range(60):
        fill(tmp_path / str(n), before)
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    root = Path(__file__).parents[2]
    last = int(subprocess.run(command, cwd=root, check=True, capture_output=True).stdout)
    outcomes = []
    for n in range(last + 1):
        folder = tmp_path / str(n)
        settle(folder)
        outcomes.append(visible(folder))
        with job_folder(folder):  # The next job is not kept from its folder, and leaves nothing.
            pass
        assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    assert all(each in (before, after) for each in outcomes)
    assert (outcomes[0], outcomes[-1]) == (before, after)
    assert outcomes.count(after) > 3, "killed while the files were moved, too"


def test_a_folder_from_somebody_else_makes_no_job_move_other_files(tmp_path):
    fill(tmp_path / "keys", {"id": "secret"})
    for name in (STAGING, READY):
        fill(tmp_path / "job", OLD)
        (tmp_path / "job" / name).symlink_to(tmp_path / "keys")
        settle(tmp_path / "job")
        with job_folder(tmp_path / "job") as folder:
            fill(folder / STAGING, NEW)
            publish(folder, replaced=["next.csv"])
        assert found(tmp_path / "job") == NEW
        assert found(tmp_path / "keys") == {"id": "secret"}


def test_the_list_of_replaced_files_leads_nowhere_else(tmp_path):
    fill(tmp_path, {"mine.txt": "mine"})
    fill(tmp_path / "job", OLD)
    fill(tmp_path / "job" / READY, NEW | {"replaced.json": '["../mine.txt", "next.csv", 7]'})
    settle(tmp_path / "job")
    assert found(tmp_path) == {"mine.txt": "mine"}
    assert "next.csv" not in found(tmp_path / "job")


def test_a_linked_output_is_replaced_and_what_it_names_is_left(tmp_path):
    fill(tmp_path, {"mine.txt": "mine"})
    fill(tmp_path / "job", OLD)
    (tmp_path / "job" / "report.html").symlink_to(tmp_path / "mine.txt")
    with job_folder(tmp_path / "job") as folder:
        fill(folder / STAGING, NEW)
        publish(folder)
    assert found(tmp_path) == {"mine.txt": "mine"}
    assert found(tmp_path / "job")["report.html"] == "new"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_corrections_are_written_into_a_plain_file_alone(tmp_path, kind):
    fill(tmp_path, {"mine.txt": "no end of line"})
    fill(tmp_path / "job", {})
    path = tmp_path / "job" / FILE
    path.symlink_to(tmp_path / "mine.txt") if kind == "link" else os.mkfifo(path)
    with pytest.raises(WriteError, match="is a link or a special file"), open_journal(path.parent):
        pass
    assert found(tmp_path) == {"mine.txt": "no end of line"}


def test_a_ranking_is_not_written_over_another_model(tmp_path):
    fill(tmp_path, OLD | {"model.json": '{"class": "DawidSkene"}'})
    rows = {"left": list("abca") * 20, "right": list("bcab") * 20, "winner": list("abcb") * 20}
    table = ComparisonTable.from_frame(pd.DataFrame(rows), worker=None)
    with pytest.raises(WriteError, match="its model is not a ranking"):
        rank(table, tmp_path)
    assert found(tmp_path) == OLD | {"model.json": '{"class": "DawidSkene"}'}
