"""One confusion matrix per annotator: learnt, given, or none.

.. [1] R. Tanno, A. Saeedi, S. Sankaranarayanan, D. C. Alexander and N. Silberman. Learning from
   noisy labels by regularized estimation of annotator confusion. CVPR 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyhands.functional import apply_confusion
from manyhands.nn.base import CrowdModule, ScaledClassifier

PARAMETRIZATIONS = ("softplus", "softmax", "column_softmax")
"""Ways in which `ConfusionModule` turns free kernels into confusion matrices."""


class ConfusionModule(CrowdModule):
    """A classifier whose probabilities pass through one confusion matrix per annotator [1]_.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    parametrization : one of `PARAMETRIZATIONS`
        How a kernel K becomes a matrix W [true, given]. "softplus": softplus(K), each row divided
        by its sum, as in [1]_. "softmax": softmax of each row. With these two, W is a confusion
        matrix and an annotation's distribution is p(x) @ W. "column_softmax": softmax of each
        *column*, and an annotation's distribution is the softmax of p(x) @ W, following DASC's
        Eq. 10 and 8 to the letter.
    init_scale : float
        Kernels start at this multiple of the identity, minus 5 everywhere for "softplus".
    """

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        *,
        parametrization: str = "softplus",
        init_scale: float = 6.0,
    ) -> None:
        super().__init__(classifier)
        self.n_classes = n_classes
        self.parametrization = parametrization
        start = init_scale * torch.eye(n_classes)
        if parametrization == "softplus":
            start = start - 5.0
        self.kernels = nn.Parameter(start.repeat(n_annotators, 1, 1))

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of annotations, shape (m, n_classes)."""
        proba = self(x).softmax(dim=1)[rows]
        flat = F.embedding(annotators, self.kernels.flatten(1))
        kernels = flat.view(-1, self.n_classes, self.n_classes)
        return self._log(apply_confusion(proba, self._normalize(kernels)))

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of all pairs, shape (n, r, n_classes)."""
        matrices = self._normalize(self.kernels[annotators])
        return self._log(torch.einsum("nc,rcg->nrg", self(x).softmax(dim=1), matrices))

    def traces(self, annotators: Tensor) -> Tensor:
        """Return the traces of the matrices W of r annotators, shape (r,)."""
        flat = F.embedding(annotators, self.kernels.flatten(1))
        matrices = self._normalize(flat.view(-1, self.n_classes, self.n_classes))
        return matrices.diagonal(dim1=1, dim2=2).sum(dim=1)

    def confusion(self) -> Tensor:
        """Return the confusion matrices, shape (n_annotators, true, given), rows sum to 1."""
        return self._log(self._normalize(self.kernels)).exp()

    def _normalize(self, kernels: Tensor) -> Tensor:
        """Return the matrices W of kernels (..., true, given)."""
        if self.parametrization == "column_softmax":
            return kernels.softmax(dim=-2)
        if self.parametrization == "softmax":
            return kernels.softmax(dim=-1)
        # Without the clamp, a row that underflows entirely would be divided by 0.
        positive = F.softplus(kernels).clamp_min(torch.finfo(kernels.dtype).tiny)
        return positive / positive.sum(dim=-1, keepdim=True)

    def _log(self, given: Tensor) -> Tensor:
        """Return the log probabilities of annotations from p(x) @ W."""
        if self.parametrization == "column_softmax":
            return given.log_softmax(dim=-1)
        return given.clamp_min(torch.finfo(given.dtype).tiny).log()


class FixedConfusionModule(CrowdModule):
    """A classifier with given confusion matrices that are not trained."""

    confusions: Tensor

    def __init__(self, classifier: ScaledClassifier, n_classes: int, n_annotators: int) -> None:
        super().__init__(classifier)
        start = torch.eye(n_classes).repeat(n_annotators, 1, 1)
        self.register_buffer("confusions", start)

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Return the log of p(x) @ the annotator's confusion matrix, shape (m, n_classes)."""
        proba = self(x).softmax(dim=1)[rows]
        given = apply_confusion(proba, self.confusions[annotators])
        return given.clamp_min(torch.finfo(given.dtype).tiny).log()

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of all pairs, shape (n, r, n_classes)."""
        proba = self(x).softmax(dim=1)
        given = torch.einsum("nc,rcg->nrg", proba, self.confusions[annotators])
        return given.clamp_min(torch.finfo(given.dtype).tiny).log()


class DirectModule(CrowdModule):
    """A classifier whose class probabilities are also each annotator's: no noise is modelled."""

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of the classes, shape (m, n_classes)."""
        return self(x).log_softmax(dim=1)[rows]

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of the classes for r annotators, (n, r, n_classes)."""
        return self(x).log_softmax(dim=1)[:, None].expand(-1, len(annotators), -1)
