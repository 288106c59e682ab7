"""brat: standoff files beside texts (brat.nlplab.org/standoff.html)."""

from __future__ import annotations

from typing import Any

from manyhands.io.exports.contract import JSON, Format
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered, number


def is_brat(document: Document) -> bool:
    """Recognise brat's standoff: lines such as "T1", a type with two offsets, and a text."""
    return document.root == "brat"


def read_brat(document: Document, into: Gathered, asked: Asked) -> None:
    """Read attributes and notes of a span that covers the whole text; the folder is the annotator.

    brat has no labels of documents, so teams write them in this way. Everything else marks parts of
    a text and is left out.
    """
    path = None if document.beside is None else document.beside / f"{document.stem}.txt"
    if path is None or not path.is_file():
        into.lose(
            f"the text {document.stem}.txt is not beside it, so it is unknown which spans cover "
            "the whole text",
            document.name,
        )
        return
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    worker = document.path.parent.name or None
    whole, found = set(), dict[str, list[Any]]()
    for _, cells in document.records:
        parts = cells[1].split(" ") if len(cells) > 1 else []
        if cells[0].startswith("T") and len(parts) > 2:
            if parts[1] == "0" and number(parts[-1]) is not None:
                whole |= {cells[0]} if float(parts[-1]) >= len(text.rstrip()) else set()
        elif cells[0][:1] in ("A", "M") and len(parts) > 1 and parts[1] in whole:
            found.setdefault(parts[0], []).append(" ".join(parts[2:]) or True)
        elif cells[0].startswith("#") and len(cells) > 2 and len(parts) > 1 and parts[1] in whole:
            found.setdefault("note", []).append(cells[2])
    into.item(document.stem, {"text": text}, worker or document.name)
    if not found:
        into.lose("only parts of the text are marked; it has no label as a whole", document.name)
    for question, labels in found.items():
        into.answer(document.stem, worker, question, labels, document.name)


FORMAT = Format("brat", "brat, standoff", JSON, is_brat, read_brat)
