"""Class shares by the agreement of pairs: where vote shares mislead about rare classes.

If every annotator is right with probability a whatever the class, and wrong in every other class
with probability e = (1 - a) / (C - 1), then two numbers tell all about the crowd: how often two
annotators of an instance agree gives a, and the shares of the votes then give the shares p of the
classes (`OneCoin`). A class of 5 % receives many more votes than that, most of them mistakes. Votes
counted against the vote shares then make it look as if nobody recognised the class, although all
classes are equally easy. `OneCoin.rates` says how it looks, so that it can be told from a class
that is hard indeed.

In a table of two classes the pairs of votes give no more than these two numbers, so that both
explanations fit them equally well, and `manyhands.inference.confusion_em` lets the evidence of all
annotations decide.
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
"""Share of a class by the moments over its share of the votes, below which vote shares mislead."""

LEAST_VOTES = 2.5
"""Votes per instance below which annotations do not tell a rare class from a hard one: with two,
both have the same evidence."""

WEIGHT = 0.5
"""Weight of the correction. The whole is right for crowds that find all classes equally easy, and
harmful where a rare class is hard; half of it keeps nearly all of the gain."""

GREATEST_RATE, LEAST_RATE = 0.99, 0.01
"""Greatest and least rate: a prior must not be certain."""


@dataclass(frozen=True)
class AgreementCounts:
    """Votes counted against the vote shares of their instances.

    Attributes
    ----------
    votes : array of shape (C, C)
        Indexed [class of the share, class of the vote]; of instances without gold.
    own : float
        The part of their sum in which a vote meets itself in the shares: the number of instances
        (with weights w, the sum of w^2 / sum w).
    known : float
        Votes on instances with gold.
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
        """Return the counts of both."""
        return AgreementCounts(
            self.votes + other.votes, self.own + other.own, self.known + other.known
        )

    def without(self, part: AgreementCounts) -> AgreementCounts:
        """Return the counts without a part of them; never negative."""
        votes = np.maximum(self.votes - part.votes, 0.0)
        return AgreementCounts(votes, max(self.own - part.own, 0.0), self.known)


@dataclass(frozen=True)
class OneCoin:
    """A crowd whose annotators are all right with one probability, by the moments of its votes.

    Attributes
    ----------
    counts : AgreementCounts
    """

    counts: AgreementCounts

    @cached_property
    def own(self) -> float:
        """Share of a vote in the vote shares of its instance, on average: 1 over their number."""
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
        """Probability a of a right answer, a little above chance at least."""
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
        """Whether vote shares mislead about a class, and the votes may tell.

        Not if fewer than `LEAST_VOTES` were given per instance, or a class has fewer votes than
        mistakes alone would give it: then mistakes are uneven, or its share is lost in noise.
        """
        if not self.counts.votes.any() or self.named.sum() < 2 or self.own > 1.0 / LEAST_VOTES:
            return False
        votes = self.vote_shares[self.named]
        if votes.min() <= self.mistake:
            return False
        return bool((self.class_shares[self.named] / votes).min() < SKEWED)

    def posterior(self, shard: Votes) -> FloatArray:
        """Posterior of a shard's instances if the annotators are such a crowd, shape (n, C)."""
        right = np.log(self.accuracy / max(self.mistake, np.finfo(float).tiny))
        joint = floored_log(self.class_shares) + right * weighted_votes(shard)
        return clamp_to_gold(shard, softmax(joint, axis=1))

    @cached_property
    def expected(self) -> FloatArray:
        """Votes against vote shares that such a crowd would give, shape (C, C); they sum to 1.

        A class without votes has none.
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
        """Rate of right answers of each class that such a crowd would show, (C,); else NaN."""
        mass = self.expected.sum(axis=1)
        return np.divide(
            np.diag(self.expected), mass, out=np.full(len(mass), np.nan), where=mass > 0
        )


@dataclass(frozen=True)
class RareClassCorrection:
    """How far the prior allows for mistakes among the votes of rare classes.

    Attributes
    ----------
    crowd : OneCoin
    weight : float
        1 takes a class to be as hard as its votes show beyond what those of `OneCoin` would; 0 as
        hard as they show.
    """

    crowd: OneCoin
    weight: float

    def shift(self, overall: float) -> FloatArray:
        """Change of each class's rate of right answers, in log odds, shape (C,).

        ``overall`` is that of all classes.
        """
        whole, rates = (
            logit(np.clip(rate, LEAST_RATE, GREATEST_RATE)) for rate in (overall, self.crowd.rates)
        )
        return np.asarray(self.weight * np.nan_to_num(whole - rates))

    def of_counts(self, counts: AgreementCounts) -> RareClassCorrection:
        """Return the same correction of other votes."""
        return replace(self, crowd=OneCoin(counts))
