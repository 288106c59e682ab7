"""Type aliases of arrays, and constants that all layers share."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

MISSING: Final = -1
"""Code of a missing annotation in an integer matrix (NaN in a float one)."""

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.integer[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]


class _Items(Protocol):
    """A map-style Dataset of torch, or another container of instances."""

    def __getitem__(self, index: Any, /) -> Any: ...


class _Loads(Protocol):
    """A DataLoader of torch, whose Dataset is read."""

    @property
    def dataset(self) -> Any: ...


class _Sparse(Protocol):
    """A sparse matrix or array of scipy."""

    def toarray(self) -> Any: ...


Instances: TypeAlias = (
    ArrayLike | _Sparse | Mapping[str, ArrayLike] | Sequence[Any] | _Items | _Loads
)
"""Types of ``X`` that classifiers accept: an array, tensor or frame, a sparse matrix, a dict of
arrays, a list of instances, a map-style Dataset or a DataLoader."""

LARGEST_SEED = 2**32 - 1
"""Largest seed that NumPy's and scikit-learn's generators accept."""
