"""What identifies a fit: its class, its parameters, and digests of data and network."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch

from manyhands.annotations import AnnotationTable
from manyhands.fitting.context import Fit
from manyhands.fitting.folders import UNCOMPARED, describe_parameter
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.training import Features


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
