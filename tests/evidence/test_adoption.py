"""After a change of code: what counts as of the later code, what is stale, what a page says."""

import json
from dataclasses import replace

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
from manyhands.evidence.records.records import cell_key
from manyhands.evidence.records.store import pack, read_records, write_record
from manyhands.evidence.running import adoption, code
from manyhands.evidence.running.adoption import adopt, groups_of
from manyhands.evidence.running.reproduce import recheck, reproduce

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


pytestmark = pytest.mark.usefixtures("quick_start")


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
        code._code_hash.cache_clear()

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


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_runs_of_the_present_code_need_no_adoption(place):
    before = place.page()
    assert place.adopt() == {}
    assert place.fits() == 0
    assert "later code" not in before
    assert place.page() == before


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
    words = "; compared with the same runs by the recorded code on one machine |"
    assert words in place.page()
    place.write("one", CHANGED)
    assert not place.adopt(reference=reference)["one"].holds


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
    assert "adopted" not in place.page()
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
