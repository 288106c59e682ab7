"""Tools that export JSON: Prodigy, doccano, Argilla and Labelbox.

Structures: prodi.gy/docs/api-interfaces; doccano ``data_export`` (MIT); argilla 2 ``records/_io``
(Apache-2.0); docs.labelbox.com/reference/export-quick-reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import (
    ABSTAIN,
    SKIP,
    Asked,
    Gathered,
    Gold,
    Malformed,
    listed,
    mapping,
    members,
    moment,
    number,
    plain,
)

ReadRecord = Callable[[dict[str, Any], str], None]


def each(document: Document, read: ReadRecord) -> None:
    """Read every record; a malformed one is listed in ``broken``, and the others are kept."""
    for at, record in document.records:
        try:
            read(mapping(record, "record", at), at)
        except Malformed as error:
            document.broken.append((error.at, error.reason))


# -- Prodigy --------------------------------------------------------------------------------------

_STAMP = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d$")


def is_prodigy(document: Document) -> bool:
    """JSON Lines with "_input_hash" or "_task_hash"."""
    return bool({"_input_hash", "_task_hash"} & document.first.keys())


def read_prodigy(document: Document, into: Gathered, asked: Asked) -> None:
    """Read the lines of ``prodigy db-out``; the task is ``_input_hash``, one per text.

    A binary question (``label`` with accept or reject) is named by its label, and its classes are
    0 and 1. The answers "ignore" are skips.
    """
    names = _annotator_names(document, into)
    shared = {"_input_hash", "_task_hash", "_view_id", "answer", "_timestamp", "_annotator_id"}
    shared |= {"_session_id", "accept", "options", "config", "label", "versions", "sessions"}

    def read(record: dict[str, Any], at: str) -> None:
        task = record.get("_input_hash", record.get("_task_hash"))
        into.item(task, {k: v for k, v in record.items() if k not in shared}, document.name)
        if "versions" in record or "sessions" in record:
            labels = listed(record.get("accept", record.get("label")))
            into.gold.append(Gold(task, "choice", tuple(map(plain, labels)), at))
            return
        worker = names[str(record.get("_annotator_id") or record.get("_session_id") or "")]
        answer, more = record.get("answer"), {"ended": moment(record.get("_timestamp"))}
        if answer == "ignore":
            into.answer(task, worker, None, (), at, passed=SKIP, **more)
        elif "accept" in record or "options" in record:
            chosen = members(record.get("accept"), "accept", at)
            _note_options(record, into)
            if answer == "reject":
                into.answer(task, worker, "choice", (), at, passed=ABSTAIN, **more)
            else:
                into.answer(task, worker, "choice", chosen, at, **more)
        elif "label" in record and answer in ("accept", "reject"):
            question = str(record["label"])
            into.classes.setdefault(question, [0, 1])
            into.answer(task, worker, question, (int(answer == "accept"),), at, **more)
        elif isinstance(record.get("cats"), dict):
            chosen = [name for name, value in record["cats"].items() if value == 1]
            into.answer(task, worker, "cats", chosen, at, **more)
        else:
            into.lose("the record classifies nothing (no 'accept', 'label' or 'cats')", at)

    each(document, read)


def _note_options(record: dict[str, Any], into: Gathered) -> None:
    known = into.classes.setdefault("choice", [])
    for option in listed(record.get("options")):
        name = plain(option.get("id")) if isinstance(option, dict) else plain(option)
        if name is not None and name not in known:
            known.append(name)


def _annotator_names(document: Document, into: Gathered) -> dict[str, str]:
    """Names of annotators without the name of the data set before them."""
    ids = {
        str(r.get("_annotator_id") or r.get("_session_id") or "")
        for _, r in document.records
        if isinstance(r, dict)
    }
    if "" in ids:
        into.note(
            f"{document.name}: some records name no annotator (as in older exports); they count as "
            f"one annotator, {document.stem!r}"
        )
    named = sorted(ids - {""})
    stamped = [name for name in named if _STAMP.search(name)]
    if stamped:
        into.note(
            f"{document.name}: {len(stamped)} annotators are called after the time of a session "
            f"({stamped[0]!r}): no session was named, and one person may count as several"
        )
    stems = [_STAMP.sub("", name).rsplit("-", 1) for name in named]
    prefixes = {stem[0] for stem in stems if len(stem) == 2 and stem[0]}
    cut = len(prefixes.pop()) + 1 if len(prefixes) == 1 else 0
    return {"": document.stem} | {name: name[cut:] or name for name in named}


# -- doccano --------------------------------------------------------------------------------------


def is_doccano(document: Document) -> bool:
    """JSON Lines with a list "label" beside "text" or "filename"."""
    first = document.first
    return isinstance(first.get("label"), list) and bool({"text", "filename"} & first.keys())


def is_old_doccano(document: Document) -> bool:
    """JSON Lines with "annotations" that have "user" and "label" (before 1.4)."""
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
        into.answer(task, worker, "label", members(record.get("label"), "label", at), at)

    if document.archived and document.stem == "all":
        raise AnnotationError(
            f"{document.name}: this is the export of a collaborative project, which joins "
            "everybody's labels and does not name the annotators; they cannot be told apart"
        )
    each(document, read)


UNNAMED_DOCCANO = (
    "the file does not name annotators. If it is one member's file (of a project that is not "
    "collaborative), pass annotator_from='file', and all members' files or the whole ZIP; the "
    "export of a collaborative project joins everybody's labels, and annotators are lost"
)


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
            into.answer(task, worker, "label", labels, at)
        if not made:
            into.lose("the task has no annotations", at)

    each(document, read)


# -- Argilla --------------------------------------------------------------------------------------


NO_STATUS = (
    "this form of the export does not hold the status of responses: drafts and discarded ones "
    "count as answers. Export records.to_list(flatten=True) to tell them apart"
)


def is_argilla(document: Document) -> bool:
    """JSON array with "responses" and "_server_id", or a key ending in ".responses.users"."""
    first = document.first
    return {"responses", "_server_id"} <= first.keys() or any(
        key.endswith(".responses.users") for key in first
    )


def read_argilla(document: Document, into: Gathered, asked: Asked) -> None:
    """Read ``records.to_json``, or the flattened form, which also holds the responses' status."""

    def read(record: dict[str, Any], at: str) -> None:
        task = record.get("id", record.get("_server_id"))
        if "responses" in record:
            _read_nested_argilla(record, task, at, document, into)
        else:
            _read_flat_argilla(record, task, at, document, into)

    each(document, read)


def _read_nested_argilla(
    record: dict[str, Any], task: Any, at: str, document: Document, into: Gathered
) -> None:
    data = {f"fields.{k}": v for k, v in mapping(record.get("fields"), "fields", at).items()}
    kept = mapping(record.get("metadata"), "metadata", at)
    into.item(task, data | {f"metadata.{k}": v for k, v in kept.items()}, document.name)
    for question, responses in mapping(record["responses"], "responses", at).items():
        for response in members(responses, question, at):
            response = mapping(response, question, at)
            user, value = response.get("user_id"), response.get("value")
            if "status" not in response:
                into.note(NO_STATUS)
            state = response.get("status", "submitted")
            _argilla_response(task, user, question, value, state, at, into)


def _read_flat_argilla(
    record: dict[str, Any], task: Any, at: str, document: Document, into: Gathered
) -> None:
    asked = [key.removesuffix(".responses.users") for key in record if key.endswith(".users")]
    parts = (".responses", ".suggestion")
    prefixes = tuple(q + part for q in asked for part in parts)
    shared = {"id", "status", "_server_id"}
    data = {k: v for k, v in record.items() if k not in shared and not k.startswith(prefixes)}
    into.item(task, data, document.name)
    for question in asked:
        users = listed(record.get(f"{question}.responses.users"))
        values = listed(record.get(f"{question}.responses"))
        states = listed(record.get(f"{question}.responses.status")) or ["submitted"] * len(users)
        if not len(users) == len(values) == len(states):
            raise Malformed(f"the responses to {question!r} differ in number from their users", at)
        for user, value, state in zip(users, values, states, strict=True):
            _argilla_response(task, user, question, value, state, at, into)


def _argilla_response(
    task: Any, user: Any, question: str, value: Any, state: Any, at: str, into: Gathered
) -> None:
    if state == "discarded":
        into.answer(task, user, question, (), at, passed=ABSTAIN)
    elif state == "submitted":
        into.answer(task, user, question, _argilla_labels(value), at)
    else:
        into.lose("the response is a draft", at)


def _argilla_labels(value: Any) -> list[Any]:
    """Labels of a response; a ranking is its first place."""
    values = list(listed(value))
    if values and all(isinstance(v, dict) and "rank" in v for v in values):
        best = min(v["rank"] for v in values)
        return [v.get("value") for v in values if v["rank"] == best]
    return values


# -- Labelbox -------------------------------------------------------------------------------------


def is_labelbox(document: Document) -> bool:
    """JSON Lines with "projects" and "data_row"."""
    return {"projects", "data_row"} <= document.first.keys()


def read_labelbox(document: Document, into: Gathered, asked: Asked) -> None:
    """Read NDJSON of the export v2: one data row per line, with the labels of all projects."""

    def read(record: dict[str, Any], at: str) -> None:
        row = mapping(record.get("data_row"), "data_row", at)
        task = row.get("global_key") or row.get("id")
        names = ("id", "global_key", "external_id", "row_data")
        data: dict[str, Any] = {k: row[k] for k in names if k in row}
        into.item(task, data, document.name)
        for project in mapping(record.get("projects"), "projects", at).values():
            labels = members(mapping(project, "project", at).get("labels"), "labels", at)
            named = (_performance(label).get("benchmark_reference_label") for label in labels)
            benchmarks = [name for name in named if name is not None]
            for position, label in enumerate(labels, start=1):
                where = f"{at}, label {position}"
                label = mapping(label, "label", where)
                is_gold = "id" in label and label["id"] in benchmarks
                _read_labelbox(label, task, where, is_gold, into)

    each(document, read)


def _performance(label: Any) -> dict[str, Any]:
    found = label.get("performance_details") if isinstance(label, dict) else None
    return found if isinstance(found, dict) else {}


def _read_labelbox(
    label: dict[str, Any], task: Any, at: str, is_gold: bool, into: Gathered
) -> None:
    details, spent = mapping(label.get("label_details"), "label_details", at), _performance(label)
    worker = details.get("created_by")
    more: dict[str, Any] = {
        "ended": moment(details.get("updated_at") or details.get("created_at")),
        "seconds": number(spent.get("seconds_to_create")),
    }
    if spent.get("skipped"):
        into.answer(task, worker, None, (), at, passed=SKIP, **more)
        return
    made = mapping(label.get("annotations"), "annotations", at)
    found = members(made.get("classifications"), "classifications", at)
    if not found:
        into.answer(task, worker, None, (), at)
    for entry in found:
        entry = mapping(entry, "classification", at)
        question = str(entry.get("value") or entry.get("name"))
        answers = [entry.get("radio_answer"), *listed(entry.get("checklist_answers"))]
        values = [a.get("value") or a.get("name") for a in answers if isinstance(a, dict)]
        if is_gold:
            into.gold.append(Gold(task, question, tuple(map(plain, values)), at))
        elif "text_answer" not in entry:
            into.answer(task, worker, question, values, at, **more)
