"""How sure single labels are said to be: their mean probability is the level that is told of all.

A model is surer of its labels than it should be, and most of those that it is surest of: mistakes
that most annotators share look certain. What is told of a single label has to agree with what is
told of them all. So its odds are raised to a power, which is that of all labels, and even the
surest label may be wrong. Where nothing tells how many labels are right, nothing is told of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

from manyhands.annotations import AnnotationTable
from manyhands.decision.labels import entries, row_max
from manyhands.metrics.sample_levels import Level
from manyhands.typing import BoolArray, FloatArray, IntArray

SHARED = 0.4
"""How often even the surest label is wrong, as a share of how often labels are wrong on average.

On the tables of docs/results/claims.md, each family of tables left out in turn, the log loss of the
told probabilities of the others is least at .25 to .35, and the accepted labels are right as often
as told, on the mean of the tables, from .35 to .5 on."""

SUREST = 1e-6
"""Probabilities closer to 0 or 1 are not told apart."""

POWERS = 1e-3, 1e3
"""Least and greatest power of the odds."""

MOST = 100_000
"""Labels that the power is found with."""


@dataclass(frozen=True)
class Certainty:
    """From a method's probability of a label to the one that is told.

    With p the method's probability, and c = 1 / (number of classes), it is (1 - e) q + e c, where
    logit q = logit c + ``power`` (logit p - logit c) and e is ``shared``.

    Attributes
    ----------
    n_classes : int
    power, shared : float
        ``power`` is None where nothing tells how many labels are right: then no probability is
        told, which is NaN.
    below, above : float
        A last factor of the probability, and of the one to be wrong, where no power reaches the
        level.
    """

    n_classes: int
    power: float | None = None
    shared: float = 0.0
    below: float = 1.0
    above: float = 1.0

    @classmethod
    def of(cls, level: Level | None, probability: FloatArray, n_classes: int) -> Certainty:
        """Find the power with which the mean probability of labels is their level.

        Parameters
        ----------
        level : Level or None
        probability : array of shape (m,)
            Probabilities of the labels that the level is about.
        n_classes : int
        """
        if level is None or n_classes < 2:
            return cls(n_classes)
        value = float(np.clip(level.value, 1e-3, 1 - 1e-3))
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
        """Whether anything is told."""
        return self.power is not None

    def __call__(self, probability: Any) -> FloatArray:
        """Return what is told of labels with these probabilities; NaN where nothing is."""
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
        """Return what is told of each label, shape (n,): 1 of those that are ``known``.

        Of a label that was left open (-1) it is the probability of the most probable class.
        """
        p = label_probability(posterior, codes)
        told = self(p)
        return told if known is None else np.where(known, p, told)

    def of_classes(
        self, posterior: FloatArray, codes: IntArray, known: BoolArray | None = None
    ) -> FloatArray:
        """Return what is told of every class of each instance, not of its label alone.

        The odds of the other classes are raised as those of the label are, and they share what the
        label leaves. A class that the method holds less probable than the label is never told to
        be more probable.

        Parameters
        ----------
        posterior : array of shape (n, n_classes)
        codes : integer array of shape (n,)
            Labels; -1 where one was left open, which stands for the most probable class.
        known : boolean array of shape (n,), optional
            Instances whose label was given: of them, ``posterior`` is told as it is.

        Returns
        -------
        array of shape (n, n_classes)
            That of the label is `of_labels`; NaN where nothing is told.
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
            # Where the most probable of the others would overtake the label, all come closer.
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


def certainty_of(
    table: AnnotationTable,
    level: Level | None,
    posterior: Any,
    codes: IntArray,
    known: BoolArray | None = None,
) -> Certainty:
    """Return how sure labels of a table are said to be, if ``level`` is told of them.

    Parameters
    ----------
    table : AnnotationTable
    level : Level or None
        That of the annotated instances with a label that is not known.
    posterior : array or sparse array of shape (n_instances, n_classes)
    codes : integer array of shape (n_instances,)
        Labels; -1 where one was left open.
    known : boolean array of shape (n_instances,), optional
        Instances whose label was given.
    """
    free = (table.annotations_per_instance() > 0) & (codes >= 0)
    if known is not None:
        free &= ~known
    return Certainty.of(level, label_probability(posterior, codes)[free], table.n_classes)
