"""Reading long tables, with one row per annotation, and dense matrices, with one per instance."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import PASSES, SOURCES, AnnotationTable
from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.encoding import encode, make_vocabulary, missing_mask, tidy
from manyhands.annotations.frames import columns_of_frame
from manyhands.annotations.label_sets import Multilabel, one_label_per_row
from manyhands.annotations.passes import check_no_class, pass_kinds
from manyhands.annotations.scales import Scale, check_scale, read_scale
from manyhands.annotations.target import as_one_kind, over
from manyhands.annotations.wide import (
    HEAD_OF_LONG,
    UnclearColumnsError,
    cells_of_frame,
    guess_long,
    guess_own,
    own_work,
    with_joined_task,
)
from manyhands.exceptions import AnnotationError
from manyhands.io.annotator_names import AnnotatorNames
from manyhands.io.columns import (
    Frame,
    check_width,
    find_columns,
    note_of_gold,
    preview,
    with_trimmed,
    with_types,
)
from manyhands.io.features import read_array
from manyhands.io.files import PathLike, existing_file, is_typed, naming, suffix_of
from manyhands.io.frames import read_frame
from manyhands.io.label_values import (
    Spellings,
    by_kind,
    check_codes,
    integer_marks,
    label_values,
    read_mapping,
    with_meanings,
    with_passes,
    written_marks,
)
from manyhands.io.sheets import UNSTATED, Stated
from manyhands.typing import AnyArray

_LOG = logging.getLogger("manyhands")


def read_table(
    path: PathLike,
    *,
    task: str | Sequence[str] = "task",
    worker: str = "worker",
    label: str = "label",
    weight: str | None = None,
    group: str | None = None,
    classes: Any = None,
    tasks: Any = None,
    abstain: Any = None,
    skip: Any = None,
    passes: str | None = None,
    duplicates: Duplicates = "error",
    multilabel: Multilabel = "error",
    option: str | None = None,
    stated: Stated = UNSTATED,
    scale: Scale | None = None,
    mapping: Any = None,
    lowercase: bool = False,
    annotator_mapping: Any = None,
) -> AnnotationTable:
    """Read a long table or a dense matrix; see `manyhands.io.read_annotations`."""
    path = existing_file(path)
    read_scale(scale)
    if isinstance(mapping, str | os.PathLike):
        mapping = read_mapping(mapping)
    with naming(path):
        if suffix_of(path) == ".npy":
            if mapping is not None or lowercase:
                raise AnnotationError(
                    "mapping= and lowercase= are for labels that are text, but a matrix holds "
                    "numbers; leave them out"
                )
            if annotator_mapping is not None:
                raise AnnotationError(
                    "annotator_mapping= is for names of annotators, but a matrix has none; leave "
                    "it out"
                )
            marks = written_marks(abstain, skip, classes)
            if group is not None:
                raise AnnotationError(
                    f"group={group!r} names a column, which a matrix does not have; store a long "
                    "table (.csv, .parquet), or declare families with AnnotationTable.with_groups"
                )
            return _from_dense(path, classes, tasks, integer_marks(marks), scale)
        frame = read_frame(path, stated)
        check_width(len(frame.columns))
        table = table_of_frame(
            frame,
            path,
            task=task,
            worker=worker,
            label=label,
            weight=weight,
            group=group,
            classes=classes,
            abstain=abstain,
            skip=skip,
            passes=passes,
            duplicates=duplicates,
            multilabel=multilabel,
            option=option,
            scale=scale,
            mapping=mapping,
            lowercase=lowercase,
            annotator_mapping=annotator_mapping,
        )
        return table if tasks is None else over_tasks(table, make_vocabulary(tasks, "tasks"))


def table_of_frame(
    frame: Frame,
    path: Path,
    *,
    task: str | Sequence[str] = "task",
    worker: str = "worker",
    label: str = "label",
    weight: str | None = None,
    group: str | None = None,
    classes: Any = None,
    abstain: Any = None,
    skip: Any = None,
    passes: str | None = None,
    duplicates: Duplicates = "error",
    multilabel: Multilabel = "error",
    option: str | None = None,
    scale: Scale | None = None,
    mapping: Any = None,
    lowercase: bool = False,
    annotator_mapping: Any = None,
) -> AnnotationTable:
    """Read the frame of a long table; the suffix of the path shows whether columns are text."""
    spellings = Spellings.of(mapping, lowercase)
    if spellings is not None:
        classes = spellings.read_classes(classes)
        abstain, skip = spellings.read_marks(abstain), spellings.read_marks(skip)
    frame, task = with_joined_task(frame, task)
    names = find_columns(frame.columns, {"task": task, "worker": worker, "label": label}, path)
    if names["worker"] not in frame.columns:
        _refuse_own_work(frame, names)
    if not is_typed(path):
        frame = with_trimmed(frame, (names["task"], names["worker"]), path)
    if (people := AnnotatorNames.of(annotator_mapping)) is not None:
        frame = people.with_names(frame, names["worker"])
        people.report()
    if weight is not None:
        names["weight"] = weight
    if group is not None:
        names["group"] = group
    if passes is not None or _marks_passes(frame):
        names["passes"] = passes or "pass"
    if "source" in frame.columns and set(frame["source"].to_list()) <= set(SOURCES):
        names["source"] = "source"
    if note := note_of_gold(frame.columns, names.values()):
        _LOG.info("%s: %s", path.name, note)
    is_cut = multilabel in ("join", "split")
    if spellings is not None and not is_cut:
        frame = with_meanings(frame, names["label"], spellings)
    frame, classes = one_label_per_row(
        frame,
        names["label"],
        pair=(names["task"], names["worker"]),
        alike=[names[each] for each in ("weight", "group", "passes", "source") if each in names],
        multilabel=multilabel,
        option=option,
        classes=classes,
        marks=written_marks(abstain, skip, None),
        meaning=spellings.read_label if spellings is not None and is_cut else None,
        merged=duplicates == "error",
    )
    if spellings is not None:
        spellings.report()
    marks = written_marks(abstain, skip, classes)
    frame = with_passes(frame, names, marks)
    frame = with_types(frame, names, path)
    frame, values, code_names = label_values(frame, names["label"], classes)
    if code_names is not None:
        check_no_class(integer_marks(marks), range(len(code_names)))
    columns = columns_of_frame(
        frame,
        names,
        classes=values,
        duplicates=duplicates,
        multilabel="error" if multilabel == "error" else "none",
        scale=scale,
        asks=True,
    )
    table = AnnotationTable(*columns)
    if code_names is not None:
        check_scale(code_names, "given", table.scale)
        table = replace(table, classes=code_names)
    return table


def _refuse_own_work(frame: Frame, names: dict[str, str]) -> None:
    """Refuse a table that looks like the work of one annotator who is not named."""
    cells = cells_of_frame(frame, HEAD_OF_LONG)
    found = {role: name for role, name in names.items() if name in frame.columns}
    if guess_own(cells) and not guess_long(cells, found):
        raise UnclearColumnsError(
            f"there is no column {names['worker']!r}, and no other column seems to name annotators",
            cells,
            {},
            own_work("file"),
        )


def _marks_passes(frame: Frame) -> bool:
    """Return whether a column "pass" holds what `AnnotationTable.to_frame` writes there."""
    if "pass" not in frame.columns:
        return False
    values = frame["pass"].to_numpy()
    return set(values[~missing_mask(values)].tolist()) <= set(PASSES)


def _from_dense(
    path: Path, classes: Any, tasks: Any, marks: dict[int, int], scale: Scale | None
) -> AnnotationTable:
    matrix = read_array(path)
    if matrix.dtype.kind not in "iufb":
        raise AnnotationError(
            f"a matrix of annotations must hold integers or floats, not {matrix.dtype}; store "
            "class codes (-1 where missing) and name the classes in classes="
        )
    if matrix.ndim != 2:
        raise AnnotationError(
            "a matrix of annotations must have shape (n_instances, n_annotators), not "
            f"{matrix.shape}; reshape it, or store a long table (.csv, .parquet)"
        )
    if tasks is not None and len(tasks) != len(matrix):
        raise AnnotationError(
            f"the matrix has {len(matrix)} rows for {len(tasks)} tasks (rows of X); its rows must "
            "match those of X, in the same order. Fill rows without annotations with -1"
        )
    options: dict[str, Any] = dict(zip(PASSES, by_kind(marks), strict=True))
    options |= {"instances": tasks, "scale": scale}
    if classes is None or make_vocabulary(classes, "classes").dtype.kind not in "UT":
        return AnnotationTable.from_matrix(matrix, classes, **options)
    names = make_vocabulary(classes, "classes")
    known = matrix[~missing_mask(matrix) & (matrix != -1) & (pass_kinds(matrix, marks) < 0)]
    check_codes(tidy(known, "the matrix"), names)
    table = AnnotationTable.from_matrix(matrix, range(len(names)), **options)
    return replace(table, classes=names)


def over_tasks(table: AnnotationTable, tasks: AnyArray) -> AnnotationTable:
    """Re-index a table by the ids of the feature rows, in their order."""
    ids, wanted = as_one_kind(table.instances, tasks)
    unknown = ids[~np.isin(ids, wanted)]
    if len(unknown):
        raise AnnotationError(
            f"{len(unknown)} of {len(ids)} annotated tasks ({preview(unknown)}) are not among the "
            f"{len(tasks)} ids of the features ({preview(tasks)}). Drop their annotations, or add "
            "their features"
        )
    positions, _ = encode(ids, wanted, argument="tasks", vocabulary_name="tasks")
    return over(table, tasks, positions)
