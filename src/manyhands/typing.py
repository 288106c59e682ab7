"""Array type aliases, and constants that every layer shares."""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

MISSING: Final = -1
"""Code of a missing annotation in an integer matrix (NaN in a float one)."""

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.integer[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]

LARGEST_SEED = 2**32 - 1
"""Largest seed that NumPy's and scikit-learn's generators accept."""
