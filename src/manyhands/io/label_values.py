"""Interpretation of a file's labels as class values, or as codes into class names."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations.encoding import make_vocabulary, missing_mask, tidy
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import (
    Frame,
    preview,
    with_column,
    with_missing,
)
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
