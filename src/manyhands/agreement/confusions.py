"""Spammer score from confusion matrices, and confusions that annotators have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray, IntArray


def spammer_score(confusion: Any) -> FloatArray:
    r"""Return how much each annotator's answer depends on the true class [1]_, 0 to 1.

    A spammer answers without looking: all rows of the confusion matrix are equal.

    **An adversary scores as high as an expert**: an annotator who always answers 1 for class 0 and
    0 for class 1 tells the classes apart perfectly, and an aggregator with confusion matrices can
    use those answers. The score shows who can be left out, not who is right.

    Parameters
    ----------
    confusion : array-like of shape (n_annotators, n_classes, n_classes)
        Indexed [annotator, true, given]; rows sum to 1. An aggregator's ``confusion_``.

    Returns
    -------
    array of shape (n_annotators,)
        NaN if the annotator's matrix contains NaN, or if there are fewer than two classes.

    Raises
    ------
    AnnotationError
        If the shape is wrong, an entry is negative or a row does not sum to 1.

    Notes
    -----
    With entries :math:`\alpha_{ck}`, the score is half the mean squared distance between two rows,

    .. math:: S = \frac{1}{C (C - 1)} \sum_{c < c'} \sum_k (\alpha_{ck} - \alpha_{c'k})^2,

    which for two classes is (sensitivity + specificity - 1)^2. The square makes it drop fast: an
    annotator who is right with probability p, and otherwise gives every other class equally often,
    scores ((C p - 1) / (C - 1))^2.

    References
    ----------
    .. [1] V. C. Raykar and S. Yu. Eliminating spammers and ranking annotators for crowdsourced
       labeling tasks. Journal of Machine Learning Research 13, 2012 (the score for categorical
       labels).

    Examples
    --------
    >>> expert, adversary, spammer = [[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0.3, 0.7], [0.3, 0.7]]
    >>> spammer_score([expert, adversary, spammer])
    array([1., 1., 0.])
    """
    matrices: FloatArray = np.asarray(confusion, dtype=np.float64)
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
        raise AnnotationError(
            f"confusion has shape {matrices.shape}; it must be (n_annotators, n_classes, "
            "n_classes). Pass a single matrix as confusion[None]"
        )
    bad = (matrices < 0).any(axis=2) | (np.abs(matrices.sum(axis=2) - 1) > 1e-3)
    if bad.any():
        annotator, true = np.argwhere(bad)[0]
        raise AnnotationError(
            f"confusion[{annotator}, {true}] is {matrices[annotator, true]}; every row must hold "
            "probabilities that sum to 1 (divide counts by their row sums)"
        )
    n_classes = matrices.shape[1]
    if n_classes < 2:
        return np.full(len(matrices), np.nan)
    # The squared distances of all pairs of rows sum to C times the distances from the mean row.
    from_mean = matrices - matrices.mean(axis=1, keepdims=True)
    return (from_mean**2).sum(axis=(1, 2)) / (n_classes - 1)


def common_confusions(table: AnnotationTable, labels: IntArray) -> FloatArray:
    """Return the share of annotators who made each confusion at least once (CoNAL, Fig. 1).

    Parameters
    ----------
    table : AnnotationTable
        Observed annotations only.
    labels : integer array of shape (n_instances,)
        Code of the true (or inferred) class of each instance, -1 where unknown.

    Returns
    -------
    array of shape (n_classes, n_classes)
        Entry [true, given]: among annotators with at least one annotation, the share who gave
        ``given`` to an instance of class ``true`` at least once. The diagonal is the share who got
        the class right at least once.

    References
    ----------
    Chu, Ma & Wang (AAAI 2021), Fig. 1: 61.0 % of LabelMe's annotators label street as inside
    city.

    Raises
    ------
    AnnotationError
        If ``labels`` are not one integer code per instance, or a code is not that of a class.
    """
    labels = np.asarray(labels)
    if labels.shape != (table.n_instances,) or labels.dtype.kind not in "iu":
        raise AnnotationError(
            f"labels has shape {labels.shape} and type {labels.dtype}; it must hold one integer "
            f"class code per instance, shape ({table.n_instances},), with -1 where unknown"
        )
    if len(labels) and (labels.min() < -1 or labels.max() >= table.n_classes):
        raise AnnotationError(
            f"labels ranges from {labels.min()} to {labels.max()}; use class codes from 0 to "
            f"{table.n_classes - 1}, and -1 where unknown"
        )
    observed = table.observed
    known = labels[observed.instance] >= 0
    true, given = labels[observed.instance][known], observed.label[known]
    c = table.n_classes
    flat = (observed.annotator[known].astype(np.int64) * c + true) * c + given
    confusions = np.unique(flat) % (c * c)
    n_active = len(np.unique(observed.annotator))
    return np.bincount(confusions, minlength=c * c).reshape(c, c) / max(n_active, 1)
