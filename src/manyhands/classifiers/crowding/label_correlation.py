"""Correlation of labels: concentration of the disagreements on some pairs of labels."""

from __future__ import annotations

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.typing import FloatArray

LEAST_CORRELATION = 0.1
"""Least `label_correlation`, in nats, at which labels count as correlated."""


def label_cooccurrence(table: AnnotationTable) -> FloatArray:
    """Count pairs of different labels given to the same instance, shape (n_classes, n_classes).

    The matrix is symmetric, with zeros on the diagonal. Weights do not count.

    Examples
    --------
    >>> A = np.array([[0, 0, 1], [1, 2, -1]])
    >>> label_cooccurrence(AnnotationTable.from_matrix(A)).tolist()
    [[0.0, 2.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    flat = table.instance.astype(np.int64) * table.n_classes + table.label
    size = table.n_instances * table.n_classes
    votes = np.bincount(flat, minlength=size).astype(np.float64)
    votes = votes.reshape(table.n_instances, table.n_classes)
    counts: FloatArray = votes.T @ votes
    np.fill_diagonal(counts, 0.0)
    return counts


def label_correlation(counts: FloatArray) -> float:
    """Return the concentration of disagreements on some pairs of labels, in nats.

    This is the Kullback-Leibler divergence of the shares of label pairs from the shares expected
    under quasi-independence (a_i a_j off the diagonal, fitted to the sums), minus its expectation
    by chance. It is 0 for two classes.

    Parameters
    ----------
    counts : array of shape (n_classes, n_classes)
        See `label_cooccurrence`.

    Returns
    -------
    float
    """
    pairs, n_classes = counts.sum() / 2, int((counts.sum(axis=1) > 0).sum())
    degrees_of_freedom = n_classes * (n_classes - 3) / 2
    if degrees_of_freedom <= 0 or not pairs:
        return 0.0
    sums = counts.sum(axis=1)
    factors = sums / np.sqrt(sums.sum())
    for _ in range(200):
        expected = _products_off_diagonal(factors)
        fitted = expected.sum(axis=1)
        ratio = np.divide(sums, fitted, out=np.zeros_like(sums), where=fitted > 0)
        factors = factors * np.sqrt(ratio)
    expected, seen = _products_off_diagonal(factors), counts > 0
    divergence = (counts[seen] * np.log(counts[seen] / expected[seen])).sum() / counts.sum()
    return float(max(0.0, divergence - degrees_of_freedom / (2 * pairs)))


def _products_off_diagonal(factors: FloatArray) -> FloatArray:
    product: FloatArray = np.outer(factors, factors)
    np.fill_diagonal(product, 0.0)
    return product
