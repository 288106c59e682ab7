"""What a paper shows and claims, as data: ``experiments/papers/<key>.yaml``.

::

    title: Learning from crowds by modeling common confusions
    citation: "Z. Chu, J. Ma, H. Wang. ... AAAI 2021."
    tables:
      - id: table1                    # rows say `table: chu2021/table1`
        title: Test accuracy on real annotations
        metric: accuracy              # or macro_f1, or the name of a measure in `extra`; of a
                                      # list, the page shows the table once a measure
        columns: [LabelMe, Music]     # rows say `column: LabelMe`
        rows: [DL-MV, CoNAL]          # labels, in the order of the page
    figures:
      - id: fig4                      # rows say `table: chu2021/fig4`
        kind: lines                   # a panel a column, a line a label, points with error bars
        title: Accuracy by proportion of common noise
        metric: accuracy
        x: data.proportion            # or estimator.params.<name>: where a row's x stands
        x_label: proportion of common noise
        x_absent: 0                   # x of rows that do not say it; optional: all say it
        columns: [asymmetric, symmetric]   # optional, as is rows
      - id: fig6
        kind: history                 # curves of what training noted, of the rows of a table
        title: Imbalance by round
        table: table1                 # of this file
        metric: imbalance             # a column of the history (`history` of a record)
        x: round                      # another; `epoch` is counted over all stages
        stage: adversarial            # only its rows, `epoch` counted in it; optional: all
        x_label: round
        columns: [LabelMe]            # panels, columns of the table; optional: all
        rows: [CoNAL]                 # lines, labels in the table; optional: all
        log: true                     # a logarithmic axis; optional: false
        levels:                       # horizontal lines, of a measure in `extra`; optional
          - {extra: gold_imbalance, label: gold labels}
      - id: fig2
        kind: profile                 # curves of vectors in `extra`, of the rows of a table
        title: Accuracy of the instances of least entropy
        table: table1                 # as in history, as are columns and rows
        metric: accumulated_accuracy  # a vector in `extra`
        x: accumulated_share          # another, of as many entries
        x_label: share of the instances
      - id: fig5
        kind: matrices                # heat maps of what a row's `extra` gives, its first seed
        title: Common confusion, true and learnt
        panels:
          - {row: conal/chu2021_synthetic, extra: true_common, title: true}
          - {row: conal/chu2021_synthetic, extra: learnt_common, title: learnt}
    claims:
      - id: decomposing-helps
        text: Decomposing noise helps where common noise exists.
        test: {kind: paired, better: conal/a, than: crowd_layer/a, by: 0.0}
      - id: recovers
        text: The learnt common matrix recovers the true one.
        test: {kind: at_most, row: conal/a, metric: common_error, value: 0.1}
      - id: grows
        text: Imbalance grows from the first round to the last.
        test: {kind: paired, better: dasc/a, at: last, than: dasc/a, than_at: first,
               metric: imbalance}
      - id: chosen
        text: The epoch chosen without gold labels is better than the last one.
        test: {kind: paired, better: conal/a, selection: chosen on held-out annotations,
               than: conal/a, than_selection: last epoch}

Tests of claims: ``paired`` (``better``, ``than``: a row, or lists of as many rows whose mean is
compared; ``by``, default 0), ``best`` (the same of one row and that of the list ``than`` with the
highest mean), ``at_most`` and ``at_least`` (``row``, ``value``), ``near`` (``row``, ``value``,
``within``), ``untestable`` (``why``). All but the last take ``metric`` (default
accuracy) and ``selection`` (default: last epoch); those of one row take ``exact: true`` where
nothing about it is random, as of facts of the data.

With ``at`` the metric is a column of the history: ``last`` or ``first`` for the last or first row
that notes it, ``{round: 3}`` for the row where another column is 3; ``stage`` beside it leaves only
that stage's rows. ``paired`` takes
``than_selection`` and ``than_at`` where they are others for ``than``: one row may be compared with
itself at another point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyhands.evidence.experiments.rows import (
    PAPERS,
    Document,
    Row,
    Where,
    did_you_mean,
    load_rows,
)
from manyhands.evidence.records.records import LAST, ORACLE, SELECTIONS, SHARES

OWN = "own"
"""Key of the page of rows that stand in no paper's table."""

_MEASURE = {"metric": "accuracy", "selection": LAST}
_POINT = {**_MEASURE, "at": None, "stage": None}
_BOUND = {**_POINT, "exact": False}

KINDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "paired": (
        ["better", "than"],
        {**_POINT, "than_selection": None, "than_at": None, "by": 0.0},
    ),
    "best": (["better", "than"], {**_MEASURE, "by": 0.0}),
    "at_most": (["row", "value"], _BOUND),
    "at_least": (["row", "value"], _BOUND),
    "near": (["row", "value", "within"], _BOUND),
    "untestable": (["why"], {}),
}
"""Kinds of tests: what each needs, and what it takes besides with its default."""

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
"""Kinds of figures, in the same way."""

CURVES = ("history", "profile")
"""Kinds of figures that draw the rows of a table."""


@dataclass(frozen=True)
class TablePlan:
    """A table of a paper: what is measured, and the order of its columns and rows (labels).

    With several measures it is shown once for each.
    """

    id: str
    title: str
    metric: str | tuple[str, ...]
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return what is measured, in the order of the page."""
        return (self.metric,) if isinstance(self.metric, str) else self.metric


@dataclass(frozen=True)
class Panel:
    """A matrix of a figure: a measure in ``extra`` of a row."""

    row: str
    extra: str
    title: str


@dataclass(frozen=True)
class Level:
    """A horizontal line of a figure: a measure in ``extra`` of the rows of a panel."""

    extra: str
    label: str


@dataclass(frozen=True)
class FigurePlan:
    """A figure of a paper, of ``kind`` lines, matrices, history or profile; see `FIGURES`."""

    id: str
    title: str
    kind: str
    metric: str
    selection: str
    x: str
    x_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    panels: tuple[Panel, ...]
    table: str = ""
    levels: tuple[Level, ...] = ()
    log: bool = False
    stage: str | None = None
    x_absent: float | None = None

    def place(self, row: Row) -> Any:
        """Return a row's value on the x axis; ``x_absent`` where it has none."""
        value: Any = {"data": row.data, "estimator": row.estimator}
        for key in self.x.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return self.x_absent if value is None else value


@dataclass(frozen=True)
class Claim:
    """What a paper claims, and how it is tested."""

    id: str
    text: str
    test: dict[str, Any]

    @property
    def rows(self) -> list[str]:
        """Ids of the rows that decide it."""
        return [name for key in _SIDES for name in row_ids(self.test.get(key, []))]


@dataclass(frozen=True)
class Paper:
    """A paper's tables, figures and claims."""

    key: str
    title: str
    citation: str
    tables: tuple[TablePlan, ...] = ()
    figures: tuple[FigurePlan, ...] = ()
    claims: tuple[Claim, ...] = ()


_SIDES = ("better", "than", "row")

ENDS = ("first", "last")
"""Rows of a history that a test names without a number."""


def load_experiments(folder: str | Path) -> tuple[list[Row], dict[str, Paper]]:
    """Load the rows and papers of a folder, and check that they fit together.

    Parameters
    ----------
    folder : str or Path
        Has ``<method>/<row>.yaml`` and ``papers/<key>.yaml``.

    Returns
    -------
    rows : list of Row
    papers : dict of str to Paper
        By key. Tables that rows name and no file describes are described by those rows.

    Raises
    ------
    RowError
        If a file is wrong, a paper names a row that is not there, or a row a table or figure that
        its paper's file lacks.
    AnnotationError
        If there is no such folder.
    """
    rows = load_rows(folder)
    known = {row.id: row for row in rows}
    papers = {
        path.stem: load_paper(path, known)
        for path in sorted((Path(folder) / PAPERS).glob("*.yaml"))
    }
    for paper in papers.values():
        _check_rows(paper, rows)
        _check_drawn(Document(Path(folder) / PAPERS / f"{paper.key}.yaml"), paper, rows)
    for key in dict.fromkeys(paper_of(row) for row in rows):
        if key not in papers:
            papers[key] = _described_by(key, [row for row in rows if paper_of(row) == key])
    return rows, papers


def paper_of(row: Row) -> str:
    """Return the key of the paper that a row stands in."""
    return table_of(row).split("/")[0]


def table_of(row: Row) -> str:
    """Return ``paper/table`` of a row; rows without one stand together, by method."""
    return row.table or f"{OWN}/{row.id.split('/')[0]}"


def column_of(row: Row) -> str:
    """Return a row's column; rows without one stand under their data's name."""
    return row.column or str(
        next(row.data[k] for k in ("name", "factory", "folder") if k in row.data)
    )


def row_ids(value: Any) -> list[str]:
    """Return the rows that one side of a comparison names."""
    return [value] if isinstance(value, str) else list(value)


def load_paper(path: str | Path, rows: Iterable[str]) -> Paper:
    """Load one paper's file and check it.

    Parameters
    ----------
    path : str or Path
    rows : iterable of str
        Ids that claims and figures may name.

    Raises
    ------
    RowError
        If the file is wrong; the message begins with the file and the line.
    """
    document, rows = Document(Path(path)), list(rows)
    fields = document.mapping(
        (), required=["title", "citation"], optional={"tables": [], "figures": [], "claims": []}
    )
    for name in ("title", "citation"):
        document.text((name,))
    tables = tuple(_read_table(document, where) for where in _places(document, "tables"))
    plans = {plan.id for plan in tables}
    figures = tuple(
        _read_figure(document, where, rows, plans) for where in _places(document, "figures")
    )
    claims = tuple(_read_claim(document, where, rows) for where in _places(document, "claims"))
    _check_ids(document)
    return Paper(Path(path).stem, fields["title"], fields["citation"], tables, figures, claims)


def _places(document: Document, *where: str | int) -> list[Where]:
    found = document.at(where)
    if found is not None:
        document.sequence(where, found, lambda place: None)
    return [(*where, i) for i in range(len(found or []))]


def _read_table(document: Document, where: Where) -> TablePlan:
    optional = {"metric": "accuracy", "columns": [], "rows": []}
    fields = document.mapping(where, required=["id", "title"], optional=optional)
    metric, several = fields["metric"], isinstance(fields["metric"], list)
    texts, lists = ["id", "title"], ["columns", "rows"]
    (lists if several else texts).append("metric")
    _check_texts(document, where, fields, texts, lists)
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


def _read_figure(
    document: Document, where: Where, rows: Sequence[str], tables: Iterable[str]
) -> FigurePlan:
    given = document.at(where)
    kind = given.get("kind") if isinstance(given, dict) else None
    if kind not in FIGURES:
        document.fail((*where, "kind"), f"kind is {kind!r}; write {' or '.join(FIGURES)}")
    if kind == "history" and "selection" in given:
        document.fail(
            (*where, "selection"),
            "a figure of kind history draws every epoch, none is chosen; leave selection out",
        )
    required, optional = FIGURES[kind]
    required = ["id", "title", "kind", *required]
    fields = document.mapping(where, required=required, optional=optional)
    texts = [name for name in (*required, "metric") if name in fields and name != "panels"]
    _check_texts(document, where, fields, texts, [name for name in _PARTS if name in fields])
    if "selection" in fields:
        _check_selection(document, (*where, "selection"), fields["selection"], SELECTIONS)
        document.check_metric((*where, "metric"), fields["metric"])
    if fields.get("x_absent") is not None:
        document.number((*where, "x_absent"), -1e300)
    if kind in CURVES:
        _check_curves(document, where, fields, tables)
    panels = tuple(
        _read_panel(document, place, rows) for place in _places(document, *where, "panels")
    )
    levels = tuple(_read_level(document, place) for place in _places(document, *where, "levels"))
    if kind == "matrices" and not panels:
        document.fail(where, "a figure of matrices needs panels; add {row, extra, title} each")
    lists = {name: tuple(fields.get(name, ())) for name in _PARTS}
    plain = {"x": "", "x_label": "", **_MEASURE, **fields}
    return FigurePlan(**{**plain, **lists, "panels": panels, "levels": levels})


def _check_curves(
    document: Document, where: Where, fields: Mapping[str, Any], tables: Iterable[str]
) -> None:
    table = fields["table"]
    if table not in tables:
        listed = f"it has {', '.join(sorted(tables))}" if tables else "it has none"
        hint = did_you_mean(table, tables)
        document.fail((*where, "table"), f"this file has no table {table!r}{hint}; {listed}")
    if not isinstance(fields.get("log", False), bool):
        document.fail((*where, "log"), f"log is {fields['log']!r}; write true or false")
    if fields.get("stage") is not None:
        _check_texts(document, where, fields, ("stage",), ())


def _read_level(document: Document, where: Where) -> Level:
    fields = document.mapping(where, required=["extra", "label"], optional={})
    _check_texts(document, where, fields, ("extra", "label"), ())
    return Level(**fields)


def _read_panel(document: Document, where: Where, rows: Sequence[str]) -> Panel:
    fields = document.mapping(where, required=["row", "extra", "title"], optional={})
    _check_texts(document, where, fields, ("row", "extra", "title"), ())
    _check_row(document, (*where, "row"), fields["row"], rows)
    return Panel(**fields)


def _read_claim(document: Document, where: Where, rows: Sequence[str]) -> Claim:
    fields = document.mapping(where, required=["id", "text", "test"], optional={})
    _check_texts(document, where, fields, ("id", "text"), ())
    inside = (*where, "test")
    given = document.at(inside)
    kind = given.get("kind") if isinstance(given, dict) else None
    if kind not in KINDS:
        document.fail(
            (*inside, "kind"), f"test is of kind {kind!r}; write one of {', '.join(KINDS)}"
        )
    required, optional = KINDS[kind]
    test = document.mapping(inside, required=["kind", *required], optional=optional)
    for name in ("by", "value", "within"):
        if name in test and name in given:
            document.number((*inside, name), 0.0 if name == "within" else -1e300)
    if "exact" in given and not isinstance(given["exact"], bool):
        document.fail((*inside, "exact"), f"exact is {given['exact']!r}; write true or false")
    for name in _SIDES:
        _check_side(document, (*inside, name), test.get(name), rows)
    if kind == "paired" and len(row_ids(test["better"])) != len(row_ids(test["than"])):
        document.fail(inside, "better and than name different numbers of rows; name as many")
    if kind == "best" and not isinstance(test["better"], str):
        document.fail((*inside, "better"), "better names several rows; name one")
    if kind == "best" and test["better"] in row_ids(test["than"]):
        document.fail((*inside, "than"), "than has better itself; leave it out")
    if "metric" in test:
        _check_measure(document, inside, test)
    return Claim(fields["id"], fields["text"], test)


def _check_measure(document: Document, where: Where, test: Mapping[str, Any]) -> None:
    """Check what is measured of the sides of a test, and when."""
    given = document.at(where)
    _check_texts(document, where, test, ("metric",), ())
    if test.get("at") is not None:
        _check_noted(document, where, test)
    elif given.get("than_at") is not None:
        document.fail(
            (*where, "than_at"), "than_at without at; add at, the row of better's history"
        )
    elif test.get("stage") is not None:
        document.fail((*where, "stage"), "stage without at; add at, a row of the history")
    else:
        document.check_metric((*where, "metric"), test["metric"])
    # A claim that only an oracle supports is not supported.
    known = [selection for selection in SELECTIONS if selection != ORACLE]
    _check_selection(document, (*where, "selection"), test["selection"], known)
    if test.get("than_selection") is not None:
        _check_selection(document, (*where, "than_selection"), test["than_selection"], known)
        if test["metric"] not in SHARES:
            document.fail(
                (*where, "than_selection"),
                f"metric is {test['metric']!r}, which is of the last epoch only; leave "
                f"than_selection out, or measure {' or '.join(SHARES)}",
            )
    first, than = (
        [test.get(f"{side}{name}") or test.get(name) for name in ("selection", "at")]
        for side in ("", "than_")
    )
    if "than" in test and row_ids(test["better"]) == row_ids(test["than"]) and first == than:
        document.fail(
            (*where, "than"),
            "better and than are the same; name another row, or another than_at or than_selection",
        )


def _check_noted(document: Document, where: Where, test: Mapping[str, Any]) -> None:
    """Check a test of a column of the history."""
    given = document.at(where)
    if "metric" not in given:
        document.fail((*where, "at"), "at without metric; add metric, a column of the history")
    for name in ("selection", "than_selection"):
        if name in given:
            document.fail(
                (*where, name), f"{name} beside at: a history has every epoch; leave one out"
            )
    for name in ("at", "than_at"):
        at = given.get(name)
        value = next(iter(at.values())) if isinstance(at, dict) and len(at) == 1 else None
        a_number = isinstance(value, int | float) and not isinstance(value, bool)
        if at not in (None, *ENDS) and not a_number:
            document.fail(
                (*where, name),
                f"{name} is {at!r}; write {', '.join(ENDS)}, or another column and its number: "
                "{round: 3}",
            )
    if test["stage"] is not None:
        _check_texts(document, where, test, ("stage",), ())


def _check_side(document: Document, where: Where, side: Any, rows: Sequence[str]) -> None:
    if isinstance(side, list):
        if not side:
            document.fail(where, f"{where[-1]} is empty; name a row")
        for i, name in enumerate(side):
            _check_row(document, (*where, i), name, rows)
    elif side is not None:
        _check_row(document, where, side, rows)


def _check_row(document: Document, where: Where, name: Any, rows: Sequence[str]) -> None:
    if name not in rows:
        hint = did_you_mean(str(name), rows)
        document.fail(where, f"there is no row {name!r}{hint}; add its file, or name another")


def _check_selection(
    document: Document, where: Where, selection: Any, known: Sequence[str]
) -> None:
    if selection not in known:
        document.fail(where, f"{where[-1]} is {selection!r}; write one of {', '.join(known)}")


def _check_texts(
    document: Document,
    where: Where,
    fields: Mapping[str, Any],
    texts: Sequence[str],
    lists: Sequence[str],
) -> None:
    for name in texts:
        if not isinstance(fields[name], str) or not fields[name].strip():
            document.fail((*where, name), f"{name} is {fields[name]!r}; write a text")
    for name in lists:
        if not isinstance(fields[name], list):
            document.fail((*where, name), f"{name} is {fields[name]!r}; write a list")
        for i, value in enumerate(fields[name]):
            if not isinstance(value, str):
                document.fail((*where, name, i), f"{name} holds {value!r}; write texts, quoted")


def _check_ids(document: Document) -> None:
    """Refuse an id twice: a row says table: paper/id, and a file is named by it."""
    seen: set[str] = set()
    for where in [*_places(document, "tables"), *_places(document, "figures")]:
        name = document.at((*where, "id"))
        if name in seen or "/" in name:
            document.fail((*where, "id"), f"the id {name!r} is taken, or has a '/'; choose another")
        seen.add(name)


def _check_rows(paper: Paper, rows: Iterable[Row]) -> None:
    """Refuse a row whose table its paper lacks, or that has no place on its figure's x axis."""
    plans: dict[str, TablePlan | FigurePlan] = {p.id: p for p in paper.tables}
    plans |= {p.id: p for p in paper.figures}
    for row in rows:
        name, _, table = (row.table or "").partition("/")
        if name != paper.key:
            continue
        document, plan = Document(Path(row.file)), plans.get(table)
        if plan is None:
            document.fail(
                ("table",),
                f"papers/{paper.key}.yaml has no table or figure {table!r}"
                f"{did_you_mean(table, plans)}; it has {', '.join(plans)}",
            )
        if isinstance(plan, FigurePlan) and plan.kind in CURVES:
            document.fail(
                ("table",),
                f"{row.table} draws the rows of a table; write table: {paper.key}/{plan.table}",
            )
        if isinstance(plan, FigurePlan) and plan.kind == "lines":
            place = plan.place(row)
            if isinstance(place, bool) or not isinstance(place, int | float):
                document.fail(
                    tuple(plan.x.split(".")),
                    f"{plan.x} is {place!r}; {row.table} needs a number there, its x",
                )


def _check_drawn(document: Document, paper: Paper, rows: Iterable[Row]) -> None:
    """Refuse a figure of a table's rows that names a column or label which the table lacks."""
    tables = {plan.id: plan for plan in paper.tables}
    for i, figure in enumerate(paper.figures):
        if figure.kind not in CURVES:
            continue
        table = tables[figure.table]
        mine = [row for row in rows if table_of(row) == f"{paper.key}/{table.id}"]
        known = {
            "columns": {*table.columns, *map(column_of, mine)},
            "rows": {*table.rows, *(row.label for row in mine)},
        }
        for part, names in known.items():
            for j, name in enumerate(getattr(figure, part)):
                if name not in names:
                    hint = did_you_mean(name, sorted(names))
                    document.fail(
                        ("figures", i, part, j),
                        f"{table.id} has no {part[:-1]} {name!r}{hint}; it has "
                        f"{', '.join(sorted(names))}",
                    )


def _described_by(key: str, rows: Sequence[Row]) -> Paper:
    """Describe the tables of rows whose paper has no file."""
    tables = dict.fromkeys(table_of(row).partition("/")[2] for row in rows)
    return Paper(
        key,
        title="Rows outside the papers' tables" if key == OWN else key,
        citation="; ".join(dict.fromkeys(row.citation for row in rows)),
        tables=tuple(TablePlan(name, name, "accuracy") for name in tables),
    )
