"""Content to show beside a label, so that a person knows the item: a text, or a file's name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from manyhands.exceptions import silenced
from manyhands.io.columns import find_name
from manyhands.io.exports.documents import open_documents
from manyhands.io.exports.records import CONTENT, Export
from manyhands.io.files import PathLike, is_typed, suffix_of
from manyhands.io.frames import read_frame
from manyhands.io.sheets import UNSTATED, Stated

KEYS: Final = ("task", "worker", "annotator")
"""Columns that come before the content."""

EMBEDDED: Final = "data:"
"""Beginning of an address that contains the file itself, which is too long for a table."""


LONGEST: Final = 32_000
"""Largest number of characters of a text that are shown; a cell of a workbook holds 32,767."""


@dataclass(frozen=True)
class Shown:
    """The field of the items that is shown beside their labels.

    Attributes
    ----------
    name : str
        Name of the column.
    values : dict {str: str, number or None}
        Content by the id of the item, as text.
    """

    name: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, tasks: Iterable[Any], values: Iterable[Any]) -> Shown:
        """Make one from a value for every item."""
        return cls(name, dict(zip(map(str, tasks), map(_scalar, values), strict=True)))


def shown_of(export: Export | None) -> Shown | None:
    """Return the field of an export's items that shows what they are; None if there is none.

    It is the first field with a name such as "text" or "image", or else the longest text.
    """
    columns = {} if export is None else export.items.columns
    name = next((name for name in columns if name.lower() in CONTENT), None) or _longest(columns)
    if export is None or name is None:
        return None
    return Shown.of(name, export.items.ids.tolist(), columns[name])


def shown_beside(
    path: PathLike, task: str = "task", taken: Iterable[str] = (), stated: Stated = UNSTATED
) -> Shown | None:
    """Return the column of a plain long table that shows what the items are; None without one.

    Parameters
    ----------
    path : str or Path
        A table that was read before. A matrix has none.
    task : str
        Column of the ids, or "task", for which other common names stand.
    taken : iterable of str
        Columns that mean something else, such as the one of labels.
    stated : Stated
        How the table was read.
    """
    path = Path(path)
    if suffix_of(path) in (".npy", ".npz"):
        return None
    if not is_typed(path):  # Read the whole table only if its header has such a column.
        (document, *_) = open_documents(path, most=1, stated=stated)
        if not _shown_names(document.header, (task, *taken)):
            return None
    with silenced("manyhands"):  # It was read before, and its notes were shown.
        frame = read_frame(path, stated)
        key = find_name(frame.columns, "task", task)
    names = _shown_names(frame.columns, (key, *taken))
    if not names or key not in frame.columns:
        return None
    first: dict[str, Any] = {}
    for item, value in zip(frame[key].to_list(), frame[names[0]].to_list(), strict=True):
        if value is not None:
            first.setdefault(str(item), value)
    return Shown.of(names[0], first, first.values())


def with_shown(columns: Mapping[str, list[Any]], shown: Shown | None) -> dict[str, list[Any]]:
    """Insert the content behind the ids; a name that is taken becomes "item.<name>".

    Examples
    --------
    >>> with_shown({"task": [1, 2], "label": ["a", "b"]}, Shown("text", {"1": "Fine."}))
    {'task': [1, 2], 'text': ['Fine.', None], 'label': ['a', 'b']}
    """
    keys = {name: columns[name] for name in KEYS if name in columns}
    more: dict[str, list[Any]] = {}
    if shown is not None:
        values = [shown.values.get(str(task)) for task in columns["task"]]
        if any(value is not None for value in values):
            more[f"item.{shown.name}" if shown.name in columns else shown.name] = values
    return keys | more | {name: v for name, v in columns.items() if name not in keys}


def _shown_names(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    used = set(taken)
    return [name for name in names if name.strip().lower() in CONTENT and name not in used]


def _longest(columns: Mapping[str, Sequence[Any]]) -> str | None:
    """Return the field with the longest texts; None if none has texts of several words."""
    lengths = {name: _mean_length(values) for name, values in columns.items()}
    return max(lengths, key=lengths.__getitem__) if any(lengths.values()) else None


def _mean_length(values: Sequence[Any]) -> float:
    texts = [value for value in values if isinstance(value, str)]
    if not any(" " in text.strip() for text in texts):
        return 0.0
    return sum(map(len, texts)) / len(values)


def _scalar(value: Any) -> Any:
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return value
    if value.startswith(EMBEDDED):
        return None
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}…"
