"""Intervals for proportions.

References
----------
.. [1] L. D. Brown, T. T. Cai and A. DasGupta. Interval estimation for a binomial proportion.
   Statistical Science 16(2), 2001, sections 3.1 (Jeffreys interval) and 4.1.2 (its ends).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betaincinv

from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray


def beta_interval(a: Any, b: Any, *, level: float) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of the central interval of Beta(a, b), each shaped like ``a``.

    With ``a`` = successes + 1/2 and ``b`` = failures + 1/2 it is the Jeffreys interval of a
    proportion [1]_.

    Raises
    ------
    AnnotationError
        If ``level`` is outside (0, 1).
    """
    if not 0 < level < 1:
        raise AnnotationError(f"level={level!r} must lie between 0 and 1, such as 0.95")
    tail = (1 - level) / 2
    lower, upper = (np.asarray(betaincinv(a, b, p), dtype=np.float64) for p in (tail, 1 - tail))
    return lower, upper


def share_interval(right: Any, n: Any, *, level: float) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of the modified Jeffreys interval, each shaped like ``right``.

    Jeffreys' interval is too short if all or none of n items are right, or all but one, or one. So
    with no wrong item, its lower end is the share for which n items are all right with probability
    (1 - ``level``) / 2; with at most one wrong item, its upper end is 1; and likewise at 0 [1]_.

    Parameters
    ----------
    right, n : array-like
        Number of right items, and number of items; effective numbers need not be whole.
    level : float in (0, 1)
        Coverage.

    Raises
    ------
    AnnotationError
        If ``level`` is outside (0, 1).
    """
    right, n = np.asarray(right, dtype=np.float64), np.asarray(n, dtype=np.float64)
    wrong = n - right
    low, high = beta_interval(right + 0.5, wrong + 0.5, level=level)
    end = ((1 - level) / 2) ** (1 / np.maximum(n, 1e-9))
    low = np.where(wrong < 0.5, end, np.where(right < 1.5, 0.0, low))
    high = np.where(right < 0.5, 1 - end, np.where(wrong < 1.5, 1.0, high))
    return np.minimum(low, 1.0), np.maximum(high, 0.0)
