"""Layouts of research: LeWiDi, peerannot, MACE, Get-Another-Label, Potato, lists, wide tables.

Structures: the LeWiDi tasks of SemEval 2023 and 2025; peerannot (BSD-3); MACE (Hovy et al. 2013);
Get-Another-Label (Apache-2.0); Potato's ``user_state.json``.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from manyhands.annotations import PASSES
from manyhands.annotations.ids import is_id_name
from manyhands.annotations.wide import (
    Cells,
    Roles,
    UnclearColumnsError,
    as_cell,
    find_roles,
    guess_own,
    joined_id,
    kind_of,
    task_columns,
    ticked_options,
)
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import find_name, note_of_gold, preview, spaces_left_out, trimmed
from manyhands.io.csv_files import released
from manyhands.io.exports.json_tools import each
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import (
    Asked,
    Gathered,
    Gold,
    Malformed,
    listed,
    mapping,
    plain,
)
from manyhands.io.sheets import NO_NAMES

WORKER_LISTS = ("annotators", "workers", "annotator_ids", "annotators_id", "worker_ids", "users")
LABEL_LISTS = ("annotations", "labels", "answers", "responses")
TASKS = ("id", "task", "task_id", "item", "item_id", "uid", "instance", "instance_id")

FEW = 20
"""A table of class values has at most so many different ones."""


# -- LeWiDi ---------------------------------------------------------------------------------------


def is_lewidi(document: Document) -> bool:
    """JSON object of objects with "annotators" and "annotations"."""
    return bool(document.whole) and all(
        isinstance(item, dict) and {"annotators", "annotations"} <= item.keys()
        for item in document.whole.values()
    )


def read_lewidi(document: Document, into: Gathered, asked: Asked) -> None:
    """Read a set of 2023 (two lists joined by commas) or of 2025 (an object per annotator)."""
    for task, item in document.whole.items():
        at = f"item {task!r}"
        named = str(item.get("annotation task") or "annotation")
        into.item(task, {"text": item.get("text"), "split": item.get("split")}, document.name)
        try:
            for worker, label in _lewidi_pairs(item["annotators"], item["annotations"], at):
                into.answer(task, worker, named, label.split(","), at)
            more = mapping(item.get("other_info"), "other_info", at).get("other annotations")
            for question, labels in mapping(more, "other annotations", at).items():
                for worker, label in _lewidi_pairs(item["annotators"], labels, at):
                    into.answer(task, worker, question, label.split(","), at)
        except Malformed as error:
            document.broken.append((error.at, error.reason))
    if len({a.question for a in into.answers}) > 1:
        # The other annotations accompany the set's own task, which its name says.
        own = next(str(i.get("annotation task")) for i in document.whole.values())
        into.default_question = own


def _lewidi_pairs(workers: Any, labels: Any, at: str) -> list[tuple[str, str]]:
    if isinstance(labels, dict):
        return [(worker, str(label)) for worker, label in labels.items()]
    names, values = str(workers).split(","), str(labels).split(",")
    if len(names) != len(values):
        raise Malformed(f"{len(names)} annotators for {len(values)} annotations", at)
    return list(zip(names, values, strict=True))


# -- peerannot ------------------------------------------------------------------------------------


def is_peerannot(document: Document) -> bool:
    """JSON object of objects of integers."""
    inner = document.whole.values()
    return any(inner) and all(
        isinstance(votes, dict) and all(type(v) is int for v in votes.values()) for votes in inner
    )


def read_peerannot(document: Document, into: Gathered, asked: Asked) -> None:
    """Read {task: {worker: class}}; ``metadata.json`` beside it tells if it is the other way."""
    inverted = _is_inverted(document)
    if inverted:
        into.note(f"{document.name}: its metadata say that it maps workers to tasks")
    for outer, votes in document.whole.items():
        if not votes:
            into.lose("nobody annotated the task", f"item {outer!r}")
        for inner, label in votes.items():
            task, worker = (inner, outer) if inverted else (outer, inner)
            into.answer(task, worker, "label", (label,), f"item {outer!r}, {inner!r}")


def _is_inverted(document: Document) -> bool:
    path = None if document.beside is None else document.beside / "metadata.json"
    if path is None or not path.is_file():
        return False
    try:
        n_tasks = json.loads(path.read_text(encoding="utf-8-sig")).get("n_tasks")
    except (ValueError, OSError, AttributeError):
        return False
    inner = {name for votes in document.whole.values() for name in votes}
    return type(n_tasks) is int and len(document.whole) != n_tasks == len(inner)


# -- tables without a header ----------------------------------------------------------------------


def is_triples(document: Document) -> bool:
    """Three columns without a header, separated by tabs: worker, item, label."""
    if len(document.header) != 3 or document.separator != "\t":
        return False
    return not any(is_word(name) for name in document.header)


def is_word(name: str) -> bool:
    """Whether a cell of a first row names a column."""
    known = r"(task|item|question|worker|annotator|user|rater|label|answer|response|gold)"
    return bool(re.search(known + r"(_?id)?s?$", name.lower())) or is_id_name(name)


def read_triples(document: Document, into: Gathered, asked: Asked) -> None:
    """Read a file of Get-Another-Label: worker, item, label."""
    for at, row in _headless(document):
        if len(row) == 3:
            into.answer(row[1], row[0], "label", [row[2]], at)


def _headless(document: Document) -> list[tuple[str, list[str]]]:
    return [(f"row {document.before + 1}", document.header), *document.rows]


def is_mace(document: Document) -> bool:
    """Table without a header whose cells are a few class values, or empty."""
    header = [name for name in document.header if name]
    if len(document.header) < 2 or len(header) == len(set(header)) == len(document.header):
        return False
    values = {cell for _, row in document.rows for cell in row}
    return set(header) <= values and len(values) <= FEW + 1


def read_mace(document: Document, into: Gathered, asked: Asked) -> None:
    """Read a matrix: rows are items, columns annotators, both by number from 0."""
    for task, (at, row) in enumerate(_headless(document), start=document.earlier):
        if len(row) == len(document.header):
            for worker, cell in enumerate(row):
                if cell.strip():
                    into.answer(task, worker, "label", [cell], f"{at}, column {worker + 1}")


# -- wide tables ----------------------------------------------------------------------------------


HEAD = 1000
"""Rows by which a wide table is recognised."""


def is_wide(document: Document) -> bool:
    """Table of one row per task, with columns that are called alike or share a few values."""
    if document.kind == "table" and (len(document.header) < 3 or is_mace(document)):
        return False
    if is_long(document):
        return False
    try:
        columns = wide_columns(document, HEAD)
        roles = find_roles(columns)
    except AnnotationError:
        return False
    return bool(roles.pairs) or len(roles.annotators) > 1


def wide_columns(document: Document, most: int | None = None) -> dict[str, list[str]]:
    """Cells of the columns of a table, or of records without lists and objects, as text.

    Raises
    ------
    AnnotationError
        If two columns have one name, or the records hold lists or objects.
    """
    if document.kind == "table":
        header = document.header
        rows = [row for _, row in document.rows[:most] if len(row) == len(header)]
        columns = {
            name: [as_cell(released(row[place])) for row in rows]
            for place, name in enumerate(header)
        }
        unnamed = [name for name in columns if not name and not any(columns[name])]
        filled = [name for name in header if name not in unnamed]
        if len(set(filled)) < len(filled):
            twice = next(name for name in filled if filled.count(name) > 1)
            if not twice:
                raise AnnotationError(f"{document.name}: several columns {NO_NAMES}")
            raise AnnotationError(
                f"{document.name}: the column {twice!r} occurs twice in the header; rename one"
            )
        return {name: columns[name] for name in filled}
    records = [row for _, row in document.records[:most] if isinstance(row, dict)]
    names = list(dict.fromkeys(name for row in records for name in row))
    if any(isinstance(value, list | dict) for row in records for value in row.values()):
        raise AnnotationError(f"{document.name}: records with lists or objects are no wide table")
    return {name: [as_cell(plain(row.get(name))) for row in records] for name in names}


def read_wide(document: Document, into: Gathered, asked: Asked) -> None:
    """Read one row per task and one column per annotator, or a pair of columns per annotation.

    Ids are in the columns named by ``task``, else in a column that is called as ids are, else in
    the first if its values are ids; without either, rows are numbered from 0.
    """
    columns = wide_columns(document)
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
            f"{n_marked:,} cells hold -1, which stands for no annotation; if it is a class, name "
            "all classes in classes="
        )


NO_ITEM_DATA = frozenset({"gold", "aggregate", "confidence"})
"""Kinds of columns that are kept as data of the items only if ``fields`` names them."""


def _positions(document: Document) -> list[str]:
    if document.kind == "table":
        return [at for at, row in document.rows if len(row) == len(document.header)]
    return [at for at, row in document.records if isinstance(row, dict)]


def _account_for(roles: Roles, columns: Cells, into: Gathered, *, named: bool) -> None:
    """Say which columns are what, and why; what was found becomes part of the explicit command."""
    into.found_as("task", ",".join(roles.task) or None)
    for option, value in roles.named.items():
        into.found_as(option, value)
    labels = [*roles.annotators, *(label for _, label in roles.pairs)]
    shown = ", ".join(map(repr, labels[:6]))
    shown += f" and {len(labels) - 6:,} more columns" if len(labels) > 6 else ""
    if roles.why:
        into.note(
            f"{shown} are read as {'labels' if roles.pairs else 'annotators'}, {roles.why}; "
            + ("worker= and label= name others" if roles.pairs else "annotators= names others")
        )
    if not roles.task:
        into.note("no column holds ids, so the rows are numbered from 0; task= names one")
    if roles.gold is not None:
        into.note(
            f"{roles.gold!r} is read as the gold labels, because of its name: "
            "read_export(...).gold has them"
        )
    for name, reason in roles.others.items():
        if named:
            into.note(f"{name!r} is no annotator's column: {reason}")
        else:
            into.lose(f"not an annotator's column: {reason}", f"column {name!r}")


# -- long tables ----------------------------------------------------------------------------------

SHOWN = frozenset(
    {"text", "sentence", "title", "image", "url", "audio", "video", "path", "content", "document"}
)
"""Columns of a long table that are the item's own data; others are kept only if they are named."""

_OF_ANNOTATIONS = frozenset({"weight", "source", "pass", "group", "question"})
"""Columns of a long table that manyhands writes beside the label."""


def long_columns(names: list[str]) -> list[str] | None:
    """Columns of task and annotator by their common names; None if one is absent."""
    try:
        found = [find_name(names, which, which) for which in ("task", "worker")]
    except AnnotationError:
        return None
    return found if set(found) <= set(names) else None


def is_long(document: Document) -> bool:
    """Columns (or keys) task, item or question, and worker, annotator, rater or user."""
    return long_columns(document.header or list(document.first)) is not None


def read_long(document: Document, into: Gathered, asked: Asked) -> None:
    """Read one row per annotation; ``question`` names the column of labels.

    A column "question" of one value, which `manyhands.io.write_annotations` adds, says what the
    column of labels answers.
    """
    names = document.header or list(document.first)
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
                into.note(spaces_left_out(spaced, name))
                for (_, row), cell in zip(document.records, cells, strict=True):
                    row[name] = cell
    question = None if "question" in (*keys, worker) else _question_of(document)
    label = asked.label if asked.question in (None, question) else asked.question
    label = label or find_name(names, "label", "label")
    question = question if asked.question in (None, question) else label
    into.candidates = [name for name in names if name not in (*keys, worker)]
    shown = [n for n in into.candidates if n in asked.fields or (n.lower() in SHOWN and n != label)]
    lost = [n for n in into.candidates if n not in (label, *shown, *_OF_ANNOTATIONS)]
    if lost:
        into.note(f"not kept as data of the items: {preview(lost)}; fields= takes their names")
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
        # An empty list is an answer where labels are sets, and none elsewhere.
        labels = ["[]"] if row.get(label) == [] else listed(row.get(label))
        passed = plain(row.get("pass"))
        if passed not in PASSES or any(plain(value) is not None for value in labels):
            passed = None
        into.answer(task, row.get(worker), question or label, labels, at, passed=passed)

    each(document, read)


def _of_one_annotator(document: Document, asked: Asked) -> Asked:
    """Find the columns of ids and labels in a table that names no annotator, by their values.

    Raises
    ------
    UnclearColumnsError
        If it cannot be told.
    """
    columns = wide_columns(document)
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
        f"{document.name}: it cannot be told which columns hold the ids and the labels",
        columns,
        {},
        "name them with task= and label=",
    )


def _question_of(document: Document) -> str | None:
    """The only value of a column "question"; None if there are several, or no such column."""
    rows = (row for _, row in document.records if isinstance(row, dict))
    found = {plain(row.get("question")) for row in rows}
    only = found.pop() if len(found) == 1 else None
    return None if only is None else str(only)


# -- lists ----------------------------------------------------------------------------------------


def list_columns(names: list[str], asked: Asked) -> tuple[str, str] | None:
    """Columns with the annotators of an item and with their labels."""
    workers = [asked.worker] if asked.worker else WORKER_LISTS
    labels = [asked.label] if asked.label else LABEL_LISTS
    worker = next((name for name in workers if name in names), None)
    label = next((name for name in labels if name in names), None)
    return (worker, label) if worker and label else None


def is_lists(document: Document) -> bool:
    """Records with two parallel lists, such as "annotators" and "annotations"."""
    first = document.first
    pair = list_columns(list(first), Asked())
    return pair is not None and all(
        isinstance(first[n], list) and not any(isinstance(v, dict) for v in first[n]) for n in pair
    )


def read_lists(document: Document, into: Gathered, asked: Asked) -> None:
    """Read records with parallel lists of annotators and labels."""
    rows: Any = document.dicts() if document.kind == "table" else document.records
    document.records = [(at, _with_lists(row)) for at, row in rows]
    pair = list_columns(list(document.first), asked)
    if pair is None:
        raise AnnotationError(
            f"{document.name}: no two lists of annotators and labels among "
            f"{', '.join(map(repr, document.first))}; name them by worker= and label="
        )
    worker_list, label_list = pair
    name = next((n for n in (asked.task, *TASKS) if n in document.first), None)
    numbered = enumerate(document.records, start=document.earlier)
    numbers = {at: number for number, (at, _) in numbered}

    def read(record: dict[str, Any], at: str) -> None:
        task = numbers[at] if name is None else record.get(name)
        workers, labels = listed(record.get(worker_list)), listed(record.get(label_list))
        if len(workers) != len(labels):
            raise Malformed(f"{len(workers)} annotators for {len(labels)} labels", at)
        into.item(task, {k: v for k, v in record.items() if k not in (*pair, name)}, document.name)
        for worker, label in zip(workers, labels, strict=True):
            into.answer(task, worker, label_list, listed(label), at)

    each(document, read)


def _with_lists(row: Any) -> Any:
    """Read cells that are JSON lists."""
    if not isinstance(row, dict):
        return row
    found = {}
    for name, value in row.items():
        if isinstance(value, str) and value.startswith("["):
            try:
                value = json.loads(value)
            except ValueError:
                value = re.split(r"[,\s]+", value.strip("[] \n").replace("'", ""))
        found[name] = value
    return found


# -- Potato ---------------------------------------------------------------------------------------


def is_potato(document: Document) -> bool:
    """JSON object with "instance_id_to_label_to_value"."""
    return "instance_id_to_label_to_value" in document.whole


def read_potato(document: Document, into: Gathered, asked: Asked) -> None:
    """Read one annotator's ``user_state.json``; a schema is a question."""
    whole = document.whole
    worker = whole.get("user_id") or document.path.parent.name
    made = whole["instance_id_to_label_to_value"]
    if not isinstance(made, dict):
        document.broken.append(("the answers", "they are no object"))
        return
    for task, pairs in made.items():
        found: dict[str, list[Any]] = {}
        for pair in listed(pairs):
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], dict):
                given, value = pair
                chosen = given.get("name") if plain(value) in ("true", given.get("name")) else value
                if plain(value) != "false":
                    found.setdefault(str(given.get("schema")), []).append(chosen)
            else:
                document.broken.append((f"instance {task!r}", "an answer is no pair"))
        for question, labels in found.items():
            into.answer(task, worker, question, labels, f"instance {task!r}")
