"""GoEmotions: the raw files, whose header is that of ``goemotions_1.csv`` (google-research)."""

from __future__ import annotations

from manyhands.io.exports.contract import TABLE, Format, Signature
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import ABSTAIN, Asked, Gathered


def read_goemotions(document: Document, into: Gathered, asked: Asked) -> None:
    """Read GoEmotions' raw files: a row per rater and comment, a column of 0 and 1 per label.

    The answer "very unclear" is read as an abstention. Authors of comments are not read.
    """
    emotions = document.header[document.header.index("example_very_unclear") + 1 :]
    for at, row in document.dicts():
        into.item(row["id"], {"text": row.get("text")}, document.name)
        labels = [name for name in emotions if row[name] in ("1", "1.0", "True")]
        unclear = row["example_very_unclear"].lower() in ("true", "1")
        passed = ABSTAIN if unclear and not labels else None
        into.answer(row["id"], row["rater_id"], "emotion", labels, at, passed=passed, is_list=True)


FORMAT = Format(
    "goemotions",
    "GoEmotions, raw",
    TABLE,
    Signature(has=("id", "rater_id", "example_very_unclear")),
    read_goemotions,
)
