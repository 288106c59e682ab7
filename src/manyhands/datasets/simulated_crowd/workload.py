"""Which simulated annotator annotates what, and how much."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.datasets.simulated_crowd.checks import Rng, blocks
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray, IntArray


def mean_counts(mean: Any, true: IntArray, c: int, r: int) -> FloatArray:
    """Mean number of annotations of each instance, shape (n_instances,)."""
    means = np.asarray(mean, dtype=np.float64)
    if means.shape not in ((), (c,)):
        raise AnnotationError(
            f"annotations_per_instance has shape {means.shape}; give one number, or one per class "
            f"({c})"
        )
    bad = ~((means >= 1) & (means <= r))
    if bad.any():
        raise AnnotationError(
            f"annotations_per_instance={means[bad].ravel()[0]} must lie in [1, {r}]: every "
            f"instance has an annotator, and none of the n_annotators={r} annotates it twice"
        )
    return np.array(np.broadcast_to(means, (c,))[true])


def workloads(activity: Any, r: int, rng: Rng) -> FloatArray:
    """Relative workload of each annotator, shape (n_annotators,)."""
    if isinstance(activity, str):
        if activity not in ("even", "skewed"):
            raise AnnotationError(
                f"activity={activity!r} is unknown; use 'even', 'skewed' or one weight per "
                "annotator"
            )
        return np.asarray(1.0 / (1.0 + rng.permutation(r)) if activity == "skewed" else np.ones(r))
    weights: FloatArray = np.asarray(activity, dtype=np.float64)
    if weights.shape != (r,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise AnnotationError(
            f"activity must hold one positive weight for each of the {r} annotators, got shape "
            f"{weights.shape}" + (f", minimum {weights.min()}" if weights.size else "")
        )
    return np.asarray(weights / weights.max())


def assign(means: FloatArray, weights: FloatArray, rng: Rng) -> tuple[IntArray, IntArray]:
    """Draw the annotators of each instance by their weights, without repetition."""
    r = len(weights)
    counts = 1 + (
        rng.binomial(r - 1, (means - 1) / (r - 1)) if r > 1 else np.zeros(len(means), int)
    )
    chosen = []
    for block in blocks(len(counts), r):
        # The k smallest of exponential variables with these rates are k draws without replacement.
        clocks = rng.standard_exponential((block.stop - block.start, r)) / weights
        k = counts[block]
        chosen.append(_smallest(clocks, int(k.max()))[np.arange(k.max()) < k[:, None]])
    return np.repeat(np.arange(len(counts)), counts), np.concatenate(chosen)


def _smallest(values: FloatArray, k: int) -> IntArray:
    """Return the columns of the k smallest values of each row, in ascending order of value."""
    columns = np.argpartition(values, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(values, columns, axis=1), axis=1)
    return np.take_along_axis(columns, order, axis=1)


def progress(annotator: IntArray, r: int) -> FloatArray:
    """Position of each annotation in its annotator's work, from 0 to 1."""
    order = np.argsort(annotator, kind="stable")
    counts = np.bincount(annotator, minlength=r)
    rank = np.empty(len(annotator))
    rank[order] = np.arange(len(annotator)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank / np.maximum(counts - 1, 1)[annotator]
