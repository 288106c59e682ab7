"""CrowdInG's networks: a generator of annotations, and the two networks that judge them.

Letters: n instances, R annotators, C classes, m pairs of an instance and an annotator, K numbers
of an embedding.

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
from manyhands.nn.base import CrowdModule, ScaledClassifier

GENERATOR_INPUTS = ("both", "annotator", "instance")
"""What a generator sees besides the classifier's output and noise."""

GENERATORS = ("network", "crowd_layer")
"""What generates annotations: CrowdInG's network, or a Crowd Layer (the paper's DL-CL+GAN)."""

LCA_FORMS = ("symmetric", "row")
"""How the matrices of correlated labels are aggregated: as published, or as released."""


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


class AnnotationGenerator(nn.Module):
    r"""What an annotator would say of an instance: Eq. 1 of [1]_.

    .. math:: P(y_n^r \mid x_n, e_r, \epsilon, \hat z_n)
              = \mathrm{softmax}(g(x_n, e_r, \epsilon, \hat z_n)),

    with g two layers on an embedding of the instance (itself of two layers), one of the
    annotator, noise, and the classifier's probabilities.

    Parameters
    ----------
    n_classes, n_annotators : int
    n_features : int
        Of an instance.
    annotator_features : tensor of shape (n_annotators, n_features), optional
    inputs : one of `GENERATOR_INPUTS`
        Of embeddings: "both"; "annotator" (no instance: the paper's variant U); "instance" (no
        annotator: variant I).
    embedding_dim : int
        Numbers of either embedding.
    instance_hidden, hidden : int
        Units of the instance's encoder, and of g.
    dropout : float in [0, 1)
        In the instance's encoder.

    Notes
    -----
    The first layer of g is linear in the parts of its input, so that what belongs to an instance
    or to an annotator is computed once each: a pair costs 2 C ``hidden`` multiplications.
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
            Epsilon; default: 0, its mean.
        """
        # Columns of the first layer's weight: classifier, noise, annotator, instance.
        sizes = [self.n_classes, self.n_classes]
        sizes.append(self.first.in_features - sum(sizes))
        of_proba, of_noise, rest = torch.split(self.first.weight, sizes, dim=1)
        by_row = F.linear(proba, of_proba, self.first.bias)
        if self.inputs != "annotator":
            v = _normalized(self.instance_embedding(features))
            by_row = by_row + F.linear(v, rest[:, -v.shape[1] :])
        summed = F.embedding(rows, by_row)
        if self.inputs != "instance":
            u, place = self.annotator_embedding.distinct(annotators)
            u = _normalized(u)
            summed = summed + F.embedding(place, F.linear(u, rest[:, : u.shape[1]]))
        if noise is not None:
            summed = summed + F.linear(noise, of_noise)
        logits: Tensor = self.last(summed.relu())
        return logits.log_softmax(dim=1)


class CrowdLayerGenerator(nn.Module):
    """A Crowd Layer in the place of a generator: class-dependent confusion, and no noise.

    Parameters
    ----------
    n_classes, n_annotators : int
    """

    def __init__(self, n_classes: int, n_annotators: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.matrix = nn.Parameter(torch.eye(n_classes).repeat(n_annotators, 1, 1))

    def draw_noise(self, m: int) -> Tensor:
        """Return no numbers for each of m pairs, shape (m, 0)."""
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


class Pairs(NamedTuple):
    """Embeddings of m pairs of n instances and r annotators.

    Attributes
    ----------
    u : tensor of shape (r, K)
        Of annotators.
    place : integer tensor of shape (m,)
        The annotator of each pair, as a row of ``u``.
    v : tensor of shape (n, K)
        Of instances.
    rows : integer tensor of shape (m,)
        The instance of each pair, as a row of ``v``.
    """

    u: Tensor
    place: Tensor
    v: Tensor
    rows: Tensor


class AnnotationDiscriminator(nn.Module):
    r"""Whether annotations are authentic, for every class: Eq. 2 of [1]_.

    .. math:: D(y_n^r = c \mid x_n, e_r) = \sigma(u_r^\top \hat M_c v_n), \quad
              u_r = W_u e_r + b_u, \quad v_n = W_v \mathrm{relu}(W_x x_n + b_x) + b_v.

    The label correlation aggregation (LCA) mixes the matrices of classes given to the same
    instances, :math:`\hat M_c = \sum_{c'} S_{cc'} M_{c'} W`, with S the normalised adjacency.

    Parameters
    ----------
    n_classes, n_annotators : int
    n_features : int
        Of an instance.
    annotator_features : tensor of shape (n_annotators, n_features), optional
    lca_form : one of `LCA_FORMS`
        "symmetric": S = D^-1/2 (A + I) D^-1/2 with a learnt W, as published. "row": S = D^-1 (A +
        I), no W, and M_c added to the sum, as released.
    embedding_dim, instance_hidden : int
    dropout : float in [0, 1)
        Of both embeddings.

    Attributes
    ----------
    adjacency : buffer of shape (n_classes, n_classes)
        A, of zeros until it is set: no aggregation.
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
        u, place = self.annotator_embedding.distinct(annotators)
        u = self.dropout(_normalized(u))
        v = self.dropout(_normalized(self.instance_embedding(features)))
        return Pairs(u, place, v, rows)

    @staticmethod
    def scores(pairs: Pairs, matrices: Tensor, labels: Tensor | None = None) -> Tensor:
        """Logits of D for every class, shape (m, n_classes); with ``labels`` of these, (m,)."""
        # The product with a matrix is one side's alone: that of fewer rows.
        if len(pairs.u) <= len(pairs.v):
            one, own = torch.einsum("ri,cij->rcj", pairs.u, matrices), pairs.place
            other = F.embedding(pairs.rows, pairs.v)
        else:
            one, own = torch.einsum("cij,nj->nci", matrices, pairs.v), pairs.rows
            other = F.embedding(pairs.place, pairs.u)
        if labels is None:
            every = F.embedding(own, one.flatten(1)).view(len(own), len(matrices), -1)
            return (every @ other[:, :, None])[:, :, 0]
        return (F.embedding(own * len(matrices) + labels, one.flatten(0, 1)) * other).sum(dim=1)


class AuxiliaryNetwork(nn.Module):
    r"""What an annotation says of the classifier's output: the network Q of Eq. 3 of [1]_.

    :math:`P_Q(\hat z_n = c \mid x_n, e_r, y_n^r)` is the softmax of two layers on the
    discriminator's embeddings u_r and v_n, which Q shares, and an embedding :math:`m_y` of its
    class matrix :math:`\hat M_y`, flattened.

    Parameters
    ----------
    n_classes : int
    embedding_dim : int
        K, of the discriminator.
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
        by_label = _normalized(self.label_embedding(matrices.flatten(1).relu()))
        # The first layer of [u, v, m] is a sum of three, each computed once for all its pairs.
        width = pairs.u.shape[1]
        of_u, of_v, of_label = torch.split(self.first.weight, width, dim=1)
        summed = F.embedding(pairs.place, F.linear(pairs.u, of_u, self.first.bias))
        summed = summed + F.embedding(pairs.rows, F.linear(pairs.v, of_v))
        summed = summed + F.embedding(labels, F.linear(by_label, of_label))
        logits: Tensor = self.last(summed.relu())
        return logits.log_softmax(dim=1)


class GenerativeCrowdModule(CrowdModule):
    """A classifier, a generator that explains annotations by it, and the two that judge these.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    input_shape : sequence of int
    annotator_features : tensor of shape (n_annotators, n_features), optional
    generator : one of `GENERATORS`
    generator_inputs : one of `GENERATOR_INPUTS`
        Of the generator of that name.
    lca_form : one of `LCA_FORMS`
    chunk_size : int
        Pairs the generator sees at once.

    Attributes
    ----------
    encoder : ScaledClassifier or None
        Of instances that are no vectors, such as images: what generator and discriminator see is
        this classifier's embedding, which does not learn. Vectors are seen as they are.
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
        if len(input_shape) > 1 and hasattr(classifier.backbone, "embed"):
            self.encode_by(classifier)
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

    def encode_by(self, classifier: ScaledClassifier) -> None:
        """Let instances be seen as this classifier embeds them now."""
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
        return self.represent(torch.zeros(1, *input_shape, device=device)).shape[1]

    def represent(self, scaled: Tensor) -> Tensor:
        """Return what generator and discriminator see of scaled instances, (n, n_features)."""
        if self.encoder is None:
            return scaled.flatten(1)
        with torch.no_grad():
            embedding: Tensor = self.encoder.backbone.embed(scaled)  # type: ignore[operator]
        return embedding.flatten(1)

    def classify(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What is seen of instances, (n, n_features), and the classifier's probabilities."""
        scaled = self.classifier.scaler(x)
        return self.represent(scaled), self.classifier.backbone(scaled).softmax(dim=1)

    def annotation_log_proba(
        self, x: Tensor, rows: Tensor, annotators: Tensor, noise: Tensor | None = None
    ) -> Tensor:
        """Log probabilities of annotations, shape (m, n_classes); noise is 0 unless given."""
        features, proba = self.classify(x)
        log_proba: Tensor = self.generator(features, proba, rows, annotators, noise)
        return log_proba

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of all pairs, shape (n, r, n_classes), in blocks of instances."""
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
        """Confusion matrices of r annotators as the generator sees them, (r, true, given).

        Row c is the mean of what the generator gives for instances, each weighted by the
        classifier's probability that its class is c.

        Parameters
        ----------
        batches : iterable of tensors (n, *input_shape)
        annotators : integer tensor of shape (r,)
        """
        shape = (len(annotators), self.n_classes, self.n_classes)
        total = torch.zeros(shape, dtype=torch.float64, device=annotators.device)
        for x in batches:
            features, proba = self.classify(x)
            given = self._grid(features, proba, annotators).double().exp()
            total += torch.einsum("nc,nrg->rcg", proba.double(), given)
        # A class that nothing is of: the smallest number keeps 0 / 0 from arising.
        total += torch.finfo(total.dtype).tiny
        return total / total.sum(dim=2, keepdim=True)


def normalized_adjacency(adjacency: Tensor, form: str) -> Tensor:
    """S of LCA: A + I, normalised by the degrees D of its nodes, shape (n_classes, n_classes).

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


def _normalized(x: Tensor) -> Tensor:
    """Every row with mean 0 and variance 1: like batch normalisation, but of no batch."""
    return F.layer_norm(x, x.shape[1:])
