"""LeWiDi: the data sets of SemEval's tasks on learning with disagreements, 2023 and 2025."""

from __future__ import annotations

from typing import Any

from manyhands.io.exports.contract import JSON, Format
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered, Malformed, mapping


def is_lewidi(document: Document) -> bool:
    """Recognise LeWiDi: a JSON object of objects with "annotators" and "annotations"."""
    return bool(document.whole) and all(
        isinstance(item, dict) and {"annotators", "annotations"} <= item.keys()
        for item in document.whole.values()
    )


def read_lewidi(document: Document, into: Gathered, asked: Asked) -> None:
    """Read a set of 2023 (two lists joined by commas) or of 2025 (an object per annotator)."""
    for task, item in document.whole.items():
        at = f"item {task!r}"
        named = str(item.get("annotation task") or "annotation")
        into.item(task, {"text": item.get("text"), "split": item.get("split")}, document.name)
        try:
            for worker, label in _lewidi_pairs(item["annotators"], item["annotations"], at):
                into.answer(task, worker, named, label.split(","), at)
            more = mapping(item.get("other_info"), "other_info", at).get("other annotations")
            for question, labels in mapping(more, "other annotations", at).items():
                for worker, label in _lewidi_pairs(item["annotators"], labels, at):
                    into.answer(task, worker, question, label.split(","), at)
        except Malformed as error:
            document.broken.append((error.at, error.reason))
    if len({a.question for a in into.answers}) > 1:
        # The set's own task, which its name says, is the default; other annotations accompany it.
        own = next(str(i.get("annotation task")) for i in document.whole.values())
        into.default_question = own


def _lewidi_pairs(workers: Any, labels: Any, at: str) -> list[tuple[str, str]]:
    if isinstance(labels, dict):
        return [(worker, str(label)) for worker, label in labels.items()]
    names, values = str(workers).split(","), str(labels).split(",")
    if len(names) != len(values):
        raise Malformed(f"{len(names)} annotators for {len(values)} annotations", at)
    return list(zip(names, values, strict=True))


FORMAT = Format("lewidi", "LeWiDi", JSON, is_lewidi, read_lewidi, keyed=True)
