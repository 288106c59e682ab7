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

from manyhands.annotations.encoding import as_values, check_no_mixture, missing_mask
from manyhands.exceptions import AnnotationError
from manyhands.metrics.intervals import share_interval
from manyhands.typing import FloatArray, IntArray

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
    labelled: Any,
    predicted: Any,
    everywhere: Any,
    *,
    cluster: Any = None,
    level: float = 0.95,
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

    The predictions of the labelled items are among F, so the error is that of the mean of
    y - lambda f alone: the factor 1 - n / N stands for the items that nobody labelled.

    **Items that were drawn in clusters**, such as all summaries of an article, resemble each other,
    and tell less than as many single ones. With ``cluster``, the sums of the deviations of y and f
    within the G labelled clusters take the place of single deviations in lambda and in the error,

    .. math:: \lambda = \mathrm{clip}(\textstyle\sum_g Y_g F_g / \sum_g F_g^2, 0, 1), \quad
        se^2 = \frac{G}{G - 1} \sum_g (Y_g - \lambda F_g)^2 (1 - n / N) / n^2,

    with t(G - 2), and a k of at least G / 2. If fewer than ten clusters have labels of either kind,
    predictions get no weight, and k is m (1 - m) / se², limited to G / (1 - n / N) to
    n / (1 - n / N). With one item in each cluster, the interval is that without ``cluster``. It is
    rather too wide if only a part of a cluster is labelled.

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
    cluster : array-like of shape (n,), optional
        The cluster of each labelled item, if clusters were drawn rather than single items. Default:
        the items were drawn one by one.
    level : float in (0, 1)
        Coverage of the interval.

    Returns
    -------
    MeanEstimate
        ``estimate``, ``low``, ``high`` and ``weight``, the lambda above.

    Raises
    ------
    AnnotationError
        If the arguments differ in length, are not finite, hold fewer than three labels or labelled
        clusters, a label has no cluster, or there are more labels than items.

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
    group = None
    if cluster is not None:
        found = as_values(cluster)
        if found.shape != (n,):
            raise AnnotationError(
                f"cluster has shape {found.shape}; give one value for each of the {n} labels"
            )
        missing = np.flatnonzero(missing_mask(found))
        if missing.size:
            raise AnnotationError(
                f"cluster is missing for {missing.size:,} of the {n} labels, the first at position "
                f"{missing[0]}; give each of them a value"
            )
        check_no_mixture(found, "cluster")
        group = np.unique(found, return_inverse=True)[1]
        if (n_clusters := len(np.unique(group))) < 3:
            raise AnnotationError(
                f"the labelled items are in {n_clusters} cluster{'' if n_clusters == 1 else 's'}, "
                "which do not show how much clusters differ; label items of at least three"
            )
    return _estimate(y, f, F, group, level, is_share=bool(np.isin(y, (0.0, 1.0)).all()))


def share_estimate(
    labelled: FloatArray,
    predicted: FloatArray,
    everywhere: FloatArray,
    *,
    cluster: IntArray | None = None,
    level: float = 0.95,
) -> MeanEstimate:
    """Estimate a share as `mean_estimate` does, where labels are shares of several people.

    Parameters
    ----------
    labelled, predicted, everywhere : arrays of shape (n,), (n,) and (N,)
        In [0, 1].
    cluster : integer array of shape (n,), optional
        From 0 to G - 1; at least three clusters.
    level : float in (0, 1)
    """
    return _estimate(labelled, predicted, everywhere, cluster, level, is_share=True)


def drawn_for_half(n: int, n_all: int) -> int:
    """Return how many items, or clusters, must be drawn in all for half the width of a mean.

    Parameters
    ----------
    n, n_all : int
        Items, or clusters, that were drawn, and all of them.
    """
    drawn = np.arange(n, n_all + 1)
    width = student.ppf(0.975, drawn - 2) * np.sqrt(1 / drawn - 1 / n_all)
    return int(drawn[np.argmax(width <= width[0] / 2)])


def _estimate(
    y: FloatArray,
    f: FloatArray,
    F: FloatArray,
    group: IntArray | None,
    level: float,
    *,
    is_share: bool,
) -> MeanEstimate:
    n, N = len(y), len(F)
    rest = 1.0 - n / N
    few = is_share and min(_count(y, group), _count(1.0 - y, group)) < FEW_LABELS
    # Deviations of single items, or their sums over clusters, which are independent.
    own, given = y - y.mean(), f - f.mean()
    if group is not None:
        own, given = np.bincount(group, own), np.bincount(group, given)
    G = len(own)
    spread = float(given @ given)
    weight = 0.0
    if not few and spread > 0:
        weight = float(np.clip(own @ given / spread, 0.0, 1.0))
    m = float(y.mean() - weight * (f.mean() - F.mean()))
    if rest == 0.0:
        return MeanEstimate(m, m, m, weight)
    z, t = norm.ppf(0.5 + level / 2), student.ppf(0.5 + level / 2, G - 2)
    residual = own - weight * given
    variance = float(residual @ residual) * G / (G - 1) * rest / n**2
    if not is_share:
        half = t * np.sqrt(variance)
        return MeanEstimate(m, m - half, m + half, weight)
    m = float(np.clip(m, 0.0, 1.0))
    k = m * (1 - m) / max(variance, 1e-12)
    k = float(np.clip(k, G / rest, n / rest) if few else np.clip(k, G / 2, 10 * n) * (z / t) ** 2)
    low, high = share_interval(m * k, k, level=level)
    return MeanEstimate(m, float(low), float(high), weight)


def _count(share: FloatArray, group: IntArray | None) -> float:
    """Return the number of labels of a kind; those of a cluster count as the surest one."""
    if group is None:
        return float(share.sum())
    most = np.zeros(group.max() + 1)
    np.maximum.at(most, group, share)
    return float(most.sum())


def _values(values: Any, argument: str) -> FloatArray:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise AnnotationError(
            f"{argument} has shape {found.shape}{'' if found.ndim == 1 else ', not one value each'}"
            "; give finite numbers, one per item"
        )
    return found
