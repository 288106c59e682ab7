"""Loading experiment files: one per paper with all its rows, or one per single row.

::

    title: "CoNAL: learning from crowds by modelling common confusions"
    citation: "Z. Chu, J. Ma, H. Wang. ... AAAI 2021."
    let: {...}        # named values; see `evidence.experiments.expansion`
    instead_of_auto: {scaling: standard}  # see `without_auto`
    tables: [...]     # with their rows; see `evidence.experiments.rows`
    figures: [...]    # see `evidence.experiments.papers`
    sheets: {...}     # titles of drawings that several figures share
    main: [...]       # tables that the opening page shows in brief
    about: ...        # what the names on the pages mean
    questions: {...}  # what claims say
    rows: [...]       # rows that no table describes
    claims: [...]     # see `evidence.experiments.papers`

This is ``<paper>.yaml``. A file without title, tables, figures, rows and claims is a single row,
``<method>/<row>.yaml``; without an ``id``, its id is ``<method>/<row>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from evidence.experiments.expansion import Expander, Scope
from evidence.experiments.nodes import Document, Node, fail, read_yaml
from evidence.experiments.papers import (
    CURVES,
    OWN,
    FigurePlan,
    Paper,
    TablePlan,
    check_ids,
    check_known,
    check_texts,
    column_of,
    paper_of,
    places,
    read_claim,
    read_figure,
    read_table,
    table_of,
)
from evidence.experiments.rows import (
    ROW,
    Row,
    has_parameter,
    plan_of,
    read_row,
    row_of,
    rows_of_table,
    without_auto,
)
from evidence.objects import did_you_mean
from manyhands.exceptions import AnnotationError

_PARTS = ("tables", "figures", "rows", "claims")
_OPENING = ("main", "about", "questions")
_PAPER = ("title", "citation", "unavailable", "sheets", "instead_of_auto", *_OPENING, *_PARTS)
_OF_PAPERS = ("title", *_PARTS)
"""Keys that no row has: a file with one of them describes a paper."""

_Rows = list[tuple[Row, Document]]


def load_experiments(folder: str | Path) -> tuple[list[Row], dict[str, Paper]]:
    """Load the rows and papers of a folder, and check that they fit together.

    Parameters
    ----------
    folder : str or Path
        Has ``<paper>.yaml``, and files of single rows: ``<method>/<row>.yaml``.

    Returns
    -------
    rows : list of Row
        In the order of their ids.
    papers : dict of str to Paper
        By key. A table that rows name but no file describes is built from these rows.

    Raises
    ------
    RowError
        If a file is wrong, if a paper names a row that does not exist, or if a row names a table or
        figure that its paper's file lacks.
    AnnotationError
        If there is no such folder.
    """
    read = _read_folder(Path(folder))
    every = _every_row(read)
    rows = [row for row, _ in every]
    known = [row.id for row in rows]
    papers = {}
    for path, (_, document) in read.items():
        if document is not None:
            papers[path.stem] = paper = _read_paper(document, known)
            _check_rows(paper, every)
            _check_drawn(document, paper, rows)
    for key in dict.fromkeys(paper_of(row) for row in rows):
        if key not in papers:
            papers[key] = _described_by(key, [row for row in rows if paper_of(row) == key])
    return rows, papers


def load_rows(folder: str | Path) -> list[Row]:
    """Load every row of a folder, in the order of their ids.

    Raises
    ------
    AnnotationError
        If there is no such folder.
    RowError
        For the first row that cannot be run as it is written.
    """
    return [row for row, _ in _every_row(_read_folder(Path(folder)))]


def load_row(path: str | Path) -> Row:
    """Load the row of a file that has one, and check it without training.

    Raises
    ------
    RowError
        If the row cannot be run as it is written, or the file has several.
    FileNotFoundError
        If there is no such file.
    MissingExtraError
        Without PyYAML.
    """
    rows, _ = _read_file(Path(path))
    if len(rows) != 1:
        fail(Path(path), 1, f"this file has {len(rows)} rows; load them with load_rows")
    return rows[0][0]


def load_paper(path: str | Path, rows: Iterable[str] = ()) -> Paper:
    """Load one paper and check it.

    Parameters
    ----------
    path : str or Path
    rows : iterable of str
        Ids that claims and figures may name in addition to those of the file's own rows.

    Raises
    ------
    RowError
        If the file is wrong; the message begins with the file and the line.
    """
    own, document = _read_file(Path(path))
    if document is None:
        fail(Path(path), 1, "this file is a row's, not a paper's; add a title")
    return _read_paper(document, [*rows, *(row.id for row, _ in own)])


def _read_folder(folder: Path) -> dict[Path, tuple[_Rows, Document | None]]:
    if not folder.is_dir():
        raise AnnotationError(
            f"experiments={str(folder)!r} is not a folder; give the one with the rows' YAML files"
        )
    paths = [*sorted(folder.glob("*.yaml")), *sorted(folder.glob("*/*.yaml"))]
    return {path: _read_file(path) for path in paths}


def _every_row(read: dict[Path, tuple[_Rows, Document | None]]) -> _Rows:
    """Return the rows of all files by id; refuse one id twice."""
    found: dict[str, tuple[Row, Document]] = {}
    for rows, _ in read.values():
        for row, document in rows:
            if row.id in found:
                other = found[row.id][0].file
                document.fail(("id",), f"the id {row.id!r} is taken in {other}; choose another")
            found[row.id] = row, document
    return [found[name] for name in sorted(found)]


def _read_file(path: Path) -> tuple[_Rows, Document | None]:
    """Return the rows of a file, and its description of a paper (None for a single row)."""
    top = read_yaml(path)
    expander = Expander(path)
    if not isinstance(top.value, dict) or not any(key in top.value for key in _OF_PAPERS):
        return [_single_row(expander, top)], None
    scope = expander.scope_of(top, Scope({}))
    fields = expander.fields(top, scope)
    parts = {
        name: list(_items(expander, fields.get(name, Node([], top.line)), scope)) for name in _PARTS
    }
    nodes = [
        row
        for name in ("tables", "figures")
        for item, inner in parts[name]
        for row in rows_of_table(expander, item, inner)
    ]
    for item, inner in parts["rows"]:
        own = expander.fields(item, inner)
        nodes.append(row_of(expander, own, Scope(own, inner), item.line))
    plans = {
        name: [plan_of(expander, item, inner) for item, inner in parts[name]]
        for name in ("tables", "figures")
    }
    claims = [expander.expand(item, inner) for item, inner in parts["claims"]]
    paper = {
        **{
            k: expander.expand(v, scope)
            for k, v in fields.items()
            if k not in (*_PARTS, "instead_of_auto")
        },
        **{name: Node(found, top.line) for name, found in plans.items()},
        "claims": Node(claims, top.line),
    }
    expander.check_used([*ROW, *_PAPER])
    fixed = expander.mapping(fields.get("instead_of_auto", Node({}, top.line)), scope)
    fixed = {name: expander.expand(node, scope) for name, node in fixed.items()}
    rows = [_row(path, node, fields, fixed) for node in nodes]
    for name, value in fixed.items():
        if not any(has_parameter(row.estimator, name) for row, _ in rows):
            expander.fail(value, f"no estimator of the file has a parameter {name!r}")
    return rows, Document(path, Node(paper, top.line), subject="a paper")


def _items(expander: Expander, node: Node, scope: Scope) -> Iterable[tuple[Node, Scope]]:
    """Yield the mappings of what must be a list of mappings, each with its scope."""
    listed, within = expander.head(node, scope)
    if listed.value is None:
        return
    if not isinstance(listed.value, list):
        expander.fail(node, f"{node.plain()!r} is not a list of mappings; write one")
    for item, inner in expander.items(listed, within):
        if not isinstance(item.value, dict):
            expander.fail(item, f"{item.plain()!r} is not a mapping; write keys and values")
        yield item, expander.scope_of(item, inner)


def _row(
    path: Path, node: Node, paper: dict[str, Node], fixed: dict[str, Node]
) -> tuple[Row, Document]:
    """Check a row of a paper; without a citation, it gets that of the paper."""
    citation = {"citation": paper["citation"]} if "citation" in paper else {}
    node = Node({**citation, **node.value}, node.line)
    if fixed and "estimator" in node.value:
        estimator = without_auto(node.value["estimator"], fixed, path.parent)
        node = Node({**node.value, "estimator": estimator}, node.line)
    of = f" (row {node.value['id'].plain()})" if "id" in node.value else ""
    return read_row(path, node, of)


def _single_row(expander: Expander, node: Node) -> tuple[Row, Document]:
    path = expander.path
    node = expander.expand(node, Scope({}))
    if isinstance(node.value, dict):
        # Resolved, because the parent of a relative path such as row.yaml has no name.
        name = f"{path.resolve().parent.name}/{path.stem}"
        node = Node({"id": Node(name, 1), **node.value}, node.line)
    return read_row(path, node)


def _read_paper(document: Document, rows: Sequence[str]) -> Paper:
    fields = document.mapping(
        (),
        required=["title", "citation"],
        optional={
            "tables": [],
            "figures": [],
            "sheets": {},
            "claims": [],
            "unavailable": {},
            "main": [],
            "about": "",
            "questions": {},
        },
    )
    for name in ("title", "citation"):
        document.text((name,))
    for name, form in (
        ("unavailable", "name: reason"),
        ("sheets", "id: title"),
        ("questions", "words: pattern"),
    ):
        if not isinstance(fields[name], dict):
            document.fail((name,), f"{name} is {fields[name]!r}; write {form}")
        check_texts(document, (name,), fields[name], list(fields[name]), ())
    tables = tuple(read_table(document, where) for where in places(document, "tables"))
    plans = {plan.id for plan in tables}
    figures = tuple(
        read_figure(document, where, rows, plans, fields["sheets"])
        for where in places(document, "figures")
    )
    claims = tuple(read_claim(document, where, rows) for where in places(document, "claims"))
    check_ids(document, figures, fields["sheets"])
    check_texts(document, (), {"about": fields["about"] or "-"}, ["about"], ())
    check_texts(document, (), fields, (), ["main"])
    for i, name in enumerate(fields["main"]):
        check_known(document, ("main", i), name, plans)
    named = ("title", "citation", "unavailable", "sheets", "about", "questions")
    own = {name: fields[name] for name in named} | {"main": tuple(fields["main"])}
    return Paper(document.path.stem, **own, tables=tables, figures=figures, claims=claims)


def _check_rows(paper: Paper, rows: Iterable[tuple[Row, Document]]) -> None:
    """Refuse a row whose table its paper lacks, or that has no number on its figure's x axis."""
    plans: dict[str, TablePlan | FigurePlan] = {p.id: p for p in paper.tables}
    plans |= {p.id: p for p in paper.figures}
    for row, document in rows:
        name, _, table = (row.table or "").partition("/")
        if name != paper.key:
            continue
        plan = plans.get(table)
        if plan is None:
            document.fail(
                ("table",),
                f"{paper.key}.yaml has no table or figure {table!r}"
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
    """Refuse a figure of a table's rows that names a column or label that the table lacks."""
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
    """Make a paper from rows whose paper has no file."""
    tables = dict.fromkeys(table_of(row).partition("/")[2] for row in rows)
    return Paper(
        key,
        title="Rows outside the papers' tables" if key == OWN else key,
        citation="; ".join(dict.fromkeys(row.citation for row in rows)),
        tables=tuple(TablePlan(name, name, "accuracy") for name in tables),
    )
