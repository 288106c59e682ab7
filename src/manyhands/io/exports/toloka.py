"""Toloka: assignments, and tasks with known answers.

Structures: ``Toloka/docs`` ``result-of-eval.md`` and toloka-kit (Apache-2.0).
"""

from __future__ import annotations

from manyhands.io.exports.contract import TABLE, Format, Signature
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import SKIP, Asked, Gathered, Gold, moment, or_abstained, plain


def read_toloka(document: Document, into: Gathered, asked: Asked) -> None:
    """Read results, or uploaded tasks with GOLDEN columns, which hold gold only.

    Control tasks are both annotations and gold, so they show how good an annotator is. Without
    "ASSIGNMENT:task_id", the task is "INPUT:id", or else all inputs together.
    """
    inputs, outputs = document.starting("INPUT:"), document.starting("OUTPUT:")
    golds = document.starting("GOLDEN:")
    has_workers = "ASSIGNMENT:worker_id" in document.header
    for at, row in document.dicts():
        task = row.get("ASSIGNMENT:task_id") or row.get("INPUT:id")
        task = task or " | ".join(row[name] for name in inputs)
        into.item(task, {name: row[name] for name in inputs}, document.name)
        for name in golds:
            if row[name].strip():
                into.gold.append(Gold(task, name.partition(":")[2], (plain(row[name]),), at))
        if not has_workers:
            continue
        status = row.get("ASSIGNMENT:status", "APPROVED")
        started, ended = row.get("ASSIGNMENT:started"), row.get("ASSIGNMENT:submitted")
        begin, end = moment(started), moment(ended)
        worker = row["ASSIGNMENT:worker_id"]
        if status == "SKIPPED":
            into.answer(task, worker, None, (), at, passed=SKIP, ended=begin)
        elif status in ("EXPIRED", "ACTIVE"):
            into.lose(f"the assignment is {status}, so nothing was submitted", at)
        else:
            for name in outputs:
                into.answer(
                    task,
                    worker,
                    name.partition(":")[2],
                    [row[name]],
                    at,
                    passed=or_abstained([row[name]]),
                    ended=end,
                    seconds=None if begin is None or end is None else end - begin,
                    rejected=status == "REJECTED",
                )


FORMAT = Format(
    "toloka", "Toloka", TABLE, Signature(starting=("ASSIGNMENT:", "GOLDEN:")), read_toloka
)
