"""Calibration of several members' class probabilities by the likelihood of the annotations."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import log_softmax

from manyhands.typing import FloatArray, IntArray

WEIGHT_PENALTY = 1.0
"""Penalty on squared log weights (from 1 / members); see `calibrate`."""

LEAST_EVIDENCE = 1e-290
"""Floor of a row's likelihood: too long a step of the optimiser may make every class impossible."""


def combine(log_probas: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the log of the normalised weighted geometric mean of members, (m, n_classes).

    Parameters
    ----------
    log_probas : array of shape (n_members, m, n_classes)
    weights : array of shape (n_members,)
    """
    return cast(FloatArray, log_softmax(np.einsum("m,mnc->nc", weights, log_probas), axis=1))


def likelihood_matrix(likelihood: FloatArray, instance: IntArray, n_instances: int) -> Any:
    r"""Return rows of likelihoods as a sparse matrix that multiplies class probabilities.

    ``matrix @ proba.ravel()`` is the evidence of every row, :math:`\sum_c p_{ic} L_{ac}` with its
    instance i; ``values @ matrix``, reshaped, sums values times likelihoods by instance.

    Parameters
    ----------
    likelihood : array of shape (m, n_classes)
    instance : integer array of shape (m,)
    n_instances : int

    Returns
    -------
    csr_array of shape (m, n_instances * n_classes)
    """
    m, n_classes = likelihood.shape
    shape = (m, n_instances * n_classes)
    wide: Any = np.int32 if max(likelihood.size, shape[1]) < 2**31 else np.int64
    columns = instance.astype(wide)[:, None] * wide(n_classes) + np.arange(n_classes, dtype=wide)
    starts = np.arange(m + 1, dtype=wide) * wide(n_classes)
    return csr_array((likelihood.ravel(), columns.ravel(), starts), shape=shape)


def calibrate(
    log_probas: FloatArray,
    log_likelihood: FloatArray,
    row_weight: FloatArray | None = None,
    instance: IntArray | None = None,
) -> FloatArray:
    r"""Find the members' weights under which the annotations are most likely.

    Maximises :math:`\sum_a u_a \log \sum_c p_{i_a c} L_{ac} - \sum_m (\log w_m - \log \frac1M)^2`,
    where `combine` gives :math:`p` and :math:`i_a` is the instance of row a. It fits only a handful
    of numbers and uses no class label, so it can hardly overfit.

    Parameters
    ----------
    log_probas : array of shape (n_members, n, n_classes)
    log_likelihood : array of shape (m, n_classes)
        Log of :math:`L`. A row is a single annotation, or all annotations of an instance.
    row_weight : array of shape (m,), optional
        :math:`u`; None weights all rows by 1.
    instance : integer array of shape (m,), optional
        Instance of every row; None: row a is instance a.

    Returns
    -------
    array of shape (n_members,)
        The weights :math:`w`, positive.
    """
    centre = -math.log(len(log_probas))
    n, m = log_probas.shape[1], len(log_likelihood)
    of = np.arange(m) if instance is None else instance
    u = np.ones(m) if row_weight is None else row_weight
    top = log_likelihood.max(axis=1)
    matrix = likelihood_matrix(np.exp(log_likelihood - top[:, None]), of, n)
    by_instance = np.bincount(of, weights=u, minlength=n)[:, None]
    taken_off = float(u @ top)

    def loss_and_gradient(log_weights: FloatArray) -> tuple[float, FloatArray]:
        weights = np.exp(log_weights)
        prior = np.exp(combine(log_probas, weights))
        evidence = np.maximum(matrix @ prior.ravel(), LEAST_EVIDENCE)
        posterior = prior * ((u / evidence) @ matrix).reshape(prior.shape)
        # Gradient of the loss with respect to the prior's logits: prior minus posterior.
        pull = by_instance * prior - posterior
        away = log_weights - centre
        by_weight = weights * np.einsum("nc,mnc->m", pull, log_probas)
        loss = WEIGHT_PENALTY * (away**2).sum() - u @ np.log(evidence) - taken_off
        return float(loss), by_weight + 2 * WEIGHT_PENALTY * away

    start: Any = np.log(np.full(len(log_probas), 1.0 / len(log_probas)))
    found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B").x
    return cast(FloatArray, np.exp(found))
