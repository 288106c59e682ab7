"""Bootstrap intervals of the measures, and a summary of all measures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np

from manyhands.agreement.overall import (
    Level,
    fleiss_kappa,
    gwet_ac1,
    gwet_ac2,
    krippendorff_alpha,
    percent_agreement,
    weighted_ac1,
    weighted_ac2,
    weighted_alpha,
    weighted_fleiss,
    weighted_percent,
)
from manyhands.agreement.pairs import (
    KappaWeights,
    cohen_kappa,
    mean_cohen_kappa,
    weighted_cohen,
    weighted_mean_cohen,
)
from manyhands.agreement.parts import (
    annotator_agreement,
    class_agreement,
    weighted_annotators,
    weighted_classes,
)
from manyhands.agreement.weighted import Annotations, Weighted, check_option
from manyhands.annotations.sharded import ShardedAnnotations
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray

T = TypeVar("T")

_MOST_PAIRED = 1_000_000
"""Annotations of a store beyond which pairs of annotators are not compared."""

_MIN_SHARED = 10
"""Mean number of shared instances per pair that resampling the mean kappa requires."""

_WEIGHTED: dict[Callable[..., Any], Callable[..., Weighted[Any]]] = {
    percent_agreement: weighted_percent,
    fleiss_kappa: weighted_fleiss,
    gwet_ac1: weighted_ac1,
    gwet_ac2: weighted_ac2,
    krippendorff_alpha: weighted_alpha,
    mean_cohen_kappa: weighted_mean_cohen,
    cohen_kappa: weighted_cohen,
    class_agreement: weighted_classes,
    annotator_agreement: weighted_annotators,
}


class Interval(NamedTuple, Generic[T]):
    """A measure with its bootstrap interval.

    Attributes
    ----------
    value, low, high : float, or the measure's return type
        If the measure returns arrays, ``low`` and ``high`` have the same type and hold the bounds
        of every entry; their counts are those of ``value``.
    """

    value: T
    low: T
    high: T


def bootstrap(
    measure: Callable[..., T],
    table: Annotations,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: Any = 0,
) -> Interval[T]:
    """Percentile bootstrap interval of an agreement measure, resampling instances [1]_.

    Parameters
    ----------
    measure : callable
        A measure of this module that takes a table. Bind options with `functools.partial`:
        ``partial(krippendorff_alpha, level="ordinal")``.
    table : AnnotationTable or AnnotationStore
        Observed annotations only.
    n_resamples : int, default=1000
        Number of resamples of the instances, drawn with replacement.
    level : float in (0, 1), default=0.95
        Confidence level of the interval.
    random_state : int, numpy Generator or None, default=0
        Seed of the resamples; the global random state is not touched.

    Returns
    -------
    Interval
        Resamples in which the measure is undefined are left out; the bounds are NaN if it is
        undefined in all of them.

    Raises
    ------
    AnnotationError
        If ``measure`` is not in this module, or ``n_resamples`` or ``level`` is out of range.

    Notes
    -----
    Instances are drawn from those that enter the measure: those with at least two annotations (at
    least one for `fleiss_kappa`, `gwet_ac1` and `gwet_ac2`; at least two annotators for the
    measures of pairs and of annotators).

    **What the interval covers**: the instances are a sample. **What it does not cover**: the
    annotators are a sample, too. With few instances (or a class that was given only a few times) it
    is too narrow.

    Cost: one product of the per-instance figures with the weights per resample. `cohen_kappa` and
    `mean_cohen_kappa` also hold every pair of annotations on the same instance in memory; measures
    that return arrays hold all their resampled values.

    References
    ----------
    .. [1] B. Efron and R. J. Tibshirani. An Introduction to the Bootstrap. Chapman & Hall, 1993,
       chapter 13 (percentile intervals).

    Examples
    --------
    >>> from manyhands import load_demo
    >>> value, low, high = bootstrap(krippendorff_alpha, load_demo().annotations)
    >>> bool(low < value < high)
    True
    """
    if not isinstance(n_resamples, int | np.integer) or n_resamples < 1:
        raise AnnotationError(
            f"n_resamples={n_resamples!r} must be a whole number of at least 1, such as 1000"
        )
    if not 0 < level < 1:
        raise AnnotationError(f"level={level!r} must lie between 0 and 1, such as 0.95")
    weighted = _weighted(measure, table)
    replicates = _replicates(weighted, int(n_resamples), np.random.default_rng(random_state))
    low, high = (_quantile(replicates, p) for p in ((1 - level) / 2, (1 + level) / 2))
    return Interval(weighted.value(), weighted.pack(low), weighted.pack(high))


def summary(
    table: Annotations,
    *,
    scale: Level | None = None,
    values: Any = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: Any = 0,
) -> dict[str, Interval[float]]:
    """All scalar agreement measures with their bootstrap intervals, by name.

    Parameters
    ----------
    table : AnnotationTable or AnnotationStore
        Observed annotations only.
    scale : {"nominal", "ordinal", "interval"}, optional
        Scale of the classes, by default that of the table; the ``level`` of `krippendorff_alpha`.
        On an ordinal or interval scale Cohen's kappa has quadratic weights, and AC2 (quadratic)
        replaces AC1.
    values : sequence of n_classes numbers, optional
        The number each class stands for on an interval scale; see `krippendorff_alpha`.
    level, n_resamples, random_state
        As in `bootstrap`.

    Returns
    -------
    dict
        ``percent_agreement``, ``mean_cohen_kappa``, ``fleiss_kappa``, ``krippendorff_alpha`` and
        ``gwet_ac1`` or ``gwet_ac2``. ``mean_cohen_kappa`` is NaN if the annotators are not known,
        and for a store of more than a million annotations, whose pairs of annotators do not fit in
        memory. Its bounds are NaN if pairs of annotators share fewer than ten instances on average:
        with so few, the resampled means are biased away from the value.

    Raises
    ------
    AnnotationError
        As `bootstrap` and `krippendorff_alpha`.
    """
    scale = cast(Level, table.scale) if scale is None else scale
    check_option("scale", scale, ("nominal", "ordinal", "interval"))
    interval = partial(
        bootstrap, table=table, n_resamples=n_resamples, level=level, random_state=random_state
    )
    weights: KappaWeights = "identity" if scale == "nominal" else "quadratic"
    cohen = Interval(np.nan, np.nan, np.nan)
    paired = table
    if isinstance(table, ShardedAnnotations) and table.n_annotations <= _MOST_PAIRED:
        paired = table[:]
    if not isinstance(paired, ShardedAnnotations) and paired.annotators_known:
        pairs = cohen_kappa(paired, weights=weights)
        cohen = Interval(pairs.mean, np.nan, np.nan)
        if pairs.n_shared.sum() >= _MIN_SHARED * len(pairs.n_shared):
            cohen = interval(partial(mean_cohen_kappa, weights=weights), table=paired)
    gwet = gwet_ac1 if scale == "nominal" else gwet_ac2
    return {
        "percent_agreement": interval(percent_agreement),
        "mean_cohen_kappa": cohen,
        "fleiss_kappa": interval(fleiss_kappa),
        "krippendorff_alpha": interval(partial(krippendorff_alpha, level=scale, values=values)),
        gwet.__name__: interval(gwet),
    }


def _weighted(measure: Callable[..., T], table: Annotations) -> Weighted[T]:
    bound = measure if isinstance(measure, partial) else partial(measure)
    build = _WEIGHTED.get(bound.func)
    if build is None:
        raise AnnotationError(
            f"measure={measure!r} has no bootstrap; use one of "
            f"{', '.join(known.__name__ for known in _WEIGHTED)}, with options bound by "
            'functools.partial: partial(krippendorff_alpha, level="ordinal")'
        )
    return build(*bound.args, table, **bound.keywords)


def _replicates(weighted: Weighted[Any], n_resamples: int, rng: np.random.Generator) -> FloatArray:
    """Values of the measure on resamples of its instances, shape (..., n_resamples)."""
    n = weighted.n
    if n == 0:
        return weighted.at(np.ones((0, 1)))
    width = min(max(2_000_000 // n, 1), 64)
    found = []
    for start in range(0, n_resamples, width):
        if weighted.times is not None:
            total = int(weighted.times.sum())
            shares, size = weighted.times / total, min(width, n_resamples - start)
            found.append(weighted.at(rng.multinomial(total, shares, size).T.astype(np.float64)))
            continue
        drawn = rng.integers(n, size=(min(width, n_resamples - start), n))
        weights = np.empty(drawn.shape[::-1])
        for b, instances in enumerate(drawn):
            weights[:, b] = np.bincount(instances, minlength=n)
        found.append(weighted.at(weights))
    return np.concatenate(found, axis=-1)


def _quantile(replicates: FloatArray, p: float) -> FloatArray:
    """Quantile over the last axis, ignoring NaN; NaN where all values are NaN."""
    ordered = np.sort(replicates, axis=-1)  # NaN sorts last
    last = np.maximum((~np.isnan(ordered)).sum(axis=-1, keepdims=True) - 1, 0)
    place = p * last
    below = np.floor(place).astype(np.int64)
    low = np.take_along_axis(ordered, below, axis=-1)
    high = np.take_along_axis(ordered, np.minimum(below + 1, last), axis=-1)
    return (low + (place - below) * (high - low))[..., 0]
