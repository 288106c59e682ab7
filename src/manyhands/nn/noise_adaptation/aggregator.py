"""Max-MIG's aggregator of annotations beside a classifier.

.. [1] P. Cao, Y. Xu, Y. Kong and Y. Wang. Max-MIG: an information theoretic approach for joint
   learning from crowds. ICLR 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyhands.nn.base import ScaledClassifier
from manyhands.nn.noise_adaptation.fixed import FixedConfusionModule


class AggregatorModule(FixedConfusionModule):
    """Max-MIG: a classifier of instances beside an aggregator of their annotations [1]_.

    The aggregator gives the classes of an instance as the softmax of log prior + sum_r L_r[y_r],
    the sum over the instance's annotations y_r. L_r (given, true) is free: in Bayes' rule it is
    log p(given | true) of annotator r, up to a constant for every given class.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int

    Attributes
    ----------
    tables : parameter of shape (n_annotators, n_classes, n_classes)
        L, [annotator, given, true].
    prior : buffer of shape (n_classes,)
        Of the classes; uniform until it is set.
    confusions : buffer of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given], to explain annotations with; see `count_confusions`.
    """

    prior: Tensor

    def __init__(self, classifier: ScaledClassifier, n_classes: int, n_annotators: int) -> None:
        super().__init__(classifier, n_classes, n_annotators)
        self.n_classes = n_classes
        self.tables = nn.Parameter(torch.zeros(n_annotators, n_classes, n_classes))
        self.register_buffer("prior", torch.full((n_classes,), 1.0 / n_classes))

    def aggregate(
        self,
        n: int,
        rows: Tensor,
        annotators: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Log probabilities of the classes of n instances given their annotations, (n, n_classes).

        Parameters
        ----------
        n : int
        rows, annotators, labels : integer tensors of shape (m,)
            One entry an annotation; ``rows`` are below n.
        weights : tensor of shape (m,), optional
            How often each annotation counts.
        """
        evidence = F.embedding(annotators * self.n_classes + labels, self.tables.flatten(0, 1))
        if weights is not None:
            evidence = evidence * weights[:, None]
        start = self.prior.log().expand(n, -1)
        return start.index_add(0, rows, evidence).log_softmax(dim=1)

    def count_confusions(
        self,
        n: int,
        rows: Tensor,
        annotators: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Confusions of annotations against what `aggregate` makes of them, (r, true, given).

        Parameters are those of `aggregate`. Every row gets one annotation more, as the crowd on
        the whole would give it: what was never seen of an annotator is not impossible.
        """
        given = self.aggregate(n, rows, annotators, labels, weights).exp()[rows]
        if weights is not None:
            given = given * weights[:, None]
        counts = given.new_zeros(self.tables.flatten(0, 1).shape)
        counts.index_add_(0, annotators * self.n_classes + labels, given)
        counts = counts.view_as(self.tables).transpose(1, 2)
        pooled = counts.sum(dim=0) + 1.0 / self.n_classes
        counts = counts + pooled / pooled.sum(dim=1, keepdim=True)
        return counts / counts.sum(dim=2, keepdim=True)
