"""Scores of the probabilities and labels of a crowd's instances against their true classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyhands.metrics import expected_calibration_error
from manyhands.typing import AnyArray, FloatArray, IntArray


def codes_of(values: Any, classes: Any) -> IntArray:
    """Return the codes of true classes.

    Parameters
    ----------
    values : array-like of shape (n,)
    classes : array-like of shape (n_classes,)
        In the order of their codes.

    Returns
    -------
    int array of shape (n,)
        -1 for what is no class.
    """
    code_of = {value: code for code, value in enumerate(np.asarray(classes).tolist())}
    return np.array([code_of.get(value, -1) for value in np.asarray(values).tolist()], dtype=int)


def likelihood(proba: FloatArray, codes: IntArray) -> FloatArray:
    """Return the probabilities of the true classes, at least 1e-12, shape (n,)."""
    return np.maximum(proba[np.arange(len(codes)), codes], 1e-12)


def scores(proba: FloatArray, codes: IntArray) -> dict[str, float]:
    """Return accuracy, log loss, calibration error and the mean probability of the labels.

    Parameters
    ----------
    proba : array of shape (n, n_classes)
    codes : int array of shape (n,)
        True classes, all known.
    """
    right: AnyArray = proba.argmax(axis=1) == codes
    classes = np.arange(proba.shape[1])
    return {
        "accuracy": float(right.mean()),
        "log_loss": float(-np.log(likelihood(proba, codes)).mean()),
        "ece": float(expected_calibration_error(proba, codes, classes=classes)),
        "claimed": float(proba.max(axis=1).mean()),
    }
