"""n-tuplets: an anchor, an instance of its class, and instances of other classes (NeuCrowd).

.. [1] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
.. [2] K. Sohn. Improved deep metric learning with multi-class n-pair loss objective. NIPS 2016.
"""

from __future__ import annotations

import numpy as np

from manyhands.exceptions import AnnotationError
from manyhands.typing import BoolArray, FloatArray, IntArray

ROUNDING = 1e-9
"""Sums of assurances that differ by less count as equal: the difference is a rounding error."""

LEAST_SHARE = 1e-9
"""Minimal weight of an instance, as a share of its class's weight."""


def safe_instances(
    embedding: FloatArray,
    labels: IntArray,
    assurance: FloatArray,
    *,
    n_neighbors: int,
    margin: float = 0.0,
) -> BoolArray:
    r"""Mark the instances whose neighbourhood supports their class [1]_.

    Among the ``n_neighbors`` nearest neighbours of an instance (without itself, by Euclidean
    distance), the sum of assurances of its own class must exceed that of any other class by more
    than the margin: :math:`\sum_{p \in N^+} A(e_p) > \sum_{q \in N^-} A(e_q) + \delta` (Def. 3).

    Parameters
    ----------
    embedding : array of shape (n, d)
    labels : integer array of shape (n,)
        Class codes.
    assurance : array of shape (n,)
        See `manyhands.annotations.label_assurance`.
    n_neighbors : int
        k; at most n - 1.
    margin : float, default=0.0
        :math:`\delta`, in the unit of the assurance.

    Returns
    -------
    boolean array of shape (n,)

    Raises
    ------
    AnnotationError
        If n_neighbors is not positive, or there are fewer than two instances.

    Examples
    --------
    A zero among ones is not safe, and the ones are safe in spite of it:

    >>> points = np.array([[0.0], [1.0], [2.0], [1.5], [9.0], [10.0], [11.0]])
    >>> labels = np.array([1, 1, 1, 0, 0, 0, 0])
    >>> safe_instances(points, labels, np.ones(7), n_neighbors=3)
    array([ True,  True,  True, False,  True,  True,  True])
    """
    from sklearn.neighbors import NearestNeighbors

    n = len(embedding)
    if n_neighbors < 1 or n < 2:
        raise AnnotationError(
            f"n_neighbors={n_neighbors} among {n} instances gives no neighbour; use at least 1 "
            "neighbour and 2 instances"
        )
    k = min(n_neighbors, n - 1)
    # Without a query, an instance is not its own neighbour, even if it has duplicates.
    _, near = NearestNeighbors(n_neighbors=k).fit(embedding).kneighbors()
    support = np.zeros((n, int(labels.max()) + 1))
    rows = np.repeat(np.arange(n), k)
    np.add.at(support, (rows, labels[near.ravel()]), assurance[near.ravel()])
    instances = np.arange(n)
    own = support[instances, labels]
    support[instances, labels] = -np.inf
    safe: BoolArray = own > support.max(axis=1, initial=0.0) + margin + ROUNDING
    return safe


class TupletSampler:
    """Draw n-tuplets of instances of two or more classes [1]_, [2]_.

    The class of a tuplet is drawn uniformly from the classes with at least two members, so that all
    of these have anchors. Anchor and positive are different instances of this class; the negatives
    are of other classes. Instances are drawn by their weights, with replacement, hundreds of
    thousands of tuplets at once.

    Parameters
    ----------
    labels : integer array of shape (n,)
        Class codes; -1 for instances not to draw.
    size : int, default=5
        Number of instances in a tuplet, n in the paper: anchor, positive and ``size - 2``
        negatives.

    Raises
    ------
    AnnotationError
        If the size is less than 3, there is only one class, or no class has two instances.

    Examples
    --------
    >>> sampler = TupletSampler(np.array([0, 0, 1, 1, 1]), size=4)
    >>> tuplets = sampler.draw(1000, np.random.default_rng(0))
    >>> tuplets.shape
    (1000, 4)
    >>> classes = sampler.labels[tuplets]
    >>> bool((classes[:, 0] == classes[:, 1]).all() and (tuplets[:, 0] != tuplets[:, 1]).all())
    True
    >>> bool((classes[:, 2:] != classes[:, :1]).all())
    True
    """

    def __init__(self, labels: IntArray, size: int = 5) -> None:
        if size < 3:
            raise AnnotationError(
                f"size={size} is too small for an anchor, a positive and a negative; give 3 or more"
            )
        self.labels = labels
        self.size = size
        # Instances sorted by class: each class is an interval of positions.
        drawn = np.flatnonzero(labels >= 0)
        self._order = drawn[np.argsort(labels[drawn], kind="stable")]
        self._count = np.bincount(labels[drawn], minlength=1)
        self._start = np.cumsum(self._count) - self._count
        self._paired = np.flatnonzero(self._count >= 2)
        if (self._count > 0).sum() < 2:
            raise AnnotationError(
                "labels have one class only, but a tuplet needs a negative of another class; "
                "label more instances"
            )
        if not len(self._paired):
            raise AnnotationError(
                "no class has two instances, so no anchor has a positive; label more instances"
            )

    def draw(
        self, n_tuplets: int, rng: np.random.Generator, weights: FloatArray | None = None
    ) -> IntArray:
        """Draw tuplets.

        Parameters
        ----------
        n_tuplets : int
        rng : numpy Generator
        weights : array of shape (n,), optional
            Weight of each instance, 0 or more; default: all equal. If the weights of a class are
            all 0, its instances are drawn with equal weights.

        Returns
        -------
        integer array of shape (n_tuplets, size)
            Row numbers: anchor, positive, negatives.

        Raises
        ------
        AnnotationError
            If a weight is negative or not finite.
        """
        line = self._line(weights)
        classes = self._paired[rng.integers(len(self._paired), size=n_tuplets)]
        first = self._start[classes]
        end = first + self._count[classes]
        positions = np.empty((n_tuplets, self.size), dtype=np.int64)
        positions[:, 0] = self._draw_positions(line, first, end, rng)
        positions[:, 1] = self._draw_other_positions(line, positions[:, 0], first, end, rng)
        # Draw a point from the line, from which the interval of the tuplet's own class is cut out.
        gap = (line[end] - line[first])[:, None]
        point = rng.random((n_tuplets, self.size - 2)) * (line[-1] - gap)
        point += np.where(point >= line[first][:, None], gap, 0.0)
        negatives = np.searchsorted(line, point, side="right") - 1
        negatives = np.minimum(negatives, len(self._order) - 1)
        # Rounding at an end of the interval must not make an instance of the class a negative.
        own = (negatives >= first[:, None]) & (negatives < end[:, None])
        neighbour = np.where(first > 0, first - 1, end)[:, None]
        positions[:, 2:] = np.where(own, neighbour, negatives)
        return self._order[positions]

    def _line(self, weights: FloatArray | None) -> FloatArray:
        """Return the cumulative weights: the ends of the instances' intervals on a line."""
        weight = np.ones(len(self._order))
        if weights is not None:
            weight = np.asarray(weights, dtype=np.float64)[self._order]
            wrong = self._order[~((weight >= 0) & np.isfinite(weight))]
            if len(wrong):
                raise AnnotationError(
                    f"weights[{wrong[0]}] is {weights[wrong[0]]}; give 0 or a positive number"
                )
            # A class without weight is drawn from with equal weights. The minimal weight keeps each
            # instance possible, and each interval of the line longer than 0.
            mass = np.add.reduceat(weight, self._start[self._count > 0])
            top = np.repeat(mass, self._count[self._count > 0])
            weight = np.where(top > 0, np.maximum(weight, LEAST_SHARE * top), 1.0)
        return np.concatenate([[0.0], np.cumsum(weight)])

    @staticmethod
    def _draw_positions(
        line: FloatArray, first: IntArray, end: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """Draw a position from each of the intervals from ``first`` to ``end``."""
        point = line[first] + rng.random(len(first)) * (line[end] - line[first])
        # Rounding may put the point at the end, where the next class begins.
        return np.clip(np.searchsorted(line, point, side="right") - 1, first, end - 1)

    def _draw_other_positions(
        self,
        line: FloatArray,
        positions: IntArray,
        first: IntArray,
        end: IntArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Draw a position of the same class other than the given one."""
        taken = line[positions + 1] - line[positions]
        point = line[first] + rng.random(len(positions)) * (line[end] - line[first] - taken)
        point += np.where(point >= line[positions], taken, 0.0)
        other = np.clip(np.searchsorted(line, point, side="right") - 1, first, end - 1)
        neighbour = np.where(positions > first, positions - 1, positions + 1)
        return np.where(other == positions, neighbour, other)
