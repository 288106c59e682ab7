"""DASC's rows: generated files and their script agree, and every place of the tables is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from manyhands import DASCClassifier
from manyhands.evidence.experiments.loading import load_experiments, load_row
from manyhands.fitting import training_protocol

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def script(import_script):
    return import_script("dasc2023")


@pytest.fixture(scope="module")
def rows(script):
    return {name: yaml.safe_load(text) for name, text in script.files().items()}


def test_generated_files_are_those_committed(script):
    written = script.files()
    for name, text in written.items():
        assert (EXPERIMENTS / name).read_text(encoding="utf-8") == text, name
    committed = {
        path.relative_to(EXPERIMENTS).as_posix() for path in EXPERIMENTS.glob("*/dasc2023*.yaml")
    }
    assert committed == set(written)


def test_places_of_tables_have_one_row_and_table_2_its_printed_figures():
    rows, papers = load_experiments(EXPERIMENTS)
    mine = [row for row in rows if "dasc2023" in row.id]
    places = [(row.table, row.column, row.label) for row in mine if "/fig6" not in row.table]
    assert len(places) == len(set(places))
    for plan in papers["dasc2023"].tables:
        here = [row for row in mine if row.table == f"dasc2023/{plan.id}"]
        assert {row.column for row in here} == set(plan.columns)
        assert {row.label for row in here} == set(plan.rows)
    printed = [row for row in mine if row.published is not None]
    assert len(printed) == 3 * (7 * 3 + 2)
    assert {row.published["n"] for row in printed} == {5}


def test_sparsity_stands_at_every_share(script):
    rows, _ = load_experiments(EXPERIMENTS)
    points = [row for row in rows if "dasc2023_sparse" in row.id]
    assert len(points) == 4 * 3 * 3 * len(script.SPARSITY)
    assert {row.data["fraction"] for row in points} == set(script.SPARSITY)


def test_reference_rows_are_those_of_table_2():
    """DASC stands in three tables, and is run once."""
    folder = EXPERIMENTS / "self_training"
    for data in ("labelme", "music", "cifar10h"):
        names = (f"{data}_crowd_layer_dasc", f"fig7_{data}_dasc", f"variants_{data}_dasc")
        keys = {load_row(folder / f"dasc2023_{name}.yaml").key for name in names}
        assert len(keys) == 1


def test_labelmes_protocol_is_the_papers(script):
    params = script._params(script.BASES[1], script.SETS[0])
    protocol = training_protocol("dasc_labelme")
    del protocol["reset_optimizer"]  # False, as by default
    assert params == protocol


def test_dascs_row_is_the_library_s_dasc(rows):
    """The rows spell out the selector that `DASCClassifier` stands for."""
    row = load_row(EXPERIMENTS / "self_training" / "dasc2023_labelme_crowd_layer_dasc.yaml")
    made = row.make_estimator(0)
    assert type(made._selector()) is type(DASCClassifier()._selector())
    assert made._selector().get_params() == DASCClassifier()._selector().get_params()
