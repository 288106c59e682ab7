"""Batches of an epoch: rows of features and the annotations of those rows; a hold-out of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.training.features import Features
from manyhands.typing import BoolArray


class CrowdBatch(NamedTuple):
    """Some instances and all their annotations.

    Attributes
    ----------
    x : tensor of shape (n, *input_shape)
    instances : integer tensor of shape (n,)
        Row numbers in the training data.
    rows, annotators, labels : integer tensors of shape (m,)
        One entry per annotation; ``rows`` indexes ``x``.
    weights : tensor of shape (m,) or None
    """

    x: Tensor
    instances: Tensor
    rows: Tensor
    annotators: Tensor
    labels: Tensor
    weights: Tensor | None


class MixedBatch(NamedTuple):
    """Some real instances, followed by some synthetic ones.

    Attributes
    ----------
    x : tensor of shape (n, *input_shape)
        Real instances.
    synthetic : tensor of shape (m, ...)
        Synthetic instances, as they are stored.
    instances : integer tensor of shape (n + m,)
        Instance numbers: rows of the training data for real instances; the numbers of synthetic
        instances follow those.
    """

    x: Tensor
    synthetic: Tensor
    instances: Tensor


@dataclass
class AnnotationBatches:
    """Shuffled minibatches over the instances that have annotations.

    Cost grows with the number of annotations: an instance without any is never fetched.

    Parameters
    ----------
    features : Features
    table : AnnotationTable
    batch_size : int
        Instances per batch.
    portion : float, default=1.0
        Share of the instances in an epoch. Below 1, an epoch takes all that are ``new``, and others
        drawn at random; a whole batch at least.
    new : array of bool, shape (n_instances,), optional
    """

    features: Features
    table: AnnotationTable
    batch_size: int
    portion: float = 1.0
    new: BoolArray | None = None

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
        yield from self._batches(_split(_shuffled(self._drawn()), self.batch_size))

    def _drawn(self) -> Tensor:
        """Instances of an epoch."""
        rows = self.instances
        if self.portion >= 1:
            return rows
        is_new = torch.zeros(len(rows), dtype=torch.bool)
        if self.new is not None:
            is_new = torch.from_numpy(self.new)[rows.cpu()]
        n = max(round(self.portion * len(rows)), min(self.batch_size, len(rows)))
        first = torch.rand(len(rows)) + is_new
        return rows[first.argsort(descending=True)[: max(n, int(is_new.sum()))].to(rows.device)]

    def in_order(self) -> Iterator[CrowdBatch]:
        """Yield one pass in table order."""
        return self._batches(_split(self.instances, self.features.at_once(self.batch_size)))

    def _batches(self, parts: list[Tensor]) -> Iterator[CrowdBatch]:
        for instances, x in zip(parts, self.features.stream(parts), strict=True):
            yield self._batch(instances, x)

    def _batch(self, instances: Tensor, x: Tensor) -> CrowdBatch:
        """Collect the annotations of some instances."""
        first = self._start[instances]
        counts = self._start[instances + 1] - first
        rows = torch.arange(len(instances), device=counts.device).repeat_interleave(counts)
        ends = counts.cumsum(0)
        place = torch.arange(len(rows), device=counts.device) + (first - ends + counts)[rows]
        return CrowdBatch(
            x,
            instances,
            rows,
            self._annotators[place],
            self._labels[place],
            None if self._weights is None else self._weights[place],
        )


def mixed_epoch(
    features: Features, rows: Tensor, batch_size: int, synthetic: Tensor | None = None
) -> Iterator[MixedBatch]:
    """Yield one pass over real and synthetic instances in random order.

    The order is drawn as in `AnnotationBatches.epoch`.

    Parameters
    ----------
    features : Features
    rows : integer tensor
        The real instances, ascending.
    batch_size : int
    synthetic : tensor of shape (m, ...), optional
        The synthetic instances, on the features' device.
    """
    n = len(features)
    if synthetic is None:
        synthetic = torch.empty(0, device=features.device)
    instances = torch.cat([rows, torch.arange(n, n + len(synthetic), device=rows.device)])
    parts = _split(_shuffled(instances), batch_size)
    # An empty batch of a Dataset cannot be collated.
    fetched = features.stream([part[part < n] for part in parts if (part < n).any()])
    for part in parts:
        real, new = part[part < n], part[part >= n]
        x = next(fetched) if len(real) else torch.empty(0, *features.input_shape)
        yield MixedBatch(x.to(features.device), synthetic[new - n], torch.cat([real, new]))


def _shuffled(instances: Tensor) -> Tensor:
    return instances[torch.randperm(len(instances)).to(instances.device)]


def _split(instances: Tensor, size: int) -> list[Tensor]:
    parts = [instances[i : i + size] for i in range(0, len(instances), size)]
    # Batch normalisation needs two rows, so a last batch of one row joins the batch before it.
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def hold_out(
    table: AnnotationTable, fraction: float, rng: np.random.Generator
) -> tuple[AnnotationTable, AnnotationTable]:
    """Split off a random fraction of the observed annotations: (kept, held out).

    Both tables keep the vocabularies. Annotations that were not observed (``source``) are always
    kept, since they cannot validate a model.

    Raises
    ------
    AnnotationError
        If either part would be empty.
    """
    observed = np.flatnonzero(table.source == "observed")
    n_held = round(fraction * len(observed))
    if not 0 < n_held < len(observed):
        better = "smaller" if n_held else "larger"
        raise AnnotationError(
            f"validation={fraction} of {len(observed)} annotations leaves one part empty; "
            f"use a {better} fraction, or validation=None"
        )
    held = np.zeros(table.n_annotations, dtype=bool)
    held[observed[rng.choice(len(observed), n_held, replace=False)]] = True
    return table.take(~held), table.take(held)
