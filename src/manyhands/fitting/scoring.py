"""Reading of the targets of scores: gold labels, observed annotations, and their annotators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, equal_mask, missing_mask, resolve
from manyhands.annotations.target import Target, check_annotations, in_order_of_rows, matched
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.fitting.reading import check_rows
from manyhands.typing import MISSING, AnyArray, FloatArray, Instances, IntArray


def is_gold(y: Target) -> bool:
    """Return whether a target is one gold label per row, rather than annotations."""
    return not isinstance(y, AnnotationTable) and np.ndim(y) < 2


def read_gold(X: Instances, y: Target, classes: AnyArray) -> Any:
    """Return the gold labels of the rows of X; raise an error if some are missing."""
    y = in_order_of_rows(X, y)
    gold = as_values(y)
    unknown = missing_mask(gold)
    if MISSING not in classes:
        unknown = unknown | equal_mask(gold, MISSING)
    if unknown.any():
        raise AnnotationError(
            f"y has no gold label in row {np.flatnonzero(unknown)[0]} "
            f"({np.asarray(gold[unknown]).tolist()[0]!r}); leave out such rows"
        )
    return y


def observed_annotations(
    X: Instances, y: Target, classes: AnyArray, sample_weight: Any = None
) -> AnnotationTable:
    """Return the observed annotations of X, over the model's classes.

    Raises
    ------
    AnnotationError
        If y does not match X or the classes, or there is a ``sample_weight``.
    """
    if sample_weight is not None:
        raise AnnotationError(
            "sample_weight applies to gold labels; give annotations their weights in the table "
            "instead"
        )
    if isinstance(y, AnnotationTable):
        table = matched(y, X)
    else:
        matrix = as_values(in_order_of_rows(X, y))
        table = AnnotationTable.from_matrix(matrix, classes=classes)
    check_rows(X, table)
    codes, _ = encode(table.classes, classes, argument="y", vocabulary_name="classes_")
    table = replace(table.observed, label=codes[table.observed.label], classes=classes)
    check_annotations(table, argument="y")
    return table


def mean_log_proba(blocks: Iterator[tuple[IntArray, FloatArray]], table: AnnotationTable) -> float:
    """Return the mean log probability of a table's annotations from `observed_log_proba`.

    The table's classes are those of the blocks' columns.
    """
    log_likelihood = np.empty(table.n_annotations)
    for rows, log_proba in blocks:
        log_likelihood[rows] = log_proba[np.arange(len(rows)), table.label[rows]]
    return float(np.average(log_likelihood, weights=table.weight))


def find_annotators(known: Any, annotators: Any, argument: str) -> IntArray:
    """Return the positions of annotators among the known ones; -1 and a warning for new ones.

    Raises
    ------
    AnnotationError
        If the model was shared without its annotators, and none are named.
    """
    if not len(known) and annotators is None:
        raise AnnotationError(
            f"{argument}: this model was shared without the profiles of its annotators. Name new "
            "annotators, who are expected to annotate as the crowd as a whole does, or share the "
            "model with include_annotators=True"
        )
    which = slice(None) if annotators is None else annotators
    if len(known):
        found = resolve(
            which, known, argument=argument, vocabulary_name="annotators_", allow_unknown=True
        )
    else:
        found = np.full(len(np.atleast_1d(annotators)), -1)
    if (found < 0).any():
        new = np.atleast_1d(annotators)[found < 0].tolist()
        shown = ", ".join(map(repr, new[:3])) + (", ..." if len(new) > 3 else "")
        warn_caller(
            f"{argument}: {shown} ({len(new)}) were not seen in fit; they are expected to "
            "annotate as the crowd as a whole does"
        )
    return found
