"""CrowdInG's module: classifier, generator, discriminator and auxiliary network.

Notation: n instances, R annotators, C classes, m pairs of an instance and an annotator, K
embedding dimensions.

.. [1] Z. Chu and H. Wang. Improve learning from crowds via generative augmentation. KDD 2021.
   https://doi.org/10.1145/3447548.3467409
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyhands.functional import apply_confusion
from manyhands.nn.backbones import blank, embedded
from manyhands.nn.base import CrowdModule, ScaledClassifier


class GenerativeCrowdModule(CrowdModule):
    """A classifier, a generator of annotations from its output, and two networks that judge them.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    input_shape : sequence of int
    annotator_features : tensor of shape (n_annotators, n_features), optional
    generator : one of `GENERATORS`
    generator_inputs : one of `GENERATOR_INPUTS`
        Inputs of the generator "network".
    lca_form : one of `LCA_FORMS`
    chunk_size : int
        Number of pairs per pass through the generator in `annotation_log_proba_grid`.

    Attributes
    ----------
    encoder : ScaledClassifier or None
        Frozen classifier whose embedding replaces instances that are not vectors, such as images,
        in the generator and the discriminator; None if instances are vectors.
    generator : AnnotationGenerator or CrowdLayerGenerator
    discriminator : AnnotationDiscriminator
    auxiliary : AuxiliaryNetwork
    """

    annotator_features: Tensor | None

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        *,
        input_shape: Sequence[int],
        annotator_features: Tensor | None = None,
        generator: str = "network",
        generator_inputs: str = "both",
        lca_form: str = "symmetric",
        chunk_size: int = 1 << 13,
    ) -> None:
        super().__init__(classifier)
        self.n_classes = n_classes
        self.chunk_size = chunk_size
        self.register_buffer("annotator_features", annotator_features)
        self.encoder: ScaledClassifier | None = None
        n_features = prod(input_shape)
        is_image = len(input_shape) > 1 and hasattr(classifier.backbone, "embed")
        if classifier.symbolic or is_image:
            self.set_encoder(classifier)
            n_features = self._embedding_width(input_shape)
        self.generator: AnnotationGenerator | CrowdLayerGenerator
        if generator == "crowd_layer":
            self.generator = CrowdLayerGenerator(n_classes, n_annotators)
        else:
            self.generator = AnnotationGenerator(
                n_classes,
                n_annotators,
                n_features=n_features,
                annotator_features=annotator_features,
                inputs=generator_inputs,
            )
        self.discriminator = AnnotationDiscriminator(
            n_classes,
            n_annotators,
            n_features=n_features,
            annotator_features=annotator_features,
            lca_form=lca_form,
        )
        self.auxiliary = AuxiliaryNetwork(n_classes)

    def set_encoder(self, classifier: ScaledClassifier) -> None:
        """Encode instances with a frozen copy of this classifier from now on."""
        self.encoder = copy.deepcopy(classifier).requires_grad_(requires_grad=False).eval()

    def train(self, mode: bool = True) -> Self:
        """Put all but the encoder into training or evaluation mode."""
        super().train(mode)
        if self.encoder is not None:
            self.encoder.eval()
        return self

    @torch.no_grad()
    def _embedding_width(self, input_shape: Sequence[int]) -> int:
        device = next(self.parameters()).device
        return self.represent(blank(input_shape, device)).shape[1]

    def represent(self, scaled: Tensor) -> Tensor:
        """Encode scaled instances for generator and discriminator, shape (n, n_features)."""
        if self.encoder is None:
            return scaled.flatten(1)
        if self.encoder.symbolic:
            return self.encoder.represent(scaled)
        with torch.no_grad():
            return embedded(self.encoder.backbone, scaled).flatten(1)

    def classify(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return encoded instances (n, n_features) and the classifier's probabilities."""
        scaled = self.classifier.scaler(x)
        return self.represent(scaled), self.classifier.logits(scaled).softmax(dim=1)

    def annotation_log_proba(
        self, x: Tensor, rows: Tensor, annotators: Tensor, noise: Tensor | None = None
    ) -> Tensor:
        """Return the log probabilities of annotations, (m, n_classes); the default noise is 0."""
        features, proba = self.classify(x)
        log_proba: Tensor = self.generator(features, proba, rows, annotators, noise)
        return log_proba

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of all pairs, (n, r, n_classes), in blocks of instances."""
        return self._grid(*self.classify(x), annotators)

    def _grid(self, features: Tensor, proba: Tensor, annotators: Tensor) -> Tensor:
        r = len(annotators)
        parts = []
        size = max(1, self.chunk_size // max(1, r))
        for own, z in zip(torch.split(features, size), torch.split(proba, size), strict=True):
            rows = torch.arange(len(own), device=own.device).repeat_interleave(r)
            pairs = self.generator(own, z, rows, annotators.repeat(len(own)))
            parts.append(pairs.view(len(own), r, self.n_classes))
        return torch.cat(parts)

    def expected_confusion(self, batches: Iterable[Tensor], annotators: Tensor) -> Tensor:
        """Return the confusion matrices of r annotators under the generator.

        Row c is the mean of the generator's probabilities over the instances, each weighted by
        the classifier's probability that its class is c.

        Parameters
        ----------
        batches : iterable of tensors (n, *input_shape)
        annotators : integer tensor of shape (r,)

        Returns
        -------
        tensor of shape (r, n_classes, n_classes), [annotator, true, given]
        """
        shape = (len(annotators), self.n_classes, self.n_classes)
        total = torch.zeros(shape, dtype=torch.float64, device=annotators.device)
        for x in batches:
            features, proba = self.classify(x)
            given = self._grid(features, proba, annotators).double().exp()
            total += torch.einsum("nc,nrg->rcg", proba.double(), given)
        # The smallest number avoids 0 / 0 for a class without mass.
        total += torch.finfo(total.dtype).tiny
        return total / total.sum(dim=2, keepdim=True)


# -- generators, which predict how an annotator would annotate an instance ------------------------


GENERATOR_INPUTS = ("both", "annotator", "instance")
"""Embeddings that a generator gets as input besides the classifier's output and noise."""

GENERATORS = ("network", "crowd_layer")
"""Generators of annotations: CrowdInG's network, or a Crowd Layer (the paper's DL-CL+GAN)."""


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
        """Return the log probabilities of the annotations of m pairs, shape (m, n_classes).

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
        """Return the log probabilities of the annotations of m pairs; see `AnnotationGenerator`."""
        kernels = F.embedding(annotators, self.matrix.flatten(1))
        kernels = kernels.view(-1, self.n_classes, self.n_classes)
        return apply_confusion(F.embedding(rows, proba), kernels).log_softmax(dim=1)


# -- discriminator and auxiliary network, which both judge annotations ----------------------------


LCA_FORMS = ("symmetric", "row")
"""Forms of the label correlation aggregation: as published, or as in the released code."""


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

        Returns
        -------
        Pairs
        """
        u, annotator_rows = self.annotator_embedding.embed_distinct(annotators)
        u = self.dropout(normalized_rows(u))
        v = self.dropout(normalized_rows(self.instance_embedding(features)))
        return Pairs(u, annotator_rows, v, rows)

    @staticmethod
    def scores(pairs: Pairs, matrices: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the logits of D for every class, (m, n_classes), or for ``labels`` only, (m,)."""
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
        """Return the log probabilities of the classifier's classes, shape (m, n_classes).

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
    """Return S of LCA: A + I, normalised by its node degrees D, shape (n_classes, n_classes).

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


# -- embedding of the annotators ------------------------------------------------------------------


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
