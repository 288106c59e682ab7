"""What stands in a file of labels so that a person knows the item: its text, or its file's name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from manyhands.io.exports.layouts import SHOWN
from manyhands.io.exports.records import Export

Content = Mapping[str, Sequence[Any]]
"""One column beside the ids, by its name; empty if nothing is known of the items."""

KEYS: Final = ("task", "worker", "annotator")
"""Columns that stand before the content."""

EMBEDDED: Final = "data:"
"""How the address of a file begins that is in the address itself, which no table has room for."""


def content_of(export: Export | None, tasks: Iterable[Any]) -> Content:
    """Return the field of an export's items that shows a person what they are, in task order.

    It is the first field with a name such as "text" or "image"; without one, the longest text.

    Parameters
    ----------
    export : Export or None
    tasks : iterable of ids
        In the order of the values to return.

    Returns
    -------
    dict {name: list}
        Of one field, or empty.
    """
    name = None if export is None else _field(export)
    if export is None or name is None:
        return {}
    values = dict(zip(map(str, export.items.ids.tolist()), export.items.columns[name], strict=True))
    found = [_scalar(values.get(str(task))) for task in tasks]
    return {name: found} if any(value is not None for value in found) else {}


def with_content(
    columns: Mapping[str, Sequence[Any]], content: Content
) -> dict[str, Sequence[Any]]:
    """Insert the content behind the ids; a name that is taken becomes "item.<name>".

    Examples
    --------
    >>> with_content({"task": [1], "label": ["a"]}, {"text": ["Fine."]})
    {'task': [1], 'text': ['Fine.'], 'label': ['a']}
    """
    keys = {name: columns[name] for name in KEYS if name in columns}
    named = {f"item.{n}" if n in columns else n: values for n, values in content.items()}
    return keys | named | {name: v for name, v in columns.items() if name not in keys}


def _field(export: Export) -> str | None:
    columns = export.items.columns
    named = next((name for name in columns if name.lower() in SHOWN), None)
    if named is not None:
        return named
    lengths = {name: _mean_length(values) for name, values in columns.items()}
    return max(lengths, key=lengths.__getitem__) if any(lengths.values()) else None


def _mean_length(values: Sequence[Any]) -> float:
    """Mean length of the texts of a field; 0 if no entry has several words."""
    texts = [value for value in values if isinstance(value, str)]
    if not any(" " in text.strip() for text in texts):
        return 0.0
    return sum(map(len, texts)) / len(values)


def _scalar(value: Any) -> Any:
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)
    embedded = isinstance(value, str) and value.startswith(EMBEDDED)
    return None if embedded else value
