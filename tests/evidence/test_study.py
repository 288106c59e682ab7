"""The harness of benchmarks: what is measured once and what anew, and what a page is made of."""

import json
import os
import signal
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from evidence.study import Part, Study, apart, grid, of_parts, of_tables, read, spread, table, where

PAGE = """# Squares

Made on {date}, manyhands {version}; {n} numbers, {mean:.1f} on average.

## All

{all}

## Roots

The mean root is {root:.2f}.
"""


def square(n, power=2, folder=None):
    if folder is not None:
        calls, killed = Path(folder, "calls"), Path(folder, "killed")
        calls.write_text(f"{calls.read_text() if calls.exists() else ''}{n}\n")
        if n == 3 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return {"figure": float(n**power)}


def values(records):
    found = {"n": len(records), "mean": sum(r["figure"] for r in records) / len(records)}
    found["all"] = table(["n", "figure"], [[str(r["n"]), str(r["figure"])] for r in records])
    roots = [r["root"] for r in records if "root" in r]
    return found | ({"root": sum(roots) / len(roots)} if roots else {})


@pytest.fixture
def study(tmp_path):
    (tmp_path / "squares.md").write_text(PAGE)
    return Study(
        str(tmp_path / "squares.py"),
        cells=lambda: ({"n": n} for n in range(5)),
        measure=square,
        page=values,
    )


def figures(path):
    return [(r["n"], r["figure"]) for r in read(path)]


def test_a_killed_run_goes_on_where_it_stopped(study, tmp_path):
    folder, path = str(tmp_path), tmp_path / "records.jsonl"
    cells = [{"n": n, "folder": folder} for n in range(5)]
    child = get_context("fork").Process(target=study.run, args=(path, cells))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert [n for n, _ in figures(path)] == [0, 1, 2]
    study.run(path, cells)
    assert [n for n, _ in figures(path)] == [0, 1, 2, 3, 4]
    assert (tmp_path / "calls").read_text().split() == ["0", "1", "2", "3", "3", "4"]


def test_what_is_recorded_is_not_measured_again(study, tmp_path):
    path = tmp_path / "records.jsonl"
    assert len(study.run(path, study.planned())) == 5
    refuses = replace(study, measure=lambda **cell: pytest.fail("measured again"))
    assert refuses.run(path, study.planned()) == []


def test_a_changed_cell_is_measured_anew(study, tmp_path):
    path = tmp_path / "records.jsonl"
    study.run(path, [{"n": 3, "power": 2}])
    study.run(path, [{"n": 3, "power": 3}, {"power": 2, "n": 3}])
    assert figures(path) == [(3, 9.0), (3, 27.0)]


def test_a_cell_is_measured_anew_if_its_data_have_changed(study, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHANDS_DATA", str(tmp_path / "home"))
    path = tmp_path / "records.jsonl"
    own = replace(study, data=lambda cell: [cell["n"]], measure=lambda n: {"figure": 1.0})
    for number, name in enumerate(("one", "two")):
        (tmp_path / "home" / name).mkdir(parents=True)
        (tmp_path / "home" / name / "labels.csv").write_text(f"a,{number}")
    cells = [{"n": "one"}, {"n": "two"}]
    own.run(path, [*cells, {"n": "one"}], again=True)
    assert [r["n"] for r in read(path)] == ["one", "two"]
    assert len({r["data"] for r in read(path)}) == 2
    assert list(own.missing(cells, read(path))) == []
    changed = [r | {"data": "earlier"} if r["n"] == "two" else r for r in read(path)]
    assert list(own.missing(cells, changed)) == [{"n": "two"}]


@pytest.mark.parametrize("repeats", [False, True])
def test_a_page_counts_a_cell_that_is_measured_again_once(study, tmp_path, repeats):
    path = tmp_path / "records.jsonl"
    study.run(path, study.planned())
    other = replace(study, measure=lambda n: {"figure": -1.0}, repeats=repeats)
    other.run(path, [{"n": 2}, {"n": 7}], again=True)
    before = [(0, 0.0), (1, 1.0), (2, 4.0), (3, 9.0), (4, 16.0)]
    replaced = [*before, (2, -1.0)] if repeats else [*before[:2], (2, -1.0), *before[3:]]
    assert figures(path) == [*replaced, (7, -1.0)]


def test_a_record_says_when_and_by_which_code(study, tmp_path):
    (record,) = study.run(tmp_path / "records.jsonl", [{"n": 2}])
    assert record["date"].count("-") == 2
    assert {"version", "commit", "seconds"} < set(record)


def test_records_of_several_processes_are_those_of_one(study, tmp_path):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    study.run(one, study.planned())
    study.run(two, study.planned(), jobs=2)
    assert figures(one) == figures(two)


def test_no_cell_is_started_later(study, tmp_path):
    assert study.run(tmp_path / "records.jsonl", study.planned(), minutes=0) == []
    assert study.run(tmp_path / "records.jsonl", study.planned(), jobs=2, minutes=0) == []


def test_parts_words_and_seeds_choose_cells(study):
    parts = {
        "few": lambda seeds: ({"set": "a", "seed": seed} for seed in seeds),
        "more": lambda seeds: ({"set": name, "seed": seed} for name in "ab" for seed in seeds),
    }
    own = replace(study, cells=parts, seeds=range(1, 3))
    assert len(own.planned()) == 4  # Those of both parts are there once.
    assert len(own.planned(["few"])) == 2
    assert own.planned(["more", "b"], seeds=1) == [{"set": "b", "seed": 1}]


def test_the_page_is_made_from_records_alone(study, tmp_path):
    path, out = tmp_path / "records.jsonl", tmp_path / "squares_page.md"
    study.run(path, study.planned())
    text = study.text(read(path), fresh=True)
    assert "5 numbers, 6.0 on average" in text
    assert "| n | figure |\n|---|---|\n| 0 | 0.0 |" in text
    assert "Roots" not in text  # There are no figures for it, and it was never written.
    refuses = replace(study, measure=lambda **cell: pytest.fail("measured"))
    options = ["--records", str(path), "--out", str(out)]
    refuses.main(options)
    assert out.read_text() == text


def test_sections_without_figures_and_dates_stay_as_they_are(study, tmp_path):
    path = tmp_path / "records.jsonl"
    records = study.run(path, study.planned())
    with_roots = [*records, {"n": 4, "figure": 0.0, "root": 2.0}]
    before = study.text(with_roots, fresh=True).replace(records[0]["date"], "2026-01-02")
    after = study.text(records, before)
    assert "The mean root is 2.00." in after
    assert "Made on 2026-01-02" in after
    assert "2026-01-02" not in study.text(records, before, fresh=True)


def test_the_command_measures_and_writes(study, tmp_path):
    path, out = tmp_path / "records.jsonl", tmp_path / "out.md"
    study.main(["--records", str(path), "--out", str(out), "--only", "3", "4"])
    assert figures(path) == [(3, 9.0), (4, 16.0)]
    assert "2 numbers, 12.5 on average" in out.read_text()


def test_what_fails_or_takes_too_long_in_its_own_process_says_so():
    assert apart(["-c", "import json; print('x'); print(json.dumps({'a': 1}))"]) == {"a": 1}
    assert apart(["-c", "raise ValueError('no')"]) == {"failed": "ValueError: no"}
    assert apart(["-c", "while True: pass"], limit=0.2) == {"failed": "did not finish in 0 s"}


def test_a_cell_that_is_measured_alone_is_given_to_the_module(study, monkeypatch):
    called = []
    stand_in = lambda *given: called.append(given) or {"figure": 1}  # noqa: E731
    monkeypatch.setattr("evidence.study.apart", stand_in)
    record = replace(study, alone=5.0).record({"n": 2})
    ((command, limit),) = called
    assert command[1].endswith(".squares")
    assert json.loads(command[-1]) == {"n": 2}
    assert (record["figure"], limit) == (1, 5.0)


@pytest.mark.parametrize(
    ("given", "options", "expected"),
    [
        ([], {}, "–"),
        ([0.5], {"scale": 100}, "50.0"),
        ([1, 3], {"digits": 2, "n": True}, "2.00 ± 1.41 (2)"),
        ([1, 3], {"sign": True}, "+2.0 ± 1.4"),
    ],
)
def test_spread(given, options, expected):
    assert spread(given, **options) == expected


def test_where():
    records = [{"a": 1, "b": 2}, {"a": 1}]
    assert where(records, a=1, b=2) == records[:1]


def test_parts_have_cells_measures_and_values_of_their_own(tmp_path):
    (tmp_path / "parts.md").write_text("{sum} on {add_up_date}\n\n## Lines\n\n{lines}\n")
    adding = Part(
        lambda a, b: {"sum": a + b},
        lambda records: {"sum": sum(r["sum"] for r in records)},
        lambda: grid(a=(1, 2), b=(10, 20)),
    )
    study = of_parts(str(tmp_path / "parts.py"), {"add-up": adding})
    assert study.planned()[1] == {"part": "add-up", "a": 1, "b": 20}
    records = study.run(tmp_path / "records.jsonl", study.planned())
    assert study.text(records, fresh=True) == f"66 on {records[0]['date']}\n\n"
    lines = of_tables(str(tmp_path / "parts.py"), {"lines": lambda: ["| a |", "|---|", ""]})
    (record,) = lines.run(tmp_path / "lines.jsonl", lines.planned())
    assert record["lines"] == ["| a |", "|---|"]
    assert lines.text([record], fresh=True) == "## Lines\n\n| a |\n|---|\n"
