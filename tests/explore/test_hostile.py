"""Hostile names everywhere, and many writers at once: nothing runs, nothing is lost."""

import csv
import io
import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from manyhands.explore.desk import Choice, Conflict
from manyhands.explore.inputs import open_desk
from manyhands.io.corrections import Standing, read_corrections
from manyhands.io.exports.formats import WRITERS
from tests.cli.conftest import done, write_csv
from tests.explore.test_explore import ask

NAMES = ["</script><b>x", "__proto__", "=cmd()", "constructor", '"><img src=x>', "+1+1", "@SUM(A1)"]
READING = {"classes": (), "sets": ("--multilabel", ";", "--none", "empty")}


@pytest.fixture(params=READING)
def hostile(request, tmp_path, monkeypatch):
    """A desk of answers whose items, annotators, options and notes are all hostile."""
    monkeypatch.chdir(tmp_path)
    kind = request.param
    rows = [("task", "worker", "label", "text")]
    for i in range(42):
        for r in range(3):
            task = f"{NAMES[i % 7]}{i // 7 or ''}"
            given = NAMES[(i + (r == i % 5)) % 7]
            more = f";{NAMES[(i + 2) % 7]}" if kind == "sets" else ""
            rows.append((task, NAMES[r], given + more, NAMES[i % 7]))
    write_csv(tmp_path / "A.csv", rows)
    done("aggregate", "A.csv", *READING[kind], "--out", "labels")
    Path("labels/corrections.jsonl").write_text('{"task": "</script><b>x", "lab')
    given = {"sets": True, "multilabel": ";", "none": "empty"} if kind == "sets" else {}
    found = open_desk(tmp_path / "labels", tmp_path / "A.csv", by="=cmd()</script>", **given)
    with pytest.warns(UserWarning, match="was cut off"):
        desk = found.__enter__()
    yield desk
    found.__exit__(None, None, None)


def other_than(desk, row):
    """An answer that the item does not have."""
    codes = range(len(desk.answers.options))
    free = [c for c in codes if c not in desk.answers.codes_of(desk.item(row).answer)]
    return tuple(free[:2]) if desk.answers.is_set else free[0]


def test_hostile_names_pass_page_journal_and_downloads_unharmed(hostile):
    desk = hostile
    expected = {}
    for row in desk.rows(Choice())[:8].tolist():
        record = desk.decide(row, 0, other_than(desk, row))
        expected[record.task] = record.label
    assert desk.settle(60)
    own = {"script": 2}
    pages = ["/", "/list?state=all", "/?state=done", "/?state=all&annotator=0&given=2"]
    pages += [] if desk.answers.is_set else ["/people", "/next", "/sheet/0"]
    for path in pages:
        status, _, body = ask(desk, path)
        assert status == 200
        assert len(re.findall("<script", body)) == own["script"]
        assert body.count("</script>") == own["script"]
        assert "<b>x" not in body
        assert "<img src=x" not in body
    assert "was cut off" in ask(desk, "/")[2]
    assert desk.standing.of("__proto__" if "__proto__" in expected else next(iter(expected)))
    found = read_corrections(desk.journal.path)
    assert {record.task: record.label for record in found} == expected
    assert {record.by for record in found} == {"=cmd()</script>"}
    for name in ("corrections.csv", "labels.csv", "labels.csv?only=reviewed"):
        text = ask(desk, f"/export/{name}")[2].removeprefix("\ufeff")
        for line in csv.reader(io.StringIO(text)):
            assert not any(cell.startswith(("=", "+", "@")) for cell in line), line
    for tool in WRITERS.values():
        status, _, body = ask(desk, f"/export/{tool.file}?only=reviewed")
        assert status == 200
        if tool.file.endswith(".json"):
            assert len(json.loads(body)) == len(expected)
        elif tool.file.endswith(".jsonl"):
            assert len([json.loads(line) for line in body.splitlines()]) == len(expected)


def test_what_was_decided_under_hostile_names_is_known_to_the_next_run(hostile, request):
    desk = hostile
    row = desk.row_of["=cmd()"]
    label = desk.decide(row, 0, other_than(desk, row)).label
    reading = READING["sets" if desk.answers.is_set else "classes"]
    out = done("aggregate", "A.csv", *reading, "--known", desk.journal.path, "--json").stdout
    (found,) = [each for each in json.loads(out)["labels"] if each["task"] == "=cmd()"]
    given = found["labels"].split(";") if desk.answers.is_set else found["label"]
    assert given == label


def test_of_many_writers_at_once_one_decides_each_item(hostile):
    desk, rows = hostile, hostile.rows(Choice())[:20].tolist()
    barrier = threading.Barrier(8)

    def decide_all(who):
        barrier.wait()
        won = 0
        for row in rows[who:] + rows[:who]:
            try:
                desk.decide(row, 0, other_than(desk, row))
                won += 1
            except Conflict:
                pass
        return won

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(decide_all, range(8))) == len(rows)
    found = read_corrections(desk.journal.path)
    standing = Standing(found)
    assert sorted(record.task for record in found) == sorted(desk.table.instances[rows].tolist())
    assert {standing.version(record.task) for record in found} == {1}


def test_another_process_is_refused_while_the_folder_is_open(hostile):
    before = hostile.journal.path.read_bytes()
    reading = READING["sets" if hostile.answers.is_set else "classes"]
    command = [sys.executable, "-m", "manyhands", "explore", "labels", "--annotations", "A.csv"]
    found = subprocess.run([*command, *reading], capture_output=True, text=True, timeout=120)
    assert found.returncode == 4
    assert "is open in another explorer" in " ".join(found.stderr.split())
    assert hostile.journal.path.read_bytes() == before
