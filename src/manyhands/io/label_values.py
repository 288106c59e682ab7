"""What the labels of a file are: class values, or codes into the names of the classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations.encoding import make_vocabulary, missing_mask, tidy
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import (
    Frame,
    some,
    with_column,
    with_gaps,
)
from manyhands.typing import AnyArray


def label_values(
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
    check_codes(labels, names)
    return frame, np.arange(len(names)), names


def check_codes(labels: AnyArray, names: AnyArray) -> None:
    """Refuse codes that stand for none of the names."""
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    outside = np.unique(labels[(labels < 0) | (labels >= len(names))])
    if len(outside):
        raise AnnotationError(
            f"labels are integers and classes are names, so labels are codes 0..{len(names) - 1}; "
            f"found {some(outside)}. Count codes from 0, or give all classes ({some(names)} ...)"
        )
