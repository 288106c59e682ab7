"""Labels of each task by unknown annotators: lists, or columns such as "label1", "label2"."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from manyhands.annotations.ids import is_id_name
from manyhands.annotations.label_sets import CLEAR, cut, listed_labels
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import preview
from manyhands.io.exports.contract import ANY, Format
from manyhands.io.exports.lists import LABEL_LISTS, TASKS
from manyhands.io.exports.long import long_columns
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import CONTENT, Asked, Gathered, Malformed, plain

_PLACE = re.compile(
    r"(label|answer|rating|vote|response|annotation|score|choice|class|judge?ment)s?[ _.-]?\d+",
    re.IGNORECASE,
)
"""Names of columns that hold an item's first, second, ... label: "label1", "rating_2"."""

VOTES = (*LABEL_LISTS, "votes", "ratings", "judgements", "judgments")
"""Names of a column of lists."""


def is_label_lists(document: Document) -> bool:
    """Recognise lists of labels, or columns "label1", "label2", ..., without annotators."""
    names = document.header or list(document.first)
    if document.kind == "object" or not names or long_columns(names) is not None:
        return False
    if any(name.lower().startswith(("worker", "annotator", "rater", "turk")) for name in names):
        return False
    if document.kind == "table" and len(_places(names)) > 1:
        return True
    column = _list_column(names, Asked())
    if column is None:
        return False
    lists = [_labels(value) for value in _values(document, column)]
    return any(len(labels) > 1 for labels in lists)


def certainly_label_lists(document: Document) -> bool:
    """Return whether a list holds a label twice, so that it can be no set of one annotator."""
    names = document.header or list(document.first)
    if document.kind == "table" and len(_places(names)) > 1:
        return False
    lists = (_labels(value) for value in _values(document, str(_list_column(names, Asked()))))
    return any(max(Counter(labels).values(), default=0) > 1 for labels in lists)


def _places(names: list[str]) -> list[str]:
    return [name for name in names if _PLACE.fullmatch(name.strip())]


def _list_column(names: list[str], asked: Asked) -> str | None:
    wanted = VOTES if asked.label is None else (asked.label,)
    return next((name for name in names if name in wanted or name.lower() in wanted), None)


def _values(document: Document, column: str) -> list[Any]:
    if document.kind == "table":
        place = document.header.index(column)
        return [row[place] for _, row in document.rows if len(row) == len(document.header)]
    return [value.get(column) for _, value in document.records if isinstance(value, dict)]


def _labels(value: Any) -> list[str]:
    """Return the labels of a list, or of text with separators; objects are no labels."""
    if isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        return []
    found = listed_labels(value)
    if found is None and isinstance(value, str):
        mark = max((*CLEAR, ","), key=value.count)
        found = cut(value, mark)
    return found or []


def read_label_lists(document: Document, into: Gathered, asked: Asked) -> None:
    """Read one row per task, with the labels that it received from unknown annotators."""
    names = document.header or list(document.first)
    column = _list_column(names, asked)
    places = _places(names) if column is None else []
    if column is None and len(places) < 2:
        raise AnnotationError(
            f"{document.name}: there is no column of lists, and there are no columns such as "
            f"label1, label2, among {preview(names)}; name the column of lists with label="
        )
    task = asked.task if asked.task in names else None
    task = task or next((n for n in names if n in TASKS or is_id_name(n)), None)
    rows: Any = document.dicts() if document.kind == "table" else document.records
    into.unnamed = True
    seen: set[str] = set()
    for number, (at, row) in enumerate(rows, start=document.earlier):
        if not isinstance(row, dict):
            document.broken.append((at, Malformed("it is no object", at).reason))
            continue
        own = number if task is None else plain(row.get(task))
        if str(own) in seen:
            raise AnnotationError(
                f"{at}: task {own!r} occurs again, but each task must have one row of labels; put "
                "its labels into one row"
            )
        seen.add(str(own))
        into.item(own, {n: v for n, v in row.items() if n.lower() in CONTENT}, document.name)
        labels = [row.get(n) for n in places] if column is None else _labels(row.get(column))
        given = [label for label in map(plain, labels) if label is not None]
        for place, label in enumerate(given):
            into.answer(own, place, "label", (label,), at)
        if not given:
            into.lose("no label was given", at)


FORMAT = Format(
    "label-lists",
    "labels of each task, without annotators",
    ANY,
    is_label_lists,
    read_label_lists,
    sure=False,
    certain=certainly_label_lists,
    or_else="or format='wide' if every column is an annotator",
    is_layout=True,
    reads_tasks=True,
)
