"""The loss of a wrong label: 0 or 1 for names of classes, and the distance in grades for grades.

Plans and review queues minimise the expected loss defined here. The best label is the most probable
class of names, and a median of grades.
"""

from __future__ import annotations

import numpy as np

from manyhands.typing import FloatArray, IntArray


def expected_loss(posterior: FloatArray, codes: IntArray, *, ordered: bool = False) -> FloatArray:
    """Return the expected loss of given labels.

    Parameters
    ----------
    posterior : array of shape (n, n_classes)
    codes : integer array of shape (n,)
    ordered : bool
        Whether the classes are grades in their order.

    Returns
    -------
    array of shape (n,)
        For names, the probability that the label is wrong; for grades, its expected distance from
        the truth in grades.

    Examples
    --------
    >>> import numpy as np
    >>> q, label = np.array([[0.2, 0.5, 0.3, 0.0], [0.3, 0.5, 0.0, 0.2]]), np.array([1, 1])
    >>> expected_loss(q, label), expected_loss(q, label, ordered=True)
    (array([0.5, 0.5]), array([0.5, 0.7]))
    """
    if not ordered:
        return np.asarray(1.0 - posterior[np.arange(len(posterior)), codes])
    apart = np.abs(np.arange(posterior.shape[1]) - codes[:, None])
    return np.asarray((posterior * apart).sum(axis=1))


def best_value(p: FloatArray, axis: int = -1, *, ordered: bool = False) -> FloatArray:
    """Return the value of the best decision along an axis of (joint) probabilities.

    Parameters
    ----------
    p : array
        Probabilities of the classes along ``axis``, which need not sum to 1.
    axis : int
    ordered : bool
        Whether the classes are grades in their order.

    Returns
    -------
    array without ``axis``
        For names, the probability of the most probable class; for grades, minus the expected
        distance of a median from the truth. Differences of values are gains.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([0.2, 0.5, 0.3])
    >>> float(best_value(p)), float(best_value(p, ordered=True))
    (0.5, -0.5)
    """
    if not ordered:
        return np.asarray(p.max(axis=axis))
    below = np.moveaxis(p, axis, -1).cumsum(axis=-1)
    # The expected distance from a median is the sum, over all steps between neighbouring grades, of
    # the probability on the smaller side of the step.
    return np.asarray(-np.minimum(below, below[..., -1:] - below)[..., :-1].sum(axis=-1))
