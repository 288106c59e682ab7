"""Annotators against inferred labels: how often each is right, and how sure one can be of that.

References
----------
.. [1] L. D. Brown, T. T. Cai and A. DasGupta. Interval estimation for a binomial proportion.
   Statistical Science 16(2), 2001, section 3.1 (Jeffreys interval).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
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
    With n annotations, of which s are right in expectation (the sum of the posterior
    probabilities of the classes given), the interval is the central one of Beta(s + 1/2,
    n - s + 1/2), the posterior of a proportion under Jeffreys' prior [1]_. A silent annotator has
    the interval of the prior.

    **What the interval covers**: that an annotator's accuracy is seen on n annotations only,
    taking the inferred probabilities as they are. **What it does not cover**: errors of the
    inferred labels. Where the model is wrong, so are accuracy and interval; an annotation also
    takes part in inferring the label it is measured against, which flatters annotators on
    instances with few annotations. Annotations of one annotator count as independent.

    References
    ----------
    Brown, Cai & DasGupta (2001), Statistical Science 16(2), doi:10.1214/ss/1009213286.

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
    if not 0 < level < 1:
        raise AnnotationError(f"level={level!r} must lie between 0 and 1, such as 0.95")
    observed = table.observed
    posterior = _checked(posterior, observed)
    r = observed.n_annotators
    n = np.bincount(observed.annotator, minlength=r)
    right = _right(posterior, observed)
    s = np.bincount(observed.annotator, weights=right, minlength=r)
    # Sums of rounded probabilities may leave [0, n] by an ulp, where the quantile is NaN.
    a, b = s.clip(0, n) + 0.5, (n - s).clip(0, n) + 0.5
    tail = (1 - level) / 2
    accuracy = np.divide(s, n, out=np.full(r, np.nan), where=n > 0)
    lower, upper = (np.asarray(betaincinv(a, b, p), dtype=np.float64) for p in (tail, 1 - tail))
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
    return right


def _checked(posterior: Any, table: AnnotationTable) -> FloatArray:
    checked: FloatArray = np.asarray(posterior, dtype=np.float64)
    expected = (table.n_instances, table.n_classes)
    if checked.shape != expected:
        raise AnnotationError(
            f"posterior has shape {checked.shape}; the table needs one row an instance and one "
            f"column a class, {expected}"
        )
    return checked
