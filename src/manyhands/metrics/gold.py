"""Predictions against gold labels: scikit-learn where it has the measure."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, recall_score

from manyhands.annotations.encoding import encode, make_vocabulary
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray

__all__ = ["accuracy", "expected_calibration_error", "macro_f1", "minority_recall"]


def accuracy(y: Any, predicted: Any) -> float:
    """Share of right predictions.

    Parameters
    ----------
    y, predicted : array-like of shape (n,)
        Gold and predicted class values.

    Examples
    --------
    >>> accuracy(["cat", "dog", "dog"], ["cat", "dog", "cat"])
    0.6666666666666666
    """
    return float(accuracy_score(*_pair(y, predicted)))


def macro_f1(y: Any, predicted: Any) -> float:
    """Mean F1 over the classes that occur in ``y`` or ``predicted``, each class counting the same.

    A class that is predicted but absent from ``y``, or never predicted, has an F1 of 0.

    Parameters
    ----------
    y, predicted : array-like of shape (n,)
        Gold and predicted class values.

    Examples
    --------
    >>> round(macro_f1([0, 0, 0, 1], [0, 0, 0, 0]), 3)
    0.429
    """
    return float(f1_score(*_pair(y, predicted), average="macro", zero_division=0.0))


def minority_recall(y: Any, predicted: Any, *, minority: Any = None) -> float:
    """Mean recall over the minority classes: what accuracy hides when classes are unbalanced.

    Parameters
    ----------
    y, predicted : array-like of shape (n,)
        Gold and predicted class values.
    minority : sequence of class values, optional
        The minority classes; default: the rarer half of the classes in ``y``, rounded down
        (the rarer one of two). Of equally frequent classes the later ones count as rarer.

    Returns
    -------
    float
        NaN if ``y`` holds one class only.

    Examples
    --------
    >>> minority_recall([0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1])
    0.5
    """
    y, predicted = _pair(y, predicted)
    chosen = rarer_half(y) if minority is None else make_vocabulary(minority, "minority")
    if not len(chosen):
        return float("nan")
    if not np.isin(chosen, y).all():
        absent = chosen[~np.isin(chosen, y)][0].item()
        raise AnnotationError(
            f"minority names {absent!r}, which no gold label in y has, so it has no recall; "
            "leave it out"
        )
    recall = recall_score(y, predicted, labels=chosen, average="macro", zero_division=0.0)
    return float(recall)


def rarer_half(y: Any) -> AnyArray:
    """Return the rarer half of the classes in ``y``, rounded down, rarest last."""
    values, counts = np.unique(np.asarray(y), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return values[order[len(values) - len(values) // 2 :]]


def expected_calibration_error(
    proba: Any, y: Any, *, classes: Any = None, n_bins: int = 15
) -> float:
    """Mean gap between confidence and accuracy over equal-width bins of confidence [1]_.

    Parameters
    ----------
    proba : array-like of shape (n, n_classes)
        Predicted probabilities; the prediction is the argmax, its probability the confidence.
    y : array-like of shape (n,)
        Gold class values.
    classes : sequence of length n_classes, optional
        Class value of every column; default: the sorted values of ``y``.
    n_bins : int, default=15

    Returns
    -------
    float in [0, 1]
        0: among the predictions made with confidence p, a share p is right. NaN if n is 0.

    Raises
    ------
    AnnotationError
        If shapes do not fit, or ``y`` holds a value outside ``classes``.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger. On calibration of modern neural
       networks. ICML 2017, Eq. 3.

    Examples
    --------
    >>> round(expected_calibration_error([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 3)
    0.4
    """
    proba = np.asarray(proba, dtype=np.float64)
    if n_bins < 1:
        raise AnnotationError(f"n_bins={n_bins!r} must be at least 1")
    codes = _codes_of_columns(proba, y, classes)
    if not len(codes):
        return float("nan")
    confidence = proba.max(axis=1)
    right = proba.argmax(axis=1) == codes
    # Bins are (lower, upper], as published; a confidence of 0 cannot be a maximum.
    which = np.ceil(confidence * n_bins).astype(np.int64).clip(1, n_bins) - 1
    gap = np.bincount(which, weights=right - confidence, minlength=n_bins)
    return float(np.abs(gap).sum() / len(codes))


def _codes_of_columns(proba: AnyArray, y: Any, classes: Any) -> AnyArray:
    """Column of ``proba`` that belongs to every gold label."""
    y = np.asarray(y)
    vocabulary = np.unique(y) if classes is None else make_vocabulary(classes, "classes")
    if proba.ndim != 2 or y.ndim != 1 or proba.shape != (len(y), len(vocabulary)):
        raise AnnotationError(
            f"proba has shape {proba.shape}; one row a gold label and one column a class, "
            f"{(len(y), len(vocabulary))}, is needed. If y lacks a class, name all in classes="
        )
    return encode(y, vocabulary, argument="y", vocabulary_name="classes")[0]


def _pair(y: Any, predicted: Any) -> tuple[AnyArray, AnyArray]:
    y, predicted = np.asarray(y), np.asarray(predicted)
    if y.ndim != 1 or y.shape != predicted.shape or not len(y):
        raise AnnotationError(
            f"y has shape {y.shape} and predicted {predicted.shape}; both must be "
            "one-dimensional, equally long and not empty"
        )
    return y, predicted
