"""Training callbacks: metrics, the best state, early stopping."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from manyhands.functional.ranks import (
    active_ranks,
    from_first,
    in_first_process,
    working_together,
)
from manyhands.metrics import paired_z
from manyhands.training.progress import GUARD, Callback
from manyhands.typing import FloatArray

_NO_BEST = {"value": None, "stage": None, "epoch": None, "module": None}


class Monitor(Callback):
    """Add metrics to every history row."""

    def __init__(self, evaluate: Callable[[], dict[str, float]]) -> None:
        self.evaluate = evaluate

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Evaluate the metrics and add them to the row."""
        metrics.update(self.evaluate())


class BestState(Callback):
    """Keep the module's state from the best epoch so far.

    Parameters
    ----------
    module : nn.Module
    metric : str
        Column of the history.
    higher_is_better : bool
    last_stage_only : bool
        Start over with every stage.
    values : callable () -> array of shape (n,), optional
        Returns the metric of each instance; the epoch's metric is their mean. If given, the last
        epoch is kept unless the best one is better by more than `GUARD` standard errors of the
        paired difference, because the best of many epochs looks better than it is.
    """

    def __init__(
        self,
        module: nn.Module,
        metric: str,
        *,
        higher_is_better: bool,
        last_stage_only: bool = False,
        values: Callable[[], FloatArray] | None = None,
    ) -> None:
        self.module = module
        self.last_stage_only = last_stage_only
        self.values = values
        self.metric = metric
        self.sign = 1.0 if higher_is_better else -1.0
        self.best: dict[str, Any] = dict(_NO_BEST)

    def on_stage_begin(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Forget earlier stages if only the last stage counts."""
        if self.last_stage_only and not first_epoch:
            self.best = dict(_NO_BEST)

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Keep the state if the metric improved (on ties, the first epoch wins)."""
        value = metrics[self.metric]
        if self.best["value"] is None or self.sign * (value - self.best["value"]) > 0:
            self.best = {
                "value": value,
                **self._noted(metrics),
                "module": copy.deepcopy(self.module.state_dict()),
            }
        self._note_last(metrics)

    def _noted(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the stage and epoch of a row and, with ``values``, the metric of each instance."""
        noted = {"stage": row["stage"], "epoch": row["epoch"]}
        if self.values is not None:
            noted["values"] = torch.from_numpy(self.values().astype(np.float64))
        return noted

    def _note_last(self, row: dict[str, Any]) -> None:
        """Remember the epoch as the last one; the best is compared with it."""
        if self.values is not None:
            self.best["last"] = self._noted(row)

    @property
    def kept(self) -> dict[str, Any]:
        """Stage and epoch of the state to keep."""
        last = self.best.get("last")
        if last is not None and paired_z((self.best["values"] - last["values"]).numpy()) <= GUARD:
            return cast(dict[str, Any], last)
        return self.best

    def restore(self) -> None:
        """Load the state to keep into the module, which holds that of the last epoch."""
        if self.kept is self.best:
            self.module.load_state_dict(self.best["module"])

    def state_dict(self) -> dict[str, Any]:
        """Return the best state so far."""
        return self.best

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the best state so far."""
        self.best = state


class EarlyStopping(Callback):
    """End a stage when a metric has not improved for ``patience`` epochs.

    Parameters
    ----------
    metric : str
        Column of the history.
    higher_is_better : bool
    patience : int
    exempt : collection of str
        Names of stages that are never stopped early.
    """

    def __init__(
        self,
        metric: str,
        *,
        higher_is_better: bool,
        patience: int,
        exempt: Collection[str] = (),
    ) -> None:
        self.metric = metric
        self.exempt = exempt
        self.sign = 1.0 if higher_is_better else -1.0
        self.patience = patience
        self.best: float | None = None
        self.waited = 0

    def on_stage_begin(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Reset the count of epochs without improvement."""
        if not first_epoch:
            self.best, self.waited = None, 0

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> bool:
        """Count the epochs without improvement; end the stage when patience is exhausted."""
        if metrics["stage"] in self.exempt:
            return False
        value = self.sign * metrics[self.metric]
        if self.best is None or value > self.best:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """Return the best value and number of epochs without improvement."""
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self.best, self.waited = state["best"], state["waited"]


class WeightSync(Callback):
    """Copy the first process's weights to all processes before every epoch.

    They would drift apart otherwise, because sums on a GPU depend on the order of their terms.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def on_epoch_begin(self, epoch: int) -> None:
        """Copy the weights."""
        ranks = active_ranks()
        if ranks is not None:
            ranks.align(self.module)


class FirstProcessCallback(Callback):
    """Call a user's callback in the first of several processes only, and obey it in all.

    Parameters
    ----------
    callback : Callback
        The user's callback.
    """

    def __init__(self, callback: Callback) -> None:
        self.wrapped = callback

    def on_stage_begin(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Call the callback's method in the first process."""
        self._in_first(lambda: self.wrapped.on_stage_begin(name, max_epochs, first_epoch))

    def on_epoch_begin(self, epoch: int) -> None:
        """Call the callback's method in the first process."""
        self._in_first(lambda: self.wrapped.on_epoch_begin(epoch))

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> bool | None:
        """Call the callback's method in the first process; all get its result and its row."""

        def call() -> tuple[bool | None, dict[str, Any]]:
            with working_together(None):
                return self.wrapped.on_epoch_end(epoch, metrics), metrics

        stop, row = from_first(call)
        metrics.update(row)
        return stop

    def on_training_end(self) -> None:
        """Call the callback's method in the first process."""
        self._in_first(self.wrapped.on_training_end)

    def _in_first(self, call: Callable[[], object]) -> None:
        if in_first_process():
            with working_together(None):
                call()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the callback."""
        return self.wrapped.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the callback."""
        self.wrapped.load_state_dict(state)


def first_process_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    """Wrap callbacks so that only the first of several processes calls them.

    Parameters
    ----------
    callbacks : sequence of Callback

    Returns
    -------
    list of Callback
        The callbacks themselves if there is only one process.
    """
    ranks = active_ranks()
    if ranks is None or ranks.size == 1:
        return list(callbacks)
    return [FirstProcessCallback(callback) for callback in callbacks]
