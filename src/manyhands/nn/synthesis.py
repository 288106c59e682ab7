"""A classifier with a way into the space where instances are made, and out of it (ICED).

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from manyhands.nn.base import ScaledClassifier
from manyhands.nn.noise_adaptation.fixed import FixedConfusionModule

SPACES = ("decoder", "embedding", "input")
"""Where instances are made, and what the classifier is given: see `SynthesisModule`."""


class Decoder(nn.Module):
    """From an embedding back to the (scaled) instance: a hidden layer with a ReLU, and an output.

    Parameters
    ----------
    width : int
        Numbers of the embedding, and units of the hidden layer.
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
        """Scaled instances, shape (n, *input_shape)."""
        decoded: Tensor = self.body(z)
        return decoded.reshape(-1, *self.input_shape)


class SynthesisModule(FixedConfusionModule):
    """A classifier, fixed confusion matrices, and a space where points between instances are made.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    input_shape : sequence of int
        Shape of one instance.
    space : one of `SPACES`
        "decoder": the backbone's embedding; points are decoded to scaled instances [1]_.
        "embedding": the same, but points go to the backbone's ``head`` as they are. "input":
        scaled instances, flattened.
    """

    posterior: Tensor
    """Class probabilities of the training instances; there only while it is trained."""
    class_shares: Tensor
    """Share of every class in what it is trained on; likewise."""

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        input_shape: Sequence[int],
        space: str,
    ) -> None:
        super().__init__(classifier, n_classes, n_annotators)
        self.input_shape = tuple(input_shape)
        self.space = space
        self.decoder: Decoder | None = None
        if space == "decoder":
            self.decoder = Decoder(self._embedding_width(), self.input_shape)

    def _embedding_width(self) -> int:
        backbone = self.classifier.backbone
        was_training = backbone.training
        backbone.eval()  # A network that normalises over batches takes one instance only so.
        with torch.no_grad():
            blank = torch.zeros(1, *self.input_shape)
            width = int(backbone.embed(blank).shape[1])  # type: ignore[operator]
        backbone.train(was_training)
        return width

    def encode(self, x: Tensor) -> Tensor:
        """Map instances (n, *input_shape) into the space, (n, d)."""
        if self.space == "input":
            scaled: Tensor = self.classifier.scaler(x)
            return scaled.flatten(1)
        return self.classifier.embed(x)

    def decode(self, z: Tensor) -> Tensor:
        """Map points (n, d) to what `mixed` takes: scaled instances, or embeddings."""
        if self.decoder is not None:
            decoded: Tensor = self.decoder(z)
            return decoded
        return z.reshape(-1, *self.input_shape) if self.space == "input" else z

    def mixed(self, x: Tensor, made: Tensor) -> Tensor:
        """Class logits of instances and then of made points, as one batch: (n + m, n_classes)."""
        if not len(made):
            return self(x)
        logits: Tensor
        if self.space == "embedding":
            together = torch.cat([self._embedded(x), made])
            logits = self.classifier.backbone.head(together)  # type: ignore[operator]
            return logits
        logits = self.classifier.backbone(torch.cat([self.classifier.scaler(x), made]))
        return logits

    def _embedded(self, x: Tensor) -> Tensor:
        """Embed real instances of a batch, of which there may be one or none."""
        backbone = self.classifier.backbone
        was_training = backbone.training
        # One alone has no statistics that a network could normalise by.
        backbone.train(was_training and len(x) > 1)
        embedding = self.classifier.embed(x)
        backbone.train(was_training)
        return embedding

    def reconstruct(self, x: Tensor) -> Tensor:
        """Mean squared error of decoding the embedding of instances, in scaled features."""
        assert self.decoder is not None
        scaled = self.classifier.scaler(x)
        embedding = self.classifier.backbone.embed(scaled)  # type: ignore[operator]
        return nn.functional.mse_loss(self.decoder(embedding), scaled)
