"""Class collapse: annotated classes that a fitted classifier never predicts (no torch)."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from sklearn.base import BaseEstimator

from manyhands.annotations import AnnotationTable
from manyhands.decision.rules import knows_grades, settled
from manyhands.exceptions import ClassCollapseWarning, warn_caller
from manyhands.fitting.method_protocol import PREFIX
from manyhands.fitting.pilots import AUTO
from manyhands.fitting.reading import take_rows
from manyhands.typing import AnyArray, Instances, IntArray

INSTANCES_AT_ONCE = 1024
"""Number of instances that are predicted at once."""

MOST_NAMED = 5
"""Number of collapsed classes that a warning names; it counts the others."""


def warn_of_class_collapse(model: BaseEstimator, X: Instances, table: AnnotationTable) -> None:
    """Warn of class collapse: an annotated class that is predicted for no training instance.

    Parameters
    ----------
    model : fitted classifier
    X : as in ``fit``
    table : AnnotationTable
        The training annotations; pseudo-annotations do not count.
    """
    counts = np.bincount(table.observed.label, minlength=table.n_classes)
    lost = collapsed_classes(lambda rows: model.predict(take_rows(X, rows)), table)
    if not len(lost):
        return
    named = [f"{table.classes[code].item()!r} ({_times(counts[code])})" for code in lost]
    if len(named) > MOST_NAMED:
        named[MOST_NAMED:] = [f"{len(named) - MOST_NAMED} more"]
    warn_caller(
        f"{type(model).__name__} predicts some annotated classes for none of the "
        f"{table.n_instances:,} training instances: {', '.join(named)}. {_mends(model)}",
        ClassCollapseWarning,
    )


@contextmanager
def _torch_undisturbed() -> Iterator[None]:
    """Leave torch's random numbers as they are, if torch is in use."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    from manyhands.training.devices import isolated_rng

    with isolated_rng(0, torch.device("cpu")):
        yield


def _times(count: int) -> str:
    return f"{count:,} annotation{'s' if count > 1 else ''}"


def collapsed_classes(predict: Callable[[IntArray], AnyArray], table: AnnotationTable) -> IntArray:
    """Return the codes of observed classes that are predicted for no instance of a table.

    Instances are predicted in batches until all classes have occurred, so only a collapse costs a
    pass over the whole training set.

    Parameters
    ----------
    predict : callable (rows) -> array of shape (n_rows,)
        Predicts the classes of some of the table's instances.
    table : AnnotationTable
        Pseudo-annotations do not count.

    Returns
    -------
    integer array of shape (n_lost,)
    """
    awaited = np.unique(table.observed.label)
    with _torch_undisturbed():  # A Dataset may draw random numbers.
        for start in range(0, table.n_instances, INSTANCES_AT_ONCE):
            rows = np.arange(start, min(start + INSTANCES_AT_ONCE, table.n_instances))
            awaited = awaited[~np.isin(table.classes[awaited], predict(rows))]
            if not len(awaited):
                break
    return awaited


def _mends(model: BaseEstimator) -> str:
    """Return advice on parameters that may prevent a class collapse."""
    parameters = model.get_params()
    mends = []
    if parameters.get("class_balance", "") is None:
        mends.append("class_balance='reweight'")
    init_scale = parameters.get(f"{PREFIX}init_scale", AUTO)
    if init_scale != AUTO:  # "auto" has tried larger ones.
        mends.append(f"an init_scale above {init_scale:g} in the protocol")
    rule = settled(parameters.get("decision"), grades=knows_grades(model))
    if isinstance(rule, str) and rule == "median":
        return (
            "A median is the first or last grade only where more than half of the probability is "
            "on it, so the ends of a scale are rarely predicted. This may be what you want; "
            "decision='posterior' gives the most probable grade"
        )
    if "class_prior" in parameters and "n_rounds" in parameters:
        return "Give class_prior= the shares that you know, or try decision='balanced'"
    return f"Try {', '.join([*mends, 'more epochs'])}"


@contextmanager
def without_collapse_warnings() -> Iterator[None]:
    """Suppress `ClassCollapseWarning` in fits that are parts of another one, which warns itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClassCollapseWarning)
        yield
