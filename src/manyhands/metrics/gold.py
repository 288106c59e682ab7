"""Scores of predictions against gold labels, computed by scikit-learn where it has the measure.

If both arguments have ids (a pandas index other than the default, a column of ids in a frame of
polars or pyarrow), rows are matched by id, and different ids are refused. Otherwise rows are paired
in order. Without ``classes``, columns of a frame are matched by name if they are named after the
classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from manyhands.annotations.class_order import check_order, in_class_order
from manyhands.annotations.encoding import encode, make_vocabulary
from manyhands.annotations.ids import (
    as_frame,
    first_and_last,
    id_column_of,
    is_default_index,
    row_ids,
)
from manyhands.annotations.target import as_one_kind, rows_of
from manyhands.decision.labels import as_posterior, decide
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray, IntArray

__all__ = [
    "CoverageRisk",
    "accuracy",
    "balanced_accuracy",
    "brier_score",
    "coverage_risk",
    "macro_f1",
    "minority_recall",
    "ranked_probability_score",
]


def accuracy(y: Any, predicted: Any) -> float:
    """Return the share of correct predictions.

    Parameters
    ----------
    y, predicted : array-like of shape (n,)
        Gold and predicted class values.

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    AnnotationError
        If the arguments are empty, differ in length or type, or do not match by id.

    Examples
    --------
    >>> accuracy(["cat", "dog", "dog"], ["cat", "dog", "cat"])
    0.6666666666666666
    """
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(*_pair(y, predicted)))


def balanced_accuracy(y: Any, predicted: Any) -> float:
    """Return the mean recall over the classes that occur in ``y``, each counted equally.

    This is 1 minus the mean error rate of the classes, the aim of ``decide(..., "balanced")``.

    Parameters
    ----------
    y, predicted : array-like of shape (n,)
        Gold and predicted class values.

    Returns
    -------
    float
        1 / C if one class is always predicted, with C classes in ``y``. A class that is predicted
        but absent from ``y`` has no recall of its own; it only lowers that of other classes.

    Raises
    ------
    AnnotationError
        As in `accuracy`.

    Examples
    --------
    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.5
    """
    from sklearn.metrics import recall_score

    y, predicted = _pair(y, predicted)
    recall = recall_score(y, predicted, labels=np.unique(y), average="macro", zero_division=0.0)
    return float(recall)


def macro_f1(y: Any, predicted: Any) -> float:
    """Return the mean F1 over the classes that occur, each counted equally.

    A class that is predicted but absent from ``y``, or never predicted, has an F1 of 0.

    Parameters
    ----------
    y, predicted : array-like of shape (n,)
        Gold and predicted class values.

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    AnnotationError
        As in `accuracy`.

    Examples
    --------
    >>> round(macro_f1([0, 0, 0, 1], [0, 0, 0, 0]), 3)
    0.429
    """
    from sklearn.metrics import f1_score

    return float(f1_score(*_pair(y, predicted), average="macro", zero_division=0.0))


def minority_recall(y: Any, predicted: Any, *, minority: Any = None) -> float:
    """Return the mean recall over the minority classes, which accuracy hides.

    Parameters
    ----------
    y, predicted : array-like of shape (n,)
        Gold and predicted class values.
    minority : sequence of class values, optional
        The minority classes; default: the rarer half of the classes in ``y``, rounded down
        (the rarer one of two). Among equally frequent classes, the later ones count as rarer.

    Returns
    -------
    float
        NaN if ``y`` holds one class only.

    Raises
    ------
    AnnotationError
        As in `accuracy`, or if ``minority`` names a class that ``y`` does not hold.

    Examples
    --------
    >>> minority_recall([0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1])
    0.5
    """
    from sklearn.metrics import recall_score

    y, predicted = _pair(y, predicted)
    chosen = rarer_half(y) if minority is None else make_vocabulary(minority, "minority")
    if not len(chosen):
        return float("nan")
    if not np.isin(chosen, y).all():
        absent = chosen[~np.isin(chosen, y)][0].item()
        raise AnnotationError(
            f"minority names {absent!r}, which does not occur in y and so has no recall; "
            "leave it out"
        )
    recall = recall_score(y, predicted, labels=chosen, average="macro", zero_division=0.0)
    return float(recall)


def rarer_half(y: Any) -> AnyArray:
    """Return the rarer half of the classes in ``y``, rounded down, rarest last."""
    values, counts = np.unique(np.asarray(y), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return values[order[len(values) - len(values) // 2 :]]


def brier_score(proba: Any, y: Any, *, classes: Any = None) -> float:
    """Return the mean squared distance of probabilities from the truth, over classes [1]_.

    Parameters
    ----------
    proba : array-like of shape (n, n_classes)
        Predicted probabilities.
    y : array-like of shape (n,)
        Gold class values.
    classes : sequence of length n_classes, optional
        Class value of every column; default: the sorted values of ``y``.

    Returns
    -------
    float in [0, 2]
        0 if all predictions are certain and right, 2 if they are certain and wrong, and
        1 - 1 / n_classes for uniform probabilities. The true probabilities minimise its
        expectation. NaN if n is 0. With two classes it is twice the squared error of either
        probability.

    Raises
    ------
    AnnotationError
        If shapes do not fit, rows of ``proba`` are not probabilities, or ``y`` holds a value
        outside ``classes``.

    References
    ----------
    .. [1] G. W. Brier. Verification of forecasts expressed in terms of probability. Monthly
       Weather Review 78(1), 1950, Eq. 2.

    Examples
    --------
    >>> round(brier_score([[0.9, 0.1], [0.5, 0.5]], ["cat", "dog"]), 3)
    0.26
    """
    proba, codes = against_gold(proba, y, classes)
    if not len(codes):
        return float("nan")
    return float(squared_distances(proba, codes).mean())


def squared_distances(proba: FloatArray, codes: IntArray) -> FloatArray:
    """Return the squared distance of each row (n, C) from the truth, shape (n,)."""
    truth = np.arange(proba.shape[1]) == codes[:, None]
    return np.asarray(((proba - truth) ** 2).sum(axis=1))


def ranked_probability_score(proba: Any, y: Any, *, classes: Any = None) -> float:
    """Return the mean squared distance of cumulative probabilities from the truth (grades).

    Probability given to a grade next to the true one costs less than to a grade far from it [1]_.

    Parameters
    ----------
    proba : array-like of shape (n, n_classes)
        Predicted probabilities; the columns are the grades, the lowest first.
    y : array-like of shape (n,)
        Gold class values.
    classes : sequence of length n_classes, optional
        Class value of every column, **in the order of the grades**; default: the values of
        ``y``, if these are numbers or of a known scale such as low < medium < high.

    Returns
    -------
    float in [0, n_classes - 1]
        0 if predictions are certain and right, and d if they are certain but d grades off. The
        true probabilities minimise its expectation. NaN if n is 0. With two classes it is half the
        Brier score.

    Raises
    ------
    AnnotationError
        If shapes do not fit, rows of ``proba`` are not probabilities, ``y`` holds a value outside
        ``classes``, or the order of more than two classes of text is unknown because ``classes``
        is not given.

    See Also
    --------
    sklearn.metrics.mean_absolute_error, sklearn.metrics.cohen_kappa_score : for labels without
        probabilities; the latter with ``weights="quadratic"``. Both need numbers or grades.

    References
    ----------
    .. [1] E. S. Epstein. A scoring system for probability forecasts of ranked categories. Journal
       of Applied Meteorology 8(6), 1969; as a distance between cumulative distributions: A. H.
       Murphy, Monthly Weather Review 99, 1971.

    Examples
    --------
    >>> proba = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]]
    >>> round(ranked_probability_score(proba, [1, 3], classes=[1, 2, 3]), 3)
    0.55
    """
    proba, codes = against_gold(proba, y, classes, ordered="ranked_probability_score")
    if not len(codes):
        return float("nan")
    truth = codes[:, None] <= np.arange(proba.shape[1] - 1)
    return float(((proba[:, :-1].cumsum(axis=1) - truth) ** 2).sum(axis=1).mean())


class CoverageRisk(NamedTuple):
    """Coverage and risk of abstaining; one entry per distinct confidence, highest first.

    Attributes
    ----------
    threshold : array
        Lowest confidence at which a prediction is made (``threshold`` of `manyhands.decide`).
    coverage : array
        Share of instances with a prediction; it rises to 1.
    risk : array
        Share of these predictions that are wrong; 1 - risk is the selective accuracy.
    """

    threshold: FloatArray
    coverage: FloatArray
    risk: FloatArray


def coverage_risk(proba: Any, y: Any, *, classes: Any = None) -> CoverageRisk:
    """Return error rate and share of predictions made at every abstention threshold [1]_.

    Parameters
    ----------
    proba : array-like of shape (n, n_classes)
        Predicted probabilities; the prediction is the argmax, its probability the confidence.
    y : array-like of shape (n,)
        Gold class values.
    classes : sequence of length n_classes, optional
        Class value of every column; default: the sorted values of ``y``.

    Returns
    -------
    CoverageRisk
        Empty if n is 0.

    Raises
    ------
    AnnotationError
        If shapes do not fit, rows of ``proba`` are not probabilities, or ``y`` holds a value
        outside ``classes``.

    References
    ----------
    .. [1] R. El-Yaniv and Y. Wiener. On the foundations of noise-free selective classification.
       Journal of Machine Learning Research 11, 2010.

    Examples
    --------
    >>> curve = coverage_risk([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4]], [0, 1, 0, 1])
    >>> curve.threshold, curve.coverage, curve.risk
    (array([0.9, 0.8, 0.6]), array([0.25, 0.5 , 1.  ]), array([0.  , 0.  , 0.25]))
    """
    proba, codes = against_gold(proba, y, classes)
    negative, place, counts = np.unique(-proba.max(axis=1), return_inverse=True, return_counts=True)
    n_predicted = counts.cumsum()
    n_wrong = np.bincount(place, weights=decide(proba) != codes, minlength=len(counts)).cumsum()
    return CoverageRisk(-negative, n_predicted / max(len(codes), 1), n_wrong / n_predicted)


def against_gold(
    proba: Any, y: Any, classes: Any, *, ordered: str | None = None
) -> tuple[FloatArray, IntArray]:
    """Return checked probabilities and, matched by id, the column of each gold label.

    ``ordered`` is the name of a measure that needs the order of the classes.
    """
    y = np.asarray(in_order_of(proba, y, "proba", "y"))
    vocabulary = np.unique(y) if classes is None else make_vocabulary(classes, "classes")
    if classes is None and ordered is not None:
        _, vocabulary, order = in_class_order(np.arange(len(vocabulary)), vocabulary)
        check_order(vocabulary, order, ordered)
    if as_frame(proba) is not None:
        proba = _values_of(proba, vocabulary if classes is None else None)
    proba = as_posterior(proba, argument="proba")
    if y.ndim != 1 or proba.shape != (len(y), len(vocabulary)):
        raise AnnotationError(
            f"proba has shape {proba.shape}; it must have one row per gold label and one column "
            f"per class, {(len(y), len(vocabulary))}. If a class is missing from y, name all "
            "classes in classes="
        )
    return proba, encode(y, vocabulary, argument="y", vocabulary_name="classes")[0]


def _values_of(proba: Any, classes: AnyArray | None) -> AnyArray:
    """Return the values of a frame without its ids, its columns in the order of the classes."""
    frame, ids = nw.from_native(proba, eager_only=True), id_column_of(proba)
    frame = frame if ids is None else frame.drop(ids)
    values = frame.to_numpy()
    if classes is None or is_default_index(getattr(proba, "columns", None)):
        return values
    places = rows_of(classes, np.array([str(name) for name in frame.columns]))
    return values if places is None else values[:, places]


def _pair(y: Any, predicted: Any) -> tuple[AnyArray, AnyArray]:
    y, predicted = np.asarray(y), np.asarray(in_order_of(y, predicted, "y", "predicted"))
    if y.ndim != 1 or y.shape != predicted.shape or not len(y):
        raise AnnotationError(
            f"y has shape {y.shape} and predicted {predicted.shape}; both must be "
            "one-dimensional, nonempty and of the same length"
        )
    first, other = y[:1].tolist()[0], predicted[:1].tolist()[0]
    if isinstance(first, str) != isinstance(other, str):
        raise AnnotationError(
            f"y holds {first!r}, but predicted holds {other!r}, and a string and a number are "
            "different classes; convert y to the type of the predictions"
        )
    return y, predicted


def in_order_of(first: Any, second: Any, name: str, other: str) -> Any:
    """Return the second of two arguments in the order of the rows of the first.

    They are matched by id if the second has a pandas index other than the default, and the first
    has one, too, or (as a polars or pyarrow frame) a column of ids. Otherwise they are paired row
    by row.

    Raises
    ------
    AnnotationError
        If both have ids, and these differ in more than their order.
    """
    if not hasattr(second, "iloc") or is_default_index(second.index):
        return second
    if hasattr(first, "iloc") and first.index.equals(second.index):
        return second
    found = row_ids(first, name)
    theirs = None if found is None or found.default else row_ids(second, other)
    if found is None or theirs is None:
        return second
    rows = rows_of(found.values, theirs.values)
    if rows is None:
        raise _not_matching(found.values, theirs.values, name, other)
    return second.iloc[rows]


def _not_matching(mine: AnyArray, theirs: AnyArray, name: str, other: str) -> AnnotationError:
    parts = [f"{len(mine)} rows of {name} and {len(theirs)} of {other} do not match by id"]
    keys = as_one_kind(mine, theirs)
    for ids, own, others, names in (
        (mine, keys[0], keys[1], (name, other)),
        (theirs, keys[1], keys[0], (other, name)),
    ):
        missing = ids[~np.isin(own, others)]
        if len(missing):
            parts.append(
                f"{len(missing)} of {names[0]} are not in {names[1]} ({first_and_last(missing)})"
            )
        distinct, counts = np.unique(ids, return_counts=True)
        if len(distinct) < len(ids):
            parts.append(f"{names[0]} holds {distinct[counts > 1][0].item()!r} twice")
    return AnnotationError(
        f"{'; '.join(parts)}. Select the same rows of both, or give {other}.to_numpy() if row i of "
        f"it belongs to row i of {name}"
    )
