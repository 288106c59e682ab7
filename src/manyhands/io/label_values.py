"""Interpretation of a file's labels: class values, codes into class names, or passes ("unsure")."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations import PASSES
from manyhands.annotations.encoding import make_vocabulary, missing_mask, tidy
from manyhands.annotations.passes import pass_kinds, read_marks, warn_of_unused
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import Frame, canonical, preview, with_column, with_missing
from manyhands.typing import AnyArray


def label_values(
    frame: Frame, column: str, classes: Any
) -> tuple[Frame, AnyArray | None, AnyArray | None]:
    """Decide whether labels are class values, or codes into the names in ``classes``.

    Returns
    -------
    frame : with labels converted to text if their text is a class name
    values : the ``classes`` argument for ``AnnotationTable.from_frame``
    names : the names that codes stand for, or None
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
            with_column(frame, column, with_missing(labels.astype(str), missing_mask(raw))),
            names,
            None,
        )
    check_codes(labels, names)
    return frame, np.arange(len(names)), names


def check_codes(labels: AnyArray, names: AnyArray) -> None:
    """Raise an error for codes that do not stand for any of the names."""
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    outside = np.unique(labels[(labels < 0) | (labels >= len(names))])
    if len(outside):
        raise AnnotationError(
            "labels are integers and classes are names, so labels must be codes "
            f"0..{len(names) - 1}; found {preview(outside)}. Count codes from 0, or give all "
            f"classes ({preview(names)} ...)"
        )


def written_marks(abstain: Any, skip: Any, classes: Any) -> dict[str, int]:
    """Map the text of each value that means a pass to its kind."""
    texts = [[str(value) for value in values] for values in by_kind(read_marks(abstain, skip))]
    names = None if classes is None else make_vocabulary(classes, "classes").astype(str)
    return read_marks(texts[0], texts[1], names)


def by_kind(marks: dict[Any, int]) -> list[list[Any]]:
    """List the values of each kind of pass, in the order of `PASSES`."""
    return [[value for value in marks if marks[value] == k] for k in range(len(PASSES))]


def integer_marks(marks: dict[str, int]) -> dict[int, int]:
    """The values whose text is an integer, as integers."""
    values = {text: canonical(np.array([text])) for text in marks}
    return {int(v[0]): marks[text] for text, v in values.items() if v.dtype.kind == "i"}


def with_passes(frame: Frame, names: dict[str, str], marks: dict[str, int]) -> Frame:
    """Move labels that mean a pass into the column of passes, which is created if necessary."""
    used = {name for argument, name in names.items() if argument in ("label", "passes")}
    if not marks or not used <= set(frame.columns):
        return frame
    written: dict[Any, str] = {text: text for text in marks}
    for value in integer_marks(marks):
        # In a label column, "3.0" counts as 3.
        written |= {value: str(value), f"{value}.0": str(value)}
    forms = {form: marks[text] for form, text in written.items()}
    labels = np.array(frame[names["label"]].to_list(), dtype=object)
    warn_of_unused(marks, written, labels, f"column {names['label']!r}")
    passes = np.full(len(labels), None)
    if "passes" in names:
        passes = np.array(frame[names["passes"]].to_list(), dtype=object)
    kinds = pass_kinds(labels, forms)
    moved = (kinds >= 0) & missing_mask(passes)
    if not moved.any():
        return frame
    labels[moved], passes[moved] = None, np.array(PASSES, dtype=object)[kinds[moved]]
    # A new name: it is longer than every name in use.
    column = names.setdefault("passes", " ".join(names.values()))
    return with_column(with_column(frame, names["label"], labels), column, passes)
