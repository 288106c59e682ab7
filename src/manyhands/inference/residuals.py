"""How correlated the residuals of two annotators on the same instance are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from manyhands.inference.vote_sums import weighted_votes
from manyhands.inference.votes import Votes
from manyhands.typing import FloatArray, IntArray

LIKELY = 1e-4
"""Probability up to which a class of an instance is left out of the moment."""


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
    new = np.flatnonzero(
        np.diff(votes.instance * np.int64(votes.n_annotators) + families_of(votes))
    )
    first = np.concatenate([[0], new + 1, [votes.n_annotations]])
    # Only likely classes, as there may be hundreds; then each member of each of their instances.
    instance, label = np.nonzero(posterior > LIKELY)
    bounds = np.searchsorted(first, votes.start)
    pair, member = _members(bounds[instance], bounds[instance + 1])
    all_ = _squares(votes, instance, label, responses)
    own = _squares_of_one(votes, first[member], label[pair], responses)
    several = np.flatnonzero(np.diff(first)[member] > 1)
    if len(several):
        alone = replace(votes, start=first, gold=None, ones=None)
        squares = _squares(alone, member[several], label[pair[several]], responses)
        for values, right in zip(own, squares, strict=True):
            values[several] = right
    q = posterior[instance, label]
    product, scale = (
        np.bincount(
            instance,
            q * (whole - np.bincount(pair, part, len(instance))),
            minlength=votes.n_instances,
        )
        for whole, part in zip(all_, own, strict=True)
    )
    total = float(scale.sum())
    if total < 1e-9:  # Nobody can err.
        return 0.0, np.inf
    value = float(product.sum()) / total
    return value, float(((product - value * scale) ** 2).sum()) / total**2


def _members(start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Concatenate the ranges from start to end; return the number of each range, too."""
    length = end - start
    number = np.repeat(np.arange(len(length)), length)
    offset = np.cumsum(length) - length
    return number, np.arange(len(number)) - offset[number] + start[number]


def _squares(
    votes: Votes, rows: IntArray, classes: IntArray, responses: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Squared lengths of the sums of residuals and of standard deviations, if a row is of a class.

    ``rows`` and ``classes`` have shape (p,), as have both results.
    """
    r, c, k = responses.shape
    chosen = replace(votes, gold=None).select(rows)
    column = chosen.annotator * np.int64(c) + np.repeat(classes, np.diff(chosen.start))
    weight = np.ones(chosen.n_annotations) if chosen.weight is None else chosen.weight
    given = csr_array((weight, column, chosen.start), shape=(len(rows), r * c))
    flat = responses.reshape(r * c, k)
    residual = weighted_votes(chosen) - given @ flat
    spread = given @ np.sqrt(flat * (1.0 - flat))
    return np.einsum("pk,pk->p", residual, residual), np.einsum("pk,pk->p", spread, spread)


def _squares_of_one(
    votes: Votes, annotations: IntArray, classes: IntArray, responses: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return what `_squares` returns, for rows of one annotation each, without arrays (p, K)."""
    who = votes.annotator[annotations]
    power = np.einsum("rck,rck->rc", responses, responses)[who, classes]
    given = responses[who, classes, votes.response[annotations]]
    weight = 1.0 if votes.weight is None else votes.weight[annotations] ** 2
    return weight * (1.0 - 2.0 * given + power), weight * (1.0 - power)


def families_of(votes: Votes) -> IntArray:
    """Code of each annotation's family; annotators without one have a code of their own."""
    return votes.annotator if votes.family is None else votes.family[votes.annotator]
