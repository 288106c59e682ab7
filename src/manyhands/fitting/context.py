"""The context of one fit."""

from __future__ import annotations

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
    """Everything that one fit works with. Every hook of a method receives it.

    It lives only as long as the fit. A method keeps what its hooks share in ``state``, never on the
    estimator.

    Attributes
    ----------
    features : Features
    given : AnnotationTable
        The annotations as given to ``fit``.
    whole : AnnotationTable
        The annotations with a positive weight.
    table : AnnotationTable
        The training part of ``whole``: all but ``held``.
    held : AnnotationTable or None
        The part that ``validation`` holds out, if it is a fraction.
    batches : AnnotationBatches
        Minibatches of ``table``, balanced by ``class_balance``.
    rng : Generator
    watch : Watch
        Gold labels for the history; training must not use them.
    history : History
    facts : dict of str to float
        Further entries of the next row of the history. Values persist until replaced.
    epoch : int
        The current epoch of the stage, from 0.
    module : CrowdModule
        The result of ``_build_module``.
    state : object
        The result of ``_prepare``.
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
