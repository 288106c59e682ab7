"""Cells (instance, annotator): which of them are open, and which generated ones are selected."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.training import CrowdBatch

CLIP = 1e-4
"""Probabilities are kept this far from 0 and 1 before their entropy is inverted, as in the released
code."""


class Cells:
    """Cells (instance, annotator) of batches, and whether they are open.

    A cell is open if the annotator neither annotated nor passed the instance.

    Parameters
    ----------
    table : AnnotationTable
    per_instance : int or None
        Number of annotators drawn at random for every instance; None takes all who annotated
        anything.
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
        """Close the cells that a table annotates or passes, too."""
        passes = np.zeros((0, 3), dtype=np.int64) if table.passes is None else table.passes
        instance = np.concatenate([table.instance, passes[:, 0]]).astype(np.int64)
        key = instance * self.n_annotators + np.concatenate([table.annotator, passes[:, 1]])
        closed = torch.from_numpy(key.astype(np.int64)).to(self.closed.device)
        self.closed = torch.cat([self.closed, closed]).unique()  # type: ignore[no-untyped-call]

    def of(self, instances: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (into ``instances``) and annotators of the cells of a batch, shapes (m,)."""
        n, pool = len(instances), self.annotators
        rows = torch.arange(n, device=pool.device)
        if self.per_instance is None or self.per_instance >= len(pool):
            return rows.repeat_interleave(len(pool)), pool.repeat(n)
        # One annotator from each of k equal parts of a random order: all different, all equally
        # probable, and no sorting of all annotators for every instance.
        size, k = len(pool), self.per_instance
        bounds = torch.arange(k + 1, device=pool.device) * size // k
        width = bounds[1:] - bounds[:-1]
        place = bounds[:-1] + (torch.rand(n, k, device=pool.device) * width).long()
        shuffled = pool[torch.randperm(size, device=pool.device)]
        # The product may round up to the first of the next part.
        drawn = shuffled[torch.minimum(place, bounds[1:] - 1)].sort(dim=1).values
        return rows.repeat_interleave(self.per_instance), drawn.flatten()

    def are_open(self, instances: Tensor, annotators: Tensor) -> Tensor:
        """Whether these cells are open, shape (m,)."""
        key = instances * self.n_annotators + annotators
        place = torch.searchsorted(self.closed, key).clamp_max(len(self.closed) - 1)
        return self.closed[place] != key


def observed_per_annotator(batch: CrowdBatch, n_annotators: int) -> Tensor:
    """Count each annotator's annotations in the batch, shape (n_annotators,)."""
    return torch.bincount(batch.annotators, minlength=n_annotators)


def clipped_entropy(proba: Tensor) -> Tensor:
    """Entropy in nats of distributions (m, n_classes) clipped to [CLIP, 1 - CLIP], shape (m,)."""
    clipped = proba.clamp(CLIP, 1 - CLIP)
    return -(clipped * clipped.log()).sum(dim=1)


def select_certain(
    uncertainty: Tensor, annotators: Tensor, quotas: Tensor, *, uniform: bool = False
) -> Tensor:
    """Draw cells with probability proportional to 1/H, without replacement, per annotator.

    Drawing k items with weights w without replacement takes those with the largest u^(1/w), u
    uniform (Efraimidis & Spirakis 2006). Here 1/w is the entropy H, and -log u is exponential, so
    the draw takes the smallest products of H and an exponential variable.

    Parameters
    ----------
    uncertainty : tensor of shape (m,)
        H of every cell.
    annotators : integer tensor of shape (m,)
    quotas : integer tensor of shape (n_annotators,)
        Number of cells to draw per annotator; all of them are taken where there are fewer.
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
