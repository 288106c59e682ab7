"""What is written of a desk: its answers, its corrections, and the sheet of a review."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from manyhands.explore.class_answers import ClassAnswers
from manyhands.explore.desk import Desk
from manyhands.io.corrections import FIELDS
from manyhands.io.exports.formats import WRITERS
from manyhands.io.shown import Shown, shown_of, with_shown
from manyhands.planning import review_queue

EXPORTS: Final = {"labels.csv": "table"} | {tool.file: tool.name for tool in WRITERS.values()}
"""Files of answers, and their formats."""


def write_reviewed(desk: Desk, path: Path, to: str, *, only: bool, **options: Any) -> Path:
    """Write the answers as they stand in a format of `manyhands.io.write_labels`.

    Parameters
    ----------
    desk : Desk
    path : Path
    to : str
    only : bool
        Whether to leave out what nobody decided.
    **options
        As in `manyhands.io.write_labels`.

    Returns
    -------
    Path

    Raises
    ------
    AnnotationError
        If the name of the file does not fit the format.
    WriteError
        If it cannot be written.
    """
    desk.settle()
    with desk.steady():
        found = desk.answers.reviewed()
        found = found.take(desk.answers.known) if only else found
    options |= {"export": desk.contents.export, "shown": shown_on(desk)}
    return desk.answers.write(path, found, to=to, **options)


def corrections(desk: Desk) -> dict[str, list[Any]]:
    """Columns of the corrections that stand."""
    records = desk.standing.decisions()
    columns = {name: [getattr(record, name) for record in records] for name in (*FIELDS, "chosen")}
    for name in ("label", "was"):
        columns[name] = [desk.answers.cell(value) for value in columns[name]]
    return columns


def review_sheet(desk: Desk) -> dict[str, list[Any]]:
    """Columns of ``review.csv``: what somebody decided, then what is open, most doubtful first.

    They are those of `manyhands.planning.ReviewQueue.to_sheet`, with the content of the items.
    """
    answers = desk.answers
    assert isinstance(answers, ClassAnswers)
    desk.settle()
    certainty = answers.figures.certainty
    sheet = review_queue(answers.posterior, answers.table, certainty=certainty).to_sheet()
    rows = [dict(zip(sheet, row, strict=True)) for row in zip(*sheet.values(), strict=True)]
    for row in rows:
        place = desk.row_of[row["task"]]
        if answers.known[place]:
            drawn = answers.random is not None and bool(answers.random[place])
            row |= {"reviewed": "yes", "chosen": "random" if drawn else row["chosen"]}
        decided = desk.standing.of(row["task"])
        if decided is not None and decided.known:
            row |= {"label": decided.label, "was": decided.was, "reviewed": decided.by or "yes"}
            row["chosen"] = decided.chosen or ""
            if decided.certainty is not None:
                row["probability_wrong"] = 1.0 - decided.certainty
    rows.sort(key=lambda row: not row["reviewed"])
    columns = {name: [row[name] for row in rows] for name in sheet}
    return with_shown(columns, shown_on(desk))


def shown_on(desk: Desk) -> Shown | None:
    """Texts or images of the items, from where the page has them."""
    contents, tasks = desk.contents, desk.table.instances
    if contents.texts:
        return Shown.of("text", tasks[[*contents.texts]].tolist(), contents.texts.values())
    if contents.images:
        names = (path.name for path in contents.images.values())
        return Shown.of("image", tasks[[*contents.images]].tolist(), names)
    return shown_of(contents.export)


def tables_of(desk: Desk) -> dict[str, Callable[[Desk], dict[str, list[Any]]]]:
    """Return the files that are tables of another kind than answers."""
    if desk.answers.is_set:
        return {"corrections.csv": corrections}
    return {"corrections.csv": corrections, "review.csv": review_sheet}
