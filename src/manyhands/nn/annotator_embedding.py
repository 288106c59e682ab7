"""Linear embeddings of annotators, and row normalisation of embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class AnnotatorEmbedding(nn.Module):
    """Linear embedding u_r = W e_r + b of annotators, from one-hot vectors or given features.

    Parameters
    ----------
    n_annotators, embedding_dim : int
    features : tensor of shape (n_annotators, n_features), optional
        The vectors e_r; default: one-hot.
    """

    features: Tensor | None

    def __init__(
        self, n_annotators: int, embedding_dim: int, features: Tensor | None = None
    ) -> None:
        super().__init__()
        self.n_annotators = n_annotators
        width = n_annotators if features is None else features.shape[1]
        self.linear = nn.Linear(width, embedding_dim)
        # Not persistent: the parent module saves the features.
        self.register_buffer("features", features, persistent=False)

    def forward(self, annotators: Tensor) -> Tensor:
        """Embed annotators of shape (r,); the result has shape (r, embedding_dim)."""
        embedding: Tensor
        if self.features is not None:
            embedding = self.linear(self.features[annotators])
            return embedding
        # For one-hot e_r, W e_r is a column of W; no (r, R) one-hot matrix is needed.
        columns = self.linear.weight.t().contiguous()
        return F.embedding(annotators, columns) + self.linear.bias

    def embed_distinct(self, annotators: Tensor) -> tuple[Tensor, Tensor]:
        """Embed each annotator of m pairs once; return the embeddings and each pair's row."""
        if self.n_annotators <= len(annotators):
            all_annotators = torch.arange(self.n_annotators, device=annotators.device)
            return self(all_annotators), annotators
        distinct, embedding_rows = annotators.unique(  # type: ignore[no-untyped-call]
            return_inverse=True
        )
        return self(distinct), embedding_rows


def normalized_rows(x: Tensor) -> Tensor:
    """Normalise each row to mean 0 and variance 1, independently of the rest of the batch."""
    return F.layer_norm(x, x.shape[1:])
