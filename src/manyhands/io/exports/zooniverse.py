"""Zooniverse: classifications, a CSV with JSON in its cells.

Structure: zooniverse ``Data-digging`` (MIT).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from manyhands.io.exports.contract import TABLE, Format, Signature
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered, Gold, listed, moment, or_abstained, plain


def read_zooniverse(document: Document, into: Gathered, asked: Asked) -> None:
    """Read classifications; of several answers to one question by one user, the first is kept.

    Addresses are not read; visitors are "not-logged-in-...".
    """
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
            passed = or_abstained(labels)
            into.answer(
                subject,
                worker,
                question,
                labels,
                at,
                passed=passed,
                ended=end,
                seconds=seconds,
                is_list=isinstance(entry.get("value"), list),
            )


def _zooniverse_labels(value: Any) -> Iterator[Any]:
    """Yield the answers to a question or the choices of a survey; drawings are left out."""
    for part in listed(value):
        if not isinstance(part, dict):
            yield part
        elif "choice" in part:
            yield part["choice"]
        elif "tool" not in part:
            yield part.get("value")


FORMAT = Format(
    "zooniverse",
    "Zooniverse, classifications",
    TABLE,
    Signature(has=("classification_id", "subject_ids")),
    read_zooniverse,
    keeps_first=True,
)
