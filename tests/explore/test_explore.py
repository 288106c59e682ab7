"""The explorer without a browser: corrections on the disk, the desk, the pages, the command."""

import asyncio
import csv
import errno
import hashlib
import html
import json
import logging
import os
import re
import shlex
import shutil
import sys
from dataclasses import replace
from importlib.resources import files
from urllib.parse import urlencode

import numpy as np
import pytest

from manyhands import DawidSkene, make_crowd
from manyhands.codes import reason
from manyhands.exceptions import AnnotationError, WriteError
from manyhands.explore.app import KEPT, make_app, prose
from manyhands.explore.desk import Choice, Conflict
from manyhands.explore.guard import HEADERS
from manyhands.explore.inputs import open_desk
from manyhands.explore.plans import Plans
from manyhands.io import corrections, read_gold
from manyhands.io.consensus_labels import read_consensus
from manyhands.io.corrections import Correction, Standing, open_journal, read_corrections
from manyhands.io.exports.formats import WRITERS
from manyhands.metrics.certainty import Certainty
from manyhands.report import planning
from tests.cli.conftest import done, done_json, run, write_csv

CLASSES = ["cat", "dog", "<b>eel</b>"]
HOSTILE = "<script>alert(1)</script>\u202e"


def record(task, label, action="correct", was="cat"):
    return Correction(task, label, was, 0.5, "anna", "2026-11-23T10:00:00.000+00:00", action)


@pytest.fixture(autouse=True, scope="module")
def no_forecast():
    """Reports of these jobs make no forecast: it would take most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(planning.FORESEEN, "annotators", 0)
        yield


# -- corrections on the disk -----------------------------------------------------------------------


def test_a_correction_is_on_the_disk_when_it_is_acknowledged(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    with open_journal(tmp_path) as journal:
        assert len(synced) == 1  # The folder: the file's name is durable.
        journal.append(record("a\nb", "dog"))
        content = (tmp_path / "corrections.jsonl").read_bytes()
        assert synced[1:] == [len(content)]
        assert content.count(b"\n") == 1
        journal.append(record(7, None, "skip"))
    found = read_corrections(tmp_path / "corrections.jsonl")
    assert [(each.task, each.label, each.action) for each in found] == [
        ("a\nb", "dog", "correct"),
        (7, None, "skip"),
    ]
    fields = json.loads(content)
    assert set(fields) == {"task", "label", "was", "certainty", "by", "at", "action", "chosen"}


@pytest.mark.parametrize("cut", [1, 20, 90])
def test_a_torn_last_line_is_removed_and_reported(tmp_path, cut):
    path = tmp_path / "corrections.jsonl"
    with open_journal(tmp_path) as journal:
        journal.append(record("a", "dog"))
        whole = path.read_bytes()
        journal.append(record("b", "cat"))
    torn = path.read_bytes()[: len(whole) + cut]
    path.write_bytes(torn)
    assert [each.task for each in read_corrections(path)] == ["a"]
    with open_journal(tmp_path) as journal:
        assert [each.task for each in journal.records] == ["a"]
        assert journal.torn == torn[len(whole) :].decode()
        journal.append(record("c", "cat"))
    assert [each.task for each in read_corrections(path)] == ["a", "c"]


def test_a_last_line_that_only_lacks_its_end_counts(tmp_path):
    path = tmp_path / "corrections.jsonl"
    with open_journal(tmp_path) as journal:
        journal.append(record("a", "dog"))
    path.write_bytes(path.read_bytes()[:-1])
    with open_journal(tmp_path) as journal:
        assert not journal.torn
        journal.append(record("b", "dog"))
    assert [each.task for each in read_corrections(path)] == ["a", "b"]


def test_a_damaged_line_in_the_middle_is_no_reason_to_lose_others(tmp_path):
    path = tmp_path / "corrections.jsonl"
    with open_journal(tmp_path) as journal:
        for task in "abc":
            journal.append(record(task, "dog"))
    lines = path.read_bytes().split(b"\n")
    for damage in (lines[1][:-5], b"[]", lines[1].replace(b'"correct"', b'"delete"')):
        path.write_bytes(b"\n".join([lines[0], damage, lines[2], b""]))
        before = path.read_bytes()
        with pytest.raises(
            AnnotationError, match=r"corrections\.jsonl: line 2 is not a correction"
        ):
            open_journal(tmp_path).__enter__()
        assert path.read_bytes() == before


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "corrections.jsonl"
    write = os.write

    def full(handle, content):
        if len(content) < 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, content[:50])

    with open_journal(tmp_path) as journal:
        journal.append(record("a", "dog"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(WriteError, match="disk is full"):
                journal.append(record("b", "dog"))
        journal.append(record("c", "dog"))
    assert [each.task for each in read_corrections(path)] == ["a", "c"]


def test_a_folder_is_open_once(tmp_path):
    with open_journal(tmp_path), pytest.raises(WriteError, match="is open in another explorer"):
        open_journal(tmp_path).__enter__()
    with open_journal(tmp_path):
        pass


def test_the_last_action_that_was_not_undone_stands():
    found = Standing()
    found.add(record("a", "dog"))
    found.add(record("b", "cat", "gold"))
    found.add(record("a", None, "skip"))
    assert found.of("a").action == "skip"
    assert [each.task for each in found.decisions()] == ["b"]
    found.add(record("a", None, "undo"))
    assert (found.of("a").label, found.version("a")) == ("dog", 3)
    found.add(record("a", None, "undo"))
    found.add(record("a", None, "undo"))
    assert found.of("a") is None
    assert (found.version("a"), found.version("z")) == (5, 0)


# -- the desk --------------------------------------------------------------------------------------


def write_folder(folder):
    """Annotations, texts and images of 40 tasks, and what ``aggregate`` writes of them."""
    truth = np.arange(40) % 3
    crowd = make_crowd(truth, n_annotators=6, annotations_per_instance=3, random_state=0)
    names = [*"abcde", HOSTILE]
    cells = zip(crowd.instance, crowd.annotator, crowd.label, strict=True)
    rows = [(f"t{i}", names[r], CLASSES[c]) for i, r, c in cells]
    write_csv(folder / "A.csv", [("task", "worker", "label"), *rows])
    texts = [(f"t{i}", f"{HOSTILE} text {i}") for i in range(40)]
    write_csv(folder / "texts.csv", [("task", "text"), *texts])
    (folder / "images").mkdir()
    for i in range(40):
        (folder / "images" / f"t{i}.png").write_bytes(b"\x89PNG" + bytes([i]))
    result = run("aggregate", folder / "A.csv", "--out", folder / "labels")
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explore")
    write_folder(folder)
    return folder


@pytest.fixture
def home(written, monkeypatch):
    """Stand in the folder, without corrections."""
    monkeypatch.chdir(written)
    yield written
    (written / "labels" / "corrections.jsonl").unlink(missing_ok=True)


def opened(home, **options):
    return open_desk(home / "labels", home / "A.csv", by="anna", **options)


@pytest.fixture
def desk(home):
    with opened(home, texts="texts.csv", images="images") as desk:
        yield desk


@pytest.fixture(scope="module")
def unchanged(written, tmp_path_factory):
    """A desk in a folder of its own, for requests that change nothing."""
    folder = tmp_path_factory.mktemp("unchanged")
    shutil.copytree(written, folder, dirs_exist_ok=True)
    with opened(folder, texts=folder / "texts.csv", images=folder / "images") as desk:
        yield desk


def refit(desk, **options):
    """What a fit with the known labels finds."""
    gold = {r.task: r.label for r in desk.standing.decisions()}
    return DawidSkene().fit(desk.table, gold=gold or None, **options).posterior_


def test_the_most_doubtful_label_comes_first(unchanged):
    rows = unchanged.rows(Choice())
    doubt = 1 - unchanged.answers.figures.posterior.max(axis=1)
    assert len(rows) == 40
    assert (np.diff(doubt[rows]) <= 1e-9).all()
    assert sorted(unchanged.rows(Choice(order="random"))) == sorted(rows)
    assert list(unchanged.rows(Choice(order="random"))) != list(rows)


def test_figures_after_corrections_are_those_of_a_fit_with_known_labels(desk):
    start = desk.answers.figures.posterior.copy()
    rows = desk.rows(Choice())[:6].tolist()
    for row in rows:
        item = desk.item(row)
        other = (item.answer + 1) % len(CLASSES)
        desk.decide(row, item.version, other, shown=item.answer)
        assert desk.answers.codes[row] == other  # At once, whatever the figures.
    assert desk.settle(60)
    np.testing.assert_allclose(desk.answers.figures.posterior, refit(desk, start=start), atol=1e-12)
    np.testing.assert_allclose(desk.answers.figures.posterior, refit(desk), atol=0.02)
    assert not np.allclose(
        np.delete(start, rows, 0), np.delete(desk.answers.figures.posterior, rows, 0)
    )
    table = desk.table
    own = [k for k in range(table.n_annotations) if table.instance[k] in rows]
    right = [k for k in own if table.label[k] == desk.answers.codes[table.instance[k]]]
    for found, slow in (
        (desk.answers.figures.n_checked, own),
        (desk.answers.figures.n_right, right),
    ):
        assert found.tolist() == np.bincount(table.annotator[slow], minlength=6).tolist()
    for row in rows:
        desk.undo(row, desk.item(row).version)
    assert desk.settle(60)
    np.testing.assert_allclose(desk.answers.figures.posterior, start, atol=1e-12)


def test_nothing_is_written_over_what_somebody_else_decided(desk):
    row = int(desk.rows(Choice())[0])
    item = desk.item(row)
    desk.decide(row, 0, 1, shown=item.answer)
    with pytest.raises(Conflict):
        desk.decide(row, 0, 2, shown=item.answer)
    with pytest.raises(Conflict):
        desk.undo(row, 0)
    assert len(desk.standing.records) == 1
    desk.undo(row, 1)
    with pytest.raises(Conflict):
        desk.undo(row, 2)  # Nothing stands any more.
    assert desk.item(row).version == 2


def test_actions_say_what_was_done(desk):
    first, second, third, fourth = desk.rows(Choice())[:4].tolist()
    shown = desk.item(first).answer
    desk.decide(first, 0, shown, shown=shown)
    desk.decide(second, 0, desk.item(second).answer, shown=desk.item(second).answer, gold=True)
    other = (desk.item(third).answer + 1) % 3
    desk.decide(third, 0, other, shown=desk.item(third).answer)
    desk.decide(fourth, 0, None, shown=desk.item(fourth).answer)
    found = read_corrections(desk.journal.path)
    assert [each.action for each in found] == ["confirm", "gold", "correct", "skip"]
    assert [each.by for each in found] == ["anna"] * 4
    assert found[2].label == desk.table.classes[other]
    assert found[3].label is None
    to_review = desk.rows(Choice(state="review"))
    assert set(to_review) <= set(desk.rows(Choice()))
    counts = {"review": len(to_review), "open": 36, "done": 3, "skipped": 1}
    assert desk.counts() == counts
    assert desk.rows(Choice(state="skipped")).tolist() == [fourth]
    assert desk.last().row == fourth


def test_filters_are_those_of_a_slow_search(unchanged):
    table = unchanged.table
    votes = set(zip(*(column.tolist() for column in (table.instance, table.annotator, table.label)),
                    strict=True))  # fmt: skip
    choices = [Choice(label=1), Choice(given=2), Choice(annotator=5), Choice(label=0, given=1)]
    for choice in (*choices, Choice(label=0, given=1, annotator=2), Choice(state="done")):
        slow = [
            i
            for i in range(40)
            if (choice.label is None or unchanged.answers.codes[i] == choice.label)
            and any(
                i == j and choice.given in (None, label) and choice.annotator in (None, annotator)
                for j, annotator, label in votes
            )
            and choice.state == "open"
        ]
        assert sorted(unchanged.rows(choice).tolist()) == slow, choice


def test_a_run_goes_on_where_the_last_one_stopped(home):
    with opened(home) as desk:
        row = int(desk.rows(Choice())[0])
        desk.decide(row, 0, 2, shown=desk.item(row).answer)
    path = home / "labels" / "corrections.jsonl"
    with path.open("ab") as file:
        file.write(b'{"task": "t1", "lab')
    again = opened(home)
    with pytest.warns(UserWarning, match=r'was cut off .*: \{"task": "t1", "lab$'):
        desk = again.__enter__()
    assert desk.item(row).answer == 2
    assert row not in desk.rows(Choice())
    assert desk.item(row).version == 1
    assert desk.n_behind == 0
    again.__exit__(None, None, None)
    with path.open("a") as file:
        for strange in (record("nobody", "cat"), record("t1", "unicorn")):
            file.write(json.dumps(vars(strange)) + "\n")
    again = opened(home)
    with pytest.warns(UserWarning, match="2 of the tasks"):
        desk = again.__enter__()
    assert desk.counts()["done"] == 1
    again.__exit__(None, None, None)


def test_labels_of_a_classifier_keep_what_its_features_say(home, tmp_path):
    summary = json.loads((home / "labels" / "summary.json").read_text())
    summary["methods"] |= {"aggregator": None, "classifier": {"name": "CrowdStackingClassifier"}}
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps(summary))
    header, *rows = (home / "labels" / "labels.csv").read_text().splitlines()
    flipped = [
        re.sub(r"^(\w+),[^,]*(.*),(.*),(.*),(.*),$", r"\1,cat\2,0.3,0.6,0.1,", r) for r in rows
    ]
    (folder / "labels.csv").write_text("\n".join([header, *flipped]))
    with open_desk(folder, home / "A.csv", by="anna") as desk:
        assert np.allclose(
            desk.answers.figures.posterior, desk.answers.figures.posterior[0], atol=1e-6
        )
        assert desk.answers.model.name == "CrowdStackingClassifier"
        alone = DawidSkene().fit(desk.table).posterior_
        row = int(alone.max(axis=1).argmin())
        desk.decide(row, 0, 0, shown=1)
        assert desk.settle(60)
        assert desk.answers.figures.posterior[row].tolist() == [1.0, 0.0, 0.0]
        names = [float(p) for p in flipped[0].split(",")[-4:-1]]
        slow = np.array(names) * refit(desk, start=alone) / alone
        slow /= slow.sum(axis=1, keepdims=True)
        others = np.delete(np.arange(40), row)
        found = desk.answers.figures.posterior
        np.testing.assert_allclose(found[others], slow[others], atol=1e-5)
        assert np.abs(found[others] - names).max() > 0.01


def test_labels_that_already_rest_on_corrections_take_them_in_once(corrected, tmp_path):
    done("aggregate", "A.csv", "--known", corrected, "--out", tmp_path)
    shutil.copy(corrected, tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    for methods in (summary["methods"], {"classifier": {"name": "CrowdStackingClassifier"}}):
        (tmp_path / "summary.json").write_text(json.dumps(summary | {"methods": methods}))
        with open_desk(tmp_path, "A.csv", by="anna") as desk:
            assert not desk.notes  # None says that labels differ.
            made = read_consensus(tmp_path / "labels.csv", desk.table).posterior
            np.testing.assert_allclose(desk.answers.figures.posterior, made, atol=0.002)


def test_an_id_that_somebody_typed_as_text_is_the_number_that_it_reads(tmp_path):
    rows = [(k, r, 10 + k % 2) for k in range(12) for r in "abc"]
    write_csv(tmp_path / "A.csv", [("task", "worker", "label"), *rows])
    done("aggregate", tmp_path / "A.csv", "--out", tmp_path / "labels")
    path = tmp_path / "labels" / "corrections.jsonl"
    typed = (record("3", "10"), record("03", 10), record(4, 11), record("4", None, "undo"))
    path.write_text("".join(json.dumps(vars(each)) + "\n" for each in typed))
    again = open_desk(tmp_path / "labels", tmp_path / "A.csv", by="anna")
    with pytest.warns(UserWarning, match="1 of the tasks"):  # "03" is no 3.
        desk = again.__enter__()
    assert desk.answers.known.nonzero()[0].tolist() == [3]
    assert desk.item(3).answer == 0
    again.__exit__(None, None, None)
    assert read_gold(path).tasks.tolist() == ["3", "03"]


def test_passes_and_the_items_own_data_are_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(f"t{i}", r, "xy"[i % 2], f"line {i}") for i in range(12) for r in "abc"]
    rows += [("t0", "d", "unsure", "line 0")]
    write_csv(tmp_path / "A.csv", [("task", "worker", "label", "text"), *rows])
    done("aggregate", "A.csv", "--abstain", "unsure", "--out", "labels")
    with open_desk(tmp_path / "labels", "A.csv", by="a", abstain=["unsure"], skip=None) as desk:
        assert desk.contents.fields[3] == {"text": "line 3"}
        assert desk.item(0).passes == [(3, "abstain")]
        assert len(desk.item(0).votes) == 3


# -- pages -----------------------------------------------------------------------------------------

TOKEN, PORT = "secret", 8123
OWN = {"host": f"127.0.0.1:{PORT}", "cookie": f"manyhands-{PORT}={TOKEN}"}
WRITING = OWN | {"origin": f"http://127.0.0.1:{PORT}", "sec-fetch-site": "same-origin"}


def ask(desk, path, method="GET", headers=OWN, *, app=None, **form):
    """Send a request to the application, without a server."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "http_version": "1.1",
        "root_path": "",
        "scheme": "http",
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": urlencode(form).encode(), "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run((app or make_app(desk, TOKEN, PORT))(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], found, body.decode(errors="replace")


def test_the_token_becomes_a_cookie_and_leaves_the_address(unchanged):
    status, headers, _ = ask(unchanged, f"/?token={TOKEN}", headers={"host": f"localhost:{PORT}"})
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"].lower()
    assert cookie.startswith(f"manyhands-{PORT}={TOKEN}")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert ask(unchanged, "/")[0] == 200
    assert ask(unchanged, "/?token=guessed")[0] == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": f"127.0.0.1:{PORT}"}, 403),  # no cookie
        (OWN | {"cookie": f"manyhands-{PORT}=guessed"}, 403),
        (OWN | {"cookie": f"manyhands-1={TOKEN}"}, 403),
        (OWN | {"host": f"evil.example:{PORT}"}, 400),  # a name that leads here
        (OWN | {"host": "127.0.0.1:1"}, 400),
        (OWN | {"sec-fetch-site": "cross-site"}, 403),
        (OWN | {"sec-fetch-site": "same-site"}, 403),  # another port of this machine
    ],
)
@pytest.mark.parametrize("path", ["/", "/item/0", "/image/0", "/export/labels.csv", "/nothing"])
def test_nobody_else_reads(unchanged, path, headers, status):
    found, sent, body = ask(unchanged, path, headers=headers)
    assert found == status
    assert "t1" not in body
    for name, value in HEADERS.items():
        assert sent[name.lower()] == value


@pytest.mark.parametrize(
    "headers",
    [
        OWN,  # no origin
        WRITING | {"origin": "http://evil.example"},
        WRITING | {"origin": "null"},
        WRITING | {"origin": f"http://localhost:{PORT}"},
        WRITING | {"sec-fetch-site": "same-site"},
        {name: value for name, value in WRITING.items() if name != "cookie"},
    ],
)
def test_nobody_else_writes(unchanged, headers):
    form = {"row": 0, "version": 0, "now": 0, "code": 1}
    assert ask(unchanged, "/decide", "POST", headers, **form)[0] == 403
    assert ask(unchanged, "/undo", "POST", headers, **form)[0] == 403
    assert not unchanged.standing.records


def test_a_decision_leads_to_the_next_item_and_a_late_one_is_a_conflict(desk):
    first, second, third = desk.rows(Choice())[:3].tolist()
    form = {"row": first, "version": 0, "now": desk.item(first).answer, "code": 1}
    form["back"] = "order=random"
    status, headers, _ = ask(desk, "/decide", "POST", WRITING, **form)
    assert (status, headers["location"]) == (303, "/?order=random")
    status, headers, body = ask(desk, "/decide", "POST", WRITING, **(form | {"code": 0}))
    assert status == 409
    assert "Not saved: this item was changed" in body
    assert headers["hx-push-url"] == "false"
    assert len(desk.standing.records) == 1
    assert desk.settle(60)
    # Who went further down the queue goes on from there.
    second, third = desk.rows(Choice())[1:3].tolist()
    form = {"row": second, "version": 0, "now": 0, "do": "skip", "on": 1}
    assert ask(desk, "/decide", "POST", WRITING, **form)[1]["location"] == f"/item/{third}"
    form = {"row": second, "version": 1}
    assert ask(desk, "/undo", "POST", WRITING, **form)[1]["location"] == f"/item/{second}"


def test_a_skipped_item_is_not_shown_again_where_it_stays_among_the_chosen(desk):
    first, second = desk.rows(Choice(state="all"))[:2].tolist()
    form = {"row": first, "version": 0, "now": 0, "do": "skip", "back": "state=all"}
    location = ask(desk, "/decide", "POST", WRITING, **form)[1]["location"]
    assert location == f"/item/{second}?state=all"


def test_an_id_leads_to_its_item(unchanged):
    row = unchanged.row_of["t7"]
    status, headers, _ = ask(unchanged, "/find?id=+t7+")
    assert (status, headers["location"]) == (303, f"/item/{row}?state=all")
    status, _, body = ask(unchanged, "/find?id=t99")
    assert status == 404
    assert "no item is called &#39;t99&#39;; write its id as the annotations do" in body
    assert 'action="/find"' in ask(unchanged, "/")[2]


def test_what_an_annotator_gave_stands_beside_the_labels_of_their_items(poor):
    r = poor.table.annotators.tolist().index("<i>poor</i>")
    page = ask(poor, f"/list?state=all&annotator={r}")[2]
    head, _, rows = page.partition("<thead>")[2].partition("</thead>")
    assert re.sub("<.*?>", "", head.split("</th>")[2]) == "&lt;i&gt;poor&lt;/i&gt; gave"
    own = poor.table.annotator == r
    rows_of, labels = poor.table.instance[own].tolist(), poor.table.label[own].tolist()
    given = dict(zip(rows_of, labels, strict=True))
    found = re.findall(r'href="/item/(\d+).*?</th>(.*?)</tr>', rows, re.DOTALL)
    assert len(found) == 50
    for row, cells in found:
        label, own = re.findall(r"<td>\s*(.*?)</td>", cells, re.DOTALL)[:2]
        name = re.sub("<.*?>", "", own).strip()
        assert name == "xy"[given[int(row)]]
        assert ('class="other"' in own) == (name != re.sub("<.*?>", "", label).strip())
    item = ask(poor, f"/?state=all&annotator={r}")[2]
    assert re.search(r'<tr class="mine">\s*<th scope="row"><a [^>]*><bdi[^>]*>&lt;i&gt;poor', item)
    assert ">&lt;i&gt;poor&lt;/i&gt; gave <select" in item
    assert "&lt;i&gt;poor&lt;/i&gt; gave" not in ask(poor, "/list?state=all")[2]


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_the_folder_of_a_ranking_and_a_folder_without_annotations_are_explained(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    matches = [
        (a, b, winner, who)
        for a, b, winner in ("xyx", "xyy", "yzy", "yzz", "xzx", "xzz")
        for who in "uv"
    ]
    write_csv(tmp_path / "M.csv", [("left", "right", "winner", "worker"), *matches])
    done("rank", "M.csv", "--out", "ranking")
    for more in ((), ("--annotations", "M.csv")):
        refused = run("explore", "ranking", *more)
        assert refused.exit_code == 3
        assert "ranking holds a ranking, and the explorer needs labels." in refused.stderr
    votes = [(f"t{i}", who, "ab"[i % 2]) for i in range(12) for who in "uvw"]
    write_csv(tmp_path / "A.csv", [("thing", "worker", "label"), *votes])
    done("aggregate", "A.csv", "--task", "thing", "--out", "labels")
    refused = run("explore", "labels")
    assert refused.exit_code == 3
    command = "`manyhands explore labels --annotations A.csv --task thing`"
    assert f"name the annotations that labels was made from: {command}" in refused.stderr
    assert run("explore", "A.csv").stderr.startswith("error: 'A.csv' has no summary.json")


def test_annotators_come_in_the_order_of_the_report(tmp_path, monkeypatch):
    """Who does the most harm comes first, also before somebody who is right less often."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    sizes = {**dict.fromkeys("abcde", 200), "busy": 300, "poor": 60, "few": 3}
    wrong = {"busy": 0.5, "poor": 0.8, "few": 1.0}
    rows = [
        (
            f"t{i:03}",
            name,
            "xyz"[(i + (rng.random() < wrong.get(name, 0.1)) * rng.integers(1, 3)) % 3],
        )
        for name, n in sizes.items()
        for i in range(n)
    ]
    write_csv(tmp_path / "A.csv", [("task", "worker", "label"), *rows])
    done("aggregate", "A.csv", "--out", "labels")
    with (tmp_path / "labels" / "annotators.csv").open(encoding="utf-8") as file:
        told = list(csv.DictReader(file))
    names = [row["annotator"] for row in told]
    assert names[:2] == ["busy", "poor"]
    assert float(told[0]["high_95"]) > float(told[1]["high_95"])
    assert names[-1] == "few"
    with open_desk(tmp_path / "labels", tmp_path / "A.csv", by="a") as desk:
        body = ask(desk, "/people")[2].partition('<table class="list people">')[2]
        shown = re.findall(r'<th scope="row"><a href="/\?state=all&amp;annotator=(\d+)">', body)
        assert [desk.table.annotators[int(r)] for r in shown] == names


def test_few_annotations_have_an_interval_and_no_point(tmp_path, monkeypatch):
    """Below five annotations the people page and the item tell the interval alone."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [(i, f"w{r}", (i + (rng.random() < 0.1)) % 3) for i in range(60) for r in range(4)]
    rows += [(i, name, i % 3) for name, n in (("four", 4), ("five", 5)) for i in range(n)]
    write_csv(tmp_path / "A.csv", [("task", "worker", "label"), *rows])
    done("aggregate", "A.csv", "--out", "labels")
    with open_desk(tmp_path / "labels", tmp_path / "A.csv", by="a") as desk:
        r = {name: desk.table.annotators.tolist().index(name) for name in ("four", "five")}
        shown = {"four": False, "five": True}
        for path in ("/people", "/item/0?state=all"):
            for name, is_told in shown.items():
                row = (
                    ask(desk, path)[2].partition(f'annotator={r[name]}">')[2].partition("</tr>")[0]
                )
                point = f"{100 * desk.answers.figures.accuracy[r[name]]:.0f}"
                cells = re.findall(r'<td class="n">(.*?)</td>', row, re.DOTALL)
                told = cells[1] if path == "/people" else cells[0]
                assert (re.match(rf"{point}\W*%", told) is not None) == is_told
                assert ("–" in told) != is_told
                assert ('class="meter' in row) == (is_told and path == "/people")


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"row": 40, "version": 0, "now": 0, "code": 1},
        {"row": -1, "version": 0, "now": 0, "code": 1},
        {"row": 0, "version": 0, "now": 0, "code": 3},
        {"row": "٣", "version": 0, "now": 0, "code": 1},
        {"row": 0, "version": 0, "now": 0, "code": 1, "back": "state=deleted"},
        {"row": 0, "version": 0, "now": 0, "code": 1, "back": "annotator=6"},
    ],
)
def test_forms_of_another_making_are_refused(unchanged, form):
    assert ask(unchanged, "/decide", "POST", WRITING, **form)[0] == 400
    assert not unchanged.standing.records
    assert ask(unchanged, "/decide", "POST", WRITING, row="9" * 70_000)[0] == 413


def test_a_full_disk_is_said_and_nothing_changes(desk, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(corrections.os, "fsync", full)
        status, _, body = ask(desk, "/decide", "POST", WRITING, row=0, version=0, now=0, code=1)
    assert status == 507
    assert "<h1>Not saved</h1>" in body
    assert "(507)" in body
    assert "not saved" in body
    assert "disk is full" in body
    assert desk.item(0).version == 0


@pytest.mark.parametrize(
    "path",
    [
        *("/image/40", "/image/../A.csv", "/image/%2e%2e%2fA.csv", "/image/t1.png"),
        *("/static/../app.py", "/static/page.html", "/static//etc/passwd"),
        *("/export/../A.csv", "/export/corrections.jsonl", "/item/99", "/docs"),
    ],
)
def test_only_what_is_meant_can_be_fetched(unchanged, path):
    assert ask(unchanged, path)[0] == 404


def test_images_are_sent_as_images_and_only_from_their_folder(desk, home):
    status, headers, _ = ask(desk, "/image/3")
    assert (status, headers["content-type"]) == (200, "image/png")
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    for i in range(40):
        (elsewhere / f"t{i}.png").symlink_to(home / "images" / f"t{i}.png")
    with pytest.raises(AnnotationError, match=r"t0\.png' of task t0 is not within"):
        opened(home, images=str(elsewhere)).__enter__()


@pytest.mark.parametrize("kind", ["absolute", "above", "link", "link to a folder"])
def test_a_column_of_images_cannot_name_files_of_others(kind, home, tmp_path):
    """Whoever writes the annotations chooses the names; the page would send what they lead to."""
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"\x89PNG secret")
    place = tmp_path / "answers"
    shutil.copytree(home, place)
    (place / "linked.png").symlink_to(secret)
    (place / "linked").symlink_to(tmp_path)
    named = {"absolute": str(secret), "above": "images/../../secret.png", "link": "linked.png"}
    with (place / "A.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    images = {f"t{i}": f"images/t{i}.png" for i in range(40)}
    for change in (False, True):
        images |= {"t3": named.get(kind, "linked/secret.png")} if change else {}
        given = ((*row, images[row[0]]) for row in rows)
        write_csv(place / "A.csv", [(*header, "image"), *given])
        if not change:
            with opened(place, images="image") as desk:
                assert desk.contents.images[3] == place / "images" / "t3.png"
    with pytest.raises(AnnotationError, match=r"of task t3 is not within .*answers'"):
        opened(place, images="image").__enter__()


def test_hostile_names_and_texts_are_only_shown(unchanged):
    for path in ("/", "/people", "/next", "/sheet/0", "/?state=all&annotator=5"):
        body = ask(unchanged, path)[2]
        assert "<script>alert" not in body
        assert "<b>eel" not in body
        assert "\u202e" not in body
        assert "&lt;b&gt;eel" in body or path == "/next"  # It names no class.
        assert " style=" not in body  # The policy would refuse it.
        assert "<script>" not in body
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e text" in ask(unchanged, "/item/2")[2]


def test_texts_keep_their_lines_and_joiners():
    assert prose("a\r\nb\tc") == "a\nb\tc"
    assert prose("👩\u200d🌾 می\u200cخواهم") == "👩\u200d🌾 می\u200cخواهم"
    assert prose("x\u2066y\x1b[0m\0") == "x\\u2066y\\x1b[0m\\x00"
    assert prose("a" * 30_000).endswith("(10,000 characters more)")
    assert len(KEPT) == 4


def test_downloads_hold_what_was_decided(desk):
    row = int(desk.rows(Choice())[0])
    task, code = desk.item(row).task, (desk.item(row).answer + 1) % 3
    desk.decide(row, 0, code, shown=desk.item(row).answer)
    status, headers, body = ask(desk, "/export/corrections.csv")
    assert status == 200
    assert headers["content-disposition"] == 'attachment; filename="corrections.csv"'
    assert body.splitlines()[1].startswith(f"{task},{desk.table.classes[code]}")
    _, _, body = ask(desk, "/export/labels.csv?only=reviewed")
    text = f"{HOSTILE} text {task[1:]}"
    assert body.splitlines()[1].startswith(f"{task},{text},{desk.table.classes[code]},1.000000")
    assert len(body.splitlines()) == 2
    assert len(ask(desk, "/export/labels.csv")[2].splitlines()) == 41
    tasks = json.loads(ask(desk, "/export/label-studio.json")[2])
    (found,) = [t for t in tasks if t["id"] == task]
    assert found["predictions"][0]["result"][0]["value"]["choices"] == [desk.table.classes[code]]


@pytest.mark.parametrize("tool", WRITERS.values(), ids=lambda tool: tool.name)
def test_labels_are_downloaded_for_every_tool(unchanged, tool):
    page = ask(unchanged, "/")[2]
    assert f'<a download href="/export/{tool.file}">For {tool.title}</a>' in page
    status, _, body = ask(unchanged, f"/export/{tool.file}")
    assert (status, len(body) > 100) == (200, True)


def test_the_page_says_when_figures_are_old(desk, monkeypatch):
    assert "include everything that was decided" in ask(desk, "/")[2]
    monkeypatch.setattr(desk.answers.model, "posterior", lambda *_: 1 / 0)
    desk.decide(0, 0, 1, shown=0)
    assert not desk.settle(60)
    assert "ZeroDivisionError" in ask(desk, "/")[2]
    assert desk.answers.codes[0] == 1
    monkeypatch.undo()
    desk.decide(1, 0, 1, shown=0)
    assert desk.settle(60)
    assert "include everything that was decided" in ask(desk, "/status")[2]


def next_command(body):
    """The command on the page, as a shell would read it."""
    return shlex.split(html.unescape(re.search(r"<pre[^>]*><code>(.*?)</code>", body)[1]))


def test_the_next_annotations_are_those_of_the_command(desk, home):
    for row in desk.rows(Choice())[:4].tolist():
        desk.decide(row, 0, 1, shown=desk.item(row).answer)
    assert desk.settle(60)
    status, _, body = ask(desk, "/next")
    program, *arguments = next_command(body)
    assert (status, program) == (200, "manyhands")
    assert arguments[arguments.index("--known") + 1] == str(desk.journal.path)
    pairs = done_json(*arguments[:-2])["pairs"]
    assert len(pairs) == int(arguments[arguments.index("-n") + 1])
    found = re.findall(r'<tr><th scope="row"><a href="/item/(\d+)\?state=all">', body)
    assert len(found) == len(pairs)
    assert {desk.table.instances[int(row)] for row in found} == {row["task"] for row in pairs}
    known = desk.answers.known
    assert not any(known[int(row)] for row in found)


def test_a_batch_is_shown_whole_a_page_at_a_time_and_for_each_annotator(desk, monkeypatch):
    monkeypatch.setattr("manyhands.explore.app.PAGE", 3)
    plan = Plans(desk).next(ahead=False)
    row = r'<tr><th scope="row"><a href="/item/(\d+)\?state=all">'
    shown, page = [], 1
    while True:
        body = ask(desk, f"/next?page={page}")[2]
        shown += re.findall(row, body)
        if f"page={page + 1}" not in body:
            break
        page += 1
    assert page == -(-len(plan.pairs) // 3) > 1
    assert shown == [str(pair.row) for pair in plan.pairs]
    assert sum(plan.asked.values()) == len(plan.pairs)
    for r in plan.asked:
        own = [str(pair.row) for pair in plan.pairs if pair.annotator == r]
        assert re.findall(row, ask(desk, f"/next?annotator={r}")[2]) == own[:3]
    assert ask(desk, f"/next?page={page + 1}")[0] == 404


def test_a_forecast_is_made_when_it_is_asked_for(desk, monkeypatch):
    made = []
    forecast = planning.forecast
    monkeypatch.setitem(planning.FORESEEN, "annotators", 6)
    monkeypatch.setattr(planning, "ROUNDS", 2)
    monkeypatch.setattr(planning, "forecast", lambda *a, **k: made.append(1) or forecast(*a, **k))
    app = make_app(desk, TOKEN, PORT)
    body = ask(desk, "/next", app=app)[2]
    assert "/next?ahead=1" in body
    assert "3\u00a0runs simulated" not in body
    assert not made
    for _ in range(2):
        body = ask(desk, "/next?ahead=1", app=app)[2]
        assert "3\u00a0runs simulated" in body
        assert "/next?ahead=1" not in body
        assert len(made) == 1  # Kept for these figures.
    desk.decide(0, 0, 1, shown=0)
    assert desk.settle(60)
    ask(desk, "/next?ahead=1", app=app)
    assert len(made) == 2


def test_a_forecast_that_is_left_to_the_command_has_its_duration(desk, monkeypatch):
    told = "makes a forecast, which takes about {}."
    assert told.format("1\u00a0minute") in ask(desk, "/next?ahead=1")[2]
    monkeypatch.setattr(planning, "PER_MINUTE", desk.table.n_annotations / 3)
    assert (
        told.format("3\u00a0minutes")
        in ask(desk, "/next?ahead=1", app=make_app(desk, TOKEN, PORT))[2]
    )


def test_a_forecast_says_where_to_stop(desk, monkeypatch):
    monkeypatch.setitem(planning.FORESEEN, "annotators", 6)
    monkeypatch.setattr(planning, "ROUNDS", 2)
    monkeypatch.setattr(
        "manyhands.explore.plans.told_of_rounds", lambda rows: (1, "Stop after one.")
    )
    body = ask(desk, "/next?ahead=1")[2]
    assert len(re.findall(r"\(stop here\) \d+</td>", body)) == 1
    assert "Stop after one. The figures" in html.unescape(body)


def test_nothing_is_planned_where_every_label_is_known(desk):
    for row in range(40):
        desk.decide(row, 0, 0, shown=0)
    assert desk.settle(60)
    status, _, body = ask(desk, "/next")
    assert status == 200
    assert "There is nothing to ask" in body
    again = desk.command_again()  # What to do when all is done.
    assert shlex.split(again)[:2] == ["manyhands", "aggregate"]
    assert f"--known {desk.journal.path}" in again
    assert again in html.unescape(ask(desk, "/")[2])


@pytest.mark.parametrize(
    ("written", "unit", "step"),
    [("{}", " grades", 1), ("{} stars", " stars", 1), ("{} stars", " stars", 0.5)],
)
def test_people_who_give_too_much_are_named_with_their_grades(
    tmp_path, monkeypatch, written, unit, step
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    stars = rng.integers(1, 6, 150)
    rows = [("task", "worker", "label")]
    for name, shift in {"Ann": 0.0, "Bea": 0.9, "Cem": -0.9, "Dan": 0.0}.items():
        given = np.rint(stars + shift + rng.normal(0, 0.4, 150)).clip(1, 5).astype(int)
        texts = [written.format(f"{step * grade:g}") for grade in given]
        rows += [(f"t{i}", name, text) for i, text in enumerate(texts)]
    write_csv(tmp_path / "A.csv", rows)
    done("aggregate", "A.csv", "--ordered", "--out", "labels")
    with open_desk(tmp_path / "labels", tmp_path / "A.csv", by="anna") as graded:
        told = graded.answers.figures.severities()
        assert {graded.table.annotators[r] for r in told} == {"Bea", "Cem"}
        steps = graded.answers.figures.aggregator.severity_
        for r, text in told.items():
            much = float(re.fullmatch(rf"rates ([\d.]+){unit} too .*", text)[1])
            assert much == pytest.approx(abs(steps[r]) * step, abs=0.05)
        body = ask(graded, "/people")[2]
        assert all(text.removeprefix("rates ") in body for text in told.values())
        assert "The labels are already corrected for this." in body


@pytest.fixture
def poor(tmp_path, monkeypatch):
    """A desk of 60 tasks, whom all of six annotate; one of them answers at random."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 2
    rows = [("task", "worker", "label", "text")]
    for name in "abcde":
        wrong = rng.random(60) < 0.05
        rows += [(f"t{i}", name, "xy"[c], f"line {i}") for i, c in enumerate(truth ^ wrong)]
    guesses = enumerate(rng.integers(2, size=60))
    rows += [(f"t{i}", "<i>poor</i>", "xy"[c], f"line {i}") for i, c in guesses]
    write_csv(tmp_path / "A.csv", rows)
    done("aggregate", "A.csv", "--out", "labels")
    with open_desk(tmp_path / "labels", tmp_path / "A.csv", by="a") as desk:
        yield desk


def test_annotators_have_their_flags_and_advice_and_a_sheet(poor):
    body = ask(poor, "/people")[2]
    first, why = re.findall(r"<tr.*?</tr>", body.partition("<tbody>")[2], re.DOTALL)[:2]
    assert "&lt;i&gt;poor&lt;/i&gt;" in first
    screens = {row["annotator"]: row for row in done_json("annotators", "A.csv")["annotators"]}
    said = html.unescape(why)
    reasons = map(reason, screens["<i>poor</i>"]["flags"])
    for text in (*reasons, *screens["<i>poor</i>"]["evidence"]):
        assert text in said
    assert html.unescape(body).count(screens["<i>poor</i>"]["advice"]) == 1  # Not per person.
    assert body.count('class="why"') == sum(bool(row["flags"]) for row in screens.values())
    (link,) = re.findall(r'href="(/sheet/\d+)"', first)
    status, _, sheet = ask(poor, link)
    assert status == 200
    assert "<i>poor" not in sheet
    assert ">line " in sheet
    found = done_json("annotators", "A.csv", "--teach", "<i>poor</i>")["pairs"]
    titles = [f"{row['true']} and {row['given']}" for row in found]
    heads = re.findall(r"<h2.*?>(.*?) <span", sheet)
    assert [re.sub("<.*?>", "", head) for head in heads] == titles
    assert ask(poor, "/sheet/99")[0] == 404


def test_an_example_that_an_expert_looked_at_says_so(poor):
    r = poor.table.annotators.tolist().index("<i>poor</i>")
    sheet = ask(poor, f"/sheet/{r}")[2]
    assert "reviewed</span>" not in sheet
    clear = sheet.partition("Clear items of")[2].partition("</ul>")[0]
    right, wrong = (int(row) for row in re.findall(r"/item/(\d+)", clear)[:2])
    code = poor.item(right).answer
    poor.decide(right, 0, code, shown=code)
    poor.decide(wrong, 0, 1 - code, shown=code)
    assert poor.settle(60)
    clear = ask(poor, f"/sheet/{r}")[2].partition("Clear items of")[2].partition("</ul>")[0]
    shown = re.findall(r"/item/(\d+)\?state=all.*?</span>", clear)
    assert str(wrong) not in shown
    assert re.search(rf"/item/{right}\?state=all.*?reviewed</span>", clear)
    assert "needs an expert’s look" in clear


def test_htmx_is_the_published_file_with_its_licence():
    content = (files("manyhands.explore") / "static" / "htmx.min.js").read_bytes()
    licence, code = content.split(b"*/\n", 1)
    assert b"Permission to use, copy, modify" in licence
    digest = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"
    assert hashlib.sha256(code).hexdigest() == digest


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def corrected(home):
    """Corrections of four tasks, one undone and one skipped."""
    with opened(home) as desk:
        for row in (0, 1, 2, 3):
            desk.decide(row, 0, None if row == 3 else row % 3, shown=desk.item(row).answer)
        desk.undo(1, 1)
    return home / "labels" / "corrections.jsonl"


def test_other_commands_read_corrections_as_known_labels(corrected, home):
    known = read_gold(corrected)
    ordered = sorted(CLASSES)
    assert known.tasks.tolist() == ["t0", "t2"]
    assert known.labels.tolist() == [ordered[0], ordered[2]]
    found = done_json("aggregate", "A.csv", "--known", corrected)["labels"]
    by_task = {row["task"]: row for row in found}
    for task, label in zip(known.tasks, known.labels, strict=True):
        assert (by_task[task]["label"], by_task[task]["probability"]) == (label, 1.0)
    assert done_json("aggregate", "A.csv", "--gold", corrected)["gold"]["instances with gold"] == 2
    review = done_json("review", "A.csv", "--known", corrected, "-n", "40")["queue"]
    assert {row["task"] for row in review[-2:]} == {"t0", "t2"}
    pairs = done_json("next", "A.csv", "--known", corrected, "-n", "20")["pairs"]
    assert not {"t0", "t2"} & {row["task"] for row in pairs}
    done("annotators", "A.csv", "--known", corrected)
    with pytest.raises(AnnotationError, match="not among classes"):
        read_gold(corrected, classes=["cat", "unicorn"])


def test_corrections_that_were_all_undone_are_no_known_labels(home):
    with opened(home) as desk:
        desk.decide(0, 0, 1, shown=0)
        desk.undo(0, 1)
    result = run("aggregate", "A.csv", "--known", home / "labels" / "corrections.jsonl")
    assert result.exit_code == 3
    assert "all corrections in this file were undone" in result.stderr


def test_a_new_job_in_the_folder_keeps_the_corrections(corrected, home):
    before = corrected.read_bytes()
    done("aggregate", "A.csv", "--known", corrected, "--out", "labels")
    assert corrected.read_bytes() == before
    done("aggregate", "A.csv", "--out", "labels")


def test_labels_are_exported_without_a_page(corrected, home, tmp_path):
    arguments = ("explore", "labels", "--annotations", "A.csv", "--out")
    out = tmp_path / "reviewed.json"
    found = done_json(*arguments, out, "--to", "label-studio")
    assert found == {"out": str(out), "to": "label-studio", "labels": 40, "reviewed": 2}
    assert len(json.loads(out.read_text())) == 40
    done(*arguments, tmp_path / "few.csv", "--reviewed")
    assert len((tmp_path / "few.csv").read_text().splitlines()) == 3
    for more, code, says in (
        (("--out", "A.csv"), 3, "would write over"),
        (("--out", "labels/corrections.jsonl"), 3, "would write over"),
        (("--reviewed",), 3, "name a file with --out"),
        (("--out", "x.json"), 0, "written"),
    ):
        result = run("explore", "labels", "--annotations", "A.csv", *more)
        assert result.exit_code == code, result.output
        assert says in result.output


def test_the_terminal_says_how_to_show_the_items_if_nothing_shows_them(home, monkeypatch):
    monkeypatch.setattr("manyhands.explore.app.serve", lambda _, port, say: say(f"at {port}"))
    bare, shown = (
        done("explore", "labels", "--annotations", "A.csv", *more).stdout
        for more in ((), ("--texts", "texts.csv"))
    )
    assert "open at 0" in bare
    assert "--images FOLDER shows images that are named by item, and --texts FILE" in bare
    assert "--images FOLDER" not in shown


def test_what_is_missing_is_said(home, tmp_path, monkeypatch):
    for folder in (tmp_path, "nowhere"):
        result = run("explore", folder, "--annotations", "A.csv")
        assert result.exit_code == 5
        assert "has no summary.json" in result.stderr
    with open_journal(home / "labels"):
        result = run("explore", "labels", "--annotations", "A.csv")
    assert result.exit_code == 4
    assert "is open in another explorer" in result.stderr
    for name in ("starlette.responses", "manyhands.explore.guard", "manyhands.explore.app"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.responses", None)
    result = run("explore", "labels", "--annotations", "A.csv")
    assert result.exit_code == 6
    assert "pip install 'manyhands[explore]'" in result.stderr


# -- labels that were known before -----------------------------------------------------------------


@pytest.fixture(scope="module")
def with_known(written, tmp_path_factory):
    """A folder that ``aggregate`` made with labels of two reviews, of which one was random."""
    folder = tmp_path_factory.mktemp("known")
    shutil.copy(written / "A.csv", folder)
    # Some are not what the annotators say.
    rows = [(f"t{i}", CLASSES[i % 2], "random" if i % 4 else "queue", "yes") for i in range(24)]
    write_csv(folder / "sheet.csv", [("task", "label", "chosen", "reviewed"), *rows])
    options = ("--known", folder / "sheet.csv", "--out", folder / "labels")
    (folder / "said.json").write_text(
        json.dumps(done_json("aggregate", folder / "A.csv", *options))
    )
    return folder


@pytest.fixture
def reviewed_home(with_known, tmp_path, monkeypatch):
    shutil.copytree(with_known, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def download(desk, name="labels.csv"):
    return ask(desk, f"/export/{name}")[2]


def test_what_the_folder_knows_is_known_here(reviewed_home):
    folder = reviewed_home / "labels"
    said = json.loads((reviewed_home / "said.json").read_text())
    with opened(reviewed_home) as desk:
        assert not desk.notes
        assert (desk.counts()["done"], desk.counts()["open"]) == (24, 16)
        assert desk.answers.figures.told.headline == said["headline"]
        assert "16\N{NO-BREAK SPACE}labels that nobody reviewed" in said["headline"]
        assert html.escape(said["headline"]) in ask(desk, "/")[2]
        lines = (folder / "labels.csv").read_text(encoding="utf-8-sig").splitlines()
        assert download(desk).removeprefix("\ufeff").splitlines() == lines
        assert "Known before anybody decided here" in ask(desk, f"/item/{desk.row_of['t1']}")[2]
        assert "reviewed (24)" in re.sub(r"\s+", " ", ask(desk, "/")[2])
        body = ask(desk, "/next")[2]
        arguments = next_command(body)[1:]
        sheet = download(desk, "review.csv").splitlines()
    assert arguments.count("--known") == 1
    assert arguments[arguments.index("--known") + 1] == str(folder / "labels.csv")
    found = done_json(*arguments[:-2])
    shown = re.findall(r'<tr><th scope="row"><a href="/item/(\d+)\?state=all">', body)
    assert {desk.table.instances[int(row)] for row in shown} == {r["task"] for r in found["pairs"]}
    marked = [line.split(",")[-2:] for line in sheet[1:]]
    assert marked.count(["random", "yes"]) == 18
    assert sum(reviewed == "yes" for _, reviewed in marked) == 24


def test_what_is_decided_adds_to_what_was_known_and_can_be_undone(reviewed_home):
    with opened(reviewed_home) as desk:
        row, new = desk.row_of["t1"], desk.row_of["t30"]
        was = desk.answers.codes[row]
        other = (was + 1) % 3
        desk.decide(row, 0, other, shown=was, chosen="queue")
        desk.decide(new, 0, 2, shown=desk.item(new).answer, chosen="queue")
        assert desk.settle(60)
        assert desk.answers.known.sum() == 25
        assert desk.answers.codes[row] == other
        assert desk.answers.random[row]  # It was drawn at random, whoever looks at it again.
        assert desk.answers.random.sum() == 18
        files, added = desk.known_files, desk.added_files
    assert files == (
        reviewed_home / "labels/labels.csv",
        reviewed_home / "labels/corrections.jsonl",
    )
    known = [word for path in files for word in ("--known", path)]
    labels = {r["task"]: r["label"] for r in done_json("aggregate", "A.csv", *known)["labels"]}
    assert (labels["t1"], labels["t30"]) == (desk.table.classes[other], desk.table.classes[2])
    assert added == files[1:]
    # The same with the sheet, in either order, as for the command that wrote the folder.
    known = ("--known", *added, "--known", "sheet.csv")
    again = {r["task"]: r["label"] for r in done_json("aggregate", "A.csv", *known)["labels"]}
    assert again == labels
    # A folder that rests on both still tells what was known before from what was decided here.
    done("aggregate", "A.csv", *known, "--out", "labels")
    with opened(reviewed_home) as desk:
        assert not desk.notes
        assert desk.answers.known.sum() == 25
        desk.undo(row, 1)
        desk.undo(new, 1)
        assert desk.settle(60)
        assert (desk.answers.codes[row], desk.answers.known.sum()) == (was, 24)
        assert desk.answers.known[row]
        assert not desk.answers.known[new]


def test_what_a_sample_told_of_a_classifier_is_not_forgotten(reviewed_home):
    path = reviewed_home / "labels/summary.json"
    summary = json.loads(path.read_text())
    level = summary["levels"]["labels"]
    assert level["source"] == "sample"
    summary["methods"] = {"aggregator": None, "classifier": {"name": "CrowdStackingClassifier"}}
    path.write_text(json.dumps(summary))
    with opened(reviewed_home) as desk:
        before = desk.answers.figures.told
        assert "16\N{NO-BREAK SPACE}labels that nobody reviewed" in before.headline
        row = desk.row_of["t30"]
        desk.decide(row, 0, 2, shown=0, chosen="queue")
        assert desk.settle(60)
        after = desk.answers.figures.told
        assert after.level == before.level
        assert after.headline == before.headline.replace(" 16\xa0", " 15\xa0")


def test_more_known_labels_are_given_by_the_option(reviewed_home):
    shutil.copytree("labels", "plain")
    done("aggregate", "A.csv", "--out", "plain")
    more = ("--known", "sheet.csv", "--out", "out.csv", "--reviewed")
    found = done_json("explore", "plain", "--annotations", "A.csv", *more)
    assert (found["labels"], found["reviewed"]) == (24, 24)
    gold = read_gold("sheet.csv")
    again = read_gold("out.csv")
    assert dict(zip(again.tasks, again.labels, strict=True)) == dict(
        zip(gold.tasks, gold.labels, strict=True)
    )
    assert again.random.sum() == gold.random.sum() == 18
    write_csv(reviewed_home / "two.csv", [("task", "label"), ("t30", "dog"), ("t1", "dog")])
    more = ("--known", "two.csv", "--out", "out2.csv")
    found = done_json("explore", "labels", "--annotations", "A.csv", *more)
    assert found["reviewed"] == 25
    write_csv(reviewed_home / "two.csv", [("task", "label"), ("t1", "cat")])
    result = run(
        "explore", "labels", "--annotations", "A.csv", "--known", "two.csv", "--out", "o.csv"
    )
    assert result.exit_code != 0
    assert "labels.csv: task 't1' has the known label 'dog'" in re.sub(r"\s+", " ", result.output)
    own = ("--known", "labels/corrections.jsonl", "--out", "out3.csv")
    with opened(reviewed_home) as desk:
        desk.decide(desk.row_of["t30"], 0, 2, shown=0)
    assert done_json("explore", "labels", "--annotations", "A.csv", *own)["reviewed"] == 25


def test_a_label_that_was_not_known_is_never_said_to_be_certain(home, monkeypatch):
    with opened(home) as desk:
        row = int(desk.rows(Choice())[0])
        monkeypatch.setattr(desk.answers, "told", lambda row: [1.0, 1.0, 1.0])
        before = desk.decide(row, 0, 1, shown=0)
        again = desk.decide(row, 1, 2, shown=1)
        assert before.certainty < 1 == again.certainty
        assert desk.standing.known_before(before.task) is None


def test_no_class_is_shown_to_be_more_probable_than_the_label(desk, monkeypatch):
    certainty = Certainty(len(CLASSES), power=0.05, shared=0.1)
    figures = replace(desk.answers.figures, certainty=certainty)
    monkeypatch.setattr(desk.answers, "figures", figures)
    items = [desk.item(row) for row in range(desk.table.n_instances)]
    assert all(max(item.told) == item.certainty < 0.5 for item in items)
    assert all(sum(item.told) == pytest.approx(1) for item in items)


def test_a_note_that_only_counts_further_corrections_is_told_once(home, caplog):
    caplog.set_level("INFO", "manyhands")
    told = logging.getLogger("manyhands")
    before = [*told.filters]
    with opened(home):
        for n in ("known label is", "2 known labels are", "1,003 known labels are"):
            told.info("The %s not drawn at random. To check it, review 100 labels", n)
        told.info("Something else")
    assert caplog.text.count("not drawn at random") == 1
    assert "Something else" in caplog.text
    assert told.filters == before  # Afterwards, every note is told.
