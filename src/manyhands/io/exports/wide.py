"""One row per task: a column per annotator, or a pair of columns per annotation."""

from __future__ import annotations

from manyhands.annotations.wide import (
    Cells,
    Roles,
    UnclearColumnsError,
    find_roles,
    joined_id,
    kind_of,
    task_columns,
    ticked_options,
)
from manyhands.exceptions import AnnotationError
from manyhands.io.exports.contract import TABLE, Format
from manyhands.io.exports.long import is_long
from manyhands.io.exports.mace import is_mace
from manyhands.io.exports.parsing import Document, columns_as_text
from manyhands.io.exports.records import Asked, Gathered, Gold, plain

HEAD = 1000
"""Number of first rows by which a wide table is recognised."""


def is_wide(document: Document) -> bool:
    """Recognise one row per task, with columns of similar names or with the same few values."""
    if document.kind == "table" and (len(document.header) < 3 or is_mace(document)):
        return False
    if is_long(document):
        return False
    try:
        columns = columns_as_text(document, HEAD)
        roles = find_roles(columns)
    except AnnotationError:
        return False
    return bool(roles.pairs) or len(roles.annotators) > 1


def read_wide(document: Document, into: Gathered, asked: Asked) -> None:
    """Read one row per task and one column per annotator, or a pair of columns per annotation.

    Ids are in the columns named by ``task``, else in a column that is named like ids, else in the
    first column if its values are ids; otherwise rows are numbered from 0.
    """
    columns = columns_as_text(document)
    task = None if asked.task is None else task_columns(asked.task, list(columns))
    both = asked.worker is not None and asked.label is not None
    try:
        roles = find_roles(
            columns,
            task=task,
            annotators=asked.annotators,
            worker=asked.worker if both else None,
            label=asked.label if both else None,
        )
    except UnclearColumnsError as error:
        raise error.of(document.name) from error
    labels = {name: columns[name] for name in roles.annotators}
    if asked.classes is None and (ticks := ticked_options(labels)):
        raise AnnotationError(f"{document.name}: {ticks}")
    _account_for(roles, columns, into, named=not roles.why)
    kept = [
        name
        for name, reason in roles.others.items()
        if name in asked.fields or (kind_of(name) not in NO_ITEM_DATA and any(columns[name]))
    ]
    kept = [*(roles.task if len(roles.task) > 1 else ()), *kept]
    whole = {str(value) for value in (() if asked.classes is None else asked.classes)}
    gaps = {""} if "-1" in whole else {"", "-1"}
    n_marked = 0
    for number, at in enumerate(_positions(document)):
        row = {name: cells[number] for name, cells in columns.items()}
        key = joined_id([row[name] for name in roles.task]) if roles.task else number
        if roles.task and not all(row[name] for name in roles.task):
            key = ""
        if key != "":
            into.item(key, {name: row[name] or None for name in kept}, document.name)
        for name in roles.annotators:
            n_marked += row[name] == "-1"
            if row[name] not in gaps:
                into.answer(key, name, "label", [row[name]], at)
        for worker, label in roles.pairs:
            if not row[worker] and row[label] not in gaps:
                into.lose(f"the column {worker!r} names no annotator", at)
            elif row[worker]:
                found = [] if row[label] in gaps else [row[label]]
                into.answer(key, row[worker], "label", found, f"{at}, column {label!r}")
        if roles.gold is not None and row[roles.gold]:
            into.gold.append(Gold(str(key), "label", (plain(row[roles.gold]),), at))
    if n_marked and "-1" in gaps:
        into.note(
            f"{n_marked:,} cells hold -1, which is read as no annotation; if it is a class, name "
            "all classes in classes="
        )


NO_ITEM_DATA = frozenset({"gold", "aggregate", "confidence"})
"""Kinds of columns that are kept as data of the items only if ``fields`` names them."""


def _positions(document: Document) -> list[str]:
    if document.kind == "table":
        return [at for at, row in document.rows if len(row) == len(document.header)]
    return [at for at, row in document.records if isinstance(row, dict)]


def _account_for(roles: Roles, columns: Cells, into: Gathered, *, named: bool) -> None:
    """Note what each column was read as, and why; keep what was found for the printed command."""
    into.found_as("task", ",".join(roles.task) or None)
    for option, value in roles.named.items():
        into.found_as(option, value)
    labels = [*roles.annotators, *(label for _, label in roles.pairs)]
    shown = ", ".join(map(repr, labels[:6]))
    shown += f" and {len(labels) - 6:,} more columns" if len(labels) > 6 else ""
    if roles.why:
        into.note(
            f"{shown} are read as {'labels' if roles.pairs else 'annotators'}, {roles.why}; "
            + (
                "to choose others, use worker= and label="
                if roles.pairs
                else "to choose others, use annotators="
            )
        )
    if not roles.task:
        into.note(
            "no column seems to hold ids, so rows are numbered from 0, beginning with the first "
            "row of data; if a column holds ids, name it in task="
        )
    if roles.gold is not None:
        into.note(
            f"{roles.gold!r} is read as the gold labels, because of its name: "
            "read_export(...).gold has them; if it is an annotator, name it in annotators="
        )
    for name, reason in roles.others.items():
        if named:
            into.note(f"{name!r} is not read as an annotator: {reason}")
        else:
            into.lose(f"not an annotator's column: {reason}", f"column {name!r}")


FORMAT = Format(
    "wide",
    "one row per task and one column per annotator",
    TABLE,
    is_wide,
    read_wide,
    sure=False,
    is_layout=True,
    reads_tasks=True,
    is_whole=True,
)
