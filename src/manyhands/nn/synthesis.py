"""A classifier with a space in which synthetic instances are generated (ICED).

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from manyhands.nn.backbones import blank, embedded
from manyhands.nn.base import ScaledClassifier
from manyhands.nn.noise_adaptation.confusion import FixedConfusionModule

SPACES = ("decoder", "embedding", "input")
"""Spaces in which instances are generated; see `SynthesisModule`."""


class Decoder(nn.Module):
    """Decoder of an embedding to the (scaled) instance: a hidden ReLU layer and a linear output.

    Parameters
    ----------
    width : int
        Dimension of the embedding and of the hidden layer.
    input_shape : sequence of int
        Shape of one instance.
    """

    def __init__(self, width: int, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.input_shape = tuple(input_shape)
        self.body = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, prod(self.input_shape))
        )

    def forward(self, z: Tensor) -> Tensor:
        """Return the scaled instances, shape (n, *input_shape)."""
        decoded: Tensor = self.body(z)
        return decoded.reshape(-1, *self.input_shape)


class SynthesisModule(FixedConfusionModule):
    """A classifier with fixed confusion matrices and a space for points between instances.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    input_shape : sequence of int
        Shape of one instance.
    space : one of `SPACES`
        "decoder": the backbone's embedding; points are decoded to scaled instances [1]_.
        "embedding": the backbone's embedding; points go directly to its ``head``. "input":
        flattened scaled instances.
    """

    posterior: Tensor
    """Class probabilities of the training instances; present during training only."""
    class_shares: Tensor
    """Share of each class in the training data; present during training only."""

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        input_shape: Sequence[int],
        space: str,
    ) -> None:
        super().__init__(classifier, n_classes, n_annotators)
        self.input_shape = input_shape
        self.space = space
        self.decoder: Decoder | None = None
        if space == "decoder":
            self.decoder = Decoder(self._embedding_width(), self.input_shape)

    def _embedding_width(self) -> int:
        backbone = self.classifier.backbone
        was_training = backbone.training
        backbone.eval()  # Batch normalisation takes a single instance in eval mode only.
        with torch.no_grad():
            width = int(embedded(backbone, blank(self.input_shape)).shape[1])
        backbone.train(was_training)
        return width

    def encode(self, x: Tensor) -> Tensor:
        """Map instances (n, *input_shape) into the space, shape (n, d)."""
        if self.space == "input":
            scaled: Tensor = self.classifier.scaler(x)
            return scaled.flatten(1)
        return self.classifier.embed(x)

    def decode(self, z: Tensor) -> Tensor:
        """Map points (n, d) to scaled instances or embeddings, as `mixed_logits` takes them."""
        if self.decoder is not None:
            decoded: Tensor = self.decoder(z)
            return decoded
        return z.reshape(-1, *self.input_shape) if self.space == "input" else z

    def mixed_logits(self, x: Tensor, synthetic: Tensor) -> Tensor:
        """Return the class logits of n instances and m synthetic points, shape (n + m, n_classes).

        Both form one batch; the instances come first.
        """
        if not len(synthetic):
            return self(x)
        if self.space == "embedding":
            together = torch.cat([self._embedded(x), synthetic])
            logits: Tensor = self.classifier.backbone.head(together)  # type: ignore[operator]
            return logits
        return self.classifier.logits(torch.cat([self.classifier.scaler(x), synthetic]))

    def _embedded(self, x: Tensor) -> Tensor:
        """Embed the real instances of a batch, of which there may be one or none."""
        backbone = self.classifier.backbone
        was_training = backbone.training
        # Batch normalisation cannot train on a single instance.
        backbone.train(was_training and len(x) > 1)
        embedding = self.classifier.embed(x)
        backbone.train(was_training)
        return embedding

    def reconstruct(self, x: Tensor) -> Tensor:
        """Return the mean squared error of the autoencoder on instances, in scaled features."""
        assert self.decoder is not None
        scaled = self.classifier.scaler(x)
        embedding = embedded(self.classifier.backbone, scaled)
        return nn.functional.mse_loss(self.decoder(embedding), scaled)
