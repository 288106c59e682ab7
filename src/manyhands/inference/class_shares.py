"""Class shares estimated from the agreement of pairs; vote shares are misleading for rare classes.

Suppose that every annotator is right with probability a, whatever the class, and gives every wrong
class with probability e = (1 - a) / (C - 1). Then a follows from how often two annotators of an
instance agree, and the class shares p follow from a and the vote shares (`OneCoin`). A class with a
share of 5 % gets many more votes than 5 %, most of them mistakes. Votes counted against the vote
shares then look as if nobody recognised the class, although all classes are equally easy.
`OneCoin.rates` computes this apparent rate of recognition, so that a rare class can be
distinguished from a hard one.

With two classes, the pairs of votes determine only these two numbers, so both explanations fit them
equally well. `manyhands.inference.confusion_em` then compares the evidence of all annotations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logit, softmax

from manyhands.inference.confusions import EMCounts
from manyhands.inference.probability import floored_log, normalise_rows, sum_rows
from manyhands.inference.votes import (
    AllVotes,
    Votes,
    by_instance,
    clamp_to_gold,
    vote_shares,
    weighted_votes,
)
from manyhands.typing import FloatArray

SKEWED = 0.6
"""Vote shares count as misleading if the share of a class by the moments is below this fraction of
its vote share."""

LEAST_VOTES = 2.5
"""Least number of votes per instance for the correction: with two votes, a rare class and a hard
one have the same evidence."""

WEIGHT = 0.5
"""Weight of the correction. The full correction is right for crowds that find all classes equally
easy, but harmful if a rare class is hard; half of it keeps nearly all of the gain."""

GREATEST_RATE, LEAST_RATE = 0.99, 0.01
"""Bounds of a rate, because a prior must not be certain."""


@dataclass(frozen=True)
class AgreementCounts:
    """Votes counted against the vote shares of their instances.

    Attributes
    ----------
    votes : array of shape (C, C)
        Votes on instances without gold, indexed [class of the share, class of the vote].
    own : float
        Part of their sum that comes from comparing a vote with itself: the number of instances
        (with weights w, the sum of w^2 / sum w).
    known : float
        Number of votes on instances with gold.
    """

    votes: FloatArray
    own: float
    known: float = 0.0

    @classmethod
    def of(cls, votes: AllVotes, counts: EMCounts) -> AgreementCounts:
        """Count all votes; ``counts`` are those against the vote shares, of one state per class."""
        if votes.gold is not None or votes.is_weighted:
            return votes.answers.total(cls.of_shard)
        n_classes = votes.n_classes
        confusion = sum_rows(lambda rows: rows[:, :, :n_classes].sum(axis=0), counts.confusion)
        return cls(confusion, float(counts.prior.sum()))

    @classmethod
    def of_shard(cls, shard: Votes) -> AgreementCounts:
        """Count the votes of a shard without abstentions."""
        known = 0.0
        if shard.gold is not None:
            known = shard.select(np.flatnonzero(shard.gold >= 0)).total_weight
            shard = replace(shard.select(np.flatnonzero(shard.gold < 0)), gold=None)
        given = weighted_votes(shard)
        shares = vote_shares(shard, empty=np.zeros(shard.n_classes))
        own = float(np.count_nonzero(shard.voted))
        if shard.weight is not None:
            mass = by_instance(shard)
            squares = by_instance(shard, shard.weight)
            own = float(np.divide(squares, mass, out=np.zeros_like(mass), where=mass > 0).sum())
        return cls(shares.T @ given, own, known)

    def __add__(self, other: AgreementCounts) -> AgreementCounts:
        """Return the sum of both counts."""
        return AgreementCounts(
            self.votes + other.votes, self.own + other.own, self.known + other.known
        )

    def without(self, part: AgreementCounts) -> AgreementCounts:
        """Return the counts minus a part of them; never negative."""
        votes = np.maximum(self.votes - part.votes, 0.0)
        return AgreementCounts(votes, max(self.own - part.own, 0.0), self.known)


@dataclass(frozen=True)
class OneCoin:
    """A crowd in which all annotators have one accuracy, estimated from the moments of the votes.

    Attributes
    ----------
    counts : AgreementCounts
    """

    counts: AgreementCounts

    @cached_property
    def own(self) -> float:
        """Mean share of a vote in its instance's vote shares: 1 over the votes per instance."""
        return self.counts.own / float(self.counts.votes.sum())

    @cached_property
    def vote_shares(self) -> FloatArray:
        """Share of each class among the votes, shape (C,)."""
        return normalise_rows(self.counts.votes.sum(axis=0))

    @cached_property
    def named(self) -> Any:
        """Mask of the classes that have votes, shape (C,)."""
        return self.vote_shares > 0

    @cached_property
    def accuracy(self) -> float:
        """Probability a of a right answer, at least a little above chance."""
        n_classes = int(self.named.sum())
        seen = np.trace(self.counts.votes) / self.counts.votes.sum()
        agreement = (seen - self.own) / (1.0 - self.own)
        root = np.sqrt(max(0.0, 1.0 - n_classes * (1.0 - agreement * (n_classes - 1))))
        return float(np.clip((1.0 + root) / n_classes, 1.0 / n_classes + 0.02, GREATEST_RATE))

    @cached_property
    def mistake(self) -> float:
        """Probability e of each wrong class."""
        return (1.0 - self.accuracy) / (int(self.named.sum()) - 1)

    @cached_property
    def class_shares(self) -> FloatArray:
        """Shares p of the classes, shape (C,); 0 without votes."""
        above = np.where(self.named, self.vote_shares - self.mistake, 0.0)
        return normalise_rows(np.maximum(above, 0.0))

    @property
    def is_skewed(self) -> bool:
        """Whether vote shares are misleading for a class, and the votes suffice to show it.

        False if there are fewer than `LEAST_VOTES` votes per instance, or if a class has fewer
        votes than mistakes alone would give it: then mistakes are uneven, or noise hides its share.
        """
        if not self.counts.votes.any() or self.named.sum() < 2 or self.own > 1.0 / LEAST_VOTES:
            return False
        votes = self.vote_shares[self.named]
        if votes.min() <= self.mistake:
            return False
        return bool((self.class_shares[self.named] / votes).min() < SKEWED)

    def posterior(self, shard: Votes) -> FloatArray:
        """Return the posterior of a shard's instances under this model, shape (n, C)."""
        right = np.log(self.accuracy / max(self.mistake, np.finfo(float).tiny))
        joint = floored_log(self.class_shares) + right * weighted_votes(shard)
        return clamp_to_gold(shard, softmax(joint, axis=1))

    @cached_property
    def expected(self) -> FloatArray:
        """Expected votes counted against vote shares under this model, (C, C); they sum to 1.

        A class without votes gets none.
        """
        named = np.outer(self.named, self.named)
        confusion = np.where(named, self.mistake, 0.0)
        np.fill_diagonal(confusion, np.where(self.named, self.accuracy, 0.0))
        joint = self.class_shares[:, None] * confusion
        counted = self.own * np.diag(joint.sum(axis=0)) + (1.0 - self.own) * confusion.T @ joint
        known = self.counts.known / (self.counts.known + self.counts.votes.sum())
        return np.asarray((1.0 - known) * counted + known * joint)

    @cached_property
    def rates(self) -> FloatArray:
        """Apparent rate of right answers of each class in this model, (C,); NaN without votes."""
        mass = self.expected.sum(axis=1)
        return np.divide(
            np.diag(self.expected), mass, out=np.full(len(mass), np.nan), where=mass > 0
        )


@dataclass(frozen=True)
class RareClassCorrection:
    """Correction of the prior for mistakes among the votes for rare classes.

    Attributes
    ----------
    crowd : OneCoin
    weight : float
        0: no correction, the rates of right answers are those that the votes show. 1: the part of
        their deviation that `OneCoin` explains is removed.
    """

    crowd: OneCoin
    weight: float

    def shift(self, overall: float) -> FloatArray:
        """Return the change of each class's rate of right answers, in log odds, shape (C,).

        ``overall`` is the rate over all classes.
        """
        whole, rates = (
            logit(np.clip(rate, LEAST_RATE, GREATEST_RATE)) for rate in (overall, self.crowd.rates)
        )
        return np.asarray(self.weight * np.nan_to_num(whole - rates))

    def of_counts(self, counts: AgreementCounts) -> RareClassCorrection:
        """Return the correction with the same weight for other votes."""
        return replace(self, crowd=OneCoin(counts))
