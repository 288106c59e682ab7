"""Majority vote on each option of a multi-label task."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from manyhands.annotations import LabelSetTable
from manyhands.exceptions import NotIdentifiableWarning, warn_caller
from manyhands.inference.base import AggregatorTraits
from manyhands.inference.families import family_weights
from manyhands.inference.set_aggregator import BaseSetAggregator
from manyhands.typing import MISSING, FloatArray


class MultiLabelMajorityVote(BaseSetAggregator):
    """Choose the options that more than half of an instance's annotators ticked.

    Attributes
    ----------
    posterior_ : array of shape (n_instances, n_options)
        Share of the answers that tick each option; 0 or 1 for instances with gold. An instance
        without answers gets ``prevalence_``.
    labels_ : boolean array of shape (n_instances, n_options)
        Whether more than half of the answers tick the option.
    prevalence_ : array of shape (n_options,)
        Mean share over the instances that have answers or gold.

    See Also
    --------
    MultiLabelDawidSkene : corrects for annotators who tick too much or too little.

    Notes
    -----
    Weights of the table are used, and members of a family share theirs. With few annotators a
    majority is hard to reach: if there are two, both must tick.

    Examples
    --------
    >>> from manyhands import LabelSetTable, MultiLabelMajorityVote
    >>> ticks = [[1, 1], [1, 0], [1, 0]]
    >>> table = LabelSetTable.from_arrays([0, 0, 0], [0, 1, 2], ticks, options=["joy", "fear"])
    >>> MultiLabelMajorityVote().fit(table).posterior_.round(2)
    array([[1.  , 0.33]])
    """

    traits: ClassVar[AggregatorTraits] = AggregatorTraits(
        takes_sets=True,
        compares_annotators=False,
        uses_start=False,
        warns_of_shared_mistakes=False,
    )

    def __init__(self) -> None:
        """Make a majority vote; it has no parameters."""

    def _infer(self, table: LabelSetTable) -> None:
        shares = _shares(table)
        answered = ~np.isnan(shares[:, 0])
        if self._gold is not None:
            shares = np.where(self._gold == MISSING, shares, self._gold)
        known = ~np.isnan(shares)
        total = known.sum(axis=0)
        self.prevalence_ = np.where(known, shares, 0.0).sum(axis=0) / np.maximum(total, 1)
        self.posterior_ = np.where(known, shares, self.prevalence_)
        self.identified_ = known
        if not answered.all():
            n = int((~answered).sum())
            warn_caller(
                f"{n:,} of {table.n_instances:,} instances have no answer, so their posterior is "
                "the prevalence of each option",
                NotIdentifiableWarning,
            )

    def _posterior(self, table: LabelSetTable) -> FloatArray:
        shares = _shares(table)
        return np.where(np.isnan(shares), self.prevalence_, shares)


def _shares(table: LabelSetTable) -> FloatArray:
    """Return the weighted share of answers that tick each option, (n, M); NaN without answers."""
    answers = table.answers
    weight = np.asarray(answers.weight * family_weights(answers), dtype=np.float64)
    shape = (table.n_instances, answers.n_classes)
    votes = csr_array((weight, (answers.instance, answers.label)), shape=shape)
    total = np.bincount(answers.instance, weight, table.n_instances)[:, None]
    ticks = (votes @ table._sets.astype(np.float64)).toarray()
    return np.divide(ticks, total, out=np.full(ticks.shape, np.nan), where=total > 0)
