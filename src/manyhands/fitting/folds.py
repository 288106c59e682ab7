"""Folds and hold-outs of whole instances and groups of instances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, missing_mask
from manyhands.annotations.target import in_order_of_rows
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray, Instances, IntArray

N_EXCHANGES = 200
"""Number of exchanges that are tried per unit of an annotator with all annotations in one fold."""

N_OWN_UNITS = 4
"""Number of units of such an annotator that are tried."""

N_OTHER_UNITS = 4000
"""Number of units of other folds among which partners for an exchange are searched."""

Confined = Callable[[FloatArray], AnyArray]
"""From units per annotator and fold, (r, n_folds), to a mask of annotators to help, (r,)."""


def instance_units(X: Instances | None, table: AnnotationTable, groups: Any = None) -> IntArray:
    """Return the unit of each instance, from 0; instances of a unit must be in one fold.

    Parameters
    ----------
    X : as in ``fit``
        Its rows are the table's instances.
    table : AnnotationTable
        Instances with the same id always are one unit.
    groups : None, "equal_rows" or sequence of shape (n_instances,), default=None
        "equal_rows": instances with equal rows of X are a unit. A sequence names the group of
        every instance, such as the patient or the document; None, NaN or "" means none. What
        shares an id or a group, directly or through others, is one unit.

    Returns
    -------
    integer array of shape (n_instances,)

    Raises
    ------
    AnnotationError
        If ``groups`` has another length, or rows of X cannot be compared.
    """
    ids = np.unique(table.instances, return_inverse=True)[1]
    if groups is None:
        return ids
    if isinstance(groups, str):
        if groups != "equal_rows":
            raise AnnotationError(
                f"groups={groups!r} is unknown; use 'equal_rows', or name the group of every "
                "instance"
            )
        other = _codes_of_rows(X)
    else:
        other = _codes_of_groups(in_order_of_rows(X, groups, name="groups"))
    if len(other) != len(ids):
        raise AnnotationError(
            f"groups has {len(other)} entries for {len(ids)} instances; give one per instance"
        )
    # Ids and groups are the two sides of a graph, in which every instance is an edge.
    n = int(ids.max()) + 1
    shape = (n + int(other.max()) + 1,) * 2
    edges = csr_matrix((np.ones(len(ids)), (ids, n + other)), shape=shape)
    return np.asarray(connected_components(edges, directed=False)[1])[ids]


def _codes_of_groups(groups: Any) -> IntArray:
    values = as_values(groups)
    if values.ndim != 1:
        raise AnnotationError(f"groups has shape {values.shape}; give one group per instance")
    alone = missing_mask(values) | (values.astype(str) == "")
    codes = np.empty(len(values), dtype=np.int64)
    codes[~alone] = np.unique(values[~alone].astype(str), return_inverse=True)[1]
    codes[alone] = len(values) + np.arange(alone.sum())
    return np.unique(codes, return_inverse=True)[1]


def _codes_of_rows(X: Any) -> IntArray:
    """Return the code of each row among the distinct rows of an array, matrix, frame or list."""
    keys: list[Any]
    if hasattr(X, "tocsr"):
        matrix = X.tocsr(copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        bounds = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
        keys = [(matrix.indices[a:b].tobytes(), matrix.data[a:b].tobytes()) for a, b in bounds]
    elif not hasattr(X, "__array__") and not isinstance(X, list | tuple):
        raise AnnotationError(
            f"groups='equal_rows' cannot compare the rows of a {type(X).__name__}; name the group "
            "of every instance in groups="
        )
    else:
        values = np.asarray(X)
        values = np.ascontiguousarray(values.reshape(len(values), -1))
        if values.dtype.kind == "f":
            values = values + 0.0  # -0.0 and 0.0 are equal.
        plain = values.dtype.kind != "O"
        keys = [row.tobytes() if plain else tuple(row.tolist()) for row in values]
    codes: dict[Any, int] = {}
    return np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=np.int64)


def deal_folds(posterior: FloatArray, n_folds: int, rng: np.random.Generator) -> IntArray:
    """Assign instances to folds of equal size, stratified by most probable class.

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


def deal_instances(
    table: AnnotationTable,
    n_folds: int,
    units: IntArray,
    rng: np.random.Generator,
    labels: IntArray | None = None,
) -> IntArray:
    """Assign instances to folds of about equal size, unit by unit.

    Every fold gets about the same share of each class (by most votes; ties to the first) and of the
    instances without annotations (or label). Then units are exchanged so that, where possible, no
    annotator's annotations all lie in one fold: left out, the annotator would be unknown to the
    model. If possible, units of one size and class are exchanged.

    Parameters
    ----------
    table : AnnotationTable
    n_folds : int
    units : integer array of shape (n_instances,)
        The unit of each instance, from 0 (`instance_units`).
    rng : Generator
    labels : integer array of shape (n_instances,), optional
        Class of each instance, from 0, or -1 for none, in place of the class with the most votes.

    Returns
    -------
    integer array of shape (n_instances,)
        Fold of each instance, from 0.

    Raises
    ------
    AnnotationError
        If there are fewer annotated units than folds.
    """
    counts = _unit_counts(table, units)
    annotated = counts[:, :-1].any(axis=1)
    if annotated.sum() < n_folds:
        raise AnnotationError(
            f"cv={n_folds} needs {n_folds} annotated instances or groups, and there are "
            f"{int(annotated.sum())}; use fewer folds or smaller groups"
        )
    if labels is not None:
        counts = _counts_by_class(units, np.where(labels < 0, labels.max() + 1, labels))
    if len(counts) == len(units):
        folds = deal_folds(counts, n_folds, rng)
    else:
        folds = _deal_whole(counts, n_folds, rng)
    given = _incidence(table, units, len(counts))
    _spread_annotators(folds, n_folds, counts, given, rng, _in_one_fold)
    return folds[units]


def hold_out_instances(
    table: AnnotationTable, fraction: float, rng: np.random.Generator
) -> tuple[AnnotationTable, AnnotationTable]:
    """Split off a random fraction of the annotated instances: (kept, held out).

    All annotations of an instance leave together, those of instances with the same id, too. Both
    parts have about the same shares of the classes (by most votes; ties to the first). Then
    instances are exchanged so that, where possible, every annotator is kept. An instance whose
    class no other one has is not held out.

    Parameters
    ----------
    table : AnnotationTable
    fraction : float between 0 and 1
        Of the instances with observed annotations.
    rng : Generator

    Returns
    -------
    kept, held : AnnotationTable
        Both with the vocabularies of ``table``. ``held`` has the observed annotations only.

    Raises
    ------
    AnnotationError
        If fewer than two instances would be held out, or none kept.
    """
    units = instance_units(None, table)
    counts = _unit_counts(table, units)
    labels = counts[:, :-1].argmax(axis=1)
    annotated = counts[:, :-1].any(axis=1)
    in_class = np.bincount(labels[annotated], minlength=table.n_classes)
    movable = np.flatnonzero(annotated & (in_class[labels] > 1))
    n_held = round(fraction * annotated.sum())
    if not 1 < n_held < min(annotated.sum(), len(movable) + 1):
        better = "larger" if n_held < 2 else "smaller"
        raise AnnotationError(
            f"validation={fraction} of {int(annotated.sum())} annotated instances leaves fewer "
            f"than two to hold out, or none to train on. Use a {better} fraction, hold out single "
            "annotations (set_params(protocol__monitor='likelihood')), or use validation=None"
        )
    order = movable[np.lexsort((rng.random(len(movable)), labels[movable]))]
    steps = (np.arange(n_held) + rng.random()) * len(order) / n_held
    parts = np.zeros(len(counts), dtype=np.int64)
    parts[order[steps.astype(np.int64)]] = 1
    given = _incidence(table, units, len(counts))[:, movable]
    moved = parts[movable]
    _spread_annotators(moved, 2, counts[movable], given, rng, _all_held)
    parts[movable] = moved
    leaves = parts[units][table.instance] == 1
    return table.take(~leaves), table.take(leaves).observed


def _unit_counts(table: AnnotationTable, units: IntArray) -> FloatArray:
    """Count the instances of each unit by majority class, (U, C + 1); last: unannotated."""
    votes = table.observed.vote_counts()
    labels = np.where(votes.any(axis=1), votes.argmax(axis=1), table.n_classes)
    return _counts_by_class(units, labels, table.n_classes + 1)


def _counts_by_class(units: IntArray, labels: IntArray, n_columns: int | None = None) -> FloatArray:
    counts = np.zeros((int(units.max()) + 1, n_columns or int(labels.max()) + 1))
    np.add.at(counts, (units, labels), 1.0)
    return counts


def _deal_whole(counts: FloatArray, n_folds: int, rng: np.random.Generator) -> IntArray:
    """Assign units, largest first, each to the fold with the fewest instances of its class."""
    folds = np.empty(len(counts), dtype=np.int64)
    held = np.zeros((n_folds, counts.shape[1]))
    totals = np.maximum(counts.sum(axis=0), 1.0)
    sizes = counts.sum(axis=1)
    for unit in np.lexsort((rng.random(len(counts)), -sizes)):
        of_its_kind = held @ (counts[unit] / totals)
        size = held.sum(axis=1) * sizes[unit] / sizes.sum()
        folds[unit] = np.argmin(of_its_kind + size)
        held[folds[unit]] += counts[unit]
    return folds


def _incidence(table: AnnotationTable, units: IntArray, n_units: int) -> Any:
    """Return a sparse matrix of ones (R, U) where an annotator annotated a unit."""
    observed = table.observed
    given = observed.take(observed.weight > 0)
    shape = (table.n_annotators, n_units)
    entries = np.ones(given.n_annotations), (given.annotator, units[given.instance])
    matrix = csr_matrix(entries, shape=shape)
    matrix.data[:] = 1.0
    return matrix


def _spread_annotators(
    folds: IntArray,
    n_folds: int,
    counts: FloatArray,
    given: Any,
    rng: np.random.Generator,
    confined: Confined,
) -> None:
    """Exchange units, in place, for annotators whose units all share a fold."""
    by_unit = given.T.tocsr()
    held = np.zeros((given.shape[0], n_folds))
    np.add.at(held, (_rows_of(given), folds[given.indices]), 1.0)
    for annotator in np.flatnonzero(confined(held)):
        if not confined(held[[annotator]])[0]:
            continue  # An earlier exchange has solved this one, too.
        own = given.indices[given.indptr[annotator] : given.indptr[annotator + 1]]
        for mine, other in _exchanges(own, folds, counts, rng):
            if _try_exchange(mine, other, folds, held, by_unit, confined):
                break


def _rows_of(matrix: Any) -> IntArray:
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _in_one_fold(held: FloatArray) -> AnyArray:
    """Return a mask of annotators with several units in one fold, from counts (r, n_folds)."""
    total = held.sum(axis=1)
    return (total > 1) & (held.max(axis=1) == total)


def _all_held(held: FloatArray) -> AnyArray:
    """Return a mask of annotators with all units held out, from counts kept and held, (r, 2)."""
    return (held[:, 0] == 0) & (held[:, 1] > 0)


def _exchanges(
    own: IntArray, folds: IntArray, counts: FloatArray, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Return pairs of a unit of the annotator and one of another fold, similar ones first."""
    mine = rng.permutation(own)[:N_OWN_UNITS]
    elsewhere = rng.permutation(np.flatnonzero(folds != folds[own[0]]))[:N_OTHER_UNITS]
    alike, others = [], []
    for unit in mine:
        same_size = counts[elsewhere].sum(axis=1) == counts[unit].sum()
        same = (counts[elsewhere] == counts[unit]).all(axis=1)
        alike += [(int(unit), int(other)) for other in elsewhere[same][:N_EXCHANGES]]
        others += [(int(unit), int(other)) for other in elsewhere[same_size & ~same][:N_EXCHANGES]]
    return alike + others


def _try_exchange(
    mine: int,
    other: int,
    folds: IntArray,
    held: FloatArray,
    by_unit: Any,
    confined: Confined,
) -> bool:
    """Exchange the folds of two units if fewer annotators are then confined to one fold."""
    a, b = folds[mine], folds[other]
    of_mine, of_other = (
        by_unit.indices[by_unit.indptr[unit] : by_unit.indptr[unit + 1]] for unit in (mine, other)
    )
    touched = np.union1d(of_mine, of_other)
    before = held[touched]
    held[of_mine, a] -= 1
    held[of_mine, b] += 1
    held[of_other, b] -= 1
    held[of_other, a] += 1
    if confined(held[touched]).sum() < confined(before).sum():
        folds[mine], folds[other] = b, a
        return True
    held[touched] = before
    return False
