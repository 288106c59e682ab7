"""Agreement of the whole crowd: percent, Fleiss' kappa, Gwet's AC and Krippendorff's alpha."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy.sparse import diags_array

from manyhands.agreement.set_distances import Distance, weighted_set_alpha
from manyhands.agreement.weighted import (
    Annotations,
    ClassCounts,
    Sparse,
    Weighted,
    chance_corrected,
    check_graded,
    check_option,
    class_counts,
    per_entry,
    ratio,
    with_data,
)
from manyhands.annotations.class_order import numbers_of
from manyhands.annotations.label_set_table import LabelSetTable
from manyhands.annotations.target import require_table
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray

Level = Literal["nominal", "ordinal", "interval"]
Weights = Literal["identity", "linear", "quadratic", "ordinal"]


# -- agreement and disagreement on one instance ---------------------------------------------------


def _sum_rows(votes: Sparse, data: FloatArray) -> FloatArray:
    return with_data(votes, data) @ np.ones(votes.shape[1])


def _squared_distances(counts: ClassCounts, values: FloatArray) -> FloatArray:
    """Sum of (v - v')^2 over the ordered pairs of annotations of each instance.

    ``values`` has shape (C, B), the result (n, B). With n annotations, sum S and sum of squares Q,
    the result is 2 (n Q - S^2), so pairs of classes are never enumerated.
    """
    sums, squares = counts.votes @ values, counts.votes @ values**2
    return 2 * np.maximum(counts.size[:, None] * squares - sums**2, 0)


def _absolute_distances(counts: ClassCounts) -> FloatArray:
    """Sum of |k - k'| over the ordered pairs of annotations of each instance, shape (n,).

    With n_below annotations of lower classes, whose class codes sum to S_below, an annotation of
    class k adds k n_below - S_below.
    """
    votes = counts.votes
    given, total = votes.data, votes.data * votes.indices
    n_below, s_below = (np.cumsum(x) - x for x in (given, total))
    # The cumulative sums run over all rows, so the sums of earlier rows are subtracted.
    start = votes.indptr[:-1]
    n_below = n_below - per_entry(votes, n_below[start])
    s_below = s_below - per_entry(votes, s_below[start])
    return 2 * _sum_rows(votes, given * (votes.indices * n_below - s_below))


def _unequal_pairs(counts: ClassCounts) -> FloatArray:
    """Count the ordered pairs of differing annotations of each instance, shape (n,)."""
    return counts.size**2 - _sum_rows(counts.votes, counts.votes.data**2)


def _penalties(weights: Weights, n_classes: int) -> FloatArray:
    """Return the coefficients of 1, d and d^2 in the disagreement of classes d steps apart."""
    q = max(n_classes, 2)
    return {
        "identity": np.array([1.0, 0.0, 0.0]),
        "linear": np.array([0.0, 1.0, 0.0]) / (q - 1),
        "quadratic": np.array([0.0, 0.0, 1.0]) / (q - 1) ** 2,
        "ordinal": np.array([0.0, 1.0, 1.0]) / (q * (q - 1)),
    }[weights]


def _agreeing_share(counts: ClassCounts, weights: Weights = "identity") -> FloatArray:
    """Return the (weighted) share of agreeing pairs of each instance, (n,); 0 without pairs."""
    constant, linear, quadratic = _penalties(weights, counts.votes.shape[1])
    disagreement = np.zeros(len(counts.size))
    if constant:
        disagreement += constant * _unequal_pairs(counts)
    if linear:
        disagreement += linear * _absolute_distances(counts)
    if quadratic:
        positions = np.arange(counts.votes.shape[1], dtype=np.float64)[:, None]
        disagreement += quadratic * _squared_distances(counts, positions)[:, 0]
    pairs = counts.size * (counts.size - 1)
    return np.divide(pairs - disagreement, pairs, out=np.zeros_like(pairs), where=pairs > 0)


# -- percent agreement ----------------------------------------------------------------------------


def percent_agreement(table: Annotations, *, within: int = 0) -> float:
    """Return the mean share of agreeing pairs, over instances with at least two annotations.

    Parameters
    ----------
    table : AnnotationTable or AnnotationStore
        Observed annotations only.
    within : int, default=0
        How many grades apart two annotations may be and still agree, in the order of
        ``table.classes``.

    Returns
    -------
    float
        NaN if no instance has two annotations.
    """
    return weighted_percent(table, within=within).value()


def weighted_percent(table: Annotations, *, within: int = 0) -> Weighted[float]:
    """Return `percent_agreement` as a function of instance weights."""
    counts = class_counts(table, least=2)
    share = _agreeing_share(counts) if not within else _share_within(counts, within)
    return Weighted(
        len(share), lambda w: ratio(share @ w, w.sum(axis=0)), float, counts.times, least=0.0
    )


def _share_within(counts: ClassCounts, within: int) -> FloatArray:
    """Return the share of an instance's pairs that are at most so many grades apart, (n,)."""
    votes = counts.votes
    band = diags_array(
        np.ones(2 * within + 1),
        offsets=np.arange(-within, within + 1),
        shape=(votes.shape[1],) * 2,
        format="csr",
    )
    near = np.asarray(votes.multiply(votes @ band).sum(axis=1)).ravel()
    return (near - counts.size) / (counts.size * (counts.size - 1))


# -- Fleiss and Gwet ------------------------------------------------------------------------------


def fleiss_kappa(table: Annotations) -> float:
    r"""Return Fleiss' kappa [1]_, which Gwet generalised to varying numbers of annotations [2]_.

    1 is full agreement; 0 is the agreement of annotations drawn from the crowd's class frequencies.

    Parameters
    ----------
    table : AnnotationTable or AnnotationStore
        Observed annotations only.

    Returns
    -------
    float
        NaN if no instance has two annotations, or if only one class occurs.

    Notes
    -----
    With :math:`r_{ik}` annotations of class k among the :math:`r_i` of instance i,

    .. math:: \kappa = \frac{p_a - \sum_k \pi_k^2}{1 - \sum_k \pi_k^2}, \qquad
        \pi_k = \frac{1}{n} \sum_i \frac{r_{ik}}{r_i},

    where :math:`p_a` is `percent_agreement`. All instances have the same weight, however many
    annotations they have. Instances with a single annotation enter :math:`\pi` (the mean is over
    the n instances with any annotation) but not :math:`p_a`. If all instances have the same number
    of annotations, this is the kappa of [1]_. Repeated (instance, annotator) pairs count as
    annotations by different annotators.

    References
    ----------
    .. [1] J. L. Fleiss. Measuring nominal scale agreement among many raters. Psychological
       Bulletin 76(5), 1971.
    .. [2] K. L. Gwet. Handbook of Inter-Rater Reliability, 4th ed. Advanced Analytics, 2014.
    """
    return weighted_fleiss(table).value()


def gwet_ac1(table: Annotations) -> float:
    """Return Gwet's AC1 [1]_: agreement beyond chance, also if one class is dominant.

    This is `gwet_ac2` with identity weights; see there for details.

    Parameters
    ----------
    table : AnnotationTable or AnnotationStore
        Observed annotations only.

    Returns
    -------
    float
        As in `gwet_ac2`.

    References
    ----------
    .. [1] K. L. Gwet. Computing inter-rater reliability and its variance in the presence of high
       agreement. British Journal of Mathematical and Statistical Psychology 61, 2008.
    """
    return gwet_ac2(table, weights="identity")


def gwet_ac2(table: Annotations, *, weights: Weights = "quadratic") -> float:
    r"""Return Gwet's AC2 [1]_, AC1 with partial credit for classes that are close.

    Parameters
    ----------
    table : AnnotationTable or AnnotationStore
        Observed annotations only. The order of ``table.classes`` is the order of the scale, in
        equal steps; classes that nobody gave are part of it.
    weights : {"identity", "linear", "quadratic", "ordinal"}, default="quadratic"
        Agreement of two classes d steps apart on a scale of q classes: [d = 0], 1 - d / (q - 1),
        1 - d^2 / (q - 1)^2 or 1 - d (d + 1) / (q (q - 1)). All but "identity" need the order of the
        classes (see `AnnotationTable.class_order`).

    Returns
    -------
    float
        NaN if no instance has two annotations, or if ``table.classes`` holds fewer than two
        classes. If only one of several classes occurs, AC2 is 1: unlike kappa and alpha, it is
        defined in this case.

    Raises
    ------
    AnnotationError
        If ``weights`` is unknown, or it needs an order and the classes have none.

    Notes
    -----
    :math:`\pi_k` and the treatment of varying and single annotations are those of `fleiss_kappa`.
    With the mean weighted share of agreeing pairs :math:`p_a` and :math:`T_w = \sum_{kl} w_{kl}`,

    .. math:: AC_2 = \frac{p_a - p_e}{1 - p_e}, \qquad
        p_e = \frac{T_w}{q (q - 1)} \sum_k \pi_k (1 - \pi_k).

    References
    ----------
    .. [1] K. L. Gwet. Handbook of Inter-Rater Reliability, 4th ed. Advanced Analytics, 2014.
    """
    return weighted_ac2(table, weights=weights).value()


def weighted_fleiss(table: Annotations) -> Weighted[float]:
    """Return `fleiss_kappa` as a function of instance weights."""
    return _gwet_framework(table, "identity", lambda shares: (shares**2).sum(axis=0))


def weighted_ac1(table: Annotations) -> Weighted[float]:
    """Return `gwet_ac1` as a function of instance weights."""
    return weighted_ac2(table, weights="identity")


def weighted_ac2(table: Annotations, *, weights: Weights = "quadratic") -> Weighted[float]:
    """Return `gwet_ac2` as a function of instance weights."""
    require_table(table)
    check_option("weights", weights, ("identity", "linear", "quadratic", "ordinal"))
    if weights != "identity":
        check_graded(table, f"AC2 with weights={weights!r}")
    q = table.n_classes
    # Sums of 1, |k - l| and (k - l)^2 over the q (q - 1) ordered pairs of different classes.
    powers = np.array([q * (q - 1), q * (q**2 - 1) / 3, q**2 * (q**2 - 1) / 6])
    total_weight = q**2 - _penalties(weights, q) @ powers
    scale = total_weight / (q * (q - 1)) if q > 1 else np.nan
    return _gwet_framework(
        table, weights, lambda shares: scale * (shares * (1 - shares)).sum(axis=0)
    )


def _gwet_framework(
    table: Annotations, weights: Weights, by_chance: Callable[[FloatArray], FloatArray]
) -> Weighted[float]:
    """Return agreement of pairs corrected by ``by_chance`` of the class shares, (C, B)."""
    counts = class_counts(table, least=1)
    agreeing = _agreeing_share(counts, weights)
    pairable = (counts.size > 1).astype(np.float64)
    votes = counts.votes
    shares = with_data(votes, votes.data / per_entry(votes, counts.size)).T

    def at(w: FloatArray) -> FloatArray:
        prevalence = ratio(shares @ w, w.sum(axis=0))
        return chance_corrected(ratio(agreeing @ w, pairable @ w), by_chance(prevalence))

    return Weighted(len(counts.size), at, float, counts.times)


# -- Krippendorff ---------------------------------------------------------------------------------


def krippendorff_alpha(
    table: Annotations | LabelSetTable,
    *,
    level: Level | None = None,
    values: Any = None,
    distance: Distance | None = None,
) -> float:
    """Return Krippendorff's alpha [1]_: 1 is full agreement, 0 is chance.

    Parameters
    ----------
    table : AnnotationTable, AnnotationStore or LabelSetTable
        Observed annotations only; instances with a single annotation do not count.
    level : {"nominal", "ordinal", "interval"}, optional
        Whether the classes are names; ranks, in the order of ``table.classes``, which must be
        known (`AnnotationTable.class_order`); or numbers. Default: the scale of the table
        (``scale=`` when it was read), else "nominal".
    values : sequence of n_classes numbers, optional
        The number each class stands for if ``level="interval"``, in the order of
        ``table.classes``; default: the classes themselves, as numbers or text such as "0.5".
    distance : {"nominal", "jaccard", "masi"}, optional
        For a `LabelSetTable`, how far apart two sets are. "nominal" (the default): 1 unless they
        are equal. "jaccard": 1 - s, where s is the number of options in both sets divided by the
        number in either. "masi" [2]_: 1 - m s, where m is 1 for equal sets, 2/3 if one contains the
        other, and otherwise 1/3. Two empty sets are equal.

    Returns
    -------
    float
        NaN if no instance has two annotations, or if only one class (one number, one set) occurs.

    Raises
    ------
    AnnotationError
        If ``level`` or ``distance`` is unknown, the classes have no order, or ``values`` is
        missing, unusable or given for another level; ``distance`` is given for single labels or
        ``level`` for sets, or more than 20,000 different sets occur, whose pairs are too many.

    Notes
    -----
    Every annotation weighs the same, so an instance counts in proportion to its annotations. Two
    different classes disagree by 1 (nominal), by the squared difference of their mean ranks among
    all annotations (ordinal; equal to the sum over the ranks between them in [1]_) or by the
    squared difference of their numbers (interval). Repeated (instance, annotator) pairs count as
    annotations by different annotators.

    References
    ----------
    .. [1] K. Krippendorff. Content Analysis: An Introduction to Its Methodology, 4th ed. Sage,
       2018, chapter 12.
    .. [2] R. Passonneau. Measuring agreement on set-valued items (MASI) for semantic and pragmatic
       annotation. LREC 2006.

    Examples
    --------
    >>> from manyhands import AnnotationTable, LabelSetTable
    >>> table = AnnotationTable.from_matrix([[1, 1, 2], [2, 2, -1], [3, 3, 3], [4, -1, 3]])
    >>> round(krippendorff_alpha(table), 3), round(krippendorff_alpha(table, level="ordinal"), 3)
    (0.486, 0.85)
    >>> ticks = [[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    >>> sets = LabelSetTable.from_arrays([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], ticks)
    >>> [round(krippendorff_alpha(sets, distance=d), 3) for d in ("nominal", "jaccard", "masi")]
    [0.286, 0.423, 0.375]
    """
    stated: Any = getattr(table, "scale", None)
    if distance is not None or isinstance(table, LabelSetTable):
        return weighted_alpha(table, level=level, values=values, distance=distance).value()
    return weighted_alpha(table, level=level or stated or "nominal", values=values).value()


def weighted_alpha(
    table: Annotations | LabelSetTable,
    *,
    level: Level | None = None,
    values: Any = None,
    distance: Distance | None = None,
) -> Weighted[float]:
    """Return `krippendorff_alpha` as a function of instance weights: 1 - (N - 1) D / E.

    D sums the distances of all ordered pairs within instances, each divided by the number of the
    instance's annotations minus 1. E sums the distances of all pairs among the N annotations. See
    section 12.3 of Krippendorff's book.
    """
    if distance is not None or isinstance(table, LabelSetTable):
        if level is not None or values is not None:
            raise AnnotationError(
                f"level={level!r} and values= are for single labels, but the table holds sets; use "
                "distance= instead"
            )
        return weighted_set_alpha(table, distance=distance or "nominal")
    level = level or "nominal"
    check_option("level", level, ("nominal", "ordinal", "interval"))
    if values is not None and level != "interval":
        raise AnnotationError(
            f"values= applies to level='interval' only, but level={level!r}; leave values= out"
        )
    counts = class_counts(table, least=2)
    if level == "nominal":
        observed, expected = _nominal(counts)
    elif level == "ordinal":
        check_graded(table, "alpha of level='ordinal'")
        observed, expected = _ordinal(counts)
    else:
        observed, expected = _interval(counts, _numbers(table, values))

    def at(w: FloatArray) -> FloatArray:
        totals = counts.votes.T @ w
        n = totals.sum(axis=0)
        return 1 - ratio((n - 1) * observed(w, totals), expected(totals))

    return Weighted(len(counts.size), at, float, counts.times)


# A pair of functions: observed disagreement from weights (n, B) and class totals (C, B), and
# expected disagreement from the totals.
_Disagreement = tuple[
    Callable[[FloatArray, FloatArray], FloatArray], Callable[[FloatArray], FloatArray]
]


def _nominal(counts: ClassCounts) -> _Disagreement:
    per_instance = _unequal_pairs(counts) / (counts.size - 1)
    return (
        lambda w, totals: per_instance @ w,
        lambda totals: totals.sum(axis=0) ** 2 - (totals**2).sum(axis=0),
    )


def _interval(counts: ClassCounts, numbers: FloatArray) -> _Disagreement:
    per_instance = _squared_distances(counts, numbers[:, None])[:, 0] / (counts.size - 1)
    return (
        lambda w, totals: per_instance @ w,
        lambda totals: _expected_squares(totals, numbers[:, None]),
    )


def _ordinal(counts: ClassCounts) -> _Disagreement:
    def observed(w: FloatArray, totals: FloatArray) -> FloatArray:
        distances = _squared_distances(counts, _mean_ranks(totals))
        return (w * distances / (counts.size[:, None] - 1)).sum(axis=0)

    return observed, lambda totals: _expected_squares(totals, _mean_ranks(totals))


def _mean_ranks(totals: FloatArray) -> FloatArray:
    """Return the mean rank of each class among all annotations, up to a constant, (C, B)."""
    return np.cumsum(totals, axis=0) - totals / 2


def _expected_squares(totals: FloatArray, values: FloatArray) -> FloatArray:
    """Sum of (v - v')^2 over the ordered pairs of all annotations; 0 if one value occurs."""
    given = totals > 0
    lowest = np.where(given, values, np.inf).min(axis=0, initial=np.inf)
    highest = np.where(given, values, -np.inf).max(axis=0, initial=-np.inf)
    sums, squares = (totals * values).sum(axis=0), (totals * values**2).sum(axis=0)
    # If only one value occurs the sum is 0, which rounding might miss.
    return np.where(highest > lowest, 2 * (totals.sum(axis=0) * squares - sums**2), 0.0)


def _numbers(table: Annotations, values: Any) -> FloatArray:
    """Return the number of each class minus that of the first, as large squares lose digits."""
    if values is None:
        values = numbers_of(table.classes)
        if values is None:
            raise AnnotationError(
                f"level='interval' needs numbers, but the classes are {_list_classes(table)}; give "
                "the number that each stands for, in this order: "
                f"values={list(range(1, min(table.n_classes, 4) + 1))}"
                f"{' + ...' if table.n_classes > 4 else ''}"
            )
    try:
        numbers: FloatArray = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise AnnotationError(
            f"values={values!r} are not numbers; give one number for each of {_list_classes(table)}"
        ) from None
    if numbers.shape != (table.n_classes,) or not np.isfinite(numbers).all():
        raise AnnotationError(
            f"values={values!r} must hold one finite number for each of the {table.n_classes} "
            f"classes, in the order {_list_classes(table)}"
        )
    return numbers - numbers[:1]


def _list_classes(table: Annotations) -> str:
    names = ", ".join(repr(c.item()) for c in table.classes[:6])
    return names + (" ..." if table.n_classes > 6 else "")
