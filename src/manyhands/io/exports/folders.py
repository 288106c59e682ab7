"""Tools whose export is a folder of files: Ground Truth, SuperAnnotate, CVAT, brat, INCEpTION.

Structures: SageMaker's ``sms-data-output``; superannotate-python-sdk (MIT); CVAT's XML 1.1 and REST
API (MIT); brat's standoff (brat.nlplab.org/standoff.html); UIMA CAS JSON 0.4.
"""

from __future__ import annotations

import json
from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.io.exports.json_tools import each
from manyhands.io.exports.parsing import INCEPTION, Document
from manyhands.io.exports.records import (
    Asked,
    Gathered,
    Malformed,
    listed,
    mapping,
    moment,
    number,
    plain,
)

# -- SageMaker Ground Truth -----------------------------------------------------------------------


def is_ground_truth(document: Document) -> bool:
    """JSON with "answers" that have "workerId", or a manifest with "annotationsFromAllWorkers"."""
    answers = listed(document.first.get("answers"))
    if answers and isinstance(answers[0], dict) and "workerId" in answers[0]:
        return True
    return any(
        isinstance(value, dict) and "annotationsFromAllWorkers" in value
        for value in document.first.values()
    )


def is_manifest(document: Document) -> bool:
    """JSON Lines with a key ending in "-metadata" whose value has "job-name"."""
    return any(
        key.endswith("-metadata") and isinstance(value, dict) and "job-name" in value
        for key, value in document.first.items()
    )


def read_manifest(document: Document, into: Gathered, asked: Asked) -> None:
    """Refuse an output manifest, which holds merged labels only."""
    raise AnnotationError(
        f"{document.name} is an output manifest, whose labels are merged already and name no "
        "workers; give the folder annotations/worker-response/iteration-1 of the same job"
    )


def read_ground_truth(document: Document, into: Gathered, asked: Asked) -> None:
    """Read workers' answers; without a source, the folder of the file is the task."""

    def read(record: dict[str, Any], at: str) -> None:
        if "answers" in record:
            task: Any = document.path.parent.name or document.stem
            for position, answer in enumerate(listed(record["answers"]), start=1):
                where = f"{at}, answer {position}"
                _read_worker(mapping(answer, "answer", where), task, where, into)
            return
        task = record.get("source-ref", record.get("source"))
        into.item(task, {"source": task}, document.name)
        for value in record.values():
            if isinstance(value, dict) and "annotationsFromAllWorkers" in value:
                for position, made in enumerate(listed(value["annotationsFromAllWorkers"]), 1):
                    where = f"{at}, answer {position}"
                    made = mapping(made, "answer", where)
                    content = mapping(made.get("annotationData"), "annotationData", where)
                    made = {
                        "workerId": made.get("workerId"),
                        "answerContent": content.get("content"),
                    }
                    _read_worker(made, task, where, into)

    each(document, read)


def _read_worker(answer: dict[str, Any], task: Any, at: str, into: Gathered) -> None:
    content = answer.get("answerContent")
    if isinstance(content, str):
        try:
            content = json.loads(content)
        except ValueError:
            raise Malformed("the answer's content is no JSON", at) from None
    ended, seconds = moment(answer.get("submissionTime")), number(answer.get("timeSpentInSeconds"))
    for element, value in mapping(content, "answerContent", at).items():
        if isinstance(value, dict):
            labels = value.get("labels", value.get("label"))
            if labels is None:
                labels = [name for name, chosen in value.items() if chosen is True]
        else:
            labels = value
        into.answer(
            task, answer.get("workerId"), element, listed(labels), at, ended=ended, seconds=seconds
        )


# -- SuperAnnotate --------------------------------------------------------------------------------


def is_superannotate(document: Document) -> bool:
    """JSON with "metadata" that has "name", beside "instances" or an object "data"."""
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
        into.note("forms name no annotator: the folder of an item counts as one")
        worker = plain(about.get("folder_name"))
        for question, answer in mapping(record.get("data"), "data", at).items():
            value = answer.get("value") if isinstance(answer, dict) else answer
            into.answer(task, worker, question, listed(value), at)

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
        into.answer(task, worker, question, labels, at, ended=ended[worker])


# -- CVAT -----------------------------------------------------------------------------------------


def is_cvat(document: Document) -> bool:
    """XML with "annotations" outermost, or JSON with "tags", "shapes" and "tracks"."""
    return document.root == "annotations" or {"tags", "shapes", "tracks"} <= document.whole.keys()


def read_cvat(document: Document, into: Gathered, asked: Asked) -> None:
    """Read the tags of images from XML 1.1, or of frames from a job's annotations (REST).

    Neither names the annotator, who is the assignee of the job; JSON may hold an "assignee".
    """
    if document.root:
        for at, image in document.records:
            task = image.get("name")
            into.item(task, {"image": task}, document.name)
            labels = [tag["label"] for tag in image["tags"]]
            if not labels:
                into.lose("the image has no tags: marked regions classify nothing", at)
                continue
            into.answer(task, None, "tag", labels, at)
            for tag in image["tags"]:
                for name, value in tag["attributes"].items():
                    into.answer(task, None, f"{tag['label']} / {name}", [value], at)
        return
    who = document.whole.get("assignee")
    worker = who.get("username") if isinstance(who, dict) else who
    frames: dict[Any, list[Any]] = {}
    for position, tag in enumerate(listed(document.whole["tags"]), start=1):
        if not isinstance(tag, dict) or isinstance(tag.get("frame"), list | dict):
            document.broken.append((f"tag {position}", "it is no object with a frame"))
        else:
            frames.setdefault(tag.get("frame"), []).append(tag.get("label_id"))
    for frame, labels in frames.items():
        into.answer(frame, worker, "tag", labels, f"frame {frame}")


# -- brat -----------------------------------------------------------------------------------------


def is_brat(document: Document) -> bool:
    """Lines of brat's standoff, such as "T1", a type with two offsets, and a text."""
    return document.root == "brat"


def read_brat(document: Document, into: Gathered, asked: Asked) -> None:
    """Read attributes and notes of a span that covers the whole text; the folder is the annotator.

    brat has no labels of documents; this is how teams write them. All else marks parts of a text.
    """
    path = None if document.beside is None else document.beside / f"{document.stem}.txt"
    if path is None or not path.is_file():
        into.lose(
            f"the text {document.stem}.txt does not lie beside it, so a span of the whole text "
            "cannot be told from others",
            document.name,
        )
        return
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    worker = document.path.parent.name or None
    whole, found = set(), dict[str, list[Any]]()
    for _, cells in document.records:
        parts = cells[1].split(" ") if len(cells) > 1 else []
        if cells[0].startswith("T") and len(parts) > 2:
            if parts[1] == "0" and number(parts[-1]) is not None:
                whole |= {cells[0]} if float(parts[-1]) >= len(text.rstrip()) else set()
        elif cells[0][:1] in ("A", "M") and len(parts) > 1 and parts[1] in whole:
            found.setdefault(parts[0], []).append(" ".join(parts[2:]) or True)
        elif cells[0].startswith("#") and len(cells) > 2 and len(parts) > 1 and parts[1] in whole:
            found.setdefault("note", []).append(cells[2])
    into.item(document.stem, {"text": text}, worker or document.name)
    if not found:
        into.lose("spans of a text are marked, and no label is given to all of it", document.name)
    for question, labels in found.items():
        into.answer(document.stem, worker, question, labels, document.name)


# -- INCEpTION ------------------------------------------------------------------------------------


def is_inception(document: Document) -> bool:
    """UIMA CAS as JSON ("%FEATURE_STRUCTURES") or XMI."""
    return document.root == "XMI" or "%FEATURE_STRUCTURES" in document.whole


def read_inception(document: Document, into: Gathered, asked: Asked) -> None:
    """Refuse a document of INCEpTION, whose types are the project's own."""
    raise AnnotationError(f"{document.name}: {INCEPTION}")
