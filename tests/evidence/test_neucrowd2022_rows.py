"""NeuCrowd's rows: files and script agree, every place is taken, printed figures stand beside."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyhands.evidence.experiments.loading import load_experiments

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PAPER = "neucrowd2022"


@pytest.fixture(scope="module")
def script(import_script):
    return import_script(PAPER)


@pytest.fixture(scope="module")
def loaded():
    return load_experiments(EXPERIMENTS)


@pytest.fixture(scope="module")
def mine(loaded):
    return [row for row in loaded[0] if f"/{PAPER}_" in row.id]


@pytest.fixture(scope="module")
def paper(loaded):
    return loaded[1][PAPER]


def test_generated_files_are_those_committed(script):
    written = script.files()
    for name, text in written.items():
        assert (EXPERIMENTS / name).read_text(encoding="utf-8") == text, name
    committed = {
        path.relative_to(EXPERIMENTS).as_posix() for path in EXPERIMENTS.glob(f"*/{PAPER}*.yaml")
    }
    assert committed == set(written)
    assert len(written) == len([*script.rows()]) + 1, "two rows share a file"


def test_places_of_tables_have_one_row(mine, paper):
    assert {plan.id for plan in paper.tables} == {"table2", "table3"}
    for plan in paper.tables:
        here = [(row.column, row.label) for row in mine if row.table == f"{PAPER}/{plan.id}"]
        assert sorted(here) == sorted((c, label) for c in plan.columns for label in plan.rows)


def test_the_curve_has_every_method_at_every_size(script, mine):
    for measure in script.SHOWN:
        rows = [row for row in mine if row.table == f"{PAPER}/curve_{measure}"]
        here = {(row.column, row.data["n_train"], row.label) for row in rows}
        assert len(here) == len(rows)
        assert here == {
            (name, n, label)
            for name, (_, sizes, _) in script.CURVE.items()
            for n in sizes
            for label in script.COMPARED
        }
    sizes = {name: n for name, (_, n, _) in script.CURVE.items()}
    assert {100, 200, 400} <= set.intersection(*map(set, sizes.values()))


def test_all_printed_figures_stand_beside_ours(script):
    shown = {
        (row["table"], row["label"], row["column"]): tuple(
            each["value"] for each in row["published"]
        )
        for _, row in script.rows()
        if "published" in row
    }
    columns = [data.name for data in script.PRINTED_SETS]
    assert shown == {
        (f"{PAPER}/{table}", label, column): figures[k]
        for table, printed in (("table2", script.PRINTED), ("table3", script.PRINTED_PARTS))
        for label, figures in printed.items()
        for k, column in enumerate(columns)
    }


def test_variants_are_what_their_names_say(script, mine):
    rows = {
        row.label: row for row in mine if (row.table, row.column) == (f"{PAPER}/table3", "Hotel")
    }
    switches = {"SA": "safety_aware", "RA": "robust_anchor", "SN": "sampling_network"}
    for label, row in rows.items():
        model = row.make_estimator(0)
        off = {name for name in switches if f"-{name}" in label}
        if label == "n-pair learning (all off)":
            off = set(switches)
        assert {name for name, param in switches.items() if not getattr(model, param)} == off
        assert model.assurance == ("no assurance" not in label and "all off" not in label)


def test_claims_name_rows_and_have_their_own_names(script):
    rows, claims = dict(script.rows()), script.paper()["claims"]
    for claim in claims:
        for side in ("better", "than", "row"):
            named = claim["test"].get(side, [])
            assert {named} <= set(rows) if isinstance(named, str) else set(named) <= set(rows)
    assert len({claim["id"] for claim in claims}) == len(claims)


def test_only_the_papers_own_split_and_sizes_bear_its_figures(script):
    for _, row in script.rows():
        if "published" in row:
            assert "n_train" not in row["data"], row["label"]
