"""SuperAnnotate: tags of images, and forms.

Structure: superannotate-python-sdk (MIT).
"""

from __future__ import annotations

from typing import Any

from manyhands.io.exports.contract import JSON, Format
from manyhands.io.exports.parsing import Document, each
from manyhands.io.exports.records import Asked, Gathered, listed, mapping, moment, plain


def is_superannotate(document: Document) -> bool:
    """Recognise SuperAnnotate: "metadata" with "name", beside "instances" or "data"."""
    first = document.first
    about = first.get("metadata")
    if not isinstance(about, dict) or "name" not in about:
        return False
    return isinstance(first.get("instances"), list) or isinstance(first.get("data"), dict)


def read_superannotate(document: Document, into: Gathered, asked: Asked) -> None:
    """Read the tags of images (their creator is the annotator), or forms of any data.

    A tag with attributes answers one question per group of attributes, and one without answers
    "class". A form names nobody: the folder of an item is the annotator.
    """

    def read(record: dict[str, Any], at: str) -> None:
        about = mapping(record.get("metadata"), "metadata", at)
        task = about.get("name")
        if isinstance(record.get("instances"), list):
            into.item(task, {"name": task}, document.name)
            _read_tags(record["instances"], task, at, into)
            return
        into.note("forms do not name annotators, so items are read as the work of their folder")
        worker = plain(about.get("folder_name"))
        for question, answer in mapping(record.get("data"), "data", at).items():
            value = answer.get("value") if isinstance(answer, dict) else answer
            is_list = isinstance(value, list)
            into.answer(task, worker, question, listed(value), at, is_list=is_list)

    each(document, read)


def _read_tags(instances: list[Any], task: Any, at: str, into: Gathered) -> None:
    found: dict[tuple[str, Any], list[Any]] = {}
    ended: dict[Any, float | None] = {}
    for instance in instances:
        if not isinstance(instance, dict) or instance.get("type") != "tag":
            continue
        who = instance.get("createdBy")
        worker = plain(who.get("email")) if isinstance(who, dict) else None
        ended[worker] = moment(instance.get("updatedAt") or instance.get("createdAt"))
        attributes = [a for a in listed(instance.get("attributes")) if isinstance(a, dict)]
        for attribute in attributes:
            group = f"{instance.get('className')} / {attribute.get('groupName')}"
            found.setdefault((group, worker), []).append(attribute.get("name"))
        if not attributes:
            found.setdefault(("class", worker), []).append(instance.get("className"))
    if not found:
        into.lose("the item has no tags: marked regions classify nothing", at)
    for (question, worker), labels in found.items():
        into.answer(task, worker, question, labels, at, ended=ended[worker], is_list=True)


FORMAT = Format("superannotate", "SuperAnnotate", JSON, is_superannotate, read_superannotate)
