"""Potato: an annotator's ``user_state.json``."""

from __future__ import annotations

from typing import Any

from manyhands.io.exports.contract import JSON, Format
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered, listed, plain


def is_potato(document: Document) -> bool:
    """Recognise Potato: a JSON object with "instance_id_to_label_to_value"."""
    return "instance_id_to_label_to_value" in document.whole


def read_potato(document: Document, into: Gathered, asked: Asked) -> None:
    """Read one annotator's ``user_state.json``; a schema is a question."""
    whole = document.whole
    worker = whole.get("user_id") or document.path.parent.name
    made = whole["instance_id_to_label_to_value"]
    if not isinstance(made, dict):
        document.broken.append(("the answers", "they are not an object"))
        return
    for task, pairs in made.items():
        found: dict[str, list[Any]] = {}
        for pair in listed(pairs):
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], dict):
                given, value = pair
                chosen = given.get("name") if plain(value) in ("true", given.get("name")) else value
                if plain(value) != "false":
                    found.setdefault(str(given.get("schema")), []).append(chosen)
            else:
                document.broken.append((f"instance {task!r}", "an answer is not a pair"))
        for question, labels in found.items():
            into.answer(task, worker, question, labels, f"instance {task!r}")


FORMAT = Format("potato", "Potato, user_state.json", JSON, is_potato, read_potato)
