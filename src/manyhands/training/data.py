"""What an epoch is fed with: features by row, and the observed annotations of those rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError

RESIDENT_BYTES = 2 << 30
"""Features up to this size are moved to the device once, larger ones batch by batch."""


class CrowdBatch(NamedTuple):
    """Some instances and all their annotations.

    Attributes
    ----------
    x : tensor of shape (n, *input_shape)
    instances : integer tensor of shape (n,)
        Row numbers in the training data.
    rows, annotators, labels : integer tensors of shape (m,)
        One entry an annotation; ``rows`` points into ``x``.
    weights : tensor of shape (m,) or None
    """

    x: Tensor
    instances: Tensor
    rows: Tensor
    annotators: Tensor
    labels: Tensor
    weights: Tensor | None


class MixedBatch(NamedTuple):
    """Some real instances, and some made ones after them.

    Attributes
    ----------
    x : tensor of shape (n, *input_shape)
        Real instances.
    made : tensor of shape (m, ...)
        Made ones, as they are held.
    instances : integer tensor of shape (n + m,)
        Numbers of both: rows of the training data; made ones are counted on from their number.
    """

    x: Tensor
    made: Tensor
    instances: Tensor


class Features:
    """Rows of features, whatever holds them: dense array, sparse matrix, or map-style Dataset.

    Parameters
    ----------
    data : ndarray, scipy.sparse matrix or torch Dataset
        Items of a Dataset are instances, or tuples that begin with one.
    device : torch.device
    """

    def __init__(self, data: Any, device: torch.device) -> None:
        self.device = device
        self.data = data
        self.is_dataset = not hasattr(data, "shape")
        self.is_sparse = hasattr(data, "toarray")
        if isinstance(data, np.ndarray):
            # torch has neither read-only tensors nor negative strides: such arrays are copied.
            data = np.ascontiguousarray(data)
            tensor = torch.from_numpy(data if data.flags.writeable else data.copy())
            self.data = tensor.to(device) if tensor.nbytes <= RESIDENT_BYTES else tensor
        first = self.take(torch.zeros(1, dtype=torch.int64)) if len(self) else None
        self.input_shape: tuple[int, ...] = (
            tuple(data.shape[1:]) if first is None else tuple(first.shape[1:])
        )

    def __len__(self) -> int:
        return len(self.data) if self.is_dataset else int(self.data.shape[0])

    def take(self, rows: Tensor) -> Tensor:
        """Fetch rows as a float32 tensor (n, *input_shape) on the device."""
        if self.is_dataset:
            items = [self.data[int(i)] for i in rows]
            items = [item[0] if isinstance(item, tuple | list) else item for item in items]
            x = default_collate(items)
            if not isinstance(x, Tensor):
                raise AnnotationError(
                    f"X is a Dataset with items of type {type(items[0]).__name__}; an item is an "
                    "array or tensor, or a tuple that begins with one"
                )
            self._check_finite(x, rows)
        elif self.is_sparse:
            x = torch.from_numpy(self.data[rows.cpu().numpy()].toarray())
        else:
            x = self.data[rows.to(self.data.device)]
        return x.to(self.device, torch.float32)

    @staticmethod
    def _check_finite(x: Tensor, rows: Tensor) -> None:
        """Arrays are checked as a whole when they come in, a Dataset item by item."""
        bad = ~torch.isfinite(x).flatten(1).all(dim=1)
        if bad.any():
            raise AnnotationError(
                f"X contains NaN or infinity in item {int(rows[bad.cpu()][0])} of the Dataset; "
                "fill the gaps in its __getitem__"
            )

    def batches(self, rows: Tensor, batch_size: int) -> Iterator[Tensor]:
        """Yield the given rows in batches."""
        for start in range(0, len(rows), batch_size):
            yield self.take(rows[start : start + batch_size])


@dataclass
class AnnotationBatches:
    """Shuffled minibatches over the instances that have annotations.

    Cost grows with the annotations: an instance without any is never fetched.

    Parameters
    ----------
    features : Features
    table : AnnotationTable
        One row of features an instance.
    batch_size : int
        Instances a batch.
    """

    features: Features
    table: AnnotationTable
    batch_size: int

    def __post_init__(self) -> None:
        device = self.features.device
        order, start = self.table.by_instance()
        rows = slice(None) if order is None else order

        def column(values: Any, dtype: torch.dtype) -> Tensor:
            return torch.from_numpy(np.array(values[rows])).to(device, dtype)

        self._annotators = column(self.table.annotator, torch.int64)
        self._labels = column(self.table.label, torch.int64)
        self._weights = (
            None if self.table.weights is None else column(self.table.weights, torch.float32)
        )
        self._start = torch.from_numpy(start).to(device)
        self.instances = torch.from_numpy(np.flatnonzero(np.diff(start))).to(device)

    def epoch(self, epoch: int) -> Iterator[CrowdBatch]:
        """Yield one pass in random order, drawn from torch's default generator."""
        yield from map(self.batch, _split(_shuffled(self.instances), self.batch_size))

    def in_order(self) -> Iterator[CrowdBatch]:
        """Yield one pass in table order."""
        return map(self.batch, _split(self.instances, self.batch_size))

    def batch(self, instances: Tensor) -> CrowdBatch:
        """Collect the annotations of some instances."""
        first = self._start[instances]
        counts = self._start[instances + 1] - first
        rows = torch.arange(len(instances), device=counts.device).repeat_interleave(counts)
        ends = counts.cumsum(0)
        place = torch.arange(len(rows), device=counts.device) + (first - ends + counts)[rows]
        return CrowdBatch(
            self.features.take(instances),
            instances,
            rows,
            self._annotators[place],
            self._labels[place],
            None if self._weights is None else self._weights[place],
        )


def mixed_epoch(
    features: Features, rows: Tensor, batch_size: int, made: Tensor | None = None
) -> Iterator[MixedBatch]:
    """Yield one pass over real and made instances in random order, as `AnnotationBatches.epoch`.

    Parameters
    ----------
    features : Features
    rows : integer tensor
        The real instances, ascending.
    batch_size : int
    made : tensor of shape (m, ...), optional
        The made ones, on the features' device.
    """
    n = len(features)
    if made is None:
        made = torch.empty(0, device=features.device)
    every = torch.cat([rows, torch.arange(n, n + len(made), device=rows.device)])
    for part in _split(_shuffled(every), batch_size):
        real, new = part[part < n], part[part >= n]
        # A Dataset cannot be asked for nothing.
        x = features.take(real) if len(real) else torch.empty(0, *features.input_shape)
        yield MixedBatch(x.to(features.device), made[new - n], torch.cat([real, new]))


def _shuffled(instances: Tensor) -> Tensor:
    return instances[torch.randperm(len(instances)).to(instances.device)]


def _split(instances: Tensor, size: int) -> list[Tensor]:
    parts = [instances[i : i + size] for i in range(0, len(instances), size)]
    # Batch normalisation has no variance over one row: a last batch of one joins the former.
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def hold_out(
    table: AnnotationTable, fraction: float, rng: np.random.Generator
) -> tuple[AnnotationTable, AnnotationTable]:
    """Split off a random fraction of the observed annotations: (kept, held out).

    Vocabularies stay. What was not observed (``source``) is kept: it proves nothing.

    Raises
    ------
    AnnotationError
        If either part would be empty.
    """
    observed = np.flatnonzero(table.source == "observed")
    n_held = round(fraction * len(observed))
    if not 0 < n_held < len(observed):
        mend = "smaller" if n_held else "larger"
        raise AnnotationError(
            f"validation={fraction} of {len(observed)} annotations leaves one part empty; "
            f"use a {mend} fraction, or validation=None"
        )
    held = np.zeros(table.n_annotations, dtype=bool)
    held[observed[rng.choice(len(observed), n_held, replace=False)]] = True
    return table.take(~held), table.take(held)
