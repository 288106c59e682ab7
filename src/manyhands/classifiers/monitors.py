"""What can be watched after every epoch: held-out annotations, or gold labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhands.nn import CrowdModule
from manyhands.objectives import crowd_nll
from manyhands.training import AnnotationBatches, Features, isolated_rng
from manyhands.typing import IntArray

_WATCHED: ContextVar[Mapping[str, tuple[Any, Any]]] = ContextVar(
    "watched", default=MappingProxyType({})
)


_GOLD: ContextVar[Any] = ContextVar("gold", default=None)


@contextmanager
def watching(*, y_train: Any = None, **sets: tuple[Any, Any]) -> Iterator[None]:
    """Add accuracy and macro-F1 on sets with gold to the history of every fit inside the block.

    The training does not change: neither its random numbers nor which epoch is kept, nor what
    its checkpoints can be resumed by. What is so seen of a test set is for curves and oracles.

    Parameters
    ----------
    y_train : array of shape (n_samples,), optional
        True classes of the instances fitted on, with which methods that add annotations compare
        what they add; others leave them alone.
    **sets : (X, y_gold)
        Under a name each; the history gets ``<name>_accuracy`` and ``<name>_macro_f1``. Blocks
        may be nested; a fit on instances of another shape is not measured.

    Examples
    --------
    >>> from manyhands import CoNALClassifier, load_demo
    >>> from manyhands.classifiers.monitors import watching
    >>> demo = load_demo()
    >>> model = CoNALClassifier(max_epochs=2, random_state=0)
    >>> with watching(test=(demo.X_test, demo.y_test)):
    ...     len(model.fit(demo.X_train, demo.annotations).history_.column("test_accuracy"))
    2
    """
    token = _WATCHED.set({**_WATCHED.get(), **sets})
    gold = _GOLD.set(_GOLD.get() if y_train is None else y_train)
    try:
        yield
    finally:
        _GOLD.reset(gold)
        _WATCHED.reset(token)


def watched() -> Mapping[str, tuple[Any, Any]]:
    """Return the sets watched here, by name."""
    return _WATCHED.get()


def watched_gold() -> Any:
    """Return the true classes of the instances fitted on, None where they are not watched."""
    return _GOLD.get()


class AnnotationMonitor:
    """``validation_nll``: mean negative log likelihood of held-out annotations."""

    def __init__(self, module: CrowdModule, batches: AnnotationBatches) -> None:
        self.module = module
        self.batches = batches

    @torch.inference_mode()
    def __call__(self) -> dict[str, float]:
        """Evaluate the module as it is."""
        self.module.eval()
        total, weight = 0.0, 0.0
        for batch in self.batches.in_order():
            size = len(batch.labels)
            total += size * float(crowd_nll(self.module, batch)["nll"])
            weight += size if batch.weights is None else float(batch.weights.sum())
        return {"validation_nll": total / weight}


class GoldMonitor:
    """``validation_accuracy``: share of gold labels predicted."""

    def __init__(
        self, module: CrowdModule, features: Features, gold: Tensor, batch_size: int
    ) -> None:
        self.module = module
        self.features = features
        self.gold = gold
        self.batch_size = batch_size

    @torch.inference_mode()
    def __call__(self) -> dict[str, float]:
        """Evaluate the module as it is."""
        return {"validation_accuracy": self.accuracy_of(self.predicted())}

    def predicted(self) -> Tensor:
        """Class codes, shape (n,)."""
        self.module.eval()
        every_row = torch.arange(len(self.features))
        parts = [self.module(x) for x in self.features.batches(every_row, self.batch_size)]
        return torch.cat(parts).argmax(dim=1).cpu()

    def accuracy_of(self, predicted: Tensor) -> float:
        """Share of right codes."""
        return float((predicted == self.gold).double().mean())


class Watcher:
    """Accuracy and macro-F1 of a gold monitor's predictions, leaving no trace in the training."""

    def __init__(self, name: str, gold: GoldMonitor) -> None:
        self.name = name
        self.gold = gold

    @torch.inference_mode()
    def __call__(self) -> dict[str, float]:
        """Evaluate; modes and generators are afterwards as they were."""
        modes = [(part, part.training) for part in self.gold.module.modules()]
        # A backbone or a Dataset may draw random numbers even when it only predicts.
        with isolated_rng(0, self.gold.features.device):
            predicted = self.gold.predicted()
        for part, mode in modes:
            part.training = mode
        return {
            f"{self.name}_accuracy": self.gold.accuracy_of(predicted),
            f"{self.name}_macro_f1": _macro_f1(self.gold.gold.numpy(), predicted.numpy()),
        }


def _macro_f1(gold: IntArray, predicted: IntArray) -> float:
    """`manyhands.metrics.macro_f1` of codes, without its checks: they cost more than an epoch."""
    size = 1 + max(gold.max(), predicted.max())
    right = np.bincount(gold[gold == predicted], minlength=size)
    counted = np.bincount(gold, minlength=size) + np.bincount(predicted, minlength=size)
    return float(np.mean(2.0 * right[counted > 0] / counted[counted > 0]))
