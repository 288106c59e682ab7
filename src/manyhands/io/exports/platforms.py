"""Platforms that export tables: MTurk, Appen, Toloka, Zooniverse; GoEmotions, Snow's of 2008.

Structures: the requester site of MTurk; Figure Eight's full report; ``Toloka/docs``
``result-of-eval.md`` and toloka-kit (Apache-2.0); zooniverse ``Data-digging`` (MIT); the header of
``goemotions_1.csv`` (google-research).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.io.exports.label_studio import varying_columns
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import (
    ABSTAIN,
    SKIP,
    Asked,
    Gathered,
    Gold,
    listed,
    moment,
    number,
    plain,
)

Row = dict[str, str]


def _starting(document: Document, prefix: str) -> list[str]:
    return [name for name in document.header if name.startswith(prefix)]


def _or_abstained(labels: list[Any]) -> str | None:
    """An answer without a label is an abstention: the annotator handed it in so."""
    return None if any(plain(label) is not None for label in labels) else ABSTAIN


# -- MTurk ----------------------------------------------------------------------------------------


def is_mturk(document: Document) -> bool:
    """Table with "WorkerId", with "HITId" or "AssignmentId", and with "Answer."."""
    header = set(document.header)
    ids = bool({"HITId", "AssignmentId"} & header)
    return "WorkerId" in header and ids and bool(_starting(document, "Answer."))


def read_mturk(document: Document, into: Gathered, asked: Asked) -> None:
    r"""Read batch results.

    Columns "Answer.<question>.<option>" of true and false are one question. ``asked.items``
    is a pattern such as ``_(\d+)$`` that marks the columns of one item among several in a HIT.
    """
    answers, inputs = _starting(document, "Answer."), _starting(document, "Input.")
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
            labels = _true_options(columns, row) if len(columns) > 1 else [row[columns[0]]]
            labels = [part for label in labels for part in label.split("|")]
            passed = _or_abstained(labels)
            into.answer(task, row["WorkerId"], question, labels, at, passed=passed, **more)


def _booleans(names: list[str], rows: list[Row]) -> dict[str, list[str]]:
    """Columns of every question; several if they are options of true and false."""
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
    """Task and question of one of several items in a HIT, by the number in the column's name."""
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


# -- Appen, Figure Eight, CrowdFlower -------------------------------------------------------------


def is_appen(document: Document) -> bool:
    """Table with "_unit_id" and "_worker_id", or JSON Lines with "results" of "judgments"."""
    return {"_unit_id", "_worker_id"} <= set(document.header)


def is_aggregated_appen(document: Document) -> bool:
    """Table with "_unit_id" but without "_worker_id"."""
    return "_unit_id" in document.header and "_worker_id" not in document.header


def read_aggregated_appen(document: Document, into: Gathered, asked: Asked) -> None:
    """Refuse an aggregated report."""
    raise AnnotationError(
        f"{document.name} is an aggregated report, which names no workers; download the full "
        "report of the same job (f<job>.csv)"
    )


def read_appen(document: Document, into: Gathered, asked: Asked) -> None:
    """Read a full report.

    The columns beginning with "_" that describe the worker (address, city, country) are not read.
    Answers are the columns with a "_gold" column, or those that differ within a unit.
    """
    names = [n for n in document.header if not n.startswith("_")]
    golds = {n for n in names if n.endswith(("_gold", "_gold_reason"))}
    rest = [n for n in names if n not in golds]
    rows = list(document.dicts())
    into.candidates = rest
    questions = [n for n in rest if f"{n}_gold" in golds]
    if asked.question is not None:
        questions = [n for n in rest if n == asked.question]
    elif not questions:
        questions = varying_columns([(row["_unit_id"], row) for _, row in rows], rest)
    for at, row in rows:
        unit = row["_unit_id"]
        started, ended = moment(row.get("_started_at")), moment(row.get("_created_at"))
        into.item(unit, {n: row[n] for n in rest if n not in questions}, document.name)
        for question in questions:
            labels = row[question].split("\n")
            into.answer(
                unit,
                row["_worker_id"],
                question,
                labels,
                at,
                passed=_or_abstained(labels),
                ended=ended,
                seconds=None if started is None or ended is None else ended - started,
                rejected=row.get("_tainted", "").lower() == "true",
            )
            known = [plain(v) for v in row.get(f"{question}_gold", "").split("\n") if v.strip()]
            if known:
                into.gold.append(Gold(unit, question, tuple(known), at))


# -- Toloka ---------------------------------------------------------------------------------------


def is_toloka(document: Document) -> bool:
    """Table with columns that start with "ASSIGNMENT:" or "GOLDEN:"."""
    return bool(_starting(document, "ASSIGNMENT:") or _starting(document, "GOLDEN:"))


def read_toloka(document: Document, into: Gathered, asked: Asked) -> None:
    """Read results, or uploaded tasks with GOLDEN columns, which hold gold only.

    Control tasks are annotations and gold at once: they tell how good an annotator is. Without
    "ASSIGNMENT:task_id", the task is "INPUT:id", or else all inputs together.
    """
    inputs, outputs = _starting(document, "INPUT:"), _starting(document, "OUTPUT:")
    golds = _starting(document, "GOLDEN:")
    has_workers = "ASSIGNMENT:worker_id" in document.header
    for at, row in document.dicts():
        task = row.get("ASSIGNMENT:task_id") or row.get("INPUT:id")
        task = task or " | ".join(row[name] for name in inputs)
        into.item(task, {name: row[name] for name in inputs}, document.name)
        for name in golds:
            if row[name].strip():
                into.gold.append(Gold(task, name.partition(":")[2], (plain(row[name]),), at))
        if not has_workers:
            continue
        status = row.get("ASSIGNMENT:status", "APPROVED")
        started, ended = row.get("ASSIGNMENT:started"), row.get("ASSIGNMENT:submitted")
        begin, end = moment(started), moment(ended)
        worker = row["ASSIGNMENT:worker_id"]
        if status == "SKIPPED":
            into.answer(task, worker, None, (), at, passed=SKIP, ended=begin)
        elif status in ("EXPIRED", "ACTIVE"):
            into.lose(f"the assignment is {status}: nothing was handed in", at)
        else:
            for name in outputs:
                into.answer(
                    task,
                    worker,
                    name.partition(":")[2],
                    [row[name]],
                    at,
                    passed=_or_abstained([row[name]]),
                    ended=end,
                    seconds=None if begin is None or end is None else end - begin,
                    rejected=status == "REJECTED",
                )


# -- Zooniverse -----------------------------------------------------------------------------------


def is_zooniverse(document: Document) -> bool:
    """Table with "classification_id" and "subject_ids"."""
    return {"classification_id", "subject_ids"} <= set(document.header)


def read_zooniverse(document: Document, into: Gathered, asked: Asked) -> None:
    """Read classifications; of several answers to one question by one user, the first is kept.

    Addresses are not read; visitors are "not-logged-in-...".
    """
    into.keep_first = True
    for at, row in document.dicts():
        try:
            made = json.loads(row.get("annotations") or "[]")
            about = json.loads(row.get("metadata") or "{}")
            subjects = json.loads(row.get("subject_data") or "{}")
        except ValueError as error:
            document.broken.append((at, f"a cell is not JSON ({error})"))
            continue
        subject, worker = row["subject_ids"], row.get("user_name")
        data = subjects.get(subject, {}) if isinstance(subjects, dict) else {}
        into.item(subject, data if isinstance(data, dict) else {}, document.name)
        begin, end = (moment(about.get(f"{k}_at")) for k in ("started", "finished"))
        seconds = None if begin is None or end is None else end - begin
        for entry in listed(made):
            question = str(entry.get("task"))
            labels = list(_zooniverse_labels(entry.get("value")))
            if row.get("gold_standard", "").lower() == "true":
                into.gold.append(Gold(subject, question, tuple(map(plain, labels)), at))
                continue
            passed = _or_abstained(labels)
            into.answer(
                subject, worker, question, labels, at, passed=passed, ended=end, seconds=seconds
            )


def _zooniverse_labels(value: Any) -> Iterator[Any]:
    """Answers of a question, or the choices of a survey; drawings classify nothing."""
    for part in listed(value):
        if not isinstance(part, dict):
            yield part
        elif "choice" in part:
            yield part["choice"]
        elif "tool" not in part:
            yield part.get("value")


# -- GoEmotions -----------------------------------------------------------------------------------


def is_goemotions(document: Document) -> bool:
    """Table with "rater_id" and "example_very_unclear"."""
    return {"id", "rater_id", "example_very_unclear"} <= set(document.header)


def read_goemotions(document: Document, into: Gathered, asked: Asked) -> None:
    """Read the raw files of GoEmotions: a row per rater and comment, a column of 0 and 1 per label.

    A comment that was "very unclear" is an abstention. Authors of comments are not read.
    """
    emotions = document.header[document.header.index("example_very_unclear") + 1 :]
    for at, row in document.dicts():
        into.item(row["id"], {"text": row.get("text")}, document.name)
        labels = [name for name in emotions if row[name] in ("1", "1.0", "True")]
        unclear = row["example_very_unclear"].lower() in ("true", "1")
        passed = ABSTAIN if unclear and not labels else None
        into.answer(row["id"], row["rater_id"], "emotion", labels, at, passed=passed)


# -- Snow 2008 ------------------------------------------------------------------------------------


def is_snow(document: Document) -> bool:
    """Table with "!amt_worker_ids"."""
    return "!amt_worker_ids" in document.header


def read_snow(document: Document, into: Gathered, asked: Asked) -> None:
    """Read the files of Snow et al. (2008): tab-separated, whatever their name ends in."""
    for at, row in document.dicts():
        task = row.get("orig_id")
        labels = [row.get("response")]
        worker = row["!amt_worker_ids"]
        begin, end = moment(row.get("start")), moment(row.get("end"))
        seconds = None if begin is None or end is None else end - begin
        into.answer(task, worker, "response", labels, at, ended=end, seconds=seconds)
        if plain(row.get("gold")) is not None:
            into.gold.append(Gold(task, "response", (plain(row["gold"]),), at))
