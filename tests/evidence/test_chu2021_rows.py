"""CoNAL's rows: every place has one, and printed figures are the paper's."""

from __future__ import annotations

PAPER = "chu2021"


def test_rows_stand_where_the_paper_has_a_place(mine, paper):
    plans = {f"chu2021/{plan.id}": plan for plan in (*paper.tables, *paper.figures)}
    for row in mine:
        plan = plans[row.table]
        if row.table != "chu2021/fig1":
            assert row.label in plan.rows, row.id
            assert row.column in plan.columns, row.id


def test_every_place_of_the_tables_has_a_row(mine, paper):
    taken = [(row.table, row.column, row.label) for row in mine]
    for plan in paper.tables:
        for column in plan.columns:
            for label in plan.rows:
                assert taken.count((f"chu2021/{plan.id}", column, label)) == 1, (column, label)


def test_printed_figures_are_the_papers(mine):
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


def test_every_point_of_figure_4_is_swept(mine, paper):
    figures = [plan for plan in paper.figures if plan.kind == "lines"]
    assert len(figures) == 6
    for plan in figures:
        points = [0.4, 0.5, 0.6, 0.7, 0.8] if "strength" in plan.id else [0.0, 0.3, 0.5, 0.7]
        here = [row for row in mine if row.table == f"chu2021/{plan.id}"]
        for column in plan.columns:
            for label in plan.rows:
                line = [row for row in here if (row.column, row.label) == (column, label)]
                assert sorted(plan.place(row) for row in line) == points


def test_only_images_need_a_gpu(mine):
    assert {row.id for row in mine if row.device == "gpu"} == {
        row.id for row in mine if "cifar10" in row.id
    }
