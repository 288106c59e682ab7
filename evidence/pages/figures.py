"""A paper's figures: points over parameters, heat maps, and sheets; curves are in `curves`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evidence.experiments.papers import CURVES, column_of, table_of
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
    mean_sd,
    measure_cell,
    printed,
    unequal_seeds,
)
from evidence.records import SHARES, Record, is_share, noted, profiled

if TYPE_CHECKING:
    from evidence.experiments.papers import FigurePlan, Paper, TablePlan
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
        found = _on_a_sheet(paper.sheets[sheet], found) if sheet else found
        sections += [replace(section, name=sheet or plans[0].id) for section in found]
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


# -- curves ----------------------------------------------------------------------------------------


MOST_COLUMNS = 15
"""Most columns of a table of points; with more points, the table shows only some of them."""

Curve = Mapping[float, Sequence[float]]
"""Place on the x axis -> the values of the runs there."""


def curve_blocks(
    plan: FigurePlan,
    table: TablePlan,
    file: str,
    rows: Sequence[Row],
    runs: Mapping[str, Sequence[Record]],
) -> list[Block]:
    """Draw a figure of curves, with the numbers of every panel beneath."""
    measure = plan.metric.replace("_", " ") + (" in %" if is_share(plan.metric) else "")
    panels: list[Lines] = []
    tables: list[Block] = []
    missing: dict[str, list[str]] = {}
    for column in plan.columns or in_order(table.columns, map(column_of, rows)):
        every = [row for row in rows if column_of(row) == column]
        labels = plan.rows or tuple(in_order(table.rows, (row.label for row in every)))
        here = [row for row in every if row.label in labels]
        # A level may be measured by a row that has no curve.
        curves, levels = _curves(plan, here, labels, runs), _levels(plan, every, runs)
        for what in _lacking(plan, curves, levels):
            missing.setdefault(what, []).append(column)
        curves = {name: curve for name, curve in curves.items() if curve}
        if curves:
            tables += [Heading(column), *_curves_table(plan, curves, levels)]
        series = {name: _points(plan, curve) for name, curve in curves.items()}
        if any(series.values()):
            drawn = {name: points for name, points in series.items() if points}
            panels.append(Lines(column, plan.x_label, measure, drawn, _heights(plan, levels)))
    blocks: list[Block] = []
    if panels:
        description = (
            f"{plan.title}: {measure} by {plan.x_label}; the table beneath has the numbers"
        )
        top = 100.0 if is_share(plan.metric) else math.inf
        drawing = draw_lines(panels, description, bands=True, log=plan.log, top=top)
        blocks.append(Figure(file, drawing, plan.title, _legend(plan)))
    if tables:
        stage = f", stage {plan.stage}" if plan.stage else ""
        reading = (
            f"{measure}, by {plan.x_label}: mean ± sd (seeds) of the runs of: {table.title}{stage}."
        )
        blocks += [Paragraph(reading), *tables]
    items = [f"{what} ({', '.join(columns)})" for what, columns in missing.items()]
    return blocks + ([Items("No finished run with:", items)] if items else [])


def _lacking(
    plan: FigurePlan, curves: Mapping[str, Curve], levels: Mapping[str, Sequence[float]]
) -> list[str]:
    """Say what no finished run of a panel has."""
    what = f"{plan.metric} by {plan.x}" + (f" in stage {plan.stage}" if plan.stage else "")
    if not curves:
        return [what]
    absent = [f"{what} of {name}" for name, curve in curves.items() if not curve]
    return absent + [level.extra for level in plan.levels if not levels[level.label]]


def _legend(plan: FigurePlan) -> list[str]:
    legend = ["Lines: mean over seeds; bands: ± one standard deviation."]
    if plan.log:
        # It has no place for 0, and a mean less its standard deviation may be negative.
        legend.append("A logarithmic axis cuts bands and leaves out 0 and less.")
    return legend


def _curves(
    plan: FigurePlan,
    rows: Sequence[Row],
    labels: Sequence[str],
    runs: Mapping[str, Sequence[Record]],
) -> dict[str, Curve]:
    """Return the curve of every label; rows that share a label are distinguished by their id."""
    curves: dict[str, Curve] = {}
    for label in labels:
        named = [row for row in rows if row.label == label]
        for row in named:
            curve: dict[float, list[float]] = {}
            for run in runs.get(row.id, []):
                for x, y in _curve_of(plan, run).items():
                    curve.setdefault(x, []).append(y)
            name = label if len(named) == 1 else f"{label} ({row.id})"
            curves[name] = dict(sorted(curve.items()))
        if not named:
            curves[label] = {}
    return curves


def _curve_of(plan: FigurePlan, run: Record) -> dict[float, float]:
    if plan.kind == "profile":
        return profiled(run, plan.metric, plan.x)
    return noted(run, plan.metric, plan.x, plan.stage)


def _levels(
    plan: FigurePlan, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> dict[str, list[float]]:
    """Return a panel's levels, one value per seed: the mean over the rows that ran with it."""
    levels = {}
    for level in plan.levels:
        of_seed: dict[int, list[float]] = {}
        for row in rows:
            for seed, value in by_seed(runs.get(row.id, []), level.extra).items():
                of_seed.setdefault(seed, []).append(value)
        levels[level.label] = [float(np.mean(of_seed[seed])) for seed in sorted(of_seed)]
    return levels


def _heights(plan: FigurePlan, levels: Mapping[str, Sequence[float]]) -> dict[str, float]:
    scale = 100 if is_share(plan.metric) else 1
    heights = {name: scale * float(np.mean(values)) for name, values in levels.items() if values}
    return {name: y for name, y in heights.items() if y > 0 or not plan.log}


def _points(plan: FigurePlan, curve: Curve) -> list[Point]:
    """Return the points of a curve that have a place on the axes."""
    points = []
    for x, values in curve.items():
        scaled = np.array(values) * (100 if is_share(plan.metric) else 1)
        sd = float(np.std(scaled, ddof=1)) if len(scaled) > 1 else None
        points.append(Point(float(x), float(np.mean(scaled)), sd, len(scaled)))
    return [point for point in points if point.mean > 0 or not plan.log]


def _curves_table(
    plan: FigurePlan, curves: Mapping[str, Curve], levels: Mapping[str, Sequence[float]]
) -> list[Block]:
    """Write the numbers of a panel, of at most `MOST_COLUMNS` places with the first and last."""
    places = sorted({x for curve in curves.values() for x in curve})
    step = 1 if len(places) <= MOST_COLUMNS else math.ceil((len(places) - 1) / (MOST_COLUMNS - 1))
    shown = [*places[:-1:step], places[-1]]
    lines = [
        [name, *(mean_sd(curve.get(x, ()), plan.metric, history=True) for x in shown)]
        for name, curve in curves.items()
    ]
    blocks: list[Block] = [Table(["", *(f"{x:g}" for x in shown)], lines)]
    notes = [
        f"{name}: {mean_sd(values, plan.metric, history=True)}"
        for name, values in levels.items()
        if values
    ]
    if step > 1:
        notes.append(
            f"shown: {len(shown)} of {len(places)} columns ({plan.x_label}); the drawing has all"
        )
    return [*blocks, Paragraph("; ".join(notes) + ".")] if notes else blocks
