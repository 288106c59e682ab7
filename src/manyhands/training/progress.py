"""History, callbacks and progress bar of a training (no torch)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from time import monotonic
from typing import Any, Self

import numpy as np

from manyhands.records import record
from manyhands.typing import FloatArray

GUARD = 1.0
"""Standard errors by which an earlier epoch must be better than the last one to be preferred."""

LOG_INTERVAL, NOTEBOOK_INTERVAL = 10.0, 0.1
"""Seconds between lines of progress in a log, and between updates of the line in a notebook."""


@record("Rows", content=list)
class History(list[dict[str, Any]]):
    """Rows of ``{"stage", "epoch", <every named loss term>, <metrics>, "seconds"}``."""

    def column(self, name: str, stage: str | None = None) -> FloatArray:
        """Return the values of a column, optionally of one stage; NaN where a row has no value."""
        rows = [row for row in self if stage is None or row["stage"] == stage]
        return np.array([row.get(name, np.nan) for row in rows], dtype=np.float64)

    @property
    def columns(self) -> list[str]:
        """Names of all columns, in order of appearance."""
        return list(dict.fromkeys(name for row in self for name in row))


class Callback:
    """Base class of the ``callbacks=[...]`` of every classifier that trains a network.

    Its methods do nothing; a subclass overrides the ones it needs. `sklearn.base.clone` keeps the
    object itself, so all clones of a classifier call the same callback.
    """

    stopped = False
    """Whether `on_epoch_end` has ended the current stage. The loop sets it."""

    def on_fit_begin(self, estimator: Any, facts: dict[str, Any]) -> None:
        """Called once before training begins, after any pilot runs that chose the number of epochs.

        Parameters
        ----------
        estimator : BaseCrowdClassifier
            The classifier. It has ``classes_`` and ``annotators_``, but cannot predict yet.
        facts : dict
            Plain values: ``classifier`` (its name) and ``parameters``; ``n_instances`` with
            annotations, ``n_annotations``, ``n_annotators``, ``n_classes``; ``n_weights`` of the
            network; ``device``; ``n_epochs``; ``stages`` (a dict: maximal number of epochs by
            name); and ``history`` (a list: rows of earlier epochs, if the fit resumes from a
            checkpoint or has trained its start, as CrowdInG does).
        """

    def on_stage_begin(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Called when a stage begins or, with ``first_epoch > 0``, resumes."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Called before each epoch; ``epoch`` counts from 0 in its stage."""

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> bool | None:
        """Called after each epoch; return True to end the stage.

        Parameters
        ----------
        epoch : int
            Number of epochs of this fit so far, in all its stages.
        metrics : dict
            The row of ``history_``: ``stage``, ``epoch`` (from 1 in each stage), the loss terms,
            metrics. Values that a callback adds to it become part of the history.

        Returns
        -------
        bool or None
            True ends the current stage after this epoch. Most methods have one stage; methods with
            several continue with the next.
        """

    def on_training_end(self) -> None:
        """Called once when training ends, whether it succeeded or failed."""

    def on_fit_end(self, estimator: Any, error: BaseException | None) -> None:
        """Called once when the fit has ended; the estimator can predict unless there is an error.

        Parameters
        ----------
        estimator : BaseCrowdClassifier
        error : BaseException or None
            The exception that ended the fit; None if it succeeded.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""

    def __sklearn_clone__(self) -> Self:
        # A copy of a logger would write to a copy of its file or run.
        return self


class ProgressBar(Callback):
    """Show the progress of a training on standard error.

    On a terminal this is a rich progress bar, and in a notebook one line that is updated.
    Elsewhere, such as in a log, and without rich, there is a line every ten seconds and at the end
    of a stage.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.display: _Bar | _Line | None = None

    def on_stage_begin(self, name: str, max_epochs: int, first_epoch: int) -> None:
        """Start a bar for the stage."""
        title = self.title if name == "train" else f"{self.title}: {name}"
        if self.display is None:
            self.display = _make_display()
        self.display.start(title, max_epochs, first_epoch)

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Advance the bar."""
        shown = ("loss", "validation_nll", "validation_agreement", "validation_accuracy")
        note = " ".join(f"{name} {metrics[name]:.4f}" for name in shown if name in metrics)
        if self.display is not None:
            self.display.update(metrics["epoch"], note)

    def on_training_end(self) -> None:
        """Stop the display and leave its last state visible."""
        if self.display is not None:
            self.display.stop()


def _make_display() -> _Bar | _Line:
    if in_notebook():
        return _Line(_NotebookLine(), NOTEBOOK_INTERVAL)
    if sys.stderr.isatty() and find_spec("rich") is not None:
        return _Bar()
    return _Line(lambda text: sys.stderr.write(f"{text}\n"), LOG_INTERVAL)


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class _Bar:
    """A rich progress bar on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}"),
            console=Console(file=sys.stderr),
        )

    def start(self, title: str, total: int, done: int) -> None:
        self.progress.start()
        self.task = self.progress.add_task(title, total=total, completed=done, note="")

    def update(self, done: int, note: str) -> None:
        self.progress.update(self.task, completed=done, note=note)

    def stop(self) -> None:
        self.progress.stop()


class _Line:
    """Lines of text, at most one per interval; the last line is always written."""

    def __init__(self, write: Callable[[str], Any], interval: float) -> None:
        self.write, self.interval = write, interval
        self.waiting = ""

    def start(self, title: str, total: int, done: int) -> None:
        self.stop()
        self.title, self.total, self.first = title, total, done
        self.began = self.written = monotonic()

    def update(self, done: int, note: str) -> None:
        seconds = monotonic() - self.began
        left = seconds / max(done - self.first, 1) * (self.total - done)
        time = f"{left:.0f} s left" if done < self.total else f"{seconds:.1f} s"
        self.waiting = f"{self.title}: {done}/{self.total}, {time}{', ' if note else ''}{note}"
        if done >= self.total or monotonic() - self.written >= self.interval:
            self.stop()

    def stop(self) -> None:
        if self.waiting:
            self.write(self.waiting)
        self.waiting, self.written = "", monotonic()


class _NotebookLine:
    """A line in a notebook's cell that overwrites the previous one; each stage gets its own."""

    def __init__(self) -> None:
        self.stage: list[str] = []
        self.handle: Any = None

    def __call__(self, text: str) -> None:
        from IPython.display import display

        shown, stage = {"text/plain": text}, text.split(": ")[:-1]
        if self.handle is None or stage != self.stage:
            self.stage, self.handle = stage, display(shown, raw=True, display_id=True)
        else:
            self.handle.update(shown, raw=True)
