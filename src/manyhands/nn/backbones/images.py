"""Convolutional backbones for images: a small CNN, VGG-16 and ResNet-18."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from numbers import Integral

from torch import Tensor, nn

from manyhands.nn.standardize import channels_last


class CNN(nn.Module):
    """A small convolutional network for images of about 32 x 32 pixels.

    Each block is a 3 x 3 convolution, batch normalisation, a ReLU, and 2 x 2 max pooling. A hidden
    layer with a ReLU and dropout and a linear output follow.

    Parameters
    ----------
    input_shape : sequence of int
        (channels, height, width), or (height, width, channels) with 1 or 3 channels; height and
        width of at least 2 ** (number of blocks). The
        weights of the hidden layer grow with the image.
    n_classes : int
    channels : sequence of int
        Channels of each block's convolution.
    hidden : int
        Units of the hidden layer.
    dropout : float in [0, 1)
        Dropout after the hidden layer.
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
        reduction = 2 ** len(channels)
        self.input_shape = tuple(input_shape)
        width, *sides = _image_shape(
            input_shape, least=reduction, wanted=f"at least {reduction} x {reduction}"
        )
        layers: list[nn.Module] = []
        for n_out in channels:
            layers += [*_convolution(width, n_out), nn.ReLU(), nn.MaxPool2d(2)]
            width = n_out
        width *= prod(side // reduction for side in sides)
        layers += [nn.Flatten(), nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(hidden, n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the hidden layer, shape (n, hidden)."""
        embedding: Tensor = self.body(channels_first(x, self.input_shape))
        return embedding

    def forward(self, x: Tensor) -> Tensor:
        """Return the class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


class VGG16(nn.Module):
    """VGG-16 with batch normalisation, for images of 32 x 32 pixels [1]_.

    Thirteen 3 x 3 convolutions, each with batch normalisation and a ReLU, form five blocks that end
    with 2 x 2 max pooling. The remaining pixel of 512 channels is classified linearly, as in the
    CoNAL and Max-MIG codes for CIFAR-10 (the original's three dense layers are for larger images).

    Parameters
    ----------
    input_shape : sequence of int
        (channels, height, width), or (height, width, channels) with 1 or 3 channels; height and
        width of 32 (any size up to 63 works).
    n_classes : int

    References
    ----------
    .. [1] K. Simonyan and A. Zisserman. Very deep convolutional networks for large-scale image
       recognition. ICLR 2015, configuration D.
    """

    blocks = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
    """Channels of each block's convolutions."""

    def __init__(self, input_shape: Sequence[int], n_classes: int) -> None:
        super().__init__()
        self.input_shape = tuple(input_shape)
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
        embedding: Tensor = self.body(channels_first(x, self.input_shape))
        return embedding

    def forward(self, x: Tensor) -> Tensor:
        """Return the class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


class ResNet18(nn.Module):
    """ResNet-18 in its CIFAR form, for images of about 32 x 32 pixels [1]_.

    A 3 x 3 convolution without pooling is followed by four stages of two basic blocks, with 64,
    128, 256 and 512 channels; the last three start by halving the image. Global average pooling and
    a linear output follow. Where a block changes the size, its shortcut is a 1 x 1 convolution. The
    original's stem (7 x 7, stride 2, pooling) is for images of 224 x 224 pixels.

    Parameters
    ----------
    input_shape : sequence of int
        (channels, height, width), or (height, width, channels) with 1 or 3 channels; height and
        width at least 8.
    n_classes : int

    References
    ----------
    .. [1] K. He, X. Zhang, S. Ren, J. Sun. Deep residual learning for image recognition. CVPR
       2016.
    """

    stages = (64, 128, 256, 512)
    """Channels of each stage."""

    def __init__(self, input_shape: Sequence[int], n_classes: int) -> None:
        super().__init__()
        self.input_shape = tuple(input_shape)
        image_channels, *_ = _image_shape(input_shape, least=8, wanted="at least 8 x 8")
        width = self.stages[0]
        layers: list[nn.Module] = [*_convolution(image_channels, width), nn.ReLU()]
        for stage, channels in enumerate(self.stages):
            layers += [
                BasicBlock(width, channels, stride=2 if stage else 1),
                BasicBlock(channels, channels),
            ]
            width = channels
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(width, n_classes)

    def embed(self, x: Tensor) -> Tensor:
        """Return the last stage's output averaged over the image, shape (n, 512)."""
        embedding: Tensor = self.body(channels_first(x, self.input_shape))
        return embedding

    def forward(self, x: Tensor) -> Tensor:
        """Return the class logits, shape (n, n_classes)."""
        logits: Tensor = self.head(self.embed(x))
        return logits


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut around them: a block of `ResNet18`.

    Parameters
    ----------
    width, channels : int
        Channels of the input and the output.
    stride : int
        Stride of the first convolution.
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
        """Return the feature maps, shape (n, channels, height / stride, width / stride)."""
        summed: Tensor = self.residual(x) + self.shortcut(x)
        return summed.relu()


def _convolution(width: int, channels: int, *, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    """Make a convolution that keeps the image's size (up to its stride), and normalisation."""
    return [
        nn.Conv2d(width, channels, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(channels),
    ]


def channels_first(x: Tensor, input_shape: Sequence[int]) -> Tensor:
    """Turn images (n, height, width, channels) into (n, channels, height, width).

    Tensors of another shape are returned as they are.
    """
    return x.permute(0, 3, 1, 2) if channels_last(input_shape) else x


def _image_shape(
    input_shape: Sequence[int], *, least: int, wanted: str, below: float = float("inf")
) -> list[int]:
    """Return channels, height and width; raise an error unless it is an image of suitable size."""
    sizes = [int(size) for size in input_shape]
    if channels_last(sizes):
        sizes = [sizes[2], *sizes[:2]]
    if len(sizes) != 3 or not all(least <= side < below for side in sizes[1:]):
        grey = " Grey images get their channel by X[:, None]" if len(sizes) == 2 else ""
        raise ValueError(
            f"an instance has shape {tuple(input_shape)}; it must be an image (channels, height, "
            f"width), or (height, width, channels) with 1 or 3 channels, of {wanted} pixels.{grey}"
        )
    return sizes
