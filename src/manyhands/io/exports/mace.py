"""MACE (Hovy et al. 2013): a matrix without a header."""

from __future__ import annotations

from manyhands.io.exports.contract import TABLE, Format
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered

FEW = 20
"""Largest number of different values in a table of class values."""


def is_mace(document: Document) -> bool:
    """Recognise MACE: a table without a header whose cells are a few classes, or empty."""
    header = [name for name in document.header if name]
    if len(document.header) < 2 or len(header) == len(set(header)) == len(document.header):
        return False
    values = {cell for _, row in document.rows for cell in row}
    return set(header) <= values and len(values) <= FEW + 1


def read_mace(document: Document, into: Gathered, asked: Asked) -> None:
    """Read a matrix: rows are items, columns annotators, both by number from 0."""
    for task, (at, row) in enumerate(document.without_header(), start=document.earlier):
        if len(row) == len(document.header):
            for worker, cell in enumerate(row):
                if cell.strip():
                    into.answer(task, worker, "label", [cell], f"{at}, column {worker + 1}")


FORMAT = Format(
    "mace",
    "MACE, without a header",
    TABLE,
    is_mace,
    read_mace,
    is_layout=True,
    headless=True,
)
