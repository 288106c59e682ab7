"""Pooling of confusion matrices over the crowd, and shrinkage towards the pooled matrix."""

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
    """Pool confusion matrices, and shrink their rows towards the pooled matrix.

    Parameters
    ----------
    confusion : array of shape (n_annotators, n_classes, n_classes)
    table : AnnotationTable
    belief : array of shape (n_instances, n_classes)
        Class probabilities of the annotated instances.
    pseudo_annotations : float
        Annotations added to every row, distributed as the crowd's are.

    Returns
    -------
    confusion : array of shape (n_annotators, n_classes, n_classes)
    pooled : array of shape (n_classes, n_classes)
        Mean of the given rows, each weighted by the expected number of that annotator's annotations
        in that class.
    """
    columns = (
        np.bincount(table.annotator, table.weight * proba[table.instance], table.n_annotators)
        for proba in belief.T
    )
    mass = np.stack(list(columns), axis=1)
    # A class that nobody is expected to have seen gets the crowd's overall distribution.
    weight = mass + 1e-9 * mass.sum(axis=1, keepdims=True)
    pooled = np.einsum("rc,rcg->cg", weight / weight.sum(axis=0), confusion)
    if pseudo_annotations:
        known = mass[:, :, None] / pseudo_annotations
        confusion = (known * confusion + pooled) / (known + 1)
    return confusion, pooled
