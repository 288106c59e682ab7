"""The sections on confusions that annotators share: counted, and learnt by a classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.agreement import common_confusions
from manyhands.report.inputs import Inputs, class_positions, to_table_classes
from manyhands.report.limits import LIMITS
from manyhands.typing import FloatArray


def common_section(inputs: Inputs) -> dict[str, Any] | None:
    """Share of annotators who made each confusion at least once (CoNAL, Fig. 1)."""
    table, inferred = inputs.table, inputs.inferred
    if inferred is None or table.n_classes < 2:
        return None
    use_gold = inputs.gold is not None and bool((inputs.gold[inputs.annotated] >= 0).any())
    truth = inputs.gold if use_gold and inputs.gold is not None else inferred.codes
    shares = common_confusions(table, truth)
    n_annotators = len(np.unique(table.annotator))
    return {
        "truth": "gold" if use_gold else "inferred",
        "source": "gold labels" if use_gold else inferred.name,
        "n_annotators": n_annotators,
        **_matrix_and_pairs(inputs, shares, n_annotators),
    }


def learnt_section(inputs: Inputs) -> dict[str, Any] | None:
    """Common confusion matrix of a classifier that learns one, else None."""
    matrix = getattr(inputs.classifier, "common_confusion_", None)
    if matrix is None:
        return None
    positions = class_positions(inputs.classifier, inputs.table, "classifier")
    argument = "classifier.common_confusion_"
    shares = to_table_classes(matrix, positions, inputs.table.n_classes, argument)
    return {
        "source": type(inputs.classifier).__name__,
        **_matrix_and_pairs(inputs, shares, None),
    }


def _matrix_and_pairs(
    inputs: Inputs, shares: FloatArray, n_annotators: int | None
) -> dict[str, Any]:
    """The matrix, if there are few enough classes, and its largest off-diagonal entries."""
    small = inputs.table.n_classes <= LIMITS["matrix_classes"]
    return {
        "classes": inputs.table.classes.tolist() if small else None,
        "matrix": shares.round(4) if small else None,
        "pairs": _largest(inputs, shares, n_annotators),
        "n_pairs": int((_off_diagonal(shares) > 0).sum()),
    }


def _off_diagonal(shares: FloatArray) -> FloatArray:
    off = np.nan_to_num(shares)
    np.fill_diagonal(off, 0.0)
    return off


def _largest(inputs: Inputs, shares: FloatArray, n_annotators: int | None) -> list[dict[str, Any]]:
    off = _off_diagonal(shares)
    order = np.argsort(-off, axis=None, kind="stable")[: LIMITS["pairs"]]
    classes = inputs.table.classes
    return [
        {
            "true": classes[true].item(),
            "given": classes[given].item(),
            "share": float(off[true, given]),
            "n": None if n_annotators is None else round(off[true, given] * n_annotators),
        }
        for true, given in zip(*np.unravel_index(order, off.shape), strict=True)
        if off[true, given] > 0
    ]
