"""Rows of the table of every classifier: generated files and their script agree, one protocol."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from manyhands import CoNALClassifier, all_classifiers, registry
from manyhands.evidence import load_row
from manyhands.fitting import training_protocol

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def script(import_script):
    return import_script("crowd_models")


@pytest.fixture(scope="module")
def rows(script):
    """Every row as written, by its path."""
    return {
        name: yaml.safe_load(text)
        for name, text in script.files().items()
        if not name.startswith("papers/")
    }


def test_generated_files_are_those_committed(script):
    written = script.files()
    for name, text in written.items():
        assert (EXPERIMENTS / name).read_text(encoding="utf-8") == text, name
    committed = {
        path.relative_to(EXPERIMENTS).as_posix()
        for path in EXPERIMENTS.glob("*/crowd_models*.yaml")
    }
    assert committed == set(written)


def test_every_place_of_the_table_has_one_row(script, rows):
    (table,) = script.paper()["tables"]
    taken = [(row["column"], row["label"]) for row in rows.values()]
    absent = {
        (data.column, method.label)
        for data in script.SETS
        for method in script.METHODS
        if (method.folder, data.name) in script.ABSENT
    }
    places = {(column, label) for column in table["columns"] for label in table["rows"]}
    assert len(taken) == len(set(taken))
    assert set(taken) == places - absent
    assert len(absent) == 2


def test_every_classifier_of_the_library_stands_in_the_table(rows):
    """What is exported has a row; a row's class may be a method yet to come, by its name."""
    named = {row["estimator"]["class"] for row in rows.values()}
    assert {name for name, _ in all_classifiers()} <= named
    assert all(name.endswith("Classifier") for name in named)


def test_rows_of_the_classifiers_there_are_can_be_run(script, rows):
    dear = {f"{folder}/crowd_models_{name}" for folder, name in script.DEAR}
    for name, row in rows.items():
        if row["estimator"]["class"] in registry.names():
            found = load_row(EXPERIMENTS / name)
            one = "personal" in found.id or found.id in dear
            assert found.seeds == ((0,) if one else (0, 1, 2, 3, 4))
            assert found.holdout == (None if "gold" in found.id else 0.1)
            assert found.device == "cpu"


@pytest.mark.parametrize("name", ["labelme", "music"])
def test_protocols_of_the_papers_sets_are_dascs(rows, name):
    own = rows[f"conal/crowd_models_{name}.yaml"]["estimator"]["params"]
    estimator, protocol = CoNALClassifier(**own), training_protocol(f"dasc_{name}")
    if name == "music":
        # What DASC does not name there: dropout, weight decay, how the input is scaled.
        for free in ("backbone", "weight_decay", "scaling"):
            protocol.pop(free)
    assert {key: estimator.get_params()[key] for key in protocol} == protocol


def test_networks_of_a_set_are_trained_in_the_same_way(script, rows):
    """Beside its protocol, a network has the parameters of its method and no others."""
    for data in script.SETS:
        for method in script.METHODS:
            if method.kind not in ("network", "noise"):
                continue
            params = rows[f"{method.folder}/crowd_models_{data.name}{method.suffix}.yaml"]
            params = dict(params["estimator"]["params"])
            if data.noise_lr and method.kind == "noise":
                assert params.pop("noise_lr", 0) is None
            n = script.SUBSAMPLED.get((method.folder, data.name))
            assert params.pop("annotators_per_instance", None) == n
            assert params == {**method.params, **data.protocol}
            assert not set(method.params) & set(data.protocol)


def test_linear_models_see_one_scaling_a_set(script, rows):
    for data in script.SETS:
        scalings = set()
        for name, row in rows.items():
            params = row["estimator"]["params"]
            if f"crowd_models_{data.name}" not in name:
                continue
            if row["label"] in ("SoftProb", "Raykar", "Personal (CPC)", "Cross-fitted EM"):
                scalings.add(params["scaling"])
            if row["label"] in ("MV+LR", "DS+LR"):
                piped = params["backbone"]["class"] == "sklearn.pipeline:Pipeline"
                scalings.add("standard" if piped else None)
        assert scalings == {data.linear_scaling}


def test_the_recipe_has_its_own_defaults_but_for_the_scaling(script, rows):
    """A linear network, too, where a fold has more features than instances."""
    for data in script.SETS:
        row = rows[f"cross_fitted/crowd_models_{data.name}.yaml"]
        network = {"backbone": "linear"} if data.name == "sentiment" else {}
        assert row["estimator"]["params"] == {"scaling": data.linear_scaling, **network}
        assert (script.MINUTES in row["deviations"]) == (len(row["seeds"]) == 1)


@pytest.mark.data
@pytest.mark.parametrize("row", ["colposcopy_majority_vote_regression", "reports_gold"])
def test_a_row_runs(row, data_home):
    from manyhands.evidence.running.cells import run_cell

    found = load_row(EXPERIMENTS / "aggregated" / f"crowd_models_{row}.yaml")
    record = run_cell(found, 0)
    assert record.status == "done", record.reason
    assert record.metrics["last epoch"]["accuracy"] > 0.5
