"""Parameters as JSON, for saved models and checkpoints (no torch)."""

from __future__ import annotations

import hashlib
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

UNCOMPARED = frozenset({"callbacks", "checkpoint", "device", "verbose"})
"""Parameters that may differ between a run and its resumption."""


def describe_parameter(value: Any) -> Any:
    """Describe a parameter as JSON: estimators by name and parameters, other objects by name."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: describe_parameter(part) for key, part in value.items()}
        # JSON would turn keys that are numbers, such as classes, into text.
        pairs = [[describe_parameter(part) for part in pair] for pair in value.items()]
        return {"__pairs__": pairs}
    if isinstance(value, list | tuple):
        return [describe_parameter(part) for part in value]
    if hasattr(value, "detach"):  # A tensor.
        value = value.detach().cpu()
    if hasattr(value, "__array__"):
        # Shape and digest rather than content: this also identifies the data of a checkpoint.
        array = np.ascontiguousarray(value)
        # The bytes of an object array are memory addresses, which differ between processes.
        content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        digest = hashlib.blake2b(content, digest_size=8).hexdigest()
        return {"__array__": list(array.shape), "digest": digest}
    if isinstance(value, BaseEstimator):
        parameters = value.get_params(deep=False)
        return {
            "__estimator__": type(value).__name__,
            "parameters": {name: describe_parameter(part) for name, part in parameters.items()},
        }
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return {"__object__": name}
