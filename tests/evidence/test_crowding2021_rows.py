"""CrowdInG's rows: every place is taken, shared runs are shared, ablations change one thing."""

from __future__ import annotations

import pytest

PAPER = "crowding2021"

SETS = ("LabelMe", "Music", "CIFAR-10H")
ONE_SET = {"without LCA", "with LCA"}
"""Forms of one set each: whether LCA is on by default depends on the set."""

ABLATIONS = {
    "CrowdG": {"information_weight"},
    "CrowdInG-U": {"generator_inputs"},
    "CrowdInG-I": {"generator_inputs"},
    "CrowdInG-R": {"selection"},
    "one step": {"two_steps"},
}
PRINTED = {
    "Doctor Net": "table1",
    "DL-CL+Self": "table1",
    "DL-CL+GCN": "table1",
    "DL-CL+GAN": "table1",
    "DL-CL+InG": "table1",
    "CrowdG": "table2",
    "CrowdInG-U": "table2",
    "CrowdInG-I": "table2",
    "CrowdInG-R": "table2",
}
SWEEPS = {
    "lambda": ((0.1, 0.25, 0.5, 0.75, 1.0), (0.1, 0.5, 1.0)),
    "t": ((0.2, 0.4, 0.5, 0.6, 0.8), (0.2, 0.5, 0.8)),
}
"""Values of Fig. 6; and those of CIFAR-10H, where a run is dear."""


def test_places_of_tables_have_one_row(mine, paper):
    for plan in paper.tables:
        here = [row for row in mine if row.table == f"crowding2021/{plan.id}"]
        assert {row.label for row in here} == set(plan.rows)
        assert {row.column for row in here} == set(plan.columns)
        places = [(row.column, row.label) for row in here]
        assert len(places) == len(set(places))
        full = len(plan.columns) * len(set(plan.rows) - ONE_SET)
        assert len(places) == full + len(ONE_SET & set(plan.rows))


def test_all_printed_figures_stand_beside_ours(mine):
    printed = {(row.table.partition("/")[2], row.label, row.column): row.published for row in mine}
    printed = {place: found for place, found in printed.items() if found is not None}
    expected = {(table, label, column) for label, table in PRINTED.items() for column in SETS}
    expected |= {(table, "CrowdInG", column) for table in ("table1", "table2") for column in SETS}
    assert set(printed) == expected | {("images", "CrowdInG", "CIFAR-10H, images")}
    # The paper does not say how it chose its epoch.
    assert all(found.keys() == {"metric", "value", "sd", "n"} for found in printed.values())
    assert {found["n"] for found in printed.values()} == {5}
    for place, value, sd in (
        (("table1", "Doctor Net", "LabelMe"), 0.8212, 0.0043),
        (("table1", "DL-CL+InG", "CIFAR-10H"), 0.6617, 0.0035),
        (("table2", "CrowdInG-I", "Music"), 0.8224, 0.0047),
        (("table2", "CrowdInG", "LabelMe"), 0.8703, 0.0055),
        (("images", "CrowdInG", "CIFAR-10H, images"), 0.6885, 0.0047),
    ):
        assert (printed[place]["value"], printed[place]["sd"]) == (value, sd)


def test_an_experiment_in_several_tables_is_run_once(mine):
    for data in SETS:
        here = [row for row in mine if row.column == data]
        everywhere = {"table1", "table2", "fig3", "fig5", "fig6_lambda", "fig6_t"}
        everywhere |= set() if data == "CIFAR-10H" else {"forms"}
        (usual,) = {row.key for row in here if row.id.endswith("_crowding") and "table2" in row.id}
        assert {row.table.split("/")[1] for row in here if row.key == usual} == everywhere
        starts = [row for row in here if row.label == "DL-CL" and "with_" not in str(row.data)]
        assert {row.table.split("/")[1] for row in starts} == {"table1", "fig3", "fig5"}
        # Of Fig. 3 it is trained longer.
        assert len({row.key for row in starts}) == 2


@pytest.mark.parametrize("key", ["labelme", "music", "cifar10h", "images"])
def test_crowding_starts_from_the_row_it_is_compared_with(by_id, key):
    """Else a gain may be one of the protocol."""
    start = by_id[f"{key}_dl_cl"].estimator["params"]
    full = by_id[f"{key}_crowding"].estimator["params"]
    assert {name: full[name] for name in start} == start
    assert set(full) - set(start) <= {
        "adversarial_epochs",
        "annotators_per_instance",
        "information_weight",
        "entropy_threshold",
    }


def test_others_are_trained_as_long(mine):
    for data in SETS:
        here = [r for r in mine if r.table == "crowding2021/fig3" and r.column == data]
        (full,) = (row.estimator["params"] for row in here if row.label == "CrowdInG")
        epochs = {r.estimator["params"]["max_epochs"] for r in here if r.label != "CrowdInG"}
        assert epochs == {full["max_epochs"] + full["adversarial_epochs"]}
        assert {row.watch for row in here} == {("train",)}


def test_figures_have_their_points(mine, paper):
    figures = {plan.id: plan for plan in paper.figures}
    for data in SETS:
        dear = data == "CIFAR-10H"
        here = [row for row in mine if row.column == data]
        for label in ("DL-MV", "DL-CL", "CrowdInG"):
            rows = [r for r in here if (r.table, r.label) == ("crowding2021/fig5", label)]
            places = sorted(figures["fig5"].place(row) for row in rows)
            assert places == ([0, 0.5] if dear else [0, 0.2, 0.4, 0.6])
            assert all(row.data["keep_one"] for row in rows if "fraction" in row.data)
        for sweep, (values, fewer) in SWEEPS.items():
            table = f"crowding2021/fig6_{sweep}"
            places = [figures[f"fig6_{sweep}"].place(row) for row in here if row.table == table]
            assert sorted(places) == list(fewer if dear else values)


def test_an_ablation_differs_from_crowding_by_itself(mine):
    """One thing at a time, and as the papers' names say."""
    rows = {
        (row.label, row.column): row.estimator["params"]
        for row in mine
        if row.table == "crowding2021/table2"
    }
    for data in SETS:
        full = rows["CrowdInG", data]
        for label, changed in ABLATIONS.items():
            params = rows[label, data]
            differing = {k for k in {*full, *params} if full.get(k, "-") != params.get(k, "-")}
            assert differing == changed


def test_rows_for_a_gpu_are_those_of_the_images(mine):
    gpu = [row for row in mine if row.device == "gpu"]
    assert {row.label for row in gpu} == {"DL-CL", "CrowdInG"}
    assert all(row.data["features"] == "images" for row in gpu)
    assert all(row.estimator["params"]["backbone"] == "vgg16" for row in gpu)
