"""Figures as a paper prints them: per row, a list of texts such as "87.12 ± 0.55".

::

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

import re
from collections.abc import Mapping
from decimal import Decimal

from evidence.experiments.document import Node
from evidence.experiments.expansion import Expander, Scope
from evidence.objects import did_you_mean

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
