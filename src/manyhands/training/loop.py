"""The epoch loop, and the steps it runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from manyhands.exceptions import DivergenceError
from manyhands.training.progress import Callback, History


class TrainStep(Protocol):
    """An update of a model from one batch; owns the optimisers."""

    def start_epoch(self, epoch: int) -> None:
        """Prepare for an epoch (counted from 0)."""

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Update from a batch and return the named loss terms, detached."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimisers, for a checkpoint."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""


class GradientStep:
    """One optimiser step per batch on the sum of an objective's named terms.

    Parameters
    ----------
    module : nn.Module
    objective : callable (module, batch) -> dict of scalar tensors
    make_optimizer : callable () -> torch optimiser
    reset_every_epoch : bool
        Whether to create a new optimiser for every epoch, as the code of CoNAL and CrowdInG does.
    """

    def __init__(
        self,
        module: nn.Module,
        objective: Callable[[Any, Any], dict[str, Tensor]],
        make_optimizer: Callable[[], torch.optim.Optimizer],
        *,
        reset_every_epoch: bool = False,
    ) -> None:
        self.module = module
        self.objective = objective
        self.make_optimizer = make_optimizer
        self.reset_every_epoch = reset_every_epoch
        self.optimizer = make_optimizer()

    def start_epoch(self, epoch: int) -> None:
        """Put the module into training mode."""
        self.module.train()
        if self.reset_every_epoch and epoch:
            self.optimizer = self.make_optimizer()

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Take one optimiser step."""
        terms = self.objective(self.module, batch)
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return {name: term.detach() for name, term in terms.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimiser."""
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the optimiser's state."""
        self.optimizer.load_state_dict(state["optimizer"])


@dataclass
class Stage:
    """A phase of training: a step, the batches of each epoch, and the number of epochs."""

    name: str
    step: TrainStep
    epoch_batches: Callable[[int], Iterable[Any]]
    max_epochs: int


def run_epochs(
    step: TrainStep,
    epoch_batches: Callable[[int], Iterable[Any]],
    *,
    max_epochs: int,
    callbacks: Sequence[Callback] = (),
    history: History,
    stage: str = "train",
    first_epoch: int = 0,
) -> None:
    """Run epochs, add a history row for each, and stop when a callback says so.

    Parameters
    ----------
    step : TrainStep
    epoch_batches : callable (epoch) -> iterable of batches
        Called once per epoch, so a method may rebuild its batches every time.
    max_epochs, first_epoch : int
    callbacks : sequence of Callback
        Called in order before and after each epoch; afterwards each may add to the row, or end the
        stage.
    history : History
        Receives one row per epoch: stage, epoch (from 1), the mean of each named term, their sum
        ``loss``, ``seconds`` of training, and whatever the callbacks add.
    stage : str

    Raises
    ------
    DivergenceError
        If the loss is no longer finite.
    """
    for epoch in range(first_epoch, max_epochs):
        for callback in callbacks:
            callback.on_epoch_begin(epoch)
        started = perf_counter()
        step.start_epoch(epoch)
        terms = _mean_terms(step(batch) for batch in epoch_batches(epoch))
        row: dict[str, Any] = {"stage": stage, "epoch": epoch + 1, **terms}
        row["loss"] = sum(terms.values())
        row["seconds"] = perf_counter() - started
        if not math.isfinite(row["loss"]):
            raise DivergenceError(
                f"the loss became {row['loss']} in epoch {epoch + 1} of stage {stage!r}; "
                "lower lr (or the stage's own learning rate), or scale X (scaling='standard')"
            )
        history.append(row)
        _tell(callbacks, len(history), row)
        if any(callback.stopped for callback in callbacks):
            break


def _tell(callbacks: Sequence[Callback], epoch: int, row: dict[str, Any]) -> None:
    """Call ``on_epoch_end`` of all callbacks; an error gets a note that names the callback."""
    for callback in callbacks:
        try:
            callback.stopped = bool(callback.on_epoch_end(epoch, row))
        except Exception as error:
            name = type(callback).__name__
            error.add_note(f"in {name}, after epoch {row['epoch']} of stage {row['stage']!r}")
            raise


def _mean_terms(steps: Iterable[dict[str, Tensor]]) -> dict[str, float]:
    """Return the mean of each term over the batches, with a single transfer from the device."""
    sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
    n = 0
    for terms in steps:
        n += 1
        for name, value in terms.items():
            sums[name] = sums[name].to(value.device) + value
    return {name: float(total) / n for name, total in sums.items()}


def run_stages(
    stages: Sequence[Stage],
    *,
    callbacks: Sequence[Callback],
    history: History,
    first_stage: int = 0,
    first_epoch: int = 0,
) -> None:
    """Run stages with distinct names one after another, starting at a given stage and epoch."""
    try:
        for index, stage in enumerate(stages[first_stage:]):
            start = 0 if index else first_epoch
            for callback in callbacks:
                callback.stopped = False
                callback.on_stage_begin(stage.name, stage.max_epochs, start)
            run_epochs(
                stage.step,
                stage.epoch_batches,
                max_epochs=stage.max_epochs,
                callbacks=callbacks,
                history=history,
                stage=stage.name,
                first_epoch=start,
            )
    finally:
        # Also after Ctrl-C, because a progress bar that is not stopped leaves the cursor hidden.
        for callback in callbacks:
            callback.on_training_end()
