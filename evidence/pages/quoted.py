"""Figures that the pages of ``docs`` and the README quote from the tables under ``docs/results``.

A quoted figure is a link to its cell. The link's target is the page, and the heading of the table
if several have such a cell; its title names the row and the column::

    The stack is right in [92.4][flagship-1] % of LabelMe's test part.

    [flagship-1]: results/flagship.md#public-sets "LabelMe > stack as mean 1"

In a table, a link in the heading quotes the whole column: "*" in its title stands for the name of
each row, which is the row's first cell, or what stands there before a comma::

    | set | [stack][flagship-2] |
    |---|---|
    | LabelMe | 92.4 |

    [flagship-2]: results/flagship.md#public-sets "* > stack as mean 1"

The title may end with the form in which the cell is quoted: ``as 1`` rounds to one decimal, ``as
mean 1`` leaves the deviation out, too, ``as paper 1`` takes the paper's figure in the cell, ``as
% 1`` makes per cent of a share, and ``as first 3`` takes the first of several figures between
slashes. A row is named by its first cells, joined by commas, or by the first one's end, after "…".
Of a claim's column ``why``, ``as change 1`` takes the difference and its interval, and ``as level
1`` a share. The pages under ``docs/results`` are themselves made from records, by the command that
each of them names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path

_CELL = re.compile(
    r"""^\[(?P<label>[^\]]+)\]:[ ](?P<page>\S+?\.md)(?:\#(?P<anchor>\S+))?
    [ ](?P<mark>["'])(?P<cell>.+[ ]>[ ].+)(?P=mark)$""",
    re.MULTILINE | re.VERBOSE,
)
_FORM = re.compile(r" as ((?:[a-z%]+ )*\d)$")
_CHANGE = re.compile(
    r": ([+-]?[\d.]+)( points| %)? \(95 % interval ([+-]?[\d.]+) to ([+-]?[\d.]+)(?=[;)])"
)


@dataclass(frozen=True)
class MarkdownTable:
    """A table of a page.

    Attributes
    ----------
    anchor : str
        That of the heading that it stands under.
    columns : list of str
    rows : list of list of str
        Cells as they are written.
    """

    anchor: str
    columns: list[str]
    rows: list[list[str]]

    def cell(self, row: str, column: str) -> str | None:
        """Find a cell, by the row's first cells joined by commas, or the first one's end."""
        if column not in self.columns[1:]:
            return None
        for cells in self.rows:
            names = [", ".join(map(plain, cells[:n])) for n in (1, 2, 3)]
            if row in names or (row[0] == "…" and names[0].endswith(row[1:].lstrip())):
                return cells[self.columns.index(column)]
        return None


@dataclass(frozen=True)
class Source:
    """The source of a quoted figure.

    Attributes
    ----------
    page : Path
    anchor : str
        That of the table's heading; "" for any table of the page.
    row, column : str
    form : str
        How it is quoted, such as "mean 1"; "" as it stands there.
    """

    page: Path
    anchor: str
    row: str
    column: str
    form: str = ""

    @classmethod
    def named(cls, page: Path, anchor: str, title: str) -> Source:
        """Read the title of a link, such as "LabelMe > stack as mean 1"."""
        form = _FORM.search(title)
        row, _, column = _FORM.sub("", title).rpartition(" > ")
        return cls(page, anchor, row, column, form[1] if form else "")

    @property
    def is_column(self) -> bool:
        """Whether a whole column is quoted."""
        return "*" in (self.row, self.column) or self.row.startswith("*, ")

    def of_row(self, cell: str) -> Source:
        """Return the cell that a row of a quoted column quotes, by the row's first cell.

        Raises
        ------
        KeyError
            If there is no such cell.
        """
        whole = plain(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell))
        for name in (whole, whole.partition(",")[0]):
            named = replace(
                self, row=self.row.replace("*", name, 1), column=self.column.replace("*", name, 1)
            )
            if named._cell() is not None:
                return named
        raise KeyError(f"{self.place} has no cell for the row {whole!r} of {self.row!r}")

    def figure(self) -> str:
        """Return the text that stands there, in the form in which it is quoted.

        Raises
        ------
        KeyError
            If there is no such cell.
        """
        found = self._cell()
        if found is None:
            raise KeyError(f"{self.place} has no cell {self.row!r}, {self.column!r}")
        return shaped(found, self.form)

    @property
    def place(self) -> str:
        """Page and anchor."""
        return "docs/results/" + f"{self.page.name}#{self.anchor}".removesuffix("#")

    def _cell(self) -> str | None:
        of_anchor = (each for each in tables(self.page) if self.anchor in ("", each.anchor))
        found = (each.cell(self.row, self.column) for each in of_anchor)
        return next((cell for cell in found if cell is not None), None)


def plain(text: str) -> str:
    """Take stars and code marks off a text."""
    return re.sub(r"\*\*|`", "", text)


def anchor_of(heading: str) -> str:
    """Return the anchor that GitHub and MyST give to the first heading with this text."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def tables(page: Path) -> list[MarkdownTable]:
    """Read the tables of a page."""
    return tables_of(page.read_text(encoding="utf-8"))


def tables_of(text: str) -> list[MarkdownTable]:
    """Read the tables of a page's text."""
    anchor, block = "", list[str]()
    found: list[MarkdownTable] = []
    seen: Counter[str] = Counter()
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
            continue
        if len(block) > 2:
            cells = [[part.strip() for part in row.strip().strip("|").split("|")] for row in block]
            found.append(MarkdownTable(anchor, [plain(cell) for cell in cells[0]], cells[2:]))
        block = []
        if match := re.match(r"#+ (.*)", line):
            name = anchor_of(match[1])
            anchor = f"{name}-{seen[name]}" if seen[name] else name
            seen[name] += 1
    return found


def read_rows(text: str, heading: str) -> list[dict[str, str]]:
    r"""Return the rows of the first table below a heading that begins so, as column -> cell.

    Examples
    --------
    >>> read_rows("## Costs of a fit\n| method | s |\n|---|---|\n| **ours** | 1.5 |\n", "Costs")
    [{'method': 'ours', 's': '1.5'}]
    """
    start = anchor_of(heading)
    found = next(each for each in tables_of(text) if each.anchor.startswith(start))
    return [dict(zip(found.columns, map(plain, row), strict=True)) for row in found.rows]


def numbers_in(cell: str) -> list[float]:
    """Return the numbers in a cell.

    Examples
    --------
    >>> numbers_in("-2.5 ± 0.4 (1,000)")
    [-2.5, 0.4, 1000.0]
    """
    return [float(each.replace(",", "")) for each in re.findall(r"[-+]?\d[\d,]*\.?\d*", cell)]


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


def sources(text: str, folder: Path) -> dict[str, Source]:
    """Return the cells that a page in the folder quotes, by the labels of their links."""
    return {
        m["label"]: Source.named((folder / m["page"]).resolve(), m["anchor"] or "", m["cell"])
        for m in _CELL.finditer(text)
    }


def _quoting(labels: list[str]) -> re.Pattern[str]:
    return re.compile(rf"\[([^\[\]]+)\]\[({'|'.join(map(re.escape, labels))})\]")


def quotes(text: str, folder: Path) -> list[tuple[str, Source]]:
    """Return the figures that a page in the folder quotes, each with its cell.

    Raises
    ------
    ValueError
        If no figure is a link to a cell that the page names.
    KeyError
        If a row of a quoted column has no cell.
    """
    named = sources(text, folder)
    links = _quoting(list(named)).findall(text) if named else []
    if unused := named.keys() - {label for _, label in links}:
        raise ValueError(f"no figure has the label {', '.join(sorted(unused))}")
    alone = [
        (" ".join(figure.split()), named[label])
        for figure, label in links
        if not named[label].is_column
    ]
    return alone + [(row[k], source) for _, row, k, source in _of_columns(text, named)]


def with_figures(text: str, folder: Path) -> str:
    """Return the text of a page in the folder with every quoted figure as its cell has it."""
    named = sources(text, folder)
    if not named:
        return text

    def quoted(match: re.Match[str]) -> str:
        if named[match[2]].is_column:
            return match[0]
        figure = named[match[2]].figure()
        # Lines may be broken within a figure.
        return match[0] if " ".join(match[1].split()) == figure else f"[{figure}][{match[2]}]"

    lines = _quoting(list(named)).sub(quoted, text).split("\n")
    for number, row, k, source in _of_columns("\n".join(lines), named):
        row[k] = source.figure()
        lines[number] = f"| {' | '.join(row)} |"
    return "\n".join(lines)


def _of_columns(
    text: str, named: dict[str, Source]
) -> Iterator[tuple[int, list[str], int, Source]]:
    """Yield the cells of quoted columns: number of the line, its cells, which it is, its source."""
    columns: dict[int, Source] = {}
    inside = False
    for number, line in enumerate(text.split("\n")):
        if not line.startswith("|"):
            inside = False
            continue
        row = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not inside:
            labels = {k: re.findall(r"\]\[([^\]]+)\]", cell) for k, cell in enumerate(row)}
            found = {k: named[own[0]] for k, own in labels.items() if own and own[0] in named}
            columns = {k: source for k, source in found.items() if source.is_column}
        elif not set(line) <= set("|-: "):
            yield from ((number, row, k, source.of_row(row[0])) for k, source in columns.items())
        inside = True
