"""Get-Another-Label (Apache-2.0): three columns without a header."""

from __future__ import annotations

import re

from manyhands.annotations.ids import is_id_name
from manyhands.io.exports.contract import TABLE, Format
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered


def is_triples(document: Document) -> bool:
    """Recognise triples: worker, item and label, separated by tabs, without a header."""
    if len(document.header) != 3 or document.separator != "\t":
        return False
    return not any(is_word(name) for name in document.header)


def is_word(name: str) -> bool:
    """Return whether a cell of a first row names a column."""
    known = r"(task|item|question|worker|annotator|user|rater|label|answer|response|gold)"
    return bool(re.search(known + r"(_?id)?s?$", name.lower())) or is_id_name(name)


def read_triples(document: Document, into: Gathered, asked: Asked) -> None:
    """Read a file of Get-Another-Label: worker, item, label."""
    for at, row in document.without_header():
        if len(row) == 3:
            into.answer(row[1], row[0], "label", [row[2]], at)


FORMAT = Format(
    "get-another-label",
    "Get-Another-Label, without a header",
    TABLE,
    is_triples,
    read_triples,
    is_layout=True,
    headless=True,
)
