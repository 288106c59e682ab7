"""Scaled instances, read batch by batch, for logistic regressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from torch import Tensor

from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.nn import Standardize
from manyhands.training import Features

HELD_NUMBERS = 1 << 26
"""Up to this many scaled features (256 MiB) are kept in memory while regressions are fitted."""


def scaled_batches(
    features: Features, scaler: Standardize, rows: Tensor
) -> Callable[[], Iterator[Tensor]]:
    """Return a function that yields instances, scaled and flattened, batch by batch.

    Parameters
    ----------
    features : Features
    scaler : Standardize
    rows : integer tensor
        The instances.
    """

    def batches() -> Iterator[Tensor]:
        for x in features.batches(rows, PREDICT_BATCH):
            yield scaler(x).flatten(1)

    if len(rows) * math.prod(features.input_shape) > HELD_NUMBERS:
        return batches
    held = list(batches())
    return lambda: iter(held)
