"""Attributes of a fitted model that measures read."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray


def attribute(model: Any, name: str) -> FloatArray:
    """Return an attribute as an array of floats.

    Raises
    ------
    AnnotationError
        If the model has no such attribute.
    """
    if not hasattr(model, name):
        raise AnnotationError(
            f"{type(model).__name__} has no {name}; leave this measure out of its row"
        )
    return np.asarray(getattr(model, name), dtype=np.float64)
