"""A paper's tables, figures and verdicts beside ours: one page, made from records alone.

`make_page` decides what is said; `to_markdown` and `to_html` write it. The same records give the
same bytes: every date is a record's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING

from evidence.experiments.papers import ORIGINS, paper_of
from evidence.pages.document import (
    Figure,
    Page,
    Paragraph,
    Section,
    Table,
    to_html,
    to_markdown,
)
from evidence.pages.origin import gap_section, origin_section
from evidence.pages.tables import table_section, verdict_hangs
from evidence.pages.verdicts import VERDICTS, judge
from evidence.pages.words import figure_file
from evidence.records import Record
from evidence.reruns import Rerun
from evidence.store import latest_records
from manyhands.files import write_atomically

if TYPE_CHECKING:
    from evidence.experiments.papers import Paper
    from evidence.experiments.rows import Row

FORMATS = ("md", "html")

CLAIMS = ["claim", "whose", "verdict", "why"]
"""Headings of the table of claims."""

NO_RERUNS: Mapping[str, Rerun] = MappingProxyType({})


def write_results(
    paper: Paper,
    rows: Iterable[Row],
    records: Iterable[Record],
    out: str | Path,
    formats: Sequence[str] = FORMATS,
    reruns: Mapping[str, Rerun] = NO_RERUNS,
) -> list[Path]:
    """Write a paper's page and its figures.

    Parameters
    ----------
    paper : Paper
    rows : iterable of Row
        Those of other papers are left out.
    records : iterable of Record
    out : str or Path
        Folder; gets ``<paper>.md``, ``<paper>.html`` and ``<paper>-<figure>.svg``, or
        ``<paper>-<sheet>.svg`` with several figures.
    formats : sequence of {"md", "html"}
    reruns : mapping of str to Rerun
        Row -> what its last rerun found; see `read_reruns`.

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
    page = make_page(paper, rows, records, reruns)
    out = Path(out)
    written = []
    for plan in paper.figures:
        # Remove drawings of an earlier page, which may have had more runs.
        (out / figure_file(paper, plan)).unlink(missing_ok=True)
    if "md" in formats:
        written.append(write_atomically(out / f"{paper.key}.md", to_markdown(page)))
    if "html" in formats:
        written.append(write_atomically(out / f"{paper.key}.html", to_html(page)))
    figures = [b for section in page.sections for b in section.blocks if isinstance(b, Figure)]
    return written + [write_atomically(out / figure.file, figure.svg) for figure in figures]


def make_page(
    paper: Paper,
    rows: Iterable[Row],
    records: Iterable[Record],
    reruns: Mapping[str, Rerun] = NO_RERUNS,
) -> Page:
    """Make the page of a paper from records.

    Parameters
    ----------
    paper : Paper
    rows : iterable of Row
    records : iterable of Record
        Which of them count: see `latest_records`.
    reruns : mapping of str to Rerun

    Returns
    -------
    Page
    """
    own = _rows_of(paper, rows)
    latest = latest_records(own.values(), records)
    runs = _finished(latest)
    of_paper = [row for row in own.values() if paper_of(row) == paper.key]
    sections = [table_section(paper, plan, of_paper, runs) for plan in paper.tables]
    if paper.figures:
        # Drawing needs markupsafe, of the extra 'report'; a page without figures does not.
        from evidence.pages.figures import figure_sections

        sections += figure_sections(paper, of_paper, runs)
    if paper.claims:
        sections.append(_claim_section(paper, own, runs))
    sections.append(gap_section(list(own.values()), latest, paper.unavailable))
    sections.append(origin_section(paper, list(own.values()), runs, reruns))
    return Page(paper.title, paper.citation, sections)


def hanging_rows(
    paper: Paper,
    rows: Iterable[Row],
    records: Iterable[Record],
    *,
    seeds: int = 10,
    most_seconds: float = 60.0,
) -> list[Row]:
    """Return the rows that should run with more seeds, because a verdict hangs on a few runs.

    A verdict hangs where one standard error of our mean, up or down, would change it: that of a
    claim, or that of a row beside its printed accuracy. Rows that have as many seeds are left out,
    and so are verdicts that need a row whose median run takes longer.

    Parameters
    ----------
    paper : Paper
    rows : iterable of Row
    records : iterable of Record
    seeds : int
        How many seeds are enough.
    most_seconds : float
        Of a run.

    Returns
    -------
    list of Row
        In the order of their ids.
    """
    own = _rows_of(paper, rows)
    runs = _finished(latest_records(own.values(), records))
    verdicts = [claim.rows for claim in paper.claims if judge(claim.test, own, runs).hangs]
    verdicts += [[name] for name, row in own.items() if verdict_hangs(row, runs[name])]
    affordable = {name for name, found in runs.items() if _median_seconds(found) <= most_seconds}
    needed = {name for names in verdicts if affordable.issuperset(names) for name in names}
    return [row for name, row in own.items() if name in needed and len(runs[name]) < seeds]


def _rows_of(paper: Paper, rows: Iterable[Row]) -> dict[str, Row]:
    """Return the rows of a paper's tables, claims and figures by id, in the order of ids."""
    used = {name for claim in paper.claims for name in claim.rows}
    used |= {panel.row for plan in paper.figures for panel in plan.panels}
    return {
        row.id: row
        for row in sorted(rows, key=lambda r: r.id)
        if paper_of(row) == paper.key or row.id in used
    }


def _finished(latest: Mapping[str, Mapping[int, Record]]) -> dict[str, list[Record]]:
    return {
        name: [record for record in found.values() if record.status == "done"]
        for name, found in latest.items()
    }


def _median_seconds(runs: Sequence[Record]) -> float:
    return median(record.seconds for record in runs) if runs else 0.0


def _claim_section(
    paper: Paper, rows: Mapping[str, Row], runs: Mapping[str, Sequence[Record]]
) -> Section:
    verdicts = [(claim, judge(claim.test, rows, runs)) for claim in paper.claims]
    lines = [
        [claim.text, ORIGINS[claim.origin], found.verdict, found.why] for claim, found in verdicts
    ]
    reading = (
        "A claim holds where the whole 95 % interval (Student's t, runs paired by seed) is on the "
        "claimed side; it does not hold where the whole is on the other side; else it is undecided "
        "with this number of seeds, and the verdict says where the interval excludes the "
        "difference that the paper reports. What no finished run or no data can show is not run. "
        f"Every interval is its own: of {len(lines)} claims one in twenty may be judged wrongly by "
        "chance."
    )
    whose = (
        "A claim is the paper's if the paper makes it of its method, on this data set, in this "
        "form; the rows' deviations say how near the runs come. It is a variant if it is the "
        "paper's on another data set or a stand-in, of a variant of the method, under a further "
        "protocol or reading, or in another form. It is ours if it is the library's own question "
        "or aim."
    )
    found = Counter((claim.origin, verdict.verdict) for claim, verdict in verdicts)
    counted = [
        [words, *(str(found[origin, verdict]) for verdict in VERDICTS)]
        for origin, words in ORIGINS.items()
        if any(claim.origin == origin for claim in paper.claims)
    ]
    header = ["claims", *VERDICTS]
    tables = [Table(header, counted), Table(CLAIMS, lines)]
    return Section("Claims", [Paragraph(reading), Paragraph(whose), *tables])
