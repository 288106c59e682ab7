"""Max-MIG's module: a classifier and an aggregator of annotations.

.. [1] P. Cao, Y. Xu, Y. Kong and Y. Wang. Max-MIG: an information theoretic approach for joint
   learning from crowds. ICLR 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyhands.nn.base import ScaledClassifier
from manyhands.nn.noise_adaptation.confusion import FixedConfusionModule


class AggregatorModule(FixedConfusionModule):
    """Max-MIG: a classifier of instances and an aggregator of their annotations [1]_.

    The aggregator's class distribution of an instance is the softmax of log prior + sum_r L_r[y_r],
    summed over the instance's annotations y_r. L_r (given, true) is free. In Bayes' rule it is
    log p(given | true) of annotator r, up to a constant per given class.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int

    Attributes
    ----------
    tables : parameter of shape (n_annotators, n_classes, n_classes)
        L, indexed [annotator, given, true].
    prior : buffer of shape (n_classes,)
        Class prior; uniform until it is set.
    confusions : buffer of shape (n_annotators, n_classes, n_classes)
        Confusion matrices for `annotation_log_proba`, indexed [annotator, true, given]; see
        `count_confusions`.
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
        """Return the log probabilities of the classes of n instances given their annotations.

        Parameters
        ----------
        n : int
        rows, annotators, labels : integer tensors of shape (m,)
            One entry per annotation; ``rows`` are below n.
        weights : tensor of shape (m,), optional
            Weight of each annotation.

        Returns
        -------
        tensor of shape (n, n_classes)
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
        """Count confusions of annotations against their `aggregate`, shape (R, true, given).

        The parameters are those of `aggregate`. Each row is smoothed by one pseudo-annotation with
        the crowd's pooled distribution, so that unseen annotations are not impossible.
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
