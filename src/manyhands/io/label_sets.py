"""Reading answers that are sets of labels, and known sets."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from os import PathLike as OSPath
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import LabelSetTable
from manyhands.annotations.ids import natural_keys
from manyhands.annotations.label_set_frames import (
    EMPTY,
    TICKED,
    read_sets,
    refuse_named_twice,
    warn_of_nothing,
    word_of_nothing,
    words_of,
)
from manyhands.annotations.label_sets import SEPARATORS, cut
from manyhands.annotations.target import SETS
from manyhands.annotations.wide import with_joined_task
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.io.annotations import is_plain, read_export
from manyhands.io.columns import find_columns, find_name, with_trimmed
from manyhands.io.corrections import Standing, of_one_kind, read_corrections
from manyhands.io.exports.documents import open_documents
from manyhands.io.exports.reading import report_losses
from manyhands.io.exports.records import CONTENT, NO_ANSWER, Export, Items
from manyhands.io.files import PathLike, existing_file, is_typed, naming
from manyhands.io.frames import read_frame
from manyhands.io.gold import REVIEWED, WAS, GoldFile, read_marks
from manyhands.io.sheets import stated_of
from manyhands.io.shown import Shown
from manyhands.typing import MISSING, IntArray

_LOG = logging.getLogger("manyhands")

OWN = {"task", "worker", "label", "weight", "group", "abstain", "skip", "passes", "duplicates"}
OWN |= {"encoding", "separator", "sheet"}
"""Options that long tables of sets take."""

SPELLED = {"separator=": "multilabel=", "labels=": "label=", "options=": "classes="}
"""Arguments of `LabelSetTable.from_frame`, and the arguments of the reader to which they belong."""


def read_label_sets(
    path: PathLike | Sequence[PathLike],
    multilabel: str = ";",
    *,
    none: str | Sequence[str] | None = None,
    classes: Any = None,
    task: str | Sequence[str] = "task",
    worker: str = "worker",
    label: str | Sequence[str] = "labels",
    group: str | Mapping[Any, Any] | None = None,
    **options: Any,
) -> LabelSetTable:
    r"""Read answers that are sets of labels from a table, or an export of a labelling tool.

    Parameters
    ----------
    path : str, Path or sequence of these
        A long table with one row per answer, or per ticked label; or an export with check boxes, as
        of Label Studio, Argilla, doccano, Prodigy or MTurk.
    multilabel : str, default=";"
        Separator of the labels within a cell of text. (``separator=`` is the separator of the cells
        of a table, as in `read_annotations`.)
    none : str or sequence of str, optional
        How the file writes that nothing was ticked: "empty" for empty cells, or a value such as
        "NONE".
    classes : sequence of str, optional
        All options, in the desired order.
    task, worker : str
        Names of the columns, as in `read_annotations`.
    label : str or sequence of str, default="labels"
        Name of the column with the sets ("label" will do, too), or the columns of 0s and 1s, one
        for each option, also as one text with commas. In a table without a column of labels, such
        columns are found if all columns that have no other meaning hold 0 and 1; a note names them.
    group : str or dict, optional
        Column of families, or {annotator: family}.
    **options
        Further options of `read_annotations` (tables) or `read_export` (exports).

    Returns
    -------
    LabelSetTable

    Raises
    ------
    FileNotFoundError, AnnotationError
        As in `read_annotations` and `LabelSetTable.from_frame`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "answers.csv")
    >>> _ = path.write_text("task,worker,labels\na,ann,joy; awe\na,bob,awe\nb,ann,NONE\n")
    >>> read_label_sets(path, none="NONE").ticks.toarray().astype(int).tolist()
    [[1, 1], [1, 0], [0, 0]]
    """
    options |= {"none": none, "classes": classes, "task": task, "worker": worker, "label": label}
    return read_sets_with_account(path, multilabel, group=group, **options)[0]


def read_sets_with_account(
    path: PathLike | Sequence[PathLike],
    multilabel: str = ";",
    *,
    none: str | Sequence[str] | None = None,
    classes: Any = None,
    task: str | Sequence[str] = "task",
    worker: str = "worker",
    label: str | Sequence[str] = "labels",
    group: str | Mapping[Any, Any] | None = None,
    **options: Any,
) -> tuple[LabelSetTable, Export | None]:
    """Read as `read_label_sets` does, and return the export as well; None of a table."""
    families = group if isinstance(group, Mapping) else None
    column = None if isinstance(group, Mapping) else group
    own: dict[str, Any] = {"task": task, "worker": worker, **options}
    paths = [path] if isinstance(path, str | OSPath) else list(path)
    export = None
    columns = [_columns_of_options(each, label, own, column) for each in paths]
    if all(_is_table(*each, own) for each in zip(paths, columns, strict=True)):
        tables, said = zip(
            *(
                _of_table(each, multilabel, none, classes, names, column, own)
                for each, names in zip(paths, columns, strict=True)
            ),
            strict=True,
        )
        table = tables[0] if len(tables) == 1 else _one_of(tables, own)
        where = None if any(not isinstance(names, str) for names in columns) else "classes="
        _warn_of_nothing(none, frozenset().union(*said), table, classes, where)
    else:
        if (label == "labels" and _has_labels(paths[0], own)) or label not in ("labels", "label"):
            own["label"] = label
        table, export = _of_export(path, none, classes, own | {"group": column})
    if families is None:
        return table, export
    names = dict(zip(table.annotators.astype(str).tolist(), table.annotators.tolist(), strict=True))
    families = {names.get(str(who), who): each for who, each in families.items()}
    return table.with_groups(families), export


def items_shown(table: LabelSetTable, shown: Shown | None) -> Export | None:
    """Return what a table of answers shows of its items as an export has it; None of nothing."""
    if shown is None:
        return None
    values = [shown.values.get(str(task)) for task in table.instances.tolist()]
    nothing = np.zeros(0)
    return Export(
        None,
        GoldFile(np.zeros(0, dtype=str), np.zeros(0, dtype=object)),
        Items(table.instances, {shown.name: values}, {shown.name: shown.name}),
        (),
        (),
        nothing,
        nothing,
        "long",
        "labels",
    )


def _columns_of_options(
    path: Any, label: str | Sequence[str], options: dict[str, Any], group: str | None
) -> str | Sequence[str]:
    """Return the columns of 0 and 1 that a text with commas names, or that are found; else label.

    They are found where the table has no column of labels, and every column beside those with a
    meaning of their own says 0 or 1.
    """
    is_default = label in ("labels", "label")
    if not isinstance(label, str) or not (is_default or "," in label):
        return label
    if not isinstance(path, str | OSPath) or not Path(path).is_file():
        return label
    if options.get("format", "auto") not in ("auto", "long"):
        return label
    try:
        (document, *others) = open_documents(path, most=200, stated=stated_of(options))
    except AnnotationError:
        return label  # The reader of the file says what is wrong with it.
    if others or document.kind != "table" or label in document.header:
        return label
    if not is_default:
        return [name.strip() for name in label.split(",") if name.strip()]
    names = document.header
    task, worker = options["task"], find_name(names, "worker", options["worker"])
    keys = {find_name(names, "task", task)} if isinstance(task, str) else set(task)
    keys = keys if keys <= {*names} else {name.strip() for name in str(task).split(",")}
    if not {worker, *keys} <= {*names} or find_name(names, "label", "label") in names:
        return label
    aside = {worker, *keys, group, options.get("weight"), options.get("passes"), "pass"}
    found = [name for name in names if name not in aside and name.strip().lower() not in CONTENT]
    places = [names.index(name) for name in found]
    cells = {row[k].strip().lower() for _, row in document.rows for k in places if k < len(row)}
    if len(found) < 2 or cells <= {""} or not cells <= {"", *TICKED}:
        return label
    _LOG.info(
        "each of the %d columns %s is an option, which 1 says was ticked and 0 that it was not; "
        "label= names other columns",
        len(found),
        ", ".join(map(repr, found[:6])) + (" ..." if len(found) > 6 else ""),
    )
    return found


def _has_labels(path: Any, options: dict[str, Any]) -> bool:
    """Return whether the answers of a file of records are under "labels"."""
    if not isinstance(path, str | OSPath) or not Path(path).is_file():
        return False
    documents = open_documents(path, most=200, stated=stated_of(dict(options)))
    keys = set(documents[0].first) if documents else set()
    return {"labels", options["task"], options["worker"]} <= keys and "label" not in keys


def _is_table(path: PathLike, label: str | Sequence[str], options: dict[str, Any]) -> bool:
    """Return whether a path is a long table whose cells hold sets."""
    if not isinstance(label, str):
        return True
    if label not in ("labels", "label"):
        options = options | {"label": label}
    known = {name: value for name, value in options.items() if name in OWN | {"format"}}
    return is_plain(path, {}, known)


def _one_of(tables: Sequence[LabelSetTable], options: Mapping[str, Any]) -> LabelSetTable:
    """Join the answers of several tables, in their order."""
    names = np.unique(np.concatenate([table.options.astype(str) for table in tables])).tolist()
    keys = natural_keys(names)
    names = [name for _, name in sorted(zip(keys, names, strict=True))]
    policy = options.get("duplicates", "auto")
    joined = tables[0].with_options(names)
    for table in tables[1:]:
        more = table.with_options(names)
        joined = joined.with_added(more, duplicates="error" if policy == "auto" else policy)
    return joined


def _of_table(
    path: Any,
    multilabel: str,
    none: Any,
    classes: Any,
    label: Any,
    group: str | None,
    options: dict[str, Any],
) -> tuple[LabelSetTable, frozenset[str]]:
    """Read a long table, and return the values of ``none`` that occur in it as well."""
    path = existing_file(Path(str(path)))
    defaults = ("auto", None, False, "error", ())
    strange = [
        name
        for name, value in options.items()
        if name not in OWN | {"format", "option", "multilabel"} and value not in defaults
    ]
    if strange:
        raise AnnotationError(
            f"{strange[0]}= is not for tables of sets of labels; leave it out, or write the labels "
            "as they are meant"
        )
    with naming(path):
        frame = read_frame(path, stated_of(options))
        frame, task = with_joined_task(frame, options["task"])
        asked = {"task": task, "worker": options["worker"]}
        if label in ("labels", "label"):
            label = "labels" if "labels" in frame.columns else "label"
            asked["label"] = label
        names: dict[str, Any] = find_columns(frame.columns, asked, path)
        label = names.pop("label", label)
        if not is_typed(path):
            frame = with_trimmed(frame, names.values(), path)
        duplicates = options.get("duplicates", "auto")
        given: dict[str, Any] = {
            name: options.get(name) for name in ("weight", "abstain", "skip", "passes")
        }
        if given["passes"] is None and "pass" in frame.columns:
            given["passes"] = "pass"
        try:
            return read_sets(
                LabelSetTable,
                frame,
                separator=multilabel,
                labels=label,
                none=none,
                options=classes,
                group=group,
                duplicates="error" if duplicates == "auto" else duplicates,
                **names,
                **given,
            )
        except AnnotationError as error:
            raise AnnotationError(_spelled(str(error))) from error


def _warn_of_nothing(
    none: Any,
    said: frozenset[str],
    table: LabelSetTable,
    classes: Any,
    argument: str | None = "classes=",
) -> None:
    """Warn of options that may mean that nothing was ticked; see `warn_of_nothing`."""
    warn_of_nothing(none, said, table.ticks_per_option(), table.options, classes, argument)


def _spelled(text: str) -> str:
    """Write a message about frames with the arguments of readers."""
    for name, ours in SPELLED.items():
        text = re.sub(rf"(?<![\w.]){re.escape(name)}", ours, text)
    return text


def _of_export(
    path: Any, none: Any, classes: Any, options: dict[str, Any]
) -> tuple[LabelSetTable, Export]:
    words = words_of(none)
    if classes is not None:
        refuse_named_twice(words, np.array([str(name) for name in classes]))
    named = None if classes is None else [*classes, *(word for word in words if word != EMPTY)]
    options = {**options, "multilabel": "split", "option": None, "classes": named}
    for name in ("weight", "passes", "group"):
        if options.pop(name, None) is not None:
            raise AnnotationError(f"{name}= names a column, which only a long table has")
    found = read_export(path, empty=EMPTY in words, **options)
    report_losses(found, path)
    tables = {name: each for name, each in found.tables.items() if name not in words}
    if not tables:
        raise AnnotationError(f"{path} holds no answer with a label; {SETS}")
    table = LabelSetTable.from_tables(tables)
    _tell_of_blank(found, table)
    for word in set(words) & set(found.tables) - {EMPTY}:
        beside = (found.tables[word].label == 1) & (table.ticks_per_answer() > 0)
        if beside.any():
            row = int(np.flatnonzero(beside)[0])
            raise AnnotationError(
                f"{word!r}, which none names, stands beside other labels in the answer of "
                f"annotator {table.annotators[table.annotator[row]].item()!r} about instance "
                f"{table.instances[table.instance[row]].item()!r}; correct it, or leave it out of "
                "none="
            )
    said = {word for word in words if word in found.tables and found.tables[word].label.any()}
    _warn_of_nothing(none, frozenset(said), table, classes)
    return table, found


def _tell_of_blank(export: Export, table: LabelSetTable) -> None:
    """Warn of answers without a tick, which do not count as answers unless the caller says so."""
    silent = sum(lost.count for lost in export.left_out if lost.reason == NO_ANSWER)
    handed_in = export.n_unlabelled
    blank = silent + handed_in
    if not blank:
        return
    what = "are left out, as they may be unfinished"
    if handed_in:
        told = "count as abstentions, as they were handed in"
        what = f"{handed_in:,} of them {told}, and {silent:,} {what}" if silent else told
    answered = int((table.annotations_per_instance() > 0).sum())
    n_items = max(len(export.items), table.n_instances)
    items = (
        f" Without them, {n_items - answered:,} of {n_items:,} items have no answer."
        if answered < n_items
        else ""
    )
    warn_caller(
        f"{blank:,} of {table.n_annotations + blank:,} answers have no tick. "
        f"{'They ' * (not (handed_in and silent))}{what}.{items} If such an answer says that no "
        "option applies, keep it by none='empty'"
    )


# -- known sets -----------------------------------------------------------------------------------


def read_gold_sets(
    path: PathLike,
    table: LabelSetTable,
    multilabel: str = ";",
    *,
    none: Any = None,
    task: str = "task",
    encoding: str | None = None,
    separator: str | None = None,
) -> IntArray:
    """Read which options apply to instances of a table.

    Parameters
    ----------
    path : str or Path
        A table with the columns task and labels, with the complete set of each instance; or with
        the columns task, option and gold (0 or 1), one row per known cell. In a table with a column
        "reviewed", such as ``review.csv`` and ``labels.csv``, a set is known if that column is
        filled in, or if the set differs from that in the column "was"; an empty set says that
        nothing applies. Or a file of corrections (.jsonl), of which those not undone count.
    table : LabelSetTable
    multilabel, none
        As in `read_label_sets`; an empty cell is unknown (a warning counts such rows),
        unless ``none`` names "empty".
    task, encoding, separator
        As in `read_annotations`.

    Returns
    -------
    integer array of shape (n_instances, n_options)
        0, 1, and -1 where unknown.

    Raises
    ------
    FileNotFoundError, AnnotationError
        If an option is unknown, a value is neither 0 nor 1, a task has two different sets, or no
        task is among the instances.
    """
    path = existing_file(Path(str(path)))
    if path.suffix.lower() == ".jsonl":
        return _read_corrected(path, table)
    with naming(path):
        frame = read_frame(path, stated_of({"encoding": encoding, "separator": separator}))
        name = find_columns(frame.columns, {"task": task}, path, fixed=True)["task"]
        columns = {str(column).lower(): column for column in frame.columns}
        by_cell = {"option", "gold"} <= set(columns)
        if name not in frame.columns or not (by_cell or {"labels", "label"} & set(columns)):
            raise AnnotationError(
                f"known sets are in a table with the columns 'task' and 'labels', or 'task', "
                f"'option' and 'gold'; the columns are {', '.join(map(repr, frame.columns))}"
            )
        rows = {str(i): k for k, i in enumerate(table.instances.astype(str).tolist())}
        tasks = [str(each).strip() for each in frame[name].to_list()]
        unknown = [each for each in tasks if each not in rows]
        cells = np.full((table.n_instances, table.n_options), MISSING, dtype=np.int8)
        if by_cell:
            _read_cells(cells, rows, tasks, frame, columns, table)
        else:
            values = frame[columns.get("labels") or columns["label"]].to_list()
            looked = _looked_at(frame, columns, values, path)
            if looked is not None:
                none = [EMPTY, *([] if none is None else [none] if isinstance(none, str) else none)]
                tasks = [each for each, is_known in zip(tasks, looked, strict=True) if is_known]
                values = [each for each, is_known in zip(values, looked, strict=True) if is_known]
                unknown = [each for each in tasks if each not in rows]
            _read_sets(cells, rows, tasks, values, table, multilabel, none)
        if tasks and len(unknown) == len(tasks):
            raise AnnotationError(
                f"none of the {len(tasks)} tasks with gold (such as {(tasks or [''])[0]!r}) is "
                f"among the instances (such as {table.instances[0].item()!r}); use the same ids in "
                "both"
            )
        if unknown:
            warn_caller(
                f"{len(unknown)} rows of gold are about tasks that are not among the instances "
                f"({unknown[0]!r}), and are not used"
            )
    return cells


def _read_corrected(path: Path, table: LabelSetTable) -> IntArray:
    """Read the sets of a file of corrections."""
    cells = np.full((table.n_instances, table.n_options), MISSING, dtype=np.int8)
    rows = {str(i): k for k, i in enumerate(table.instances.astype(str).tolist())}
    places = {name: k for k, name in enumerate(table.options.tolist())}
    with naming(path):
        strange = []
        for record in Standing(of_one_kind(read_corrections(path))).decisions():
            task = str(record.task)
            if not isinstance(record.label, list):
                raise AnnotationError(
                    f"task {task!r} has the label {record.label!r}, and a set is a list of names; "
                    "give corrections of sets"
                )
            if task not in rows:
                strange.append(task)
                continue
            for name in record.label:
                if name not in places:
                    raise _unknown_option(name, task, table)
            cells[rows[task]] = 0
            cells[rows[task], [places[name] for name in record.label]] = 1
        if strange:
            warn_caller(
                f"{len(strange)} corrections are about tasks that are not among the instances "
                f"({strange[0]!r}), and are not used"
            )
    return cells


def _looked_at(
    frame: Any, columns: dict[str, str], values: list[Any], path: Path
) -> list[bool] | None:
    """Mask the sets that a review sheet says were looked at; None for other files."""
    if REVIEWED not in columns:
        return None
    looked = read_marks(frame, columns[REVIEWED]).tolist()
    if WAS in columns:
        before = frame[columns[WAS]].to_list()
        pairs = zip(looked, map(_cell, values), map(_cell, before), strict=True)
        looked = [mark or now != was for mark, now, was in pairs]
    n = sum(looked)
    if not n:
        warn_caller(
            f"{path.name}: none of its {len(looked):,} sets is taken as known, because nobody "
            "marked one as reviewed: write your name, or any other mark, into the column "
            f"{columns[REVIEWED]!r} of every row that you looked at"
        )
    elif n < len(looked):
        _LOG.info(
            f"{path.name}: {n:,} of {len(looked):,} sets {'was' if n == 1 else 'were'} reviewed "
            f"and count{'s' * (n == 1)} as known"
        )
    return looked


def _cell(value: Any) -> str:
    return "" if value is None or value != value else str(value).strip()


def _read_cells(
    cells: IntArray,
    rows: dict[str, int],
    tasks: list[str],
    frame: Any,
    columns: dict[str, str],
    table: LabelSetTable,
) -> None:
    places = {name: k for k, name in enumerate(table.options.tolist())}
    options = [str(each).strip() for each in frame[columns["option"]].to_list()]
    for task, option, value in zip(tasks, options, frame[columns["gold"]].to_list(), strict=True):
        if option not in places:
            raise _unknown_option(option, task, table)
        text = "" if value is None or value != value else str(value).strip().lower()
        if text not in ("", "0", "1", "0.0", "1.0", "false", "true", "no", "yes"):
            raise AnnotationError(
                f"task {task!r} has the gold {value!r} for the option {option!r}; write 1 where it "
                "applies, and 0 where it does not"
            )
        if text and task in rows:
            cells[rows[task], places[option]] = text in ("1", "1.0", "true", "yes")


def _read_sets(
    cells: IntArray,
    rows: dict[str, int],
    tasks: list[str],
    values: list[Any],
    table: LabelSetTable,
    multilabel: str,
    none: Any,
) -> None:
    import pandas as pd

    frame = pd.DataFrame({"task": tasks, "worker": "gold", "labels": values})
    empty = frame["labels"].isna() | (frame["labels"].astype(str).str.strip() == "")
    words = words_of(none)
    if EMPTY not in words and empty.any():
        word = word_of_nothing(words)
        mend = f"write {word!r} into it" if word else "pass none='empty'"
        warn_caller(
            f"{int(empty.sum()):,} of {len(empty):,} rows of gold are empty in the column of "
            "labels: they count as not known. If an empty cell means that no option applies, "
            f"{mend}"
        )
        frame = frame[~empty]
    if not len(frame):
        return
    found, _ = read_sets(
        LabelSetTable,
        frame,
        separator=multilabel,
        task="task",
        worker="worker",
        labels="labels",
        options=None,
        none=none,
        duplicates="error",
    )
    strange = [name for name in found.options.tolist() if name not in set(table.options.tolist())]
    if strange:
        code = found.options.tolist().index(strange[0])
        row = int(np.flatnonzero(found.ticks[:, [code]].toarray().ravel())[0])
        task = str(found.instances[found.instance[row]])
        mark = next((m for m in SEPARATORS if set(cut(strange[0], m)) <= {*table.options}), None)
        if mark is not None:
            raise AnnotationError(
                f"gold names the set {strange[0]!r} (task {task!r}) with {mark!r} between its "
                f"labels, and sets are read with multilabel={multilabel!r}; write {multilabel!r} "
                "between the labels of gold"
            )
        raise _unknown_option(strange[0], task, table)
    ticks = found.with_options(table.options).ticks.toarray()
    for row, task in enumerate(found.instances[found.instance].tolist()):
        if str(task) in rows:
            cells[rows[str(task)]] = ticks[row]


def _unknown_option(option: str, task: str, table: LabelSetTable) -> AnnotationError:
    known = ", ".join(map(repr, table.options[:6].tolist()))
    return AnnotationError(
        f"gold names the option {option!r} (task {task!r}), which is not among {known}"
        f"{' ...' if table.n_options > 6 else ''}; correct it, or name all options in classes="
    )
