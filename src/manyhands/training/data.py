"""Batches of an epoch: rows of features and the annotations of those rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, default_collate, default_convert

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.functional.ranks import active_ranks, exchanged
from manyhands.io.mapped import MappedRows
from manyhands.nn import Field, PackedShape, pack
from manyhands.training.devices import generator_of_workers

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
    """Rows of features from a dense array, a sparse matrix, a map-style Dataset or a DataLoader.

    Parameters
    ----------
    data : ndarray, scipy.sparse matrix, torch Dataset or DataLoader
        The items of a Dataset are instances, or tuples that begin with one. An instance is an
        array, or a dict of arrays, which is packed into one vector (see `PackedShape`). A
        DataLoader's Dataset, ``collate_fn`` and workers are used, but not its sampling.
    device : torch.device
    dtype : torch.dtype, optional
        Default: the precision of the current training's `Devices`, else float32.
    """

    def __init__(self, data: Any, device: torch.device, dtype: torch.dtype | None = None) -> None:
        self.device = device
        ranks = active_ranks()
        self.dtype = dtype or (torch.float32 if ranks is None else ranks.dtype)
        self.data = data
        self.packed: PackedShape | None = None
        self.loader = data if isinstance(data, DataLoader) else None
        self.items: Any = data if self.loader is None else self.loader.dataset
        self.is_dataset = not hasattr(data, "shape")
        self.is_sparse = hasattr(data, "toarray")
        self.streams = self.is_dataset or isinstance(data, MappedRows)
        self.collate = Collate(None if self.loader is None else self.loader.collate_fn)
        if isinstance(data, np.ndarray):
            # torch supports neither read-only arrays nor negative strides: such arrays are copied.
            data = np.ascontiguousarray(data)
            tensor = torch.from_numpy(data if data.flags.writeable else data.copy())
            self.data = tensor.to(device) if tensor.nbytes <= RESIDENT_BYTES else tensor
        first = self._fetch(torch.zeros(1, dtype=torch.int64)) if len(self) else None
        self.input_shape: tuple[int, ...] = self.packed or tuple(
            data.shape[1:] if first is None else first.shape[1:]
        )

    def check_shape(self, expected: tuple[int, ...]) -> None:
        """Raise an error if a Dataset's instances differ in shape from those of the fit."""
        own: Any = self.input_shape
        given: Any = expected
        if isinstance(own, PackedShape) and isinstance(expected, PackedShape):
            own, given = own.kinds, expected.kinds
        elif self.collate.is_own and not isinstance(own, PackedShape):
            own, given = len(own), len(expected)  # Lengths may differ from batch to batch.
        if self.is_dataset and len(self) and own != given:
            raise AnnotationError(
                f"X has instances of {self.input_shape}, but the network was fitted "
                f"on {expected}; give instances like those"
            )

    def __len__(self) -> int:
        return len(self.items) if self.is_dataset else int(self.data.shape[0])

    def take(self, rows: Tensor) -> Tensor:
        """Fetch rows as a tensor (n, *input_shape) on the device.

        If the data are not in memory, each of several devices reads a part, and they exchange the
        parts.
        """
        own = self._own(rows)
        return self._fetch(rows) if own is rows else exchanged(self._fetch(own), len(rows))

    def _own(self, rows: Tensor) -> Tensor:
        """Return the rows that this process reads: all of them, or its part."""
        ranks = active_ranks()
        # Batches that a collate_fn pads to their longest instance cannot be joined.
        if ranks is None or not self.streams or self.collate.is_own or not ranks.divides(len(rows)):
            return rows
        return rows[ranks.part(len(rows))]

    def _fetch(self, rows: Tensor) -> Tensor:
        if self.is_dataset:
            return self._read(self.collate([self.items[int(i)] for i in rows]), rows)
        if self.is_sparse:
            x = torch.from_numpy(self.data[rows.cpu().numpy()].toarray())
        elif isinstance(self.data, MappedRows):
            x = torch.from_numpy(self.data[rows.cpu().numpy()])
        else:
            x = self.data[rows.to(self.data.device)]
        return x.to(self.device, self.dtype)

    def stream(self, parts: Sequence[Tensor]) -> Iterator[Tensor]:
        """Fetch several batches in turn; a DataLoader's workers fetch them in advance."""
        if self.loader is None or not self.loader.num_workers:
            yield from map(self.take, parts)
            return
        own = [self._own(part) for part in parts]
        batches = [part.tolist() for part in own]
        options = {name: getattr(self.loader, name) for name in _OF_WORKERS}
        options["pin_memory"] &= self.device.type == "cuda"
        ahead = DataLoader(
            self.items,
            batch_sampler=batches,
            collate_fn=self.collate,
            generator=generator_of_workers(),
            **options,
        )
        for part, read, batch in zip(parts, own, ahead, strict=True):
            x = self._read(batch, read)
            yield x if read is part else exchanged(x, len(part))

    def _read(self, batch: tuple[Tensor, list[Field] | None], rows: Tensor) -> Tensor:
        """Check a collated batch, and move it to the device."""
        x, fields = batch
        if fields is not None:
            shape = PackedShape.of(fields)
            self.packed = self.packed or shape
            if self.packed.kinds != shape.kinds:
                raise AnnotationError(
                    f"X is a Dataset of dicts, first with {self.packed}, then with "
                    f"{shape}; give every instance the same entries"
                )
        if len(x) != len(rows):
            raise AnnotationError(
                f"collate_fn made {len(x)} rows of {len(rows)} instances; it must give one row per "
                "instance, in their order"
            )
        bad = ~torch.isfinite(x).flatten(1).all(dim=1)
        if bad.any():
            raise AnnotationError(
                f"X contains NaN or infinity in item {int(rows[bad.cpu()][0])} of the Dataset; "
                "fill in missing values in its __getitem__"
            )
        return x.to(self.device, self.dtype, non_blocking=True)

    def at_once(self, most: int) -> int:
        """Return the number of instances to predict at once; a DataLoader's batch size wins."""
        size = getattr(self.loader, "batch_size", None) or 1
        return min(most, size) if size > 1 else most

    def batches(self, rows: Tensor, batch_size: int) -> Iterator[Tensor]:
        """Yield the given rows in batches."""
        return self.stream(torch.split(rows, self.at_once(batch_size)) if len(rows) else ())


_OF_WORKERS = (
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
)
"""Settings that `Features` takes over from a DataLoader, besides ``collate_fn``."""


def subset(loader: DataLoader[Any], rows: Sequence[int]) -> DataLoader[Any]:
    """Return a DataLoader with the same settings on some of its instances."""
    options = {name: getattr(loader, name) for name in _OF_WORKERS}
    return DataLoader(
        Subset(loader.dataset, rows),
        batch_size=loader.batch_size or 1,
        collate_fn=loader.collate_fn,
        **options,
    )


class Collate:
    """Makes one tensor of a list of items, and describes the entries of dicts.

    Parameters
    ----------
    function : callable or None
        The user's ``collate_fn``. None and torch's defaults stack the items, or the first elements
        of items that are tuples.
    """

    def __init__(self, function: Any) -> None:
        self.is_own = function not in (None, default_collate, default_convert)
        self.function = function

    def __call__(self, items: list[Any]) -> tuple[Tensor, list[Field] | None]:
        """Return a batch as one tensor, and its fields if the items are dicts."""
        batch = self.function(items) if self.is_own else _stacked(items)
        batch = batch[0] if isinstance(batch, tuple | list) else batch
        if isinstance(batch, Mapping):
            return pack(batch)
        if not isinstance(batch, Tensor):
            given = "gives batches" if self.is_own else "is a Dataset with items"
            raise AnnotationError(
                f"X {given} of type {type(batch if self.is_own else items[0]).__name__}; it must "
                "be an array or tensor, a dict of them, or a tuple that begins with one of these"
            )
        return batch, None


def _stacked(items: list[Any]) -> Any:
    items = [item[0] if isinstance(item, tuple | list) else item for item in items]
    try:
        return default_collate([dict(i) if isinstance(i, Mapping) else i for i in items])
    except RuntimeError as error:
        raise AnnotationError(
            f"X is a Dataset whose items cannot be stacked ({error}); pad them to one length, or "
            "give X as DataLoader(dataset, collate_fn=...) with a collate_fn that pads each batch"
        ) from error


def _as_tensor(values: Any) -> Tensor:
    """Make a tensor; copy a read-only array first, because torch would warn."""
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
        yield from self._batches(_split(_shuffled(self.instances), self.batch_size))

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
