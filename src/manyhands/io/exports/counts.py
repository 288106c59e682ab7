"""Numbers of votes per class, by unknown annotators."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from manyhands.annotations.arrays import is_total
from manyhands.annotations.ids import is_id_name
from manyhands.annotations.wide import not_counted, words_of_total
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import preview
from manyhands.io.exports.contract import ANY, Format
from manyhands.io.exports.long import long_columns
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import CONTENT, Asked, Gathered, VoteCounts, plain

_COUNT = re.compile(
    r"(?:(?:counts?|n|num|votes?|freq)[ _.:-]+(?P<after>.+)"
    r"|(?P<before>.+)[ _.-]+(?:counts?|votes?))",
    re.IGNORECASE,
)
"""Names of columns of counts: "count_cat", "n_cat", "cat_votes"."""

COUNTED = frozenset({"vote", "annotation", "judgement", "judgment"})
"""Words in the name of a column that show it to be a sum of counts, rather than of grades."""

LEAST_ROWS = 3
"""Number of rows with the same sum that make a table of numbers a table of counts."""


class _Columns(NamedTuple):
    """Positions of the columns of a table of counts, and the class that each counts."""

    task: int | None
    counts: list[int]
    classes: list[str]
    totals: list[int]
    others: list[int]
    named: bool


def is_counts(document: Document) -> bool:
    """Recognise a table of votes per class: columns such as "count_cat", or of a common sum."""
    document = _as_table(document)
    found = _count_columns(document, Asked())
    return found is not None and (
        found.named or _have_one_sum(document, found) or _have_their_sum(document, found)
    )


def certainly_counts(document: Document) -> bool:
    """Return whether the names of the columns say that they are counts, and nothing else may be."""
    found = _count_columns(_as_table(document), Asked())
    return found is not None and found.named and not found.others


def _as_table(document: Document) -> Document:
    """Return records with columns of counts, such as those of Parquet, as rows of text."""
    names = list(document.first)
    if document.kind != "records" or sum(map(bool, map(_COUNT.fullmatch, names))) < 2:
        return document
    rows = [
        (at, ["" if plain(value) is None else str(plain(value)) for value in row.values()])
        for at, row in document.records
        if isinstance(row, dict)
    ]
    return replace(document, kind="table", header=names, rows=rows)


def _count_columns(document: Document, asked: Asked) -> _Columns | None:
    header = document.header
    if document.kind != "table" or len(header) < 2 or not document.rows:
        return None
    if long_columns(header) is not None:
        return None
    task = _task_column(header, asked)
    if task is None and _all_differ(document) and not _are_counts(document, 0):
        task = 0
    numeric = [i for i in range(len(header)) if i != task and _are_counts(document, i)]
    named = {i: _COUNT.fullmatch(header[i].strip()) for i in numeric}
    several = [i for i, name in named.items() if name is not None]
    if len(several) > 1:
        chosen, names = several, {i: (m["after"] or m["before"]) for i, m in named.items() if m}
    else:
        odd = not_counted([header[i] for i in numeric])
        if odd and len({*_sums(document, numeric)}) > 1:
            # Totals are found below, by their values.
            numeric = [i for i in numeric if header[i] not in odd or words_of_total(header[i])]
        chosen, names = numeric, {i: header[i] for i in numeric}
    totals = _totals(document, chosen, names)
    chosen = [i for i in chosen if i not in totals]
    totals += [i for i in numeric if i not in (*chosen, *totals) and _is_sum(document, i, chosen)]
    if len(chosen) < (1 if totals and len(several) > 1 else 2):
        return None
    known = {task, *chosen, *totals}
    others = [i for i, n in enumerate(header) if i not in known and n.lower() not in CONTENT]
    classes = [names[i].strip() for i in chosen]
    return _Columns(task, chosen, classes, totals, others, len(several) > 1)


def _task_column(header: list[str], asked: Asked) -> int | None:
    if asked.task in header:
        return header.index(asked.task)
    return next((i for i, name in enumerate(header) if is_id_name(name)), None)


def _all_differ(document: Document) -> bool:
    """Return whether the first column may hold ids: no cell is empty, and none occurs twice."""
    cells = _cells(document, 0)
    return all(cells) and len(set(cells)) == len(cells)


def _cells(document: Document, column: int) -> list[str]:
    return [row[column].strip() for _, row in document.rows if len(row) == len(document.header)]


def _are_counts(document: Document, column: int) -> bool:
    cells = [cell.removesuffix(".0") for cell in _cells(document, column)]
    return any(cells) and all(not cell or (cell.isdecimal() and len(cell) < 18) for cell in cells)


def _number(cell: str) -> int:
    return int(cell.strip().removesuffix(".0") or 0)


def _sums(document: Document, columns: list[int]) -> list[int]:
    rows = (row for _, row in document.rows if len(row) == len(document.header))
    return [sum(_number(row[i]) for i in columns) for row in rows]


def _is_sum(document: Document, column: int, others: list[int]) -> bool:
    return [_number(cell) for cell in _cells(document, column)] == _sums(document, others)


def _totals(document: Document, columns: list[int], names: dict[int, str]) -> list[int]:
    """Return columns named as totals or as people whose values are at least the others' sum."""
    called = [i for i in columns if words_of_total(names[i])]
    others = np.array(_sums(document, [i for i in columns if i not in called]))
    return [i for i in called if is_total(names[i], np.array(_sums(document, [i])), others)]


def _have_one_sum(document: Document, found: _Columns) -> bool:
    """Return whether every row has the same number of votes, two or more, as in Fleiss' table."""
    if found.others:
        return False
    sums = set(_sums(document, found.counts))
    return len(document.rows) >= LEAST_ROWS and len(sums) == 1 and min(sums) > 1


def _have_their_sum(document: Document, found: _Columns) -> bool:
    """Return whether a column named as a number of votes is the sum of all the others."""
    called = [i for i in found.totals if words_of_total(document.header[i]) & COUNTED]
    return (
        not found.others
        and len(document.rows) >= LEAST_ROWS
        and bool(called)
        and all(_is_sum(document, i, found.counts) for i in called)
    )


def read_counts(document: Document, into: Gathered, asked: Asked) -> None:
    """Read one row per task and one column of counts per class."""
    document = _as_table(document)
    found = _count_columns(document, asked)
    if found is None:
        raise AnnotationError(
            f"{document.name}: at least two columns must hold counts (whole numbers from 0), but "
            f"the columns are {preview(document.header)}; name those of counts after the classes, "
            "such as count_cat"
        )
    if len(found.counts) == 1:
        one, total = document.header[found.counts[0]], document.header[found.totals[0]]
        raise AnnotationError(
            f"{document.name}: only the column {one!r} counts votes, and {total!r} is the total; "
            f"add a column with the other votes, {total} - {one}, named after their class, such as "
            "n_other"
        )
    tasks: list[Any] = []
    rows: list[list[int]] = []
    shown = [i for i, name in enumerate(document.header) if name.lower() in CONTENT]
    for number, (at, row) in enumerate(document.rows, start=document.earlier):
        if len(row) != len(document.header):
            continue
        task = number if found.task is None else plain(row[found.task])
        if task is None:
            into.lose("the record names no task", at)
            continue
        tasks.append(task)
        rows.append([_number(row[i]) for i in found.counts])
        into.item(task, {document.header[i]: row[i] for i in shown}, document.name)
    given = sum(map(sum, rows))
    for place in found.totals:
        beyond = sum(_sums(document, [place])) - given
        if beyond:
            into.note(
                f"{document.header[place]!r} is read as the total of votes or of people; "
                f"{beyond:,} of them are in no class, and are not counted"
            )
    left = [document.header[i] for i in (*found.totals, *found.others)]
    if left:
        into.note(f"not read as counts: {preview(left)}")
    if into.counts is not None:
        raise AnnotationError(
            f"{document.name}: counts can be read from one file only; put all rows into one file"
        )
    into.note(f"the columns count the votes for {preview(found.classes)}")
    matrix = np.array(rows, dtype=np.int64).reshape(-1, len(found.classes))
    into.counts = VoteCounts(tasks, found.classes, matrix)


FORMAT = Format(
    "counts",
    "numbers of votes per class, without annotators",
    ANY,
    is_counts,
    read_counts,
    sure=False,
    certain=certainly_counts,
    or_else="or format='wide' if every column is an annotator",
    is_layout=True,
)
