"""A paper's tables: ours beside theirs, by how the epoch was chosen."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evidence.experiments.papers import column_of, table_of
from evidence.pages.document import Block, Heading, Items, Paragraph, Section, Table
from evidence.pages.verdicts import by_seed, show
from evidence.pages.words import (
    DASH,
    NOT_RUN,
    as_chosen,
    binomial_error,
    deviations,
    in_order,
    mean_sd,
    measure_cell,
    printed,
    quoted,
    unequal_seeds,
)
from evidence.records import LAST, ORACLE, SELECTIONS, SHARES, Record, is_share

if TYPE_CHECKING:
    from evidence.experiments.papers import Paper, TablePlan
    from evidence.experiments.rows import Row


def table_section(
    paper: Paper, plan: TablePlan, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> Section:
    """Show a table: once per column of the paper, or once per measure where it has several."""
    mine = [row for row in rows if table_of(row) == f"{paper.key}/{plan.id}"]
    metric, *others = plan.metrics
    if others:
        shown = {name for table in paper.tables for name in table.metrics}
        several = _several_measures(plan, mine, runs, shown)
        several += [*unequal_seeds(mine, runs), *deviations(mine)]
        return Section(plan.title, several, plan.id)
    printed_too = any(row.published_of(metric) for row in mine)
    blocks: list[Block] = [Paragraph(_reading_of(metric, printed_too)), *unequal_seeds(mine, runs)]
    for column in in_order(plan.columns, (column_of(row) for row in mine)):
        here = [row for row in mine if column_of(row) == column]
        blocks += [Heading(column), _figures_table(plan, metric, here, runs)]
        notes = _absent_notes(here, runs) if metric in SHARES else []
        if absent := [label for label in plan.rows if label not in {row.label for row in here}]:
            notes.append(f"no row in this column: {quoted(absent)}")
        if notes:
            blocks.append(Items("No figure:", notes))
        blocks += _further_measures(metric, here, runs)
    return Section(plan.title, [*blocks, *deviations(mine)], plan.id)


def _several_measures(
    plan: TablePlan,
    rows: Sequence[Row],
    runs: Mapping[str, Sequence[Record]],
    shown: Collection[str],
) -> list[Block]:
    """Show a table once per measure, as a paper prints it, with the columns side by side.

    ``shown`` are the measures of all tables of the page, which are not repeated as further ones.
    """
    reading = (
        "Mean ± standard deviation over seeds (number of seeds), beside the paper's value; of the "
        "last epoch. Accuracies, recalls, macro-F1 and shares in per cent."
    )
    blocks: list[Block] = [Paragraph(reading)]
    columns = in_order(plan.columns, (column_of(row) for row in rows))
    labels = in_order(plan.rows, (row.label for row in rows))
    by_place: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_place.setdefault((row.label, column_of(row)), []).append(row)
    for metric in plan.metrics:
        lines = []
        for label in labels:
            here = [by_place.get((label, column), []) for column in columns]
            cells = (" / ".join(_ours_and_theirs(row, metric, runs) for row in at) for at in here)
            lines.append([label, *(cell or DASH for cell in cells)])
        blocks += [Heading(_in_words(metric)), Table(["", *columns], lines)]
    lines = [
        [row.label, column_of(row), *measured]
        for row in sorted(rows, key=lambda row: labels.index(row.label))
        for measured in _measured_further(runs.get(row.id, []), shown)
    ]
    if lines:
        header = ["", "column", "further measure", "mean ± sd (n)"]
        blocks += [Heading("Further measures"), Table(header, lines)]
    return blocks


def _ours_and_theirs(row: Row, metric: str, runs: Mapping[str, Sequence[Record]]) -> str:
    found, share = runs.get(row.id, []), is_share(metric)
    values = list(by_seed(found, metric, LAST).values())
    ours = mean_sd(values, metric, history=share) if found else NOT_RUN
    theirs = printed(row, metric, history=share)
    return ours if theirs == DASH else f"{ours}; paper {theirs}"


def _in_words(metric: str) -> str:
    return metric.replace("_", " ").replace("macro f1", "macro-F1")


def _reading_of(metric: str, printed_too: bool) -> str:
    """Explain a table; ``printed_too`` says whether the paper prints a figure of it."""
    beside = ", beside the paper's value" if printed_too else ""
    if metric not in SHARES:
        return f"Mean ± standard deviation over seeds (number of seeds){beside}."
    error = "“± test set” is the binomial standard error of the test set at "
    if printed_too:
        error += (
            "the paper's value (at ours, where the paper gives none); the verdict says whether our "
            "figure, by the paper's own choice of epoch (the last epoch where it is not known), is "
            "within, below or above the paper's by two of them."
        )
    else:
        error += "our value. No paper prints a figure to compare with."
    return (
        "In per cent: mean ± standard deviation over seeds (number of seeds), by how the epoch was "
        f"chosen{beside}. What was chosen on the test set is marked as an oracle: it is no result. "
        f"{error} Seconds: of a run, with its second fit where annotations are held out."
    )


def _figures_table(
    plan: TablePlan, metric: str, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> Table:
    own = SELECTIONS if metric in SHARES else ("ours",)
    tail = ["seconds", "paper", "± test set", "verdict"] if metric in SHARES else ["paper"]
    labels = in_order(plan.rows, (row.label for row in rows))
    lines = [
        _figures_line(metric, row, runs.get(row.id, []))
        for row in sorted(rows, key=lambda row: labels.index(row.label))
    ]
    return Table(["", *own, *tail], lines)


def _figures_line(metric: str, row: Row, runs: Sequence[Record]) -> list[str]:
    if metric not in SHARES:
        return [
            row.label,
            mean_sd(list(by_seed(runs, metric).values()), metric),
            printed(row, metric),
        ]
    cells = [measure_cell(runs, metric, selection) for selection in SELECTIONS]
    error = _test_error(row, runs, metric)
    shown = DASH if error is None else show(metric, error)
    seconds = f"{np.mean([run.seconds for run in runs]):.1f}" if runs else DASH
    verdict = _verdict(row, runs, metric, error)
    return [row.label, *cells, seconds, printed(row, metric), shown, verdict]


def _test_error(row: Row, runs: Sequence[Record], metric: str) -> float | None:
    """Binomial standard error of the test set; only accuracy has one."""
    sizes = {n for run in runs if (n := run.metrics.get(LAST, {}).get("n_test")) is not None}
    if metric != "accuracy" or len(sizes) != 1:
        return None
    theirs = row.published_of(metric)
    ours = list(by_seed(runs, metric).values())
    share = theirs["value"] if theirs else float(np.mean(ours))
    return binomial_error(share, sizes.pop())


def verdict_hangs(row: Row, runs: Sequence[Record]) -> bool:
    """Say whether our mean need only move by one standard error for another verdict in a table."""
    theirs, error = row.published_of("accuracy"), _test_error(row, runs, "accuracy")
    _, ours = as_chosen(row, runs, "accuracy")
    if theirs is None or error is None or len(ours) < 2:
        return False
    difference = abs(float(np.mean(ours)) - theirs["value"])
    return abs(difference - 2 * error) < float(np.std(ours, ddof=1)) / math.sqrt(len(ours))


def _verdict(row: Row, runs: Sequence[Record], metric: str, error: float | None) -> str:
    if not runs:
        return NOT_RUN
    theirs = row.published_of(metric)
    if theirs is None or error is None:
        return DASH
    selection, ours = as_chosen(row, runs, metric)
    if not ours:
        return f"no figure {selection}"
    difference = float(np.mean(ours)) - theirs["value"]
    found = "within" if abs(difference) <= 2 * error else "below" if difference < 0 else "above"
    return f"{found} ({'oracle' if selection == ORACLE else selection})"


def _absent_notes(rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]) -> list[str]:
    """Say why a way to choose the epoch has no figure, once for all rows it applies to."""
    labels: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for selection in SELECTIONS:
            found = (run.metrics.get(selection, {}).get("absent") for run in runs.get(row.id, []))
            for reason in sorted({reason for reason in found if reason}):
                labels.setdefault((selection, reason), []).append(row.label)
    every = {row.label for row in rows}
    return [
        f"{selection}: {reason} ({'all rows' if {*names} == every else quoted(names)})"
        for (selection, reason), names in labels.items()
    ]


def _further_measures(
    metric: str, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> list[Block]:
    lines = [
        [row.label, *measured]
        for row in rows
        for measured in _measured_further(runs.get(row.id, []), {metric})
    ]
    return [Table(["", "further measure", "mean ± sd (n)"], lines)] if lines else []


def _measured_further(runs: Sequence[Record], shown: Collection[str]) -> list[list[str]]:
    """Return the names and figures of a row's measures that no table shows."""
    lines = []
    for name in sorted({name for run in runs for name in run.extra}.difference(shown)):
        values = list(by_seed(runs, name).values())
        if values:
            share = is_share(name)
            words = _in_words(name) + (" in %" if share else "")
            lines.append([words, mean_sd(values, name, history=share)])
    return lines
