"""Deciding which options of an instance to tick, from the probability of each.

References
----------
.. [1] Z. C. Lipton, C. Elkan and B. Naryanaswamy. Optimal thresholding of classifiers to maximize
   F1 measure. ECML PKDD 2014.
.. [2] C. Elkan. The foundations of cost-sensitive learning. IJCAI 2001, Eq. 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manyhands.exceptions import AnnotationError
from manyhands.typing import BoolArray, FloatArray, IntArray

SET_RULES = ("probable", "f1")
"""Rules of sets that have a name."""


class SetDecision(NamedTuple):
    """Ticked options, and the thresholds that decided them.

    Attributes
    ----------
    ticks : boolean array of shape (n, n_options)
    threshold : array of shape (n_options,)
        An option is ticked if its probability is at least this (more than this, for the rule
        "probable").
    n_ticked : integer array of shape (n_options,)
        Number of instances for which each option is ticked.
    expected_f1 : array of shape (n_options,)
        F1 of the ticks that the posterior expects; 1 if nothing is ticked and nothing expected.
    """

    ticks: BoolArray
    threshold: FloatArray
    n_ticked: IntArray
    expected_f1: FloatArray


def decide_sets(
    posterior: Any, rule: str = "probable", *, threshold: Any = None, costs: Any = None
) -> SetDecision:
    r"""Decide which options to tick, and return the thresholds, too.

    Parameters
    ----------
    posterior : array-like of shape (n, n_options)
        Probability that each option applies; rows need not sum to 1.
    rule : {"probable", "f1"}, default="probable"
        "probable": tick options that are more probable than not, which minimises the expected
        number of wrong cells. "f1": for each option, maximise the expected F1, by ticking the
        instances with a probability of at least half of that F1 [1]_. "f1" ticks more than
        "probable", because a missed label lowers F1 more than a false one if labels are rare, and
        needs many rows.
    threshold : float or array-like of shape (n_options,), optional
        Tick options with at least this probability.
    costs : (float, float), or array-like of shape (2, n_options), optional
        Costs of a missed label and of a false tick: tick options that are at least as probable as
        false / (missed + false) [2]_.

    Returns
    -------
    SetDecision

    Raises
    ------
    AnnotationError
        If ``posterior`` holds no probabilities, the rule is unknown, a threshold or a cost is out
        of range, or several rules are given.

    Notes
    -----
    With :math:`\hat m` ticks, the expected F1 of an option is taken to be :math:`2 \sum p / (\hat m
    + \sum_{all} p)`, where the first sum is over the ticked instances. This ratio of expectations
    is close to the expected ratio if there are many instances [1]_. No instance is ticked if the
    probability that none has the option is larger. Instances with equal probabilities are ticked
    together.

    Examples
    --------
    >>> from manyhands import decide_sets
    >>> posterior = [[0.9, 0.2], [0.45, 0.1], [0.3, 0.4], [0.1, 0.3]]
    >>> decide_sets(posterior).ticks[:, 0]
    array([ True, False, False, False])
    >>> found = decide_sets(posterior, "f1")
    >>> found.ticks[:, 0], found.threshold
    (array([ True,  True, False, False]), array([0.36      , 0.23333333]))
    >>> decide_sets(posterior, costs=(3, 1)).ticks[:, 1]  # A missed label costs three false ones.
    array([False, False,  True,  True])
    """
    proba = _probabilities(posterior)
    given = {"threshold": threshold, "costs": costs}
    named = [name for name, value in given.items() if value is not None]
    if rule not in SET_RULES:
        raise AnnotationError(f"rule={rule!r} is unknown; use 'probable' or 'f1'")
    if len(named) + (rule != "probable") > 1:
        raise AnnotationError(
            f"rule={rule!r} and {' and '.join(f'{name}=' for name in named)} are different ways to "
            "decide; give only one of them"
        )
    if rule == "f1":
        bound = np.array([_best_threshold(column) for column in proba.T])
    elif costs is not None:
        bound = _of_costs(costs, proba.shape[1])
    elif threshold is not None:
        bound = _of_options(threshold, proba.shape[1], "threshold")
        if ((bound < 0) | (bound > 1)).any():
            raise AnnotationError(f"threshold={threshold!r} must hold probabilities in [0, 1]")
    else:
        bound = np.full(proba.shape[1], 0.5)
    ticks = proba > bound if rule == "probable" and not named else proba >= bound
    return _decision(proba, ticks, bound)


def decide_by(posterior: Any, bound: FloatArray) -> SetDecision:
    """Tick options at least as probable as their threshold; thresholds above 1 tick nothing.

    Parameters
    ----------
    posterior : array of shape (n, n_options)
    bound : array of shape (n_options,)
        Thresholds, such as ``threshold`` of an earlier `SetDecision`.

    Returns
    -------
    SetDecision
    """
    proba = _probabilities(posterior)
    return _decision(proba, proba >= bound, bound)


def _decision(proba: FloatArray, ticks: BoolArray, bound: FloatArray) -> SetDecision:
    n_ticked = ticks.sum(axis=0)
    hits, total = (ticks * proba).sum(axis=0), n_ticked + proba.sum(axis=0)
    empty = np.exp(np.log1p(-np.minimum(proba, 1 - 1e-12)).sum(axis=0))
    expected = np.where(n_ticked == 0, empty, 2 * hits / np.maximum(total, 1e-300))
    return SetDecision(ticks, bound, n_ticked, expected)


def _probabilities(values: Any) -> FloatArray:
    proba = np.asarray(values, dtype=np.float64)
    if proba.ndim != 2 or not proba.shape[1]:
        raise AnnotationError(
            f"posterior has shape {proba.shape}; it must have one row per instance and one column "
            "per option"
        )
    bad = ~((proba >= -1e-9) & (proba <= 1 + 1e-9))
    if bad.any():
        row, column = np.argwhere(bad)[0].tolist()
        raise AnnotationError(
            f"posterior holds {proba[row, column].item()!r} at [{row}, {column}]; each cell is the "
            "probability that an option applies, from 0 to 1"
        )
    return np.clip(proba, 0.0, 1.0)


def _of_options(values: Any, n_options: int, argument: str) -> FloatArray:
    try:
        return np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), (n_options,)))
    except (TypeError, ValueError):
        raise AnnotationError(
            f"{argument}={values!r} must be one number, or one for each of the {n_options} options"
        ) from None


def _of_costs(costs: Any, n_options: int) -> FloatArray:
    """Return the thresholds by the costs of a missed label and of a false tick."""
    if not hasattr(costs, "__len__") or len(costs) != 2:
        raise AnnotationError(
            f"costs={costs!r} must be two costs, of a missed label and of a false tick, such as "
            "(5, 1)"
        )
    missed, false = (_of_options(each, n_options, "costs") for each in costs)
    total = missed + false
    if not np.isfinite(total).all() or (np.minimum(missed, false) < 0).any() or (total == 0).any():
        raise AnnotationError(
            f"costs={costs!r} must be finite and not negative, and not both 0, such as (5, 1)"
        )
    return np.asarray(false / total)


def _best_threshold(proba: FloatArray) -> float:
    """Return half of the greatest expected F1, the best threshold; above 1 to tick nothing."""
    values, counts = np.unique(proba, return_counts=True)
    values, counts = values[::-1], counts[::-1]
    ticked = np.cumsum(counts)
    hits = np.cumsum(values * counts)
    if not hits.size or hits[-1] == 0:
        return float(np.nextafter(1.0, 2.0))
    expected = 2 * hits / (ticked + hits[-1])
    best = int(expected.argmax())
    none = float(np.exp(np.log1p(-np.minimum(proba, 1 - 1e-12)).sum()))
    if none > expected[best]:
        return float(np.nextafter(1.0, 2.0))
    # The smallest ticked probability is at least half of the F1, except for rounding errors.
    return float(min(expected[best] / 2, values[best]))
