"""Encoding of ids, labels and matrices as integer codes, with helpful errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Any, Final, NamedTuple

import narwhals as nw
import numpy as np

from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.typing import MISSING, AnyArray, BoolArray, IntArray


def missing_mask(values: AnyArray) -> BoolArray:
    """Mark None, NaN and pandas' NA in an array of any dtype."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind == "O" and not types_in(values) <= _NEVER_MISSING:
        # Only NaN and NaT are unequal to themselves; comparing pandas' NA has no truth value.
        return np.array(
            [v is None or type(v).__name__ == "NAType" or bool(v != v) for v in values.ravel()],
            dtype=bool,
        ).reshape(values.shape)
    return np.zeros(values.shape, dtype=bool)


_NEVER_MISSING: Final = frozenset({str, int, bool})

MOST_PER_VALUE = 4
"""Range of whole numbers, in multiples of their number, up to which they are marked, not sorted."""


def types_in(values: AnyArray) -> set[type]:
    """Return the types of an object array's entries, without a step of Python for each entry."""
    return set(map(type, values.ravel().tolist()))


def equal_mask(values: AnyArray, value: Any) -> BoolArray:
    """Mask the entries equal to a value; missing ones are not (pandas' NA has no truth value)."""
    equal = ~missing_mask(values)
    equal[equal] = np.asarray(values[equal] == value, dtype=bool)
    return equal


def as_values(values: Any) -> AnyArray:
    """Read a sequence as an array, without turning gaps or numbers among strings into strings.

    Masked entries of a masked array are gaps.
    """
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        values = np.asarray(values)
        if mask.any():
            values = values.astype(object)
            values[mask] = None
        return values
    try:
        array = np.asarray(values)
    except ValueError:  # Lists of different lengths, which the next check refuses by name.
        array = np.array([*values, None], dtype=object)[:-1]
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        return np.asarray(values, dtype=object)
    return array


def tidy(values: Any, argument: str) -> AnyArray:
    """Return ids or labels as an array of integers, booleans or strings.

    Whole floats become integers (pandas turns an integer column with a gap into floats).

    Raises
    ------
    AnnotationError
        If numbers and strings are mixed, or a number is not whole.
    """
    values = np.asarray(values)
    if values.dtype.kind == "O":
        values = np.array(values.tolist()) if values.size else values.astype(str)
    if values.dtype.kind == "f":
        # Beyond 2**53 floats cannot represent all integers.
        usable = np.isfinite(values) & (np.abs(values) <= 2.0**53) & (values == np.floor(values))
        whole = values.astype(np.int64) if usable.all() else None
        if whole is None:
            bad = values[~usable].ravel()[0]
            raise AnnotationError(
                f"{argument} holds {bad.item()!r}; a class or an id is an integer or a string. "
                "Round it, or convert the column to strings"
            )
        return whole
    if values.dtype.kind == "c":
        raise AnnotationError(f"Complex data not supported: {argument} has type {values.dtype}")
    if values.dtype.kind not in "iubUT":
        raise AnnotationError(
            f"{argument} has values of type {values.dtype}; use integers or strings, for example "
            "by .astype(str)"
        )
    return values


_COLLECTIONS: Final = (list, tuple, set, frozenset, dict, np.ndarray)


def check_no_mixture(values: AnyArray, argument: str) -> None:
    """Refuse an object array that mixes strings with anything else, or holds collections.

    Several labels per annotation are such collections.
    """
    if values.dtype.kind != "O":
        return
    types = types_in(values)
    if any(issubclass(each, _COLLECTIONS) for each in types):
        value = next(value for value in values.ravel() if isinstance(value, _COLLECTIONS))
        raise AnnotationError(
            f"{argument} holds a {type(value).__name__}, {value!r}, but each entry must be one "
            "class or one id. If an annotation may hold several labels, choose how to read "
            "them: multilabel='split' or multilabel='join'"
        )
    if len({issubclass(each, str) for each in types}) > 1:
        text = next(value for value in values.ravel() if isinstance(value, str))
        other = next(value for value in values.ravel() if not isinstance(value, str))
        raise AnnotationError(
            f"{argument} mixes strings and other values, such as {text!r} and {other!r}, which "
            "cannot be sorted together; correct the odd ones, or convert the column to strings"
        )


def is_text(values: AnyArray) -> bool:
    """Return whether values, checked by `check_no_mixture`, are strings."""
    if values.dtype.kind == "O":
        return values.size > 0 and isinstance(values.flat[0], str)
    return values.dtype.kind in "UT"


class Texts(NamedTuple):
    """A column of texts, each of them held once.

    Attributes
    ----------
    values : list of str
        The distinct texts, in the order in which they appear.
    rows : integer array of shape (n,)
        Position of each cell's text in ``values``; -1 where a cell is empty.
    """

    values: list[str]
    rows: IntArray


def texts_of(column: Any) -> Texts | None:
    """Read a column of a narwhals frame whose type is text; None if it has another type.

    A column of Python objects has another type, even if they are all strings.
    """
    native = column.to_native()
    if column.dtype != nw.String or str(getattr(native, "dtype", "")) == "object":
        return None
    if column.implementation.is_pandas():
        rows, values = native.factorize()
        return Texts(values.tolist(), rows)
    cells = column.to_list()
    values = [value for value in dict.fromkeys(cells) if value is not None]
    position = {value: i for i, value in enumerate(values)} | {None: MISSING}
    rows = np.fromiter(map(position.__getitem__, cells), np.int64, len(cells))
    return Texts(values, rows)


def distinct_text(values: AnyArray | Texts) -> tuple[AnyArray, IntArray | EllipsisType]:
    """Return the distinct strings of an object array, and the position of each string in them.

    A numpy array of text would give all strings the length of the longest, so only the distinct
    ones are converted. Other arrays are returned unchanged, with ``...`` as the index.
    """
    if isinstance(values, Texts):
        return text_array(values.values), values.rows
    if values.dtype.kind != "O" or not is_text(values):
        return values, ...
    rows = values.ravel().tolist()
    position = {value: i for i, value in enumerate(dict.fromkeys(rows))}
    positions = np.fromiter(map(position.__getitem__, rows), dtype=np.int64, count=len(rows))
    return text_array(list(position)), positions.reshape(values.shape)


LARGEST_TEXTS: Final = 2**30
"""Largest memory, in bytes, that the distinct ids or labels of a table may take."""


def text_array(values: Sequence[str]) -> AnyArray:
    """Make an array of distinct texts.

    Raises
    ------
    AnnotationError
        If they would need too much memory, because each takes the room of the longest.
    """
    longest = max(values, key=len, default="")
    if 4 * len(longest) * len(values) > LARGEST_TEXTS:
        raise AnnotationError(
            f"one of {len(values):,} different ids or labels is {len(longest):,} characters long "
            f"({longest[:40]!r}...), and each would take as much memory as the longest. Is this "
            "the right column? If the ids are texts, number them, and give the numbers instead"
        )
    return np.array(values, dtype=str)


def make_vocabulary(values: Any, argument: str) -> AnyArray:
    """Check a given vocabulary: one-dimensional, without missing values or repetitions."""
    vocabulary = as_values(list(values) if isinstance(values, range) else values)
    if vocabulary.ndim != 1:
        raise AnnotationError(
            f"{argument} must be a one-dimensional sequence, such as a list, got a "
            f"{type(values).__name__} of shape {vocabulary.shape}"
        )
    if missing_mask(vocabulary).any():
        raise AnnotationError(f"{argument} holds a missing value; leave it out")
    check_no_mixture(vocabulary, argument)
    vocabulary = tidy(vocabulary, argument)
    unique, counts = np.unique(vocabulary, return_counts=True)
    if len(unique) < len(vocabulary):
        raise AnnotationError(
            f"{argument} holds {unique[counts > 1][0].item()!r} twice; name each value once"
        )
    return vocabulary


def written(number: float | None) -> str:
    """Write a number in the one form that classes have, such as "0.5" or "2"."""
    return repr(float(number)).removesuffix(".0") if number is not None else ""


def declared_classes(
    columns: Iterable[Any], marks: Iterable[Any], argument: str
) -> AnyArray | None:
    """Return the classes that categorical columns declare, in the order of the categories.

    Parameters
    ----------
    columns : iterable of arrays, or of columns of pandas, polars or pyarrow
    marks : iterable
        Categories that are not classes, such as those that mean a pass.
    argument : str
        Name of the columns, for messages.

    Returns
    -------
    array, or None
        Fractions are text, such as "0.5". None if some column declares no order: if it is not
        categorical, is a Categorical of polars (in which the order is that of appearance), or is
        a dictionary of pyarrow that is not ordered. None also if columns declare different
        categories; a warning says so, unless the categories of each are sorted anyway.
    """
    declared = [_categories_of(column) for column in columns]
    if not declared or any(each is None for each in declared):
        return None
    known = [each for each in declared if each is not None]
    if any(each != known[0] for each in known):
        if any(each != sorted(each) for each in known):
            warn_caller(
                f"the columns of {argument} have different categories, so the classes were sorted; "
                "to choose another order, name them in classes="
            )
        return None
    no_classes = set(marks)
    classes = [each for each in known[0] if each not in no_classes]
    if any(isinstance(each, float) and np.isfinite(each) and each % 1 for each in classes):
        classes = [written(each) for each in classes]
    return make_vocabulary(classes, f"the categories of {argument}") if classes else None


def declare_order(columns: Iterable[Any]) -> bool:
    """Return whether all columns declare that their categories are grades, in order.

    Parameters
    ----------
    columns : iterable of arrays, or of columns of pandas, polars or pyarrow
        A Categorical of pandas with ``ordered=True`` and an ordered dictionary of pyarrow declare
        grades. An Enum of polars always has an order, so that it declares nothing.
    """
    kinds = [getattr(column, "type", None) or getattr(column, "dtype", None) for column in columns]
    return bool(kinds) and all(getattr(kind, "ordered", False) is True for kind in kinds)


def _categories_of(column: Any) -> list[Any] | None:
    """Return the categories of a column in their order; None if it declares none."""
    if getattr(getattr(column, "type", None), "ordered", False):  # pyarrow
        chunks = column.unify_dictionaries().chunks if hasattr(column, "chunks") else [column]
        return list(chunks[0].dictionary.to_pylist()) if chunks else None
    found: Any = getattr(getattr(column, "dtype", None), "categories", None)
    return list(found) if hasattr(found, "__len__") else None


def sorted_distinct(values: AnyArray) -> tuple[AnyArray, IntArray]:
    """Return the sorted distinct values, and the position of each value among them.

    Whole numbers that lie close together, as most ids and classes do, are marked in an array of
    their range. This is faster than sorting them and needs less memory.
    """
    if values.dtype.kind in "iu" and values.size:
        low = values.min()
        if int(values.max()) - int(low) < MOST_PER_VALUE * values.size:
            wide = values.astype(np.int64) if values.dtype.kind == "i" else values
            offsets = (wide - low).astype(np.int64)
            there = np.zeros(int(offsets.max()) + 1, dtype=bool)
            there[offsets] = True
            distinct = np.flatnonzero(there).astype(wide.dtype) + wide.dtype.type(low)
            return distinct.astype(values.dtype), (there.cumsum() - 1)[offsets]
    distinct, codes = np.unique(values, return_inverse=True)
    return distinct, codes


def encode(
    values: Any,
    vocabulary: AnyArray | None,
    *,
    argument: str,
    vocabulary_name: str,
    allow_unknown: bool = False,
) -> tuple[IntArray, AnyArray]:
    """Replace values by their positions in a vocabulary (default: the sorted distinct values).

    With ``allow_unknown`` a value that is not in the given vocabulary becomes -1. `Texts` have no
    empty cells here.

    Returns
    -------
    codes : integer array with the shape of ``values``
    vocabulary : array of distinct values, in code order

    Raises
    ------
    AnnotationError
        If a value is not in the given vocabulary.
    """
    if not isinstance(values, Texts):
        values = as_values(values)
        check_no_mixture(values, argument)
    values, rows = distinct_text(values)
    values = tidy(values, argument)
    if vocabulary is None:
        vocabulary, codes = sorted_distinct(values)
        return codes.reshape(values.shape)[rows], vocabulary
    text, expected = values.dtype.kind in "UT", vocabulary.dtype.kind in "UT"
    if values.size and vocabulary.size and text != expected:
        kind = {True: "strings", False: "numbers"}
        raise AnnotationError(
            f"{argument} holds {kind[text]} (such as {values.ravel()[:1].tolist()[0]!r}) "
            f"but {vocabulary_name} {kind[expected]} (such as {vocabulary[:1].tolist()[0]!r}); "
            "convert one to the other's type"
        )
    if not len(vocabulary):
        known = np.zeros(values.shape, dtype=bool)
        codes = np.zeros(values.shape, dtype=np.int64)
    else:
        order = np.argsort(vocabulary, kind="stable")
        position = np.searchsorted(vocabulary[order], values).clip(max=len(vocabulary) - 1)
        codes = order[position]
        known = vocabulary[codes] == values
    if allow_unknown:
        codes = np.where(known, codes, MISSING)
    elif not known.all():
        bad, n_rows = np.unique(values[~known]), int((~known)[rows].sum())
        shown = ", ".join(repr(v.item()) for v in bad[:3]) + (" ..." if len(bad) > 3 else "")
        known_shown = ", ".join(repr(v.item()) for v in vocabulary[:6])
        raise AnnotationError(
            f"{argument} holds {shown} ({n_rows} {'row' if n_rows == 1 else 'rows'}), not among "
            f"{vocabulary_name}: "
            f"{known_shown}{' ...' if len(vocabulary) > 6 else ''}. "
            f"Add it to {vocabulary_name}, or correct the rows"
        )
    return codes[rows], vocabulary


def of_one_kind(values: Any, vocabulary: AnyArray, argument: str) -> tuple[AnyArray, AnyArray]:
    """Convert values and vocabulary to one type: 7 and "7" are the same id, or the same class."""
    values = as_values(values)
    check_no_mixture(values, argument)
    if not values.size or not vocabulary.size or is_text(values) == is_text(vocabulary):
        return values, vocabulary
    return tidy(values, argument).astype(str), vocabulary.astype(str)


def resolve(
    key: Any,
    vocabulary: AnyArray,
    *,
    argument: str,
    vocabulary_name: str,
    allow_unknown: bool = False,
) -> IntArray:
    """Turn a selection (slice, mask, ids, or positions if ids are strings) into positions.

    Integers are ids if the vocabulary holds integers, and positions if it holds strings. With
    ``allow_unknown``, an id that is not in the vocabulary becomes -1.

    Raises
    ------
    AnnotationError
        If a mask has another shape than the vocabulary, or an id is not in it.
    IndexError
        If a position is out of range.
    """
    n = len(vocabulary)
    if isinstance(key, slice):
        return np.arange(n)[key]
    key = np.asarray(key)
    if key.ndim == 0:
        key = key[None]
    if key.size == 0:
        return np.zeros(0, dtype=np.int64)
    if key.dtype.kind == "b" and vocabulary.dtype.kind != "b":
        if key.shape != (n,):
            raise AnnotationError(f"{argument}: a mask of shape {key.shape} for {n} entries")
        return np.flatnonzero(key)
    if key.dtype.kind in "iu" and vocabulary.dtype.kind in "UT":
        return check_positions(key, n, argument)
    key, vocabulary = of_one_kind(key, vocabulary, argument)
    return encode(
        key,
        vocabulary,
        argument=argument,
        vocabulary_name=vocabulary_name,
        allow_unknown=allow_unknown,
    )[0]


def check_positions(key: IntArray, n: int, argument: str) -> IntArray:
    """Return positions below a length, with negative ones counted from the end.

    Raises
    ------
    IndexError
        If a position is out of range.
    """
    outside = (key < -n) | (key >= n)
    if outside.any():
        raise IndexError(f"{argument}: position {key[outside].ravel()[0]} is outside 0..{n - 1}")
    return np.where(key < 0, key + n, key)


def merge_vocabularies(mine: AnyArray, theirs: AnyArray) -> tuple[IntArray, AnyArray]:
    """Append the new values of one vocabulary to another.

    Returns
    -------
    codes : integer array with the shape of ``theirs``
        Codes of the values of ``theirs`` in the merged vocabulary.
    merged : array
    """
    if np.array_equal(mine, theirs):
        return np.arange(len(mine), dtype=np.int32), mine
    if len(mine) and len(theirs) and (mine.dtype.kind in "UT") != (theirs.dtype.kind in "UT"):
        raise AnnotationError(
            f"the added table has ids such as {theirs[0].item()!r}, this one such as "
            f"{mine[0].item()!r}; convert one to the other's type"
        )
    new = theirs[~np.isin(theirs, mine)]
    merged = np.concatenate([mine, new]) if len(new) else mine
    positions, _ = encode(theirs, merged, argument="ids", vocabulary_name="the merged ids")
    return positions, merged
