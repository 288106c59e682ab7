"""Ids of instances: their order in a table, and the ids that the rows of X carry."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np

from manyhands.annotations.encoding import check_no_mixture, is_text, missing_mask, tidy
from manyhands.exceptions import AnnotationError
from manyhands.records import record
from manyhands.typing import AnyArray, IntArray

# -- the order of a table's instances -------------------------------------------------------------


@record("InstanceOrder")
@dataclass(frozen=True, eq=False)
class InstanceOrder:
    """Where the order of a table's instances comes from, kept through selections of rows.

    Attributes
    ----------
    kind : {"given", "sorted", "numbered"}
        "given": by ``tasks=``, ``instances=`` or X. "sorted": the table sorted the ids that it
        found. "numbered": there are no ids; instances are numbered as the rows of a matrix are.
    assumed : str
        First and last ids, for the warning that rows of X without ids are taken to be in this
        order. Empty if they are 0..n-1, or if ``tasks=`` or ``instances=`` stated the order.
    rows : integer array or None
        Positions of the instances in the table from which they were selected; None: 0..n-1.
    """

    kind: Literal["given", "sorted", "numbered"]
    assumed: str = ""
    rows: IntArray | None = None

    def at(self, positions: IntArray) -> InstanceOrder:
        """Return the order of the instances at some positions."""
        return replace(self, rows=positions if self.rows is None else self.rows[positions])

    def extended(self, n: int, total: int) -> InstanceOrder:
        """Return the order after new instances were appended to the first n, to make ``total``."""
        if self.rows is None or n == total:
            return self
        return replace(self, rows=np.concatenate([self.rows, np.full(total - n, -1)]))

    def numbers(self, ids: AnyArray) -> bool:
        """Return whether ids are merely the numbers of the instances' rows."""
        rows = np.arange(len(ids)) if self.rows is None else self.rows
        return ids.dtype.kind in "iu" and np.array_equal(ids, rows)


GIVEN = InstanceOrder("given")
NUMBERED = InstanceOrder("numbered")


def names_ids(key: Any, ids: AnyArray) -> bool:
    """Return whether a selection of instances holds ids, not positions, a mask or a slice."""
    kind = "" if isinstance(key, slice) else np.asarray(key).dtype.kind
    return kind in "UTO" or (kind in "iu" and not is_text(ids))


def sorted_order(ids: AnyArray) -> InstanceOrder:
    """Return the order of instances that the table itself sorted."""
    rows, text = np.arange(len(ids)), is_text(ids)
    ends = str(len(ids) - 1) if text else len(ids) - 1
    numbers = not len(ids) or (
        ids[-1] == ends and np.array_equal(ids, rows.astype(str) if text else rows)
    )
    return InstanceOrder("sorted", "" if numbers else first_and_last(ids))


def given_order(ids: AnyArray, are_named: bool) -> InstanceOrder:
    """Return the order of instances named by ``instances=`` or by the frame's index."""
    return GIVEN if are_named else replace(GIVEN, assumed=sorted_order(np.asarray(ids)).assumed)


def in_natural_order(codes: IntArray, ids: AnyArray) -> tuple[IntArray, AnyArray]:
    """Sort text ids naturally, "img2" before "img10", and code them anew.

    Parameters
    ----------
    codes : integer array
        Positions in ``ids``.
    ids : array of distinct ids
        Sorted. Numbers are returned as they are.

    Returns
    -------
    codes, ids : arrays
    """
    if not is_text(ids) or _have_one_form(ids):
        return codes, ids
    keys = natural_keys(ids.tolist())
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[codes], ids[order]


def _have_one_form(ids: AnyArray) -> bool:
    """Return whether digits are at the same places of all texts, so that sorted is natural order.

    Ids with leading zeros, "img002" and "img010", are of this form, and are many in large tables.
    """
    if ids.dtype.kind != "U" or not ids.size or not ids.dtype.itemsize:
        return False
    characters = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), -1)
    digits = (characters >= ord("0")) & (characters <= ord("9"))
    return bool((digits == digits[0]).all() and (characters != 0).all())


def natural_keys(texts: list[str]) -> list[str]:
    """Return sort keys of texts, in which digits compare as numbers."""
    # Padding all numbers to the longest one would let a single long id multiply the memory.
    digits = re.compile("[0-9]+")

    def with_length(run: re.Match[str]) -> str:
        number = run.group().lstrip("0")
        return f"{len(number):09d}{number}"

    return [digits.sub(with_length, text) for text in texts]


def are_shuffled(ids: AnyArray) -> bool:
    """Return whether ids are consecutive numbers ("img0", "img1", ...) out of order."""
    if is_text(ids):
        if not all(isinstance(text, str) for text in ids.tolist()):
            return False
        parts = [re.split("([0-9]+)", text) for text in ids.tolist()]
        # Numbers of more than 15 digits, such as hashes, are no counters (nor exact as floats).
        if any(len(part) != 3 or part[::2] != parts[0][::2] or len(part[1]) > 15 for part in parts):
            return False
        ids = np.array([float(part[1]) for part in parts])
    if ids.dtype.kind not in "iuf":
        return False
    steps = np.diff(np.sort(ids))
    return bool((steps == 1).all()) and not bool((np.diff(ids) == 1).all())


def first_and_last(ids: AnyArray) -> str:
    """Format the first two ids and the last for a message."""
    shown = [repr(value) for value in ids[:2].tolist()]
    if len(ids) > 3:
        shown.append("...")
    return ", ".join([*shown, *map(repr, ids[2:][-1:].tolist())])


# -- columns that hold ids ------------------------------------------------------------------------

ID_NAMES = {"task", "instance", "item", "question", "example", "sample", "document", "image"}
"""Names of columns of ids, as `base_name` normalises them; a plain "id" counts, too."""


def base_name(name: str) -> str:
    """Normalise a column name: 'Worker_ID' to 'worker', 'id' to ''."""
    return letters(name).removesuffix("id")


def letters(name: str) -> str:
    """Keep the letters and digits of a column name, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_id_name(name: str) -> bool:
    """Return whether a column has a name as columns of ids have: 'task', 'image_id', 'ID', ..."""
    # pandas writes a nameless index into CSV files as "", and into Parquet as __index_level_0__.
    return name != "X" and (base_name(name) in ID_NAMES | {""} or name == "__index_level_0__")


def id_column(names: Iterable[Any]) -> str | None:
    """Find the column of ids by its name ('task', 'instance', 'id', ...), or None.

    Raises
    ------
    AnnotationError
        If several have such a name, and none is 'task'.
    """
    names = list(names)
    if "task" in names:
        return "task"
    found = [n for n in names if isinstance(n, str) and is_id_name(n)]
    if len(found) > 1:
        shown = ", ".join(map(repr, found[:3])) + (" ..." if len(found) > 3 else "")
        raise AnnotationError(f"{shown} could all be the ids; rename the right column to 'task'")
    return found[0] if found else None


def read_wide(A: Any, instances: Any, annotators: Any) -> tuple[Any, Any, Any]:
    """Split a wide frame into its values, the ids of its rows and the names of its columns.

    Anything but a frame is returned as it is. Ids that are given take precedence.

    Raises
    ------
    AnnotationError
        If a column is named like ids, or looks like ids, but cannot be used as such.
    """
    frame = as_frame(A)
    if frame is None:
        return A, instances, annotators
    name = id_column(frame.columns)
    given = "the ids are given already" if instances is not None else ""
    index = row_ids(A, "A") if hasattr(A, "iloc") else None
    if index is not None and not (index.default or given or (name and _numbers_rows(A.index))):
        instances = index.values
        given = f"the ids are given already, by the index ({first_and_last(instances)})"
    if name is not None:
        values = frame[name].to_numpy()
        problem = given or _no_ids(values)
        if problem:
            raise AnnotationError(
                f"column {name!r} of A is named like a column of ids, but {problem}; drop it, or "
                "rename it if it is an annotator"
            )
        instances, frame = values, frame.drop(name)
    _check_annotators_only(frame)
    # pyarrow fills the gaps of its categories.
    exact = frame.to_pandas() if frame.implementation.is_pyarrow() else frame.to_native()
    matrix = np.array(exact, order="C")
    if matrix.dtype == object:
        matrix[missing_mask(matrix)] = None
    return matrix, instances, frame.columns if annotators is None else annotators


def _numbers_rows(index: Any) -> bool:
    """Return whether a nameless pandas index is 0..n-1 in some order, as shuffling leaves it."""
    values = np.asarray(index)
    return index.name is None and bool(
        values.dtype.kind in "iu" and np.array_equal(np.sort(values), np.arange(len(values)))
    )


def _no_ids(values: AnyArray) -> str:
    """Say why a column cannot hold the ids of instances; empty if it can."""
    if missing_mask(values).any():
        return "it has empty cells"
    if values.dtype.kind not in "iuOUT":
        return f"it holds values such as {values[0].item()!r}"
    distinct, counts = np.unique(values.astype(str), return_counts=True)
    return "" if len(distinct) == len(values) else f"it repeats {distinct[counts > 1][0].item()!r}"


def _check_annotators_only(frame: nw.DataFrame[Any]) -> None:
    """Refuse a column that has a different value in every row, few of them in other columns."""
    # A narwhals frame reads frame[0] as a row.
    columns = dict(zip(frame.columns, frame.iter_columns(), strict=True))
    if len(frame) < 4 or len(columns) < 2:
        return
    for name, column in columns.items():
        # The first rows are enough to see that nearly any annotator repeats a value.
        if not all(_are_distinct(part) for part in (column.head(64), column)):
            continue
        own = set(_texts(column))
        elsewhere: set[str] = set()
        for other, values in columns.items():
            if other != name:
                elsewhere.update(_texts(values))
        if 2 * len(own & elsewhere) < len(own):
            raise AnnotationError(
                f"column {name!r} of A holds a different value in each of {len(own)} rows, as ids "
                f"do ({', '.join(_texts(column.head(2)))}, ...). If they are ids, rename it to "
                "'task' or make it the index; if it is an annotator, give A.to_numpy(); otherwise "
                "drop it"
            )


def _are_distinct(column: nw.Series[Any]) -> bool:
    return column.null_count() == 0 and len(set(_texts(column))) == len(column)


def _texts(column: nw.Series[Any]) -> list[str]:
    """Return values as text; whole floats, as pandas makes of a gap, are written as integers."""
    return [
        str(int(value) if isinstance(value, float) and value.is_integer() else value)
        for value in column.to_list()
    ]


# -- the ids that the rows of X carry -------------------------------------------------------------


class RowIds(NamedTuple):
    """Ids of the rows of X.

    Attributes
    ----------
    values : array of shape (n_samples,)
    default : bool
        Whether they are pandas' default index, 0..n-1, which says nothing about instances.
    """

    values: AnyArray
    default: bool = False


def row_ids(X: Any, argument: str = "X") -> RowIds | None:
    """Return the ids that the rows of X carry; None if they carry none.

    Parameters
    ----------
    X : any
        A pandas frame or Series carries its index, a polars or pyarrow frame the column that is
        named like ids (see `id_column`). Nothing else carries ids.
    argument : str
        Its name, for messages.

    Raises
    ------
    AnnotationError
        If the index cannot be ids of instances: several levels, times, fractions, gaps.
    """
    if hasattr(X, "iloc") and hasattr(X, "index"):
        return _index_ids(X.index, argument)
    name = id_column_of(X)
    if name is None:
        return None
    values = nw.from_native(X, eager_only=True)[name].to_numpy()
    return RowIds(_as_ids(values, f"column {name!r} of {argument}", "rename or correct it"))


def id_column_of(X: Any) -> str | None:
    """Name of the id column of a polars or pyarrow frame; None for anything else."""
    frame = as_frame(X)
    return None if frame is None or hasattr(X, "iloc") else id_column(frame.columns)


def as_frame(X: Any, argument: str = "") -> nw.DataFrame[Any] | None:
    """Return a pandas, polars or pyarrow frame as a narwhals one; None for anything else.

    Raises
    ------
    AnnotationError
        If several columns have one name, or the frame is lazy.
    """
    if nw.dependencies.is_polars_lazyframe(X):
        raise AnnotationError("X is a LazyFrame, which has no rows yet; pass X.collect()")
    if not nw.dependencies.is_into_dataframe(X):
        return None
    try:
        return nw.from_native(X, eager_only=True)
    except nw.exceptions.DuplicateError:
        names = [str(name) for name in X.columns]
        twice = next(name for name in names if names.count(name) > 1)
        raise AnnotationError(
            f"{argument or 'the frame'} has several columns called {twice!r}; give every column "
            f"its own name by {argument or 'frame'}.columns = [...], or drop one"
        ) from None


def one_level(frame: Any, argument: str) -> None:
    """Refuse a pandas frame whose columns have several levels, as `pivot` makes them.

    Raises
    ------
    AnnotationError
        If its columns have several levels.
    """
    columns: Any = getattr(frame, "columns", None)
    if getattr(columns, "nlevels", 1) > 1:
        first = next(iter(columns))
        raise AnnotationError(
            f"{argument} has columns of {columns.nlevels} levels, such as {first!r}; give one "
            f"group of columns, such as {argument}[{first[0]!r}], or join the levels by "
            f'{argument}.columns = ["_".join(map(str, name)) for name in {argument}.columns]'
        )


def is_default_index(index: Any) -> bool:
    """Return whether a pandas index is the default one, 0..n-1."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _index_ids(index: Any, argument: str) -> RowIds:
    mend = (
        f"set one level of integers or strings as the index, or drop it with "
        f"{argument}.reset_index(drop=True)"
    )
    if getattr(index, "nlevels", 1) > 1:
        raise AnnotationError(
            f"{argument} has an index of {index.nlevels} levels ({index[0]!r}), which cannot hold "
            f"the ids of instances; {mend}"
        )
    if type(index).__name__ == "RangeIndex":
        return RowIds(np.array(index), is_default_index(index))
    return RowIds(_as_ids(np.asarray(index), f"the index of {argument}", mend))


def _as_ids(values: AnyArray, argument: str, mend: str) -> AnyArray:
    try:
        if missing_mask(values).any():
            raise AnnotationError(f"{argument} holds a missing value")
        check_no_mixture(values, argument)
        return tidy(values, argument)
    except AnnotationError as error:
        raise AnnotationError(f"{error}. These cannot be ids of instances: {mend}") from error
