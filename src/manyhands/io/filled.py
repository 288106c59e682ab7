"""What people wrote into the files that manyhands made for them: sheets, batches and corrections.

No command may replace such a file, because what a person wrote exists nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from manyhands.annotations.encoding import missing_mask
from manyhands.annotations.frames import rows_of
from manyhands.exceptions import AnnotationError, silenced
from manyhands.io.columns import Frame
from manyhands.io.corrections import read_corrections
from manyhands.io.files import PathLike, is_typed, suffix_of
from manyhands.io.frames import NO_SHEETS, read_frame, read_parquet
from manyhands.io.gold import REVIEWED, WAS
from manyhands.io.sheets import read_sheet
from manyhands.typing import BoolArray

BATCHES: Final = (
    frozenset({"task", "worker", "score", "expected_gain"}),
    frozenset({"left", "right", "times", "gain", "p_left", "p_tie", "p_right"}),
)
"""Columns of the questions to ask next; a person writes the answers into further ones."""

OF_LABELS: Final = frozenset({"worker", "probability", "least_sure", "low_95", REVIEWED})
"""Columns of which manyhands writes at least one beside labels; a person's gold has none."""


class Filled(NamedTuple):
    """Rows of a file that a person filled in.

    Attributes
    ----------
    n : int
    rows : str
        Their numbers, in words.
    are_labels : bool
        Whether they say which labels are right; else they are answers of annotators.
    """

    n: int
    rows: str
    are_labels: bool


def filled_in(path: PathLike) -> Filled | None:
    """Return what a person wrote into a file of labels or questions; None if nothing.

    In a table with a column "reviewed", such as ``review.csv`` and ``labels.csv``, a person wrote
    every entry of that column, every label that differs from the column "was", and what stands in
    columns to the right of "reviewed". An entry "yes" beside a probability of 1 is manyhands' own.
    In a batch of questions, a person wrote what stands in further columns. In a file of
    corrections, every line is a person's, and in a table of labels without a column of `OF_LABELS`,
    such as one of gold labels, every label is.

    Raises
    ------
    AnnotationError
        If it is such a table, and its rows cannot be read.
    """
    path = Path(path)
    if suffix_of(path) == ".jsonl":
        try:
            n = len(read_corrections(path))
        except AnnotationError:
            return None  # Not of corrections.
        return Filled(n, f"lines 1 to {n}" if n > 1 else "line 1", True) if n else None
    columns = set(_header(path))
    find: Callable[[Frame], BoolArray]
    label = next((name for name in ("label", "labels") if name in columns), None)
    if any(names <= columns for names in BATCHES):
        find = _answered
    elif REVIEWED in columns:
        find = partial(_reviewed, label=label)
    elif label is not None and "task" in columns and not columns & OF_LABELS:
        find = partial(_any_entry, names=[label])
    else:
        return None
    with silenced("manyhands"):  # How it is read matters to nobody.
        frame = read_frame(path)
    places = np.flatnonzero(find(frame))
    if not len(places):
        return None
    return Filled(len(places), rows_of(frame, places), not columns & {"worker", "left"})


def _header(path: Path) -> list[str]:
    """Return the names of a table's columns; [] if the file is no table with rows."""
    if suffix_of(path) in NO_SHEETS:
        return []
    try:
        with silenced("manyhands"):
            if is_typed(path):
                return list(read_parquet(path).columns)
            sheet = read_sheet(path, most=4)
    except (AnnotationError, OSError, ValueError):
        return []
    return sheet.header if sheet.rows else []


def _answered(frame: Frame) -> BoolArray:
    own = frozenset().union(*BATCHES)
    return _any_entry(frame, [name for name in frame.columns if name not in own])


def _reviewed(frame: Frame, label: str | None) -> BoolArray:
    names = frame.columns
    entries = _cells(frame, REVIEWED)
    written = entries != ""
    if "probability" in names:
        is_known = np.array([_is_one(value) for value in frame["probability"].to_list()])
        written &= ~((entries == "yes") & is_known)
    if WAS in names and label is not None:
        written |= _cells(frame, label) != _cells(frame, WAS)
    return written | _any_entry(frame, names[names.index(REVIEWED) + 1 :])


def _any_entry(frame: Frame, names: list[str]) -> BoolArray:
    found = [_cells(frame, name) != "" for name in names]
    return np.any(found, axis=0) if found else np.zeros(len(frame), dtype=bool)


def _cells(frame: Frame, name: str) -> Any:
    values = frame[name].to_numpy()
    return np.where(missing_mask(values), "", np.char.strip(values.astype(str))).astype(str)


def _is_one(value: Any) -> bool:
    try:
        return float(str(value).replace(",", ".")) == 1
    except ValueError:
        return False
