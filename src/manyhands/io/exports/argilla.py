"""Argilla 2: records with responses, as nested and as flat objects, and with suggestions.

Structures: argilla 2 ``records/_io`` and ``Record.from_dict`` (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from manyhands.io.exports.contract import JSON, Answers, Format, Inferred, Writer
from manyhands.io.exports.parsing import Document, each
from manyhands.io.exports.records import (
    ABSTAIN,
    Asked,
    Gathered,
    Malformed,
    listed,
    mapping,
    members,
)
from manyhands.io.exports.written import Given, ItemFields, Record, as_scalar, facts, score_of

NO_STATUS = (
    "this form of the export does not hold the status of responses, so drafts and discarded "
    "responses count as answers. To tell them apart, export records.to_list(flatten=True)"
)


def is_argilla(document: Document) -> bool:
    """Recognise Argilla: "responses" and "_server_id", or a key ".responses.users"."""
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
        into.answer(
            task, user, question, _argilla_labels(value), at, is_list=isinstance(value, list)
        )
    else:
        into.lose("the response is a draft", at)


def _argilla_labels(value: Any) -> list[Any]:
    """Return the labels of a response; of a ranking, its first place."""
    values = list(listed(value))
    if values and all(isinstance(v, dict) and "rank" in v for v in values):
        best = min(v["rank"] for v in values)
        return [v.get("value") for v in values if v["rank"] == best]
    return values


def argilla_suggestion(found: Inferred, i: int, items: ItemFields, method: str) -> Record:
    """Make a record with a suggestion, or without one if the label was left open."""
    task, label = found.tasks[i].item(), found.labels[i]
    record = _argilla_record(task, items)
    record["metadata"] |= {k: v for k, v in facts(found, i).items() if v is not None}
    if label is not None:
        value = _argilla_value(label, items)
        made = {"value": value, **score_of(found, i), "agent": method}
        record["suggestions"][items.question] = made
    return record


def argilla_responses(
    table: Answers, given: list[list[Given]], items: ItemFields
) -> Iterator[Record]:
    """Make records with everybody's responses; passes become discarded responses."""
    for task, made in zip(table.instances.tolist(), given, strict=True):
        record = _argilla_record(task, items)
        record["responses"][items.question] = [
            {
                "value": None if a.passed else _argilla_value(a.label, items),
                "user_id": str(a.worker),
                "status": "discarded" if a.passed else "submitted",
            }
            for a in made
        ]
        yield record


def _argilla_value(label: Any, items: ItemFields) -> Any:
    return items.labels(label) if items.origin.joined or isinstance(label, list) else label


def _argilla_record(task: Any, items: ItemFields) -> Record:
    if items.native:
        fields, kept = items.part(task, "fields."), items.part(task, "metadata.")
        # The flattened form does not tell fields from metadata.
        fields = fields or {name: v for name, v in items.of(task).items() if isinstance(v, str)}
    else:
        fields, kept = {k: str(as_scalar(v)) for k, v in items.fields(task).items()}, {}
    return {
        "id": str(task),
        "fields": fields,
        "metadata": kept,
        "suggestions": {},
        "responses": {},
        "vectors": {},
        "_server_id": None,
    }


FORMAT = Format("argilla", "Argilla 2", JSON, is_argilla, read_argilla)

WRITER = Writer(
    "argilla",
    "Argilla",
    ".json",
    argilla_suggestion,
    argilla_responses,
    passes=("abstain",),
)
