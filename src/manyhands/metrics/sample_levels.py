"""How many labels are right by those that people drew at random and checked."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from manyhands.metrics.intervals import share_interval
from manyhands.metrics.mean_estimate import mean_estimate
from manyhands.typing import BoolArray, FloatArray, IntArray

Source = Literal["gold", "sample", "cross-validation", "model"]

LEAST_GOLD = 10
"""Known labels below which nothing is measured with them."""

VAGUE = 0.8
"""Width of an interval from which on it says nothing."""

MODEL_LABELS = 10.0
"""How many checked labels the level that a model expects is worth. On random samples of the tables
of docs/results/claims.md it takes the error of an estimate from 10, 25, 50 and 100 labels from
11.2, 7.5, 5.6 and 3.9 points to 8.0, 6.3, 5.1 and 3.6; 5 and 20 do about the same."""


class Level(NamedTuple):
    """A share of right labels.

    Attributes
    ----------
    value, low, high : float
        Share, and the bounds of its 95 % interval.
    source : {"gold", "sample", "cross-validation", "model"}
        Measured on gold labels; estimated from a random sample that people checked; out of fold,
        against the annotators; or as a model of the annotators expects, which nobody measured.
    n : int
        Labels that it rests on: gold labels, checked labels, or annotated instances.
    """

    value: float
    low: float
    high: float
    source: Source
    n: int

    @property
    def is_measured(self) -> bool:
        """Whether it rests on labels that are known to be right."""
        return self.source in ("gold", "sample")

    @property
    def is_vague(self) -> bool:
        """Whether the interval says nothing: then the share is not known."""
        return self.high - self.low > VAGUE

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return self._asdict()


def contradiction(
    right: BoolArray, rows: IntArray, sampled: FloatArray, top: FloatArray, free: BoolArray
) -> str | None:
    """Say that a random sample contradicts a model, which is too sure of the other labels, or None.

    Parameters
    ----------
    right : boolean array of shape (m,)
        Whether the model's labels of the sample were right.
    rows : integer array of shape (m,)
        Instances of the sample.
    sampled : array of shape (m,)
        Probabilities of these labels, without what people said of them.
    top : array of shape (n_instances,)
        Probabilities of all labels.
    free : boolean array of shape (n_instances,)
        Annotated instances whose label nobody gave.
    """
    if len(rows) < LEAST_GOLD or not free.any():
        return None
    expected, has, truth = np.array(top), np.zeros(len(top), dtype=bool), np.zeros(len(top), bool)
    expected[rows], has[rows], truth[rows] = sampled, True, right
    level, mean = level_of_sample(truth, has, expected, free), float(expected[free].mean())
    if mean <= level.high:
        return None
    return (
        f"The {level.n} labels that were drawn at random and reviewed contradict the model: it "
        f"expects {mean:.0%} of the other labels to be right, and by the sample "
        f"{level.value:.0%} are ({level.low:.0%} to {level.high:.0%}), so no label is accepted "
        "that nobody reviewed"
    )


def level_of_sample(
    right: BoolArray,
    has: BoolArray,
    expected: Any,
    free: BoolArray,
    model_level: float | None = None,
) -> Level:
    """Estimate from a random sample of all labels, and what a model expects of all.

    The estimate is of the labels that nobody checked: what is known of the sample is taken out of
    the mean of all. It is never exactly 0 or 1: a sample without a wrong label does not say that
    there is none. So it counts half a label of either kind more (Jeffreys), and ten labels of which
    a share of ``model_level`` is right, as far as the interval allows.

    Parameters
    ----------
    right : boolean array of shape (n_instances,)
        Whether the label was right, where ``has``.
    has : boolean array of shape (n_instances,)
        Instances of the sample.
    expected : array of shape (n_instances,), or None
        What a model expects of each label.
    free : boolean array of shape (n_instances,)
        Annotated instances whose label nobody gave.
    model_level : float, optional
        The share of right labels that a model expects.

    Returns
    -------
    Level
    """
    among = free | has
    everywhere = np.zeros(int(among.sum())) if expected is None else expected[among]
    predicted = np.zeros(int(has.sum())) if expected is None else expected[has]
    found = mean_estimate(right[has], predicted, everywhere)
    bounds = np.array([found.estimate, found.low, found.high])
    m, n, k = len(everywhere), int(has.sum()), int(right[has].sum())
    if m > n:
        bounds = ((m * bounds - k) / (m - n)).clip(0.0, 1.0)
    value, low, high = bounds.tolist()
    if m > n:
        value, more = n * value + 0.5, 0.0
        if model_level is not None:
            value, more = value + MODEL_LABELS * np.clip(model_level, low, high), MODEL_LABELS
        value = float(np.clip(value / (n + 1 + more), low, high))
    return Level(value, low, high, "sample", n)


def level_of_gold(right: BoolArray, source: Source) -> Level:
    """Return the measured share of right labels, and its interval.

    Where all are right, or none is, it counts half a label of either kind more (Jeffreys).
    """
    n, k = len(right), int(np.asarray(right, dtype=bool).sum())
    low, high = share_interval(k, n, level=0.95)
    value = k / n if 0 < k < n else (k + 0.5) / (n + 1)
    return Level(value, float(low), float(high), source, n)
