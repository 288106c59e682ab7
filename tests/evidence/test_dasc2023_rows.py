"""DASC's rows: every place of the tables is taken, and protocols are the paper's."""

from __future__ import annotations

from manyhands import DASCClassifier
from manyhands.fitting import training_protocol
from manyhands.sampling import DistributionAwareSelector

PAPER = "dasc2023"


def test_places_of_tables_have_one_row_and_table_2_its_printed_figures(mine, paper):
    places = [(row.table, row.column, row.label) for row in mine if "/fig6" not in row.table]
    assert len(places) == len(set(places))
    for plan in paper.tables:
        here = [row for row in mine if row.table == f"dasc2023/{plan.id}"]
        assert {row.column for row in here} == set(plan.columns)
        assert {row.label for row in here} == set(plan.rows)
    printed = [row for row in mine if row.published is not None]
    assert len(printed) == 3 * (7 * 3 + 2)
    assert {row.published["n"] for row in printed} == {5}


def test_printed_figures_are_the_papers(by_id):
    for name, value, sd in (
        ("labelme_anno_reg_ce", 0.823, 0.003),
        ("music_crowd_layer_reweighting", 0.667, 0.006),
        ("cifar10h_wdn_dasc", 0.369, 0.017),
        ("music_ds_dl", 0.652, 0.008),
    ):
        found = by_id[name].published
        assert (found["value"], found["sd"]) == (value, sd)


def test_sparsity_stands_at_every_share(mine):
    points = [row for row in mine if "dasc2023_sparse" in row.id]
    assert len(points) == 4 * 3 * 3 * 3
    assert {row.data["fraction"] for row in points} == {0.2, 0.5, 0.8}


def test_half_as_many_a_round_are_as_many_in_all(by_id):
    for data in ("labelme", "music", "cifar10h"):
        usual = by_id[f"{data}_crowd_layer_dasc"].estimator["params"]
        half = by_id[f"{data}_crowd_layer_dasc_half_as_many_a_round"].estimator["params"]
        assert 2 * half["n_select"] == usual["n_select"]
        assert half["n_rounds"] == 2 * usual["n_rounds"]


def test_reference_rows_are_those_of_table_2(by_id):
    """DASC stands in three tables, and is run once."""
    for data in ("labelme", "music", "cifar10h"):
        names = (f"{data}_crowd_layer_dasc", f"fig7_{data}_dasc", f"variants_{data}_dasc")
        assert len({by_id[name].key for name in names}) == 1


def test_labelmes_protocol_is_the_papers(by_id):
    protocol = training_protocol("dasc_labelme")
    del protocol["reset_optimizer"]  # False, as by default
    start = {"init_scale": 1.0}  # the method's, not the protocol's
    assert by_id["labelme_crowd_layer_ce"].estimator["params"] == protocol | start


def test_dascs_row_is_the_library_s_dasc(by_id):
    """The rows spell out the selector that `DASCClassifier` stands for."""
    selector = by_id["labelme_crowd_layer_dasc"].make_estimator(0).selector
    assert type(selector) is DistributionAwareSelector
    assert selector.refill is DASCClassifier().refill
