"""Interpolation between instances of a class: candidates, neighbours, and the points between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.inference.inputs import gold_codes
from manyhands.typing import FloatArray, IntArray

Rng: TypeAlias = np.random.RandomState


@dataclass(frozen=True, eq=False)
class Pairs:
    """Candidates of a class, each with a neighbour."""

    code: int
    n_candidates: int
    n_neighbors: int
    parents: IntArray
    delta: FloatArray


def class_codes(table: AnnotationTable, labels: Any, X: Any) -> IntArray:
    """Class code of each instance, whose features are the rows of X; -1 for none."""
    if labels is None:
        counts = table.vote_counts()
        top = counts >= counts.max(axis=1, keepdims=True) * (1 - 1e-9)
        return np.where(top.sum(axis=1) == 1, top.argmax(axis=1), -1)
    try:
        return gold_codes(labels, table, X, name="labels")
    except AnnotationError as error:
        raise AnnotationError(str(error).replace("gold", "labels", 1)) from error


def interpolate(space: Any, parents: IntArray, delta: FloatArray) -> Any:
    """Eq. 2.3: points between pairs of rows, shape (n, d), with the rows' type."""
    candidate, neighbour = space[parents[:, 0]], space[parents[:, 1]]
    delta = delta.astype(space.dtype)
    if sparse.issparse(space):
        return sparse.csr_matrix(
            sparse.diags_array(1 - delta) @ candidate + sparse.diags_array(delta) @ neighbour
        )
    return candidate + delta[:, None] * (neighbour - candidate)


def nearest_rows(space: Any, rows: IntArray, points: Any, k: int) -> IntArray:
    """The k rows nearest to each point (fewer if there are not so many), shape (n, k)."""
    search = NearestNeighbors(n_neighbors=min(k, len(rows))).fit(space[rows])
    return np.asarray(rows[search.kneighbors(points, return_distance=False)])


def append_points(X: Any, points: Any) -> Any:
    """Append the points to X, in the shape and format of its rows."""
    if sparse.issparse(X):
        both: Any = [X, points]
        return sparse.vstack(both, format="csr")
    return np.concatenate([X, points.reshape(-1, *X.shape[1:])])
