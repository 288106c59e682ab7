"""Backbones: from features to class logits, with an embedding on the way where there is one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from math import prod
from numbers import Integral
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from manyhands.exceptions import AnnotationError

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}


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


class EmbeddingMLP(nn.Module):
    """A fully connected network made for its embedding, which it ends in: for metric learning.

    What keeps a network from learning a few hundred instances by heart is dropout of the *input*;
    of the embedding, over which distances are taken, it makes the distances wrong.

    Parameters
    ----------
    input_shape : sequence of int
        Shape of one instance; flattened.
    n_classes : int
    hidden : sequence of int
        Units of every hidden layer. Without any, the embedding is linear.
    width : int
        Numbers of the embedding.
    activation : {"tanh", "relu", "sigmoid"}
        After every hidden layer.
    input_dropout, dropout : float in [0, 1)
        Of the features; after every hidden layer (with ``bounded``, after the embedding too).
    bounded : bool
        Activation after the embedding too, as in the code released with NeuCrowd, which is
        ``hidden=(128,), activation="sigmoid", input_dropout=0, dropout=.2, bounded=True``.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_classes: int,
        hidden: Sequence[int] = (128,),
        width: int = 32,
        activation: str = "tanh",
        input_dropout: float = 0.5,
        dropout: float = 0.0,
        bounded: bool = False,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation={activation!r} is unknown; use {', '.join(ACTIVATIONS)}")
        if not isinstance(hidden, Sequence) or isinstance(hidden, str):
            raise ValueError(f"hidden={hidden!r} must be a list of numbers of units, such as [128]")
        units = [*hidden, width]
        if not all(isinstance(n, Integral) and n > 0 for n in units):
            raise ValueError(f"hidden={hidden!r}, width={width!r} must be positive whole numbers")
        before = [prod(input_shape), *hidden]
        layers: list[nn.Module] = [nn.Flatten(), nn.Dropout(input_dropout)]
        for i, (given, made) in enumerate(zip(before, units, strict=True)):
            layers.append(nn.Linear(given, made))
            if i < len(hidden) or bounded:
                layers += [ACTIVATIONS[activation](), nn.Dropout(dropout)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the embedding, shape (n, width)."""
        embedding: Tensor = self.body(x)
        return embedding

    def forward(self, x: Tensor) -> Tensor:
        """Class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


class CNN(nn.Module):
    """A small convolutional network, for images of about 32 x 32 pixels.

    Blocks of a 3 x 3 convolution, batch normalisation, a ReLU and a halving of the image, then a
    hidden layer with a ReLU and dropout, and a linear output.

    Parameters
    ----------
    input_shape : sequence of int
        (channels, height, width); 2 to the number of blocks is the least height and width. The
        hidden layer grows with the image.
    n_classes : int
    channels : sequence of int
        Channels of every block's convolution.
    hidden : int
        Units of the hidden layer.
    dropout : float in [0, 1)
        After the hidden layer.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_classes: int,
        channels: Sequence[int] = (32, 64, 128),
        hidden: int = 128,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        for name, units in (("channels", channels), ("hidden", [hidden])):
            if not (units and all(isinstance(n, Integral) and n > 0 for n in units)):
                shown = channels if name == "channels" else hidden
                raise ValueError(f"{name}={shown!r} must be positive whole numbers")
        halved = 2 ** len(channels)
        width, *sides = _image_shape(
            input_shape, least=halved, wanted=f"at least {halved} x {halved}"
        )
        layers: list[nn.Module] = []
        for made in channels:
            layers += [*_convolution(width, made), nn.ReLU(), nn.MaxPool2d(2)]
            width = made
        width *= prod(side // halved for side in sides)
        layers += [nn.Flatten(), nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(hidden, n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the hidden layer, shape (n, hidden)."""
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
        width, *_ = _image_shape(input_shape, least=32, below=64, wanted="32 x 32")
        layers: list[nn.Module] = []
        for block in self.blocks:
            for channels in block:
                layers += [*_convolution(width, channels), nn.ReLU()]
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


class ResNet18(nn.Module):
    """ResNet-18 in its form for CIFAR, for images of about 32 x 32 pixels [1]_.

    A 3 x 3 convolution without pooling, four stages of two basic blocks with 64, 128, 256 and 512
    channels, of which the last three halve the image at their start, the mean over what is left
    of it, and a linear output. Where a block changes the size, its shortcut is a 1 x 1
    convolution. The original's stem (7 x 7, stride 2, pooling) is for images of 224 x 224.

    Parameters
    ----------
    input_shape : sequence of int
        (channels, height, width), height and width at least 8.
    n_classes : int

    References
    ----------
    .. [1] K. He, X. Zhang, S. Ren, J. Sun. Deep residual learning for image recognition. CVPR
       2016.
    """

    stages = (64, 128, 256, 512)
    """Channels of every stage."""

    def __init__(self, input_shape: Sequence[int], n_classes: int) -> None:
        super().__init__()
        given, *_ = _image_shape(input_shape, least=8, wanted="at least 8 x 8")
        width = self.stages[0]
        layers: list[nn.Module] = [*_convolution(given, width), nn.ReLU()]
        for stage, channels in enumerate(self.stages):
            layers += [
                BasicBlock(width, channels, stride=2 if stage else 1),
                BasicBlock(channels, channels),
            ]
            width = channels
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(width, n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the mean of the last stage's output over the image, shape (n, 512)."""
        embedding: Tensor = self.body(x)
        return embedding

    def forward(self, x: Tensor) -> Tensor:
        """Class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut around them: a block of `ResNet18`.

    Parameters
    ----------
    width, channels : int
        Channels of input and output.
    stride : int
        Of the first convolution.
    """

    def __init__(self, width: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_convolution(width, channels, stride=stride),
            nn.ReLU(),
            *_convolution(channels, channels),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or width != channels:
            self.shortcut.extend(_convolution(width, channels, kernel=1, stride=stride))

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps, shape (n, channels, height / stride, width / stride)."""
        summed: Tensor = self.residual(x) + self.shortcut(x)
        return summed.relu()


def _convolution(width: int, channels: int, *, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    """Make a convolution that keeps the image's size (but for its stride), and normalisation."""
    return [
        nn.Conv2d(width, channels, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(channels),
    ]


def _image_shape(
    input_shape: Sequence[int], *, least: int, wanted: str, below: float = float("inf")
) -> list[int]:
    """Return channels, height and width; refuse what is no image of a fitting size."""
    if len(input_shape) != 3 or not all(least <= side < below for side in input_shape[1:]):
        raise ValueError(
            f"an instance has shape {tuple(input_shape)}; it must be an image (channels, height, "
            f"width) of {wanted} pixels"
        )
    return [int(size) for size in input_shape]


BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "linear": Linear,
    "mlp": MLP,
    "embedding": EmbeddingMLP,
    "cnn": CNN,
    "vgg16": VGG16,
    "resnet18": ResNet18,
}
"""Backbones that go by a name: in parameters, in files, on the command line."""


def make_backbone(spec: Any, input_shape: Sequence[int], n_classes: int) -> nn.Module:
    """Build the network a ``backbone`` parameter stands for.

    Parameters
    ----------
    spec : None, str, dict, nn.Module or callable
        None is ``"mlp"``; a name from `BACKBONES`; a dict with ``name`` and that backbone's
        arguments; a module (copied, never trained in place); or a factory called with
        ``(input_shape, n_classes)`` that returns a module giving class logits. A dict may also
        have ``weights``, a state dict of that backbone or the path of a ``.safetensors`` file
        with one, to start from; without the entries of ``head`` (trained on other classes, for
        instance), the head starts at random, as everything does without ``weights``.
    input_shape : sequence of int
        Shape of one instance.
    n_classes : int

    Raises
    ------
    AnnotationError
        If the name or an argument is unknown, the weights are of another network, or a factory
        returns no module.
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
    weights = arguments.pop("weights", None)
    try:
        network = BACKBONES[name](input_shape, n_classes, **arguments)
        if weights is not None:
            _load_weights(network, weights)
    except (TypeError, ValueError, RuntimeError) as error:
        # Without the weights: they would fill the screen.
        shown = {"name": name, **arguments} if arguments else name
        raise AnnotationError(f"backbone={shown!r}: {error}") from error
    return network


def _load_weights(network: nn.Module, weights: Any) -> None:
    """Put a state dict, or that of a safetensors file, into a network; ``head`` may be absent."""
    if not isinstance(weights, Mapping):
        path = Path(weights)
        if path.suffix != ".safetensors":
            raise ValueError(f"weights={str(path)!r} is neither a state dict nor a .safetensors")
        try:
            weights = load_file(path)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"weights={str(path)!r} cannot be read ({error})") from error
    own = network.state_dict()
    parts = {
        "lack": [name for name in own if name not in weights and not name.startswith("head.")],
        "have the unknown": [name for name in weights if name not in own],
    }
    for what, names in parts.items():
        if names:
            more = f", ... ({len(names)})" if len(names) > 3 else ""
            raise ValueError(f"weights {what} {', '.join(map(str, names[:3]))}{more}")
    network.load_state_dict({**own, **weights})
