"""Majority vote: all annotations count equally."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from manyhands.decision.labels import pick, row_max
from manyhands.inference.base import AggregatorTraits, BaseAggregator, known_prior
from manyhands.inference.identifiability import IsolatedFamilies
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    is_vast,
    sparse_shares,
    starting_shares,
    vote_shares,
    zip_shards,
)
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

    With more than 1,000 classes and 2 million cells, ``posterior_`` is a
    ``scipy.sparse.csr_array``: time and memory grow with the annotations, not with the classes.
    Use ``posterior_.toarray()`` for a dense one.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import MajorityVote
    >>> MajorityVote().fit_predict(np.array([[0, 0, 1], [1, -1, 1]]))
    array([0, 1])
    """

    traits = AggregatorTraits(
        compares_annotators=False, uses_start=False, takes_many_classes=True, takes_stores=True
    )

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "soft": ["boolean"],
    }

    def __init__(self, *, soft: bool = True, ties: str = "first", random_state: Any = None) -> None:
        self.soft = soft
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: AllVotes, start: Any, rng: np.random.RandomState) -> None:
        if isinstance(votes, Votes) and is_vast(votes.n_instances, votes.n_classes):
            self.posterior_ = self._sparse_posterior(sparse_shares(votes), rng)
        elif isinstance(votes, Votes):
            self.posterior_ = self._winner_posterior(vote_shares(votes), rng)
        else:
            shares: Any = starting_shares(votes.answers)
            parts = zip_shards(votes.answers.shards(), shares)
            winners = (self._winner_posterior(rows, rng) for _, rows in parts)
            self.posterior_ = votes.gather(votes.n_classes, winners)
        self.class_prior_ = known_prior(votes, self.posterior_)

    def _sparse_posterior(self, shares: Any, rng: np.random.RandomState) -> Any:
        """Return the result of `_winner_posterior` for a sparse array."""
        if self.soft:
            return shares
        width = np.diff(shares.indptr)
        if self.ties == "distribute":
            top = np.repeat(row_max(shares), width)
            won = np.isclose(shares.data, top, atol=1e-12).astype(np.float64)
            won /= np.repeat(np.add.reduceat(won, shares.indptr[:-1]), width)
            found = csr_array((won, shares.indices, shares.indptr), shape=shares.shape)
            found.eliminate_zeros()
            return found
        n = shares.shape[0]
        winners = pick(shares, self.ties, rng)
        return csr_array((np.ones(n), winners, np.arange(n + 1)), shape=shares.shape)

    def _posterior(self, votes: Votes) -> FloatArray:
        if is_vast(votes.n_instances, votes.n_classes):
            shares = sparse_shares(votes, empty=self.class_prior_)
            sparse: FloatArray = self._sparse_posterior(shares, self._generator())
            return sparse
        shares = vote_shares(votes, empty=self.class_prior_)
        return self._winner_posterior(shares, self._generator())

    def _isolated_families(self, votes: Any) -> IsolatedFamilies:
        if is_vast(votes.n_instances, votes.n_classes):
            return IsolatedFamilies.none(votes.n_instances)  # A sparse posterior cannot be changed.
        return super()._isolated_families(votes)

    def _winner_posterior(self, shares: FloatArray, rng: np.random.RandomState) -> FloatArray:
        if self.soft:
            return shares
        if self.ties == "distribute":
            winners = np.isclose(shares, shares.max(axis=1, keepdims=True), atol=1e-12)
            return winners / winners.sum(axis=1, keepdims=True)
        posterior = np.zeros_like(shares)
        np.put_along_axis(posterior, pick(shares, self.ties, rng)[:, None], 1.0, axis=1)
        return posterior
