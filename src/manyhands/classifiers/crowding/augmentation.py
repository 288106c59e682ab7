"""Cells that nobody annotated: which there are, which are taken, and how labels hang together."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.training import CrowdBatch
from manyhands.typing import FloatArray

CLIP = 1e-4
"""Probabilities are kept this far from 0 and 1 before their entropy is inverted, as released."""

LEAST_CORRELATION = 0.1
"""Nats of dependence from which on labels count as correlated; see `label_correlation`."""


class Cells:
    """Cells (instance, annotator) of batches, and whether somebody filled or passed them.

    Parameters
    ----------
    table : AnnotationTable
    per_instance : int or None
        Annotators drawn at random for every instance; None: all who annotated anything.
    device : torch.device
    """

    def __init__(
        self, table: AnnotationTable, per_instance: int | None, device: torch.device
    ) -> None:
        heard = np.flatnonzero(table.annotations_per_annotator() > 0)
        self.n_annotators = table.n_annotators
        self.closed = torch.zeros(0, dtype=torch.int64, device=device)
        self.close(table)
        self.annotators = torch.from_numpy(heard).to(device)
        self.per_instance = per_instance

    def close(self, table: AnnotationTable) -> None:
        """Count the cells of a table as filled or passed, too."""
        passes = np.zeros((0, 3), dtype=np.int64) if table.passes is None else table.passes
        instance = np.concatenate([table.instance, passes[:, 0]]).astype(np.int64)
        key = instance * self.n_annotators + np.concatenate([table.annotator, passes[:, 1]])
        more = torch.from_numpy(key.astype(np.int64)).to(self.closed.device)
        self.closed = torch.cat([self.closed, more]).unique()  # type: ignore[no-untyped-call]

    def of(self, instances: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (into ``instances``) and annotators of the cells of a batch, shapes (m,)."""
        n, pool = len(instances), self.annotators
        rows = torch.arange(n, device=pool.device)
        if self.per_instance is None or self.per_instance >= len(pool):
            return rows.repeat_interleave(len(pool)), pool.repeat(n)
        # One of each of k equal parts of a random order: all different, all equally probable, and
        # no sorting of all annotators for every instance.
        size, k = len(pool), self.per_instance
        bounds = torch.arange(k + 1, device=pool.device) * size // k
        width = bounds[1:] - bounds[:-1]
        place = bounds[:-1] + (torch.rand(n, k, device=pool.device) * width).long()
        shuffled = pool[torch.randperm(size, device=pool.device)]
        # A product may round up to the next part's first.
        drawn = shuffled[torch.minimum(place, bounds[1:] - 1)].sort(dim=1).values
        return rows.repeat_interleave(self.per_instance), drawn.flatten()

    def are_open(self, instances: Tensor, annotators: Tensor) -> Tensor:
        """Whether nobody annotated or passed these cells, shape (m,)."""
        key = instances * self.n_annotators + annotators
        place = torch.searchsorted(self.closed, key).clamp_max(len(self.closed) - 1)
        return self.closed[place] != key


def observed_per_annotator(batch: CrowdBatch, n_annotators: int) -> Tensor:
    """Count the batch's annotations of every annotator, shape (n_annotators,)."""
    return torch.bincount(batch.annotators, minlength=n_annotators)


def clipped_entropy(proba: Tensor) -> Tensor:
    """Entropy of distributions (m, c) in nats, of probabilities within `CLIP` of 0 and 1: (m,)."""
    clipped = proba.clamp(CLIP, 1 - CLIP)
    return -(clipped * clipped.log()).sum(dim=1)


def select_certain(
    uncertainty: Tensor, annotators: Tensor, quotas: Tensor, *, uniform: bool = False
) -> Tensor:
    """Draw cells with probability proportional to 1/H, without replacement, per annotator.

    A draw of k of weights w without replacement takes those with the largest u^(1/w), u uniform
    (Efraimidis & Spirakis 2006); or, as 1/w is the entropy H and -log u exponential, those with
    the smallest product of H and an exponential.

    Parameters
    ----------
    uncertainty : tensor of shape (m,)
        H of every cell.
    annotators : integer tensor of shape (m,)
    quotas : integer tensor of shape (n_annotators,)
        Cells drawn of every annotator; all there are where there are fewer.
    uniform : bool
        Draw with equal probability instead (the paper's variant R).

    Returns
    -------
    integer tensor of shape (k,)
        The chosen cells, in order.
    """
    key = torch.empty_like(uncertainty).exponential_()
    if not uniform:
        key = key * uncertainty
    by_key = key.argsort()
    order = by_key[annotators[by_key].argsort(stable=True)]
    counts = torch.bincount(annotators, minlength=len(quotas))
    first = counts.cumsum(0) - counts
    own = annotators[order]
    nth = torch.arange(len(order), device=order.device) - first[own]
    return order[nth < quotas[own]].sort().values


def label_cooccurrence(table: AnnotationTable) -> FloatArray:
    """Count the pairs of different labels given to one instance, shape (n_classes, n_classes).

    Symmetric, with a diagonal of zeros; weights do not count.

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
    """How far disagreements are from falling on any two labels by their frequencies, in nats.

    The Kullback-Leibler divergence of the shares of pairs of labels from those expected if one
    label's partners were drawn by a frequency of their own (quasi-independence: a_i a_j off the
    diagonal, fitted to the sums), less what it would be by chance. 0 for two classes.

    Parameters
    ----------
    counts : array of shape (n_classes, n_classes)
        See `label_cooccurrence`.
    """
    pairs, n_classes = counts.sum() / 2, int((counts.sum(axis=1) > 0).sum())
    freedom = n_classes * (n_classes - 3) / 2
    if freedom <= 0 or not pairs:
        return 0.0
    sums = counts.sum(axis=1)
    own = sums / np.sqrt(sums.sum())
    for _ in range(200):
        expected = _off_diagonal(own)
        fitted = expected.sum(axis=1)
        own = own * np.sqrt(np.divide(sums, fitted, out=np.zeros_like(sums), where=fitted > 0))
    expected, seen = _off_diagonal(own), counts > 0
    divergence = (counts[seen] * np.log(counts[seen] / expected[seen])).sum() / counts.sum()
    return float(max(0.0, divergence - freedom / (2 * pairs)))


def _off_diagonal(own: FloatArray) -> FloatArray:
    product: FloatArray = np.outer(own, own)
    np.fill_diagonal(product, 0.0)
    return product
