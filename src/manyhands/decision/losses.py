"""What a wrong label costs: names of classes are right or wrong, and grades are so many grades off.

Whatever is planned or reviewed first rests on the loss that is defined here. It follows from the
scale: of names it is 1 for every wrong class; of grades in their order it is the distance in
grades, whose least expectation a median has.
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
        Of names the probability that the label is wrong; of grades the expected number of grades
        between it and the truth.

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
        Of names the probability of the most probable class; of grades minus the expected distance
        of a median from the truth.

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
    # Between two neighbouring grades, whichever side has less is on the wrong one.
    return np.asarray(-np.minimum(below, below[..., -1:] - below)[..., :-1].sum(axis=-1))
