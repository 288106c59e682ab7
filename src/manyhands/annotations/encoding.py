"""From what people hold (ids, labels, matrices) to integer codes, with errors that help."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from manyhands.exceptions import AnnotationError
from manyhands.typing import MISSING, AnyArray, BoolArray, IntArray

if TYPE_CHECKING:
    from manyhands.annotations.table import AnnotationTable

PASSES = ("abstain", "skip")
"""Kinds of passes, in the order of their codes: looked and declined to choose; passed on."""


def missing_mask(values: AnyArray) -> BoolArray:
    """Mark None, NaN and pandas' NA in an array of any dtype."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind == "O":
        # NaN and NaT are the only values unequal to themselves; pandas' NA is neither.
        return np.array(
            [v is None or type(v).__name__ == "NAType" or bool(v != v) for v in values.ravel()],
            dtype=bool,
        ).reshape(values.shape)
    return np.zeros(values.shape, dtype=bool)


def as_values(values: Any) -> AnyArray:
    """Read a sequence as an array without turning gaps and numbers among strings into strings."""
    array = np.asarray(values)
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
        # Beyond 2**53 a float no longer tells one integer from the next.
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
            f"{argument} has values of type {values.dtype}; use integers or strings"
        )
    return values


def check_no_mixture(values: AnyArray, argument: str) -> None:
    """Refuse an object array that mixes strings with anything else."""
    if values.dtype.kind == "O" and values.size:
        text = {isinstance(v, str) for v in values.ravel()}
        if len(text) == 2:
            raise AnnotationError(
                f"{argument} mixes strings and other values, so they cannot be ordered; "
                "convert the column to strings"
            )


def is_text(values: AnyArray) -> bool:
    """Tell whether values (of one kind, see `check_no_mixture`) are strings."""
    if values.dtype.kind == "O":
        return values.size > 0 and isinstance(values.flat[0], str)
    return values.dtype.kind in "UT"


def distinct_text(values: AnyArray) -> tuple[AnyArray, IntArray | EllipsisType]:
    """Reduce an object array of strings to those that differ, and each one's place among them.

    Python's strings are as long as they are; in an array of text all would be as long as the
    longest. Other arrays return as they are, with the index that changes nothing.
    """
    if values.dtype.kind != "O" or not is_text(values):
        return values, ...
    rows = values.ravel().tolist()
    place = {value: i for i, value in enumerate(dict.fromkeys(rows))}
    places = np.fromiter(map(place.__getitem__, rows), dtype=np.int64, count=len(rows))
    return np.array(list(place)), places.reshape(values.shape)


def make_vocabulary(values: Any, argument: str) -> AnyArray:
    """Check a given vocabulary: one-dimensional, no gap, nothing twice."""
    vocabulary = as_values(list(values) if isinstance(values, range) else values)
    if vocabulary.ndim != 1:
        raise AnnotationError(
            f"{argument} must be a one-dimensional sequence (a list, not a set), got "
            f"{type(values).__name__} of shape {vocabulary.shape}"
        )
    if missing_mask(vocabulary).any():
        raise AnnotationError(f"{argument} holds a missing value; leave it out")
    check_no_mixture(vocabulary, argument)
    vocabulary = tidy(vocabulary, argument)
    unique, counts = np.unique(vocabulary, return_counts=True)
    if len(unique) < len(vocabulary):
        raise AnnotationError(
            f"{argument} holds {unique[counts > 1][0].item()!r} twice; each must stand there once"
        )
    return vocabulary


def encode(
    values: Any,
    vocabulary: AnyArray | None,
    *,
    argument: str,
    vocabulary_name: str,
    allow_unknown: bool = False,
) -> tuple[IntArray, AnyArray]:
    """Replace values by their positions in a vocabulary (by default: the sorted values).

    With ``allow_unknown`` a value that is not in the given vocabulary becomes -1.

    Returns
    -------
    codes : integer array, the shape of ``values``
    vocabulary : array of the distinct values, in code order

    Raises
    ------
    AnnotationError
        If a value is not in the given vocabulary.
    """
    values = as_values(values)
    check_no_mixture(values, argument)
    values, rows = distinct_text(values)
    values = tidy(values, argument)
    if vocabulary is None:
        vocabulary, codes = np.unique(values, return_inverse=True)
        return codes.reshape(values.shape)[rows], vocabulary
    text, expected = values.dtype.kind in "UT", vocabulary.dtype.kind in "UT"
    if values.size and vocabulary.size and text != expected:
        kind = {True: "strings", False: "numbers"}
        raise AnnotationError(
            f"{argument} holds {kind[text]} (such as {values.ravel()[0]!r}) but {vocabulary_name} "
            f"holds {kind[expected]} (such as {vocabulary[0]!r}); convert one to the other's type"
        )
    if not len(vocabulary):
        known = np.zeros(values.shape, dtype=bool)
        codes = np.zeros(values.shape, dtype=np.int64)
    else:
        order = np.argsort(vocabulary, kind="stable")
        place = np.searchsorted(vocabulary[order], values).clip(max=len(vocabulary) - 1)
        codes = order[place]
        known = vocabulary[codes] == values
    if allow_unknown:
        codes = np.where(known, codes, MISSING)
    elif not known.all():
        bad, n_rows = np.unique(values[~known]), int((~known)[rows].sum())
        shown = ", ".join(repr(v.item()) for v in bad[:3]) + (" ..." if len(bad) > 3 else "")
        known_shown = ", ".join(repr(v.item()) for v in vocabulary[:6])
        raise AnnotationError(
            f"{argument} holds {shown} ({n_rows} rows), not among {vocabulary_name}: "
            f"{known_shown}{' ...' if len(vocabulary) > 6 else ''}. "
            f"Add it to {vocabulary_name}, or correct the rows"
        )
    return codes[rows], vocabulary


def read_marks(abstain: Any, skip: Any, classes: AnyArray | None = None) -> dict[Any, int]:
    """Read the label values that mean a pass, each with the code of its kind in `PASSES`.

    Parameters
    ----------
    abstain, skip : str, int, sequence of these, or None
    classes : array, optional
        All classes, where they are known.

    Raises
    ------
    AnnotationError
        If a value stands twice, is missing, or is a class.
    """
    marks: dict[Any, int] = {}
    for kind, given in enumerate((abstain, skip)):
        single = isinstance(given, str) or not isinstance(given, Iterable)
        listed = [] if given is None else [given] if single else list(given)
        for value in make_vocabulary(listed, PASSES[kind]).tolist():
            if value in marks:
                raise AnnotationError(
                    f"{value!r} stands in abstain and in skip; name it in one of them"
                )
            marks[value] = kind
    check_no_class(marks, () if classes is None else classes.tolist())
    return marks


def check_no_class(marks: Mapping[Any, int], classes: Container[Any]) -> None:
    """Refuse marks that are classes."""
    for value, kind in marks.items():
        if value in classes:
            raise AnnotationError(
                f"{PASSES[kind]} holds {value!r}, which is also among classes; leave it out of one"
            )


def check_marks(marks: Mapping[Any, int], labels: AnyArray, argument: str) -> None:
    """Refuse a mark of a type that no label has: it would never be found."""
    if not labels.size:
        return
    objects = labels.dtype.kind == "O"
    kinds = {isinstance(v, str) for v in labels.ravel()} if objects else {is_text(labels)}
    for value, kind in marks.items():
        if isinstance(value, str) not in kinds:
            names = {True: "strings", False: "numbers"}
            raise AnnotationError(
                f"{argument} holds {names[True in kinds]} (such as {labels.ravel()[0]!r}) but "
                f"{PASSES[kind]} holds {value!r}; write it as {argument} has it"
            )


def pass_kinds(labels: AnyArray, marks: Mapping[Any, int]) -> IntArray:
    """Code in `PASSES` of every label that means a pass; -1 of the others."""
    kinds = np.full(labels.shape, -1, dtype=np.int8)
    for value, kind in marks.items():
        kinds[labels == value] = kind
    return kinds


def recode_passes(
    passes: IntArray,
    *,
    instance: IntArray | None = None,
    annotator: IntArray | None = None,
) -> IntArray:
    """Give passes new codes, ``instance[old]`` and ``annotator[old]``; where it is -1 they leave.

    Parameters
    ----------
    passes : integer array of shape (k, 3)
        Instance code, annotator code, kind.
    instance, annotator : integer arrays, optional
        The new code of every old one; default: as they are.

    Returns
    -------
    integer array of shape (at most k, 3)
    """
    new = np.array(passes)
    for column, codes in enumerate((instance, annotator)):
        if codes is not None:
            new[:, column] = codes[new[:, column]]
    return new[(new >= 0).all(axis=1)]


def resolve(
    key: Any,
    vocabulary: AnyArray,
    *,
    argument: str,
    vocabulary_name: str,
    allow_unknown: bool = False,
) -> IntArray:
    """Turn a selection (slice, mask, ids, or positions where ids are strings) into positions.

    Integers are ids where the vocabulary holds integers, positions where it holds strings. With
    ``allow_unknown`` an id that is not in the vocabulary becomes -1.
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
    return encode(
        key,
        vocabulary,
        argument=argument,
        vocabulary_name=vocabulary_name,
        allow_unknown=allow_unknown,
    )[0]


def check_positions(key: IntArray, n: int, argument: str) -> IntArray:
    """Check positions against a length, counting negative ones from the end."""
    outside = (key < -n) | (key >= n)
    if outside.any():
        raise IndexError(f"{argument}: position {key[outside].ravel()[0]} is outside 0..{n - 1}")
    return np.where(key < 0, key + n, key)


def as_table(y: Any, *, argument: str = "y") -> AnnotationTable:
    """Read the target of ``fit``: a table as it is, (n, R) as a matrix, (n,) as a crowd of one.

    In one dimension every value, -1 included, is a class (scikit-learn's convention).
    """
    from manyhands.annotations.table import AnnotationTable

    if isinstance(y, AnnotationTable):
        return y
    if hasattr(y, "toarray"):
        raise AnnotationError(
            f"{argument} is a scipy.sparse matrix, where a stored 0 and a gap look alike; "
            "use AnnotationTable.from_arrays(row, column, data)"
        )
    if hasattr(y, "columns") and hasattr(y, "shape"):
        raise AnnotationError(
            f"{argument} is a data frame; use AnnotationTable.from_frame(frame) for a long one, "
            "AnnotationTable.from_matrix(frame.to_numpy()) for a wide one"
        )
    values = as_values(y)
    if values.ndim == 2:
        return AnnotationTable.from_matrix(values)
    if values.ndim != 1:
        raise AnnotationError(
            f"{argument} must be an AnnotationTable, an (n_samples, n_annotators) array or one "
            f"label per instance, got shape {values.shape}"
        )
    if missing_mask(values).any():
        raise AnnotationError(f"Input {argument} contains NaN or None; leave such rows out")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise AnnotationError(f"Input {argument} contains infinity; leave such rows out")
    n = len(values)
    return AnnotationTable.from_arrays(np.arange(n), np.zeros(n, dtype=np.int64), values)
