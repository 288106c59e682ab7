"""How far annotators agree, on sparse tables: cost grows with the annotations.

References
----------
.. [1] K. Krippendorff. Content Analysis: An Introduction to Its Methodology, 4th ed. Sage, 2018,
   chapter 12.
"""

from __future__ import annotations

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.typing import FloatArray, IntArray

__all__ = ["common_confusions", "krippendorff_alpha", "percent_agreement"]


def _pairable(table: AnnotationTable) -> FloatArray:
    """Votes per instance and class of the observed rows, instances with two or more only."""
    observed = table.observed
    flat = observed.instance.astype(np.int64) * observed.n_classes + observed.label
    counts = np.bincount(flat, minlength=observed.n_instances * observed.n_classes)
    votes = counts.reshape(observed.n_instances, observed.n_classes).astype(np.float64)
    return votes[votes.sum(axis=1) > 1]


def percent_agreement(table: AnnotationTable) -> float:
    """Mean, over instances with two or more annotations, of the share of agreeing pairs.

    Observed annotations only; NaN if no instance has two.
    """
    votes = _pairable(table)
    if not len(votes):
        return float("nan")
    n = votes.sum(axis=1)
    return float((((votes**2).sum(axis=1) - n) / (n * (n - 1))).mean())


def krippendorff_alpha(table: AnnotationTable) -> float:
    """Krippendorff's alpha for nominal data [1]_: 1 = full agreement, 0 = as by chance.

    Observed annotations only; instances with a single annotation do not count. NaN if no
    instance has two, or if only one class occurs (nothing to disagree about).
    """
    votes = _pairable(table)
    if not len(votes):
        return float("nan")
    n = votes.sum(axis=1, keepdims=True)
    # Coincidences o_cc = sum of n_c (n_c - 1) / (n - 1); totals n_c; see [1], section 12.3.
    agreeing = (votes * (votes - 1) / (n - 1)).sum(axis=0)
    totals = votes.sum(axis=0)
    total = totals.sum()
    expected = 1.0 - (totals * (totals - 1)).sum() / (total * (total - 1))
    if expected == 0:
        return float("nan")
    return float(1.0 - (1.0 - agreeing.sum() / total) / expected)


def common_confusions(table: AnnotationTable, labels: IntArray) -> FloatArray:
    """Share of annotators who made each confusion at least once (CoNAL, Fig. 1).

    Parameters
    ----------
    table : AnnotationTable
        Observed annotations only.
    labels : integer array of shape (n_instances,)
        Code of the true (or inferred) class of every instance, -1 where unknown.

    Returns
    -------
    array of shape (n_classes, n_classes)
        [true, given]: share of all annotators with an annotation who gave ``given`` to an
        instance of class ``true``. The diagonal is the share who got the class right once.

    References
    ----------
    Chu, Ma & Wang (AAAI 2021), Fig. 1: 61.0 % of LabelMe's annotators label street as inside
    city.
    """
    observed = table.observed
    known = labels[observed.instance] >= 0
    true, given = labels[observed.instance][known], observed.label[known]
    c = table.n_classes
    flat = (observed.annotator[known].astype(np.int64) * c + true) * c + given
    made = np.unique(flat) % (c * c)
    active = len(np.unique(observed.annotator))
    return np.bincount(made, minlength=c * c).reshape(c, c) / max(active, 1)
