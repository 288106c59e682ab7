"""Confusion matrices of the whole crowd, and those of annotators of whom little is known."""

from __future__ import annotations

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.typing import FloatArray


def pool_confusions(
    confusion: FloatArray,
    table: AnnotationTable,
    belief: FloatArray,
    *,
    pseudo_annotations: float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Pool confusion matrices, and shrink their rows towards what the crowd does.

    Parameters
    ----------
    confusion : array of shape (n_annotators, n_classes, n_classes)
    table : AnnotationTable
    belief : array of shape (n_instances, n_classes)
        Class probabilities of the annotated instances.
    pseudo_annotations : float
        Annotations added to every row, given as the crowd gives them.

    Returns
    -------
    confusion : array of shape (n_annotators, n_classes, n_classes)
    pooled : array of shape (n_classes, n_classes)
        Mean of the rows given, each weighted by the annotations expected of that annotator in
        that class.
    """
    columns = (
        np.bincount(table.annotator, table.weight * proba[table.instance], table.n_annotators)
        for proba in belief.T
    )
    mass = np.stack(list(columns), axis=1)
    # Of a class that nobody is expected to have seen: what the crowd does on the whole.
    weight = mass + 1e-9 * mass.sum(axis=1, keepdims=True)
    pooled = np.einsum("rc,rcg->cg", weight / weight.sum(axis=0), confusion)
    if pseudo_annotations:
        known = mass[:, :, None] / pseudo_annotations
        confusion = (known * confusion + pooled) / (known + 1)
    return confusion, pooled
