"""Callbacks that hand the epochs of a training to a file or to another tool (no torch).

Each takes the object that its tool gave to the user. It writes to it, and neither opens nor closes
it. Metrics are named ``<stage>/<metric>``, and the step is the number of epochs so far.
"""

from __future__ import annotations

import csv
import io
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any

from manyhands.io import write_atomically
from manyhands.training.progress import Callback, History


class CSVLogger(Callback):
    """Write the history to a CSV file after every epoch: one row per epoch, all columns.

    The file is replaced as a whole, so that it is valid at any time, and complete after a resumed
    fit. Every fit overwrites it.

    Parameters
    ----------
    path : str or Path

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier
    >>> from manyhands.training import CSVLogger
    >>> model = CrowdLayerClassifier(callbacks=[CSVLogger("epochs.csv")])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.history = History()

    def on_fit_begin(self, estimator: Any, facts: dict[str, Any]) -> None:
        """Start with the rows of earlier epochs if the fit resumes."""
        self.history = History(facts["history"])

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Write the file with one more row."""
        self.history.append(dict(metrics))
        text = io.StringIO()
        writer = csv.DictWriter(text, self.history.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.history)
        write_atomically(self.path, text.getvalue())


class TensorBoardLogger(Callback):
    """Add the metrics of every epoch to TensorBoard.

    Parameters
    ----------
    writer : torch.utils.tensorboard.SummaryWriter
        Or any object with its ``add_scalar``, ``add_text`` and ``flush``.
    """

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def on_fit_begin(self, estimator: Any, facts: dict[str, Any]) -> None:
        """Add the parameters and the facts of the fit as texts."""
        for name, value in _settings(facts).items():
            self.writer.add_text(name, str(value))

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Add the metrics."""
        for name, value in _named(metrics).items():
            self.writer.add_scalar(name, value, epoch)

    def on_fit_end(self, estimator: Any, error: BaseException | None) -> None:
        """Flush the writer, also after a failure."""
        self.writer.flush()


class MlflowLogger(Callback):
    """Log the metrics of every epoch to a run of MLflow.

    The classifier's parameters become the run's parameters. MLflow keeps one value of each, so fits
    with different parameters need a run each. Other facts become tags.

    Parameters
    ----------
    run : mlflow.ActiveRun
        The run that ``mlflow.start_run()`` returned.
    client : mlflow.MlflowClient, optional
        Default: ``mlflow.MlflowClient()``.
    """

    def __init__(self, run: Any, client: Any = None) -> None:
        self.run_id = run.info.run_id
        self.client = import_module("mlflow").MlflowClient() if client is None else client

    def on_fit_begin(self, estimator: Any, facts: dict[str, Any]) -> None:
        """Log the parameters and the facts of the fit."""
        for name, value in facts["parameters"].items():
            self.client.log_param(self.run_id, name, value)
        for name, value in _facts(facts).items():
            self.client.set_tag(self.run_id, name, value)

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Log the metrics."""
        for name, value in _named(metrics).items():
            self.client.log_metric(self.run_id, name, value, step=epoch)


class WandbLogger(Callback):
    """Log the metrics of every epoch to a run of Weights & Biases.

    The number of epochs is logged as ``epoch``, because a run's own step must never decrease, as it
    would in a second fit.

    Parameters
    ----------
    run : wandb.Run
        The run that ``wandb.init()`` returned.
    """

    def __init__(self, run: Any) -> None:
        self.run = run

    def on_fit_begin(self, estimator: Any, facts: dict[str, Any]) -> None:
        """Add the parameters and the facts of the fit to the run's configuration."""
        self.run.config.update(_settings(facts), allow_val_change=True)

    def on_epoch_end(self, epoch: int, metrics: dict[str, Any]) -> None:
        """Log the metrics."""
        self.run.log({**_named(metrics), "epoch": epoch})


def _settings(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the classifier's name and parameters, and the other facts known before epoch 1."""
    return {**facts["parameters"], **_facts(facts)}


def _facts(facts: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in facts.items() if k not in ("history", "parameters")}


def _named(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of an epoch, named after their stage."""
    return {
        f"{metrics['stage']}/{name}": float(value)
        for name, value in metrics.items()
        if isinstance(value, Real) and name != "epoch"
    }
