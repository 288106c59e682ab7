"""``max_epochs="auto"``: the number of epochs, chosen by out-of-fold agreement with annotators.

A pilot trains on two thirds of the annotated instances and predicts the others after every epoch.
There are up to three pilots, until a thousand instances are predicted. The number of epochs is the
earliest one whose agreement with the votes is not clearly below the best (early stopping). It is
the earliest because the mistakes that annotators share are learnt last, and agreement counts them
as gains: of two epochs with equal agreement, the later is worse.

`manyhands.select` predicts every instance out of fold anyway: its own trainings are the pilots
(`n_epochs_to_search`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator

from manyhands.annotations import AnnotationTable
from manyhands.fitting.context import Earlier
from manyhands.fitting.folds import deal_instances, instance_units
from manyhands.metrics.vote_shares import row_shares, vote_weights
from manyhands.metrics.votes import paired_z
from manyhands.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from manyhands.fitting.method import Method
    from manyhands.fitting.network import Start
    from manyhands.fitting.recipe import Recipe

AUTO = "auto"

PILOT_STEPS = 600
"""Number of gradient steps of a pilot."""

LEAST_EPOCHS = 20
"""Least number of epochs of a pilot, whatever its number of steps."""

N_FOLDS = 3
"""Number of folds of the annotated instances; a pilot predicts one."""

ENOUGH_PREDICTED = 1000
"""Number of predicted instances after which there is no further pilot."""

MOST_BEHIND = 0.5
"""Standard errors by which an epoch may be below the best and still be chosen."""

FEWEST_INSTANCES = 90
"""Least number of annotated instances for a pilot."""

PLAIN_STEPS = 200
"""Number of gradient steps if there is no pilot."""


def chosen_n_epochs(
    method: Method,
    recipe: Recipe,
    table: AnnotationTable,
    rng: np.random.Generator,
    pilot: Callable[[int, AnnotationTable, IntArray], IntArray],
    start: Start | None = None,
) -> int:
    """Return the number of epochs (of every stage) of a fit.

    Parameters
    ----------
    method : Method
        Says whether its first stage can be a pilot.
    recipe : Recipe
    table : AnnotationTable
        The annotations with a positive weight.
    rng : Generator
        Draws the instances that the pilots predict.
    pilot : callable (n_epochs, table, held) -> array of shape (n_epochs, n_held)
        Trains on the table and returns the codes predicted for the held-out instances after every
        epoch.
    start : Start, optional
        Its weights may know the instances that a pilot would predict, so there is none.

    Returns
    -------
    int
    """
    if recipe.max_epochs != AUTO:
        return int(recipe.max_epochs)
    annotated, units = np.unique(table.instance), instance_units(None, table)
    steps = ceil(len(annotated) / recipe.batch_size)
    if recipe.validation is not None or not method._traits.pilots:
        return n_epochs_of_pilot(steps)
    plain = max(1, round(PLAIN_STEPS / steps))
    if start is not None:
        return plain if start.n_epochs is None else start.n_epochs
    if len(np.unique(units[table.observed.instance])) < FEWEST_INSTANCES:
        return plain
    fold_of = deal_instances(table, N_FOLDS, units, rng)[annotated]
    folds = [annotated[fold_of == fold] for fold in range(N_FOLDS)]
    folds = folds[: ceil(ENOUGH_PREDICTED * N_FOLDS / len(annotated))]
    n_epochs = n_epochs_of_pilot(ceil(len(annotated) * (1 - 1 / N_FOLDS) / recipe.batch_size))
    codes = [pilot(n_epochs, table.take(~np.isin(table.instance, held)), held) for held in folds]
    shares = row_shares(vote_weights(table.observed))
    return earliest(np.hstack(codes), shares[np.concatenate(folds)])


def n_epochs_of_whole_fit(max_epochs: int | str, earlier: Earlier) -> int:
    """Return the number of epochs of a whole fit, of which a partial fit takes its share.

    Parameters
    ----------
    max_epochs : int or "auto"
    earlier : Earlier
        Where "auto", or ``validation``, has found a number.

    Returns
    -------
    int
    """
    before = earlier.model
    found = getattr(before, "best_epoch_", getattr(before, "n_epochs_", LEAST_EPOCHS))
    return int(found if max_epochs == AUTO else max_epochs)


def n_epochs_to_search(model: BaseEstimator, n_instances: int) -> int | None:
    """Return the number of epochs from which out-of-fold predictions are to choose.

    Parameters
    ----------
    model : estimator
    n_instances : int
        Annotated instances of a training, without repetitions.

    Returns
    -------
    int or None
        None: the model finds its number by itself, or has one.
    """
    traits = getattr(model, "_traits", None)
    if (
        traits is None
        or not traits.trains_network
        or model.max_epochs != AUTO
        or model.validation is not None
    ):
        return None
    is_open = traits.pilots and traits.trains_once and traits.auto_epochs_refusal is None
    if not is_open or n_instances < FEWEST_INSTANCES:
        return None
    return n_epochs_of_pilot(ceil(n_instances / model.batch_size))


def n_epochs_of_pilot(steps_per_epoch: int) -> int:
    """Return the number of epochs of a pilot, and of a fit whose ``validation`` decides."""
    return max(LEAST_EPOCHS, round(PILOT_STEPS / steps_per_epoch))


def earliest(codes: IntArray, shares: FloatArray, behind: float = MOST_BEHIND) -> int:
    """Return the earliest epoch, from 1, with an agreement not clearly below the best.

    Parameters
    ----------
    codes : integer array of shape (n_epochs, n)
        Predicted classes after every epoch.
    shares : array of shape (n, n_classes)
        Share of the votes for every class; NaN where there are none.
    behind : float
        Standard errors of the paired differences.

    Returns
    -------
    int
    """
    agreement = shares[np.arange(len(shares)), codes]
    best = agreement[np.nanmean(agreement, axis=1).argmax()]
    good = (paired_z(best - each) <= behind for each in agreement)
    return 1 + next(epoch for epoch, is_good in enumerate(good) if is_good)
