"""Prodigy: the lines of ``db-out``, and tasks of the choice interface.

Structures: prodi.gy/docs/api-interfaces.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from manyhands.annotations import LabelSetTable
from manyhands.io.exports.contract import JSON, Answers, Format, Inferred, Signature, Writer
from manyhands.io.exports.parsing import Document, each
from manyhands.io.exports.records import (
    ABSTAIN,
    SKIP,
    Asked,
    Gathered,
    Gold,
    listed,
    members,
    moment,
    plain,
)
from manyhands.io.exports.written import Given, ItemFields, Record, facts, score_of

_STAMP = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d$")


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
                into.answer(task, worker, "choice", chosen, at, is_list=True, **more)
        elif "label" in record and answer in ("accept", "reject"):
            question = str(record["label"])
            into.classes.setdefault(question, [0, 1])
            into.answer(task, worker, question, (int(answer == "accept"),), at, **more)
        elif isinstance(record.get("cats"), dict):
            chosen = [name for name, value in record["cats"].items() if value == 1]
            into.answer(task, worker, "cats", chosen, at, is_list=True, **more)
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
    """Return names of annotators without the name of the data set before them."""
    ids = {
        str(r.get("_annotator_id") or r.get("_session_id") or "")
        for _, r in document.records
        if isinstance(r, dict)
    }
    if "" in ids:
        into.note(
            f"{document.name}: some records name no annotator, as in older exports; they are read "
            f"as the work of one annotator, {document.stem!r}"
        )
    named = sorted(ids - {""})
    stamped = [name for name in named if _STAMP.search(name)]
    if stamped:
        into.note(
            f"{document.name}: {len(stamped)} annotators are named after the time of a session "
            f"({stamped[0]!r}), because the sessions had no name, so one person may count as "
            "several"
        )
    stems = [_STAMP.sub("", name).rsplit("-", 1) for name in named]
    prefixes = {stem[0] for stem in stems if len(stem) == 2 and stem[0]}
    cut = len(prefixes.pop()) + 1 if len(prefixes) == 1 else 0
    return {"": document.stem} | {name: name[cut:] or name for name in named}


def prodigy_task(found: Inferred, i: int, items: ItemFields, method: str) -> Record:
    """Make a task in which the label is chosen already."""
    task, label = found.tasks[i].item(), found.labels[i]
    record = _prodigy_item(task, items, found.classes)
    record["meta"] |= {**score_of(found, i), "by": method} | facts(found, i)
    if _is_yes_or_no(items):
        return record if label is None else record | {"answer": "accept" if label else "reject"}
    return record if label is None else record | {"accept": items.labels(label)}


def prodigy_annotations(
    table: Answers, given: list[list[Given]], items: ItemFields
) -> Iterator[Record]:
    """Make one record per annotation: "reject" abstains, and "ignore" skips."""
    answers = {None: "accept", "abstain": "reject", "skip": "ignore"}
    classes = table.options if isinstance(table, LabelSetTable) else table.classes
    for made in given:
        for a in made:
            record = _prodigy_item(a.task, items, classes)
            record |= {"_annotator_id": str(a.worker), "_session_id": str(a.worker)}
            if a.ended is not None:
                record["_timestamp"] = int(a.ended)
            if not _is_yes_or_no(items):
                chosen = [] if a.passed else items.labels(a.label)
                yield record | {"accept": chosen, "answer": answers[a.passed]}
            elif a.passed:
                yield record | {"answer": "ignore"}
            else:
                yield record | {"answer": "accept" if a.label else "reject"}


def _is_yes_or_no(items: ItemFields) -> bool:
    """Return whether a Prodigy export asks whether one label applies."""
    return items.native and items.question not in ("choice", "cats")


def _prodigy_item(task: Any, items: ItemFields, classes: Any) -> Record:
    """Return a task of the choice interface, whose hash is the id or is made of it."""
    data = items.of(task)
    about = data.get("meta")
    about = dict(about) if isinstance(about, dict) else {}
    record: Record = dict(data) or {"text": str(task)}
    if not items.native:
        about["task"] = task
    if _is_yes_or_no(items):
        record["label"] = items.question
    else:
        names = dict.fromkeys(part for name in classes.tolist() for part in items.labels(name))
        record["options"] = [{"id": name, "text": name} for name in names]
    return record | {"_input_hash": _hash(task), "_view_id": "choice", "meta": about}


def _hash(task: Any) -> int:
    """Return a number as its own hash, else one of 52 bits, which a browser keeps exactly."""
    if isinstance(task, int):
        return task
    digest = hashlib.blake2b(str(task).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 12


FORMAT = Format(
    "prodigy",
    "Prodigy, db-out",
    JSON,
    Signature(one_of=("_input_hash", "_task_hash")),
    read_prodigy,
)

WRITER = Writer(
    "prodigy",
    "Prodigy",
    ".jsonl",
    prodigy_task,
    prodigy_annotations,
    least_certain_first=True,
)
