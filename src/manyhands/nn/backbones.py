"""Backbones: from features to class logits, with an embedding on the way where there is one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from math import prod
from numbers import Integral
from typing import Any

from torch import Tensor, nn

from manyhands.exceptions import AnnotationError


class Linear(nn.Module):
    """Multinomial logistic regression; its embedding is the flattened input."""

    def __init__(self, input_shape: Sequence[int], n_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(prod(input_shape), n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Flatten x to (n, features)."""
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


class MLP(nn.Module):
    """The papers' fully connected network: 128 ReLU units, dropout, linear output.

    Parameters
    ----------
    input_shape : sequence of int
        Shape of one instance; flattened.
    n_classes : int
    hidden : sequence of int
        Units of every hidden layer.
    dropout : float in [0, 1)
        After every hidden layer.
    batch_norm : bool
        Normalise the input and every hidden layer, without affine parameters, as the CoNAL and
        CrowdInG code do on Music.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_classes: int,
        hidden: Sequence[int] = (128,),
        dropout: float = 0.5,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        width = prod(input_shape)
        layers: list[nn.Module] = [nn.Flatten()]
        if batch_norm:
            layers.append(nn.BatchNorm1d(width, affine=False))
        for units in hidden:
            if not (isinstance(units, Integral) and units > 0):
                raise ValueError(f"hidden={hidden!r} must hold positive numbers of units")
            layers += [nn.Linear(width, units), nn.ReLU(), nn.Dropout(dropout)]
            if batch_norm:
                layers.append(nn.BatchNorm1d(units, affine=False))
            width = units
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the last hidden layer, shape (n, hidden[-1])."""
        embedding: Tensor = self.body(x)
        return embedding

    def forward(self, x: Tensor) -> Tensor:
        """Class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


class VGG16(nn.Module):
    """VGG-16 with batch normalisation, for images of 32 x 32 pixels [1]_.

    Thirteen 3 x 3 convolutions, each with batch normalisation and a ReLU, in five blocks that end
    in a halving of the image; what is left, one pixel of 512 channels, is classified linearly, as
    the CoNAL and Max-MIG codes do on CIFAR-10 (the original's three dense layers serve larger
    images).

    Parameters
    ----------
    input_shape : sequence of int
        (channels, height, width); height and width of 32 (up to 63 work).
    n_classes : int

    References
    ----------
    .. [1] K. Simonyan and A. Zisserman. Very deep convolutional networks for large-scale image
       recognition. ICLR 2015, configuration D.
    """

    blocks = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
    """Channels of the convolutions of every block."""

    def __init__(self, input_shape: Sequence[int], n_classes: int) -> None:
        super().__init__()
        if len(input_shape) != 3 or not all(32 <= side < 64 for side in input_shape[1:]):
            raise ValueError(
                f"an instance has shape {tuple(input_shape)}; it must be an image (channels, "
                "height, width) of 32 x 32 pixels"
            )
        width = int(input_shape[0])
        layers: list[nn.Module] = []
        for block in self.blocks:
            for channels in block:
                layers += [
                    nn.Conv2d(width, channels, 3, padding=1, bias=False),
                    nn.BatchNorm2d(channels),
                    nn.ReLU(),
                ]
                width = channels
            layers.append(nn.MaxPool2d(2))
        self.body = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Linear(width, n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the last block's output, shape (n, 512)."""
        embedding: Tensor = self.body(x)
        return embedding

    def forward(self, x: Tensor) -> Tensor:
        """Class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


BACKBONES: dict[str, Callable[..., nn.Module]] = {"linear": Linear, "mlp": MLP, "vgg16": VGG16}
"""Backbones that go by a name: in parameters, in files, on the command line."""


def make_backbone(spec: Any, input_shape: Sequence[int], n_classes: int) -> nn.Module:
    """Build the network a ``backbone`` parameter stands for.

    Parameters
    ----------
    spec : None, str, dict, nn.Module or callable
        None is ``"mlp"``; a name from `BACKBONES`; a dict with ``name`` and that backbone's
        arguments; a module (copied, never trained in place); or a factory called with
        ``(input_shape, n_classes)`` that returns a module giving class logits.
    input_shape : sequence of int
        Shape of one instance.
    n_classes : int

    Raises
    ------
    AnnotationError
        If the name or an argument is unknown, or a factory returns no module.
    """
    if isinstance(spec, nn.Module):
        return copy.deepcopy(spec)
    if callable(spec):
        module = spec(tuple(input_shape), n_classes)
        if not isinstance(module, nn.Module):
            raise AnnotationError(
                f"backbone={spec!r} returned {type(module).__name__}; a factory takes "
                "(input_shape, n_classes) and returns a torch nn.Module"
            )
        return module
    arguments = {"name": spec or "mlp"} if spec is None or isinstance(spec, str) else dict(spec)
    name = arguments.pop("name", "mlp")
    if name not in BACKBONES:
        raise AnnotationError(f"backbone={name!r} is unknown; use one of {', '.join(BACKBONES)}")
    try:
        return BACKBONES[name](input_shape, n_classes, **arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        raise AnnotationError(f"backbone={spec!r}: {error}") from error
