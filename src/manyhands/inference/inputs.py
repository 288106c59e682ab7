"""What `fit` and `predict` accept, checked and re-coded: tables, gold labels, posteriors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.annotations.passes import recode_passes
from manyhands.decision.labels import as_posterior
from manyhands.exceptions import AnnotationError
from manyhands.inference.probability import normalise_rows
from manyhands.typing import MISSING, AnyArray, FloatArray, IntArray


def check_annotations(table: AnnotationTable, *, argument: str) -> AnnotationTable:
    """Refuse a table nothing can be learnt from.

    Raises
    ------
    AnnotationError
        If the table is empty or has one class only.
    """
    if not table.n_annotations:
        raise AnnotationError(
            f"{argument} is empty: no annotation in {table.n_instances} instances x "
            f"{table.n_annotators} annotators (is -1 or NaN, which count as missing, a class of "
            "yours? Name it in classes=)"
        )
    if not table.weight.any():
        raise AnnotationError(f"all weights of {argument} are 0, so no annotation counts")
    if table.n_classes < 2:
        raise AnnotationError(
            f"{argument} holds one class only, {table.classes[0].item()!r} "
            f"({table.n_annotators} annotations); a classifier needs two. If others exist, name "
            "all in classes="
        )
    return table


def gold_codes(gold: Any, table: AnnotationTable) -> IntArray:
    """Read known classes as codes, -1 where unknown, shape (n_instances,).

    Raises
    ------
    AnnotationError
        If an instance or a class is unknown, or an array has another length.
    """
    codes = np.full(table.n_instances, MISSING)
    if hasattr(gold, "to_dict") and hasattr(gold, "index"):  # A pandas series: its index are ids.
        gold = {k: v for k, v in gold.to_dict().items() if not missing_mask(as_values([v]))[0]}
    if isinstance(gold, Mapping):
        if not gold:
            return codes
        places, _ = encode(
            list(gold), table.instances, argument="gold", vocabulary_name="the table's instances"
        )
        values = as_values(list(gold.values()))
    else:
        values = as_values(gold)
        if values.shape != (table.n_instances,):
            raise AnnotationError(
                f"gold has shape {values.shape}; one entry an instance, ({table.n_instances},), is "
                "needed (None where unknown), or a dict {instance id: class}"
            )
        places = np.arange(table.n_instances)
    unknown = missing_mask(values)
    if values.dtype.kind in "ifO" and not (table.classes == MISSING).any():
        unknown = unknown | np.array(values == MISSING, dtype=bool)
    codes[places[~unknown]], _ = encode(
        values[~unknown].tolist(),
        table.classes,
        argument="gold",
        vocabulary_name="the table's classes",
    )
    return codes


def checked_posterior(values: Any, n_instances: int, n_classes: int, argument: str) -> FloatArray:
    """Read a distribution over the classes of every instance, as a new array (n, C)."""
    posterior = as_posterior(values, argument=argument)
    if posterior.shape != (n_instances, n_classes):
        raise AnnotationError(
            f"{argument} has shape {posterior.shape}; one row an instance and one column a class, "
            f"{(n_instances, n_classes)}, are needed"
        )
    return normalise_rows(np.maximum(posterior, 0.0))


def over_classes(table: AnnotationTable, classes: AnyArray, *, argument: str) -> AnnotationTable:
    """Re-code the labels over the fitted classes."""
    if np.array_equal(table.classes, classes):
        return table
    seen = table.mask_of_classes_seen()
    new = np.zeros(table.n_classes, dtype=np.int64)
    new[seen], _ = encode(
        table.classes[seen], classes, argument=argument, vocabulary_name="the fitted classes"
    )
    return replace(table, label=new[table.label], classes=classes)


def over_annotators(table: AnnotationTable, annotators: AnyArray) -> AnnotationTable:
    """Re-code the annotators over the fitted ones; who is silent need not be known."""
    if np.array_equal(table.annotators, annotators):
        return table
    # What an unknown annotator skipped says nothing; what it gave, or abstained on, would be lost.
    active = np.unique(np.concatenate([table.annotator, table.abstentions[:, 1]]))
    new = np.full(table.n_annotators, -1)
    try:
        new[active], _ = encode(
            table.annotators[active],
            annotators,
            argument="table",
            vocabulary_name="the fitted annotators",
        )
    except AnnotationError as error:
        raise AnnotationError(
            f"{error} (predict knows the annotators of fit only: partial_fit adds new ones)"
        ) from error
    passes = None if table.passes is None else recode_passes(table.passes, annotator=new)
    return replace(table, annotator=new[table.annotator], annotators=annotators, passes=passes)
