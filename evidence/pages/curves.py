"""Figures of curves: columns of the training history, and vectors that runs measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evidence.experiments.papers import column_of
from evidence.pages.document import Block, Figure, Heading, Items, Paragraph, Table
from evidence.pages.drawings import Lines, Point, draw_lines
from evidence.pages.verdicts import by_seed
from evidence.pages.words import in_order, mean_sd
from evidence.records.records import Record, is_share, noted, profiled

if TYPE_CHECKING:
    from evidence.experiments.papers import FigurePlan, TablePlan
    from evidence.experiments.rows import Row

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
