"""Stating which annotators are people, if models label the same items.

People make their own mistakes, so they are in no family; models of one kind share mistakes. If the
user states who the people are, all other annotators without a family become one family, "models".
People's labels may be in a file of their own, such as a spreadsheet with a column for each person
beside the models' JSON Lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.class_order import in_class_order
from manyhands.annotations.encoding import is_text
from manyhands.annotations.groups import ALONE, is_person
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import find_name
from manyhands.io.corrections import CHOSEN
from manyhands.io.exports.documents import open_documents
from manyhands.io.gold import CHOSEN_COLUMN
from manyhands.io.sheets import stated_of
from manyhands.typing import AnyArray

MODELS = "models"
"""Family of annotators who are not people and have no other family."""

SHARED_OPTIONS = (
    *("classes", "abstain", "skip", "scale", "mapping", "lowercase", "encoding", "separator"),
    *("sheet", "annotator_mapping"),
)
"""Reading options that also apply to the people's own file."""


def with_people(
    table: AnnotationTable,
    people: Any,
    read: Any,
    options: Mapping[str, Any],
) -> AnnotationTable:
    """Return the table with families that say which annotators are people.

    Parameters
    ----------
    table : AnnotationTable
    people : str, Path or sequence of str
        Names of annotators, or one text with commas between them; a value of the groups that means
        people; or a file with people's labels, which are added to the table.
    read : callable
        Reads annotations from a path with options.
    options : dict
        How the table was read.

    Returns
    -------
    AnnotationTable
        With families, of which people are in none.

    Raises
    ------
    AnnotationError
        If a name is unknown, the items of the file were chosen by a review queue, an annotator is
        in both files, or the files share no item.
    """
    if isinstance(people, str | Path) and Path(people).is_file():
        theirs = _read_people(Path(people), read, options)
        names = {str(name) for name in theirs.annotators.tolist()}
        table = _joined(table, theirs)
    else:
        names = _named(table, people)
    who = np.array([str(name) in names for name in table.annotators.tolist()])
    groups = np.full(table.n_annotators, ALONE, dtype=object)
    if table.groups is not None:
        groups[:] = table.groups
    groups[who] = ALONE
    groups[~who & (groups == ALONE)] = MODELS
    return table.with_groups(groups.astype(str), table.group_rho)


def _named(table: AnnotationTable, people: Any) -> set[str]:
    """Return the annotators that a list of names, or a family, means."""
    known = {str(name) for name in table.annotators.tolist()}
    families = set() if table.groups is None else set(table.groups.tolist()) - {ALONE}
    given = [people] if isinstance(people, str) and people in known | families else people
    if isinstance(given, str | Path):
        if Path(given).suffix:
            raise AnnotationError(
                f"people={str(given)!r}: there is no such file, and no annotator or family of this "
                f"name; annotators are {_some(known)}"
            )
        given = [name.strip() for name in str(given).split(",")]
    found: set[str] = set()
    for name in map(str, _checked(given)):
        if name in known:
            found.add(name)
        elif name in families:
            assert table.groups is not None
            members = table.annotators[table.groups == name].tolist()
            found.update(map(str, members))
        elif is_person(name) and families:  # "person" and the like are not read as families.
            assert table.groups is not None
            found.update(map(str, table.annotators[table.groups == ALONE].tolist()))
        else:
            raise AnnotationError(
                f"people={name!r} is neither an annotator nor a family; annotators are "
                f"{_some(known)}" + (f", and families {_some(families)}" if families else "")
            )
    return found


def _checked(given: Any) -> Sequence[Any]:
    names: list[Any] = [name for name in given if str(name).strip()]
    if not names:
        raise AnnotationError("people= is empty; give the names of the annotators who are people")
    return names


def _some(names: set[str]) -> str:
    shown = sorted(names)
    return ", ".join(map(repr, shown[:6])) + (", ..." if len(shown) > 6 else "")


# -- a file of people's labels --------------------------------------------------------------------


def _read_people(path: Path, read: Any, options: Mapping[str, Any]) -> AnnotationTable:
    """Read the labels of people from their own file: a long table, or a column for each person."""
    own = options_of_people(path, options)[1]
    refuse_queue(path, dict(own), f"people={str(path)!r}")
    try:
        table: AnnotationTable = read(path, **own)[0]
    except AnnotationError as error:
        raise AnnotationError(f"people={str(path)!r}: {error}") from error
    return table


def options_of_people(
    path: Path, options: Mapping[str, Any]
) -> tuple[Sequence[str], dict[str, Any]]:
    """Return the header of a file of people's labels, and how it is read: long, or a column each.

    Parameters
    ----------
    path : Path
    options : dict
        How the annotations are read.
    """
    own = {name: options[name] for name in SHARED_OPTIONS if options.get(name) is not None}
    documents = open_documents(path, most=200, stated=stated_of(dict(own)))
    header = documents[0].header or list(documents[0].first) if documents else []
    own = shared_options(options, header)
    for name in ("worker", "label"):
        if options.get(name, name) in header:
            own[name] = options.get(name, name)
    try:
        is_long = find_name(header, "worker", own.get("worker", "worker")) in header
    except AnnotationError:
        is_long = False
    if header and not is_long:
        own["format"] = "wide"
    return header, own


def shared_options(options: Mapping[str, Any], header: Sequence[str]) -> dict[str, Any]:
    """Return the reading options that also hold for another file about the same items."""
    own = {name: options[name] for name in SHARED_OPTIONS if options.get(name) is not None}
    task = options.get("task", "task")
    if not isinstance(task, str) or task in header:
        own["task"] = task
    return own


def refuse_queue(path: Path, options: Mapping[str, Any], called: str) -> None:
    """Refuse labels that a review queue chose.

    Parameters
    ----------
    path : Path
    options : dict
        How it is read.
    called : str
        Name of the file in messages.

    Raises
    ------
    AnnotationError
        If its column ``chosen`` says so for a row.
    """
    stated = stated_of(dict(options))
    (first, *_) = (*open_documents(path, most=200, stated=stated), None)
    if first is None or CHOSEN_COLUMN not in (first.header or first.first):
        return
    marks = {
        str(row.get(CHOSEN_COLUMN) or "").strip().lower()
        for document in open_documents(path, stated=stated)
        for _, row in (document.dicts() if document.kind == "table" else document.records)
        if isinstance(row, Mapping)
    }
    if "queue" in marks and marks <= {"", *CHOSEN}:  # Otherwise it is a column of the user's own.
        raise AnnotationError(
            f"{called}: its column {CHOSEN_COLUMN!r} says that a review queue chose some items "
            "because they were doubtful. People and models agree less on these than on other "
            "items, so they show neither how good a model is nor how many labels are right. Leave "
            "these rows out, and give labels of items drawn at random (the command review draws "
            "them with --random)"
        )


def _joined(mine: AnnotationTable, theirs: AnnotationTable) -> AnnotationTable:
    """Join two tables into one."""
    again = {str(who) for who in mine.annotators.tolist()} & {
        str(who) for who in theirs.annotators.tolist()
    }
    if again:
        raise AnnotationError(
            f"people= has labels of {sorted(again)[0]!r}, who is also in the other annotations; "
            "rename one of the two, or leave one out"
        )
    classes, order = _all_classes(mine, theirs)
    mine, theirs = (_over_classes(each, classes, order, mine.scale) for each in (mine, theirs))
    if is_text(mine.instances) != is_text(theirs.instances):
        mine, theirs = (replace(t, instances=t.instances.astype(str)) for t in (mine, theirs))
    if is_text(mine.annotators) != is_text(theirs.annotators):
        mine, theirs = (replace(t, annotators=t.annotators.astype(str)) for t in (mine, theirs))
    if not np.isin(theirs.instances, mine.instances).any():
        raise AnnotationError(
            f"people= labelled {_ids(theirs)}, but the others labelled {_ids(mine)}: they share no "
            "item. Name the column with the items' ids (task=)"
        )
    return mine.with_added(theirs)


def _ids(table: AnnotationTable) -> str:
    return ", ".join(map(repr, table.instances[:3].tolist())) + ", ..."


def _all_classes(mine: AnnotationTable, theirs: AnnotationTable) -> tuple[AnyArray, str]:
    if np.array_equal(mine.classes, theirs.classes):
        return mine.classes, mine.class_order
    if is_text(mine.classes) != is_text(theirs.classes):
        one, other = mine.classes.astype(str), theirs.classes.astype(str)
    else:
        one, other = mine.classes, theirs.classes
    if np.isin(other, one).all():
        return one, mine.class_order
    union = np.unique(np.concatenate([one, other]))
    _, classes, order = in_class_order(np.arange(len(union)), union)
    return classes, order


def _over_classes(
    table: AnnotationTable, classes: AnyArray, order: str, scale: str
) -> AnnotationTable:
    places = {str(value): code for code, value in enumerate(classes.tolist())}
    codes = np.array([places[str(value)] for value in table.classes.tolist()], dtype=np.int64)
    return replace(table, label=codes[table.label], classes=classes, class_order=order, scale=scale)
