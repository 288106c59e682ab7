"""Graph convolutions on the graph of annotators and instances; its edges are the annotations.

Notation: n instances, R annotators, C classes, m annotations, K dimensions of a node's state.

.. [1] R. van den Berg, T. N. Kipf and M. Welling. Graph convolutional matrix completion. 2017.
   https://arxiv.org/abs/1706.02263
.. [2] T. N. Kipf and M. Welling. Semi-supervised classification with graph convolutional
   networks. ICLR 2017. https://arxiv.org/abs/1609.02907
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyhands.nn.standardize import Standardize


class AnnotationEdges(NamedTuple):
    """Annotations as edges of a graph.

    Attributes
    ----------
    instances, annotators, labels : integer tensors of shape (m,)
    """

    instances: Tensor
    annotators: Tensor
    labels: Tensor

    def where(self, keep: Tensor) -> AnnotationEdges:
        """Return the edges selected by a mask of shape (m,)."""
        return AnnotationEdges(*(part[keep] for part in self))


class GraphConvolution(nn.Module):
    r"""One layer: each node receives messages from its neighbours, with one matrix per class.

    .. math:: h_i' = W h_i + b + \sum_c \sum_{j \in N_c(i)} \frac{1}{|N(i)|} W_c h_j,

    where N_c(i) are the nodes joined to i by an annotation of class c and N(i) all its neighbours.
    Instances and annotators have separate matrices (Eq. 1 and 2 of [1]_, with the self term of
    [2]_).

    Parameters
    ----------
    n_classes : int
    n_instance, n_annotator : int
        Dimensions of an instance's and of an annotator's state.
    n_out : int
        Dimension of the new states.
    """

    def __init__(self, n_classes: int, n_instance: int, n_annotator: int, n_out: int) -> None:
        super().__init__()
        self.instance_self = nn.Linear(n_instance, n_out)
        self.annotator_self = nn.Linear(n_annotator, n_out)
        self.to_instances = nn.Parameter(_matrices(n_classes, n_annotator, n_out))
        self.to_annotators = nn.Parameter(_matrices(n_classes, n_instance, n_out))

    def forward(
        self, instances: Tensor, annotators: Tensor, edges: AnnotationEdges
    ) -> tuple[Tensor, Tensor]:
        """Return the new states of the instances (n, n_out) and of the annotators (R, n_out).

        Parameters
        ----------
        instances : tensor of shape (n, n_instance)
        annotators : tensor of shape (R, n_annotator)
        edges : AnnotationEdges
        """
        n_classes = len(self.to_instances)
        bucket = edges.annotators * n_classes + edges.labels
        # The class matrices are applied on the annotators' side, which has fewer nodes: before
        # messages are sent to instances, and after messages from instances are summed.
        sent = torch.einsum("ri,cio->rco", annotators, self.to_instances).flatten(0, 1)
        at_instances = _mean_messages(sent, bucket, edges.instances, len(instances))
        share = 1 / _degrees(edges.annotators, len(annotators), instances)
        received = instances.new_zeros(len(annotators) * n_classes, instances.shape[1])
        received = received.index_add(0, bucket, F.embedding(edges.instances, instances))
        received = received.view(len(annotators), n_classes, -1) * share[:, None, None]
        at_annotators = torch.einsum("rci,cio->ro", received, self.to_annotators)
        return (
            self.instance_self(instances) + at_instances,
            self.annotator_self(annotators) + at_annotators,
        )


class GraphCompletionModule(nn.Module):
    r"""Two graph convolutions and a bilinear decoder of annotations [1]_.

    The annotation of instance i by annotator r has probabilities
    :math:`\mathrm{softmax}_c(z_i^T Q_c z_r)`, where z is a last state with a 1 appended.

    Parameters
    ----------
    scaler : Standardize
        Scaler of the features.
    input_shape : sequence of int
        Shape of one instance, which is flattened.
    n_classes, n_annotators : int
    embedding_dim : int
        Dimension of the first states: a free vector per annotator, a dense layer for instances.
    hidden : int
        Dimension of the states after each convolution.
    dropout : float in [0, 1)
        Dropout of the first states.
    """

    def __init__(
        self,
        scaler: Standardize,
        input_shape: Sequence[int],
        n_classes: int,
        n_annotators: int,
        *,
        embedding_dim: int,
        hidden: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.scaler = scaler
        self.dense = nn.Linear(prod(input_shape), embedding_dim)
        # All annotators start with equal states, so that only their annotations make them differ.
        self.annotators = nn.Parameter(torch.randn(1, embedding_dim).repeat(n_annotators, 1))
        self.dropout = nn.Dropout(dropout)
        self.first = GraphConvolution(n_classes, embedding_dim, embedding_dim, hidden)
        self.second = GraphConvolution(n_classes, hidden, hidden, hidden)
        self.decoder = nn.Parameter(_matrices(n_classes, hidden + 1, hidden + 1))

    def forward(self, x: Tensor, edges: AnnotationEdges) -> tuple[Tensor, Tensor]:
        """Return the last states of instances (n, hidden + 1) and of annotators (R, hidden + 1).

        Parameters
        ----------
        x : tensor of shape (n, *input_shape)
        edges : AnnotationEdges
            The state of an instance without edges depends on its features only.
        """
        instances = self.dropout(self.dense(self.scaler(x).flatten(1)).relu())
        states = self.first(instances, self.dropout(self.annotators), edges)
        instances, annotators = self.second(states[0].relu(), states[1].relu(), edges)
        return F.pad(instances, (0, 1), value=1.0), F.pad(annotators, (0, 1), value=1.0)

    def annotation_log_proba(
        self, x: Tensor, edges: AnnotationEdges, instances: Tensor, annotators: Tensor
    ) -> Tensor:
        """Return the log probabilities of the annotations of m pairs given other annotations.

        Parameters
        ----------
        x : tensor of shape (n, *input_shape)
        edges : AnnotationEdges
            The given annotations, without those to predict.
        instances, annotators : integer tensors of shape (m,)

        Returns
        -------
        tensor of shape (m, n_classes)
        """
        z, w = self(x, edges)
        v = F.embedding(instances, z)
        # One class at a time, to avoid a block of size m x C x (hidden + 1).
        logits = [(v * F.embedding(annotators, w @ matrix.T)).sum(dim=1) for matrix in self.decoder]
        return torch.stack(logits, dim=1).log_softmax(dim=1)

    def decode(self, instances: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of all pairs of last states, shape (n, R, n_classes)."""
        by_class = torch.einsum("cij,rj->rci", self.decoder, annotators)
        return torch.einsum("ni,rci->nrc", instances, by_class).log_softmax(dim=2)


def _matrices(n: int, n_in: int, n_out: int) -> Tensor:
    """Return n matrices (n_in, n_out), initialised like linear layers."""
    bound = n_in**-0.5
    return torch.empty(n, n_in, n_out).uniform_(-bound, bound)


def _degrees(nodes: Tensor, n: int, like: Tensor) -> Tensor:
    """Return the number of edges of each node, but at least 1, shape (n,)."""
    ones = like.new_ones(len(nodes))
    return like.new_zeros(n).index_add(0, nodes, ones).clamp_min(1)


def _mean_messages(messages: Tensor, source: Tensor, target: Tensor, n: int) -> Tensor:
    """Average the messages from the sources of each target's edges, shape (n, K)."""
    total = messages.new_zeros(n, messages.shape[1])
    total = total.index_add(0, target, F.embedding(source, messages))
    return total / _degrees(target, n, messages)[:, None]
