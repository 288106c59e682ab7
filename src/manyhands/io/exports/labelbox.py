"""Labelbox: NDJSON of the export v2.

Structure: docs.labelbox.com/reference/export-quick-reference.
"""

from __future__ import annotations

from typing import Any

from manyhands.io.exports.contract import JSON, Format, Signature
from manyhands.io.exports.parsing import Document, each
from manyhands.io.exports.records import (
    SKIP,
    Asked,
    Gathered,
    Gold,
    listed,
    mapping,
    members,
    moment,
    number,
    plain,
)


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
            into.answer(task, worker, question, values, at, is_list=True, **more)


FORMAT = Format(
    "labelbox", "Labelbox, NDJSON", JSON, Signature(has=("projects", "data_row")), read_labelbox
)
