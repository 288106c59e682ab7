"""Base modules: the classifier that is kept after training, and the model of annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.nn.backbones import first_embedding, make_backbone
from manyhands.nn.standardize import Standardize


class ScaledClassifier(nn.Module):
    """A scaler followed by a backbone: the part that predicts after training."""

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


def make_scaled(
    spec: Any, scaling: str | None, input_shape: Sequence[int], n_classes: int
) -> ScaledClassifier:
    """Make the network that a ``backbone`` parameter specifies, behind its scaler.

    Token ids and packed dicts are never scaled: a standardised id is another id.
    """
    network = make_backbone(spec, input_shape, n_classes)
    if first_embedding(network) is not None or hasattr(input_shape, "fields"):
        scaling = None
    return ScaledClassifier(Standardize(input_shape, scaling), network)


class CrowdModule(nn.Module):
    """A classifier and a model of the annotations given its output.

    Attributes
    ----------
    classifier : nn.Module
        The part that is kept after training: x -> class logits.
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
        """Log probability of every class as the annotation, for m (row of x, annotator) pairs.

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

        Subclasses override this if a matrix product is faster than computing pair by pair.
        """
        n, r = len(x), len(annotators)
        rows = torch.arange(n, device=x.device).repeat_interleave(r)
        pairs = self.annotation_log_proba(x, rows, annotators.repeat(n))
        return pairs.reshape(n, r, pairs.shape[1])
