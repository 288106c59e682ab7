"""Reading annotations from a table, a matrix or an export of a labelling tool."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import make_vocabulary
from manyhands.annotations.label_sets import Multilabel, check_option
from manyhands.annotations.scales import Scale, read_scale
from manyhands.annotations.wide import may_be_wide, task_columns
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import find_name
from manyhands.io.exports.contract import Format
from manyhands.io.exports.documents import open_documents
from manyhands.io.exports.formats import is_paired, matching
from manyhands.io.exports.parsing import Document, columns_as_text
from manyhands.io.exports.policy import Repeats
from manyhands.io.exports.reading import Choices, items_of_table, read_documents, report_losses
from manyhands.io.exports.records import AnnotatorFrom, Asked, Export
from manyhands.io.files import PathLike, is_typed, suffix_of
from manyhands.io.frames import NO_SHEETS
from manyhands.io.long_tables import over_tasks, read_table
from manyhands.io.people import with_people
from manyhands.io.sheets import stated_of
from manyhands.io.shown import Shown, shown_beside, shown_of

_HEAD = 200
"""Number of rows that are read to see whether a file is a table or an export."""

STATED = ("encoding", "separator", "sheet")
"""Options that state what the content of a table does not show."""

TABLES = frozenset({".csv", ".tsv", ".xlsx", ".parquet", ".pq"})
"""Suffixes of tables; other files may hold tables, too, as their content shows."""


def read_annotations(
    path: PathLike | Sequence[PathLike],
    format: str = "auto",
    question: str | None = None,
    *,
    task: str | Sequence[str] = "task",
    worker: str = "worker",
    label: str = "label",
    annotators: str | Sequence[str] | None = None,
    weight: str | None = None,
    group: str | Mapping[Any, Any] | None = None,
    people: Any = None,
    classes: Any = None,
    tasks: Any = None,
    abstain: Any = None,
    skip: Any = None,
    passes: str | None = None,
    duplicates: Repeats = "auto",
    multilabel: Multilabel = "error",
    option: str | None = None,
    encoding: str | None = None,
    separator: str | None = None,
    sheet: str | None = None,
    scale: Scale | None = None,
    ordered: bool | None = None,
    mapping: Any = None,
    lowercase: bool = False,
    annotator_mapping: Any = None,
    **options: Any,
) -> AnnotationTable:
    r"""Read annotations from a table, a dense matrix, or an export of a labelling tool.

    Parameters
    ----------
    path : str, Path or sequence of these
        A long table with one row per annotation (CSV of any separator and encoding, also .gz;
        .xlsx, .parquet, .pq); a dense (n, R) matrix of integers or floats (.npy; missing: -1 or
        NaN); or an export in one of the formats of ``docs/formats.md``, as a file, a ZIP, a folder,
        or several of them.
    format : str
        "auto": recognised by content, and the choice is logged. "long": a table with one row per
        annotation. Any other name of ``docs/formats.md``: that format.
    question : str, optional
        The question to take, if a file holds several. In a long table: the column of labels, which
        ``label`` names, too; a column that says which question a row answers is not read.
    task, worker, label, weight, group, passes : str
        Names of the columns of a table; for ``group``, the annotator's family, and ``passes`` see
        `AnnotationTable.from_frame`. If the column of a default name is absent and exactly one
        column has another common name (``instance``, ``annotator``, ``user_id``, ``answer``, ...),
        that column is used, and this is logged. ``group`` may also be a dict {annotator id: family}
        for any file (``{}``: there are no families). The other names have no effect on a matrix. In
        an export, ``task`` may name the field with your own ids, such as "data.id" or "Input.id";
        default: the platform's ids. If several columns together are the id, give their names:
        ``task=["system", "doc", "seg"]``. In a wide table with the annotators' ids beside their
        labels, ``worker`` and ``label`` are patterns such as "TurkId*" and "Score*".
    people : str, Path or sequence of str, optional
        Annotators who are people, if models label, too: their names; the value of ``group`` that
        people have; or a file with people's labels, which are added (such as a spreadsheet with a
        column for each person). People are in no family; other annotators without a family become
        the family "models".
    annotators : str or sequence of str, optional
        Columns of a wide table (one row per instance) that are annotators: names, or patterns such
        as "worker_*". Default, with ``format="wide"``: they are recognised by similar names or by
        the same few values; a log message gives the reason for each other column.
    classes : sequence, optional
        All classes, in the desired order; default: those of the tool's configuration if the
        export holds it, else the labels, ordered as in `AnnotationTable.from_frame`. If these are
        names and the file holds integers, the integers are **codes** 0..C-1 into ``classes``,
        unless each of them, as text, is itself one of the names.
    tasks : sequence, optional
        All instance ids, in the order of the rows of X. If the ids are integers on one side and
        strings on the other, they are compared as strings. For a matrix: the ids of its rows.
    abstain, skip : str, int or sequence of these, optional
        Values in the label column which mean that the annotator looked but could not tell
        ("unsure"), or skipped the instance ("broken image"). The number 9 and the text "9" are the
        same. A value that does not occur is logged, or warned of if a label is similar.
    duplicates : {"auto", "error", "last", "keep"}
        How to treat repeated (instance, annotator) pairs, whether annotated or passed. "auto":
        "last" (by time) in exports, "error" in tables.
    multilabel : {"error", "join", "split", "none"}
        What to do with answers of several labels: lists, cells such as "policy;safety" (also with
        ``|``, ``,``, ``+`` or ``/``), or one row per ticked label. The order in a set never
        matters. "error": refuse them. "join": each set is one class, such as "policy + safety".
        "split": the table asks whether ``option`` was ticked, with the classes "no" and "yes".
        "none": each text is one class, whatever it contains.
    option : str, optional
        The label to ask about, with ``multilabel="split"``.
    encoding : str, optional
        Encoding of text that is neither UTF-8 nor begins with a byte order mark, such as "cp1252";
        by default it is recognised by the content, and a message names what was assumed.
    separator : str, optional
        Character between the cells of a table, or "tab"; by default the one that divides the rows
        most evenly.
    sheet : str, optional
        Name of the sheet of an Excel workbook to read, if several hold data.
    scale : {"nominal", "ordinal", "interval"}, optional
        What the labels are: names of classes, grades in their order, or numbers, which may have
        fractions. Default: as in `AnnotationTable.from_frame`. If the scale is unclear (a few
        fractions, free text, or many numbers with one annotator per instance), an error asks for
        it. `RatingMean` averages numbers; methods that choose among classes take names and grades.
    ordered : bool, optional
        True is short for ``scale="ordinal"``, False for ``scale="nominal"``.
    mapping : dict {spelling: class}, str or Path, optional
        Spellings of labels, and the class that each means; or a file of a table with the columns
        ``from`` and ``to``. Other labels stay as they are.
    lowercase : bool, default=False
        Read all labels, spellings and names of classes in lower case, without spaces around them.
    annotator_mapping : dict {name: name}, str or Path, optional
        Names of annotators, and the one name that each means; or a file of a table with the columns
        ``from`` and ``to``. Other names stay as they are.
    **options
        Further options of `read_export`.

    Returns
    -------
    AnnotationTable
        With the columns ``source`` and ``pass`` of a long table, if all their values are known to
        `AnnotationTable`. Skipped and declined tasks of an export are in ``passes``; a warning says
        what was left out.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    AnnotationError
        If the file is empty, damaged, hostile or of another format; if its encoding, separator or
        sheet is unclear, a column is missing, its last row holds totals, or it names no annotators;
        if a label is not in ``classes`` or a task not in ``tasks``; if a value is in both
        ``abstain`` and ``skip``, or is a class; if the scale of the labels is unclear; or if the
        file holds several questions, answers hold or may hold several labels, or ``option`` is
        unknown.
    MissingExtraError
        If the format needs pyarrow or openpyxl, which are in the extra 'io'.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "votes.csv")
    >>> _ = path.write_text("item,user,answer\na,007,1\nb,007,0\na,42,1\n")
    >>> table = read_annotations(path, classes=["cat", "dog"])
    >>> table.to_frame()["label"].tolist()
    ['dog', 'cat', 'dog']
    >>> table.annotators.tolist()
    ['007', '42']
    """
    table, export = read_with_account(
        path,
        format=format,
        question=question,
        task=task,
        worker=worker,
        label=label,
        annotators=annotators,
        weight=weight,
        group=group,
        people=people,
        classes=classes,
        tasks=tasks,
        abstain=abstain,
        skip=skip,
        passes=passes,
        duplicates=duplicates,
        multilabel=multilabel,
        option=option,
        encoding=encoding,
        separator=separator,
        sheet=sheet,
        scale=read_scale(scale, ordered),
        mapping=mapping,
        lowercase=lowercase,
        annotator_mapping=annotator_mapping,
        **options,
    )
    if export is not None:
        report_losses(export, path)
    return table


def _refuse_two_columns(path: PathLike | Sequence[PathLike], options: Mapping[str, Any]) -> None:
    """Refuse two columns of labels of a long table: ``question`` and ``label`` both name it."""
    question, label = options.get("question"), options.get("label", "label")
    if question is None or label in ("label", question):
        return
    first = Path(path) if isinstance(path, str | os.PathLike) else Path(next(iter(path)))
    if first.suffix.lower() not in TABLES:
        return
    documents = open_documents(first, most=200, stated=stated_of(dict(options)))
    if {question, label} <= {name for document in documents[:1] for name in document.header or ()}:
        raise AnnotationError(
            f"question={question!r} and label={label!r} both name the column of labels in a long "
            f"table; leave question={question!r} out. If this column says which question a row "
            "answers, keep the rows of one question in a file, and read each file alone. The "
            "commands judges and rank compare answers within each question (--question)"
        )


def read_with_account(
    path: PathLike | Sequence[PathLike], *, tasks: Any = None, **options: Any
) -> tuple[AnnotationTable, Export | None]:
    """Read as `read_annotations` does; return the export, too, or None for a table or matrix."""
    _refuse_two_columns(path, options)
    people = options.pop("people", None)
    if people is not None:
        table, export = read_with_account(path, tasks=tasks, **options)
        return with_people(table, people, read_with_account, options), export
    if isinstance(families := options.get("group"), Mapping):
        table, export = read_with_account(path, tasks=tasks, **(options | {"group": None}))
        names = dict(zip(table.annotators.astype(str).tolist(), table.annotators.tolist(),
                         strict=True))  # fmt: skip
        of_table = {names.get(str(who), who): family for who, family in families.items()}
        return table.with_groups(of_table), export
    columns = {name: options.pop(name, None) for name in ("weight", "group", "passes")}
    stated = stated_of(options)
    if is_plain(path, columns, options):
        own = dict(options)
        own.pop("format", None)
        question, duplicates = own.pop("question", None), own.pop("duplicates", "auto")
        if question is not None:
            own["label"] = question
        policy: Any = "error" if duplicates == "auto" else duplicates
        plain = {name: value for name, value in own.items() if name in _OWN - {*STATED}}
        plain |= {"duplicates": policy, "stated": stated}
        return read_table(_one(path), tasks=tasks, **columns, **plain), None
    for argument, name in columns.items():
        if name is not None:
            raise AnnotationError(
                f"{argument}={name!r} names a column, but only a long table has such columns; "
                "leave it out, or pass format='long'"
            )
    export = read_export(path, **options)
    if export.table is None:
        check_option(None, export.tables)
    table = export.annotations
    if not table.n_annotations and len(export.gold):
        raise AnnotationError(
            f"{path} holds gold labels, but no annotations; read_export(...).gold holds them"
        )
    if tasks is not None:
        table = over_tasks(table, make_vocabulary(tasks, "tasks"))
    return table, export


def reading_of(
    path: PathLike | Sequence[PathLike], export: Export | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Return options that name what was found in a file, so that it is read the same again.

    Parameters
    ----------
    path, options
        What `read_with_account` was given.
    export : Export or None
        What it returned.
    """
    if export is not None:
        return export.reading
    if suffix_of(_one(path)) == ".npy":
        return {}
    document, *_ = open_documents(_one(path), most=1, stated=stated_of(options))
    names = document.header or list(document.first)
    asked = ["task", "worker", *(["label"] if options.get("question") is None else [])]
    given = {argument: options.get(argument, argument) for argument in asked}
    found = {argument: find_name(names, argument, name) for argument, name in given.items()}
    return {"format": "long"} | found


def read_shown(
    path: PathLike | Sequence[PathLike], export: Export | None, **options: Any
) -> Shown | None:
    """Return what shows a person the items of annotations that were read with these options."""
    if export is not None or not isinstance(path, str | os.PathLike):
        return shown_of(export)
    stated = stated_of(options)
    keys = ("worker", "label", "question", "group")
    named = [name for key in keys if isinstance(name := options.get(key), str)]
    taken = [*named, *(name.strip() for text in named for name in text.split(","))]
    return shown_beside(_one(path), options.get("task") or "task", taken, stated)


def read_items(
    path: PathLike | Sequence[PathLike], table: AnnotationTable, **options: Any
) -> Export | None:
    """Read the items' own data beside a table read with these options; None beside a matrix."""
    options.pop("people", None)
    columns = {name: options.pop(name, None) for name in ("weight", "group", "passes")}
    if isinstance(columns["group"], Mapping):
        columns["group"] = None
    if not is_plain(path, columns, options):
        return read_export(path, **options)
    if suffix_of(_one(path)) == ".npy":
        return None
    defaults = {"question": None, "task": "task", "worker": "worker", "label": "label"}
    named = {k: options[k] for k, default in defaults.items() if options.get(k, default) != default}
    asked = Asked(**named, stated=stated_of(options))
    return items_of_table(_one(path), asked, table.instances)


def read_export(
    path: PathLike | Sequence[PathLike],
    format: str = "auto",
    question: str | None = None,
    *,
    task: str | Sequence[str] = "task",
    worker: str = "worker",
    label: str = "label",
    annotators: str | Sequence[str] | None = None,
    classes: Any = None,
    abstain: Any = None,
    skip: Any = None,
    duplicates: Repeats = "auto",
    scale: Scale | None = None,
    ordered: bool | None = None,
    mapping: Any = None,
    lowercase: bool = False,
    annotator_mapping: Any = None,
    multilabel: Multilabel = "error",
    option: str | None = None,
    empty: bool = False,
    items: str | None = None,
    fields: Sequence[str] = (),
    drop_rejected: bool = False,
    predictions_as_annotators: bool = False,
    annotator_from: AnnotatorFrom | None = None,
    anonymise: bool = False,
    label_config: PathLike | None = None,
    encoding: str | None = None,
    separator: str | None = None,
    sheet: str | None = None,
) -> Export:
    r"""Read an export with its gold labels, items and times, and a list of what was left out.

    Personal data (addresses, places, names of people who did not annotate) are never read.

    Parameters
    ----------
    path, format, question, task, worker, label, annotators, classes, abstain, skip, duplicates
        As in `read_annotations`; so are ``encoding``, ``separator`` and ``sheet``.
    scale, ordered, mapping, lowercase, annotator_mapping
        As in `read_annotations`.
    multilabel : {"error", "join", "split", "none"}
        As in `read_annotations`. "split" without an ``option`` makes one table of "no" and "yes"
        per label, in ``tables``.
    option : str, optional
        The label to ask about; ``annotations`` is its table, and ``gold`` says where it applies.
    empty : bool
        With ``multilabel="split"``: whether an answer without a label says that none applies.
        Otherwise such an answer is left out, or an abstention if the tool submits it as an answer.
    items : str, optional
        For MTurk, a pattern such as ``_(\d+)$`` of the columns that belong to one of a HIT's items.
    fields : sequence of str
        Columns of a long table to keep in ``items``, besides "text", "image" and the like.
    drop_rejected : bool
        Leave out work that the requester rejected; it is kept by default.
    predictions_as_annotators : bool
        For Label Studio, also read the predictions of models as annotations, by annotators named
        "model:<version>". They are one family, "models" (`AnnotationTable.with_groups`), because
        models tend to share mistakes.
    annotator_from : {"file", "folder", "sheet"}, optional
        Each file (or folder or archive, or sheet of a workbook) holds the work of one annotator,
        who is named after it. Tables then need no column of annotators, and the columns of ids and
        labels are found by their values unless ``task`` and ``label`` name them.
    anonymise : bool
        Rename annotators to w001, w002, ... in order of appearance.
    label_config : str or Path, optional
        Label Studio's labelling configuration (XML), which holds the order of the classes.

    Returns
    -------
    Export
        ``.annotations``, ``.gold``, ``.items``, ``.left_out``, ``.notes``, ``.seconds``, ...

    Raises
    ------
    FileNotFoundError, AnnotationError, MissingExtraError
        As in `read_annotations`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "batch.csv")
    >>> _ = path.write_text(
    ...     "HITId,WorkerId,Input.text,Answer.mood\nh1,w1,Fine.,good\nh1,w2,Fine.,\n"
    ... )
    >>> export = read_export(path)
    >>> export.format, export.question, export.annotations.abstentions.tolist()
    ('mturk', 'mood', [[0, 1]])
    >>> export.items.columns["text"]
    ['Fine.']
    """
    asked, choices = requested(
        question=question,
        task=task,
        worker=worker,
        label=label,
        annotators=annotators,
        classes=classes,
        abstain=abstain,
        skip=skip,
        duplicates=duplicates,
        scale=read_scale(scale, ordered),
        mapping=mapping,
        lowercase=lowercase,
        annotator_mapping=annotator_mapping,
        multilabel=multilabel,
        option=option,
        empty=empty,
        items=items,
        fields=fields,
        drop_rejected=drop_rejected,
        predictions_as_annotators=predictions_as_annotators,
        annotator_from=annotator_from,
        anonymise=anonymise,
        label_config=label_config,
        encoding=encoding,
        separator=separator,
        sheet=sheet,
    )
    return read_documents(path, format, asked, choices)


def requested(**options: Any) -> tuple[Asked, Choices]:
    """Divide the options of `read_export` into those for readers and those for what was read.

    Raises
    ------
    AnnotationError
        If a switch is neither True nor False.
    TypeError
        If an option is unknown.
    """
    for name in ("drop_rejected", "empty", "predictions_as_annotators", "anonymise"):
        if not isinstance(options.get(name, False), bool):
            raise AnnotationError(f"{name}={options[name]!r} is neither True nor False; give one")
    source = options.get("annotator_from")
    if source not in (None, *get_args(AnnotatorFrom)):
        known = ", ".join(map(repr, get_args(AnnotatorFrom)))
        raise AnnotationError(f"annotator_from={source!r} is unknown; use one of {known}")
    for name in ("task", "worker", "label"):
        if options.get(name) == name:  # A default name; the file need not have such a column.
            options[name] = None
    stated = replace(stated_of(options), every_sheet=source == "sheet")
    options = {name: value for name, value in options.items() if name not in STATED}
    asked = {each.name: options[each.name] for each in fields_of(Asked) if each.name in options}
    asked["fields"] = tuple(asked.get("fields", ()))
    shared = ("task", "classes", "annotator_from")
    choices = {k: value for k, value in options.items() if k not in asked or k in shared}
    return Asked(**asked, stated=stated), Choices(**choices)


_OWN = frozenset(
    {
        *("format", "question", "task", "worker", "label", "classes", "abstain", "skip"),
        *("duplicates", "multilabel", "option", "scale", "mapping", "lowercase"),
        "annotator_mapping",
        *STATED,
    }
)
"""Options of `read_export` that also apply to tables."""


def is_wide_reading(options: dict[str, Any]) -> bool:
    """Return whether options describe a table with one row per instance."""
    paired = is_paired(options.get("worker"), options.get("label"))
    return options.get("format") == "wide" or options.get("annotators") is not None or paired


def is_plain(
    path: PathLike | Sequence[PathLike], columns: dict[str, Any], options: dict[str, Any]
) -> bool:
    """Return whether a path is a long table or a matrix, rather than an export."""
    format = options.get("format", "auto")
    only_exports = any(value for name, value in options.items() if name not in _OWN)
    if not isinstance(path, str | os.PathLike) or only_exports or format not in ("auto", "long"):
        return False
    path = _one(path)
    suffix = suffix_of(path)
    if path.is_dir():
        return False
    if is_paired(options.get("worker"), options.get("label")):
        return False
    by_hand = any(options.get(name, name) != name for name in ("worker", "label"))
    by_hand = by_hand or any(name is not None for name in columns.values())
    if suffix == ".npy" or not path.exists():
        return suffix not in NO_SHEETS or suffix == ".npy"
    try:
        document, *others = open_documents(path, most=_HEAD, stated=stated_of(options))
    except AnnotationError:
        return suffix in TABLES  # The reader of tables says what is wrong with the file.
    if others or not (document.kind == "table" or is_typed(path)):
        return suffix in TABLES and document.kind == "other"
    if format == "long" or by_hand:
        return True
    forms = matching(document)
    if forms and forms[0].name == "long" and forms[0].is_sure(document):
        return True
    named = _is_named(options.get("task", ""), document, forms)
    if not forms or not forms[0].is_sure(document):
        return named or (not (forms or _may_be_wide(document)) and suffix in TABLES)
    return named


def _may_be_wide(document: Document) -> bool:
    """Return whether columns may be annotators, and no column names the annotators."""
    header = document.header
    if len(set(header)) < max(len(header), 3):
        return False
    worker, label = (find_name(header, name, name) in header for name in ("worker", "label"))
    return not worker and (not label or may_be_wide(columns_as_text(document)))


def is_export(path: PathLike) -> bool:
    """Return whether a file or folder is certainly the export of a tool."""
    if suffix_of(_one(path)) in (".npy", ".npz", ".parquet", ".pq") and not _one(path).is_dir():
        return False
    try:
        forms = [form for d in open_documents(path, most=_HEAD) for form in matching(d)[:1]]
    except AnnotationError:
        return False
    return any(form.sure and not form.is_layout for form in forms)


def _is_named(task: str | Sequence[str], document: Document, forms: Iterable[Format]) -> bool:
    """Return whether the columns named by options make a table a long one."""
    header = document.header
    if any(form.is_sure(document) for form in forms):
        return False
    return set(task_columns(task, header)) <= set(header) and (
        find_name(header, "worker", "worker") in header
    )


def _one(path: PathLike | Sequence[PathLike]) -> Path:
    return Path(str(path))
