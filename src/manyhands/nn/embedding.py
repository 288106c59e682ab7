"""Networks for metric learning: NeuCrowd's sampling network, and a regression on an embedding.

.. [1] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from manyhands.exceptions import AnnotationError
from manyhands.nn.backbones import PackedShape, blank, embedded

REGRESSIONS = ("embedding", "both")
"""Inputs of the logistic regression; see `EmbeddedRegression`."""


class EmbeddedRegression(nn.Module):
    """An embedding network and a logistic regression on its embedding: a backbone.

    The regression is set by ``set_regression``, not trained. If the network has ``embed``, its last
    layer (``head``, if any) is removed; if not, its output is the embedding.

    Parameters
    ----------
    network : nn.Module
    input_shape : sequence of int
        Shape of one instance.
    n_classes : int
    regression : one of `REGRESSIONS`
        "embedding", or "both": the embedding concatenated with the instance itself.
    """

    input_scale: Tensor
    """Factor applied to the instance when it is concatenated; 1 before it is set."""

    def __init__(
        self,
        network: nn.Module,
        input_shape: Sequence[int],
        n_classes: int,
        regression: str = "embedding",
    ) -> None:
        super().__init__()
        if regression == "both" and isinstance(input_shape, PackedShape):
            raise AnnotationError(
                "regression='both' needs the instances as numbers, and those of X are dicts; use "
                "regression='embedding'"
            )
        self.network = network
        self.is_embedder = hasattr(network, "embed")
        if self.is_embedder and hasattr(network, "head"):
            network.head = nn.Identity()
        self.with_input = regression == "both"
        self.width = self._width(input_shape)
        self.head = nn.Linear(self.width + self.with_input * prod(input_shape), n_classes)
        self.head.requires_grad_(False)
        self.register_buffer("input_scale", torch.ones(()))

    def _width(self, input_shape: Sequence[int]) -> int:
        was_training = self.network.training
        self.network.eval()  # Batch normalisation takes a single instance in eval mode only.
        with torch.no_grad():
            # A user's network may already be on another device.
            device = next((value.device for value in self.network.parameters()), None)
            embedding = self._embedded(blank(input_shape, device))
        self.network.train(was_training)
        if embedding.ndim < 2:
            raise AnnotationError(
                f"backbone gives an embedding of shape {tuple(embedding.shape)} for one instance; "
                "it must give one of shape (1, width)"
            )
        return embedding[0].numel()

    def embed(self, x: Tensor) -> Tensor:
        """Return the embedding, shape (n, width)."""
        return self._embedded(x).flatten(1)

    def _embedded(self, x: Tensor) -> Tensor:
        embedding: Tensor = embedded(self.network, x) if self.is_embedder else self.network(x)
        return embedding

    def regressors(self, x: Tensor) -> Tensor:
        """Return the inputs of the regression, shape (n, width) or (n, width + features)."""
        embedding = self.embed(x)
        if not self.with_input:
            return embedding
        return torch.cat([embedding, self.input_scale * x.flatten(1)], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.regressors(x))
        return logits

    @torch.no_grad()
    def match_input_scale(self, embedding: Tensor, x: Tensor) -> None:
        """Scale instances (n, features) to the mean squared length of their embeddings."""
        if self.with_input:
            lengths = [part.double().square().sum(dim=1).mean() for part in (embedding, x)]
            ratio = (lengths[0] / lengths[1]).sqrt() if lengths[1] > 0 else torch.ones(())
            self.input_scale.copy_(ratio if ratio > 0 else torch.ones(()))

    @torch.no_grad()
    def set_regression(self, weight: Tensor, bias: Tensor) -> None:
        """Set the weights (n_classes, n_regressors) and the bias (n_classes,)."""
        self.head.weight.copy_(weight)
        self.head.bias.copy_(bias)


class SamplingNetwork(nn.Module):
    """NeuCrowd's sampling network, which scores how hard a tuplet is [1]_ (Section 3.3.4).

    A tower shared by all members embeds each instance. The hardness is regressed on the
    concatenated embeddings of the tuplet's members.

    Parameters
    ----------
    input_shape : sequence of int
        Shape of one instance; flattened.
    size : int
        Number of instances in a tuplet.
    hidden, width : int
        Units of the tower's hidden layer and of its output.
    joint : int
        Units of a hidden layer between the concatenation and the score, which lets the score
        depend on relations between the members; 0: no such layer, as in the released code.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        size: int,
        hidden: int = 64,
        width: int = 16,
        joint: int = 32,
    ) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            nn.Flatten(),
            nn.Linear(prod(input_shape), hidden),
            nn.Tanh(),
            nn.Linear(hidden, width),
            nn.Tanh(),
        )
        middle: list[nn.Module] = [nn.Linear(size * width, joint), nn.Tanh()] if joint else []
        self.score = nn.Sequential(*middle, nn.Linear(joint or size * width, 1))

    def forward(self, x: Tensor, tuplets: Tensor) -> Tensor:
        """Return the hardness of tuplets.

        Parameters
        ----------
        x : tensor of shape (n, *input_shape)
        tuplets : integer tensor of shape (m, size)
            Rows of x.

        Returns
        -------
        tensor of shape (m,)
        """
        embedded: Tensor = self.tower(x)
        hardness: Tensor = self.score(embedded[tuplets].flatten(1))
        # Shape (m,), like the losses: subtracting them from (m, 1) would broadcast to (m, m).
        return hardness[:, 0]
