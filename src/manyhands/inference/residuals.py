"""How correlated the residuals of two annotators on the same instance are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from manyhands.inference.vote_sums import by_instance, weighted_votes
from manyhands.inference.votes import Votes
from manyhands.typing import BoolArray, FloatArray, IntArray

LIKELY = 1e-4
"""Probability up to which a class of an instance is left out of the moment."""

FEW = 5
"""Classes up to which it is faster to compute all of them than to choose the likely ones."""


def residual_correlation(
    votes: Votes, posterior: FloatArray, responses: FloatArray
) -> tuple[float, float]:
    """Correlation of the residuals of two annotators on the same instance, and its variance.

    With e_r the one-hot response of annotator r minus its probabilities in class c, s_r their
    standard deviations, and sums over pairs of annotators of an instance i (of different families,
    whose members' weights allow for what they share),

        m = sum_ic q_ic sum_rs e_r . e_s  /  sum_ic q_ic sum_rs s_r . s_s.

    Its expectation is 0 if the model and its parameters are right and the annotators independent.

    Parameters
    ----------
    votes : Votes
        Without abstentions; an instance's annotations are sorted by family and annotator.
    posterior : array of shape (n, C)
    responses : array of shape (R, C, C)
        Indexed [annotator, true, given].
    """
    likely = posterior > LIKELY
    pairs = _pairs(votes, likely, responses)
    first = _first_of_families(votes)
    if len(first) <= votes.n_annotations:
        several = np.flatnonzero(np.diff(first) > 1)
        families = replace(votes, start=first, gold=None, ones=None).select(several)
        instance = votes.instance[first[several]]
        within = _pairs(families, likely[instance], responses)
        for values, inside in zip(pairs, within, strict=True):
            np.subtract.at(values, instance, inside)
    q = np.where(likely, posterior, 0.0)
    product, scale = (np.einsum("ic,ic->i", q, values) for values in pairs)
    total = float(scale.sum())
    if total < 1e-9:  # Nobody can err.
        return 0.0, np.inf
    value = float(product.sum()) / total
    return value, float(((product - value * scale) ** 2).sum()) / total**2


def _first_of_families(votes: Votes) -> IntArray:
    """Index of the first annotation of each family in each instance, and the number of all."""
    family = votes.annotator if votes.family is None else votes.family[votes.annotator]
    instance = votes.instance
    is_new = (family[1:] != family[:-1]) | (instance[1:] != instance[:-1])
    return np.concatenate([[0], np.flatnonzero(is_new) + 1, [votes.n_annotations]])


def _pairs(votes: Votes, likely: BoolArray, responses: FloatArray) -> FloatArray:
    """Sums of e_r . e_s and of s_r . s_s over all pairs of an instance's annotations, (2, n, C).

    A sum over pairs is the square of the sum, without the squares themselves: those of an
    annotation are |e|^2 = 1 - 2 p(response) + |p|^2 and |s|^2 = 1 - |p|^2. Of few classes, all are
    computed; of many, those that are ``likely`` (n, C), and the others are 0.
    """
    r, c, k = responses.shape
    if c <= FEW:
        return _pairs_of_all(votes, responses)
    instance, label = np.nonzero(likely)
    chosen = replace(votes, gold=None).select(instance)
    column = chosen.annotator * np.int64(c) + np.repeat(label, np.diff(chosen.start))
    pairs = np.zeros((2, *likely.shape))
    pairs[:, instance, label] = _pairs_of_one(chosen, column, responses.reshape(r * c, k))
    return pairs


def _pairs_of_all(votes: Votes, responses: FloatArray) -> FloatArray:
    """Sums over pairs in each class: one product of all classes for the sums, one for squares."""
    r, c, k = responses.shape
    vectors = np.empty((r, 2, c, k))
    vectors[:, 0] = responses
    vectors[:, 1] = np.sqrt(responses * (1.0 - responses))
    sums = _rows(votes, votes.annotator, r) @ vectors.reshape(r, -1)
    one_hot = np.zeros((k, 2, c, k))
    one_hot[:, 0] = np.eye(k)[:, None]
    sums -= weighted_votes(votes) @ one_hot.reshape(k, -1)
    own = np.repeat(_squares(vectors)[:, None], k, axis=1)
    own[:, :, 0] += 1.0 - 2.0 * responses.transpose(0, 2, 1)
    alone = votes if votes.weight is None else replace(votes, weight=votes.weight**2)
    own_sums = np.asarray(alone.matrix @ own.reshape(r * k, -1)).reshape(-1, 2, c)
    return np.asarray((_squares(sums.reshape(-1, 2, c, k)) - own_sums).transpose(1, 0, 2))


def _squares(vectors: FloatArray) -> FloatArray:
    """Squared lengths along the last axis."""
    *shape, k = vectors.shape
    return (np.square(vectors).reshape(-1, k) @ np.ones(k)).reshape(shape)


def _pairs_of_one(votes: Votes, row: IntArray, p: FloatArray) -> FloatArray:
    """Sums over pairs, (2, n), if an annotation's probabilities are the row ``row`` of ``p``."""
    given = _rows(votes, row, len(p))
    residual = weighted_votes(votes) - given @ p
    spread = given @ np.sqrt(p * (1.0 - p))
    power = np.einsum("rk,rk->r", p, p)
    hits = p[row, votes.response]
    if votes.weight is not None:
        hits = hits * votes.weight
        given = _rows(replace(votes, weight=votes.weight**2), row, len(p))
    return np.stack(
        [
            np.einsum("ik,ik->i", residual, residual)
            - given @ (1.0 + power)
            + 2.0 * by_instance(votes, hits),
            np.einsum("ik,ik->i", spread, spread) - given @ (1.0 - power),
        ]
    )


def _rows(votes: Votes, row: IntArray, n_rows: int) -> Any:
    """Matrix that sums the rows of an instance's annotations in a table, times their weights."""
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    return csr_array((weight, row, votes.start), shape=(votes.n_instances, n_rows))
