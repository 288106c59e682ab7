"""The files of Snow et al. (2008)."""

from __future__ import annotations

from manyhands.io.exports.contract import TABLE, Format, Signature
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered, Gold, moment, plain


def read_snow(document: Document, into: Gathered, asked: Asked) -> None:
    """Read the files of Snow et al. (2008): tab-separated, whatever their name ends in."""
    for at, row in document.dicts():
        task = row.get("orig_id")
        labels = [row.get("response")]
        worker = row["!amt_worker_ids"]
        begin, end = moment(row.get("start")), moment(row.get("end"))
        seconds = None if begin is None or end is None else end - begin
        into.answer(task, worker, "response", labels, at, ended=end, seconds=seconds)
        if plain(row.get("gold")) is not None:
            into.gold.append(Gold(task, "response", (plain(row["gold"]),), at))


FORMAT = Format("snow", "Snow et al. 2008", TABLE, Signature(has=("!amt_worker_ids",)), read_snow)
