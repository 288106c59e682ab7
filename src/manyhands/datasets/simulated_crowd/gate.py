"""The simulated gate: which annotations come from the confusion that all annotators share.

The gate that CoNAL learns is in `manyhands.nn.noise_adaptation.common_noise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from manyhands.datasets.simulated_crowd.checks import (
    NUMBERS,
    Rng,
    blocks,
    check_share,
    whole_number,
)
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray, IntArray


@dataclass(frozen=True)
class Gate:
    """Probability of the common confusion, Eq. (3): sigmoid(temperature u_r . v_n + bias)."""

    proportion: float
    temperature: float
    dim: int

    def __post_init__(self) -> None:
        check_share(self.proportion, "common_proportion")
        whole_number(self.dim, "embedding_dim")
        if not (isinstance(self.temperature, NUMBERS) and 0 <= self.temperature < np.inf):
            raise AnnotationError(
                f"gate_temperature={self.temperature!r} must be finite and nonnegative"
            )

    def omega(
        self, X: FloatArray, r: int, instance: IntArray, annotator: IntArray, rng: Rng
    ) -> FloatArray:
        """Return omega at the given annotations; its mean is the proportion."""
        u = _unit(rng.standard_normal((r, self.dim)), self.dim, rng)
        v = _unit(X, self.dim, rng)
        if self.proportion in (0, 1):
            return np.full(len(instance), float(self.proportion))
        logits = np.empty(len(instance))
        for block in blocks(len(instance), self.dim):
            logits[block] = np.einsum("me,me->m", u[annotator[block]], v[instance[block]])
        return _shifted(self.temperature * logits, self.proportion)


def features_of(X: Any, n: int, rng: Rng) -> FloatArray:
    """Standardised features, or random ones if X is None."""
    if X is None:
        return rng.standard_normal((n, 10))
    X = np.asarray(X, dtype=np.float64)
    if X.ndim == 0 or len(X) != n:
        raise AnnotationError(
            f"X has shape {X.shape} for {n} true classes; give one row per instance"
        )
    X = X.reshape(n, -1)
    if not np.isfinite(X).all():
        raise AnnotationError("X contains NaN or infinity; impute these values or drop the rows")
    spread = X.std(axis=0)
    standard: FloatArray = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return standard


def _unit(features: FloatArray, dim: int, rng: Rng) -> FloatArray:
    """Map features to ``dim`` dimensions by a random affine map, and normalise the rows."""
    d = features.shape[1]
    weight: FloatArray = rng.standard_normal((d, dim)) / np.sqrt(d)
    bias: FloatArray = rng.standard_normal(dim) / 10
    mapped: FloatArray = features @ weight + bias
    mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
    return mapped


def _shifted(logits: FloatArray, proportion: float) -> FloatArray:
    """Find, by bisection, the bias for which the mean sigmoid is ``proportion``."""
    high = 50.0 + np.abs(logits).max(initial=0.0)
    low = -high
    for _ in range(45):
        bias = (low + high) / 2
        omega: FloatArray = expit(logits + bias)
        if omega.size and omega.mean() < proportion:
            low = bias
        else:
            high = bias
    return omega
