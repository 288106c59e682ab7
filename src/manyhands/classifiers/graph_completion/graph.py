"""The annotations of a table as the edges of a graph, of which a random part can be hidden."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.nn import AnnotationEdges
from manyhands.typing import IntArray


class AnnotationGraph(NamedTuple):
    """Annotations as edges, m in number.

    Attributes
    ----------
    edges : AnnotationEdges
    cells : integer tensor of shape (m,)
        Number of the (instance, annotator) cell that each edge belongs to, from 0.
    n_cells : int
    weights : tensor of shape (m,) or None
        Weights of the annotations, with mean 1.
    """

    edges: AnnotationEdges
    cells: Tensor
    n_cells: int
    weights: Tensor | None

    @classmethod
    def of(cls, table: AnnotationTable, rows: IntArray, device: torch.device) -> AnnotationGraph:
        """Make the graph of a table.

        Parameters
        ----------
        table : AnnotationTable
        rows : integer array of shape (n,)
            The annotated instances, sorted. Nodes are positions in it.
        device : torch.device
        """
        columns = (np.searchsorted(rows, table.instance), table.annotator, table.label)
        parts = (torch.from_numpy(np.array(part, dtype=np.int64)).to(device) for part in columns)
        cell = table.instance.astype(np.int64) * table.n_annotators + table.annotator
        distinct, first, cells = np.unique(cell, return_index=True, return_inverse=True)
        # Numbered in order of appearance: draws must not depend on the order of annotators.
        cells = first.argsort().argsort()[cells]
        weights: Tensor | None = None
        if table.weights is not None:
            relative = table.weights / table.weights.mean()
            weights = torch.from_numpy(relative).to(device, torch.float32)
        return cls(
            AnnotationEdges(*parts), torch.from_numpy(cells).to(device), len(distinct), weights
        )

    def draw_hidden(self, share: float) -> Tensor:
        """Draw the edges to hide: a share of the cells, at least one, each with all its edges.

        Returns
        -------
        bool tensor of shape (m,)
        """
        n_hidden = max(1, round(share * self.n_cells))
        is_hidden = torch.zeros(self.n_cells, dtype=torch.bool)
        is_hidden[torch.randperm(self.n_cells)[:n_hidden]] = True
        return is_hidden.to(self.cells.device)[self.cells]
