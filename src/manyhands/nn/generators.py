"""CrowdInG's generators, which predict how an annotator would annotate an instance.

Notation: n instances, R annotators, C classes, m pairs of an instance and an annotator.

.. [1] Z. Chu and H. Wang. Improve learning from crowds via generative augmentation. KDD 2021.
   https://doi.org/10.1145/3447548.3467409
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyhands.functional import apply_confusion
from manyhands.nn.annotator_embedding import AnnotatorEmbedding, normalized_rows

GENERATOR_INPUTS = ("both", "annotator", "instance")
"""Embeddings a generator sees besides the classifier's output and noise."""

GENERATORS = ("network", "crowd_layer")
"""What generates annotations: CrowdInG's network, or a Crowd Layer (the paper's DL-CL+GAN)."""


class AnnotationGenerator(nn.Module):
    r"""Probabilities of an annotator's annotation of an instance: Eq. 1 of [1]_.

    .. math:: P(y_n^r \mid x_n, e_r, \epsilon, \hat z_n)
              = \mathrm{softmax}(g(x_n, e_r, \epsilon, \hat z_n)),

    where g is a network of two layers. Its input is an embedding of the instance (by two layers of
    its own), an embedding of the annotator, noise, and the classifier's probabilities.

    Parameters
    ----------
    n_classes, n_annotators : int
    n_features : int
        Number of features of an instance.
    annotator_features : tensor of shape (n_annotators, n_features), optional
    inputs : one of `GENERATOR_INPUTS`
        Which embeddings g gets: "both"; "annotator" (the paper's variant U); "instance" (its
        variant I).
    embedding_dim : int
        Dimension of each embedding.
    instance_hidden, hidden : int
        Hidden units of the instance's encoder and of g.
    dropout : float in [0, 1)
        Dropout in the instance's encoder.

    Notes
    -----
    The first layer of g is linear in each part of its input. The parts of an instance or an
    annotator are therefore computed once each, and a pair costs 2 C ``hidden`` multiplications.
    """

    def __init__(
        self,
        n_classes: int,
        n_annotators: int,
        *,
        n_features: int,
        annotator_features: Tensor | None = None,
        inputs: str = "both",
        embedding_dim: int = 20,
        instance_hidden: int = 64,
        hidden: int = 128,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.inputs = inputs
        width = 2 * n_classes
        if inputs != "instance":
            self.annotator_embedding = AnnotatorEmbedding(
                n_annotators, embedding_dim, annotator_features
            )
            width += embedding_dim
        if inputs != "annotator":
            self.instance_embedding = nn.Sequential(
                nn.Linear(n_features, instance_hidden),
                nn.ReLU(),
                nn.Dropout(dropout),
                nn.Linear(instance_hidden, embedding_dim),
            )
            width += embedding_dim
        self.first = nn.Linear(width, hidden)
        self.last = nn.Linear(hidden, n_classes)

    def draw_noise(self, m: int) -> Tensor:
        """Draw epsilon for m pairs from torch's default generator, shape (m, n_classes)."""
        return torch.randn(m, self.n_classes, device=self.first.weight.device)

    def forward(
        self,
        features: Tensor,
        proba: Tensor,
        rows: Tensor,
        annotators: Tensor,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Log probabilities of the annotations of m pairs, shape (m, n_classes).

        Parameters
        ----------
        features : tensor of shape (n, n_features)
        proba : tensor of shape (n, n_classes)
            The classifier's output z.
        rows, annotators : integer tensors of shape (m,)
        noise : tensor of shape (m, n_classes), optional
            Epsilon; default: its mean, 0.
        """
        # Column blocks of the first layer's weight: classifier, noise, annotator, instance.
        sizes = [self.n_classes, self.n_classes]
        sizes.append(self.first.in_features - sum(sizes))
        weight_proba, weight_noise, rest = torch.split(self.first.weight, sizes, dim=1)
        by_row = F.linear(proba, weight_proba, self.first.bias)
        if self.inputs != "annotator":
            v = normalized_rows(self.instance_embedding(features))
            by_row = by_row + F.linear(v, rest[:, -v.shape[1] :])
        summed = F.embedding(rows, by_row)
        if self.inputs != "instance":
            u, annotator_rows = self.annotator_embedding.embed_distinct(annotators)
            u = normalized_rows(u)
            summed = summed + F.embedding(annotator_rows, F.linear(u, rest[:, : u.shape[1]]))
        if noise is not None:
            summed = summed + F.linear(noise, weight_noise)
        logits: Tensor = self.last(summed.relu())
        return logits.log_softmax(dim=1)


class CrowdLayerGenerator(nn.Module):
    """A Crowd Layer as the generator: class-dependent confusion without noise.

    Parameters
    ----------
    n_classes, n_annotators : int
    """

    def __init__(self, n_classes: int, n_annotators: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.matrix = nn.Parameter(torch.eye(n_classes).repeat(n_annotators, 1, 1))

    def draw_noise(self, m: int) -> Tensor:
        """Return empty noise for m pairs, shape (m, 0)."""
        return self.matrix.new_zeros(m, 0)

    def forward(
        self,
        features: Tensor,
        proba: Tensor,
        rows: Tensor,
        annotators: Tensor,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Log probabilities of the annotations of m pairs; see `AnnotationGenerator`."""
        kernels = F.embedding(annotators, self.matrix.flatten(1))
        kernels = kernels.view(-1, self.n_classes, self.n_classes)
        return apply_confusion(F.embedding(rows, proba), kernels).log_softmax(dim=1)
