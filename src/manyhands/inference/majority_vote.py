"""Majority vote: all annotations count equally."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.decision.labels import pick
from manyhands.inference.base import BaseAggregator, known_prior
from manyhands.inference.stored_votes import filled
from manyhands.inference.vote_sums import starting_shares, vote_shares
from manyhands.inference.votes import AllVotes, Votes, zip_shards
from manyhands.typing import FloatArray


class MajorityVote(BaseAggregator):
    """Choose the class with the most votes.

    Parameters
    ----------
    soft : bool, default=True
        If True, ``posterior_`` is the vote shares; if False, all its mass is on the winner.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several winners ``labels_`` names: the first in class order, or one at random.
        "distribute" (with ``soft=False``) divides the mass of ``posterior_`` among the winners, and
        ``labels_`` names the first.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Notes
    -----
    An instance without annotations gets the mean of the others.

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

    _compares_annotators = False

    _takes_stores = True

    def __init__(self, *, soft: bool = True, ties: str = "first", random_state: Any = None) -> None:
        self.soft = soft
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: AllVotes, start: Any, rng: np.random.RandomState) -> None:
        if isinstance(votes, Votes):
            self.posterior_ = self._winner_posterior(vote_shares(votes), rng)
        else:
            shares: Any = starting_shares(votes.answers)
            parts = zip_shards(votes.answers.shards(), shares)
            winners = (self._winner_posterior(rows, rng) for _, rows in parts)
            self.posterior_ = filled(votes, votes.n_classes, winners)
        self.class_prior_ = known_prior(votes, self.posterior_)

    def _posterior(self, votes: Votes) -> FloatArray:
        shares = vote_shares(votes, empty=self.class_prior_)
        return self._winner_posterior(shares, self._generator())

    def _winner_posterior(self, shares: FloatArray, rng: np.random.RandomState) -> FloatArray:
        if self.soft:
            return shares
        if self.ties == "distribute":
            winners = np.isclose(shares, shares.max(axis=1, keepdims=True), atol=1e-12)
            return winners / winners.sum(axis=1, keepdims=True)
        posterior = np.zeros_like(shares)
        np.put_along_axis(posterior, pick(shares, self.ties, rng)[:, None], 1.0, axis=1)
        return posterior
