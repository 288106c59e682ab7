"""Selection of instances and annotators of a table, and merging of two tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations.columns import Columns, require_annotators
from manyhands.annotations.duplicates import Duplicates, check_no_clash, without_duplicates
from manyhands.annotations.encoding import merge_vocabularies
from manyhands.annotations.groups import merged_groups
from manyhands.annotations.ids import first_and_last, is_default_index
from manyhands.annotations.passes import recode_passes
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, IntArray


def at_instances(columns: Columns, positions: IntArray) -> Columns:
    """Keep the instances at the given positions, in that order and with repetitions."""
    n = len(columns.instances)
    rows, instance = _rows_at(positions, columns.instance, n)
    passes = columns.pass_rows
    kept, where = _rows_at(positions, passes[:, 0], n)
    return columns.take(rows)._replace(
        instance=instance,
        instances=columns.instances[positions],
        instance_order=columns.instance_order.at(positions),
        passes=np.column_stack([where, passes[kept, 1:]]),
    )


def of_annotators(columns: Columns, positions: IntArray) -> Columns:
    """Keep the annotators at the given positions, in that order.

    Raises
    ------
    AnnotationError
        If a position occurs twice.
    """
    if len(np.unique(positions)) < len(positions):
        raise AnnotationError("annotators names an annotator twice; name each once")
    new = np.full(len(columns.annotators), -1)
    new[positions] = np.arange(len(positions))
    kept = columns.take(np.flatnonzero(new[columns.annotator] >= 0))
    return kept._replace(
        annotator=new[kept.annotator],
        annotators=columns.annotators[positions],
        groups=None if columns.groups is None else columns.groups[positions],
        passes=recode_passes(columns.pass_rows, annotator=new),
    )


def check_mask_order(mask: Any, instances: AnyArray) -> None:
    """Refuse a pandas mask whose index holds the instances in another order than the table.

    Raises
    ------
    AnnotationError
        The positions of such a mask are not those of the table.
    """
    if not hasattr(mask, "iloc") or is_default_index(mask.index):
        return
    mine, theirs = mask.index.tolist(), instances.tolist()
    if mine != theirs and set(mine) == set(theirs):
        raise AnnotationError(
            f"the mask has the index {first_and_last(np.asarray(mask.index))}, the table the "
            f"instances {first_and_last(instances)}: the same ids in another order; select by id, "
            "table.select(instances=mask.index[mask])"
        )


def sorted_rows(codes: IntArray, n: int) -> tuple[IntArray | None, IntArray]:
    """Order that sorts codes below n (None: already sorted), and the start of each code."""
    sorted_already = bool((np.diff(codes) >= 0).all())
    order = None if sorted_already else np.argsort(codes, kind="stable")
    return order, np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=n))])


def _rows_at(positions: IntArray, codes: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Rows with each of the given codes (below n) in turn, and the index of that code."""
    order, start = sorted_rows(codes, n)
    counts = start[positions + 1] - start[positions]
    first = np.cumsum(counts) - counts
    rows = np.arange(counts.sum()) - np.repeat(first - start[positions], counts)
    return rows if order is None else order[rows], np.repeat(np.arange(len(positions)), counts)


def merged(columns: Columns, added: Columns, duplicates: Duplicates) -> Columns:
    """Append annotations and passes; see `AnnotationTable.with_added`."""
    if not np.array_equal(columns.classes, added.classes):
        raise AnnotationError(
            f"the added table has classes {added.classes.tolist()}, this one "
            f"{columns.classes.tolist()}; build both with the same classes="
        )
    if columns.annotators_known != added.annotators_known:
        raise AnnotationError(
            "one table knows its annotators and the other holds votes of nobody in particular; "
            "keep them apart, or give both with annotators"
        )
    if not columns.annotators_known and duplicates == "last":
        require_annotators(columns, "duplicates='last'")
    rows, instances = merge_vocabularies(columns.instances, added.instances)
    new_annotator_codes, annotators = merge_vocabularies(columns.annotators, added.annotators)
    passes = recode_passes(added.pass_rows, instance=rows, annotator=new_annotator_codes)
    parts = len(columns.instance), len(added.instance), len(columns.pass_rows), len(passes)
    ages = np.repeat(np.array([1, 3, 0, 2], dtype=np.int8), parts)
    both = Columns(
        np.concatenate([columns.instance, rows[added.instance]]),
        np.concatenate([columns.annotator, new_annotator_codes[added.annotator]]),
        np.concatenate([columns.label, added.label]),
        instances,
        annotators,
        columns.classes,
        np.concatenate([columns.weight, added.weight]),
        np.concatenate([columns.source_codes, added.source_codes]),
        np.concatenate([columns.pass_rows, passes]),
        columns.instance_order.extended(len(columns.instances), len(instances)),
        merged_groups(columns.groups, added.groups, new_annotator_codes, annotators),
        added.group_rho if columns.groups is None else columns.group_rho,
        columns.scale,
        columns.class_order,
        columns.annotators_known,
    )
    if duplicates == "error":
        # Pairs repeated within one table were kept on purpose; only pairs in both tables clash.
        check_no_clash(both, ages >= 2)
        return both
    return without_duplicates(both, duplicates, ages)
