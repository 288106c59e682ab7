"""What a training tells of its epochs: rows, callbacks, and a progress bar (no torch)."""

from __future__ import annotations

import logging
import sys
from typing import Any, Self

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
    """What hears of a training: ``callbacks=[...]`` of every classifier that trains a network.

    The hooks do nothing; a subclass overrides those that it needs. `sklearn.base.clone` keeps the
    object itself, so all clones of a classifier report to the same callback.
    """

    stopped = False
    """Whether `on_epoch_end` has ended the current stage. The loop sets it."""

    def on_fit_begin(self, estimator: Any, facts: dict[str, Any]) -> None:
        """Hear that a fit begins its training; pilots that find the number of epochs are over.

        Parameters
        ----------
        estimator : BaseCrowdClassifier
            It has ``classes_`` and ``annotators_``, but cannot predict yet.
        facts : dict
            Plain values: ``classifier`` (its name) and ``parameters``; ``n_instances`` with
            annotations, ``n_annotations``, ``n_annotators``, ``n_classes``; ``n_weights`` of the
            network; ``device``; ``n_epochs``; ``stages`` (a dict: maximal number of epochs by
            name); and ``history`` (a list: rows of earlier epochs, if the fit resumes from a
            checkpoint or has trained its start, as CrowdInG does).
        """

    def on_stage_begin(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Hear that a stage begins (or, with first_epoch > 0, resumes)."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Hear that an epoch (counted from 0 in its stage) begins."""

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> bool | None:
        """Hear that an epoch has ended; end its stage by returning True.

        Parameters
        ----------
        epoch : int
            Number of epochs of this fit so far, in all its stages.
        metrics : dict
            The row of ``history_``: ``stage``, ``epoch`` (from 1 in each stage), the loss terms,
            metrics. What a callback adds to it becomes part of the history.

        Returns
        -------
        bool or None
            True ends the current stage after this epoch. Most methods have one stage; those with
            several go on with the next.
        """

    def on_training_end(self) -> None:
        """Hear that the last epoch is over, or that one has failed."""

    def on_fit_end(self, estimator: Any, error: BaseException | None) -> None:
        """Hear that the fit has ended, so that the estimator can predict, or that it has failed.

        Parameters
        ----------
        estimator : BaseCrowdClassifier
        error : BaseException or None
            What ended the fit; None if it succeeded.
        """

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""

    def __sklearn_clone__(self) -> Self:
        # A copy of a logger would write to a copy of its file or run.
        return self


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

    def on_stage_begin(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Start a bar for the stage."""
        self.max_epochs = max_epochs
        if self.progress is not None:
            self.progress.start()
            title = self.title if name == "train" else f"{self.title}: {name}"
            self.task = self.progress.add_task(
                title, total=max_epochs, completed=first_epoch, note=""
            )

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Advance the bar."""
        shown = ("loss", "validation_nll", "validation_agreement", "validation_accuracy")
        note = " ".join(f"{name} {metrics[name]:.4f}" for name in shown if name in metrics)
        if self.progress is None:
            logger.info("%s epoch %d/%d: %s", self.title, metrics["epoch"], self.max_epochs, note)
        else:
            self.progress.update(self.task, completed=metrics["epoch"], note=note)

    def on_training_end(self) -> None:
        """Stop the display; finished bars stay visible."""
        if self.progress is not None:
            self.progress.stop()
