"""Helpers for probabilities: normalised rows, floored logarithms, Dirichlet distributions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, psi, xlogy

from manyhands.typing import FloatArray

LOG_FLOOR = float(np.log(1e-100))
"""Replaces log 0 in a confusion matrix: one impossible annotation must not rule out all classes."""


ABSENT = 1e-12
"""Share up to which a class is absent."""


def normalise_rows(counts: FloatArray) -> FloatArray:
    """Divide by the sum over the last axis; an empty row becomes uniform."""
    mass = counts.sum(axis=-1, keepdims=True)
    if mass.size and mass.min() > 0:  # Masked loops are several times slower.
        return np.asarray(counts / mass)
    uniform = np.full_like(counts, 1.0 / counts.shape[-1])
    return np.divide(counts, mass, out=uniform, where=mass > 0)


def floored_log(p: FloatArray) -> FloatArray:
    """Log p, with `LOG_FLOOR` in place of log 0."""
    if p.size and p.min() > 0:  # Masked loops are several times slower.
        return np.asarray(np.log(p))
    return np.log(p, out=np.full_like(p, LOG_FLOOR), where=p > 0)


def log_prior(prior: FloatArray, exponent: FloatArray | None) -> FloatArray:
    """Log of a class prior, for a posterior that is raised to a power (or not: None).

    A power would lift the floor of an absent class, whose log is therefore minus infinity.
    """
    if exponent is None:
        return floored_log(prior)
    return np.log(prior, out=np.full_like(prior, -np.inf), where=prior > ABSENT)


def log_dirichlet(pseudo_counts: FloatArray, p: FloatArray) -> float:
    """Log density of a Dirichlet prior up to a constant: sum of pseudo_counts * log p."""
    return float(xlogy(pseudo_counts, np.maximum(p, np.exp(LOG_FLOOR))).sum())


def has_settled(history: Sequence[float], enough: float) -> bool:
    """Whether the last iteration raised the objective by less than ``enough``."""
    return len(history) > 1 and history[-1] - history[-2] < enough


def expected_log(alpha: FloatArray) -> FloatArray:
    """E log p for p ~ Dirichlet(alpha) over the last axis, with the shape of ``alpha``."""
    expected: FloatArray = psi(alpha)
    expected -= psi(alpha.sum(axis=-1, keepdims=True))
    return expected


def dirichlet_divergence(alpha: FloatArray, prior: FloatArray, log_p: FloatArray) -> float:
    """Sum of KL(Dirichlet(alpha) || Dirichlet(prior)) over all rows.

    Parameters
    ----------
    alpha : array of shape (..., K)
    prior : array that broadcasts to ``alpha``
    log_p : array with the shape of ``alpha``
        The `expected_log` of ``alpha``.
    """
    normalisers = _log_normaliser(prior) - _log_normaliser(alpha)
    return float(normalisers.sum() + np.vdot(alpha - prior, log_p))


def _log_normaliser(alpha: FloatArray) -> FloatArray:
    """Log of the integral of prod p_k^(alpha_k - 1), for each row."""
    log_normaliser: FloatArray = gammaln(alpha).sum(axis=-1) - gammaln(alpha.sum(axis=-1))
    return log_normaliser
