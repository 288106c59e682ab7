"""How far apart two computations of the same figures may be on any processor.

Libraries add the terms of a sum in an order that depends on the processor, the number of threads
and the shape of the arrays, and every order rounds differently. So tests ask for equal bits only of
what is copied, counted or computed again in the same process with the same shapes; everything else
is compared with a tolerance that follows from the type and the number of terms.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import ArrayLike, DTypeLike


def tolerance(dtype: DTypeLike, n: int = 1) -> float:
    """Return the relative error that rounding may leave in a sum of `n` terms in `dtype`.

    An addition errs by half a unit in the last place. The factor 8 leaves room for what is done to
    every term, such as a logarithm, and for the difference of two such sums.
    """
    return 8 * n * float(np.finfo(dtype).eps)


def assert_near(
    found: ArrayLike, expected: ArrayLike, dtype: DTypeLike = np.float32, n: int = 1
) -> None:
    """Assert that arrays differ by no more than rounding.

    Parameters
    ----------
    found, expected : array-like
        Figures of one scale, such as the probabilities or weights of a model.
    dtype : dtype, default float32
        The type in which they were computed, which is often not the type of the array.
    n : int, default 1
        How many terms were added one after another. For what a network has learnt, this is the
        number of annotations it has seen: those of the table, times the epochs.
    """
    allowed = tolerance(dtype, n)
    scale = np.nanmax(np.abs(expected), initial=np.finfo(dtype).tiny)
    np.testing.assert_allclose(found, expected, rtol=allowed, atol=allowed * scale)


ROW_CHECKS = ("check_methods_subset_invariance", "check_methods_sample_order_invariance")
"""Checks of scikit-learn that predict rows again, in smaller batches and in another order."""


@contextmanager
def single_precision_in_row_checks(check: Callable[..., None], n: int = 128) -> Iterator[None]:
    """Let a check of scikit-learn that predicts rows again expect the precision of networks.

    The checks ask for an absolute error of 1e-9, as in double precision. `n` is the number of units
    of the widest layer.
    """

    def close(found: ArrayLike, expected: ArrayLike, **_: Any) -> None:
        assert_near(found, expected, n=n)

    with ExitStack() as patches:
        if check.func.__name__ in ROW_CHECKS:
            for name in ("assert_allclose", "assert_allclose_dense_sparse"):
                patches.enter_context(patch(f"sklearn.utils.estimator_checks.{name}", close))
        yield
