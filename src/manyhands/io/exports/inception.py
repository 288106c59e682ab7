"""INCEpTION: its documents (UIMA CAS JSON 0.4 or XMI) are recognised, and refused."""

from __future__ import annotations

from manyhands.exceptions import AnnotationError
from manyhands.io.exports.contract import JSON, Format
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered

INCEPTION = (
    "documents of INCEpTION (UIMA CAS) are not read; load each annotator's file with dkpro-cassis, "
    "and write a table with the columns task, worker and label (see docs/formats.md)"
)


def is_inception(document: Document) -> bool:
    """Recognise INCEpTION: UIMA CAS as JSON ("%FEATURE_STRUCTURES") or XMI."""
    return document.root == "XMI" or "%FEATURE_STRUCTURES" in document.whole


def read_inception(document: Document, into: Gathered, asked: Asked) -> None:
    """Refuse a document of INCEpTION, whose types are the project's own."""
    raise AnnotationError(f"{document.name}: {INCEPTION}")


FORMAT = Format("inception", "INCEpTION, UIMA CAS", JSON, is_inception, read_inception)
