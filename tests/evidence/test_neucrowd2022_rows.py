"""NeuCrowd's rows: every place is taken, printed figures stand beside, names say what differs."""

from __future__ import annotations

PAPER = "neucrowd2022"

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


def test_places_of_tables_have_one_row(mine, paper):
    assert {plan.id for plan in paper.tables} == {"table2", "table3"}
    for plan in paper.tables:
        here = [(row.column, row.label) for row in mine if row.table == f"{PAPER}/{plan.id}"]
        assert sorted(here) == sorted((c, label) for c in plan.columns for label in plan.rows)


def test_the_curve_has_every_method_at_every_size(mine):
    for measure in ("accuracy", "auc"):
        rows = [row for row in mine if row.table == f"{PAPER}/curve_{measure}"]
        here = {(row.column, row.data["n_train"], row.label) for row in rows}
        assert len(here) == len(rows)
        assert here == {
            (name, n, label) for name, sizes in SIZES.items() for n in sizes for label in COMPARED
        }


def test_all_printed_figures_stand_beside_ours(mine, paper):
    shown = {
        (row.table, row.label, row.column): tuple(each["value"] for each in row.published)
        for row in mine
        if row.published is not None
    }
    labels = {plan.id: set(plan.rows) - BEYOND - OWN_PARTS for plan in paper.tables}
    assert {name: len(found) for name, found in labels.items()} == {"table2": 14, "table3": 4}
    assert set(shown) == {
        (f"{PAPER}/{table}", label, column)
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
        assert shown[f"{PAPER}/{place[0]}", *place[1:]] == figures


def test_variants_are_what_their_names_say(mine):
    rows = {
        row.label: row for row in mine if (row.table, row.column) == (f"{PAPER}/table3", "Hotel")
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


def test_only_the_papers_own_split_and_sizes_bear_its_figures(mine):
    for row in mine:
        if row.published is not None:
            assert "n_train" not in row.data, row.id
