"""Embeddings of annotators, one-hot or with features of their own, and their normalisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class AnnotatorEmbedding(nn.Module):
    """Linear embedding u_r = W e_r + b of annotators, one-hot or with features of their own.

    Parameters
    ----------
    n_annotators, embedding_dim : int
    features : tensor of shape (n_annotators, n_features), optional
        e_r; default: one-hot.
    """

    features: Tensor | None

    def __init__(
        self, n_annotators: int, embedding_dim: int, features: Tensor | None = None
    ) -> None:
        super().__init__()
        self.n_annotators = n_annotators
        width = n_annotators if features is None else features.shape[1]
        self.linear = nn.Linear(width, embedding_dim)
        # The module this is a part of keeps them in its state.
        self.register_buffer("features", features, persistent=False)

    def forward(self, annotators: Tensor) -> Tensor:
        """Embed annotators (r,): shape (r, embedding_dim)."""
        embedding: Tensor
        if self.features is not None:
            embedding = self.linear(self.features[annotators])
            return embedding
        # W e_r for one-hot e_r is a column of W: no (r, R) one-hot matrix.
        columns = self.linear.weight.t().contiguous()
        return F.embedding(annotators, columns) + self.linear.bias

    def distinct(self, annotators: Tensor) -> tuple[Tensor, Tensor]:
        """Embed every annotator of m pairs once: embeddings, and each pair's place in them."""
        if self.n_annotators <= len(annotators):
            everybody = torch.arange(self.n_annotators, device=annotators.device)
            return self(everybody), annotators
        found, place = annotators.unique(  # type: ignore[no-untyped-call]
            return_inverse=True
        )
        return self(found), place


def normalized_rows(x: Tensor) -> Tensor:
    """Every row with mean 0 and variance 1: like batch normalisation, but of no batch."""
    return F.layer_norm(x, x.shape[1:])
