"""Tables of ``docs/what_holds.md`` and ``docs/evidence.md``: claims by verdict, and hours of runs.

Such a table stands between two comments, ``<!-- counts of claims -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from evidence.experiments.papers import ORIGINS
from evidence.pages.claims import CLAIMS
from evidence.pages.quoted import plain, tables
from evidence.pages.verdicts import VERDICTS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"

PAPERS = {
    "chu2021": "CoNAL (AAAI 2021)",
    "crowding2021": "CrowdInG (KDD 2021)",
    "dasc2023": "DASC (2023)",
    "iced2022": "ICED (SDM 2022)",
    "neucrowd2022": "NeuCrowd (KAIS 2022)",
}
HEADINGS = {verdict: verdict.removeprefix("undecided, but ") for verdict in VERDICTS}
"""Verdict on a claim -> heading of its column."""

WHOSE = {ORIGINS["paper"]: "own claims", ORIGINS["variant"]: "variants", ORIGINS["ours"]: "ours"}
"""Whose claims are, as pages say it -> how the lines that count them name them."""

_MADE = re.compile(
    r"(<!-- (counts of claims|hours of all runs) -->\n\n)(.*?)(<!-- end -->)", re.DOTALL
)


def claims(paper: str) -> list[list[str]]:
    """Return all claims of a paper, as the table of its page has them."""
    return [
        row
        for table in tables(RESULTS / paper / "claims.md")
        if table.columns == CLAIMS
        for row in table.rows
    ]


def counts() -> str:
    """Return the table that counts the claims of each paper by verdict.

    Variants of the papers' claims, and our own claims, are counted for all papers together.
    """
    by_paper = {
        f"[{words}](results/{key}/claims.md)": Counter(
            (whose, verdict) for _, whose, verdict, *_ in claims(key)
        )
        for key, words in PAPERS.items()
    }
    every = sum(by_paper.values(), Counter())
    lines = [(name, next(iter(WHOSE)), found) for name, found in by_paper.items()]
    lines += [(f"all five: {words}", whose, every) for whose, words in WHOSE.items()]
    if unknown := {verdict for _, verdict in every} - set(HEADINGS):
        raise ValueError(f"there are verdicts of another kind: {unknown}")
    names = ["paper", "claims", *HEADINGS.values()]
    table = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for name, whose, found in lines:
        numbers = [found[whose, verdict] for verdict in HEADINGS]
        table.append(f"| {' | '.join([name, *map(str, [sum(numbers), *numbers])])} |")
    return "\n".join(table) + "\n\n"


def every_claim() -> list[list[str]]:
    """Return all claims for the search of the site.

    Each is the paper's name, the claim, whose it is, its verdict, why, and the page that has it.
    """
    return [
        [
            words.partition(" (")[0],
            *map(plain, row[: len(CLAIMS) - 1]),
            f"results/{key}/claims.html",
        ]
        for key, words in PAPERS.items()
        for row in claims(key)
    ]


def hours() -> str:
    """Return the table of what all runs took, as the papers' pages say it, and what follows."""
    lines = [
        "| page | runs | hours | undisturbed | undisturbed, rows' own seeds |",
        "|---|---|---|---|---|",
    ]
    total = [0.0, 0.0, 0.0, 0.0]
    took = (
        r"The (\d+) different runs on the CPU took ([\d.]+) hours.*?they would take (\d+\.\d+)"
        r"(?:; the runs with the seeds that the rows name would take (\d+\.\d+))?"
    )
    for key in sorted(path.stem for path in (ROOT / "experiments").glob("*.yaml")):
        text = (RESULTS / f"{key}.md").read_text(encoding="utf-8")
        match = re.search(took, text)
        if match is None:
            raise ValueError(f"docs/results/{key}.md does not say what its runs took")
        told = [*match.groups()[:3], match[4] or match[3]]
        total = [sum(each) for each in zip(total, map(float, told), strict=True)]
        lines.append(f"| [{key}](results/{key}.md) | {' | '.join(told)} |")
    sums = " | ".join(f"{hours:.1f}" for hours in total[1:])
    lines.append(f"| all | {total[0]:.0f} | {sums} |")
    own, further = total[3] / 2, (total[2] - total[3]) / 2
    lines += [
        "",
        f"On two cores, the runs with the rows' own seeds take at least {own:.1f} hours; our aim",
        f"is six hours at most. The further seeds take at least {further:.1f} hours more.",
    ]
    return "\n".join(lines) + "\n\n"


def made(match: re.Match[str]) -> str:
    """Return the table that a comment stands for."""
    return counts() if match[2] == "counts of claims" else hours()


def with_tables(text: str) -> str:
    """Return a page's text with such tables as the pages under ``docs/results`` have them."""
    return _MADE.sub(lambda m: m[1] + made(m) + m[4], text)
