"""Intervals for proportions.

References
----------
.. [1] L. D. Brown, T. T. Cai and A. DasGupta. Interval estimation for a binomial proportion.
   Statistical Science 16(2), 2001, section 3.1 (Jeffreys interval).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betaincinv

from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray


def beta_interval(a: Any, b: Any, *, level: float) -> tuple[FloatArray, FloatArray]:
    """Bounds of the central interval of Beta(a, b) with mass ``level``, each shaped like ``a``.

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
