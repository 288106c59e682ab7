"""Checks of what members say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Add to whatever is raised inside the name of the member that raised it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"Raised by member {name!r} of the stack.")
        raise


def check_log_proba(name: str, log_proba: Any, shape: tuple[int, int]) -> FloatArray:
    """Refuse log probabilities that no stack can use.

    A class may be ruled out (log 0), but not all of them.

    Parameters
    ----------
    name : str
        The member's.
    log_proba : array-like
    shape : (number of rows, number of classes)
    """
    given = np.asarray(log_proba)
    if given.shape != shape:
        raise AnnotationError(
            f"member {name!r} gave log probabilities of shape {given.shape} for {shape[0]} rows "
            f"and {shape[1]} classes; return an array of shape {shape}"
        )
    if given.dtype.kind not in "biuf":
        raise AnnotationError(
            f"member {name!r} gave log probabilities of type {given.dtype}; return numbers"
        )
    # NaN and infinity pass into the maximum, and so does -inf that leaves no class.
    if not (usable := np.isfinite(given.max(axis=1))).all():
        row = int(np.argmin(usable))
        raise AnnotationError(
            f"member {name!r} gave unusable log probabilities in {(~usable).sum()} of {shape[0]} "
            f"rows, such as {given[row].tolist()}; return finite ones (-inf only where another "
            "class is possible)"
        )
    if len(given) and given.min() >= 0 and np.allclose(given.sum(axis=1), 1.0):
        raise AnnotationError(
            f"member {name!r} gave probabilities, such as {given[0].tolist()}; "
            "predict_log_proba must return their logarithms"
        )
    return cast(FloatArray, given)


class CheckedLogProba:
    """Log probabilities of training rows, checked when they are read.

    Parameters
    ----------
    name : str
        The member's.
    log_proba : array of shape (n, n_classes), or what computes the rows that it is indexed with
    shape : (n, n_classes)
    """

    def __init__(self, name: str, log_proba: Any, shape: tuple[int, int]) -> None:
        if isinstance(log_proba, np.ndarray | list):
            log_proba = check_log_proba(name, log_proba, shape)
        self.name, self.log_proba, self.shape = name, log_proba, shape

    def __getitem__(self, rows: Any) -> FloatArray:
        """Log probabilities of rows (a slice or integers)."""
        found = self.log_proba[rows]
        if isinstance(self.log_proba, np.ndarray):
            return cast(FloatArray, found)
        asked: AnyArray = np.arange(self.shape[0])[rows]
        return check_log_proba(self.name, found, (len(asked), self.shape[1]))
