"""The explorer and the report in a real browser: keys, filters, hostile names, other origins, axe.

Screenshots are kept in the folder that SCREENSHOTS names, if it does.
"""

import csv
import html
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import uvicorn

from manyhands import make_crowd
from manyhands.explore.app import make_app
from manyhands.explore.inputs import open_desk
from manyhands.io.corrections import Standing, read_corrections
from manyhands.report import render_report
from tests.cli.conftest import done, write_csv
from tests.report.conftest import hundred_times_ten_thousand

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import expect, sync_playwright

    MISSING = "" if CHROMIUM else "Chromium is not installed (apt-get install chromium)"
except ImportError:
    MISSING = "playwright is not installed (pip install --group browser)"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

HOSTILE = "<script>document.title='run'</script>"
IMAGE = '"><img src=x onerror="document.title=\'run\'">'
CLASSES = ["cat", "dog", HOSTILE]
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 420, "height": 860}


@pytest.fixture(scope="module")
def browser():
    # A sandbox needs a user other than root.
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    expect.set_options(timeout=30_000)  # Machines of tests are busy.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"] if root else []
        )
        yield browser
        browser.close()


class Watched:
    """A page, and everything on it that should not be: errors, dialogs, requests elsewhere."""

    def __init__(self, browser, home, **options):
        self.context = browser.new_context(**({"viewport": WIDE} | options))
        self.page = self.context.new_page()
        self.wrong, self._home = [], home
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.wrong.append("dialog"), dialog.dismiss()))
        self.page.on("request", self._requested)

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _requested(self, request):
        if not request.url.startswith((self._home, "data:")):
            self.wrong.append(f"request: {request.url}")

    def close(self):
        """Close, and fail if anything was wrong."""
        title = self.page.title()
        self.context.close()
        assert not self.wrong
        assert "run" not in title.split()

    def __enter__(self):
        return self.page

    def __exit__(self, kind, *_):
        if kind is None:
            self.close()
        else:
            self.context.close()


def keep(page, name):
    """Take a screenshot if somebody wants to look at it."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder, f"{name}.png"), full_page=True)


def check_access(page, *without):
    """Run the rules of axe."""
    # Of what passes, one element per rule is enough: a report has many thousands.
    options = {
        "rules": {name: {"enabled": False} for name in without},
        "resultTypes": ["violations"],
    }
    found = Axe().run(page, options=options).response["violations"]
    assert not [(rule["id"], [node["html"] for node in rule["nodes"][:3]]) for rule in found]


def check_width(page):
    """Nothing makes the page itself scroll sideways."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# -- the explorer ----------------------------------------------------------------------------------


def write_job(folder):
    """Annotations and texts of 90 tasks with hostile names, and what ``aggregate`` writes."""
    truth = np.arange(90) % 3
    crowd = make_crowd(truth, n_annotators=8, annotations_per_instance=3, random_state=0)
    names = [*"abcdef", HOSTILE, IMAGE]
    cells = zip(crowd.instance, crowd.annotator, crowd.label, strict=True)
    rows = [(f"t{i}", names[r], CLASSES[c]) for i, r, c in cells]
    write_csv(folder / "A.csv", [("task", "worker", "label"), *rows])
    texts = [(f"t{i}", f"{HOSTILE} {IMAGE} text {i}\nsecond line") for i in range(90)]
    write_csv(folder / "texts.csv", [("task", "text"), *texts])
    done("aggregate", folder / "A.csv", "--out", folder / "labels")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    write_job(folder)
    return folder


@pytest.fixture
def job(written, tmp_path):
    return shutil.copytree(written, tmp_path / "job")


def start(job, *options):
    """Start the explorer as a user does; return the process and the address it prints."""
    command = [sys.executable, "-m", "manyhands", "explore", "labels", "--annotations", "A.csv"]
    process = subprocess.Popen(
        [*command, "--texts", "texts.csv", "--json", "--by", "anna", *options],
        cwd=job,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    printed = ""
    while "}" not in printed:
        line = process.stdout.readline()
        assert line, process.communicate()
        printed += line
    return process, json.loads(printed)["address"]


def stop(process, how=signal.SIGINT):
    process.send_signal(how)
    out, errors = process.communicate(timeout=60)
    return out, errors


@contextmanager
def served(job, **options):
    """Address of an explorer in this process, which starts faster."""
    texts = str(job / "texts.csv")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        open_desk(job / "labels", job / "A.csv", by="anna", texts=texts, **options) as desk,
    ):
        port = listener.getsockname()[1]
        config = uvicorn.Config(make_app(desk, "secret", port), log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{port}/?token=secret"
        server.should_exit = True
        thread.join()


@pytest.fixture
def explorer(job):
    with served(job) as address:
        yield address


def home_of(address):
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/"


def press(page, key):
    """Press a key once the page takes keys again: while an answer is on its way it ignores them."""
    page.wait_for_selector("html[aria-busy=false]")
    page.keyboard.press(key)


def decide(page, key):
    """Press a key, and wait until the next item is there."""
    before = page.locator("#item").inner_text()
    press(page, key)
    expect(page.locator("#item")).not_to_have_text(before)


def records(job):
    return read_corrections(job / "labels" / "corrections.jsonl")


def test_thirty_corrections_by_keyboard_survive_a_kill(browser, job):
    acknowledged = []
    process, address = start(job)
    watched = Watched(browser, home_of(address))
    with watched as page:
        page.goto(address)
        assert "token" not in page.url
        for k in range(15):
            task, key = page.locator("#item").inner_text(), "123"[k % 3]
            decide(page, key)
            acknowledged.append((task, sorted(CLASSES)[k % 3]))
        press(page, "1")  # On its way while the process dies.
        assert not watched.wrong
        stop(process, signal.SIGKILL)
        expect(page.locator("#trouble")).to_contain_text("nothing was saved")
        page.goto("about:blank")  # The page may still ask for figures.
        watched.wrong.clear()  # The browser says that nobody answers.
    with (job / "labels" / "corrections.jsonl").open("ab") as file:
        file.write(b'{"task": "t1", "label": "c')  # As a power failure leaves it.
    process, address = start(job)
    with Watched(browser, home_of(address)) as page:
        page.goto(address)
        expect(page.locator(".notes")).to_contain_text("1\u00a0note")
        for k in range(15, 30):
            task = page.locator("#item").inner_text()
            assert task not in dict(acknowledged)
            decide(page, "123"[k % 3])
            acknowledged.append((task, sorted(CLASSES)[k % 3]))
        keep(page, "explorer-thirty")
    out, errors = stop(process)
    assert process.returncode == 0, errors
    assert "reviewed labels are in labels/corrections.jsonl" in out
    assert "was cut off and has been removed" in errors
    found = [(record.task, record.label) for record in records(job)]
    assert len(found) in (30, 31)  # The one on its way may have arrived.
    assert [each for each in found if each in acknowledged] == acknowledged


def test_two_browsers_at_once_overwrite_nothing(browser, job, explorer):
    first, second = (Watched(browser, home_of(explorer)) for _ in range(2))
    for each in (first, second):
        each.page.goto(explorer)
    task = first.page.locator("#item").inner_text()
    assert second.page.locator("#item").inner_text() == task
    decide(first.page, "1")
    press(second.page, "2")
    alert = second.page.locator("#main [role=alert]")
    expect(alert).to_contain_text("Not saved: this item was changed")
    expect(second.page.locator("#item")).to_have_text(task)
    assert [(r.task, r.label) for r in records(job)] == [(task, sorted(CLASSES)[0])]
    keep(second.page, "explorer-conflict")
    assert len(second.wrong) == 1  # The browser's own line on an answer of 409.
    assert "409" in second.wrong.pop()
    decide(second.page, "2")  # Knowing what the other one said.
    assert [r.label for r in records(job)] == sorted(CLASSES)[:2]
    # Both at once, on whatever is shown.
    for k in range(8):
        one, other = (first, second) if k % 2 else (second, first)
        with (
            one.page.expect_response("**/decide"),
            other.page.expect_response("**/decide"),
        ):
            press(one.page, "3")
            press(other.page, "1")
        for each in (one, other):
            each.page.wait_for_timeout(100)
            each.page.goto(home_of(explorer))
    second.wrong, first.wrong = (
        [line for line in each.wrong if "409" not in line] for each in (second, first)
    )
    found = records(job)
    shown = Standing(found)
    assert len(found) >= 10
    for record in found[2:]:  # Nobody took a decision that somebody else had changed unseen.
        assert shown.version(record.task) == 1
    first.close()
    second.close()


@contextmanager
def other_origin(content):
    """Serve a page on another port of this machine."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


ATTACK = """<!doctype html><title>other</title><body><script>
const home = "%s", form = "row=0&version=0&now=0&code=1";
const type = {"Content-Type": "application/x-www-form-urlencoded"};
window.found = (async () => {
  const got = [];
  for (const path of ["", "item/0", "export/corrections.csv", "status"])
    for (const mode of ["cors", "no-cors"])
      got.push(await fetch(home + path, {mode, credentials: "include"})
        .then((answer) => answer.text(), () => ""));
  for (const mode of ["cors", "no-cors"])
    for (const path of ["decide", "undo"])
      got.push(await fetch(home + path,
        {method: "POST", mode, credentials: "include", headers: type, body: form})
        .then((answer) => answer.text(), () => ""));
  const frame = document.createElement("iframe");
  frame.src = home;
  document.body.append(frame);
  await new Promise((done) => { frame.onload = done; setTimeout(done, 3000); });
  try { got.push(frame.contentDocument.body.textContent); } catch { got.push(""); }
  const image = new Image();
  got.push(await new Promise((done) => {
    image.onload = () => done("image");
    image.onerror = () => done("");
    image.src = home + "image/0";
  }));
  return got.join("");
})();
</script><form method="post" action="%sdecide"><input name="row" value="0">
<input name="version" value="0"><input name="now" value="0"><input name="code" value="1"></form>"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_neither_reads_nor_writes(browser, job, explorer, host):
    context = browser.new_context()
    page = context.new_page()
    page.goto(explorer)
    expect(page.locator("#item")).to_be_visible()
    home = home_of(explorer)
    with other_origin(ATTACK % (home, home)) as port:
        page.goto(f"http://{host}:{port}/")
        assert page.evaluate("window.found") == ""
        page.evaluate("document.forms[0].submit()")  # As a click on the page would.
        page.wait_for_url(f"{home}decide")
        assert page.locator("body").inner_text().startswith("refused")
    assert not records(job)
    page.goto(home)  # Our own page is served as before.
    expect(page.locator("#item")).to_be_visible()
    decide(page, "1")
    assert len(records(job)) == 1
    context.close()


def test_a_stranger_without_the_token_sees_nothing(browser, explorer):
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(home_of(explorer))
    assert answer.status == 403
    assert "t1" not in page.content()
    context.close()


def test_every_key_does_what_it_says(browser, job, explorer):
    with Watched(browser, home_of(explorer)) as page:
        page.goto(explorer)
        first = page.locator("#item").inner_text()
        press(page, "n")
        expect(page.locator("#item")).not_to_have_text(first)
        press(page, "p")
        expect(page.locator("#item")).to_have_text(first)
        decide(page, "Enter")
        decide(page, "s")
        press(page, "g")
        expect(page.get_by_label("as a gold question")).to_be_checked()
        gold = page.locator("#item").inner_text()
        decide(page, "2")
        expect(page.locator("#live")).to_contain_text(f"Saved: {gold} is")
        press(page, "u")
        expect(page.locator("#item")).to_have_text(gold)
        expect(page.locator("#item")).to_be_focused()
        actions = [record.action for record in records(job)]
        assert actions == ["confirm", "skip", "gold", "undo"]
        # With a control, or with the keys switched off, letters are letters.
        page.get_by_label("Keys").uncheck()
        press(page, "s")
        page.get_by_label("Keys").check()
        page.keyboard.press("Control+s")
        page.locator("#f-order").focus()
        press(page, "s")
        page.wait_for_timeout(300)
        assert len(records(job)) == 4


def test_items_of_an_action_are_listed_and_reviewed_by_keyboard(browser, job, explorer):
    with Watched(browser, home_of(explorer)) as page:
        page.goto(explorer)
        link = page.locator("#main .note a", has_text="collect")
        count = int(link.inner_text().split("\u00a0")[-1])
        page.goto(home_of(explorer) + "list?state=all")
        press(page, "n")
        expect(page.locator(".pager span")).to_have_text("page 2 of 2")
        press(page, "p")
        expect(page.locator(".pager span")).to_have_text("page 1 of 2")
        page.locator("#f-action").select_option("collect more")
        expect(page.locator("#main h1")).to_have_text(f"{count}\u00a0items")
        page.locator("#main").focus()
        press(page, "Enter")
        expect(page.locator(".pager span")).to_have_text(f"1 of {count}")
        assert not records(job)  # To open an item is no confirmation.


def test_everything_can_be_reached_with_tab_alone(browser, job, explorer):
    with Watched(browser, home_of(explorer)) as page:
        page.goto(explorer)
        first = page.locator("#item").inner_text()
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.value") == "skip":
                break
        page.keyboard.press("Enter")
        expect(page.locator("#item")).not_to_have_text(first)
        assert [record.action for record in records(job)] == ["skip"]


def test_filters_and_cells_lead_to_their_items(browser, explorer):
    with Watched(browser, home_of(explorer)) as page:
        page.goto(explorer)
        page.locator("#f-given").focus()
        page.locator("#f-given").select_option("1")
        page.wait_for_url("**given=1**")
        expect(page.locator(".votes td", has_text="cat").first).to_be_visible()
        expect(page.locator("#f-given")).to_be_focused()
        page.get_by_role("link", name="Annotators").click()
        expect(page.locator("#main h1")).to_have_text("Annotators")
        cell = page.locator(".heat tbody tr").nth(1).locator("td").nth(2).locator("a")
        count = int(cell.inner_text())
        cell.click()
        page.wait_for_url("**label=1&given=2**")
        shown = page.locator(".pager span").inner_text()
        assert shown.startswith("1 of ")
        assert 1 <= int(shown.split()[-1]) <= count
        page.go_back()
        expect(page.locator("#main h1")).to_have_text("Annotators")
        page.locator(".people a", has_text="<script>").click()
        page.wait_for_url("**annotator=**")
        expect(page.locator(".votes tbody")).to_contain_text("<script>")


def test_the_page_works_without_scripts(browser, job, explorer):
    with Watched(browser, home_of(explorer), java_script_enabled=False) as page:
        page.goto(explorer)
        first = page.locator("#item").inner_text()
        page.locator(".classes button").first.click()
        expect(page.locator("#item")).not_to_have_text(first)
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#item")).to_have_text(first)
        assert [record.action for record in records(job)][1:] == ["undo"]
        page.locator("#f-state").select_option("all")
        page.get_by_role("button", name="Show").click()
        assert "state=all" in page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["1280", "420"])
def test_the_explorer_is_accessible_and_fits(browser, explorer, scheme, size):
    home = home_of(explorer)
    with Watched(browser, home, viewport=size, color_scheme=scheme) as page:
        page.goto(explorer)
        decide(page, "1")
        for name, path in (
            ("review", ""), ("people", "people"), ("random", "?order=random"),
            ("next", "next"), ("sheet", "sheet/0"), ("list", "list?state=all&page=2"),
        ):  # fmt: skip
            page.goto(home + path)
            if name == "next":  # It fetches its second half by itself.
                expect(page.locator("#ahead")).to_contain_text("runs simulated")
            expect(page.locator("#main h1")).to_be_visible()
            if name == "list":  # No half of the page is empty beside a narrow table.
                table, main = (page.locator(each).bounding_box() for each in (".chosen", "#main"))
                assert table["width"] >= main["width"] - 2
            check_width(page)
            check_access(page)
            keep(page, f"explorer-{name}-{size['width']}-{scheme}")


def test_the_first_screen_of_a_phone_shows_the_item_and_its_answers(browser, explorer):
    with Watched(browser, home_of(explorer), viewport=PHONE) as page:
        page.goto(explorer)
        assert page.locator("#item").bounding_box()["y"] < 200
        last = page.locator(".options li").last.bounding_box()
        assert last["y"] + last["height"] <= PHONE["height"]
        expect(page.locator("#f-given")).to_be_hidden()
        page.locator(".choose > summary").click()
        page.locator("#f-given").focus()
        page.locator("#f-given").select_option("1")
        page.wait_for_url("**given=1**")
        expect(page.locator("#f-given")).to_be_focused()  # Filters stay unfolded for the next one.
        page.locator("#f-order").select_option("random")
        page.wait_for_url("**order=random**")
        before = page.locator("#item").inner_text()
        page.locator(".options button").first.click()
        expect(page.locator("#item")).not_to_have_text(before)
        expect(page.locator("#f-given")).to_be_hidden()
        expect(page.locator(".choose > summary")).to_contain_text("(filtered)")
    with Watched(browser, home_of(explorer)) as page:  # Where there is room, nothing is folded.
        page.goto(explorer)
        expect(page.locator("#f-given")).to_be_visible()
        expect(page.locator(".choose > summary")).to_be_hidden()


def test_an_id_is_found_from_the_review_and_from_the_list(browser, explorer):
    with Watched(browser, home_of(explorer)) as page:
        page.goto(explorer)
        for wanted, path in (("t7", "/"), ("t31", "/list")):
            page.goto(home_of(explorer).rstrip("/") + path)
            page.get_by_label("Go to item").fill(wanted)
            page.keyboard.press("Enter")
            expect(page.locator("#item")).to_have_text(wanted)


def test_annotators_lead_to_their_sheets_and_to_the_items_on_it(browser, explorer):
    with Watched(browser, home_of(explorer)) as page:
        page.goto(explorer)
        page.get_by_role("link", name="Annotators").click()
        page.get_by_role("link", name="Teaching sheet of b", exact=True).click()
        expect(page.locator("#main h1")).to_have_text("What to teach b")
        task = page.locator(".shown a").first.inner_text()
        page.locator(".shown a").first.click()
        expect(page.locator("#item")).to_contain_text(task)


def test_downloads_hold_the_corrections(browser, explorer):
    with Watched(browser, home_of(explorer)) as page:
        page.goto(explorer)
        task = page.locator("#item").inner_text()
        decide(page, "2")
        page.get_by_text("Download", exact=True).click()
        with page.expect_download() as download:
            page.get_by_role("link", name="Corrections (CSV)").click()
        assert f"{task},cat," in Path(download.value.path()).read_text()
        assert download.value.suggested_filename == "corrections.csv"


# -- the explorer of sets --------------------------------------------------------------------------

TOPICS = ["=cmd()", "__proto__", HOSTILE, *(f"topic {k}" for k in range(9))]
SETS = ("--multilabel", ";", "--none", "empty")


@pytest.fixture(scope="module")
def written_sets(tmp_path_factory):
    """Answers that are sets of twelve options with hostile names, and what ``aggregate`` writes."""
    folder = tmp_path_factory.mktemp("sets")
    rng = np.random.default_rng(0)
    truth = rng.random((40, len(TOPICS))) < 0.35
    rows = []
    for i, holds in enumerate(truth):
        for name in rng.choice(["anna", "__proto__", HOSTILE, IMAGE], 3, replace=False):
            given = holds ^ (rng.random(len(TOPICS)) < 0.05)
            rows.append((f"t{i}", name, ";".join(np.array(TOPICS, dtype=object)[given])))
    write_csv(folder / "A.csv", [("task", "worker", "labels"), *rows])
    texts = [(f"t{i}", f"{HOSTILE} {IMAGE} text {i}\nsecond line") for i in range(40)]
    write_csv(folder / "texts.csv", [("task", "text"), *texts])
    done("aggregate", folder / "A.csv", *SETS, "--out", folder / "labels")
    return folder


@pytest.fixture
def sets_job(written_sets, tmp_path):
    return shutil.copytree(written_sets, tmp_path / "job")


@pytest.fixture
def explorer_of_sets(sets_job):
    with served(sets_job, sets=True, multilabel=";", none="empty") as address:
        yield address


def boxes(page):
    """Names of the options that are ticked."""
    return page.locator(".boxes li", has=page.locator(":checked")).locator(".of").all_inner_texts()


def test_a_set_is_ticked_saved_undone_and_downloaded_by_keyboard(
    browser, sets_job, explorer_of_sets
):
    with Watched(browser, home_of(explorer_of_sets)) as page:
        page.goto(explorer_of_sets)
        task, before = page.locator("#item").inner_text(), boxes(page)
        names = page.locator(".boxes .of").all_inner_texts()
        assert sorted(names) == sorted(TOPICS)
        for key in "12w":
            press(page, key)
        press(page, "/")  # There are more than nine options.
        expect(page.locator("#find")).to_be_focused()
        page.keyboard.type(names[11])
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        wanted = sorted({*before} ^ {names[0], names[1], names[10], names[11]})
        assert sorted(boxes(page)) == wanted
        page.get_by_role("link", name="Review", exact=True).focus()  # A key is for the page alone.
        page.locator("#main").focus()
        decide(page, "Enter")
        expect(page.locator("#live")).to_contain_text(f"Saved: {task} is")
        (record,) = records(sets_job)
        assert (record.task, sorted(record.label), record.action) == (task, wanted, "correct")
        press(page, "u")
        expect(page.locator("#item")).to_have_text(task)
        assert boxes(page) == before
        press(page, "1")
        decide(page, "Enter")
        # It is there in another page, after a reload, and in the download.
        page.goto(home_of(explorer_of_sets) + "?state=done")
        expect(page.locator("#item")).to_have_text(task)
        page.reload()
        last = sorted({*before} ^ {names[0]})
        assert sorted(boxes(page)) == last
        page.get_by_text("Download", exact=True).click()
        with page.expect_download() as download:
            page.get_by_role("link", name="Reviewed sets (CSV)").click()
        text = Path(download.value.path()).read_text(encoding="utf-8-sig")
        (row,) = csv.DictReader(text.splitlines(keepends=True))
        assert row["task"] == task
        assert row["labels"].lstrip("'") == ";".join(name for name in names if name in last)
        assert not row["labels"].startswith("=")


def test_corrected_sets_survive_a_kill(browser, sets_job):
    process, address = start(sets_job, *SETS)
    watched, acknowledged = Watched(browser, home_of(address)), {}
    with watched as page:
        page.goto(address)
        for key in "123456":
            task = page.locator("#item").inner_text()
            press(page, key)
            acknowledged[task] = boxes(page)
            decide(page, "Enter")
        stop(process, signal.SIGKILL)
        page.goto("about:blank")
        watched.wrong.clear()
    assert {r.task: sorted(r.label) for r in records(sets_job)} == {
        task: sorted(names) for task, names in acknowledged.items()
    }
    process, address = start(sets_job, *SETS)
    with Watched(browser, home_of(address)) as page:
        page.goto(address)
        assert page.locator("#item").inner_text() not in acknowledged
        page.goto(home_of(address) + "list?state=done")
        expect(page.locator(".chosen tbody tr")).to_have_count(6)
        for task, names in acknowledged.items():
            page.goto(home_of(address) + f"item/{task[1:]}?state=all")
            assert boxes(page) == names
    out, errors = stop(process)
    assert process.returncode == 0, errors
    assert "6 reviewed sets are in labels/corrections.jsonl" in out


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["1280", "420"])
def test_the_explorer_of_sets_is_accessible_and_fits(browser, explorer_of_sets, scheme, size):
    home = home_of(explorer_of_sets)
    with Watched(browser, home, viewport=size, color_scheme=scheme) as page:
        page.goto(explorer_of_sets)
        press(page, "1")
        decide(page, "Enter")
        for name, path in (("review", ""), ("done", "?state=done"), ("list", "list?state=all")):
            page.goto(home + path)
            expect(page.locator("#main h1")).to_be_visible()
            check_width(page)
            check_access(page)
            keep(page, f"explorer-sets-{name}-{size['width']}-{scheme}")


# -- the report ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Address of a report on 20 annotators with hostile names, with gold and texts."""
    folder = tmp_path_factory.mktemp("report")
    truth = np.arange(80) % 3
    crowd = make_crowd(truth, n_annotators=20, annotations_per_instance=4, random_state=0)
    names = [*(f"w{r}" for r in range(18)), HOSTILE, IMAGE]
    cells = zip(crowd.instance, crowd.annotator, crowd.label, strict=True)
    rows = [(f"t{i}", names[r], CLASSES[c]) for i, r, c in cells]
    write_csv(folder / "A.csv", [("task", "worker", "label"), *rows])
    gold = [(f"t{i}", CLASSES[c]) for i, c in enumerate(truth[:40])]
    write_csv(folder / "gold.csv", [("task", "label"), *gold])
    texts = [(f"t{i}", f"{HOSTILE} {IMAGE} text {i}") for i in range(80)]
    write_csv(folder / "texts.csv", [("task", "text"), *texts])
    done("aggregate", folder / "A.csv", "--gold", folder / "gold.csv", "--out", folder / "labels")
    done("report", folder / "labels", "--texts", folder / "texts.csv")
    return (folder / "labels" / "report.html").as_uri()


@pytest.fixture(scope="module")
def large_report(tmp_path_factory):
    """Address of the report on 100 annotators and 10,000 instances."""
    path = tmp_path_factory.mktemp("large") / "report.html"
    path.write_text(render_report(*hundred_times_ten_thousand()), encoding="utf-8")
    return path.as_uri()


def unfold(page):
    """Open all questions of a report."""
    page.get_by_role("button", name="open all").click()


def numbers(table, column):
    """Numbers of a column of the rows, as they stand."""
    cells = table.locator(f"tbody tr td:nth-child({column})").all_text_contents()
    found = [cell.strip("<>% \u202f").replace("\u202f", "").replace("%", "") for cell in cells]
    return [float(cell.replace(",", "")) for cell in found if cell not in ("", "\u2013")]


def test_tables_of_the_report_can_be_sorted_filtered_and_saved(browser, report):
    with Watched(browser, report) as page:
        page.goto(report)
        table = page.locator("#table-annotators")
        expect(table).not_to_be_visible()
        unfold(page)
        heads = table.locator("thead th")
        column = 1 + [heads.nth(k).inner_text() for k in range(heads.count())].index("Annotations")
        before = numbers(table, column)
        for order in (sorted(before), sorted(before, reverse=True)):
            heads.nth(column - 1).get_by_role("button").click()
            assert numbers(table, column) == order
        assert before not in (sorted(before), sorted(before, reverse=True))
        expect(heads.nth(column - 1)).to_have_attribute("aria-sort", "descending")
        field = page.get_by_label("Filter: " + table.locator("caption").inner_text())
        field.fill("w1")
        shown = [row for row in table.locator("tbody tr").all() if row.is_visible()]
        assert {row.locator("th").inner_text() for row in shown} == {
            "w1",
            *(f"w{r}" for r in range(10, 18)),
        }
        field.fill("")
        tools = page.locator(".tools", has=field)
        with page.expect_download() as download:
            tools.get_by_role("button", name="CSV").click()
        saved = Path(download.value.path()).read_text(encoding="utf-8-sig")
        assert len(saved.splitlines()) == 21
        assert HOSTILE in saved


def test_commands_of_the_report_break_between_words_and_are_copied_as_they_stand(browser, report):
    """A browser would also break "-n" and "--out" after their hyphens."""
    text = Path(urlsplit(report).path).read_text("utf-8")
    given = re.findall('<p class="command"><code>(.*?)</code>', text)
    with Watched(browser, report, viewport=PHONE) as page:
        page.goto(report)
        unfold(page)
        commands = page.locator(".command code")
        assert commands.all_text_contents() == list(map(html.unescape, given))
        options = commands.locator("span")
        heights = options.evaluate_all("all => all.map(each => each.getClientRects().length)")
        assert set(heights) == {1}
        lines = commands.evaluate_all(
            "all => Math.max(...all.map(each => each.getClientRects()[0].height))"
        )
        assert lines > 1.5 * options.first.bounding_box()["height"]  # One is broken.


def test_a_cell_of_the_report_opens_its_items(browser, report):
    with Watched(browser, report) as page:
        page.goto(report)
        unfold(page)
        link = page.locator("a[href^='#cell-']").first
        link.scroll_into_view_if_needed()
        link.click()
        viewer = page.locator("dialog#viewer")
        expect(viewer).to_be_visible()
        expect(viewer).to_contain_text(f"{HOSTILE} {IMAGE} text")
        keep(page, "report-cell")
        page.keyboard.press("Escape")
        expect(viewer).not_to_be_visible()
        link.focus()
        page.keyboard.press("Enter")
        expect(viewer).to_be_visible()


def test_a_cell_of_one_annotators_matrix_opens_their_mistakes(browser, report):
    with Watched(browser, report) as page:
        page.goto(report)
        unfold(page)
        part = page.locator(".matrices details", has=page.locator("[data-at]")).first
        part.locator("summary").click()
        cell = part.locator(".heat button.cell").first
        cell.focus()
        page.keyboard.press("Enter")
        viewer = page.locator("dialog#viewer")
        expect(viewer.locator("h2")).to_contain_text(" labelled ")
        expect(viewer).to_contain_text(f"{HOSTILE} {IMAGE} text")


def test_the_report_can_be_read_and_followed_without_scripts(browser, report):
    with Watched(browser, report, java_script_enabled=False) as page:
        page.goto(report)
        links = page.locator("a[href^='#']")
        targets = {links.nth(k).get_attribute("href")[1:] for k in range(links.count())}
        ids = {each.get_attribute("id") for each in page.locator("[id]").all()}
        assert targets
        assert targets <= ids
        last = page.locator("#table-annotators tbody tr").last
        expect(last).not_to_be_visible()
        page.goto(f"{report}#table-annotators")  # A link unfolds what it leads to.
        expect(last).to_be_visible()


def test_a_question_is_unfolded_by_keyboard_and_by_links_to_its_evidence(browser, report):
    with Watched(browser, report) as page:
        page.goto(report)
        question = page.locator("details.question", has=page.locator("#agreement"))
        question.locator("summary").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#agreement")).to_be_visible()
        page.keyboard.press("Space")
        expect(page.locator("#agreement")).not_to_be_visible()
        link = page.locator(".step .what a").first
        target = page.locator(link.get_attribute("href"))
        expect(target).not_to_be_visible()
        link.click()
        expect(target).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["1280", "420"])
def test_the_report_is_accessible_and_fits(browser, report, scheme, size):
    with Watched(browser, report, viewport=size, color_scheme=scheme) as page:
        page.goto(report)
        keep(page, f"report-{size['width']}-{scheme}")
        check_width(page)
        rows = "[...document.querySelectorAll('.list tbody tr')]"
        assert page.evaluate(f"Math.max(...{rows}.map((row) => row.offsetHeight))") < 200
        page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
        check_access(page)


@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_a_large_report_is_printed_on_six_pages_at_most(browser, large_report, paper):
    with Watched(browser, large_report) as page:
        page.goto(large_report)
        content = page.pdf(format=paper)
        if folder := os.environ.get("SCREENSHOTS"):
            Path(folder, f"report-{paper}.pdf").write_bytes(content)
        assert 4 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", content)) <= 6


def test_every_cell_of_the_matrix_of_pairs_opens_where_two_differ(browser, large_report):
    with Watched(browser, large_report) as page:
        page.goto(large_report)
        unfold(page)
        matrix = page.locator("#table-agreement-matrix")
        always = matrix.locator("tbody td.v100").count()
        assert always < 20
        assert matrix.locator("tbody td a, tbody td button").count() == 24 * 23 - always
        cell = matrix.locator("tbody td button").last
        cell.focus()
        page.keyboard.press("Enter")
        viewer = page.locator("dialog#viewer")
        expect(viewer.locator("h2")).to_contain_text(" differ")
        expect(viewer).to_contain_text("instance-")
        page.keyboard.press("Escape")
        with page.expect_download() as download:
            tools = page.locator(".tools:has(+ .scroll #table-agreement-matrix)")
            tools.get_by_role("button", name="CSV").click()
        lines = Path(download.value.path()).read_text(encoding="utf-8-sig").splitlines()
        assert len(lines) == 25
        assert {line.count(",") for line in lines} == {48, 48 + 24}  # Heads hold commas.
