"""Rows of four papers: places are taken, printed figures are the papers', variants are as named."""

from __future__ import annotations

import pytest

from manyhands import DASCClassifier
from manyhands.fitting import training_protocol
from manyhands.sampling import DistributionAwareSelector


class TestCoNAL:
    PAPER = "chu2021"

    def test_rows_stand_where_the_paper_has_a_place(self, mine, paper):
        plans = {f"chu2021/{plan.id}": plan for plan in (*paper.tables, *paper.figures)}
        for row in mine:
            plan = plans[row.table]
            if row.table != "chu2021/fig1":
                assert row.label in plan.rows, row.id
                assert row.column in plan.columns, row.id

    def test_every_place_of_the_tables_has_a_row(self, mine, paper):
        taken = [(row.table, row.column, row.label) for row in mine]
        for plan in paper.tables:
            for column in plan.columns:
                for label in plan.rows:
                    assert taken.count((f"chu2021/{plan.id}", column, label)) == 1, (column, label)

    def test_printed_figures_are_the_papers(self, mine):
        printed = {
            (row.table, row.column, row.label): (row.published["value"], row.published["sd"])
            for row in mine
            if row.published and row.table in ("chu2021/table1", "chu2021/table2")
        }
        tables = {
            "table1": {
                "DL-MV": [(0.7983, 0.0034), (0.7253, 0.0041)],
                "Crowd Layer": [(0.8327, 0.0052), (0.8146, 0.0053)],
                "CoNAL": [(0.8712, 0.0055), (0.8406, 0.0042)],
            },
            "table2": {
                "λ = 0": [(0.8568, 0.0038), (0.8214, 0.0031)],
                "λ = 1e-4": [(0.8661, 0.0041), (0.8352, 0.0025)],
                "λ = 1e-5": [(0.8712, 0.0055), (0.8406, 0.0042)],
                "λ = 1e-6": [(0.8626, 0.0047), (0.8298, 0.0037)],
            },
        }
        assert printed == {
            (f"chu2021/{table}", column, label): figure
            for table, lines in tables.items()
            for label, figures in lines.items()
            for column, figure in zip(("LabelMe", "Music"), figures, strict=True)
        }

    def test_every_point_of_figure_4_is_swept(self, mine, paper):
        figures = [plan for plan in paper.figures if plan.kind == "lines"]
        assert len(figures) == 6
        for plan in figures:
            points = [0.4, 0.5, 0.6, 0.7, 0.8] if "strength" in plan.id else [0.0, 0.3, 0.5, 0.7]
            here = [row for row in mine if row.table == f"chu2021/{plan.id}"]
            for column in plan.columns:
                for label in plan.rows:
                    line = [row for row in here if (row.column, row.label) == (column, label)]
                    assert sorted(plan.place(row) for row in line) == points

    def test_only_images_need_a_gpu(self, mine):
        assert {row.id for row in mine if row.device == "gpu"} == {
            row.id for row in mine if "cifar10" in row.id
        }


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


class TestCrowdInG:
    PAPER = "crowding2021"

    def test_places_of_tables_have_one_row(self, mine, paper):
        for plan in paper.tables:
            here = [row for row in mine if row.table == f"crowding2021/{plan.id}"]
            assert {row.label for row in here} == set(plan.rows)
            assert {row.column for row in here} == set(plan.columns)
            places = [(row.column, row.label) for row in here]
            assert len(places) == len(set(places))
            full = len(plan.columns) * len(set(plan.rows) - ONE_SET)
            assert len(places) == full + len(ONE_SET & set(plan.rows))

    def test_all_printed_figures_stand_beside_ours(self, mine):
        printed = {
            (row.table.partition("/")[2], row.label, row.column): row.published for row in mine
        }
        printed = {place: found for place, found in printed.items() if found is not None}
        expected = {(table, label, column) for label, table in PRINTED.items() for column in SETS}
        expected |= {
            (table, "CrowdInG", column) for table in ("table1", "table2") for column in SETS
        }
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

    def test_an_experiment_in_several_tables_is_run_once(self, mine):
        for data in SETS:
            here = [row for row in mine if row.column == data]
            everywhere = {"table1", "table2", "fig3", "fig5", "fig6_lambda", "fig6_t"}
            everywhere |= set() if data == "CIFAR-10H" else {"forms"}
            (usual,) = {
                row.key for row in here if row.id.endswith("_crowding") and "table2" in row.id
            }
            assert {row.table.split("/")[1] for row in here if row.key == usual} == everywhere
            starts = [row for row in here if row.label == "DL-CL" and "with_" not in str(row.data)]
            assert {row.table.split("/")[1] for row in starts} == {"table1", "fig3", "fig5"}
            # Of Fig. 3 it is trained longer.
            assert len({row.key for row in starts}) == 2

    @pytest.mark.parametrize("key", ["labelme", "music", "cifar10h", "images"])
    def test_crowding_starts_from_the_row_it_is_compared_with(self, by_id, key):
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

    def test_others_are_trained_as_long(self, mine):
        for data in SETS:
            here = [r for r in mine if r.table == "crowding2021/fig3" and r.column == data]
            (full,) = (row.estimator["params"] for row in here if row.label == "CrowdInG")
            epochs = {r.estimator["params"]["max_epochs"] for r in here if r.label != "CrowdInG"}
            assert epochs == {full["max_epochs"] + full["adversarial_epochs"]}
            assert {row.watch for row in here} == {("train",)}

    def test_figures_have_their_points(self, mine, paper):
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

    def test_an_ablation_differs_from_crowding_by_itself(self, mine):
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

    def test_rows_for_a_gpu_are_those_of_the_images(self, mine):
        gpu = [row for row in mine if row.device == "gpu"]
        assert {row.label for row in gpu} == {"DL-CL", "CrowdInG"}
        assert all(row.data["features"] == "images" for row in gpu)
        assert all(row.estimator["params"]["backbone"] == "vgg16" for row in gpu)


class TestDASC:
    PAPER = "dasc2023"

    def test_places_of_tables_have_one_row_and_table_2_its_printed_figures(self, mine, paper):
        places = [(row.table, row.column, row.label) for row in mine if "/fig6" not in row.table]
        assert len(places) == len(set(places))
        for plan in paper.tables:
            here = [row for row in mine if row.table == f"dasc2023/{plan.id}"]
            assert {row.column for row in here} == set(plan.columns)
            assert {row.label for row in here} == set(plan.rows)
        printed = [row for row in mine if row.published is not None]
        assert len(printed) == 3 * (7 * 3 + 2)
        assert {row.published["n"] for row in printed} == {5}

    def test_printed_figures_are_the_papers(self, by_id):
        for name, value, sd in (
            ("labelme_anno_reg_ce", 0.823, 0.003),
            ("music_crowd_layer_reweighting", 0.667, 0.006),
            ("cifar10h_wdn_dasc", 0.369, 0.017),
            ("music_ds_dl", 0.652, 0.008),
        ):
            found = by_id[name].published
            assert (found["value"], found["sd"]) == (value, sd)

    def test_sparsity_stands_at_every_share(self, mine):
        points = [row for row in mine if "dasc2023_sparse" in row.id]
        assert len(points) == 4 * 3 * 3 * 3
        assert {row.data["fraction"] for row in points} == {0.2, 0.5, 0.8}

    def test_half_as_many_a_round_are_as_many_in_all(self, by_id):
        for data in ("labelme", "music", "cifar10h"):
            usual = by_id[f"{data}_crowd_layer_dasc"].estimator["params"]
            half = by_id[f"{data}_crowd_layer_dasc_half_as_many_a_round"].estimator["params"]
            assert 2 * half["n_select"] == usual["n_select"]
            assert half["n_rounds"] == 2 * usual["n_rounds"]

    def test_reference_rows_are_those_of_table_2(self, by_id):
        """DASC stands in three tables, and is run once."""
        for data in ("labelme", "music", "cifar10h"):
            names = (f"{data}_crowd_layer_dasc", f"fig7_{data}_dasc", f"variants_{data}_dasc")
            assert len({by_id[name].key for name in names}) == 1

    def test_labelmes_protocol_is_the_papers(self, by_id):
        protocol = training_protocol("dasc_labelme")
        del protocol["reset_optimizer"]  # False, as by default
        start = {"init_scale": 1.0}  # the method's, not the protocol's
        assert by_id["labelme_crowd_layer_ce"].estimator["params"] == protocol | start

    def test_dascs_row_is_the_library_s_dasc(self, by_id):
        """The rows spell out the selector that `DASCClassifier` stands for."""
        selector = by_id["labelme_crowd_layer_dasc"].make_estimator(0).selector
        assert type(selector) is DistributionAwareSelector
        assert selector.refill is DASCClassifier().refill


COMPARED = {
    "SoftProb",
    "Network on soft labels",
    "Triple",
    "NeuCrowd-SA-RA-SN (RLL)",
    "NeuCrowd",
    "NeuCrowd, features too",
}
"""Lines of the learning curve."""

SIZES = {
    "Syn1": (100, 200, 400, 800),
    "Hotel": (100, 200, 400),
    "Reports": (100, 200, 400),
    "Music": (100, 200, 400),
    "LabelMe": (100, 200, 400, 800),
}
PRINTED_SETS = ("Syn1", "Syn2", "Hotel")
BEYOND = {"MV", "Network on soft labels", "NeuCrowd, features too", "NeuCrowd+EM"}
OWN_PARTS = {
    "NeuCrowd-RA",
    "NeuCrowd-SN",
    "NeuCrowd, no assurance",
    "n-pair learning (all off)",
}


class TestNeuCrowd:
    PAPER = "neucrowd2022"

    def test_places_of_tables_have_one_row(self, mine, paper):
        assert {plan.id for plan in paper.tables} == {"table2", "table3"}
        for plan in paper.tables:
            here = [
                (row.column, row.label) for row in mine if row.table == f"neucrowd2022/{plan.id}"
            ]
            assert sorted(here) == sorted((c, label) for c in plan.columns for label in plan.rows)

    def test_the_curve_has_every_method_at_every_size(self, mine):
        for measure in ("accuracy", "auc"):
            rows = [row for row in mine if row.table == f"neucrowd2022/curve_{measure}"]
            here = {(row.column, row.data["n_train"], row.label) for row in rows}
            assert len(here) == len(rows)
            assert here == {
                (name, n, label)
                for name, sizes in SIZES.items()
                for n in sizes
                for label in COMPARED
            }

    def test_all_printed_figures_stand_beside_ours(self, mine, paper):
        shown = {
            (row.table, row.label, row.column): tuple(each["value"] for each in row.published)
            for row in mine
            if row.published is not None
        }
        labels = {plan.id: set(plan.rows) - BEYOND - OWN_PARTS for plan in paper.tables}
        assert {name: len(found) for name, found in labels.items()} == {"table2": 14, "table3": 4}
        assert set(shown) == {
            (f"neucrowd2022/{table}", label, column)
            for table, found in labels.items()
            for label in found
            for column in PRINTED_SETS
        }
        for place, figures in {
            ("table2", "SoftProb", "Syn1"): (0.666, 0.720),
            ("table2", "Triple+EM", "Syn2"): (0.672, 0.772),
            ("table2", "NeuCrowd", "Hotel"): (0.871, 0.928),
            ("table3", "NeuCrowd", "Hotel"): (0.871, 0.928),
            ("table3", "NeuCrowd-SA", "Hotel"): (0.857, 0.823),
        }.items():
            assert shown[f"neucrowd2022/{place[0]}", *place[1:]] == figures

    def test_variants_are_what_their_names_say(self, mine):
        rows = {
            row.label: row
            for row in mine
            if (row.table, row.column) == ("neucrowd2022/table3", "Hotel")
        }
        assert len(rows) == 8
        switches = {"SA": "safety_aware", "RA": "robust_anchor", "SN": "sampling_network"}
        for label, row in rows.items():
            model = row.make_estimator(0)
            off = {name for name in switches if f"-{name}" in label}
            if label == "n-pair learning (all off)":
                off = set(switches)
            assert {name for name, param in switches.items() if not getattr(model, param)} == off
            assert model.assurance == ("no assurance" not in label and "all off" not in label)

    def test_only_the_papers_own_split_and_sizes_bear_its_figures(self, mine):
        for row in mine:
            if row.published is not None:
                assert "n_train" not in row.data, row.id
