"""Appen, Figure Eight, CrowdFlower: the full report; the aggregated one is refused."""

from __future__ import annotations

from manyhands.exceptions import AnnotationError
from manyhands.io.exports.contract import TABLE, Format, Signature
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import (
    Asked,
    Gathered,
    Gold,
    moment,
    or_abstained,
    plain,
    varying_columns,
)


def read_aggregated_appen(document: Document, into: Gathered, asked: Asked) -> None:
    """Refuse an aggregated report."""
    raise AnnotationError(
        f"{document.name} is an aggregated report, which does not name the workers; download the "
        "full report of the same job (f<job>.csv)"
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
                passed=or_abstained(labels),
                ended=ended,
                seconds=None if started is None or ended is None else ended - started,
                rejected=row.get("_tainted", "").lower() == "true",
            )
            known = [plain(v) for v in row.get(f"{question}_gold", "").split("\n") if v.strip()]
            if known:
                into.gold.append(Gold(unit, question, tuple(known), at))


FORMAT = Format(
    "appen", "Appen, full report", TABLE, Signature(has=("_unit_id", "_worker_id")), read_appen
)

AGGREGATED_FORMAT = Format(
    "appen-aggregated",
    "Appen, aggregated report",
    TABLE,
    Signature(has=("_unit_id",), lacks=("_worker_id",)),
    read_aggregated_appen,
)
