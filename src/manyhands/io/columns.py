"""Finding columns of long tables by common names, and converting text to numbers."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np

from manyhands.annotations.encoding import distinct_text, missing_mask
from manyhands.annotations.ids import ID_NAMES, base_name, letters
from manyhands.annotations.wide import ANNOTATOR_WORDS, LABEL_WORDS, gold_column, words_of
from manyhands.exceptions import AnnotationError
from manyhands.io.files import is_typed
from manyhands.typing import AnyArray, BoolArray, FloatArray

Frame: TypeAlias = nw.DataFrame[Any]


_LOG = logging.getLogger("manyhands")


# Column names that other tools use. A final "id" (user_id, WorkerID) is ignored, except in columns
# of labels: annotation_id numbers the annotations.
_SYNONYMS = {
    "task": ID_NAMES,
    "worker": {
        "worker",
        "annotator",
        "user",
        "rater",
        "labeler",
        "labeller",
        "coder",
        "person",
        "turker",
    },
    "label": {
        "label",
        "answer",
        "annotation",
        "response",
        "class",
        "category",
        "rating",
        "verdict",
    },
    "gold": {"label", "gold", "goldlabel", "truelabel", "truth", "groundtruth", "class", "y"},
}

_IDS_OF_OTHERS = ANNOTATOR_WORDS | LABEL_WORDS
_IDS_OF_OTHERS |= {"assignment", "batch", "family", "group", "hit", "job", "model", "project"}
_IDS_OF_OTHERS |= {"row", "session", "submission", "team"}
"""Words in the names of columns that number something other than the instances."""


MOST_COLUMNS = 16_384
"""Largest number of columns of a table of annotations, which is that of a sheet in Excel."""


def check_width(n: int, name: str = "it") -> None:
    """Refuse a table of annotations with more columns than a spreadsheet has.

    Raises
    ------
    AnnotationError
        If there are more than `MOST_COLUMNS`.
    """
    if n > MOST_COLUMNS:
        raise AnnotationError(
            f"{name} has {n:,} columns, more than a spreadsheet can have ({MOST_COLUMNS:,}); give "
            "annotations as a long table, with the columns task, worker and label"
        )


def find_columns(
    names: Sequence[str], asked: Mapping[str, str], path: Path, *, fixed: bool = False
) -> dict[str, str]:
    """Return the columns that are asked for, or have the only other common name; see `find_name`.

    A log message says which names were guessed in the file, and how to name other columns: by the
    argument, or in the file itself if its names are ``fixed``.
    """
    found = {argument: find_name(names, argument, name) for argument, name in asked.items()}
    if note := note_of_guesses(found, asked, fixed=fixed):
        _LOG.info("%s: %s", path.name, note)
    return found


def note_of_guesses(
    found: Mapping[str, str], asked: Mapping[str, str], *, fixed: bool = False
) -> str | None:
    """Say which columns were guessed by their names; None if none were. See `find_columns`.

    Examples
    --------
    >>> asked = {"task": "task", "worker": "worker"}
    >>> note_of_guesses({"task": "song_id", "worker": "rater"}, asked)
    "read 'song_id' as the task and 'rater' as the worker; to choose others, use task= and worker="
    """
    guessed = [argument for argument, name in found.items() if name != asked[argument]]
    if not guessed:
        return None
    roles = [_ROLES.get(each, each) for each in guessed]
    read = _and([f"{found[a]!r} as the {role}" for a, role in zip(guessed, roles, strict=True)])
    if fixed:
        names = _and([repr(_default(each)) for each in guessed])
        return f"read {read}; to choose others, call them {names} in the file"
    names = _and([f"{each}=" for each in guessed])
    return f"read {read}; to choose others, use {names}"


_ROLES = {"gold": "gold label"}
"""What messages call the columns whose argument does not say it."""


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def find_name(names: Sequence[str], argument: str, name: str) -> str:
    """Return ``name`` if a column has it, else the only other common name for it; else ``name``.

    Where no column has a common name for the instances, the only one that is named like ids
    (``song_id``) holds theirs. Without a common name for gold, a common name for labels is taken,
    because people who check labels often call the column as the annotations do.

    Raises
    ------
    AnnotationError
        If several columns have common names for it.
    """
    if name in names or argument not in _SYNONYMS:
        return name
    default = _default(argument)
    if name != default:
        return name
    simplified = base_name if argument in ("task", "worker") else letters
    found = [c for c in names if simplified(c) in _SYNONYMS[argument]]
    if len(found) > 1:
        raise AnnotationError(
            f"there is no column {name!r}, but {preview(found)} could all be meant; pass "
            f"{default}=<name>"
        )
    if argument == "task" and not found:
        found = [each for each in names if _may_number_instances(each)]
    if argument == "gold" and not found:
        return find_name(names, "label", name)
    return found[0] if len(found) == 1 else name


def _may_number_instances(name: str) -> bool:
    """Return whether a column is named like ids, 'song_id', and not those of something else."""
    *words, last = ["", *words_of(name)]
    return last == "id" and any(words) and _IDS_OF_OTHERS.isdisjoint(words)


def _default(argument: str) -> str:
    return "label" if argument == "gold" else argument


def note_of_gold(names: Sequence[str], used: Iterable[str]) -> str | None:
    """Say that a long table has a column of gold labels that is not used; None if it has none."""
    name = gold_column(names, used)
    if name is None:
        return None
    return f"the column {name!r} is named like gold labels, but is not used; read_gold() reads it"


def require_column(frame: Frame, argument: str, name: str) -> None:
    """Raise an error if ``name`` is not a column."""
    if name not in frame.columns:
        raise AnnotationError(
            f"{argument}={name!r} is not a column; the columns are "
            f"{', '.join(map(repr, frame.columns))}. Pass {argument}=<name of the column>"
        )


def with_types(frame: Frame, names: dict[str, str], path: Path) -> Frame:
    """Convert the text columns of a table to their types; those of Parquet have types."""
    if is_typed(path):
        return frame
    for argument, name in names.items():
        if name not in frame.columns:
            continue
        raw = frame[name].to_numpy()
        missing = missing_mask(raw)
        text, rows = distinct_text(raw[~missing])
        typed: AnyArray
        if argument == "weight":
            typed = _numbers(text, name)
        else:
            typed = canonical(text, floats=argument == "label")
        if typed.dtype.kind not in "UT":
            frame = with_column(frame, name, with_missing(typed[rows], missing))
    return frame


def with_trimmed(frame: Frame, names: Iterable[str], path: Path) -> Frame:
    """Remove spaces around ids that also occur without spaces, and log it: nobody sees them."""
    for name in names:
        if name in frame.columns:
            cells, spaced = trimmed(frame[name].to_list())
            if spaced:
                frame = with_column(frame, name, np.array(cells, dtype=object))
                _LOG.info("%s: %s", path.name, spaces_left_out(len(spaced), spaced[0], name))
    return frame


def trimmed(cells: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Remove spaces around texts that also occur without; also return the texts that had spaces.

    Examples
    --------
    >>> trimmed(["Anna", "Anna ", " Bob"])
    (['Anna', 'Anna', ' Bob'], ['Anna '])
    """
    plain = {cell for cell in cells if isinstance(cell, str) and cell == cell.strip()}
    spaced = [
        cell
        for cell in cells
        if isinstance(cell, str) and cell.strip() in plain and cell not in plain
    ]
    meant = {cell: cell.strip() for cell in spaced}
    return ([meant.get(cell, cell) for cell in cells] if spaced else list(cells)), spaced


def spaces_left_out(n: int, example: str, name: str) -> str:
    """Say that ids had spaces around them."""
    values = "1 value" if n == 1 else f"{n:,} values"
    return f"removed the spaces around {values} of the column {name!r}, such as {example!r}"


LONGEST_INTEGER = 24
"""Characters of an integer of 64 bits, with a sign and ".0"."""


def canonical(text: AnyArray, *, floats: bool = False) -> AnyArray:
    """Convert text to integers if every value is a canonical integer; else return it unchanged.

    With ``floats``, "3.0" counts as 3: columns of codes with missing values are often written so.
    """
    text = np.asarray(text, dtype=str)
    if text.dtype.itemsize > 4 * LONGEST_INTEGER:
        return text  # The conversion would make buffers of 8,192 texts of this length.
    try:
        integers = text.astype(np.int64)
    except (ValueError, OverflowError):
        if floats:
            whole = canonical(np.array([v.removesuffix(".0") for v in text.tolist()], dtype=str))
            return whole if whole.dtype.kind == "i" else text
        return text
    return integers if len(text) and (integers.astype(str) == text).all() else text


def _numbers(text: AnyArray, column: str) -> AnyArray:
    try:
        return as_numbers(text.tolist())
    except ValueError as error:
        raise AnnotationError(
            f"column {column!r} (weight) must hold numbers: {error}; correct or drop these rows"
        ) from error


_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
_DOTS_AND_COMMA = re.compile(r"\s*[-+]?\d{1,3}(\.\d{3})+,\d+\s*")
_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2},\d{3}\s*")


def as_numbers(texts: Sequence[str], *, decimal_commas: bool = False) -> FloatArray:
    """Read numbers with decimal points, or all with decimal commas, as much of Europe writes them.

    Parameters
    ----------
    texts : sequence of str
    decimal_commas : bool
        Whether commas must be decimal commas, as in a file separated by semicolons.

    Returns
    -------
    float array of shape (n,)

    Raises
    ------
    ValueError
        If a text is not a number, points and commas are mixed, or the commas may separate
        thousands, as in "1,234".

    Examples
    --------
    >>> as_numbers(["0,5", "2"]).tolist(), as_numbers(["1.5"]).tolist()
    ([0.5, 2.0], [1.5])
    """
    try:
        if "_" in "".join(texts):  # Python would read 1_000 as a number.
            raise ValueError(f"{next(text for text in texts if '_' in text)!r} is not a number")
        return np.array(list(map(float, texts)), dtype=np.float64)
    except ValueError:
        with_comma = [text for text in texts if "," in text]
        if not with_comma:
            raise
    for text in with_comma:
        if not _COMMA.fullmatch(text) and not (decimal_commas and _DOTS_AND_COMMA.fullmatch(text)):
            raise ValueError(f"{text[:40]!r} is not a number")
    pointed = next((text for text in texts if "." in text and "," not in text), None)
    if pointed is not None:
        raise ValueError(
            f"{pointed[:40]!r} has a decimal point, but {with_comma[0]!r} has a comma; write all "
            "numbers with points"
        )
    if not decimal_commas and all(map(_THOUSANDS.fullmatch, with_comma)):
        raise ValueError(
            f"the comma in {with_comma[0]!r} may be a decimal comma or separate thousands; write a "
            "decimal point, or leave the comma out"
        )
    return np.array([float(text.replace(".", "").replace(",", ".")) for text in texts])


def with_missing(values: AnyArray, missing: BoolArray) -> AnyArray:
    """Insert None at the missing positions between ``values``."""
    if not missing.any():
        return values
    full = np.full(len(missing), None, dtype=object)
    full[~missing] = values
    return full


def with_column(frame: Frame, name: str, values: AnyArray) -> Frame:
    """Replace one column."""
    series = nw.new_series(name, values.tolist(), backend=frame.implementation)
    return frame.with_columns(series)


def preview(values: Any) -> str:
    """Format the first three values for a message."""
    shown = [v.item() if isinstance(v, np.generic) else v for v in values[:3]]
    return ", ".join(map(repr, shown)) + (" ..." if len(values) > 3 else "")
