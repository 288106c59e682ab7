"""Networks of cross-fitted EM, and the batches that they and its regressions are trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from torch import Tensor, nn

from manyhands.exceptions import AnnotationError
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.nn import Standardize
from manyhands.training import Features

Batch = TypeVar("Batch")

FOLD_NETWORK = {"name": "mlp", "dropout": 0.5}
LAST_NETWORK = {"name": "mlp", "dropout": 0.2}
"""What ``backbone=None`` stands for in the rounds and in the last training."""

HELD_NUMBERS = 1 << 26
"""Up to this many scaled features (256 MiB) are kept in memory while regressions are fitted."""


def check_distinct(networks: Sequence[nn.Module]) -> None:
    """Refuse networks that share trainable parameters: these would be trained on all folds.

    Raises
    ------
    AnnotationError
        If a trainable parameter belongs to two of them.
    """
    seen: set[int] = set()
    for network in networks:
        own = {id(p) for p in network.parameters() if p.requires_grad}
        if own & seen:
            raise AnnotationError(
                "backbone is a factory whose modules share trainable parameters; let it make new "
                "ones at every call, or freeze what they share"
            )
        seen |= own


def at_least(n: int, one_pass: Callable[[], Iterator[Batch]]) -> Iterator[Batch]:
    """Yield one full pass of batches, then batches of further passes until there are n."""
    yielded = 0
    while yielded < n:
        first = not yielded
        for batch in one_pass():
            if yielded >= n and not first:
                return
            yield batch
            yielded += 1


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
