"""The two halves of a crowd module: what survives training, and what explains annotations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from manyhands.nn.standardize import Standardize


class ScaledClassifier(nn.Module):
    """Scaling, then a backbone: the part that predicts once training is over."""

    def __init__(self, scaler: Standardize, backbone: nn.Module) -> None:
        super().__init__()
        self.scaler = scaler
        self.backbone = backbone

    def forward(self, x: Tensor) -> Tensor:
        """Class logits, shape (n, n_classes)."""
        logits: Tensor = self.backbone(self.scaler(x))
        return logits

    def embed(self, x: Tensor) -> Tensor:
        """Return the backbone's embedding, shape (n, n_embedding)."""
        embedding: Tensor = self.backbone.embed(self.scaler(x))  # type: ignore[operator]
        return embedding


class CrowdModule(nn.Module):
    """A classifier and a model of the annotations that its output gives rise to.

    Attributes
    ----------
    classifier : nn.Module
        What survives training: x -> class logits.
    """

    classifier: ScaledClassifier

    def __init__(self, classifier: ScaledClassifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """Class logits, shape (n, n_classes)."""
        logits: Tensor = self.classifier(x)
        return logits

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log probability of every class as the annotation of m (row of x, annotator) pairs.

        Parameters
        ----------
        x : tensor of shape (n, *input_shape)
        rows, annotators : integer tensors of shape (m,)

        Returns
        -------
        tensor of shape (m, n_classes)
        """
        raise NotImplementedError

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Return the same for every row of x and each of r annotators, shape (n, r, n_classes).

        A module overrides this where a product of matrices beats pair by pair.
        """
        n, r = len(x), len(annotators)
        rows = torch.arange(n, device=x.device).repeat_interleave(r)
        pairs = self.annotation_log_proba(x, rows, annotators.repeat(n))
        return pairs.reshape(n, r, pairs.shape[1])
