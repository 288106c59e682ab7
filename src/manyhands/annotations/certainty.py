"""Agreement among the annotators of each instance, as measured by ICED and NeuCrowd.

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
.. [2] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from manyhands.annotations.table import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.typing import BoolArray, FloatArray, IntArray

SMOOTHING = 0.5
"""Pseudo-votes per class if instances have unequal numbers of votes: the Jeffreys prior."""


def label_certainty(
    table: AnnotationTable, *, epsilon: float = 0.1, smoothing: float | str = "auto"
) -> FloatArray:
    r"""Return the label certainty of each instance: how little its annotations vary [1]_.

    :math:`S_i = 1 / (E_u \|y_{iu} - E_u y_{iu}\|^2 + \epsilon)` (Eq. 2.4), with labels as one-hot
    vectors: :math:`1 / (1 - \sum_c p_{ic}^2 + \epsilon)`, where :math:`p_{ic}` is the share of
    class c among the instance's annotations (by their weights).

    Parameters
    ----------
    table : AnnotationTable
    epsilon : float, default=0.1
        Limits the certainty of unanimous instances to 1 / epsilon. The paper gives no value.
    smoothing : float or "auto", default="auto"
        Pseudo-votes added to each class before the shares are computed, so that a single vote is
        less certain than five equal ones. "auto": 0 if all instances have the same number of
        annotations (as in the paper), 0.5 otherwise.

    Returns
    -------
    array of shape (n_instances,)
        NaN for instances without annotations.

    Raises
    ------
    AnnotationError
        If a parameter is out of range.

    References
    ----------
    .. [1] ICED, SDM 2022, Definition 2, Eq. 2.4.

    Examples
    --------
    >>> from manyhands import AnnotationTable
    >>> table = AnnotationTable.from_matrix([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 0]])
    >>> label_certainty(table).round(2)
    array([10.  ,  2.11,  1.67])
    """
    if not _is_number(epsilon) or not 0 < epsilon < np.inf:
        raise AnnotationError(f"epsilon={epsilon!r} must be a positive number, such as 0.1")
    shares = _shares(table, smoothing, auto=SMOOTHING)
    certainty: FloatArray = 1.0 / (1.0 - np.square(shares).sum(axis=1) + epsilon)
    return certainty


def label_assurance(table: AnnotationTable, *, smoothing: float | str = "auto") -> FloatArray:
    r"""Return the label assurance of each instance: how clear its majority is [2]_.

    :math:`A_i = |1 - \frac{2}{d} \|y_i\|_1|` for two classes and d votes (Def. 2). For C classes it
    is :math:`(C p_i - 1) / (C - 1)`, where :math:`p_i` is the share of the class with most votes
    (by their weights). With two classes, both formulas agree. The assurance is 1 for a unanimous
    instance, and 0 if all classes have equal votes.

    Parameters
    ----------
    table : AnnotationTable
    smoothing : float or "auto", default="auto"
        Pseudo-votes added to each class before the shares are computed, so that a single vote gives
        less assurance than five equal ones. "auto": 0 if all instances have the same number of
        annotations (as in the paper); otherwise 1 / C per class, one in total, which multiplies the
        assurance of d votes by d / (d + 1) for any number of classes.

    Returns
    -------
    array of shape (n_instances,)
        In [0, 1]; NaN for instances without annotations.

    Raises
    ------
    AnnotationError
        If ``smoothing`` is out of its range.

    References
    ----------
    .. [2] Hao, Ding & Liu, NeuCrowd, Knowledge and Information Systems 2022, Definition 2.

    Examples
    --------
    >>> from manyhands import AnnotationTable
    >>> table = AnnotationTable.from_matrix([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, -1]])
    >>> label_assurance(table, smoothing=0).round(2)
    array([1. , 0.2, 0. ])
    """
    shares = _shares(table, smoothing, auto=1 / max(1, table.n_classes))
    n_classes = shares.shape[1]
    if n_classes < 2:
        return np.where(np.isnan(shares[:, 0]), np.nan, 1.0)
    assurance: FloatArray = (n_classes * shares.max(axis=1) - 1) / (n_classes - 1)
    # Rounding errors may put equal shares outside [0, 1].
    return np.clip(assurance, 0.0, 1.0)


def _shares(table: AnnotationTable, smoothing: float | str, *, auto: float) -> FloatArray:
    """Return the share of each class per instance, (n, n_classes); NaN without annotations."""
    if smoothing == "auto":
        smoothing = 0.0 if has_equal_counts(table) else auto
    if not _is_number(smoothing) or not 0 <= float(smoothing) < np.inf:
        raise AnnotationError(f"smoothing={smoothing!r} must be 'auto' or a number, 0 or more")
    counts = table.vote_counts()
    given = counts.sum(axis=1, keepdims=True)
    counts = np.where(given > 0, counts + float(smoothing), np.nan)
    shares: FloatArray = counts / counts.sum(axis=1, keepdims=True)
    return shares


def certainty_groups(certainty: FloatArray, n_groups: int = 3, *, by: str = "levels") -> IntArray:
    """Group instances by certainty: the ``n_groups`` highest levels, and the rest [1]_.

    Parameters
    ----------
    certainty : array of shape (n_instances,)
        NaN for instances without annotations.
    n_groups : int, default=3
        The default is the paper's: highest, second-highest and third-highest.
    by : {"levels", "quantiles"}, default="levels"
        "levels": each of the highest distinct values is a group. With W votes per instance there
        are about W / 2 levels. "quantiles": ``n_groups + 1`` parts of about equal size, with equal
        values in the same part; for varying numbers of votes, which give too many levels.

    Returns
    -------
    integer array of shape (n_instances,)
        ``n_groups`` for the most certain instances, then down to 1; 0 for those below, and for
        those without annotations. With ``n_groups`` levels or fewer, the lowest level is 0 and only
        the top groups are used; a single level is the highest group.

    Raises
    ------
    AnnotationError
        If a parameter is unknown or out of range.

    Examples
    --------
    >>> certainty_groups(np.array([10.0, 5.0, 2.0, 1.5, 1.0, 10.0]))
    array([3, 2, 1, 0, 0, 3])
    >>> certainty_groups(np.array([10.0, 2.0, 10.0]))
    array([3, 0, 3])
    """
    if not isinstance(n_groups, Integral) or n_groups < 1:
        raise AnnotationError(f"n_groups={n_groups!r} must be a whole number, 1 or more")
    if by not in ("levels", "quantiles"):
        raise AnnotationError(f"by={by!r} is unknown; use 'levels' or 'quantiles'")
    groups = np.zeros(len(certainty), dtype=np.int64)
    known: BoolArray = ~np.isnan(certainty)
    if not known.any():
        return groups
    # Equal shares of different classes differ by rounding errors.
    levels, level, counts = np.unique(
        np.round(np.log(certainty[known]), 9), return_inverse=True, return_counts=True
    )
    if by == "levels" or len(levels) <= n_groups:
        order = np.arange(len(levels))
    else:
        middle = (np.cumsum(counts) - counts / 2) / counts.sum()
        parts = np.minimum((middle * (n_groups + 1)).astype(np.int64), n_groups)
        # A level with many instances may leave parts empty.
        order = np.unique(parts, return_inverse=True)[1]
    # Number from the top; the lowest level is 0 unless it is the only one.
    group_of_level = np.maximum(n_groups - (order[-1] - order), 0)
    if order[-1] > 0:
        group_of_level[order == 0] = 0
    groups[known] = group_of_level[level]
    return groups


def has_equal_counts(table: AnnotationTable) -> bool:
    """Return whether all annotated instances have the same number of annotations."""
    given = table if table.weights is None else table.take(table.weights > 0)
    counts = given.annotations_per_instance()
    return len(np.unique(counts[counts > 0])) <= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
