"""Inputs of the metrics without gold: votes, their shares, and predicted classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.annotations.ids import as_frame, id_column_of
from manyhands.annotations.target import check_annotations, matched, require_table, rows_of
from manyhands.decision.labels import as_posterior
from manyhands.exceptions import AnnotationError
from manyhands.inference.inputs import frame_in_order, in_order_of_classes, with_ids
from manyhands.inference.votes import make_votes, weighted_votes
from manyhands.typing import AnyArray, FloatArray, IntArray


def vote_weights(table: AnnotationTable) -> FloatArray:
    """Return the weighted votes, shape (n_instances, n_classes)."""
    return weighted_votes(make_votes(table))


def majority_shares(table: AnnotationTable) -> FloatArray:
    """Return the majority vote with ties shared, (n_instances, n_classes); NaN without votes."""
    votes = vote_weights(table)
    winners = (votes == votes.max(axis=1, keepdims=True)) & (votes > 0)
    return row_shares(winners.astype(np.float64))


def row_shares(votes: FloatArray) -> FloatArray:
    """Divide rows by their sums; NaN where there are no votes."""
    totals = votes.sum(axis=1, keepdims=True)
    return np.divide(votes, totals, out=np.full(votes.shape, np.nan), where=totals > 0)


def matched_codes(predicted: Any, table: AnnotationTable) -> tuple[AnnotationTable, IntArray]:
    """Return observed annotations in the predictions' order, and the predicted class codes."""
    if hasattr(predicted, "fit"):
        raise AnnotationError(
            f"predicted is a {type(predicted).__name__}, not its predictions; give those out of "
            "fold, cross_predict(model, X, table)"
        )
    if isinstance(predicted, AnnotationTable):
        raise AnnotationError(
            "predicted is an AnnotationTable; predictions come first, the table second, as in "
            "vote_agreement(predicted, table)"
        )
    require_table(table)
    predicted = with_ids(predicted)
    table = matched(table, predicted, argument="table", rows_argument="predicted").observed
    check_annotations(table, argument="table")
    frame = as_frame(predicted)
    if frame is not None:
        ids = id_column_of(predicted)
        predicted = in_order_of_classes(frame, ids, table.classes, "predicted")
    codes = predicted_codes(predicted, table.classes)
    if len(codes) != table.n_instances:
        raise AnnotationError(
            f"predicted has {len(codes)} rows, but the table has {table.n_instances} instances; "
            "predict every instance, or select those predicted with table[rows]"
        )
    return table, codes


def matched_posterior(posterior: Any, whole: AnnotationTable, table: AnnotationTable) -> Any:
    """Return the class probabilities of a table's instances, as `matched_codes` orders them.

    Parameters
    ----------
    posterior : array-like or frame of shape (n_instances, n_classes)
        Rows of a frame are matched by id; others are in the order of ``whole``.
    whole, table : AnnotationTable
        The table as given, and in the order of the predictions.
    """
    rows = rows_of(table.instances, whole.instances)
    values = np.asarray(frame_in_order(whole, posterior, "posterior"))
    return values if rows is None or len(values) != len(rows) else values[rows]


def predicted_codes(predicted: Any, classes: AnyArray) -> IntArray:
    """Return the codes of class values (n,), or of the most probable classes (n, n_classes).

    Raises
    ------
    AnnotationError
        If a value is missing or unknown, rows are no distributions, or columns are not the classes.
    """
    if np.ndim(predicted) == 2:
        proba = as_posterior(predicted, argument="predicted")
        if proba.shape[1] != len(classes):
            raise AnnotationError(
                f"predicted has {proba.shape[1]} columns, but the table has {len(classes)} "
                "classes; give one column per class, in the order of table.classes"
            )
        return proba.argmax(axis=1)
    values = as_values(predicted)
    if values.ndim != 1:
        raise AnnotationError(
            f"predicted has shape {values.shape}; give class probabilities "
            "(n_instances, n_classes) or class values (n_instances,)"
        )
    missing = missing_mask(values)
    if missing.any():
        raise AnnotationError(
            f"predicted has no class in row {int(np.argmax(missing))} and "
            f"{int(missing.sum()) - 1} more; leave these rows out of predicted and of the table"
        )
    return encode(values, classes, argument="predicted", vocabulary_name="the table's classes")[0]
