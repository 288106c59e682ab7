"""Estimating a mean over many items, from labels of a random few and predictions for all.

Prediction-powered inference [1]_ corrects the mean of people's labels by the predictions for the
items that nobody labelled. The correction has a weight [2]_, which is 0 for uninformative
predictions, so that the interval is hardly wider than that of people alone.

References
----------
.. [1] A. N. Angelopoulos, S. Bates, C. Fannjiang, M. I. Jordan and T. Zrnic. Prediction-powered
   inference. Science 382, 2023.
.. [2] A. N. Angelopoulos, J. C. Duchi and T. Zrnic. PPI++: efficient prediction-powered inference.
   arXiv:2311.01453, 2023.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from manyhands.exceptions import AnnotationError
from manyhands.metrics.intervals import share_interval
from manyhands.typing import FloatArray

__all__ = ["MeanEstimate", "mean_estimate"]

FEW_LABELS = 10
"""Number of labels of either kind (0 and 1) below which predictions get no weight."""


class MeanEstimate(NamedTuple):
    """A mean, the bounds of its interval, and the weight of the predictions in it (0 to 1)."""

    estimate: float
    low: float
    high: float
    weight: float


def mean_estimate(
    labelled: Any, predicted: Any, everywhere: Any, *, level: float = 0.95
) -> MeanEstimate:
    r"""Estimate a mean over all items from the labels of a random few.

    With labels y of n items and predictions f of these, F of all N items,

    .. math:: m = \bar y - \lambda (\bar f - \bar F), \quad
        \lambda = \mathrm{clip}(\mathrm{cov}(y, f) / \mathrm{var} f, 0, 1), \quad
        se^2 = \mathrm{var}(y - \lambda f) (1 - n / N) / n.

    Scores have the interval m ± t(n - 2) se. Shares (labels of 0 and 1) have the interval
    `share_interval` of m k right labels among k, where the effective number k of labels is
    m (1 - m) / se², limited to n / 2 to 10 n, times (z / t)². With fewer than ten labels of either
    kind the predictions get no weight, and k is n / (1 - n / N).

    **Predictions hardly help to estimate their own accuracy**, because a machine does not predict
    whether it is right. Buy labels for that: n = (1.96 / half width)² p (1 - p).

    Parameters
    ----------
    labelled : array-like of shape (n,)
        Labels of **randomly drawn** items: scores, or 0 and 1 (or booleans). The labels of a review
        queue are not a random sample, and would make the estimate and its interval wrong.
    predicted : array-like of shape (n,)
        Predictions for the same items, in the same order.
    everywhere : array-like of shape (N,)
        Predictions for all items, the labelled ones included.
    level : float in (0, 1)
        Coverage of the interval.

    Returns
    -------
    MeanEstimate
        ``estimate``, ``low``, ``high`` and ``weight``, the lambda above.

    Raises
    ------
    AnnotationError
        If the arguments differ in length, are not finite, hold fewer than three labels, or there
        are more labels than items.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = (rng.random(1000) < 0.3).astype(float)
    >>> model = np.clip(truth * 0.6 + 0.2 + rng.normal(scale=0.1, size=1000), 0, 1)
    >>> few = rng.choice(1000, 100, replace=False)
    >>> found = mean_estimate(truth[few], model[few], model)
    >>> bool(found.low < truth.mean() < found.high)
    True
    """
    y, f, F = (
        _values(each, name)
        for each, name in (
            (labelled, "labelled"),
            (predicted, "predicted"),
            (everywhere, "everywhere"),
        )
    )
    n, N = len(y), len(F)
    if len(f) != n:
        raise AnnotationError(
            f"labelled has {n} values, but predicted has {len(f)}; give the prediction for each "
            "item that has a label"
        )
    if n < 3:
        raise AnnotationError(f"labelled holds {n} values; give at least three")
    if n > N:
        raise AnnotationError(
            f"labelled holds {n} values, but everywhere only {N}; everywhere has one prediction "
            "for every item, those with labels included"
        )
    return _estimate(y, f, F, level, is_share=bool(np.isin(y, (0.0, 1.0)).all()))


def share_estimate(
    labelled: FloatArray, predicted: FloatArray, everywhere: FloatArray, *, level: float = 0.95
) -> MeanEstimate:
    """Estimate a share as `mean_estimate` does, where labels are shares of several people.

    Parameters
    ----------
    labelled, predicted, everywhere : arrays of shape (n,), (n,) and (N,)
        In [0, 1].
    level : float in (0, 1)
    """
    return _estimate(labelled, predicted, everywhere, level, is_share=True)


def _estimate(
    y: FloatArray, f: FloatArray, F: FloatArray, level: float, *, is_share: bool
) -> MeanEstimate:
    n, N = len(y), len(F)
    rest = 1.0 - n / N
    few = is_share and min(y.sum(), n - y.sum()) < FEW_LABELS
    spread = f.var(ddof=1)
    weight = 0.0
    if not few and spread > 0:
        weight = float(np.clip(np.cov(y, f)[0, 1] / spread, 0.0, 1.0))
    m = float(y.mean() - weight * (f.mean() - F.mean()))
    if rest == 0.0:
        return MeanEstimate(m, m, m, weight)
    z, t = norm.ppf(0.5 + level / 2), student.ppf(0.5 + level / 2, n - 2)
    variance = float((y - weight * f).var(ddof=1)) * rest / n
    if not is_share:
        half = t * np.sqrt(variance)
        return MeanEstimate(m, m - half, m + half, weight)
    m = float(np.clip(m, 0.0, 1.0))
    k = n / rest
    if not few:
        k = float(np.clip(m * (1 - m) / max(variance, 1e-12), n / 2, 10 * n)) * (z / t) ** 2
    low, high = share_interval(m * k, k, level=level)
    return MeanEstimate(m, float(low), float(high), weight)


def _values(values: Any, argument: str) -> FloatArray:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise AnnotationError(
            f"{argument} has shape {found.shape}{'' if found.ndim == 1 else ', not one value each'}"
            "; give finite numbers, one per item"
        )
    return found
