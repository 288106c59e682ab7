"""Amazon Mechanical Turk: batch results of the requester site."""

from __future__ import annotations

import re
from typing import Any

from manyhands.io.exports.contract import TABLE, Format, Signature
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered, moment, number, or_abstained

Row = dict[str, str]


def read_mturk(document: Document, into: Gathered, asked: Asked) -> None:
    r"""Read batch results.

    Columns "Answer.<question>.<option>" of true and false are one question. If a HIT holds several
    items, ``asked.items`` is a pattern such as ``_(\d+)$`` for the number of the item in the names
    of its columns.
    """
    answers, inputs = document.starting("Answer."), document.starting("Input.")
    rows = list(document.dicts())
    questions = _booleans(answers, [row for _, row in rows])
    for at, row in rows:
        hit = row.get("HITId") or row.get("AssignmentId")
        more: dict[str, Any] = {
            "ended": moment(row.get("SubmitTime")),
            "seconds": number(row.get("WorkTimeInSeconds")),
            "rejected": row.get("AssignmentStatus") == "Rejected",
        }
        if asked.items is None:
            into.item(hit, {name: row[name] for name in inputs}, document.name)
        for name, columns in questions.items():
            task, question = hit, name
            if asked.items is not None:
                task, question = _part(hit, name, inputs, row, asked.items, document, into)
            is_list = len(columns) > 1
            labels = _true_options(columns, row) if is_list else row[columns[0]].split("|")
            passed = or_abstained(labels)
            into.answer(
                task, row["WorkerId"], question, labels, at, passed=passed, is_list=is_list, **more
            )


def _booleans(names: list[str], rows: list[Row]) -> dict[str, list[str]]:
    """Return the columns of every question; several if they are options of true and false."""
    found: dict[str, list[str]] = {}
    for name in names:
        parts = name.split(".")
        switches = {row[name].lower() for row in rows} <= {"true", "false", ""}
        question = ".".join(parts[1:-1] if len(parts) > 2 and switches else parts[1:])
        found.setdefault(question, []).append(name)
    return found


def _true_options(columns: list[str], row: Row) -> list[str]:
    return [name.rsplit(".", 1)[1] for name in columns if row[name].lower() == "true"]


def _part(
    hit: Any,
    question: str,
    inputs: list[str],
    row: Row,
    pattern: str,
    document: Document,
    into: Gathered,
) -> tuple[str, str]:
    """Return task and question of one of a HIT's items, by the number in the column's name."""
    found = re.search(pattern, question)
    if found is None:
        return str(hit), question
    number_ = found[1] if found.groups() else found[0]
    task = f"{hit}/{number_}"
    data = {}
    for name in inputs:
        match = re.search(pattern, name)
        if match is None:
            data[name] = row[name]
        elif (match[1] if match.groups() else match[0]) == number_:
            data[re.sub(pattern, "", name)] = row[name]
    into.item(task, data, document.name)
    return task, re.sub(pattern, "", question)


FORMAT = Format(
    "mturk",
    "MTurk, batch results",
    TABLE,
    Signature(has=("WorkerId",), one_of=("HITId", "AssignmentId"), starting=("Answer.",)),
    read_mturk,
)
