"""Calibration of several members' class probabilities by the likelihood of the annotations."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from manyhands.typing import FloatArray

WEIGHT_PENALTY = 1.0
"""Penalty on squared log weights (from 1 / members); see `calibrate`."""


def combine(log_probas: FloatArray, weights: FloatArray) -> FloatArray:
    """Log of the weighted geometric mean of the members, normalised: shape (m, n_classes).

    Parameters
    ----------
    log_probas : array of shape (n_members, m, n_classes)
    weights : array of shape (n_members,)
    """
    return cast(FloatArray, log_softmax(np.einsum("m,mnc->nc", weights, log_probas), axis=1))


def calibrate(
    log_probas: FloatArray, log_likelihood: FloatArray, row_weight: FloatArray | None = None
) -> FloatArray:
    r"""Find the members' weights under which the annotations are most likely.

    Maximises :math:`\sum_n w_n \log \sum_c p_{nc} L_{nc} - \sum_m (\log b_m - \log \frac1M)^2`,
    where `combine` gives :math:`p`. It fits only a handful of numbers and sees no class label, so
    it can hardly overfit.

    Parameters
    ----------
    log_probas : array of shape (n_members, m, n_classes)
        A row may be an instance, or a single annotation.
    log_likelihood : array of shape (m, n_classes)
        Log of :math:`L`, the likelihood of every row's annotations, given the class.
    row_weight : array of shape (m,), optional
        :math:`w`; None weights all rows by 1.

    Returns
    -------
    array of shape (n_members,)
        The weights :math:`b`, positive.
    """
    centre = -math.log(len(log_probas))

    def loss_and_gradient(log_weights: FloatArray) -> tuple[float, FloatArray]:
        prior = combine(log_probas, np.exp(log_weights))
        joint = prior + log_likelihood
        evidence = logsumexp(joint, axis=1)
        away = log_weights - centre
        # Gradient of the loss with respect to the prior's logits: prior minus posterior.
        pull = np.exp(prior) - np.exp(joint - evidence[:, None])
        if row_weight is not None:
            evidence, pull = evidence * row_weight, pull * row_weight[:, None]
        by_weight = np.exp(log_weights) * np.einsum("nc,mnc->m", pull, log_probas)
        loss = WEIGHT_PENALTY * (away**2).sum() - evidence.sum()
        return float(loss), by_weight + 2 * WEIGHT_PENALTY * away

    start: Any = np.log(np.full(len(log_probas), 1.0 / len(log_probas)))
    found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B").x
    return cast(FloatArray, np.exp(found))
