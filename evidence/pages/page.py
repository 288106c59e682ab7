"""A paper's tables, figures and verdicts beside ours: one page, made from records alone.

`make_page` decides what is said; `to_html` writes it as one page, `to_markdown` as several, which
`split` makes. The same records give the
same bytes: every date is a record's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING

from evidence.experiments.papers import paper_of
from evidence.pages.claims import claim_section
from evidence.pages.document import (
    Figure,
    Page,
    to_html,
    to_markdown,
)
from evidence.pages.origin import gap_section, origin_section
from evidence.pages.tables import table_section, verdict_hangs
from evidence.pages.verdicts import judge
from evidence.pages.words import figure_file
from evidence.records import Record
from evidence.reruns import Rerun
from evidence.store import latest_records
from manyhands.files import write_atomically

if TYPE_CHECKING:
    from evidence.experiments.papers import Paper
    from evidence.experiments.rows import Row

FORMATS = ("md", "html")

NO_RERUNS: Mapping[str, Rerun] = MappingProxyType({})


def write_results(
    paper: Paper,
    rows: Iterable[Row],
    records: Iterable[Record],
    out: str | Path,
    formats: Sequence[str] = FORMATS,
    reruns: Mapping[str, Rerun] = NO_RERUNS,
) -> list[Path]:
    """Write a paper's pages and its figures.

    Parameters
    ----------
    paper : Paper
    rows : iterable of Row
        Those of other papers are left out.
    records : iterable of Record
    out : str or Path
        Folder; gets ``<paper>.md``, which opens the pages in ``<paper>/``, ``<paper>.html``, which
        has everything, and ``<paper>-<figure>.svg``, or ``<paper>-<sheet>.svg`` with several
        figures.
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
    rows, records = list(rows), list(records)
    page = make_page(paper, rows, records, reruns)
    out = Path(out)
    written = []
    figures = [b for section in page.sections for b in section.blocks if isinstance(b, Figure)]
    for plan in paper.figures:
        # Remove drawings of an earlier page, which may have had more runs.
        (out / figure_file(paper, plan)).unlink(missing_ok=True)
    if "md" in formats:
        # The opening page draws, which needs markupsafe, of the extra 'report'.
        from evidence.pages.opening import split

        own = _rows_of(paper, rows)
        runs = _finished(latest_records(own.values(), records))
        judged = [(claim, judge(claim.test, own, runs)) for claim in paper.claims]
        pages = split(paper, page, judged, list(own.values()), runs)
        figures += [b for each in pages[""].sections for b in each.blocks if isinstance(b, Figure)]
        for name, part in pages.items():
            place = out / paper.key / f"{name}.md" if name else out / f"{paper.key}.md"
            place.parent.mkdir(parents=True, exist_ok=True)
            written.append(write_atomically(place, to_markdown(part)))
        for left in {*(out / paper.key).glob("*.md")} - {*written}:
            left.unlink()  # A part of an earlier page.
    if "html" in formats:
        written.append(write_atomically(out / f"{paper.key}.html", to_html(page)))
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
        sections.append(claim_section(paper, own, runs))
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
