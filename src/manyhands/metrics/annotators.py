"""Annotators against inferred labels: how often each is right, and how sure one can be of that.

References
----------
.. [1] L. D. Brown, T. T. Cai and A. DasGupta. Interval estimation for a binomial proportion.
   Statistical Science 16(2), 2001, section 3.1 (Jeffreys interval).
.. [2] T. A. Louis. Finding the observed information matrix when using the EM algorithm. Journal of
   the Royal Statistical Society B 44(2), 1982.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.metrics.intervals import beta_interval
from manyhands.typing import FloatArray, IntArray

__all__ = ["AnnotatorReliability", "annotator_reliability"]


class AnnotatorReliability(NamedTuple):
    """Reliability of every annotator; each field has shape (n_annotators,).

    Attributes
    ----------
    n_annotations : integer array
        Observed annotations.
    accuracy : array
        Expected share of right annotations; NaN for a silent annotator.
    lower, upper : arrays
        Bounds of the interval around ``accuracy`` (see `annotator_reliability`).
    """

    n_annotations: IntArray
    accuracy: FloatArray
    lower: FloatArray
    upper: FloatArray


def annotator_reliability(
    table: AnnotationTable, posterior: Any, *, level: float = 0.95
) -> AnnotatorReliability:
    """Estimate how often every annotator is right, with an interval.

    Parameters
    ----------
    table : AnnotationTable
        Observed annotations only; each counts once, whatever its weight.
    posterior : array-like of shape (n_instances, n_classes)
        Probability of every class for every instance, as in an aggregator's ``posterior_``; gold
        labels enter as ones and zeros.
    level : float in (0, 1), default=0.95
        Mass of the interval.

    Returns
    -------
    AnnotatorReliability

    Raises
    ------
    AnnotationError
        If ``posterior`` does not fit the table, or ``level`` is outside (0, 1).

    Notes
    -----
    Let p_i be the probability that the i-th of an annotator's n annotations is right, s the sum
    of p_i and V that of p_i (1 - p_i). Were it known which are right, s of them, the posterior of
    the accuracy under Jeffreys' prior would be Beta(s + 1/2, n - s + 1/2) [1]_, of mean
    m = (s + 1/2) / (n + 1) and size (sum of its parameters) n + 1; the curvature of its log
    density (s + 1/2) log m + (n - s + 1/2) log(1 - m), the information, is (n + 1) / (m (1 - m)).
    One right annotation more adds 1 / (m (1 - m)) to the slope, so that not knowing which are
    right makes the slope vary by V / (m (1 - m))^2: the missing information, which is subtracted
    [2]_. What is left is the information in a beta distribution of the same mean and of size

        nu = n + 1 - V / (m (1 - m)),

    and the interval is the central one of Beta(nu m, nu (1 - m)). Certain labels (V = 0) give
    Jeffreys' interval. Never is nu below 1, since V <= s (n - s) / n and s (n - s) <= n^2 / 4; it
    is 1 where nothing is known (all p_i = 1/2) or the annotator is silent: the interval of the
    prior.

    **What the interval covers**: that an annotator's accuracy is seen on n annotations only, and
    that the truth of each is known but in probability, to which the annotation itself contributes
    (as in the posterior of a model). **What it does not cover**: errors of the model and of its
    other parameters. Where these are wrong, so are accuracy and interval; vote shares
    (`MajorityVote`) are no calibrated probabilities. Annotations of one annotator count as
    independent.

    References
    ----------
    Brown, Cai & DasGupta (2001), Statistical Science 16(2), doi:10.1214/ss/1009213286; Louis
    (1982), JRSS B 44(2).

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import AnnotationTable
    >>> table = AnnotationTable.from_matrix(np.array([[0, 1], [0, 0], [1, 1], [1, 0]]))
    >>> found = annotator_reliability(table, [[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> found.accuracy
    array([1. , 0.5])
    >>> found.lower.round(3), found.upper.round(3)
    (array([0.555, 0.123]), array([1.   , 0.877]))
    """
    observed = table.observed
    posterior = _checked(posterior, observed)
    r = observed.n_annotators
    n = np.bincount(observed.annotator, minlength=r)
    right = _right(posterior, observed)
    s = np.bincount(observed.annotator, weights=right, minlength=r)
    variance = np.bincount(observed.annotator, weights=right * (1 - right), minlength=r)
    accuracy = np.divide(s, n, out=np.full(r, np.nan), where=n > 0)
    mean = (s + 0.5) / (n + 1)
    size = n + 1 - variance / (mean * (1 - mean))
    lower, upper = beta_interval(size * mean, size * (1 - mean), level=level)
    return AnnotatorReliability(n, accuracy, lower, upper)


def _right(posterior: FloatArray, table: AnnotationTable) -> FloatArray:
    """Probability that every annotation is right."""
    right: FloatArray = posterior[table.instance, table.label]
    bad = ~((right >= -1e-6) & (right <= 1 + 1e-6))
    if bad.any():
        raise AnnotationError(
            f"posterior holds {right[bad][0]!r} for instance "
            f"{table.instances[table.instance[bad][0]].item()!r}; probabilities are needed. "
            "Leave out the annotations of instances without a label (table.take)"
        )
    return right.clip(0, 1)


def _checked(posterior: Any, table: AnnotationTable) -> FloatArray:
    checked: FloatArray = np.asarray(posterior, dtype=np.float64)
    expected = (table.n_instances, table.n_classes)
    if checked.shape != expected:
        raise AnnotationError(
            f"posterior has shape {checked.shape}; the table needs one row an instance and one "
            f"column a class, {expected}"
        )
    return checked
