"""What every command writes of names that a spreadsheet, a page or a terminal would run."""

import csv
import json
import re
import zipfile

import pytest

from manyhands.io.csv_files import is_formula
from tests.cli.conftest import done, run, write_csv
from tests.report.conftest import Page

EVIL = [
    "=cmd()|'/C calc'!A1",
    "</script><script>alert(1)</script>",
    "__proto__",
    "@SUM(A1)",
    "+1+2",
]
TASKS = [f"{name}{i}" for i in range(4) for name in EVIL]
WORKERS = ["=HYPERLINK(1)", "constructor", "<img/onerror>", "-2+3"]
HEADER = ("task", "worker", "label", "=note")


@pytest.fixture
def evil(home):
    """Tables of answers, of sets of labels and of comparisons; every name in them is an attack."""
    rows = [(task, who, EVIL[(i + (k == i % 5)) % 3]) for i, task in enumerate(TASKS)
            for k, who in enumerate(WORKERS)]  # fmt: skip
    write_csv(home / "answers.csv", [HEADER, *((*row, EVIL[0]) for row in rows)])
    sets = [
        (task, who, f"{label};{EVIL[(i // 4) % 3]}") for i, (task, who, label) in enumerate(rows)
    ]
    write_csv(home / "sets.csv", [("task", "worker", "labels"), *sets])
    pairs = [("left", "right", "winner", "worker")]
    pairs += [(a, b, a if (i + k) % 4 else b, who) for i, a in enumerate(EVIL)
              for b in EVIL[i + 1 :] for k, who in enumerate(WORKERS)]  # fmt: skip
    write_csv(home / "pairs.csv", pairs)
    people = [
        ("worker", "group"),
        *((who, "person" if k else "llm") for k, who in enumerate(WORKERS)),
    ]
    write_csv(home / "people.csv", people)
    return home


def check(path):
    """Refuse what would run in a file, by what its suffix says."""
    if path.suffix in (".csv", ".tsv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
        assert [cell for row in rows for cell in row if is_formula(cell) and cell[0] != "'"] == []
        assert {len(row) for row in rows} == {len(rows[0])}
    elif path.suffix == ".xlsx":
        with zipfile.ZipFile(path) as book:
            sheets = [name for name in book.namelist() if name.startswith("xl/worksheets/")]
            assert sheets
            assert not [name for name in sheets if b"<f>" in book.read(name)]
    elif path.suffix == ".jsonl":
        for line in path.read_text(encoding="utf-8").splitlines():
            json.loads(line)
    elif path.suffix == ".json":
        json.loads(path.read_text(encoding="utf-8"))
    elif path.suffix == ".html":
        html = path.read_text(encoding="utf-8")
        assert not re.search(r"<script>alert|<img", html)
        Page(html).check_harmless()
    else:
        assert path.suffix in (".safetensors", ".md", ".parquet"), path


COMMANDS = {
    "aggregate": ["aggregate answers.csv --out {0} --excel"],
    "aggregate sets": ["aggregate sets.csv --multilabel ; --out {0}"],
    "aggregate families": ["aggregate answers.csv --out {0} --groups people.csv"],
    "rank": ["rank pairs.csv --out {0} --next 3"],
    "judges": ["judges answers.csv --groups people.csv --people person --out {0}/judges.csv"],
    "review": ["review answers.csv --out {0}/queue.csv", "review answers.csv --out {0}/q.xlsx"],
    "annotators": ["annotators answers.csv --out {0}/people.tsv"],
    "next": ["next answers.csv --out {0}/next.csv"],
    "convert": [
        "convert answers.csv {0}/a.csv",
        "convert answers.csv {0}/a.xlsx",
        "convert answers.csv {0}/a.tsv",
        "convert answers.csv {0}/ls.json --to label-studio",
        "convert answers.csv {0}/ar.json --to argilla",
    ],
    "convert labels": [
        "aggregate answers.csv --out {0}",
        "convert answers.csv {0}/l.xlsx --labels {0}/labels.csv",
        "convert answers.csv {0}/p.jsonl --labels {0}/labels.csv --to prodigy",
        "convert answers.csv {0}/d.jsonl --labels {0}/labels.csv --to doccano",
        "convert answers.csv {0}/d --labels {0}/labels.csv --to datasets",
    ],
    "convert sets": [
        "convert sets.csv {0}/s.xlsx --multilabel ;",
        "convert sets.csv {0}/s.json --multilabel ; --to label-studio",
    ],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_written_runs_nowhere(evil, name):
    for command in COMMANDS[name]:
        output = done(*command.format("out").split(" ")).output
        assert "\x1b" not in output
    written = [path for path in (evil / "out").rglob("*") if path.is_file()]
    assert written
    for path in written:
        check(path)


FULL = {
    "csv": "convert answers.csv out/a.csv",
    "xlsx": "convert answers.csv out/a.xlsx",
    "parquet": "convert answers.csv out/a.parquet",
    "tool": "convert answers.csv out/a.json --to label-studio",
    "data set": "convert answers.csv out/a --to datasets",
    "labels": "aggregate answers.csv --out out",
    "queue": "review answers.csv --out out/queue.jsonl",
    "ranking": "rank pairs.csv --out out",
    "store": "ingest answers.csv --out out/store",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("size", [0, 700])
def test_a_full_disk_leaves_what_was_there(evil, name, size):
    resource = pytest.importorskip("resource", reason="this system limits no files")
    command = FULL[name].split()
    (evil / "out").mkdir()
    if name != "store":  # Which is made once.
        done(*command)
    before = contents(evil / "out")
    for table, row in (("answers.csv", "new,w,__proto__,"), ("pairs.csv", "new,__proto__,new,w")):
        with (evil / table).open("a") as file:
            file.write(f"{row}\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        ran = run(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ran.exit_code == 4, ran.output
    assert "cannot write" in ran.stderr
    now = contents(evil / "out")
    assert now == before or (name == "store" and "store/manifest.json" not in now)
    done(*command)
    after = contents(evil / "out")
    assert after != before
    assert not [path for path in after if path.endswith((".part", ".lock"))]


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
