"""Tables of ``docs/what_holds.md`` and ``docs/evidence.md``: claims by verdict, and hours of runs.

Such a table stands between two comments, ``<!-- counts of claims -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from evidence.experiments.loading import load_experiments
from evidence.pages.page import CLAIMS
from evidence.pages.quoted import anchor_of, tables
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

WHOSE = {"paper": "", "variant": "variants", "ours": "ours"}
"""Origin of claims -> what a line that counts them adds to its name."""

THEMES = {
    "chu2021": {
        "annotators share mistakes": "common-mistake",
        "CoNAL beats a network on majority votes": "better-than-majority-vote",
        "CoNAL beats Crowd Layer on real annotations": "better-than-crowd-layer",
        "CoNAL finds more of LabelMe's open country": "open-country",
        "CoNAL beats six other baselines on real annotations": "better-than",
        "CoNAL is better trained end to end than by EM": "end-to-end",
        "the separation term helps": "separation",
        "where common noise is simulated, CoNAL beats Crowd Layer": "helps",
        "where common noise is simulated, CoNAL beats seven other baselines": "ahead-of",
        "where there is none, CoNAL does no harm": "does-not-hurt",
        "mixed distributions or EM recover the pattern of common confusion": "recovers.*-(em|prob)",
        "CoNAL's mixture of logits recovers the pattern of common confusion": "recovers",
    },
    "crowding2021": {
        "the adversarial phase improves the classifier it starts from": "gains|open-country",
        "it does no harm, and is stable": "keeps|watchdog|stable",
        "CrowdInG beats methods that are trained as long": ".*trained-as-long",
        "CrowdInG beats other ways to fill in annotations": "beats-(dl_cl|doctor_net)",
        "each of its parts helps": "beats-crowd|two-steps|one-step",
        "generated annotations teach another classifier": "generated",
        "CrowdInG holds up where annotations are few": "sparse",
        "λ = .5 and t = .5 are the best": "lambda|t-",
        "instances of low entropy are classified well": "entropy",
        "the library's forms are as good as the paper's": "form",
    },
    "dasc2023": {
        "DASC improves its base": "dasc-helps|labelme-90",
        "DASC beats class balancing alone": "dasc-beats-(resampling|reweighting|focal)",
        "DASC beats other selections of pseudo-annotations": "dasc-beats|.*focal_self_c",
        "selection by confidence unbalances the annotations, DASC balances them": "imbalance",
        "confidence can ruin a base": "labelme-confidence|confidence",
        "what DASC adds is more precise, and names more of the rare classes": "majority|minority",
        "DASC holds up where annotations are few": "sparse",
        "DASC improves heavily imbalanced tasks": "dasc",
        "held-out likelihood ranks the rounds": "stopping",
    },
    "iced2022": {
        "ICED is the best of all": "best",
        "ICED beats each baseline": "beats",
        "labels by majority vote beat those by Dawid-Skene": "mv-labels",
        "before synthesis, Dawid-Skene's labels are worse than majority votes": "lifts-below",
        "synthesis lifts the inferred labels": "lifts",
        "the inferred labels reach the levels that the paper gives for Gisette": "level",
        "hard EM with an estimated prior loses the minority": "hard-estimated",
        "its warm-up beats plain training": "warm-up",
        "each of its parts helps": "part",
        "ICED reaches a mean recall that we aim at": "target|reaches",
        "the figures of MBEM": "mbem",
    },
    "neucrowd2022": {
        "NeuCrowd beats metric learning": "above-metric-learning",
        "NeuCrowd keeps up with metric learning": ".*metric-learning",
        "NeuCrowd beats logistic regression on the features": ".*above-regression",
        "NeuCrowd keeps up with logistic regression on the features": ".*regression",
        "NeuCrowd beats the same network on vote shares": "network",
        "EM helps metric learning": "em-helps",
        "each of its parts helps": "part",
        "NeuCrowd keeps up with both at every number of labels": "curve",
        "NeuCrowd is the best on the official split of Hotel": "hotel$",
    },
}
"""Paper -> what its claims say -> the beginning of their ids, as a pattern; the first counts."""

_MADE = re.compile(
    r"(<!-- (counts of claims|all claims|hours of all runs)(?: of (\w+))? -->\n\n)"
    r"(.*?)(<!-- end -->)",
    re.DOTALL,
)


def claims(paper: str) -> list[list[str]]:
    """Return all claims of a paper, as the table of its page has them."""
    return [
        row
        for table in tables(RESULTS / f"{paper}.md")
        if table.columns == CLAIMS
        for row in table.rows
    ]


def counts(paper: str | None = None) -> str:
    """Return the table that counts claims by verdict: per paper, or per theme of one paper.

    The paper's claims, variants of them and our own are in lines of their own.
    """
    found: dict[str, dict[str, Counter[str]]] = {}
    for key in PAPERS if paper is None else [paper]:
        asked = experiments()[1][key].claims
        link = f"[{PAPERS[key]}](results/{key}.md#claims)"
        for claim, (_, _, verdict, _) in zip(asked, claims(key), strict=True):
            lines = found.setdefault(theme(key, claim.id) if paper else link, {})
            lines.setdefault(claim.origin, Counter())[verdict] += 1
    if paper is None:
        parts = list(found.values())
        found["all five"] = {
            origin: sum((part[origin] for part in parts if origin in part), Counter())
            for origin in WHOSE
        }
    names = [*(["what is claimed"] if paper else ["paper", "claims"]), *HEADINGS.values()]
    table = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for name, lines in found.items():
        for origin in [each for each in WHOSE if each in lines]:
            verdicts = lines[origin]
            if unknown := set(verdicts) - set(HEADINGS):
                raise ValueError(f"{name} has verdicts of another kind: {unknown}")
            words = ": ".join(filter(None, [name, WHOSE[origin]]))
            total = [] if paper else [verdicts.total()]
            cells = [words, *map(str, total), *(str(verdicts[verdict]) for verdict in HEADINGS)]
            table.append(f"| {' | '.join(cells)} |")
    return "\n".join(table) + "\n\n"


def theme(paper: str, claim: str) -> str:
    """Return what a claim is about; KeyError if no theme of its paper fits its id."""
    for words, pattern in THEMES[paper].items():
        if re.match(pattern, claim):
            return words
    raise KeyError(f"no theme of {paper} fits the claim {claim!r}; add one to THEMES")


def claims_table(paper: str) -> str:
    """Return all claims of a paper as a table that a click opens, with links to their runs."""
    linked = list(zip(claims(paper), links(paper), strict=True))
    names = [*CLAIMS, "the runs"]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    lines += [f"| {' | '.join([*row, link])} |" for row, link in linked]
    opened = f"<details><summary>Every claim in a line ({len(linked)})</summary>"
    return "\n".join([opened, "", *lines, "", "</details>"]) + "\n\n"


def links(paper: str) -> list[str]:
    """Return, per claim of a paper, a link to the table or figure that has the rows it names.

    Of several, it is the first; where no one has them all, it is that of the claim's first row.
    """
    rows, papers = experiments()
    titles = {f"{paper}/{plan.id}": plan.title for plan in papers[paper].tables}
    titles |= {f"{paper}/{plan.id}": plan.title for plan in papers[paper].figures}
    runs: dict[str, set[str]] = {place: set() for place in titles}
    for row in rows.values():
        if row.table in runs:
            runs[row.table].add(row.key)
    found = []
    for claim in papers[paper].claims:
        named = {rows[name].key for name in claim.rows}
        places = [place for place, keys in runs.items() if named and named <= keys]
        places += [rows[name].table for name in claim.rows[:1] if rows[name].table in titles]
        title = titles[places[0]] if places else ""
        link = f"[{title.split(':')[0]}](results/{paper}.md#{anchor_of(title)})"
        found.append(link if places else "–")
    return found


@cache
def experiments() -> tuple[dict[str, Any], Any]:
    """Return the rows by their ids, and the papers."""
    rows, papers = load_experiments(ROOT / "experiments")
    return {row.id: row for row in rows}, papers


def hours() -> str:
    """Return the table of what all runs took, as the papers' pages say it."""
    lines = [
        "| page | runs | hours | undisturbed | undisturbed, rows' own seeds |",
        "|---|---|---|---|---|",
    ]
    total = [0.0, 0.0, 0.0, 0.0]
    took = (
        r"The (\d+) different runs on the CPU took ([\d.]+) hours.*?they would take (\d+\.\d+)"
        r"(?:; the runs with the seeds that the rows name would take (\d+\.\d+))?"
    )
    for key in experiments()[1]:
        text = (RESULTS / f"{key}.md").read_text(encoding="utf-8")
        match = re.search(took, text)
        if match is None:
            raise ValueError(f"docs/results/{key}.md does not say what its runs took")
        told = [*match.groups()[:3], match[4] or match[3]]
        total = [sum(each) for each in zip(total, map(float, told), strict=True)]
        lines.append(f"| [{key}](results/{key}.md) | {' | '.join(told)} |")
    sums = " | ".join(f"{hours:.1f}" for hours in total[1:])
    lines.append(f"| all | {total[0]:.0f} | {sums} |")
    return "\n".join(lines) + "\n\n"


def made(match: re.Match[str]) -> str:
    """Return the table that a comment stands for."""
    if match[2] == "all claims":
        return claims_table(match[3])
    return counts(match[3]) if match[2] == "counts of claims" else hours()


def with_tables(text: str) -> str:
    """Return a page's text with such tables as the pages under ``docs/results`` have them."""
    return _MADE.sub(lambda m: m[1] + made(m) + m[5], text)
