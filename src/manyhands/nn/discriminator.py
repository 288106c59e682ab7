"""CrowdInG's discriminator and auxiliary network, which both judge annotations.

Notation: n instances, R annotators, C classes, m pairs of an instance and an annotator, K
embedding dimensions.

.. [1] Z. Chu and H. Wang. Improve learning from crowds via generative augmentation. KDD 2021.
   https://doi.org/10.1145/3447548.3467409
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyhands.nn.annotator_embedding import AnnotatorEmbedding, normalized_rows

LCA_FORMS = ("symmetric", "row")
"""How the matrices of correlated labels are aggregated: as published, or as in released code."""


class Pairs(NamedTuple):
    """Embeddings of m (instance, annotator) pairs, over n instances and r annotators.

    Attributes
    ----------
    u : tensor of shape (r, K)
        Embeddings of annotators.
    annotator_rows : integer tensor of shape (m,)
        Row of ``u`` for the annotator of each pair.
    v : tensor of shape (n, K)
        Embeddings of instances.
    rows : integer tensor of shape (m,)
        Row of ``v`` for the instance of each pair.
    """

    u: Tensor
    annotator_rows: Tensor
    v: Tensor
    rows: Tensor


class AnnotationDiscriminator(nn.Module):
    r"""Judge whether annotations are authentic, for every class: Eq. 2 of [1]_.

    .. math:: D(y_n^r = c \mid x_n, e_r) = \sigma(u_r^\top \hat M_c v_n), \quad
              u_r = W_u e_r + b_u, \quad v_n = W_v \mathrm{relu}(W_x x_n + b_x) + b_v.

    The label correlation aggregation (LCA) mixes the matrices of classes given to the same
    instances, :math:`\hat M_c = \sum_{c'} S_{cc'} M_{c'} W`, with S the normalised adjacency.

    Parameters
    ----------
    n_classes, n_annotators : int
    n_features : int
        Number of features of an instance.
    annotator_features : tensor of shape (n_annotators, n_features), optional
    lca_form : one of `LCA_FORMS`
        "symmetric": S = D^-1/2 (A + I) D^-1/2 with a learnt W, as published. "row": S = D^-1 (A +
        I), no W, and M_c added to the sum, as in the released code.
    embedding_dim, instance_hidden : int
    dropout : float in [0, 1)
        Dropout of both embeddings.

    Attributes
    ----------
    adjacency : buffer of shape (n_classes, n_classes)
        A; zero, meaning no aggregation, until it is set.
    """

    adjacency: Tensor

    def __init__(
        self,
        n_classes: int,
        n_annotators: int,
        *,
        n_features: int,
        annotator_features: Tensor | None = None,
        lca_form: str = "symmetric",
        embedding_dim: int = 60,
        instance_hidden: int = 128,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.lca_form = lca_form
        self.annotator_embedding = AnnotatorEmbedding(
            n_annotators, embedding_dim, annotator_features
        )
        self.instance_embedding = nn.Sequential(
            nn.Linear(n_features, instance_hidden),
            nn.ReLU(),
            nn.Linear(instance_hidden, embedding_dim),
        )
        self.dropout = nn.Dropout(dropout)
        self.matrices = nn.Parameter(
            torch.randn(n_classes, embedding_dim, embedding_dim) / embedding_dim
        )
        if lca_form == "symmetric":
            self.aggregation_weight = nn.Parameter(torch.eye(embedding_dim))
        self.register_buffer("adjacency", torch.zeros(n_classes, n_classes))

    def class_matrices(self) -> Tensor:
        """Return the aggregated matrices, shape (n_classes, K, K)."""
        share = normalized_adjacency(self.adjacency, self.lca_form)
        mixed = torch.einsum("cd,dij->cij", share, self.matrices)
        if self.lca_form == "symmetric":
            return mixed @ self.aggregation_weight
        return mixed + self.matrices

    def embed(self, features: Tensor, rows: Tensor, annotators: Tensor) -> Pairs:
        """Embed the instances and annotators of m pairs, each once.

        Parameters
        ----------
        features : tensor of shape (n, n_features)
        rows, annotators : integer tensors of shape (m,)
        """
        u, annotator_rows = self.annotator_embedding.embed_distinct(annotators)
        u = self.dropout(normalized_rows(u))
        v = self.dropout(normalized_rows(self.instance_embedding(features)))
        return Pairs(u, annotator_rows, v, rows)

    @staticmethod
    def scores(pairs: Pairs, matrices: Tensor, labels: Tensor | None = None) -> Tensor:
        """Logits of D for every class, shape (m, n_classes); for ``labels`` only, shape (m,)."""
        # The class matrices multiply only one side, the one with fewer rows.
        if len(pairs.u) <= len(pairs.v):
            product = torch.einsum("ri,cij->rcj", pairs.u, matrices)
            product_rows = pairs.annotator_rows
            other = F.embedding(pairs.rows, pairs.v)
        else:
            product = torch.einsum("cij,nj->nci", matrices, pairs.v)
            product_rows = pairs.rows
            other = F.embedding(pairs.annotator_rows, pairs.u)
        n_classes = len(matrices)
        if labels is None:
            by_class = F.embedding(product_rows, product.flatten(1))
            by_class = by_class.view(len(product_rows), n_classes, -1)
            return (by_class @ other[:, :, None])[:, :, 0]
        of_label = F.embedding(product_rows * n_classes + labels, product.flatten(0, 1))
        return (of_label * other).sum(dim=1)


class AuxiliaryNetwork(nn.Module):
    r"""Predict the classifier's output from an annotation: the network Q of Eq. 3 of [1]_.

    :math:`P_Q(\hat z_n = c \mid x_n, e_r, y_n^r)` is the softmax of two layers. Their input is the
    discriminator's embeddings u_r and v_n, shared with Q, and an embedding :math:`m_y` of its
    flattened class matrix :math:`\hat M_y`.

    Parameters
    ----------
    n_classes : int
    embedding_dim : int
        K, as in the discriminator.
    hidden : int
    """

    def __init__(self, n_classes: int, *, embedding_dim: int = 60, hidden: int = 128) -> None:
        super().__init__()
        self.label_embedding = nn.Linear(embedding_dim**2, embedding_dim)
        self.first = nn.Linear(3 * embedding_dim, hidden)
        self.last = nn.Linear(hidden, n_classes)

    def forward(self, pairs: Pairs, matrices: Tensor, labels: Tensor) -> Tensor:
        """Log probabilities of the classifier's classes for m annotations, (m, n_classes).

        Parameters
        ----------
        pairs : Pairs
        matrices : tensor of shape (n_classes, K, K)
        labels : integer tensor of shape (m,)
        """
        by_label = normalized_rows(self.label_embedding(matrices.flatten(1).relu()))
        # The first layer of [u, v, m] is a sum of three terms, each computed once for all pairs.
        width = pairs.u.shape[1]
        weight_u, weight_v, weight_label = torch.split(self.first.weight, width, dim=1)
        summed = F.embedding(pairs.annotator_rows, F.linear(pairs.u, weight_u, self.first.bias))
        summed = summed + F.embedding(pairs.rows, F.linear(pairs.v, weight_v))
        summed = summed + F.embedding(labels, F.linear(by_label, weight_label))
        logits: Tensor = self.last(summed.relu())
        return logits.log_softmax(dim=1)


def normalized_adjacency(adjacency: Tensor, form: str) -> Tensor:
    """S of LCA: A + I, normalised by its node degrees D, shape (n_classes, n_classes).

    "symmetric": D^-1/2 (A + I) D^-1/2; "row": D^-1 (A + I).

    Examples
    --------
    >>> A = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> normalized_adjacency(A, "symmetric").round(decimals=3).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    with_self = adjacency + torch.eye(len(adjacency), device=adjacency.device)
    degree = with_self.sum(dim=1)
    if form == "row":
        return with_self / degree[:, None]
    root = degree.rsqrt()
    return root[:, None] * with_self * root
