"""Reading and checking the tables and figures of a paper.

::

    tables:
      - id: table1                    # rows say `table: chu2021/table1`
        title: Test accuracy on real annotations
        metric: accuracy              # or macro_f1, or the name of a measure in `extra`; for a
                                      # list, the page shows the table once per measure
        columns: [LabelMe, Music]     # rows say `column: LabelMe`
        rows: [DL-MV, CoNAL]          # labels, in the order of the page
    figures:
      - id: fig4                      # rows say `table: chu2021/fig4`
        kind: lines                   # one panel per column, one line per label, with error bars
        title: Accuracy by proportion of common noise
        metric: accuracy
        x: data.proportion            # or estimator.params.<name>: where a row's x stands
        x_label: proportion of common noise
        x_absent: 0                   # x of rows without that parameter; optional
        columns: [asymmetric, symmetric]   # optional, like rows
      - id: fig6
        kind: history                 # columns of the history, for the rows of a table
        title: Imbalance by round
        table: table1                 # of this file
        metric: imbalance             # a column of the history (`history` of a record)
        x: round                      # another column; `epoch` is counted over all stages
        stage: adversarial            # only its rows, with epochs counted in it; optional
        x_label: round
        columns: [LabelMe]            # panels, columns of the table; optional: all
        rows: [CoNAL]                 # lines, labels in the table; optional: all
        log: true                     # a logarithmic axis; optional: false
        levels:                       # horizontal lines, of a measure in `extra`; optional
          - {extra: gold_imbalance, label: gold labels}
      - id: fig2
        kind: profile                 # vectors in `extra`, for the rows of a table
        title: Accuracy on the instances with the lowest entropy
        table: table1                 # as in history; columns and rows too
        metric: accumulated_accuracy  # a vector in `extra`
        x: accumulated_share          # another vector of the same length
        x_label: share of the instances
      - id: fig5
        kind: matrices                # heat maps of matrices in `extra` of a row's first seed
        title: Common confusion, true and learnt
        panels:
          - {row: conal/chu2021_synthetic, extra: true_common, title: true}
          - {row: conal/chu2021_synthetic, extra: learnt_common, title: learnt}
        sheet: common                 # any figure may share a drawing with others; optional
    sheets: {common: "Common confusion, by data set"}   # titles of such drawings

`evidence.experiments.tables` says how a table describes its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evidence.experiments.document import Document, Where
from evidence.experiments.papers import CURVES, FigurePlan, Level, Panel, TablePlan
from evidence.objects import did_you_mean
from evidence.records.records import LAST, SELECTIONS

_MEASURE = {"metric": "accuracy", "selection": LAST}
_PARTS: dict[str, list[str]] = {"columns": [], "rows": []}

FIGURES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "lines": (["x", "x_label"], {**_MEASURE, **_PARTS, "x_absent": None}),
    "matrices": (["panels"], {}),
    "history": (
        ["table", "metric", "x", "x_label"],
        {**_PARTS, "stage": None, "levels": [], "log": False},
    ),
    "profile": (["table", "metric", "x", "x_label"], _PARTS),
}
"""Kind of figure -> its required fields, and its optional fields with their defaults."""


def places(document: Document, *where: str | int) -> list[Where]:
    """Return the places of a list's items, none if there is no list."""
    found = document.at(where)
    if found is not None:
        document.sequence(where, found, lambda place: None)
    return [(*where, i) for i in range(len(found or []))]


def read_table(document: Document, where: Where) -> TablePlan:
    """Read and check a table."""
    optional = {"metric": "accuracy", "columns": [], "rows": []}
    fields = document.mapping(where, required=["id", "title"], optional=optional)
    metric, several = fields["metric"], isinstance(fields["metric"], list)
    texts, lists = ["id", "title"], ["columns", "rows"]
    (lists if several else texts).append("metric")
    check_texts(document, where, fields, texts, lists)
    for i, name in enumerate(metric if several else [metric]):
        place = (*where, "metric", i) if several else (*where, "metric")
        document.check_metric(place, name)
        if several and name in metric[:i]:
            document.fail(place, f"metric has {name!r} twice; write a measure once")
    if several and not metric:
        document.fail((*where, "metric"), "metric is empty; write what the table shows")
    return TablePlan(
        fields["id"],
        fields["title"],
        tuple(metric) if several else metric,
        tuple(fields["columns"]),
        tuple(fields["rows"]),
    )


def read_figure(
    document: Document,
    where: Where,
    rows: Sequence[str],
    tables: Iterable[str],
    sheets: Iterable[str],
) -> FigurePlan:
    """Read and check a figure; ``rows``, ``tables`` and ``sheets`` are the ids that it may name."""
    given = document.at(where)
    kind = given.get("kind") if isinstance(given, dict) else None
    if kind not in FIGURES:
        document.fail((*where, "kind"), f"kind is {kind!r}; write {' or '.join(FIGURES)}")
    if kind == "history" and "selection" in given:
        document.fail(
            (*where, "selection"),
            "a figure of kind history draws every epoch and chooses none; leave selection out",
        )
    required, optional = FIGURES[kind]
    required, optional = ["id", "title", "kind", *required], {**optional, "sheet": ""}
    fields = document.mapping(where, required=required, optional=optional)
    texts = [name for name in (*required, "metric") if name in fields and name != "panels"]
    check_texts(document, where, fields, texts, [name for name in _PARTS if name in fields])
    if "selection" in fields:
        check_selection(document, (*where, "selection"), fields["selection"], SELECTIONS)
        document.check_metric((*where, "metric"), fields["metric"])
    if fields.get("x_absent") is not None:
        document.number((*where, "x_absent"), -1e300)
    if fields["sheet"]:
        _check_known(document, (*where, "sheet"), fields["sheet"], sheets)
    if kind in CURVES:
        _check_curves(document, where, fields, tables)
    panels = tuple(
        _read_panel(document, place, rows) for place in places(document, *where, "panels")
    )
    levels = tuple(_read_level(document, place) for place in places(document, *where, "levels"))
    if kind == "matrices" and not panels:
        document.fail(where, "a figure of matrices needs panels; add {row, extra, title} each")
    lists = {name: tuple(fields.get(name, ())) for name in _PARTS}
    plain = {"x": "", "x_label": "", **_MEASURE, **fields}
    return FigurePlan(**{**plain, **lists, "panels": panels, "levels": levels})


def _check_curves(
    document: Document, where: Where, fields: Mapping[str, Any], tables: Iterable[str]
) -> None:
    _check_known(document, (*where, "table"), fields["table"], tables)
    if not isinstance(fields.get("log", False), bool):
        document.fail((*where, "log"), f"log is {fields['log']!r}; write true or false")
    if fields.get("stage") is not None:
        check_texts(document, where, fields, ("stage",), ())


def _check_known(document: Document, where: Where, name: str, known: Iterable[str]) -> None:
    """Refuse the name of a table or sheet that the file lacks."""
    if name not in known:
        listed = f"it has {', '.join(sorted(known))}" if known else "it has none"
        hint = did_you_mean(str(name), known)
        document.fail(where, f"this file has no {where[-1]} {name!r}{hint}; {listed}")


def _read_level(document: Document, where: Where) -> Level:
    fields = document.mapping(where, required=["extra", "label"], optional={})
    check_texts(document, where, fields, ("extra", "label"), ())
    return Level(**fields)


def _read_panel(document: Document, where: Where, rows: Sequence[str]) -> Panel:
    fields = document.mapping(where, required=["row", "extra", "title"], optional={})
    check_texts(document, where, fields, ("row", "extra", "title"), ())
    check_row_id(document, (*where, "row"), fields["row"], rows)
    return Panel(**fields)


def check_row_id(document: Document, where: Where, name: Any, rows: Sequence[str]) -> None:
    """Refuse anything but the id of a row."""
    if name not in rows:
        hint = did_you_mean(str(name), rows)
        document.fail(where, f"there is no row {name!r}{hint}; describe it, or name another")


def check_selection(document: Document, where: Where, selection: Any, known: Sequence[str]) -> None:
    """Refuse anything but a known way to choose the epoch."""
    if selection not in known:
        document.fail(where, f"{where[-1]} is {selection!r}; write one of {', '.join(known)}")


def check_texts(
    document: Document,
    where: Where,
    fields: Mapping[str, Any],
    texts: Sequence[str],
    lists: Sequence[str],
) -> None:
    """Refuse fields that are not texts, or not lists of texts, as they must be."""
    for name in texts:
        if not isinstance(fields[name], str) or not fields[name].strip():
            document.fail((*where, name), f"{name} is {fields[name]!r}; write a text")
    for name in lists:
        if not isinstance(fields[name], list):
            document.fail((*where, name), f"{name} is {fields[name]!r}; write a list")
        for i, value in enumerate(fields[name]):
            if not isinstance(value, str):
                document.fail((*where, name, i), f"{name} holds {value!r}; write texts, quoted")


def check_ids(document: Document, figures: Sequence[FigurePlan], sheets: Iterable[str]) -> None:
    """Refuse repeated ids and ids with "/", since rows and file names contain them."""
    taken = "is taken, or has a '/'; choose another"
    seen: set[str] = set()
    for where in [*places(document, "tables"), *places(document, "figures")]:
        name = document.at((*where, "id"))
        if name in seen or "/" in name:
            document.fail((*where, "id"), f"the id {name!r} {taken}")
        seen.add(name)
    alone = {figure.id for figure in figures if not figure.sheet}
    for name in sheets:
        if name in alone or "/" in name:
            document.fail(("sheets", name), f"the sheet {name!r} {taken}")
        if all(figure.sheet != name for figure in figures):
            document.fail(
                ("sheets", name), f"no figure has sheet: {name}; add it, or drop the sheet"
            )
