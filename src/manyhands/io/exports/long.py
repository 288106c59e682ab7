"""One row per annotation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from manyhands.annotations import PASSES
from manyhands.annotations.wide import UnclearColumnsError, guess_own, joined_id, task_columns
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import (
    find_name,
    note_of_gold,
    note_of_guesses,
    preview,
    spaces_left_out,
    trimmed,
)
from manyhands.io.csv_files import released
from manyhands.io.exports.contract import TABLE, Format
from manyhands.io.exports.parsing import Document, columns_as_text, each
from manyhands.io.exports.records import CONTENT, Asked, Gathered, Malformed, listed, plain

_OF_ANNOTATIONS = frozenset({"weight", "source", "pass", "group", "question"})
"""Columns that manyhands itself writes into long tables."""


def long_columns(names: list[str]) -> list[str] | None:
    """Return the columns of task and annotator by their common names; None if one is absent."""
    try:
        found = [find_name(names, which, which) for which in ("task", "worker")]
    except AnnotationError:
        return None
    return found if set(found) <= set(names) else None


def is_long(document: Document) -> bool:
    """Recognise a long table by its names: task or item, and worker, annotator or rater."""
    return long_columns(document.header or list(document.first)) is not None


def read_long(document: Document, into: Gathered, asked: Asked) -> None:
    """Read one row per annotation; ``question`` names the column of labels.

    `manyhands.io.write_annotations` adds a column "question" with a single value, which names the
    question that the labels answer.
    """
    names, given = document.header or list(document.first), asked
    worker = find_name(names, "worker", asked.worker or "worker")
    if asked.annotator_from is not None and worker not in names:
        asked = _of_one_annotator(document, asked)
    keys = task_columns(asked.task or find_name(names, "task", "task"), names)
    if document.kind == "table":
        document.records = [
            (at, {n: released(cell) if document.separator else cell for n, cell in row.items()})
            for at, row in document.dicts()
        ]
        for name in (*keys, worker):
            cells, spaced = trimmed([row.get(name) for _, row in document.records])
            if spaced:
                into.note(spaces_left_out(len(spaced), spaced[0], name))
                for (_, row), cell in zip(document.records, cells, strict=True):
                    row[name] = cell
    question = None if "question" in (*keys, worker) else _question_of(document)
    label = asked.label if asked.question in (None, question) else asked.question
    label = label or find_name(names, "label", "label")
    free = {
        "task": keys[0] if given.task is None else None,
        "worker": worker if given.worker is None else None,
        "label": label if given.label is given.question is None else None,
    }
    guessed = {role: name for role, name in free.items() if name in names}
    if note := note_of_guesses(guessed, {role: role for role in guessed}):
        into.note(note)
    question = question if asked.question in (None, question) else label
    into.candidates = [name for name in names if name not in (*keys, worker)]
    into.named_by = "label"
    shown = [
        n for n in into.candidates if n in asked.fields or (n.lower() in CONTENT and n != label)
    ]
    lost = [n for n in into.candidates if n not in (label, *shown, *_OF_ANNOTATIONS)]
    if lost:
        into.note(f"not kept as data of the items: {preview(lost)}; to keep them, use fields=")
    if note := note_of_gold(names, (*keys, worker, label)):
        into.note(note)
    is_own = asked.annotator_from is not None and worker not in names
    if not {*keys, label, *(() if is_own else (worker,))} <= set(names):
        document.records = []
    for option, name in (("task", ",".join(keys)), ("worker", worker), ("label", label)):
        into.found_as(option, name)

    def read(row: dict[str, Any], at: str) -> None:
        if plain(row.get(worker)) is None and not is_own:
            raise Malformed(f"the column {worker!r} is empty", at)
        parts = [row.get(name) for name in keys]
        task = parts[0] if len(parts) == 1 else joined_id(parts)
        if len(parts) > 1 and None in map(plain, parts):
            raise Malformed(f"a part of the task is empty ({', '.join(keys)})", at)
        into.item(task, {n: row.get(n) for n in shown}, document.name)
        # An empty list is an answer if labels are sets; otherwise it is a missing one.
        labels = ["[]"] if row.get(label) == [] else listed(row.get(label))
        passed = plain(row.get("pass"))
        if passed not in PASSES or any(plain(value) is not None for value in labels):
            passed = None
        is_list = isinstance(row.get(label), list) and labels != ["[]"]
        own = question or label
        into.answer(task, row.get(worker), own, labels, at, passed=passed, is_list=is_list)

    each(document, read)


def _of_one_annotator(document: Document, asked: Asked) -> Asked:
    """Find the columns of ids and labels in a table that names no annotator, by their values.

    Raises
    ------
    UnclearColumnsError
        If they are unclear.
    """
    columns = columns_as_text(document)
    own, names = guess_own(columns), list(columns)
    task = asked.task or find_name(names, "task", "task")
    label = asked.label or asked.question or find_name(names, "label", "label")
    if asked.task is None and task not in names:
        task = own.get("task", task)
    if asked.label is None and label not in names:
        label = own.get("label", label)
    if {*task_columns(task, names), label} <= set(names):
        return replace(asked, task=task, label=label)
    raise UnclearColumnsError(
        f"{document.name}: it is unclear which columns hold the ids and the labels",
        columns,
        {},
        "name them with task= and label=",
    )


def _question_of(document: Document) -> str | None:
    """Return the only value of a column "question"; None if there is none, or several."""
    rows = (row for _, row in document.records if isinstance(row, dict))
    found = {plain(row.get("question")) for row in rows}
    only = found.pop() if len(found) == 1 else None
    return None if only is None else str(only)


FORMAT = Format(
    "long",
    "one row per annotation",
    TABLE,
    is_long,
    read_long,
    is_layout=True,
    reads_tasks=True,
)
