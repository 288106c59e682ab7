"""Known labels from a file in which several people labelled each item.

People have a column each, or a row for each answer. What counts as known depends on the scale: the
mean of numbers, the median of grades, and of classes the one that most people gave.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.wide import gold_column
from manyhands.decision import decide
from manyhands.exceptions import AnnotationError, silenced, warn_caller
from manyhands.io.annotations import TABLES, read_with_account
from manyhands.io.columns import Frame, find_name
from manyhands.io.frames import read_frame
from manyhands.io.gold import CHOSEN_COLUMN, REVIEWED, GoldFile, how_chosen
from manyhands.io.people import options_of_people
from manyhands.io.sheets import stated_of
from manyhands.typing import AnyArray, IntArray
from manyhands.wording import listed

_LOG = logging.getLogger("manyhands")


def read_gold_of_people(
    path: Path, options: Mapping[str, Any], like: Any = None
) -> GoldFile | None:
    """Return one known label per item of a file that several people labelled.

    Parameters
    ----------
    path : Path
    options : dict
        Those of the annotations.
    like : AnnotationTable or store, optional
        The annotations, on whose scale the labels are read; else the labels show the scale.

    Returns
    -------
    GoldFile or None
        Items are left out, with a warning, where no class has more votes than any other. None if
        it is a table of one label per item, or no table.

    Raises
    ------
    AnnotationError
        If the file has a row for each answer, and cannot be read.
    """
    if not path.is_file() or path.suffix.lower() not in TABLES:
        return None
    try:
        header, own = options_of_people(path, options)
        frame = read_frame(path, stated_of(dict(own)))
    except AnnotationError:
        return None  # The reader of known labels says what is wrong.
    names = {str(name).strip().lower() for name in header}
    is_wide = own.get("format") == "wide"
    if REVIEWED in names or (is_wide and names & {*NAMES, str(options["label"]).lower()}):
        return None
    task = own.get("task", "task")
    task = find_name(header, "task", task) if isinstance(task, str) else None
    if not is_wide and not _is_of_several(frame, task):
        return None
    if like is not None:
        own |= {"scale": like.scale}
        own |= {"classes": like.classes.tolist()} if like.scale == "ordinal" else {}
    try:
        with silenced("manyhands"):
            table = read_with_account(path, **own)[0]
    except AnnotationError:
        if is_wide:
            return None
        raise
    rows, labels = _known_labels(table, path.name)
    people = set(map(str, table.annotators.tolist()))
    others = [name for name in header if name not in people | {task, CHOSEN_COLUMN}]
    if is_wide and others:
        _LOG.info("%s: not read as answers of a person: %s", path.name, ", ".join(others))
    chosen = how_chosen(frame)
    if chosen is not None and task is not None:
        # Of an item's rows, "random" is the last in the order of the alphabet.
        how = dict(sorted(zip(map(str, frame[task].to_list()), chosen.tolist(), strict=True)))
        chosen = np.array([how.get(str(i), "") for i in table.instances[rows].tolist()])
    return GoldFile(table.instances[rows], labels, chosen=None if task is None else chosen)


NAMES = frozenset({"label", "labels", "gold", "answer"})
"""Names, in lower case, of a column that holds the label of an item, whoever gave it."""


def _is_of_several(frame: Frame, task: str | None) -> bool:
    """Return whether a table with a column of annotators has several rows for an item."""
    if task is None:
        return True
    if task not in frame.columns or gold_column(frame.columns, [task]) is not None:
        return False
    ids = frame[task].to_list()
    return len(set(ids)) < len(ids)


def _known_labels(table: AnnotationTable, name: str) -> tuple[IntArray, AnyArray]:
    """Return the items with a known label, and these labels, and say how they came about."""
    votes = table.vote_counts()
    rows = np.flatnonzero(votes.sum(axis=1) > 0)
    votes = votes[rows]
    people = (
        f"{table.n_annotators} annotators ({listed(table.annotators.tolist(), table.n_annotators)})"
    )
    if table.scale == "interval":
        means = votes @ table.numbers / votes.sum(axis=1)
        _LOG.info("%s: the mean of what its %s gave an item counts as known", name, people)
        return rows, means
    if table.scale == "ordinal":
        shares = votes / votes.sum(axis=1, keepdims=True)
        below = np.isclose(shares.cumsum(axis=1), 0.5).any(axis=1)
        more = f"; of {below.sum():,} items, two grades are in the middle, and the lower one counts"
        _LOG.info(
            "%s: the median of the grades that its %s gave an item counts as known%s",
            name,
            people,
            more if below.any() else "",
        )
        return rows, table.classes[decide(shares, "median")]
    tops = votes == votes.max(axis=1, keepdims=True)
    is_decided = tops.sum(axis=1) == 1
    _LOG.info("%s: the label that most of its %s gave an item counts as known", name, people)
    if (tied := np.flatnonzero(~is_decided)).size:
        first = rows[tied[0]]
        given = ", ".join(map(str, table.classes[tops[tied[0]]].tolist()))
        warn_caller(
            f"{name}: {tied.size:,} of {len(rows):,} items have no known label, because several "
            f"labels have equally many votes, such as {given} for item "
            f"{table.instances[first].item()!r}. These items are harder than the others, so that "
            "the others are not a random sample. Have one more person label them, and add the "
            "answers to the file. If the labels are grades or numbers, say so (--scale ordinal or "
            "interval): then the median or the mean counts, and no item is left out"
        )
    return rows[is_decided], table.classes[tops[is_decided].argmax(axis=1)]
