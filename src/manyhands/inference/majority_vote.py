"""Majority vote: every annotation counts the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.inference.base import BaseAggregator
from manyhands.inference.kernels import (
    confusion_counts,
    normalise_rows,
    pick,
    vote_matrix,
    vote_shares,
)


class MajorityVote(BaseAggregator):
    """Choose the class with the most votes.

    Parameters
    ----------
    soft : bool, default=True
        ``posterior_`` is the vote shares; if False, all mass is on the winner.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several winners ``labels_`` names: the first in class order, or one at random.
        "distribute" (with ``soft=False``) shares the mass of ``posterior_`` among the winners,
        while ``labels_`` names the first.
    random_state : int, RandomState or None
        For ``ties="random"``.

    Notes
    -----
    ``confusion_`` counts each annotator's labels against ``posterior_`` (so an annotator agrees
    with itself to some extent); a row without evidence is the pooled one. An instance without
    annotations gets the mean of the others.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import MajorityVote
    >>> MajorityVote().fit_predict(np.array([[0, 0, 1], [1, -1, 1]]))
    array([0, 1])
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "soft": ["boolean"],
    }

    def __init__(self, *, soft: bool = True, ties: str = "first", random_state: Any = None) -> None:
        self.soft = soft
        self.ties = ties
        self.random_state = random_state

    def _infer(self, table: AnnotationTable, rng: np.random.RandomState) -> None:
        shares = vote_shares(table)
        if not self.soft:
            if self.ties == "distribute":
                winners = np.isclose(shares, shares.max(axis=1, keepdims=True), atol=1e-12)
                shares = winners / winners.sum(axis=1, keepdims=True)
            else:
                shares = np.eye(table.n_classes)[pick(shares, self.ties, rng)]
        self.posterior_ = shares
        voted = table.annotations_per_instance() > 0
        self.class_prior_ = shares[voted].mean(axis=0)
        counts = confusion_counts(vote_matrix(table), shares)
        pooled = normalise_rows(counts.sum(axis=0))
        empty = counts.sum(axis=2, keepdims=True) == 0
        self.confusion_ = normalise_rows(np.where(empty, pooled, counts))
