"""Tables of a report as columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from manyhands.report.annotators import completed
from manyhands.report.sections import sections_of

Columns = dict[str, list[Any]]

_NO_SECTIONS = frozenset({"version", "limits", "files"})

_ELSEWHERE = frozenset({"matrix", "matrix_of_pairs", "cells", "charts"})
"""Entries that are tables of their own, of another shape."""


def summary_tables(summary: Mapping[str, Any]) -> dict[str, Columns]:
    """Return every table of a summary by name, and all single figures as the table "facts".

    Parameters
    ----------
    summary : dict
        Result of `summarize`. Lists that it cuts (see its "limits") are cut here, too.

    Returns
    -------
    dict {name: {column: list}}

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import summarize
    >>> tables = summary_tables(summarize(np.array([[0, 0], [1, 0]])))
    >>> tables["labels_all"]["votes"]
    ['0: 2', '0: 1; 1: 1']
    >>> tables["common_confusions"]["share"]
    [1.0, 0.5, None, None]
    """
    facts: list[dict[str, Any]] = []
    tables: dict[str, Columns] = {}
    for section, content in summary.items():
        if section not in _NO_SECTIONS:
            for path, value in _parts(content, (section,)):
                if isinstance(value, list) and value and isinstance(value[0], dict):
                    name = "_".join(part for part in path if part != "rows")
                    # A summary may come from a file, and a name may become that of a file.
                    tables[re.sub(r"\W", "_", name)] = _columns(value)
                elif value not in (None, []):
                    name = ".".join(path[1:]) or section
                    facts.append({"section": section, "name": name, "value": _text(value)})
    for each in sections_of(summary):
        if content := summary.get(each.key):
            more = each.tables(content)
            tables |= {name: _columns(rows) for name, rows in more if rows}
    if "annotators" in tables and summary.get("annotators"):
        tables["annotators"] = completed(tables["annotators"], summary["annotators"])
    return {"facts": _columns(facts), **tables}


def _parts(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Everything within a section that is no object, by its path."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, part in value.items():
        if key not in _ELSEWHERE:
            yield from _parts(part, (*path, key))


def _columns(rows: list[dict[str, Any]]) -> Columns:
    """Columns of rows; an entry within an entry is named by both, such as "mistake_true"."""
    flat = [dict(_flat(row)) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return {name: [row.get(name) for row in flat] for name in names}


def _flat(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if key in _ELSEWHERE or (isinstance(value, list) and value and isinstance(value[0], dict)):
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}_")
        else:
            yield prefix + key, _text(value)


def _text(value: Any) -> Any:
    """Write a list as text: votes as "cat: 3; dog: 1"."""
    if not isinstance(value, list):
        return value
    return "; ".join(
        ": ".join(map(str, part)) if isinstance(part, list) else str(part) for part in value
    )
