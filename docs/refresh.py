"""Bring the figures that pages quote up to date with the records they come from.

A quoted figure stands between two comments, which name a cell of a table under ``docs/results``::

    <!-- cell: flagship.md > Public sets > LabelMe > stack -->92.4 ± 0.0<!-- end -->

that is the page, headings, the row and the column. ``as 1`` after the column rounds to one decimal,
``as mean 1`` leaves the deviation out, too, ``as paper 1`` takes the paper's figure in the cell,
``as % 1`` makes per cent of a share, and ``as first 3`` takes the first of several figures between
slashes. A claim may be given by its end, after "…"; ``as change 1`` takes the difference and its
interval out of the column ``why``, and ``as level 1`` a share. The pages of ``docs/results`` are
themselves made from records, by the command that each of them names.

``python docs/refresh.py`` rewrites the pages; with ``--check`` it only says what is stale.
``python docs/refresh.py --picture`` makes the README's picture of the report (needs Chromium).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAPERS = {
    "chu2021": "CoNAL (AAAI 2021)",
    "crowding2021": "CrowdInG (KDD 2021)",
    "dasc2023": "DASC (2023)",
    "iced2022": "ICED (SDM 2022)",
    "neucrowd2022": "NeuCrowd (KAIS 2022)",
}
VERDICTS = {
    "holds": "holds",
    "does not hold": "does not hold",
    "undecided": "undecided",
    "undecided, but excludes the paper's figure": "excludes the paper's figure",
    "not run": "not run",
}
"""Verdict on a claim -> heading of its column."""
THEMES = {
    "chu2021": {
        "annotators share mistakes": "common-mistake",
        "CoNAL beats a network on majority votes": "better-than-majority-vote",
        "CoNAL beats Crowd Layer on real annotations": "better-than-crowd-layer",
        "CoNAL finds more of LabelMe's open country": "open-country",
        "CoNAL beats six other baselines on real annotations": "better-than",
        "CoNAL is better trained end to end than by EM (our question)": "end-to-end",
        "the separation term helps": "separation",
        "where common noise is simulated, CoNAL beats Crowd Layer": "helps",
        "where common noise is simulated, CoNAL beats seven other baselines": "ahead-of",
        "where there is none, CoNAL does no harm": "does-not-hurt",
        "mixed distributions or EM recover the simulated common confusion": "recovers.*-(em|prob)",
        "CoNAL's mixture of logits recovers the simulated common confusion": "recovers",
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
        "the library's forms are as good as the paper's (our question)": "form",
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
        "held-out likelihood ranks the rounds (our question)": "stopping",
    },
    "iced2022": {
        "ICED is the best of all": "best",
        "ICED beats each baseline": "beats",
        "labels by majority vote beat those by Dawid-Skene": "mv-labels",
        "synthesis lifts the inferred labels": "lifts|hard-estimated",
        "its warm-up beats plain training": "warm-up",
        "each of its parts helps": "part",
        "ICED reaches the aim of this project": "target|reaches",
        "the figures of MBEM": "mbem",
    },
    "neucrowd2022": {
        "NeuCrowd keeps up with metric learning, or beats it": ".*metric-learning",
        "NeuCrowd keeps up with logistic regression on the features, or beats it": ".*regression",
        "NeuCrowd beats the same network on vote shares (our question)": "network",
        "EM helps metric learning": "em-helps",
        "each of its parts helps": "part",
        "NeuCrowd keeps up with both at every number of labels (our question)": "curve",
        "NeuCrowd is the best on the official split of Hotel": "hotel$",
    },
}
"""Paper -> what its claims say -> the beginning of their ids, as a pattern; the first counts."""

OURS = "(our question)"
"""At the end of a theme: the paper does not claim it."""
NOT_THEIRS = re.compile(r"\(this project's (aim|question)|\(a base the paper does not try\)")
"""In the text of a claim that the paper does not make."""

_CELL = re.compile(r"(<!-- cell: (.+?) -->)(.*?)(<!-- end -->)", re.DOTALL)
_FORM = re.compile(r" as ((?:[a-z%]+ )*\d)$")
_CHANGE = re.compile(
    r": ([+-]?[\d.]+)( points| %)? \(95 % interval ([+-]?[\d.]+) to ([+-]?[\d.]+)(?=[;)])"
)
_MADE = re.compile(
    r"(<!-- (counts of claims|all claims|hours of all runs)(?: of (\w+))? -->\n\n)"
    r"(.*?)(<!-- end -->)",
    re.DOTALL,
)


class Table:
    """A table of a page, with the headings it stands under."""

    def __init__(self, headings: list[str], lines: list[str]) -> None:
        self.headings = headings
        cells = [[part.strip() for part in line.strip().strip("|").split("|")] for line in lines]
        self.columns, self.rows = [plain(cell) for cell in cells[0]], cells[2:]

    def cell(self, row: str, column: str) -> str | None:
        """Find a cell, by the row's first cells joined by commas, or the first one's end."""
        if column not in self.columns[1:]:
            return None
        for cells in self.rows:
            names = [", ".join(map(plain, cells[:n])) for n in (1, 2, 3)]
            if row in names or (row[0] == "…" and names[0].endswith(row[1:].lstrip())):
                return cells[self.columns.index(column)]
        return None


def plain(text: str) -> str:
    """Take stars and code marks off a text."""
    return re.sub(r"\*\*|`", "", text)


@cache
def tables(page: str) -> list[Table]:
    """Read the tables of a page under ``docs/results``."""
    headings: list[str] = []
    found: list[Table] = []
    block: list[str] = []
    for line in [*(DOCS / "results" / page).read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
            continue
        if len(block) > 2:
            found.append(Table(headings.copy(), block))
        block = []
        if match := re.match(r"(#+) (.*)", line):
            headings = [*headings[: len(match[1]) - 1], match[2]]
    return found


def figure(address: str) -> str:
    """Return the text that an address stands for; KeyError if nothing is there."""
    match = _FORM.search(address)
    form, address = match[1] if match else "", _FORM.sub("", address)
    page, *headings, row, column = address.split(" > ")
    for table in tables(page):
        if table.headings[len(table.headings) - len(headings) :] == headings:
            found = table.cell(row, column)
            if found is not None:
                return shaped(found, form)
    raise KeyError(f"docs/results/{page} has no cell {address!r}")


def shaped(text: str, form: str) -> str:
    """Give a cell the form that a page wants; the number of seeds goes in any case."""
    *marks, decimals = form.split() or [""]
    if {"change", "level"} & set(marks):
        return changed(text, int(decimals), level="level" in marks)
    ours, _, papers = plain(text).partition("; paper ")
    text = papers if "paper" in marks else re.sub(r" \(\d+\)$", "", ours)
    if "first" in marks:
        text = text.split(" / ")[0]
    if "mean" in marks:
        text = text.split(" ± ")[0]
    if decimals:
        factor, step = (100 if "%" in marks else 1), Decimal(1).scaleb(-int(decimals))
        text = re.sub(
            r"\d*\.?\d+",
            lambda m: str((factor * Decimal(m[0])).quantize(step, ROUND_HALF_UP)),
            text,
        )
    return text


def changed(why: str, decimals: int, *, level: bool = False) -> str:
    """Return the difference that decides a claim, in points, with its interval; or its share."""
    found = _CHANGE.search(why)
    if found is None:
        raise KeyError(f"no difference with an interval in {why!r}")
    factor, step = (1 if found[2] else 100), Decimal(1).scaleb(-decimals)
    values = [(factor * Decimal(found[k])).quantize(step, ROUND_HALF_UP) for k in (1, 3, 4)]
    if level:
        return str(values[0])
    change, low, high = [f"{value:+}".replace("-", "\N{MINUS SIGN}") for value in values]
    return f"{change} ({low} to {high})"


def claims(paper: str) -> list[list[str]]:
    """Return claim, verdict and reason for all claims of a paper."""
    wanted = ["claim", "verdict", "why"]
    return [row for table in tables(f"{paper}.md") if table.columns == wanted for row in table.rows]


def counts(paper: str | None = None) -> str:
    """Return the table that counts claims by verdict: per paper, or per theme of one paper."""
    found: dict[str, Counter[str]] = {}
    for key in PAPERS if paper is None else [paper]:
        asked = experiments()[1][key].claims
        for claim, (_, verdict, _) in zip(asked, claims(key), strict=True):
            name = theme(key, claim.id)
            own = name.endswith(OURS) or NOT_THEIRS.search(claim.text) is not None
            name = name.removesuffix(f" {OURS}") + f" {OURS}" * own
            if paper is None:
                link = f"[{PAPERS[key]}](results/{key}.md#claims)"
                found.setdefault(link, Counter())  # What the paper claims comes first.
                name = link + ", our own questions and aims" * own
            found.setdefault(name, Counter())[verdict] += 1
    names = [*(["what is claimed"] if paper else ["paper", "claims"]), *VERDICTS.values()]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    themes = [name.removesuffix(f" {OURS}") for name in found]
    for name in sorted(found, key=lambda name: (themes.index(name.removesuffix(f" {OURS}")), name)):
        verdicts = found[name]
        if unknown := set(verdicts) - set(VERDICTS):
            raise ValueError(f"{name} has verdicts of another kind: {unknown}")
        total = [] if paper else [verdicts.total()]
        cells = [name, *map(str, total), *(str(verdicts[verdict]) for verdict in VERDICTS)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n"


def theme(paper: str, claim: str) -> str:
    """Return what a claim is about; KeyError if no theme of its paper fits its id."""
    for words, pattern in THEMES[paper].items():
        if re.match(pattern, claim):
            return words
    raise KeyError(f"no theme of {paper} fits the claim {claim!r}; add one to THEMES")


def claims_table(paper: str) -> str:
    """Return all claims of a paper as a table that a click opens, with links to their runs."""
    linked = list(zip(claims(paper), links(paper), strict=True))
    lines = ["| claim | verdict | why | the runs |", "|---|---|---|---|"]
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
        # The anchors that MyST gives to headings.
        anchors = [
            re.sub(r"[^\w\- ]", "", titles[place].lower()).replace(" ", "-") for place in places
        ]
        found.append(
            f"[{titles[places[0]].split(':')[0]}](results/{paper}.md#{anchors[0]})"
            if places
            else "–"
        )
    return found


@cache
def experiments() -> tuple[dict[str, Any], Any]:
    """Return the rows by their ids, and the papers."""
    from evidence.experiments.loading import load_experiments

    rows, papers = load_experiments(DOCS.parent / "experiments")
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
        text = (DOCS / "results" / f"{key}.md").read_text(encoding="utf-8")
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


def refreshed(text: str) -> str:
    """Return a page's text with every quoted figure as its record has it."""
    text = _CELL.sub(lambda m: m[1] + figure(m[2]) + m[4], text)
    return _MADE.sub(lambda m: m[1] + made(m) + m[5], text)


def pages() -> Iterator[Path]:
    """Yield the pages that may quote figures."""
    yield DOCS.parent / "README.md"
    yield from sorted(
        [*DOCS.glob("*.md"), *DOCS.glob("methods/*.md"), *DOCS.glob("tutorials/*.md")]
    )


def stale() -> list[str]:
    """Name every quoted figure that is not its record's."""
    found = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        found += [
            f"{page.name}: {m[3]!r} should be {figure(m[2])!r} ({m[2]})"
            for m in _CELL.finditer(text)
            if m[3] != figure(m[2])
        ]
        found += [f"{page.name}: {m[1]}" for m in _MADE.finditer(text) if m[4] != made(m)]
    return found


def picture(path: Path) -> None:
    """Draw the top of the demonstration's report."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("the picture needs Chromium")
    from PIL import Image

    from manyhands import CrowdStackingClassifier, load_demo
    from manyhands.metrics import accuracy_on_new_items
    from manyhands.report import summarize, write_report

    demo = load_demo()
    model = CrowdStackingClassifier(random_state=0).fit(demo.X_train, demo.annotations)
    new = accuracy_on_new_items(gold=demo.y_test, predicted=model.predict(demo.X_test))
    shown = {"X": demo.X_train, "title": "Digits", "new_items": new}
    summary = summarize(demo.annotations, classifier=model, **shown)
    with tempfile.TemporaryDirectory() as folder:
        report = write_report(summary, Path(folder, "report.html"))
        command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars"]
        command += [f"--screenshot={path}", "--window-size=1100,800", report.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


def main() -> None:
    """Refresh the pages, check them, or draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    parser.add_argument("--picture", action="store_true", help="draw the README's picture")
    arguments = parser.parse_args()
    if arguments.picture:
        picture(DOCS / "report.png")
    elif arguments.check:
        sys.exit("\n".join(stale()) or None)
    else:
        for page in pages():
            text = page.read_text(encoding="utf-8")
            page.write_text(refreshed(text), encoding="utf-8")


if __name__ == "__main__":
    main()
