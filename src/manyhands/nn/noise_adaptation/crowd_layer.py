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
    low_rank : int, optional
        For "MW": an annotator's matrix is ``init_scale`` times the identity plus a mixture of
        ``low_rank`` matrices that all annotators share, so an annotator has ``low_rank`` weights
        instead of n_classes². With n_classes² or more, the shared matrices are fixed, one per
        entry, and every matrix is possible, as without ``low_rank``.

    Notes
    -----
    As in the released code, the layer's input is the classifier's softmax and its output passes
    through another softmax. The weights are free (neither positive nor normalised).
    """

    shared: Tensor

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        *,
        connection: str = "MW",
        init_scale: float = 1.0,
        low_rank: int | None = None,
    ) -> None:
        super().__init__(classifier)
        self.connection = connection
        self.n_classes = n_classes
        self.low_rank = low_rank
        if connection == "MW" and low_rank is not None:
            self.init_scale = init_scale
            self._share(min(low_rank, n_classes**2), n_annotators)
        elif connection == "MW":
            identity = init_scale * torch.eye(n_classes)
            self.matrix = nn.Parameter(identity.repeat(n_annotators, 1, 1))
        if connection in ("VW", "VW+B"):
            self.scale = nn.Parameter(torch.full((n_annotators, n_classes), init_scale))
        if connection in ("VB", "VW+B"):
            self.bias = nn.Parameter(torch.zeros(n_annotators, n_classes))
        if connection == "S":
            self.scale = nn.Parameter(torch.full((n_annotators, 1), init_scale))

    def _share(self, rank: int, n_annotators: int) -> None:
        """Make the shared matrices, and each annotator's weights of them, initially 0."""
        size = self.n_classes**2
        self.mixture = nn.Parameter(torch.zeros(n_annotators, rank))
        if rank == size:
            self.register_buffer("shared", torch.eye(size).view(size, self.n_classes, -1))
            return
        columns = torch.linalg.qr(torch.randn(size, rank)).Q
        self.shared = nn.Parameter(columns.t().reshape(rank, self.n_classes, -1).clone())

    def _mixed(self, proba: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Return the outputs of low-rank layers, (m, n_classes), without forming any matrix."""
        through = torch.einsum("nc,kcg->nkg", proba, self.shared)[rows]
        weights = F.embedding(annotators, self.mixture)
        return self.init_scale * proba[rows] + torch.einsum("mk,mkg->mg", weights, through)

    def matrices(self, annotators: Tensor | None = None) -> Tensor:
        """Return the matrices of r annotators (default: all) with "MW", shape (r, true, given)."""
        chosen = slice(None) if annotators is None else annotators
        if self.low_rank is None:
            return self.matrix[chosen]
        identity = self.init_scale * torch.eye(self.n_classes).to(self.mixture)
        return identity + torch.einsum("rk,kcg->rcg", self.mixture[chosen], self.shared)

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of annotations, shape (m, n_classes)."""
        whole = self(x).softmax(dim=1)
        if self.connection == "MW" and self.low_rank is not None:
            return self._mixed(whole, rows, annotators).log_softmax(dim=1)
        proba = whole[rows]
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
        """Return the log probabilities of all pairs, shape (n, r, n_classes)."""
        if self.connection != "MW":
            return super().annotation_log_proba_grid(x, annotators)
        proba = self(x).softmax(dim=1)
        return torch.einsum("nc,rcg->nrg", proba, self.matrices(annotators)).log_softmax(dim=2)

    def confusion(self) -> Tensor:
        """Return the confusion matrices, shape (n_annotators, true, given), rows sum to 1."""
        identity = torch.eye(self.n_classes, device=next(self.parameters()).device)
        if self.connection == "MW":
            return self.matrices().softmax(dim=2)
        output = identity[None]
        if self.connection != "VB":
            output = output * self.scale[:, None, :]
        if self.connection in ("VB", "VW+B"):
            output = output + self.bias[:, None, :]
        return output.softmax(dim=2)
