"""A paper's pages as Markdown: an opening page, and one page for each table, figure and list.

The opening page says what was found in two sentences and one picture, and has the main table in
brief. The other pages lie in a folder that has the paper's name. Links to headings that have moved
there still lead to their lines in the list of pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evidence.experiments.papers import column_of, table_of
from evidence.pages.claims import Judged, by_question, count_lines
from evidence.pages.document import (
    Block,
    Figure,
    Link,
    Page,
    Paragraph,
    Prose,
    Section,
    Table,
    escaped,
)
from evidence.pages.drawings import draw_shares
from evidence.pages.origin import hours
from evidence.pages.quoted import anchor_of
from evidence.pages.verdicts import FAILS, HOLDS, NOT_RUN, VERDICTS, by_seed, show
from evidence.pages.words import DASH, as_chosen, in_order, printed_selection
from evidence.records import ORACLE, SHARES, Record, is_share

if TYPE_CHECKING:
    from evidence.experiments.papers import Paper, TablePlan
    from evidence.experiments.rows import Row

RECORDS = "records"
"""Name of the page of runs and their records."""

NAMED = 3
"""Most questions that a sentence of the conclusion names."""


def split(
    paper: Paper,
    page: Page,
    judged: Judged,
    rows: Sequence[Row],
    runs: Mapping[str, Sequence[Record]],
) -> dict[str, Page]:
    """Return the pages of a paper by their names; the opening page has the name "".

    Parameters
    ----------
    paper : Paper
    page : Page
        All sections.
    judged : sequence of (Claim, Verdict)
    rows : sequence of Row
    runs : mapping of str to sequence of Record

    Returns
    -------
    dict of str to Page
    """
    parts: dict[str, list[Section]] = {}
    for section in page.sections:
        parts.setdefault(section.name, []).append(section)
    home = Link(f"All of {page.title}", paper.key, "../")
    pages = {"": _opening(paper, page, parts, judged, rows, runs)}
    for name, sections in parts.items():
        title = "Runs and their records" if name == RECORDS else sections[0].title
        pages[name] = Page(title, home, [_lifted(each) for each in sections])
    return pages


def _lifted(section: Section) -> Section:
    """Let the drawings of a section be found in the folder above."""
    blocks: list[Block] = [
        Figure(f"../{block.file}", block.drawing, block.title, block.legend)
        if isinstance(block, Figure)
        else block
        for block in section.blocks
    ]
    return Section(section.title, blocks, section.name)


def _opening(
    paper: Paper,
    page: Page,
    parts: Mapping[str, Sequence[Section]],
    judged: Judged,
    rows: Sequence[Row],
    runs: Mapping[str, Sequence[Record]],
) -> Page:
    lead: list[Block] = []
    if judged:
        lead.append(Paragraph(conclusion(paper, judged)))
    if drawn := picture(paper, judged):
        lead.append(drawn)
    if paper.about:
        lead.append(Prose(paper.about))
    sections = [Section(page.title, lead)] if lead else []
    for plan in _main(paper):
        of_table = [row for row in rows if table_of(row) == f"{paper.key}/{plan.id}"]
        sections.append(_in_brief(paper, plan, of_table, runs))
    if judged:
        sections.append(_counted(paper, judged))
    sections.append(Section("All pages", [Prose(_contents(paper, parts))]))
    origin = (
        f"[Runs and their records]({paper.key}/{RECORDS}.md) has commands, seconds, memory, data "
        "and commit of every row, and says what was not run, and why."
    )
    sections.append(Section("Where this comes from", [Paragraph(hours(rows, runs)), Prose(origin)]))
    return Page(page.title, page.citation, sections)


def conclusion(paper: Paper, judged: Judged) -> str:
    """Say in two sentences how the paper's own claims fare, and which questions are clear."""
    found = Counter(verdict.verdict for claim, verdict in judged if claim.origin == "paper")
    total = found.total()
    if not total:
        return f"All {len(judged)} claims on these pages are ours or variants of the paper's."
    undecided = total - found[HOLDS] - found[FAILS] - found[NOT_RUN]
    parts = [
        f"{found[HOLDS]} hold in our runs",
        f"{found[FAILS]} do not" if found[FAILS] else "none is refuted",
        f"{undecided} are undecided",
        *([f"{found[NOT_RUN]} could not be tested"] if found[NOT_RUN] else []),
    ]
    told = (
        f"Of the {total} claims that the paper makes on its own data, "
        f"{', '.join(parts[:-1])}, and {parts[-1]}."
    )
    if not paper.questions:
        return told
    of_paper = {
        words: own["paper"] for words, own in by_question(paper, judged).items() if "paper" in own
    }
    clear = [words for words, own in of_paper.items() if own[HOLDS] == own.total()]
    against = [words for words, own in of_paper.items() if not own[HOLDS] and own[FAILS]]
    never = [
        words
        for words, own in of_paper.items()
        if not own[HOLDS] and words not in against and own[NOT_RUN] < own.total()
    ]
    heads = (
        ("Every test confirms", clear),
        ("Tests contradict the claim", against),
        ("No test confirms", never),
    )
    return " ".join([told, *(f"{head} {_that(own)}." for head, own in heads if own)])


def _that(questions: Sequence[str]) -> str:
    """Join a few claims to one sentence."""
    named = [f"that {words}" for words in questions[:NAMED]]
    if (more := len(questions) - NAMED) > 0:
        named += [f"{more} more claims"] if more > 1 else []
        named += [f"that {questions[-1]}"] if more == 1 else []
    return "; ".join([*named[:-1], f"and {named[-1]}"] if len(named) > 1 else named)


def picture(paper: Paper, judged: Judged) -> Figure | None:
    """Draw how the paper's own claims fare, one bar for each question."""
    if not paper.questions:
        return None
    counted = {
        words: [own["paper"][verdict] for verdict in VERDICTS]
        for words, own in by_question(paper, judged).items()
        if "paper" in own
    }
    if not counted:
        return None
    title = "Claims of the paper by verdict"
    drawing = draw_shares(counted, VERDICTS, f"{title}; the page of claims has each")
    legend = ["A number is how many claims of a question have this verdict."]
    return Figure(f"{paper.key}-claims.svg", drawing, title, legend)


def _counted(paper: Paper, judged: Judged) -> Section:
    more = (
        f"[All {len(judged)} claims]({paper.key}/claims.md) have their verdict there, the "
        "difference with its 95 % interval, and a link to their runs."
    )
    return Section("Claims", [Table(["claims", *VERDICTS], count_lines(judged)), Prose(more)])


def _contents(paper: Paper, parts: Mapping[str, Sequence[Section]]) -> str:
    """List the pages; headings that have moved to one leave their anchors at its line."""
    lines = []
    here = {"claims", "where-this-comes-from", *map(anchor_of, _main_titles(paper))}
    for name, sections in parts.items():
        title = "Runs and their records" if name == RECORDS else sections[0].title
        anchors = dict.fromkeys(anchor_of(each.title) for each in sections)
        marks = "".join(f'<a id="{anchor}"></a>' for anchor in anchors if anchor not in here)
        here |= anchors.keys()
        lines.append(f"- {marks}[{escaped(title)}]({paper.key}/{name}.md)")
    return "\n".join(lines)


def _main(paper: Paper) -> list[TablePlan]:
    """The tables that are shown in brief."""
    names = paper.main or [plan.id for plan in paper.tables[:1]]
    return [plan for plan in paper.tables if plan.id in names]


def _main_titles(paper: Paper) -> list[str]:
    return [plan.title for plan in _main(paper)]


# -- the main table in brief ----------------------------------------------------------------------


def _in_brief(
    paper: Paper, plan: TablePlan, rows: Sequence[Row], runs: Mapping[str, Sequence[Record]]
) -> Section:
    """Show the first measure of a table, ours with the paper's in brackets."""
    metric = plan.metrics[0]
    printed = [row for row in rows if row.published_of(metric)]
    shown = printed or rows
    columns = in_order(
        [c for c in plan.columns if c in {column_of(row) for row in shown}],
        (column_of(row) for row in shown),
    )
    labels = [
        label
        for label in in_order(plan.rows, (row.label for row in rows))
        if label in {row.label for row in shown}
    ]
    by_place = {(row.label, column_of(row)): row for row in rows}
    lines = [
        [label, *(_cell(by_place.get((label, column)), metric, runs) for column in columns)]
        for label in labels
    ]
    measure = metric.replace("_", " ").replace("macro f1", "macro-F1")
    share = is_share(metric)
    reading = f"{measure.capitalize()}{' in per cent' if share else ''}: mean ± standard deviation"
    reading += " over seeds, "
    reading += "with the epoch chosen as the paper does" if printed else "of the last epoch"
    if any(printed_selection(row, metric) == ORACLE for row in printed):
        reading += (
            " (where it chooses on the test set, its figure is an oracle, and ours is of the "
        )
        reading += "last epoch)"
    reading += "; in brackets what the paper prints." if printed else "."
    more = (
        f"[The whole table]({paper.key}/{plan.id}.md) has the number of seeds, every way to choose "
        "the epoch, further rows and measures, and how the runs differ from the paper's."
    )
    return Section(plan.title, [Paragraph(reading), Table(["", *columns], lines), Prose(more)])


def _cell(row: Row | None, metric: str, runs: Mapping[str, Sequence[Record]]) -> str:
    if row is None:
        return DASH
    found = runs.get(row.id, [])
    selection, values = as_chosen(row, found, metric)
    oracle = selection == ORACLE
    if oracle:  # The paper's figure is one, ours is none.
        values = list(by_seed(found, metric).values())
    theirs = row.published_of(metric)
    mark = " oracle" if oracle else ""
    beside = f" ({_brief(metric, theirs['value'])}{mark})" if theirs else ""
    if not values:
        return f"{NOT_RUN}{beside}"
    sd = f" ± {_brief(metric, float(np.std(values, ddof=1)))}" if len(values) > 1 else ""
    return f"{_brief(metric, float(np.mean(values)))}{sd}{beside}"


def _brief(metric: str, value: float) -> str:
    if metric in SHARES or is_share(metric):
        return f"{100 * value:.1f}"
    return show(metric, value)
