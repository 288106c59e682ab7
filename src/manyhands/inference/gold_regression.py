"""Multinomial logistic regression of gold labels on the annotations, with normal priors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from scipy.special import log_softmax

from manyhands.inference.vote_sums import weighted_votes
from manyhands.inference.votes import Votes
from manyhands.typing import FloatArray, IntArray

LEAST_GOLD, LEAST_GOLD_PER_CLASS, LEAST_GOLD_WITH_FAMILIES = 10, 5, 50
"""Annotated gold instances from which on `GoldCorrected` corrects; see `least_gold`."""


def least_gold(n_classes: int, *, families: bool = False) -> int:
    """Number of annotated gold instances from which on `GoldCorrected` corrects."""
    least = max(LEAST_GOLD, LEAST_GOLD_PER_CLASS * n_classes)
    return max(least, LEAST_GOLD_WITH_FAMILIES) if families else least


@dataclass(frozen=True)
class Design:
    """Gold instances, and the features of each (instance, class) but the base's log posterior.

    Attributes
    ----------
    known : integer array of shape (G,)
    gold : integer array of shape (G,)
    features : sparse matrix of shape (G * C, D - 1)
        Intercepts of the classes, votes of all annotators, of each one, of each family.
    n_annotators : int
        Number A of the annotators of gold instances.
    """

    known: IntArray
    gold: IntArray
    features: Any
    n_annotators: int

    @classmethod
    def of(
        cls,
        votes: Votes,
        gold: IntArray,
        known: IntArray,
        annotators: IntArray,
        family: IntArray | None,
    ) -> Design:
        """Features of the known instances."""
        part = features_of(votes, annotators, family)
        cells = (known[:, None] * votes.n_classes + np.arange(votes.n_classes)).ravel()
        return cls(known, gold[known], part[cells], len(annotators))


def features_of(votes: Votes, annotators: IntArray, family: IntArray | None) -> Any:
    """Sparse features of each (instance, class), shape (n * C, C + 1 + A + F)."""
    n, c = votes.n_instances, votes.n_classes
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    cell = votes.instance * np.int64(c) + votes.response
    intercepts = csr_matrix((np.ones(n * c), (np.arange(n * c), np.tile(np.arange(c), n))))
    common = csr_matrix(weighted_votes(votes).reshape(-1, 1))
    column = np.full(votes.n_annotators, -1)
    column[annotators] = np.arange(len(annotators))
    seen = column[votes.annotator] >= 0
    own = csr_matrix(
        (weight[seen], (cell[seen], column[votes.annotator[seen]])), shape=(n * c, len(annotators))
    )
    parts = [intercepts, common, own]
    if family is not None:
        parts.append(_family_features(votes, family, weight, cell))
    return hstack(parts, format="csr")


def _family_features(votes: Votes, family: IntArray, weight: FloatArray, cell: IntArray) -> Any:
    """n_igc / sqrt(n_ig) of each (instance, class) and family of two or more."""
    codes = np.unique(family, return_inverse=True)[1]
    shared = np.flatnonzero(np.bincount(codes) > 1)
    code = np.full(codes.max() + 1, -1)
    code[shared] = np.arange(len(shared))
    mine = code[codes[votes.annotator]]
    rows = np.flatnonzero(mine >= 0)
    pair = votes.instance[rows] * np.int64(max(len(shared), 1)) + mine[rows]
    _, where = np.unique(pair, return_inverse=True)
    total = np.bincount(where, weight[rows])[where]
    shape = votes.n_instances * votes.n_classes, len(shared)
    return csr_matrix((weight[rows] / np.sqrt(total), (cell[rows], mine[rows])), shape=shape)


def priors(
    design: Design, scale: tuple[float, float], c: int, size: int, *, votes_only: bool
) -> tuple[FloatArray, FloatArray]:
    """Means and standard deviations of the coefficients, shape (D,)."""
    own, common = scale
    mean, sd = np.zeros(size), np.full(size, 1.5 * own)
    mean[0], sd[: c + 1] = 1.0, common
    mean[c + 1], sd[c + 1] = (0.5, 0.3) if votes_only else (0.0, 0.2)
    sd[c + 2 : c + 2 + design.n_annotators] = own
    return mean, sd


def maximum_a_posteriori(
    features: Any, gold: IntArray, mean: FloatArray, sd: FloatArray
) -> tuple[FloatArray, float]:
    """Logistic regression with normal priors by damped Newton, and its Laplace evidence.

    Parameters
    ----------
    features : sparse matrix of shape (G * C, D)
    gold : integer array of shape (G,)
    mean, sd : arrays of shape (D,)
        Of the priors.

    Returns
    -------
    coefficients : array of shape (D,)
    log_evidence : float
        log lik - |z|^2 / 2 - log det(I + S X' W X S) / 2, with standardised coefficients z.
    """
    n, size = len(gold), len(mean)
    scaled = features.multiply(sd).tocsr()
    offset = (features @ mean).reshape(n, -1)
    chosen = np.arange(n), gold

    def fit_at(z: FloatArray) -> tuple[float, FloatArray]:
        log_p = log_softmax(offset + (scaled @ z).reshape(n, -1), axis=1)
        return float(log_p[chosen].sum() - z @ z / 2), log_p

    z = np.zeros(size)
    value, log_p = fit_at(z)
    for _ in range(50):
        gradient, curvature = _derivatives(scaled, log_p, gold, z)
        step = np.linalg.solve(curvature, gradient)
        length = 1.0
        while (new := fit_at(z + length * step))[0] < value and length > 1e-6:
            length /= 2
        gain, z = new[0] - value, z + length * step
        value, log_p = new
        if gain < 1e-9:
            break
    curvature = _derivatives(scaled, log_p, gold, z)[1]
    return mean + sd * z, value - float(np.linalg.slogdet(curvature)[1]) / 2


def _derivatives(
    scaled: Any, log_p: FloatArray, gold: IntArray, z: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Gradient (D,) and negative Hessian (D, D) in the standardised coefficients."""
    p = np.exp(log_p)
    n, c = p.shape
    residual = -p
    residual[np.arange(n), gold] += 1.0
    gradient = scaled.T @ residual.ravel() - z
    spread = csr_matrix((p.ravel(), np.arange(n * c), np.arange(n + 1) * c), shape=(n, n * c))
    means = spread @ scaled
    curvature = scaled.T @ scaled.multiply(p.reshape(-1, 1)) - means.T @ means
    return gradient, np.asarray(curvature.todense()) + np.eye(len(z))
