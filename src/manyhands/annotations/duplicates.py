"""Repeated (instance, annotator) pairs, and the policies for them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from manyhands.annotations.columns import Columns
from manyhands.annotations.label_sets import ticked_advice
from manyhands.exceptions import AnnotationError
from manyhands.typing import BoolArray, IntArray

Duplicates = Literal["error", "last", "keep"]


def without_duplicates(columns: Columns, policy: Duplicates, ages: IntArray | None) -> Columns:
    """Apply a policy to repeated pairs.

    Parameters
    ----------
    columns : Columns
    policy : {"error", "last", "keep"}
    ages : integer array of shape (n_annotations + n_passes,) or None
        Order in which the annotations, and then the passes, were given. Without passes it may be
        None, meaning their order in the columns.

    Raises
    ------
    AnnotationError
        If the policy is unknown, or it is "error" and a pair is repeated.
    """
    if policy not in ("error", "last", "keep"):
        raise AnnotationError(f"duplicates={policy!r} is unknown; use 'error', 'last' or 'keep'")
    passes, pairs = columns.pass_rows, _pairs_and_passes(columns)
    if policy == "keep" or not has_repeats(pairs):
        return columns
    if policy == "last":
        order = np.arange(len(pairs)) if ages is None else np.argsort(ages, kind="stable")
        _, last = np.unique(pairs[order][::-1], return_index=True)
        kept = np.sort(order[len(order) - 1 - last])
        m = len(columns.instance)
        return columns.take(kept[kept < m])._replace(passes=passes[kept[kept >= m] - m])
    unique, counts = np.unique(pairs, return_counts=True)
    raise _repeated(columns, unique[counts > 1])


def check_no_clash(columns: Columns, added: BoolArray) -> None:
    """Refuse pairs that are both among the added rows and among the others.

    Parameters
    ----------
    columns : Columns
    added : bool array of shape (n_annotations + n_passes,)

    Raises
    ------
    AnnotationError
        If a pair is among both.
    """
    pairs = _pairs_and_passes(columns)
    both = np.intersect1d(pairs[added], pairs[~added])
    if len(both):
        raise _repeated(columns, both)


def ages_of(given: BoolArray, passed: BoolArray) -> IntArray | None:
    """Return the original rows of annotations, then of passes; None without passes."""
    if not passed.any():
        return None
    return np.concatenate([np.flatnonzero(given), np.flatnonzero(passed)])


def pairs_of(columns: Columns) -> IntArray:
    """Return the code of each annotation's (instance, annotator) pair, shape (n_annotations,)."""
    return columns.instance.astype(np.int64) * max(len(columns.annotators), 1) + columns.annotator


def has_repeats(pairs: IntArray) -> bool:
    """Return whether a pair occurs twice."""
    pairs = np.sort(pairs)
    return bool((pairs[1:] == pairs[:-1]).any())


def _pairs_and_passes(columns: Columns) -> IntArray:
    """Return the codes of the pairs of the annotations, then of the passes."""
    passes = columns.pass_rows.astype(np.int64)
    pass_pairs = passes[:, 0] * max(len(columns.annotators), 1) + passes[:, 1]
    return np.concatenate([pairs_of(columns), pass_pairs])


def _repeated(columns: Columns, pairs: IntArray) -> AnnotationError:
    if not columns.annotators_known:
        first = columns.instances[int(pairs[0]) // max(len(columns.annotators), 1)].item()
        return AnnotationError(
            f"instance {first!r} has votes in both tables, and without annotators it is unknown "
            "whether they are the same votes. Leave them out of one table, or pass "
            'duplicates="keep" to count both'
        )
    instance, annotator = divmod(int(pairs[0]), max(len(columns.annotators), 1))
    passes = ", counting abstentions and skips," if len(columns.pass_rows) else ","
    advice = _advice_on_ticks(columns, pairs) or advice_on_repeats(
        len(pairs), _n_contradictory(columns, pairs)
    )
    return AnnotationError(
        f"{len(pairs):,} (instance, annotator) pairs are repeated{passes} the first being "
        f"instance {columns.instances[instance].item()!r} by annotator "
        f"{columns.annotators[annotator].item()!r}. {advice}"
    )


def advice_on_repeats(n: int, n_contradictory: int) -> str:
    """Say how many repeated pairs contradict themselves, and which policy is right when.

    Parameters
    ----------
    n, n_contradictory : int
        Number of repeated pairs, and of those among them whose rows differ.
    """
    if n_contradictory in (0, n):
        each = "It holds" if n == 1 else "All hold"
        again = "It repeats" if n == 1 else "All repeat"
        told = f"{each} different labels" if n_contradictory else f"{again} the same label"
    else:
        same = n - n_contradictory
        told = (
            f"Of these pairs, {same:,} {'repeats' if same == 1 else 'repeat'} the same label, and "
            f"{n_contradictory:,} {'holds' if n_contradictory == 1 else 'hold'} different labels"
        )
    return (
        f"{told}. Remove them, or choose. Usual is duplicates='last', which keeps the last of "
        "each: it is right if rows were copied or answers corrected, because a copy is no further "
        "evidence. duplicates='keep' counts all, which is right only if annotators were asked "
        "several times on purpose and each answer was given anew"
    )


def _n_contradictory(columns: Columns, pairs: IntArray) -> int:
    """Count the repeated pairs whose rows differ; a pass differs from every label."""
    all_pairs = _pairs_and_passes(columns)
    # An abstention is -1 and a skip -2, or the other way round: neither is a label.
    labels = np.concatenate([columns.label, -1 - columns.pass_rows[:, 2].astype(np.int64)])
    rows = np.isin(all_pairs, pairs)
    distinct = np.unique(np.column_stack([all_pairs[rows], labels[rows]]), axis=0)
    return int((np.unique(distinct[:, 0], return_counts=True)[1] > 1).sum())


def _advice_on_ticks(columns: Columns, pairs: IntArray) -> str | None:
    """Return advice if the rows of every repeated pair have different labels; else None."""
    all_pairs = pairs_of(columns)
    rows = np.isin(all_pairs, pairs)
    n_labels = max(len(columns.classes), 1)
    ticks = all_pairs[rows] * n_labels + columns.label[rows]
    differ = not has_repeats(ticks) and len(np.unique(all_pairs[rows])) == len(pairs)
    common = np.bincount(columns.label[rows], minlength=n_labels).argmax()
    n_pairs = len(np.unique(all_pairs))
    option = columns.classes[common].item() if rows.any() else None
    return ticked_advice(len(pairs), n_pairs, differ, option)
