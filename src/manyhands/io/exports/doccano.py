"""doccano since 1.4 and before, and its import of examples with labels.

Structures: doccano ``data_export`` and ``data_import`` (MIT), which keeps what is neither text nor
label as metadata.
"""

from __future__ import annotations

from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.io.exports.contract import JSON, Format, Inferred, Writer
from manyhands.io.exports.parsing import Document, each
from manyhands.io.exports.records import Asked, Gathered, Malformed, listed, mapping, members
from manyhands.io.exports.written import ItemFields, Record, facts, score_of

UNNAMED = (
    "the file does not name annotators. If it is one member's file (from a project that is not "
    "collaborative), pass annotator_from='file' and all members' files, or the whole ZIP. The "
    "export of a collaborative project joins everybody's labels, so annotators are lost"
)


def is_doccano(document: Document) -> bool:
    """Recognise doccano: JSON Lines with a list "label" beside "text" or "filename"."""
    first = document.first
    return isinstance(first.get("label"), list) and bool({"text", "filename"} & first.keys())


def is_old_doccano(document: Document) -> bool:
    """Recognise doccano before 1.4: JSON Lines with "annotations" that have "user" and "label"."""
    made = listed(document.first.get("annotations"))
    return bool(made) and isinstance(made[0], dict) and {"label", "user"} <= made[0].keys()


def read_doccano(document: Document, into: Gathered, asked: Asked) -> None:
    """Read one member's file; a file outside an archive does not say whose it is."""
    shared = {"id", "label", "labels", "Comments", "comments"}

    def read(record: dict[str, Any], at: str) -> None:
        task = record.get("id", record.get("text"))
        data = {k: v for k, v in record.items() if k not in shared}
        into.item(task, data, "the archive" if document.archived else document.name)
        worker = document.stem if document.archived else None
        labels = members(record.get("label"), "label", at)
        into.answer(task, worker, "label", labels, at, is_list=True)

    if document.archived and document.stem == "all":
        raise AnnotationError(
            f"{document.name}: this is the export of a collaborative project, which joins "
            "everybody's labels and does not name the annotators, so they cannot be recovered. Let "
            "each member label in a project that is not collaborative"
        )
    each(document, read)


def read_old_doccano(document: Document, into: Gathered, asked: Asked) -> None:
    """Read an export of doccano before 1.4; labels are numbers of the project's label list."""

    def read(record: dict[str, Any], at: str) -> None:
        task = record.get("id")
        into.item(task, {"text": record.get("text")}, document.name)
        made: dict[Any, list[Any]] = {}
        for entry in members(record.get("annotations"), "annotations", at):
            entry = mapping(entry, "annotation", at)
            user = entry.get("user")
            if isinstance(user, list | dict):
                raise Malformed("'user' is neither text nor a number", at)
            made.setdefault(user, []).append(entry.get("label"))
        for worker, labels in made.items():
            into.answer(task, worker, "label", labels, at, is_list=True)
        if not made:
            into.lose("the task has no annotations", at)

    each(document, read)


def doccano_example(found: Inferred, i: int, items: ItemFields, method: str) -> Record:
    """Make an example with its label, or with none where the label was left open."""
    task, label = found.tasks[i].item(), found.labels[i]
    data = items.of(task)
    record = {
        "text": str(data.pop(items.shown, task)),
        "label": [] if label is None else items.labels(label),
        "task": task,
        **score_of(found, i),
        "by": method,
    } | facts(found, i)
    return record | {f"item.{k}" if k in record else k: value for k, value in data.items()}


FORMAT = Format(
    "doccano",
    "doccano since 1.4",
    JSON,
    is_doccano,
    read_doccano,
    unnamed=UNNAMED,
)

OLD_FORMAT = Format("doccano-old", "doccano before 1.4", JSON, is_old_doccano, read_old_doccano)

WRITER = Writer(
    "doccano",
    "doccano",
    ".jsonl",
    doccano_example,
    no_annotators="doccano attributes all imported labels to one person",
)
