"""Calibration of several members' class probabilities by the likelihood of the annotations."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from manyhands.typing import FloatArray

WEIGHT_PENALTY, SHIFT_PENALTY = 1.0, 0.01
"""Penalties on squared log weights (from 1 / members) and on squared shifts; see `calibrate`."""


def combine(log_probas: FloatArray, weights: FloatArray, shift: FloatArray) -> FloatArray:
    """Log of the weighted geometric mean of the members, shifted and normalised: (m, n_classes).

    Parameters
    ----------
    log_probas : array of shape (n_members, m, n_classes)
    weights : array of shape (n_members,)
    shift : array of shape (n_classes,)
    """
    joint = np.einsum("m,mnc->nc", weights, log_probas) + shift
    return cast(FloatArray, log_softmax(joint, axis=1))


def calibrated_nll(
    log_probas: FloatArray, log_likelihood: FloatArray, weights: FloatArray, shift: FloatArray
) -> float:
    """Mean negative log likelihood per instance of its annotations under a calibrated prior.

    Parameters
    ----------
    log_probas, weights, shift
        See `combine`.
    log_likelihood : array of shape (m, n_classes)
        Log likelihood of every instance's annotations, given its class.
    """
    prior = combine(log_probas, weights, shift)
    return -float(logsumexp(prior + log_likelihood, axis=1).mean())


def calibrate(
    log_probas: FloatArray,
    log_likelihood: FloatArray,
    weights: FloatArray,
    shift: FloatArray | None,
    *,
    row_weight: FloatArray | None = None,
    max_iter: int = 15_000,
) -> tuple[FloatArray, FloatArray]:
    r"""Find the members' weights and the shift under which the annotations are most likely.

    Maximises :math:`\sum_n \log \sum_c p_{nc} L_{nc}`, where `combine` gives :math:`p` and
    :math:`L` is the likelihood of the annotations, minus :math:`\sum_m (\log b_m - \log \frac1M)^2`
    and :math:`.01 |v|^2`. It fits only a handful of numbers and sees no class label, so it can
    hardly overfit.

    Parameters
    ----------
    log_probas, log_likelihood
        See `calibrated_nll`. A row may be an instance, or a single annotation.
    weights, shift
        Where the search starts; ``shift=None`` fixes it at 0.
    row_weight : array of shape (m,), optional
    max_iter : int
        Iterations of L-BFGS.

    Returns
    -------
    weights : array of shape (n_members,)
        Positive.
    shift : array of shape (n_classes,)
        Has mean 0.
    """
    n_members = len(log_probas)
    centre = -math.log(n_members)
    fixed = np.zeros(log_probas.shape[2])

    def loss_and_gradient(values: FloatArray) -> tuple[float, FloatArray]:
        log_weights, own = values[:n_members], values[n_members:]
        prior = combine(log_probas, np.exp(log_weights), fixed if shift is None else own)
        joint = prior + log_likelihood
        evidence = logsumexp(joint, axis=1)
        away = log_weights - centre
        penalty = WEIGHT_PENALTY * (away**2).sum() + SHIFT_PENALTY * (own**2).sum()
        # Gradient of the loss with respect to the prior's logits: prior minus posterior.
        pull = np.exp(prior) - np.exp(joint - evidence[:, None])
        if row_weight is not None:
            evidence, pull = evidence * row_weight, pull * row_weight[:, None]
        by_weight = np.exp(log_weights) * np.einsum("nc,mnc->m", pull, log_probas)
        gradient = [by_weight + 2 * WEIGHT_PENALTY * away]
        if shift is not None:
            gradient.append(pull.sum(0) + 2 * SHIFT_PENALTY * own)
        return float(penalty - evidence.sum()), np.concatenate(gradient)

    start = np.log(weights) if shift is None else np.concatenate([np.log(weights), shift])
    options: Any = {"maxiter": max_iter}
    found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options=options).x
    moved = fixed if shift is None else found[n_members:]
    return np.exp(found[:n_members]), moved - moved.mean()
