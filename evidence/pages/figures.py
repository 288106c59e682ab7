"""A paper's figures: points over parameters, heat maps, and sheets; curves are in `curves`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evidence.experiments.papers import CURVES, column_of, table_of
from evidence.pages.curves import curve_blocks
from evidence.pages.document import (
    Block,
    Figure,
    Heading,
    Items,
    Paragraph,
    Section,
    Table,
)
from evidence.pages.drawings import (
    Lines,
    Matrix,
    Point,
    draw_lines,
    draw_matrices,
    gather,
)
from evidence.pages.verdicts import by_seed
from evidence.pages.words import (
    DASH,
    deviations,
    figure_file,
    in_order,
    measure_cell,
    printed,
    unequal_seeds,
)
from evidence.records.records import SHARES, Record

if TYPE_CHECKING:
    from evidence.experiments.papers import FigurePlan, Paper
    from evidence.experiments.rows import Row


def figure_sections(
    paper: Paper, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> list[Section]:
    """Draw all figures of a paper; those of a sheet follow it, without a drawing of their own."""
    sections: list[Section] = []
    for file in dict.fromkeys(figure_file(paper, plan) for plan in paper.figures):
        plans = [plan for plan in paper.figures if figure_file(paper, plan) == file]
        found = [figure_section(paper, plan, rows, runs) for plan in plans]
        sheet = plans[0].sheet
        sections += _on_a_sheet(paper.sheets[sheet], found) if sheet else found
    return sections


def _on_a_sheet(title: str, sections: Sequence[Section]) -> list[Section]:
    """Gather the drawings of sections in one, ahead of what else the sections have."""
    drawn = [block for section in sections for block in section.blocks if isinstance(block, Figure)]
    if not drawn:
        return [*sections]
    legend = dict.fromkeys(sentence for figure in drawn for sentence in figure.legend)
    drawing = gather({figure.title: figure.drawing for figure in drawn})
    sheet = Section(title, [Figure(drawn[0].file, drawing, title, list(legend))])
    rest = [
        Section(section.title, [b for b in section.blocks if not isinstance(b, Figure)])
        for section in sections
    ]
    return [sheet, *(section for section in rest if section.blocks)]


def figure_section(
    paper: Paper, plan: FigurePlan, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> Section:
    """Draw a figure, with its numbers beneath."""
    mine = [row for row in rows if table_of(row) == f"{paper.key}/{plan.id}"]
    file = figure_file(paper, plan)
    if plan.kind in CURVES:
        table = next(each for each in paper.tables if each.id == plan.table)
        drawn = [row for row in rows if table_of(row) == f"{paper.key}/{table.id}"]
        return Section(plan.title, curve_blocks(plan, table, file, drawn, runs))
    if plan.kind == "matrices":
        return Section(plan.title, [*_matrices(plan, file, runs), *deviations(mine)])
    lines = _lines(plan, file, mine, runs)
    return Section(plan.title, [*lines, *unequal_seeds(mine, runs), *deviations(mine)])


def _lines(
    plan: FigurePlan, file: str, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> list[Block]:
    measure = plan.metric.replace("_", " ")
    # How the epoch was chosen stands in the drawing itself, with its mark if it is an oracle.
    measure += f" in %, {plan.selection}" if plan.metric in SHARES else ""
    panels: list[Lines] = []
    tables: list[Block] = []
    for column in in_order(plan.columns, (column_of(row) for row in rows)):
        here = [row for row in rows if column_of(row) == column]
        tables += [Heading(column), _points_table(plan, here, runs)]
        series = _series(plan, here, runs)
        if series:
            panels.append(Lines(column, plan.x_label, measure, series))
    tables.insert(0, Paragraph(f"{measure}, by {plan.x_label}: mean ± sd (seeds)."))
    if not panels:
        return [Paragraph("No finished run yet."), *tables]
    legend = ["Points: mean over seeds; bars: ± one standard deviation."]
    description = f"{plan.title}: {measure} by {plan.x_label}; the table beneath has the numbers"
    return [Figure(file, draw_lines(panels, description), plan.title, legend), *tables]


def _series(
    plan: FigurePlan, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> dict[str, list[Point]]:
    """Return the points of every label that has finished runs."""
    series: dict[str, list[Point]] = {}
    for label in in_order(plan.rows, (row.label for row in rows)):
        for row in (row for row in rows if row.label == label):
            values = list(by_seed(runs.get(row.id, []), plan.metric, plan.selection).values())
            if values:
                scaled = np.array(values) * (100 if plan.metric in SHARES else 1)
                sd = float(np.std(scaled, ddof=1)) if len(scaled) > 1 else None
                point = Point(float(plan.place(row)), float(np.mean(scaled)), sd)
                series.setdefault(label, []).append(point)
    return series


def _points_table(
    plan: FigurePlan, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> Table:
    places = sorted({plan.place(row) for row in rows})
    lines = []
    for label in in_order(plan.rows, (row.label for row in rows)):
        cells: dict[Any, list[str]] = {place: [] for place in places}
        for row in (row for row in rows if row.label == label):
            text = measure_cell(runs.get(row.id, []), plan.metric, plan.selection)
            theirs = printed(row, plan.metric)
            paper = "" if theirs == DASH else f"; paper {theirs}"
            cells[plan.place(row)].append(text + paper)
        lines.append([label, *(" / ".join(cells[place]) or DASH for place in places)])
    return Table(["", *(f"{place:g}" for place in places)], lines)


def _matrices(plan: FigurePlan, file: str, runs: Mapping[str, Sequence[Record]]) -> list[Block]:
    panels, missing, seeds = [], [], set[int]()
    for panel in plan.panels:
        found = [run for run in runs.get(panel.row, []) if panel.extra in run.extra]
        if found:
            # Not the mean: with every seed there may be another crowd.
            first = min(found, key=lambda run: run.seed)
            seeds.add(first.seed)
            panels.append(Matrix(panel.title, first.extra[panel.extra]))
        else:
            missing.append(f"{panel.title} ({panel.extra} of {panel.row})")
    blocks: list[Block] = []
    if panels:
        of = ", ".join(map(str, sorted(seeds)))
        legend = [f"Rows: true class; columns: given class; seed {of}."]
        blocks.append(Figure(file, draw_matrices(panels, plan.title), plan.title, legend))
    if missing:
        blocks.append(Items("No finished run with:", missing))
    return blocks
