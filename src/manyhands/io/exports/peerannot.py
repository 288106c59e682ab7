"""peerannot (BSD-3): an object of tasks, or of workers."""

from __future__ import annotations

import json

from manyhands.io.exports.contract import JSON, Format
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered


def is_peerannot(document: Document) -> bool:
    """Recognise peerannot: a JSON object of objects of integers."""
    inner = document.whole.values()
    return any(inner) and all(
        isinstance(votes, dict) and all(type(v) is int for v in votes.values()) for votes in inner
    )


def read_peerannot(document: Document, into: Gathered, asked: Asked) -> None:
    """Read {task: {worker: class}}; ``metadata.json`` beside it tells if it is the other way."""
    inverted = _is_inverted(document)
    if inverted:
        into.note(f"{document.name}: its metadata say that it maps workers to tasks")
    for outer, votes in document.whole.items():
        if not votes:
            into.lose("nobody annotated the task", f"item {outer!r}")
        for inner, label in votes.items():
            task, worker = (inner, outer) if inverted else (outer, inner)
            into.answer(task, worker, "label", (label,), f"item {outer!r}, {inner!r}")


def _is_inverted(document: Document) -> bool:
    path = None if document.beside is None else document.beside / "metadata.json"
    if path is None or not path.is_file():
        return False
    try:
        n_tasks = json.loads(path.read_text(encoding="utf-8-sig")).get("n_tasks")
    except (ValueError, OSError, AttributeError):
        return False
    inner = {name for votes in document.whole.values() for name in votes}
    return type(n_tasks) is int and len(document.whole) != n_tasks == len(inner)


FORMAT = Format(
    "peerannot",
    "peerannot",
    JSON,
    is_peerannot,
    read_peerannot,
    is_layout=True,
    keyed=True,
)
