"""Measures of confusions: those a model learnt against those of a simulated crowd."""

from __future__ import annotations

from typing import Any

import numpy as np

from evidence.data.sets import Data
from manyhands.agreement import common_confusions
from manyhands.annotations.encoding import encode
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray

SHOWN = 3
"""Number of annotators whose matrices are kept, as in CoNAL's Fig. 5."""

COMMON = 1 / 3
"""Smallest share of annotators for which a mistake gets a figure of its own."""


def common_confusion_error(model: Any, data: Data) -> dict[str, float]:
    """Measure how far the common confusion a model learnt is from that of its crowd.

    Parameters
    ----------
    model : estimator with ``common_confusion_``
    data : Data
        From a simulated crowd with common noise.

    Returns
    -------
    dict of str to float
        ``common_mean_absolute_error`` (over the entries), ``common_frobenius_error``, and
        ``common_start_error``: the mean absolute error of the identity matrix, which means no
        common noise.

    Raises
    ------
    AnnotationError
        If the model has no such matrix, or the crowd's truth is unknown or has no common noise.

    References
    ----------
    Chu, Ma & Wang (AAAI 2021), Fig. 5, as numbers.
    """
    learnt, true = attribute(model, "common_confusion_"), _true_common(data)
    return {
        "common_mean_absolute_error": float(np.abs(learnt - true).mean()),
        "common_frobenius_error": float(np.linalg.norm(learnt - true)),
        "common_start_error": float(np.abs(np.eye(len(true)) - true).mean()),
    }


def individual_confusion_error(model: Any, data: Data) -> dict[str, float]:
    """Measure how far the individual confusions a model learnt are from the annotators' own.

    Parameters
    ----------
    model : estimator with ``individual_confusion_``, else ``confusion_``
        The latter mixes all noise of an annotator, and shows the error of not separating it.
    data : Data
        From a simulated crowd.

    Returns
    -------
    dict of str to float
        ``individual_mean_absolute_error`` (over entries and annotators),
        ``individual_frobenius_error`` (per matrix, mean over annotators) and
        ``individual_start_error``, the mean absolute error of identity matrices.

    Raises
    ------
    AnnotationError
        If the model has no confusion matrices, or the crowd's truth is unknown.
    """
    name = "individual_confusion_" if hasattr(model, "individual_confusion_") else "confusion_"
    learnt, true = attribute(model, name), _truth(data).confusion
    return {
        "individual_mean_absolute_error": float(np.abs(learnt - true).mean()),
        "individual_frobenius_error": float(np.linalg.norm(learnt - true, axis=(1, 2)).mean()),
        "individual_start_error": float(np.abs(np.eye(true.shape[1]) - true).mean()),
    }


def common_confusion_matrices(model: Any, data: Data) -> dict[str, Any]:
    """Return ``common_true`` and ``common_learnt``, arrays of shape (n_classes, n_classes).

    See `common_confusion_error`.
    """
    return {
        "common_true": _true_common(data),
        "common_learnt": attribute(model, "common_confusion_"),
    }


def individual_confusion_matrices(model: Any, data: Data) -> dict[str, Any]:
    """Return ``annotator_<k>_true`` and ``annotator_<k>_learnt`` of the first three annotators.

    See `individual_confusion_error`.
    """
    true, learnt = _truth(data).confusion, attribute(model, "individual_confusion_")
    found: dict[str, Any] = {}
    for k in range(min(SHOWN, len(true))):
        found[f"annotator_{k + 1}_true"] = true[k]
        found[f"annotator_{k + 1}_learnt"] = learnt[k]
    return found


def common_mistakes(model: Any, data: Data) -> dict[str, Any]:
    """Measure the share of annotators who made each confusion at least once.

    The model plays no part.

    Returns
    -------
    dict
        ``common_mistakes``, of shape (n_classes, n_classes), [true, given]; and, for each mistake
        that at least a third of the annotators made, its share as ``<true> as <given>``.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.

    References
    ----------
    Chu, Ma & Wang (AAAI 2021), Fig. 1.
    """
    if data.y_train is None:
        raise AnnotationError(
            "y_train is None, but common mistakes need true classes; leave this measure out of its "
            "row"
        )
    table = data.annotations
    codes, _ = encode(
        data.y_train, table.classes, argument="y_train", vocabulary_name="annotations.classes"
    )
    shares = common_confusions(table, codes)
    names = table.classes.tolist()
    wrong = ~np.eye(len(names), dtype=bool)
    found: dict[str, Any] = {"common_mistakes": shares}
    for true, given in np.argwhere(wrong & (shares >= COMMON)).tolist():
        found[f"{names[true]} as {names[given]}"] = float(shares[true, given])
    return found


def _truth(data: Data) -> Any:
    if data.truth is None:
        raise AnnotationError(
            "truth is None: the annotators' confusion matrices are unknown; use a simulated crowd, "
            "such as make_conal_synthetic"
        )
    return data.truth


def _true_common(data: Data) -> FloatArray:
    truth = _truth(data)
    if truth.common_confusion is None or not np.any(truth.from_common):
        raise AnnotationError(
            "truth has no annotation from a common confusion, so there is none to recover; leave "
            "this measure out of its row"
        )
    return np.asarray(truth.common_confusion, dtype=np.float64)


def attribute(model: Any, name: str) -> FloatArray:
    """Return an attribute as an array of floats.

    Raises
    ------
    AnnotationError
        If the model has no such attribute.
    """
    if not hasattr(model, name):
        raise AnnotationError(
            f"{type(model).__name__} has no {name}; leave this measure out of its row"
        )
    return np.asarray(getattr(model, name), dtype=np.float64)
