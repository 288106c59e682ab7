"""Scores of predictions against the annotations themselves, without gold labels.

All of them need predictions **out of fold**: by models that saw neither an instance's features nor
its annotations. On the instances that a model was trained on, they mean nothing, because they
reward memorised votes. They also reward a model that repeats mistakes that annotators share;
``docs/model_choice.md`` shows an example, and its section "Definitions" says which score to use
when.

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
from manyhands.decision.labels import as_posterior
from manyhands.exceptions import AnnotationError
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.inference.probability import normalise_rows
from manyhands.metrics.vote_shares import (
    majority_shares,
    matched_codes,
    matched_posterior,
    row_shares,
    vote_weights,
)
from manyhands.typing import FloatArray, IntArray

__all__ = [
    "corrected_vote_agreement",
    "paired_z",
    "vote_agreement",
    "vote_information",
    "vote_recall",
]

CELL_PRIOR = 0.1
"""Pseudo-annotations in every cell of the crowd's confusion matrix, and 1 more on the diagonal."""

RCOND = 0.05
"""When that matrix is inverted, singular values below this share of the largest count as 0."""


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
    r"""Return the mean share of an instance's annotations that name its predicted class (A).

    .. math:: A = \frac{1}{N} \sum_n V_{n h_n} / \sum_l V_{nl}

    over the N instances with annotations. It ranks models as accuracy does if every class is mostly
    labelled right [2]_, and is lower than accuracy, because annotators' mistakes count against the
    model. It is meaningful **out of fold only**: on training instances it rewards memorised votes.

    Parameters
    ----------
    predicted : result of `manyhands.cross_predict`, or array-like of shape (n,) or (n, n_classes)
        Class probabilities, with columns in the order of ``table.classes``, or class values. Of
        equally probable classes, the first counts as predicted. Rows that have ids (of a result of
        `cross_predict`, or of a frame or Series by its index) are matched with the table's
        instances by id, columns of a frame with the classes by name. An array has no ids: its rows
        must be in the order of ``table.instances``.
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
    table, codes = matched_codes(predicted, table)
    shares = row_shares(vote_weights(table))
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
    r"""Return agreement with the annotations, corrected for their confusions (B) [1]_.

    .. math:: B = \sum_{nl} V_{nl} W_{l h_n} / \sum_{nl} V_{nl}

    W is the pseudo-inverse (singular values below .05 of the largest are 0) of the crowd's
    confusion matrix T, whose rows are proportional to
    :math:`T_{cl} = \sum_n q_{nc} V_{nl} + .1 + [c = l]` with the Dawid-Skene posterior q. If model
    and annotators err independently given the class, and T is right, B estimates the accuracy
    without bias. In practice they share mistakes, and B is too high. It has more variance than
    `vote_agreement`. It is meaningful **out of fold only**.

    Parameters
    ----------
    predicted, table
        As in `vote_agreement`.
    posterior : array-like or frame of shape (n_instances, n_classes), optional
        q; default: that of `manyhands.DawidSkene`. Give it when many models are compared on one
        table. Rows of a frame are matched by id; others are in the order of the table's instances,
        whatever the order of ``predicted``. Rows of instances without annotations do not matter,
        but must be distributions.
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
    whole = table
    table, codes = matched_codes(predicted, whole)
    if posterior is not None:
        posterior = matched_posterior(posterior, whole, table)
    votes = vote_weights(table)
    confusion = crowd_confusion(table, posterior)
    gains = np.linalg.pinv(confusion, rcond=RCOND)
    totals = votes.sum(axis=1)
    each = np.full(len(votes), np.nan)
    rows = totals > 0
    each[rows] = (votes[rows] * gains[:, codes[rows]].T).sum(axis=1) / totals[rows].mean()
    return float(np.nanmean(each)) if average else each


@overload
def vote_information(
    predicted: Any, table: AnnotationTable, *, average: Literal[True] = ...
) -> float: ...
@overload
def vote_information(
    predicted: Any, table: AnnotationTable, *, average: Literal[False]
) -> FloatArray: ...
@overload
def vote_information(
    predicted: Any, table: AnnotationTable, *, average: bool
) -> float | FloatArray: ...
def vote_information(
    predicted: Any, table: AnnotationTable, *, average: bool = True
) -> float | FloatArray:
    r"""Return the mutual information of predicted classes and annotations, in nats (MI).

    .. math:: \sum_{hl} P_{hl} \log \frac{P_{hl}}{P_{h \cdot} P_{\cdot l}},
        \quad P_{hl} = \frac{1}{N} \sum_n [h_n = h] V_{nl} / \sum_k V_{nk}

    It does not change if predicted classes are renamed, so that a model with two classes swapped
    has the same value. For the same reason it is not misled by a crowd that mistakes one class for
    another. If it ranks candidates differently from `vote_agreement`, collect gold labels. It is
    meaningful **out of fold only**.

    Parameters
    ----------
    predicted, table
        As in `vote_agreement`.
    average : bool, default=True
        False gives every instance's term of the sum, times N, for `paired_z`: up to a constant, its
        influence on MI.

    Returns
    -------
    float, or array of shape (n_instances,)
        At least 0, at most the entropy of the vote shares. The array is NaN for instances without
        annotations; MI is the mean of the other entries.

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
    table, codes = matched_codes(predicted, table)
    shares = row_shares(vote_weights(table))
    joint = _class_sums(codes, np.nan_to_num(shares))
    joint /= joint.sum()
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    cells = joint > 0
    gains = np.zeros_like(joint)
    gains[cells] = np.log(joint[cells] / independent[cells])
    if not average:
        each: FloatArray = (shares * gains[codes]).sum(axis=1)
        return each
    return max(float((joint * gains).sum()), 0.0)


@overload
def vote_recall(
    predicted: Any,
    table: AnnotationTable,
    *,
    shares: Literal["majority", "votes"] = ...,
    average: Literal[True] = ...,
) -> float: ...
@overload
def vote_recall(
    predicted: Any,
    table: AnnotationTable,
    *,
    shares: Literal["majority", "votes"] = ...,
    average: Literal[False],
) -> FloatArray: ...
@overload
def vote_recall(
    predicted: Any,
    table: AnnotationTable,
    *,
    shares: Literal["majority", "votes"] = ...,
    average: bool,
) -> float | FloatArray: ...
def vote_recall(
    predicted: Any,
    table: AnnotationTable,
    *,
    shares: Literal["majority", "votes"] = "majority",
    average: bool = True,
) -> float | FloatArray:
    r"""Return the mean recall over classes against vote shares, as for balanced accuracy.

    .. math:: \frac{1}{C} \sum_c \frac{\sum_n S_{nc} [h_n = c]}{\sum_n S_{nc}}

    Accuracy and balanced accuracy rank models differently if classes are rare; `vote_agreement`
    corresponds to accuracy, and this recall to balanced accuracy. The recall is meaningful **out of
    fold only**.

    Parameters
    ----------
    predicted, table
        As in `vote_agreement`.
    shares : {"majority", "votes"}, default="majority"
        The shares S. "majority": 1 for the class with most votes, ties shared equally. "votes": the
        share of the votes.
    average : bool, default=True
        False gives every instance's share in the sum, times N, for `paired_z`.

    Returns
    -------
    float in [0, 1], or array of shape (n_instances,)
        Classes with no share of any instance are left out of the mean. The array is NaN for
        instances without annotations; the recall is the mean of the other entries.

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
    table, codes = matched_codes(predicted, table)
    given = majority_shares(table) if shares == "majority" else row_shares(vote_weights(table))
    mass = np.nansum(given, axis=0)
    if average:
        hits = np.diag(_class_sums(codes, np.nan_to_num(given)))
        return float((hits[mass > 0] / mass[mass > 0]).mean())
    n, n_classes = (~np.isnan(given[:, 0])).sum(), (mass > 0).sum()
    worth = np.divide(n / n_classes, mass, out=np.zeros_like(mass), where=mass > 0)
    return _at(given, codes) * worth[codes]


def paired_z(difference: Any) -> float:
    """Return z of paired differences: mean / (sd / sqrt(n)).

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
            f"difference has {len(change)} values that are not NaN; a standard error needs two or "
            "more"
        )
    error = float(change.std(ddof=1)) / np.sqrt(len(change))
    mean = float(change.mean())
    return float(mean / error) if error else float(np.sign(mean)) * np.inf if mean else 0.0


def crowd_confusion(table: AnnotationTable, posterior: Any = None) -> FloatArray:
    """Return the confusion matrix of the crowd as a whole (T of `corrected_vote_agreement`).

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
    counts = q.T @ vote_weights(table) + CELL_PRIOR + np.eye(table.n_classes)
    return normalise_rows(counts)


def _at(shares: FloatArray, codes: IntArray) -> FloatArray:
    each: FloatArray = shares[np.arange(len(codes)), codes]
    return each


def _class_sums(codes: IntArray, shares: FloatArray) -> FloatArray:
    """Sum the shares over the instances of each predicted class, (n_classes, n_classes)."""
    sums = np.zeros((shares.shape[1], shares.shape[1]))
    np.add.at(sums, codes, shares)
    return sums
