"""Values that are probably not classes: missing values, ids, and one class written in two ways.

The checks concern classes that were found in the data. Classes that a caller lists are not checked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from manyhands.annotations.class_order import number_of
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.typing import MISSING, AnyArray, IntArray

MANY_CODES = 10
"""Number of classes above which nearly as many classes as annotations are suspicious."""

FAR_CODE = 10
"""Factor by which the largest code must exceed the next to be doubted (99 after 0, 1, 2)."""

SHOWN = 5
"""Largest number of values that a message names."""

MARKS = frozenset(
    {"", "-", "--", ".", "?", "n/a", "#n/a", "n.a.", "na", "<na>", "nan", "null", "nil", "missing"}
    | {"#ref!", "#name?", "#value!", "#div/0!", "#null!", "#num!", "#spill!", "#calc!"}
)
"""Texts that mean a missing value or a spreadsheet's error.

Words such as "none" and "unknown" are classes in many data sets, so they are not among them; see
`_is_mark` for "None".
"""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

# "hip-hop", "hip_hop" and "hip hop" are likely to mean what "hiphop" does; "-1" and "1" are not.
_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])[-\u2010\u2011_ ](?=[^\W\d_])")

Counts = dict[Any, int]


def check_classes(
    classes: AnyArray,
    codes: IntArray,
    argument: str,
    *,
    matrix: bool,
    named: bool = False,
) -> None:
    """Refuse classes that must be a mistake, and warn of those that may be one.

    Parameters
    ----------
    classes : array of shape (n_classes,)
        The values found in the data; categories that do not occur are not judged.
    codes : integer array
        Code of every annotation.
    argument : str
        Where the values come from, for the message.
    matrix : bool
        Whether the values are from a matrix. There -1 means missing, so that other negative
        numbers can hardly be classes.
    named : bool
        Whether the caller says what the labels are, so that many different ones are accepted.

    Raises
    ------
    AnnotationError
        If there are nearly as many classes as annotations, an unsigned type holds its largest
        value (-1 read as unsigned), or a negative number is not part of a scale.
    """
    found, tally = np.unique(codes, return_counts=True)
    classes = classes[found]
    counts: Counts = dict(zip(classes.tolist(), tally.tolist(), strict=True))
    if not named:
        _refuse_ids(counts, argument)
    if classes.dtype.kind == "u":
        _refuse_wrapped(counts, np.iinfo(classes.dtype).max, argument)
    if classes.dtype.kind in "iu":
        _check_numbers(counts, argument, matrix)
    elif classes.dtype.kind in "UT":
        _check_texts(counts, argument, fractions=named)


def _refuse_ids(counts: Counts, argument: str) -> None:
    n = sum(counts.values())
    if len(counts) > MANY_CODES and len(counts) > n / 2:
        raise AnnotationError(
            f"{argument} holds {len(counts):,} classes in {n:,} annotations "
            f"({_listed(dict.fromkeys(counts, 0))}), which look like ids or free text. Give the "
            "column of the labels; if these are names of classes, pass scale='nominal', or name "
            "all of them in classes=; if they are ratings, pass scale='ordinal' or scale='interval'"
        )


def refuse_copies(
    classes: AnyArray, codes: IntArray, ids: AnyArray, own: IntArray, label: str, column: str
) -> None:
    """Refuse labels ``classes[codes]`` that equal the ids ``ids[own]`` of a column in every row.

    Raises
    ------
    AnnotationError
        If they are equal and more than `MANY_CODES`; a few small numbers may be equal by chance.
    """
    n_found = np.count_nonzero(np.bincount(codes, minlength=len(classes)))
    if n_found > MANY_CODES and np.array_equal(classes[codes], ids[own]):
        raise AnnotationError(
            f"column {label!r}, read as the labels, equals column {column!r} in all "
            f"{len(codes):,} rows; name the column of the labels in label="
        )


def _refuse_wrapped(counts: Counts, largest: int, argument: str) -> None:
    if largest in counts and largest - 1 not in counts:
        raise AnnotationError(
            f"{argument} holds {largest} in {counts[largest]:,} annotations, which is what -1 "
            "becomes in its unsigned type. Convert it to a signed type and mark missing values "
            f"with -1; if {largest} is a class, name all classes in classes="
        )


def _check_numbers(counts: Counts, argument: str, matrix: bool) -> None:
    """Check integers, given as such or as text, by their values."""
    values = {int(value): count for value, count in counts.items()}
    negative = {value: count for value, count in values.items() if value < 0}
    symmetric = all(-value in values for value in values if value)
    if negative and matrix:
        raise AnnotationError(
            f"{argument} holds {_listed(negative)}; in a matrix -1 means missing, so other "
            f"negative numbers are hardly classes. {_mend('replace them by -1')}"
        )
    if min(negative, default=0) < MISSING and not (symmetric or _is_sequence(values)):
        raise AnnotationError(
            f"{argument} holds {_listed(negative)}, which does not fit the other classes. "
            f"{_mend('drop these rows')}"
        )
    if negative and not (symmetric and values.keys() != {MISSING, 0, -MISSING}):
        warn_caller(
            f"{argument} holds {_listed(negative)}, which counts as a class. "
            f"{_mend('drop these rows')}"
        )
    far = _far_from_the_others(sorted(values))
    if far is not None:
        warn_caller(
            f"{argument} holds {_listed({far: values[far]})}, far above the other codes; it counts "
            f"as a class. {_mend('drop these rows')}"
        )


def _mend(removal: str) -> str:
    return (
        f"If it stands for a missing annotation, {removal}; if for a pass, name it in abstain= or "
        "skip=; if it is a class, name all classes in classes="
    )


def _is_sequence(values: Collection[int]) -> bool:
    return max(values) - min(values) < len(values)


def _far_from_the_others(values: list[int]) -> int | None:
    """Return the largest value if it is far above codes counted from 0 or 1 (99 after 0, 1, 2)."""
    codes, largest = values[:-1], values[-1] if values else 0
    counted = len(codes) > 1 and codes[0] in (0, 1) and _is_sequence(codes)
    return largest if counted and largest >= FAR_CODE * codes[-1] else None


def _check_texts(counts: Counts, argument: str, *, fractions: bool) -> None:
    """Check texts; ``fractions`` says that labels may be fractions among whole numbers."""
    small = any(v.strip()[:1].islower() for v in counts if v.strip().lower() not in MARKS)
    marks = {value: count for value, count in counts.items() if _is_mark(value, small)}
    others = {value: count for value, count in counts.items() if value not in marks}
    numbers = {v: count for v, count in others.items() if _INTEGER.fullmatch(v.strip())}
    odd = {value: count for value, count in others.items() if value not in numbers}
    if marks:
        warn_caller(
            f"{argument} holds {_listed(marks)}, which counts as a class. If it means that there "
            "is no annotation, empty these cells, or name it in abstain= or skip=; if it is a "
            "class, name all classes in classes="
        )
    if len(numbers) > 1 and sum(numbers.values()) > sum(odd.values()):
        _check_numbers(_summed(numbers), argument, matrix=False)
        if fractions:
            odd = {value: count for value, count in odd.items() if number_of(value) is None}
        if odd:
            warn_caller(
                f"{argument} holds {_listed(odd)} among whole numbers, so all labels are text. "
                "Correct these rows, or name the value in abstain= or skip=; if it is a class, "
                "name all classes in classes="
            )
    elif odd:
        negative = {value: count for value, count in numbers.items() if int(value) < 0}
        if negative:
            warn_caller(
                f"{argument} holds {_listed(negative)} among words; it counts as a class. "
                f"{_mend('empty these cells')}"
            )
    _warn_of_spellings(others, argument)


def _is_mark(value: str, small: bool) -> bool:
    """Return whether a text means a missing value; "None" does among lower-case classes."""
    text = value.strip()
    return text.lower() in MARKS or (text == "None" and small)


def _summed(numbers: Counts) -> Counts:
    """Return the counts of the integers that texts stand for."""
    total: Counts = {}
    for text, count in numbers.items():
        total[int(text)] = total.get(int(text), 0) + count
    return total


def _warn_of_spellings(counts: Counts, argument: str) -> None:
    """Warn of classes that differ only in case, spaces, hyphens, Unicode form or digits ("1.0")."""
    spellings: dict[Any, Counts] = {}
    for value, count in counts.items():
        spellings.setdefault(_spelled(value), {})[value] = count
    groups = [_listed(group) for group in spellings.values() if len(group) > 1]
    if groups:
        more = f" and {len(groups) - SHOWN} more groups" if len(groups) > SHOWN else ""
        warn_caller(
            f"{argument} holds classes that differ only in case, spaces, hyphens or form: "
            f"{'; '.join(groups[:SHOWN])}{more}. They count as different classes. Write each class "
            "in one way: read the file with lowercase=True or mapping=, or use "
            ".str.strip().str.lower() or .replace({...}) in pandas; if they are different, name "
            "all classes in classes="
        )


def warn_of_alike(
    ids: AnyArray,
    codes: IntArray,
    argument: str,
    what: str,
    *,
    counts: Sequence[int] | None = None,
    mapping: str = "annotator_mapping=",
) -> None:
    """Warn of ids that differ only in case, spaces or Unicode form.

    Parameters
    ----------
    ids : array of shape (n,)
    codes : integer array
        The id of each row, for their numbers.
    argument : str
        Where they stand, for the message.
    what : str
        What they name, such as "annotators".
    counts : sequence of int of length n, optional
        Number of rows of each id, in place of ``codes``.
    mapping : str
        Option of readers of files that says what each name means; "" if there is none.
    """
    if ids.dtype.kind not in "UT":
        return
    spellings: dict[str, list[int]] = {}
    for code, value in enumerate(ids.tolist()):
        spellings.setdefault(folded(value), []).append(code)
    alike = [group for group in spellings.values() if len(group) > 1]
    if not alike:
        return
    if counts is None:
        counts = np.bincount(codes, minlength=len(ids)).tolist()
    groups = [_listed({ids[code].item(): counts[code] for code in group}) for group in alike]
    more = f" and {len(groups) - SHOWN} more groups" if len(groups) > SHOWN else ""
    readers = f", or a file of the meanings of names ({mapping} when reading a file)"
    warn_caller(
        f"{argument} holds {what} whose names differ only in case, spaces or form: "
        f"{'; '.join(groups[:SHOWN])}{more}. They count as different {what}. If they are the same, "
        "write each name in one way: find and replace in the spreadsheet, .replace({...}) in "
        f"pandas{readers if mapping else ''}"
    )


def folded(value: str) -> str:
    """Return a text without regard to case, spaces and Unicode form, for comparison."""
    seen = "".join(c for c in value if unicodedata.category(c) != "Cf")  # Zero-width spaces.
    return " ".join(unicodedata.normalize("NFKC", seen).casefold().split())


def _spelled(value: str) -> Any:
    text = folded(value)
    try:
        return float(text)
    except ValueError:
        return _BETWEEN_LETTERS.sub("", text)


def _listed(counts: Counts) -> str:
    """Name the values with their counts, the most frequent first; a count of 0 is not shown."""
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    shown = [f"{value!r} ({count:,})" if count else repr(value) for value, count in ordered]
    return ", ".join(shown[:SHOWN]) + (" ..." if len(shown) > SHOWN else "")
