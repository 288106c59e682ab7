"""Records with two parallel lists: the annotators of an item, and their labels."""

from __future__ import annotations

import json
import re
from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.io.exports.contract import JSON, Format
from manyhands.io.exports.parsing import Document, each
from manyhands.io.exports.records import Asked, Gathered, Malformed, listed

WORKER_LISTS = ("annotators", "workers", "annotator_ids", "annotators_id", "worker_ids", "users")

LABEL_LISTS = ("annotations", "labels", "answers", "responses")

TASKS = ("id", "task", "task_id", "item", "item_id", "uid", "instance", "instance_id")


def list_columns(names: list[str], asked: Asked) -> tuple[str, str] | None:
    """Return the columns that hold an item's annotators and their labels."""
    workers = [asked.worker] if asked.worker else WORKER_LISTS
    labels = [asked.label] if asked.label else LABEL_LISTS
    worker = next((name for name in workers if name in names), None)
    label = next((name for name in labels if name in names), None)
    return (worker, label) if worker and label else None


def is_lists(document: Document) -> bool:
    """Recognise records with two parallel lists, such as "annotators" and "annotations"."""
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
            f"{document.name}: there are no lists of annotators and of labels among "
            f"{', '.join(map(repr, document.first))}; name them with worker= and label="
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
            is_list = isinstance(label, list)
            into.answer(task, worker, label_list, listed(label), at, is_list=is_list)

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


FORMAT = Format(
    "lists",
    "lists of annotators and labels",
    JSON,
    is_lists,
    read_lists,
    is_layout=True,
    reads_tasks=True,
)
