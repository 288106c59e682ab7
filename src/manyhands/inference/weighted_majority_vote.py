"""Weighted majority vote: annotators are weighted by their agreement with the majority.

.. [1] H. Li and B. Yu. Error rate bounds and iterative weighted majority voting for crowdsourcing.
   arXiv:1411.4086, 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from manyhands.inference.base import (
    COUNT,
    NON_NEGATIVE,
    AggregatorTraits,
    BaseAggregator,
    known_prior,
)
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    by_annotator,
    by_instance,
    clamp_to_gold,
    fill_rows,
    probability_correct,
    sum_over_shards,
    vote_shares,
    weighted_votes,
    zip_shards,
)
from manyhands.typing import FloatArray


class WeightedMajorityVote(BaseAggregator):
    """Vote, weight each annotator by their agreement with the winners, and vote again.

    With the defaults this is *worker agreement with aggregate* (Wawa). More iterations with
    ``chance_corrected=True`` are the iterative weighted majority vote (IWMV) of Li & Yu (2014).

    Parameters
    ----------
    max_iter : int, default=1
        Number of weighted votes after the plain one.
    tol : float, default=1e-5
        Stop when no skill changes by more.
    chance_corrected : bool, default=False
        Weight votes by ``n_classes * skill - 1`` instead of the skill. Annotators who agree as
        often as by guessing then have weight 0, and those who agree less often vote against the
        class given.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several equal winners ``labels_`` names; "distribute" means "first" here. For the
        skills, tied winners always share the win.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Attributes
    ----------
    posterior_ : array of shape (n_instances, n_classes)
        Shares of the weighted votes: scores, not calibrated probabilities. Plain vote shares where
        all weights are 0.
    skill_ : array of shape (n_annotators,)
        Share of an annotator's annotations that agree with the winners of the previous vote; for an
        annotator without annotations, the share over all annotations.

    References
    ----------
    Li & Yu (2014), arXiv:1411.4086, algorithm IWMV.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import WeightedMajorityVote
    >>> A = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, -1, 0]])
    >>> model = WeightedMajorityVote().fit(A)
    >>> model.labels_
    array([0, 1, 0, 1])
    >>> model.skill_.round(3)
    array([0.875, 1.   , 0.375])
    """

    traits = AggregatorTraits(uses_start=False, takes_stores=True)

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "chance_corrected": ["boolean"],
    }

    def __init__(
        self,
        max_iter: int = 1,
        tol: float = 1e-5,
        *,
        chance_corrected: bool = False,
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.chance_corrected = chance_corrected
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: AllVotes, start: Any, rng: np.random.RandomState) -> None:
        skill, self.n_iter_ = learn_skills(
            votes,
            np.zeros(votes.n_annotators),
            weigh=self._weigh,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        given = votes.total(by_annotator)
        self.skill_ = np.where(given > 0, skill, np.average(skill, weights=given))
        self.posterior_, self.class_prior_ = decide_by_weight(votes, self._weigh(self.skill_))

    def _posterior(self, votes: Votes) -> FloatArray:
        return decide_by_weight(votes, self._weigh(self.skill_), self.class_prior_)[0]

    def _weigh(self, skill: FloatArray) -> FloatArray:
        return len(self.classes_) * skill - 1.0 if self.chance_corrected else skill


def learn_skills(
    votes: AllVotes,
    skill: FloatArray,
    *,
    rate: Callable[[int], float] = lambda iteration: 1.0,
    weigh: Callable[[FloatArray], FloatArray] = lambda skill: skill,
    max_iter: int,
    tol: float,
) -> tuple[FloatArray, int]:
    """Move each skill towards the annotator's agreement with the winners, vote again, and repeat.

    Parameters
    ----------
    votes : Votes
        The first winners are always those of the plain vote.
    skill : array of shape (R,)
        Initial skills; annotators without annotations keep theirs.
    rate : function of the iteration (from 1)
        Returns the fraction of the way to move.
    weigh : function from skills to the weights of votes
    max_iter : int
    tol : float
        Stop when no skill changes by more.

    Returns
    -------
    skill : array of shape (R,)
    n_iter : int
    """
    shards, given = votes.shards(), votes.total(by_annotator)
    agreed = sum_over_shards(_agreement_of_shares, shards)
    for n_iter in count(1):
        share = np.divide(agreed, given, out=skill.copy(), where=given > 0)
        step = rate(n_iter) * (share - skill)
        skill = skill + step
        if n_iter == max_iter or np.abs(step).max() <= tol:
            break
        agreed = sum_over_shards(_agreement_of_vote, shards, weigh(skill))
    return skill, n_iter


def _agreement(votes: Votes, shares: FloatArray) -> FloatArray:
    """Return the number of annotations for the winner, with ties divided equally, shape (R,)."""
    top = shares.max(axis=1, keepdims=True)
    winners = (shares >= top * (1 - 1e-9)).astype(np.float64)
    winners /= (winners @ np.ones(votes.n_classes))[:, None]
    return by_annotator(votes, probability_correct(votes, winners))


def _agreement_of_shares(votes: Votes) -> FloatArray:
    return _agreement(votes, vote_shares(votes))


def _agreement_of_vote(votes: Votes, weight: FloatArray) -> FloatArray:
    return _agreement(votes, weighted_shares(votes, weight[votes.annotator]))


def weighted_shares(votes: Votes, value: FloatArray) -> FloatArray:
    """Return the shares of weighted votes, shape (n, C); gold counts as certain.

    A vote of value v < 0 counts as a vote of value -v for each other class. If all values of an
    instance are 0, its votes count equally. An instance without votes gets equal shares.

    Parameters
    ----------
    votes : Votes
    value : array of shape (n_annotations,)
    """
    n_classes = votes.n_classes
    shares = weighted_votes(votes, value)
    cast = by_instance(votes, np.where(value < 0, (1 - n_classes) * value, value))[:, None]
    shares -= (shares @ np.full(n_classes, 1 / n_classes))[:, None]
    np.divide(shares, cast, out=shares, where=cast > 0)
    shares += 1 / n_classes
    np.maximum(shares, 0.0, out=shares)
    undecided = cast[:, 0] == 0
    if undecided.any():
        uniform = np.full(n_classes, 1 / n_classes)
        shares[undecided] = vote_shares(votes, empty=uniform)[undecided]
    return clamp_to_gold(votes, shares)


def decide_by_weight(
    votes: AllVotes, weight: FloatArray, prior: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the shares of votes weighted by annotator, (n, C), and the class prior (C,).

    An instance without votes gets ``prior``, by default the mean of the shares.
    """
    shares, shards = votes.new_rows(votes.n_classes), votes.shards()
    fill_rows(shares, shards, _shares_by_weight, weight)
    prior = known_prior(votes, shares) if prior is None else prior
    for shard, rows in zip_shards(shards, shares):
        rows[~shard.voted] = prior
    return shares, prior


def _shares_by_weight(shard: Votes, weight: FloatArray) -> FloatArray:
    return weighted_shares(shard, weight[shard.annotator])
