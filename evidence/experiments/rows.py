"""Rows: what to run, where the result is shown, and what the paper printed.

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

Figures that a paper prints are a list of texts per row, such as "87.12 ± 0.55"::

    printed:
      metric: accuracy              # a list if a figure has several, as "0.818 / 0.817"
      percent: true                 # figures are divided by 100; default: false
      n: 5                          # repetitions, and how the epoch was chosen; optional
      selection: gold validation
      columns: [LabelMe, Music]     # default: those of the table
      figures:
        DL-MV: [79.83 ± 0.34, 72.53 ± 0.41]
        CoNAL: [87.12 ± 0.55, "-"]  # nothing is printed here

A row or column of the table with another name in print has ``printed_row: name`` or
``printed_column: name``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from evidence.experiments.checks import DEVICES, OWN_SEED, check_row
from evidence.experiments.expansion import Expander, Scope
from evidence.experiments.nodes import Document, Node
from evidence.objects import did_you_mean, find_object
from evidence.records import digest
from manyhands.exceptions import AnnotationError
from manyhands.fitting.method_protocol import flat_defaults, from_flat


@dataclass(frozen=True)
class Row:
    """One row of a table: what to run, where the result is shown, what the paper printed.

    Attributes
    ----------
    id : str
        Method and name, such as "conal/chu2021_labelme".
    file : str
        The experiment file that describes it.
    label, citation : str
    table, column : str or None
        Table ("paper/table") and the column in it.
    data : dict
        See `load_data`; ``random_state: seed`` in it stands for the run's own seed.
    estimator : dict
        ``class`` (a name in manyhands, or "module:Class") and ``params``, the fields of its
        ``protocol`` among them. A dict with a ``class``
        within ``params`` describes an object in the same way.
    seeds : tuple of int
    holdout : float or None
        Fraction of the annotations that a second fit holds out to choose the epoch.
    device : {"cpu", "gpu"}
    extra : tuple of str
        "module:function" of further measures, f(model, data) -> dict of str to number or array.
    published : dict, sequence of dict, or None
        ``metric``, ``value``, ``sd``, ``n``, ``selection``; one dict per measure.
    deviations : tuple of str
    watch : tuple of {"train"}
        Further parts of the data on which accuracy is recorded after every epoch.

    See Also
    --------
    evidence.experiments.rows : How rows are written.
    """

    id: str
    file: str
    label: str
    citation: str
    table: str | None
    column: str | None
    data: dict[str, Any]
    estimator: dict[str, Any]
    seeds: tuple[int, ...]
    holdout: float | None
    device: str
    extra: tuple[str, ...]
    published: dict[str, Any] | Sequence[dict[str, Any]] | None
    deviations: tuple[str, ...]
    watch: tuple[str, ...] = ()

    @property
    def paper(self) -> str:
        """Name of the experiment file without its suffix."""
        return Path(self.file).stem

    @property
    def folder(self) -> Path:
        """Folder of the file; relative data folders and a user's modules start from it."""
        return Path(self.file).parent

    def data_of(self, seed: int) -> dict[str, Any]:
        """Return ``data`` with the run's seed filled in."""
        found: dict[str, Any] = _with_seed(self.data, seed)
        return found

    def published_of(self, metric: str) -> dict[str, Any] | None:
        """Return the figure that the paper printed for a measure, or None."""
        return next((each for each in _each(self.published) if each["metric"] == metric), None)

    def make_estimator(self, seed: int) -> Any:
        """Make the estimator, unfitted, with a seed and on the row's device."""
        cls = find_object(self.estimator["class"], self.folder)
        accepted = inspect.signature(cls).parameters
        here = {"random_state": seed, "device": DEVICES[self.device]}
        params = _make(self.estimator.get("params") or {}, self.folder)
        here = {name: value for name, value in here.items() if name in accepted}
        return cls(**from_flat(cls, params), **here)

    def specification(self) -> dict[str, Any]:
        """Return everything that decides the result, as plain values (no labels or figures)."""
        found = {
            "data": self.data,
            "estimator": self.estimator,
            "holdout": self.holdout,
            "device": self.device,
            "extra": list(self.extra),
        }
        # Left out if empty, which keeps the keys of records made before rows had this field.
        return {**found, "watch": list(self.watch)} if self.watch else found

    @property
    def key(self) -> str:
        """SHA-256 of the specification, in hexadecimal."""
        return digest(self.specification())

    @property
    def classes(self) -> list[str]:
        """The estimator's class, and those of all objects among its parameters."""
        return _classes_in(self.estimator)


def _each(published: Any) -> list[dict[str, Any]]:
    """Return printed figures as a list, whether there are none, one or several."""
    if published is None:
        return []
    return [published] if isinstance(published, dict) else list(published)


def _with_seed(value: Any, seed: int) -> Any:
    if not isinstance(value, dict):
        return value
    own = {"random_state": seed} if value.get("random_state") == OWN_SEED else {}
    return {name: _with_seed(part, seed) for name, part in value.items()} | own


def read_row(path: Path, node: Node, of: str = "") -> tuple[Row, Document]:
    """Check a row, without training and without loading its data.

    Parameters
    ----------
    path : Path
        The file that contains the row.
    node : Node
        The row, expanded.
    of : str
        As in `Document`.

    Returns
    -------
    row : Row
    document : Document
        With the lines of its fields.

    Raises
    ------
    RowError
        If the row cannot be run as it is written.
    """
    document = Document(path, _with_paper(path, node), of)
    fields = check_row(document, path.parent)
    for name in ("seeds", "extra", "watch", "deviations"):
        fields[name] = tuple(fields[name])
    return Row(file=str(path), **fields), document


def _with_paper(path: Path, node: Node) -> Node:
    """Put the paper's key before the short name of a table."""
    table = node.value.get("table") if isinstance(node.value, dict) else None
    if table is None or not isinstance(table.value, str) or "/" in table.value:
        return node
    return Node({**node.value, "table": Node(f"{path.stem}/{table.value}", table.line)}, node.line)


def _make(value: Any, folder: Path) -> Any:
    """Return a parameter's value, with objects made where a class is named."""
    if isinstance(value, dict) and "class" in value:
        cls = find_object(value["class"], folder)
        return cls(**from_flat(cls, _make(value.get("params") or {}, folder)))
    if isinstance(value, dict):
        return {name: _make(part, folder) for name, part in value.items()}
    if isinstance(value, list):
        return [_make(part, folder) for part in value]
    return value


def _classes_in(value: Any) -> list[str]:
    """Return the names of all classes in an estimator's description."""
    if isinstance(value, list):
        return [name for part in value for name in _classes_in(part)]
    if not isinstance(value, dict):
        return []
    mine = [value["class"]] if isinstance(value.get("class"), str) else []
    return mine + [name for part in value.values() for name in _classes_in(part)]


# -- automatic defaults, replaced by values -------------------------------------------------------


def without_auto(described: Node, fixed: dict[str, Node], folder: Path) -> Node:
    """Return the description of an estimator with fixed values in place of automatic defaults.

    ``instead_of_auto: {scaling: standard, max_epochs: 50}`` in a paper's file is written into every
    estimator (those among parameters included) whose class has "auto" as the default of that
    parameter, unless the row sets it. Rows thus name the values they were run with, and their
    records stay valid whatever "auto" comes to mean.

    Parameters
    ----------
    described : Node
        ``class`` and ``params``, expanded; or any part of such a description.
    fixed : dict of str to Node
        Parameter -> value.
    folder : Path
        May contain the modules of classes.
    """
    value = described.value
    if isinstance(value, list):
        return Node([without_auto(part, fixed, folder) for part in value], described.line)
    if not isinstance(value, dict):
        return described
    value = {name: without_auto(part, fixed, folder) for name, part in value.items()}
    named = value.get("class")
    if named is not None and isinstance(named.value, str):
        params = value.get("params", Node({}, described.line))
        given = params.value if isinstance(params.value, dict) else {}
        automatic = _automatic(named.value, folder)
        missing = {
            name: part for name, part in fixed.items() if name in automatic and name not in given
        }
        if missing:
            value["params"] = Node({**given, **missing}, params.line)
    return Node(value, described.line)


def has_parameter(described: Any, name: str) -> bool:
    """Whether a description of an estimator sets a parameter, of an object within it, too."""
    if isinstance(described, list):
        return any(has_parameter(part, name) for part in described)
    if not isinstance(described, dict):
        return False
    return name in (described.get("params") or {}) or any(
        has_parameter(part, name) for part in described.values()
    )


@cache
def _automatic(name: str, folder: Path) -> frozenset[str]:
    """Parameters of a class whose default is "auto"; none if there is no such class."""
    try:
        defaults = flat_defaults(find_object(name, folder))
    except (AnnotationError, TypeError, ValueError):
        return frozenset()  # The check of the row names the mistake, with its line.
    return frozenset(key for key, default in defaults.items() if default == "auto")


# -- the rows of a table ---------------------------------------------------------------------------


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


# -- printed figures -------------------------------------------------------------------------------


_KEYS = ("metric", "percent", "n", "selection", "columns", "figures")
_FIGURE = re.compile(r"(-?\d*\.?\d+)(?: *± *(\d*\.?\d+))?")
_NOTHING = "-"


def published(
    expander: Expander, printed: Mapping[str, Node], fields: Mapping[str, Node], scope: Scope
) -> Node | None:
    """Return the field ``published`` of a row, None if the paper prints nothing.

    Parameters
    ----------
    expander : Expander
    printed : mapping of str to Node
        The table's field ``printed``, values not expanded.
    fields : mapping of str to Node
        Fields of the row, among them ``label`` and ``column``.
    scope : Scope
        In which these are expanded.

    Raises
    ------
    RowError
        If a text is not a figure, or a row has more or fewer figures than there are columns.
    """
    for key, node in printed.items():
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS)
            expander.fail(node, f"printed has no {key!r}{hint}; it has {', '.join(_KEYS)}")
    names = [
        expander.expand(fields.get(f"printed_{part}", fields[name]), scope).value
        for part, name in (("row", "label"), ("column", "column"))
    ]
    columns = expander.expand(printed["columns"], scope).plain()
    line = expander.mapping(printed["figures"], scope).get(names[0])
    if line is None or names[1] not in columns:
        return None
    figures = expander.expand(line, scope)
    if not isinstance(figures.value, list) or len(figures.value) != len(columns):
        expander.fail(line, f"{figures.plain()!r} are not {len(columns)} figures, one per column")
    figure = figures.value[columns.index(names[1])]
    if figure.value == _NOTHING:
        return None
    more = {
        key: expander.expand(printed[key], scope) for key in ("n", "selection") if key in printed
    }
    percent = "percent" in printed and expander.expand(printed["percent"], scope).value
    metric = expander.expand(printed["metric"], scope)
    several = isinstance(metric.value, list)
    metrics = metric.value if several else [metric]
    texts = str(figure.value).split("/")
    if len(texts) != len(metrics):
        expander.fail(figure, f"{figure.value!r} is not a figure of each of {metric.plain()!r}")
    found = [
        Node({"metric": name, **_read(expander, figure, text, bool(percent)), **more}, figure.line)
        for name, text in zip(metrics, texts, strict=True)
    ]
    return Node(found, figure.line) if several else found[0]


def _read(expander: Expander, figure: Node, text: str, percent: bool) -> dict[str, Node]:
    """Read "87.12 ± 0.55"; decimal arithmetic makes 87.12 % equal 0.8712 to the last bit."""
    match = _FIGURE.fullmatch(text.strip())
    if match is None:
        expander.fail(figure, f"{text.strip()!r} is no figure; write it such as 87.12 ± 0.55")
    scale = Decimal(100 if percent else 1)
    values = {"value": match[1], "sd": match[2]}
    return {
        name: Node(float(Decimal(value) / scale), figure.line)
        for name, value in values.items()
        if value is not None
    }
