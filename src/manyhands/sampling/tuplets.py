"""n-tuplets: an anchor, an instance of its class, and instances of other classes (NeuCrowd).

.. [1] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
.. [2] K. Sohn. Improved deep metric learning with multi-class n-pair loss objective. NIPS 2016.
"""

from __future__ import annotations

import numpy as np
from sklearn.neighbors import NearestNeighbors

from manyhands.exceptions import AnnotationError
from manyhands.typing import BoolArray, FloatArray, IntArray

SURE = 1e-9
"""Sums of assurances closer than this are equal: they differ by rounding."""

LEAST_SHARE = 1e-9
"""Weight an instance has at the least, as a share of its class's."""


def safe_instances(
    embedding: FloatArray,
    labels: IntArray,
    assurance: FloatArray,
    *,
    n_neighbors: int,
    margin: float = 0.0,
) -> BoolArray:
    r"""Which instances are safe: their neighbourhood vouches for their class [1]_.

    Of the ``n_neighbors`` nearest neighbours of an instance (without itself, Euclidean distance),
    those of its own class must have a sum of assurances greater than that of any other class, by
    more than the margin: :math:`\sum_{p \in N^+} A(e_p) > \sum_{q \in N^-} A(e_q) + \delta`
    (Def. 3). With two classes "any other class" is the other one.

    Parameters
    ----------
    embedding : array of shape (n, d)
    labels : integer array of shape (n,)
        Class codes.
    assurance : array of shape (n,)
        See `manyhands.annotations.label_assurance`.
    n_neighbors : int
        k; of n instances n - 1 at the most.
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
    A zero among ones is not safe, and none of them is kept from being so by it:

    >>> place = np.array([[0.0], [1.0], [2.0], [1.5], [9.0], [10.0], [11.0]])
    >>> labels = np.array([1, 1, 1, 0, 0, 0, 0])
    >>> safe_instances(place, labels, np.ones(7), n_neighbors=3)
    array([ True,  True,  True, False,  True,  True,  True])
    """
    n = len(embedding)
    if n_neighbors < 1 or n < 2:
        raise AnnotationError(
            f"n_neighbors={n_neighbors} of {n} instances: there must be one neighbour at least"
        )
    k = min(n_neighbors, n - 1)
    # Without a query an instance is not its own neighbour, even where others lie upon it.
    _, near = NearestNeighbors(n_neighbors=k).fit(embedding).kneighbors()
    support = np.zeros((n, int(labels.max()) + 1))
    rows = np.repeat(np.arange(n), k)
    np.add.at(support, (rows, labels[near.ravel()]), assurance[near.ravel()])
    every = np.arange(n)
    own = support[every, labels]
    support[every, labels] = -np.inf
    safe: BoolArray = own > support.max(axis=1, initial=0.0) + margin + SURE
    return safe


class TupletSampler:
    """Draws n-tuplets of the instances of two or more classes [1]_, [2]_.

    The class of a tuplet is uniform among those of two members or more, so that every class has
    its anchors; anchor and positive are of it, and not the same instance; the negatives are of
    other classes. Instances are drawn by their weights, with replacement, hundreds of thousands of
    tuplets at once.

    Parameters
    ----------
    labels : integer array of shape (n,)
        Class codes; -1 for instances that are not to be drawn.
    size : int, default=5
        Instances of a tuplet, n in the paper: anchor, positive and ``size - 2`` negatives.

    Raises
    ------
    AnnotationError
        If the size is less than 3, there is one class only, or no class has two instances.

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
                f"size={size}: a tuplet has an anchor, a positive and a negative, so 3 or more"
            )
        self.labels = labels
        self.size = size
        # Instances by class, so that a class is a stretch of them.
        drawn = np.flatnonzero(labels >= 0)
        self._order = drawn[np.argsort(labels[drawn], kind="stable")]
        self._count = np.bincount(labels[drawn], minlength=1)
        self._start = np.cumsum(self._count) - self._count
        self._paired = np.flatnonzero(self._count >= 2)
        if (self._count > 0).sum() < 2:
            raise AnnotationError(
                "labels hold one class only; a tuplet needs a negative of another"
            )
        if not len(self._paired):
            raise AnnotationError(
                "no class has two instances, so that no anchor has a positive; label more instances"
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
            Weight of every instance, 0 or more; default: equal ones. Where those of a class are
            all 0, its instances are drawn as if they were equal.

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
        places = np.empty((n_tuplets, self.size), dtype=np.int64)
        places[:, 0] = self._places(line, first, end, rng)
        places[:, 1] = self._others(line, places[:, 0], first, end, rng)
        # What is left of the line without the tuplet's own class.
        gap = (line[end] - line[first])[:, None]
        point = rng.random((n_tuplets, self.size - 2)) * (line[-1] - gap)
        point += np.where(point >= line[first][:, None], gap, 0.0)
        negatives = np.searchsorted(line, point, side="right") - 1
        negatives = np.minimum(negatives, len(self._order) - 1)
        # Rounding at the edge of a stretch must not put one of the class among them.
        own = (negatives >= first[:, None]) & (negatives < end[:, None])
        beside = np.where(first > 0, first - 1, end)[:, None]
        places[:, 2:] = np.where(own, beside, negatives)
        return self._order[places]

    def _line(self, weights: FloatArray | None) -> FloatArray:
        """Ends of the stretches of a line that the instances take up by their weights."""
        weight = np.ones(len(self._order))
        if weights is not None:
            weight = np.asarray(weights, dtype=np.float64)[self._order]
            wrong = self._order[~((weight >= 0) & np.isfinite(weight))]
            if len(wrong):
                raise AnnotationError(
                    f"weights[{wrong[0]}] is {weights[wrong[0]]}; give 0 or a positive number"
                )
            # A class of no weight at all is drawn from as if there were none; a weight of next to
            # nothing keeps every instance possible, and every stretch of the line longer than 0.
            mass = np.add.reduceat(weight, self._start[self._count > 0])
            top = np.repeat(mass, self._count[self._count > 0])
            weight = np.where(top > 0, np.maximum(weight, LEAST_SHARE * top), 1.0)
        return np.concatenate([[0.0], np.cumsum(weight)])

    @staticmethod
    def _places(
        line: FloatArray, first: IntArray, end: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """Draw a place of every class's stretch of the line."""
        point = line[first] + rng.random(len(first)) * (line[end] - line[first])
        # Rounding may put the point at the end, where the next class begins.
        return np.clip(np.searchsorted(line, point, side="right") - 1, first, end - 1)

    def _others(
        self,
        line: FloatArray,
        places: IntArray,
        first: IntArray,
        end: IntArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Draw a place of the same class that is not the one given."""
        taken = line[places + 1] - line[places]
        point = line[first] + rng.random(len(places)) * (line[end] - line[first] - taken)
        point += np.where(point >= line[places], taken, 0.0)
        other = np.clip(np.searchsorted(line, point, side="right") - 1, first, end - 1)
        beside = np.where(places > first, places - 1, places + 1)
        return np.where(other == places, beside, other)
