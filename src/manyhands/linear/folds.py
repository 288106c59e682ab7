"""Folds of cross-fitting."""

from __future__ import annotations

import numpy as np

from manyhands.typing import FloatArray, IntArray


def deal_folds(posterior: FloatArray, n_folds: int, rng: np.random.Generator) -> IntArray:
    """Deal instances to folds of equal size, stratified by most probable class.

    Parameters
    ----------
    posterior : array of shape (m, n_classes)
    n_folds : int
    rng : Generator

    Returns
    -------
    integer array of shape (m,)
    """
    # Rounded: values that differ only by the order of summation count as ties.
    labels = posterior.round(6).argmax(axis=1)
    order = np.lexsort((rng.random(len(labels)), labels))
    folds = np.empty(len(labels), dtype=np.int64)
    folds[order] = np.arange(len(labels)) % n_folds
    return folds
