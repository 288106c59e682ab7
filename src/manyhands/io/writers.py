"""Writing labels and annotations as tables, for labelling tools, or as a Hugging Face data set."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyhands.annotations import PASSES, SOURCES, AnnotationTable, LabelSetTable
from manyhands.annotations.columns import require_annotators
from manyhands.annotations.encoding import is_text
from manyhands.annotations.frames import grades_of_arrow
from manyhands.annotations.scales import MEANT
from manyhands.annotations.target import require_table
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.files import refuse_foreign, write_atomically
from manyhands.io.consensus_labels import ACCEPT, ENOUGH, Consensus, consensus
from manyhands.io.consensus_sets import SetConsensus
from manyhands.io.exports.contract import Inferred, Writer
from manyhands.io.exports.formats import WRITERS
from manyhands.io.exports.records import Export
from manyhands.io.exports.written import ItemFields, Record, by_task
from manyhands.io.files import PathLike
from manyhands.io.frames import check_table_path, write_table
from manyhands.io.shown import Shown, shown_of, with_shown
from manyhands.typing import AnyArray

_LOG = logging.getLogger("manyhands")

SUFFIXES: Final = {name: writer.suffix for name, writer in WRITERS.items()} | {"datasets": ""}
"""Suffixes of the files of tools' formats; ``datasets`` is a folder."""

TARGETS: Final = ("table", *SUFFIXES)


def write_labels(
    path: PathLike,
    table: AnnotationTable,
    posterior: Any = None,
    *,
    labels: Any = None,
    to: str = "table",
    export: Export | None = None,
    known: Any = None,
    identified: Any = None,
    accept: float = ACCEPT,
    enough: int = ENOUGH,
    method: str = "manyhands",
    keep_formulas: bool = False,
    excel: bool = False,
) -> Path:
    """Write the label of every instance, how sure it is, and what to do about it.

    Parameters
    ----------
    path : str or Path
        A file whose suffix fits the format, or (``to="datasets"``) a folder.
    table : AnnotationTable
    posterior : fitted model, or array-like of shape (n_instances, n_classes)
        The model that was fitted on the table, such as ``DawidSkene().fit(table)`` or
        ``CrowdStackingClassifier().fit(X, table)``, or probabilities in the order of the table's
        instances; see `manyhands.io.consensus`.
    labels, known, identified, accept, enough
        As in `manyhands.io.consensus`, whose actions are written.
    to : str
        "table": .csv, .tsv, .xlsx, .parquet, .json or .jsonl, by the suffix of the path.
        "label-studio": tasks with predictions, to import (.json).
        "prodigy": tasks of the choice interface, the least certain first (.jsonl).
        "argilla": records with suggestions, for ``Record.from_dict`` (.json).
        "doccano": examples with their labels, to import (.jsonl); labels only.
        "datasets": a folder that ``datasets.load_dataset`` reads.
    export : Export, optional
        Result of `read_export`, which holds the items' own data and the names of the tool's
        fields. Without it, an item has its id only.
    method : str
        Name of the method that made the labels, such as "DawidSkene".
    keep_formulas, excel : bool
        As in `manyhands.io.frames.write_table`.

    Returns
    -------
    Path
        The file or folder that was written.

    Raises
    ------
    AnnotationError
        If the format or the suffix is unknown, or an argument does not fit the table or is missing.
    WriteError
        If the path cannot be written.
    MissingExtraError
        If the format is Parquet or .xlsx, and the extra 'io' is not installed.

    Examples
    --------
    >>> import tempfile
    >>> table = AnnotationTable.from_matrix(np.array([[0, 0, 0], [0, 1, -1]]))
    >>> path = Path(tempfile.mkdtemp(), "labels.csv")
    >>> print(write_labels(path, table, [[0.98, 0.02], [0.5, 0.5]]).read_text())
    task,label,probability,n_annotations,agreement,action,p(0),p(1),reviewed
    0,0,0.980000,3,1.000000,accept,0.980000,0.020000,
    1,0,0.500000,2,0.500000,collect more,0.500000,0.500000,
    <BLANKLINE>
    """
    path = check_target(path, to)
    require_table(table)
    if posterior is None:
        raise AnnotationError(
            "posterior is missing; give the fitted model, such as write_labels(path, table, "
            "DawidSkene().fit(table)), or its posterior_ in the order of the table's instances"
        )
    judged: dict[str, Any] = {"known": known, "identified": identified}
    found = consensus(table, posterior, labels, accept=accept, enough=enough, **judged)
    options: dict[str, Any] = {"to": to, "export": export, "method": method}
    options |= {"keep_formulas": keep_formulas, "excel": excel}
    return write_consensus(path, found, **options)


def write_consensus(
    path: PathLike,
    found: Consensus,
    *,
    to: str = "table",
    export: Export | None = None,
    method: str = "manyhands",
    keep_formulas: bool = False,
    excel: bool = False,
    shown: Shown | None = None,
) -> Path:
    """Write the result of `manyhands.io.consensus`; see `write_labels`.

    A table also gets the content of the items, ``shown``; default: that of the export.
    """
    path = check_target(path, to)
    if to == "table":
        columns = with_shown(found.columns(), shown or shown_of(export))
        return write_table(path, columns, keep_formulas=keep_formulas, excel=excel)
    return _write_for_tool(path, found, found.columns(), to, export, method)


def write_sets(
    path: PathLike,
    found: SetConsensus,
    *,
    separator: str = ";",
    none: str | Sequence[str] | None = None,
    to: str = "table",
    export: Export | None = None,
    method: str = "manyhands",
    keep_formulas: bool = False,
    excel: bool = False,
    shown: Shown | None = None,
) -> Path:
    """Write the result of `manyhands.io.consensus_sets.set_consensus`; see `write_labels`.

    In a table, ``separator`` stands between the labels of a set, and a set without labels is the
    first word of ``none`` other than "empty", or else an empty cell; for a tool, a set is a
    list, as of check boxes.
    """
    path = check_target(path, to)
    if to == "table":
        check_separator(found.options, separator)
        columns = with_shown(found.columns(separator, none), shown or shown_of(export))
        return write_table(path, columns, keep_formulas=keep_formulas, excel=excel)
    columns = found.columns(separator) | {"labels": found.labels}
    return _write_for_tool(path, found, columns, to, export, method)


def _write_for_tool(
    path: Path,
    found: Inferred,
    columns: dict[str, list[Any]],
    to: str,
    export: Export | None,
    method: str,
) -> Path:
    """Write labels as tasks of a tool, or ``columns`` as a data set."""
    items = ItemFields(export, to)
    if to == "datasets":
        columns |= items.columns(found.tasks.tolist(), columns)
        return _write_dataset(path, columns, f"Labels of {len(found.tasks):,} instances ({method})")
    writer = WRITERS[to]
    order = found.least_certain_first() if writer.least_certain_first else range(len(found.tasks))
    return _write_records(path, (writer.label(found, int(i), items, method) for i in order))


def check_target(path: PathLike, to: str) -> Path:
    """Check, before any work, that a format is known and the name of a file fits it.

    Raises
    ------
    AnnotationError
        If the format is unknown, or the name does not fit it.
    WriteError
        If a file is needed and the path is a folder.
    """
    if to not in TARGETS:
        raise AnnotationError(f"to={to!r} is unknown; use {', '.join(TARGETS)}")
    if not isinstance(path, str | os.PathLike):
        raise AnnotationError(
            f"path is a {type(path).__name__}, not the name of a file; the file comes first, such "
            "as write_labels('labels.csv', table, model)"
        )
    path = Path(path)
    if to == "table":
        return check_table_path(path)
    if to == "datasets":
        if path.suffix or path.is_file():
            raise AnnotationError(
                f"to='datasets' writes a folder, but {str(path)!r} names a file; give a name "
                "without a suffix"
            )
    elif path.suffix.lower() != SUFFIXES[to]:
        raise AnnotationError(
            f"to={to!r} writes a {SUFFIXES[to]} file, but {str(path)!r} ends in {path.suffix!r}; "
            f"give a name that ends in {SUFFIXES[to]}"
        )
    return path


# -- annotations ----------------------------------------------------------------------------------


def write_annotations(
    path: PathLike,
    table: AnnotationTable | LabelSetTable,
    *,
    to: str = "table",
    export: Export | None = None,
    separator: str = ";",
    keep_formulas: bool = False,
    excel: bool = False,
) -> Path:
    """Write annotations, one row for each, or as the annotations of a labelling tool.

    Parameters
    ----------
    path, to, export, keep_formulas, excel
        As in `write_labels`.
    table : AnnotationTable or LabelSetTable
        Weights, sources other than "observed" and families become columns of a table. The formats
        of tools have no place for them, and a warning says so. A table also has a column "question"
        if the export names it.
    separator : str, default=";"
        Separator of the labels of a set in the column "labels" of a table; for a tool, a set is a
        list, as of check boxes.

    Returns
    -------
    Path
        The file or folder that was written.

    Raises
    ------
    AnnotationError, WriteError, MissingExtraError
        As in `write_labels`.

    Examples
    --------
    >>> import tempfile
    >>> table = AnnotationTable.from_matrix(np.array([[0, 1], [1, -1]]))
    >>> path = write_annotations(Path(tempfile.mkdtemp(), "long.csv"), table)
    >>> path.read_text().split()
    ['task,worker,label', '0,0,0', '0,1,1', '1,0,1']
    """
    path = check_target(path, to)
    if isinstance(table, LabelSetTable):
        return _write_answers(
            path, table, separator, to, export, keep_formulas=keep_formulas, excel=excel
        )
    require_table(table)
    require_annotators(table, "writing annotations")
    writer = _writer_of_annotations(to)
    items = ItemFields(export, to)
    if writer is None:
        columns = _long_columns(table)
        if items.question != "label":
            columns["question"] = [items.question] * len(columns["task"])
        columns |= items.columns(columns["task"], {*columns, "question"})
        if table.ordered and path.suffix.lower() == ".parquet" and is_text(table.classes):
            # Parquet does not keep an ordered dictionary of numbers.
            columns["label"] = grades_of_arrow(table)
        else:
            _tell_of_scale(path, table)
        if to == "table":
            return write_table(path, columns, keep_formulas=keep_formulas, excel=excel)
        return _write_dataset(path, columns, f"{table.n_annotations:,} annotations")
    _warn_of_what_is_lost(table, writer)
    assert writer.annotations is not None
    return _write_records(path, writer.annotations(table, by_task(table, export), items))


def _writer_of_annotations(to: str) -> Writer | None:
    """Return what writes annotations for a tool; None for tables and data sets."""
    writer = WRITERS.get(to)
    if writer is not None and writer.annotations is None:
        raise AnnotationError(
            f"to={to!r} has no place for annotators: {writer.no_annotators}; write labels, or a "
            "table (.csv, .parquet)"
        )
    return writer


def _write_answers(
    path: Path,
    table: LabelSetTable,
    separator: str,
    to: str,
    export: Export | None,
    **options: bool,
) -> Path:
    """Write answers that are sets of labels; see `write_annotations`."""
    require_annotators(table.answers, "writing annotations")
    writer, items = _writer_of_annotations(to), ItemFields(export, to)
    if writer is not None and writer.annotations is not None:
        _warn_of_what_is_lost(table.answers, writer)
        given = by_task(table.answers, export, table.labels_of_sets())
        return _write_records(path, writer.annotations(table, given, items))
    if to == "table":
        check_separator(table.options, separator)
    columns = _long_columns(table.answers)
    codes = table.answers.label.tolist()
    sets: list[Any] = table.labels_of_sets()
    if to == "table":
        sets = [separator.join(names) for names in sets]
    n_passes = len(columns["task"]) - len(codes)
    columns["labels"] = [*(sets[code] for code in codes), *[None] * n_passes]
    del columns["label"]
    columns |= items.columns(columns["task"], {*columns, "question"})
    if to == "table":
        return write_table(path, columns, **options)
    return _write_dataset(path, columns, f"{table.n_annotations:,} annotations")


def check_separator(options: AnyArray, separator: str) -> None:
    """Refuse a separator that the name of an option contains, because sets could not be read back.

    Raises
    ------
    AnnotationError
        If an option contains the separator.
    """
    inside = next((name for name in options.tolist() if separator in name), None)
    if inside is not None:
        raise AnnotationError(
            f"the option {inside!r} contains {separator!r}, the separator of the labels of a set, "
            "so that the table could not be read back; choose another one, such as multilabel='|'"
        )


def _long_columns(table: AnnotationTable) -> dict[str, list[Any]]:
    """Return the columns of a long table; optional ones only if they are used."""
    passes = np.zeros((0, 3), dtype=int) if table.passes is None else table.passes
    k = len(passes)
    instance = np.concatenate([table.instance, passes[:, 0]])
    annotator = np.concatenate([table.annotator, passes[:, 1]])
    columns: dict[str, list[Any]] = {
        "task": table.instances[instance].tolist(),
        "worker": table.annotators[annotator].tolist(),
        "label": [*table.classes[table.label].tolist(), *[None] * k],
    }
    if k:
        kinds = [PASSES[kind] for kind in passes[:, 2]]
        columns["pass"] = [*[None] * table.n_annotations, *kinds]
    if table.weights is not None:
        columns["weight"] = [*table.weights.tolist(), *[None] * k]
    if table.sources is not None and table.sources.any():
        columns["source"] = [*table.source.tolist(), *[SOURCES[0]] * k]
    if table.groups is not None:
        columns["group"] = [str(name) or None for name in table.groups[annotator]]
    return columns


def _tell_of_scale(path: Path, table: AnnotationTable) -> None:
    """Log or warn how to read a file of grades or numbers again, which does not hold the scale."""
    if table.scale == "nominal":
        return
    how = f"{str(path)!r}, scale={table.scale!r}"
    how += f", classes={table.classes.tolist()!r}" if table.ordered else ""
    order = ", nor in which order" if table.ordered else ""
    told = (
        f"{path.name} does not say that its labels are {MEANT[table.scale]}{order}; read it again "
        f"by read_annotations({how})"
    )
    if table.ordered and path.suffix.lower() == ".parquet":  # Parquet would keep that of words.
        warn_caller(told)
    else:
        _LOG.info("%s", told)


def _warn_of_what_is_lost(table: AnnotationTable, writer: Writer) -> None:
    lost = {
        "weights": table.weights is not None,
        "sources other than 'observed'": table.sources is not None and bool(table.sources.any()),
        "families of annotators": table.groups is not None,
        "abstentions (they become skips)": "abstain" not in writer.passes
        and len(table.abstentions) > 0,
        "skips (they become abstentions)": "skip" not in writer.passes and len(table.skips) > 0,
    }
    found = ", ".join(name for name, is_lost in lost.items() if is_lost)
    if found:
        warn_caller(f"to={writer.name!r} has no place for {found}; a table (.csv, .parquet) has")


# -- files ----------------------------------------------------------------------------------------


def _write_records(path: Path, records: Iterable[Record]) -> Path:
    """Write JSON, one record per line."""
    lines = [json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records]
    if path.suffix.lower() == ".jsonl":
        return write_atomically(path, "".join(f"{line}\n" for line in lines))
    return write_atomically(path, "[\n" + ",\n".join(lines) + "\n]\n")


OURS: Final = "written by manyhands"

_CARD = """---
configs:
- config_name: default
  data_files: data.jsonl
---

{about}, {ours}. Read them with `datasets.load_dataset("<this folder>")`.
"""


def _write_dataset(folder: Path, columns: dict[str, list[Any]], about: str) -> Path:
    """Write a folder that ``datasets.load_dataset`` reads; the names in it are fixed."""
    card = folder / "README.md"
    refuse_foreign(card, OURS)
    write_table(folder / "data.jsonl", columns)
    write_atomically(card, _CARD.format(about=about, ours=OURS))
    return folder
