"""Readers of annotation tables, features and gold labels, strict about what a file means.

CSV cells are text first: an id column becomes integers only if every id is a canonical integer
("7", not "007"), "NA" and "None" are ids like others, and an empty cell is a gap.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from manyhands.annotations import PASSES, SOURCES, AnnotationTable
from manyhands.annotations.encoding import (
    check_no_class,
    encode,
    make_vocabulary,
    missing_mask,
    pass_kinds,
    read_marks,
    recode_passes,
    tidy,
)
from manyhands.annotations.table import Duplicates
from manyhands.exceptions import AnnotationError
from manyhands.io._frames import (
    SEPARATORS,
    Frame,
    PathLike,
    canonical,
    csv_header,
    existing_file,
    find_column,
    id_column,
    naming,
    read_csv,
    read_frame,
    read_parquet,
    require_column,
    some,
    suffix_of,
    with_column,
    with_gaps,
    with_types,
)
from manyhands.typing import AnyArray, BoolArray

__all__ = [
    "FeatureFile",
    "GoldFile",
    "read_aligned",
    "read_annotations",
    "read_features",
    "read_gold",
]


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """Features, and the ids of their rows where the file holds them.

    Attributes
    ----------
    X : float32 array of shape (n_samples, ...), or uint8 for images stored as such
    tasks : array of shape (n_samples,) or None
        Ids of the rows; None where the file has none.
    """

    X: AnyArray
    tasks: AnyArray | None = None

    def __len__(self) -> int:
        return len(self.X)


@dataclass(frozen=True, eq=False)
class GoldFile:
    """Gold labels, in the order of the file.

    Attributes
    ----------
    tasks : array of shape (n,)
    labels : array of shape (n,)
        Class values; None (in an array of objects) where there is no gold label.
    splits : array of str of shape (n,) or None
        None where the file has no such column.
    """

    tasks: AnyArray
    labels: AnyArray
    splits: AnyArray | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def known(self) -> BoolArray:
        """Mark the tasks that have a gold label, shape (n,)."""
        return ~missing_mask(self.labels)


# -- annotations ------------------------------------------------------------------------------


def read_annotations(
    path: PathLike,
    *,
    task: str = "task",
    worker: str = "worker",
    label: str = "label",
    weight: str | None = None,
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
        A long table, one row an annotation (.csv, .tsv, either with .gz, .parquet, .pq), or a
        dense (n, R) matrix of integers or floats (.npy; missing: -1 or NaN).
    task, worker, label, weight, passes : str
        Names of the columns (``passes``: see `AnnotationTable.from_frame`). Where a default is
        absent and exactly one column bears another common name (``instance``, ``annotator``,
        ``user_id``, ``answer``, ...), that one is taken and the choice logged. A matrix has no
        columns.
    classes : sequence, optional
        All classes, in the order wanted; default: the sorted labels. If these are names and the
        file holds integers, the integers are **codes** 0..C-1 into ``classes``, unless each of
        them, written out, is itself one of the names.
    tasks : sequence, optional
        All instance ids, in the order of the rows of X. Ids that are integers here and strings
        there are compared as strings. For a matrix: the ids of its rows.
    abstain, skip : str, int or sequence of these, optional
        Values in the place of labels which mean that the annotator looked and declined to choose
        ("unsure"), or passed on ("broken image"). A number and its digits are the same, and a
        value may be absent from the file.
    duplicates : {"error", "last", "keep"}
        What to do with repeated (instance, annotator) pairs, be they annotated or passed.

    Returns
    -------
    AnnotationTable
        With the marks of a column ``source``, if all it holds are those of `AnnotationTable`.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    AnnotationError
        If the file is empty, damaged or of another kind, a column is missing, a label is outside
        ``classes`` or a task outside ``tasks``, or a value of ``abstain`` or ``skip`` stands in
        both or is a class.
    MissingExtraError
        If the format needs pandas or pyarrow, and the extra 'io' is not installed.

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
        marks = _written_marks(abstain, skip, classes)
        if suffix_of(path) == ".npy":
            return _from_dense(path, classes, tasks, _integers(marks))
        frame = read_frame(path)
        names = {
            "task": find_column(frame, "task", task),
            "worker": find_column(frame, "worker", worker),
            "label": find_column(frame, "label", label),
        }
        if weight is not None:
            names["weight"] = weight
        if passes is not None:
            names["passes"] = passes
        if "source" in frame.columns and set(frame["source"].to_list()) <= set(SOURCES):
            names["source"] = "source"
        frame = _with_passes(frame, names, marks)
        frame = with_types(frame, names, path)
        frame, values, code_names = _label_values(frame, names["label"], classes)
        if code_names is not None:
            check_no_class(_integers(marks), range(len(code_names)))
        with warnings.catch_warnings():
            if tasks is not None:  # their order is settled below
                warnings.filterwarnings("ignore", message=".*numbers as text")
            table = AnnotationTable.from_frame(
                frame, **names, classes=values, duplicates=duplicates
            )
        if code_names is not None:
            table = replace(table, classes=code_names)
        return table if tasks is None else _over_tasks(table, make_vocabulary(tasks, "tasks"))


def read_aligned(
    features_path: PathLike, annotations_path: PathLike, **options: Any
) -> tuple[FeatureFile, AnnotationTable]:
    """Read features and annotations such that row i of X is instance i of the table.

    Where the features' file holds ids, the annotations' tasks are matched with them (integers
    with strings by their canonical form). Where it holds none, integer tasks are row numbers of
    X, counted from 0, and a dense matrix must have as many rows as X.

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
        ``len(table) == len(features)``; rows without annotations are instances all the same.

    Raises
    ------
    AnnotationError
        If a task has no row of features, or tasks are strings and the features have no ids.
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


def _written_marks(abstain: Any, skip: Any, classes: Any) -> dict[str, int]:
    """Values that mean a pass, as they are written, each with its kind."""
    texts = [[str(value) for value in values] for values in _by_kind(read_marks(abstain, skip))]
    names = None if classes is None else make_vocabulary(classes, "classes").astype(str)
    return read_marks(texts[0], texts[1], names)


def _by_kind(marks: dict[Any, int]) -> list[list[Any]]:
    return [[value for value in marks if marks[value] == k] for k in range(len(PASSES))]


def _integers(marks: dict[str, int]) -> dict[int, int]:
    """Those of the written values that are integers."""
    values = {text: canonical(np.array([text])) for text in marks}
    return {int(v[0]): marks[text] for text, v in values.items() if v.dtype.kind == "i"}


def _with_passes(frame: Frame, names: dict[str, str], marks: dict[str, int]) -> Frame:
    """Move labels that mean a pass into the column of passes; make and name it if need be."""
    used = {name for argument, name in names.items() if argument in ("label", "passes")}
    if not marks or not used <= set(frame.columns):
        return frame
    forms: dict[Any, int] = dict(marks)
    for value, kind in _integers(marks).items():
        forms |= {value: kind, f"{value}.0": kind}  # among labels, "3.0" counts as 3
    labels = np.array(frame[names["label"]].to_list(), dtype=object)
    passes = np.full(len(labels), None)
    if "passes" in names:
        passes = np.array(frame[names["passes"]].to_list(), dtype=object)
    kinds = pass_kinds(labels, forms)
    moved = (kinds >= 0) & missing_mask(passes)
    if not moved.any():
        return frame
    labels[moved], passes[moved] = None, np.array(PASSES, dtype=object)[kinds[moved]]
    # Longer than every name in use, so none of them.
    column = names.setdefault("passes", " ".join(names.values()))
    return with_column(with_column(frame, names["label"], labels), column, passes)


def _from_dense(path: Path, classes: Any, tasks: Any, marks: dict[int, int]) -> AnnotationTable:
    matrix = _array(path)
    if matrix.dtype.kind not in "iufb":
        raise AnnotationError(
            f"a matrix of annotations holds integers or floats, this one {matrix.dtype}; store "
            "class codes (-1 where missing) and name the classes in classes="
        )
    if matrix.ndim != 2:
        raise AnnotationError(
            f"a matrix of annotations has shape (n_instances, n_annotators), this one "
            f"{matrix.shape}; reshape it, or store a long table (.csv, .parquet)"
        )
    if tasks is not None and len(tasks) != len(matrix):
        raise AnnotationError(
            f"the matrix has {len(matrix)} rows for {len(tasks)} tasks (rows of X); its rows must "
            "be those of X, in the same order. Rows without annotations are all -1"
        )
    options = dict(zip(PASSES, _by_kind(marks), strict=True)) | {"instances": tasks}
    if classes is None or make_vocabulary(classes, "classes").dtype.kind not in "UT":
        return AnnotationTable.from_matrix(matrix, classes, **options)
    names = make_vocabulary(classes, "classes")
    known = matrix[~missing_mask(matrix) & (matrix != -1) & (pass_kinds(matrix, marks) < 0)]
    _check_codes(tidy(known, "the matrix"), names)
    table = AnnotationTable.from_matrix(matrix, range(len(names)), **options)
    return replace(table, classes=names)


def _over_tasks(table: AnnotationTable, tasks: AnyArray) -> AnnotationTable:
    """Re-index a table over the ids of the features' rows, in their order."""
    ids, wanted = table.instances, tasks
    if (ids.dtype.kind in "UT") != (tasks.dtype.kind in "UT"):
        # An integer and a string are the same id if the string is the integer's canonical form.
        ids, wanted = ids.astype(str), tasks.astype(str)
    unknown = ids[~np.isin(ids, wanted)]
    if len(unknown):
        raise AnnotationError(
            f"{len(unknown)} of {len(ids)} tasks are annotated but not among the {len(tasks)} "
            f"tasks given (the ids of the features): {some(unknown)}; given are {some(tasks)}. "
            "Drop their annotations, or add their features"
        )
    positions, _ = encode(ids, wanted, argument="tasks", vocabulary_name="tasks")
    passes = table.passes
    return replace(
        table,
        instance=positions[table.instance],
        instances=tasks,
        passes=None if passes is None else recode_passes(passes, instance=positions),
    )


def _check_row_numbers(ids: AnyArray, n: int, annotations: Path, features: Path) -> None:
    """Refuse tasks that cannot be row numbers of X."""
    if ids.dtype.kind not in "iu" and len(ids):
        raise AnnotationError(
            f"{annotations}: tasks are strings ({some(ids)}) but {features} has no ids to match "
            'them with. Store the ids beside X (np.savez(file, X=X, task=ids), or a column "task" '
            "in a table), or use the row numbers 0.. as tasks"
        )
    outside = ids[(ids < 0) | (ids >= n)]
    if len(outside):
        raise AnnotationError(
            f"{annotations}: {len(outside)} tasks ({some(outside)}) are not row numbers "
            f"0..{n - 1} of {features}, which has no ids. Count rows from 0, or store the ids "
            "beside X (np.savez(file, X=X, task=ids))"
        )


def _label_values(
    frame: Frame, column: str, classes: Any
) -> tuple[Frame, AnyArray | None, AnyArray | None]:
    """Decide whether labels are class values, or codes into the names in ``classes``.

    Returns
    -------
    frame : labels written as names where they are such
    values : what the labels are, for ``AnnotationTable.from_frame``
    names : the names the codes stand for, or None
    """
    if classes is None:
        return frame, None, None
    names = make_vocabulary(classes, "classes")
    if names.dtype.kind not in "UT" or column not in frame.columns:
        return frame, names, None
    raw = frame[column].to_numpy()
    labels = tidy(raw[~missing_mask(raw)], f"column {column!r}")
    if labels.dtype.kind in "UT" or not len(labels):
        return frame, names, None
    if np.isin(np.unique(labels).astype(str), names).all():
        return (
            with_column(frame, column, with_gaps(labels.astype(str), missing_mask(raw))),
            names,
            None,
        )
    _check_codes(labels, names)
    return frame, np.arange(len(names)), names


def _check_codes(labels: AnyArray, names: AnyArray) -> None:
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    outside = np.unique(labels[(labels < 0) | (labels >= len(names))])
    if len(outside):
        raise AnnotationError(
            f"labels are integers and classes are names, so labels are codes 0..{len(names) - 1}; "
            f"found {some(outside)}. Count codes from 0, or give all classes ({some(names)} ...)"
        )


# -- features ---------------------------------------------------------------------------------


def read_features(path: PathLike) -> FeatureFile:
    """Read features.

    Parameters
    ----------
    path : str or Path
        - .npy: the array alone;
        - .npz: the array ``X``, or the only array; an array ``task`` (``instance``, ``id``, ...)
          holds the ids;
        - .csv, .tsv (either with .gz), .parquet, .pq: numeric columns; a column ``task``
          (``instance``, ``id``, ...) holds the ids.

    Returns
    -------
    FeatureFile
        float32; uint8 arrays of three or more axes (images) stay as they are.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    AnnotationError
        If the file is empty, damaged or of another kind, holds pickled objects, text, NaN or
        infinity (the message names the row and the column).
    """
    path = existing_file(path)
    with naming(path):
        suffix = suffix_of(path)
        columns: list[str] | None = None
        ids: Any = None
        if suffix == ".npy":
            X = _array(path)
        elif suffix == ".npz":
            X, ids = _from_archive(path)
        else:
            X, ids, columns = _from_columns(path)
        X = _checked_features(X, columns)
        return FeatureFile(X, None if ids is None else _row_ids(ids, len(X)))


def _array(path: Path) -> AnyArray:
    with path.open("rb") as file:
        content = np.load(file, allow_pickle=False)
        if not isinstance(content, np.ndarray):
            raise AnnotationError("this is an archive of arrays, not one array; name it .npz")
        return content


def _from_archive(path: Path) -> tuple[AnyArray, AnyArray | None]:
    # NumPy leaves a file of its own open if the archive is damaged.
    with path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise AnnotationError("this is one array, not an archive; name the file .npy")
        names = list(archive.files)
        id_name = id_column(names)
        data = [name for name in names if name != id_name]
        if "X" not in data and len(data) != 1:
            raise AnnotationError(
                f"the archive holds {', '.join(map(repr, names)) or 'nothing'}; store the features "
                "under the name 'X'"
            )
        X = archive["X" if "X" in data else data[0]]
        return X, None if id_name is None else archive[id_name]


def _from_columns(path: Path) -> tuple[AnyArray, AnyArray | None, list[str]]:
    text = suffix_of(path) in SEPARATORS
    header = csv_header(path) if text else []
    frame = read_csv(path, features=header) if text else read_parquet(path)
    id_name = id_column(frame.columns)
    columns = [name for name in frame.columns if name != id_name]
    numeric = {c for c in columns if frame[c].dtype.is_numeric() or frame[c].dtype == nw.Boolean}
    other = [c for c in columns if c not in numeric]
    if other:
        raise AnnotationError(
            f"{len(other)} of {len(columns)} columns are not numeric: {some(other)}. Drop or "
            "encode them; ids belong into a column named 'task'"
        )
    if not columns:
        raise AnnotationError("no column of features; one numeric column each is expected")
    with np.errstate(over="ignore"):
        X = np.column_stack([frame[c].cast(nw.Float32).to_numpy() for c in columns])
    if id_name is None:
        return X, None, columns
    ids = frame[id_name].to_numpy()
    return X, canonical(ids) if text else ids, columns


def _checked_features(X: AnyArray, columns: list[str] | None) -> AnyArray:
    if X.dtype.kind not in "iufb":
        raise AnnotationError(f"features are numbers, these are of type {X.dtype}; encode them")
    if X.ndim < 2:
        raise AnnotationError(
            f"features have shape (n_samples, n_features), these {X.shape}; reshape them, for one "
            "feature with X[:, None]"
        )
    if not X.size:
        raise AnnotationError(f"the features are empty: shape {X.shape}")
    if X.dtype == np.uint8 and X.ndim > 2:
        return X
    with np.errstate(over="ignore"):
        X = np.ascontiguousarray(X, dtype=np.float32)
    finite = np.isfinite(X)
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), X.shape)
        column = repr(columns[place[1]]) if columns else ", ".join(map(str, place[1:]))
        raise AnnotationError(
            f"row {place[0]}, column {column} (counted from 0) holds {X[place]!s} in float32, and "
            f"{finite.size - int(finite.sum()) - 1} more cells are not finite; impute or drop them"
        )
    return X


def _row_ids(ids: AnyArray, n: int) -> AnyArray:
    if ids.shape != (n,):
        raise AnnotationError(f"the ids have shape {ids.shape} for {n} rows of features")
    if ids.dtype.kind in "UTO" and (ids == "").any():
        raise AnnotationError(
            f"the id of row {int(np.argmax(ids == ''))} is empty; give every row an id"
        )
    return make_vocabulary(ids, "the ids of the features")


# -- gold labels ------------------------------------------------------------------------------


def read_gold(
    path: PathLike,
    *,
    task: str = "task",
    label: str = "label",
    split: str = "split",
    classes: Any = None,
) -> GoldFile:
    """Read gold labels: one row a task; an empty label means that there is no gold.

    Parameters
    ----------
    path : str or Path
        .csv, .tsv (either with .gz), .parquet or .pq.
    task, label, split : str
        Names of the columns, common other names as in `read_annotations`. A file may do without
        a split.
    classes : sequence, optional
        All classes; names for integer labels as in `read_annotations`.

    Returns
    -------
    GoldFile

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    AnnotationError
        If the file is empty, damaged or of another kind, a column is missing, a task stands
        twice, or a label is outside ``classes``.
    """
    path = existing_file(path)
    with naming(path):
        frame = read_frame(path)
        names = {
            "task": find_column(frame, "task", task),
            "label": find_column(frame, "gold", label),
        }
        for argument, name in names.items():
            require_column(frame, argument, name)
        if split != "split":
            require_column(frame, "split", split)
        frame = with_types(frame, names, path)
        frame, values, code_names = _label_values(frame, names["label"], classes)
        ids = make_vocabulary(frame[names["task"]].to_numpy(), f"column {names['task']!r}")
        labels = _gold_values(frame[names["label"]].to_numpy(), values, code_names)
        splits = np.array(frame[split].to_list(), dtype=str) if split in frame.columns else None
        return GoldFile(ids, labels, splits)


def _gold_values(raw: AnyArray, values: AnyArray | None, names: AnyArray | None) -> AnyArray:
    gaps = missing_mask(raw)
    codes, vocabulary = encode(
        raw[~gaps], values, argument="the gold labels", vocabulary_name="classes"
    )
    return with_gaps((vocabulary if names is None else names)[codes], gaps)
