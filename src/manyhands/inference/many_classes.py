"""Many classes: what methods cannot hold, and vote shares in O(annotations).

An array over instances and classes, or one over classes and classes per annotator, does not fit in
memory where classes are counted in thousands. Shares of votes have few entries per instance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from manyhands.exceptions import AnnotationError
from manyhands.inference.votes import Votes
from manyhands.typing import FloatArray

HARMLESS_CLASSES = 200
"""Up to so many classes, no array over classes is too large."""

DENSE_CLASSES, DENSE_SHARES = 1000, 2**21
"""Classes, and cells, up to which vote shares are a dense array; beyond both, a sparse one."""

MOST_CELLS = 2**25
"""Cells of a posterior, or of all confusion matrices, beyond which many classes are refused."""


def is_vast(n_instances: int, n_classes: int) -> bool:
    """Whether shares of the votes are kept as a sparse array."""
    return n_classes > DENSE_CLASSES and n_instances * n_classes > DENSE_SHARES


def as_dense(posterior: Any) -> FloatArray:
    """Return a posterior as a dense array."""
    dense: FloatArray = posterior.toarray() if hasattr(posterior, "toarray") else posterior
    return dense


def check_size(table: Any, method: str, *, confusions: bool, alternative: str) -> None:
    """Refuse what needs a dense array over many classes.

    Parameters
    ----------
    table : AnnotationTable
    method : str
        What is refused, for the message.
    confusions : bool
        Whether it has a confusion matrix for each annotator.
    alternative : str
        What to use instead.

    Raises
    ------
    AnnotationError
    """
    n, r, c = table.n_instances, table.n_annotators, table.n_classes
    if c <= HARMLESS_CLASSES:
        return
    sizes = {"a probability of each class for each instance": n * c}
    if confusions:
        sizes[f"a matrix of {c:,} x {c:,} classes for each annotator"] = r * c * c
    what, cells = max(sizes.items(), key=lambda pair: pair[1])
    if cells > MOST_CELLS:
        raise AnnotationError(
            f"{method} keeps {what}, which would take {cells * 8 / 2**30:,.1f} GiB and more for "
            f"{c:,} classes, {n:,} instances and {r:,} annotators. {alternative}"
        )


def sparse_shares(votes: Votes, empty: FloatArray | None = None) -> Any:
    """Share of the votes each class received, as a CSR array (n, C); gold counts as certain.

    An instance without votes gets ``empty``, by default the mean of all shares.

    Raises
    ------
    AnnotationError
        If so many instances have no votes that their shares do not fit in memory.
    """
    n, c = votes.n_instances, votes.n_classes
    instance, label = votes.instance.astype(np.int64), votes.response.astype(np.int64)
    weight = np.ones(len(label)) if votes.weight is None else votes.weight
    if votes.gold is not None:
        kept = votes.gold[instance] < 0
        known = np.flatnonzero(votes.gold >= 0)
        instance = np.concatenate([instance[kept], known])
        label = np.concatenate([label[kept], votes.gold[known]])
        weight = np.concatenate([weight[kept], np.ones(len(known))])
    total = np.bincount(instance, weight, minlength=n)
    shares = csr_array((weight / total[instance], (instance, label)), shape=(n, c))
    shares.sum_duplicates()
    bare = np.flatnonzero(~votes.voted)
    if not len(bare):
        return shares
    if empty is None:
        empty = np.asarray(np.ones(n) @ shares) / max(n - len(bare), 1)
    others = np.flatnonzero(empty)
    if len(bare) * len(others) > MOST_CELLS:
        raise AnnotationError(
            f"{len(bare):,} instances have no annotations, and their shares of {len(others):,} "
            "classes do not fit in memory; leave these instances out"
        )
    row = np.repeat(bare, len(others))
    more = (np.tile(empty[others], len(bare)), (row, np.tile(others, len(bare))))
    filled = shares + csr_array(more, shape=(n, c))
    filled.sort_indices()
    return filled
