"""Calibration of several members' class probabilities by the likelihood of the annotations."""

from __future__ import annotations

import math
from typing import cast

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
    log_probas: FloatArray, log_likelihood: FloatArray, weights: FloatArray, shift: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""Find the members' weights and the shift under which the annotations are most likely.

    Maximises :math:`\sum_n \log \sum_c p_{nc} L_{nc}`, where `combine` gives :math:`p` and
    :math:`L` is the likelihood of the annotations, minus :math:`\sum_m (\log b_m - \log \frac1M)^2`
    and :math:`.01 |v|^2`. It fits only a handful of numbers and sees no class label, so it can
    hardly overfit.

    Parameters
    ----------
    log_probas, log_likelihood
        See `calibrated_nll`.
    weights, shift
        Where the search starts.

    Returns
    -------
    weights : array of shape (n_members,)
        Positive.
    shift : array of shape (n_classes,)
        Has mean 0.
    """
    n_members = len(log_probas)
    centre = -math.log(n_members)

    def loss_and_gradient(values: FloatArray) -> tuple[float, FloatArray]:
        log_weights, own = values[:n_members], values[n_members:]
        prior = combine(log_probas, np.exp(log_weights), own)
        joint = prior + log_likelihood
        evidence = logsumexp(joint, axis=1)
        away = log_weights - centre
        penalty = WEIGHT_PENALTY * (away**2).sum() + SHIFT_PENALTY * (own**2).sum()
        # Gradient of the loss with respect to the prior's logits: prior minus posterior.
        pull = np.exp(prior) - np.exp(joint - evidence[:, None])
        by_weight = np.exp(log_weights) * np.einsum("nc,mnc->m", pull, log_probas)
        gradient = [by_weight + 2 * WEIGHT_PENALTY * away, pull.sum(0) + 2 * SHIFT_PENALTY * own]
        return float(penalty - evidence.sum()), np.concatenate(gradient)

    start = np.concatenate([np.log(weights), shift])
    found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B").x
    shift = found[n_members:]
    return np.exp(found[:n_members]), shift - shift.mean()
