"""Annotators against inferred labels: how often each is right, with an interval.

References
----------
.. [1] L. D. Brown, T. T. Cai and A. DasGupta. Interval estimation for a binomial proportion.
   Statistical Science 16(2), 2001, section 3.1 (Jeffreys interval).
.. [2] T. A. Louis. Finding the observed information matrix when using the EM algorithm. Journal of
   the Royal Statistical Society B 44(2), 1982.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.sparse import issparse

from manyhands.annotations import AnnotationTable
from manyhands.annotations.columns import require_annotators
from manyhands.annotations.target import require_table
from manyhands.decision.labels import entries
from manyhands.exceptions import AnnotationError
from manyhands.inference.inputs import frame_in_order
from manyhands.metrics.intervals import beta_interval
from manyhands.typing import FloatArray, IntArray

__all__ = ["AnnotatorReliability", "annotator_reliability"]

MODEL_ERROR = 0.3
"""Standard deviation of the error of a model's expected accuracy of an annotator, in logits.

With it, the intervals of `DawidSkene` contain the accuracy on gold of at least nine annotators in
ten on nearly all real tables (docs/results/intervals.md).
"""


class AnnotatorReliability(NamedTuple):
    """Reliability of each annotator; each field has shape (n_annotators,).

    Attributes
    ----------
    n_annotations : integer array
        Number of observed annotations.
    accuracy : array
        Expected share of correct annotations; NaN for an annotator without annotations.
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
    """Estimate how often each annotator is right, with an interval.

    Parameters
    ----------
    table : AnnotationTable
        Observed annotations only; each counts once, whatever its weight.
    posterior : array-like, sparse array or frame of shape (n_instances, n_classes)
        Class probabilities of each instance, as in an aggregator's ``posterior_``; gold labels
        enter as ones and zeros. Rows of a frame are matched with the instances by id, and its
        columns with the classes by name.
    level : float in (0, 1), default=0.95
        Probability mass of the interval.

    Returns
    -------
    AnnotatorReliability

    Raises
    ------
    AnnotationError
        If ``posterior`` does not fit or match the table, or ``level`` is outside (0, 1).

    Notes
    -----
    Let p_i be the probability that the i-th of an annotator's n annotations is correct, s the sum
    of p_i and V the sum of p_i (1 - p_i). If it were known which s annotations are correct, the
    posterior of the accuracy under Jeffreys' prior would be Beta(s + 1/2, n - s + 1/2). Its
    mean is m = (s + 1/2) / (n + 1), its size (the sum of its parameters) n + 1. The information,
    which is the curvature of its log density (s + 1/2) log m + (n - s + 1/2) log(1 - m), is
    (n + 1) / (m (1 - m)). One more correct annotation adds 1 / (m (1 - m)) to the slope. Not
    knowing which annotations are correct therefore gives the slope a variance of
    V / (m (1 - m))^2. This is the missing information, which is subtracted. What remains is
    the information in a beta distribution with the same mean and of size

        nu = n + 1 - V / (m (1 - m)).

    Certain labels (V = 0) give nu = n + 1. nu is never below 1, since V <= s (n - s) / n and
    s (n - s) <= n^2 / 4. It is 1, which gives the interval of the prior, if nothing is known (all
    p_i = 1/2) or the annotator has no annotations.

    A model's probabilities have errors, too: on real tables, a standard deviation of .3 in the
    logit of an annotator's accuracy. It counts by the share u of the annotations whose class is
    uncertain (0 < p_i < 1). The logit of a beta distribution has a variance of about
    1 / (nu m (1 - m)), so that 1 / nu grows by (.3 u)^2 m (1 - m), where nu stays at least 1. The
    interval is the central one of Beta(nu m, nu (1 - m)); with certain labels it is Jeffreys'.

    An annotator may never have been wrong. If the probability of that, the product of the p_i,
    exceeds the mass that the interval leaves out above, the interval ends at 1. Likewise it begins
    at 0 if the annotator may always have been wrong. A beta distribution gives these two values no
    probability of their own, but a share of n annotations does.

    **What the interval covers**: an annotator's accuracy is observed on n annotations only, the
    true class of each is known only in probability, to which the annotation itself contributes (as
    in a model's posterior), and the model is wrong as usual. **What it does not cover**: models
    that are wrong by more, as where many annotators share mistakes; vote shares (`MajorityVote`)
    are not calibrated probabilities. The annotations of an annotator count as independent.

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
    require_table(table)
    require_annotators(table, "the reliability of annotators")
    return reliability_of(RightSums.of(table, posterior), level=level)


@dataclass(frozen=True)
class RightSums:
    """Sums from which the reliability of annotators follows; arrays of shape (n_annotators,).

    Sums over disjoint parts of a table can be added.

    Attributes
    ----------
    n : integer array
        Annotations.
    right, variance : arrays
        Expected right annotations, and the sum of p (1 - p).
    log_all, log_none : arrays
        Logarithms of the probabilities that all annotations are right, and that none is.
    doubted : array
        Annotations of uncertain classes.
    """

    n: IntArray
    right: FloatArray
    variance: FloatArray
    log_all: FloatArray
    log_none: FloatArray
    doubted: FloatArray

    @classmethod
    def of(cls, table: AnnotationTable, posterior: Any) -> RightSums:
        """Sum over the observed annotations of a table; see `annotator_reliability`."""
        observed = table.observed
        posterior = _checked(posterior, observed)
        p = _probability_correct(posterior, observed)

        def total(weights: Any) -> FloatArray:
            found = np.bincount(observed.annotator, weights, observed.n_annotators)
            return np.asarray(found, dtype=np.float64)

        n = np.bincount(observed.annotator, minlength=observed.n_annotators)
        with np.errstate(divide="ignore"):  # log 0 where an annotation is certainly wrong or right.
            chances = total(np.log(p)), total(np.log1p(-p))
        return cls(n, total(p), total(p * (1 - p)), *chances, total((p > 0) & (p < 1)))

    def __add__(self, other: RightSums) -> RightSums:
        """Return the sums of both."""
        return RightSums(
            self.n + other.n,
            self.right + other.right,
            self.variance + other.variance,
            self.log_all + other.log_all,
            self.log_none + other.log_none,
            self.doubted + other.doubted,
        )


def reliability_of(sums: RightSums, *, level: float = 0.95) -> AnnotatorReliability:
    """Return the reliability of annotators from their sums; see `annotator_reliability`."""
    n, s, variance, r = sums.n, sums.right, sums.variance, len(sums.n)
    accuracy = np.divide(s, n, out=np.full(r, np.nan), where=n > 0)
    mean = (s + 0.5) / (n + 1)
    spread = mean * (1 - mean)
    size = n + 1 - variance / spread
    off = MODEL_ERROR * np.divide(sums.doubted, n, out=np.zeros(r), where=n > 0)
    size = np.maximum(1.0 / (1.0 / size + off**2 * spread), 1.0)
    lower, upper = beta_interval(size * mean, size * (1 - mean), level=level)
    tail = np.log((1 - level) / 2)
    lower = np.where((n > 0) & (sums.log_none > tail), 0.0, lower)
    upper = np.where((n > 0) & (sums.log_all > tail), 1.0, upper)
    return AnnotatorReliability(n, accuracy, lower, upper)


def _probability_correct(posterior: FloatArray, table: AnnotationTable) -> FloatArray:
    """Return the probability that each annotation is correct, shape (n_annotations,)."""
    p = entries(posterior, table.instance, table.label)
    bad = ~((p >= -1e-6) & (p <= 1 + 1e-6))
    if bad.any():
        raise AnnotationError(
            f"posterior holds {p[bad][0]!r} for instance "
            f"{table.instances[table.instance[bad][0]].item()!r}; it must hold probabilities. "
            "Leave out the annotations of instances without a label (table.take)"
        )
    return p.clip(0, 1)


def _checked(posterior: Any, table: AnnotationTable) -> FloatArray:
    checked: Any = posterior
    if not issparse(posterior):
        posterior = frame_in_order(table, posterior, "posterior")
        checked = np.asarray(posterior, dtype=np.float64)
    expected = (table.n_instances, table.n_classes)
    if checked.shape != expected:
        raise AnnotationError(
            f"posterior has shape {checked.shape}; it must have one row per instance and one "
            f"column per class of the table, {expected}"
        )
    return cast(FloatArray, checked)
