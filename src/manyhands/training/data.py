"""Batches of an epoch: rows of features and the annotations of those rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.nn import PackedShape, pack

RESIDENT_BYTES = 2 << 30
"""Features up to this size are moved to the device at once, larger ones batch by batch."""


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


class Features:
    """Rows of features from a dense array, a sparse matrix or a map-style Dataset.

    Parameters
    ----------
    data : ndarray, scipy.sparse matrix or torch Dataset
        The items of a Dataset are instances, or tuples that begin with one. An instance is an
        array, or a dict of arrays, which is packed into one vector (see `PackedShape`).
    device : torch.device
    """

    def __init__(self, data: Any, device: torch.device) -> None:
        self.device = device
        self.data = data
        self.packed: PackedShape | None = None
        self.is_dataset = not hasattr(data, "shape")
        self.is_sparse = hasattr(data, "toarray")
        if isinstance(data, np.ndarray):
            # torch supports neither read-only arrays nor negative strides: such arrays are copied.
            data = np.ascontiguousarray(data)
            tensor = torch.from_numpy(data if data.flags.writeable else data.copy())
            self.data = tensor.to(device) if tensor.nbytes <= RESIDENT_BYTES else tensor
        first = self.take(torch.zeros(1, dtype=torch.int64)) if len(self) else None
        self.input_shape: tuple[int, ...] = self.packed or tuple(
            data.shape[1:] if first is None else first.shape[1:]
        )

    def check_shape(self, expected: tuple[int, ...]) -> None:
        """Refuse a Dataset whose instances are not those that a network was fitted on."""
        same = self.input_shape == expected and getattr(self.packed, "fields", None) == getattr(
            expected, "fields", None
        )
        if self.is_dataset and len(self) and not same:
            raise AnnotationError(
                f"X has instances of {_described(self.input_shape)}, but the network was fitted "
                f"on {_described(expected)}; give instances like those"
            )

    def __len__(self) -> int:
        return len(self.data) if self.is_dataset else int(self.data.shape[0])

    def take(self, rows: Tensor) -> Tensor:
        """Fetch rows as a float32 tensor (n, *input_shape) on the device."""
        if self.is_dataset:
            items = [self.data[int(i)] for i in rows]
            items = [item[0] if isinstance(item, tuple | list) else item for item in items]
            x = self._collate(items)
            if not isinstance(x, Tensor):
                raise AnnotationError(
                    f"X is a Dataset with items of type {type(items[0]).__name__}; an item must be "
                    "an array or tensor, a dict of them, or a tuple that begins with one of these"
                )
            self._check_finite(x, rows)
        elif self.is_sparse:
            x = torch.from_numpy(self.data[rows.cpu().numpy()].toarray())
        else:
            x = self.data[rows.to(self.data.device)]
        return x.to(self.device, torch.float32)

    def _collate(self, items: list[Any]) -> Any:
        """Stack the items of a Dataset; dicts are packed, always with the same fields."""
        try:
            x = default_collate([dict(i) if isinstance(i, Mapping) else i for i in items])
        except RuntimeError as error:
            raise AnnotationError(
                f"X is a Dataset whose items cannot be stacked ({error}); pad them to one length"
            ) from error
        if not isinstance(x, dict):
            return x
        packed, shape = pack(x)
        self.packed = self.packed or shape
        if self.packed.fields != shape.fields:
            raise AnnotationError(
                f"X is a Dataset of dicts, first with {_described(self.packed)}, then with "
                f"{_described(shape)}; give every instance the same entries, padded to one length"
            )
        return packed

    @staticmethod
    def _check_finite(x: Tensor, rows: Tensor) -> None:
        """Check the items of a Dataset; arrays are checked as a whole before training."""
        bad = ~torch.isfinite(x).flatten(1).all(dim=1)
        if bad.any():
            raise AnnotationError(
                f"X contains NaN or infinity in item {int(rows[bad.cpu()][0])} of the Dataset; "
                "fill in missing values in its __getitem__"
            )

    def batches(self, rows: Tensor, batch_size: int) -> Iterator[Tensor]:
        """Yield the given rows in batches."""
        for start in range(0, len(rows), batch_size):
            yield self.take(rows[start : start + batch_size])


def _described(shape: tuple[int, ...]) -> str:
    fields = getattr(shape, "fields", None)
    return str(shape) if fields is None else ", ".join(f"{f.name} {f.shape}" for f in fields)


def _as_tensor(values: Any) -> Tensor:
    """Make a tensor; of a copy if the array is read-only, which torch warns of."""
    writeable = not isinstance(values, np.ndarray) or values.flags.writeable
    return torch.as_tensor(values if writeable else values.copy())


class Rows(Dataset[Any]):
    """A Dataset of the rows of several arrays: item i is the dict of their i-th rows.

    Parameters
    ----------
    arrays : mapping from str to array or tensor
        All of the same length, such as the output of a tokenizer.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        lengths = {name: len(values) for name, values in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise AnnotationError(
                f"X is a dict of arrays whose lengths differ or are absent: {lengths}; give one "
                "row per instance in each"
            )
        (self.length,) = set(lengths.values())
        self.arrays = {}
        for name, values in arrays.items():
            if not isinstance(values, Tensor) and np.asarray(values).dtype.kind not in "iufb":
                raise AnnotationError(
                    f"X is a dict of arrays, and {name!r} holds no numbers; leave it out, or "
                    "encode it"
                )
            self.arrays[name] = _as_tensor(values).detach().cpu()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {name: values[row] for name, values in self.arrays.items()}


@dataclass
class AnnotationBatches:
    """Shuffled minibatches over the instances that have annotations.

    Cost grows with the number of annotations: an instance without any is never fetched.

    Parameters
    ----------
    features : Features
        One row per instance of ``table``.
    table : AnnotationTable
    batch_size : int
        Instances per batch.
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
    for part in _split(_shuffled(instances), batch_size):
        real, new = part[part < n], part[part >= n]
        # An empty batch of a Dataset cannot be collated.
        x = features.take(real) if len(real) else torch.empty(0, *features.input_shape)
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


def pick_device(device: str | torch.device) -> torch.device:
    """Resolve a device; ``"auto"`` is CUDA if available, else the CPU.

    Raises
    ------
    ValueError
        If the device is unknown, or is CUDA but no CUDA device is available.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} is unknown; use 'auto', 'cpu' or 'cuda'") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}, but no CUDA device is available; use 'auto' or 'cpu'")
    return chosen
