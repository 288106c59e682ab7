"""What every part of the simulation needs: checked numbers, and blocks that bound its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from manyhands.exceptions import AnnotationError

Rng: TypeAlias = np.random.RandomState

NUMBERS = (int, float, np.integer, np.floating)

# Cells (rows times columns) processed at a time; bounds the memory of a simulation.
BLOCK = 1 << 22


def whole_number(value: Any, argument: str) -> int:
    """Read a positive whole number."""
    if not isinstance(value, NUMBERS) or isinstance(value, bool) or value % 1 != 0 or value < 1:
        raise AnnotationError(f"{argument}={value!r} must be a whole number of at least 1")
    return int(value)


def check_share(value: Any, argument: str) -> None:
    """Refuse what is no number in [0, 1]."""
    if not (isinstance(value, NUMBERS) and 0 <= value <= 1):
        raise AnnotationError(f"{argument}={value!r} must lie in [0, 1]")


def blocks(n: int, width: int) -> Iterator[slice]:
    """Slices of n rows of the given width that stay within `BLOCK` cells each."""
    step = max(1, BLOCK // max(width, 1))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
