"""Annotations from a long table or a dense matrix, alone or aligned with features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import PASSES, SOURCES, AnnotationTable
from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.encoding import encode, make_vocabulary, missing_mask, tidy
from manyhands.annotations.passes import check_no_class, pass_kinds
from manyhands.annotations.target import as_one_kind, over
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import (
    find_column,
    preview,
    with_types,
)
from manyhands.io.features import FeatureFile, read_array, read_features
from manyhands.io.files import PathLike, existing_file, naming, suffix_of
from manyhands.io.frames import read_frame
from manyhands.io.label_values import (
    by_kind,
    check_codes,
    integer_marks,
    label_values,
    with_passes,
    written_marks,
)
from manyhands.typing import AnyArray


def read_annotations(
    path: PathLike,
    *,
    task: str = "task",
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
) -> AnnotationTable:
    r"""Read annotations from a long table or a dense matrix.

    Parameters
    ----------
    path : str or Path
        A long table with one row per annotation (.csv, .tsv, either with .gz, .parquet, .pq), or a
        dense (n, R) matrix of integers or floats (.npy; missing: -1 or NaN).
    task, worker, label, weight, group, passes : str
        Names of the columns (``group``, the annotator's family, and ``passes``: see
        `AnnotationTable.from_frame`). If a default name is absent and exactly one column has
        another common name (``instance``, ``annotator``, ``user_id``, ``answer``, ...), that
        column is used and the choice is logged. ``group`` needs a long table; the others have no
        effect on a matrix.
    classes : sequence, optional
        All classes, in the desired order; default: the sorted labels. If these are names and the
        file holds integers, the integers are **codes** 0..C-1 into ``classes``, unless each of
        them, as text, is itself one of the names.
    tasks : sequence, optional
        All instance ids, in the order of the rows of X. If the ids are integers on one side and
        strings on the other, they are compared as strings. For a matrix: the ids of its rows.
    abstain, skip : str, int or sequence of these, optional
        Values in the label column which mean that the annotator looked but declined to choose
        ("unsure"), or skipped the instance ("broken image"). A number and its digits are the same,
        and a value need not occur in the file.
    duplicates : {"error", "last", "keep"}
        How to treat repeated (instance, annotator) pairs, whether annotated or passed.

    Returns
    -------
    AnnotationTable
        Includes the values of a column ``source``, if all of them are known to `AnnotationTable`.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    AnnotationError
        If the file is empty, damaged or of another format, a column is missing, a label is not in
        ``classes`` or a task not in ``tasks``, or a value is in both ``abstain`` and ``skip`` or
        is a class.
    MissingExtraError
        If the format needs pandas or pyarrow and the extra 'io' is not installed.

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
    path = existing_file(path)
    with naming(path):
        marks = written_marks(abstain, skip, classes)
        if suffix_of(path) == ".npy":
            if group is not None:
                raise AnnotationError(
                    f"group={group!r} names a column, which a matrix does not have; store a long "
                    "table (.csv, .parquet), or declare families with AnnotationTable.with_groups"
                )
            return _from_dense(path, classes, tasks, integer_marks(marks))
        frame = read_frame(path)
        names = {
            "task": find_column(frame, "task", task),
            "worker": find_column(frame, "worker", worker),
            "label": find_column(frame, "label", label),
        }
        if weight is not None:
            names["weight"] = weight
        if group is not None:
            names["group"] = group
        if passes is not None:
            names["passes"] = passes
        if "source" in frame.columns and set(frame["source"].to_list()) <= set(SOURCES):
            names["source"] = "source"
        frame = with_passes(frame, names, marks)
        frame = with_types(frame, names, path)
        frame, values, code_names = label_values(frame, names["label"], classes)
        if code_names is not None:
            check_no_class(integer_marks(marks), range(len(code_names)))
        table = AnnotationTable.from_frame(frame, **names, classes=values, duplicates=duplicates)
        if code_names is not None:
            table = replace(table, classes=code_names)
        return table if tasks is None else _over_tasks(table, make_vocabulary(tasks, "tasks"))


def read_aligned(
    features_path: PathLike, annotations_path: PathLike, **options: Any
) -> tuple[FeatureFile, AnnotationTable]:
    """Read features and annotations such that row i of X is instance i of the table.

    If the feature file holds ids, the tasks of the annotations are matched with them (an integer
    matches the string that is its canonical form). Otherwise, integer tasks are row numbers of X,
    counted from 0, and a dense matrix must have as many rows as X.

    Parameters
    ----------
    features_path, annotations_path : str or Path
        See `read_features` and `read_annotations`.
    **options
        Passed to `read_annotations` (all but ``tasks``).

    Returns
    -------
    features : FeatureFile
    table : AnnotationTable
        ``len(table) == len(features)``; rows without annotations are instances, too.

    Raises
    ------
    AnnotationError
        If a task has no features, or tasks are strings and the features have no ids.
    """
    features = read_features(features_path)
    if features.tasks is not None:
        return features, read_annotations(annotations_path, tasks=features.tasks, **options)
    rows = np.arange(len(features))
    if suffix_of(Path(annotations_path)) == ".npy":
        return features, read_annotations(annotations_path, tasks=rows, **options)
    table = read_annotations(annotations_path, **options)
    _check_row_numbers(table.instances, len(rows), Path(annotations_path), Path(features_path))
    return features, _over_tasks(table, rows)


def _from_dense(path: Path, classes: Any, tasks: Any, marks: dict[int, int]) -> AnnotationTable:
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
    options = dict(zip(PASSES, by_kind(marks), strict=True)) | {"instances": tasks}
    if classes is None or make_vocabulary(classes, "classes").dtype.kind not in "UT":
        return AnnotationTable.from_matrix(matrix, classes, **options)
    names = make_vocabulary(classes, "classes")
    known = matrix[~missing_mask(matrix) & (matrix != -1) & (pass_kinds(matrix, marks) < 0)]
    check_codes(tidy(known, "the matrix"), names)
    table = AnnotationTable.from_matrix(matrix, range(len(names)), **options)
    return replace(table, classes=names)


def _over_tasks(table: AnnotationTable, tasks: AnyArray) -> AnnotationTable:
    """Re-index a table by the ids of the feature rows, in their order."""
    ids, wanted = as_one_kind(table.instances, tasks)
    unknown = ids[~np.isin(ids, wanted)]
    if len(unknown):
        raise AnnotationError(
            f"{len(unknown)} of {len(ids)} annotated tasks are not among the {len(tasks)} given "
            f"tasks (the ids of the features): {preview(unknown)}; given are {preview(tasks)}. "
            "Drop their annotations, or add their features"
        )
    positions, _ = encode(ids, wanted, argument="tasks", vocabulary_name="tasks")
    return over(table, tasks, positions)


def _check_row_numbers(ids: AnyArray, n: int, annotations: Path, features: Path) -> None:
    """Raise an error if tasks cannot be row numbers of X."""
    if ids.dtype.kind not in "iu" and len(ids):
        raise AnnotationError(
            f"{annotations}: tasks are strings ({preview(ids)}) but {features} has no ids to match "
            'them with. Store the ids with X (np.savez(file, X=X, task=ids), or a column "task" '
            "in a table), or use the row numbers 0.. as tasks"
        )
    outside = ids[(ids < 0) | (ids >= n)]
    if len(outside):
        raise AnnotationError(
            f"{annotations}: {len(outside)} tasks ({preview(outside)}) are not row numbers "
            f"0..{n - 1} of {features}, which has no ids. Count rows from 0, or store the ids "
            "with X (np.savez(file, X=X, task=ids))"
        )
