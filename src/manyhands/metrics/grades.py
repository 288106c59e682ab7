"""Scores of labels on an ordered scale: how many grades they are from gold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t

from manyhands.annotations import AnnotationTable
from manyhands.decision.labels import is_scale_of_grades
from manyhands.metrics.certainty import Certainty
from manyhands.metrics.gold import ranked_probability_score
from manyhands.metrics.intervals import share_interval
from manyhands.metrics.sample_levels import LEAST_GOLD, Level
from manyhands.typing import BoolArray, FloatArray, IntArray


class GradeScores(NamedTuple):
    """Scores of labels that are grades, against gold.

    Attributes
    ----------
    within_one : float
        Share of labels at most one grade off.
    mae : float
        Mean absolute error in grades.
    qwk : float or None
        Cohen's kappa with quadratic weights: 1 is perfect, 0 is chance; None if all labels and all
        gold are the same grade.
    rps : float or None
        Ranked probability score (`manyhands.metrics.ranked_probability_score`); None without
        probabilities.
    """

    within_one: float
    mae: float
    qwk: float | None
    rps: float | None


def score_grades(y: IntArray, labels: IntArray, posterior: FloatArray | None = None) -> GradeScores:
    """Score n labels that are grades, n > 0.

    Parameters
    ----------
    y, labels : integer arrays of shape (n,)
        Codes of gold and labels, in the order of the grades.
    posterior : array of shape (n, n_classes), optional

    Returns
    -------
    GradeScores

    Examples
    --------
    >>> import numpy as np
    >>> found = score_grades(np.array([0, 1, 2, 3]), np.array([0, 2, 2, 1]))
    >>> found.within_one, found.mae, round(found.qwk, 2)
    (0.75, 0.75, 0.38)
    """
    from sklearn.metrics import cohen_kappa_score, mean_absolute_error

    apart = np.abs(labels - y)
    constant = len(np.unique(np.concatenate([y, labels]))) < 2
    grades = None if posterior is None else np.arange(posterior.shape[1])
    return GradeScores(
        float((apart <= 1).mean()),
        float(mean_absolute_error(y, labels)),
        None if constant else float(cohen_kappa_score(y, labels, weights="quadratic")),
        None if posterior is None else ranked_probability_score(posterior, y, classes=grades),
    )


class WithinOne(NamedTuple):
    """Share of labels that are at most one grade off.

    Attributes
    ----------
    low : float
        Lower end of a 95 % interval of the share.
    value, high : float or None
        Share and upper end of the interval, if measured on gold. None if the model expects it: on
        real tables labels are nearer the truth than the model expects, so that only the lower end
        was found to hold.
    source : {"gold", "model"}
    n : int
        Number of labels that the figure rests on.
    """

    low: float
    value: float | None
    high: float | None
    source: str
    n: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return self._asdict()


def within_one(
    table: AnnotationTable,
    level: Level | None,
    certainty: Certainty,
    posterior: FloatArray,
    codes: IntArray,
    *,
    some: BoolArray | None = None,
    known: BoolArray | None = None,
    gold: IntArray | None = None,
) -> WithinOne | None:
    """Return the share of inferred labels that are at most one grade off.

    A right label is within one grade, so nothing is returned where all that the model expects is
    below the share of right labels.

    Parameters
    ----------
    table : AnnotationTable
    level : Level or None
        Share of right labels among those in question.
    certainty : Certainty
        Map to the reported probabilities of single labels.
    posterior : array of shape (n_instances, n_classes)
    codes : integer array of shape (n_instances,)
        Labels of all instances, -1 where undecided.
    some : boolean array of shape (n_instances,), optional
        The instances in question, such as those with sure labels. Default: all.
    known : boolean array of shape (n_instances,), optional
        Instances whose label was given.
    gold : integer array of shape (n_instances,), optional
        True classes, -1 where unknown.

    Returns
    -------
    WithinOne or None
        None if the classes are not grades, or the share is unknown.
    """
    if level is None or not is_scale_of_grades(table):
        return None
    free = (table.annotations_per_instance() > 0) & (codes >= 0)
    free = free if known is None else free & ~known
    own = free if some is None else free & some
    if level.source == "gold" and gold is not None:
        judged = np.flatnonzero(own & (gold >= 0))
        if some is None or len(judged) >= LEAST_GOLD:
            near = np.abs(codes - gold)[judged] <= 1
            return _measured(near, level if level.n == len(near) else None)
    if not certainty.is_known or not own.any():
        return None
    told = certainty.of_classes(posterior[free], codes[free])
    # The model decides only which share of the wrong labels is more than one grade off. Of its
    # surest labels it cannot tell, and spreads what may be wrong evenly over the grades. On real
    # tables, a wrong label is no farther off if it is sure, so the share is at most that of all.
    far = _far_share(told, codes[free])
    far = min(far, _far_share(told[own[free]], codes[own]))
    least = max(1.0 - (1.0 - level.low) * far, level.low)
    if np.floor(100 * least) < np.rint(100 * level.value):
        return None
    return WithinOne(least, None, None, "model", int(own.sum()))


def _measured(near: BoolArray, level: Level | None) -> WithinOne:
    """Return the share that gold measures.

    It is no less than the share of right labels that the same gold measures, ``level``, if any.
    """
    ends = [float(end) for end in share_interval(int(near.sum()), len(near), level=0.95)]
    found = ends[0], float(near.mean()), ends[1]
    if level is not None:
        found = max(found[0], level.low), max(found[1], level.value), max(found[2], level.high)
    return WithinOne(*found, "gold", len(near))


def _far_share(posterior: FloatArray, codes: IntArray) -> float:
    """Return which share of the wrong labels is expected to be more than one grade off."""
    wrong = 1.0 - posterior[np.arange(len(codes)), codes]
    far = 1.0 - near_share(posterior, codes)
    return float(far.sum() / max(wrong.sum(), 1e-9))


def near_share(posterior: FloatArray, codes: IntArray) -> FloatArray:
    """Return the probability that each label is at most one grade off, shape (n,)."""
    near = np.abs(np.arange(posterior.shape[1]) - codes[:, None]) <= 1
    return np.asarray((posterior * near).sum(axis=1))


class Deviation(NamedTuple):
    """By how many grades annotations are too high on average, with a 95 % interval.

    Attributes
    ----------
    value, low, high : float
        Negative where annotations are too low.
    n_items : int
        Items with a true grade.
    """

    value: float
    low: float
    high: float
    n_items: int


def deviation_of(given: IntArray, true: IntArray, item: IntArray) -> Deviation | None:
    """Return how far annotations are above the true grades; None with fewer than two items.

    Annotations of an item are off together, so the interval rests on how items differ (ratio
    estimator, t distribution).

    Parameters
    ----------
    given, true, item : integer arrays of shape (m,)
        Grade that each annotation gives, the true grade, and the item.

    Examples
    --------
    >>> import numpy as np
    >>> off = deviation_of(np.array([1, 2, 3, 3]), np.array([1, 1, 3, 2]), np.array([0, 0, 1, 2]))
    >>> off.value, off.n_items
    (0.5, 3)
    """
    _, place = np.unique(item, return_inverse=True)
    n = np.bincount(place)
    if len(n) < 2:
        return None
    off = (given - true).astype(np.float64)
    mean = float(off.mean())
    apart = np.bincount(place, off) - n * mean
    error = np.sqrt(len(n) / (len(n) - 1) * (apart**2).sum()) / len(off)
    width = float(t.ppf(0.975, len(n) - 1) * error)
    return Deviation(mean, mean - width, mean + width, len(n))
