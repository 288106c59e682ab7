"""Embedding losses that pytorch-metric-learning lacks, or has only at an unusable cost.

.. [1] X. He, Y. Zhou, Z. Zhou, S. Bai and X. Bai. Triplet-center loss for multi-view 3D object
   retrieval. CVPR 2018.
.. [2] H. Oh Song, Y. Xiang, S. Jegelka and S. Savarese. Deep metric learning via lifted structured
   feature embedding. CVPR 2016.
.. [3] F. Schroff, D. Kalenichenko and J. Philbin. FaceNet: a unified embedding for face recognition
   and clustering. CVPR 2015.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Triplets = tuple[Tensor, Tensor, Tensor]
"""Anchors, positives and negatives: rows of a batch, each of shape (m,)."""


class TripletCenterLoss(nn.Module):
    r"""Triplet-center loss: an instance is closest to the centre of its class [1]_ (Eq. 4).

    The mean over the batch of :math:`\max(0, D(x, c_y) + m - \min_{j \ne y} D(x, c_j))`, where D is
    half the squared Euclidean distance. The centres are parameters that start near 0.

    Parameters
    ----------
    n_classes : int
        2 or more.
    width : int
        Dimension of the embedding.
    margin : float
        The margin m.

    Examples
    --------
    >>> loss = TripletCenterLoss(2, 1, margin=1.0)
    >>> _ = loss.centers.data.copy_(torch.tensor([[0.0], [2.0]]))
    >>> loss(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1])).item()  # 1 + .5 - .5, and 0
    0.5
    """

    def __init__(self, n_classes: int, width: int, margin: float = 5.0) -> None:
        super().__init__()
        self.margin = margin
        self.centers = nn.Parameter(0.01 * torch.randn(n_classes, width))

    def forward(self, embedding: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch, a scalar.

        Parameters
        ----------
        embedding : tensor of shape (n, width)
        labels : integer tensor of shape (n,)
        """
        distances = (embedding[:, None] - self.centers).square().sum(dim=2) / 2
        own = F.one_hot(labels, len(self.centers)).bool()
        nearest = distances.masked_fill(own, torch.inf).amin(dim=1)
        return F.relu(distances[own] + self.margin - nearest).mean()


class LiftedStructureLoss(nn.Module):
    r"""Lifted structured loss, on embeddings of length 1 [2]_ (Eq. 4).

    The mean of :math:`\frac{1}{2} \max(0, J_{ij})^2` over the pairs (i, j) with the same class,
    where :math:`J_{ij} = \log(\sum_k e^{m - d_{ik}} + \sum_l e^{m - d_{jl}}) + d_{ij}` and k and l
    run over the instances of other classes. pytorch-metric-learning has the same loss but compares
    every pair of equal classes with every pair of different ones, which takes n^4 numbers, not n^2.

    Parameters
    ----------
    margin : float
        The margin m.
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, embedding: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch, a scalar; 0 without pairs of equal, or of different, classes.

        Parameters
        ----------
        embedding : tensor of shape (n, d)
        labels : integer tensor of shape (n,)
        """
        same = labels[:, None] == labels
        first, second = torch.where(same.triu(1))
        if not len(first) or bool(same.all()):
            return embedding.sum() * 0.0
        embedding = F.normalize(embedding)
        distances = torch.cdist(embedding, embedding)
        against = (self.margin - distances).masked_fill(same, -torch.inf).logsumexp(dim=1)
        terms = torch.logaddexp(against[first], against[second]) + distances[first, second]
        return F.relu(terms).square().mean() / 2


def nearest_negatives(embedding: Tensor, triplets: Triplets) -> Triplets:
    """Keep, for each anchor and positive, the triplet with the nearest negative [3]_.

    Among semi-hard triplets, whose negatives are farther away than the positive, these are the
    hardest.

    Parameters
    ----------
    embedding : tensor of shape (n, d)
        Normalised to length 1 before distances are computed.
    triplets : three integer tensors of shape (m,)
        Rows of the anchors, the positives and the negatives.

    Examples
    --------
    >>> embedding = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 1.0], [0.0, 1.0]])
    >>> every = torch.tensor([0, 0, 1]), torch.tensor([1, 1, 0]), torch.tensor([3, 2, 3])
    >>> [part.tolist() for part in nearest_negatives(embedding, every)]
    [[0, 1], [1, 0], [2, 3]]
    """
    anchors, positives, negatives = triplets
    embedding = F.normalize(embedding.detach())
    distances = (embedding[anchors] - embedding[negatives]).square().sum(dim=1)
    order = distances.argsort(stable=True)
    pairs = (anchors * len(embedding) + positives)[order]
    order = order[pairs.argsort(stable=True)]
    pairs = pairs.sort().values
    first = torch.ones_like(pairs, dtype=torch.bool)
    first[1:] = pairs[1:] != pairs[:-1]
    kept = order[first]
    return anchors[kept], positives[kept], negatives[kept]
