"""Classifiers beside noise that is given, or absent: nothing of it is learnt."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhands.functional import apply_confusion
from manyhands.nn.base import CrowdModule, ScaledClassifier


class FixedConfusionModule(CrowdModule):
    """A classifier beside given confusion matrices: annotations are explained, not learnt from."""

    confusions: Tensor

    def __init__(self, classifier: ScaledClassifier, n_classes: int, n_annotators: int) -> None:
        super().__init__(classifier)
        start = torch.eye(n_classes).repeat(n_annotators, 1, 1)
        self.register_buffer("confusions", start)

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log p(x) @ confusion of the annotator, shape (m, n_classes)."""
        proba = self(x).softmax(dim=1)[rows]
        given = apply_confusion(proba, self.confusions[annotators])
        return given.clamp_min(torch.finfo(given.dtype).tiny).log()

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of all pairs, shape (n, r, n_classes)."""
        proba = self(x).softmax(dim=1)
        given = torch.einsum("nc,rcg->nrg", proba, self.confusions[annotators])
        return given.clamp_min(torch.finfo(given.dtype).tiny).log()


class DirectModule(CrowdModule):
    """A classifier whose probabilities are every annotator's: there is no noise to adapt to."""

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of the classes, shape (m, n_classes)."""
        return self(x).log_softmax(dim=1)[rows]

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of the classes, repeated: shape (n, r, n_classes)."""
        return self(x).log_softmax(dim=1)[:, None].expand(-1, len(annotators), -1)
