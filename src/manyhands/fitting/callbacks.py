"""Callbacks of a fit: the epoch, measures after every epoch, the best state, early stopping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.annotations.target import in_order_of_rows
from manyhands.decision.rules import is_posterior
from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import Fit
from manyhands.fitting.folders import describe_parameter
from manyhands.fitting.monitors import (
    AgreementMonitor,
    AnnotationMonitor,
    Follower,
    GoldMonitor,
    Predictor,
    Watcher,
)
from manyhands.fitting.parameters import monitored
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.fitting.reading import n_rows, read_features, refuse_names_of_columns
from manyhands.functional.ranks import active_ranks, in_first_process
from manyhands.training import (
    AnnotationBatches,
    BestState,
    Callback,
    EarlyStopping,
    Features,
    InStep,
    Monitor,
    ProgressBar,
    Stage,
    heard_by_first,
)
from manyhands.typing import FloatArray, IntArray


def announce(model: Any, fit: Fit[Any, Any], stages: Sequence[Stage]) -> None:
    """Tell the user's callbacks that the training begins."""
    weights = [part.numel() for part in fit.module.parameters() if part.requires_grad]
    facts = {
        "classifier": type(model).__name__,
        "parameters": {
            name: describe_parameter(value)
            for name, value in model.get_params(deep=False).items()
            if name != "callbacks"
        },
        "n_instances": len(fit.batches.instances),
        "n_annotations": fit.table.n_annotations,
        "n_annotators": fit.table.n_annotators,
        "n_classes": fit.table.n_classes,
        "n_weights": sum(weights),
        "device": str(fit.features.device),
        "n_epochs": fit.n_epochs,
        "stages": {stage.name: stage.max_epochs for stage in stages},
        "history": [dict(row) for row in fit.history],
    }
    if in_first_process():
        for callback in model.callbacks or ():
            callback.on_fit_begin(model, facts)


@contextmanager
def ending_heard(model: Any) -> Iterator[None]:
    """Tell the user's callbacks how the block ended; all hear of the error in one of them."""
    waiting = list(model.callbacks or ()) if in_first_process() else []
    try:
        yield
        while waiting:
            waiting.pop(0).on_fit_end(model, None)
    except BaseException as error:
        for callback in waiting:
            try:
                callback.on_fit_end(model, error)
            except Exception as another:
                error.add_note(f"{type(callback).__name__}.on_fit_end failed too: {another!r}")
        raise


class EpochClock(Callback):
    """Sets ``fit.epoch`` to the current epoch."""

    def __init__(self, fit: Fit[Any, Any]) -> None:
        self.fit = fit

    def on_epoch_begin(self, epoch: int) -> None:
        """Set the epoch."""
        self.fit.epoch = epoch


def make_callbacks(model: Any, fit: Fit[Any, Any]) -> tuple[list[Callback], BestState | None]:
    """Make the callbacks of a fit, and name the one that keeps the best state.

    Parameters
    ----------
    model : BaseCrowdClassifier
    fit : Fit

    Returns
    -------
    callbacks : list of Callback
        In the order in which they are called.
    best : BestState or None
        The callback that keeps the best state; None without ``validation``.
    """
    callbacks: list[Callback] = [EpochClock(fit), Monitor(lambda: fit.facts)]
    if active_ranks() is not None:
        callbacks.append(InStep(fit.module))
    best: BestState | None = None
    if model.validation is not None and fit.earlier is None:
        monitor, metric, higher, values = _validation(model, fit)
        best = BestState(
            fit.module,
            metric,
            higher_is_better=higher,
            last_stage_only=model._validates_last_stage_only,
            values=values,
        )
        callbacks += [Monitor(monitor), best]
        if model.patience is not None:
            callbacks.append(
                EarlyStopping(
                    metric,
                    higher_is_better=higher,
                    patience=model.patience,
                    exempt=model._preparatory_stages,
                )
            )
    callbacks += [*_watchers(model, fit), *heard_by_first(model.callbacks or ())]
    if model.verbose and in_first_process():
        callbacks.append(ProgressBar(model._title))
    return callbacks, best


def _validation(
    model: Any, fit: Fit[Any, Any]
) -> tuple[Callable[[], dict[str, float]], str, bool, Callable[[], FloatArray] | None]:
    """Return the monitor that compares epochs, its metric, and whether higher is better.

    Last, what the guard compares: the values of the instances, or None if there is no guard.
    """
    if fit.held is None:
        gold = _gold_monitor(model, fit, "validation", model.validation)
        return gold, "validation_accuracy", True, None
    if monitored(model) == "likelihood":
        batches = AnnotationBatches(fit.features, fit.held, PREDICT_BATCH)
        return AnnotationMonitor(fit.module, batches), "validation_nll", False, None
    rows = np.flatnonzero(fit.held.annotations_per_instance())
    monitor = AgreementMonitor(make_predictor(model, fit, fit.features, rows), fit.held)
    return monitor, "validation_agreement", True, lambda: monitor.values


def _watchers(model: Any, fit: Fit[Any, Any]) -> list[Callback]:
    """Monitors of the watched sets whose instances have the shape of the training instances."""
    watchers: list[Callback] = []
    for name, part in fit.watch.sets.items():
        shape = getattr(part[0], "shape", None)
        if shape is None or fit.features.is_dataset or shape[1:] == fit.features.input_shape:
            watchers.append(Monitor(Watcher(name, _gold_monitor(model, fit, name, part))))
    followed = fit.watch.followed
    if followed is not None:
        features = Features(read_features(model, followed.X, reset=False), fit.features.device)
        predictor = Predictor(fit.module, features, PREDICT_BATCH)
        watchers.append(Monitor(Follower(followed, predictor)))
    return watchers


def make_predictor(
    model: Any, fit: Fit[Any, Any], features: Features, rows: IntArray | None = None
) -> Predictor:
    """Make what predicts with the network in training as ``predict`` will."""
    decide = None if is_posterior(model._rule) else model._decide
    return Predictor(fit.module, features, PREDICT_BATCH, decide, rows)


def _gold_monitor(model: Any, fit: Fit[Any, Any], name: str, part: Any) -> GoldMonitor:
    """Monitor of a named set (X, y_gold)."""
    if len(part) != 2:
        raise AnnotationError(
            f"{name} has {len(part)} parts; give (X, y_gold), a fraction of the instances, or None"
        )
    X, y_gold = part
    refuse_names_of_columns(model, X, name)
    gold = as_values(in_order_of_rows(X, y_gold, argument=name))
    X = read_features(model, X, reset=False)
    if gold.shape != (n_rows(X),):
        raise AnnotationError(
            f"{name} has {n_rows(X)} rows of X but gold labels of shape {gold.shape}; "
            "give one label per row"
        )
    if missing_mask(gold).any():
        raise AnnotationError(
            f"{name}'s y_gold is missing in row {np.flatnonzero(missing_mask(gold))[0]}; "
            "leave out rows without gold labels"
        )
    codes, _ = encode(gold, model.classes_, argument=f"{name}'s y_gold", vocabulary_name="classes_")
    features = Features(X, fit.features.device)
    return GoldMonitor(make_predictor(model, fit, features), torch.from_numpy(codes))
