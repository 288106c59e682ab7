"""Crowd Layer: one small layer per annotator on top of the classifier's probabilities.

.. [1] F. Rodrigues and F. C. Pereira. Deep learning from crowds. AAAI 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyhands.functional import apply_confusion
from manyhands.nn.base import CrowdModule, ScaledClassifier

CONNECTIONS = ("MW", "VW", "VB", "VW+B", "S")
"""Connections [1]_: matrix, class scales, biases, scales and biases, one scalar per annotator."""


class CrowdLayerModule(CrowdModule):
    """A classifier whose probabilities pass through one small layer per annotator [1]_.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    connection : one of `CONNECTIONS`
    init_scale : float
        Initial multiple of the identity for matrices, and initial value of scales.

    Notes
    -----
    As in the released code, the layer's input is the classifier's softmax and its output passes
    through another softmax. The weights are free (neither positive nor normalised).
    """

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        *,
        connection: str = "MW",
        init_scale: float = 1.0,
    ) -> None:
        super().__init__(classifier)
        self.connection = connection
        self.n_classes = n_classes
        if connection == "MW":
            identity = init_scale * torch.eye(n_classes)
            self.matrix = nn.Parameter(identity.repeat(n_annotators, 1, 1))
        if connection in ("VW", "VW+B"):
            self.scale = nn.Parameter(torch.full((n_annotators, n_classes), init_scale))
        if connection in ("VB", "VW+B"):
            self.bias = nn.Parameter(torch.zeros(n_annotators, n_classes))
        if connection == "S":
            self.scale = nn.Parameter(torch.full((n_annotators, 1), init_scale))

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of annotations, shape (m, n_classes)."""
        proba = self(x).softmax(dim=1)[rows]
        if self.connection == "MW":
            # The backward pass of an embedding look-up is faster than that of indexing.
            flat = F.embedding(annotators, self.matrix.flatten(1))
            kernels = flat.view(-1, self.n_classes, self.n_classes)
            return apply_confusion(proba, kernels).log_softmax(dim=1)
        if self.connection != "VB":
            proba = proba * F.embedding(annotators, self.scale)
        if self.connection in ("VB", "VW+B"):
            proba = proba + F.embedding(annotators, self.bias)
        return proba.log_softmax(dim=1)

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of all pairs, shape (n, r, n_classes)."""
        if self.connection != "MW":
            return super().annotation_log_proba_grid(x, annotators)
        proba = self(x).softmax(dim=1)
        return torch.einsum("nc,rcg->nrg", proba, self.matrix[annotators]).log_softmax(dim=2)

    def confusion(self) -> Tensor:
        """Confusion matrices for instances of certain class, shape (n_annotators, true, given)."""
        identity = torch.eye(self.n_classes, device=next(self.parameters()).device)
        if self.connection == "MW":
            return self.matrix.softmax(dim=2)
        output = identity[None]
        if self.connection != "VB":
            output = output * self.scale[:, None, :]
        if self.connection in ("VB", "VW+B"):
            output = output + self.bias[:, None, :]
        return output.softmax(dim=2)
