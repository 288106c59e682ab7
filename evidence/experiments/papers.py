"""A paper's tables, figures and claims: what its file says of them, read and checked.

Tables and figures are described so::

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
    main: [table1]                    # tables that the opening page has in brief; optional
    about: "*DL-MV* is a network on majority votes."    # Markdown; optional
    questions:                        # optional: what claims say -> the beginning of their ids
      common noise helps: decomposing|strong

`evidence.experiments.rows` says how a table describes its rows.

`evidence.pages.verdicts` judges the claims::

    claims:
      - id: decomposing-helps
        text: Decomposing noise helps where common noise exists.
        origin: paper                 # whose claim it is; see `ORIGINS`
        test: {kind: paired, better: conal/a, than: crowd_layer/a, by: 0.0}
      - id: recovers
        text: The learnt common matrix is that of the crowd, entry by entry.
        origin: ours
        test: {kind: at_most, row: conal/a, metric: common_error, value: 0.1}
      - id: grows
        text: Imbalance grows from the first round to the last.
        origin: variant
        test: {kind: paired, better: dasc/a, at: last, than: dasc/a, than_at: first,
               metric: imbalance}
      - id: chosen
        text: The epoch chosen without gold labels is better than the last one.
        origin: ours
        test: {kind: paired, better: conal/a, selection: chosen on held-out annotations,
               than: conal/a, than_selection: last epoch}

Kinds of tests: ``paired`` (``better``, ``than``: a row each, or lists of equally many rows whose
means are compared; ``by``, default 0), ``best`` (compares one row with the row of the list ``than``
that has the highest mean), ``at_most`` and ``at_least`` (``row``, ``value``), ``near`` (``row``,
``value``, ``within``), and ``untestable`` (``why``). All but the last take ``metric`` (default:
accuracy) and ``selection`` (default: last epoch). Tests of one row take ``exact: true`` if nothing
in the figure is random, such as a fact of the data.

With ``at``, the metric is a column of the history: ``last`` or ``first`` is the last or first row
that has a value, ``{round: 3}`` the row where the column ``round`` is 3. ``stage`` restricts this
to the rows of one stage. ``paired`` takes ``than_metric``, ``than_selection`` and ``than_at`` if
they differ for ``than``, so a row can be compared with itself by another measure or at another
point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evidence.experiments.checks import WAYS
from evidence.experiments.nodes import Document, Where
from evidence.experiments.rows import Row
from evidence.objects import did_you_mean
from evidence.records import LAST, ORACLE, SELECTIONS, SHARES

OWN = "own"
"""Key of the page for rows that are in no paper's table."""

CURVES = ("history", "profile")
"""Kinds of figures that draw the rows of a table."""

SIDES = ("better", "than", "row")
"""Fields of a test that name rows."""

ORIGINS = {"paper": "the paper's", "variant": "a variant", "ours": "ours"}
"""Whose a claim is, as its file says it -> as pages say it.

``paper``: the paper's claim, on its data, about its method or its baselines. ``variant``: the
paper's claim on another data set or a stand-in, about a variant of the method, under a further
protocol or reading, or in another form. ``ours``: what the library asks or aims at.
"""

ENDS = ("first", "last")
"""Rows of a history that a test can name without a number."""


@dataclass(frozen=True)
class TablePlan:
    """A table of a paper: what is measured, and the order of its columns and rows (labels).

    A table with several measures is shown once per measure.
    """

    id: str
    title: str
    metric: str | tuple[str, ...]
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The measures, in the order of the page."""
        return (self.metric,) if isinstance(self.metric, str) else self.metric


@dataclass(frozen=True)
class Panel:
    """One matrix of a figure: a measure in a row's ``extra``."""

    row: str
    extra: str
    title: str


@dataclass(frozen=True)
class Level:
    """A horizontal line of a figure: a measure in ``extra`` of a panel's rows."""

    extra: str
    label: str


@dataclass(frozen=True)
class FigurePlan:
    """A figure of a paper; its ``kind`` is lines, matrices, history or profile.

    Figures of one ``sheet`` are drawn in one file. See `evidence.experiments.papers`.
    """

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
    sheet: str = ""

    def place(self, row: Row) -> Any:
        """Return a row's value on the x axis, or ``x_absent`` if the row has none."""
        value: Any = {"data": row.data, "estimator": row.estimator}
        for key in self.x.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return self.x_absent if value is None else value


@dataclass(frozen=True)
class Claim:
    """A claim: its statement, whose it is (see `ORIGINS`), and how it is tested."""

    id: str
    text: str
    origin: str
    test: dict[str, Any]

    @property
    def rows(self) -> list[str]:
        """Ids of the rows that the test compares."""
        return [name for key in SIDES for name in row_ids(self.test.get(key, []))]


@dataclass(frozen=True)
class Paper:
    """A paper's tables, figures and claims.

    ``unavailable``: what nobody can run, and why. ``sheets``: titles of drawings that several
    figures share. ``main``: the tables that the opening page shows in brief; default: the first.
    ``about``: what the names on the pages mean, in Markdown. ``questions``: what claims say -> the
    beginning of their ids, as a pattern; the first that fits counts.
    """

    key: str
    title: str
    citation: str
    tables: tuple[TablePlan, ...] = ()
    figures: tuple[FigurePlan, ...] = ()
    claims: tuple[Claim, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    sheets: Mapping[str, str] = field(default_factory=dict)
    main: tuple[str, ...] = ()
    about: str = ""
    questions: Mapping[str, str] = field(default_factory=dict)


def paper_of(row: Row) -> str:
    """Return the key of the paper that a row belongs to."""
    return table_of(row).split("/")[0]


def table_of(row: Row) -> str:
    """Return ``paper/table`` of a row; rows without a table are grouped by method."""
    return row.table or f"{OWN}/{row.id.split('/')[0]}"


def column_of(row: Row) -> str:
    """Return a row's column; for a row without one, the name of its data."""
    return row.column or str(next(row.data[k] for k in WAYS if k in row.data))


def row_ids(value: Any) -> list[str]:
    """Return the rows that one side of a comparison names."""
    return [value] if isinstance(value, str) else list(value)


# -- reading tables and figures --------------------------------------------------------------------


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
        check_known(document, (*where, "sheet"), fields["sheet"], sheets)
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
    check_known(document, (*where, "table"), fields["table"], tables)
    if not isinstance(fields.get("log", False), bool):
        document.fail((*where, "log"), f"log is {fields['log']!r}; write true or false")
    if fields.get("stage") is not None:
        check_texts(document, where, fields, ("stage",), ())


def check_known(document: Document, where: Where, name: str, known: Iterable[str]) -> None:
    """Refuse the name of a table or sheet that the file lacks."""
    if name not in known:
        listed = f"it has {', '.join(sorted(known))}" if known else "it has none"
        hint = did_you_mean(str(name), known)
        what = "table" if where[0] == "main" else where[-1]
        document.fail(where, f"this file has no {what} {name!r}{hint}; {listed}")


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


# -- reading claims --------------------------------------------------------------------------------


_POINT = {**_MEASURE, "at": None, "stage": None}
_BOUND = {**_POINT, "exact": False}

KINDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "paired": (
        ["better", "than"],
        {**_POINT, "than_metric": None, "than_selection": None, "than_at": None, "by": 0.0},
    ),
    "best": (["better", "than"], {**_MEASURE, "by": 0.0}),
    "at_most": (["row", "value"], _BOUND),
    "at_least": (["row", "value"], _BOUND),
    "near": (["row", "value", "within"], _BOUND),
    "untestable": (["why"], {}),
}
"""Kind of test -> its required fields, and its optional fields with their defaults."""


def read_claim(document: Document, where: Where, rows: Sequence[str]) -> Claim:
    """Read and check a claim; ``rows`` are the ids that it may name."""
    fields = document.mapping(where, required=["id", "text", "origin", "test"], optional={})
    check_texts(document, where, fields, ("id", "text", "origin"), ())
    if fields["origin"] not in ORIGINS:
        document.fail(
            (*where, "origin"),
            f"origin is {fields['origin']!r}; write whose the claim is: {', '.join(ORIGINS)}",
        )
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
    for name in SIDES:
        _check_side(document, (*inside, name), test.get(name), rows)
    if kind == "paired" and len(row_ids(test["better"])) != len(row_ids(test["than"])):
        document.fail(inside, "better and than name different numbers of rows; name equally many")
    if kind == "best" and not isinstance(test["better"], str):
        document.fail((*inside, "better"), "better names several rows; name one")
    if kind == "best" and test["better"] in row_ids(test["than"]):
        document.fail((*inside, "than"), "than contains the row of better; leave it out")
    if "metric" in test:
        _check_measure(document, inside, test)
    return Claim(fields["id"], fields["text"], fields["origin"], test)


def _check_measure(document: Document, where: Where, test: Mapping[str, Any]) -> None:
    """Check what a test measures on its sides, and at which point."""
    given = document.at(where)
    check_texts(document, where, test, ("metric",), ())
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
    if test.get("than_metric") is not None:
        check_texts(document, where, test, ("than_metric",), ())
        if test["at"] is None:
            document.check_metric((*where, "than_metric"), test["than_metric"])
    # A claim that only an oracle supports is not supported.
    known = [name for name in SELECTIONS if name != ORACLE]
    check_selection(document, (*where, "selection"), test["selection"], known)
    if test.get("than_selection") is not None:
        check_selection(document, (*where, "than_selection"), test["than_selection"], known)
        if test["metric"] not in SHARES:
            document.fail(
                (*where, "than_selection"),
                f"metric is {test['metric']!r}, which exists for the last epoch only; leave "
                f"than_selection out, or measure {' or '.join(SHARES)}",
            )
    first, than = (
        [test.get(f"{side}{name}") or test.get(name) for name in ("metric", "selection", "at")]
        for side in ("", "than_")
    )
    if "than" in test and row_ids(test["better"]) == row_ids(test["than"]) and first == than:
        document.fail(
            (*where, "than"),
            "better and than are the same; name another row, or another than_metric, than_at or "
            "than_selection",
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
        check_texts(document, where, test, ("stage",), ())


def _check_side(document: Document, where: Where, side: Any, rows: Sequence[str]) -> None:
    if isinstance(side, list):
        if not side:
            document.fail(where, f"{where[-1]} is empty; name a row")
        for i, name in enumerate(side):
            check_row_id(document, (*where, i), name, rows)
    elif side is not None:
        check_row_id(document, where, side, rows)
