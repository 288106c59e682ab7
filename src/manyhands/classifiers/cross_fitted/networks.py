"""Networks of cross-fitted EM: their defaults, that they share nothing, and their least steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from torch import nn

from manyhands.exceptions import AnnotationError

Batch = TypeVar("Batch")

FOLD_NETWORK = {"name": "mlp", "dropout": 0.5}
LAST_NETWORK = {"name": "mlp", "dropout": 0.2}
"""What ``backbone=None`` stands for in the rounds and in the last training."""


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
