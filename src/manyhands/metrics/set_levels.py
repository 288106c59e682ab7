"""Precision and recall of inferred sets of labels, and the probability that each cell is right.

A cell is a pair of instance and option. Most cells say that an option does not apply, and most of
these are easy, so that the share of right cells says little. So the labels that were given have a
level of their own (precision), and so have the labels that apply (recall).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from manyhands.exceptions import AnnotationError, silenced
from manyhands.inference.multi_label_dawid_skene import MultiLabelDawidSkene
from manyhands.metrics.certainty import Certainty
from manyhands.metrics.levels import (
    ExpectationError,
    expectation_error,
    expected_level,
    expected_share,
)
from manyhands.metrics.sample_levels import LEAST_GOLD, Level, level_of_gold
from manyhands.typing import BoolArray, FloatArray, IntArray


class SetLevels(NamedTuple):
    """Levels of inferred sets.

    Attributes
    ----------
    given : Level or None
        Precision: share of the given labels that are right. None if unknown.
    found : Level or None
        Recall: share of the labels that apply that were given. None if unknown.
    cells : tuple of (Level or None), one per option
        Share of right cells of each option.
    probability : array of shape (n_instances, n_options)
        Reported probability that each cell is right, with the level of an option as its mean
        (`manyhands.metrics.certainty`); 1 where the label was known, NaN where the level is
        unknown.
    """

    given: Level | None
    found: Level | None
    cells: tuple[Level | None, ...]
    probability: FloatArray

    def to_dict(self) -> dict[str, Any]:
        """Return the levels as plain values, for a summary; ``cells`` is a list, one per option."""

        def plain(level: Level | None) -> dict[str, Any] | None:
            return None if level is None else level.to_dict()

        told = {"given": plain(self.given), "found": plain(self.found)}
        return {**told, "cells": [plain(level) for level in self.cells]}


def levels_of_sets(
    model: Any,
    ticks: BoolArray,
    gold: IntArray | None = None,
    *,
    cells: Sequence[Level | None] | None = None,
) -> SetLevels:
    """Return the levels of a fitted aggregator's sets, each from the best source there is.

    With at least ten gold labels of a kind, a share is measured on them. Else it is what a model
    expects, with the interval of `accuracy_of_labels`: the method itself if its probabilities are
    calibrated, else `MultiLabelDawidSkene`.

    Parameters
    ----------
    model : BaseSetAggregator, fitted
    ticks : boolean array of shape (n_instances, n_options)
        The sets.
    gold : integer array of shape (n_instances, n_options), optional
        True cells: 0, 1, and -1 where unknown. Cells that were known to the fit are left out.
    cells : sequence of (Level or None), one per option, optional
        Levels of the options that were found before, perhaps from gold that is no longer at hand.

    Returns
    -------
    SetLevels
    """
    table, known = model.table_, model.is_known_
    annotated = table.annotations_per_instance() > 0
    posterior = _expected(model)
    free = annotated[:, None] & ~known
    error = None
    if posterior is not None:
        reviewed = float(known[annotated].mean()) if annotated.any() else 0.0
        error = expectation_error(table.answers, known.all(axis=1), reviewed=reviewed)
    shares = model.posterior_ if posterior is None else posterior
    own = np.where(ticks, shares, 1 - shares)
    has = np.zeros_like(free) if gold is None else (gold >= 0) & free
    right = np.zeros_like(free) if gold is None else ticks == (gold == 1)
    if cells is None:
        cells = [
            _level(own[free[:, m], m], right[has[:, m], m], error) for m in range(ticks.shape[1])
        ]
    probability = np.where(known, 1.0, told_of_cells(shares, ticks, free, cells))
    applies = None if gold is None else has & (gold == 1)
    return SetLevels(
        _level(own[free & ticks], right[has & ticks], error),
        _found(own, ticks, free, applies, error),
        tuple(cells),
        probability,
    )


def told_of_cells(
    posterior: FloatArray, ticks: BoolArray, free: BoolArray, cells: Sequence[Level | None]
) -> FloatArray:
    """Return the reported probability that each cell is right, given the level of its option.

    Parameters
    ----------
    posterior : array of shape (n_instances, n_options)
        Probability that each option applies.
    ticks : boolean array of shape (n_instances, n_options)
        The sets.
    free : boolean array of shape (n_instances, n_options)
        Cells to which the levels apply: answered, and not known.
    cells : sequence of (Level or None), one per option

    Returns
    -------
    array of shape (n_instances, n_options)
        NaN where nothing tells.
    """
    own = np.where(ticks, posterior, 1 - posterior)
    told = [Certainty.of(level, own[free[:, m], m], 2)(own[:, m]) for m, level in enumerate(cells)]
    return np.column_stack(told)


def _expected(model: Any) -> FloatArray | None:
    """Return probabilities with a mean near the share of right cells; None if none are known."""
    if getattr(model, "_knows_its_accuracy", False):
        found: FloatArray = model.posterior_
        return found
    gold = np.where(model.is_known_, model._gold, np.nan) if model.is_known_.any() else None
    with silenced("manyhands"):  # The user was warned when the labels were inferred.
        try:
            return MultiLabelDawidSkene().fit(model.table_, gold=gold).posterior_
        except AnnotationError:
            return None


def _level(expected: FloatArray, right: BoolArray, error: ExpectationError | None) -> Level | None:
    """Return the level of some cells: as measured, else as expected."""
    if len(right) >= LEAST_GOLD:
        return level_of_gold(right, "gold")
    if error is None or not len(expected):
        return None
    level = expected_level(expected, error)
    return None if level.is_vague else level


def _found(
    own: FloatArray,
    ticks: BoolArray,
    free: BoolArray,
    applies: BoolArray | None,
    error: ExpectationError | None,
) -> Level | None:
    """Return the share of applicable labels that were given (recall)."""
    if applies is not None and applies.sum() >= LEAST_GOLD:
        return level_of_gold(ticks[applies], "gold")
    if error is None:
        return None
    hits = float(own[free & ticks].sum())
    total = hits + float((1 - own[free & ~ticks]).sum())
    if total < 1:
        return None
    level = expected_share(hits / total, total, error)
    return None if level.is_vague else level
