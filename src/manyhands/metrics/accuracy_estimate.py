"""Estimating a classifier's accuracy from annotations, without gold labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.decision.labels import as_posterior
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.metrics.vote_shares import majority_shares, matched_codes, matched_posterior
from manyhands.metrics.votes import corrected_vote_agreement
from manyhands.typing import FloatArray

__all__ = ["AccuracyEstimate", "estimate_accuracy"]

ERRORS = 2.0
"""Number of standard errors by which the interval exceeds the estimates on either side."""


class AccuracyEstimate(NamedTuple):
    """An estimate of accuracy, and the interval that it may lie in; all within [0, 1]."""

    value: float
    low: float
    high: float


def estimate_accuracy(
    predicted: Any, table: AnnotationTable, *, posterior: Any = None
) -> AccuracyEstimate:
    r"""Estimate the accuracy of predictions **out of fold**, without gold labels.

    Four estimates bracket the accuracy. Two are agreements with inferred classes: the mean over
    instances of :math:`q_{n h_n}`, where q is the majority vote (ties shared) or the Dawid-Skene
    posterior. They are too low, because they count annotators' mistakes against the model. The
    other two are `corrected_vote_agreement` with the crowd's confusion matrix by either q. They are
    too high, because models and annotators share mistakes. The estimate is the mean of the four.
    The interval goes from the smaller agreement less two standard errors to the larger corrected
    agreement plus two. If the model or most annotators are worse than chance, corrected agreement
    is the lower one; the interval is then widened to hold the estimate, and means little.

    The estimate holds for instances like the annotated ones, and assumes that the annotators'
    mistakes are independent of the model's. Mistakes that most annotators share go unnoticed. On
    instances that the model was trained on, the estimate means nothing.

    Parameters
    ----------
    predicted, table
        As in `vote_agreement`.
    posterior : array-like or frame of shape (n_instances, n_classes), optional
        The Dawid-Skene posterior, as in `corrected_vote_agreement`; default: that of
        `manyhands.DawidSkene`. Give it when many models are compared on one table.

    Returns
    -------
    AccuracyEstimate
        ``value``, ``low``, ``high``.

    Raises
    ------
    AnnotationError
        As in `corrected_vote_agreement`.

    Examples
    --------
    >>> from manyhands import make_crowd
    >>> import numpy as np
    >>> y = np.tile([0, 1, 2], 200)
    >>> table = make_crowd(y, annotations_per_instance=3, random_state=0)
    >>> found = estimate_accuracy(y, table)
    >>> found.low < 1 <= found.high
    True
    """
    whole = table
    table, codes = matched_codes(predicted, whole)
    if posterior is None:
        posterior = DawidSkene().fit_predict_proba(table)
    else:
        posterior = matched_posterior(posterior, whole, table)
    beliefs = (majority_shares(table), as_posterior(posterior))
    annotated = table.annotations_per_instance() > 0
    rows = np.arange(len(codes))
    predicted = table.classes[codes]
    agreements = [belief[rows, codes][annotated] for belief in beliefs]
    corrected = [
        corrected_vote_agreement(predicted, table, posterior=_distribution(belief), average=False)
        for belief in beliefs
    ]
    value = float(np.mean([_mean(each) for each in (*agreements, *corrected)]))
    low = min(value, *(_mean(each) - ERRORS * _error(each) for each in agreements))
    high = max(value, *(_mean(each) + ERRORS * _error(each) for each in corrected))
    return AccuracyEstimate(*(float(np.clip(each, 0, 1)) for each in (value, low, high)))


def _distribution(belief: FloatArray) -> FloatArray:
    """Return rows that sum to 1; rows without votes become uniform, and have no weight."""
    return np.where(np.isnan(belief), 1 / belief.shape[1], belief)


def _mean(each: FloatArray) -> float:
    return float(np.nanmean(each))


def _error(each: FloatArray) -> float:
    """Return the standard error of the mean; of a single value it is unknown and counts as 1."""
    known = each[~np.isnan(each)]
    return float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else 1.0
