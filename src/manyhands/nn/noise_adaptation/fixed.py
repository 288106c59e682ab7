"""Crowd modules whose noise is not learnt: given confusion matrices, or no noise."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhands.functional import apply_confusion
from manyhands.nn.base import CrowdModule, ScaledClassifier


class FixedConfusionModule(CrowdModule):
    """A classifier with given confusion matrices, which explain annotations but are not trained."""

    confusions: Tensor

    def __init__(self, classifier: ScaledClassifier, n_classes: int, n_annotators: int) -> None:
        super().__init__(classifier)
        start = torch.eye(n_classes).repeat(n_annotators, 1, 1)
        self.register_buffer("confusions", start)

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log of p(x) @ the annotator's confusion matrix, shape (m, n_classes)."""
        proba = self(x).softmax(dim=1)[rows]
        given = apply_confusion(proba, self.confusions[annotators])
        return given.clamp_min(torch.finfo(given.dtype).tiny).log()

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of all pairs, shape (n, r, n_classes)."""
        proba = self(x).softmax(dim=1)
        given = torch.einsum("nc,rcg->nrg", proba, self.confusions[annotators])
        return given.clamp_min(torch.finfo(given.dtype).tiny).log()


class DirectModule(CrowdModule):
    """A classifier whose class probabilities are also each annotator's: no noise is modelled."""

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of the classes, shape (m, n_classes)."""
        return self(x).log_softmax(dim=1)[rows]

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of the classes, repeated for r annotators, shape (n, r, n_classes)."""
        return self(x).log_softmax(dim=1)[:, None].expand(-1, len(annotators), -1)
