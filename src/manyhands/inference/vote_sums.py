"""Sums of votes and weights per instance, class and annotator."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import issparse

from manyhands.decision.labels import entries
from manyhands.inference.probability import normalise_rows
from manyhands.inference.votes import (
    SHARD,
    AllVotes,
    Votes,
    fill_rows,
    sum_over_shards,
)
from manyhands.typing import FloatArray


def weighted_votes(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value``, times the weights, over each instance's annotations by class, shape (n, C).

    Parameters
    ----------
    votes : Votes
        Without abstentions.
    value : array of shape (n_annotations,), optional
        Default: 1.
    """
    flat = votes.instance * np.int64(votes.n_classes) + votes.response
    size = votes.n_instances * votes.n_classes
    sums = np.bincount(flat, weights=_times(votes.weight, value), minlength=size)
    return sums.reshape(votes.n_instances, votes.n_classes).astype(np.float64, copy=False)


def by_annotator(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value``, times the weights, over each annotator's annotations, shape (R,)."""
    weights = _times(votes.weight, value)
    sums = np.bincount(votes.annotator, weights=weights, minlength=votes.n_annotators)
    return sums.astype(np.float64, copy=False)


def by_annotator_and_class(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value``, times the weights, by annotator and class given, shape (R, C)."""
    shape = (votes.n_annotators, votes.n_classes)
    cells = votes.annotator * np.int64(shape[1]) + votes.response
    sums = np.bincount(cells, weights=_times(votes.weight, value), minlength=shape[0] * shape[1])
    return sums.reshape(shape).astype(np.float64, copy=False)


def by_instance(votes: Votes, value: FloatArray | None = None) -> FloatArray:
    """Sum ``value``, times the weights, over each instance's annotations, shape (n,)."""
    values = _times(votes.weight, value)
    given = np.diff(votes.start)
    if values is None:
        return given.astype(np.float64)
    sums = np.zeros(votes.n_instances)
    annotated = given > 0
    if annotated.any():  # Annotations are sorted by instance, so each sum is over a run.
        sums[annotated] = np.add.reduceat(values, votes.start[:-1][annotated])
    return sums


def weight_of_pairs(votes: Votes, *, same_class: bool = False) -> FloatArray:
    """Total weight of each annotation's (instance, annotator) pair, shape (n_annotations,).

    An annotator's annotations of one instance count together, whether repeated or weighted. With
    ``same_class``, only those of the same class are summed.
    """
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    pairs = votes.instance * np.int64(votes.n_annotators) + votes.annotator
    if same_class:
        pairs = pairs * votes.n_responses + votes.response
    distinct, pair = np.unique(pairs, return_inverse=True)
    if len(distinct) == len(pairs):
        return weight
    return np.bincount(pair, weight)[pair].astype(np.float64, copy=False)


def _times(weight: FloatArray | None, value: FloatArray | None) -> FloatArray | None:
    if weight is None or value is None:
        return weight if value is None else value
    return weight * value


def probability_correct(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Probability that each annotation is correct, shape (n_annotations,)."""
    if issparse(posterior):
        return entries(posterior, votes.instance, votes.response)
    flat = votes.instance * np.int64(votes.n_classes) + votes.response
    return posterior.ravel()[flat]


def vote_shares(votes: Votes, *, empty: FloatArray | None = None) -> FloatArray:
    """Share of the votes each class received, shape (n, C); gold counts as certain.

    An instance without votes gets ``empty``, by default the mean of all shares.
    """
    shares = np.empty((votes.n_instances, votes.n_classes))
    fill_rows(shares, votes.runs(SHARD), _shares)
    clamp_to_gold(votes, shares)
    if not votes.voted.all():
        if empty is None:
            empty = normalise_rows(shares[votes.voted].sum(axis=0))
        shares[~votes.voted] = empty
    return shares


def starting_shares(votes: AllVotes) -> Any:
    """Vote shares, from which EM starts: an array (n, C), or a function from a shard to its rows.

    The function is for annotations in a store, of which no such array is kept.
    """
    if isinstance(votes, Votes):
        return vote_shares(votes.answers)
    return partial(shares_of, empty=normalise_rows(votes.answers.total(summed_shares)))


def shares_of(shard: Votes, empty: FloatArray) -> FloatArray:
    """Vote shares of a shard's answers, shape (n, C); ``empty`` where there are none."""
    return vote_shares(shard.answers, empty=empty)


def is_vote_shares(start: Any, shares: FloatArray | None = None) -> bool:
    """Whether EM starts from the `starting_shares`, rather than from what a user gave.

    ``shares`` are those of annotations in memory, (n, C); of those in a store there are none.
    """
    if shares is None or callable(start):
        return isinstance(start, partial) and start.func is shares_of
    return np.array_equal(start, shares)


def summed_shares(shard: Votes) -> FloatArray:
    """Sum of the vote shares of the instances that have votes, shape (C,)."""
    return np.asarray(vote_shares(shard, empty=np.zeros(shard.n_classes)).sum(axis=0))


def _shares(shard: Votes) -> FloatArray:
    """Vote shares; all 0 without votes."""
    shares = weighted_votes(shard)
    mass = (shares @ np.ones(shard.n_classes))[:, None]
    return np.divide(shares, mass, out=shares, where=mass > 0)


def uniform_prior(votes: AllVotes) -> FloatArray:
    """Equal shares of the classes that have votes or gold, shape (C,); the others get none."""
    seen = votes.total(_responses)[: votes.n_classes] > 0
    if votes.gold is not None:
        seen[votes.gold[votes.gold >= 0]] = True
    return normalise_rows(seen.astype(np.float64))


def _responses(votes: Votes) -> FloatArray:
    return np.bincount(votes.response, minlength=votes.n_responses).astype(np.float64)


def clamp_to_gold(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Put all mass on the gold class where it is known, in place."""
    if votes.gold is not None:
        known = np.flatnonzero(votes.gold >= 0)
        posterior[known] = 0.0
        posterior[known, votes.gold[known]] = 1.0
    return posterior


def expected_accuracy(votes: AllVotes, posterior: FloatArray) -> FloatArray:
    """Expected share of each annotator's annotations that are correct, shape (R,).

    An annotator without annotations gets the share over all annotations.
    """
    shards = votes.runs(SHARD) if isinstance(votes, Votes) else votes.shards()
    hits, weight = sum_over_shards(_hits, shards, rows=(posterior,))
    overall = float(hits.sum() / max(weight.sum(), np.finfo(float).tiny))
    return np.divide(hits, weight, out=np.full(votes.n_annotators, overall), where=weight > 0)


def _hits(shard: Votes, posterior: FloatArray) -> FloatArray:
    """Expected correct annotations of each annotator, and all of theirs, shape (2, R)."""
    return np.stack(
        [by_annotator(shard, probability_correct(shard, posterior)), by_annotator(shard)]
    )
