"""Predictions against the annotations themselves, where there is no gold.

All of these speak of predictions **out of fold**: by models that saw neither an instance's features
nor its annotations. On the instances that a model was trained on they mean nothing, because they
reward memorised votes. They also reward whoever repeats the crowd's shared mistakes;
``docs/model_choice.md`` shows an example, and its section "Definitions" says which one is for what.

Notation: h_n is the predicted class of instance n, V_nl the weight of its annotations of class l.
Weights are those of the table times those of its families of annotators. Abstentions,
pseudo-annotations and instances without annotations are ignored.

References
----------
.. [1] N. Natarajan, I. S. Dhillon, P. K. Ravikumar and A. Tewari. Learning with noisy labels.
   NIPS 2013, Lemma 1 (the unbiased correction of a loss).
.. [2] P. Chen, J. Ye, G. Chen, J. Zhao and P.-A. Heng. Robustness of accuracy metric and its
   inspirations in learning with noisy labels. AAAI 2021 (accuracy against noisy labels keeps the
   order of classifiers if every class is mostly labelled right).
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.annotations.target import matched
from manyhands.decision.labels import as_posterior
from manyhands.exceptions import AnnotationError
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.inference.inputs import check_annotations
from manyhands.inference.probability import normalise_rows
from manyhands.inference.vote_sums import weighted_votes
from manyhands.inference.votes import make_votes
from manyhands.typing import AnyArray, FloatArray, IntArray

__all__ = [
    "corrected_vote_agreement",
    "paired_z",
    "vote_agreement",
    "vote_information",
    "vote_recall",
]

CELL_PRIOR = 0.1
"""Pseudo-annotations in every cell of the crowd's confusion matrix; the diagonal has one more."""

RCOND = 0.05
"""Singular values below this share of the largest count as 0 when that matrix is inverted."""


@overload
def vote_agreement(
    predicted: Any, table: AnnotationTable, *, average: Literal[True] = ...
) -> float: ...
@overload
def vote_agreement(
    predicted: Any, table: AnnotationTable, *, average: Literal[False]
) -> FloatArray: ...
@overload
def vote_agreement(
    predicted: Any, table: AnnotationTable, *, average: bool
) -> float | FloatArray: ...
def vote_agreement(
    predicted: Any, table: AnnotationTable, *, average: bool = True
) -> float | FloatArray:
    r"""Mean share of an instance's annotations that name its predicted class (A).

    .. math:: A = \frac{1}{N} \sum_n V_{n h_n} / \sum_l V_{nl}

    over the N instances with annotations. It orders models as accuracy does if every class is
    mostly labelled right [2]_, and is lower than accuracy, because annotators' mistakes count
    against the model. It means something **out of fold only**: on training instances it rewards
    memorised votes.

    Parameters
    ----------
    predicted : array-like of shape (n_instances, n_classes) or (n_instances,)
        Class probabilities, with columns in the order of ``table.classes``, or class values. Of
        equally probable classes, the first counts as predicted. Rows are matched with the table's
        instances by the index of a pandas object, otherwise by position.
    table : AnnotationTable
    average : bool, default=True
        False gives the value of every instance, for `paired_z`.

    Returns
    -------
    float in [0, 1], or array of shape (n_instances,)
        The array is NaN for instances without annotations; A is the mean of the other entries.

    Raises
    ------
    AnnotationError
        If rows and instances do not match, probabilities are no distributions, a predicted class
        is unknown to the table, or the table has no annotations.

    Examples
    --------
    >>> table = AnnotationTable.from_matrix([[0, 0], [0, 1], [1, 1]])
    >>> float(vote_agreement([0, 1, 0], table))
    0.5
    """
    table, codes = _matched(predicted, table)
    shares = _row_shares(_votes(table))
    each = _at(shares, codes)
    return float(np.nanmean(each)) if average else each


@overload
def corrected_vote_agreement(
    predicted: Any, table: AnnotationTable, *, posterior: Any = ..., average: Literal[True] = ...
) -> float: ...
@overload
def corrected_vote_agreement(
    predicted: Any, table: AnnotationTable, *, posterior: Any = ..., average: Literal[False]
) -> FloatArray: ...
@overload
def corrected_vote_agreement(
    predicted: Any, table: AnnotationTable, *, posterior: Any = ..., average: bool
) -> float | FloatArray: ...
def corrected_vote_agreement(
    predicted: Any, table: AnnotationTable, *, posterior: Any = None, average: bool = True
) -> float | FloatArray:
    r"""Agreement with the annotations, corrected for the crowd's confusions (B) [1]_.

    .. math:: B = \sum_{nl} V_{nl} W_{l h_n} / \sum_{nl} V_{nl}

    W is the pseudo-inverse (singular values below .05 of the largest are 0) of the crowd's
    confusion matrix T, whose rows are proportional to
    :math:`T_{cl} = \sum_n q_{nc} V_{nl} + .1 + [c = l]` with the Dawid-Skene posterior q. If model
    and annotators err independently given the class, and T is right, B estimates the accuracy
    without bias. In fact they share mistakes, and B is too high. It has more variance than
    `vote_agreement`. It means something **out of fold only**.

    Parameters
    ----------
    predicted, table
        As in `vote_agreement`.
    posterior : array-like of shape (n_instances, n_classes), optional
        q; default: that of `manyhands.DawidSkene`. Give it when many models are compared on one
        table. Rows without annotations do not matter, but must be distributions.
    average : bool, default=True
        False gives the share of every instance in the sum, for `paired_z`.

    Returns
    -------
    float, or array of shape (n_instances,)
        It may lie outside [0, 1]. The array is NaN for instances without annotations; B is the
        mean of the other entries.

    Raises
    ------
    AnnotationError
        As in `vote_agreement`, or if ``posterior`` does not fit the table.

    Examples
    --------
    >>> table = AnnotationTable.from_matrix([[0, 0], [0, 0], [1, 1], [1, 1]] * 100)
    >>> round(float(corrected_vote_agreement([0, 0, 1, 1] * 100, table)), 2)
    1.0
    """
    table, codes = _matched(predicted, table)
    votes = _votes(table)
    confusion = crowd_confusion(table, posterior)
    gains = np.linalg.pinv(confusion, rcond=RCOND)
    totals = votes.sum(axis=1)
    each = np.full(len(votes), np.nan)
    rows = totals > 0
    each[rows] = (votes[rows] * gains[:, codes[rows]].T).sum(axis=1) / totals[rows].mean()
    return float(np.nanmean(each)) if average else each


def vote_information(predicted: Any, table: AnnotationTable) -> float:
    r"""Mutual information of predicted classes and annotations, in nats (MI).

    .. math:: \sum_{hl} P_{hl} \log \frac{P_{hl}}{P_{h \cdot} P_{\cdot l}},
        \quad P_{hl} = \frac{1}{N} \sum_n [h_n = h] V_{nl} / \sum_k V_{nk}

    It does not change if predicted classes are renamed, so it cannot tell a model from one with two
    classes swapped. For the same reason it is not deceived by a crowd that mistakes one class for
    another: where candidates are ordered differently by it and by `vote_agreement`, ask for gold
    labels. It means something **out of fold only**.

    Parameters
    ----------
    predicted, table
        As in `vote_agreement`.

    Returns
    -------
    float
        At least 0, at most the entropy of the vote shares.

    Raises
    ------
    AnnotationError
        As in `vote_agreement`.

    Examples
    --------
    >>> table = AnnotationTable.from_matrix([[0, 0], [0, 0], [1, 1], [1, 1]])
    >>> round(vote_information([1, 1, 0, 0], table), 3)
    0.693
    """
    table, codes = _matched(predicted, table)
    shares = _row_shares(_votes(table))
    joint = _class_sums(codes, np.nan_to_num(shares))
    joint /= joint.sum()
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    cells = joint > 0
    information = float((joint[cells] * np.log(joint[cells] / independent[cells])).sum())
    return max(information, 0.0)


def vote_recall(
    predicted: Any, table: AnnotationTable, *, shares: Literal["majority", "votes"] = "majority"
) -> float:
    r"""Mean over classes of the recall against vote shares, in place of balanced accuracy.

    .. math:: \frac{1}{C} \sum_c \frac{\sum_n S_{nc} [h_n = c]}{\sum_n S_{nc}}

    Accuracy and balanced accuracy order models differently where classes are rare; `vote_agreement`
    goes with the former, this with the latter. It means something **out of fold only**.

    Parameters
    ----------
    predicted, table
        As in `vote_agreement`.
    shares : {"majority", "votes"}, default="majority"
        S. "majority": 1 for the class with most votes, ties shared equally. "votes": the share of
        the votes.

    Returns
    -------
    float in [0, 1]
        Classes with no share of any instance are left out of the mean.

    Raises
    ------
    AnnotationError
        As in `vote_agreement`, or if ``shares`` is unknown.

    Examples
    --------
    >>> table = AnnotationTable.from_matrix([[0, 0], [0, 0], [0, 0], [1, 1]])
    >>> vote_recall([0, 0, 0, 0], table)
    0.5
    """
    if shares not in ("majority", "votes"):
        raise AnnotationError(f"shares={shares!r} is unknown; use 'majority' or 'votes'")
    table, codes = _matched(predicted, table)
    given = _votes(table)
    if shares == "majority":
        given = (given == given.max(axis=1, keepdims=True)) & (given > 0)
    target = np.nan_to_num(_row_shares(given.astype(np.float64)))
    hits, mass = np.diag(_class_sums(codes, target)), target.sum(axis=0)
    return float((hits[mass > 0] / mass[mass > 0]).mean())


def paired_z(difference: Any) -> float:
    """Mean of paired differences divided by its standard error, z = mean / (sd / sqrt(n)).

    Parameters
    ----------
    difference : array-like of shape (n,)
        One value per instance, such as ``vote_agreement(a, table, average=False)`` minus that of
        b. NaN, the value of instances without annotations, is ignored.

    Returns
    -------
    float
        0 if all differences are 0; infinite if all are equal and not 0.

    Raises
    ------
    AnnotationError
        If there are fewer than two differences.

    Examples
    --------
    >>> paired_z([-1.0, -1.0, 0.0, -1.0])
    -3.0
    """
    change = np.asarray(difference, dtype=np.float64)
    change = change[~np.isnan(change)]
    if len(change) < 2:
        raise AnnotationError(
            f"difference has {len(change)} values that are not NaN; a standard error needs two"
        )
    error = float(change.std(ddof=1)) / np.sqrt(len(change))
    mean = float(change.mean())
    return float(mean / error) if error else float(np.sign(mean)) * np.inf if mean else 0.0


def crowd_confusion(table: AnnotationTable, posterior: Any = None) -> FloatArray:
    """Confusion matrix of the crowd as a whole, T of `corrected_vote_agreement`.

    Parameters
    ----------
    table : AnnotationTable
    posterior : array-like of shape (n_instances, n_classes), optional
        Default: that of `DawidSkene`.

    Returns
    -------
    array of shape (n_classes, n_classes)
        [true, given]; rows sum to 1.
    """
    table = table.observed
    q = DawidSkene().fit_predict_proba(table) if posterior is None else as_posterior(posterior)
    if q.shape != (table.n_instances, table.n_classes):
        raise AnnotationError(
            f"posterior has shape {q.shape}, but the table has {table.n_instances} instances and "
            f"{table.n_classes} classes"
        )
    counts = q.T @ _votes(table) + CELL_PRIOR + np.eye(table.n_classes)
    return normalise_rows(counts)


def _votes(table: AnnotationTable) -> FloatArray:
    """Weighted votes, shape (n_instances, n_classes)."""
    return weighted_votes(make_votes(table))


def _row_shares(votes: FloatArray) -> FloatArray:
    """Divide rows by their sums; NaN where there are no votes."""
    totals = votes.sum(axis=1, keepdims=True)
    return np.divide(votes, totals, out=np.full(votes.shape, np.nan), where=totals > 0)


def _at(shares: FloatArray, codes: IntArray) -> FloatArray:
    each: FloatArray = shares[np.arange(len(codes)), codes]
    return each


def _class_sums(codes: IntArray, shares: FloatArray) -> FloatArray:
    """Sum the shares over the instances of each predicted class, (n_classes, n_classes)."""
    sums = np.zeros((shares.shape[1], shares.shape[1]))
    np.add.at(sums, codes, shares)
    return sums


def _matched(predicted: Any, table: AnnotationTable) -> tuple[AnnotationTable, IntArray]:
    """The observed annotations in the order of the predictions, and the predicted class codes."""
    if not isinstance(table, AnnotationTable):
        raise AnnotationError(
            f"table is a {type(table).__name__}; give an AnnotationTable, such as "
            "AnnotationTable.from_matrix(matrix)"
        )
    table = matched(table, predicted, argument="table", rows_argument="predicted").observed
    check_annotations(table, argument="table")
    codes = predicted_codes(predicted, table.classes)
    if len(codes) != table.n_instances:
        raise AnnotationError(
            f"predicted has {len(codes)} rows, but the table has {table.n_instances} instances; "
            "predict every instance, or select those predicted with table[rows]"
        )
    return table, codes


def predicted_codes(predicted: Any, classes: AnyArray) -> IntArray:
    """Codes of predicted class values (n,), or of the most probable classes (n, n_classes).

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
            f"{int(missing.sum()) - 1} more; leave such rows out of it and of the table"
        )
    return encode(values, classes, argument="predicted", vocabulary_name="the table's classes")[0]
