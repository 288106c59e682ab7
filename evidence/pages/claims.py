"""The page of a paper's claims: their verdicts, counted by question, and links to their runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evidence.experiments.papers import ORIGINS, table_of
from evidence.pages.document import Block, Link, Paragraph, Section, Table
from evidence.pages.verdicts import VERDICTS, Verdict, judge
from evidence.pages.words import DASH

if TYPE_CHECKING:
    from evidence.experiments.papers import Claim, Paper
    from evidence.experiments.rows import Row
    from evidence.records import Record

Judged = Sequence[tuple["Claim", Verdict]]

CLAIMS = ["claim", "whose", "verdict", "why", "the runs"]
"""Headings of the table of claims."""

ADDED = {"paper": "", "variant": "variants", "ours": "ours"}
"""Origin of claims -> what a line that counts them adds to its name."""


def question_of(paper: Paper, claim: str) -> str:
    """Return the question that a claim belongs to, the first whose pattern fits its id.

    Raises
    ------
    KeyError
        If none fits.
    """
    for words, pattern in paper.questions.items():
        if re.match(pattern, claim):
            return words
    raise KeyError(f"no question of {paper.key} fits the claim {claim!r}; add one to its file")


def by_question(paper: Paper, judged: Judged) -> dict[str, dict[str, Counter[str]]]:
    """Count verdicts: question -> origin -> verdict, the paper's questions first to last."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for claim, verdict in judged:
        of_question = found.setdefault(question_of(paper, claim.id), {})
        of_question.setdefault(claim.origin, Counter())[verdict.verdict] += 1
    return found


def claim_section(
    paper: Paper, rows: Mapping[str, Row], runs: Mapping[str, Sequence[Record]]
) -> Section:
    """List the claims with their verdicts, and count them by question."""
    verdicts = [(claim, judge(claim.test, rows, runs)) for claim in paper.claims]
    titles = _titles(paper)
    lines: list[list[str | Link]] = [
        [
            claim.text,
            ORIGINS[claim.origin],
            found.verdict,
            found.why,
            _link(claim, paper, rows, titles),
        ]
        for claim, found in verdicts
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
        "A claim is the paper's if the paper makes it of its method or of its baselines, on this "
        "data set, in this form; the rows' deviations say how near the runs come. It is a variant "
        "if it is the paper's on another data set or a stand-in, of a variant of the method, under "
        "a further protocol or reading, or in another form. It is ours if it is the library's own "
        "question or aim."
    )
    counted: list[Block] = [Table(["claims", *VERDICTS], count_lines(verdicts))]
    if paper.questions:
        by = [
            [": ".join(filter(None, [words, ADDED[origin]])), *(str(own[v]) for v in VERDICTS)]
            for words, of_origin in by_question(paper, verdicts).items()
            for origin, own in of_origin.items()
        ]
        counted.append(Table(["what is claimed", *VERDICTS], by))
    blocks = [Paragraph(reading), Paragraph(whose), *counted, Table(CLAIMS, lines)]
    return Section("Claims", blocks, "claims")


def count_lines(judged: Judged) -> list[list[str]]:
    """Count claims by verdict, a line for each origin that a claim has."""
    found = Counter((claim.origin, verdict.verdict) for claim, verdict in judged)
    return [
        [words, *(str(found[origin, verdict]) for verdict in VERDICTS)]
        for origin, words in ORIGINS.items()
        if any(claim.origin == origin for claim, _ in judged)
    ]


def _titles(paper: Paper) -> dict[str, Link]:
    """Return links to tables and figures by the names that rows have for them."""
    found = {
        f"{paper.key}/{plan.id}": Link(plan.title.split(":")[0], plan.id) for plan in paper.tables
    }
    return found | {
        f"{paper.key}/{plan.id}": Link(plan.title.split(":")[0], plan.sheet or plan.id)
        for plan in paper.figures
    }


def _link(
    claim: Claim, paper: Paper, rows: Mapping[str, Row], titles: Mapping[str, Link]
) -> str | Link:
    """Return a link to the table or figure that has the rows that a claim names.

    Of several, it is the first; where no one has them all, it is that of the claim's first row.
    """
    named = {rows[name].key for name in claim.rows if name in rows}
    of_place: dict[str, set[str]] = {place: set() for place in titles}
    for row in rows.values():
        if (place := table_of(row)) in of_place:
            of_place[place].add(row.key)
    places = [place for place, keys in of_place.items() if named and named <= keys]
    places += [
        place
        for name in claim.rows[:1]
        if name in rows and (place := table_of(rows[name])) in titles
    ]
    return titles[places[0]] if places else DASH
