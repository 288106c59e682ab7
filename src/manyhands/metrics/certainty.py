"""Recalibrated probabilities of single labels, with the share of right labels as their mean.

A model is overconfident, most of all about its surest labels, because mistakes that most annotators
share look certain. The probabilities that we report of single labels must agree with the level, the
share of all labels that we say is right. So the odds of every label are raised to one power, chosen
to give that mean, and even the surest label may be wrong. If the level is unknown, no probability
is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm

from manyhands.annotations import AnnotationTable
from manyhands.decision.labels import entries, row_max
from manyhands.metrics.sample_levels import LEAST_GOLD, Level, level_of_gold
from manyhands.typing import BoolArray, FloatArray, IntArray

SHARED = 0.4
"""How often even the surest label is wrong, as a share of how often labels are wrong on average.

On the tables of docs/results/claims.md, with each family of tables left out in turn, the log loss
of the reported probabilities is smallest at .25 to .35. The accepted labels are right as often as
reported, on average over the tables, from .35 to .5.
"""

SUBSET_ERRORS = 0.4, 0.8
"""Standard deviations of how far the level of surer labels may be below and above what is told.

They are shares of its distance from the level of all labels, in logits: the further the chosen
labels are from all, the more depends on how well the method orders labels. The second is larger,
because the surest labels of some tables are hardly ever wrong (`SHARED`). On the tables of
docs/results/claims.md, with their true level for all labels, the intervals of labels of at least
60, 70, 80, 90 and 95 % hold the truth in 96 % of cases.
"""

MEASURES = 2.0
"""How many times as exact as their mean probability gold is that measures some labels instead."""

SUREST = 1e-6
"""Probabilities are clipped to this distance from 0 and 1, so that their odds are finite."""

LIMITS = 1e-3, 1 - 1e-3
"""Shares of right labels are clipped to these, so that their odds are finite."""

Z = float(norm.ppf(0.975))
"""Standard deviations from the middle of a 95 % interval to its ends."""

POWERS = 1e-3, 1e3
"""Smallest and largest power of the odds."""

MOST = 100_000
"""Largest number of labels with which the power is found."""


@dataclass(frozen=True)
class Certainty:
    """Map from a method's probability of a label to the one that we report.

    With p the method's probability, and c = 1 / (number of classes), the reported probability is
    (1 - e) q + e c, where logit q = logit c + ``power`` (logit p - logit c) and e is ``shared``.

    Attributes
    ----------
    n_classes : int
    power, shared : float
        ``power`` is None if the level is unknown; then the reported probabilities are NaN.
    below, above : float
        Final factors of the probability to be right, and of the one to be wrong, if no power
        reaches the level.
    """

    n_classes: int
    power: float | None = None
    shared: float = 0.0
    below: float = 1.0
    above: float = 1.0

    @classmethod
    def of(cls, level: Level | None, probability: FloatArray, n_classes: int) -> Certainty:
        """Find the power that makes the mean reported probability of labels ``level.of_labels``.

        Parameters
        ----------
        level : Level or None
        probability : array of shape (m,)
            Method's probabilities of the labels to which the level applies.
        n_classes : int
        """
        if level is None or n_classes < 2:
            return cls(n_classes)
        mean = level.value if level.of_labels is None else level.of_labels
        value = float(np.clip(mean, *LIMITS))
        some = probability[:: len(probability) // MOST + 1]
        shared = SHARED * (1.0 - value)
        if not len(some):
            return cls(n_classes, 1.0, shared)

        def off(log_power: float) -> float:
            return float(cls(n_classes, np.exp(log_power), shared)(some).mean() - value)

        least, most = np.log(POWERS)
        if off(least) > 0:
            found = cls(n_classes, POWERS[0], shared)
            return cls(n_classes, POWERS[0], shared, below=value / float(found(some).mean()))
        if off(most) < 0:
            found = cls(n_classes, POWERS[1], shared)
            above = (1 - value) / (1 - float(found(some).mean()))
            return cls(n_classes, POWERS[1], shared, above=above)
        return cls(n_classes, float(np.exp(brentq(off, least, most, xtol=1e-6))), shared)

    @property
    def is_known(self) -> bool:
        """Whether probabilities are reported."""
        return self.power is not None

    def __call__(self, probability: Any) -> FloatArray:
        """Return the reported probabilities of labels; NaN if none are reported."""
        p = np.asarray(probability, dtype=np.float64)
        if self.power is None:
            return np.full(p.shape, np.nan)
        return np.asarray(1 - self.above * (1 - self.below * self._raised(p, self.power)))

    def _raised(self, p: FloatArray, power: float) -> FloatArray:
        """Return probabilities whose odds are raised to the power."""
        even = 1.0 / self.n_classes
        odds = logit(p.clip(SUREST, 1 - SUREST)) - logit(even)
        q: FloatArray = (1 - self.shared) * expit(logit(even) + power * odds) + self.shared * even
        return q

    def of_labels(self, posterior: Any, codes: IntArray, known: BoolArray | None) -> FloatArray:
        """Return the reported probability of each label, shape (n,), which is 1 where ``known``.

        For a label that was left open (-1) it is that of the most probable class.
        """
        p = label_probability(posterior, codes)
        told = self(p)
        return told if known is None else np.where(known, p, told)

    def of_classes(
        self, posterior: FloatArray, codes: IntArray, known: BoolArray | None = None
    ) -> FloatArray:
        """Return the reported probability of every class, not of the label alone.

        The odds of the other classes are raised to the same power, and the classes share the
        probability that the label leaves. A class that is less probable than the label by the
        method never gets a larger probability than the label.

        Parameters
        ----------
        posterior : array of shape (n, n_classes)
        codes : integer array of shape (n,)
            Labels; -1 where one was left open, which stands for the most probable class.
        known : boolean array of shape (n,), optional
            Instances whose label was given, for which ``posterior`` is returned unchanged.

        Returns
        -------
        array of shape (n, n_classes)
            In the column of the label the value of `of_labels`; NaN if none are reported.
        """
        rows = np.arange(len(codes))
        codes = np.where(codes < 0, posterior.argmax(axis=1), codes)
        label = self(posterior[rows, codes])[:, None]
        if self.power is None or self.n_classes < 2:
            found = np.repeat(label, posterior.shape[1], axis=1)
        else:
            share = self._raised(posterior, self.power)
            share[rows, codes] = 0.0
            share /= share.sum(axis=1, keepdims=True)
            top = posterior[rows, codes] >= posterior.max(axis=1)
            # Where another class would overtake the label, all other classes are scaled down.
            most, even = share.max(axis=1, keepdims=True), 1 / (self.n_classes - 1)
            limit = label / np.maximum(1 - label, SUREST)
            closer = ((most - limit) / np.maximum(most - even, SUREST)).clip(0, 1)
            share += np.where(top[:, None], closer, 0.0) * (even - share)
            found = (1 - label) * share
            found[top] = np.minimum(found[top], label[top])
            found[rows, codes] = label[:, 0]
        if known is not None:
            found[known] = posterior[known]
        return found


def label_probability(posterior: Any, codes: IntArray) -> FloatArray:
    """Return the method's probability of each label, or the largest one where it was left open."""
    if not len(codes):
        return np.zeros(0)
    chosen = entries(posterior, np.arange(len(codes)), codes)
    found: FloatArray = np.where(codes >= 0, chosen, row_max(posterior))
    return found


def n_less_probable(posterior: Any, codes: IntArray) -> int:
    """Count the labels that the method finds less probable than another class."""
    return (
        int((label_probability(posterior, codes) < row_max(posterior)).sum()) if len(codes) else 0
    )


def with_open(
    codes: IntArray, told: FloatArray, posterior: Any, threshold: float | None
) -> IntArray:
    """Leave labels open (-1) whose probability is below a threshold.

    Parameters
    ----------
    codes : integer array of shape (n,)
        Labels of all instances.
    told : array of shape (n,)
        Reported probabilities of these labels; where they are NaN, the method's own count.
    posterior : array or sparse array of shape (n, n_classes)
    threshold : float or None
        None leaves nothing open.
    """
    if threshold is None:
        return codes
    sure = np.where(np.isnan(told), label_probability(posterior, codes), told)
    return np.where(sure >= threshold, codes, -1)


def certainty_of(
    table: AnnotationTable,
    level: Level | None,
    posterior: Any,
    codes: IntArray,
    known: BoolArray | None = None,
) -> Certainty:
    """Return the map to the reported probabilities of a table's labels, given their level.

    Parameters
    ----------
    table : AnnotationTable
    level : Level or None
        Share of right labels, over the annotated instances whose label was not given.
    posterior : array or sparse array of shape (n_instances, n_classes)
    codes : integer array of shape (n_instances,)
        Labels; -1 where one was left open.
    known : boolean array of shape (n_instances,), optional
        Instances whose label was given.
    """
    free = _free(table, codes, known)
    return Certainty.of(level, label_probability(posterior, codes)[free], table.n_classes)


def _free(table: AnnotationTable, codes: IntArray, known: BoolArray | None) -> BoolArray:
    """Mask the labels that a level is about: of annotated instances, and not given."""
    free: BoolArray = (table.annotations_per_instance() > 0) & (codes >= 0)
    return free if known is None else free & ~known


class LevelOfSome(NamedTuple):
    """Share of right labels among some of them, and whether gold labels of these measure it."""

    level: Level
    is_measured: bool


def level_of_some(
    table: AnnotationTable,
    level: Level | None,
    posterior: Any,
    codes: IntArray,
    some: BoolArray,
    *,
    known: BoolArray | None = None,
    gold: IntArray | None = None,
) -> LevelOfSome | None:
    """Return the share of right labels among some, such as those of at least a probability.

    It is their mean reported probability, so that it agrees with the table of labels. The ends of
    its interval are the mean probabilities that the ends of ``level`` imply, and it allows for
    `SUBSET_ERRORS` and for chance. If these labels have so much gold that it is far more exact, the
    share is measured on it.

    Parameters
    ----------
    table : AnnotationTable
    level : Level or None
        Share of right labels over all annotated instances whose label was not given.
    posterior : array or sparse array of shape (n_instances, n_classes)
    codes : integer array of shape (n_instances,)
        Labels of all instances, also of those that are left open for want of probability.
    some : boolean array of shape (n_instances,)
    known : boolean array of shape (n_instances,), optional
        Instances whose label was given, which do not count.
    gold : integer array of shape (n_instances,), optional
        True classes, -1 where unknown. They count if ``level`` is measured on all of them.

    Returns
    -------
    LevelOfSome or None
        None if the level of all labels is unknown, or no label counts.
    """
    free = _free(table, codes, known)
    own = free & some
    if level is None or not own.any() or table.n_classes < 2:
        return None
    if own.sum() == free.sum():
        return LevelOfSome(level, level.is_measured)
    p = label_probability(posterior, codes)

    def mean(of: Level) -> float:
        """Return the mean probability that a level of all labels implies."""
        return float(Certainty.of(of, p[free], table.n_classes)(p[own]).mean())

    value, n = float(np.clip(mean(level), *LIMITS)), int(own.sum())
    ends = [mean(level._replace(value=end, of_labels=None)) for end in level[1:3]]
    whole = level.value if level.of_labels is None else level.of_labels
    apart = _apart(value, ends, whole, n)
    found = Level(value, *_interval(value, apart, n), level.source, level.n)
    if gold is None or level.source != "gold" or level.n != (free & (gold >= 0)).sum():
        return LevelOfSome(found, False)
    judged = own & (gold >= 0)
    n_gold = int(judged.sum())
    # By the error that gold is expected to have: the one found is least if all happen to be right.
    error = MEASURES * Z * np.sqrt((1 - n_gold / n) / max(n_gold * value * (1 - value), 1e-9))
    if n_gold < LEAST_GOLD or error > apart.mean():
        return LevelOfSome(found, False)
    return LevelOfSome(level_of_gold((codes == gold)[judged], "gold"), True)


def interval_of_some(
    value: float, ends: Sequence[float], whole: float, n: int
) -> tuple[float, float]:
    """Return the interval of the share of right labels among ``n``, as `level_of_some` does.

    Parameters
    ----------
    value : float
        Their mean reported probability.
    ends : sequence of two floats
        The mean probabilities that the ends of the interval of all labels imply.
    whole : float
        Share of right labels among all.
    n : int
    """
    return _interval(value, _apart(value, ends, whole, n), n)


def _apart(value: float, ends: Sequence[float], whole: float, n: int) -> FloatArray:
    """Return how far the ends of an interval are below and above ``value``, in logits."""
    middle = _logit(value)
    by_level = np.array([_logit(end) - middle for end in ends])
    by_order = np.multiply(SUBSET_ERRORS, middle - _logit(whole))
    chance = 1 / (n * expit(middle) * expit(-middle))
    apart: FloatArray = np.sqrt(by_level**2 + Z**2 * (by_order**2 + chance))
    return apart


def _interval(value: float, apart: FloatArray, n: int) -> tuple[float, float]:
    low, high = map(float, expit(_logit(value) + apart * [-1, 1]))
    high = 1.0 if high**n > 0.025 else max(high, value)  # All of a few labels may be right.
    return min(low, value), high


def _logit(share: float) -> float:
    return float(logit(np.clip(share, *LIMITS)))
