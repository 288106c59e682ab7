"""Seeds of a fit, and the random annotations that it holds out (no torch)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError


def draw_seed(random_state: Any) -> int:
    """Draw the seed of one fit from the parameter ``random_state``.

    All processes of a training get the seed that the first one draws.
    """

    def draw() -> int:
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))

    return int(made_by_first(draw))


def in_first_process() -> bool:
    """Return whether this is the first process of a training, the only one that writes files."""
    ranks = sys.modules.get("manyhands.functional.ranks")
    return True if ranks is None else bool(ranks.in_first_process())


def made_by_first(make: Callable[[], Any]) -> Any:
    """Call ``make`` in the first process of a training, and return its result in all of them."""
    ranks = sys.modules.get("manyhands.functional.ranks")
    return make() if ranks is None else ranks.from_first(make)


def working_alone() -> AbstractContextManager[Any]:
    """Return a context manager in which this process computes without the others."""
    ranks = sys.modules.get("manyhands.functional.ranks")
    return nullcontext() if ranks is None else ranks.working_together(None)


def joined_if_any(estimator: Any) -> AbstractContextManager[Any]:
    """Return a context manager that joins the processes of an estimator's `Devices`, if any.

    Without `Devices`, torch is not imported.
    """
    devices = sys.modules.get("manyhands.training.devices")
    return nullcontext() if devices is None else devices.joined(estimator)


def set_random_states(estimator: Any, rng: np.random.Generator) -> Any:
    """Give every unset ``random_state`` within an estimator a seed, and return the estimator."""
    if hasattr(estimator, "get_params"):
        unset = [
            name
            for name, value in sorted(estimator.get_params().items())
            if value is None and (name == "random_state" or name.endswith("__random_state"))
        ]
        estimator.set_params(**{name: int(rng.integers(2**31)) for name in unset})
    return estimator


def hold_out(
    table: AnnotationTable, fraction: float, rng: np.random.Generator
) -> tuple[AnnotationTable, AnnotationTable]:
    """Split off a random fraction of the observed annotations: (kept, held out).

    Both tables keep the vocabularies. Annotations that were not observed (``source``) are always
    kept, since they cannot validate a model.

    Raises
    ------
    AnnotationError
        If either part would be empty.
    """
    observed = np.flatnonzero(table.source == "observed")
    n_held = round(fraction * len(observed))
    if not 0 < n_held < len(observed):
        better = "smaller" if n_held else "larger"
        raise AnnotationError(
            f"validation={fraction} of {len(observed)} annotations leaves one part empty; "
            f"use a {better} fraction, or validation=None"
        )
    held = np.zeros(table.n_annotations, dtype=bool)
    held[observed[rng.choice(len(observed), n_held, replace=False)]] = True
    return table.take(~held), table.take(held)
