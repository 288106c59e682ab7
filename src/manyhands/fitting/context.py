"""What one fit works with, and how a fit that fails leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.fitting.watching import Watch
from manyhands.training import AnnotationBatches, Features, History

Module = TypeVar("Module")
State = TypeVar("State")


@dataclass(eq=False)
class Fit(Generic[Module, State]):
    """What one fit works with. Every hook of a method gets it; it ends with the fit.

    A method keeps what it needs between its hooks in ``state``, never on the estimator.

    Attributes
    ----------
    features : Features
    given : AnnotationTable
        The annotations as they were given to ``fit``.
    whole : AnnotationTable
        Those of a weight above 0.
    table : AnnotationTable
        The part of ``whole`` that is trained on: all but ``held``.
    held : AnnotationTable or None
        The part held out by ``validation``, where that is a fraction.
    batches : AnnotationBatches
        Minibatches of ``table``, balanced by ``class_balance``.
    rng : Generator
    watch : Watch
        Gold labels for the history, which no training may look at.
    history : History
    facts : dict of str to float
        What the next row of the history tells beside the loss. Numbers stay until replaced.
    epoch : int
        The running epoch of the stage, from 0.
    module : CrowdModule
        What ``_build_module`` returned.
    state : object
        What ``_prepare`` returned.
    """

    features: Features
    given: AnnotationTable
    whole: AnnotationTable
    table: AnnotationTable
    held: AnnotationTable | None
    batches: AnnotationBatches
    rng: np.random.Generator
    watch: Watch
    history: History = field(default_factory=History)
    facts: dict[str, float] = field(default_factory=dict)
    epoch: int = 0
    module: Module = field(init=False)
    state: State = field(init=False)


AnyFit = Fit[Any, Any]


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Leave an estimator exactly as it was if the block fails or is interrupted.

    Attributes that the block replaces are put back. Objects that it changes in place are not, so a
    fit must replace what it sets.
    """
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
