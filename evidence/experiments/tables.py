"""Building rows: from the columns, rows and points of tables, or from single descriptions.

A table (and a figure that has rows of its own) describes its rows together::

    - id: table1
      title: "Table 1: test accuracy"
      base:                                     # fields of all rows
        id: $folder/chu2021_${set}_$slug
        data: {name: $set}
        estimator: {class: $class, params: {<<: [$params, $protocol]}}
        seeds: [0, 1, 2, 3, 4]
      columns:                                  # and those of a column
        LabelMe: {set: labelme, protocol: {max_epochs: 25}}
        Music: {set: music, protocol: {max_epochs: 100}}
      rows:                                     # of a row, by its label
        CoNAL: {folder: conal, class: CoNALClassifier, params: {}}
      points:                                   # of every point of a sweep; optional
        - {params: {gap_weight: 0.0}, slug: lambda_0}
      cells:                                    # of single rows in a column; optional
        CoNAL: {Music: null}                    # null: there is no such row

A row takes the fields of ``base``, its column, its row, its point and its cell, in this order;
later ones override earlier ones. Fields may refer to each other by name, also to fields that are
not keys of a row. ``label``, ``column``, ``table``, ``citation`` and ``slug`` (of the label) are
filled in.
"""

from __future__ import annotations

from collections.abc import Iterator

from evidence.experiments.document import Node
from evidence.experiments.expansion import Expander, Scope
from evidence.experiments.printed import published

ROW = (
    "id",
    "label",
    "citation",
    "table",
    "column",
    "data",
    "estimator",
    "seeds",
    "holdout",
    "device",
    "extra",
    "watch",
    "published",
    "deviations",
)
"""Fields of a row; all others are names that these can refer to."""

_OF_ITSELF = ("slug", "printed_row", "printed_column")
"""Names that the loader itself uses."""

_OF_ROWS = ("base", "points", "cells", "printed")
"""Parts of a table that describe its rows, not the table itself."""


def rows_of_table(expander: Expander, table: Node, scope: Scope) -> Iterator[Node]:
    """Yield the rows that a table or figure describes, expanded."""
    parts = expander.fields(table, scope)
    if "base" not in parts:
        return
    base = expander.mapping(parts["base"], scope)
    columns, rows = (expander.entries(parts[name], scope) for name in ("columns", "rows"))
    cells = {
        label: expander.mapping(node, scope)
        for label, node in expander.mapping(parts.get("cells", _nothing(table)), scope).items()
    }
    _check_cells(expander, cells, list(rows), list(columns))
    printed = expander.mapping(parts.get("printed", _nothing(table)), scope)
    if printed:
        labels = [Node(name, table.line) for name in columns]
        printed = {"columns": Node(labels, table.line), **printed}
    for column, of_column in columns.items():
        placed = {"table": parts["id"], **base, **of_column}
        placed["column"] = placed.pop("label")
        for label, of_row in rows.items():
            own = cells.get(label, {}).get(column)
            if own is not None and own.value is None:
                continue
            of_cell = {} if own is None else expander.mapping(own, scope)
            fields = {**placed, **of_row}
            for point in _points(expander, parts, fields, scope):
                every = {**fields, **point, **of_cell}
                inner = Scope(every, scope)
                found = published(expander, printed, every, inner) if printed else None
                if found is not None:
                    every["published"] = found
                yield row_of(expander, every, inner, of_row["label"].line)


def row_of(expander: Expander, fields: dict[str, Node], scope: Scope, line: int) -> Node:
    """Return a row with only the fields in `ROW`, expanded."""
    expander.name({k: v for k, v in fields.items() if k not in (*ROW, *_OF_ITSELF)})
    return Node({k: expander.value_of(k, scope) for k in fields if k in ROW}, line)


def plan_of(expander: Expander, table: Node, scope: Scope) -> Node:
    """Return the description of a table or figure itself, with only names of columns and rows."""
    found = {}
    for key, node in expander.fields(table, scope).items():
        if key in _OF_ROWS:
            continue
        head, within = expander.head(node, scope)
        if key in ("columns", "rows") and isinstance(head.value, dict):
            names = expander.fields(head, within)
            found[key] = Node([Node(name, part.line) for name, part in names.items()], node.line)
        else:
            found[key] = expander.expand(node, scope)
    return Node(found, table.line)


def _points(
    expander: Expander, parts: dict[str, Node], fields: dict[str, Node], scope: Scope
) -> list[dict[str, Node]]:
    if "points" not in parts:
        return [{}]
    inner = Scope(fields, scope)
    points, within = expander.head(parts["points"], inner)
    if not isinstance(points.value, list):
        expander.fail(points, f"points are {points.plain()!r}; write a list of mappings")
    return [
        # Expand a point made by a loop here, where the loop's names are known.
        expander.mapping(point if of.names is inner.names else expander.expand(point, of), inner)
        for point, of in expander.items(points, within)
    ]


def _check_cells(
    expander: Expander, cells: dict[str, dict[str, Node]], rows: list[str], columns: list[str]
) -> None:
    for label, of_columns in cells.items():
        for column, node in of_columns.items():
            if label not in rows or column not in columns:
                expander.fail(node, f"cells: there is no row {label!r} in a column {column!r}")


def _nothing(table: Node) -> Node:
    return Node(None, table.line)
