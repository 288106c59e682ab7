"""Refusing cells that hold dicts, as JSON records do, with the call that flattens them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from manyhands.annotations.ids import id_column
from manyhands.exceptions import AnnotationError

FIRST_CELLS = 50
"""Number of cells that are looked at to see whether a column holds dicts."""


def keys_of(cell: Any) -> list[Any]:
    """Return the keys of a dict, or of the first dict of a list; none for anything else.

    Examples
    --------
    >>> keys_of({"a": 1}), keys_of([{"b": 1}, {"b": 2}]), keys_of(["c"])
    (['a'], ['b'], [])
    """
    first = cell[0] if isinstance(cell, list | tuple | np.ndarray) and len(cell) else cell
    return list(first) if isinstance(first, Mapping) else []


def how_to_flatten(rows: Sequence[Mapping[Any, Any]], name: str) -> str:
    """Say how rows with dicts in them become rows of single values; "" if there are no dicts.

    Examples
    --------
    >>> rows = [{"id": 1, "votes": [{"who": "x", "label": "a"}, {"who": "y", "label": "b"}]}]
    >>> how_to_flatten(rows, "rows").split("), ")[0]
    'pandas.json_normalize(rows, "votes", ["id"]'
    """
    for row in rows[:FIRST_CELLS]:
        for column, cell in row.items():
            found = keys_of(cell)
            keys = ", ".join(map(repr, found))
            if isinstance(cell, Mapping) and found:
                return f"pandas.json_normalize({name}), which makes a column of each key ({keys})"
            if found:
                others = [str(each) for each in row if each != column and not keys_of(row[each])]
                ids = id_column(others) or (others or ["id"])[0]
                return (
                    f'pandas.json_normalize({name}, "{column}", ["{ids}"]), a frame with one row '
                    f"per annotation, to AnnotationTable.from_frame, and name its columns ({keys}) "
                    "in task=, worker= and label="
                )
    return ""


def refuse_nested(frame: Any, columns: Sequence[str], argument: str) -> None:
    """Refuse columns of a narwhals frame whose cells hold dicts, or lists of dicts.

    Raises
    ------
    AnnotationError
        If there are such columns.
    """
    # A narwhals frame reads frame[0] as a row.
    every = {str(n): column for n, column in zip(frame.columns, frame.iter_columns(), strict=True)}
    for name in columns:
        nested = next(filter(keys_of, every[name].head(FIRST_CELLS).to_list()), None)
        if nested is not None:
            rows = f"{argument}.to_dicts()"
            if hasattr(frame.to_native(), "iloc"):
                rows = f"{argument}.to_dict('records')"
            elif frame.implementation.is_pyarrow():
                rows = f"{argument}.to_pylist()"
            mend = how_to_flatten([dict.fromkeys(every) | {name: nested}], rows)
            raise AnnotationError(f"column {name!r} of {argument} holds dicts; give {mend}")
