"""What watches the training: metrics, the best state, early stopping, a progress bar."""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Callable, Collection
from typing import Any

from torch import nn

logger = logging.getLogger("manyhands")

_NOTHING_YET = {"value": None, "stage": None, "epoch": None, "module": None}


class Callback:
    """Does nothing; subclasses override what they need."""

    should_stop = False
    """True ends the stage."""

    def before_stage(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Hear that a stage begins (or, with first_epoch > 0, goes on)."""

    def after_epoch(self, row: dict[str, Any]) -> None:
        """See (and add to) the epoch's history row."""

    def after_training(self) -> None:
        """Hear that training is over, by whatever reason."""

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put `state_dict` back."""


class Monitor(Callback):
    """Add metrics to every row."""

    def __init__(self, evaluate: Callable[[], dict[str, float]]) -> None:
        self.evaluate = evaluate

    def after_epoch(self, row: dict[str, Any]) -> None:
        """Evaluate and add to the row."""
        row.update(self.evaluate())


class BestState(Callback):
    """Keep the module's state of the best epoch so far.

    Parameters
    ----------
    module : nn.Module
    metric : str
        Column of the history.
    higher_is_better : bool
    last_stage_only : bool
        Begin anew with every stage.
    """

    def __init__(
        self,
        module: nn.Module,
        metric: str,
        *,
        higher_is_better: bool,
        last_stage_only: bool = False,
    ) -> None:
        self.module = module
        self.last_stage_only = last_stage_only
        self.metric = metric
        self.sign = 1.0 if higher_is_better else -1.0
        self.best: dict[str, Any] = dict(_NOTHING_YET)

    def before_stage(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Forget earlier stages, where they do not count."""
        if self.last_stage_only and not first_epoch:
            self.best = dict(_NOTHING_YET)

    def after_epoch(self, row: dict[str, Any]) -> None:
        """Remember the state if the metric improved (the first of equals stays)."""
        value = row[self.metric]
        if self.best["value"] is None or self.sign * (value - self.best["value"]) > 0:
            self.best = {
                "value": value,
                "stage": row["stage"],
                "epoch": row["epoch"],
                "module": copy.deepcopy(self.module.state_dict()),
            }

    def restore(self) -> None:
        """Put the best state back into the module."""
        self.module.load_state_dict(self.best["module"])

    def state_dict(self) -> dict[str, Any]:
        """Return the best state so far."""
        return self.best

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the best state so far back."""
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
        Stages that are never ended.
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

    def before_stage(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Begin to wait anew."""
        if not first_epoch:
            self.best, self.waited = None, 0

    def after_epoch(self, row: dict[str, Any]) -> None:
        """Count the epochs without improvement."""
        if row["stage"] in self.exempt:
            return
        value = self.sign * row[self.metric]
        if self.best is None or value > self.best:
            self.best, self.waited = value, 0
        else:
            self.waited += 1

    @property
    def should_stop(self) -> bool:  # type: ignore[override]
        """Tell whether patience is used up."""
        return self.waited >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """Best value and epochs waited."""
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put `state_dict` back."""
        self.best, self.waited = state["best"], state["waited"]


class ProgressBar(Callback):
    """A bar on standard error with rich where it is installed; otherwise a log line an epoch."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.progress: Any = None
        self.max_epochs = 0
        try:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )
        except ImportError:
            return
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}"),
            console=Console(file=sys.stderr),
        )

    def before_stage(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Start a bar for the stage."""
        self.max_epochs = max_epochs
        if self.progress is not None:
            self.progress.start()
            title = self.title if name == "train" else f"{self.title}: {name}"
            self.task = self.progress.add_task(
                title, total=max_epochs, completed=first_epoch, note=""
            )

    def after_epoch(self, row: dict[str, Any]) -> None:
        """Advance the bar."""
        shown = ("loss", "validation_nll", "validation_accuracy")
        note = " ".join(f"{name} {row[name]:.4f}" for name in shown if name in row)
        if self.progress is None:
            logger.info("%s epoch %d/%d: %s", self.title, row["epoch"], self.max_epochs, note)
        else:
            self.progress.update(self.task, completed=row["epoch"], note=note)

    def after_training(self) -> None:
        """Leave the finished bars standing."""
        if self.progress is not None:
            self.progress.stop()
