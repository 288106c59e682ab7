"""Rows of a memory-mapped array, read when needed and never all at once."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray, IntArray

BLOCK_BYTES = 1 << 26
"""Number of bytes of features in a block."""


class MappedRows:
    """Some rows of a memory-mapped array, in any order, without copying them.

    Parameters
    ----------
    source : np.memmap of shape (n, ...)
        Numbers of any kind.
    rows : integer array of shape (m,), optional
        Default: all.

    Attributes
    ----------
    shape : tuple of int
    """

    def __init__(self, source: AnyArray, rows: IntArray | None = None) -> None:
        self.source = source
        self.rows = rows
        n = len(source) if rows is None else len(rows)
        self.shape: tuple[int, ...] = (n, *source.shape[1:])
        self.ndim = source.ndim
        self.dtype = source.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> FloatArray:
        """Read rows as float32."""
        chosen = rows if self.rows is None else self.rows[rows]
        return np.array(self.source[chosen], dtype=np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """Read all rows, for estimators that need them together."""
        everything = self.source if self.rows is None else self.source[self.rows]
        return np.array(everything, dtype=dtype)

    def take(self, rows: IntArray) -> MappedRows:
        """Choose some of these rows, still without reading them."""
        return MappedRows(self.source, rows if self.rows is None else self.rows[rows])

    def blocks(self) -> Iterator[FloatArray]:
        """Yield all rows in order, some at a time."""
        size = max(1, BLOCK_BYTES // max(1, 4 * int(np.prod(self.shape[1:]))))
        for start in range(0, len(self), size):
            yield self[np.arange(start, min(start + size, len(self)))]

    def check(self) -> None:
        """Refuse anything but a table of finite numbers; read everything once, in blocks.

        Raises
        ------
        AnnotationError
            If the array has one dimension, does not hold numbers, or holds NaN or infinity.
        """
        if self.ndim < 2:
            raise AnnotationError(
                f"X is a memory-mapped array of shape {self.shape}; give one row per instance: "
                "X.reshape(-1, 1) if there is a single feature"
            )
        if self.dtype.kind not in "iufb":
            raise AnnotationError(
                f"X is a memory-mapped array of {self.dtype}, and numbers are needed; encode it"
            )
        if self.dtype.kind in "iub":
            return
        start = 0
        for block in self.blocks():
            bad = ~np.isfinite(block.reshape(len(block), -1)).all(axis=1)
            if bad.any():
                raise AnnotationError(
                    f"X contains NaN or infinity, or numbers beyond float32, in row "
                    f"{start + int(bad.argmax())}; fill in missing values, or scale"
                )
            start += len(block)


def release(array: Any) -> None:
    """Remove the pages of a mapped file from this process's memory, without losing anything.

    Otherwise a process that reads the file once would seem to need memory for all of it.
    """
    mapped = getattr(array, "_mmap", None)
    # Pages written in mode "c" exist in memory only, and must stay.
    if mapped is not None and array.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def as_mapped(X: Any) -> Any:
    """Return a memory-mapped array as `MappedRows`, and anything else as it is."""
    return MappedRows(X) if isinstance(X, np.memmap) and X.ndim > 1 else X
