"""Measures of predicted probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score

from evidence.data.sets import Data
from manyhands.annotations.encoding import as_values, missing_mask
from manyhands.exceptions import AnnotationError

TENTHS = np.arange(1, 11) / 10
"""Shares of the instances at which `accuracy_by_entropy` is measured."""


def accuracy_by_entropy(model: Any, data: Data) -> dict[str, Any]:
    """Measure accuracy on the training instances with the lowest predictive entropy.

    Parameters
    ----------
    model : classifier with ``predict_proba``
    data : Data

    Returns
    -------
    dict
        ``accumulated_accuracy`` on the first ``accumulated_share`` (a tenth to all) of the training
        instances with a true class, in ascending order of predictive entropy; and
        ``certain_half_gain``, the accuracy on their first half less that on all.

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.

    References
    ----------
    Chu & Wang (KDD 2021), Fig. 2a.
    """
    gold = None if data.y_train is None else as_values(data.y_train)
    if gold is None or missing_mask(gold).all():
        raise AnnotationError(
            "y_train has no true class, so training accuracy is unknown; leave this measure out of "
            "its row"
        )
    known = ~missing_mask(gold)
    proba = np.asarray(model.predict_proba(data.X_train), dtype=np.float64)[known]
    right = np.asarray(model.classes_)[proba.argmax(axis=1)] == gold[known]
    in_order = right[np.argsort(entropy(proba, axis=1), kind="stable")]
    taken = np.maximum(1, np.round(TENTHS * len(right)).astype(int))
    accumulated = np.cumsum(in_order)[taken - 1] / taken
    return {
        "accumulated_share": TENTHS,
        "accumulated_accuracy": accumulated,
        "certain_half_gain": accumulated[4] - accumulated[-1],
    }


def auc(model: Any, data: Data) -> dict[str, float]:
    """Measure the area under the ROC curve on the test part: how well probabilities rank instances.

    Parameters
    ----------
    model : classifier with ``predict_proba`` and ``classes_``
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``auc``; for more than two classes, the mean of one class against the rest, over the classes
        in the test part.

    Raises
    ------
    AnnotationError
        If the data have no test part, or if it has one class only.
    """
    if data.y_test is None:
        raise AnnotationError("y_test is None, so there is no ROC curve; use data with a test part")
    gold, proba = np.asarray(data.y_test), model.predict_proba(data.X_test)
    present = [k for k, name in enumerate(model.classes_) if (gold == name).any()]
    if len(np.unique(gold)) < 2:
        raise AnnotationError(
            f"y_test has one class only, {gold[0].item()!r}, but a ROC curve needs two; leave this "
            "measure out of its row"
        )
    areas = [roc_auc_score(gold == model.classes_[k], proba[:, k]) for k in present]
    return {"auc": float(np.mean(areas))}
