"""Base modules: the classifier that is kept after training, and the model of annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.functional.ranks import over_ranks
from manyhands.nn.backbones import (
    PackedShape,
    blank,
    embedded,
    first_embedding,
    make_backbone,
)
from manyhands.nn.standardize import Standardize


class ScaledClassifier(nn.Module):
    """A scaler followed by a backbone: the part that predicts after training.

    Parameters
    ----------
    scaler : Standardize
    backbone : nn.Module
    symbolic : bool
        Whether instances are dicts or token ids. Only the backbone can compute with them.
    """

    def __init__(self, scaler: Standardize, backbone: nn.Module, *, symbolic: bool = False) -> None:
        super().__init__()
        self.scaler = scaler
        self.backbone = backbone
        self.symbolic = symbolic

    def forward(self, x: Tensor) -> Tensor:
        """Return the class logits, shape (n, n_classes)."""
        return self.logits(self.scaler(x))

    def logits(self, scaled: Tensor) -> Tensor:
        """Return the class logits of scaled instances; several devices each compute a part."""
        return over_ranks(self.backbone, self.backbone, scaled)

    def embed(self, x: Tensor) -> Tensor:
        """Return the backbone's embedding, shape (n, n_embedding)."""
        return embedded(self.backbone, self.scaler(x))

    def represent(self, scaled: Tensor) -> Tensor:
        """Return the vectors by which other networks see scaled instances, shape (n, n_features).

        These are the features themselves. For symbolic instances they are the embedding or, if the
        backbone has no ``embed``, the logits, both without a gradient.
        """
        if not self.symbolic:
            return scaled.flatten(1)
        with torch.no_grad():
            has_embedding = hasattr(self.backbone, "embed")
            seen = embedded(self.backbone, scaled) if has_embedding else self.logits(scaled)
        return seen.flatten(1)

    def represented_width(self, input_shape: Sequence[int]) -> int:
        """Return the number of columns that `represent` returns."""
        modes = [(part, part.training) for part in self.modules()]
        self.eval()
        # A user's network may already be on another device.
        device = next((value.device for value in self.backbone.parameters()), None)
        width = self.represent(blank(input_shape, device)).shape[1]
        for part, mode in modes:
            part.training = mode
        return width


def make_scaled(
    spec: Any, scaling: str | None, input_shape: Sequence[int], n_classes: int
) -> ScaledClassifier:
    """Make the network that a ``backbone`` parameter specifies, behind its scaler.

    Token ids and packed dicts are never scaled, because a standardised id would be another id.
    """
    network = make_backbone(spec, input_shape, n_classes)
    symbolic = first_embedding(network) is not None or isinstance(input_shape, PackedShape)
    scaler = Standardize(input_shape, None if symbolic else scaling)
    return ScaledClassifier(scaler, network, symbolic=symbolic)


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
        """Return the class logits, shape (n, n_classes)."""
        logits: Tensor = self.classifier(x)
        return logits

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probability of every class as the annotation of m (row, annotator) pairs.

        Parameters
        ----------
        x : tensor of shape (n, *input_shape)
        rows, annotators : integer tensors of shape (m,)

        Returns
        -------
        tensor of shape (m, n_classes)

        Raises
        ------
        NotImplementedError
            If a module does not define it.
        """
        raise NotImplementedError

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of all n rows and r annotators, shape (n, r, n_classes).

        Subclasses override this if a matrix product is faster than computing pair by pair.
        """
        n, r = len(x), len(annotators)
        rows = torch.arange(n, device=x.device).repeat_interleave(r)
        pairs = self.annotation_log_proba(x, rows, annotators.repeat(n))
        return pairs.reshape(n, r, pairs.shape[1])
