"""Intervals of agreement measures by the jackknife, and a summary of all measures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
from scipy.special import expit, logit
from scipy.stats import t

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
from manyhands.agreement.per_annotator import annotator_agreement, weighted_annotators
from manyhands.agreement.per_class import class_agreement, weighted_classes
from manyhands.agreement.weighted import Annotations, Weighted, check_option
from manyhands.annotations import AnnotationTable
from manyhands.annotations.target import is_sharded, require_table
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray

T = TypeVar("T")

_MOST_PAIRED = 1_000_000
"""Largest number of annotations of a store for which pairs of annotators are compared."""

_MIN_SHARED = 10
"""Smallest mean number of shared instances per pair for an interval of the mean kappa."""

N_GROUPS = 200
"""Number of groups of instances that the jackknife leaves out in turn."""

MANY_INSTANCES = 10_000
"""Number of instances of a store above which groups are drawn by counts of equal instances."""

TINY = 1e-24
"""Variance below which a measure does not vary, except by rounding errors."""

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
    """A measure with its interval.

    Attributes
    ----------
    value, low, high : float, or the measure's return type
        If the measure returns arrays, ``low`` and ``high`` are of the same type and hold the bounds
        of every entry; counts in them are those of ``value``.
    """

    value: T
    low: T
    high: T


def jackknife(measure: Callable[..., T], table: Annotations, *, level: float = 0.95) -> Interval[T]:
    r"""Return the interval of an agreement measure, by the jackknife over instances [1]_.

    Parameters
    ----------
    measure : callable
        A measure of this module that takes a table. Bind options with `functools.partial`:
        ``partial(krippendorff_alpha, level="ordinal")``.
    table : AnnotationTable or AnnotationStore
        Observed annotations only.
    level : float in (0, 1), default=0.95
        Confidence level of the interval.

    Returns
    -------
    Interval
        The bounds are NaN if the instances cannot show how far the measure varies: if there are
        fewer than two, if all of them agree, or if leaving one out would make the measure
        undefined.

    Raises
    ------
    AnnotationError
        If ``measure`` is not in this module, or ``level`` is out of range.

    Notes
    -----
    The instances that enter the measure are those with at least two annotations (at least one for
    `fleiss_kappa`, `gwet_ac1` and `gwet_ac2`; at least two annotators for the measures of pairs and
    of annotators). They are divided into 200 groups at random (fewer instances are groups by
    themselves), and the measure is computed without each group. With m of n instances in a group,
    :math:`h = n / m` and the pseudo-values
    :math:`\tilde\theta_j = h_j \theta - (h_j - 1) \theta_{(j)}`, the squared standard error is the
    mean of :math:`(\tilde\theta_j - \bar\theta)^2 / (h_j - 1)`, where :math:`\bar\theta` is the
    jackknife's estimate [2]_. The interval is the measure plus or minus this standard error times a
    quantile of Student's t, on the scale of the logit for shares of agreement, and of Fisher's z
    for chance-corrected coefficients, because near its ends a measure varies to one side only. The
    bootstrap is not used, because it repeats instances, which lowers the kappa of pairs of
    annotators who share few instances.

    **What the interval covers**: that the instances are a sample. **What it does not cover**: that
    the annotators are a sample, too; and that the mean of Cohen's kappa is too low if pairs share
    few instances.

    Coverage was simulated: docs/results/intervals.md.

    Cost: one product of the per-instance figures with the weights per group. `cohen_kappa` and
    `mean_cohen_kappa` also hold every pair of annotations on the same instance in memory.

    References
    ----------
    .. [1] B. Efron and R. J. Tibshirani. An Introduction to the Bootstrap. Chapman & Hall, 1993,
       chapter 11 (the jackknife).
    .. [2] F. M. T. A. Busing, E. Meijer and R. van der Leeden. Delete-m jackknife for unequal m.
       Statistics and Computing 9, 1999.

    Examples
    --------
    >>> from manyhands import load_demo
    >>> value, low, high = jackknife(krippendorff_alpha, load_demo().annotations)
    >>> bool(low < value < high)
    True
    """
    if not 0 < level < 1:
        raise AnnotationError(f"level={level!r} must lie between 0 and 1, such as 0.95")
    weighted = _weighted(measure, table)
    whole, low, high = _jackknife(weighted, level)
    return Interval(weighted.pack(whole), weighted.pack(low), weighted.pack(high))


def summary(
    table: Annotations, *, scale: Level | None = None, values: Any = None, level: float = 0.95
) -> dict[str, Interval[float]]:
    """Return all scalar agreement measures with their intervals, by name.

    Parameters
    ----------
    table : AnnotationTable or AnnotationStore
        Observed annotations only.
    scale : {"nominal", "ordinal", "interval"}, optional
        Scale of the classes, which is the ``level`` of `krippendorff_alpha`; default: that of the
        table. On an ordinal or interval scale, Cohen's kappa has quadratic weights, and AC2
        (quadratic) replaces AC1.
    values : sequence of n_classes numbers, optional
        The number each class stands for on an interval scale; see `krippendorff_alpha`.
    level : float in (0, 1), default=0.95
        As in `jackknife`.

    Returns
    -------
    dict
        ``percent_agreement``, ``mean_cohen_kappa``, ``fleiss_kappa``, ``krippendorff_alpha`` and
        ``gwet_ac1`` or ``gwet_ac2``. On an ordinal scale of three or more grades,
        ``krippendorff_alpha`` comes first, then ``krippendorff_alpha_nominal``, as if grades were
        mere names, and ``within_one_grade``, the share of pairs at most one grade apart.
        On an interval scale ``krippendorff_alpha`` comes first, too. ``mean_cohen_kappa`` is NaN if
        the annotators are unknown, and for a store of more than a million annotations, because the
        pairs of annotators would not fit in memory. Its bounds are NaN if pairs of annotators share
        fewer than ten instances on average: with so few, the mean is far below the kappa that the
        same annotators would have on many instances.

    Raises
    ------
    AnnotationError
        As `jackknife` and `krippendorff_alpha`.
    """
    require_table(table)
    scale = cast(Level, table.scale) if scale is None else scale
    check_option("scale", scale, ("nominal", "ordinal", "interval"))
    of = partial(jackknife, table=table, level=level)
    weights: KappaWeights = "identity" if scale == "nominal" else "quadratic"
    cohen = Interval(np.nan, np.nan, np.nan)
    paired = table
    if is_sharded(table) and table.n_annotations <= _MOST_PAIRED:
        paired = table[:]
    if not is_sharded(paired) and paired.annotators_known:
        pairs = cohen_kappa(cast(AnnotationTable, paired), weights=weights)
        cohen = Interval(pairs.mean, np.nan, np.nan)
        if pairs.n_shared.sum() >= _MIN_SHARED * len(pairs.n_shared):
            cohen = of(partial(mean_cohen_kappa, weights=weights), table=paired)
    gwet = gwet_ac1 if scale == "nominal" else gwet_ac2
    alpha = of(partial(krippendorff_alpha, level=scale, values=values))
    first = {}
    if scale == "ordinal" and table.n_classes > 2:
        first = {
            "krippendorff_alpha": alpha,
            "krippendorff_alpha_nominal": of(partial(krippendorff_alpha, level="nominal")),
            "within_one_grade": of(partial(percent_agreement, within=1)),
        }
    elif scale == "interval":  # Exact agreement says little about numbers, so alpha comes first.
        first = {"krippendorff_alpha": alpha}
    rest = {
        "percent_agreement": of(percent_agreement),
        "mean_cohen_kappa": cohen,
        "fleiss_kappa": of(fleiss_kappa),
        "krippendorff_alpha": alpha,
        gwet.__name__: of(gwet),
    }
    return first | {name: value for name, value in rest.items() if name not in first}


def _weighted(measure: Callable[..., T], table: Annotations) -> Weighted[T]:
    bound = measure if isinstance(measure, partial) else partial(measure)
    build = _WEIGHTED.get(bound.func)
    if build is None:
        raise AnnotationError(
            f"measure={measure!r} has no interval; use one of "
            f"{', '.join(known.__name__ for known in _WEIGHTED)}, with options bound by "
            'functools.partial: partial(krippendorff_alpha, level="ordinal")'
        )
    return build(*bound.args, table, **bound.keywords)


def _jackknife(weighted: Weighted[Any], level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the value of a measure and the bounds of its interval, each of shape (...)."""
    times = np.ones(weighted.n) if weighted.times is None else weighted.times
    whole = weighted.at(times[:, None])[..., 0]
    n, n_groups = int(times.sum()), min(int(times.sum()), N_GROUPS)
    if n_groups < 2:
        return whole, np.full_like(whole, np.nan), np.full_like(whole, np.nan)
    held = _groups(weighted, n, n_groups)
    width = min(max(2_000_000 // weighted.n, 1), 64)
    sizes, values = [], []
    for first in range(0, n_groups, width):
        some = held(range(first, min(first + width, n_groups)))
        sizes.append(some.sum(axis=0))
        values.append(weighted.at(times[:, None] - some))
    size, without = np.concatenate(sizes), np.concatenate(values, axis=-1)
    ratio = n / size
    pseudo = ratio * whole[..., None] - (ratio - 1) * without
    estimate = n_groups * whole - ((1 - size / n) * without).sum(axis=-1)
    variance = ((pseudo - estimate[..., None]) ** 2 / (ratio - 1)).mean(axis=-1)
    # The delta method on a transformed scale, because near its ends a measure varies to one side.
    least = np.broadcast_to(weighted.least, whole.shape)
    place = (whole - least) / (1.0 - least)
    inside = (place > 0) & (place < 1) & (variance > TINY)
    slope = np.full_like(whole, np.nan)
    np.divide(1.0, place * (1.0 - place) * (1.0 - least), out=slope, where=inside)
    reach = t.ppf((1 + level) / 2, n_groups - 1) * np.sqrt(variance) * slope
    middle = logit(np.where(inside, place, 0.5))
    low, high = (least + (1.0 - least) * expit(middle + end) for end in (-reach, reach))
    return whole, low, high


def _groups(weighted: Weighted[Any], n: int, n_groups: int) -> Callable[[range], FloatArray]:
    """Divide instances into random groups; return a function that counts them, rows by groups."""
    rng = np.random.default_rng(0)
    if weighted.times is not None and n > MANY_INSTANCES:
        shares = np.full(n_groups, 1.0 / n_groups)
        table = rng.multinomial(weighted.times.astype(np.int64), shares).astype(np.float64)
        return lambda groups: table[:, groups.start : groups.stop]
    group = np.arange(n) % n_groups
    if n > n_groups:
        group = rng.permutation(group)
    row = np.arange(weighted.n)
    if weighted.times is not None:
        row = np.repeat(row, weighted.times.astype(np.int64))

    def held(groups: range) -> FloatArray:
        some = np.flatnonzero((group >= groups.start) & (group < groups.stop))
        found = np.zeros((weighted.n, len(groups)))
        np.add.at(found, (row[some], group[some] - groups.start), 1.0)
        return found

    return held
