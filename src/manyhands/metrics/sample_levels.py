"""The share of right labels, estimated from randomly drawn labels that people checked."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from manyhands.metrics.intervals import share_interval
from manyhands.metrics.mean_estimate import mean_estimate
from manyhands.typing import BoolArray, FloatArray, IntArray

Source = Literal["gold", "sample", "cross-validation", "model"]

LEAST_GOLD = 10
"""Number of known labels below which nothing is measured on them."""

VAGUE = 0.8
"""Width of an interval above which a level counts as unknown."""

MODEL_LABELS = 10.0
"""Number of checked labels that a model's expected level counts for.

On random samples of 10, 25, 50 and 100 labels from the tables of docs/results/claims.md, it lowers
the error of the estimate from 11.2, 7.5, 5.6 and 3.9 points to 8.0, 6.3, 5.1 and 3.6. The values 5
and 20 do about as well.
"""


class Level(NamedTuple):
    """Share of labels that are right, with its interval and source.

    Attributes
    ----------
    value, low, high : float
        Share, and the bounds of its 95 % interval.
    source : {"gold", "sample", "cross-validation", "model"}
        "gold": measured on gold labels. "sample": estimated from a random sample that people
        checked. "cross-validation": estimated from out-of-fold predictions against the annotators.
        "model": expected by a model of the annotators, not measured.
    n : int
        Number of gold labels, checked labels or annotated instances that it rests on.
    of_labels : float or None
        Mean to which the probabilities of single labels are calibrated; None: ``value``. It differs
        from a share that is measured on gold labels, where a model's expectation counts as ten more
        of them, because a few gold labels may all happen to be easy.
    other_part : float or None
        Share of right labels in the part that ``value`` is not of. If the level is measured on gold
        drawn at random: estimate for the labels without gold. If it is estimated from a sample:
        share in the sample, as inferred without it. Else None.
    """

    value: float
    low: float
    high: float
    source: Source
    n: int
    of_labels: float | None = None
    other_part: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether it rests on labels that are known to be right."""
        return self.source in ("gold", "sample")

    @property
    def is_vague(self) -> bool:
        """Whether the interval is so wide that the share counts as unknown."""
        return self.high - self.low > VAGUE

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return self._asdict()


def contradiction(
    right: BoolArray, rows: IntArray, sampled: FloatArray, top: FloatArray, free: BoolArray
) -> str | None:
    """Say that a random sample contradicts an overconfident model; None if it does not.

    Parameters
    ----------
    right : boolean array of shape (m,)
        Whether the model's labels of the sample were right.
    rows : integer array of shape (m,)
        Instances of the sample.
    sampled : array of shape (m,)
        Model's probabilities of these labels, without knowledge of people's decisions.
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
        f"expects {100 * mean:.0f} % of the other labels to be right, but by the sample "
        f"{100 * level.value:.0f} % are ({100 * level.low:.0f} to {100 * level.high:.0f} %). So no "
        "label is accepted that nobody reviewed"
    )


def level_of_sample(
    right: BoolArray,
    has: BoolArray,
    expected: Any,
    free: BoolArray,
    model_level: float | None = None,
) -> Level:
    """Estimate the share of right labels from a random sample, and from a model's expectation.

    The estimate is that of the labels that nobody checked: the sample is subtracted from the mean
    over all. It is never exactly 0 or 1, because a sample without a wrong label does not show that
    there is none. So half a label of either kind is added (Jeffreys), and ten labels of which
    ``model_level`` are right, as far as the interval allows.

    Parameters
    ----------
    right : boolean array of shape (n_instances,)
        Whether the label was right; only read where ``has`` is true.
    has : boolean array of shape (n_instances,)
        Instances of the sample.
    expected : array of shape (n_instances,), or None
        Model's probability of each label.
    free : boolean array of shape (n_instances,)
        Annotated instances whose label nobody gave.
    model_level : float, optional
        Share of right labels that a model expects.

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
    if m > n and model_level is not None:
        value = _with_model(n * value, n, model_level, low, high)
    elif m > n:
        value = float(np.clip((n * value + 0.5) / (n + 1), low, high))
    return Level(value, low, high, "sample", n, other_part=k / n if m > n else None)


def level_of_gold(right: BoolArray, source: Source, model_level: float | None = None) -> Level:
    """Return the measured share of right labels, and its interval.

    If all labels are right, or none is, half a label of either kind is added (Jeffreys). With
    ``model_level``, the share that a model expects, single labels are calibrated to a mean between
    both, as with `level_of_sample`.
    """
    n, k = len(right), int(np.asarray(right, dtype=bool).sum())
    low, high = map(float, share_interval(k, n, level=0.95))
    value = k / n if 0 < k < n else (k + 0.5) / (n + 1)
    both = None if model_level is None else _with_model(k, n, model_level, low, high)
    return Level(value, low, high, source, n, both)


def _with_model(k: float, n: int, model_level: float, low: float, high: float) -> float:
    """Return the share of k right labels among n, and of ten more that a model expects."""
    more = MODEL_LABELS * float(np.clip(model_level, low, high))
    return float(np.clip((k + 0.5 + more) / (n + 1 + MODEL_LABELS), low, high))
