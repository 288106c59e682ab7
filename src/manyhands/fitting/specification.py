"""What identifies a fit: parameters as JSON, data and network as digests.

Saved models keep the parameters; a checkpoint and a run that resumes from it must agree in all.
"""

from __future__ import annotations

import hashlib
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator

from manyhands.annotations import AnnotationTable
from manyhands.fitting.context import Fit
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.training import Features

UNCOMPARED = frozenset({"checkpoint", "device", "verbose"})
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
    if isinstance(value, torch.Tensor):
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


def specification(model: Any, fit: Fit[Any, Any]) -> dict[str, str]:
    """Describe the class, the parameters, the data and the network of a fit.

    A Dataset is described only by its length and its first and last items.
    """
    parameters = {
        name: str(describe_parameter(value))
        for name, value in model.get_params(deep=False).items()
        if name not in UNCOMPARED
    }
    network = hashlib.blake2b(repr(fit.module).encode(), digest_size=8).hexdigest()
    data = _digest(fit.whole, fit.features)
    return {"class": type(model).__name__, "data": data, "network": network, **parameters}


def _digest(table: AnnotationTable, features: Features) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for column in (table.instance, table.annotator, table.label, table.weight):
        digest.update(np.ascontiguousarray(column).tobytes())
    for part in (table.classes, table.annotators):
        digest.update(repr(part.tolist()).encode())
    rows = torch.arange(len(features))
    if features.is_dataset:
        digest.update(str(len(features)).encode())
        rows = rows[[0, -1]]
    for x in features.batches(rows, PREDICT_BATCH):
        digest.update(x.cpu().numpy().tobytes())
    return digest.hexdigest()
