"""A paper's tables, figures and verdicts beside ours: one page, made from records alone.

`make_page` decides what is said, as sections of blocks; Markdown and HTML are two ways to write
the same blocks. The same records give the same bytes: every date is a record's.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyhands.evidence.experiments.papers import CURVES, column_of, paper_of, table_of
from manyhands.evidence.pages.claims import by_seed, judge, show
from manyhands.evidence.records.records import (
    LAST,
    ORACLE,
    PROTOCOLS,
    SHARES,
    SHORT,
    Record,
    digest,
    is_share,
    noted,
    profiled,
)
from manyhands.exceptions import raise_missing_extra
from manyhands.io.files import write_atomically

if TYPE_CHECKING:
    from manyhands.evidence.experiments.papers import FigurePlan, Paper, TablePlan
    from manyhands.evidence.experiments.rows import Row
    from manyhands.evidence.pages.drawings import Point

DASH = "–"
NOT_RUN = "not run"
FORMATS = ("md", "html")

MOST_COLUMNS = 15
"""Places on the x axis that a table has a column each for; of more, every few."""


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list under a short lead."""

    lead: str
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table; the first column names its rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A drawing: a file beside a Markdown page, inline in an HTML page."""

    file: str
    svg: str
    caption: str


Block = Heading | Paragraph | Items | Table | Figure


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    blocks: Sequence[Block] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Name of the section in links."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower()).strip("-")


@dataclass(frozen=True)
class Page:
    """What is said of a paper."""

    title: str
    citation: str
    sections: Sequence[Section]


def write_results(
    paper: Paper,
    rows: Iterable[Row],
    records: Iterable[Record],
    out: str | Path,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Write a paper's page and its figures.

    Parameters
    ----------
    paper : Paper
    rows : iterable of Row
        Those of other papers are left out.
    records : iterable of Record
    out : str or Path
        Folder; gets ``<paper>.md``, ``<paper>.html`` and ``<paper>-<figure>.svg``.
    formats : sequence of {"md", "html"}

    Returns
    -------
    list of Path
        What was written, the page first.

    Raises
    ------
    WriteError
        If the folder cannot be written.
    MissingExtraError
        Without the extra 'report'.
    """
    page = make_page(paper, rows, records)
    out = Path(out)
    written = []
    for plan in paper.figures:
        # Of an earlier page, which may have had more runs.
        (out / _file_of(paper, plan)).unlink(missing_ok=True)
    if "md" in formats:
        written.append(write_atomically(out / f"{paper.key}.md", to_markdown(page)))
    if "html" in formats:
        written.append(write_atomically(out / f"{paper.key}.html", to_html(page)))
    figures = [b for section in page.sections for b in section.blocks if isinstance(b, Figure)]
    return written + [write_atomically(out / figure.file, figure.svg) for figure in figures]


def make_page(paper: Paper, rows: Iterable[Row], records: Iterable[Record]) -> Page:
    """Say what the records tell of a paper.

    Parameters
    ----------
    paper : Paper
    rows : iterable of Row
    records : iterable of Record
        Which of them count: see `latest_records`.

    Returns
    -------
    Page
    """
    own = {row.id: row for row in sorted(rows, key=lambda r: r.id)}
    latest = latest_records(own.values(), records)
    runs = {
        name: [record for record in found.values() if record.status == "done"]
        for name, found in latest.items()
    }
    of_paper = [row for row in own.values() if paper_of(row) == paper.key]
    sections = [_table_section(paper, plan, of_paper, runs) for plan in paper.tables]
    sections += [_figure_section(paper, plan, of_paper, runs) for plan in paper.figures]
    if paper.claims:
        sections.append(_claim_section(paper, own, runs))
    used = {name for claim in paper.claims for name in claim.rows}
    used |= {panel.row for plan in paper.figures for panel in plan.panels}
    shown = [row for row in own.values() if row in of_paper or row.id in used]
    sections.append(_gap_section(shown, latest))
    sections.append(_origin_section(paper, shown, runs))
    return Page(paper.title, paper.citation, sections)


def latest_records(rows: Iterable[Row], records: Iterable[Record]) -> dict[str, dict[int, Record]]:
    """Return, for every row, the record that counts of every seed.

    They are of the row's present specification, and all of one code (the one that ran last) and,
    but for data made anew with every seed, of the same data: a mean is of runs of the same thing.
    A failure does not outweigh a finished run of the same thing; what was only skipped counts
    where nothing ran.
    """
    own = {row.id: row for row in rows}
    of_row: dict[str, list[Record]] = {name: [] for name in own}
    for record in sorted(records, key=lambda r: (r.confirmed or r.started, r.key)):
        row = own.get(record.row)
        if row is not None and row.key == digest(record.specification):
            of_row[row.id].append(record)
    found = {}
    for name, candidates in of_row.items():
        kept = sorted(_of_one_kind(own[name], candidates), key=lambda r: r.status == "done")
        found[name] = dict(sorted({record.seed: record for record in kept}.items()))
    return found


def _of_one_kind(row: Row, records: Sequence[Record]) -> list[Record]:
    """Keep the runs of one code and of the same data, from runs in the order of their time."""
    ran = [r for r in records if r.status != "skipped"]
    if not ran:
        return list(records)
    # A failure before the data were there says nothing of what finished with them.
    leading = next((r for r in reversed(ran) if r.data_checksum), ran[-1])
    kept = [r for r in ran if r.code == leading.code]
    if row.data_of(0) == row.data_of(1):
        kept = [r for r in kept if r.data_checksum in ("", leading.data_checksum)]
    return kept


def mean_sd(values: Sequence[float], metric: str, *, history: bool = False) -> str:
    """Write ``mean ± sd (n)`` of a measure, or of a column of a history.

    Examples
    --------
    >>> mean_sd([0.86, 0.88], "accuracy")
    '87.00 ± 1.41 (2)'
    """
    if not values:
        return DASH
    mean = show(metric, float(np.mean(values)), history=history)
    if len(values) == 1:
        return f"{mean} (1)"
    return (
        f"{mean} ± {show(metric, float(np.std(values, ddof=1)), history=history)} ({len(values)})"
    )


def binomial_error(share: float, n: int) -> float:
    """Standard error of a share of ``n`` independent test instances."""
    return math.sqrt(share * (1 - share) / n)


def to_markdown(page: Page) -> str:
    """Write a page as Markdown."""
    parts = [f"# {_md(page.title)}", _md(page.citation)]
    for section in page.sections:
        parts.append(f"## {_md(section.title)}")
        parts += [_block_markdown(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def to_html(page: Page) -> str:
    """Write a page as one self-contained HTML file, without JavaScript, in light and dark.

    Raises
    ------
    MissingExtraError
        Without the extra 'report'.
    """
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise_missing_extra("to_html", "report", error)
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("manyhands.evidence.pages", "templates"),
                # One style for all of the project's pages.
                PackageLoader("manyhands.report", "templates"),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment.get_template("results.html").render(page=page)


def _table_section(
    paper: Paper, plan: TablePlan, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> Section:
    mine = [row for row in rows if table_of(row) == f"{paper.key}/{plan.id}"]
    metric, *others = plan.metrics
    if others:
        shown = {name for table in paper.tables for name in table.metrics}
        several = _several_measures(plan, mine, runs, shown)
        return Section(plan.title, [*several, *_deviations(mine)])
    blocks: list[Block] = [Paragraph(_reading_of(metric))]
    for column in _in_order(plan.columns, (column_of(row) for row in mine)):
        here = [row for row in mine if column_of(row) == column]
        blocks += [Heading(column), _figures_table(plan, metric, here, runs)]
        notes = _absent_notes(here, runs) if metric in SHARES else []
        if notes:
            blocks.append(Items("No figure:", notes))
        blocks += _further_measures(metric, here, runs)
    return Section(plan.title, [*blocks, *_deviations(mine)])


def _several_measures(
    plan: TablePlan,
    rows: Sequence[Row],
    runs: Mapping[str, Sequence[Record]],
    shown: Collection[str],
) -> list[Block]:
    """Show a table once a measure, as a paper prints it: a line a row, the columns side by side.

    ``shown`` are the measures of all tables of the page: no table repeats another's.
    """
    reading = (
        "Mean ± standard deviation over seeds (number of seeds), beside the paper's value; of the "
        "last epoch. Accuracies, recalls, macro-F1 and shares in per cent."
    )
    blocks: list[Block] = [Paragraph(reading)]
    columns = _in_order(plan.columns, (column_of(row) for row in rows))
    labels = _in_order(plan.rows, (row.label for row in rows))
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
    lines = []
    for row in (row for label in labels for row in rows if row.label == label):
        found = runs.get(row.id, [])
        for name in sorted({name for run in found for name in run.extra}.difference(shown)):
            values = list(by_seed(found, name).values())
            if values:
                figure = mean_sd(values, name, history=is_share(name))
                lines.append([row.label, column_of(row), _in_words(name), figure])
    if lines:
        header = ["", "column", "further measure", "mean ± sd (n)"]
        blocks += [Heading("Further measures"), Table(header, lines)]
    return blocks


def _ours_and_theirs(row: Row, metric: str, runs: Mapping[str, Sequence[Record]]) -> str:
    found, share = runs.get(row.id, []), is_share(metric)
    values = list(by_seed(found, metric, LAST).values())
    ours = mean_sd(values, metric, history=share) if found else NOT_RUN
    theirs = _paper(row, metric, history=share)
    return ours if theirs == DASH else f"{ours}; paper {theirs}"


def _in_words(metric: str) -> str:
    return metric.replace("_", " ").replace("macro f1", "macro-F1")


def _reading_of(metric: str) -> str:
    if metric not in SHARES:
        return "Mean ± standard deviation over seeds (number of seeds), beside the paper's value."
    return (
        "In per cent: mean ± standard deviation over seeds (number of seeds), by how the epoch was "
        "chosen, beside the paper's value. What was chosen on the test set is marked as an oracle: "
        "it is no result. “± test set” is the binomial standard error of the test set at the "
        "paper's value (at ours, where the paper gives none); the verdict says whether our figure, "
        "by the paper's own choice of epoch (the last epoch where it is not known), is within, "
        "below or above the paper's by two of them. Seconds: of a run, with its second fit where "
        "annotations are held out."
    )


def _figures_table(
    plan: TablePlan, metric: str, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> Table:
    own = PROTOCOLS if metric in SHARES else ("ours",)
    tail = ["seconds", "paper", "± test set", "verdict"] if metric in SHARES else ["paper"]
    lines = []
    for label in _in_order(plan.rows, (row.label for row in rows)):
        named = [row for row in rows if row.label == label]
        lines += [_figures_line(metric, row, runs.get(row.id, [])) for row in named]
        if not named:
            lines.append([label, *[DASH] * (len(own) + len(tail) - 1), "no row yet"])
    return Table(["", *own, *tail], lines)


def _figures_line(metric: str, row: Row, runs: Sequence[Record]) -> list[str]:
    if metric not in SHARES:
        return [
            row.label,
            mean_sd(list(by_seed(runs, metric).values()), metric),
            _paper(row, metric),
        ]
    cells = [_measure_cell(runs, metric, protocol) for protocol in PROTOCOLS]
    error = _test_error(row, runs, metric)
    shown = DASH if error is None else show(metric, error)
    seconds = f"{np.mean([run.seconds for run in runs]):.1f}" if runs else DASH
    verdict = _verdict(row, runs, metric, error)
    return [row.label, *cells, seconds, _paper(row, metric), shown, verdict]


def _measure_cell(runs: Sequence[Record], metric: str, protocol: str) -> str:
    """Write a figure; no oracle's goes without its mark."""
    text = mean_sd(list(by_seed(runs, metric, protocol).values()), metric)
    oracle = protocol == ORACLE and metric in SHARES and text != DASH
    return f"{text} oracle" if oracle else text


def _paper(row: Row, metric: str, *, history: bool = False) -> str:
    """Write the paper's figure of a measure with how its epoch was chosen."""
    published = row.published_of(metric)
    if published is None:
        return DASH
    sd, n = published.get("sd"), published.get("n")
    text = show(metric, published["value"], history=history)
    text += "" if sd is None else f" ± {show(metric, sd, history=history)}"
    text += "" if n is None else f" ({n})"
    chosen = _published_protocol(row, metric)
    return f"{text} oracle" if chosen == ORACLE else text + (f", {chosen}" if chosen else "")


def _published_protocol(row: Row, metric: str) -> str | None:
    """Return the protocol that the paper's figure was chosen by; None if it does not say."""
    return SHORT.get((row.published_of(metric) or {}).get("selection") or "")


def _test_error(row: Row, runs: Sequence[Record], metric: str) -> float | None:
    """Binomial standard error of the test set; only accuracy has one."""
    sizes = {n for run in runs if (n := run.metrics.get(LAST, {}).get("n_test")) is not None}
    if metric != "accuracy" or len(sizes) != 1:
        return None
    theirs = row.published_of(metric)
    ours = list(by_seed(runs, metric).values())
    share = theirs["value"] if theirs else float(np.mean(ours))
    return binomial_error(share, sizes.pop())


def _verdict(row: Row, runs: Sequence[Record], metric: str, error: float | None) -> str:
    if not runs:
        return NOT_RUN
    theirs = row.published_of(metric)
    if theirs is None or error is None:
        return DASH
    protocol = _published_protocol(row, metric) or LAST
    ours = list(by_seed(runs, metric, protocol).values())
    if not ours:
        return f"no figure {protocol}"
    difference = float(np.mean(ours)) - theirs["value"]
    found = "within" if abs(difference) <= 2 * error else "below" if difference < 0 else "above"
    return f"{found} ({'oracle' if protocol == ORACLE else protocol})"


def _absent_notes(rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]) -> list[str]:
    """Say why a protocol has no figure, once for all rows that it holds of."""
    labels: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for protocol in PROTOCOLS:
            found = (run.metrics.get(protocol, {}).get("absent") for run in runs.get(row.id, []))
            for reason in sorted({reason for reason in found if reason}):
                labels.setdefault((protocol, reason), []).append(row.label)
    return [
        f"{protocol}: {reason} ({', '.join(dict.fromkeys(names))})"
        for (protocol, reason), names in labels.items()
    ]


def _further_measures(
    metric: str, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> list[Block]:
    lines = []
    for row in rows:
        found = runs.get(row.id, [])
        for name in sorted({name for run in found for name in run.extra} - {metric}):
            values = list(by_seed(found, name).values())
            if values:
                share = is_share(name)
                lines.append(
                    [
                        row.label,
                        name.replace("_", " ") + (" in %" if share else ""),
                        mean_sd(values, name, history=share),
                    ]
                )
    return [Table(["", "further measure", "mean ± sd (n)"], lines)] if lines else []


def _deviations(rows: Sequence[Row]) -> list[Block]:
    labels: dict[str, list[str]] = {}
    for row in rows:
        for text in row.deviations:
            labels.setdefault(text, []).append(f"{row.label} on {column_of(row)}")
    items = [
        f"{text} ({'all rows' if len(names) == len(rows) else '; '.join(dict.fromkeys(names))})"
        for text, names in labels.items()
    ]
    return [Items("Deviations from the paper:", items)] if items else []


def _file_of(paper: Paper, plan: FigurePlan) -> str:
    return f"{paper.key}-{plan.id}.svg"


def _figure_section(
    paper: Paper, plan: FigurePlan, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> Section:
    mine = [row for row in rows if table_of(row) == f"{paper.key}/{plan.id}"]
    file = _file_of(paper, plan)
    if plan.kind in CURVES:
        table = next(each for each in paper.tables if each.id == plan.table)
        drawn = [row for row in rows if table_of(row) == f"{paper.key}/{table.id}"]
        return Section(plan.title, _curve_blocks(plan, table, file, drawn, runs))
    if plan.kind == "matrices":
        return Section(plan.title, [*_matrices(plan, file, runs), *_deviations(mine)])
    return Section(plan.title, [*_lines(plan, file, mine, runs), *_deviations(mine)])


def _lines(
    plan: FigurePlan, file: str, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> list[Block]:
    from manyhands.evidence.pages.drawings import Lines, draw_lines

    measure = plan.metric.replace("_", " ")
    # The protocol stands in the drawing itself, with its mark if it is an oracle.
    measure += f" in %, {plan.selection}" if plan.metric in SHARES else ""
    panels: list[Lines] = []
    tables: list[Block] = []
    for column in _in_order(plan.columns, (column_of(row) for row in rows)):
        here = [row for row in rows if column_of(row) == column]
        tables += [Heading(column), _points_table(plan, here, runs)]
        series = _series(plan, here, runs)
        if series:
            panels.append(Lines(column, plan.x_label, measure, series))
    tables.insert(0, Paragraph(f"{measure}, by {plan.x_label}: mean ± sd (seeds)."))
    if not panels:
        return [Paragraph("No finished run yet."), *tables]
    caption = f"{plan.title}. Points: mean over seeds; bars: ± one standard deviation."
    told = f"{plan.title}: {measure} by {plan.x_label}; the table beneath has the numbers"
    return [Figure(file, draw_lines(panels, told), caption), *tables]


def _series(
    plan: FigurePlan, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> dict[str, list[Point]]:
    """Return the points of every label that has finished runs."""
    from manyhands.evidence.pages.drawings import Point

    series: dict[str, list[Point]] = {}
    for label in _in_order(plan.rows, (row.label for row in rows)):
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
    for label in _in_order(plan.rows, (row.label for row in rows)):
        cells: dict[Any, list[str]] = {place: [] for place in places}
        for row in (row for row in rows if row.label == label):
            text = _measure_cell(runs.get(row.id, []), plan.metric, plan.selection)
            theirs = _paper(row, plan.metric)
            paper = "" if theirs == DASH else f"; paper {theirs}"
            cells[plan.place(row)].append(text + paper)
        lines.append([label, *(" / ".join(cells[place]) or DASH for place in places)])
    return Table(["", *(f"{place:g}" for place in places)], lines)


Curve = Mapping[float, Sequence[float]]
"""Place on the x axis -> what runs noted or measured there."""


def _curve_blocks(
    plan: FigurePlan,
    table: TablePlan,
    file: str,
    rows: Sequence[Row],
    runs: Mapping[str, Sequence[Record]],
) -> list[Block]:
    from manyhands.evidence.pages.drawings import Lines, draw_lines

    measure = plan.metric.replace("_", " ") + (" in %" if is_share(plan.metric) else "")
    panels: list[Lines] = []
    tables: list[Block] = []
    missing: dict[str, list[str]] = {}
    for column in plan.columns or _in_order(table.columns, map(column_of, rows)):
        every = [row for row in rows if column_of(row) == column]
        labels = plan.rows or tuple(_in_order(table.rows, (row.label for row in every)))
        here = [row for row in every if row.label in labels]
        # What is level for all may be measured by a row without a curve.
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
        told = f"{plan.title}: {measure} by {plan.x_label}; the table beneath has the numbers"
        top = 100.0 if is_share(plan.metric) else math.inf
        drawing = draw_lines(panels, told, bands=True, log=plan.log, top=top)
        blocks.append(Figure(file, drawing, _curve_caption(plan)))
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


def _curve_caption(plan: FigurePlan) -> str:
    caption = f"{plan.title}. Lines: mean over seeds; bands: ± one standard deviation"
    # 0 has no place on such an axis, and a mean less its standard deviation may be below.
    axis = "; logarithmic axis, which cuts bands and leaves out 0 and less" if plan.log else ""
    return f"{caption}{axis}."


def _curves(
    plan: FigurePlan,
    rows: Sequence[Row],
    labels: Sequence[str],
    runs: Mapping[str, Sequence[Record]],
) -> dict[str, Curve]:
    """Return what the runs of every label gave; rows of one label are told apart by their id."""
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
    """Return every level of a panel by seed: what rows say of one seed is one thing."""
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
    from manyhands.evidence.pages.drawings import Point

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
            f"columns: one {plan.x_label} in {step} of {len(places)} from the first on, and the "
            "last; the drawing has all"
        )
    return [*blocks, Paragraph("; ".join(notes) + ".")] if notes else blocks


def _matrices(plan: FigurePlan, file: str, runs: Mapping[str, Sequence[Record]]) -> list[Block]:
    from manyhands.evidence.pages.drawings import Matrix, draw_matrices

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
        caption = f"{plan.title}. Rows: true class; columns: given class; seed {of}."
        blocks.append(Figure(file, draw_matrices(panels, plan.title), caption))
    if missing:
        blocks.append(Items("No finished run with:", missing))
    return blocks


def _claim_section(
    paper: Paper, rows: Mapping[str, Row], runs: Mapping[str, Sequence[Record]]
) -> Section:
    verdicts = [(claim, judge(claim.test, rows, runs)) for claim in paper.claims]
    lines = [[claim.text, found.verdict, found.why] for claim, found in verdicts]
    reading = (
        "A claim holds where the whole 95 % interval (Student's t, runs paired by seed) is on the "
        "claimed side; it does not hold where the whole is on the other side; else so many seeds "
        "cannot tell. Every interval is its own: of "
        f"{len(lines)} claims one in twenty may be judged wrongly by chance."
    )
    return Section("Claims", [Paragraph(reading), Table(["claim", "verdict", "why"], lines)])


def _gap_section(rows: Sequence[Row], latest: Mapping[str, Mapping[int, Record]]) -> Section:
    """List what has no figure, with its reason; rows of the same fate share a line."""
    fates: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        for (status, reason), seeds in _gaps(row, latest[row.id]).items():
            fate = (status, reason, ", ".join(map(str, seeds)))
            fates.setdefault(fate, []).append(row.id)
    title = "Not run, skipped and failed"
    if not fates:
        return Section(title, [Paragraph("Nothing: every run is done.")])
    lines = [[*fate, ", ".join(names)] for fate, names in sorted(fates.items())]
    return Section(title, [Table(["what", "why", "seeds", "rows"], lines)])


def _gaps(row: Row, latest: Mapping[int, Record]) -> dict[tuple[str, str], list[int]]:
    gaps: dict[tuple[str, str], list[int]] = {}
    for seed in sorted({*row.seeds, *latest}):
        record = latest.get(seed)
        if record is None:
            why = "no record yet" + (" (needs a GPU)" if row.device == "gpu" else "")
            gaps.setdefault((NOT_RUN, why), []).append(seed)
        elif record.status != "done":
            gaps.setdefault((record.status, record.reason or DASH), []).append(seed)
    return gaps


def _origin_section(
    paper: Paper, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> Section:
    all_runs = [run for row in rows for run in runs.get(row.id, [])]
    command = f"manyhands reproduce {paper.key} && manyhands results {paper.key}"
    blocks: list[Block] = [
        Paragraph(
            f"Made from {len(all_runs)} records by: {command}. All runs of a row are of one code "
            "and, unless a crowd is simulated anew with every seed, of the same data."
        )
    ]
    lines = [_origin_line(row.id, runs[row.id]) for row in rows if runs.get(row.id)]
    if lines:
        header = ["row", "seeds", "seconds a run", "peak MB", "data", "code", "commit", "run on"]
        blocks.append(Table(header, lines))
        versions = {f"{name} {v}" for run in all_runs for name, v in run.versions.items()}
        blocks.append(Items("Versions:", sorted(versions)))
    return Section("Where this comes from", blocks)


def _origin_line(name: str, runs: Sequence[Record]) -> list[str]:
    def several(values: Iterable[str | None], length: int) -> str:
        return ", ".join(sorted({value[:length] for value in values if value})) or DASH

    memory = [run.peak_memory_mb for run in runs if run.peak_memory_mb is not None]
    days = sorted({run.started[:10] for run in runs})
    return [
        name,
        ", ".join(str(run.seed) for run in runs),
        f"{np.mean([run.seconds for run in runs]):.1f}",
        f"{max(memory):.0f}" if memory else DASH,
        several((run.data_checksum for run in runs), 8),
        several((run.code for run in runs), 8),
        several((run.commit for run in runs), 8),
        days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
    ]


def _in_order(planned: Sequence[str], found: Iterable[str]) -> list[str]:
    """Return the planned names, then the others that rows bring."""
    return list(dict.fromkeys([*planned, *found]))


def _block_markdown(block: Block) -> str:
    match block:
        case Heading(text):
            return f"### {_md(text)}"
        case Paragraph(text):
            return _md(text)
        case Items(lead, items):
            return "\n".join([_md(lead), "", *(f"- {_md(item)}" for item in items)])
        case Table(header, rows):
            lines = [header, ["---"] * len(header), *rows]
            return "\n".join(f"| {' | '.join(_md(cell) for cell in line)} |" for line in lines)
        case Figure(file, _, caption):
            return f"![{_md(caption)}]({file})\n\n{_md(caption)}"


def _md(text: Any) -> str:
    """Keep a text from acting as Markdown or HTML, and on one line."""
    flat = " ".join(str(text).split())
    for character in "\\|<`[]*":
        flat = flat.replace(character, {"<": "&lt;"}.get(character, f"\\{character}"))
    return flat
