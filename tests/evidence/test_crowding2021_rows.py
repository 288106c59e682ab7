"""CrowdInG's rows: files and script agree, every place is taken, one experiment is run once."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyhands.evidence.experiments.loading import load_experiments

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def script(import_script):
    return import_script("crowding2021")


@pytest.fixture(scope="module")
def mine():
    return [row for row in load_experiments(EXPERIMENTS)[0] if "/crowding2021_" in row.id]


@pytest.fixture(scope="module")
def paper():
    return load_experiments(EXPERIMENTS)[1]["crowding2021"]


def test_generated_files_are_those_committed(script):
    written = script.files()
    for name, text in written.items():
        assert (EXPERIMENTS / name).read_text(encoding="utf-8") == text, name
    committed = {
        path.relative_to(EXPERIMENTS).as_posix()
        for path in EXPERIMENTS.glob("*/crowding2021*.yaml")
    }
    assert committed == set(written)
    assert len(written) == len([*script.rows()]) + 1


def test_places_of_tables_have_one_row(script, mine, paper):
    for plan in paper.tables:
        here = [row for row in mine if row.table == f"crowding2021/{plan.id}"]
        assert {row.label for row in here} == set(plan.rows)
        assert {row.column for row in here} == set(plan.columns)
        places = [(row.column, row.label) for row in here]
        assert len(places) == len(set(places))
        # Whether LCA is turned on or off depends on the set.
        one_set = {label for label, _ in script.LCA_TURNED.values()}
        full = len(plan.columns) * len(set(plan.rows) - one_set)
        assert len(places) == full + len(one_set & set(plan.rows))


def test_all_printed_figures_stand_beside_ours(script):
    rows = dict(script.rows())
    shown = {
        (row["label"], row["column"]): row["published"]
        for row in rows.values()
        if "published" in row and row["column"] != "CIFAR-10H, images"
    }
    columns = [data.name for data in script.SETS]
    assert set(shown) == {(label, column) for label in script.PRINTED for column in columns}
    for (label, column), found in shown.items():
        mean, sd = script.PRINTED[label][columns.index(column)]
        assert found["value"] == pytest.approx(mean / 100)
        assert found["sd"] == pytest.approx(sd / 100)
        # The paper does not say how it chose its epoch.
        assert (found["n"], "selection" in found) == (5, False)
    claims = script.paper()["claims"]
    sides = [claim["test"].get(side) for claim in claims for side in ("better", "than", "row")]
    assert {side for side in sides if side} <= set(rows)
    assert len({claim["id"] for claim in claims}) == len(claims)


def test_an_experiment_in_several_tables_is_run_once(mine):
    for data in ("LabelMe", "Music", "CIFAR-10H"):
        here = [row for row in mine if row.column == data]
        everywhere = {"table1", "table2", "fig3", "fig5", "fig6_lambda", "fig6_t"}
        everywhere |= set() if data == "CIFAR-10H" else {"forms"}
        (usual,) = {row.key for row in here if row.id.endswith("_crowding") and "table2" in row.id}
        assert {row.table.split("/")[1] for row in here if row.key == usual} == everywhere
        starts = [row for row in here if row.label == "DL-CL" and "with_" not in str(row.data)]
        assert {row.table.split("/")[1] for row in starts} == {"table1", "fig3", "fig5"}
        # Of Fig. 3 it is trained longer.
        assert len({row.key for row in starts}) == 2


def test_crowding_starts_from_the_row_it_is_compared_with(script):
    """Else a gain may be one of the protocol."""
    for data in (*script.SETS, script.IMAGES):
        start = script._estimator(data, script.CROWD_LAYER)["params"]
        full = script._crowding(data)["params"]
        assert {name: full[name] for name in start} == start
        assert set(full) - set(start) <= {
            "adversarial_epochs",
            "annotators_per_instance",
            "information_weight",
            "entropy_threshold",
        }


def test_others_are_trained_as_long(script, mine):
    for data in script.SETS:
        here = [r for r in mine if r.table == "crowding2021/fig3" and r.column == data.name]
        (full,) = (row.estimator["params"] for row in here if row.label == "CrowdInG")
        epochs = {r.estimator["params"]["max_epochs"] for r in here if r.label != "CrowdInG"}
        assert epochs == {full["max_epochs"] + full["adversarial_epochs"]}
        assert {row.watch for row in here} == {("train",)}


def test_figures_have_their_points(script, mine, paper):
    figures = {plan.id: plan for plan in paper.figures}
    for data in script.SETS:
        here = [row for row in mine if row.column == data.name]
        removed = (0, *script.FEWER_SPARSITY.get(data.key, script.SPARSITY))
        for label in ("DL-MV", "DL-CL", "CrowdInG"):
            rows = [r for r in here if (r.table, r.label) == ("crowding2021/fig5", label)]
            assert sorted(figures["fig5"].place(row) for row in rows) == sorted(removed)
            assert all(row.data["keep_one"] for row in rows if "fraction" in row.data)
        for sweep in script.SWEEPS:
            table = f"crowding2021/fig6_{sweep.key}"
            places = [figures[f"fig6_{sweep.key}"].place(row) for row in here if row.table == table]
            assert sorted(places) == sorted(sweep.fewer.get(data.key, sweep.values))
            assert sweep.usual in places


def test_an_ablation_differs_from_crowding_by_itself(script, mine):
    """One thing at a time, and as the papers' names say."""
    rows = {(row.label, row.column): row.estimator["params"] for row in mine}
    for data in script.SETS:
        full = rows["CrowdInG", data.name] | {"information_weight": 0.5, "entropy_threshold": 0.5}
        for label, changed in script.ABLATIONS.items():
            params = rows[label, data.name]
            differing = {k for k in {*full, *params} if full.get(k, "-") != params.get(k, "-")}
            assert differing == set(changed)


def test_rows_for_a_gpu_are_those_of_the_images(mine):
    gpu = [row for row in mine if row.device == "gpu"]
    assert {row.label for row in gpu} == {"DL-CL", "CrowdInG"}
    assert all(row.data["features"] == "images" for row in gpu)
    assert all(row.estimator["params"]["backbone"] == "vgg16" for row in gpu)


def test_deviations_are_on_every_row(script):
    for name, row in script.rows():
        assert row["deviations"], name
        assert len(row["deviations"]) == len(set(row["deviations"])), name
