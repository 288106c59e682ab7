"""Known labels from a file in which several people labelled each item.

People have a column each, or a row for each answer. What counts as known depends on the scale: the
mean of numbers, the median of grades, and of classes the one that most people gave.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.wide import (
    FEW,
    UnclearColumnsError,
    as_cell,
    gold_column,
    kind_of,
    with_joined_task,
)
from manyhands.decision import decide
from manyhands.exceptions import AnnotationError, silenced, warn_caller
from manyhands.io.annotations import TABLES, read_with_account
from manyhands.io.columns import Frame, find_name
from manyhands.io.frames import read_frame
from manyhands.io.gold import CHOSEN_COLUMN, REVIEWED, GoldFile, how_chosen, refuse_repeated
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
        If people have a column each, or a row for each answer, and the file cannot be read; or if
        it has a column "split" or "chosen", but an item is in two splits, or none has an id.
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
    if REVIEWED in names or (is_wide and names & {*NAMES, str(options.get("label")).lower()}):
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
            table, export = read_with_account(path, **own)
    except AnnotationError as error:
        is_unclear = isinstance(error, UnclearColumnsError) or not _are_of_people(frame, task)
        if is_wide and is_unclear:
            return None
        if is_wide and task in frame.columns:
            refuse_repeated(frame, task)
        raise
    people = set(map(str, table.annotators.tolist()))
    ids = (export is not None and export.reading.get("task")) or task or own.get("task")
    others = [name for name in header if name not in people | {ids, CHOSEN_COLUMN, SPLIT_COLUMN}]
    if is_wide and others:
        _LOG.info("%s: not read as answers of a person: %s", path.name, ", ".join(others))
    chosen, splits = how_chosen(frame), _splits(frame)
    if chosen is not None:
        # Of an item's rows, "random" is the last in the order of the alphabet.
        how = dict(sorted(_by_item(frame, ids, chosen, CHOSEN_COLUMN)))
        chosen = _of_items(how, table.instances, CHOSEN_COLUMN)
    if splits is not None:
        parts = _one_each(_by_item(frame, ids, splits, SPLIT_COLUMN))
        splits = _of_items(parts, table.instances, SPLIT_COLUMN)
    rows, labels = _known_labels(table, path.name)
    splits, chosen = (None if each is None else each[rows] for each in (splits, chosen))
    return GoldFile(table.instances[rows], labels, splits=splits, chosen=chosen)


NAMES = frozenset({"label", "labels", "gold", "answer"})
"""Names, in lower case, of a column that holds the label of an item, whoever gave it."""


SPLIT_COLUMN = "split"
"""Column that says which items a model is trained on, and which it is tested on."""


def _splits(frame: Frame) -> AnyArray | None:
    """Return the split that each row names, "" where it names none; None without the column."""
    if SPLIT_COLUMN not in frame.columns:
        return None
    return np.array([as_cell(value) for value in frame[SPLIT_COLUMN].to_list()], dtype=str)


def _by_item(frame: Frame, ids: Any, values: AnyArray, name: str) -> list[tuple[str, str]]:
    """Return the id of each row's item, and the row's value of a column."""
    columns = [] if ids is None else [ids] if isinstance(ids, str) else list(ids)
    if not columns or not set(columns) <= set(frame.columns):
        raise AnnotationError(
            f"it has a column {name!r}, but no column says which item a row is about. Add a column "
            f"'task' with the items' ids, or delete the column {name!r}"
        )
    frame, ids = with_joined_task(frame, columns)
    return list(zip(map(as_cell, frame[ids].to_list()), values.tolist(), strict=True))


def _one_each(named: list[tuple[str, str]]) -> dict[str, str]:
    """Return the split of each item; rows without an entry say nothing."""
    found: dict[str, str] = {}
    for item, split in named:
        if split and found.setdefault(item, split) != split:
            raise AnnotationError(
                f"item {item!r} is in two splits, {found[item]!r} and {split!r} (column "
                f"{SPLIT_COLUMN!r}); write one of them in all of its rows"
            )
    return {item: found.get(item, "") for item, _ in named}


def _of_items(found: Mapping[str, str], items: AnyArray, name: str) -> AnyArray:
    """Return the value of each item."""
    keys = [as_cell(item) for item in items.tolist()]
    lost = [key for key in keys if key not in found]
    if lost:
        raise AnnotationError(
            f"the column {name!r} does not say anything of item {lost[0]!r}, which is written "
            "differently there; write its id in the same way in all rows"
        )
    return np.array([found[key] for key in keys], dtype=str)


def _are_of_people(frame: Frame, task: str | None) -> bool:
    """Return whether two columns or more look like a person's: they share a value, and have few."""
    try:
        if find_name(frame.columns, "gold", "label") in frame.columns:
            return False
    except AnnotationError:
        return False  # Several columns are called like known labels, whose reader says so.
    seen: list[set[str]] = []
    for name in frame.columns:
        values = {as_cell(value) for value in frame[name].to_list()} - {""}
        if name != task and not kind_of(name) and len(values) <= FEW:
            seen.append(values)
    return any(one & other for one, other in combinations(seen, 2))


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
        harder = (
            "These items are harder than the others, so that the others are not a random sample"
            if is_decided.any()
            else "So no label of the file is used"
        )
        warn_caller(
            f"{name}: {tied.size:,} of {len(rows):,} items have no known label, because several "
            f"labels have equally many votes, such as {given} for item "
            f"{table.instances[first].item()!r}. {harder}. Have one more person label them, and "
            "add the answers to the file. If the labels are grades or numbers, say so (--scale "
            "ordinal or interval): then the median or the mean counts, and no item is left out"
        )
    return rows[is_decided], table.classes[tops[is_decided].argmax(axis=1)]
