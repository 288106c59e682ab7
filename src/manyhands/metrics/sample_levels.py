"""How many labels are right by those that people drew at random and checked."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from manyhands.metrics.mean_estimate import mean_estimate
from manyhands.typing import BoolArray, FloatArray, IntArray

Source = Literal["gold", "sample", "cross-validation", "model"]

LEAST_GOLD = 10
"""Known labels below which nothing is measured with them."""

VAGUE = 0.8
"""Width of an interval from which on it says nothing."""


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


def level_of_sample(right: BoolArray, has: BoolArray, expected: Any, free: BoolArray) -> Level:
    """Estimate from a random sample of all labels, and what a model expects of all.

    The estimate is of the labels that nobody checked: what is known of the sample is taken out of
    the mean of all.
    """
    among = free | has
    everywhere = np.zeros(int(among.sum())) if expected is None else expected[among]
    predicted = np.zeros(int(has.sum())) if expected is None else expected[has]
    found = mean_estimate(right[has], predicted, everywhere)
    bounds = np.array([found.estimate, found.low, found.high])
    n, rest = len(everywhere), len(everywhere) - int(has.sum())
    if rest:
        bounds = ((n * bounds - right[has].sum()) / rest).clip(0.0, 1.0)
    value, low, high = bounds.tolist()
    return Level(value, low, high, "sample", int(has.sum()))
