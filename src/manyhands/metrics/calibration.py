"""Calibration of probabilities, measured on gold labels.

Probabilities and gold labels are matched by id as in `manyhands.metrics.gold`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from manyhands.annotations.encoding import missing_mask
from manyhands.decision.labels import decide
from manyhands.exceptions import AnnotationError
from manyhands.metrics.gold import against_gold, squared_distances
from manyhands.metrics.intervals import share_interval
from manyhands.typing import AnyArray, FloatArray, IntArray

__all__ = [
    "Calibration",
    "Estimate",
    "ReliabilityCurve",
    "calibration",
    "expected_calibration_error",
    "reliability_curve",
]

LEAST_PROBA = 1e-12
"""Smallest probability in the log loss, so that its logarithm is finite."""

MOST_BINS = 100_000
"""Largest number of bins; more are surely a mistake, and would fill the memory."""

N_RESAMPLES = 500
"""Bootstrap samples for the interval of the calibration error."""


class Estimate(NamedTuple):
    """A figure and the bounds of its interval."""

    value: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.lower:.3f} to {self.upper:.3f})"


@dataclass(frozen=True)
class Calibration:
    """How well probabilities are calibrated on instances with gold labels.

    Attributes
    ----------
    n : int
        Number of instances.
    accuracy, confidence : Estimate
        Share of correct predictions, and mean probability of the predictions. They are equal if
        probabilities are calibrated.
    log_loss : Estimate
        Mean -log p(gold) in nats, with p at least 1e-12.
    brier : Estimate
        As in `brier_score`.
    ece : Estimate
        As in `expected_calibration_error`. Even for calibrated probabilities it is not 0, because
        the accuracy of a bin varies by chance; its interval then reaches down to 0.
    coverage : Estimate
        Share of instances whose gold class is in the smallest set of classes with a total
        probability of at least ``sure``. It is at least ``sure`` for calibrated probabilities.
    set_size : float
        Mean number of classes in these sets.
    sure : float
        As given.
    curve : ReliabilityCurve
        See `reliability_curve`.
    """

    n: int
    accuracy: Estimate
    confidence: Estimate
    log_loss: Estimate
    brier: Estimate
    ece: Estimate
    coverage: Estimate
    set_size: float
    sure: float
    curve: ReliabilityCurve

    def __str__(self) -> str:
        rows = {
            "accuracy": self.accuracy,
            "mean confidence": self.confidence,
            "log loss": self.log_loss,
            "Brier score": self.brier,
            "calibration error": self.ece,
            f"coverage of {self.sure:.0%}-sets": self.coverage,
            "classes per set": f"{self.set_size:.2f}",
        }
        width = max(map(len, rows))
        lines = [f"{name.ljust(width)}  {figure}" for name, figure in rows.items()]
        return "\n".join([f"{self.n} instances with gold labels", *lines])


def _refuse_partial_gold(y: Any) -> None:
    """Refuse a dict of gold labels, and missing ones, which only aggregators accept."""
    if isinstance(y, Mapping):
        raise AnnotationError(
            "y is a dict, but calibration pairs gold labels with rows: give the labels as an array "
            "in the order of proba, and leave out the rows without a label"
        )
    gaps = int(missing_mask(np.asarray(y)).sum())
    if gaps:
        raise AnnotationError(
            f"y has {gaps} missing gold labels; leave these rows out: known = ~pandas.isna(y), "
            "calibration(proba[known], y[known])"
        )


def calibration(
    proba: Any,
    y: Any,
    *,
    classes: Any = None,
    sure: float = 0.9,
    n_bins: int = 15,
    level: float = 0.95,
) -> Calibration:
    """Measure how well probabilities are calibrated: scores, coverage and reliability.

    Parameters
    ----------
    proba : array-like of shape (n, n_classes)
        Predicted probabilities; the prediction is the argmax, its probability the confidence.
    y : array-like of shape (n,)
        Gold class values.
    classes : sequence of length n_classes, optional
        Class value of every column; default: the sorted values of ``y``. For a model's
        probabilities give ``model.classes_``, because its columns need not be sorted.
    sure : float in (0, 1], default=0.9
        Probability of the sets whose coverage is measured.
    n_bins : int, default=15
        As in `reliability_curve`.
    level : float in (0, 1), default=0.95
        Probability mass of the intervals. Shares have Jeffreys intervals, means Student's intervals
        on the scale of the logarithm, and the calibration error an interval from 500 bootstrap
        samples with a fixed seed.

    Returns
    -------
    Calibration

    Raises
    ------
    AnnotationError
        If shapes do not fit, rows of ``proba`` are not probabilities, ``y`` is empty or holds a
        value outside ``classes``, or ``sure``, ``n_bins`` or ``level`` is out of its range.

    Examples
    --------
    >>> found = calibration([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 0, 1, 1])
    >>> found.accuracy.value, round(found.log_loss.value, 3), found.coverage.value
    (0.75, 0.4, 1.0)
    """
    if not isinstance(sure, Real) or not 0 < sure <= 1:
        raise AnnotationError(f"sure={sure!r} must lie in (0, 1], such as 0.9")
    _refuse_partial_gold(y)
    curve = reliability_curve(proba, y, classes=classes, n_bins=n_bins, level=level)
    proba, codes = against_gold(proba, y, classes)
    if not len(codes):
        raise AnnotationError("y is empty; calibration needs gold labels")
    rows = np.arange(len(codes))
    right, confidence = decide(proba) == codes, proba.max(axis=1)
    sets = _sure_sets(proba, sure)
    return Calibration(
        n=len(codes),
        accuracy=_share_with_interval(right, level),
        confidence=_mean_with_interval(confidence, level, 1.0),
        log_loss=_mean_with_interval(
            -np.log(np.maximum(proba[rows, codes], LEAST_PROBA)), level, np.inf
        ),
        brier=_mean_with_interval(squared_distances(proba, codes), level, 2.0),
        ece=_ece_with_interval(right - confidence, _bins(confidence, n_bins), level),
        coverage=_share_with_interval(sets[rows, codes], level),
        set_size=float(sets.sum(axis=1).mean()),
        sure=sure,
        curve=curve,
    )


def _sure_sets(proba: FloatArray, sure: float) -> Any:
    """Mask the smallest sets of classes with a probability of at least ``sure``, (n, C)."""
    order = np.argsort(-proba, axis=1, kind="stable")
    mass = np.cumsum(np.take_along_axis(proba, order, axis=1), axis=1)
    # A class belongs to the set if the more probable ones do not suffice, up to rounding errors.
    needed = np.column_stack([np.zeros(len(proba)), mass[:, :-1]]) < sure - 1e-9
    sets = np.empty_like(needed)
    np.put_along_axis(sets, order, needed, axis=1)
    return sets


def _share_with_interval(hits: Any, level: float) -> Estimate:
    n_hits, n = int(hits.sum()), len(hits)
    lower, upper = share_interval(n_hits, n, level=level)
    return Estimate(n_hits / n, float(lower), float(upper))


def _mean_with_interval(values: FloatArray, level: float, greatest: float) -> Estimate:
    """Return the mean of values in [0, ``greatest``] with an interval from its logarithm.

    Losses are skewed: a sample without the rare large ones has a low mean and a small spread.
    """
    mean, n = float(values.mean()), len(values)
    if n == 1 or mean == 0:
        return Estimate(mean, 0.0, greatest)
    error = values.std(ddof=1) / np.sqrt(n) / mean
    factor = float(np.exp(student.ppf(0.5 + level / 2, n - 1) * error))
    return Estimate(mean, mean / factor, min(mean * factor, greatest))


def _ece_with_interval(gaps: FloatArray, which: IntArray, level: float) -> Estimate:
    """Return the calibration error from each prediction's right - confidence and its bin.

    By the triangle inequality, a sample's error differs from the true one by at most the sum over
    bins of the distances between sample gaps and true gaps. Bootstrap samples show how large that
    sum is, which gives the lower bound. The upper bound is the sample's own error, which is too
    high already, plus the spread of bootstrap samples.
    """
    n, rng = len(gaps), np.random.default_rng(0)
    value, errors, distances = _calibration_error(gaps, which), [], []
    for _ in range(N_RESAMPLES):
        weights = np.bincount(rng.integers(0, n, n), minlength=n)
        errors.append(_calibration_error(gaps, which, weights))
        distances.append(_calibration_error(gaps, which, weights - 1.0))
    lower = max(value - float(np.quantile(distances, 0.5 + level / 2)), 0.0)
    upper = min(value + float(norm.ppf(0.5 + level / 2) * np.std(errors, ddof=1)), 1.0)
    return Estimate(value, lower, upper)


def _calibration_error(gaps: FloatArray, which: IntArray, weights: Any = 1.0) -> float:
    """Sum over bins of the absolute sum of right - confidence, over n (Guo et al., Eq. 3)."""
    return float(np.abs(np.bincount(which, weights * gaps)).sum()) / len(gaps)


def _check_bins(n_bins: Any) -> None:
    if not isinstance(n_bins, int | np.integer) or not 1 <= n_bins <= MOST_BINS:
        raise AnnotationError(f"n_bins={n_bins!r} must be a whole number from 1 to {MOST_BINS:,}")


def _bins(confidence: FloatArray, n_bins: int) -> IntArray:
    """Return the bin of each confidence; bins are (lower, upper], as published."""
    # A confidence of 0 has no bin, but the largest of several probabilities is never 0.
    return np.ceil(confidence * n_bins).astype(np.int64).clip(1, n_bins) - 1


class ReliabilityCurve(NamedTuple):
    """Confidence and accuracy in bins of equal width; each field has shape (n_bins,).

    Attributes
    ----------
    counts : integer array
        Number of predictions with confidence in ``(k / n_bins, (k + 1) / n_bins]``.
    confidence : array
        Mean confidence of these predictions; NaN in an empty bin.
    accuracy : array
        Share of these predictions that are right; NaN in an empty bin.
    lower, upper : arrays
        Bounds of the Jeffreys interval around ``accuracy``; 0 and 1 in an empty bin.
    """

    counts: IntArray
    confidence: FloatArray
    accuracy: FloatArray
    lower: FloatArray
    upper: FloatArray


def reliability_curve(
    proba: Any, y: Any, *, classes: Any = None, n_bins: int = 15, level: float = 0.95
) -> ReliabilityCurve:
    """Return how often predictions made with a given confidence are right [1]_.

    Parameters
    ----------
    proba : array-like of shape (n, n_classes)
        Predicted probabilities; the prediction is the argmax, its probability the confidence.
    y : array-like of shape (n,)
        Gold class values.
    classes : sequence of length n_classes, optional
        Class value of every column; default: the sorted values of ``y``.
    n_bins : int, default=15
    level : float in (0, 1), default=0.95
        Probability mass of the interval around each accuracy [2]_.

    Returns
    -------
    ReliabilityCurve

    Raises
    ------
    AnnotationError
        If shapes do not fit, rows of ``proba`` are not probabilities, ``y`` holds a value outside
        ``classes``, or ``n_bins`` or ``level`` is out of its range.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger. On calibration of modern neural
       networks. ICML 2017, section 2.
    .. [2] L. D. Brown, T. T. Cai and A. DasGupta. Interval estimation for a binomial proportion.
       Statistical Science 16(2), 2001, section 3.1.

    Examples
    --------
    >>> curve = reliability_curve([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1], n_bins=2)
    >>> curve.counts, curve.confidence.round(3), curve.accuracy.round(3)
    (array([0, 3]), array([nan, 0.8]), array([  nan, 0.667]))
    """
    _check_bins(n_bins)
    proba, codes = against_gold(proba, y, classes)
    confidence = proba.max(axis=1)
    which = _bins(confidence, n_bins)
    counts = np.bincount(which, minlength=n_bins)
    right = np.bincount(which, weights=decide(proba) == codes, minlength=n_bins)
    total = np.bincount(which, weights=confidence, minlength=n_bins)
    lower, upper = share_interval(right, counts, level=level)
    return ReliabilityCurve(counts, _share(total, counts), _share(right, counts), lower, upper)


def expected_calibration_error(
    proba: Any, y: Any, *, classes: Any = None, n_bins: int = 15
) -> float:
    """Return the mean gap between confidence and accuracy over bins of confidence [1]_.

    Parameters
    ----------
    proba, y, classes, n_bins
        As in `reliability_curve`.

    Returns
    -------
    float in [0, 1]
        0 means that of the predictions made with confidence p, a share p is right. NaN if n is 0.

    Raises
    ------
    AnnotationError
        As in `reliability_curve`.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger. On calibration of modern neural
       networks. ICML 2017, Eq. 3.

    Examples
    --------
    >>> round(expected_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 3)
    0.4
    """
    _check_bins(n_bins)
    proba, codes = against_gold(proba, y, classes)
    if not len(codes):
        return float("nan")
    confidence = proba.max(axis=1)
    return _calibration_error((decide(proba) == codes) - confidence, _bins(confidence, n_bins))


def _share(part: AnyArray, whole: IntArray) -> FloatArray:
    """Return ``part / whole``, NaN where ``whole`` is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
