"""What a training tells of its epochs: rows, callbacks, and a progress bar (no torch)."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np

from manyhands.typing import FloatArray

logger = logging.getLogger("manyhands")

GUARD = 1.0
"""How many standard errors an earlier epoch must be ahead of the last to be preferred."""


class History(list[dict[str, Any]]):
    """Rows of ``{"stage", "epoch", <every named loss term>, <metrics>, "seconds"}``."""

    def column(self, name: str, stage: str | None = None) -> FloatArray:
        """Values of one column, NaN where a row lacks it; optionally of one stage only."""
        rows = [row for row in self if stage is None or row["stage"] == stage]
        return np.array([row.get(name, np.nan) for row in rows], dtype=np.float64)

    @property
    def columns(self) -> list[str]:
        """Names of all columns, in order of appearance."""
        return list(dict.fromkeys(name for row in self for name in row))


class Callback:
    """Base class whose hooks do nothing; subclasses override the ones they need."""

    should_stop = False
    """Whether to end the current stage."""

    def before_stage(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Run before a stage begins (or, with first_epoch > 0, resumes)."""

    def before_epoch(self, epoch: int) -> None:
        """Hear that an epoch (0-based) begins."""

    def after_epoch(self, row: dict[str, Any]) -> None:
        """Run after an epoch; may read its history row and add to it."""

    def after_training(self) -> None:
        """Run when training ends, also if it fails."""

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""


class ProgressBar(Callback):
    """A rich progress bar on standard error; without rich, one log line per epoch."""

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
        shown = ("loss", "validation_nll", "validation_agreement", "validation_accuracy")
        note = " ".join(f"{name} {row[name]:.4f}" for name in shown if name in row)
        if self.progress is None:
            logger.info("%s epoch %d/%d: %s", self.title, row["epoch"], self.max_epochs, note)
        else:
            self.progress.update(self.task, completed=row["epoch"], note=note)

    def after_training(self) -> None:
        """Stop the display; finished bars stay visible."""
        if self.progress is not None:
            self.progress.stop()
