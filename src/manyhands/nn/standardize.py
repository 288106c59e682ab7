"""Standardisation inside the model, so that a saved model carries its statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from manyhands.exceptions import warn_caller

CHANNELS = (1, 3)
"""Numbers of channels of an image: grey or colour."""


def channels_last(input_shape: Sequence[int]) -> bool:
    """Return whether an instance is an image with its channels last: (height, width, channels).

    Examples
    --------
    >>> channels_last((32, 32, 3)), channels_last((3, 32, 32)), channels_last((32, 32, 5))
    (True, False, False)
    """
    return len(input_shape) == 3 and input_shape[2] in CHANNELS and input_shape[0] not in CHANNELS


MOST_SCALE_RATIO = 10.0
"""Features count as an embedding only up to this ratio of scales: the 95 % quantile of their root
mean squares over the median."""

MOST_RELATIVE_MEAN = 1.5
"""Features count as an embedding only if the mean of a typical one is at most so many standard
deviations."""


class Standardize(nn.Module):
    """Scale instances as (x - shift) / scale, with statistics of the training data as buffers.

    Parameters
    ----------
    input_shape : sequence of int
        Shape of one instance. Channels are its first axis, or its last if `channels_last`.
    scaling : {"auto", "standard", "rms", None}
        "standard": mean and standard deviation per feature (per channel for images). "rms": one
        root mean square, no shift. "auto": "rms" if the features look like a non-negative embedding
        (`is_embedding`), else "standard". None: no scaling. Until `fit_statistics` is called, the
        module is the identity.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, input_shape: Sequence[int], scaling: str | None) -> None:
        super().__init__()
        self.scaling = scaling
        # One entry per feature, or per channel for images, or one for all.
        shape: tuple[int, ...] = (1,)
        self.flat = len(input_shape) == 1
        self.axis = len(input_shape) if channels_last(input_shape) else 1
        if scaling in ("auto", "standard"):
            shape = tuple(
                int(size) if axis == self.axis else 1 for axis, size in enumerate(input_shape, 1)
            )
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Scale x of shape (n, *input_shape)."""
        if self.scaling is None:
            return x
        # (x - shift) / scale in one pass over x.
        return torch.addcmul(-self.shift / self.scale, x, 1 / self.scale)

    def fit_statistics(self, batches: Iterable[Tensor]) -> None:
        """Compute the statistics from batches of shape (n, *input_shape), in float64."""
        if self.scaling is None:
            return
        count, total, squares, least = 0, torch.zeros(()), torch.zeros(()), float("inf")
        for x in batches:
            # (features or channels, values); one row of all values for "rms".
            values = x.cpu().double()
            values = values[None] if self.scaling == "rms" else values.transpose(0, self.axis)
            values = values.flatten(1)
            count += values.shape[1]
            total = total + values.sum(dim=1)
            squares = squares + values.square().sum(dim=1)
            least = min(least, float(values.min()))
        mean, mean_square = total / count, squares / count
        if self.scaling == "rms" or (
            self.scaling == "auto" and self.flat and is_embedding(mean, mean_square, least)
        ):
            self.scale.fill_(float(mean_square.mean().sqrt()) or 1.0)
        else:
            self._set(mean, mean_square)

    def _set(self, mean: Tensor, mean_square: Tensor) -> None:
        variance = (mean_square - mean.square()).clamp_min(0)
        if ((mean.abs() > 1e5 * variance.sqrt()) & (variance > 0)).any():
            warn_caller(
                "the mean of a feature is more than 100,000 times its standard deviation, so "
                "single precision loses most of its variation; subtract a constant from the "
                "feature before fit"
            )
        # A constant feature becomes 0 rather than rounding noise.
        constant = variance <= 1e-12 * mean_square.clamp_min(1e-12)
        deviation = torch.where(constant, torch.ones_like(variance), variance.sqrt())
        self.shift.copy_(mean.reshape(self.shift.shape))
        self.scale.copy_(deviation.reshape(self.scale.shape))


def is_embedding(mean: Tensor, mean_square: Tensor, least: float) -> bool:
    """Return whether features look like outputs of a ReLU, counts or term weights.

    Such features are non-negative, share a scale, and are often small or zero. A feature that is
    rarely active has a small spread. Standardising would give it as much weight as the others.

    Parameters
    ----------
    mean, mean_square : tensor of shape (n_features,)
    least : float
        The smallest value of all.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_embedding(torch.tensor([0.2, 0.3]), torch.tensor([0.2, 0.4]), 0.0)
    True
    >>> is_embedding(torch.tensor([40.0, 30_000.0]), torch.tensor([1_700.0, 1e9]), 18.0)  # age, pay
    False
    """
    varies = mean_square > mean.square()
    if least < 0 or not varies.any():
        return False
    size = mean_square[varies].sqrt()
    deviation = (mean_square - mean.square())[varies].sqrt()
    shared = torch.quantile(size, 0.95) <= MOST_SCALE_RATIO * size.median()
    return bool(shared) and bool((mean[varies] / deviation).median() <= MOST_RELATIVE_MEAN)
