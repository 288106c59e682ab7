"""Rows of features, from arrays, Datasets and DataLoaders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, default_collate, default_convert

from manyhands.exceptions import AnnotationError
from manyhands.nn import Field, PackedShape, pack
from manyhands.training.isolation import generator_of_workers

RESIDENT_BYTES = 2 << 30
"""Features up to this size are moved to the device at once, larger ones batch by batch."""


class Features:
    """Rows of features from a dense array, a sparse matrix, a map-style Dataset or a DataLoader.

    Parameters
    ----------
    data : ndarray, scipy.sparse matrix, torch Dataset or DataLoader
        The items of a Dataset are instances, or tuples that begin with one. An instance is an
        array, or a dict of arrays, which is packed into one vector (see `PackedShape`). A
        DataLoader's Dataset, ``collate_fn`` and workers are used, but not its sampling.
    device : torch.device
    """

    def __init__(self, data: Any, device: torch.device) -> None:
        self.device = device
        self.data = data
        self.packed: PackedShape | None = None
        self.loader = data if isinstance(data, DataLoader) else None
        self.items: Any = data if self.loader is None else self.loader.dataset
        self.is_dataset = not hasattr(data, "shape")
        self.is_sparse = hasattr(data, "toarray")
        self.collate = Collate(None if self.loader is None else self.loader.collate_fn)
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
        """Fetch rows as a float32 tensor (n, *input_shape) on the device."""
        if self.is_dataset:
            return self._read(self.collate([self.items[int(i)] for i in rows]), rows)
        if self.is_sparse:
            x = torch.from_numpy(self.data[rows.cpu().numpy()].toarray())
        else:
            x = self.data[rows.to(self.data.device)]
        return x.to(self.device, torch.float32)

    def stream(self, parts: Sequence[Tensor]) -> Iterator[Tensor]:
        """Fetch several batches in turn; the workers of a DataLoader fetch them ahead."""
        if self.loader is None or not self.loader.num_workers:
            yield from map(self.take, parts)
            return
        batches = [part.tolist() for part in parts]
        options = {name: getattr(self.loader, name) for name in _OF_WORKERS}
        options["pin_memory"] &= self.device.type == "cuda"
        ahead = DataLoader(
            self.items,
            batch_sampler=batches,
            collate_fn=self.collate,
            generator=generator_of_workers(),
            **options,
        )
        for part, batch in zip(parts, ahead, strict=True):
            yield self._read(batch, part)

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
        return x.to(self.device, torch.float32, non_blocking=True)

    def at_once(self, most: int) -> int:
        """Number of instances to predict at once: a DataLoader's batch size, if it has set one."""
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
"""What `Features` takes over from a DataLoader, beside ``collate_fn``."""


def subset(loader: DataLoader[Any], rows: Sequence[int]) -> DataLoader[Any]:
    """Make the same DataLoader of some instances."""
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
        The user's; None, and torch's own defaults, stack what the items are or begin with.
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
