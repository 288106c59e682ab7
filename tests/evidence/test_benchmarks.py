"""Benchmarks: what each measures has a name of its own, and pages equal their records."""

import warnings
from importlib import import_module
from pathlib import Path

import pytest

from evidence.study import key_of, read

ROOT = Path(__file__).parents[2]
NAMES = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if "\nSTUDY = " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", ["collapse", "costs", "encoders", "noise_layers", "soft_targets"])
def test_cells_differ_and_are_json(name):
    study = import_module(f"benchmarks.{name}").STUDY
    keys = [key_of(cell) for cell in study.planned()]
    assert len(keys) == len(set(keys)) > 1


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_a_page_equals_its_records(name, data_home):
    study = import_module(f"benchmarks.{name}").STUDY
    results = ROOT / "docs" / "results"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = read(study.records)
        for part in ["", *study.parts]:
            page = (results / study.place(part)).read_text(encoding="utf-8")
            assert study.text(records, page, part=part) == page
        page = (results / study.place("")).read_text(encoding="utf-8")
        for picture, svg in study.pictures(records, page).items():
            assert (results / picture).read_text(encoding="utf-8") == svg
