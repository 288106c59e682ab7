"""Annotations from a table, a matrix or an export of a labelling tool."""

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
"""Rows by which a table is told from an export."""

STATED = ("encoding", "separator", "sheet")
"""Options that state what tables do not say of themselves."""

TABLES = frozenset({".csv", ".tsv", ".xlsx", ".parquet", ".pq"})
"""Suffixes of tables; others hold tables, too, if their content says so."""


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
        A long table with one row per annotation (CSV of any separator and encoding, .gz, too;
        .xlsx, .parquet, .pq), a dense (n, R) matrix of integers or floats (.npy; missing: -1 or
        NaN), or an export of one of the formats in ``docs/formats.md``: a file, a ZIP, a folder,
        or several of them.
    format : str
        "auto": recognised by content, and the choice is logged. "long": a table with one row per
        annotation. Any other name of ``docs/formats.md``: that format.
    question : str, optional
        The question to take, if a file holds several. In a long table: the column of labels.
    task, worker, label, weight, group, passes : str
        Names of the columns of a table (``group``, the annotator's family, and ``passes``: see
        `AnnotationTable.from_frame`). If a default name is absent and exactly one column has
        another common name (``instance``, ``annotator``, ``user_id``, ``answer``, ...), that
        column is used and the choice is logged. ``group`` needs a long table, or may be a dict
        {annotator id: family} with any file (``{}``: there are no families); the others have no
        effect on a matrix. In an export, ``task`` may name the field with your own ids, such as
        "data.id" or "Input.id"; default: the platform's ids. If several columns together are the
        id, give their names: ``task=["system", "doc", "seg"]``. In a wide table with the
        annotators' ids beside their labels, ``worker`` and ``label`` are patterns such as
        "TurkId*" and "Score*".
    people : str, Path or sequence of str, optional
        Who is a person where models label, too: names of annotators, a family of ``group`` that is
        none, or a file with labels of people, who join (a spreadsheet with a column for each, say).
        People are in no family; others whom ``group`` puts into none are the family "models".
    annotators : str or sequence of str, optional
        Columns of a wide table (one row per instance) that are annotators: names, or patterns such
        as "worker_*". Default, with ``format="wide"``: they are recognised, by their names or as
        the columns that share one small vocabulary, and the other columns are named with the
        reason.
    classes : sequence, optional
        All classes, in the desired order; default: those of the tool's configuration if the
        export holds it, else the labels, ordered as in `AnnotationTable.from_frame`. If these are
        names and the file holds integers, the integers are **codes** 0..C-1 into ``classes``,
        unless each of them, as text, is itself one of the names.
    tasks : sequence, optional
        All instance ids, in the order of the rows of X. If the ids are integers on one side and
        strings on the other, they are compared as strings. For a matrix: the ids of its rows.
    abstain, skip : str, int or sequence of these, optional
        Values in the label column which mean that the annotator looked but declined to choose
        ("unsure"), or skipped the instance ("broken image"). A number and its digits are the same,
        and a warning names a value that no label is.
    duplicates : {"auto", "error", "last", "keep"}
        How to treat repeated (instance, annotator) pairs, whether annotated or passed. "auto":
        "last" (by time) in exports, "error" in tables.
    multilabel : {"error", "join", "split", "none"}
        What to do with answers of several labels: lists, cells such as "policy;safety" (also with
        ``|``, ``,``, ``+`` or ``/``), or one row per ticked label. The order in a set never
        matters. "error": refuse them. "join": each set is one class, such as "policy + safety".
        "split": the table of the question whether ``option`` was ticked, with the classes "no" and
        "yes". "none": each text is one class, whatever it contains.
    option : str, optional
        The label to split by.
    encoding : str, optional
        Encoding of text that is neither UTF-8 nor begins with a byte order mark, such as "cp1252";
        by default it is told from the content, and a message names what was assumed.
    separator : str, optional
        Character between the cells of a table, or "tab"; by default the one that cuts the rows
        most evenly.
    sheet : str, optional
        Name of the sheet of an Excel workbook, if several hold data.
    scale : {"nominal", "ordinal", "interval"}, optional
        What the labels are: names of classes, grades in their order, or numbers, which may have
        fractions. Default: as in `AnnotationTable.from_frame`; where it cannot be told (a few
        fractions, free text, many numbers without two annotators of an instance), labels are
        refused, and the error asks for ``scale``. `RatingMean` averages numbers; methods that
        choose among classes take names and grades.
    ordered : bool, optional
        True is short for ``scale="ordinal"``, False for ``scale="nominal"``.
    mapping : dict {spelling: class}, str or Path, optional
        Spellings of labels, and the class that each means; or a table with the columns ``from`` and
        ``to``. Other labels stay as they are.
    lowercase : bool, default=False
        Read all labels, spellings and names of classes in lower case, without spaces around them.
    annotator_mapping : dict {name: name}, str or Path, optional
        Names of annotators, and the one name that each means; or a table with the columns ``from``
        and ``to``. Other names stay as they are.
    **options
        Further options of `read_export`.

    Returns
    -------
    AnnotationTable
        Includes the values of the columns ``source`` and ``pass``, if all of them are known to
        `AnnotationTable`.
        What an export skipped or declined is in ``passes``; a warning says what was left out.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    AnnotationError
        If the file is empty, damaged, hostile or of another format, a column is missing, a label
        is not in ``classes`` or a task not in ``tasks``, a value is in both ``abstain`` and
        ``skip`` or is a class, labels are hardly names of classes and ``scale`` is not given, a
        file holds several questions or several labels in an answer (or it cannot be told),
        ``option`` is unknown, or a file names no annotators; if its last row holds totals, or its
        encoding, separator or sheet cannot be told.
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


def read_with_account(
    path: PathLike | Sequence[PathLike], *, tasks: Any = None, **options: Any
) -> tuple[AnnotationTable, Export | None]:
    """Read as `read_annotations` does; return the export, too, or None for a table or matrix."""
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
                f"{argument}={name!r} names a column, which only a long table has; leave it out, "
                "or pass format='long'"
            )
    export = read_export(path, **options)
    if export.table is None:
        check_option(None, export.tables)
    table = export.annotations
    if not table.n_annotations and len(export.gold):
        raise AnnotationError(
            f"{path} holds gold labels and no annotations; read_export(...).gold holds them"
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
    r"""Read an export with its gold labels, items and times, and an account of what is left out.

    Personal data (addresses, places, names of people who did not annotate) are never read.

    Parameters
    ----------
    path, format, question, task, worker, label, annotators, classes, abstain, skip, duplicates
        As in `read_annotations`; so are ``encoding``, ``separator`` and ``sheet``.
    scale, ordered, mapping, lowercase, annotator_mapping
        As in `read_annotations`.
    multilabel : {"error", "join", "split", "none"}
        As in `read_annotations`. "split" without an ``option``: one table of "no" and "yes" per
        label, in ``tables``.
    option : str, optional
        The label to split by; ``annotations`` is its table, and ``gold`` says where it applies.
    empty : bool
        With ``multilabel="split"``: an answer without a label says that none applies. Otherwise it
        is left out, or an abstention where the tool hands it in as an answer.
    items : str, optional
        MTurk: a pattern such as ``_(\d+)$`` of columns of one item among several in a HIT.
    fields : sequence of str
        Columns of a long table to keep in ``items``, beside "text", "image" and the like.
    drop_rejected : bool
        Leave out work that the requester rejected; it is kept by default.
    predictions_as_annotators : bool
        Label Studio: models are annotators, too, named "model:<version>", and together one family,
        "models" (`AnnotationTable.with_groups`), because they tend to share mistakes.
    annotator_from : {"file", "folder", "sheet"}, optional
        Every file holds one annotator's work, whose name is the file's without its suffix; or
        every folder or archive does, or every sheet of a workbook, whose name it is. Then a table
        needs no column of annotators; those of the ids and the labels are found by their values
        where ``task`` and ``label`` do not name them.
    anonymise : bool
        Call annotators w001, w002, ... in order of appearance.
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
    """Sort the options of `read_export`: those of readers, and those of what was read.

    Raises
    ------
    AnnotationError
        If a switch is neither True nor False.
    TypeError
        If an option is unknown.
    """
    for name in ("drop_rejected", "empty", "predictions_as_annotators", "anonymise"):
        if not isinstance(options.get(name, False), bool):
            raise AnnotationError(f"{name}={options[name]!r} is neither True nor False")
    source = options.get("annotator_from")
    if source not in (None, *get_args(AnnotatorFrom)):
        known = ", ".join(map(repr, get_args(AnnotatorFrom)))
        raise AnnotationError(f"annotator_from={source!r} is unknown; use one of {known}")
    for name in ("task", "worker", "label"):
        if options.get(name) == name:  # The default's name may be absent.
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
"""Options of `read_export` that tables have, too."""


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
        return suffix in TABLES  # The reader of tables explains what is wrong with them.
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
