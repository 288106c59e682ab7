"""Rows of the table of every classifier: one protocol a set, the same for all methods."""

from __future__ import annotations

import pytest

from manyhands import CoNALClassifier, all_classifiers
from manyhands.fitting import training_protocol

PAPER = "crowd_models"

SETS = {
    "LabelMe": "standard",
    "Music": "standard",
    "Sentiment": None,
    "Product": "standard",
    "Colposcopy": "standard",
    "Reports": "standard",
}
"""Columns, and how linear models see the features."""

ABSENT = {("Sentiment", "Personal (CPC)"), ("Sentiment", "NeuCrowd")}
SUBSAMPLED = {("Sentiment", "CrowdInG"), ("Product", "CrowdInG")}
MINUTES = {*SUBSAMPLED, ("Sentiment", "Cross-fitted EM"), ("Sentiment", "Triplets")}
OTHER_OPTIMISERS = {"Raykar", "Personal (CPC)", "Cross-fitted EM", "Triplets", "NeuCrowd"}
OWN = {
    "init_scale",
    "connection",
    "parametrization",
    "weighting",
    "prior",
    "aggregator",
    "targets",
    "annotators_per_instance",
    "forget_rate",
    "noise_lr",
}
"""Parameters of methods, and of their noise parts, beside the protocol of a set."""


def params_of(rows):
    return {(row.column, row.label): row.estimator["params"] for row in rows}


def test_every_place_of_the_table_has_one_row(mine, paper):
    (table,) = paper.tables
    taken = [(row.column, row.label) for row in mine]
    places = {(column, label) for column in table.columns for label in table.rows}
    assert len(taken) == len(set(taken))
    assert set(taken) == places - ABSENT


def test_every_classifier_of_the_library_stands_in_the_table(mine):
    named = {row.estimator["class"] for row in mine}
    assert named == {name for name, _ in all_classifiers()} & named
    assert {name for name, _ in all_classifiers()} <= named


def test_seeds_and_hold_out(mine):
    for row in mine:
        one = row.label == "Personal (CPC)" or (row.column, row.label) in MINUTES
        assert row.seeds == ((0,) if one else (0, 1, 2, 3, 4)), row.id
        assert ("one seed: a run takes minutes" in row.deviations) == (
            (row.column, row.label) in MINUTES
        )
        assert row.holdout == (None if "gold" in row.id else 0.1), row.id
        assert row.device == "cpu"


@pytest.mark.parametrize("name", ["labelme", "music"])
def test_protocols_of_the_papers_sets_are_dascs(mine, name):
    (row,) = (row for row in mine if row.id == f"conal/crowd_models_{name}")
    estimator = CoNALClassifier(**row.estimator["params"])
    protocol = training_protocol(f"dasc_{name}")
    if name == "music":
        # What DASC does not name there: dropout, weight decay, how the input is scaled.
        for free in ("backbone", "weight_decay", "scaling"):
            protocol.pop(free)
    assert {key: estimator.get_params()[key] for key in protocol} == protocol


def test_networks_of_a_set_are_trained_in_the_same_way(mine):
    """Beside its protocol, a network has the parameters of its method and no others."""
    params = params_of(mine)
    for column in SETS:
        protocols = []
        for label in (
            {row.label for row in mine} - OTHER_OPTIMISERS - {"SoftProb", "MV+LR", "DS+LR"}
        ):
            own = dict(params[column, label])
            subsampled = (column, label) in SUBSAMPLED
            assert own.get("annotators_per_instance") == (16 if subsampled else None)
            assert own.get("noise_lr") is None
            if column in ("Colposcopy", "Reports") and label == "ICED":
                own["max_epochs"] = 50  # The protocol says "library defaults": its own is 30.
            protocols.append({k: v for k, v in own.items() if k not in OWN})
        assert all(protocol == params[column, "AggNet"] for protocol in protocols)


def test_noise_is_learnt_at_the_rate_of_all_where_dascs_protocol_is(mine):
    params = params_of(mine)
    for column in SETS:
        for label in ("Crowd Layer MW", "TraceReg", "Max-MIG", "CoNAL", "CrowdInG"):
            assert ("noise_lr" in params[column, label]) == (column in ("LabelMe", "Music"))
        assert "noise_lr" not in params[column, "ICED"]


def test_linear_models_see_one_scaling_a_set(mine):
    params = params_of(mine)
    for column, scaling in SETS.items():
        for label in {"SoftProb", *OTHER_OPTIMISERS}:
            if (column, label) not in ABSENT:
                assert params[column, label]["scaling"] == scaling
        for label in ("MV+LR", "DS+LR"):
            piped = params[column, label]["backbone"]["class"] == "sklearn.pipeline:Pipeline"
            assert piped == (scaling == "standard")


def test_the_recipe_has_its_own_defaults_but_for_the_scaling(mine):
    """A linear network, too, where a fold has more features than instances."""
    params = params_of(mine)
    for column, scaling in SETS.items():
        network = {"backbone": "linear"} if column == "Sentiment" else {}
        own = dict(params[column, "Cross-fitted EM"])
        aggregator = own.pop("aggregator")
        assert aggregator["params"]["dependence"] == 0  # As when the rows were run.
        assert own == {"scaling": scaling, **network}


@pytest.mark.data
@pytest.mark.parametrize("row", ["colposcopy_majority_vote_regression", "reports_gold"])
def test_a_row_runs(mine, row, data_home):
    from manyhands.evidence.running.cells import run_cell

    (found,) = (each for each in mine if each.id == f"aggregated/crowd_models_{row}")
    record = run_cell(found, 0)
    assert record.status == "done", record.reason
    assert record.metrics["last epoch"]["accuracy"] > 0.5
