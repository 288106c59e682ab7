"""Agreement per class: how often the other annotations are of the class if one is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyhands.agreement.weighted import (
    Annotations,
    Weighted,
    chance_corrected,
    class_counts,
    per_entry,
    ratio,
    with_data,
)
from manyhands.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class ClassAgreement:
    """Agreement per class; arrays of shape (n_classes,).

    Attributes
    ----------
    n_annotations : integer array
        Annotations of the class on instances with at least two annotations.
    share : array
        Mean share of the class among the annotations of these instances.
    agreement : array
        Share of an instance's other annotations that are of the class, given that one is.
    kappa : array
        ``agreement`` beyond chance.
    """

    n_annotations: IntArray
    share: FloatArray
    agreement: FloatArray
    kappa: FloatArray


def class_agreement(table: Annotations) -> ClassAgreement:
    r"""Return agreement per class: specific agreement [2]_ and Fleiss' category kappa [1]_.

    Parameters
    ----------
    table : AnnotationTable
        Observed annotations only; instances with a single annotation do not count.

    Returns
    -------
    ClassAgreement
        ``agreement`` and ``kappa`` are NaN for a class that does not occur; ``kappa`` is also NaN
        if no other class occurs.

    Notes
    -----
    With :math:`r_{ik}` annotations of class k among the :math:`r_i` of instance i,

    .. math:: P_k = \frac{\sum_i r_{ik} (r_{ik} - 1) / (r_i (r_i - 1))}{\sum_i r_{ik} / r_i},
        \qquad \kappa_k = \frac{P_k - \pi_k}{1 - \pi_k}.

    If all instances have the same number of annotations, these are the conditional probability and
    the category kappa of [1]_. All instances have the same weight, as in `percent_agreement`, which
    is the mean of ``agreement`` weighted by ``share``. If no instance has a single annotation,
    `fleiss_kappa` is the mean of ``kappa`` weighted by share (1 - share). Repeated (instance,
    annotator) pairs count as annotations by different annotators.

    References
    ----------
    .. [1] J. L. Fleiss. Measuring nominal scale agreement among many raters. Psychological
       Bulletin 76(5), 1971.
    .. [2] R. L. Spitzer and J. L. Fleiss. A re-analysis of the reliability of psychiatric
       diagnosis. British Journal of Psychiatry 125, 1974.
    """
    return weighted_classes(table).value()


def weighted_classes(table: Annotations) -> Weighted[ClassAgreement]:
    """Return `class_agreement` as a function of instance weights."""
    votes, size, times = class_counts(table, least=2)
    n_annotations = (votes.T @ (np.ones(len(size)) if times is None else times)).astype(np.int64)
    shares = with_data(votes, votes.data / per_entry(votes, size)).T
    pairs = votes.data * (votes.data - 1) / per_entry(votes, size * (size - 1))
    agreeing = with_data(votes, pairs).T

    def at(w: FloatArray) -> FloatArray:
        given = shares @ w
        share, agreement = ratio(given, w.sum(axis=0)), ratio(agreeing @ w, given)
        return np.stack([share, agreement, chance_corrected(agreement, share)])

    least = np.array([[0.0], [0.0], [-1.0]])  # Of shares, agreement and kappa.
    return Weighted(
        len(size), at, lambda found: ClassAgreement(n_annotations, *found), times, least
    )
